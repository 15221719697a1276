//! The trace of a simulation: a running hash over all its events, and the last events as readable lines.

use crate::Instant;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Kinds of hashed events.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Poll = 1,
    Send,
    Receive,
    Connect,
    Close,
    Disk,
    Fault,
    Note,
}

/// See the module.
pub(super) struct Trace {
    hash: Cell<u64>,
    lines_max: usize,
    lines: RefCell<VecDeque<(Instant, String)>>,
}

impl Trace {
    pub(super) fn new(lines_max: usize) -> Trace {
        Trace { hash: Cell::new(0x5170_a1f5_0000_0001), lines_max, lines: RefCell::default() }
    }

    /// Hash one event: its time, process, kind and size.
    pub(super) fn add(&self, at: u64, who: usize, kind: Kind, size: u64) {
        let mut hash = self.hash.get();
        for word in [at, (who as u64) << 8 | kind as u64, size] {
            hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        }
        self.hash.set(hash ^ (hash >> 29));
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Add a line, built only if lines are kept.
    pub(super) fn line(&self, at: u64, text: impl FnOnce() -> String) {
        if self.lines_max == 0 {
            return;
        }
        let mut lines = self.lines.borrow_mut();
        if lines.len() == self.lines_max {
            lines.pop_front();
        }
        lines.push_back((Instant(at), text()));
    }

    pub(super) fn lines(&self) -> Vec<(Instant, String)> {
        self.lines.borrow().iter().cloned().collect()
    }
}
