//! Runs with one *story* each (a fixed course of events), for promises that the workload of all clients
//! together cannot check.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::run::RunReport;
use bytes::Bytes;
use shoal_client::Error;
use shoal_env::Instant;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Kind, Name, Switches};
use shoal_store::{MetadataSync, SyncModes};
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// Entries of the directory: it is split long before.
const FILES: u64 = 64;

/// In mode *metadata at fsync* files are made in a directory that is split; an fsync of the directory
/// returns; power is cut on all machines. Everything that was made before is there.
pub fn fsync_of_a_split_directory(
    seed: u64,
    #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>,
) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    let switches = Switches { split_entries: 16, ..Switches::OURS };
    let sync_modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
    let config = ClusterConfig { switches, sync_modes, clients: 2, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches, ..RunReport::default() };
    if let Err(words) = made_and_cut(&cluster, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report
}

fn made_and_cut(cluster: &Cluster, report: &mut RunReport) -> Result<(), String> {
    let world = &cluster.world;
    let begin = || world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready());
    if !begin() {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let options = cluster.options();
    let made = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await?;
        let dir = client.mkdir(Handle::ROOT, &name("shards"), OWNER).await?.handle;
        for file in 0..FILES {
            let data = Bytes::from(vec![file as u8; 100]);
            client.create_write(dir, &name(&format!("{file}")), OWNER, data, None).await?;
        }
        client.fsync_directory(dir).await?;
        Ok::<_, Error>((dir, client.getattr(dir).await?.shards.is_split()))
    });
    let (dir, is_split) = made.map_err(|error| format!("before any fault: {error}"))?;
    if !is_split {
        return Err(format!("directory {dir} of {FILES} entries is not split"));
    }
    for id in 0..cluster.server_count() {
        let server = cluster.server(id);
        server.keep_stopped();
        world.power_cut(server.machine);
    }
    (0..cluster.server_count()).for_each(|id| cluster.server(id).start(world));
    if !begin() {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?} after the power cut"));
    }
    let options = cluster.options();
    let found = cluster.complete_client(1, |env| async move {
        let client = connect(&env, options).await?;
        let mut missing = Vec::new();
        for file in 0..FILES {
            match client.lookup(dir, &name(&format!("{file}"))).await {
                Ok(attr) if attr.kind == Kind::File => {}
                Ok(attr) => missing.push(format!("{file} is a {:?}", attr.kind)),
                Err(error) => missing.push(format!("{file}: {}", error.status)),
            }
        }
        Ok::<_, Error>(missing)
    });
    let missing = found.map_err(|error| format!("after the power cut: {error}"))?;
    let lost = |words: String| {
        format!("in directory {dir}, synced before the power cut: expected a file, found {words}")
    };
    report.violations.extend(missing.into_iter().map(lost));
    Ok(())
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_client::{Client, OpenFile, RenameFlags};
    use shoal_proto::{Rights, SetAttr, Status};
    use shoal_store::DataSync;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn an_fsync_of_a_split_directory_keeps_what_was_made_in_all_its_shards_over_a_power_cut() {
        for seed in 1..=5 {
            let report = fsync_of_a_split_directory(
                seed,
                #[cfg(feature = "mutants")]
                None,
            );
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        }
    }

    /// The acts between an fsync and a power cut.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Change {
        Write,
        Truncate,
        Chmod,
        Create,
        Rename,
        Unlink,
    }

    const CHANGES: [Change; 6] =
        [Change::Write, Change::Truncate, Change::Chmod, Change::Create, Change::Rename, Change::Unlink];

    impl Change {
        async fn make(self, client: &Client, file: &OpenFile) {
            let done = match self {
                Change::Write => file.write(0, vec![2; 1000].into()).await,
                Change::Truncate => client.truncate(file.handle(), 0, false).await.map(drop),
                Change::Chmod => {
                    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                    client.setattr(file.handle(), set).await.map(drop)
                }
                Change::Create => client
                    .create(Handle::ROOT, &name("made"), OWNER, true, Rights::READ, None)
                    .await
                    .map(drop),
                Change::Rename => {
                    let flags = RenameFlags::default();
                    client.rename(Handle::ROOT, &name("other"), Handle::ROOT, &name("moved"), flags).await
                }
                Change::Unlink => client.unlink(Handle::ROOT, &name("other")).await,
            };
            done.unwrap();
        }

        /// Whether a power cut may take it though it was answered, with data *at fsync*.
        fn may_be_cut(self, metadata: MetadataSync) -> bool {
            metadata != MetadataSync::AtReply || matches!(self, Change::Write | Change::Chmod)
        }

        /// Whether it is to be seen.
        async fn is_there(self, client: &Client, file: &OpenFile) -> bool {
            let leads = async |text: &str| client.lookup(Handle::ROOT, &name(text)).await.is_ok();
            match self {
                Change::Write => file.read(0, 1).await.unwrap() == [2][..],
                Change::Truncate => file.size().await.unwrap() == 0,
                Change::Chmod => client.getattr(file.handle()).await.unwrap().mode == 0o600,
                Change::Create => leads("made").await,
                Change::Rename => leads("moved").await,
                Change::Unlink => !leads("other").await,
            }
        }

        /// An fsync of the object that it is a change of.
        async fn sync(self, client: &Client, file: &OpenFile) -> Result<(), Status> {
            let synced = match self {
                Change::Write | Change::Truncate | Change::Chmod => file.fsync().await,
                Change::Create | Change::Rename | Change::Unlink => {
                    client.fsync_directory(Handle::ROOT).await
                }
            };
            synced.map_err(|error| error.status)
        }
    }

    #[test]
    fn the_next_fsync_says_that_a_change_is_lost_which_the_modes_let_a_power_cut_take() {
        let mut lost = 0;
        for metadata in [MetadataSync::Never, MetadataSync::AtFsync, MetadataSync::AtReply] {
            for change in CHANGES.into_iter().filter(|change| change.may_be_cut(metadata)) {
                let (synced, is_there) = changed_and_cut(change, metadata, DataSync::AtFsync);
                let what = format!("{change:?}, metadata {metadata:?}, there: {is_there}, fsync: {synced:?}");
                assert!(is_there || synced == Err(Status::Io), "{what}");
                lost += u32::from(!is_there);
            }
        }
        assert!(lost > 6, "only {lost} changes were lost: the test shows little");
    }

    #[test]
    fn no_fsync_says_that_something_is_lost_after_a_power_cut_where_all_is_durable_at_reply() {
        // A change of attributes alone is not.
        let durable = CHANGES.into_iter().filter(|change| *change != Change::Chmod);
        for change in durable {
            let ended = changed_and_cut(change, MetadataSync::AtReply, DataSync::AtReply);
            assert_eq!(ended, (Ok(()), true), "{change:?}");
        }
    }

    /// A change is acknowledged, its server loses its power and starts again: the result of an fsync then,
    /// and whether the change is there.
    fn changed_and_cut(change: Change, metadata: MetadataSync, data: DataSync) -> (Result<(), Status>, bool) {
        let sync_modes = SyncModes { metadata, data, ..SyncModes::default() };
        let config = ClusterConfig { sync_modes, clients: 1, servers: 1, ..ClusterConfig::default() };
        let cluster = Cluster::new(1, &config);
        let world = cluster.world.clone();
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()));
        let options = cluster.options();
        let server = cluster.server(0).clone();
        let (made, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (did, tell) = (made.clone(), ended.clone());
        cluster.start_client(0, move |env| async move {
            let client = connect(&env, options).await.unwrap();
            let both = Rights::READ | Rights::WRITE;
            let (.., file) = client.create(Handle::ROOT, &name("f"), OWNER, true, both, None).await.unwrap();
            client.create(Handle::ROOT, &name("other"), OWNER, true, both, None).await.unwrap();
            file.write(0, vec![1; 1000].into()).await.unwrap();
            file.fsync().await.unwrap();
            client.fsync_directory(Handle::ROOT).await.unwrap();
            change.make(&client, &file).await;
            did.set(true);
            env.sleep(Duration::from_secs(5)).await;
            let synced = change.sync(&client, &file).await;
            tell.set(Some((synced, change.is_there(&client, &file).await)));
        });
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || made.get()));
        server.keep_stopped();
        world.power_cut(server.machine);
        server.start(&world);
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || ended.get().is_some()));
        ended.get().unwrap()
    }

    /// Client 0 lays a file out; client 1 sees the layout and writes to another server; then the power of the
    /// file's own server is cut.
    fn written_in_a_layout_that_is_lost(metadata: MetadataSync, kills: bool) -> (Result<(), Status>, bool) {
        let sync_modes = SyncModes { metadata, ..SyncModes::default() };
        let mut config = ClusterConfig { sync_modes, clients: 2, servers: 2, ..ClusterConfig::default() };
        config.world.machine.disk.sync_ns = 20_000_000;
        let cluster = Cluster::new(1, &config);
        let world = cluster.world.clone();
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()));
        let stage = Rc::new(Cell::new(0));
        let home = Rc::new(Cell::new(0));
        let ended = Rc::new(Cell::new(None));
        let both = Rights::READ | Rights::WRITE;
        let (options, at, place) = (cluster.options(), stage.clone(), home.clone());
        cluster.start_client(0, move |env| async move {
            let client = connect(&env, options).await.unwrap();
            let (.., file) = client.create(Handle::ROOT, &name("f"), OWNER, true, both, None).await.unwrap();
            file.write(0, vec![1; 1000].into()).await.unwrap();
            file.fsync().await.unwrap();
            client.fsync_directory(Handle::ROOT).await.unwrap();
            place.set(file.handle().server().0);
            at.set(1);
            while at.get() < 2 {
                env.sleep(Duration::from_micros(100)).await;
            }
            drop(file.write(70_000, vec![1; 10].into()).await);
        });
        let (mut options, at, tell) = (cluster.options(), stage.clone(), ended.clone());
        options.attr_cache = Duration::ZERO;
        cluster.start_client(1, move |env| async move {
            while at.get() < 1 {
                env.sleep(Duration::from_micros(100)).await;
            }
            let client = connect(&env, options).await.unwrap();
            let attr = client.lookup(Handle::ROOT, &name("f")).await.unwrap();
            let _held = client.open(attr.handle, both).await.unwrap();
            at.set(2);
            while client.getattr(attr.handle).await.unwrap().layout.is_none() {}
            let file = client.open(attr.handle, both).await.unwrap();
            file.write(80_000, vec![2; 1000].into()).await.unwrap();
            at.set(4);
            env.sleep(Duration::from_secs(5)).await;
            let synced = file.fsync().await.map_err(|error| error.status);
            let is_there = file.read(80_000, 1000).await.unwrap() == vec![2; 1000][..];
            tell.set(Some((synced, is_there)));
        });
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || stage.get() == 4));
        let server = cluster.server(home.get()).clone();
        // Its client does not lay it out again.
        world.crash(cluster.client_process(0));
        server.keep_stopped();
        if kills {
            world.crash(server.process);
        } else {
            world.power_cut(server.machine);
        }
        server.start(&world);
        assert!(world.run_until_true(world.now() + BEGIN_MAX, || ended.get().is_some()));
        ended.get().unwrap()
    }

    #[test]
    fn an_fsync_tells_that_the_layout_which_another_client_made_is_lost() {
        let mut wrong = Vec::new();
        for (metadata, kills) in [
            (MetadataSync::AtReply, false),
            (MetadataSync::AtFsync, false),
            (MetadataSync::Never, false),
            (MetadataSync::Never, true),
        ] {
            let (synced, is_there) = written_in_a_layout_that_is_lost(metadata, kills);
            if !is_there && synced.is_ok() {
                wrong.push(format!("{metadata:?} kills {kills}: {synced:?}, there: {is_there}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
