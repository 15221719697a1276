//! The body of a pattern that is a sequence of *runs*. A run is a region, or a region that is repeated at a
//! stride. In a *list* each run is one region.
//!
//! A list represents an access without a closed form. It is walked in its own order; a binary search over
//! the packed end of each run finds a packed position. The runs are shared, so a slice of a list costs no
//! copy; the encoder sends only the runs that a slice touches.

use std::sync::Arc;

use crate::nest::{self, Level, Shape, moved};
use crate::pattern::is_stride;
use crate::{PatternError, Region, limits};

/// A region, repeated `level.quantity` times (once for a plain region, whose stride is then 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub offset: i64,
    pub record: u64,
    pub level: Level,
}

impl Run {
    pub fn once(region: Region) -> Self {
        Self { offset: region.offset, record: region.len, level: Level { stride: 0, quantity: 1 } }
    }

    pub fn shape(&self) -> Shape<'_> {
        Shape { offset: self.offset, record: self.record, levels: std::slice::from_ref(&self.level) }
    }

    pub fn len(&self) -> u64 {
        self.record * self.level.quantity
    }

    /// Whether it is one region.
    pub fn is_plain(&self) -> bool {
        self.level.quantity == 1
    }

    /// Whether `next` begins where this run ends.
    pub fn touches(&self, next: &Self) -> bool {
        self.region(self.level.quantity - 1).end() == next.offset
    }

    /// One region of all bytes, if its records touch; else the run.
    pub fn joined_records(&self) -> Self {
        if !self.is_plain() && is_stride(self.level.stride, self.record) {
            return Self::once(Region::new(self.offset, self.len()));
        }
        *self
    }

    /// Where record `index` lies.
    pub fn region(&self, index: u64) -> Region {
        Region::new(moved(self.offset, self.level.stride, index), self.record)
    }
}

/// Checked runs, none of them empty, and where each ends in packed bytes.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    runs: Arc<[Run]>,
    ends: Arc<[u64]>,
}

impl Runs {
    /// Checks and shares `runs`, dropping those without a byte.
    pub fn new(mut runs: Vec<Run>) -> Result<Self, PatternError> {
        runs.retain(|run| run.record > 0 && run.level.quantity > 0);
        if runs.len() > limits::LIST_REGIONS_MAX {
            return Err(PatternError::TooManyRegions {
                regions: runs.len(),
                limit: limits::LIST_REGIONS_MAX,
            });
        }
        let mut packed = 0_u64;
        let mut ends = Vec::with_capacity(runs.len());
        for run in &mut runs {
            if run.level.quantity == 1 {
                run.level.stride = 0;
            }
            let (_, len) = nest::Nest::new(run.offset, run.record, vec_of(run.level))?;
            packed += len;
            if packed > limits::PACKED_BYTES_MAX {
                return Err(PatternError::TooLong);
            }
            ends.push(packed);
        }
        Ok(Self { runs: runs.into(), ends: ends.into() })
    }

    /// Strided runs that touch themselves made plain, and plain neighbours that touch made one. Packed
    /// positions do not change.
    pub fn coalesced(&self) -> Self {
        let mut runs: Vec<Run> = Vec::with_capacity(self.runs.len());
        let mut ends: Vec<u64> = Vec::with_capacity(self.runs.len());
        for (run, end) in self.runs.iter().zip(self.ends.iter()) {
            let run = run.joined_records();
            match (runs.last_mut(), ends.last_mut()) {
                (Some(last), Some(last_end)) if last.is_plain() && run.is_plain() && last.touches(&run) => {
                    last.record += run.record;
                    *last_end = *end;
                }
                _ => {
                    runs.push(run);
                    ends.push(*end);
                }
            }
        }
        Self { runs: runs.into(), ends: ends.into() }
    }

    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub fn all(&self) -> &[Run] {
        &self.runs
    }

    /// The run that holds packed byte `packed`, by its place, and how far into it that byte is.
    pub fn find(&self, packed: u64) -> (usize, u64) {
        let place = self.ends.partition_point(|end| *end <= packed);
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        (place, packed - start)
    }

    /// Where `count` runs end in packed bytes, of which the first holds byte `packed`; the end of all where
    /// there are fewer. `count` > 0.
    pub fn end_of(&self, packed: u64, count: usize) -> u64 {
        let (first, _) = self.find(packed);
        self.ends.get(first + count - 1).copied().unwrap_or_else(|| self.len())
    }

    /// The runs that the packed bytes `from .. from + len` touch (`len` > 0), and how far into the first they
    /// begin.
    pub fn touched(&self, from: u64, len: u64) -> (&[Run], u64) {
        let (first, skipped) = self.find(from);
        let (last, _) = self.find(from + len - 1);
        (&self.runs[first..=last], skipped)
    }
}

/// Whether any run begins where the one before it ends.
pub(crate) fn touch(runs: &[Run]) -> bool {
    runs.windows(2).any(|pair| pair[0].touches(&pair[1]))
}

/// A level as a nest's levels.
fn vec_of(level: Level) -> Vec<Level> {
    if level.quantity == 1 { Vec::new() } else { vec![level] }
}
