//! A run in which a server moves to another address while clients work.
//!
//! ```text
//!   clients 0, 1:     make files and read them again, all the time; every call must succeed in time
//!   client 2:         in cases 1 and 2 the operator: two tries, the first is interrupted after one server
//!   client 3:         looks at a directory on the server that moves, is cut off, looks again at the end
//!   the moved server: in cases 1 to 3 is killed, and started at its new address
//!   a third server:   in some runs is killed before the move, and started after it with its old map
//! ```
//! There are four cases, by the seed:
//!
//! 1. The operator acts first, and then the server moves.
//! 2. The server moves first, and then the operator acts.
//! 3. Only the server's own cluster file is changed, so the server has to inform the other servers.
//! 4. Servers are known by the names of their hosts. The machine gets a new address, and connections break.
//!    For a while name servers do not answer; then the name leads to the new address.
//!
//! **No client is started again, and no call fails.** Each server moves in one of the runs, also the server
//! of the root.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::run::RunReport;
use shoal_client::{Client, Error, Options};
use shoal_env::{Address, Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, ServerId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
const SERVERS: u16 = 3;
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// A call may wait for so long; the server is away for less.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Files that a client makes.
const FILES: u32 = 120;

/// How the move comes about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    ToldFirst,
    GoneFirst,
    ToldByItself,
    ByName,
}

/// The progress of all.
#[derive(Default)]
struct Story {
    /// A directory on the server that moves.
    there: Cell<Option<Handle>>,
    worked: Cell<u32>,
    failed: RefCell<Vec<String>>,
}

/// Run the story once; broken promises are in the report.
pub fn a_server_moves(seed: u64, #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    let how = [How::ToldFirst, How::GoneFirst, How::ToldByItself, How::ByName][(seed % 4) as usize];
    let moving = (seed / 4 % u64::from(SERVERS)) as u16;
    let by_name = how == How::ByName;
    let config = ClusterConfig { servers: SERVERS, clients: 5, by_name, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    if let Err(words) = tell(&cluster, seed, how, moving, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn options(cluster: &Cluster) -> Options {
    Options { timeout: TIMEOUT, ..cluster.options() }
}

fn tell(cluster: &Cluster, seed: u64, how: How, moving: u16, report: &mut RunReport) -> Result<(), String> {
    let world = &cluster.world;
    if !world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()) {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let story = Rc::new(Story::default());
    let go = Rc::new(Cell::new(false));
    start_looker(cluster, moving, &story, &go);
    if !world.run_until_true(world.now() + BEGIN_MAX, || story.there.get().is_some()) {
        return Err("no client found a directory on the server that moves".to_owned());
    }
    for client in [0, 1] {
        start_worker(cluster, client, &story);
    }
    world.run_for(Duration::from_millis(20 + seed % 7 * 30));
    let looker = cluster.client_machine(3);
    (0..SERVERS).for_each(|id| world.partition(looker, cluster.server(id).machine, true));
    let to: Address = Address::Local(format!("server-{moving}-moved"));
    match how {
        How::ByName => other_address(cluster, seed, moving),
        how => {
            // Of the other two one that is away meanwhile: it has the cluster file of before when it is back.
            let away = cluster.server((moving + 1 + (seed / 12 % 2) as u16) % SERVERS);
            let is_away = seed % 5 < 2;
            if is_away {
                away.keep_stopped();
                world.crash(away.process);
            }
            moves(cluster, seed, how, moving, &to)?;
            world.run_for(Duration::from_millis(seed % 11 * 400));
            if is_away {
                away.start(world);
            }
        }
    }
    let all = || story.worked.get() == 2;
    if !world.run_until_true(world.now() + TIMEOUT * 10, all) {
        return Err("the clients that work did not come to their end".to_owned());
    }
    // The one that was cut off knows nothing of it, and first asks the server that has moved.
    (0..SERVERS).for_each(|id| world.partition(looker, cluster.server(id).machine, false));
    go.set(true);
    if !world.run_until_true(world.now() + TIMEOUT * 3, || story.worked.get() == 3) {
        return Err("the client that was cut off did not come to its end".to_owned());
    }
    report.violations.append(&mut story.failed.borrow_mut());
    if how != How::ByName {
        // Each server is informed within a minute of being reached.
        world.run_for(Duration::from_secs(150));
        report.violations.extend(agree(cluster, moving, &to)?);
    }
    Ok(())
}

/// Stop the server, announce the move, start it elsewhere; in some order.
fn moves(cluster: &Cluster, seed: u64, how: How, moving: u16, to: &Address) -> Result<(), String> {
    let (world, server) = (&cluster.world, cluster.server(moving));
    let stop = || {
        server.keep_stopped();
        world.crash(server.process);
        world.run_for(Duration::from_millis(seed % 13 * 300));
    };
    match how {
        How::ToldFirst => {
            operate(cluster, moving, to)?;
            world.run_for(Duration::from_millis(seed % 17 * 50));
            stop();
        }
        How::GoneFirst => {
            stop();
            operate(cluster, moving, to)?;
        }
        How::ToldByItself | How::ByName => stop(),
    }
    server.moves(to, 1);
    server.start(world);
    Ok(())
}

/// The operator's command, interrupted after the first server that answers, and given again.
fn operate(cluster: &Cluster, moving: u16, to: &Address) -> Result<(), String> {
    for servers_max in [1, SERVERS] {
        let (options, to) =
            (Options { timeout: Duration::from_secs(5), ..cluster.options() }, to.to_string());
        let told = cluster.complete_client(2, |env| async move {
            let client = connect(&env, options).await?;
            let mut told = 0;
            for id in (0..SERVERS).filter(|id| *id != moving).chain([moving]).map(ServerId) {
                if told == servers_max {
                    break;
                }
                let to = std::slice::from_ref(&to);
                told += u16::from(client.move_server(id, ServerId(moving), to, 1).await.is_ok());
            }
            Ok::<_, Error>(told)
        });
        let told = told.map_err(|error| format!("the operator's client: {error}"))?;
        if told == 0 {
            return Err("no server took the move".to_owned());
        }
    }
    Ok(())
}

/// The machine of a server gets another address, as from a DHCP server; its name follows later. The server
/// runs on.
fn other_address(cluster: &Cluster, seed: u64, moving: u16) {
    let world = &cluster.world;
    let (there, former) = (cluster.server(moving).machine, world.machine("somebody else"));
    world.set_address(former, [10, 0, 0, moving as u8].into());
    for other in cluster.machines() {
        world.reset(there, other);
    }
    world.run_for(Duration::from_millis(500 + seed % 9 * 300));
    world.set_names_answered(false);
    world.run_for(Duration::from_millis(seed % 10 * 700));
    world.set_names_answered(true);
    cluster.set_address(moving, [10, 0, 1, moving as u8].into());
}

fn start_worker(cluster: &Cluster, id: u16, story: &Rc<Story>) {
    let (story, options) = (story.clone(), options(cluster));
    cluster.start_client(id, move |env| async move {
        if let Err(error) = work(&env, options, id).await {
            story.failed.borrow_mut().push(format!("client {id} at {} ns: {error}", env.now().0));
        }
        story.worked.set(story.worked.get() + 1);
    });
}

/// Make files in directories on all servers, and read them again.
async fn work(env: &Env, options: Options, id: u16) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let mut dirs = Vec::new();
    for n in 0..u32::from(SERVERS) * 2 {
        dirs.push(client.mkdir(Handle::ROOT, &name(&format!("c{id}-{n}")), OWNER).await?.handle);
    }
    for n in 0..FILES {
        let (dir, at) = (dirs[n as usize % dirs.len()], name(&format!("f{n}")));
        let content = format!("content {id} {n}").into_bytes();
        client.create_write(dir, &at, OWNER, content.clone().into(), None).await?;
        env.sleep(Duration::from_millis(3)).await;
        let found = client.lookup(dir, &at).await?;
        let read = client.open(found.handle, Rights::READ).await?.read(0, 1000).await?;
        if read[..] != content {
            return Err(Error::new(shoal_proto::Status::Io, "read").of(found.handle).because("other bytes"));
        }
    }
    client.close().await;
    Ok(())
}

/// A client that looks at a directory on the moving server, is idle, and looks again when it may.
fn start_looker(cluster: &Cluster, moving: u16, story: &Rc<Story>, go: &Rc<Cell<bool>>) {
    let (story, go, options) = (story.clone(), go.clone(), options(cluster));
    cluster.start_client(3, move |env| async move {
        if let Err(error) = look(&env, options, moving, &story, &go).await {
            story.failed.borrow_mut().push(format!("the client that was cut off: {error}"));
        }
        story.worked.set(story.worked.get() + 1);
    });
}

async fn look(env: &Env, options: Options, moving: u16, story: &Story, go: &Cell<bool>) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let mut made = 0;
    let dir = loop {
        made += 1;
        let dir = client.mkdir(Handle::ROOT, &name(&format!("looked-{made}")), OWNER).await?.handle;
        if dir.server() == ServerId(moving) {
            break dir;
        }
    };
    story.there.set(Some(dir));
    while !go.get() {
        env.sleep(Duration::from_millis(100)).await;
    }
    client.getattr(dir).await?;
    client.mkdir(dir, &name("later"), OWNER).await?;
    client.close().await;
    Ok(())
}

/// Whether all servers know where the server is.
fn agree(cluster: &Cluster, moving: u16, to: &Address) -> Result<Vec<String>, String> {
    let (options, to) = (options(cluster), to.to_string());
    let told = cluster.complete_client(4, |env| async move {
        let client: Client = connect(&env, options).await?;
        let mut wrong = Vec::new();
        for id in 0..SERVERS {
            let map = client.map_of(ServerId(id)).await?;
            let at = &map.servers[usize::from(moving)].addresses[0].0;
            if *at != to {
                wrong.push(format!("server {id} knows server {moving} at {at}, and it is at {to}"));
            }
        }
        Ok::<_, Error>(wrong)
    });
    told.map_err(|error| format!("after the move: {error}"))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_moves_while_clients_work_is_found_by_all_of_them_and_by_the_other_servers() {
        for seed in 0..24 {
            let report = a_server_moves(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }
}
