//! Compression: turns a list of regions into as few strided runs as a greedy rule finds.
//!
//! The writers of an N-1 checkpoint write equal records at equal distances, so the index of a PLFS
//! container is mostly a stride (He, Bent, Torres et al., "I/O Acceleration with Pattern Detection",
//! HPDC'13). The rule is greedy, simple and deterministic. From the current region, take the longest run of
//! regions of equal length at equal distance. Three or more become a strided run; otherwise one region is
//! taken alone. Region boundaries and order are kept. The result never takes more bytes on the wire than the
//! list: if the runs would, the list is returned. Only a list that is too long for one request always
//! becomes runs.

use crate::codec::Codec;
use crate::nest::Level;
use crate::pattern::{Body, Pattern, PatternError};
use crate::runs::Run;
use crate::{Region, limits};

/// Fewer regions than this do not become a run: any two regions of equal length are "at equal distance".
const RUN_REGIONS_MIN: usize = 3;

impl Pattern {
    /// The regions as a pattern of as few strided runs as the greedy rule finds. `regions` may exceed the
    /// limit of a list if the result does not.
    pub fn compressed(regions: &[Region]) -> Result<Self, PatternError> {
        let runs = Self::of_runs(runs_of(regions))?;
        let short = regions.iter().filter(|region| region.len > 0).count() <= limits::REQUEST_REGIONS_MAX;
        if short && !runs.is_contiguous() {
            let list = Self::list(regions.to_vec())?;
            return Ok(smaller(runs, list));
        }
        Ok(runs)
    }

    /// The same regions; a list becomes as few strided runs as the greedy rule finds. Returned unchanged: a
    /// pattern that already has a closed form, a coalesced pattern with joined regions, and a list that
    /// would not become smaller.
    pub fn compress(&self) -> Self {
        let is_list = matches!(self.body(), Body::Runs(runs) if runs.all().iter().all(Run::is_plain));
        if !is_list {
            return self.clone();
        }
        let regions: Vec<Region> = self.regions().collect();
        match Self::of_runs(runs_of(&regions)) {
            Ok(runs) if regions.len() > limits::REQUEST_REGIONS_MAX => runs,
            Ok(runs) => smaller(runs, self.clone()),
            Err(_) => self.clone(),
        }
    }
}

/// The pattern with fewer bytes on the wire; `a` if they are equal.
fn smaller(a: Pattern, b: Pattern) -> Pattern {
    if a.to_bytes().len() <= b.to_bytes().len() { a } else { b }
}

fn runs_of(regions: &[Region]) -> Vec<Run> {
    let regions: Vec<Region> = regions.iter().copied().filter(|region| region.len > 0).collect();
    let mut rest = regions.as_slice();
    let mut runs = Vec::new();
    while let Some(first) = rest.first() {
        let taken = match run_from(rest) {
            Some((stride, regions)) if regions >= RUN_REGIONS_MIN => {
                let level = Level { stride, quantity: regions as u64 };
                runs.push(Run { offset: first.offset, record: first.len, level });
                regions
            }
            _ => {
                runs.push(Run::once(*first));
                1
            }
        };
        rest = &rest[taken..];
    }
    runs
}

/// The stride from the first region to the second, and the number of regions from the first on that
/// continue at it with equal length.
fn run_from(regions: &[Region]) -> Option<(i64, usize)> {
    let [first, second, ..] = regions else { return None };
    let stride = second.offset.checked_sub(first.offset)?;
    let goes_on = |pair: &&[Region]| {
        pair[1].len == first.len && pair[1].offset.checked_sub(pair[0].offset) == Some(stride)
    };
    Some((stride, 1 + regions.windows(2).take_while(goes_on).count()))
}
