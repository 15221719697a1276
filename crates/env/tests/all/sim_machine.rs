//! Hardware with costs: shared cores, shared links, effects of a turn that leave when its cost is spent.

use shoal_env::sim::{Config, Congestion, Cpu, Link, Machine, World};
use shoal_env::{Address, Env, Instant, OpenOptions, Work};
use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

const MS: u64 = 1_000_000;

fn address() -> Address {
    "tcp:10.0.0.1:7441".parse().unwrap()
}

/// Machines whose turns cost nothing except the costs that the test sets; links without latency.
fn config(change: impl FnOnce(&mut Machine)) -> Config {
    let free = Link { latency_ns: 0, jitter_ns: 0, bits_per_s: 0, ..Link::default() };
    let mut work_ns = [0; Work::ALL.len()];
    // A unit of work is a millisecond.
    work_ns[Work::Operation as usize] = MS;
    let cpu = Cpu { poll_ns: 1, socket_ns: 0, offload_ns: 0, work_ns, ..Cpu::default() };
    let mut machine = Machine { cpu, cores: 1, nic_bits_per_s: 0, ..Machine::default() };
    change(&mut machine);
    Config { network: free, loopback: free, machine, ..Config::default() }
}

type Ends = Rc<RefCell<Vec<u64>>>;

/// Each process works so long, after a sleep; returns when each was done, rounded to milliseconds.
fn works(config: &Config, processes: usize, units: u64) -> Vec<u64> {
    let world = World::new(1, config.clone());
    let machine = world.machine("m");
    let ends: Ends = Rc::default();
    for number in 0..processes {
        let ends = ends.clone();
        world.start(world.process(&format!("p{number}"), machine), |env| async move {
            // The charged time is past when the next turn comes.
            env.work(Work::Operation, units);
            env.sleep(Duration::ZERO).await;
            env.offload(|| ()).await.unwrap();
            ends.borrow_mut().push(env.now().0 / MS);
        });
    }
    world.run_until(Instant(10_000 * MS));
    ends.take()
}

#[test]
fn a_core_serves_one_process_at_a_time() {
    assert_eq!(works(&config(|_| ()), 1, 10), [10]);
    let mut two = works(&config(|_| ()), 2, 10);
    two.sort_unstable();
    assert_eq!(two, [20, 20], "their ends are jobs, which wait for the core too");
    assert_eq!(works(&config(|machine| machine.cores = 2), 2, 10), [10, 10]);
    assert_eq!(
        works(&config(|machine| machine.cores = 0), 2, 10),
        [0, 0],
        "nothing is charged where none are shared"
    );
}

#[test]
fn a_core_that_was_idle_begins_later_and_one_that_is_busy_does_not() {
    let slow = config(|machine| machine.idle_ns = 5 * MS);
    // The process finds it asleep; its job, and then the process again, follow at once.
    assert_eq!(works(&slow, 1, 10), [10 + 5]);
}

#[test]
fn a_process_that_slept_is_switched_to_and_nobody_waits_for_its_going_to_sleep() {
    let waking = config(|machine| machine.cpu.wake_ns = 2 * MS);
    assert_eq!(works(&waking, 1, 10), [10 + 2 + 2]);
    let sleeping = config(|machine| {
        machine.cpu.sleep_ns = 3 * MS;
        machine.cores = 2;
    });
    assert_eq!(works(&sleeping, 1, 10), [13], "woken while it goes to sleep it must end that first");
}

/// So many machines send so many bytes each to one; returns the arrival of the last byte.
fn sends(config: &Config, senders: usize, bytes: usize) -> u64 {
    let world = World::new(1, config.clone());
    let receiver = world.process("receiver", world.machine("receiver"));
    let heard: Ends = Rc::default();
    let ends = heard.clone();
    world.start(receiver, move |env: Env| async move {
        let mut listener = env.listen(&address()).await.unwrap();
        loop {
            let mut stream = listener.accept().await.unwrap();
            let (own, ends) = (env.clone(), ends.clone());
            drop(env.spawn("hear", async move {
                let mut buf = vec![0; 1 << 20];
                while stream.reader.read(&mut buf).await.is_ok_and(|n| n > 0) {}
                ends.borrow_mut().push(own.now().0);
            }));
        }
    });
    for number in 0..senders {
        let process = world.process(&format!("s{number}"), world.machine(&format!("s{number}")));
        world.start(process, move |env| async move {
            env.sleep(Duration::from_millis(1)).await;
            let mut stream = env.connect(&address()).await.unwrap();
            let data = vec![1; bytes];
            stream.writer.write_all(&mut [IoSlice::new(&data)]).await.unwrap();
            stream.writer.close().await.unwrap();
        });
    }
    world.run_until(Instant(100_000 * MS));
    assert_eq!(heard.borrow().len(), senders);
    heard.borrow().iter().max().copied().unwrap_or(0) - MS
}

#[test]
fn two_senders_into_one_link_share_it() {
    let config = config(|machine| machine.nic_bits_per_s = 80_000_000);
    let (one, two) = (sends(&config, 1, 1_000_000), sends(&config, 2, 1_000_000));
    assert!((100 * MS..115 * MS).contains(&one), "10 MB/s: {one}");
    assert!((200 * MS..215 * MS).contains(&two), "{two}");
}

#[test]
fn a_receiver_that_many_send_to_loses_a_part_for_each_of_them() {
    let congestion = Congestion { free_senders: 1, loss_ppm: 250_000, loss_ppm_max: 500_000 };
    let config = Config { congestion, ..config(|machine| machine.nic_bits_per_s = 80_000_000) };
    let ms = |senders| sends(&config, senders, 1_000_000) / MS;
    assert!((100..115).contains(&ms(1)), "one is free: {}", ms(1));
    // The bytes that one sent before the other began were sent alone.
    assert!((225..245).contains(&ms(2)), "a quarter of the bandwidth is lost to the second: {}", ms(2));
    assert!((1000..1150).contains(&ms(6)), "no more than half to the third and further ones: {}", ms(6));
}

#[test]
fn what_is_sent_leaves_when_the_work_before_it_is_done() {
    let world = World::new(1, config(|_| ()));
    let server = world.process("server", world.machine("server"));
    world.start(server, |env: Env| async move {
        let mut listener = env.listen(&address()).await.unwrap();
        let mut stream = listener.accept().await.unwrap();
        let mut buf = [0; 1];
        while stream.reader.read(&mut buf).await.is_ok_and(|n| n > 0) {
            env.work(Work::Operation, 7);
            stream.writer.write_all(&mut [IoSlice::new(&buf)]).await.unwrap();
        }
    });
    let client = world.process("client", world.machine("client"));
    let waited = world.complete(client, |env| async move {
        env.sleep(Duration::from_millis(1)).await;
        let mut stream = env.connect(&address()).await.unwrap();
        let begun = env.now();
        stream.writer.write_all(&mut [IoSlice::new(&[1])]).await.unwrap();
        stream.reader.read(&mut [0; 1]).await.unwrap();
        env.now().since(begun)
    });
    assert_eq!(waited.as_millis(), 7);
}

#[test]
fn small_writes_to_the_page_cache_are_made_by_the_process_and_large_ones_by_another_thread_that_awakes() {
    let costly = config(|machine| {
        machine.cpu.file_ns = 50 * MS;
        machine.cpu.file_wait_ns = 7 * MS;
        machine.disk.cache_bytes_per_s = 1_000_000;
        machine.disk.cache_ns = 0;
    });
    let write = |bytes: usize| {
        let world = World::new(1, costly.clone());
        let process = world.process("p", world.machine("m"));
        world.complete(process, move |env| async move {
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = env.open("/f", options).await.unwrap();
            let begun = env.now();
            file.write_at(0, vec![vec![1; bytes].into()]).await.unwrap();
            env.now().since(begun).as_millis()
        })
    };
    assert_eq!(write(10_000), 10);
    assert_eq!(write(100_000), 157);
}

#[test]
fn one_seed_is_one_run_with_shared_cores_too() {
    let run = |seed| {
        let world = World::new(seed, config(|machine| machine.cores = 2));
        let machine = world.machine("m");
        for number in 0..5 {
            world.start(world.process(&format!("p{number}"), machine), move |env| async move {
                for _ in 0..20 {
                    env.work(Work::Operation, env.random_u64() % 4);
                    env.sleep(Duration::from_micros(env.random_u64() % 900)).await;
                }
            });
        }
        world.run_until(Instant(1000 * MS));
        world.trace_hash()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
