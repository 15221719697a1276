//! Young blocks: blocks to which several pieces are to be written, with gaps between or beside them. They
//! wait for the parts of other writers, for a bounded time that is learnt by trial.
//!
//! ```text
//!   other writers came to a block         the next block waits up to 16 ms from the last arrival
//!   no other writer came to a block       the next waits half as long; below 250 µs no block waits any more,
//!                                         but one of 1,024, which waits 500 µs: writers may have come
//!   as many came as to the last block     the block waits no longer (one block of 64 still does)
//! ```
//! No block waits longer than 200 ms. In this way the parts of 16 writers of one stride make one write of a
//! block, and a lone writer soon waits no longer.

use super::super::extent::{Extent, Wanted, Wish};
use shoal_env::Instant;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Of so many blocks one waits longer than for the usual company: there may be more of it than before.
const PROBE_EVERY: u64 = 64;
/// How long a written block with gaps waits for the parts of other requests, from the last moment on in which
/// one came to such a block.
pub const PATIENCE_MAX: Duration = Duration::from_millis(16);
/// The same before any was seen to come.
const PATIENCE_FIRST: Duration = Duration::from_millis(4);
/// Shorter moments are none.
const PATIENCE_MIN: Duration = Duration::from_micros(250);
/// Where no block waits, one of so many does, and so long.
const TRY: (u64, Duration) = (1024, Duration::from_micros(500));
/// No block waits longer.
const YOUNG_MAX: Duration = Duration::from_millis(200);

/// See the module's page.
pub struct Young {
    blocks: RefCell<HashMap<Extent, Wanted>>,
    /// The blocks, by the moment in which the first part came to each.
    ages: RefCell<VecDeque<(Instant, Extent)>>,
    /// When a further request came to one last.
    joined_at: Cell<Instant>,
    patience: Cell<Duration>,
    /// How many writers came to the block that waited in vain last.
    company: Cell<usize>,
    probe: Cell<u64>,
    /// Blocks that did not wait since one last did.
    hurried: Cell<u64>,
    halved_at: Cell<Option<Instant>>,
}

impl Default for Young {
    fn default() -> Young {
        Young {
            blocks: RefCell::default(),
            ages: RefCell::default(),
            joined_at: Cell::new(Instant(0)),
            patience: Cell::new(PATIENCE_FIRST),
            company: Cell::default(),
            probe: Cell::default(),
            hurried: Cell::default(),
            halved_at: Cell::default(),
        }
    }
}

impl Young {
    /// A request comes to an extent: all that is wanted of it, if it need not wait.
    pub fn wait(&self, extent: Extent, wish: Wish, now: Instant) -> Option<Wanted> {
        let mut blocks = self.blocks.borrow_mut();
        let is_known = blocks.contains_key(&extent);
        let wanted = blocks.entry(extent).or_default();
        wanted.add(wish);
        if is_known {
            self.joined_at.set(now);
            self.patience.set(PATIENCE_MAX);
        }
        let waits = wanted.has_gaps(&extent) && extent.is_block() && self.hopes(wanted.writers.len());
        if !waits {
            return blocks.remove(&extent);
        }
        if !is_known {
            self.ages.borrow_mut().push_back((now, extent));
        }
        None
    }

    /// The next block that has waited long enough; else when to look again.
    pub fn ripe(&self, now: Instant) -> Result<(Extent, Wanted), Option<Instant>> {
        let mut blocks = self.blocks.borrow_mut();
        let mut ages = self.ages.borrow_mut();
        while let Some((since, extent)) = ages.front().copied() {
            let until = since.max(self.joined_at.get()) + self.patience.get();
            let until = until.min(since + YOUNG_MAX);
            if blocks.contains_key(&extent) && until > now {
                return Err(Some(until));
            }
            ages.pop_front();
            let Some(wanted) = blocks.remove(&extent) else { continue };
            match wanted.writers.len() {
                0 | 1 => self.was_alone(now),
                _ => self.patience.set(PATIENCE_MAX),
            }
            self.company.set(wanted.writers.len());
            return Ok((extent, wanted));
        }
        Err(None)
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.blocks.borrow().is_empty()
    }

    /// Whether more writers may come than these.
    fn hopes(&self, writers: usize) -> bool {
        if self.patience.get().is_zero() {
            self.hurried.set((self.hurried.get() + 1) % TRY.0);
            if self.hurried.get() != 0 {
                return false;
            }
            self.patience.set(TRY.1);
        }
        let is_all = self.company.get() > 1 && writers >= self.company.get();
        self.probe.set(self.probe.get() + u64::from(is_all));
        !is_all || self.probe.get().is_multiple_of(PROBE_EVERY)
    }

    /// No other request came: the next moment is half as long.
    fn was_alone(&self, now: Instant) {
        let patience = self.patience.get();
        if self.halved_at.get().is_some_and(|at| now < at + patience) {
            return;
        }
        self.halved_at.set(Some(now));
        self.patience.set(if patience / 2 < PATIENCE_MIN { Duration::ZERO } else { patience / 2 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::extent::BLOCK_BYTES;
    use shoal_proto::Handle;

    fn block(number: u64) -> Extent {
        Extent { disk: 0, stream: Handle(1), from: number * BLOCK_BYTES, len: BLOCK_BYTES, generation: 0 }
    }

    fn piece(request: u64) -> Wish {
        Wish { request, is_write: true, bytes: 1000, pieces: 2 }
    }

    /// So many requests write to each block, one each 100 µs: the number of writes, and the end.
    fn writes(young: &Young, from: Instant, blocks: std::ops::Range<u64>, requests: u64) -> (usize, Instant) {
        let (mut writes, mut now) = (0, from);
        for number in blocks {
            for request in 0..requests {
                writes += usize::from(young.wait(block(number), piece(request), now).is_some());
                now = now + Duration::from_micros(100);
                while young.ripe(now).is_ok() {
                    writes += 1;
                }
            }
            now = now + YOUNG_MAX;
            while young.ripe(now).is_ok() {
                writes += 1;
            }
        }
        (writes, now)
    }

    #[test]
    fn writers_that_come_after_a_lone_one_are_waited_for_again() {
        let young = Young::default();
        let (alone, now) = writes(&young, Instant(0), 0..1000, 1);
        assert_eq!(alone, 1000);
        assert!(young.patience.get().is_zero());
        // The first of them find no patience, and a block that tries finds them.
        let (_, now) = writes(&young, now, 1000..3000, 4);
        let (together, _) = writes(&young, now, 3000..4000, 4);
        assert!(together < 1100, "{together} writes of 1000 blocks that four requests share");
    }
}
