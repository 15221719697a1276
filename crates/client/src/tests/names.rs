//! Tests of names: walks, caches, listings, orphans.

use crate::fake::{FakeCluster, Hand, OWNER, name};
use shoal_proto::{Handle, Kind, Rights, ServerId, Status};
use std::time::Duration;

const STRIP: u64 = 4096;

fn made(hand: &Hand, server: u16, dir: Handle, text: &str, kind: Kind) -> Handle {
    hand.cluster.borrow_mut().make(ServerId(server), dir, name(text), kind)
}

#[test]
fn a_walk_goes_on_at_each_server_it_comes_to_with_one_message_each() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let a = made(&hand, 0, Handle::ROOT, "a", Kind::Directory);
    let b = made(&hand, 0, a, "b", Kind::Directory);
    let c = made(&hand, 2, b, "c", Kind::Directory);
    let file = made(&hand, 2, c, "file", Kind::File);
    assert_eq!(hand.run(hand.client.walk(b"/a//./b/c/file", true)).unwrap().handle, file);
    assert_eq!(hand.client.counters().messages_all(), 2);
    assert_eq!(hand.run(hand.client.walk(b"/a/b/c/../../b/c/file", true)).unwrap().handle, file);
    assert_eq!(hand.run(hand.client.walk(b"/", true)).unwrap().handle, Handle::ROOT);
    let error = hand.run(hand.client.walk(b"/a/b/none", true)).unwrap_err();
    assert_eq!(error.status, Status::NotFound);
    assert!(error.to_string().contains("/a/b/none"), "{error}");
    let error = hand.run(hand.client.walk(b"/a/b/c/file/x", true)).unwrap_err();
    assert!(matches!(error.status, Status::NotDirectory | Status::NotFound));
}

#[test]
fn a_client_that_is_to_change_nothing_refuses_changes_and_opens_for_writing_and_sends_nothing() {
    let hand = Hand::with(FakeCluster::new(2, STRIP), |options| options.read_only = true);
    let file = made(&hand, 0, Handle::ROOT, "f", Kind::File);
    let refused = [
        hand.run(hand.client.unlink(Handle::ROOT, &name("f"))).err(),
        hand.run(hand.client.mkdir(Handle::ROOT, &name("d"), OWNER)).err(),
        hand.run(hand.client.truncate(file, 0, false)).err(),
        hand.run(hand.client.setxattr(file, b"user.a", b"", false, false)).err(),
        hand.run(hand.client.open(file, Rights::READ | Rights::WRITE)).err(),
    ];
    assert!(refused.iter().all(|error| error.as_ref().is_some_and(|error| error.status == Status::ReadOnly)));
    assert_eq!(hand.client.counters().messages_all(), 0);
    hand.run(hand.client.open(file, Rights::READ)).unwrap();
    assert_eq!(hand.client.counters().messages_all(), 1);
}

#[test]
fn a_symbolic_link_is_followed_from_the_directory_it_lies_in() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    let a = made(&hand, 0, Handle::ROOT, "a", Kind::Directory);
    let b = made(&hand, 0, a, "b", Kind::Directory);
    // The fake's links all lead to `../target`.
    let link = made(&hand, 0, b, "link", Kind::Symlink);
    let target = made(&hand, 1, a, "target", Kind::Directory);
    let inside = made(&hand, 1, target, "inside", Kind::File);
    assert_eq!(hand.run(hand.client.walk(b"/a/b/link", false)).unwrap().handle, link);
    assert_eq!(hand.run(hand.client.walk(b"/a/b/link", true)).unwrap().handle, target);
    assert_eq!(hand.run(hand.client.walk(b"/a/b/link/inside", true)).unwrap().handle, inside);
}

#[test]
fn links_that_lead_to_links_end() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let a = made(&hand, 0, Handle::ROOT, "a", Kind::Directory);
    made(&hand, 0, Handle::ROOT, "target", Kind::Symlink);
    made(&hand, 0, a, "link", Kind::Symlink);
    assert_eq!(hand.run(hand.client.walk(b"/a/link", true)).unwrap_err().status, Status::Loop);
}

#[test]
fn a_name_is_believed_for_its_time_and_an_own_change_is_seen_at_once() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    made(&hand, 0, Handle::ROOT, "f", Kind::File);
    let lookup = || hand.run(hand.client.lookup(Handle::ROOT, &name("f")));
    lookup().unwrap();
    lookup().unwrap();
    assert_eq!(hand.client.counters().messages_all(), 1);
    hand.advance(Duration::from_millis(101));
    lookup().unwrap();
    assert_eq!(hand.client.counters().messages_all(), 2);
    hand.run(hand.client.unlink(Handle::ROOT, &name("f"))).unwrap();
    assert_eq!(lookup().unwrap_err().status, Status::NotFound);
}

#[test]
fn a_walk_that_must_stay_inside_refuses_to_leave_by_the_root() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    let dir = made(&hand, 1, Handle::ROOT, "d", Kind::Directory);
    let inside = |path: &[u8]| hand.run(hand.client.walk_inside(path, true)).map(|attr| attr.handle);
    assert_eq!(inside(b"/d/./").unwrap(), dir);
    assert_eq!(inside(b"").unwrap(), Handle::ROOT);
    for path in [&b".."[..], b"/../d", b"./../d"] {
        let error = inside(path).unwrap_err();
        assert_eq!((error.status, error.errno()), (Status::CrossDevice, 18), "{error}");
    }
    assert_eq!(hand.run(hand.client.walk(b"/../d", true)).unwrap().handle, dir, "as a kernel does it");
}

#[test]
fn a_negative_entry_answers_a_walk_but_never_an_open_or_a_lookup() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let walk = |path: &[u8]| hand.run(hand.client.walk(path, true)).map(|attr| attr.handle);
    assert_eq!(walk(b"/f").unwrap_err().status, Status::NotFound);
    let file = made(&hand, 0, Handle::ROOT, "f", Kind::File);
    assert_eq!(walk(b"/f").unwrap_err().status, Status::NotFound, "believed for its time");
    assert_eq!(hand.run(hand.client.open_at(b"/f", Rights::READ)).unwrap().handle(), file);
    assert_eq!(hand.run(hand.client.lookup(Handle::ROOT, &name("f"))).unwrap().handle, file);
    assert_eq!(walk(b"/d/x").unwrap_err().status, Status::NotFound);
    assert_eq!(walk(b"/d").unwrap_err().status, Status::NotFound);
    made(&hand, 0, Handle::ROOT, "d", Kind::Directory);
    let parent = hand.run(hand.client.walk_parent(b"/d/x"));
    assert!(parent.is_ok(), "what a change begins with is asked, too");
}

#[test]
fn an_open_asks_the_server_even_if_everything_is_cached() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let file = made(&hand, 0, Handle::ROOT, "f", Kind::File);
    hand.run(hand.client.getattr(file)).unwrap();
    hand.cluster.borrow_mut().objects.remove(&file);
    assert!(hand.run(hand.client.getattr(file)).is_ok(), "believed");
    assert_eq!(hand.run(hand.client.open(file, Rights::READ)).err().unwrap().status, Status::Stale);
}

#[test]
fn a_listing_gives_every_entry_once_with_merged_attributes_and_keeps_its_place() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let mut all: Vec<Handle> =
        (0..10).map(|n| made(&hand, n % 3, Handle::ROOT, &format!("f{n}"), Kind::File)).collect();
    hand.cluster.borrow_mut().unstuff(all[4]);
    hand.cluster.borrow_mut().streams.get_mut(&all[4]).unwrap().bytes = vec![1; 4096];
    let mut dir = hand.client.opendir(Handle::ROOT);
    let (mut seen, mut places) = (Vec::new(), Vec::new());
    while let Some(entry) = hand.run(dir.next(true)).unwrap() {
        let attr = entry.attr.expect("all are there");
        assert_eq!(attr.handle, entry.handle);
        assert_eq!(attr.size, if attr.handle == all[4] { 4096 } else { 0 });
        seen.push(entry.handle);
        places.push(entry.place);
    }
    let messages = hand.client.counters().messages_all();
    assert!(messages <= 4 * 3 + 3, "one a server and batch, not one an entry: {messages}");
    all.sort();
    let mut sorted = seen.clone();
    sorted.sort();
    assert_eq!(sorted, all);
    for at in [0, 4, 8] {
        dir.seek(places[at]);
        assert_eq!(hand.run(dir.next(false)).unwrap().unwrap().handle, seen[at + 1]);
    }
    dir.seek(0);
    assert_eq!(hand.run(dir.next(false)).unwrap().unwrap().handle, seen[0]);
}

#[test]
fn a_file_with_two_names_in_one_directory_is_listed_with_its_attributes_under_both() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    let file = made(&hand, 1, Handle::ROOT, "a", Kind::File);
    hand.cluster.borrow_mut().names.insert((Handle::ROOT, name("b")), file);
    let mut dir = hand.client.opendir(Handle::ROOT);
    for _ in 0..2 {
        let entry = hand.run(dir.next(true)).unwrap().unwrap();
        assert_eq!(entry.attr.map(|attr| attr.handle), Some(file), "{}", entry.name);
    }
    assert_eq!(hand.run(dir.next(true)).unwrap(), None);
}

#[test]
fn a_file_held_open_here_lives_until_its_last_close() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let both = Rights::READ | Rights::WRITE;
    let (attr, created, file) =
        hand.run(hand.client.create(Handle::ROOT, &name("f"), OWNER, true, both, None)).unwrap();
    assert!(created);
    hand.run(hand.client.unlink(Handle::ROOT, &name("f"))).unwrap();
    hand.run(file.write(0, b"still"[..].into())).unwrap();
    assert_eq!(hand.cluster.borrow().orphans, [attr.handle]);
    let second = file.clone();
    hand.run(file.close()).unwrap();
    assert_eq!(&hand.run(second.read(0, 9)).unwrap()[..], b"still");
    hand.run(second.close()).unwrap();
    assert!(hand.cluster.borrow().orphans.is_empty());
}

#[test]
fn a_dropped_file_releases_its_orphan_without_being_waited_for() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let name = name("f");
    let create = hand.client.create(Handle::ROOT, &name, OWNER, true, Rights::WRITE, None);
    let (_, _, file) = hand.run(create).unwrap();
    hand.run(hand.client.unlink(Handle::ROOT, &name)).unwrap();
    drop(file);
    hand.run(hand.client.ping(ServerId(0))).unwrap();
    assert!(hand.cluster.borrow().orphans.is_empty());
}

/// A name that was looked up leads to another file on the server now, and the file that it led to is gone.
fn replaced(hand: &Hand) -> (Handle, Handle) {
    let old = made(hand, 0, Handle::ROOT, "f", Kind::File);
    assert_eq!(hand.run(hand.client.lookup(Handle::ROOT, &name("f"))).unwrap().handle, old);
    hand.cluster.borrow_mut().objects.remove(&old);
    (old, made(hand, 0, Handle::ROOT, "f", Kind::File))
}

#[test]
fn a_name_whose_file_is_gone_at_its_open_is_looked_up_again_of_the_server() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let (old, new) = replaced(&hand);
    let look = || hand.run(hand.client.lookup(Handle::ROOT, &name("f"))).unwrap().handle;
    assert_eq!(look(), old, "believed for its time");
    assert_eq!(hand.run(hand.client.open(old, Rights::READ)).err().unwrap().status, Status::Stale);
    assert_eq!(look(), new);
}

#[test]
fn an_open_by_path_that_meets_a_replaced_file_opens_the_one_that_replaced_it() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let (_, new) = replaced(&hand);
    assert_eq!(hand.run(hand.client.open_at(b"/f", Rights::READ)).unwrap().handle(), new);
}

#[test]
fn a_walk_that_meets_a_replaced_file_leads_to_the_one_that_replaced_it() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let (old, new) = replaced(&hand);
    hand.core.cache.borrow_mut().changed(old);
    assert_eq!(hand.run(hand.client.walk(b"/f", true)).unwrap().handle, new);
}

#[test]
fn a_walk_that_meets_a_removed_file_which_is_kept_for_its_users_looks_the_name_up_anew() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let old = made(&hand, 0, Handle::ROOT, "f", Kind::File);
    assert_eq!(hand.run(hand.client.lookup(Handle::ROOT, &name("f"))).unwrap().handle, old);
    hand.cluster.borrow_mut().objects.get_mut(&old).unwrap().nlink = 0;
    let new = made(&hand, 0, Handle::ROOT, "f", Kind::File);
    hand.core.cache.borrow_mut().changed(old);
    assert_eq!(hand.run(hand.client.walk(b"/f", true)).unwrap().handle, new);
}

#[test]
fn a_file_that_is_removed_here_while_it_is_being_opened_by_its_name_lives_until_its_last_close() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let (text, first) = (name("f"), ServerId(0));
    for creates in [false, true] {
        let object = made(&hand, 0, Handle::ROOT, "f", Kind::File);
        let open = async {
            match creates {
                true => hand
                    .client
                    .create(Handle::ROOT, &text, OWNER, false, Rights::READ, None)
                    .await
                    .map(|(.., file)| file),
                false => hand.client.open_name(Handle::ROOT, &text, Rights::READ).await,
            }
        };
        hand.run(hand.client.ping(first)).unwrap();
        let (mut open, mut unlink) = (Box::pin(open), Box::pin(hand.client.unlink(Handle::ROOT, &text)));
        assert!(hand.look(open.as_mut()).is_pending());
        assert!(hand.look(unlink.as_mut()).is_pending());
        let session = hand.core.attach_id(first).unwrap();
        let mut replies: Vec<_> = hand
            .take(first)
            .into_iter()
            .map(|(tag, request, bulk)| {
                let (reply, bulk) = hand.cluster.borrow_mut().execute(first, session, &request, bulk);
                (tag, reply, bulk)
            })
            .collect();
        assert_eq!(replies.len(), 2);
        // The unlink is answered before the open, which was carried out before it.
        while let Some((tag, reply, bulk)) = replies.pop() {
            hand.reply(first, tag, reply, bulk).unwrap();
            if !replies.is_empty() {
                hand.run(unlink.as_mut()).unwrap();
            }
        }
        let file = hand.run(open).unwrap();
        assert_eq!(hand.cluster.borrow().orphans, [object], "creates: {creates}");
        hand.run(file.close()).unwrap();
        hand.run(hand.client.ping(first)).unwrap();
        assert!(hand.cluster.borrow().orphans.is_empty(), "creates: {creates}");
    }
}

#[test]
fn a_removal_in_steps_whose_name_is_gone_waits_for_room_and_is_not_refused() {
    let mut cluster = FakeCluster::new(2, STRIP);
    cluster.map.switches.compound = false;
    let hand = Hand::new(cluster);
    let file = made(&hand, 1, Handle::ROOT, "f", Kind::File);
    let gone = name("f");
    let mut unlinking = Box::pin(hand.client.unlink(Handle::ROOT, &gone));
    assert!(hand.look(unlinking.as_mut()).is_pending());
    assert!(hand.carry(), "the name is taken away");
    hand.cluster.borrow_mut().refuse_next = vec![Status::NoSpace; 3];
    hand.run(unlinking).unwrap();
    assert!(hand.cluster.borrow().refuse_next.is_empty());
    assert!(!hand.cluster.borrow().objects.contains_key(&file));
}
