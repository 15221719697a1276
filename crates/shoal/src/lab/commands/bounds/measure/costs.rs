//! The costs of an operation for our servers and clients, from throwaway file systems.
//!
//! Clients make empty files, stat and remove them, and list them with attributes; the processor time of
//! each side is divided by the number of operations. There are three file systems:
//!
//! 1. The first makes changes durable at fsync, so a slow disk costs no time there.
//! 2. The second makes changes durable at reply. The difference to the first is the cost of the call of a
//!    sync.
//! 3. The third keeps everything in memory. The difference to the first is the cost of the journal. On the
//!    third, a single client gives the cost of sleeping and waking, and large files give the cost of bytes.
//!
//! **A usual cost is that of some clients, of bytes as of operations.** With a lone client the servers fall
//! asleep between two pieces: their processor time has the sleeping and waking in it, for which a simulation
//! has costs by themselves, and would charge twice.
//!
//! **A part is taken from a whole of the same round.** The servers' time for bytes that go to a disk contains
//! the calls of other threads. Both are of one round: the least time of one round less the fewest calls of
//! another would be a cost that no round had. Costs of which none is a part of the other are picked each by
//! itself. A write that the serving thread makes itself is no call of another thread, and is not counted: the
//! simulation charges its copy alone.
//!
//! All three run while the machine is measured, and are idle between the rounds.

use super::call::FileCall;
use crate::lab::commands::bench::cluster::Cluster;
use crate::lab::native::Native;
use anyhow::{Context as _, Result};
use shoal_bench::fit::{Costs, OperationCosts};
use shoal_bench::io::{IoOptions, IoPhase};
use shoal_bench::whole::names;
use shoal_bench::{Concurrency, PhaseResult, SmallOptions, Spread, Team, WholeOptions, Workload};
use std::path::Path;
use std::time::Duration;

/// Clients that keep cores busy while costs are measured.
const CLIENTS: usize = 64;
/// Some clients: as costs usually are.
const FEW: usize = 8;
/// A call to a file costs at most so many times its own cost: else something else was measured.
const FILE_TIMES_MAX: f64 = 5.0;
/// Clients that list, each a directory of its own, with so many times the files of others.
const LISTING: usize = 4;
const LISTED_TIMES: u64 = 4;
/// The phase of `SmallOptions` that lists with attributes.
const LIST: &str = "readdirplus, written";
/// The phases of `IoOptions`.
const WRITE: &str = "write";
const READ: &str = "read";
/// Bytes of a large file.
const LARGE_BYTES: u64 = 16 << 20;

/// The costs of the phases of all rounds.
#[derive(Default)]
struct Phases(Vec<PhaseResult>);

impl Phases {
    /// An operation, of the rounds.
    fn us(&self, name: &str, pick: Pick, of: impl Fn(&PhaseResult) -> Option<f64>) -> Result<f64> {
        let of_name = self.0.iter().filter(|phase| phase.phase == name && phase.ops > 0);
        pick.of(of_name.filter_map(|phase| Some(of(phase)? / phase.ops as f64)), name)
    }

    fn cpu_us(&self, name: &str, pick: Pick, side: Side) -> Result<f64> {
        self.us(name, pick, |phase| Some(side(phase.counts.as_ref()?) as f64))
    }

    /// A change: the cheapest, or the usual one, of which creates and removes are each a half.
    fn change_us(&self, pick: Pick, side: Side) -> Result<f64> {
        let (create_us, remove_us) =
            (self.cpu_us(names::CREATE_EMPTY, pick, side)?, self.cpu_us(names::REMOVE, pick, side)?);
        Ok(match pick {
            Pick::Least => create_us.min(remove_us),
            Pick::Usual => (create_us + remove_us) / 2.0,
        })
    }

    /// 10^6 bytes.
    fn megabyte_us(&self, name: &str, pick: Pick, side: Side) -> Result<f64> {
        let of_name = self.0.iter().filter(|phase| phase.phase == name && phase.bytes > 0);
        let each = of_name.filter_map(|p| Some(side(p.counts.as_ref()?) as f64 / (p.bytes as f64 / 1e6)));
        pick.of(each, name)
    }

    /// 10^6 bytes that go to files, of each round; and the writes of other threads among that.
    fn megabytes_cached(&self, name: &str, side: Side) -> impl Iterator<Item = (f64, f64)> {
        let of_name = self.0.iter().filter(move |phase| phase.phase == name && phase.bytes > 0);
        of_name.filter_map(move |phase| {
            let (counts, megabytes) = (phase.counts.as_ref()?, phase.bytes as f64 / 1e6);
            Some((side(counts) as f64 / megabytes, counts.thread_writes as f64 / megabytes))
        })
    }
}

/// The phases that move bytes. The removal of a large file is no usual change.
fn of_bytes(phases: Vec<PhaseResult>) -> impl Iterator<Item = PhaseResult> {
    phases.into_iter().filter(|phase| [WRITE, READ].contains(&&*phase.phase))
}

/// Which of the rounds counts.
#[derive(Clone, Copy)]
pub enum Pick {
    /// The least: it is to bound.
    Least,
    /// The median: it is to be simulated.
    Usual,
}

impl Pick {
    /// With many clients, each costs least; with some, the usual amount.
    fn crowd<T>(self, many: T, few: T) -> T {
        match self {
            Pick::Least => many,
            Pick::Usual => few,
        }
    }

    /// Of rounds that have two costs each, those of the round whose first cost counts; of an even number of
    /// rounds the cheaper one of the two in the middle.
    fn of_one(self, rounds: impl Iterator<Item = (f64, f64)>, name: &str) -> Result<(f64, f64)> {
        let mut rounds: Vec<(f64, f64)> = rounds.collect();
        rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let at = match self {
            Pick::Least => 0,
            Pick::Usual => rounds.len().saturating_sub(1) / 2,
        };
        rounds.get(at).copied().with_context(|| format!("`{name}` was not measured: this is a bug"))
    }

    fn of(self, rounds: impl Iterator<Item = f64>, name: &str) -> Result<f64> {
        let rounds: Vec<f64> = rounds.collect();
        let spread =
            Spread::of(&rounds).with_context(|| format!("`{name}` was not measured: this is a bug"))?;
        Ok(match self {
            Pick::Least => spread.min,
            Pick::Usual => spread.median,
        })
    }
}

/// One side's processor time.
type Side = fn(&shoal_bench::Counts) -> u64;

/// A throwaway file system, and its servers.
struct Measured {
    cluster: Cluster,
    target: Native,
}

impl Measured {
    fn start(folder: &Path, servers: u32, words: &[&str]) -> Result<Measured> {
        let cluster = Cluster::start(Some(folder), u16::try_from(servers)?, words)?;
        let target = Native::new("native", cluster.place()?).uncached().served_by(cluster.pids());
        Ok(Measured { cluster, target })
    }

    fn run(&self, workers: usize, workload: Workload) -> Result<Vec<PhaseResult>> {
        Ok(Team { workers, concurrency: Concurrency::Threads }.run(&self.target, &workload)?.phases)
    }

    fn end(self) -> Result<()> {
        self.cluster.stop()
    }

    /// Run it; also returns how often servers' threads went to sleep, per operation.
    fn sleeping(&self, workers: usize, workload: Workload) -> Result<(Vec<PhaseResult>, f64)> {
        let slept = self.sleeps();
        let phases = self.run(workers, workload)?;
        let asked: u64 = phases.iter().map(|phase| phase.ops).sum();
        Ok((phases, (self.sleeps() - slept) as f64 / asked.max(1) as f64))
    }

    fn sleeps(&self) -> u64 {
        self.cluster.pids().iter().map(|&pid| shoal_bench::counts::sleeps_of(pid)).sum()
    }
}

/// The file systems, and all rounds on them.
pub struct Rounds {
    /// On disk, durable at fsync; the same, durable at reply; in memory.
    unsynced_system: Measured,
    synced_system: Measured,
    memory_system: Measured,
    /// Files of each client.
    files: u64,
    /// On disk, durable at fsync; large files of one client.
    disk: Phases,
    /// The same, and durable at reply: some clients.
    unsynced: Phases,
    synced: Phases,
    /// In memory: many clients (large files: one), some, and one.
    memory: Phases,
    few: Phases,
    alone: Phases,
    /// How often a server's thread went to sleep, an operation, when many asked, and some.
    sleeps: Vec<(f64, f64)>,
    calls: Vec<FileCall>,
}

impl Rounds {
    /// Start the file systems.
    pub fn start(folder: &Path, servers: u32, files: u64) -> Result<Rounds> {
        let start = |words: &[&str]| Measured::start(folder, servers, words);
        Ok(Rounds {
            unsynced_system: start(&["--metadata-sync", "fsync"])?,
            synced_system: start(&[])?,
            memory_system: start(&["--module", "memory"])?,
            files,
            disk: Phases::default(),
            unsynced: Phases::default(),
            synced: Phases::default(),
            memory: Phases::default(),
            few: Phases::default(),
            alone: Phases::default(),
            sleeps: Vec::new(),
            calls: Vec::new(),
        })
    }

    /// Measure everything once; a call of another thread for so long. Replies wait for no sync: the cores are
    /// measured.
    pub fn round(&mut self, folder: &Path, span: Duration) -> Result<()> {
        let (disk, synced, memory) = (&self.unsynced_system, &self.synced_system, &self.memory_system);
        let whole = |files| Workload::Whole(WholeOptions { files, bytes: 0 });
        let some = || whole(self.files * (CLIENTS / FEW) as u64);
        disk.cluster.rest();
        synced.cluster.rest();
        self.disk.0.extend(disk.run(CLIENTS, whole(self.files))?);
        self.unsynced.0.extend(disk.run(FEW, some())?);
        self.synced.0.extend(synced.run(FEW, some())?);
        let (files, bytes) = (self.files * LISTED_TIMES, 0);
        let small = SmallOptions { files, bytes, readdirplus: true, ..SmallOptions::default() };
        let listed = disk.run(LISTING, Workload::Small(small))?;
        self.disk.0.extend(listed.into_iter().filter(|phase| phase.phase == LIST));
        let (phases, slept_many) = memory.sleeping(CLIENTS, whole(self.files))?;
        self.memory.0.extend(phases);
        let (phases, slept_few) = memory.sleeping(FEW, some())?;
        self.few.0.extend(phases);
        self.sleeps.push((slept_many, slept_few));
        let phases = vec![IoPhase::Write, IoPhase::Read];
        let large = IoOptions { bytes: LARGE_BYTES, phases, ..IoOptions::default() };
        self.disk.0.extend(of_bytes(disk.run(1, Workload::Io(large.clone()))?));
        self.unsynced.0.extend(of_bytes(disk.run(FEW, Workload::Io(large.clone()))?));
        self.memory.0.extend(of_bytes(memory.run(1, Workload::Io(large.clone()))?));
        self.few.0.extend(of_bytes(memory.run(FEW, Workload::Io(large))?));
        self.alone.0.extend(memory.run(1, whole(self.files * CLIENTS as u64 / 8))?);
        self.calls.push(FileCall::measure(folder, span)?);
        disk.cluster.rest();
        Ok(())
    }

    /// End the file systems.
    pub fn end(self) -> Result<()> {
        [self.unsynced_system, self.synced_system, self.memory_system].into_iter().try_for_each(Measured::end)
    }

    /// The results so far.
    pub fn costs(&self, pick: Pick) -> Result<Costs> {
        Ok(Costs {
            client: self.side(pick, |counts| counts.client_cpu_us, true, WRITE, READ)?,
            server: self.side(pick, |counts| counts.server_cpu_us, false, READ, WRITE)?,
            alone_us: self.alone.us(names::STAT, pick, |phase| Some(phase.wall_ns as f64 / 1e3))?,
            server_sleeps: pick
                .of(self.sleeps.iter().map(|sleeps| pick.crowd(sleeps.0, sleeps.1)), "sleeps")?,
            file_us: self.file_us(pick)?,
            file_alone_us: self.file_alone_us()?,
        })
    }

    /// The cost of a file's call on another thread: at least its own; usually the additional cost of a group
    /// of changes that is made durable, because the serving thread wakes for it, too.
    fn file_us(&self, pick: Pick) -> Result<f64> {
        let least_us = Pick::Usual.of(self.calls.iter().map(|call| call.cpu_us), "calls")?;
        let Pick::Usual = pick else { return Ok(least_us) };
        let groups =
            self.synced.us(names::CREATE_EMPTY, pick, |phase| Some(phase.counts.as_ref()?.groups as f64))?;
        let of = |phases: &Phases| phases.cpu_us(names::CREATE_EMPTY, pick, |counts| counts.server_cpu_us);
        let further_us = of(&self.synced)? - of(&self.unsynced)?;
        Ok(if groups > 0.0 {
            (further_us / groups).clamp(least_us, FILE_TIMES_MAX * least_us)
        } else {
            least_us
        })
    }

    /// The cost of a listing in addition to its messages.
    fn entry_us(&self, pick: Pick, side: Side, look_us: f64) -> Result<f64> {
        let requests = self.disk.us(LIST, pick, |phase| Some(phase.counts.as_ref()?.requests as f64))?;
        Ok((self.disk.cpu_us(LIST, pick, side)? - requests * look_us).max(0.0))
    }

    fn file_alone_us(&self) -> Result<f64> {
        Pick::Usual.of(self.calls.iter().map(|call| call.alone_us), "calls")
    }

    /// `waits`: this side waits until the other has made a change durable, and is long asleep meanwhile; a
    /// server's part of that belongs to its calls.
    fn side(&self, pick: Pick, side: Side, waits: bool, write: &str, read: &str) -> Result<OperationCosts> {
        let (crowds, recorded) = match pick {
            // The cheapest of all: a single client has the caches to itself, many clients share work that is
            // done once for several.
            Pick::Least => (vec![&self.memory, &self.few, &self.alone], vec![&self.disk, &self.unsynced]),
            Pick::Usual => (vec![&self.few], vec![if waits { &self.synced } else { &self.unsynced }]),
        };
        let least = |of: &[&Phases], us: &dyn Fn(&Phases) -> Result<f64>| {
            of.iter().try_fold(f64::MAX, |least, phases| anyhow::Ok(us(phases)?.min(least)))
        };
        let (bytes_kept, bytes_cached) = match pick {
            Pick::Least => (vec![&self.few, &self.memory], vec![&self.unsynced, &self.disk]),
            Pick::Usual => (vec![&self.few], vec![&self.unsynced]),
        };
        let cached = bytes_cached.iter().flat_map(|phases| phases.megabytes_cached(WRITE, side));
        let (megabyte_cached_us, megabyte_calls) = pick.of_one(cached, WRITE)?;
        let look_us = least(&crowds, &|phases| phases.cpu_us(names::STAT, pick, side))?;
        let change_us = least(&crowds, &|phases| phases.change_us(pick, side))?;
        let recorded_us = least(&recorded, &|phases| phases.change_us(pick, side))?;
        Ok(OperationCosts {
            look_us,
            change_us,
            record_us: (recorded_us - change_us).max(0.0),
            entry_us: self.entry_us(pick, side, look_us)?,
            alone_us: self.alone.cpu_us(names::STAT, pick, side)?,
            megabyte_us: (
                least(&bytes_kept, &|phases| phases.megabyte_us(write, pick, side))?,
                least(&bytes_kept, &|phases| phases.megabyte_us(read, pick, side))?,
            ),
            // Of a server; not used for a client.
            megabyte_cached_us,
            megabyte_calls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_removal_of_a_large_file_counts_as_no_change() {
        let phase = |name: &str| PhaseResult { phase: name.to_owned(), ..PhaseResult::default() };
        let of_io = [WRITE, READ, names::REMOVE].map(phase).to_vec();
        assert!(of_bytes(of_io).map(|phase| phase.phase).eq([WRITE, READ]));
    }

    #[test]
    fn two_costs_of_which_one_is_a_part_of_the_other_are_of_one_round() {
        let rounds = [(900.0, 3.0), (700.0, 5.0), (800.0, 1.0), (950.0, 2.0)];
        let of = |pick: Pick, of: &[(f64, f64)]| pick.of_one(of.iter().copied(), "write");
        assert_eq!(of(Pick::Least, &rounds).unwrap(), (700.0, 5.0));
        assert_eq!(of(Pick::Usual, &rounds).unwrap(), (800.0, 1.0));
        assert_eq!(of(Pick::Usual, &rounds[..3]).unwrap(), (800.0, 1.0));
        assert!(of(Pick::Least, &[]).unwrap_err().to_string().contains("`write` was not measured"));
    }
}
