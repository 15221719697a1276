//! The compressor takes regions one at a time, in constant memory, and makes a pattern of them. It finds
//! *nests*: records that several levels of strides repeat.
//!
//! No caller needs to hold the list of regions: a container feeds its index as the index is written, and an
//! application's small requests are fed as they come. He, Bent, Torres et al. ("I/O Acceleration with
//! Pattern Detection", HPDC'13) find one level of strides in a PLFS index; here the strides that were found
//! are compressed again, so that a matrix becomes a nest.
//!
//! ```text
//!   fed     0  8  16   100  108  116   200 …          records of 4 bytes
//!   items   [0 ×3 every 8]                            a stride
//!           [0 ×3 every 8] [100 ×3 every 8]           the same again, 100 further:
//!           [[0 ×3 every 8] ×2 every 100]             a nest …
//!           [[0 ×3 every 8] ×2 every 100] [200 ×3]    … that the next row extends
//! ```
//!
//! After each region two rules are applied to the newest items until neither fits, the shortest period first:
//! - **extend**: the newest *p* items are the next turn (repetition) of the item before them;
//! - **begin**: the newest *p* items are a copy, moved, of the *p* items before them: both become one item.
//!
//! So it is greedy and deterministic, and needs no look ahead. **It is lossless**: the items always expand to
//! the regions that were fed, in their order. At most [`COMPRESSOR_KNOTS_MAX`] nodes are kept; when there are
//! more, the older half is given out as a pattern of its own.

use crate::Region;
use crate::branch::Knot;
use crate::codec::Codec;
use crate::limits::PACKED_BYTES_MAX;
use crate::limits::{COMPRESSOR_KNOTS_MAX, COMPRESSOR_PERIOD_MAX, NESTING_DEPTH_MAX, REQUEST_REGIONS_MAX};
use crate::nest::Level;
use crate::pattern::{Pattern, PatternError};
use crate::runs::Run;

/// Regions fed so far, as few strides, nests and trees. See the module.
#[derive(Clone, Debug, Default)]
pub struct Compressor {
    items: Vec<Knot>,
    /// Nodes of all items.
    knots: usize,
    /// Packed bytes of all items.
    packed: u64,
}

impl Compressor {
    /// Nothing fed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next region; an empty one changes nothing. Where there is no room for it, the older regions
    /// are returned as a pattern: put it away, those to come follow it.
    ///
    /// # Errors
    /// [`PatternError::OutOfRange`] for a region that ends outside the range of offsets,
    /// [`PatternError::TooLong`] for one that is longer than a pattern can be; nothing is changed.
    pub fn feed(&mut self, region: Region) -> Result<Option<Pattern>, PatternError> {
        if region.len == 0 {
            return Ok(None);
        }
        let end = i128::from(region.offset) + i128::from(region.len);
        if end > i128::from(i64::MAX) {
            return Err(PatternError::OutOfRange);
        }
        if region.len > PACKED_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let full = if self.packed > PACKED_BYTES_MAX - region.len {
            self.take(self.items.len())?
        } else if self.knots >= COMPRESSOR_KNOTS_MAX {
            self.take(self.half())?
        } else {
            None
        };
        self.items.push(Knot::leaf(Run::once(region), false));
        self.knots += 1;
        self.packed += region.len;
        while self.extend() || self.begin() {}
        Ok(full)
    }

    /// The regions that are not yet returned, as a pattern; empty if there are none.
    ///
    /// # Errors
    /// None is known: the items were valid one by one.
    pub fn finish(mut self) -> Result<Pattern, PatternError> {
        Ok(self.take(self.items.len())?.unwrap_or_default())
    }

    /// How many of the oldest items have half of the nodes; at least 1.
    fn half(&self) -> usize {
        let mut knots = 0;
        let older = |item: &&Knot| {
            knots += item.count();
            knots <= COMPRESSOR_KNOTS_MAX / 2
        };
        self.items.iter().take_while(older).count().max(1)
    }

    /// The oldest `count` items as a pattern, in the form with the fewest bytes.
    fn take(&mut self, count: usize) -> Result<Option<Pattern>, PatternError> {
        if count == 0 {
            return Ok(None);
        }
        let pattern = Pattern::of_knots(&self.items[..count])?;
        self.knots -= self.items.drain(..count).map(|item| item.count()).sum::<usize>();
        self.packed -= pattern.len();
        if pattern.regions_max() > REQUEST_REGIONS_MAX as u64 {
            return Ok(Some(pattern));
        }
        let list = Pattern::list(pattern.regions().collect())?;
        let is_smaller = list.to_bytes().len() < pattern.to_bytes().len();
        Ok(Some(if is_smaller { list } else { pattern }))
    }

    /// The newest items as the next turn of the one before them.
    fn extend(&mut self) -> bool {
        let len = self.items.len();
        for period in 1..=COMPRESSOR_PERIOD_MAX.min(len.saturating_sub(1)) {
            let (older, turn) = self.items.split_at_mut(len - period);
            let Some(item) = older.last_mut() else { return false };
            if is_next_turn(item, turn) {
                item.run.level.quantity += 1;
                self.drop_newest(period);
                return true;
            }
        }
        false
    }

    /// The newest items and a copy of them before as one item.
    fn begin(&mut self) -> bool {
        let len = self.items.len();
        for period in 1..=COMPRESSOR_PERIOD_MAX.min(len / 2) {
            let (older, turn) = self.items.split_at(len - period);
            let first = &older[len - 2 * period..];
            let Some(stride) = moved_by(first, turn) else { continue };
            if first.iter().any(|knot| knot.depth() >= NESTING_DEPTH_MAX) {
                continue;
            }
            let level = Level { stride, quantity: 2 };
            let knot = match first {
                [only] if only.is_plain() => Knot::leaf(Run { level, ..only.run }, false),
                _ => Knot {
                    run: Run { offset: 0, record: 0, level },
                    is_anchored: false,
                    vector: first.to_vec(),
                },
            };
            self.drop_newest(2 * period);
            self.knots += knot.count();
            self.items.push(knot);
            return true;
        }
        false
    }

    fn drop_newest(&mut self, count: usize) {
        let from = self.items.len() - count;
        self.knots -= self.items.drain(from..).map(|item| item.count()).sum::<usize>();
    }
}

/// Whether `turn` is what `item` would repeat next.
fn is_next_turn(item: &Knot, turn: &[Knot]) -> bool {
    let Level { stride, quantity } = item.run.level;
    if quantity < 2 {
        return false;
    }
    let further = i64::try_from(quantity).ok().and_then(|quantity| stride.checked_mul(quantity));
    match turn {
        [only] if item.is_leaf() => {
            let next = further.and_then(|further| item.run.offset.checked_add(further));
            only.is_plain() && only.run.record == item.run.record && Some(only.run.offset) == next
        }
        _ => further.is_some() && !item.is_leaf() && moved_by(&item.vector, turn) == further,
    }
}

/// How far `b` is from `a`, if it is the same but for that. Vectors that are not empty.
fn moved_by(a: &[Knot], b: &[Knot]) -> Option<i64> {
    let mut by = None;
    is_moved(a, b, &mut by).then_some(by).flatten()
}

fn is_moved(a: &[Knot], b: &[Knot], by: &mut Option<i64>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            if a.run.level != b.run.level || a.run.record != b.run.record || a.is_leaf() != b.is_leaf() {
                return false;
            }
            if !a.is_leaf() {
                return is_moved(&a.vector, &b.vector, by);
            }
            match (b.run.offset.checked_sub(a.run.offset), *by) {
                (None, _) => false,
                (found, None) => {
                    *by = found;
                    true
                }
                (found, there) => found == there,
            }
        })
}
