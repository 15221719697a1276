//! The cause of problems. When a server's store is *given up* (declared lost by an operator), very many
//! problems have this one cause.
//!
//! Each store of a server gives handles from a range of its own, so a handle shows its store. A problem that
//! names an object of a store that was given up is caused by that loss. An older copy that was accepted
//! contains objects of the store that was given up; a problem that names one of them has the same cause.
//! **Such problems are repaired only with the operator's permission**: the repair removes names whose objects
//! may still be on a disk.

use super::problem::Problem;
use shoal_proto::{ClusterMap, Handle, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Counters below this are no object's that could be lost: the root directory keeps its handle.
const FIRST: u64 = 16;

/// Problems by the server whose store was given up.
pub fn of_lost_stores<'a>(
    problems: impl IntoIterator<Item = &'a Problem>,
    map: &ClusterMap,
) -> BTreeMap<ServerId, BTreeSet<&'a Problem>> {
    let mut found: BTreeMap<ServerId, BTreeSet<&Problem>> = BTreeMap::new();
    for problem in problems {
        if let Some(server) = lost_store(problem, map) {
            found.entry(server).or_default().insert(problem);
        }
    }
    found
}

/// The problems of one cause, in words: so many of each kind.
pub fn kinds(problems: &BTreeSet<&Problem>) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for problem in problems {
        *counts.entry(problem.word()).or_default() += 1;
    }
    let words: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{} {word}", shoal_config::numbers::count(*count)))
        .collect();
    words.join(", ")
}

/// The server whose lost store causes a problem.
fn lost_store(problem: &Problem, map: &ClusterMap) -> Option<ServerId> {
    let is_lost = |handle: &Handle| {
        let first = map.server(handle.server()).map_or(0, |info| info.handles_from());
        (FIRST..first).contains(&handle.counter())
    };
    named(problem).into_iter().find(is_lost).map(Handle::server)
}

/// The objects whose absence may be the reason.
fn named(problem: &Problem) -> Vec<Handle> {
    match problem {
        Problem::DirectoryMissing(dir) => vec![*dir],
        Problem::EntryDangling(entry) | Problem::Loop(entry) => vec![entry.handle, entry.dir],
        Problem::EntryKindWrong(entry, _) | Problem::DirectoryNamedTwice(entry) => vec![entry.handle],
        Problem::ParentWrong { says, entry_in, .. } => vec![*says, *entry_in],
        Problem::Nameless { parent, .. } => vec![*parent],
        Problem::DatafileUnowned { owner, .. } => vec![*owner],
        Problem::DatafileMissing { datafile, .. } => vec![*datafile],
        Problem::DatafileOfAnother { datafile, owner, .. } => vec![*datafile, *owner],
        Problem::StreamMissing { stream } | Problem::StreamUnowned { stream } => vec![*stream],
        Problem::ReapOfLiving(reap) => vec![reap.datafile],
        Problem::PooledUsed { datafile, .. } => vec![*datafile],
        Problem::Undecided { tx, .. } => vec![Handle(tx.0)],
        Problem::ShardMissing { dir, server } | Problem::ShardUnowned { dir, server } => {
            // A shard has the handle of its directory; it is lost with its server's store.
            vec![*dir, Handle::new(*server, FIRST)]
        }
        Problem::CountsWrong { dir, .. } => vec![*dir],
        Problem::SubfileMissing { file, .. } => vec![*file],
        Problem::SubfileStrange(entry) => vec![entry.handle],
        Problem::FileLost { stream, .. } => vec![*stream],
        // An older copy that was accepted lacks all later changes. Its own pools, and the pools of its
        // datafiles, began anew.
        Problem::GenerationBehind { stream, .. } => vec![*stream],
        Problem::BatchBehind { datafile, .. } => vec![*datafile],
        // Nothing is lost by its repair: it holds no byte, and nothing names it.
        Problem::PrecreatedUnowned { .. }
        | Problem::RowWrong(_)
        | Problem::RootMissing
        | Problem::LinksWrong { .. }
        | Problem::OrphanGone(_)
        | Problem::OrphanNamed(_)
        | Problem::LingeringAlone { .. }
        | Problem::LingeringUntimed(_)
        | Problem::XattrsUnowned(_)
        | Problem::EntryMisplaced { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    #[test]
    fn what_names_an_object_of_a_lost_store_comes_of_that_and_nothing_else_does() {
        // The samples' servers gave one store up each.
        let map = samples::map();
        let one = |counter| Handle::new(ServerId(1), counter);
        let missing = |datafile| Problem::DatafileMissing { object: one(1 << 41), datafile, generation: 1 };
        let problems = [missing(one(4096)), missing(one((1 << 40) + 4096)), Problem::RootMissing];
        let found = of_lost_stores(&problems, &map);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [ServerId(1)]);
        assert_eq!(kinds(&found[&ServerId(1)]), "1 datafile_missing");
        assert!(found[&ServerId(1)].contains(&problems[0]));
        // An empty datafile that was in reserve for a server whose pools began anew.
        let leaked = [Problem::PrecreatedUnowned { datafile: one(4096), pool: ServerId(1) }];
        assert!(of_lost_stores(&leaked, &map).is_empty());
        assert!(of_lost_stores(&[Problem::DirectoryMissing(Handle::ROOT)], &map).is_empty());
    }
}
