//! `shoal sim`: runs of the whole cluster in one process under virtual time. The same seed repeats a run.

#[cfg(feature = "mutants")]
mod mutants;

use crate::lab::cli::{Sim, SimSetup, SimSoak};
use crate::{out, words};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use shoal_proto::Switches;
use shoal_sim::{CrashPoint, CrashPointCounts, Faults, Outcome, RunConfig, RunReport, crash_point};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Lines of the timeline that are kept for a story.
const LINES_KEPT: usize = 2_000_000;
/// Lines printed before a violation, and about its subject.
const LINES_TOLD: usize = 25;
/// Violations of one run that are printed with their lines.
const STORIES_TOLD: usize = 3;
/// Runs that broke a promise and are printed whole.
const RUNS_TOLD: usize = 5;

/// Run; 0 if every promise was kept.
pub fn run(args: Sim) -> Result<ExitCode> {
    let kept = match args {
        Sim::Run { seed, setup, json } => one(seed, &setup, json)?,
        Sim::Soak(args) => many(&args)?,
        Sim::Known { jobs, json } => known(jobs, json)?,
        Sim::Switches { covering, json } => combinations(covering, json)?,
        #[cfg(feature = "mutants")]
        Sim::Mutants(args) => mutants::run(&args)?,
        Sim::Replay { seed, setup, about, last, twice, json } => {
            Replay { seed, setup, about, last, twice, json }.run()?
        }
    };
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(seed: u64, setup: &SimSetup, json: bool) -> Result<bool> {
    let began = Instant::now();
    let report = shoal_sim::guarded(seed, &setup.config());
    let kept = report.violations.is_empty();
    if json {
        out::json(&as_json(&report, setup))?;
        return Ok(kept);
    }
    out::line(format!("{}; took {:.2} s", summary(&report), began.elapsed().as_secs_f64()))?;
    report.faults.iter().try_for_each(|fault| out::line(format!("  {fault}")))?;
    if !kept {
        tell(&report, setup)?;
    }
    Ok(kept)
}

fn combinations(covering: bool, as_json: bool) -> Result<bool> {
    let words = |all: Vec<Switches>| all.iter().map(Switches::to_string).collect::<Vec<_>>();
    let singles = if covering { Vec::new() } else { words(shoal_sim::combinations::singles()) };
    let pairs = words(shoal_sim::combinations::covering());
    match as_json {
        true => out::json(&json!({ "singles": singles, "covering": pairs }))?,
        false => singles.iter().chain(&pairs).try_for_each(out::line)?,
    }
    Ok(true)
}

fn summary(report: &RunReport) -> String {
    format!(
        "seed {} ({}; {}): {} ({} acknowledged, {} refused, {} of unknown outcome), {} ({}), {:.1} s of virtual time, trace {:016x}",
        report.seed,
        report.switches,
        shoal_sim::modes_words(report.modes),
        words::many(report.operations, "operation"),
        words::count(report.acknowledged),
        words::count(report.refused),
        words::count(report.unknown),
        words::many(report.mix.total().into(), "fault"),
        report.mix,
        report.took.as_secs_f64(),
        report.trace_hash,
    )
}

fn as_json(report: &RunReport, setup: &SimSetup) -> Value {
    json!({
        "seed": report.seed,
        "switches": report.switches.to_string(),
        "modes": shoal_sim::modes_words(report.modes),
        "trace": format!("{:016x}", report.trace_hash),
        "operations": report.operations,
        "acknowledged": report.acknowledged,
        "refused": report.refused,
        "unknown": report.unknown,
        "mix": mix_json(&report.mix),
        "faults": report.faults,
        "virtual_s": report.took.as_secs_f64(),
        "violations": report.violations,
        "repeat": setup.command(report.seed),
    })
}

fn mix_json(mix: &Faults) -> BTreeMap<&'static str, u32> {
    mix.iter().map(|(fault, count)| (fault.word(), count)).collect()
}

/// The promises that a run broke: the sentences, the command, and the log of each.
fn tell(report: &RunReport, setup: &SimSetup) -> Result<()> {
    out::line(format!("seed {} broke {}:", report.seed, promises(report.violations.len())))?;
    report.violations.iter().try_for_each(|violation| out::line(format!("  VIOLATION {violation}")))?;
    out::line(format!("  repeat it:  {}", setup.command(report.seed)))?;
    let lines = told_run(report.seed, setup).timeline;
    for violation in report.violations.iter().take(STORIES_TOLD) {
        out::line(format!("  what led to: {violation}"))?;
        story(&lines, violation).into_iter().try_for_each(|at| line(&lines[at]))?;
    }
    Ok(())
}

fn promises(count: usize) -> String {
    words::many(count as u64, "promise")
}

/// The same run once more, with its whole timeline.
fn told_run(seed: u64, setup: &SimSetup) -> RunReport {
    let mut config: RunConfig = setup.config();
    config.cluster.world.timeline = LINES_KEPT;
    shoal_sim::guarded(seed, &config)
}

/// The lines about a violation: the faults, those about the same names, and those just before.
fn story(lines: &[(u64, String)], violation: &str) -> Vec<usize> {
    let end = lines.iter().position(|(_, line)| line.contains(violation)).map_or(lines.len(), |at| at + 1);
    // Names are quoted, handles hexadecimal.
    let mut about: Vec<&str> = violation.split('"').skip(1).step_by(2).collect();
    let is_handle = |word: &&str| word.starts_with("0x") && word.len() > 4;
    about.extend(violation.split(|c: char| !c.is_alphanumeric()).filter(is_handle));
    let is_told = |line: &str| about.iter().any(|word| line.contains(word));
    let named: Vec<usize> = (0..end).filter(|&at| is_told(&lines[at].1)).collect();
    let mut told: Vec<usize> = named.iter().rev().take(LINES_TOLD).copied().collect();
    told.extend((0..end).filter(|&at| is_fault(&lines[at].1)));
    if named.is_empty() {
        told.extend(end.saturating_sub(LINES_TOLD)..end);
    }
    told.sort_unstable();
    told.dedup();
    told
}

fn is_fault(line: &str) -> bool {
    line.starts_with("fault: ") || line.ends_with(" starts") || line.ends_with(" crashes")
}

fn line((at, text): &(u64, String)) -> Result<()> {
    let mark = if is_fault(text) || text.contains("VIOLATION") { '!' } else { ' ' };
    out::line(format!("{mark} {:>14.6} s  {text}", Duration::from_nanos(*at).as_secs_f64()))
}

/// One run, as a log.
struct Replay {
    seed: u64,
    setup: SimSetup,
    about: Vec<String>,
    last: Option<usize>,
    twice: bool,
    json: bool,
}

impl Replay {
    /// Whether every promise was kept, and the second run, if there was one, was the same.
    fn run(&self) -> Result<bool> {
        let report = told_run(self.seed, &self.setup);
        // Whether lines are kept makes no difference, so the second run keeps none.
        let again = self.twice.then(|| shoal_sim::guarded(self.seed, &self.setup.config()));
        let same = again
            .as_ref()
            .map(|again| again.trace_hash == report.trace_hash && again.violations == report.violations);
        match self.json {
            true => self.tell_json(&report, same)?,
            false => self.tell(&report, again.as_ref().zip(same))?,
        }
        Ok(same.unwrap_or(true) && report.violations.is_empty())
    }

    /// The lines that are wanted.
    fn lines<'a>(&self, report: &'a RunReport) -> Vec<&'a (u64, String)> {
        let about = &self.about;
        let is_told =
            |(_, text): &&(u64, String)| about.is_empty() || about.iter().any(|word| text.contains(word));
        let mut lines: Vec<_> = report.timeline.iter().filter(is_told).collect();
        let from = self.last.map_or(0, |last| lines.len().saturating_sub(last));
        lines.split_off(from)
    }

    fn tell(&self, report: &RunReport, again: Option<(&RunReport, bool)>) -> Result<()> {
        self.lines(report).into_iter().try_for_each(line)?;
        out::line(summary(report))?;
        report.violations.iter().try_for_each(|violation| out::line(format!("VIOLATION {violation}")))?;
        match again {
            None => Ok(()),
            Some((_, true)) => out::line(format!("the same twice: trace {:016x}", report.trace_hash)),
            Some((again, false)) => out::line(format!(
                "NOT the same twice: trace {:016x}, then {:016x}: something enters past `env`",
                report.trace_hash, again.trace_hash
            )),
        }
    }

    fn tell_json(&self, report: &RunReport, same: Option<bool>) -> Result<()> {
        let mut told = as_json(report, &self.setup);
        let lines = self.lines(report).into_iter();
        told["timeline"] = lines.map(|(ns, text)| json!({ "ns": ns, "text": text })).collect();
        told["same_twice"] = same.into();
        out::json(&told)
    }
}

/// The result of a soak.
#[derive(Default)]
struct Total {
    runs: u64,
    operations: u64,
    acknowledged: u64,
    refused: u64,
    unknown: u64,
    faults: BTreeMap<&'static str, u64>,
    points: BTreeMap<CrashPoint, CrashPointCounts>,
    outcomes: BTreeMap<Outcome, u64>,
    broken: Vec<RunReport>,
}

impl Total {
    fn add(&mut self, mut report: RunReport) {
        self.runs += 1;
        self.operations += report.operations;
        self.acknowledged += report.acknowledged;
        self.refused += report.refused;
        self.unknown += report.unknown;
        for (fault, count) in report.mix.iter() {
            *self.faults.entry(fault.word()).or_default() += u64::from(count);
        }
        for (point, met) in &report.points {
            let total = self.points.entry(*point).or_default();
            total.hits += met.hits;
            total.stops += met.stops;
        }
        for (outcome, count) in &report.outcomes {
            *self.outcomes.entry(*outcome).or_default() += count;
        }
        if !report.violations.is_empty() {
            report.timeline.clear();
            self.broken.push(report);
        }
    }
}

/// Each step after which a stop can happen, in order.
fn steps(total: &Total) -> Vec<(CrashPoint, CrashPointCounts)> {
    let gaps = crash_point::ALL.iter().filter(|point| !point.last);
    gaps.map(|point| (*point, total.points.get(point).copied().unwrap_or_default())).collect()
}

/// The targets that faults should hit, and how often they did.
fn outcomes(total: &Total) -> impl Iterator<Item = (Outcome, u64)> {
    Outcome::ALL
        .into_iter()
        .map(|outcome| (outcome, total.outcomes.get(&outcome).copied().unwrap_or_default()))
}

/// Whether all was met that is to be: each step by a stop, and each outcome.
fn is_covered(total: &Total) -> bool {
    unmet(total).is_empty() && outcomes(total).all(|(_, count)| count > 0)
}

/// Steps after which no stop has ever happened.
fn unmet(total: &Total) -> Vec<CrashPoint> {
    steps(total).into_iter().filter(|(_, met)| met.stops == 0).map(|(point, _)| point).collect()
}

/// Threads: as wanted, or one for each processor.
fn jobs(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Repeat the runs that are known; whether every promise was kept.
fn known(wanted: Option<usize>, as_json: bool) -> Result<bool> {
    let (runs, began) = (shoal_sim::known::runs(), Instant::now());
    let mut broken = Vec::new();
    shoal_sim::repeat(&runs, jobs(wanted), |(place, report)| {
        if !report.violations.is_empty() {
            broken.push((place, report));
        }
        ControlFlow::Continue(())
    });
    broken.sort_by_key(|(place, _)| *place);
    if as_json {
        let report = |(_, report): &(usize, RunReport)| json!({ "seed": report.seed, "mix": mix_json(&report.mix), "violations": report.violations });
        let all: Vec<Value> = broken.iter().map(report).collect();
        out::json(&json!({ "runs": runs.len(), "broken": all }))?;
        return Ok(broken.is_empty());
    }
    for (place, report) in &broken {
        out::line(summary(report))?;
        report.violations.iter().try_for_each(|violation| out::line(format!("  VIOLATION {violation}")))?;
        let (seed, config) = &runs[*place];
        out::line(format!("  repeat it:  {}", as_command(*seed, config)))?;
    }
    let took = began.elapsed().as_secs_f64();
    let kept = words::many((runs.len() - broken.len()) as u64, "run");
    let end = if broken.is_empty() { "ok" } else { "FAILED" };
    out::line(format!("sim known: {kept} of {} kept every promise, in {took:.0} s {end}", runs.len()))?;
    Ok(broken.is_empty())
}

/// The command that repeats a run of choices of its own.
fn as_command(seed: u64, config: &RunConfig) -> String {
    let mut command = format!("shoal sim replay --seed {seed} --last 0");
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            command.push_str(&format!(" --{name} {value}"));
        }
    };
    option("switches", config.switches.map(|switches| switches.to_string()));
    option("faults", config.faults.as_ref().map(|faults| faults.to_string()));
    option("forks", config.forks.map(|forks| forks.to_string()));
    command
}

fn many(args: &SimSoak) -> Result<bool> {
    let jobs = jobs(args.jobs);
    let (began, bar) = (Instant::now(), progress(args));
    let mut total = Total::default();
    shoal_sim::soak(args.seeds.clone(), jobs, &args.setup.config(), |report| {
        total.add(report);
        bar.inc(1);
        bar.set_message(promises(total.broken.len()));
        let late = args.minutes.is_some_and(|minutes| began.elapsed().as_secs_f64() >= minutes * 60.0);
        let enough = !args.keep_going && !total.broken.is_empty();
        if late || enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    total.broken.sort_by_key(|report| report.seed);
    match args.json {
        true => out::json(&total_json(&total, args, began.elapsed()))?,
        false => show(&total, args, began.elapsed())?,
    }
    let covered = !args.covered || is_covered(&total);
    Ok(total.broken.is_empty() && covered)
}

fn progress(args: &SimSoak) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(args.seeds.end - args.seeds.start);
    let template = "{bar:30} {human_pos} of {human_len} seeds, {per_sec}, {eta} left; {msg} broken";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(promises(0));
    bar
}

fn total_json(total: &Total, args: &SimSoak, took: Duration) -> Value {
    json!({
        "seeds": [args.seeds.start, args.seeds.end],
        "runs": total.runs,
        "operations": total.operations,
        "acknowledged": total.acknowledged,
        "refused": total.refused,
        "unknown": total.unknown,
        "faults": total.faults,
        "points": steps(total).iter().map(|(point, met)| json!({
            "activity": point.activity, "step": point.step, "times": met.hits, "stops": met.stops,
        })).collect::<Vec<_>>(),
        "outcomes": outcomes(total).map(|(outcome, count)| json!({
            "outcome": outcome.words(), "times": count,
        })).collect::<Vec<_>>(),
        "took_s": took.as_secs_f64(),
        "broken": total.broken.iter().map(|report| as_json(report, &args.setup)).collect::<Vec<_>>(),
    })
}

fn show(total: &Total, args: &SimSoak, took: Duration) -> Result<()> {
    for report in total.broken.iter().take(RUNS_TOLD) {
        tell(report, &args.setup)?;
    }
    let untold = total.broken.iter().skip(RUNS_TOLD);
    for report in untold {
        let first = report.violations.first().map_or("", String::as_str);
        out::line(format!(
            "seed {}: {first}\n  repeat it:  {}",
            report.seed,
            args.setup.command(report.seed)
        ))?;
    }
    show_points(total)?;
    let faults: Vec<String> =
        total.faults.iter().map(|(word, n)| format!("{word} {}", words::count(*n))).collect();
    out::line(format!("faults: {}", faults.join(", ")))?;
    out::line(format!(
        "{} of {} in {:.1} s: {} acknowledged, {} refused, {} of unknown outcome",
        words::many(total.operations, "operation"),
        words::many(total.runs, "seed"),
        took.as_secs_f64(),
        words::count(total.acknowledged),
        words::count(total.refused),
        words::count(total.unknown),
    ))?;
    match total.broken.len() {
        0 => out::line(format!("sim: {} ok: every promise was kept", words::many(total.runs, "seed"))),
        n => out::line(format!("{} broke a promise", words::many(n as u64, "seed"))),
    }
}

/// The gaps between two steps, and how many stops fell into each.
fn show_points(total: &Total) -> Result<()> {
    let mut table = words::table(&["servers stopped behind a step", "stops", "times come to"]);
    for (point, met) in steps(total) {
        let name = format!("{}: {}", point.activity, point.step);
        table.add_row([name, words::count(met.stops), words::count(met.hits)]);
    }
    for (outcome, count) in outcomes(total) {
        table.add_row([outcome.words().to_owned(), String::new(), words::count(count)]);
    }
    out::line(words::plain(&table))?;
    let missing: Vec<&str> =
        outcomes(total).filter(|(_, count)| *count == 0).map(|(outcome, _)| outcome.words()).collect();
    if !missing.is_empty() {
        out::line(format!("there were none of: {}", missing.join(", ")))?;
    }
    let unmet: Vec<String> =
        unmet(total).iter().map(|point| format!("{}: {}", point.activity, point.step)).collect();
    if unmet.is_empty() {
        return out::line("every gap between two steps was met by a stop");
    }
    out::line(format!("no stop fell behind: {}", unmet.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_has_the_faults_and_what_is_about_the_same_name() {
        let lines = [
            "a \"x\" …",
            "fault: server 0 is killed",
            "a \"y\" …",
            "a \"x\": done",
            "VIOLATION: \"x\" is gone",
            "later",
        ];
        let lines: Vec<(u64, String)> = lines.iter().map(|line| (0, (*line).to_owned())).collect();
        assert_eq!(story(&lines, "\"x\" is gone"), [0, 1, 3, 4]);
        assert_eq!(story(&lines, "nothing named"), [0, 1, 2, 3, 4, 5]);
    }
}
