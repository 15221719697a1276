//! A run in which one client holds a file open without any call, while a second client removes the file, or
//! renames another file over it.
//!
//! ```text
//!   client 0: creates, writes, syncs, is idle ............................ reads, writes, syncs, closes
//!   client 1:                              removes or replaces the file; its name must lead elsewhere then
//!   the file's server:                     killed, starts again
//! ```
//! **The file can be used until its last close, however long that takes.** Two leases later it is gone, and
//! after two more leases no server has anything left of it. A removed file is not opened by a client that did
//! not have it open.

use crate::check;
use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::run::RunReport;
use bytes::Bytes;
use shoal_client::{Client, Error, RenameFlags};
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, Status};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 1000, gid: 100 };
/// How long servers may take to begin, and a client's part that waits for nothing.
const STEP_MAX: Duration = Duration::from_secs(40);
/// How long the file stays open after its removal, in leases.
const OPEN_LEASES: u32 = 3;
/// Bytes of the file: it is laid out over all servers.
const LEN: usize = 300_000;

/// The progress of the client that has the file open.
#[derive(Default)]
struct Story {
    open: Option<Handle>,
    ended: Option<Result<(), String>>,
}

/// Run the story once; broken promises are in the report. Odd seeds remove the file, even ones rename another
/// over it; of every four, two kill its server.
pub fn removed_by_another_client(
    seed: u64,
    #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>,
) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    removed_with(seed, shoal_proto::Switches::OURS)
}

fn removed_with(seed: u64, switches: shoal_proto::Switches) -> RunReport {
    let config = ClusterConfig { clients: 3, switches, ..ClusterConfig::default() };
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
    let story = Rc::new(RefCell::new(Story::default()));
    let (told, options) = (story.clone(), cluster.options());
    let idle = lease * OPEN_LEASES;
    cluster.start_client(0, move |env| async move {
        let outcome = hold(&env, options, idle, &told).await;
        told.borrow_mut().ended = Some(outcome.map_err(|error| error.to_string()));
    });
    if !world.run_until_true(world.now() + STEP_MAX, || story.borrow().open.is_some()) {
        return Err(format!("the file was not made within {STEP_MAX:?}: {:?}", story.borrow().ended));
    }
    let Some(file) = story.borrow().open else { return Ok(()) };
    // Sometimes just after the open, sometimes long after it.
    world.run_until(world.now() + lease / 7 * (seed % 5) as u32);
    let options = cluster.options();
    let replaces = seed.is_multiple_of(2);
    let removed =
        cluster.complete_client(1, |env| async move { remove(&env, options, file, replaces).await });
    removed.map_err(|error| format!("the removal by another client: {error}"))?;
    if seed % 4 < 2 {
        world.run_until(world.now() + lease / 9);
        let server = cluster.server(file.server().0);
        server.keep_stopped();
        world.crash(server.process);
        server.start(world);
    }
    world.run_until_true(world.now() + lease * (OPEN_LEASES + 2), || story.borrow().ended.is_some());
    let ended =
        story.borrow_mut().ended.take().ok_or("the client with the open file did not come to its end")?;
    ended.map_err(|words| format!("file {file}, removed by another client while open here: {words}"))?;
    // It may be kept for any clients that had it open until a lease after the removal, and a look.
    world.run_until(world.now() + lease * 2);
    gone(cluster, 2, file, lease * 2)
}

/// The client that has the file open: everything that it says of it is to succeed.
async fn hold(
    env: &Env,
    options: shoal_client::Options,
    idle: Duration,
    told: &RefCell<Story>,
) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let (name, both) = (name("replaced"), Rights::READ | Rights::WRITE);
    let (.., file) = client.create(Handle::ROOT, &name, OWNER, true, both, None).await?;
    let data = Bytes::from((0..LEN).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    file.write(0, data.clone()).await?;
    file.fsync().await?;
    told.borrow_mut().open = Some(file.handle());
    env.sleep(idle).await;
    if file.read(0, LEN).await? != data {
        return Err(Error::new(Status::Io, "read").because("it holds other bytes than were written"));
    }
    file.write(LEN as u64, Bytes::from_static(b"more")).await?;
    file.fsync().await?;
    let attr = client.getattr(file.handle()).await?;
    if (attr.size, attr.nlink) != (LEN as u64 + 4, 0) {
        let words = format!("{} bytes, {} links", attr.size, attr.nlink);
        return Err(Error::new(Status::Io, "getattr").because(words));
    }
    file.close().await?;
    client.close().await;
    Ok(())
}

/// The other client: it removes the file, or puts another in its place; its name leads to it no more.
async fn remove(
    env: &Env,
    options: shoal_client::Options,
    file: Handle,
    replaces: bool,
) -> Result<(), Error> {
    let client = connect(env, options).await?;
    let wrong = |words: &str| Err(Error::new(Status::Io, "open").because(words));
    if replaces {
        client.create(Handle::ROOT, &name("new"), OWNER, true, Rights::WRITE, None).await?;
        let flags = RenameFlags::default();
        client.rename(Handle::ROOT, &name("new"), Handle::ROOT, &name("replaced"), flags).await?;
        let opened = client.open_name(Handle::ROOT, &name("replaced"), Rights::READ).await?;
        if opened.handle() == file || client.lookup(Handle::ROOT, &name("replaced")).await?.handle == file {
            return wrong("its name leads to the file that was replaced");
        }
    } else {
        client.unlink(Handle::ROOT, &name("replaced")).await?;
        match client.open_name(Handle::ROOT, &name("replaced"), Rights::READ).await {
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => return wrong("its name is gone, and leads somewhere"),
        }
    }
    refused(&client, file).await?;
    client.close().await;
    Ok(())
}

/// A removed file is not opened by a client that did not have it open.
async fn refused(client: &Client, file: Handle) -> Result<(), Error> {
    match client.open(file, Rights::READ).await {
        Err(error) if error.status == Status::Stale => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::new(Status::Io, "open").because("it was gone before, and is opened")),
    }
}

/// A file is gone for a client that asks for it; and after a while, when its parts on other servers are freed
/// too, every object on any server belongs to the tree.
pub(crate) fn gone(cluster: &Cluster, client: u16, file: Handle, rest: Duration) -> Result<(), String> {
    let (options, servers) = (cluster.options(), cluster.server_count());
    let found = cluster.complete_client(client, |env| async move {
        let client = connect(&env, options).await?;
        let found = client.getattr(file).await.map(|attr| attr.handle);
        env.sleep(rest).await;
        let mut tree = check::walk(&client).await?;
        let left = check::leftovers(&client, servers, &tree).await?;
        tree.violations.extend(left);
        Ok::<_, Error>((found, tree.violations))
    });
    let (found, left) =
        found.map_err(|error| format!("after file {file} was removed and closed: {error}"))?;
    match found {
        Err(error) if error.status == Status::Stale => {}
        Err(error) => return Err(format!("file {file}, removed and closed: {error}")),
        Ok(_) => return Err(format!("file {file}, removed and closed: expected it to be gone, found it")),
    }
    match left.first() {
        None => Ok(()),
        Some(words) => Err(format!("file {file}, removed and closed: {words}")),
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_client_removes_can_be_used_by_those_that_have_it_open_and_is_gone_with_their_last_close()
     {
        for seed in 1..=8 {
            let report = removed_by_another_client(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }

    #[test]
    fn the_same_holds_where_files_are_made_and_removed_step_by_step() {
        let switches = shoal_proto::Switches { compound: false, ..shoal_proto::Switches::OURS };
        all_hold(switches);
    }

    #[test]
    fn the_same_holds_where_files_lie_on_other_servers_than_their_names() {
        let placement = shoal_proto::Placement::Spread;
        all_hold(shoal_proto::Switches { placement, ..shoal_proto::Switches::OURS });
    }

    fn all_hold(switches: shoal_proto::Switches) {
        let reports = (1..=10).map(|seed| removed_with(seed, switches));
        let broken: Vec<_> =
            reports.filter(|r| !r.violations.is_empty()).map(|r| (r.seed, r.violations)).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}
