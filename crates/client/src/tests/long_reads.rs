//! Tests of long reads: one request to each server, its pieces in any order, its time limit, and lost
//! connections.

use crate::fake::{FakeCluster, Hand, OWNER, name};
use crate::session::Outgoing;
use crate::{Error, OpenFile};
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use shoal_pattern::{Pattern, Region};
use shoal_proto::message::{GroupReply, Leave, Loss, Piece, Reply, Request};
use shoal_proto::op::Answer;
use shoal_proto::{Frame, FrameKind, Handle, Rights, ServerId, Status, StreamFacts, limits};
use std::task::Poll;
use std::time::Duration;

const FIRST: ServerId = ServerId(0);
const LEN: u64 = 1 << 20;
const CHUNK: u64 = limits::FLOW_CHUNK_BYTES as u64;

fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

fn data(from: u64, len: u64) -> Bytes {
    (from..from + len).map(byte).collect()
}

/// A file of `LEN` bytes in its first strip, and its server's facts of it.
fn file(hand: &Hand) -> (OpenFile, StreamFacts) {
    let rights = Rights::READ | Rights::WRITE;
    let file = hand.run(hand.client.create(Handle::ROOT, &name("f"), OWNER, true, rights, None)).unwrap().2;
    hand.run(file.write(0, data(0, LEN))).unwrap();
    let reading = file.read(0, 10);
    let mut reading: LocalBoxFuture<'_, _> = Box::pin(reading);
    assert!(hand.look(reading.as_mut()).is_pending());
    let session = hand.core.attach_id(FIRST).unwrap();
    let (_, request, bulk) = hand.take(FIRST).remove(0);
    let (reply, _) = hand.cluster.borrow_mut().execute(FIRST, session, &request, bulk);
    let Some(&Answer::Data { facts, .. }) = reply.groups[0].answers.first() else { panic!("{reply:?}") };
    (file.clone(), facts)
}

fn cluster() -> FakeCluster {
    FakeCluster::new(1, 4 * LEN)
}

type Reading<'a> = LocalBoxFuture<'a, Result<Bytes, Error>>;

/// Begin to read all of the file; the request's tag.
fn begin<'a>(hand: &Hand, file: &'a OpenFile) -> (Reading<'a>, u64) {
    let mut reading: Reading<'a> = Box::pin(file.read(0, LEN as usize));
    assert!(hand.look(reading.as_mut()).is_pending());
    let (tag, request) = only(hand);
    assert_eq!(window(&request), (0, LEN));
    (reading, tag)
}

fn only(hand: &Hand) -> (u64, Request) {
    let mut sent = hand.take(FIRST);
    assert_eq!(sent.len(), 1, "one request, whatever its length");
    let (tag, request, _) = sent.remove(0);
    (tag, request)
}

fn window(request: &Request) -> (u64, u64) {
    let transfer = request.long_read().expect("a long read");
    (transfer.window_from, transfer.window_len)
}

fn bring(hand: &Hand, tag: u64, facts: StreamFacts, (from, len): (u64, u64)) -> Result<(), String> {
    hand.core.brought(FIRST, tag, Piece { from, len, facts }, data(from, len))
}

fn sent(upto: u64, facts: StreamFacts) -> Reply {
    let group = GroupReply { status: Status::Ok, answers: vec![Answer::Sent { upto, facts }].into() };
    Reply { loss: Loss::default(), map_epoch: 1, groups: vec![group].into() }
}

fn ended<T>(hand: &Hand, mut reading: LocalBoxFuture<'_, T>) -> T {
    match hand.look(reading.as_mut()) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits on"),
    }
}

#[test]
fn pieces_are_put_in_their_places_in_whatever_order_they_come() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    let (reading, tag) = begin(&hand, &file);
    for from in [2, 0, 3, 1] {
        bring(&hand, tag, facts, (from * CHUNK, CHUNK)).unwrap();
    }
    hand.reply(FIRST, tag, sent(LEN, facts), Bytes::new()).unwrap();
    assert_eq!(ended(&hand, reading).unwrap(), data(0, LEN));
}

#[test]
fn after_a_lost_connection_the_rest_is_asked_for_with_the_same_tag() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    let (reading, tag) = begin(&hand, &file);
    for from in [0, CHUNK, 3 * CHUNK] {
        bring(&hand, tag, facts, (from, CHUNK)).unwrap();
    }
    hand.core.lost(FIRST, "cut");
    hand.attach(FIRST);
    let (again, request) = only(&hand);
    assert_eq!((again, window(&request)), (tag, (2 * CHUNK, 2 * CHUNK)));
    // The rest is short enough for a reply on the next connection.
    bring(&hand, tag, facts, (2 * CHUNK, CHUNK)).unwrap();
    hand.core.lost(FIRST, "cut");
    hand.attach(FIRST);
    let mut asked = hand.take(FIRST);
    let (again, request, bulk) = asked.remove(0);
    assert_eq!((again, request.long_read()), (tag, None));
    let session = hand.core.attach_id(FIRST).unwrap();
    let (reply, rest) = hand.cluster.borrow_mut().execute(FIRST, session, &request, bulk);
    hand.reply(FIRST, tag, reply, rest).unwrap();
    assert_eq!(ended(&hand, reading).unwrap(), data(0, LEN));
}

#[test]
fn a_server_that_is_busy_after_some_pieces_is_asked_for_the_whole_again() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    let (mut reading, tag) = begin(&hand, &file);
    bring(&hand, tag, facts, (0, CHUNK)).unwrap();
    hand.core.lost(FIRST, "cut");
    hand.attach(FIRST);
    assert_eq!(window(&only(&hand).1), (CHUNK, 3 * CHUNK));
    let group = GroupReply { status: Status::Unavailable, answers: Vec::new().into() };
    let busy = Reply { loss: Loss::default(), map_epoch: 1, groups: vec![group].into() };
    hand.reply(FIRST, tag, busy, Bytes::new()).unwrap();
    assert!(hand.look(reading.as_mut()).is_pending());
    hand.advance(Duration::from_secs(1));
    assert!(hand.look(reading.as_mut()).is_pending());
    let (again, request) = only(&hand);
    assert_ne!(again, tag);
    assert_eq!(window(&request), (0, LEN));
}

#[test]
fn pieces_that_were_not_asked_for_fail_the_read_and_end_the_connection() {
    for (pieces, words) in [
        (vec![(LEN, CHUNK)], "outside of the window"),
        (vec![(LEN - 1, 2)], "outside of the window"),
        (vec![(0, CHUNK), (0, CHUNK)], "came before"),
        (vec![(0, CHUNK), (CHUNK - 1, CHUNK)], "came before"),
        (vec![(0, CHUNK + 1)], "more bytes than it may bring"),
    ] {
        let hand = Hand::new(cluster());
        let (file, facts) = file(&hand);
        let (reading, tag) = begin(&hand, &file);
        let results: Vec<_> = pieces.iter().map(|piece| bring(&hand, tag, facts, *piece)).collect();
        let last = results.last().unwrap().clone().unwrap_err();
        assert!(last.contains(words), "{last}");
        let error = ended(&hand, reading).unwrap_err();
        assert_eq!((error.status, error.server), (Status::BadMessage, Some(FIRST)));
        assert!(error.words.contains(words), "{error}");
    }
}

#[test]
fn pieces_of_no_request_and_of_a_short_one_end_the_connection() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    assert!(bring(&hand, 999, facts, (0, 10)).unwrap_err().contains("no request"));
    let mut reading: Reading<'_> = Box::pin(file.read(0, 100));
    assert!(hand.look(reading.as_mut()).is_pending());
    let (tag, _, _) = hand.take(FIRST).remove(0);
    assert!(bring(&hand, tag, facts, (0, 100)).unwrap_err().contains("reply alone"));
    assert_eq!(ended(&hand, reading).unwrap_err().status, Status::BadMessage);
}

#[test]
fn a_reply_that_does_not_fit_its_pieces_is_refused() {
    let short = StreamFacts { size: LEN / 2, ..file(&Hand::new(cluster())).1 };
    for (pieces, upto, size, words) in [
        (vec![(0, CHUNK), (2 * CHUNK, 2 * CHUNK - CHUNK)], LEN, LEN, "are in no piece"),
        (vec![(0, CHUNK)], LEN, LEN, "were sent"),
        // The stream has more than the pieces brought.
        (vec![(0, CHUNK)], CHUNK, LEN, "were expected"),
        // A piece brings more than the stream has.
        (vec![(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, CHUNK)], 3 * CHUNK, LEN / 2, "were expected"),
    ] {
        let hand = Hand::new(cluster());
        let (file, _) = file(&hand);
        let facts = StreamFacts { size, ..short };
        let (reading, tag) = begin(&hand, &file);
        for piece in pieces {
            bring(&hand, tag, facts, piece).unwrap();
        }
        hand.reply(FIRST, tag, sent(upto, facts), Bytes::new()).unwrap();
        let error = ended(&hand, reading).unwrap_err();
        assert_eq!(error.status, Status::BadMessage);
        assert!(error.words.contains(words), "{error}");
    }
}

#[test]
fn the_time_limit_counts_from_the_last_piece_that_brings_something_new() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    let (mut reading, tag) = begin(&hand, &file);
    let limit = Duration::from_secs(30);
    for from in [0, 1] {
        hand.advance(limit * 2 / 3);
        bring(&hand, tag, facts, (from * CHUNK, CHUNK)).unwrap();
        assert!(hand.look(reading.as_mut()).is_pending());
    }
    hand.advance(limit * 2 / 3);
    assert!(hand.look(reading.as_mut()).is_pending());
    hand.advance(limit / 2);
    let error = ended(&hand, reading).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "{error}");
}

#[test]
fn each_part_of_a_long_list_has_the_time_of_a_call() {
    let hand = Hand::new(cluster());
    let (file, _) = file(&hand);
    let regions = (0..10_000).map(|n| Region::new(n * 7919 % (LEN as i64 - 1), 1));
    let list = Pattern::list(regions.collect()).unwrap();
    let mut reading: Reading<'_> = Box::pin(file.read_pattern(&list));
    for part in 0..3 {
        assert!(hand.look(reading.as_mut()).is_pending(), "part {part}");
        hand.advance(Duration::from_millis(29_500));
        assert!(hand.look(reading.as_mut()).is_pending(), "part {part}");
        assert!(hand.answer_all(FIRST), "part {part} is asked for when the one before has come");
    }
    let bytes = ended(&hand, reading).unwrap();
    assert!(bytes.iter().zip(list.regions()).all(|(found, region)| *found == byte(region.offset as u64)));
}

/// The reads that are said to be left, of what is to be sent now.
fn leaves(hand: &Hand) -> Vec<u64> {
    let (mut out, mut left) = (Outgoing::default(), Vec::new());
    assert!(hand.core.take(FIRST, &mut out));
    let mut stream = BytesMut::from(out.bytes.as_slice());
    while let Some(frame) = Frame::take(&mut stream).unwrap() {
        assert_eq!(frame.kind, FrameKind::Leave);
        left.push(frame.message::<Leave>().unwrap().request);
    }
    left
}

#[test]
fn a_read_that_its_caller_drops_is_left_and_its_late_pieces_are_ignored() {
    let hand = Hand::new(cluster());
    let (file, facts) = file(&hand);
    let (reading, tag) = begin(&hand, &file);
    bring(&hand, tag, facts, (0, CHUNK)).unwrap();
    drop(reading);
    assert_eq!(leaves(&hand), [tag]);
    bring(&hand, tag, facts, (CHUNK, CHUNK)).unwrap();
    let group = GroupReply { status: Status::Interrupted, answers: Vec::new().into() };
    let over = Reply { loss: Loss::default(), map_epoch: 1, groups: vec![group].into() };
    hand.reply(FIRST, tag, over, Bytes::new()).unwrap();
    assert!(bring(&hand, tag, facts, (2 * CHUNK, CHUNK)).unwrap_err().contains("no request"));
}

#[test]
fn a_long_read_needs_no_credit_of_its_client_and_holds_no_other_up() {
    let hand = Hand::new(cluster());
    hand.attached.borrow_mut().credit_bytes = 1000;
    let (file, _) = file(&hand);
    let (_reading, _) = begin(&hand, &file);
    let mut small: Reading<'_> = Box::pin(file.read(0, 900));
    assert!(hand.look(small.as_mut()).is_pending());
    assert_eq!(hand.take(FIRST).len(), 1);
    let pattern = Pattern::strided(0, 8, 16, 40_000).unwrap();
    let mut strided: Reading<'_> = Box::pin(file.read_pattern(&pattern));
    assert!(hand.look(strided.as_mut()).is_pending());
    let (_, request) = only(&hand);
    assert_eq!(window(&request), (0, 320_000));
}
