//! Two moves of directories that would form a loop together, while the coordinator of the first is cut off or
//! dead.
//!
//! ```text
//!   /a (server 2)   /a/a1 (server 3)        first:  /a into /b/b1, coordinated by server 1
//!   /b (server 3)   /b/b1 (server 1)        second: /b into /a/a1, coordinated by server 3
//! ```
//! Meanwhile one of three faults happens, by the seed:
//!
//! - server 1 cannot reach server 2, which has the directory of the first move, for up to six seconds;
//! - server 1 can reach neither server 2 nor server 0 from the moment at which it asks for votes; it then
//!   holds the rename lock of server 0, and has found no loop;
//! - server 1 is killed at some moment of the first move and starts again 45 s later. A further client then
//!   requests a third move, which has nothing to do with the first two.
//!
//! **The third move ends while server 1 is dead.** Whether the two moves succeeded or not, every directory
//! hangs on the root, and nothing is left over.

use crate::check;
use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::run::RunReport;
use shoal_client::{Client, Error, Options, RenameFlags};
use shoal_env::sim::World;
use shoal_env::{Instant, crash_point};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, ServerId};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// A move has come to its end, one way or the other.
const MOVE_MAX: Duration = Duration::from_secs(60);
/// How long the coordinator stays away once it is killed.
const AWAY: Duration = Duration::from_secs(45);
/// The coordinator of the first move, and where its directory is.
const COORDINATOR: u16 = 1;
const MOVED: u16 = 2;

/// The directories.
#[derive(Clone, Copy)]
struct Dirs {
    a1: Handle,
    b1: Handle,
    d: Handle,
    count: usize,
}

/// Run the story once; broken promises are in the report.
pub fn crossing_moves(seed: u64, #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    let mut config = ClusterConfig { servers: 4, clients: 5, ..ClusterConfig::default() };
    if seed % 3 == 1 {
        // The lock is taken back before the coordinator gives up by itself.
        config.settings.doubt = Duration::from_millis(200);
    }
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    if let Err(words) = tell(&cluster, seed, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn tell(cluster: &Cluster, seed: u64, report: &mut RunReport) -> Result<(), String> {
    let world = &cluster.world;
    if !world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()) {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let options = cluster.options();
    let made = cluster.complete_client(0, |env| async move { make(&connect(&env, options).await?).await });
    let dirs = made.map_err(|error| format!("before any fault: {error}"))?;
    match seed % 3 {
        0 => while_it_is_cut_off(cluster, seed, dirs)?,
        1 => while_it_cannot_vote(cluster, seed, dirs)?,
        _ => while_it_is_dead(cluster, seed, dirs)?,
    }
    let options = cluster.options();
    let servers = cluster.server_count();
    let looked = cluster.complete_client(4, |env| async move {
        let client = connect(&env, options).await?;
        let mut tree = check::walk(&client).await?;
        let left = check::leftovers(&client, servers, &tree).await?;
        tree.violations.extend(left);
        Ok::<_, Error>(tree)
    });
    let tree = looked.map_err(|error| format!("after the moves: {error}"))?;
    report.violations.extend(tree.violations);
    if tree.objects.len() != dirs.count + 1 {
        let words = format!("{} of {} directories hang on the root", tree.objects.len() - 1, dirs.count);
        report.violations.push(words);
    }
    Ok(())
}

/// Server 1 cannot reach the directory's server, for longer or shorter than it waits for that.
fn while_it_is_cut_off(cluster: &Cluster, seed: u64, dirs: Dirs) -> Result<(), String> {
    let world = &cluster.world;
    let machine = |id| cluster.server(id).machine;
    world.partition(machine(COORDINATOR), machine(MOVED), true);
    let first = start_move(cluster, 1, "a", dirs.b1);
    world.run_for(Duration::from_millis(100 + seed % 7 * 50));
    let second = start_move(cluster, 2, "b", dirs.a1);
    world.run_for(Duration::from_millis(500 + seed % 11 * 500));
    world.partition(machine(COORDINATOR), machine(MOVED), false);
    both_end(cluster, &[first, second])
}

/// Server 1 can reach neither the rename lock's server nor the directory's, from when it has walked until
/// shortly before it would give up.
fn while_it_cannot_vote(cluster: &Cluster, seed: u64, dirs: Dirs) -> Result<(), String> {
    let world = &cluster.world;
    let coordinator = cluster.server(COORDINATOR).machine;
    let others = [0, MOVED].map(|id| cluster.server(id).machine);
    let cut =
        move |world: &World, on| others.iter().for_each(|other| world.partition(coordinator, *other, on));
    let is_cut = Rc::new(Cell::new(false));
    let told = is_cut.clone();
    let process = cluster.server(COORDINATOR).process;
    world.trap(process, crash_point::COORDINATOR_ASKS, 0, Duration::ZERO, move |world| {
        cut(world, true);
        told.set(true);
    });
    let first = start_move(cluster, 1, "a", dirs.b1);
    if !world.run_until_true(world.now() + MOVE_MAX, || is_cut.get()) {
        return Err("the first move was not begun".to_owned());
    }
    let second = start_move(cluster, 2, "b", dirs.a1);
    world.run_for(Duration::from_millis(3000 + seed % 13 * 150));
    cut(world, false);
    both_end(cluster, &[first, second])
}

/// Server 1 is killed at some step of its move.
fn while_it_is_dead(cluster: &Cluster, seed: u64, dirs: Dirs) -> Result<(), String> {
    let world = &cluster.world;
    let first = start_move(cluster, 1, "a", dirs.b1);
    // From before the rename lock is taken to after the last server has finished.
    world.run_for(Duration::from_micros(250 * (seed % 97)));
    let server = cluster.server(COORDINATOR);
    server.keep_stopped();
    world.crash(server.process);
    let back = world.now() + AWAY;
    let second = start_move(cluster, 2, "b", dirs.a1);
    let options = cluster.options();
    let moved = cluster.complete_client(3, |env| async move {
        let client = connect(&env, options).await?;
        let c = name("c");
        client.rename(Handle::ROOT, &c, dirs.d, &c, RenameFlags::default()).await
    });
    moved.map_err(|error| format!("an unrelated move while server {COORDINATOR} is dead: {error}"))?;
    if world.now() >= back {
        return Err(format!("an unrelated move waited until server {COORDINATOR} was back"));
    }
    world.run_until(back);
    server.start(world);
    both_end(cluster, &[first, second])
}

fn both_end(cluster: &Cluster, moves: &[Rc<Cell<bool>>]) -> Result<(), String> {
    let world = &cluster.world;
    let ended = || moves.iter().all(|ended| ended.get());
    if !world.run_until_true(world.now() + MOVE_MAX, ended) {
        return Err(format!("the moves did not end within {MOVE_MAX:?}"));
    }
    // The objects that they have left to their servers.
    world.run_for(Duration::from_secs(20));
    Ok(())
}

/// Move a directory of the root; whether that has ended. It may be refused, or its outcome unknown.
fn start_move(cluster: &Cluster, client: u16, from: &'static str, to: Handle) -> Rc<Cell<bool>> {
    let ended = Rc::new(Cell::new(false));
    let (told, options): (_, Options) = (ended.clone(), cluster.options());
    cluster.start_client(client, move |env| async move {
        if let Ok(client) = connect(&env, options).await {
            let from = name(from);
            let _ = client.rename(Handle::ROOT, &from, to, &from, RenameFlags::default()).await;
        }
        told.set(true);
    });
    ended
}

async fn make(client: &Client) -> Result<Dirs, Error> {
    let mut count = 0;
    let mut made = async |dir: Handle, text: &str, server: u16| loop {
        let attr = client.mkdir(dir, &name(text), OWNER).await?;
        if attr.handle.server() == ServerId(server) {
            count += 1;
            return Ok::<_, Error>(attr.handle);
        }
        client.rmdir(dir, &name(text)).await?;
    };
    let a = made(Handle::ROOT, "a", MOVED).await?;
    let b = made(Handle::ROOT, "b", 3).await?;
    let a1 = made(a, "a1", 3).await?;
    let b1 = made(b, "b1", COORDINATOR).await?;
    let d = made(Handle::ROOT, "d", 3).await?;
    made(Handle::ROOT, "c", 0).await?;
    Ok(Dirs { a1, b1, d, count })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossing_moves_form_no_loop_while_the_coordinator_of_one_is_cut_off_or_dead_and_others_go_on() {
        for seed in 1..=30 {
            let report = crossing_moves(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }
}
