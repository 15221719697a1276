//! Tests of operations on many files with one message to each server.

use crate::fake::{FakeCluster, Hand, Lost, OWNER, name};
use crate::{FileWrite, NewFile, Which};
use bytes::Bytes;
use shoal_proto::{Handle, Kind, ServerId, Status};
use shoal_vfs::Vfs;
use std::time::Duration;

const STRIP: u64 = 4096;
const ROOT: Handle = Handle::ROOT;

/// A cluster whose client caches nothing.
fn strict(servers: u16) -> Hand {
    Hand::with(FakeCluster::new(servers, STRIP), |options| {
        options.attr_cache = Duration::ZERO;
        options.name_cache = Duration::ZERO;
    })
}

fn file(dir: Handle, text: &str, data: &'static [u8]) -> NewFile {
    NewFile { dir, name: name(text), data: Bytes::from_static(data) }
}

fn entry(text: &str) -> Which {
    Which::Entry(ROOT, name(text))
}

fn make(hand: &Hand, count: usize) -> Vec<Which> {
    let files = (0..count).map(|n| file(ROOT, &format!("f{n}"), b"data")).collect();
    for made in hand.run(hand.client.create_many(files, OWNER, None)) {
        made.unwrap();
    }
    (0..count).map(|n| entry(&format!("f{n}"))).collect()
}

fn messages(hand: &Hand, body: impl FnOnce()) -> u64 {
    let before = hand.client.counters().messages_all();
    body();
    hand.client.counters().messages_all() - before
}

fn piece(which: Which, offset: u64, data: &'static [u8]) -> FileWrite {
    FileWrite { which, offset, data: Bytes::from_static(data) }
}

#[test]
fn files_are_read_each_within_its_own_bound_by_one_message() {
    let hand = strict(1);
    let all = make(&hand, 6);
    let read = || hand.run(hand.client.read_many_within(&all, &[4, 3, 100, 0, 1 << 30]));
    let mut found = Vec::new();
    let count = messages(&hand, || found = read());
    let whole: Vec<Option<usize>> =
        found.into_iter().map(|read| read.unwrap().1.map(|data| data.len())).collect();
    assert_eq!(whole, [Some(4), None, Some(4), None, Some(4), None], "without a bound it is 0");
    assert_eq!(count, 1);
}

#[test]
fn sixty_four_files_are_one_message_for_each_verb() {
    let hand = strict(1);
    let mut all = Vec::new();
    assert_eq!(messages(&hand, || all = make(&hand, 64)), 1);
    let stat = || {
        for attr in hand.run(hand.client.stat_many(&all)) {
            assert_eq!(attr.unwrap().size, 4);
        }
    };
    assert_eq!(messages(&hand, stat), 1);
    let write = || {
        let pieces = all.iter().map(|which| piece(which.clone(), 2, b"ring")).collect();
        for attr in hand.run(hand.client.write_many(pieces, false)) {
            assert_eq!(attr.unwrap().size, 6);
        }
    };
    assert_eq!(messages(&hand, write), 1);
    let read = || {
        for read in hand.run(hand.client.read_many(&all, 900)) {
            assert_eq!(read.unwrap().1.unwrap(), &b"daring"[..]);
        }
    };
    assert_eq!(messages(&hand, read), 1);
    let remove = || {
        let entries: Vec<_> = (0..64).map(|n| (ROOT, name(&format!("f{n}")))).collect();
        assert!(hand.run(hand.client.remove_many(&entries)).iter().all(Result::is_ok));
    };
    assert_eq!(messages(&hand, remove), 1);
    assert!(hand.cluster.borrow().names.is_empty());
}

#[test]
fn none_are_no_message() {
    let hand = strict(1);
    let none = || {
        assert!(hand.run(hand.client.create_many(Vec::new(), OWNER, None)).is_empty());
        assert!(hand.run(hand.client.stat_many(&[])).is_empty());
        assert!(hand.run(hand.client.read_many(&[], 10)).is_empty());
        assert!(hand.run(hand.client.write_many(Vec::new(), true)).is_empty());
        assert!(hand.run(hand.client.remove_many(&[])).is_empty());
    };
    assert_eq!(messages(&hand, none), 0);
}

#[test]
fn one_that_exists_does_not_undo_the_others_and_is_named() {
    let hand = strict(1);
    make(&hand, 2);
    let files = (0..5).map(|n| file(ROOT, &format!("f{n}"), b"new")).collect();
    let made = hand.run(hand.client.create_many(files, OWNER, None));
    for (n, made) in made.iter().enumerate() {
        match made {
            Ok(attr) => assert!(n >= 2 && attr.size == 3),
            Err(error) => {
                assert!(n < 2 && error.status == Status::Exists, "{error}");
                assert!(error.to_string().contains(&format!("`f{n}`")), "{error}");
            }
        }
    }
    let read = hand.run(hand.client.read_many(&[entry("f0"), entry("f4"), entry("f9")], 900));
    assert_eq!(read[0].as_ref().unwrap().1.as_deref(), Some(&b"data"[..]));
    assert_eq!(read[1].as_ref().unwrap().1.as_deref(), Some(&b"new"[..]));
    assert_eq!(read[2].as_ref().unwrap_err().status, Status::NotFound);
}

#[test]
fn what_does_not_fit_one_message_goes_in_several_of_bounded_size() {
    let hand = Hand::with(FakeCluster::new(1, 1 << 20), |options| options.eager_bytes = 16 << 10);
    let data = Bytes::from(vec![7; 16 << 10]);
    let files = (0..160).map(|n| NewFile { dir: ROOT, name: name(&format!("f{n}")), data: data.clone() });
    let files = files.collect();
    let creates = || assert!(hand.run(hand.client.create_many(files, OWNER, None)).iter().all(Result::is_ok));
    assert_eq!(messages(&hand, creates), 3, "sixty-four of 16 KiB fill a message");
    let which: Vec<Which> = (0..160).map(|n| entry(&format!("f{n}"))).collect();
    let reads = || {
        for read in hand.run(hand.client.read_many(&which, 16 << 10)) {
            assert_eq!(read.unwrap().1.unwrap(), data);
        }
    };
    assert_eq!(messages(&hand, reads), 3);
    let files = (0..300).map(|n| file(ROOT, &format!("g{n}"), b"")).collect();
    let creates = || assert!(hand.run(hand.client.create_many(files, OWNER, None)).iter().all(Result::is_ok));
    assert_eq!(messages(&hand, creates), 3, "128 groups fill a message");
}

fn a_directory_on_each(hand: &Hand) -> [Handle; 3] {
    [0, 1, 2].map(|server| {
        let name = name(&format!("d{server}"));
        hand.cluster.borrow_mut().make(ServerId(server), ROOT, name, Kind::Directory)
    })
}

#[test]
fn entries_of_many_directories_go_to_all_their_servers_in_one_message_each() {
    let hand = strict(3);
    let dirs = a_directory_on_each(&hand);
    let files = (0..30).map(|n| file(dirs[n % 3], &format!("f{n}"), b"x")).collect();
    let creates = || assert!(hand.run(hand.client.create_many(files, OWNER, None)).iter().all(Result::is_ok));
    assert_eq!(messages(&hand, creates), 3);
}

/// The way of programs that know no client, as those in C.
#[test]
fn a_batch_through_the_waist_is_one_message_a_server_too() {
    let hand = strict(3);
    let dirs = a_directory_on_each(&hand);
    let files = (0..30).map(|n| file(dirs[n % 3], &format!("f{n}"), b"abc")).collect();
    let create = || assert!(hand.run(Vfs::create_many(&hand.client, files, OWNER)).iter().all(Result::is_ok));
    assert_eq!(messages(&hand, create), 3);
    let wanted: Vec<_> = (0..30).map(|n| (dirs[n % 3], name(&format!("f{n}")), 2 + n % 2)).collect();
    let read = || {
        for (n, read) in hand.run(Vfs::read_many(&hand.client, &wanted)).into_iter().enumerate() {
            let whole = (n % 2 == 1).then_some(&b"abc"[..]);
            assert_eq!(read.unwrap().1.as_deref(), whole, "{n}");
        }
    };
    assert_eq!(messages(&hand, read), 3);
}

#[test]
fn objects_of_other_servers_than_their_entries_cost_one_message_more_a_server() {
    let hand = strict(3);
    let mut which = make(&hand, 4);
    for n in 0..10_u16 {
        let name = name(&format!("e{n}"));
        let object = hand.cluster.borrow_mut().make(ServerId(1 + n % 2), ROOT, name.clone(), Kind::File);
        hand.cluster.borrow_mut().streams.get_mut(&object).unwrap().bytes = b"far".to_vec();
        which.push(Which::Entry(ROOT, name));
    }
    let stat = || {
        let sizes: Vec<u64> =
            hand.run(hand.client.stat_many(&which)).into_iter().map(|attr| attr.unwrap().size).collect();
        assert_eq!(sizes, [[4; 4].as_slice(), &[3; 10]].concat());
    };
    assert_eq!(messages(&hand, stat), 3);
    let read = || {
        for read in &hand.run(hand.client.read_many(&which, 900))[4..] {
            assert_eq!(read.as_ref().unwrap().1.as_deref(), Some(&b"far"[..]));
        }
    };
    assert_eq!(messages(&hand, read), 3);
    let write = || {
        let pieces = which.iter().map(|which| piece(which.clone(), 0, b"FAR")).collect();
        assert!(hand.run(hand.client.write_many(pieces, false)).iter().all(Result::is_ok));
    };
    assert_eq!(messages(&hand, write), 3);
    let read = hand.run(hand.client.read_many(&which, 900));
    assert_eq!(read[3].as_ref().unwrap().1.as_deref(), Some(&b"FARa"[..]));
    assert_eq!(read[13].as_ref().unwrap().1.as_deref(), Some(&b"FAR"[..]));
}

#[test]
fn large_and_striped_files_among_them_are_done_whole() {
    let hand = strict(3);
    let large: &'static [u8] = Box::leak(vec![5; 3 * 4096 + 9].into_boxed_slice());
    let files = vec![file(ROOT, "small", b"s"), file(ROOT, "large", large), file(ROOT, "none", b"")];
    let sizes: Vec<u64> = hand
        .run(hand.client.create_many(files, OWNER, None))
        .into_iter()
        .map(|attr| attr.unwrap().size)
        .collect();
    assert_eq!(sizes, [1, large.len() as u64, 0]);
    let which = [entry("small"), entry("large"), entry("none")];
    let read = hand.run(hand.client.read_many(&which, 1 << 20));
    assert_eq!(read[1].as_ref().unwrap().1.as_deref(), Some(large));
    assert_eq!(read[2].as_ref().unwrap().1.as_deref(), Some(&b""[..]));
    let read = hand.run(hand.client.read_many(&which, 100));
    assert_eq!(read[1].as_ref().unwrap().1, None, "it is larger than was asked for");
    let pieces =
        vec![piece(entry("large"), 8190, b"over a border"), piece(entry("none"), 4090, b"0123456789")];
    let sizes: Vec<u64> =
        hand.run(hand.client.write_many(pieces, true)).into_iter().map(|attr| attr.unwrap().size).collect();
    assert_eq!(sizes, [large.len() as u64, 4100]);
    let read = hand.run(hand.client.read_many(&which, 1 << 20));
    assert_eq!(&read[1].as_ref().unwrap().1.as_ref().unwrap()[8190..8203], b"over a border");
    for attr in hand.run(hand.client.stat_many(&which)).iter().zip([1, large.len() as u64, 4100]) {
        assert_eq!(attr.0.as_ref().unwrap().size, attr.1);
    }
}

#[test]
fn only_the_groups_that_are_to_be_tried_again_go_again() {
    let hand = strict(1);
    hand.cluster.borrow_mut().refuse_next = vec![Status::Busy, Status::Unavailable];
    let creates = || drop(make(&hand, 5));
    assert_eq!(messages(&hand, creates), 2);
    let creates = hand.cluster.borrow().log.iter().filter(|(_, op)| *op == "create").count();
    assert_eq!(creates, 5, "what was done is not done again");
}

#[test]
fn a_lost_reply_does_not_make_anything_twice() {
    let hand = strict(1);
    let mut losses = [Lost::Reply, Lost::Request, Lost::Reply].into_iter();
    *hand.loses.borrow_mut() = Box::new(move || losses.next().unwrap_or(Lost::Nothing));
    make(&hand, 20);
    let creates = hand.cluster.borrow().log.iter().filter(|(_, op)| *op == "create").count();
    assert_eq!(creates, 20);
}

#[test]
fn a_session_that_ends_fails_its_items_only_and_each_says_which_it_is() {
    let hand = strict(1);
    let files: Vec<NewFile> = (0..3).map(|n| file(ROOT, &format!("f{n}"), b"x")).collect();
    let mut creating = Box::pin(hand.client.create_many(files, OWNER, None));
    assert!(hand.look(creating.as_mut()).is_pending());
    hand.attach(ServerId(0));
    assert_eq!(hand.take(ServerId(0)).len(), 1);
    hand.core.session_lost(ServerId(0));
    for (n, made) in hand.run(creating).into_iter().enumerate() {
        let error = made.unwrap_err();
        assert_eq!((error.status, error.server), (Status::NoSession, Some(ServerId(0))));
        assert!(error.to_string().contains(&format!("`f{n}`")), "{error}");
    }
}

#[test]
fn a_write_lost_before_its_sync_is_told() {
    let hand = strict(2);
    let all = make(&hand, 3);
    let write = || piece(all[0].clone(), 0, b"new");
    assert!(hand.run(hand.client.write_many(vec![write()], true))[0].is_ok());
    let mut writing = Box::pin(hand.client.write_many(vec![write()], true));
    assert!(hand.look(writing.as_mut()).is_pending());
    let session = hand.core.attach_id(ServerId(0)).unwrap();
    for (tag, request, bulk) in hand.take(ServerId(0)) {
        let (reply, back) = hand.cluster.borrow_mut().execute(ServerId(0), session, &request, bulk);
        hand.reply(ServerId(0), tag, reply, back).unwrap();
    }
    hand.cluster.borrow_mut().loss[0] = 2;
    let error = hand.run(writing).remove(0).unwrap_err();
    assert_eq!(error.status, Status::Io, "{error}");
}

#[test]
fn without_compounds_each_is_a_message_of_its_own() {
    let mut cluster = FakeCluster::new(1, STRIP);
    cluster.map.switches.compound = false;
    let hand = Hand::with(cluster, |options| options.attr_cache = Duration::ZERO);
    for n in 0..8 {
        let mut cluster = hand.cluster.borrow_mut();
        let object = cluster.make(ServerId(0), ROOT, name(&format!("f{n}")), Kind::File);
        cluster.streams.get_mut(&object).unwrap().bytes = b"data".to_vec();
    }
    let which: Vec<Which> = (0..8).map(|n| entry(&format!("f{n}"))).collect();
    let read = || {
        for read in hand.run(hand.client.read_many(&which, 100)) {
            assert_eq!(read.unwrap().1.as_deref(), Some(&b"data"[..]));
        }
    };
    assert!(messages(&hand, read) >= 8);
}

#[test]
fn a_listing_brings_the_contents_of_small_files_in_its_own_messages() {
    let hand = strict(1);
    make(&hand, 9);
    let list = || {
        hand.run(async {
            let mut listing = hand.client.opendir(ROOT).with_data(1000);
            let mut seen = 0;
            while let Some((entry, content)) = listing.next_with_data().await? {
                assert_eq!(entry.attr.unwrap().size, 4);
                assert_eq!(content.as_deref(), Some(&b"data"[..]));
                seen += 1;
            }
            Ok::<u32, crate::Error>(seen)
        })
        .unwrap()
    };
    // Three entries a batch, in the fake server.
    assert_eq!(messages(&hand, || assert_eq!(list(), 9)), 3);
}

#[test]
fn contents_that_live_beside_another_directory_come_by_one_more_message_a_batch() {
    let hand = strict(2);
    let made = hand.run(hand.client.create_many(vec![file(ROOT, "far", b"away")], OWNER, None));
    let object = made.into_iter().next().unwrap().unwrap().handle;
    let other = hand.run(hand.client.mkdir(ROOT, &name("other"), OWNER)).unwrap().handle;
    hand.run(hand.client.link(object, other, &name("far"))).unwrap();
    let found = hand.run(async {
        let mut listing = hand.client.opendir(other).with_data(1000);
        listing.next_with_data().await
    });
    let (entry, content) = found.unwrap().unwrap();
    assert_eq!((entry.handle, content.as_deref()), (object, Some(&b"away"[..])));
}
