//! Runs of one story each, for promises that the workload of all clients together cannot hold the servers to.

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

/// In mode *metadata at fsync* files are made in a directory that is split; an fsync of the directory returns; power is cut
/// on all machines. Everything that was made before is there.
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
}
