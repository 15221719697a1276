//! Random programs of Galley's calls on simulated clusters of 1 to 16 servers, held against a model. A
//! further test reads a file while another client writes it.
//!
//! 100,000 programs:
//! `SHOAL_GALLEY_PROGRAMS=100000 cargo test --profile quick -p shoal-sim --test all galley`.

#[path = "../../../../crates/shoal/tests/galley_programs/mod.rs"]
mod galley_programs;

use futures_util::future::join;
use galley_programs::{DIR, Programs, run_alone, run_shared};
use shoal_client::Client;
use shoal_galley::Galley;
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_sim::{Cluster, ClusterConfig};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Programs of a usual run; the environment's `SHOAL_GALLEY_PROGRAMS` states another number.
const USUAL: u64 = 320;
/// Programs on one cluster, at most: 20 in 25 of one client, the rest of three.
const ON_ONE: u64 = 100;
const SERVERS_MAX: u64 = 16;
/// Small, so that transfers reach over several strips.
const STRIP: u64 = 4 << 10;

fn programs(seed: u64, count: u64) {
    let servers = (1 + seed % SERVERS_MAX) as u16;
    let config = ClusterConfig { servers, clients: 1, strip: STRIP, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    let options = cluster.options();
    let done = cluster.complete_client(0, |env| async move {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = Client::connect(env.clone(), options.clone()).await.unwrap();
            clients.push((client.clone(), Galley::gfs_init(env.clone(), client)));
        }
        let mut programs = Programs::new(seed, STRIP);
        let shared = (count / 5) as usize;
        let (client, galley) = &clients[0];
        run_alone(client, galley, &mut programs, count as usize - shared).await?;
        run_shared(&clients, &mut programs, shared).await
    });
    done.unwrap_or_else(|why| panic!("seed {seed}, {servers} servers: {why}"));
}

#[test]
fn programs_of_galleys_calls_do_what_a_model_does() {
    let asked = std::env::var("SHOAL_GALLEY_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let count: u64 = asked.unwrap_or(USUAL);
    // Each number of servers has its turn, however few programs there are.
    let on_one = (count / SERVERS_MAX).clamp(1, ON_ONE);
    let clusters = count.div_ceil(on_one);
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= clusters {
                return;
            }
            programs(seed, on_one);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}

/// Rounds of a writer beside a reader on one cluster.
const ROUNDS: u64 = 100;

#[test]
fn a_read_of_many_pieces_or_servers_counts_no_byte_that_a_write_brings_meanwhile() {
    const FAR: u64 = 1 << 20;
    let config = ClusterConfig { servers: 3, clients: 1, strip: STRIP, ..ClusterConfig::default() };
    let cluster = Cluster::new(7, &config);
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let writer = Client::connect(env.clone(), options.clone()).await.unwrap();
        let reader = Client::connect(env.clone(), options).await.unwrap();
        let galleys = [&writer, &reader].map(|client| Galley::gfs_init(env.clone(), client.clone()));
        galleys[0].gfs_create_file(b"f", None, 1, DIR).await.unwrap();
        let (mut between, name) = ([0, 0], Name::new(b"striped").unwrap());
        for round in 0..2 * ROUNDS {
            let is_striped = round % 2 == 0;
            let path: &[u8] = if is_striped { b"striped" } else { b"f/0/fork" };
            if is_striped {
                let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
                let made = writer.create(Handle::ROOT, &name, owner, true, Rights::WRITE, None).await;
                let (_, _, file) = made.unwrap();
                file.write(FAR, vec![1].into()).await.unwrap();
                writer.truncate(file.handle(), 0, false).await.unwrap();
            } else {
                let file = galleys[0].gfs_open_file(b"f").await.unwrap();
                galleys[0].gfs_create_fork(file, 0, b"fork").await.unwrap();
                galleys[0].gfs_close_file(file).unwrap();
            }
            let to = galleys[0].open_linear(path).await.unwrap();
            let from = galleys[1].open_linear(path).await.unwrap();
            // The second begins when the first has returned: there is never a hole before it.
            let write = async {
                galleys[0].gfs_write(to, &[9; 8][..], 0, 8).await.unwrap();
                let far = if is_striped { STRIP } else { FAR - 8 };
                galleys[0].gfs_write(to, &[9; 8][..], far, 8).await.unwrap();
            };
            // Of the striped file, only the first server's part.
            let wanted = if is_striped { 8 } else { FAR };
            let mut read = vec![1; wanted as usize];
            let delay = Duration::from_micros(env.random_u64() % 3000);
            let look = async {
                env.sleep(delay).await;
                galleys[1].gfs_read(from, &mut read[..], 0, wanted).await.unwrap()
            };
            let (_, moved) = join(write, look).await;
            assert!(moved == 0 || read[..8] == [9; 8], "{moved} bytes in round {round}");
            between[usize::from(is_striped)] += u32::from(moved == 8);
            galleys[0].gfs_close_fork(to).await.unwrap();
            galleys[1].gfs_close_fork(from).await.unwrap();
            let (dir, name) = match is_striped {
                true => (Handle::ROOT, name.clone()),
                false => (writer.walk(b"f/0", true).await.unwrap().handle, Name::new(b"fork").unwrap()),
            };
            writer.unlink(dir, &name).await.unwrap();
        }
        assert!(between.iter().all(|&reads| reads > 0), "{between:?} reads came between the two writes");
    });
}
