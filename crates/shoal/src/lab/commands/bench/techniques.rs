//! `shoal bench techniques`: compares the techniques of the small-file paper, each alone and all together,
//! with the baseline.
//!
//! A file system is made anew for each combination of switches and each repetition, with `shoal up`. Its
//! servers are threads of one process, the clients are threads of this process, and Unix sockets connect
//! them. Repetitions go through all combinations in turn, forwards and backwards. The paper's section IV
//! measured with 8 servers and up to 14 clients.

use super::cluster::Cluster;
use super::held::{self, Figure, Kept, Run};
use crate::cluster_file::ModuleName;
use crate::lab::cli::BenchTechniques;
use crate::lab::native::Native;
use crate::out;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde_json::json;
use shoal_bench::compare::order;
use shoal_bench::progress::Progress;
use shoal_bench::techniques::{COMBINATIONS, Study, TechniqueFigures};
use shoal_bench::workload::WORKERS_MAX;
use shoal_bench::{Concurrency, SmallOptions, Team, Workload};
use shoal_model::{Operation, Set};
use std::process::ExitCode;

/// The operation of a phase. Listing and asking for each entry's attributes is mostly the latter.
const PHASES: [(&str, Operation); 8] = [
    ("create", Operation::Create),
    ("write", Operation::Write),
    ("read", Operation::Read),
    ("readdir+stat, empty", Operation::Stat),
    ("readdir+stat, written", Operation::Stat),
    ("readdirplus, empty", Operation::ListEntry),
    ("readdirplus, written", Operation::ListEntry),
    ("remove", Operation::Remove),
];

/// Measure.
pub fn run(mut args: BenchTechniques) -> Result<ExitCode> {
    if args.short {
        (args.servers, args.clients, args.files, args.repeat) = (2, vec![1, 4], 40, 1);
    }
    if let Some(wrong) = args.clients.iter().find(|&&n| n == 0 || n > WORKERS_MAX) {
        bail!("--clients {wrong}: clients are between 1 and {WORKERS_MAX}");
    }
    if args.repeat == 0 {
        bail!("--repeat 0 measures nothing: use 1 or more");
    }
    let kept = Kept::read()?;
    let mut draw = super::draw(&args.own.tell);
    let turns = COMBINATIONS.len() * args.clients.len() * args.repeat;
    draw(Progress::Begin { steps: turns as u64 });
    let mut study = Study::default();
    let mut step = 0;
    for repetition in 1..=args.repeat {
        for words in order(COMBINATIONS.len(), repetition).into_iter().map(|at| COMBINATIONS[at]) {
            for &clients in &args.clients {
                draw(Progress::Step { step, what: format!("{words}, {clients} clients"), repetition });
                step += 1;
                let run = measure(&args, words, clients);
                study.add(words, clients, run.with_context(|| format!("{words}, {clients} clients"))?);
            }
        }
    }
    draw(Progress::End);
    tell(&args, &study.outcome(), &kept)
}

/// Of the three whole sets; the cost of a single technique was not counted.
fn figures(args: &BenchTechniques, outcome: &TechniqueFigures) -> Vec<Figure> {
    let is_durable = matches!(args.module, ModuleName::Disk);
    let mut figures = Vec::new();
    for cell in &outcome.cells {
        let set = Set::all().iter().find(|set| set.word() == cell.switches);
        let operation = PHASES.iter().find(|(phase, _)| *phase == cell.phase);
        if let (Some(&set), Some(&(_, operation))) = (set, operation) {
            let run = Run { servers: args.servers, clients: cell.clients, is_durable };
            let what = format!("{}, {}, {} clients", cell.switches, cell.phase, cell.clients);
            figures.push(Figure::of(what, cell.per_s.median, operation, set, run));
        }
    }
    figures
}

fn measure(args: &BenchTechniques, words: &str, clients: usize) -> Result<shoal_bench::RunResult> {
    let module = args.module.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let up = ["--module", &module, "--switches", words];
    let cluster = Cluster::start(args.own.folder.as_deref(), args.servers, &up)?;
    let target = Native::new(words, cluster.place()?).uncached().served_by(cluster.pids());
    let files = (args.files / clients).max(1) as u64;
    let workload = Workload::Small(SmallOptions { files, readdirplus: true, ..SmallOptions::default() });
    let team = Team { workers: clients, concurrency: Concurrency::Threads };
    let run = team.run(&target, &workload)?;
    cluster.stop()?;
    Ok(run)
}

fn tell(args: &BenchTechniques, outcome: &TechniqueFigures, kept: &Kept) -> Result<ExitCode> {
    if let Some(path) = &args.markdown {
        std::fs::write(path, outcome.to_markdown())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let held = kept.hold(figures(args, outcome));
    match args.own.tell.json {
        true => out::json(&json!({ "cells": outcome.cells, "checks": outcome.checks, "bounds": held }))?,
        false => {
            out::bytes(outcome.to_markdown().as_bytes())?;
            held::tell(&held, args.held.explain)?;
        }
    }
    // A look at few files says nothing about shapes.
    Ok(if args.short || outcome.has_the_papers_shape() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
