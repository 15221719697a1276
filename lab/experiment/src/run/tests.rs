//! Runs of experiments: shared runs, repetitions, reported values.

use super::*;
use crate::seat::Timing;
use crate::workload::PhaseWork;

const TEXT: &str = r#"
name = "a"
title = "t"
claim = "c"
machine = "pvfs-linux"
source = { paper = "p", section = "s", reproduces = [] }
workload = { kind = "nine_phases" }
parameters = { files = 10 }
axis = { varies = "clients", values = [1, 2], label = "clients", value_label = "a second" }
real = { repeat = 3 }
series = [
  { name = "creates", phase = "create" },
  { name = "removes", phase = "remove" },
  { name = "written", phase = "write", metric = "mb_per_s" },
]
published = [{ series = "creates", x = 14, value = 7, unit = "/s", where = "there" }]
"#;

/// A ground on which every phase of every process takes a millisecond a file.
struct Counting {
    mode: Mode,
    machine: Option<Machine>,
    runs: Vec<u16>,
    fails: bool,
}

impl Ground for Counting {
    fn mode(&self) -> Mode {
        self.mode
    }

    fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    fn run(&mut self, plan: &Plan) -> Result<Vec<Took>, String> {
        self.runs.push(plan.setting.clients);
        let work = PhaseWork { ops: 10, bytes: 80_000, per_second: Vec::new() };
        let timing = Timing { begun_ns: 0, ended_ns: 10_000_000, left_ns: 20_000_000, work };
        let timings = vec![timing; plan.workload.phases().len()];
        let failed = self.fails.then(|| "on purpose".to_owned());
        Ok(vec![Took { timings, failed }; usize::from(plan.setting.clients)])
    }
}

fn ground(mode: Mode) -> Counting {
    Counting { mode, machine: None, runs: Vec::new(), fails: false }
}

fn go(ground: &mut Counting, memo: &mut Memo) -> Result<ExperimentOutcome, RunError> {
    let experiment = Experiment::parse(TEXT, "a.toml").expect("right");
    let run = Run { experiment: &experiment, amount: Amount::default(), patience: Duration::from_secs(1) };
    run.go(ground, memo, &mut |_| {})
}

#[test]
fn series_that_tell_another_phase_of_the_same_share_its_run() {
    let (mut real, mut simulated) = (ground(Mode::Real), ground(Mode::Simulated));
    let outcome = go(&mut real, &mut Memo::default()).expect("it runs");
    assert_eq!(real.runs, [1, 2, 1, 2, 1, 2], "repetitions go through all places in turn");
    go(&mut simulated, &mut Memo::default()).expect("it runs");
    assert_eq!(simulated.runs, [1, 2], "under virtual time a run repeats itself");
    let creates = outcome.curve("creates").expect("it");
    assert_eq!(creates.points.len(), 3, "what was published where nothing ran stands there, too");
    let median =
        |name: &str, at: usize| outcome.curve(name).expect(name).points[at].ours.expect("run").median;
    assert_eq!([median("creates", 0), median("creates", 1)], [1000.0, 2000.0]);
    assert_eq!(median("written", 0), 8.0);
    assert_eq!(creates.points[2].published, Some(7.0));
}

#[test]
fn what_was_run_already_is_not_run_again() {
    let (mut memo, mut again) = (Memo::default(), ground(Mode::Real));
    let first = go(&mut ground(Mode::Real), &mut memo).expect("it runs");
    let second = go(&mut again, &mut memo).expect("it runs");
    assert!(again.runs.is_empty());
    assert_eq!(first.curves, second.curves);
}

#[test]
fn a_machine_with_another_cost_shares_no_run_though_it_has_the_same_name() {
    let machine = Machine::named("bgp").expect("it is there");
    let mut dearer = machine.clone();
    dearer.cpu.client.message_us *= 1.5;
    let on = |machine: &Machine, memo: &mut Memo| {
        let mut ground = Counting { machine: Some(machine.clone()), ..ground(Mode::Simulated) };
        go(&mut ground, memo).expect("it runs");
        ground.runs.len()
    };
    let mut memo = Memo::default();
    assert_eq!([on(&machine, &mut memo), on(&dearer, &mut memo), on(&machine, &mut memo)], [2, 2, 0]);
}

#[test]
fn a_failure_says_which_run_it_was_of() {
    let mut ground = Counting { fails: true, ..ground(Mode::Real) };
    let told = go(&mut ground, &mut Memo::default()).expect_err("it fails").to_string();
    assert!(told.starts_with("a, creates at 1") && told.contains("on purpose"), "{told}");
}

#[test]
fn times_are_of_one_process_and_rates_of_all() {
    let phase = Phase {
        ops: 100,
        bytes: 1_000_000,
        longest_ns: 500_000_000,
        first_ns: 250_000_000,
        wall_ns: 1_000_000_000,
        per_second: Vec::new(),
    };
    let of = |metric, clock, mode| value(&phase, metric, clock, mode, 4);
    assert_eq!(of(Metric::PerS, Clock::Longest, Mode::Simulated), Some(200.0));
    assert_eq!(of(Metric::PerS, Clock::Longest, Mode::Real), Some(100.0), "the watch on the wall");
    assert_eq!(of(Metric::PerS, Clock::First, Mode::Real), Some(400.0), "mdtest's own clock");
    assert_eq!(of(Metric::MbPerS, Clock::Longest, Mode::Simulated), Some(2.0));
    assert_eq!(of(Metric::S, Clock::Longest, Mode::Simulated), Some(0.5));
    assert_eq!(of(Metric::Us, Clock::Longest, Mode::Simulated), Some(20_000.0));
    assert_eq!(value(&Phase::default(), Metric::PerS, Clock::Longest, Mode::Real, 1), None);
}

#[test]
fn between_two_places_of_a_curve_is_the_line_between_them() {
    let points = [(0.0, 0.0), (10.0, 100.0)];
    assert_eq!(interpolated(&points, 2.5), Some(25.0));
    assert_eq!(interpolated(&points, 11.0), None);
}
