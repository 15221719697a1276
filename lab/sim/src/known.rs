//! Runs that once broke a promise, and one run with each kind of fault. `shoal sim known` repeats these
//! runs.
//!
//! Each seed is kept with the choices with which it was found, so that a new choice of the program does not
//! change the run. Most seeds give different runs now nevertheless, because the workload has grown. They
//! stay, because they cost little.

use crate::{Fault, Faults, RunConfig};
use shoal_proto::Switches;

/// Found with a set of techniques drawn, before seeds drew forked files.
const DRAWN: &[u64] = &[
    130, 141, 445, 475, 482, 684, 1883, 3140, 20_000_290, 20_002_874, 30_000_683, 20_000_693, 20_000_830,
    20_001_113, 40_006_207, 40_008_550, 50_001_082, 50_002_383, 50_008_015, 50_006_068, 50_006_303,
    70_005_466, 70_008_453, 70_009_860, 50_003_188, 70_008_060, 357, 27, 92_002_222, 93_000_166, 93_001_168,
    94_002_508, 94_003_672, 94_005_286, 95_000_951, 96_000_382,
];
/// Found before seeds drew techniques.
const OURS: &[u64] = &[126, 541, 1024, 1280, 20_043, 40_008];
/// Found with the baseline's techniques.
const BASELINE: &[u64] = &[1036];
/// Found with forked files.
const WITH_FORKS: &[u64] = &[96_002_684, 98_004_799];
/// The seed of the runs with one kind of fault each.
const FAULTS: u64 = 5;

/// All of them: a seed and its choices each.
pub fn runs() -> Vec<(u64, RunConfig)> {
    let without_forks = RunConfig { forks: Some(false), ..RunConfig::default() };
    let by = |switches| RunConfig { switches: Some(switches), ..without_forks.clone() };
    let of = |seeds: &[u64], config: &RunConfig| -> Vec<(u64, RunConfig)> {
        seeds.iter().map(|seed| (*seed, config.clone())).collect()
    };
    let mut all = of(DRAWN, &without_forks);
    all.extend(of(OURS, &by(Switches::OURS)));
    all.extend(of(BASELINE, &by(Switches::BASELINE)));
    all.extend(of(WITH_FORKS, &RunConfig::default()));
    let faults = |fault| RunConfig { faults: Some(Faults::of(&[(fault, 2)])), ..RunConfig::default() };
    all.extend(Fault::ALL.into_iter().map(|fault| (FAULTS, faults(fault))));
    all
}
