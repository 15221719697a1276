//! The end of directories with a layout that clients follow: removals that are killed or run beside other
//! clients, and closes of idle directories. Further tests use mounts that may only read.

use super::followed::{
    BOTH, COMPOSED, CONTAINER, DIR, FILE, fails, laid, name, names, read, with_clients, with_clients_of,
    write,
};
use bytes::Bytes;
use shoal_client::Client;
use shoal_env::Env;
use shoal_proto::{Handle, Rights, ServerId, Status};
use shoal_sim::{Cluster, ClusterConfig};
use shoal_transform::{Followed, FollowedOptions, Wishes};
use shoal_vfs::{Connect, Error, Listing, Vfs, VfsFile};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Go on with a call until it was polled so often. Its result, if it has ended.
pub(super) async fn polled<F: Future>(call: &mut Pin<&mut F>, times: usize) -> Option<F::Output> {
    let mut polls = 0;
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        call.as_mut().poll(context).map(Some)
    })
    .await
}

/// So long a composed directory that is not used is closed.
const IDLE: Duration = Duration::from_secs(5);
/// Steps of a removal after which something happens are so far apart, so that a test takes seconds.
const STEPS_APART: usize = 2;

/// And so many more lie between a look of another client and its first change.
const LATER: usize = 16;

/// An emptied composed directory, and a client that knows its extents and keeps it open. The records that
/// make its files lie in other extents than those that remove them.
async fn emptied(env: &Env, clients: &[Client], text: &str) -> (Handle, Followed<Client>, impl Sized) {
    let dir = laid(&clients[0], text, COMPOSED).await.handle;
    let [maker, emptier, reader] =
        [0, 1, 2].map(|number: usize| Followed::new(env.clone(), clients[number].clone()));
    for followed in [&maker, &emptier, &reader] {
        followed.lookup(Handle::ROOT, &name(text)).await.unwrap();
    }
    for file in ["old1", "old2", "old3"] {
        write(&maker, dir, file, b"bytes").await;
    }
    // In the middle of a listing it stays open.
    let mut listing = reader.opendir(dir, Duration::ZERO);
    listing.next(true).await.unwrap().unwrap();
    env.sleep(IDLE).await;
    for file in ["old1", "old2", "old3"] {
        emptier.unlink(dir, &name(file)).await.unwrap();
    }
    env.sleep(IDLE).await;
    assert_eq!(reader.lookup(dir, &name("old1")).await.expect_err("removed").status, Status::NotFound);
    (dir, reader, listing)
}

/// Make a file in the directory as a process that begins to use it does.
async fn begins(env: &Env, client: &Client, text: &str, file: &str) -> Result<Followed<Client>, Error> {
    let followed = Followed::new(env.clone(), client.clone());
    let dir = followed.lookup(Handle::ROOT, &name(text)).await?.handle;
    let (_, _, made) = followed.create(dir, &name(file), FILE, true, BOTH).await?;
    made.write(0, Bytes::from_static(b"fresh")).await?;
    made.close().await?;
    Ok(followed)
}

/// The one file of the directory is the new one, for a client that opens it and for one that had it open;
/// whether that one saw it at once. It has to leave one that was made composed anew.
async fn has_only_new(
    env: &Env,
    client: &Client,
    (reader, listing): (&Followed<Client>, impl Sized),
    text: &str,
    step: usize,
) -> bool {
    let opener = Followed::new(env.clone(), client.clone());
    let dir = opener.lookup(Handle::ROOT, &name(text)).await.unwrap().handle;
    let read_on = reader.lookup(dir, &name("new1")).await;
    if read_on.is_err() {
        fails(read_on.clone(), Status::Stale);
        drop(listing);
        env.sleep(IDLE).await;
    }
    for followed in [&opener, reader] {
        let dir = followed.lookup(Handle::ROOT, &name(text)).await.unwrap().handle;
        assert_eq!(names(followed, dir).await, ["new1"], "step {step}");
        assert_eq!(read(followed, dir, "new1").await, "fresh", "step {step}");
    }
    read_on.is_ok()
}

#[test]
fn a_removal_that_is_killed_at_any_step_leaves_a_directory_that_is_empty_or_can_be_removed() {
    with_clients(2, 4, async |env, clients| {
        let (mut used, mut at_once, mut finished, mut next) = (0, 0, 0, 0);
        loop {
            // The steps at which it cannot be opened are few: each of them from the first one on.
            let step = next;
            next += if finished == 0 { STEPS_APART } else { 1 };
            let text = format!("laid-{step}");
            let (dir, reader, listing) = emptied(&env, &clients, &text).await;
            let remover = Followed::new(env.clone(), clients[3].clone());
            remover.lookup(Handle::ROOT, &name(&text)).await.unwrap();
            let laid_name = name(&text);
            let removed = {
                let mut removal = pin!(remover.rmdir(Handle::ROOT, &laid_name));
                polled(&mut removal, step).await
            };
            drop(remover);
            if let Some(removed) = removed {
                removed.unwrap();
                fails(reader.lookup(Handle::ROOT, &name(&text)).await, Status::NotFound);
                let counts = (used, at_once, finished);
                assert!(used > 10 && at_once > 10 && finished > 2, "went on, at once, finished: {counts:?}");
                return;
            }
            let there = Vfs::lookup(&clients[1], Handle::ROOT, &name(&text)).await;
            if there.is_err_and(|error| error.status == Status::NotFound) {
                continue;
            }
            match begins(&env, &clients[1], &text, "new1").await {
                Ok(writer) => {
                    let kept = (&reader, listing);
                    at_once += usize::from(has_only_new(&env, &clients[0], kept, &text, step).await);
                    writer.unlink(dir, &name("new1")).await.unwrap();
                    used += 1;
                }
                Err(_) => finished += 1,
            }
            env.sleep(IDLE).await;
            let again = Followed::new(env.clone(), clients[0].clone());
            let removed = again.rmdir(Handle::ROOT, &name(&text)).await;
            assert!(removed.is_ok(), "step {step}: {removed:?}");
        }
    });
}

#[test]
fn a_removal_and_a_client_that_begins_at_any_step_of_it_do_not_both_succeed() {
    with_clients(2, 4, async |env, clients| {
        let (mut wrote, mut at_once, mut refused) = (0, 0, 0);
        for step in (0..).step_by(STEPS_APART) {
            let text = format!("laid-{step}");
            let (dir, reader, listing) = emptied(&env, &clients, &text).await;
            let remover = Followed::new(env.clone(), clients[3].clone());
            remover.lookup(Handle::ROOT, &name(&text)).await.unwrap();
            let laid_name = name(&text);
            let mut removal = pin!(remover.rmdir(Handle::ROOT, &laid_name));
            if let Some(removed) = polled(&mut removal, step).await {
                removed.unwrap();
                let counts = (wrote, at_once, refused);
                assert!(wrote > 10 && at_once > 10 && refused > 2, "wrote, at once, refused: {counts:?}");
                return;
            }
            // The one that has it open reads it between two steps, and sees what follows all the same.
            drop(reader.lookup(dir, &name("missing")).await);
            if step % 3 == 0
                && let Some(removed) = polled(&mut removal, LATER).await
            {
                removed.unwrap();
                continue;
            }
            let made = begins(&env, &clients[1], &text, "new1").await;
            let removed = removal.as_mut().await;
            match made {
                Ok(writer) => {
                    assert!(removed.is_err(), "step {step}: both succeeded");
                    let kept = (&reader, listing);
                    at_once += usize::from(has_only_new(&env, &clients[0], kept, &text, step).await);
                    writer.unlink(dir, &name("new1")).await.unwrap();
                    wrote += 1;
                    env.sleep(IDLE).await;
                    let again = Followed::new(env.clone(), clients[0].clone());
                    let removed = again.rmdir(Handle::ROOT, &name(&text)).await;
                    assert!(removed.is_ok(), "step {step}: {removed:?}");
                }
                Err(_) => {
                    assert!(removed.is_ok(), "step {step}: neither succeeded: {removed:?}");
                    refused += 1;
                }
            }
            fails(Vfs::lookup(&clients[0], Handle::ROOT, &name(&text)).await, Status::NotFound);
        }
    });
}

#[test]
fn a_removal_names_an_entry_that_is_not_of_the_layout_and_removes_nothing() {
    with_clients(2, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        let dir = laid(&client, "laid", COMPOSED).await.handle;
        let followed = Followed::new(env.clone(), client.clone());
        followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        write(&followed, dir, "file", b"bytes").await;
        followed.unlink(dir, &name("file")).await.unwrap();
        Vfs::mkdir(&client, dir, &name("foreign"), DIR).await.unwrap();
        env.sleep(IDLE).await;
        let before = names(&client, dir).await;
        let words = fails(followed.rmdir(Handle::ROOT, &name("laid")).await, Status::NotEmpty);
        assert!(words.contains("`foreign`"), "{words}");
        let is_a_writer = |name: &String| name.starts_with("w.");
        assert_eq!(names(&client, dir).await, before);
        assert!(!before.iter().any(is_a_writer));
        write(&followed, dir, "again", b"bytes").await;
        followed.unlink(dir, &name("again")).await.unwrap();
        Vfs::rmdir(&client, dir, &name("foreign")).await.unwrap();
        followed.rmdir(Handle::ROOT, &name("laid")).await.unwrap();
    });
}

/// The files of writers that have not ended.
async fn writers(client: &Client, dir: Handle) -> usize {
    let claims = Vfs::lookup(client, dir, &name("claims")).await.unwrap().handle;
    names(client, claims).await.iter().filter(|name| name.starts_with("w.")).count()
}

#[test]
fn what_is_synced_while_an_idle_directory_is_closed_covers_what_was_written_before() {
    for way in 0..3 {
        with_clients(4, 1, async move |env, mut clients| {
            let client = clients.pop().unwrap();
            let dir = laid(&client, "laid", COMPOSED).await.handle;
            let followed = Followed::new(env.clone(), client.clone());
            followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
            write(&followed, dir, "file", b"bytes").await;
            while followed.domains_open() > 0 {
                env.sleep(Duration::from_micros(50)).await;
            }
            assert_eq!(writers(&client, dir).await, 1, "it is being closed");
            match way {
                0 => followed.sync_all().await.unwrap(),
                1 => followed.fsync_directory(dir).await.unwrap(),
                _ => {
                    let file = followed.open_name(dir, &name("file"), BOTH).await.unwrap();
                    file.fsync().await.unwrap();
                    file.close().await.unwrap();
                }
            }
            // The close made all durable before it took the writer's file away.
            assert_eq!(writers(&client, dir).await, 0, "way {way}");
        });
    }
}

#[test]
fn bytes_that_do_not_fit_on_a_disk_are_written_when_it_has_space_also_after_idle_closes() {
    let config = ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(1, &config);
    let (world, usual) = (cluster.world.clone(), config.world.machine.disk);
    let machine = cluster.machine_of_server(ServerId(0)).unwrap();
    with_clients_of(&cluster, 2, async move |env, clients| {
        let dir = laid(&clients[0], "laid", COMPOSED).await.handle;
        let all = [0, 1].map(|number: usize| Followed::new(env.clone(), clients[number].clone()));
        for followed in &all {
            followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        }
        write(&all[0], dir, "before", b"before").await;
        let data = Bytes::from(vec![7; 3 << 20]);
        let (_, _, file) = all[0].create(dir, &name("file"), FILE, true, BOTH).await.unwrap();
        let (total, available) = world.disk_space(machine);
        let mut full = usual;
        full.capacity = total - available;
        world.set_disk(machine, full);
        let mut written = 0;
        while written < data.len() {
            let part = data.slice(written..written + (64 << 10));
            if file.write(written as u64, part).await.is_err() {
                break;
            }
            written += 64 << 10;
        }
        let closed = file.close().await;
        assert!(closed.is_err_and(|error| error.status == Status::NoSpace), "the disk is full");
        assert!(written > 0);
        // It is tried to close it, which fails.
        env.sleep(4 * IDLE).await;
        assert_eq!(all[0].domains_open(), 1);
        let there = all[0].open_name(dir, &name("file"), Rights::READ).await.unwrap();
        // A write that failed may have left a part of its bytes.
        let left = there.read(0, 4 << 20).await.unwrap();
        assert!(left.len() >= written && left.iter().all(|byte| *byte == 7), "{} bytes", left.len());
        there.close().await.unwrap();
        world.set_disk(machine, usual);
        env.sleep(2 * IDLE).await;
        assert_eq!(all[0].domains_open(), 0, "it is closed");
        let there = all[1].open_name(dir, &name("file"), Rights::READ).await.unwrap();
        assert!(there.read(0, 4 << 20).await.unwrap() == left);
        assert_eq!(read(&all[1], dir, "before").await, "before");
        there.close().await.unwrap();
    });
}

#[test]
fn a_directory_of_containers_is_closed_once_what_its_closed_files_wrote_is_durable() {
    with_clients(1, 1, async |env, mut clients| {
        let client = clients.pop().unwrap();
        let followed = Followed::new(env.clone(), client.clone());
        let syncs = || client.counters().messages.get("fsync").copied().unwrap_or(0);
        for number in 0..72 {
            let text = format!("laid-{number}");
            let dir = laid(&client, &text, CONTAINER).await.handle;
            followed.lookup(Handle::ROOT, &name(&text)).await.unwrap();
            write(&followed, dir, "file", b"bytes").await;
            if number == 60 {
                assert_eq!(syncs(), 0, "all are open");
            }
        }
        env.sleep(IDLE).await;
        assert!(followed.domains_open() <= 64);
        assert!(syncs() >= 8, "{} syncs", syncs());
        followed.close().await;
    });
}

#[test]
fn a_mount_that_may_only_read_reads_such_directories_and_makes_nothing_in_them() {
    let config = ClusterConfig { servers: 2, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(2, &config);
    let options = cluster.options();
    with_clients_of(&cluster, 1, async move |env, mut clients| {
        let client = clients.pop().unwrap();
        let dir = laid(&client, "laid", COMPOSED).await.handle;
        let writer = Followed::new(env.clone(), client.clone());
        writer.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        write(&writer, dir, "file", b"bytes").await;
        env.sleep(IDLE).await;
        let before = names(&client, dir).await;
        let mut over = FollowedOptions { over: options, wishes: Wishes::default() };
        over.under_a_kernel(true);
        let reader = over.connect(env.clone()).await.unwrap();
        reader.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        assert_eq!(read(&reader, dir, "file").await, "bytes");
        fails(reader.unlink(dir, &name("file")).await, Status::ReadOnly);
        let made = reader.create(dir, &name("other"), FILE, true, BOTH).await.map(|_| ());
        fails(made, Status::ReadOnly);
        assert_eq!(names(&client, dir).await, before);
        assert_eq!(writers(&client, dir).await, 0);
        reader.close().await;
    });
}
