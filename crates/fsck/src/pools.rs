//! Checks datafiles that were made ahead of need. Each such datafile is in the pool for which it was made,
//! or belongs to a file of that pool's server, or is used up.
//!
//! ```text
//!                       in the pool          a file's            in neither
//!   untouched           good                 good                leaked, unless its batch was just made
//!   used                given twice          good                good (gone)
//!   both at once        given twice
//! ```
//! A batch that its pool has not stored yet is not lost: the pool's server requests it again by its number.

use super::Problem;
use super::tables::Tables;
use shoal_proto::{Handle, ServerId};
use shoal_server::precreated;
use shoal_server::rows::{Batch, Range};
use std::collections::{BTreeMap, BTreeSet};

fn handles(range: &Range) -> impl Iterator<Item = Handle> + use<> {
    let first = range.first;
    (0..u64::from(range.count)).map(move |step| Handle(first.0.wrapping_add(step)))
}

fn untouched(first: Handle, batch: &Batch) -> impl Iterator<Item = Handle> {
    handles(&Range { first, count: batch.count }).filter(|handle| batch.has_untouched(*handle))
}

/// Whether a datafile lies ready for a file of this server, and has no rows of its own yet.
pub fn is_untouched_for(tables: &Tables, datafile: Handle, server: ServerId) -> bool {
    let batch = tables.batches.get(&precreated::first_of(datafile));
    batch.is_some_and(|batch| batch.pool == server && batch.has_untouched(datafile))
}

/// The problems of pools and batches.
pub fn check(tables: &Tables, found: &mut BTreeSet<Problem>) {
    let mut pooled: BTreeSet<(ServerId, Handle)> = BTreeSet::new();
    for ((server, _), pool) in &tables.pools {
        pooled.extend(pool.ranges.iter().flat_map(handles).map(|datafile| (*server, datafile)));
    }
    let listed = listed(tables);
    for &(server, datafile) in &pooled {
        let is_used = tables.datafiles.contains_key(&datafile) || !is_untouched_for(tables, datafile, server);
        if is_used || listed.contains_key(&datafile) {
            found.insert(Problem::PooledUsed { server, datafile });
        }
    }
    let asked_again = asked_again(tables);
    let reaped: BTreeSet<Handle> = tables.reaps.iter().map(|reap| reap.datafile).collect();
    for (&first, batch) in &tables.batches {
        let pool = batch.pool;
        for datafile in untouched(first, batch) {
            if tables.datafiles.contains_key(&datafile) || tables.streams.contains_key(&datafile) {
                found.insert(Problem::BatchBehind { datafile, pool });
                continue;
            }
            match listed.get(&datafile) {
                Some(objects) => shared_or_behind(tables, datafile, objects, found),
                None if pooled.contains(&(pool, datafile)) => {}
                None if reaped.contains(&datafile) || asked_again.contains(&datafile) => {}
                None => _ = found.insert(Problem::PrecreatedUnowned { datafile, pool }),
            }
        }
    }
}

/// The files that list each datafile.
fn listed(tables: &Tables) -> BTreeMap<Handle, Vec<Handle>> {
    let mut listed: BTreeMap<Handle, Vec<Handle>> = BTreeMap::new();
    for (&object, file) in &tables.objects {
        for &datafile in file.datafiles.iter().flatten() {
            listed.entry(datafile).or_default().push(object);
        }
    }
    listed
}

/// Datafiles of batches that their pools have not stored, and will ask for again.
fn asked_again(tables: &Tables) -> BTreeSet<Handle> {
    let is_ahead = |((at, asker), grant): &(&(ServerId, ServerId), &shoal_server::rows::Grant)| {
        let pool = tables.pools.get(&(*asker, *at));
        pool.is_some_and(|pool| pool.id == grant.pool && pool.sequence < grant.sequence)
    };
    tables.grants.iter().filter(is_ahead).flat_map(|(_, grant)| handles(&grant.range)).collect()
}

/// An untouched datafile belongs to the one file that lists it, and that file's generation is still its
/// layout's: an operation that began another one would have touched it.
fn shared_or_behind(tables: &Tables, datafile: Handle, objects: &[Handle], found: &mut BTreeSet<Problem>) {
    let [object, others @ ..] = objects else { return };
    for other in others {
        found.insert(Problem::DatafileOfAnother { object: *other, datafile, owner: *object });
    }
    let laid_out = tables.laid_out.get(object).copied().unwrap_or(0);
    let newest = tables.streams.get(object).map_or(0, |stream| stream.generation);
    if newest > laid_out {
        let (object, stream) = (*object, datafile);
        found.insert(Problem::GenerationBehind { object, stream, generation: 0, newest });
    }
}

/// Datafiles of one batch in no pool, that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unowned {
    /// The server for whose pool they were made.
    pub pool: ServerId,
    /// The first of them.
    pub first: Handle,
    /// How many.
    pub count: u16,
}

/// The datafiles that were made ahead of need and lie in no pool.
pub fn unowned_runs(problems: &BTreeSet<Problem>) -> Vec<Unowned> {
    let mut runs: Vec<Unowned> = Vec::new();
    for problem in problems {
        let Problem::PrecreatedUnowned { datafile, pool } = *problem else { continue };
        match runs.last_mut() {
            Some(run)
                if run.pool == pool
                    && run.first.0 + u64::from(run.count) == datafile.0
                    && precreated::first_of(run.first) == precreated::first_of(datafile) =>
            {
                run.count += 1;
            }
            _ => runs.push(Unowned { pool, first: datafile, count: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{InodeFields, Stream};
    use shoal_proto::Kind;
    use shoal_server::rows::{Grant, Pool};

    const ZERO: ServerId = ServerId(0);
    const ONE: ServerId = ServerId(1);
    const FILE: Handle = Handle::new(ZERO, 10);

    fn at(counter: u64) -> Handle {
        Handle::new(ONE, counter)
    }

    /// A batch of four of server 1 for server 0: one is a file's and used, one a file's, the others lie in
    /// the pool.
    fn good() -> Tables {
        let mut tables = Tables::default();
        let mut batch = Batch::new(ZERO, 4);
        batch.touch(at(1024));
        let mut pool = Pool::new(7);
        pool.add(1, Range { first: at(1024), count: 4 });
        pool.take();
        pool.take();
        let datafiles = Some(vec![FILE, at(1024), at(1025)]);
        tables.objects.insert(
            FILE,
            InodeFields { kind: Kind::File, nlink: 1, parent: Handle(0), datafiles, shard: None },
        );
        tables.laid_out.insert(FILE, 2);
        tables.datafiles.insert(at(1024), FILE);
        let stream = Stream { generation: 2, size: 10 };
        tables.streams.extend([(FILE, stream), (at(1024), stream)]);
        tables.batches.insert(at(1024), batch);
        let range = Range { first: at(1024), count: 4 };
        tables.grants.insert((ONE, ZERO), Grant { pool: 7, sequence: 1, range });
        tables.pools.insert((ZERO, ONE), pool);
        tables
    }

    /// The problems after a change, as words.
    fn after(change: impl FnOnce(&mut Tables)) -> Vec<&'static str> {
        let mut tables = good();
        change(&mut tables);
        let mut found = BTreeSet::new();
        check(&tables, &mut found);
        found.iter().map(Problem::word).collect()
    }

    fn pool(tables: &mut Tables) -> &mut Pool {
        tables.pools.get_mut(&(ZERO, ONE)).unwrap()
    }

    #[test]
    fn unused_datafiles_go_by_batch_where_they_follow_each_other() {
        let of = |counter, pool| Problem::PrecreatedUnowned { datafile: at(counter), pool };
        let next = precreated::BLOCK * 2;
        let problems = [
            of(1024, ZERO),
            of(1025, ZERO),
            of(1027, ZERO),
            of(next - 1, ZERO),
            of(next, ZERO),
            of(next + 1, ONE),
        ];
        let problems: BTreeSet<Problem> = problems.into_iter().chain([Problem::RootMissing]).collect();
        let runs: Vec<_> =
            unowned_runs(&problems).iter().map(|run| (run.first, run.count, run.pool)).collect();
        let one = |counter, pool| (at(counter), 1, pool);
        assert_eq!(
            runs,
            [(at(1024), 2, ZERO), one(1027, ZERO), one(next - 1, ZERO), one(next, ZERO), one(next + 1, ONE)]
        );
    }

    #[test]
    fn what_is_pooled_listed_or_used_up_is_no_problem() {
        assert!(after(|_| ()).is_empty());
        assert!(is_untouched_for(&good(), at(1025), ZERO) && !is_untouched_for(&good(), at(1024), ZERO));
        assert!(!is_untouched_for(&good(), at(1025), ONE), "made for another's files");
        // A batch whose answer was lost.
        assert!(
            after(|t| *pool(t) = Pool { sequence: 0, ranges: Vec::new().into(), ..pool(t).clone() })
                .is_empty()
        );
    }

    #[test]
    fn what_is_given_twice_leaked_or_behind_is_found() {
        let back = |t: &mut Tables, to| {
            let range = &mut pool(t).ranges[0];
            (range.first, range.count) = (at(to), (1028 - to) as u16);
        };
        assert_eq!(after(|t| back(t, 1025)), ["pooled_used"]);
        assert_eq!(after(|t| back(t, 1024)), ["pooled_used", "pooled_used"]);
        assert_eq!(after(|t| t.batches.clear()), ["pooled_used", "pooled_used"]);
        assert_eq!(after(|t| _ = pool(t).take()), ["precreated_unowned"]);
        assert_eq!(after(|t| pool(t).id = 8), Vec::<&str>::new());
        assert_eq!(after(|t| t.pools.clear()), ["precreated_unowned"; 2]);
        assert_eq!(after(|t| _ = t.datafiles.insert(at(1025), FILE)), ["batch_behind"]);
        assert_eq!(after(|t| t.streams.get_mut(&FILE).unwrap().generation = 3), ["generation_behind"]);
        let other = |t: &mut Tables| {
            let datafiles = Some(vec![at(1025)]);
            let object =
                InodeFields { kind: Kind::File, nlink: 1, parent: Handle(0), datafiles, shard: None };
            t.objects.insert(Handle::new(ZERO, 11), object);
        };
        assert_eq!(after(other), ["datafile_of_another"]);
    }
}
