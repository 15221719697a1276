//! The suite in the simulated world, and tests that only a simulated world allows; its disks are in
//! `sim_disk`.

use crate::suite;
use crate::suite::Place;
use bytes::Bytes;
use shoal_env::sim::{Config, Cpu, Ended, Link, World};
use shoal_env::{Address, Env, Instant, OpenOptions};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::time::Duration;

macro_rules! in_the_simulated_world {
    ($($case:ident),* $(,)?) => {
        $(#[test]
        fn $case() {
            for (seed, address) in ["tcp:10.0.0.1:0", "unix:/run/socket", "local:name"].iter().enumerate() {
                let world = World::new(seed as u64, Config::default());
                let process = world.process("p", world.machine("m"));
                let place = Place { address: address.parse().unwrap(), root: "/".into() };
                world.complete(process, |env| suite::$case(env, place));
            }
        })*
    };
}
suite::all!(in_the_simulated_world);

const CREATE: OpenOptions =
    OpenOptions { create: true, exclusive: false, direct: false, dsync: false, private: false, apart: false };

fn address() -> Address {
    "tcp:10.0.0.1:7441".parse().unwrap()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A server that echoes on every connection.
async fn echo(env: Env) {
    let mut listener = env.listen(&address()).await.unwrap();
    loop {
        let mut stream = listener.accept().await.unwrap();
        env.spawn("echo", async move {
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = stream.reader.read(&mut buf).await {
                if stream.writer.write_all(&mut [IoSlice::new(&buf[..n])]).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// One message there and back.
async fn ask(env: &Env) -> io::Result<()> {
    let mut stream = env.connect(&address()).await?;
    stream.writer.write_all(&mut [IoSlice::new(b"question")]).await?;
    suite::read_exact(&mut stream.reader, &mut [0; 8]).await
}

/// Some clients, each with several connections, random work and files; returns the hash and a log of when
/// each finished.
fn a_busy_run(seed: u64) -> (u64, Vec<u32>) {
    let config = Config { network: Link { loss_ppm: 20_000, ..Link::default() }, ..Config::default() };
    let world = World::new(seed, config);
    let server = world.process("server", world.machine("a"));
    world.start(server, echo);
    let log = Rc::new(RefCell::new(Vec::new()));
    let there = world.machine("b");
    for number in 0..4u32 {
        let client = world.process("client", there);
        let log = log.clone();
        world.start(client, move |env| async move {
            env.sleep(ms(1)).await;
            for round in 0..10 {
                if env.random_u64().is_multiple_of(3) {
                    let file = env.open(format!("/{number}"), CREATE).await.unwrap();
                    file.write_at(round, vec![Bytes::from_static(b"x")]).await.unwrap();
                    file.sync().await.unwrap();
                }
                ask(&env).await.unwrap();
                log.borrow_mut().push(number);
            }
        });
    }
    assert_eq!(world.run_until(Instant(60_000_000_000)), Ended::Idle);
    assert_eq!(log.borrow().len(), 40);
    (world.trace_hash(), log.take())
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    let runs: Vec<_> = (0..4).map(a_busy_run).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, a_busy_run(seed as u64));
    }
    assert_ne!(runs[0].0, runs[1].0);
    assert!(runs.iter().any(|run| run.1 != runs[0].1), "the order of work depends on the seed");
}

#[test]
fn tasks_ready_at_one_moment_run_in_an_order_drawn_from_the_seed() {
    let order = |seed| {
        let world = World::new(seed, Config::default());
        let process = world.process("p", world.machine("m"));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = seen.clone();
        world.complete(process, move |env| async move {
            for number in 0..8 {
                let log = log.clone();
                env.spawn("one of many", async move { log.borrow_mut().push(number) });
            }
            env.sleep(ms(1)).await;
        });
        seen.take()
    };
    assert_eq!(order(1), order(1));
    assert!((2..10).any(|seed| order(seed) != order(1)));
}

#[test]
fn time_jumps_over_what_nobody_does() {
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    world.complete(process, |env| async move {
        let begun = env.now();
        env.sleep(Duration::from_secs(86_400 * 365)).await;
        assert!(env.now() - begun < Duration::from_secs(86_400 * 365 + 1));
    });
    let at = world.now() + Duration::from_secs(5);
    assert_eq!(world.run_until(at), Ended::Idle);
    assert_eq!(world.now(), at);
}

#[test]
fn deadlines_not_reached_cost_no_time_and_no_memory() {
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    world.complete(process, |env| async move {
        for _ in 0..10_000 {
            let until = env.now() + Duration::from_secs(3600);
            env.deadline(until, env.sleep(Duration::from_nanos(100))).await.unwrap();
        }
    });
    assert!(world.now() < Instant(1_000_000_000), "{:?}", world.now());
    world.run_for(ms(1));
    assert!(world.now() < Instant(1_000_000_000));
}

#[test]
fn a_message_takes_the_links_time_and_the_bandwidths() {
    let link = Link { latency_ns: 1_000_000, jitter_ns: 0, bits_per_s: 8_000_000_000, ..Link::default() };
    let mut config = Config { network: link, ..Config::default() };
    config.machine.nic_bits_per_s = 0;
    config.machine.cpu = Cpu { poll_ns: 0, socket_ns: 0, offload_ns: 0, ..Cpu::default() };
    let world = World::new(1, config);
    let server = world.process("server", world.machine("a"));
    let client = world.process("client", world.machine("b"));
    world.start(server, echo);
    let rtt = world.complete(client, |env| async move {
        env.sleep(ms(1)).await;
        let mut stream = env.connect(&address()).await.unwrap();
        let begun = env.now();
        stream.writer.write_all(&mut [IoSlice::new(&[1; 1000])]).await.unwrap();
        suite::read_exact(&mut stream.reader, &mut [0; 1000]).await.unwrap();
        env.now() - begun
    });
    assert_eq!(rtt, Duration::from_nanos(2_000_000 + 2 * 1000));
}

#[test]
fn many_senders_share_the_card_of_the_receiver() {
    const EACH: usize = 1 << 20;
    let mut config = Config::default();
    config.machine.nic_bits_per_s = 8_000_000_000;
    let world = World::new(3, config);
    let server = world.process("server", world.machine("a"));
    let done = Rc::new(Cell::new(0));
    let count = done.clone();
    world.start(server, move |env| async move {
        let mut listener = env.listen(&address()).await.unwrap();
        loop {
            let mut stream = listener.accept().await.unwrap();
            let count = count.clone();
            env.spawn("sink", async move {
                let got = suite::read_to_end(&mut stream.reader).await.unwrap().len();
                count.set(count.get() + got);
            });
        }
    });
    for _ in 0..8 {
        let client = world.process("client", world.machine("b"));
        world.start(client, |env| async move {
            env.sleep(ms(1)).await;
            let mut stream = env.connect(&address()).await.unwrap();
            stream.writer.write_all(&mut [IoSlice::new(&vec![0; EACH])]).await.unwrap();
            stream.writer.close().await.unwrap();
            stream.reader.read(&mut [0; 1]).await.unwrap();
        });
    }
    let begun = world.now();
    assert!(world.run_until_true(Instant(1_000_000_000), || done.get() == 8 * EACH));
    let took = world.now() - begun;
    assert!(took >= ms(8) && took < ms(12), "8 MiB by 1 GB/s: {took:?}");
}

#[test]
fn a_crash_resets_its_streams_after_the_links_latency() {
    let world = World::new(1, Config::default());
    let server = world.process("server", world.machine("a"));
    let client = world.process("client", world.machine("b"));
    world.start(server, echo);
    world.run_for(ms(1));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = seen.clone();
    world.start(client, move |env| async move {
        let mut stream = env.connect(&address()).await.unwrap();
        stream.writer.write_all(&mut [IoSlice::new(b"question")]).await.unwrap();
        suite::read_exact(&mut stream.reader, &mut [0; 8]).await.unwrap();
        let read = stream.reader.read(&mut [0; 8]).await;
        log.borrow_mut().push((env.now(), read.unwrap_err().kind()));
        let written = stream.writer.write_all(&mut [IoSlice::new(b"more")]).await;
        log.borrow_mut().push((env.now(), written.unwrap_err().kind()));
    });
    world.run_for(ms(5));
    let crashed = world.now();
    world.crash(server);
    world.run_for(ms(5));
    let seen = seen.take();
    assert_eq!(seen.len(), 2);
    for (at, kind) in seen {
        assert_eq!(kind, ErrorKind::ConnectionReset);
        assert!(at - crashed >= Duration::from_micros(20) && at - crashed < ms(1));
    }
}

#[test]
fn a_crashed_server_is_refused_until_it_starts_again() {
    let world = World::new(1, Config::default());
    let server = world.process("server", world.machine("a"));
    let client = world.process("client", world.machine("b"));
    world.start(server, echo);
    world.run_for(ms(1));
    assert!(world.complete(client, |env| async move { ask(&env).await }).is_ok());
    world.crash(server);
    assert!(!world.is_alive(server));
    let refused = world.complete(client, |env| async move { ask(&env).await });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    world.start(server, echo);
    world.run_for(ms(1));
    assert!(world.complete(client, |env| async move { ask(&env).await }).is_ok());
}

#[test]
fn a_partition_holds_what_is_sent_and_healing_delivers_it() {
    let world = World::new(1, Config::default());
    let (a, b) = (world.machine("a"), world.machine("b"));
    let server = world.process("server", a);
    let client = world.process("client", b);
    world.start(server, echo);
    world.run_for(ms(1));
    let answered = Rc::new(Cell::new(0));
    let count = answered.clone();
    world.start(client, move |env| async move {
        let mut stream = env.connect(&address()).await.unwrap();
        loop {
            stream.writer.write_all(&mut [IoSlice::new(b"question")]).await.unwrap();
            suite::read_exact(&mut stream.reader, &mut [0; 8]).await.unwrap();
            count.set(count.get() + 1);
            env.sleep(ms(1)).await;
        }
    });
    world.run_for(ms(50));
    world.partition(a, b, true);
    world.run_for(ms(1));
    let before = answered.get();
    assert!(before > 10);
    world.run_for(Duration::from_secs(10));
    assert_eq!(answered.get(), before);
    let late = world.process("late", b);
    let connected = Rc::new(Cell::new(false));
    let says = connected.clone();
    world.start(late, move |env| async move {
        ask(&env).await.unwrap();
        says.set(true);
    });
    world.run_for(ms(50));
    assert!(!connected.get(), "a connection waits for the way");
    world.partition(a, b, false);
    world.run_for(ms(50));
    assert!(connected.get());
    assert!(answered.get() > before + 10);
}

#[test]
fn an_end_behind_a_partition_is_seen_when_it_heals() {
    let world = World::new(1, Config::default());
    let (a, b) = (world.machine("a"), world.machine("b"));
    let server = world.process("server", a);
    let client = world.process("client", b);
    world.start(server, echo);
    world.run_for(ms(1));
    let seen = Rc::new(Cell::new(None));
    let says = seen.clone();
    world.start(client, move |env| async move {
        let mut stream = env.connect(&address()).await.unwrap();
        says.set(Some(stream.reader.read(&mut [0; 8]).await.map_err(|error| error.kind())));
    });
    world.run_for(ms(5));
    world.partition(a, b, true);
    world.crash(server);
    world.run_for(Duration::from_secs(100));
    assert_eq!(seen.get(), None);
    world.partition(a, b, false);
    world.run_for(ms(5));
    assert_eq!(seen.get(), Some(Err(ErrorKind::ConnectionReset)));
}

#[test]
fn a_paused_process_does_nothing_and_then_goes_on() {
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    let ticks = Rc::new(Cell::new(0));
    let count = ticks.clone();
    world.start(process, move |env| async move {
        loop {
            env.sleep(ms(1)).await;
            count.set(count.get() + 1);
        }
    });
    world.run_for(ms(10));
    world.pause(process, ms(500));
    let before = ticks.get();
    world.run_for(ms(499));
    assert_eq!(ticks.get(), before);
    world.run_for(ms(11));
    assert!(ticks.get() > before + 5);
}

#[test]
fn the_wall_clock_jumps_and_the_monotonic_one_does_not() {
    let world = World::new(1, Config::default());
    let machine = world.machine("m");
    let process = world.process("p", machine);
    let read = |env: Env| async move { (env.wall(), env.now()) };
    let (wall, now) = world.complete(process, read);
    world.jump_wall(machine, -3_600_000_000_000);
    let (wall_after, now_after) = world.complete(process, read);
    assert!(wall_after < wall);
    assert!(now_after >= now);
}

#[test]
fn a_process_killed_while_paused_starts_again_at_once() {
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    world.start(process, |env| async move {
        loop {
            env.sleep(ms(1)).await;
        }
    });
    world.run_for(ms(2));
    world.pause(process, Duration::from_secs(3600));
    world.run_for(ms(5));
    world.crash(process);
    world.complete(process, |env| async move { env.sleep(ms(1)).await });
    assert!(world.now() < Instant(20_000_000), "{:?}", world.now());
}

/// Clients that retry for ever send to a server that keeps a log, during faults; returns a hash of the
/// results.
fn chaos(seed: u64) -> u64 {
    let lossy = Link { loss_ppm: 1000, reset_ppm: 500, ..Link::default() };
    let world = World::new(seed, Config { network: lossy, timeline: 100, ..Config::default() });
    let machines: Vec<_> = (0..3).map(|n| world.machine(&format!("m{n}"))).collect();
    let server = world.process("server", machines[0]);
    world.start(server, logging_server);
    let clients: Vec<_> = machines.iter().map(|machine| world.process("client", *machine)).collect();
    let answered = Rc::new(Cell::new(0));
    let start_client = |process| {
        let answered = answered.clone();
        world.start(process, move |env| async move {
            loop {
                let until = env.now() + ms(20);
                if let Ok(Ok(())) = env.deadline(until, ask(&env)).await {
                    answered.set(answered.get() + 1);
                }
                env.sleep(Duration::from_micros(env.random_u64() % 1000)).await;
            }
        });
    };
    clients.iter().for_each(|client| start_client(*client));
    let mut dice = seed;
    for _ in 0..60 {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (what, who) = ((dice >> 33) % 8, (dice >> 40) as usize % 3);
        match what {
            0 => world.crash(server),
            1 => world.crash(clients[who]),
            2 => world.power_cut(machines[who]),
            3 => world.partition(machines[who], machines[(who + 1) % 3], true),
            4 => world.pause(server, ms(3)),
            5 => world.fail_syncs(machines[0], 2),
            _ => (0..3).for_each(|n| world.partition(machines[n], machines[(n + 1) % 3], false)),
        }
        world.run_for(Duration::from_micros(dice >> 50));
        if !world.is_alive(server) {
            world.start(server, logging_server);
        }
        clients.iter().filter(|client| !world.is_alive(**client)).for_each(|client| start_client(*client));
    }
    (0..3).for_each(|n| world.partition(machines[n], machines[(n + 1) % 3], false));
    world.fail_syncs(machines[0], 0);
    world.run_for(ms(10));
    if !world.is_alive(server) {
        world.start(server, logging_server);
    }
    let before = answered.get();
    world.run_for(ms(100));
    assert!(answered.get() > before, "seed {seed}: all is well again");
    world.trace_hash()
}

/// Replies to each request when its log is durable; ends its life when a sync fails.
async fn logging_server(env: Env) {
    env.lock("/lock").await.expect("the former life is over");
    let log = env.open("/log", CREATE).await.unwrap();
    let mut listener = env.listen(&address()).await.expect("the address is free");
    let mut at = log.len().await.unwrap();
    loop {
        let Ok(mut stream) = listener.accept().await else { return };
        let mut buf = [0; 8];
        let asked = env.deadline(env.now() + ms(1), suite::read_exact(&mut stream.reader, &mut buf)).await;
        if !matches!(asked, Ok(Ok(()))) {
            continue;
        }
        log.write_at(at, vec![Bytes::copy_from_slice(&buf)]).await.unwrap();
        at += 8;
        if log.sync().await.is_err() {
            return;
        }
        let _ = stream.writer.write_all(&mut [IoSlice::new(&buf)]).await;
    }
}

#[test]
fn under_faults_of_all_kinds_the_world_goes_on_and_repeats_itself() {
    for seed in 0..10 {
        assert_eq!(chaos(seed), chaos(seed), "seed {seed}");
    }
}

#[test]
fn planned_faults_happen_at_their_moment_and_the_timeline_tells() {
    let world = World::new(1, Config { timeline: 4, ..Config::default() });
    let process = world.process("victim", world.machine("m"));
    world.start(process, |_env| std::future::pending());
    world.at(Instant(7_000_000), move |world| {
        world.log("now");
        world.crash(process);
    });
    world.run_for(ms(6));
    assert!(world.is_alive(process));
    world.run_for(ms(2));
    assert!(!world.is_alive(process));
    let lines = world.timeline();
    assert_eq!(lines[1], (Instant(7_000_000), "now".to_owned()));
    assert_eq!(lines[2], (Instant(7_000_000), "victim crashes".to_owned()));
}

#[test]
fn a_world_that_is_dropped_drops_its_tasks() {
    let here = Rc::new(());
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    let there = here.clone();
    world.start(process, |env| async move {
        let file = env.open("/file", CREATE).await.unwrap();
        env.listen(&address()).await.unwrap();
        std::future::pending::<()>().await;
        drop((there, file));
    });
    world.run_for(ms(1));
    assert_eq!(Rc::strong_count(&here), 2);
    drop(world);
    assert_eq!(Rc::strong_count(&here), 1);
}

/// Whether there is a listener at a host's port, at this moment.
fn connects_to(world: &World, process: shoal_env::sim::ProcessId, host: &str) -> io::Result<()> {
    let at: Address = format!("tcp:{host}:7441").parse().unwrap();
    world.complete(process, |env| async move { env.connect(&at).await.map(drop) })
}

#[test]
fn a_name_is_resolved_for_each_connection_and_all_its_addresses_are_tried() {
    let world = World::new(1, Config::default());
    let (old, new) = (world.machine("old"), world.machine("new"));
    let ips = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    world.set_address(old, ips[0]);
    world.set_address(new, ips[1]);
    let serve = |machine| {
        let process = world.process("serves", machine);
        world.start(process, |env| async move {
            let mut listener = env.listen(&"tcp:node7:7441".parse().unwrap()).await.unwrap();
            loop {
                listener.accept().await.unwrap();
            }
        });
        process
    };
    let asker = world.process("asks", world.machine("client"));
    let error = connects_to(&world, asker, "node7").unwrap_err();
    assert!(error.to_string().contains("node7"), "{error}");
    let first = serve(old);
    world.set_name("node7", &ips[..1]);
    connects_to(&world, asker, "node7").unwrap();
    // It moves to another machine, whose address the name gets; a name server may return the former one
    // too.
    world.crash(first);
    serve(new);
    assert_eq!(connects_to(&world, asker, "node7").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    world.set_name("node7", &ips[1..]);
    connects_to(&world, asker, "node7").unwrap();
    world.set_name("node7", &ips);
    connects_to(&world, asker, "node7").unwrap();
}

#[test]
fn a_name_that_no_name_server_resolves_ends_the_wait_with_words() {
    let world = World::new(1, Config::default());
    let asker = world.process("asks", world.machine("client"));
    world.set_names_answered(false);
    let begin = world.now();
    let error = connects_to(&world, asker, "node7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("the name node7 was not resolved"), "{error}");
    assert!(world.now().since(begin) < Duration::from_secs(5));
}
