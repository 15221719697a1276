//! `shoal bounds --validate`: compares the simulated machine with the real machine, cell by cell. A *cell*
//! is one phase at one number of servers and clients.
//!
//! This check is a part of `shoal bounds`, and no experiment: it shows whether the simulation represents this
//! machine, before the simulation predicts anything. Each cell is measured twice: in a real run and in a
//! simulated run, with the same numbers of servers and clients, and the same store module (`memory` or
//! `disk`). The real run uses servers as `shoal up` starts them, and one thread for each client. The
//! simulated run uses the machine's file: the measured costs of this machine.
//!
//! ```text
//!   probes │ clusters with 1, 4, 16 clients │ probes │ … │ probes ─▶ machine's file ─▶ simulated cells
//! ```
//! The speed of a shared machine changes by a third within minutes. So the probes that measure the machine
//! alternate with the clusters, from the beginning to the end. The machine's file takes the usual (median)
//! value of the probes of that time. Repetitions go through all clusters, forwards and backwards. The
//! machine's file is made of the probes alone: no value of the model is fitted to these cells.

use super::measure::{self, Extent as Probes, Measuring};
use super::shelf;
use crate::lab::cli::Bounds;
use crate::lab::commands::bench::cluster::Cluster;
use crate::lab::native::Native;
use crate::{out, words};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_bench::compare::order;
use shoal_bench::progress::Progress;
use shoal_bench::validation::{Cell, Validation};
use shoal_bench::whole::names;
use shoal_bench::{
    Concurrency, IoOptions, IoPhase, PhaseResult, SmallOptions, Spread, Team, WholeOptions, Workload, plot,
};
use shoal_model::Machine;
use shoal_proto::Switches;
use shoal_sim::SyncModes;
use shoal_sim::machine::halved;
use shoal_sim::machine::phases::{self, Phase, WorkExtent};
use shoal_sim::machine::{ModuleKind, Simulated};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of a strip, as `shoal up` has it.
const STRIP_BYTES: u64 = 1 << 20;
/// The seed of all simulated runs.
const SEED: u64 = 1;

/// No repetition but the first begins after so long: a busy or slow machine must not make it last.
const REAL_MOST: Duration = Duration::from_secs(600);
/// Clusters between two rounds of the probes.
const BETWEEN: usize = 2;

/// The clusters.
struct Grid {
    servers: &'static [u16],
    clients: &'static [u16],
    repetitions: usize,
    /// Files of all clients together, at most so many of each.
    files: u32,
    files_each_max: u32,
    large_bytes: u64,
}

const WHOLE: Grid = Grid {
    servers: &[1, 2, 4, 8],
    clients: &[1, 4, 16],
    repetitions: 5,
    files: 4800,
    files_each_max: 1200,
    large_bytes: 16 << 20,
};
const QUICK: Grid = Grid {
    servers: &[2],
    clients: &[1, 4],
    repetitions: 1,
    files: 200,
    files_each_max: 100,
    large_bytes: 4 << 20,
};

/// One cluster.
#[derive(Clone, Copy)]
struct Shape {
    module: ModuleKind,
    servers: u16,
    clients: u16,
}

impl Grid {
    fn shapes(&self) -> Vec<Shape> {
        let mut all = Vec::new();
        for module in [ModuleKind::Memory, ModuleKind::Disk] {
            for &servers in self.servers {
                all.extend(self.clients.iter().map(|&clients| Shape { module, servers, clients }));
            }
        }
        all
    }

    fn extent(&self, clients: u16) -> WorkExtent {
        let files = (self.files / u32::from(clients)).clamp(1, self.files_each_max);
        WorkExtent { files, small_bytes: 8192, large_bytes: self.large_bytes, block_bytes: 1 << 20 }
    }
}

/// The real rates of a cluster, of all repetitions.
type Rates = Vec<(Phase, f64)>;

/// Both, and their errors.
pub fn run(args: &Bounds, folder: &Path) -> Result<ExitCode> {
    let grid = if args.quick { QUICK } else { WHOLE };
    let shapes = grid.shapes();
    let mut told = super::draw(args);
    let (machine, real) = match &args.machine {
        Some(words) => {
            let machine = shelf::take(words)?;
            check(&machine)?;
            (machine, real(args, &grid, &shapes, None, &mut *told)?)
        }
        None => {
            let place = shelf::place(args.out.as_deref())?;
            let mut measuring = Measuring::start(args, Probes::among_others(args.quick))?;
            let real = real(args, &grid, &shapes, Some(&mut measuring), &mut *told)?;
            let machine = measuring.machine()?;
            shelf::keep(&machine, &measure::remark(), &place)?;
            (machine, real)
        }
    };
    let mut validation = Validation::default();
    told(Progress::Begin { steps: shapes.len() as u64 });
    for (step, (shape, real)) in shapes.iter().zip(&real).enumerate() {
        told(Progress::Step { step: step as u64, what: shape.words("simulated"), repetition: 1 });
        let (rates, _) = phases::run(&shape.simulated(&machine), grid.extent(shape.clients))?;
        let cells = rates.iter().filter_map(|rate| cell(shape, rate, real));
        validation.cells.extend(cells);
    }
    told(Progress::End);
    let order = |cell: &Cell| Phase::ALL.iter().position(|phase| phase.name() == cell.phase);
    validation.cells.sort_by_key(order);
    report(args, &machine, &validation, folder)
}

fn check(machine: &Machine) -> Result<()> {
    if !machine.nodes.one_machine || machine.nodes.idle_us.is_none() {
        bail!(
            "machine {} is not this one, as `shoal bounds` measures it by now: leave --machine out, and it is measured",
            machine.name
        );
    }
    Ok(())
}

/// All repetitions of all clusters, and probes between them, where these are requested.
fn real(
    args: &Bounds,
    grid: &Grid,
    shapes: &[Shape],
    mut probes: Option<&mut Measuring>,
    told: &mut dyn FnMut(Progress),
) -> Result<Vec<Rates>> {
    let mut real: Vec<Rates> = shapes.iter().map(|_| Vec::new()).collect();
    let systems: Vec<&[Shape]> = shapes.chunks(grid.clients.len()).collect();
    let rounds = probes.as_ref().map_or(0, |_| systems.len().div_ceil(BETWEEN) * grid.repetitions + 1);
    told(Progress::Begin { steps: (shapes.len() * grid.repetitions + rounds) as u64 });
    let (begun, mut step) = (Instant::now(), 0);
    let mut tell = |what: String, repetition: usize| {
        told(Progress::Step { step, what, repetition });
        step += 1;
    };
    for repetition in 1..=grid.repetitions {
        if repetition > 1 && begun.elapsed() >= REAL_MOST {
            break;
        }
        for (turn, at) in order(systems.len(), repetition).into_iter().enumerate() {
            if let Some(probes) = probes.as_mut().filter(|_| turn % BETWEEN == 0) {
                tell("machine".to_owned(), repetition);
                probes.round(&mut |_| ())?;
            }
            let cluster = start(&args.folder, &systems[at][0])?;
            let clients = systems[at].len();
            for one in (0..clients).map(|one| (one + repetition) % clients) {
                let shape = &systems[at][one];
                tell(shape.words("real"), repetition);
                cluster.rest();
                real[at * clients + one].extend(measure(&cluster, shape, &grid.extent(shape.clients))?);
            }
            cluster.stop()?;
        }
    }
    if let Some(probes) = probes {
        tell("machine".to_owned(), grid.repetitions);
        probes.round(&mut |_| ())?;
    }
    Ok(real)
}

fn cell(shape: &Shape, rate: &phases::Rate, real: &[(Phase, f64)]) -> Option<Cell> {
    let samples: Vec<f64> = real.iter().filter(|(phase, _)| *phase == rate.phase).map(|(_, r)| *r).collect();
    Some(Cell {
        phase: rate.phase.name().to_owned(),
        module: module(shape.module).to_owned(),
        servers: shape.servers,
        clients: shape.clients,
        real_per_s: Spread::of(&samples)?,
        simulated_per_s: rate.per_s,
    })
}

fn module(kind: ModuleKind) -> &'static str {
    match kind {
        ModuleKind::Disk => "disk",
        ModuleKind::Memory => "memory",
        ModuleKind::Null => "null",
    }
}

impl Shape {
    fn words(&self, how: &str) -> String {
        let Shape { module: kind, servers, clients } = self;
        format!("{how}, {}, {servers} servers, {clients} clients", module(*kind))
    }

    fn simulated<'a>(&self, machine: &'a Machine) -> Simulated<'a> {
        Simulated {
            machine,
            servers: self.servers,
            metadata_only: 0,
            client_nodes: self.clients,
            processes: self.clients.into(),
            switches: Switches::default(),
            sync_modes: SyncModes::default(),
            module: self.module,
            strip: STRIP_BYTES,
            seed: SEED,
        }
    }
}

/// A cluster, for all numbers of clients.
fn start(folder: &Path, shape: &Shape) -> Result<Cluster> {
    let strip = STRIP_BYTES.to_string();
    let words = ["--module", module(shape.module), "--strip", &strip];
    Cluster::start(Some(folder), shape.servers, &words)
}

/// All phases of a real cluster.
fn measure(cluster: &Cluster, shape: &Shape, extent: &WorkExtent) -> Result<Vec<(Phase, f64)>> {
    let target = Native::new("native", cluster.place()?).uncached();
    let run = |workload: Workload| {
        let team = Team { workers: shape.clients.into(), concurrency: Concurrency::Threads };
        anyhow::Ok(team.run(&target, &workload)?.phases)
    };
    let files = u64::from(extent.files);
    let whole = run(Workload::Whole(WholeOptions { files, bytes: 0 }))?;
    let small = SmallOptions { files, bytes: extent.small_bytes, ..SmallOptions::default() };
    let small = run(Workload::Small(small))?;
    let large = IoOptions {
        bytes: extent.large_bytes,
        block: extent.block_bytes,
        phases: vec![IoPhase::Write, IoPhase::Read],
        ..IoOptions::default()
    };
    let large = run(Workload::Io(large))?;
    let of = [
        (Phase::Create, &whole, names::CREATE_EMPTY),
        (Phase::Stat, &whole, names::STAT),
        (Phase::Remove, &whole, names::REMOVE),
        (Phase::Write, &small, "write"),
        (Phase::Read, &small, "read"),
        (Phase::LargeWrite, &large, "write"),
        (Phase::LargeRead, &large, "read"),
    ];
    of.into_iter().map(|(phase, all, name)| Ok((phase, rate(all, name)?))).collect()
}

fn rate(all: &[PhaseResult], name: &str) -> Result<f64> {
    let phase = all.iter().find(|phase| phase.phase == name);
    phase
        .and_then(PhaseResult::rate_wall)
        .with_context(|| format!("`{name}` was not measured: this is a bug"))
}

fn report(args: &Bounds, machine: &Machine, validation: &Validation, folder: &Path) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut written: Vec<PathBuf> = Vec::new();
    for (name, text) in
        [("validation.csv", validation.to_csv()), ("validation.svg", plot::svg(&validation.figure())?)]
    {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    let sensitivity = if args.sensitivity { sensitivity(args, machine)? } else { Vec::new() };
    if args.json {
        out::json(&json!({
            "cells": validation.cells,
            "median_error": validation.median_error(),
            "share_within": validation.share_within(),
            "passes": validation.passes(),
            "sensitivity": sensitivity,
            "files": written,
        }))?;
    } else {
        tell(validation, &sensitivity)?;
        written.iter().try_for_each(|path| out::line(format!("written: {}", path.display())))?;
    }
    // A look at few files says nothing about the model.
    Ok(if args.quick || validation.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(validation: &Validation, sensitivity: &[Sensitive]) -> Result<()> {
    let mut table = words::table(&[
        "phase",
        "module",
        "servers",
        "clients",
        "real/s",
        "least–most",
        "simulated/s",
        "error",
        "",
    ]);
    for row in validation.rows() {
        table.add_row(row);
    }
    out::line(words::plain(&table))?;
    for phase in validation.phases() {
        out::line(format!("{phase:<12} {}", validation.of_phase(phase).verdict()))?;
    }
    out::line(format!("{:<12} {}", "all", validation.verdict()))?;
    if !sensitivity.is_empty() {
        let mut table = words::table(&["parameter", "phase", "- 50 %", "+ 50 %"]);
        for one in sensitivity {
            let percent = |change: f64| format!("{change:+.0} %");
            table.add_row([
                one.parameter.to_owned(),
                one.phase.to_owned(),
                percent(one.less_percent),
                percent(one.more_percent),
            ]);
        }
        out::line(format!("\n{}", words::plain(&table)))?;
    }
    Ok(())
}

/// How much a rate moves with a parameter.
#[derive(serde::Serialize)]
struct Sensitive {
    parameter: &'static str,
    phase: &'static str,
    less_percent: f64,
    more_percent: f64,
}

/// Four servers and clients, on disk: each parameter 50 % less, and more.
fn sensitivity(args: &Bounds, machine: &Machine) -> Result<Vec<Sensitive>> {
    let grid = if args.quick { QUICK } else { WHOLE };
    let shape = Shape { module: ModuleKind::Disk, servers: 4, clients: 4 };
    let rates = |machine: &Machine| phases::run(&shape.simulated(machine), grid.extent(4)).map(|done| done.0);
    let usual = rates(machine)?;
    let mut all = Vec::new();
    for parameter in halved::ALL {
        let less = rates(&parameter.scaled(machine, 0.5))?;
        let more = rates(&parameter.scaled(machine, 1.5))?;
        for ((usual, less), more) in usual.iter().zip(&less).zip(&more) {
            let change = |rate: f64| (rate / usual.per_s - 1.0) * 100.0;
            all.push(Sensitive {
                parameter: parameter.name,
                phase: usual.phase.name(),
                less_percent: change(less.per_s),
                more_percent: change(more.per_s),
            });
        }
    }
    Ok(all)
}
