//! A hunt on one target: first the corpus, then mutations of it, for a number of runs or until a deadline.

use crate::Target;
use crate::mutate::{Rng, mutate};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// When a hunt ends.
#[derive(Clone, Copy)]
pub enum Until {
    /// After so many executions.
    Runs(u64),
    /// At a moment, looked at every 64 executions.
    Moment(Instant),
}

impl Until {
    fn is_over(self, runs: u64) -> bool {
        match self {
            Until::Runs(max) => runs >= max,
            Until::Moment(moment) => runs.is_multiple_of(64) && Instant::now() >= moment,
        }
    }
}

/// The result of a hunt.
pub struct Hunted {
    /// Executions.
    pub runs: u64,
    /// The input that broke the target, and how.
    pub broken: Option<(Vec<u8>, String)>,
}

/// Whether the target stands `input`; if not, the words of its panic.
///
/// # Errors
/// Those words.
pub fn stands(target: &Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Hunts `target`, telling each input before it is run. The same corpus, seed and number of runs give the
/// same inputs in the same order.
pub fn hunt(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    until: Until,
    mut tell: impl FnMut(&[u8]),
) -> Hunted {
    let mut rng = Rng(seed ^ u64::from(crc32c::crc32c(target.name.as_bytes())) << 32);
    let mut runs = 0;
    for input in corpus {
        runs += 1;
        tell(input);
        if let Err(words) = stands(target, input) {
            return Hunted { runs, broken: Some((input.clone(), words)) };
        }
    }
    let mut input = Vec::new();
    while !until.is_over(runs) {
        // Now and then go on from the last input instead of from the corpus: changes add up.
        if rng.below(4) > 0 || input.is_empty() {
            input.clone_from(&corpus[rng.below(corpus.len())]);
        }
        let other = &corpus[rng.below(corpus.len())];
        mutate(&mut rng, &mut input, other);
        runs += 1;
        tell(&input);
        if let Err(words) = stands(target, &input) {
            return Hunted { runs, broken: Some((input, words)) };
        }
    }
    Hunted { runs, broken: None }
}
