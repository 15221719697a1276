//! `shoal paper --fit` finds a machine's costs from published rows. `shoal paper --sensitivity` shows the
//! effect of each cost.

use super::{SEED, machine_of, run_of};
use crate::lab::cli::Paper;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_experiment::fit::{self, Sensitivity};
use shoal_experiment::run::{Memo, SimulatedGround};
use shoal_experiment::{Experiment, ExperimentOutcome, builtin};
use shoal_model::Machine;
use std::process::ExitCode;

/// Fit the machines of these experiments; the exit status is 1 where one did not come near.
pub fn fit(args: &Paper, experiments: &[Experiment]) -> Result<ExitCode> {
    let (mut all, mut are_near) = (Vec::new(), true);
    for experiment in experiments {
        let (machine, mut memo) = (machine_of(args, experiment)?, Memo::default());
        let fitted = fit::fit(experiment, &machine, &mut |experiment, machine| {
            simulated(args, experiment, machine, &mut memo)
        });
        let fitted =
            fitted.map_err(anyhow::Error::msg).with_context(|| format!("cannot fit {}", machine.name))?;
        if !args.json {
            out::line(format!(
                "{} fitted on {}:\n\n{}",
                machine.name,
                experiment.name,
                fit::fit_table(&fitted)
            ))?;
        }
        are_near &= fitted.is_near;
        all.push(json!({ "experiment": experiment.name, "machine": machine.name, "fit": fitted }));
    }
    if args.json {
        out::json(&all)?;
    }
    Ok(if are_near { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How an experiment's rates move with the costs that its machine was fitted with; `None` where it does not
/// run simulated, or nothing was fitted. Experiments that ask for the same runs share them.
pub fn sensitivity(args: &Paper, experiment: &Experiment, memo: &mut Memo) -> Result<Option<Sensitivity>> {
    let is_run = !experiment.workload.is_computed() && experiment.simulated.skip.is_empty();
    let costs = costs_of(experiment)?;
    if !is_run || costs.is_empty() {
        if !args.all {
            bail!(
                "{}: nothing of the machine {} was fitted, so nothing can be varied",
                experiment.name,
                experiment.machine
            );
        }
        return Ok(None);
    }
    let machine = machine_of(args, experiment)?;
    let told = fit::sensitivity(experiment, &costs, &machine, &mut |experiment, machine| {
        simulated(args, experiment, machine, memo)
    });
    let told = told.map_err(anyhow::Error::msg)?;
    if !args.json {
        out::line(fit::sensitivity_table(experiment, &told))?;
    }
    Ok(Some(told))
}

/// The fitted costs of an experiment's machine, by any experiment.
fn costs_of(experiment: &Experiment) -> Result<Vec<String>> {
    let fits = match experiment.fit.is_empty() {
        false => experiment.fit.clone(),
        true => {
            let all = builtin::all()?;
            all.into_iter()
                .filter(|other| other.machine == experiment.machine)
                .flat_map(|other| other.fit)
                .collect()
        }
    };
    Ok(fits.into_iter().map(|fit| fit.cost).collect())
}

/// One run of all that an experiment has, on a machine of its own.
fn simulated(
    args: &Paper,
    experiment: &Experiment,
    machine: &Machine,
    memo: &mut Memo,
) -> Result<ExperimentOutcome, String> {
    let mut ground = SimulatedGround { machine: machine.clone(), seed: SEED };
    let told = run_of(args, experiment).go(&mut ground, memo, &mut |_| {});
    told.map_err(|error| error.to_string())
}
