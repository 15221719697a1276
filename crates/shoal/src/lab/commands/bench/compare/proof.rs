//! `shoal bench compare --prove`: checks that the comparison finds a planted slowdown, and finds no
//! slowdown between equal programs.
//!
//! This program is compared twice: with itself, and with itself when every operation is followed by a few
//! percent of spinning. One client has one operation under way, and the servers keep all data in memory. So
//! an operation costs only processor time and wake-ups.
//!
//! A turn is fifty files, some ten milliseconds; its creates, reads and removes are judged together. On a
//! shared machine, two adjacent turns may differ by a fifth, and the middle of a thousand pairs by about a
//! percent. So a comparison takes a thousand pairs, on file systems that are made anew after every 250 pairs.

use super::{Extent, found, rounds};
use crate::lab::cli::BenchCompare;
use crate::lab::commands::bench::cluster::Scratch;
use crate::lab::commands::bench::running::this_program;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde_json::json;
use shoal_bench::Progress;
use shoal_bench::sides::{Both, Comparison, Rates, compare, through};
use shoal_bench::whole::names;
use std::process::ExitCode;

/// The phases that are judged, together: one message an operation. Stats right after the creates are answered
/// from the cache.
const PHASES: [&str; 3] = [names::CREATE, names::READ, names::REMOVE];
/// Their common name.
const ALL: &str = "create, read, remove";
/// The benchmark, and the storage module of its files.
const WORDS: [&str; 6] = ["small", "--whole", "--workers", "1", "--files", "50"];
const UP: [&str; 2] = ["--module", "memory"];
/// Rounds of a comparison where nothing is said, and how many of them the file systems stay up.
const ROUNDS: usize = 1000;
const TURNS: usize = 250;
/// Comparisons of each kind, at most.
const TIMES_MAX: usize = 1000;
/// With this many right results, it is proven.
const SHARE: f64 = 0.9;

/// One comparison.
#[derive(Serialize)]
struct Trial {
    planted_percent: f64,
    ratio: shoal_bench::Interval,
    told: Comparison,
    is_right: bool,
}

/// Compare.
pub(super) fn run(args: BenchCompare, times: usize) -> Result<ExitCode> {
    if times == 0 || times > TIMES_MAX {
        bail!("--prove {times}: comparisons of each kind are between 1 and {TIMES_MAX}");
    }
    if !(0.1..=1000.0).contains(&args.planted) {
        bail!("--planted {}: a planted slowdown is between 0.1 and 1000 percent", args.planted);
    }
    let args =
        BenchCompare { words: WORDS.map(str::to_owned).to_vec(), up: UP.map(str::to_owned).to_vec(), ..args };
    let folder = Scratch::new(args.own.folder.as_deref())?;
    let program = found(&this_program()?)?;
    let programs = [program.clone(), program];
    let plant = ["--plant".to_owned(), args.planted.to_string()];
    let plant: Vec<&str> = plant.iter().map(String::as_str).collect();
    let mut draw = crate::lab::commands::bench::draw(&args.own.tell);
    let extent = Extent { rounds: args.repeat.unwrap_or(ROUNDS), turns: args.turns.unwrap_or(TURNS) };
    let turns = 2 * extent.rounds as u64;
    draw(Progress::Begin { steps: 2 * turns * times as u64 });
    let mut trials = Vec::new();
    for trial in 0..2 * times {
        // In turn, so that a change of the machine affects both kinds.
        let own: &[&str] = if trial % 2 == 0 { &[] } else { &plant };
        let what = if trial % 2 == 0 { "with itself" } else { "with itself slowed" };
        let seen =
            rounds(&args, extent, &programs, [&[], own], folder.path(), &mut |step, _, repetition| {
                draw(Progress::Step { step: trial as u64 * turns + step, what: what.to_owned(), repetition });
            })?;
        let [a, b] = seen.map(|side| together(&side));
        let all = compare(&a?, &b?, args.least / 100.0);
        let both = all.into_iter().next().context("nothing was measured")?;
        trials.push(judged(both, if trial % 2 == 0 { 0.0 } else { args.planted }));
    }
    draw(Progress::End);
    tell(&args, extent, &trials)
}

/// The judged phases of each round as one.
fn together(side: &[Rates]) -> Result<Vec<Rates>> {
    let one = |rates: &Rates| {
        let rate = through(rates, &PHASES).context("a phase was not measured")?;
        Ok(vec![(ALL.to_owned(), "/s".to_owned(), rate)])
    };
    side.iter().map(one).collect()
}

fn judged(both: Both, planted_percent: f64) -> Trial {
    let wanted = if planted_percent > 0.0 { Comparison::Slower } else { Comparison::NoDifference };
    Trial { planted_percent, ratio: both.ratio, told: both.told, is_right: both.told == wanted }
}

/// Comparisons of a kind with the right result, and all of the kind.
fn share(trials: &[Trial], is_planted: bool) -> (usize, usize) {
    let of_kind = || trials.iter().filter(|trial| (trial.planted_percent > 0.0) == is_planted);
    (of_kind().filter(|trial| trial.is_right).count(), of_kind().count())
}

fn is_proven(trials: &[Trial]) -> bool {
    [true, false]
        .into_iter()
        .map(|kind| share(trials, kind))
        .all(|(right, all)| right as f64 >= SHARE * all as f64)
}

fn tell(args: &BenchCompare, extent: Extent, trials: &[Trial]) -> Result<ExitCode> {
    let (found, planted) = share(trials, true);
    let (unmoved, equal) = share(trials, false);
    if args.own.tell.json {
        out::json(&json!({
            "rounds": extent.rounds, "turns": extent.turns, "trials": trials, "found": found, "planted": planted,
            "unmoved": unmoved, "equal": equal, "is_proven": is_proven(trials),
        }))?;
    } else {
        for trial in trials {
            let planted = trial.planted_percent;
            out::line(format!("planted {planted:>4} %: B to A {}: {}", trial.ratio.as_ratio(), trial.told))?;
        }
        out::line(format!(
            "a slowdown of {} % was found {found} times of {planted}; equal programs were found equal {unmoved} times of {equal}",
            args.planted
        ))?;
    }
    Ok(if is_proven(trials) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ratio: f64, planted_percent: f64) -> Trial {
        let a: Vec<f64> = (0..10).map(|n| 100.0 + f64::from(n % 3)).collect();
        let b: Vec<f64> = a.iter().map(|rate| rate * ratio).collect();
        let round =
            |rates: &[f64]| rates.iter().map(|&r| vec![(ALL.into(), "/s".into(), r)]).collect::<Vec<_>>();
        let both = compare(&round(&a), &round(&b), 0.01).remove(0);
        judged(both, planted_percent)
    }

    #[test]
    fn what_is_not_found_and_what_is_found_where_there_is_nothing_both_fail() {
        let proof = |found: usize, unmoved: usize| -> Vec<Trial> {
            let planted = (0..10).map(|n| trial(if n < found { 0.95 } else { 1.0 }, 5.0));
            let equal = (0..10).map(|n| trial(if n < unmoved { 1.0 } else { 0.9 }, 0.0));
            planted.chain(equal).collect()
        };
        assert!(is_proven(&proof(10, 10)) && is_proven(&proof(9, 9)));
        assert!(!is_proven(&proof(8, 10)), "a slowdown was missed twice");
        assert!(!is_proven(&proof(10, 8)), "a difference was reported twice where there is none");
    }

    #[test]
    fn who_is_told_to_be_faster_was_not_found_slower() {
        assert!(!trial(1.1, 5.0).is_right);
        assert!(trial(0.9, 5.0).is_right);
    }
}
