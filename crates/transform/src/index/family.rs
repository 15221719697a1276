//! Runs of one stride and one record length, found by offset modulo stride.
//!
//! ```text
//!   stride 30, records of 10            phase 0      phase 10     phase 20
//!   writers a, b, c                     a: 0, 30 …   b: 10, 40 …  c: 20, 50 …
//!   byte 44: phase 14 ─▶ the phases from 5 to 14 ─▶ b, turn 1
//! ```

use super::Hit;
use super::run::Run;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Family {
    record: u64,
    stride: u64,
    phases: BTreeMap<u64, Vec<Run>>,
    /// How many runs begin (at their lowest place) at a place.
    begins: BTreeMap<u64, u32>,
    end: u64,
}

impl Family {
    pub(super) fn new(run: Run) -> Family {
        let (record, stride) = (run.record, run.stride.unsigned_abs());
        let mut family = Family { record, stride, phases: BTreeMap::new(), begins: BTreeMap::new(), end: 0 };
        family.add(run);
        family
    }

    /// Whether a run is of this family.
    pub(super) fn holds(&self, run: &Run) -> bool {
        self.record == run.record && self.stride == run.stride.unsigned_abs()
    }

    pub(super) fn add(&mut self, run: Run) {
        debug_assert!(self.holds(&run));
        self.end = self.end.max(run.end());
        *self.begins.entry(run.begin()).or_default() += 1;
        self.phases.entry(run.logical % self.stride).or_default().push(run);
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The newest byte at a place.
    pub(super) fn at(&self, at: u64) -> Option<Hit> {
        if at >= self.end {
            return None;
        }
        let phase = at % self.stride;
        let low = (phase + 1).saturating_sub(self.record);
        let here = self.phases.range(low..=phase);
        // Records that reach over a multiple of the stride.
        let over =
            (self.record > phase + 1).then(|| self.phases.range(self.stride + phase + 1 - self.record..));
        let runs = here.chain(over.into_iter().flatten()).flat_map(|(_, runs)| runs);
        runs.filter_map(|run| run.at(at)).max_by_key(|hit| hit.order)
    }

    /// The lowest beginning of a record beyond a place.
    pub(super) fn next_start(&self, at: u64) -> Option<u64> {
        if at >= self.end {
            return None;
        }
        let begin =
            at.checked_add(1).and_then(|next| self.begins.range(next..).next()).map(|(begin, _)| *begin);
        let phase = at % self.stride;
        let after = self.phases.range(phase + 1..).map(|(other, runs)| (other - phase, runs));
        let before = self.phases.range(..=phase).map(|(other, runs)| (self.stride - phase + other, runs));
        let covered = after.chain(before).map(|(distance, runs)| (at.saturating_add(distance), runs));
        let mut in_run = covered
            .take_while(|(start, _)| begin.is_none_or(|begin| *start < begin))
            .filter(|(start, runs)| runs.iter().any(|run| run.at(*start).is_some()))
            .map(|(start, _)| start);
        in_run.next().or(begin)
    }
}
