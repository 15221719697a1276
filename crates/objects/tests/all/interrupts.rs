//! One request of a call is held, or gets no answer, while other processes go on: what they make meanwhile is
//! not lost, and no call lasts longer than its deadline.

use crate::held::Held;
use crate::scene::{BOTH, OWNER, PLAIN, keys, mount, name, run};
use bytes::Bytes;
use futures_util::future::{self, Either, join};
use shoal_env::Env;
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, PART_BYTES_MAX};
use shoal_proto::{Handle, Kind, Rights, Status};
use shoal_vfs::{Vfs, VfsFile};
use std::pin::pin;
use std::time::Duration;

/// Nothing is left, also of the steps that go on after a call.
async fn is_clean(env: &Env, memory: &MemoryStore) {
    env.sleep(Duration::from_secs(1)).await;
    let found = mount(env, memory).await.check().await.unwrap();
    assert_eq!((found.leftovers, found.damage), (Vec::new(), Vec::new()));
}

#[test]
fn a_removed_directory_s_name_is_free_at_once_where_the_hint_to_it_cannot_be_removed() {
    run(1, async |env, memory| {
        for way in ["rmdir", "rename"] {
            let (held, plain) = (Held::new(&memory), mount(&env, &memory).await);
            let vfs = held.mount(&env).await;
            vfs.mkdir(Handle::ROOT, &name("old"), OWNER).await.unwrap();
            vfs.rename(Handle::ROOT, &name("old"), Handle::ROOT, &name("dir"), PLAIN).await.unwrap();
            held.hold("delete", "m/", 0);
            let begun = env.now();
            let freed = match way {
                "rmdir" => {
                    vfs.rmdir(Handle::ROOT, &name("dir")).await.unwrap();
                    "dir"
                }
                _ => {
                    vfs.mkdir(Handle::ROOT, &name("other"), OWNER).await.unwrap();
                    vfs.rename(Handle::ROOT, &name("other"), Handle::ROOT, &name("dir"), PLAIN)
                        .await
                        .unwrap();
                    "other"
                }
            };
            assert!(env.now() - begun < Duration::from_secs(15), "{way}: {:?}", env.now() - begun);
            let begun = env.now();
            plain.mkdir(Handle::ROOT, &name(freed), OWNER).await.unwrap();
            assert!(env.now() - begun < Duration::from_secs(1), "{way}: {:?}", env.now() - begun);
            plain.recover(true).await.unwrap();
            is_clean(&env, &memory).await;
            for text in ["dir", "other"] {
                drop(plain.rmdir(Handle::ROOT, &name(text)).await);
            }
        }
    });
}

#[test]
fn while_a_name_is_damaged_the_check_says_of_no_object_that_it_may_be_removed() {
    run(2, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        let file = vfs.create(dir, &name("file"), OWNER, true, BOTH).await.unwrap().2;
        file.write(0, Bytes::from(vec![1; PART_BYTES_MAX])).await.unwrap();
        file.close().await.unwrap();
        let key = keys(&memory, "/dir").remove(0);
        let whole = memory.objects()[&key].clone();
        memory.set(&key, Some(Bytes::from_static(b"shoalnam: other bytes")));
        env.sleep(Duration::from_secs(1)).await;
        let found = vfs.check().await.unwrap();
        assert_eq!(found.leftovers, Vec::<String>::new());
        assert_eq!(found.damage.len(), 3, "{:?}", found.damage);
        assert!(found.damage[0].contains("/dir"), "{:?}", found.damage);
        for words in &found.damage[1..] {
            assert!(words.contains("restore that first, and remove nothing"), "{words}");
        }
        memory.set(&key, Some(whole));
        is_clean(&env, &memory).await;
    });
}

#[test]
fn one_connection_that_stalls_fails_no_write() {
    run(3, async |env, memory| {
        let held = Held::new(&memory);
        let vfs = held.mount(&env).await;
        let file = vfs.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await.unwrap().2;
        held.hold("put", "d/", 0);
        let begun = env.now();
        file.write(0, Bytes::from(vec![1; PART_BYTES_MAX])).await.unwrap();
        file.close().await.unwrap();
        assert!(held.is_reached());
        assert!(env.now() - begun < Duration::from_secs(15), "{:?}", env.now() - begun);
        let size = mount(&env, &memory).await.lookup(Handle::ROOT, &name("f")).await.unwrap().size;
        assert_eq!(size, PART_BYTES_MAX as u64);
    });
}

#[test]
fn puts_that_wait_for_a_slow_line_do_not_fail_while_others_go_on() {
    run(4, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let mut files = Vec::new();
        for number in 0..17 {
            let text = format!("{number}");
            let file = vfs.create(Handle::ROOT, &name(&text), OWNER, true, BOTH).await.unwrap().2;
            file.write(0, Bytes::from(vec![1; PART_BYTES_MAX - 1])).await.unwrap();
            files.push(file);
        }
        // A part takes 21 s, and all of them longer than a deadline.
        memory.conduct(Conduct { rate: 400 << 10, ..Conduct::default() });
        for closed in future::join_all(files.into_iter().map(|file| file.close())).await {
            closed.unwrap();
        }
        // And where the store is away, a wait has an end.
        let mut files = Vec::new();
        for number in 0..10 {
            let file = vfs.open_name(Handle::ROOT, &name(&format!("{number}")), BOTH).await.unwrap();
            file.write(PART_BYTES_MAX as u64 - 1, Bytes::from(vec![2; PART_BYTES_MAX - 1])).await.unwrap();
            files.push(file);
        }
        memory.conduct(Conduct { ends_after: Some(0), ..Conduct::default() });
        let begun = env.now();
        for closed in future::join_all(files.into_iter().map(|file| file.close())).await {
            assert_eq!(closed.unwrap_err().status, Status::TimedOut);
        }
        assert!(env.now() - begun < Duration::from_secs(200), "{:?}", env.now() - begun);
    });
}

#[test]
fn what_is_made_in_an_empty_directory_while_a_rename_replaces_it_is_there_or_is_refused() {
    run(5, async |env, memory| {
        // At each request of the rename that has one of the names, or lists the directory.
        for (turn, (verb, part, passing)) in
            [("put", "/from", 0), ("put", "/to", 0), ("get", "/to", 1), ("list", "", 1), ("put", "/from", 1)]
                .into_iter()
                .enumerate()
        {
            let (held, plain) = (Held::new(&memory), mount(&env, &memory).await);
            let vfs = held.mount(&env).await;
            let from = plain.mkdir(Handle::ROOT, &name("from"), OWNER).await.unwrap();
            let to = plain.mkdir(Handle::ROOT, &name("to"), OWNER).await.unwrap();
            held.hold(verb, part, passing);
            let mut made = None;
            let (old, new) = (name("from"), name("to"));
            let rename = vfs.rename(Handle::ROOT, &old, Handle::ROOT, &new, PLAIN);
            let make = held.meanwhile(&env, async || {
                made = Some(plain.create(to.handle, &name("file"), OWNER, true, BOTH).await.map(drop));
            });
            let renamed = match future::select(pin!(rename), pin!(make)).await {
                Either::Left((renamed, _)) => renamed,
                Either::Right(((), rename)) => rename.await,
            };
            let fresh = mount(&env, &memory).await;
            let there = fresh.lookup(Handle::ROOT, &name("to")).await.unwrap();
            let words = format!("turn {turn}: {renamed:?} and {made:?}");
            match &renamed {
                Ok(()) => {
                    assert_eq!(there.handle, from.handle, "{words}");
                    assert!(made.is_none_or(|made| made.unwrap_err().status == Status::Stale), "{words}");
                    assert!(fresh.lookup(Handle::ROOT, &name("from")).await.is_err(), "{words}");
                }
                Err(error) => {
                    assert_eq!(error.status, Status::NotEmpty, "{words}");
                    assert_eq!(there.handle, to.handle, "{words}");
                    let old = fresh.lookup(Handle::ROOT, &name("from")).await.unwrap();
                    assert_eq!(old.handle, from.handle, "{words}");
                    let is_there = fresh.lookup(to.handle, &name("file")).await.is_ok();
                    assert_eq!(is_there, made.is_some_and(|made| made.is_ok()), "{words}");
                }
            }
            is_clean(&env, &memory).await;
            drop(fresh.unlink(there.handle, &name("file")).await);
            for text in ["to", "from"] {
                drop(fresh.rmdir(Handle::ROOT, &name(text)).await);
            }
        }
    });
}

#[test]
fn a_directory_whose_move_over_another_is_taken_back_has_one_name_also_after_a_kill() {
    for changes in 0..6 {
        run(9, async move |env, memory| {
            let (held, plain) = (Held::new(&memory), mount(&env, &memory).await);
            let from = plain.mkdir(Handle::ROOT, &name("from"), OWNER).await.unwrap().handle;
            let to = plain.mkdir(Handle::ROOT, &name("to"), OWNER).await.unwrap().handle;
            let vfs = held.mount(&env).await;
            held.hold("put", "/to", 0);
            let killed = held.meanwhile(&env, async || {
                plain.create(to, &name("file"), OWNER, true, BOTH).await.unwrap();
                memory.conduct(Conduct { ends_after: Some(changes), ..Conduct::default() });
            });
            let (old, new, over) = (name("from"), name("to"), env.now() + Duration::from_secs(5));
            let both = join(vfs.rename(Handle::ROOT, &old, Handle::ROOT, &new, PLAIN), killed);
            let renamed = env.deadline(over, Box::pin(both)).await.map(|(renamed, ())| renamed);
            assert_eq!(renamed.is_err(), memory.has_ended(), "after {changes} changes");
            memory.conduct(Conduct::default());
            // Now, and once another process put both names in order.
            for _ in 0..2 {
                let fresh = mount(&env, &memory).await;
                let at_from = fresh.lookup(Handle::ROOT, &old).await.map(|found| found.handle);
                let at_to = fresh.lookup(Handle::ROOT, &new).await.unwrap().handle;
                assert!(at_to == to || at_to == from, "after {changes} changes");
                let is_moved = at_to == from;
                assert_eq!(is_moved, (1..3).contains(&changes), "after {changes} changes");
                assert_eq!(at_from.is_ok_and(|found| found == from), !is_moved, "after {changes} changes");
                let words = fresh.check().await.unwrap().damage;
                assert_eq!(words, Vec::<String>::new(), "after {changes} changes");
                for text in ["from", "to"] {
                    drop(fresh.mkdir(Handle::ROOT, &name(text), OWNER).await);
                }
            }
        });
    }
}

#[test]
fn an_entry_can_be_made_in_a_directory_that_is_moved_again_while_its_name_is_looked_up() {
    run(6, async |env, memory| {
        let (held, one) = (Held::new(&memory), mount(&env, &memory).await);
        let two = held.mount(&env).await;
        one.mkdir(Handle::ROOT, &name("0"), OWNER).await.unwrap();
        let dir = two.lookup(Handle::ROOT, &name("0")).await.unwrap().handle;
        one.rename(Handle::ROOT, &name("0"), Handle::ROOT, &name("1"), PLAIN).await.unwrap();
        // It knows that the name is `1`, and has not looked there.
        held.hold("get", "/1", 0);
        let moved = held.meanwhile(&env, async || {
            one.rename(Handle::ROOT, &name("1"), Handle::ROOT, &name("2"), PLAIN).await.unwrap();
        });
        let (made, ()) = join(two.mkdir(dir, &name("f"), OWNER), moved).await;
        made.unwrap();
        is_clean(&env, &memory).await;
    });
}

#[test]
fn a_directory_that_is_taken_back_keeps_its_name_if_an_entry_was_made_in_it() {
    run(7, async |env, memory| {
        let (held, one) = (Held::new(&memory), mount(&env, &memory).await);
        let two = held.mount(&env).await;
        one.mkdir(Handle::ROOT, &name("0"), OWNER).await.unwrap();
        let dir = two.lookup(Handle::ROOT, &name("0")).await.unwrap().handle;
        one.rename(Handle::ROOT, &name("0"), Handle::ROOT, &name("1"), PLAIN).await.unwrap();
        // The hint is lost: so the other process takes the directory for a removed one.
        memory.set(&keys(&memory, "m/").remove(0), None);
        held.hold("get", "/0", 0);
        let found = held.meanwhile(&env, async || {
            let above = one.lookup(Handle::ROOT, &name("1")).await.unwrap().handle;
            let new = one.lookup(above, &name("new")).await.unwrap().handle;
            one.create(new, &name("file"), OWNER, true, BOTH).await.unwrap();
        });
        let (made, ()) = join(two.mkdir(dir, &name("new"), OWNER), found).await;
        assert_eq!(made.unwrap_err().status, Status::Stale);
        let fresh = mount(&env, &memory).await;
        let above = fresh.lookup(Handle::ROOT, &name("1")).await.unwrap().handle;
        let new = fresh.lookup(above, &name("new")).await.unwrap().handle;
        fresh.lookup(new, &name("file")).await.unwrap();
        is_clean(&env, &memory).await;
    });
}

#[test]
fn a_directory_whose_removal_was_not_ended_has_its_name_and_what_was_made_in_it_meanwhile() {
    // Its process ends before it lists the directory again; an outer directory is removed, or not.
    for outer in [false, true] {
        run(8, async move |env, memory| {
            let (held, one) = (Held::new(&memory), mount(&env, &memory).await);
            let outside = one.mkdir(Handle::ROOT, &name("outer"), OWNER).await.unwrap().handle;
            let dir = one.mkdir(outside, &name("dir"), OWNER).await.unwrap().handle;
            {
                let two = held.mount(&env).await;
                let outside = two.lookup(Handle::ROOT, &name("outer")).await.unwrap().handle;
                held.hold("put", "/dir", 0);
                let ended = held.meanwhile(&env, async || {
                    one.create(dir, &name("file"), OWNER, true, BOTH).await.unwrap();
                    // The put that is held goes on then; the list after it does not.
                    held.hold("list", "", 0);
                });
                let (over, own) = (env.now() + Duration::from_secs(1), name("dir"));
                let both = join(two.rmdir(outside, &own), ended);
                assert!(env.deadline(over, Box::pin(both)).await.is_err());
            }
            let fresh = mount(&env, &memory).await;
            let outside = fresh.lookup(Handle::ROOT, &name("outer")).await.unwrap().handle;
            assert!(fresh.lookup(outside, &name("dir")).await.is_err(), "the removal is under way");
            let found = fresh.check().await.unwrap();
            assert_eq!(found.leftovers.len(), 1, "{:?}", found.leftovers);
            if outer {
                let refused = fresh.rmdir(Handle::ROOT, &name("outer")).await.unwrap_err();
                assert_eq!(refused.status, Status::NotEmpty);
            }
            let begun = env.now();
            let made = fresh.mkdir(outside, &name("dir"), OWNER).await.map(drop);
            assert_eq!(made.unwrap_err().status, Status::Exists);
            assert!(env.now() - begun < Duration::from_secs(35), "{:?}", env.now() - begun);
            let dir = fresh.lookup(outside, &name("dir")).await.unwrap().handle;
            fresh.lookup(dir, &name("file")).await.unwrap();
            is_clean(&env, &memory).await;
        });
    }
}

#[test]
fn a_file_whose_move_is_taken_back_keeps_its_old_directory_or_that_directory_s_removal_waits() {
    run(10, async |env, memory| {
        let (held, plain) = (Held::new(&memory), mount(&env, &memory).await);
        let old = plain.mkdir(Handle::ROOT, &name("old"), OWNER).await.unwrap().handle;
        let new = plain.mkdir(Handle::ROOT, &name("new"), OWNER).await.unwrap().handle;
        plain.create(old, &name("from"), OWNER, true, BOTH).await.unwrap();
        let vfs = held.mount(&env).await;
        let old = vfs.lookup(Handle::ROOT, &name("old")).await.unwrap().handle;
        let new_here = vfs.lookup(Handle::ROOT, &name("new")).await.unwrap().handle;
        assert_eq!(new, new_here);
        held.hold("put", "/to", 0);
        let mut removed = None;
        let (from, to) = (name("from"), name("to"));
        let work = async {
            held.meanwhile(&env, async || {
                plain.rmdir(Handle::ROOT, &name("new")).await.unwrap();
                held.hold("put", "/from", 0);
            })
            .await;
            held.meanwhile(&env, async || {
                removed = Some(plain.rmdir(Handle::ROOT, &name("old")).await);
            })
            .await;
        };
        let (moved, ()) = join(vfs.rename(old, &from, new, &to, PLAIN), work).await;
        assert_eq!(moved.unwrap_err().status, Status::Stale);
        assert_eq!(removed.unwrap().unwrap_err().status, Status::NotEmpty);
        let fresh = mount(&env, &memory).await;
        let old = fresh.lookup(Handle::ROOT, &name("old")).await.unwrap().handle;
        fresh.lookup(old, &name("from")).await.unwrap();
        // The time to delete the object in the removed directory is over.
        env.sleep(Duration::from_secs(1)).await;
        let found = fresh.check().await.unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        let are_removed = found.leftovers.iter().all(|words| words.contains("a name that was removed"));
        assert!(are_removed, "{:?}", found.leftovers);
    });
}

#[test]
fn the_removal_of_a_directory_deletes_no_object_that_was_put_in_it_after_it_was_listed() {
    run(11, async |env, memory| {
        let (held, plain) = (Held::new(&memory), mount(&env, &memory).await);
        let dir = plain.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        plain.create(dir, &name("file"), OWNER, true, BOTH).await.unwrap();
        let key = keys(&memory, "/file").remove(0);
        let put = memory.objects()[&key].clone();
        // A process ends in the removal of the file, and leaves that object.
        memory.conduct(Conduct { ends_after: Some(1), ..Conduct::default() });
        let over = env.now() + Duration::from_secs(1);
        assert!(env.deadline(over, plain.unlink(dir, &name("file"))).await.is_err());
        memory.conduct(Conduct::default());
        let vfs = held.mount(&env).await;
        held.hold("delete", "/dir", 0);
        let work = held.meanwhile(&env, async || memory.set(&key, Some(put.clone())));
        let own = name("dir");
        let (removed, ()) = join(vfs.rmdir(Handle::ROOT, &own), work).await;
        removed.unwrap();
        assert_eq!(memory.objects().get(&key), Some(&put));
    });
}

#[test]
fn a_file_whose_sync_is_given_up_after_a_lost_put_of_its_name_can_be_opened_once_it_is_synced() {
    run(12, async |env, memory| {
        let held = Held::new(&memory);
        let vfs = held.mount(&env).await;
        let file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().2;
        let bytes: Bytes = (0..100 + (1 << 20)).map(|at: usize| (at / 251 + at) as u8).collect();
        file.write(0, bytes.slice(..100)).await.unwrap();
        file.fsync().await.unwrap();
        file.write(100, bytes.slice(100..)).await.unwrap();
        // Its name says that it has parts, and the process does not know it.
        memory.conduct(Conduct { loses_each: 1, ..Conduct::default() });
        assert_eq!(file.fsync().await.unwrap_err().status, Status::TimedOut);
        memory.conduct(Conduct::default());
        // It knows then, and is given up before it says so itself.
        held.hold("put", "/file", 1);
        let given_up = env.deadline(env.now() + Duration::from_secs(5), file.fsync()).await;
        assert!(given_up.is_err() && held.is_reached());
        file.fsync().await.unwrap();
        let is_whole = async || {
            let other = mount(&env, &memory).await;
            let there = other.open_name(Handle::ROOT, &name("file"), Rights::READ).await.unwrap();
            there.read(0, bytes.len() + 1).await.unwrap() == bytes
        };
        assert!(is_whole().await);
        file.close().await.unwrap();
        assert!(is_whole().await);
    });
}

#[test]
fn a_name_whose_move_is_being_taken_back_is_changed_by_no_other_process() {
    run(13, async |env, _| {
        for way in ["move", "replace", "unlink"] {
            let memory = MemoryStore::default();
            let (held, plain, third) =
                (Held::new(&memory), mount(&env, &memory).await, mount(&env, &memory).await);
            let bytes = Bytes::from(vec![7; PART_BYTES_MAX + 1]);
            let file = plain.create(Handle::ROOT, &name("from"), OWNER, true, BOTH).await.unwrap().2;
            file.write(0, bytes.clone()).await.unwrap();
            file.close().await.unwrap();
            let new = plain.mkdir(Handle::ROOT, &name("new"), OWNER).await.unwrap().handle;
            let vfs = held.mount(&env).await;
            for mount in [&third, &vfs] {
                mount.lookup(Handle::ROOT, &name("new")).await.unwrap();
            }
            let (from, to, other, mut done) = (name("from"), name("to"), name("other"), None);
            held.hold("put", "/to", 0);
            let work = async {
                held.meanwhile(&env, async || {
                    plain.rmdir(Handle::ROOT, &name("new")).await.unwrap();
                    held.hold("put", "/to", 0);
                })
                .await;
                // It has its old name again, and still the new one.
                held.meanwhile(&env, async || {
                    done = Some(match way {
                        "move" => third.rename(new, &to, Handle::ROOT, &other, PLAIN).await,
                        "replace" => {
                            third.mknod(Handle::ROOT, &other, OWNER, Kind::Fifo, 0).await.unwrap();
                            third.rename(Handle::ROOT, &other, new, &to, PLAIN).await
                        }
                        _ => third.unlink(new, &to).await,
                    });
                })
                .await;
            };
            let (moved, ()) = join(vfs.rename(Handle::ROOT, &from, new, &to, PLAIN), work).await;
            let fresh = mount(&env, &memory).await;
            let there = fresh.open_name(Handle::ROOT, &from, Rights::READ).await.unwrap();
            assert!(there.read(0, bytes.len() + 1).await.unwrap() == bytes, "{way}: {done:?}");
            let is_there = fresh.lookup(Handle::ROOT, &other).await.is_ok();
            assert_eq!(is_there, way == "replace", "{way}: {done:?}");
            for refused in [moved, done.unwrap()] {
                assert_eq!(refused.unwrap_err().status, Status::Stale, "{way}");
            }
            assert_eq!(fresh.check().await.unwrap().damage, Vec::<String>::new(), "{way}");
        }
    });
}
