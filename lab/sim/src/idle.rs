//! A run with an idle client. It removes a file that it holds open, and then makes no call for longer than
//! a lease, while the file's server is killed and starts again. No caller waits for an answer, so only the
//! client's own background work keeps its session alive. **The file can be read, written and synced
//! afterwards**, and when the client ends, the file is gone.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::removed::gone;
use crate::run::RunReport;
use bytes::Bytes;
use shoal_client::Error;
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, Status};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 1000, gid: 100 };
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// How long the client asks nothing, in leases.
const IDLE_LEASES: u32 = 3;
/// Bytes of the file: it is laid out over all servers.
const LEN: usize = 300_000;

/// The client's progress.
#[derive(Default)]
struct Story {
    removed: Option<Handle>,
    ended: Option<Result<(), String>>,
}

/// Run the story once; broken promises are in the report.
pub fn removed_file_of_an_idle_client(
    seed: u64,
    #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>,
) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    let config = ClusterConfig { clients: 2, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    if let Err(words) = idle_over_a_restart(&cluster, config.settings.lease) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn idle_over_a_restart(cluster: &Cluster, lease: Duration) -> Result<(), String> {
    let world = &cluster.world;
    let begin = || world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready());
    if !begin() {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let story = Rc::new(RefCell::new(Story::default()));
    let (told, options) = (story.clone(), cluster.options());
    cluster.start_client(0, move |env| async move {
        let outcome = live(&env, options, lease * IDLE_LEASES, &told).await;
        told.borrow_mut().ended = Some(outcome.map_err(|error| error.to_string()));
    });
    if !world.run_until_true(world.now() + BEGIN_MAX, || story.borrow().removed.is_some()) {
        return Err(format!("the file was not removed within {BEGIN_MAX:?}: {:?}", story.borrow().ended));
    }
    let Some(file) = story.borrow().removed else { return Ok(()) };
    // Somewhere between two messages of the client.
    world.run_until(world.now() + lease / 7);
    let server = cluster.server(file.server().0);
    server.keep_stopped();
    world.crash(server.process);
    server.start(world);
    let until = world.now() + lease * (IDLE_LEASES + 2);
    world.run_until_true(until, || story.borrow().ended.is_some());
    let ended = story.borrow_mut().ended.take();
    let ended = ended.ok_or("the idle client did not come to its end")?;
    ended.map_err(|words| format!("file {file}, removed while open, after an idle time: {words}"))?;
    // With the last close.
    gone(cluster, 1, file, lease * 2)
}

/// The client's part: everything that it says of the file is to succeed.
async fn live(
    env: &Env,
    options: shoal_client::Options,
    idle: Duration,
    told: &RefCell<Story>,
) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let (name, both) = (name("temporary"), Rights::READ | Rights::WRITE);
    let (.., file) = client.create(Handle::ROOT, &name, OWNER, true, both, None).await?;
    let data = Bytes::from((0..LEN).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    file.write(0, data.clone()).await?;
    file.fsync().await?;
    client.unlink(Handle::ROOT, &name).await?;
    told.borrow_mut().removed = Some(file.handle());
    env.sleep(idle).await;
    if file.read(0, LEN).await? != data {
        return Err(Error::new(Status::Io, "read").because("it holds other bytes than were written"));
    }
    file.write(LEN as u64, Bytes::from_static(b"more")).await?;
    file.fsync().await?;
    file.close().await?;
    client.close().await;
    Ok(())
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_removed_while_open_outlives_a_restart_of_its_server_although_its_client_is_idle() {
        for seed in 1..=5 {
            let report = removed_file_of_an_idle_client(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }
}
