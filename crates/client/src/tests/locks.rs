//! Tests of calls for locks. A call that ends without a grant leaves no place in a queue and no lock at the
//! server.

use crate::fake::{FakeCluster, Hand, OWNER, name};
use crate::{Error, OpenFile};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_proto::message::{GroupReply, Loss, Reply};
use shoal_proto::op::Answer;
use shoal_proto::{Handle, LockKind, LockOwner, LockRange, LockState, Op, Rights, ServerId, Status};
use shoal_vfs::LockCall;
use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const FIRST: ServerId = ServerId(0);
const GLANCE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(30);

type Locking<'a> = LocalBoxFuture<'a, Result<bool, Error>>;

/// A client with a file, whose thread 7 has a signal when the cell says so.
fn client() -> (Hand, OpenFile, Rc<Cell<bool>>) {
    let hand = Hand::with(FakeCluster::new(1, 4096), |options| options.timeout = LIMIT);
    let rights = Rights::READ | Rights::WRITE;
    let file = hand.run(hand.client.create(Handle::ROOT, &name("f"), OWNER, true, rights, None)).unwrap().2;
    hand.run(hand.client.ping(FIRST)).unwrap();
    let has_signal = Rc::new(Cell::new(false));
    let signal = has_signal.clone();
    hand.client.hear_interrupts(move |thread| thread == 7 && signal.get());
    (hand, file, has_signal)
}

const FIRST_TEN: LockRange = LockRange { first: 0, last: 9 };
const NEXT_TEN: LockRange = LockRange { first: 10, last: 19 };

fn lock<'a>(hand: &Hand, file: &'a OpenFile, wait: bool) -> Locking<'a> {
    lock_range(hand, file, LockRange::ALL, wait)
}

fn lock_range<'a>(hand: &Hand, file: &'a OpenFile, range: LockRange, wait: bool) -> Locking<'a> {
    let call = LockCall { owner: LockOwner(3), range, kind: LockKind::Exclusive, pid: 9, wait };
    let lock: Locking<'a> = Box::pin(async move { file.lock(&call).await });
    Box::pin(hand.client.call(7, lock))
}

/// Have a range locked.
fn locked(hand: &Hand, file: &OpenFile, range: LockRange) {
    let mut locking = lock_range(hand, file, range, true);
    assert!(hand.look(locking.as_mut()).is_pending());
    answer(hand, only(hand).0, LockState::Granted);
    assert_eq!(ended(hand, &mut locking), Ok(true));
}

/// The ranges that are given back now.
fn given_back(hand: &Hand) -> Vec<LockRange> {
    let range = |(_, op)| match op {
        Op::Unlock { range, .. } => Some(range),
        _ => None,
    };
    sent(hand).into_iter().filter_map(range).collect()
}

/// The requests that are sent now: a tag and an operation each.
fn sent(hand: &Hand) -> Vec<(u64, Op)> {
    let requests = hand.take(FIRST).into_iter();
    requests.map(|(tag, request, _)| (tag, request.groups[0].ops[0].clone())).collect()
}

fn only(hand: &Hand) -> (u64, Op) {
    let mut all = sent(hand);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn answer(hand: &Hand, tag: u64, state: LockState) {
    let group = GroupReply { status: Status::Ok, answers: vec![Answer::Locked { state }].into() };
    let reply = Reply { loss: Loss::default(), map_epoch: 1, groups: vec![group].into() };
    hand.reply(FIRST, tag, reply, Bytes::new()).unwrap();
}

/// Wait so long for a lock that its server keeps; then comes a signal. The tag of the request for the lock,
/// and the request that takes the call back.
fn interrupted_after(
    hand: &Hand,
    locking: &mut Locking<'_>,
    has_signal: &Cell<bool>,
    span: Duration,
) -> (u64, u64) {
    assert!(hand.look(locking.as_mut()).is_pending());
    let (asked, op) = only(hand);
    let Op::Lock { call: number, .. } = op else { panic!("{op:?}") };
    for _ in 1..span.as_millis() / GLANCE.as_millis() {
        hand.advance(GLANCE);
        assert!(hand.look(locking.as_mut()).is_pending());
        assert!(sent(hand).is_empty());
    }
    has_signal.set(true);
    hand.advance(GLANCE);
    assert!(hand.look(locking.as_mut()).is_pending(), "the server is to say whether it was granted");
    match only(hand) {
        (tag, Op::Unwait { call, .. }) if call == number => (asked, tag),
        other => panic!("{other:?}"),
    }
}

fn ended(hand: &Hand, locking: &mut Locking<'_>) -> Result<bool, Status> {
    match hand.look(locking.as_mut()) {
        Poll::Ready(end) => end.map_err(|error| error.status),
        Poll::Pending => panic!("it waits"),
    }
}

/// The operations without their details.
fn kinds(all: &[(u64, Op)]) -> Vec<&'static str> {
    let kind = |op: &Op| match op {
        Op::Lock { .. } => "lock",
        Op::Unwait { .. } => "unwait",
        Op::Unlock { .. } => "unlock",
        _ => "another",
    };
    all.iter().map(|(_, op)| kind(op)).collect()
}

#[test]
fn a_signal_takes_the_wait_back_at_its_server_also_where_the_server_had_nothing_to_say_for_long() {
    for tenths in [3, 10, 11, 50, 99] {
        let (hand, file, has_signal) = client();
        let mut locking = lock(&hand, &file, true);
        let (_, unwait) = interrupted_after(&hand, &mut locking, &has_signal, tenths * GLANCE);
        answer(&hand, unwait, LockState::Refused);
        assert_eq!(ended(&hand, &mut locking), Err(Status::Interrupted));
        assert!(sent(&hand).is_empty(), "its end is known");
        assert!(!file.has_locks(LockOwner(3)));
    }
}

#[test]
fn a_lock_that_was_granted_just_before_the_signal_is_the_calls_and_is_given_back_at_the_close() {
    let (hand, file, has_signal) = client();
    let mut locking = lock(&hand, &file, true);
    let (_, unwait) = interrupted_after(&hand, &mut locking, &has_signal, 10 * GLANCE);
    answer(&hand, unwait, LockState::Granted);
    assert_eq!(ended(&hand, &mut locking), Ok(true));
    drop(locking);
    assert!(file.has_locks(LockOwner(3)));
    drop(file);
    assert!(kinds(&sent(&hand)).contains(&"unlock"));
}

#[test]
fn a_call_ends_soon_after_its_signal_and_what_its_server_does_not_answer_is_asked_again() {
    let (hand, file, has_signal) = client();
    let mut locking = lock(&hand, &file, true);
    interrupted_after(&hand, &mut locking, &has_signal, 20 * GLANCE);
    hand.advance(Duration::from_secs(1));
    assert_eq!(ended(&hand, &mut locking), Err(Status::Interrupted));
    assert_eq!(kinds(&sent(&hand)), ["unwait", "unlock"], "posted: no caller waits for them");
    hand.core.lost(FIRST, "cut");
    hand.attach(FIRST);
    let again = sent(&hand);
    assert!(kinds(&again).ends_with(&["unwait", "unlock"]), "{again:?}");
}

#[test]
fn a_call_that_is_dropped_takes_back_what_it_may_have() {
    let (hand, file, _) = client();
    let mut locking = lock(&hand, &file, true);
    assert!(hand.look(locking.as_mut()).is_pending());
    only(&hand);
    drop(locking);
    assert_eq!(kinds(&sent(&hand)), ["unwait", "unlock"]);
    assert!(file.has_locks(LockOwner(3)), "the close gives back what it may have");
}

#[test]
fn a_place_in_the_queue_of_a_server_that_falls_silent_is_taken_back() {
    let (hand, file, _) = client();
    let mut locking = lock(&hand, &file, true);
    assert!(hand.look(locking.as_mut()).is_pending());
    answer(&hand, only(&hand).0, LockState::Queued);
    assert!(hand.look(locking.as_mut()).is_pending());
    only(&hand);
    hand.advance(LIMIT);
    assert_eq!(ended(&hand, &mut locking), Err(Status::TimedOut), "it was sent: silence leaves something");
    drop(locking);
    assert_eq!(kinds(&sent(&hand)), ["unwait", "unlock"]);

    // One that is not sent leaves nothing, and many of them post nothing.
    for _ in 0..3 {
        let mut locking = lock(&hand, &file, false);
        let _ = hand.look(locking.as_mut());
        hand.advance(Duration::from_secs(1));
        assert_eq!(ended(&hand, &mut locking), Err(Status::Silent));
        assert!(sent(&hand).is_empty());
    }
}

#[test]
fn a_client_that_was_only_refused_claims_nothing_and_says_so_after_a_restart() {
    let (hand, file, _) = client();
    let mut locking = lock(&hand, &file, false);
    assert!(hand.look(locking.as_mut()).is_pending());
    answer(&hand, only(&hand).0, LockState::Refused);
    assert_eq!(ended(&hand, &mut locking), Ok(false));
    hand.core.lost(FIRST, "cut");
    hand.attach(FIRST);
    sent(&hand);
    let mut claiming = Box::pin(hand.core.claim_locks(FIRST));
    assert!(hand.look(claiming.as_mut()).is_pending());
    match only(&hand).1 {
        Op::Reclaim { claims, last: true } => assert!(claims.is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grant_that_meets_a_return_of_the_same_owner_is_asked_for_again() {
    let (hand, file, _) = client();
    let mut first = lock(&hand, &file, true);
    assert!(hand.look(first.as_mut()).is_pending());
    answer(&hand, only(&hand).0, LockState::Granted);
    assert_eq!(ended(&hand, &mut first), Ok(true));
    drop(first);
    // Another thread of the process asks; a third one closes a descriptor of the file.
    let mut second = lock(&hand, &file, true);
    assert!(hand.look(second.as_mut()).is_pending());
    let (asked, _) = only(&hand);
    let mut unlocking = Box::pin(file.unlock(LockOwner(3), LockRange::ALL));
    assert!(hand.look(unlocking.as_mut()).is_pending());
    assert_eq!(kinds(&sent(&hand)), ["unlock"]);
    answer(&hand, asked, LockState::Granted);
    assert!(hand.look(second.as_mut()).is_pending(), "the server may have taken it with the unlock");
    answer(&hand, only(&hand).0, LockState::Granted);
    assert_eq!(ended(&hand, &mut second), Ok(true));
}

#[test]
fn an_unlock_and_a_close_that_are_dropped_give_the_lock_back_all_the_same() {
    let (hand, file, _) = client();
    locked(&hand, &file, LockRange::ALL);
    let mut unlocking = Box::pin(file.unlock(LockOwner(3), LockRange::ALL));
    assert!(hand.look(unlocking.as_mut()).is_pending());
    drop(unlocking);
    assert_eq!(given_back(&hand), [LockRange::ALL]);

    locked(&hand, &file, LockRange::ALL);
    let mut closing = Box::pin(file.close());
    assert!(hand.look(closing.as_mut()).is_pending());
    drop(closing);
    assert_eq!(given_back(&hand), [LockRange::ALL]);
}

#[test]
fn a_late_unlock_takes_nothing_that_the_same_owner_was_granted_meanwhile() {
    for is_granted_first in [true, false] {
        let (hand, file, _) = client();
        locked(&hand, &file, LockRange::ALL);
        let mut unlocking = Box::pin(file.unlock(LockOwner(3), LockRange::ALL));
        assert!(hand.look(unlocking.as_mut()).is_pending());
        assert_eq!(given_back(&hand), [LockRange::ALL]);
        let mut locking = lock(&hand, &file, true);
        assert!(hand.look(locking.as_mut()).is_pending());
        let (asked, _) = only(&hand);
        if is_granted_first {
            answer(&hand, asked, LockState::Granted);
            assert_eq!(ended(&hand, &mut locking), Ok(true));
        }
        drop(unlocking);
        match is_granted_first {
            true => assert!(given_back(&hand).is_empty(), "it has the lock"),
            false => {
                assert_eq!(given_back(&hand), [LockRange::ALL]);
                answer(&hand, asked, LockState::Granted);
                assert!(hand.look(locking.as_mut()).is_pending());
                assert_eq!(kinds(&sent(&hand)), ["lock"], "the server has taken it with the late unlock");
            }
        }
    }
}

#[test]
fn a_call_that_ends_unknown_gives_back_its_own_bytes_and_none_that_the_owner_has() {
    let (hand, file, _) = client();
    locked(&hand, &file, FIRST_TEN);
    let both = LockRange { first: 0, last: 19 };
    let mut locking = lock_range(&hand, &file, both, true);
    assert!(hand.look(locking.as_mut()).is_pending());
    only(&hand);
    drop(locking);
    assert_eq!(given_back(&hand), [NEXT_TEN]);
}

#[test]
fn a_call_that_does_not_wait_is_interrupted_at_a_server_that_does_not_answer() {
    let (hand, file, has_signal) = client();
    let mut locking = lock(&hand, &file, false);
    assert!(hand.look(locking.as_mut()).is_pending());
    only(&hand);
    has_signal.set(true);
    for _ in 0..9 {
        hand.advance(GLANCE);
        assert!(hand.look(locking.as_mut()).is_pending() && sent(&hand).is_empty());
    }
    hand.advance(GLANCE);
    assert!(hand.look(locking.as_mut()).is_pending());
    assert_eq!(kinds(&sent(&hand)), ["unwait"]);
    hand.advance(Duration::from_secs(1));
    assert_eq!(ended(&hand, &mut locking), Err(Status::Interrupted));
}

#[test]
fn calls_that_were_never_sent_leave_nothing_to_send() {
    let (hand, file, _) = client();
    hand.core.lost(FIRST, "cut");
    for _ in 0..100 {
        let mut locking = lock(&hand, &file, true);
        assert!(hand.look(locking.as_mut()).is_pending());
    }
    hand.attach(FIRST);
    let left = kinds(&sent(&hand)).into_iter().filter(|kind| *kind != "another").count();
    assert_eq!(left, 0);
    assert!(!file.has_locks(LockOwner(3)));
}

#[test]
fn an_open_file_through_which_a_lock_was_only_refused_keeps_none() {
    let (hand, file, _) = client();
    let other = hand.run(hand.client.open(file.handle(), Rights::READ | Rights::WRITE)).unwrap();
    sent(&hand);
    locked(&hand, &file, FIRST_TEN);
    let mut refused = lock_range(&hand, &other, NEXT_TEN, false);
    assert!(hand.look(refused.as_mut()).is_pending());
    answer(&hand, only(&hand).0, LockState::Refused);
    assert_eq!(ended(&hand, &mut refused), Ok(false));
    let mut closing = Box::pin(file.close());
    let _ = hand.look(closing.as_mut());
    assert_eq!(given_back(&hand), [LockRange::ALL]);
}

#[test]
fn a_client_that_ends_takes_its_waits_back_and_what_was_granted_meanwhile() {
    for state in [LockState::Refused, LockState::Granted] {
        let (hand, file, _) = client();
        let mut locking = lock(&hand, &file, true);
        assert!(hand.look(locking.as_mut()).is_pending());
        only(&hand);
        let mut closing = Box::pin(hand.client.close());
        assert!(hand.look(closing.as_mut()).is_pending());
        let (unwait, op) = only(&hand);
        assert_eq!(kinds(&[(unwait, op)]), ["unwait"]);
        answer(&hand, unwait, state);
        let ended = hand.look(closing.as_mut()).is_ready();
        assert_eq!(ended, state == LockState::Refused);
        assert_eq!(given_back(&hand).len(), usize::from(!ended));
    }
}
