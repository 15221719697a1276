//! Tests of listings with read-ahead. Entries come in order and once; the cost in messages is known; a
//! listing that is dropped cancels its next batch. The fake servers return three entries in each batch.

use crate::DirStream;
use crate::fake::{FakeCluster, Hand, name};
use shoal_proto::{Entry, Handle, Kind, ServerId, SetAttr, Shards, Status};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

const STRIP: u64 = 4096;
const FIRST: ServerId = ServerId(0);
const ROOT: Handle = Handle::ROOT;

fn make(hand: &Hand, text: &str) -> Handle {
    let servers = hand.cluster.borrow().map.servers.len() as u16;
    let server = ServerId(text.len() as u16 % servers);
    hand.cluster.borrow_mut().make(server, ROOT, name(text), Kind::File)
}

/// A root of so many files, on so many servers.
fn hand(servers: u16, files: usize) -> Hand {
    let hand = Hand::new(FakeCluster::new(servers, STRIP));
    for n in 0..files {
        hand.cluster.borrow_mut().make(FIRST, ROOT, name(&format!("f{n}")), Kind::File);
    }
    hand
}

fn split(hand: &Hand) {
    let servers = hand.cluster.borrow().map.servers.len() as u16;
    hand.cluster.borrow_mut().shards.insert(ROOT, Shards::over((0..servers).map(ServerId)));
}

fn next(hand: &Hand, stream: &mut DirStream) -> Option<Entry> {
    hand.run(stream.next(true)).unwrap()
}

fn take(hand: &Hand, stream: &mut DirStream, count: usize) -> Vec<Entry> {
    (0..count).map(|_| next(hand, stream).unwrap()).collect()
}

fn rest(hand: &Hand, stream: &mut DirStream) -> Vec<Entry> {
    std::iter::from_fn(|| next(hand, stream)).collect()
}

/// Let everything go that is on its way, to and fro.
fn settle(hand: &Hand) {
    let servers = hand.cluster.borrow().map.servers.len() as u16;
    for server in 0..servers {
        hand.run(hand.client.ping(ServerId(server))).unwrap();
    }
}

/// Messages of listings so far.
fn asked(hand: &Hand) -> u64 {
    hand.client.counters().messages.get("readdir").copied().unwrap_or(0)
}

fn in_order(entries: &[Entry]) -> bool {
    entries.is_sorted_by(|a, b| a.place < b.place)
}

#[test]
fn nothing_is_asked_for_behind_the_end_of_a_directory() {
    for (files, messages) in [(0, 1), (3, 1), (4, 2), (6, 2), (7, 3), (30, 10)] {
        let hand = hand(1, files);
        let listed = rest(&hand, &mut hand.client.opendir(ROOT));
        settle(&hand);
        assert_eq!((listed.len(), asked(&hand)), (files, messages), "{files} files");
        assert!(in_order(&listed));
    }
}

#[test]
fn a_listing_left_in_its_first_batch_costs_one_message_and_a_later_one_at_most_one_too_many() {
    for (read, messages) in [(1, 1), (3, 1), (4, 3), (6, 3), (7, 4), (10, 5)] {
        let hand = hand(1, 30);
        let mut stream = hand.client.opendir(ROOT);
        take(&hand, &mut stream, read);
        settle(&hand);
        drop(stream);
        settle(&hand);
        assert_eq!(asked(&hand), messages, "{read} entries");
    }
}

#[test]
fn a_split_directory_is_listed_shard_by_shard_in_order_with_one_message_a_batch() {
    let hand = hand(3, 30);
    split(&hand);
    let mut stream = hand.client.opendir(ROOT);
    let listed: Vec<Entry> = std::iter::from_fn(|| hand.run(stream.next(false)).unwrap()).collect();
    assert!(listed.len() == 30 && in_order(&listed));
    let shards = Shards::over((0..3).map(ServerId));
    let of = |shard: usize| listed.iter().filter(|entry| shards.index_of(entry.place) == shard).count();
    let batches: usize = (0..3).map(|shard| of(shard).div_ceil(3).max(1)).sum();
    assert_eq!(asked(&hand), 1 + batches as u64, "the first is sent on");
    let with_attributes = rest(&hand, &mut hand.client.opendir(ROOT));
    assert!(with_attributes.len() == 30 && with_attributes.iter().all(|entry| entry.attr.is_some()));
}

#[test]
fn each_entry_comes_once_though_the_directory_is_split_and_changed_under_a_batch_ahead() {
    for (read, is_answered) in (1..30).flat_map(|read| [(read, false), (read, true)]) {
        let hand = hand(4, 30);
        let before: Vec<Entry> = rest(&hand, &mut hand.client.opendir(ROOT));
        let mut stream = hand.client.opendir(ROOT);
        let mut listed = take(&hand, &mut stream, read);
        if is_answered {
            settle(&hand);
        }
        split(&hand);
        let gone: BTreeSet<Handle> = before.iter().map(|entry| entry.handle).step_by(5).collect();
        hand.cluster.borrow_mut().names.retain(|_, handle| !gone.contains(handle));
        hand.cluster.borrow_mut().objects.retain(|handle, _| !gone.contains(handle));
        for n in 0..20 {
            make(&hand, &format!("new{n}"));
        }
        listed.extend(rest(&hand, &mut stream));
        assert!(in_order(&listed), "each at most once, behind {read}");
        let listed: BTreeSet<Handle> = listed.iter().map(|entry| entry.handle).collect();
        let stable = before.iter().map(|entry| entry.handle).filter(|handle| !gone.contains(handle));
        assert!(stable.into_iter().all(|handle| listed.contains(&handle)), "each stable one, behind {read}");
    }
}

#[test]
fn a_seek_goes_where_it_says_with_a_batch_ahead_and_within_the_batch_at_hand_keeps_it() {
    let hand = hand(2, 30);
    let all = rest(&hand, &mut hand.client.opendir(ROOT));
    for (read, to) in [(4, 0), (4, 3), (5, 3), (8, 1), (8, 6), (8, 20), (8, 29), (30, 2)] {
        for is_answered in [false, true] {
            let mut stream = hand.client.opendir(ROOT);
            take(&hand, &mut stream, read);
            if is_answered {
                settle(&hand);
            }
            stream.seek(all[to].place);
            assert_eq!(rest(&hand, &mut stream), all[to + 1..], "from {read} to {to}");
        }
    }
    let mut stream = hand.client.opendir(ROOT);
    take(&hand, &mut stream, 6);
    settle(&hand);
    let before = asked(&hand);
    stream.seek(all[3].place);
    assert_eq!(take(&hand, &mut stream, 4), all[4..8]);
    settle(&hand);
    assert_eq!(asked(&hand), before + 1, "the batch ahead was used, and one asked for behind it");
    stream.seek(0);
    assert_eq!(rest(&hand, &mut stream), all);
}

#[test]
fn a_batch_ahead_that_fails_is_told_to_nobody_and_asked_for_again_at_its_place() {
    let hand = hand(1, 30);
    let all = rest(&hand, &mut hand.client.opendir(ROOT));
    let mut stream = hand.client.opendir(ROOT);
    let mut listed = take(&hand, &mut stream, 4);
    hand.cluster.borrow_mut().refuse_next = vec![Status::Io];
    settle(&hand);
    assert!(hand.cluster.borrow().refuse_next.is_empty(), "it was refused");
    listed.extend(rest(&hand, &mut stream));
    assert_eq!(listed, all);
}

#[test]
fn an_error_comes_at_its_place_and_the_listing_goes_on_behind_it() {
    let hand = hand(1, 30);
    let all = rest(&hand, &mut hand.client.opendir(ROOT));
    let mut stream = hand.client.opendir(ROOT);
    let mut listed = take(&hand, &mut stream, 4);
    hand.cluster.borrow_mut().refuse_next = vec![Status::Io, Status::Io];
    listed.extend(take(&hand, &mut stream, 2));
    assert_eq!(hand.run(stream.next(true)).err().map(|error| error.status), Some(Status::Io));
    listed.extend(rest(&hand, &mut stream));
    assert_eq!(listed, all);
}

#[test]
fn a_wait_for_a_batch_ahead_ends_by_the_readers_own_deadline() {
    let hand = hand(1, 30);
    let timeout = hand.core.options.timeout;
    let mut stream = hand.client.opendir(ROOT);
    take(&hand, &mut stream, 6);
    hand.advance(timeout / 3);
    hand.core.not_serving(FIRST, "it starts again");
    let mut next = pin!(stream.next(true));
    assert!(hand.look(next.as_mut()).is_pending());
    hand.advance(timeout - timeout / 3);
    assert!(hand.look(next.as_mut()).is_pending(), "the one ahead is given up, and asked for again");
    hand.advance(timeout / 3);
    let std::task::Poll::Ready(Err(error)) = hand.look(next.as_mut()) else { panic!("it waits on") };
    assert_eq!(error.status, Status::TimedOut);
}

#[test]
fn a_batch_ahead_that_nobody_comes_for_is_wanted_until_its_deadline_and_no_longer() {
    // With contents it takes credit, too.
    for data_max in [0, 100] {
        let hand = hand(1, 30);
        let all = rest(&hand, &mut hand.client.opendir(ROOT));
        let mut stream = hand.client.opendir(ROOT).with_data(data_max);
        let mut listed = take(&hand, &mut stream, 4);
        assert_eq!(hand.take(FIRST).len(), 1);
        hand.core.lost(FIRST, "cut");
        assert!(hand.core.is_wanted(FIRST));
        hand.attach(FIRST);
        assert_eq!(hand.take(FIRST).len(), 1, "it goes again");
        hand.core.lost(FIRST, "cut");
        hand.advance(hand.core.options.timeout);
        assert!(!hand.core.is_wanted(FIRST));
        hand.attach(FIRST);
        assert!(hand.take(FIRST).is_empty() && !hand.core.is_under_way(FIRST));
        // A caller that reads on after all asks again.
        listed.extend(rest(&hand, &mut stream));
        assert_eq!(listed, all);
    }
}

#[test]
fn a_dropped_listing_takes_its_request_back() {
    let hand = hand(1, 30);
    let mut stream = hand.client.opendir(ROOT);
    take(&hand, &mut stream, 4);
    drop(stream);
    assert!(hand.take(FIRST).is_empty(), "it was not sent yet");
    let mut stream = hand.client.opendir(ROOT);
    take(&hand, &mut stream, 4);
    assert_eq!(hand.take(FIRST).len(), 1);
    assert!(hand.core.is_under_way(FIRST));
    drop(stream);
    assert!(!hand.core.is_under_way(FIRST), "nobody waits for it");
}

#[test]
fn attributes_asked_for_before_a_change_are_not_believed_behind_it() {
    let hand = hand(1, 30);
    let all = rest(&hand, &mut hand.client.opendir(ROOT));
    for at in [1, 4, 8] {
        let mut stream = hand.client.opendir(ROOT);
        take(&hand, &mut stream, 4);
        // The batch ahead has its answer.
        settle(&hand);
        let set = SetAttr { mode: Some(0o600 + at as u32), ..SetAttr::default() };
        hand.run(hand.client.setattr(all[at].handle, set)).unwrap();
        rest(&hand, &mut stream);
        assert_eq!(hand.run(hand.client.getattr(all[at].handle)).unwrap().mode, 0o600 + at as u32);
    }
}

#[test]
fn attributes_are_as_old_as_the_request_for_them() {
    let hand = hand(1, 30);
    let mut stream = hand.client.opendir(ROOT);
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push((hand.core.world.now(), take(&hand, &mut stream, 3), stream.asked_at()));
        hand.advance(Duration::from_millis(30));
    }
    let ahead = told.windows(2).map(|two| (two[0].0, two[1].2)).skip(1);
    assert!(ahead.into_iter().all(|(before, asked)| asked == before), "asked for with the one before it");
    // The third is 90 ms old by now, and valid for 10 more.
    let of_third = told[2].1[0].handle;
    let hits = || hand.client.counters().attr_hits;
    let before = hits();
    hand.run(hand.client.getattr(of_third)).unwrap();
    assert_eq!(hits(), before + 1);
    hand.advance(Duration::from_millis(11));
    hand.run(hand.client.getattr(of_third)).unwrap();
    assert_eq!(hits(), before + 1);
}

#[test]
fn who_takes_his_time_over_a_batch_gets_none_ahead() {
    let hand = hand(1, 30);
    let mut stream = hand.client.opendir(ROOT);
    for batch in 1..=4 {
        take(&hand, &mut stream, 3);
        hand.advance(Duration::from_millis(50));
        settle(&hand);
        assert_eq!(asked(&hand), batch);
    }
    take(&hand, &mut stream, 4);
    settle(&hand);
    assert_eq!(asked(&hand), 7, "he is quick again");
}

#[test]
fn batches_are_small_for_who_takes_his_time_and_from_the_second_on_large_for_others() {
    let (small, large) = (64 << 10, 128 << 10);
    for (pause, sizes) in [(50, [small; 4]), (0, [small, large, large, large])] {
        let hand = hand(1, 30);
        let mut stream = hand.client.opendir(ROOT);
        for _ in 0..4 {
            take(&hand, &mut stream, 3);
            hand.advance(Duration::from_millis(pause));
        }
        assert_eq!(hand.cluster.borrow().listed_bytes, sizes, "{pause} ms over each");
    }
}

#[test]
fn a_listing_that_comes_late_does_not_hide_what_was_asked_for_since() {
    let hand = hand(1, 30);
    let all = rest(&hand, &mut hand.client.opendir(ROOT));
    hand.advance(Duration::from_millis(200));
    let mut stream = hand.client.opendir(ROOT);
    take(&hand, &mut stream, 4);
    settle(&hand);
    // The batch ahead has its answer. Another client makes a file of it longer, and this one asks.
    let file = all[6].handle;
    hand.advance(Duration::from_millis(10));
    hand.cluster.borrow_mut().streams.get_mut(&file).unwrap().bytes.extend_from_slice(b"longer");
    assert_eq!(hand.run(hand.client.getattr(file)).unwrap().size, 6);
    take(&hand, &mut stream, 4);
    assert_eq!(hand.run(hand.client.getattr(file)).unwrap().size, 6);
}

#[test]
fn a_listing_in_any_order_gives_every_entry_once_from_all_shards_at_once() {
    for (servers, files) in [(1, 7), (4, 0), (4, 1), (4, 40)] {
        let hand = hand(servers, files);
        if servers > 1 {
            split(&hand);
            // The fake's attributes do not tell it.
            next(&hand, &mut hand.client.opendir(ROOT));
        }
        let mut stream = hand.run(hand.client.opendir_unordered(ROOT, true)).unwrap();
        let listed: Vec<Entry> = std::iter::from_fn(|| hand.run(stream.next()).unwrap()).collect();
        assert!(listed.iter().all(|entry| entry.attr.is_some()));
        let names: BTreeSet<_> = listed.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!((listed.len(), names.len()), (files, files), "{files} files on {servers} servers");
        assert!(files < 40 || !in_order(&listed), "the shards give in turn");
    }
}

#[test]
fn eight_shards_at_most_are_listed_at_once_and_every_entry_comes_once() {
    let hand = hand(12, 200);
    split(&hand);
    // The fake's attributes do not tell it.
    next(&hand, &mut hand.client.opendir(ROOT));
    hand.cluster.borrow_mut().listed.clear();
    let mut stream = hand.run(hand.client.opendir_unordered(ROOT, false)).unwrap();
    let listed: Vec<Entry> = std::iter::from_fn(|| hand.run(stream.next()).unwrap()).collect();
    let names: BTreeSet<_> = listed.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!((listed.len(), names.len()), (200, 200));
    let (mut begun, mut open, mut open_most) = (BTreeSet::new(), BTreeSet::new(), 0);
    for &(server, is_end) in &hand.cluster.borrow().listed {
        begun.insert(server);
        open.insert(server);
        open_most = open_most.max(open.len());
        if is_end {
            open.remove(&server);
        }
    }
    assert_eq!((begun.len(), open.len(), open_most), (12, 0, 8));
}

#[test]
fn a_shard_that_cannot_be_listed_is_told_and_keeps_none_of_those_that_wait_from_being_listed() {
    let hand = hand(12, 200);
    split(&hand);
    next(&hand, &mut hand.client.opendir(ROOT));
    let mut stream = hand.run(hand.client.opendir_unordered(ROOT, false)).unwrap();
    hand.cluster.borrow_mut().refuse_next = vec![Status::Io; 8];
    for _ in 0..8 {
        assert_eq!(hand.run(stream.next()).err().map(|error| error.status), Some(Status::Io));
    }
    let listed: Vec<Entry> = std::iter::from_fn(|| hand.run(stream.next()).unwrap()).collect();
    let shards = Shards::over((0..12).map(ServerId));
    let of: BTreeSet<usize> = listed.iter().map(|entry| shards.index_of(entry.place)).collect();
    assert_eq!(of, (8..12).collect());
}

#[test]
fn a_directory_that_is_split_while_it_is_listed_in_any_order_gives_every_entry_once() {
    let hand = hand(4, 40);
    let mut stream = hand.run(hand.client.opendir_unordered(ROOT, true)).unwrap();
    let mut names = BTreeSet::new();
    for _ in 0..5 {
        names.insert(hand.run(stream.next()).unwrap().unwrap().name);
    }
    split(&hand);
    while let Some(entry) = hand.run(stream.next()).unwrap() {
        assert!(names.insert(entry.name), "twice");
    }
    assert_eq!(names.len(), 40);
}
