//! `shoal paper`: the experiments of papers, run and compared with the published figures.

mod fits;
mod ground;
pub mod origin;

use super::bounds::shelf;
use crate::lab::cli::Paper;
use crate::{out, words};
use anyhow::{Context as _, Result};
use comfy_table::CellAlignment;
use ground::RealGround;
use serde_json::{Value, json};
use shoal_bench::{Progress, progress};
use shoal_experiment::reproduction::{Reproduced, document, renewed};
use shoal_experiment::run::{Memo, SimulatedGround};
use shoal_experiment::{Amount, Experiment, ExperimentOutcome, Ground, Mode, Run, builtin, picture, tell};
use shoal_model::Machine;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Chance of simulated runs is drawn from this: one seed, one figure.
const SEED: u64 = 1;

/// Run experiments.
pub fn run(args: Paper) -> Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    let experiments = match args.all {
        true => builtin::all()?,
        false => args.names.iter().map(|name| builtin::find(name)).collect::<Result<_, _>>()?,
    };
    if args.fit {
        return fits::fit(&args, &experiments);
    }
    let earlier = args.beside.as_deref().map(earlier).transpose()?.unwrap_or_default();
    let mut work = Work { args: &args, memo: Memo::default(), draw: draw(&args), left: Vec::new(), earlier };
    let mut all = Vec::new();
    for experiment in experiments {
        all.push(work.experiment(experiment)?);
    }
    if let Some(path) = &args.reproduction {
        let old = if args.all { None } else { std::fs::read_to_string(path).ok() };
        let text = old.and_then(|old| renewed(&old, &all));
        write(path, &text.unwrap_or_else(|| document(&all, &command(&args, path))))?;
    }
    let left = std::mem::take(&mut work.left);
    if args.json {
        out::json(&all.iter().map(told_json).collect::<Vec<_>>())?;
    }
    for words in &left {
        eprintln!("shoal: {words}");
    }
    Ok(if left.is_empty() || args.quick { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(json: bool) -> Result<ExitCode> {
    let all = builtin::all()?;
    let of = |e: &Experiment| {
        json!({
            "name": e.name,
            "title": e.title,
            "reproduces": e.source.reproduces,
            "paper": e.source.paper,
            "workload": e.workload.word(),
            "machine": e.machine,
        })
    };
    if json {
        out::json(&all.iter().map(of).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = words::table(&["experiment", "paper", "reproduces", ""]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for e in &all {
        let reproduces = match e.source.reproduces.as_slice() {
            [first, .., last] => format!("{first} … {last}"),
            few => few.join(", "),
        };
        table.add_row([e.name.clone(), e.source.paper.clone(), reproduces, e.title.clone()]);
    }
    out::line(words::plain(&table))?;
    Ok(ExitCode::SUCCESS)
}

/// Progress, if it is wanted.
fn draw(args: &Paper) -> Box<dyn FnMut(Progress)> {
    if args.quiet { Box::new(|_| {}) } else { Box::new(progress::bar()) }
}

/// The words that write the document again.
fn command(args: &Paper, path: &Path) -> String {
    let mut words = vec!["shoal paper".to_owned()];
    words.push(if args.all { "--all".to_owned() } else { args.names.join(" ") });
    let flags = [
        ("--real", args.real),
        ("--simulated", args.simulated),
        ("--sensitivity", args.sensitivity),
        ("--quick", args.quick),
    ];
    words.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_owned()));
    words.extend(args.beside.as_ref().map(|path| format!("--beside {}", path.display())));
    words.extend(args.scale.map(|scale| format!("--scale {scale}")));
    words.extend(args.processes.map(|processes| format!("--processes {processes}")));
    words.push(format!("--reproduction {}", path.display()));
    words.join(" ")
}

fn told_json(told: &Reproduced) -> Value {
    json!({
        "experiment": told.experiment.name,
        "outcomes": told.outcomes.iter().map(|(outcome, _)| outcome).collect::<Vec<_>>(),
        "without": told.without,
        "sensitivity": told.sensitivity,
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The outcome of an experiment in an earlier run.
#[derive(serde::Deserialize)]
struct Earlier {
    experiment: String,
    outcomes: Vec<ExperimentOutcome>,
}

fn earlier(path: &Path) -> Result<Vec<Earlier>> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what `shoal paper --json` writes", path.display()))
}

/// An experiment as it is to be run.
fn run_of<'a>(args: &Paper, experiment: &'a Experiment) -> Run<'a> {
    let Paper { scale, processes, quick, repeat, .. } = *args;
    let amount = Amount { scale, processes, quick, repeat };
    Run { experiment, amount, patience: Duration::from_secs(args.patience) }
}

/// The simulated, or computed, subject.
fn machine_of(args: &Paper, experiment: &Experiment) -> Result<Machine> {
    shelf::take(args.machine.as_deref().unwrap_or(&experiment.machine))
}

/// The state over all experiments.
struct Work<'a> {
    args: &'a Paper,
    memo: Memo,
    draw: Box<dyn FnMut(Progress)>,
    /// Claims that do not hold.
    left: Vec<String>,
    /// The outcomes printed in addition to those of this run.
    earlier: Vec<Earlier>,
}

impl Work<'_> {
    fn modes(&self) -> Vec<Mode> {
        let is_both = self.args.reproduction.is_some() && !self.args.real && !self.args.simulated;
        let mut modes = Vec::new();
        if self.args.simulated || is_both || !self.args.real {
            modes.push(Mode::Simulated);
        }
        if self.args.real || is_both {
            modes.push(Mode::Real);
        }
        modes
    }

    fn experiment(&mut self, experiment: Experiment) -> Result<Reproduced> {
        let run = run_of(self.args, &experiment);
        let (mut outcomes, mut without) = (Vec::new(), Vec::new());
        if experiment.workload.is_computed() {
            outcomes.push(run.compute(&machine_of(self.args, &experiment)?)?);
        } else {
            for mode in self.modes() {
                let skip = &experiment.amounts(mode).skip;
                if !skip.is_empty() {
                    without.push(format!("no {} runs: {skip}", mode.word()));
                    continue;
                }
                let mut ground = self.ground(mode, &experiment)?;
                outcomes.push(run.go(ground.as_mut(), &mut self.memo, &mut self.draw)?);
            }
        }
        let here = origin::here();
        outcomes.iter_mut().for_each(|outcome| outcome.provenance = Some(here.clone()));
        self.beside(&experiment, &mut outcomes, &mut without);
        let mut told = Vec::new();
        for outcome in outcomes {
            let picture = self.keep(&experiment, &outcome)?;
            self.tell(&experiment, &outcome)?;
            told.push((outcome, picture));
        }
        if !self.args.json {
            without.iter().try_for_each(|words| out::line(format!("{}: {words}", experiment.name)))?;
        }
        let sensitivity = match self.args.sensitivity {
            true => fits::sensitivity(self.args, &experiment, &mut self.memo)?,
            false => None,
        };
        Ok(Reproduced { experiment, outcomes: told, without, sensitivity })
    }

    /// The outcomes of an earlier run, of the modes that are not run now; simulated ones first.
    fn beside(
        &mut self,
        experiment: &Experiment,
        outcomes: &mut Vec<ExperimentOutcome>,
        without: &mut Vec<String>,
    ) {
        if self.args.beside.is_none() || experiment.workload.is_computed() {
            return;
        }
        let of_this = |one: &&mut Earlier| one.experiment == experiment.name;
        let kept: Vec<ExperimentOutcome> = self
            .earlier
            .iter_mut()
            .filter(of_this)
            .flat_map(|one| std::mem::take(&mut one.outcomes))
            .collect();
        for mode in [Mode::Simulated, Mode::Real] {
            if self.modes().contains(&mode) {
                continue;
            }
            let skip = &experiment.amounts(mode).skip;
            match kept.iter().find(|outcome| outcome.mode == Some(mode)) {
                _ if !skip.is_empty() => without.push(format!("no {} runs: {skip}", mode.word())),
                None => without.push(format!("no {} runs were made", mode.word())),
                Some(outcome) => {
                    let mut outcome = outcome.clone();
                    outcome.judge(&experiment.check);
                    outcomes.push(outcome);
                }
            }
        }
        outcomes.sort_by_key(|outcome| outcome.mode == Some(Mode::Real));
    }

    fn ground(&self, mode: Mode, experiment: &Experiment) -> Result<Box<dyn Ground>> {
        Ok(match mode {
            Mode::Simulated => {
                Box::new(SimulatedGround { machine: machine_of(self.args, experiment)?, seed: SEED })
            }
            Mode::Real => Box::new(RealGround::new(
                self.args.folder.clone(),
                self.args.tmpfs.clone(),
                // Without it there are no bounds next to the measurements.
                shelf::take(shelf::THIS).ok(),
            )),
        })
    }

    /// Write CSV and SVG; the picture's path from the document, if there is one.
    fn keep(&self, experiment: &Experiment, outcome: &ExperimentOutcome) -> Result<Option<String>> {
        let mode = outcome.mode.map_or("computed", |mode| mode.word());
        let stem = format!("{}-{mode}", experiment.name);
        write(&self.args.out.join(format!("{stem}.csv")), &tell::csv(outcome))?;
        if let Some(text) = tell::seconds_csv(outcome) {
            write(&self.args.out.join(format!("{stem}-seconds.csv")), &text)?;
        }
        let drawn = picture::draw(experiment, outcome).map_err(anyhow::Error::msg)?;
        let Some(svg) = drawn else { return Ok(None) };
        write(&self.args.out.join(format!("{stem}.svg")), &svg)?;
        let Some(page) = &self.args.reproduction else { return Ok(None) };
        let name = PathBuf::from("figures").join(format!("{stem}.svg"));
        write(&page.parent().unwrap_or(Path::new("")).join(&name), &svg)?;
        Ok(Some(name.display().to_string()))
    }

    fn tell(&mut self, experiment: &Experiment, outcome: &ExperimentOutcome) -> Result<()> {
        let mode = outcome.mode.map_or("computed", |mode| mode.word());
        for checked in outcome.failures() {
            self.left.push(format!("{}, {mode}: {}", experiment.name, tell::verdict(checked)));
        }
        if self.args.json {
            return Ok(());
        }
        out::line(format!("{}: {}\n{}\n", experiment.name, experiment.title, experiment.claim.trim()))?;
        out::line(format!("{} ({:.1} s)\n{}", tell::how(outcome), outcome.seconds, tell::of(outcome)))?;
        let mut header = tell::COLUMNS;
        header[1] = &experiment.axis.label;
        let mut table = words::table(&header);
        for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| *at == 5) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        for row in tell::rows(outcome) {
            table.add_row(row);
        }
        out::line(words::plain(&table))?;
        out::line("")?;
        outcome.checks.iter().try_for_each(|checked| out::line(format!("- {}", tell::verdict(checked))))?;
        if outcome.mode == Some(Mode::Real) && outcome.machine.is_empty() {
            out::line(
                "no bounds: this machine was not measured yet; run `shoal bounds` once (under a minute)",
            )?;
        }
        out::line(format!(
            "written: {}\n",
            self.args.out.join(format!("{}-{mode}.*", experiment.name)).display()
        ))
    }
}
