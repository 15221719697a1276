//! `shoal sim mutants`: runs the simulator with one planted bug at a time, until a check finds the bug. The
//! command exists only in a build with the feature `mutants`.

use crate::lab::cli::{SimMutants, SimSetup};
use crate::out;
use anyhow::{Result, bail};
use serde_json::json;
use shoal_proto::Switches;
use shoal_sim::{Mutant, RunReport};
use std::ops::ControlFlow;

/// Characters of a violation that the table shows.
const WORDS_MAX: usize = 160;

/// Hunt all that are wanted; whether all were caught.
pub fn run(args: &SimMutants) -> Result<bool> {
    let is_known = |word: &&String| Mutant::ALL.iter().any(|mutant| mutant.word() == *word);
    if let Some(unknown) = args.only.iter().find(|word| !is_known(word)) {
        let all: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.word()).collect();
        bail!("no such mutant: `{unknown}`; there are {}", all.join(", "));
    }
    let is_wanted =
        |mutant: &Mutant| args.only.is_empty() || args.only.iter().any(|word| word == mutant.word());
    let wanted: Vec<Mutant> = Mutant::ALL.iter().copied().filter(is_wanted).collect();
    if !args.json {
        out::line("| mutant | what it does | caught by seed | what was broken |\n|---|---|---|---|")?;
    }
    // With one set for all, the seed that catches a bug stays the same when combinations change; directories
    // split early.
    let mut setup = args.setup.clone();
    setup.switches.get_or_insert(Switches { split_entries: 16, ..Switches::OURS });
    let mut missed = 0;
    for &mutant in &wanted {
        let caught = hunt(mutant, args.seeds, args.jobs, &setup);
        missed += usize::from(caught.is_none());
        match args.json {
            true => out::json_line(&json!({
                "mutant": mutant.word(),
                "seed": caught.as_ref().map(|report| report.seed),
                "violations": caught.map(|report| report.violations),
            }))?,
            false => out::line(row(mutant, caught.as_ref(), args.seeds))?,
        }
    }
    if !args.json {
        out::line(format!("mutants: {} of {} caught ok", wanted.len() - missed, wanted.len()))?;
    }
    Ok(missed == 0)
}

/// Those that only a run of their own can catch: the workload leaves the sync modes as they are, its clients
/// are never idle for long, no two of them move directories into each other while a server is cut off, and
/// none has a kernel that keeps pages.
fn directed(mutant: Mutant) -> Option<fn(u64, Option<Mutant>) -> RunReport> {
    match mutant {
        Mutant::SetattrEarly | Mutant::ReadEarly => Some(shoal_sim::deferred::deferred_changes),
        Mutant::HomeShardOnly => Some(shoal_sim::directed::fsync_of_a_split_directory),
        Mutant::LingeringFreedEarly => Some(shoal_sim::removed::removed_by_another_client),
        Mutant::LockVotesEarly | Mutant::VoteWithoutLock => Some(shoal_sim::crossing::crossing_moves),
        Mutant::StayAtAddress => Some(shoal_sim::moving::a_server_moves),
        Mutant::LeaseNotRenewed => Some(shoal_sim::idle::removed_file_of_an_idle_client),
        Mutant::CountStandsStill => Some(shoal_sim::pages::pages_over_opens),
        _ => None,
    }
}

/// The first seed that catches it: broken with it, and not without.
fn hunt(mutant: Mutant, seeds: u64, jobs: Option<usize>, setup: &SimSetup) -> Option<RunReport> {
    if let Some(run) = directed(mutant) {
        let caught = |seed: &u64| run(*seed, None).violations.is_empty();
        let reports = (1..=seeds).filter(caught).map(|seed| run(seed, Some(mutant)));
        return reports.into_iter().find(|report| !report.violations.is_empty());
    }
    let mut config = setup.config();
    config.mutant = Some(mutant);
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let mut caught: Option<RunReport> = None;
    shoal_sim::soak(1..seeds + 1, jobs, &config, |report| {
        let is_first = caught.as_ref().is_none_or(|known| report.seed < known.seed);
        if !report.violations.is_empty() && is_first {
            let without = shoal_sim::guarded(report.seed, &setup.config());
            if without.violations.is_empty() {
                caught = Some(report);
            }
        }
        if caught.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    caught
}

fn row(mutant: Mutant, caught: Option<&RunReport>, seeds: u64) -> String {
    let (seed, words) = match caught {
        Some(report) => (report.seed.to_string(), report.violations.first().cloned().unwrap_or_default()),
        None => (format!("none of {seeds}"), "NOT CAUGHT".to_owned()),
    };
    let words: String = words.chars().take(WORDS_MAX).map(|c| if c == '|' { '/' } else { c }).collect();
    format!("| `{}` | {} | {seed} | {words} |", mutant.word(), mutant.about().trim())
}
