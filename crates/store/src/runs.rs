//! The runs of a transfer (ranges of consecutive bytes). They are checked once, before they are used.

use crate::StoreError;
use shoal_pattern::ViewRun;

/// Largest offset a stream can have: the maximum of `off_t`.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// Each run lies within a packed buffer of `len` bytes and below the largest offset.
pub(crate) fn check_runs(runs: &[ViewRun], len: usize) -> Result<(), StoreError> {
    let fits = |from: u64, run: u64, max: u64| from.checked_add(run).is_some_and(|end| end <= max);
    let good =
        |run: &ViewRun| fits(run.packed, run.len, len as u64) && fits(run.physical, run.len, OFFSET_MAX);
    if runs.iter().all(good) { Ok(()) } else { Err(StoreError::invalid("a run lies outside its buffer")) }
}

/// End of the last byte of all runs.
pub(crate) fn runs_end(runs: &[ViewRun]) -> u64 {
    runs.iter().filter(|run| run.len > 0).map(|run| run.physical + run.len).max().unwrap_or(0)
}

/// Bytes of the runs that lie at `end` or after it.
pub(crate) fn bytes_beyond(runs: &[ViewRun], end: u64) -> u64 {
    runs.iter().map(|run| (run.physical + run.len).saturating_sub(run.physical.max(end))).sum()
}
