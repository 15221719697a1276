//! The machine's own rates, measured in the same run as a target. The target's figures are compared with
//! these rates.
//!
//! Two measurements follow each repetition over a target. The first is plain echo between processes as in the
//! target's run, with the sizes of each phase's messages ([`crate::probe::layout`]). The second, if the
//! target's changes are durable when they are answered, is syncs on the servers' disk, of as many bytes as a
//! journal write of that repetition had ([`crate::probe::group`]). Their medians, and the target's counts,
//! make each phase's bound ([`crate::bounds`]).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::bounds::{Cost, MachineRates, RateAndBound};
use crate::counts::Counts;
use crate::probe::group::{DiskSpeeds, Groups};
use crate::probe::layout::{Echo, Layout, MESSAGE_MAX, RoundTrips};
use crate::report::{PhaseResult, RunResult};
use crate::spread::Spread;
use crate::team::process::WorkerCommand;
use crate::workload::Workload;

/// How long each measurement lasts, each time.
const DURATION: Duration = Duration::from_millis(250);
/// Bytes of a message besides its data; of one that carries none.
const HEADERS: usize = 200;
/// Bytes of each further operation of a message besides its data.
const HEADERS_EACH: usize = 100;
/// A group where none was counted.
const GROUP_BYTES_MIN: u64 = 4096;

/// How a target is made, as far as bounds need to know.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSetting {
    /// Servers, their place and the kind of connection; `clients` is set by the run.
    pub layout: Layout,
    /// How echo servers are started.
    pub echo: WorkerCommand,
    /// A folder on the servers' disk; `None` where nothing is kept, or that is not known.
    pub folder: Option<PathBuf>,
    /// A change of metadata is durable when it is answered.
    pub metadata_durable: bool,
    /// Data is durable when its write is answered.
    pub data_durable: bool,
    /// The target that is the way through the kernel, by name (a pass-through mount).
    pub way: Option<String>,
}

/// One phase, next to its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldPhase {
    /// Its name.
    pub phase: String,
    /// Measured (the median, by the watch on the wall) and bound.
    pub held: RateAndBound,
    /// The cost of an operation.
    pub cost: Cost,
    /// The machine's rates: medians.
    pub machine: MachineRates,
    /// Bytes of a group of the journal.
    pub group_bytes: u64,
    /// Processor time of an operation, clients and servers together, microseconds; 0: not known.
    pub cpu_us: f64,
}

/// The messages of a phase, and whether it makes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    request: usize,
    reply: usize,
    waits_for_sync: bool,
    /// Operations of one message.
    batch: usize,
}

fn shape(phase: &str, workload: &Workload, setting: &TargetSetting) -> Shape {
    let is = |words: &[&str]| words.iter().any(|word| phase.starts_with(word));
    let (writes, reads) = (is(&["write", "create+write"]), is(&["read", "open+read"]) && !is(&["readdir"]));
    let changes = is(&["create", "remove", "mkdir", "rmdir"]);
    let (bytes, batch) = (workload.bytes_each(), workload.batch(phase));
    let headers = HEADERS + (batch - 1) * HEADERS_EACH;
    // A longer transfer takes several messages, each as long as one can be.
    let len = |carries: bool| (headers + if carries { batch * bytes } else { 0 }).min(MESSAGE_MAX);
    Shape {
        request: len(writes),
        reply: len(reads),
        waits_for_sync: changes && setting.metadata_durable || writes && setting.data_durable,
        batch,
    }
}

/// The machine's measurements for one target.
pub struct Beside {
    setting: TargetSetting,
    echo: Echo,
    groups: Option<Groups>,
    rounds: Vec<Round>,
    _home: crate::probe::Home,
}

/// Beside one repetition.
struct Round {
    echo: Vec<(usize, usize, RoundTrips)>,
    /// By operations of a message: their groups differ in size.
    disk: Vec<(usize, DiskSpeeds)>,
}

impl Beside {
    /// Start the probes.
    pub fn new(setting: &TargetSetting, clients: usize) -> Result<Beside> {
        let temp = std::env::temp_dir();
        let home = crate::probe::Home::new(&temp)?;
        let echo = Echo::start(Layout { clients, ..setting.layout }, &setting.echo, &home.0)?;
        let wanted = setting.metadata_durable || setting.data_durable;
        let folder = setting.folder.as_ref().filter(|_| wanted);
        // One client has one change under way, whatever the number of servers.
        let writers = setting.layout.servers.min(clients);
        let groups = folder.map(|folder| Groups::new(folder, writers)).transpose()?;
        Ok(Beside { setting: setting.clone(), echo, groups, rounds: Vec::new(), _home: home })
    }

    /// Measure after this repetition.
    pub fn round(&mut self, workload: &Workload, run: &RunResult) -> Result<()> {
        let mut echo: Vec<(usize, usize, RoundTrips)> = Vec::new();
        let mut disk: Vec<(usize, DiskSpeeds)> = Vec::new();
        for phase in &run.phases {
            let Shape { request, reply, batch, .. } = shape(&phase.phase, workload, &self.setting);
            if !echo.iter().any(|(a, b, _)| (*a, *b) == (request, reply)) {
                echo.push((request, reply, self.echo.measure(request, reply, DURATION)?));
            }
            if let (Some(groups), false) = (&self.groups, disk.iter().any(|(b, _)| *b == batch)) {
                let likewise = run.phases.iter().filter(|one| workload.batch(&one.phase) == batch);
                disk.push((batch, groups.measure(group_bytes(likewise), DURATION)?));
            }
        }
        self.rounds.push(Round { echo, disk });
        Ok(())
    }

    /// Every phase next to its bound; `way_per_s`: the rate of a phase on the way's target.
    pub fn hold(
        &self,
        workload: &Workload,
        runs: &[RunResult],
        way_per_s: impl Fn(&str) -> f64,
    ) -> Vec<HeldPhase> {
        let names = workload.phases().into_iter().map(|(name, _)| name);
        let hold = |(index, name): (usize, String)| {
            let phases: Vec<&PhaseResult> = runs.iter().filter_map(|run| run.phases.get(index)).collect();
            let rates: Vec<f64> = phases.iter().filter_map(|phase| phase.rate_wall()).collect();
            let measured = Spread::of(&rates)?.median;
            let shape = shape(&name, workload, &self.setting);
            let machine = self.machine(shape, way_per_s(&name));
            let (ops, counts) = all(&phases);
            let cost = cost(self.echo.layout().clients, shape, ops, counts, machine.way_per_s > 0.0);
            Some(HeldPhase {
                phase: name,
                held: RateAndBound::new(measured, &cost, &machine),
                cost,
                machine,
                group_bytes: self.rounds.last().map_or(0, |round| round.disk(shape.batch).group_bytes),
                cpu_us: counts.map_or(0.0, |counts| counts.cpu_us() as f64 / ops.max(1) as f64),
            })
        };
        names.enumerate().filter_map(hold).collect()
    }

    /// The layout, with its clients.
    pub fn layout(&self) -> Layout {
        self.echo.layout()
    }

    fn machine(&self, shape: Shape, way_per_s: f64) -> MachineRates {
        let of = |pick: &dyn Fn(&Round) -> Option<f64>| {
            let values: Vec<f64> = self.rounds.iter().filter_map(pick).collect();
            Spread::of(&values).map_or(0.0, |spread| spread.median)
        };
        let echo = |round: &Round| {
            let found = round.echo.iter().find(|(a, b, _)| (*a, *b) == (shape.request, shape.reply));
            found.map(|(_, _, measured)| *measured)
        };
        MachineRates {
            trip_us: of(&|round| Some(echo(round)?.median_us)),
            echo_per_s: of(&|round| Some(echo(round)?.per_s)),
            sync_us: of(&|round| Some(round.disk(shape.batch).sync_us)),
            disk_mb_per_s: of(&|round| Some(round.disk(shape.batch).mb_per_s)),
            way_per_s,
        }
    }
}

impl Round {
    /// The disk's rate with groups of so many operations; none where nothing was kept.
    fn disk(&self, batch: usize) -> DiskSpeeds {
        self.disk.iter().find(|(one, _)| *one == batch).map_or_else(DiskSpeeds::default, |(_, disk)| *disk)
    }
}

/// The size of the groups of some phases, all together that had some.
fn group_bytes<'a>(phases: impl Iterator<Item = &'a PhaseResult>) -> u64 {
    let counts = phases.filter_map(|phase| phase.counts);
    counts.fold(Counts::default(), |all, counts| all.and(&counts)).group_bytes().max(GROUP_BYTES_MIN)
}

fn all(phases: &[&PhaseResult]) -> (u64, Option<Counts>) {
    let ops = phases.iter().map(|phase| phase.ops).sum();
    let counts = phases.iter().filter_map(|phase| phase.counts);
    (ops, counts.reduce(|all, counts| all.and(&counts)))
}

/// Messages and bytes are those counted; through a mount there may be none, as the kernel knows.
fn cost(clients: usize, shape: Shape, ops: u64, counts: Option<Counts>, is_mount: bool) -> Cost {
    let each = |n: u64| n as f64 / ops.max(1) as f64;
    let counted = counts.map(|counts| each(counts.requests));
    // A count includes messages between servers and the requests for the counts: the nearest whole number is
    // right. A batch goes to all its servers at once; only items that are not on the server of their name
    // take a second message.
    let round_trips = match counted {
        _ if shape.batch > 1 => 1.0 / shape.batch as f64,
        Some(n) if (0.9..1.1).contains(&n) => 1.0,
        Some(n) if n > 0.0 => n,
        Some(_) if is_mount => 0.0,
        _ => 1.0,
    };
    let bytes = if shape.waits_for_sync { counts.map_or(0.0, |counts| each(counts.disk_bytes)) } else { 0.0 };
    let syncs = if shape.waits_for_sync { 1.0 / shape.batch as f64 } else { 0.0 };
    Cost { clients, round_trips, syncs, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Limit;
    use crate::many::ManyOptions;
    use crate::probe::layout::{Connection, Servers};
    use crate::report::Unit;
    use crate::whole::{WholeOptions, names};

    fn setting() -> TargetSetting {
        TargetSetting {
            layout: Layout { clients: 1, servers: 2, place: Servers::Threads, connection: Connection::Queue },
            echo: WorkerCommand { program: "/nonexistent".into(), args: Vec::new() },
            folder: Some(std::env::temp_dir()),
            metadata_durable: true,
            data_durable: true,
            way: None,
        }
    }

    fn run(workload: &Workload) -> RunResult {
        let counts = Counts {
            requests: 104,
            groups: 10,
            journal_bytes: 90_000,
            disk_bytes: 1_000_000,
            server_cpu_us: 3000,
            ..Counts::default()
        };
        let phase = |(phase, unit): (String, Unit)| PhaseResult {
            phase,
            unit,
            ops: 100,
            bytes: 0,
            longest_ns: 1_000_000,
            rank0_ns: 1_000_000,
            wall_ns: 2_000_000,
            counts: Some(counts),
        };
        RunResult { phases: workload.phases().into_iter().map(phase).collect() }
    }

    #[test]
    fn messages_have_the_sizes_of_their_phase() {
        let workload = Workload::Whole(WholeOptions::default());
        let sizes = |phase: &str| {
            let shape = shape(phase, &workload, &setting());
            (shape.request > 8192, shape.reply > 8192, shape.waits_for_sync)
        };
        assert_eq!(sizes(names::CREATE), (true, false, true));
        assert_eq!(sizes(names::READ), (false, true, false));
        assert_eq!(sizes("write"), (true, false, true));
        assert_eq!(sizes("read"), (false, true, false));
        for phase in ["readdir+stat, empty", "readdirplus, empty", names::STAT, "close"] {
            assert_eq!(sizes(phase), (false, false, false), "{phase}");
        }
        for phase in ["create", names::REMOVE, "mkdir", "rmdir", names::CREATE_EMPTY] {
            assert_eq!(sizes(phase), (false, false, true), "{phase}");
        }
    }

    #[test]
    fn a_batch_is_one_message_and_shares_one_sync() {
        let workload = Workload::Many(ManyOptions { batch: 50, bytes: 1000, ..ManyOptions::default() });
        let batch = shape("write_many", &workload, &setting());
        assert_eq!((batch.request, batch.reply), (200 + 49 * 100 + 50_000, 200 + 49 * 100));
        let counts = Counts { requests: 20, disk_bytes: 2_000_000, ..Counts::default() };
        let cost = cost(1, batch, 1000, Some(counts), false);
        assert_eq!((cost.round_trips, cost.syncs, cost.bytes), (0.02, 0.02, 2000.0));
        let large = Workload::Many(ManyOptions { batch: 500, ..ManyOptions::default() });
        assert_eq!(shape("read_many", &large, &setting()).reply, MESSAGE_MAX);
        assert_eq!(shape("write", &large, &setting()).batch, 1, "one by one");
    }

    #[test]
    fn every_phase_is_held_against_what_was_measured_beside_it() {
        let workload = Workload::Whole(WholeOptions::default());
        let run = run(&workload);
        let mut beside = Beside::new(&setting(), 3).expect("started");
        beside.round(&workload, &run).expect("measured");
        let held = beside.hold(&workload, &[run], |_| 0.0);
        assert_eq!(held.len(), workload.phases().len());
        let find = |name: &str| held.iter().find(|one| one.phase == name).expect("held");
        let create = find(names::CREATE);
        assert_eq!((create.cost.round_trips, create.cost.syncs, create.cost.bytes), (1.0, 1.0, 10_000.0));
        assert_eq!((create.group_bytes, create.held.measured, create.cpu_us), (9_000, 50_000.0, 30.0));
        let terms = &create.held.bound.as_ref().expect("bounded").terms;
        assert_eq!(terms.len(), 3, "{terms:?}");
        let stat = find(names::STAT).held.bound.as_ref().expect("bounded");
        assert!(stat.among(&[Limit::Disk, Limit::Sync]).is_none(), "a stat waits for no disk: {stat:?}");
    }
}
