//! A run in which several clients increment a number in a file, each time under a lock of the file.
//!
//! ```text
//!   every client:  lock, read the number, write the number + 1, unlock; repeated
//!   meanwhile:     nothing | the file's server is killed | a client loses its connection to the server for
//!                  longer than a lease | a client is killed
//! ```
//! **The number is at least the count of the acknowledged writes, and at most that count plus the writes
//! whose outcome is not known.** If two clients were ever under the lock at once, one of their increments
//! would be lost. A late write would also lose an increment: one client loses its lock, the next client takes
//! the lock and reads the number, and then the first client's write arrives.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::run::RunReport;
use bytes::Bytes;
use shoal_client::{Client, Error, LockCall, OpenFile};
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, LockKind, LockOwner, LockRange, Name, Rights};

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 1000, gid: 100 };
/// How long servers may take to begin.
const STEP_MAX: Duration = Duration::from_secs(40);
const CLIENTS: u16 = 4;
/// Increments of one client.
const TIMES: u32 = 12;
/// Bytes of the file in odd seeds: it is laid out over all servers.
const LEN: usize = 300_000;
/// The place of the number then: on another server than the first byte.
const FAR: u64 = 200_000;
/// How long one increment takes besides its messages.
const WORK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Story {
    file: Cell<Option<Handle>>,
    acknowledged: Cell<u64>,
    unknown: Cell<u64>,
    ended: Cell<u16>,
    failure: RefCell<Option<String>>,
}

/// Run the story once; broken promises are in the report.
pub fn guarded_increments(seed: u64) -> RunReport {
    let config = ClusterConfig { clients: CLIENTS + 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    if let Err(words) = tell(&cluster, config.settings.lease, seed) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn tell(cluster: &Cluster, lease: Duration, seed: u64) -> Result<(), String> {
    let world = &cluster.world;
    if !world.run_until_true(world.now() + STEP_MAX, || cluster.is_ready()) {
        return Err(format!("the servers did not begin within {STEP_MAX:?}"));
    }
    let at = if seed.is_multiple_of(2) { 0 } else { FAR };
    let options = cluster.options();
    let file = cluster.complete_client(CLIENTS, |env| async move { begin(&env, options, at).await });
    let file = file.map_err(|error| format!("the file was not made: {error}"))?;
    let story = Rc::new(Story::default());
    story.file.set(Some(file));
    for id in 0..CLIENTS {
        let (options, story) = (cluster.options(), story.clone());
        cluster.start_client(id, move |env| async move {
            if let Err(error) = increment(&env, options, at, &story).await {
                story.failure.borrow_mut().get_or_insert(format!("client {id}: {error}"));
            }
            story.ended.set(story.ended.get() + 1);
        });
    }
    world.run_until(world.now() + WORK * (3 + seed as u32 % 11));
    let server = cluster.server(file.server().0);
    let mut expected = CLIENTS;
    match seed / 2 % 4 {
        0 => {}
        1 => {
            server.keep_stopped();
            world.crash(server.process);
            world.run_until(world.now() + lease / 8);
            server.start(world);
        }
        2 => {
            let client = cluster.client_machine(0);
            world.partition(client, server.machine, true);
            world.run_until(world.now() + lease * 2);
            world.partition(client, server.machine, false);
        }
        _ => {
            // One write may be on its way.
            world.crash(cluster.client_process(0));
            story.unknown.set(story.unknown.get() + 1);
            expected -= 1;
        }
    }
    let until = world.now() + lease * 20 + STEP_MAX;
    if !world.run_until_true(until, || story.ended.get() >= expected) {
        return Err(format!("{} of {expected} clients came to their end", story.ended.get()));
    }
    if let Some(words) = story.failure.take() {
        return Err(words);
    }
    let options = cluster.options();
    let number = cluster.complete_client(CLIENTS, |env| async move { read(&env, options, at).await });
    let number = number.map_err(|error| format!("the number cannot be read: {error}"))?;
    let (least, unknown) = (story.acknowledged.get(), story.unknown.get());
    match (least..=least + unknown).contains(&number) {
        true => Ok(()),
        false => Err(format!(
            "{least} increments were acknowledged and {unknown} have an unknown end, and the number is {number}"
        )),
    }
}

fn name() -> Name {
    Name::new(b"number").expect("it is a name")
}

async fn begin(env: &Env, options: shoal_client::Options, at: u64) -> Result<Handle, Error> {
    let client = connect(env, options).await?;
    let (.., file) = client.create(Handle::ROOT, &name(), OWNER, true, Rights::WRITE, None).await?;
    if at > 0 {
        file.write(0, Bytes::from(vec![0; LEN])).await?;
    }
    file.write(at, Bytes::copy_from_slice(&0_u64.to_le_bytes())).await?;
    let handle = file.handle();
    file.close().await?;
    client.close().await;
    Ok(handle)
}

async fn open(client: &Client) -> Result<OpenFile, Error> {
    client.open_name(Handle::ROOT, &name(), Rights::READ | Rights::WRITE).await
}

async fn number(file: &OpenFile, at: u64) -> Result<u64, Error> {
    let bytes = file.read(at, 8).await?;
    Ok(bytes[..].try_into().map_or(0, u64::from_le_bytes))
}

async fn read(env: &Env, options: shoal_client::Options, at: u64) -> Result<u64, Error> {
    let client = connect(env, options).await?;
    number(&open(&client).await?, at).await
}

async fn increment(env: &Env, options: shoal_client::Options, at: u64, story: &Story) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let mut file = open(&client).await?;
    let mut done = 0;
    while done < TIMES {
        match once(env, &file, at, story).await {
            Ok(()) => done += 1,
            // A lost lock, or a server that was away: begin with a new open file.
            Err(_) => {
                env.sleep(WORK * 10).await;
                drop(file.close().await);
                file = loop {
                    match open(&client).await {
                        Ok(file) => break file,
                        Err(_) => env.sleep(WORK * 10).await,
                    }
                };
            }
        }
    }
    file.close().await?;
    client.close().await;
    Ok(())
}

async fn once(env: &Env, file: &OpenFile, at: u64, story: &Story) -> Result<(), Error> {
    let (owner, range) = (LockOwner(1), LockRange::ALL);
    file.lock(&LockCall { owner, range, kind: LockKind::Exclusive, wait: true, pid: 1 }).await?;
    let before = number(file, at).await?;
    env.sleep(WORK).await;
    let bytes = Bytes::copy_from_slice(&(before + 1).to_le_bytes());
    match file.write(at, bytes).await {
        Ok(()) => story.acknowledged.set(story.acknowledged.get() + 1),
        Err(error) => {
            story.unknown.set(story.unknown.get() + 1);
            return Err(error);
        }
    }
    // It counts, whatever becomes of the lock now.
    drop(file.unlock(owner, range).await);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::Status;

    fn whole(wait: bool) -> LockCall {
        LockCall { owner: LockOwner(1), range: LockRange::ALL, kind: LockKind::Exclusive, wait, pid: 1 }
    }

    #[test]
    fn a_client_whose_lock_went_with_its_lease_reads_and_writes_nothing_until_it_has_unlocked() {
        for (seed, at) in [(1, 0), (2, FAR)] {
            let config = ClusterConfig { clients: 2, ..ClusterConfig::default() };
            let (cluster, lease) = (Cluster::new(seed, &config), config.settings.lease);
            let world = cluster.world.clone();
            assert!(world.run_until_true(world.now() + STEP_MAX, || cluster.is_ready()));
            let options = cluster.options();
            let file =
                cluster.complete_client(1, |env| async move { begin(&env, options, at).await }).unwrap();
            let (locked, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
            let (options, has_locked, has_ended) = (cluster.options(), locked.clone(), ended.clone());
            cluster.start_client(0, move |env| async move {
                let client = connect(&env, options).await.unwrap();
                let file = open(&client).await.unwrap();
                assert!(file.lock(&whole(true)).await.unwrap());
                has_locked.set(true);
                env.sleep(lease * 3 / 2).await;
                let number = |seen: Result<u64, Error>| seen.map_err(|error| error.status);
                assert_eq!(number(self::number(&file, at).await), Err(Status::Io), "cut off");
                env.sleep(lease * 4).await;
                assert_eq!(number(self::number(&file, at).await), Err(Status::Io), "lost");
                let written = file.write(at, Bytes::from_static(&[9; 8])).await;
                assert_eq!(written.unwrap_err().status, Status::Io);
                assert_eq!(file.lock(&whole(true)).await.unwrap_err().status, Status::NoLocks);
                let other = open(&client).await.unwrap();
                assert_eq!(number(self::number(&other, at).await), Ok(7), "it took no lock");
                let unlocked = file.unlock(LockOwner(1), LockRange::ALL).await;
                assert_eq!(unlocked.unwrap_err().status, Status::NoLocks);
                assert_eq!(number(self::number(&file, at).await), Ok(7));
                has_ended.set(true);
            });
            assert!(world.run_until_true(world.now() + STEP_MAX, || locked.get()));
            let (client, server) = (cluster.client_machine(0), cluster.server(file.server().0).machine);
            world.partition(client, server, true);
            let options = cluster.options();
            let took = cluster.complete_client(1, move |env| async move {
                let client = connect(&env, options).await.unwrap();
                let file = open(&client).await.unwrap();
                let begun = env.now();
                assert!(file.lock(&whole(true)).await.unwrap());
                let took = env.now().since(begun);
                file.write(at, Bytes::copy_from_slice(&7_u64.to_le_bytes())).await.unwrap();
                file.close().await.unwrap();
                took
            });
            assert!(took >= lease * 9 / 10 && took < lease * 3 / 2, "{took:?} at a lease of {lease:?}");
            world.run_until(world.now() + lease * 2);
            world.partition(client, server, false);
            let until = world.now() + lease * 20 + STEP_MAX;
            assert!(world.run_until_true(until, || ended.get()), "{:?}", cluster.failures());
        }
    }

    #[test]
    fn increments_under_a_lock_are_all_there_through_kills_partitions_and_lost_leases() {
        for seed in 1..=48 {
            let report = guarded_increments(seed);
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }
}
