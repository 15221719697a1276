//! Tests of one server that does not answer, while the other servers answer.

use crate::core::SILENT_PAUSE;
use crate::fake::{COLLECTION, FS_ID, FakeCluster, Fault, Hand, KEY, OWNER, name, serve};
use crate::{Client, Error, Options};
use shoal_env::sim::{Config, ProcessId, World};
use shoal_env::{Address, Env, Instant};
use shoal_proto::{Handle, Kind, ServerId, Status};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const STRIP: u64 = 4096;
const LIMIT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const SILENT: ServerId = ServerId(1);

/// Two servers with connections; all that is asked of the second from now on is taken and not answered.
fn hand() -> Hand {
    let hand = Hand::with(FakeCluster::new(2, STRIP), |options| options.timeout = LIMIT);
    for server in [ServerId(0), SILENT] {
        hand.run(hand.client.ping(server)).unwrap();
    }
    hand
}

fn begun<T>(hand: &Hand, future: std::pin::Pin<&mut impl Future<Output = T>>) {
    assert!(hand.look(future).is_pending());
    hand.take(SILENT);
}

/// Ends without an answer: with the first look, or after the pause before the error of a silent server.
fn ended<T>(hand: &Hand, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..2 {
        if let Poll::Ready(value) = hand.look(future.as_mut()) {
            return value;
        }
        hand.advance(SILENT_PAUSE);
    }
    panic!("it waits")
}

/// Ends with the answers of the others.
fn ended_by_others<T>(hand: &Hand, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut pauses = 0;
    loop {
        match hand.look(future.as_mut()) {
            Poll::Ready(value) => return value,
            Poll::Pending if hand.carry_all_but(SILENT) => {}
            Poll::Pending => {
                hand.advance(SILENT_PAUSE);
                pauses += 1;
                assert!(pauses < 10, "it waits");
            }
        }
    }
}

fn is_silence(error: &Error) {
    assert_eq!((error.status, error.errno(), error.server), (Status::Silent, 110, Some(SILENT)), "{error}");
}

/// Let it be silent for a whole time limit.
fn fallen_silent() -> Hand {
    let hand = hand();
    let mut waiting = Box::pin(hand.client.ping(SILENT));
    begun(&hand, waiting.as_mut());
    hand.advance(LIMIT);
    assert_eq!(ended(&hand, waiting).unwrap_err().status, Status::TimedOut);
    hand
}

#[test]
fn a_server_that_let_a_time_limit_pass_without_an_answer_is_not_asked_any_more() {
    let hand = hand();
    let mut first = Box::pin(hand.client.ping(SILENT));
    begun(&hand, first.as_mut());
    hand.advance(LIMIT - SECOND);
    let mut second = Box::pin(hand.client.ping(SILENT));
    begun(&hand, second.as_mut());
    hand.advance(SECOND);
    assert_eq!(ended(&hand, first).unwrap_err().status, Status::TimedOut);
    is_silence(&ended(&hand, second).unwrap_err());
    is_silence(&ended(&hand, hand.client.ping(SILENT)).unwrap_err());
    let into = name("into");
    is_silence(&ended(&hand, hand.client.mkdir(Handle::new(SILENT, 5), &into, OWNER)).unwrap_err());
    assert!(hand.take(SILENT).is_empty(), "nothing was sent");
    hand.run(hand.client.ping(ServerId(0))).expect("the other one is asked");
    assert!(hand.core.is_wanted(SILENT), "it is to be found again, though nobody waits");
}

#[test]
fn a_call_with_a_deadline_of_its_own_ends_at_it_and_names_operation_and_server() {
    let hand = hand();
    let until = hand.now() + SECOND;
    let mut waiting = Box::pin(hand.client.until(until, Box::pin(hand.client.ping(SILENT))));
    begun(&hand, waiting.as_mut());
    hand.advance(SECOND - Duration::from_millis(1));
    assert!(hand.look(waiting.as_mut()).is_pending());
    hand.advance(Duration::from_millis(1));
    let error = ended(&hand, waiting).unwrap_err();
    assert_eq!((error.status, error.op, error.server), (Status::TimedOut, "ping", Some(SILENT)), "{error}");
    assert!(error.words.contains("no answer within 1s"), "{error}");
    // Many at once: those of the other server are done, and each of the rest names the server.
    let pings =
        async { futures_util::future::join(hand.client.ping(ServerId(0)), hand.client.ping(SILENT)).await };
    let mut both = Box::pin(hand.client.until(hand.now() + SECOND, Box::pin(pings)));
    assert!(hand.look(both.as_mut()).is_pending());
    hand.carry_all_but(SILENT);
    assert!(hand.look(both.as_mut()).is_pending());
    hand.advance(SECOND);
    let (answered, late) = ended(&hand, both);
    assert!(answered.is_ok());
    assert_eq!(late.unwrap_err().server, Some(SILENT));
}

#[test]
fn a_call_that_asks_the_silent_server_after_another_one_tells_too() {
    let hand = hand();
    let mut walk = Box::pin(hand.client.call(
        0,
        Box::pin(async {
            let first = hand.client.ping(ServerId(0)).await;
            (first, hand.client.ping(SILENT).await)
        }),
    ));
    assert!(hand.look(walk.as_mut()).is_pending());
    hand.advance(SECOND / 2);
    hand.carry_all_but(SILENT);
    begun(&hand, walk.as_mut());
    hand.advance(LIMIT - SECOND / 2);
    assert_eq!(ended(&hand, walk).1.unwrap_err().status, Status::TimedOut);
    is_silence(&ended(&hand, hand.client.ping(SILENT)).unwrap_err());
}

#[test]
fn a_change_that_waited_for_a_slot_of_a_silent_server_was_not_done_and_one_that_was_sent_is_unknown() {
    let hand = hand();
    hand.attached.borrow_mut().slots = 1;
    hand.core.session_lost(SILENT);
    hand.attach(SILENT);
    let dir = Handle::new(SILENT, 5);
    let (a, b) = (name("a"), name("b"));
    let mut sent = Box::pin(hand.client.mkdir(dir, &a, OWNER));
    begun(&hand, sent.as_mut());
    hand.advance(SECOND);
    let mut waits = Box::pin(hand.client.mkdir(dir, &b, OWNER));
    begun(&hand, waits.as_mut());
    hand.advance(LIMIT - SECOND);
    assert_eq!(ended(&hand, sent).unwrap_err().status, Status::TimedOut, "it may be done");
    is_silence(&ended(&hand, waits).unwrap_err());
    // The slot is kept for the sent request; the unsent one is dropped.
    hand.attach(SILENT);
    let again = hand.take(SILENT);
    assert_eq!(again.len(), 1);
}

#[test]
fn an_answer_or_a_handshake_ends_the_silence() {
    let hand = fallen_silent();
    hand.core.lost(SILENT, "no answer");
    is_silence(&ended(&hand, hand.client.ping(SILENT)).unwrap_err());
    hand.attach(SILENT);
    hand.run(hand.client.ping(SILENT)).unwrap();
}

#[test]
fn a_server_whose_machine_refuses_connections_is_waited_for() {
    let hand = fallen_silent();
    hand.core.not_serving(SILENT, "connection refused");
    let mut waiting = Box::pin(hand.client.ping(SILENT));
    assert!(hand.look(waiting.as_mut()).is_pending(), "it may be starting again");
    for _ in 0..2 * LIMIT.as_secs() {
        hand.core.not_serving(SILENT, "connection refused");
        hand.advance(SECOND);
    }
    assert_eq!(ended(&hand, waiting).unwrap_err().status, Status::TimedOut);
    assert!(hand.look(pin!(hand.client.ping(SILENT))).is_pending(), "it is waited for still");
}

#[test]
fn a_server_that_was_asked_nothing_for_long_is_given_a_whole_time_limit() {
    let hand = hand();
    let mut given_up = Box::pin(hand.client.getattr(Handle::new(SILENT, 5)));
    begun(&hand, given_up.as_mut());
    hand.advance(SECOND);
    drop(given_up);
    hand.advance(100 * LIMIT);
    let mut waiting = Box::pin(hand.client.ping(SILENT));
    begun(&hand, waiting.as_mut());
    for _ in 1..LIMIT.as_secs() {
        hand.advance(SECOND);
        assert!(hand.look(waiting.as_mut()).is_pending());
    }
}

#[test]
fn all_operations_of_a_call_end_by_one_deadline() {
    let hand = hand();
    let mut call = Box::pin(hand.client.call(
        0,
        Box::pin(async {
            let one = hand.client.getattr(Handle::new(SILENT, 5)).await;
            (one, hand.client.getattr(Handle::new(SILENT, 6)).await, hand.client.ping(SILENT).await)
        }),
    ));
    begun(&hand, call.as_mut());
    for _ in 0..LIMIT.as_secs() {
        // Others are answered: the server is not silent.
        hand.core.not_serving(SILENT, "restarting");
        hand.advance(SECOND);
    }
    let (one, two, three) = ended(&hand, call);
    assert!(one.is_err() && two.is_err() && three.is_err());
    // Outside of it each operation has its own.
    assert!(hand.look(pin!(hand.client.ping(SILENT))).is_pending());
}

#[test]
fn a_verb_of_several_operations_ends_by_one_limit() {
    let hand = hand();
    hand.cluster.borrow_mut().make(SILENT, Handle::ROOT, name("d"), Kind::Directory);
    let mut verb = Box::pin(hand.client.mkdir_at(b"/d/new", OWNER));
    assert!(hand.look(verb.as_mut()).is_pending());
    hand.advance(LIMIT - SECOND);
    hand.carry_all_but(SILENT);
    begun(&hand, verb.as_mut());
    hand.core.not_serving(SILENT, "restarting");
    hand.advance(SECOND);
    let error = ended(&hand, verb).unwrap_err();
    assert_eq!((error.status, error.server), (Status::TimedOut, Some(SILENT)), "{error}");
}

#[test]
fn an_interrupted_call_ends_only_when_its_server_has_not_answered_for_a_second() {
    let hand = hand();
    let asked = Rc::new(RefCell::new(Vec::new()));
    let pending = Rc::new(Cell::new(false));
    let (told, is_pending) = (asked.clone(), pending.clone());
    hand.client.hear_interrupts(move |thread| {
        told.borrow_mut().push(thread);
        is_pending.get() && thread == 7
    });
    let dir = Handle::new(SILENT, 5);
    let (a, b) = (name("a"), name("b"));
    let change =
        |thread, name| Box::pin(hand.client.call(thread, Box::pin(hand.client.mkdir(dir, name, OWNER))));
    let (mut one, mut other) = (change(7, &a), change(0, &b));
    begun(&hand, one.as_mut());
    begun(&hand, other.as_mut());
    pending.set(true);
    hand.advance(SECOND / 2);
    assert!(hand.look(one.as_mut()).is_pending() && asked.borrow().is_empty());
    hand.advance(SECOND / 2);
    let error = ended(&hand, one).unwrap_err();
    assert_eq!((error.status, error.errno(), error.server), (Status::Interrupted, 4, Some(SILENT)));
    assert!(hand.look(other.as_mut()).is_pending(), "nobody interrupts what no thread waits for");
    assert_eq!(*asked.borrow(), [7]);
}

#[test]
fn a_call_whose_server_answers_is_not_interrupted() {
    let hand = hand();
    hand.client.hear_interrupts(|_| true);
    let object = Handle::new(SILENT, 5);
    let mut call = Box::pin(hand.client.call(7, Box::pin(hand.client.getattr(object))));
    begun(&hand, call.as_mut());
    for _ in 1..LIMIT.as_secs() {
        // The answer to another request.
        let mut ping = Box::pin(hand.client.ping(SILENT));
        assert!(hand.look(ping.as_mut()).is_pending());
        hand.answer_all(SILENT);
        ended(&hand, ping).unwrap();
        hand.advance(SECOND * 9 / 10);
        assert!(hand.look(call.as_mut()).is_pending());
    }
}

/// Two fake servers in a simulated world, the second one with a script, and a client with a time limit that
/// begins at the first.
fn in_a_world<F: Future<Output = ()> + 'static>(
    limit: Duration,
    script: Vec<Fault>,
    plan: impl FnOnce(&World, ProcessId),
    body: impl FnOnce(Client, Env) -> F + 'static,
) {
    in_a_world_from(ServerId(0), limit, script, |world, process, _| plan(world, process), body);
}

/// The same of a client that begins at this server.
fn in_a_world_from<F: Future<Output = ()> + 'static>(
    first: ServerId,
    limit: Duration,
    script: Vec<Fault>,
    plan: impl FnOnce(&World, ProcessId, Rc<RefCell<FakeCluster>>),
    body: impl FnOnce(Client, Env) -> F + 'static,
) {
    let world = World::new(7, Config::default());
    let here = world.machine("here");
    let user = world.process("user", here);
    let address = |id: u16| Address::Local(format!("silent-{id}"));
    let mut cluster = FakeCluster::new(2, 1 << 20);
    for id in 0..2 {
        cluster.map.servers[usize::from(id)].addresses = vec![address(id).to_string().as_str().into()].into();
    }
    let cluster = Rc::new(RefCell::new(cluster));
    let mut processes = Vec::new();
    for id in 0..2 {
        let machine = world.machine("there");
        let process = world.process("server", machine);
        let own = cluster.clone();
        let script = if ServerId(id) == SILENT { script.clone() } else { Vec::new() };
        world.start(process, move |env: Env| async move {
            let listener = env.listen(&address(id)).await.unwrap();
            serve(env, listener, ServerId(id), own, script).await;
        });
        processes.push(process);
    }
    plan(&world, processes[1], cluster);
    let done = Rc::new(Cell::new(false));
    let told = done.clone();
    world.start(user, move |env: Env| async move {
        env.sleep(Duration::from_millis(1)).await;
        // No process listens at the last one, and no server of the map is there.
        let map_from =
            vec![address(first.0), address(1 - first.0), Address::Local("silent-nobody".to_owned())];
        let mut options = Options::new(map_from, KEY, FS_ID, COLLECTION);
        options.timeout = limit;
        let client = Client::connect(env.clone(), options).await.unwrap();
        body(client, env).await;
        told.set(true);
    });
    world.run_for(Duration::from_secs(3600));
    assert!(done.get(), "the client came to its end");
}

#[test]
fn a_silent_server_is_found_again_within_seconds_and_costs_others_nothing_meanwhile() {
    let at = |s: u64| Instant(0) + SECOND * s as u32;
    in_a_world(
        LIMIT,
        Vec::new(),
        move |world, process| {
            world.at(at(20), move |world| world.pause(process, SECOND * 60));
        },
        move |client, env| async move {
            client.ping(SILENT).await.unwrap();
            env.sleep_until(at(21)).await;
            let error = client.ping(SILENT).await.unwrap_err();
            assert_eq!(error.status, Status::TimedOut);
            let (mut asked, mut found) = (0, None);
            while found.is_none() && env.now() < at(200) {
                let begun = env.now();
                client.ping(ServerId(0)).await.unwrap();
                let pinged = client.ping(SILENT).await;
                match pinged {
                    Ok(_) => found = Some(env.now()),
                    Err(error) => is_silence(&error),
                }
                assert!(env.now().since(begun) < SECOND / 10, "nobody waits");
                asked += 1;
                env.sleep(SECOND / 10).await;
            }
            let found = found.expect("it is found again");
            assert!(found >= at(80) && found < at(82), "found at {found:?}");
            assert!(asked > 400, "{asked}");
        },
    );
}

#[test]
fn a_caller_that_asks_a_silent_server_again_and_again_without_a_pause_finds_it_when_it_answers() {
    let at = |s: u64| Instant(0) + SECOND * s as u32;
    in_a_world(
        LIMIT,
        Vec::new(),
        move |world, process| world.at(at(20), move |world| world.pause(process, SECOND * 30)),
        move |client, env| async move {
            client.ping(SILENT).await.unwrap();
            env.sleep_until(at(21)).await;
            let mut asked = 0;
            while client.ping(SILENT).await.is_err() {
                asked += 1;
                assert!(asked < 100_000, "the client does nothing else");
            }
            assert!(env.now() < at(53), "found at {:?}", env.now());
        },
    );
}

#[test]
fn a_server_that_moved_from_a_dead_machine_is_found_by_a_client_that_talks_to_no_other_server() {
    let at = |s: u64| Instant(0) + SECOND * s as u32;
    for limit_s in [3, 5, 10, 30] {
        in_a_world_from(
            SILENT,
            SECOND * limit_s,
            Vec::new(),
            move |world, process, cluster| {
                world.at(at(20), move |world| world.pause(process, SECOND * 3600));
                world.at(at(100), move |world| {
                    let place = Address::Local("silent-moved".to_owned());
                    let moved = world.process("moved", world.machine("elsewhere"));
                    let own = cluster.clone();
                    let text = place.to_string();
                    let map = &mut cluster.borrow_mut().map;
                    map.epoch += 1;
                    map.servers[usize::from(SILENT.0)].addresses = vec![text.as_str().into()].into();
                    world.start(moved, move |env: Env| async move {
                        let listener = env.listen(&place).await.unwrap();
                        serve(env, listener, SILENT, own, Vec::new()).await;
                    });
                });
            },
            move |client, env| async move {
                client.ping(SILENT).await.unwrap();
                env.sleep_until(at(21)).await;
                while client.ping(SILENT).await.is_err() {
                    assert!(env.now() < at(150), "limit {limit_s} s: not found");
                    env.sleep(SECOND).await;
                }
                assert!(env.now() >= at(100));
            },
        );
    }
}

#[test]
fn a_client_that_is_given_a_silent_server_first_begins_at_the_next_one_soon() {
    in_a_world_from(
        SILENT,
        LIMIT,
        Vec::new(),
        |world, process, _| world.at(Instant(500_000), move |world| world.pause(process, SECOND * 3000)),
        |client, env| async move {
            assert!(env.now() < Instant(0) + SECOND, "{:?}", env.now());
            client.ping(ServerId(0)).await.unwrap();
        },
    );
}

#[test]
fn a_stranger_at_the_address_of_a_server_is_no_sign_of_its_life() {
    let mut script = vec![Fault::Serve(1), Fault::CutBefore];
    script.extend((0..10_000).map(|_| Fault::Refuse(Status::BadKey, "another key")));
    in_a_world(
        LIMIT,
        script,
        |_, _| {},
        |client, env| async move {
            client.ping(SILENT).await.unwrap();
            assert_eq!(client.ping(SILENT).await.unwrap_err().status, Status::TimedOut);
            let begun = env.now();
            for _ in 0..5 {
                is_silence(&client.ping(SILENT).await.unwrap_err());
            }
            assert!(
                env.now().since(begun) < SECOND * 2,
                "one may wait for a look at the server, and the others do not"
            );
        },
    );
}

#[test]
fn a_server_whose_callers_all_give_up_early_becomes_silent_all_the_same() {
    for pause in [Duration::ZERO, SECOND * 9] {
        let hand = hand();
        let mut waited = 0;
        let error = loop {
            let mut asked = Box::pin(hand.client.ping(SILENT));
            let mut end = None;
            for _ in 0..2 {
                if let Poll::Ready(answer) = hand.look(asked.as_mut()) {
                    end = Some(answer.unwrap_err());
                    break;
                }
                hand.advance(SECOND / 2);
            }
            if let Some(error) = end {
                break error;
            }
            waited += 1;
            assert!(waited < 20, "{waited} times");
            drop(asked);
            hand.advance(pause);
        };
        is_silence(&error);
        assert!(waited >= 9, "silent after {waited} s: the time in which nothing is asked does not count");
    }
}

#[test]
fn a_server_that_works_on_one_call_for_longer_than_the_limit_is_not_silent() {
    for limit_s in [1, 3, 10, 30] {
        for begun_at in [0.01, 0.5, 0.99] {
            let limit = SECOND * limit_s;
            in_a_world(
                limit,
                vec![Fault::Serve(1), Fault::Silence],
                |_, _| {},
                move |client, env| async move {
                    client.ping(SILENT).await.unwrap();
                    // At any moment between two looks at the connection.
                    env.sleep(limit.min(SECOND * 5).mul_f64(begun_at)).await;
                    let worked_on = client.getattr(Handle::new(SILENT, 5)).await.unwrap_err();
                    assert_eq!(worked_on.status, Status::TimedOut);
                    client.ping(SILENT).await.expect("it answers");
                },
            );
        }
    }
}

#[test]
fn a_listing_gives_entries_of_a_silent_server_without_attributes_and_says_why() {
    let hand = hand();
    let (dir, patience) = (Handle::ROOT, SECOND);
    let here: Vec<Handle> = ["a", "b"]
        .map(|text| hand.cluster.borrow_mut().make(ServerId(0), dir, name(text), Kind::File))
        .into();
    hand.cluster.borrow_mut().make(SILENT, dir, name("far"), Kind::File);
    for is_known in [false, true] {
        let mut stream = hand.client.opendir(dir).attributes_within(patience);
        let mut listed = Vec::new();
        let begun = hand.now();
        let step = if is_known { SILENT_PAUSE } else { SECOND / 10 };
        loop {
            let mut next = Box::pin(stream.next(true));
            let entry = loop {
                match hand.look(next.as_mut()) {
                    Poll::Ready(entry) => break entry.unwrap(),
                    Poll::Pending => {
                        hand.take(SILENT);
                        if !hand.carry_all_but(SILENT) {
                            hand.advance(step);
                        }
                    }
                }
            };
            drop(next);
            let Some(entry) = entry else { break };
            let is_here = here.contains(&entry.handle);
            assert_eq!((entry.attr.is_some(), stream.lacks().is_none()), (is_here, is_here), "{entry:?}");
            listed.push(entry.name);
        }
        listed.sort();
        assert_eq!(listed, [name("a"), name("b"), name("far")]);
        let took = hand.now().since(begun);
        assert!(took <= step + if is_known { Duration::ZERO } else { patience }, "{took:?}");
        if !is_known {
            hand.advance(LIMIT);
            let mut waiting = Box::pin(hand.client.ping(SILENT));
            begun_or_ended(&hand, waiting.as_mut());
            hand.advance(LIMIT);
        }
    }
    // A caller that needs the attributes gets the reason why there are none.
    let mut strict = hand.client.opendir(dir);
    is_silence(&ended_by_others(&hand, strict.next(true)).unwrap_err());
}

#[test]
fn a_silent_server_of_inodes_leaves_time_for_the_sizes_of_files_whose_servers_answer() {
    let hand = Hand::with(FakeCluster::new(3, STRIP), |options| options.timeout = LIMIT);
    for server in [ServerId(0), SILENT, ServerId(2)] {
        hand.run(hand.client.ping(server)).unwrap();
    }
    let (striped, torn, far) = {
        let mut cluster = hand.cluster.borrow_mut();
        let mut make = |server, text| cluster.make(server, Handle::ROOT, name(text), Kind::File);
        let (striped, torn) = (make(ServerId(0), "striped"), make(ServerId(0), "torn"));
        let far = make(SILENT, "far");
        cluster.unstuff(torn);
        let datafiles = &mut cluster.unstuff(striped).datafiles.0;
        datafiles.retain(|datafile| datafile.server() != SILENT);
        cluster.objects.get_mut(&striped).unwrap().layout.as_mut().unwrap().datafiles =
            datafiles.clone().into();
        (striped, torn, far)
    };
    let mut stream = hand.client.opendir(Handle::ROOT).attributes_within(LIMIT);
    let mut next = || {
        let mut next = Box::pin(stream.next(true));
        let entry = loop {
            match hand.look(next.as_mut()) {
                Poll::Ready(entry) => break entry.unwrap(),
                Poll::Pending => {
                    hand.take(SILENT);
                    if !hand.carry_all_but(SILENT) {
                        hand.advance(SECOND / 10);
                    }
                }
            }
        };
        drop(next);
        entry.map(|entry| (entry.handle, entry.attr, stream.lacks().cloned(), stream.unmerged().cloned()))
    };
    let mut seen = 0;
    while let Some((handle, attr, lacks, unmerged)) = next() {
        seen += 1;
        // Its own server has some of the attributes of a file that has bytes on the silent one.
        assert_eq!((attr.is_some(), lacks.is_none()), (handle == striped, handle == striped), "{lacks:?}");
        assert_eq!(unmerged.map(|attr| attr.handle), (handle == torn).then_some(torn));
    }
    assert_eq!((seen, far.server()), (3, SILENT));
}

fn begun_or_ended<T>(hand: &Hand, future: std::pin::Pin<&mut impl Future<Output = T>>) {
    let _ = hand.look(future);
    hand.take(SILENT);
}

#[test]
fn space_is_the_sum_of_the_servers_that_answer_and_an_error_only_where_none_does() {
    let hand = fallen_silent();
    let one = ended_by_others(&hand, hand.client.statfs()).unwrap();
    hand.attach(SILENT);
    let both = hand.run(hand.client.statfs()).unwrap();
    assert_eq!((both.total, both.available), (2 * one.total, 2 * one.available));
    let hand = Hand::with(FakeCluster::new(1, STRIP), |options| options.timeout = LIMIT);
    let mut waiting = Box::pin(hand.client.ping(ServerId(0)));
    assert!(hand.look(waiting.as_mut()).is_pending());
    hand.advance(LIMIT);
    let error = ended(&hand, hand.client.statfs()).unwrap_err();
    assert_eq!((error.status, error.server), (Status::Silent, Some(ServerId(0))));
}
