//! Tests of retries: the requests that are retried, those that are not, and the end of the retries.

use crate::fake::{FakeCluster, Hand, Lost, OWNER, name};
use bytes::Bytes;
use shoal_proto::message::{GroupReply, Loss, Reply};
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Kind, Op, Rights, ServerId, Status};
use std::time::Duration;

const STRIP: u64 = 4096;
const FIRST: ServerId = ServerId(0);

#[test]
fn a_change_whose_reply_was_lost_goes_again_with_its_slot_and_sequence_and_is_done_once() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let rights = Rights::READ | Rights::WRITE;
    let (.., file) =
        hand.run(hand.client.create(Handle::ROOT, &name("f"), OWNER, true, rights, None)).unwrap();
    let mut losses = [Lost::Reply, Lost::Request, Lost::Reply].into_iter();
    *hand.loses.borrow_mut() = Box::new(move || losses.next().unwrap_or(Lost::Nothing));
    assert_eq!(hand.run(file.append(Bytes::from_static(b"once"))).unwrap(), 0);
    assert_eq!(&hand.run(file.read(0, 100)).unwrap()[..], b"once");
    assert_eq!(hand.client.counters().reconnects, 3);
}

#[test]
fn what_is_sent_again_is_the_same_request() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let owner = OWNER;
    let (dir, first, second) = (Handle::ROOT, name("a"), name("b"));
    let mut one = Box::pin(hand.client.mkdir(dir, &first, owner));
    let mut two = Box::pin(hand.client.mkdir(dir, &second, owner));
    assert!(hand.look(one.as_mut()).is_pending());
    assert!(hand.look(two.as_mut()).is_pending());
    hand.attach(FIRST);
    let sent = hand.take(FIRST);
    assert_eq!(sent.len(), 2);
    assert_ne!(sent[0].1.slot.unwrap().slot, sent[1].1.slot.unwrap().slot);
    hand.core.lost(FIRST, "cut");
    assert!(hand.take(FIRST).is_empty());
    hand.attach(FIRST);
    assert_eq!(hand.take(FIRST), sent, "same tags, slots and sequences");
}

#[test]
fn changes_wait_in_order_for_a_slot_and_reads_pass_them() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.attached.borrow_mut().slots = 1;
    let names: Vec<_> = (0..3).map(|n| name(&format!("d{n}"))).collect();
    let mut making: Vec<_> =
        names.iter().map(|name| Box::pin(hand.client.mkdir(Handle::ROOT, name, OWNER))).collect();
    for one in &mut making {
        assert!(hand.look(one.as_mut()).is_pending());
    }
    let mut ping = Box::pin(hand.client.ping(FIRST));
    assert!(hand.look(ping.as_mut()).is_pending());
    hand.attach(FIRST);
    let sent = hand.take(FIRST);
    assert_eq!(sent.len(), 2, "one change and the ping");
    let session = hand.core.attach_id(FIRST).unwrap();
    for (tag, request, bulk) in sent {
        let (reply, back) = hand.cluster.borrow_mut().execute(FIRST, session, &request, bulk);
        hand.reply(FIRST, tag, reply, back).unwrap();
    }
    let next = hand.take(FIRST);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].1.slot.unwrap().sequence, 2);
}

#[test]
fn a_change_given_up_before_it_was_sent_leaves_no_gap_in_its_slot() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.run(hand.client.ping(FIRST)).unwrap();
    let (a, b) = (name("a"), name("b"));
    let mut given_up = Box::pin(hand.client.mkdir(Handle::ROOT, &a, OWNER));
    assert!(hand.look(given_up.as_mut()).is_pending());
    drop(given_up);
    hand.run(hand.client.mkdir(Handle::ROOT, &b, OWNER)).unwrap();
    assert!(!hand.cluster.borrow().names.contains_key(&(Handle::ROOT, a)));
}

#[test]
fn a_change_given_up_under_way_keeps_its_slot_until_its_answer() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.attached.borrow_mut().slots = 1;
    hand.run(hand.client.ping(FIRST)).unwrap();
    let (a, b) = (name("a"), name("b"));
    let mut given_up = Box::pin(hand.client.mkdir(Handle::ROOT, &a, OWNER));
    assert!(hand.look(given_up.as_mut()).is_pending());
    let sent = hand.take(FIRST);
    drop(given_up);
    let mut next = Box::pin(hand.client.mkdir(Handle::ROOT, &b, OWNER));
    assert!(hand.look(next.as_mut()).is_pending());
    assert!(hand.take(FIRST).is_empty(), "the slot is in use");
    let session = hand.core.attach_id(FIRST).unwrap();
    for (tag, request, bulk) in sent {
        let (reply, back) = hand.cluster.borrow_mut().execute(FIRST, session, &request, bulk);
        hand.reply(FIRST, tag, reply, back).unwrap();
    }
    hand.run(next).unwrap();
}

#[test]
fn a_session_the_server_forgot_fails_the_changes_under_way_and_a_new_one_begins() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.run(hand.client.ping(FIRST)).unwrap();
    let (a, b) = (name("a"), name("b"));
    let mut lost = Box::pin(hand.client.mkdir(Handle::ROOT, &a, OWNER));
    let mut reading = Box::pin(hand.client.getattr(Handle::ROOT));
    assert!(hand.look(lost.as_mut()).is_pending());
    assert!(hand.look(reading.as_mut()).is_pending());
    assert_eq!(hand.take(FIRST).len(), 2);
    let old = hand.core.attach_id(FIRST);
    hand.core.lost(FIRST, "cut");
    hand.core.session_lost(FIRST);
    let error = hand.run(lost).unwrap_err();
    assert_eq!((error.status, error.errno(), error.server), (Status::NoSession, 5, Some(FIRST)));
    hand.run(reading).expect("reads go again in the new session");
    hand.run(hand.client.mkdir(Handle::ROOT, &b, OWNER)).unwrap();
    assert_ne!(hand.core.attach_id(FIRST), old);
}

#[test]
fn busy_changed_and_unavailable_are_asked_again_and_others_are_not() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.cluster.borrow_mut().refuse_next = vec![Status::Busy, Status::Changed, Status::Unavailable];
    hand.run(hand.client.mkdir(Handle::ROOT, &name("d"), OWNER)).unwrap();
    assert_eq!(hand.client.counters().retries, 3);
    hand.cluster.borrow_mut().refuse_next = vec![Status::NoSpace];
    let error = hand.run(hand.client.mkdir(Handle::ROOT, &name("e"), OWNER)).unwrap_err();
    assert_eq!(error.status, Status::NoSpace);
}

#[test]
fn a_repair_that_expects_what_is_not_so_any_more_is_not_asked_again() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.cluster.borrow_mut().refuse_next = vec![Status::Changed];
    let error = hand.run(hand.client.repair(FIRST, Vec::new())).unwrap_err();
    assert_eq!((error.status, hand.client.counters().retries), (Status::Changed, 0));
}

#[test]
fn a_server_that_stays_busy_ends_at_the_deadline_and_is_named() {
    let hand = Hand::with(FakeCluster::new(1, STRIP), |options| options.timeout = Duration::from_secs(1));
    hand.cluster.borrow_mut().refuse_next = vec![Status::Busy; 1000];
    let error = hand.run(hand.client.mkdir(Handle::ROOT, &name("d"), OWNER)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut);
    let words = error.to_string();
    assert!(words.contains("mkdir") && words.contains("server 0") && words.contains("busy"), "{words}");
}

#[test]
fn a_server_that_never_answers_ends_at_the_deadline() {
    let hand = Hand::with(FakeCluster::new(1, STRIP), |options| options.timeout = Duration::from_secs(1));
    hand.run(hand.client.ping(FIRST)).unwrap();
    let mut waiting = Box::pin(hand.client.getattr(Handle::ROOT));
    assert!(hand.look(waiting.as_mut()).is_pending());
    assert_eq!(hand.take(FIRST).len(), 1);
    hand.advance(Duration::from_millis(999));
    assert!(hand.look(waiting.as_mut()).is_pending());
    hand.advance(Duration::from_millis(2));
    let error = hand.run(waiting).unwrap_err();
    assert_eq!((error.status, error.object), (Status::TimedOut, Some(Handle::ROOT)));
}

#[test]
fn a_higher_epoch_in_a_reply_fetches_the_map() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    hand.cluster.borrow_mut().map.epoch = 5;
    hand.run(hand.client.ping(FIRST)).unwrap();
    hand.run(hand.client.ping(FIRST)).unwrap();
    assert_eq!(hand.client.map().epoch, 5);
}

#[test]
fn an_object_of_a_server_that_is_not_in_the_map_is_stale() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let nowhere = Handle::new(ServerId(9), 5);
    assert_eq!(hand.run(hand.client.getattr(nowhere)).unwrap_err().status, Status::Stale);
}

#[test]
fn what_lies_on_a_server_that_was_added_meanwhile_is_found_by_the_newer_map() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.run(hand.client.ping(FIRST)).unwrap();
    let added = ServerId(1);
    let made = {
        let mut cluster = hand.cluster.borrow_mut();
        cluster.map = shoal_proto::ClusterMap { epoch: 2, ..FakeCluster::new(2, STRIP).map };
        cluster.loss.push(1);
        ["a", "b"].map(|text| cluster.make(added, Handle::ROOT, name(text), Kind::File))
    };
    let found = hand.run(hand.client.lookup(Handle::ROOT, &name("a"))).unwrap();
    assert_eq!((found.handle, hand.client.map().epoch), (made[0], 2));

    let old = hand.cluster.borrow().map.clone();
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.run(hand.client.ping(FIRST)).unwrap();
    let made = {
        let mut cluster = hand.cluster.borrow_mut();
        cluster.map = old;
        cluster.loss.push(1);
        ["a", "b"].map(|text| cluster.make(added, Handle::ROOT, name(text), Kind::File))
    };
    let which = [crate::Which::Object(made[0]), crate::Which::Object(made[1])];
    for (attr, made) in hand.run(hand.client.stat_many(&which)).into_iter().zip(made) {
        assert_eq!(attr.unwrap().handle, made);
    }
}

#[test]
fn a_handle_of_an_unknown_server_is_stale_soon_though_server_0_is_away() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let nowhere = Handle::new(ServerId(9), 5);
    let stale = |error: crate::Error| {
        assert_eq!(
            (error.status, error.op, error.object),
            (Status::Stale, "getattr", Some(nowhere)),
            "{error}"
        );
    };
    for _ in 0..2 {
        let mut first = Box::pin(hand.client.getattr(nowhere));
        let mut second = Box::pin(hand.client.getattr(nowhere));
        assert!(hand.look(first.as_mut()).is_pending() && hand.look(second.as_mut()).is_pending());
        hand.advance(Duration::from_secs(2));
        for asking in [&mut first, &mut second] {
            let std::task::Poll::Ready(Err(error)) = hand.look(asking.as_mut()) else {
                panic!("it waits on")
            };
            stale(error);
        }
        assert!(!hand.core.is_wanted(FIRST), "nobody waits for server 0 any more");
        // Again, at once.
        let mut again = Box::pin(hand.client.getattr(nowhere));
        let std::task::Poll::Ready(Err(error)) = hand.look(again.as_mut()) else { panic!("it asks again") };
        stale(error);
        hand.advance(Duration::from_secs(2));
    }
    // It is back.
    hand.run(hand.client.ping(FIRST)).unwrap();
    stale(hand.run(hand.client.getattr(nowhere)).unwrap_err());
}

#[test]
fn a_server_of_a_newer_map_that_cannot_be_fetched_is_waited_for_and_not_called_gone() {
    // A reply of server 1 had a greater epoch, and no server sends the map.
    let begun = || {
        let hand = Hand::with(FakeCluster::new(2, STRIP), |options| options.timeout = Duration::from_secs(9));
        hand.run(hand.client.ping(FIRST)).unwrap();
        hand.core.note_epoch(ServerId(1), 2);
        hand
    };
    let added = ServerId(2);
    let hand = begun();
    let mut asking = Box::pin(hand.client.getattr(Handle::new(added, 5)));
    for _ in 0..8 {
        assert!(hand.look(asking.as_mut()).is_pending());
        hand.advance(Duration::from_secs(1));
    }
    assert!(hand.look(asking.as_mut()).is_pending());
    hand.advance(Duration::from_secs(2));
    let std::task::Poll::Ready(Err(error)) = hand.look(asking.as_mut()) else { panic!("it waits on") };
    assert_eq!(error.status, Status::TimedOut, "{error}");
    // The same, and then it comes.
    let hand = begun();
    let made = {
        let mut cluster = hand.cluster.borrow_mut();
        cluster.map = shoal_proto::ClusterMap { epoch: 2, ..FakeCluster::new(3, STRIP).map };
        cluster.loss.push(1);
        cluster.make(added, Handle::ROOT, name("a"), Kind::File)
    };
    let mut asking = Box::pin(hand.client.getattr(made));
    assert!(hand.look(asking.as_mut()).is_pending());
    hand.advance(Duration::from_secs(3));
    assert_eq!(hand.run(asking).unwrap().handle, made);
}

#[test]
fn unknown_servers_are_looked_for_by_one_message_a_second_however_many_ask() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let nowhere = |n: u16| Handle::new(ServerId(9 + n), 5);
    let maps = || hand.client.counters().messages.get("map").copied().unwrap_or(0);
    for seconds in 1..4 {
        let each = (0..20).map(|n| hand.client.getattr(nowhere(n)));
        let together = hand.run(futures_util::future::join_all(each));
        assert!(together.iter().all(|got| got.as_ref().is_err_and(|error| error.status == Status::Stale)));
        assert_eq!(hand.run(hand.client.getattr(nowhere(3))).unwrap_err().status, Status::Stale);
        assert_eq!(maps(), seconds);
        hand.advance(Duration::from_secs(1));
    }
    // One was added: all callers that meet it meanwhile find it.
    let made = {
        let mut cluster = hand.cluster.borrow_mut();
        cluster.map = shoal_proto::ClusterMap { epoch: 2, ..FakeCluster::new(2, STRIP).map };
        cluster.loss.push(1);
        ["a", "b", "c"].map(|text| cluster.make(ServerId(1), Handle::ROOT, name(text), Kind::File))
    };
    let mut given_up = Box::pin(hand.client.getattr(made[0]));
    assert!(hand.look(given_up.as_mut()).is_pending());
    drop(given_up);
    let found = hand.run(futures_util::future::join_all(made.map(|file| hand.client.getattr(file))));
    assert!(found.iter().zip(made).all(|(got, file)| got.as_ref().is_ok_and(|attr| attr.handle == file)));
    assert!(maps() <= 5, "one for all, and one that the epoch in its reply is the reason of");
}

#[test]
fn who_meets_an_unknown_server_hears_that_server_0_refuses_him() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let nowhere = Handle::new(ServerId(9), 5);
    let mut asking = Box::pin(hand.client.getattr(nowhere));
    assert!(hand.look(asking.as_mut()).is_pending());
    hand.core.refused(FIRST, Status::BadKey, "another key");
    let error = hand.run(asking).unwrap_err();
    assert_eq!((error.status, error.server, error.object), (Status::BadKey, Some(FIRST), Some(nowhere)));
}

#[test]
fn a_mode_is_changed_and_seen() {
    let hand = Hand::new(FakeCluster::new(2, STRIP));
    let file = hand.cluster.borrow_mut().make(ServerId(1), Handle::ROOT, name("f"), Kind::File);
    hand.run(hand.client.getattr(file)).unwrap();
    let set = shoal_proto::SetAttr { mode: Some(0o600), ..shoal_proto::SetAttr::default() };
    assert_eq!(hand.run(hand.client.setattr(file, set)).unwrap().mode, 0o600);
    assert_eq!(hand.run(hand.client.getattr(file)).unwrap().mode, 0o600);
}

#[test]
fn what_waited_behind_a_read_that_ran_out_of_time_is_announced_to_the_connection() {
    let hand = Hand::with(FakeCluster::new(1, STRIP), |options| options.timeout = Duration::from_secs(10));
    hand.attached.borrow_mut().credit_bytes = 50;
    let rights = Rights::READ | Rights::WRITE;
    let (.., file) =
        hand.run(hand.client.create(Handle::ROOT, &name("f"), OWNER, true, rights, None)).unwrap();
    hand.run(file.append(Bytes::from_static(b"some data"))).unwrap();
    let mut first = Box::pin(file.read(0, 100));
    assert!(hand.look(first.as_mut()).is_pending());
    assert_eq!(hand.take(FIRST).len(), 1);
    hand.advance(Duration::from_secs(6));
    hand.run(hand.client.ping(FIRST)).expect("the server answers others");
    let mut second = Box::pin(file.read(0, 100));
    assert!(hand.look(second.as_mut()).is_pending());
    assert!(hand.take(FIRST).is_empty(), "all credit is in use");
    let announced = hand.outgoing();
    hand.advance(Duration::from_secs(5));
    assert!(hand.outgoing() > announced, "nobody else would say it before the next request");
    assert_eq!(hand.take(FIRST).len(), 1);
    assert!(hand.look(first.as_mut()).is_ready());
}

/// A hold, or an unlink, is executed, and its answer comes when no caller waits for it and the file is
/// closed.
#[test]
fn what_a_server_keeps_by_an_answer_that_nobody_waits_for_is_released() {
    for unlinks in [false, true] {
        let hand = Hand::new(FakeCluster::new(1, STRIP));
        let rights = Rights::READ | Rights::WRITE;
        let text = name("f");
        let (attr, _, file) =
            hand.run(hand.client.create(Handle::ROOT, &text, OWNER, true, rights, None)).unwrap();
        let object = attr.handle;
        let sent = match unlinks {
            true => {
                let mut unlink = Box::pin(hand.client.unlink(Handle::ROOT, &text));
                assert!(hand.look(unlink.as_mut()).is_pending());
                hand.take(FIRST)
            }
            false => {
                let mut saying = Box::pin(hand.core.say_what_is_open(FIRST, Duration::ZERO));
                assert!(hand.look(saying.as_mut()).is_pending());
                hand.take(FIRST)
            }
        };
        assert_eq!(sent.len(), 1);
        // The connection breaks with the answer on its way; its caller has gone; then the file is closed.
        hand.core.lost(FIRST, "cut");
        hand.run(file.close()).unwrap();
        hand.attach(FIRST);
        let again = hand.take(FIRST);
        assert_eq!(again, sent);
        let removed = vec![object].into();
        let answer = match unlinks {
            true => Answer::Removed { handle: object, kind: Kind::File, orphaned: true },
            false => Answer::Holding { removed },
        };
        let groups = vec![GroupReply { status: Status::Ok, answers: vec![answer].into() }].into();
        let reply = Reply { loss: Loss::default(), map_epoch: 1, groups };
        hand.reply(FIRST, again[0].0, reply, Bytes::new()).unwrap();
        let released: Vec<_> =
            hand.take(FIRST).into_iter().flat_map(|(_, request, _)| request.groups.0).collect();
        assert_eq!(released.len(), 1, "unlinks: {unlinks}");
        assert_eq!(released[0].ops[..], [Op::Release { object }]);
    }
}
