//! Experiments under virtual time, in a terminal: `paper NAME|FILE [--scale S] [--quick] [--machine FILE]`; what `shoal paper` does, without the servers' program.

use shoal_experiment::run::{Amount, Memo, Run, SimulatedGround};
use shoal_experiment::{Experiment, tell};
use shoal_model::Machine;
use std::path::Path;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (mut names, mut amount, mut other) = (Vec::new(), Amount::default(), None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => amount.quick = true,
            "--scale" => amount.scale = Some(words.next().ok_or("--scale S")?.parse()?),
            "--machine" => other = Some(words.next().ok_or("--machine NAME")?),
            _ => names.push(word),
        }
    }
    let mut memo = Memo::default();
    for name in names {
        let experiment = match Path::new(&name).exists() {
            true => Experiment::read(Path::new(&name))?,
            false => Experiment::read(Path::new(&format!("experiments/{name}.toml")))?,
        };
        let named = other.as_ref().unwrap_or(&experiment.machine);
        let file = format!("machines/{named}.toml");
        let machine = match Path::new(&file).exists() {
            true => Machine::read(Path::new(&file))?,
            false => Machine::read(Path::new(named))?,
        };
        let run = Run { experiment: &experiment, amount, patience: Duration::from_secs(3000) };
        let outcome = run.go(&mut SimulatedGround { machine, seed: 1 }, &mut memo, &mut |_| {})?;
        println!("== {} ({:.1} s)", experiment.name, outcome.seconds);
        for row in tell::rows(&outcome) {
            println!("{}", row.join(" | "));
        }
        for checked in &outcome.checks {
            println!("- {}", tell::verdict(checked));
        }
    }
    Ok(())
}
