//! The simulated world's further faults: connections that break with data under way, peers that learn late of
//! a broken connection, and stops in the gap after a crash point.

use shoal_env::crash_point::{CHECKPOINT_DONE, CHECKPOINT_WRITES, JOURNAL_WRITES, JOURNAL_WROTE};
use shoal_env::sim::{Config, CrashPointCounts, ProcessId, World};
use shoal_env::{Address, Env};
use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;
use std::time::Duration;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// When each end learned that its connection was broken, in nanoseconds.
type Learned = Rc<RefCell<Vec<(&'static str, u64)>>>;

/// Two ends that wait for each other on a connection, and report when it breaks.
fn waiting(world: &World) -> (ProcessId, ProcessId, Learned) {
    let address = Address::Local("far".to_owned());
    let (far, near) =
        (world.process("far", world.machine("far")), world.process("near", world.machine("near")));
    let learned: Learned = Rc::default();
    let (log, at) = (learned.clone(), address.clone());
    world.start(far, move |env: Env| async move {
        let mut listener = env.listen(&at).await.unwrap();
        let mut stream = listener.accept().await.unwrap();
        let broken = stream.reader.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset);
        log.borrow_mut().push(("far", env.now().0));
    });
    world.run_for(ms(1));
    let log = learned.clone();
    world.start(near, move |env: Env| async move {
        let mut stream = env.connect(&address).await.unwrap();
        let broken = stream.reader.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset);
        log.borrow_mut().push(("near", env.now().0));
        // The reader is gone.
        let written = stream.writer.write_all(&mut [IoSlice::new(b"more")]).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    world.run_for(ms(1));
    (far, near, learned)
}

#[test]
fn a_broken_connection_is_learned_by_both_ends_after_the_links_latency() {
    let world = World::new(1, Config::default());
    let (far, near, learned) = waiting(&world);
    let broke = world.now().0;
    world.reset(world.machine_of(far), world.machine_of(near));
    world.run_for(ms(5));
    let learned = learned.take();
    assert_eq!(learned.len(), 2);
    assert!(learned.iter().all(|(_, at)| (broke + 20_000..broke + 1_000_000).contains(at)), "{learned:?}");
}

#[test]
fn of_a_half_open_connection_one_end_knows_nothing_for_a_while() {
    let world = World::new(1, Config::default());
    let (far, near, learned) = waiting(&world);
    let until = world.now() + ms(700);
    world.half_open(world.machine_of(near), world.machine_of(far), until);
    world.run_for(ms(600));
    assert_eq!(learned.borrow().iter().map(|(who, _)| *who).collect::<Vec<_>>(), ["near"]);
    world.run_for(ms(600));
    let learned = learned.take();
    assert_eq!(learned[1].0, "far");
    assert!((until.0..until.0 + 1_000_000).contains(&learned[1].1), "{learned:?}");
}

#[test]
fn a_stop_falls_just_after_the_step_it_waits_for_and_is_counted_there() {
    let world = World::new(1, Config::default());
    let process = world.process("p", world.machine("m"));
    world.trap(process, CHECKPOINT_WRITES, 1, Duration::ZERO, move |world| world.crash(process));
    let came = Rc::new(RefCell::new(0));
    let count = came.clone();
    world.start(process, |env| async move {
        env.crash_point(JOURNAL_WRITES, 0);
        env.crash_point(JOURNAL_WROTE, 0);
        loop {
            env.crash_point(CHECKPOINT_WRITES, 0);
            env.sleep(ms(1)).await;
            *count.borrow_mut() += 1;
            env.crash_point(CHECKPOINT_DONE, 0);
        }
    });
    world.run_for(ms(10));
    assert!(!world.is_alive(process));
    assert_eq!(*came.borrow(), 1, "it was stopped the second time, before it went on");
    let points = world.points();
    assert_eq!(points[&CHECKPOINT_WRITES], CrashPointCounts { hits: 2, stops: 1 });
    assert_eq!(points[&JOURNAL_WRITES], CrashPointCounts { hits: 1, stops: 0 }, "that was over");
}
