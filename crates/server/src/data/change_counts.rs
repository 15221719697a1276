//! Change counts: they show clients that the bytes of a stream are the same as before.
//!
//! Each change of a stream's bytes sets its count to a number that was never given before. So if two
//! replies about a stream have equal counts, the bytes of the stream are equal, whatever happened in
//! between. Times do not show that: two changes within a tick of the clock have one time, and a clock may
//! be set back.
//!
//! ```text
//!   write of one batch:   c ─────────▶ d          moved when the batch is applied, before another request
//!   write of bulk data:   c ──▶ d ··· bytes ··· e ──▶ f      before the first byte and after the last
//!   read:                 answers with the count that was current before its first byte was read
//! ```
//! **Invariant: no count is current both before and after a change** (test:
//! `no_count_is_current_before_and_after_a_change_nor_while_bytes_are_written`). A reply to a read may leave
//! while bytes are being written. The end of the write replaces the count in that reply, and no later reply
//! has this count again. After a start of the server, counts begin at a random number, so that no count from
//! before a crash is used again.
//!
//! Counts are kept in memory only, in a table of fixed size by the hash of the handle. Streams that share
//! a place in the table share the count: a change of one costs the clients of the other an unneeded
//! request, and nothing else.

use shoal_env::mutant::{self, Mutant};
use shoal_proto::{ChangeCount, Handle, Move};
use shoal_store::StreamChange;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Places in the table, as a power of two: a megabyte, of which the system allocates only the used pages.
const PLACES_LOG2: u32 = 17;
/// Odd, and without a pattern in its bits: handles that follow each other go far apart.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// No count is less: neither [`ChangeCount::NONE`] nor wrapped around.
const FIRST: u64 = 1 << 62;

/// See the module's page. Clones share it.
#[derive(Clone)]
pub struct ChangeCounts(Rc<Inner>);

struct Inner {
    /// The first count of every stream: random within `FIRST..2 * FIRST`.
    base: u64,
    given: Cell<u64>,
    places: RefCell<Vec<u64>>,
}

impl ChangeCounts {
    /// Those of one start of a server. `start`: drawn at random for it.
    pub fn new(start: u64) -> ChangeCounts {
        let places = RefCell::new(vec![0; 1 << PLACES_LOG2]);
        let base = FIRST | start.wrapping_mul(HASH) >> 2;
        ChangeCounts(Rc::new(Inner { base, given: Cell::new(0), places }))
    }

    /// The count of a stream.
    pub fn of(&self, stream: Handle) -> ChangeCount {
        let places = self.0.places.borrow();
        ChangeCount(self.0.base + places.get(place(stream)).copied().unwrap_or(0))
    }

    /// The next number that was never given, for a change that is about to be applied.
    pub fn draw(&self) -> ChangeCount {
        self.0.given.set(self.0.given.get() + 1);
        ChangeCount(self.0.base + self.0.given.get())
    }

    /// A change was applied.
    pub fn set(&self, stream: Handle, count: ChangeCount) {
        if mutant::is(Mutant::CountStandsStill) {
            return;
        }
        if let Some(at) = self.0.places.borrow_mut().get_mut(place(stream)) {
            *at = count.0 - self.0.base;
        }
    }

    /// Bytes of a stream are about to be changed, not by a batch.
    pub fn begin(&self, stream: Handle) -> Changing {
        Changing { counts: self.clone(), stream, first: self.shift(stream), has_ended: false }
    }

    fn shift(&self, stream: Handle) -> Move {
        let moved = Move { from: self.of(stream), to: self.draw() };
        self.set(stream, moved.to);
        moved
    }
}

fn place(stream: Handle) -> usize {
    (stream.0.wrapping_mul(HASH) >> (u64::BITS - PLACES_LOG2)) as usize
}

/// Whether a change of a stream of `size` bytes may change its bytes or its size. A new generation alone does
/// not: explicit times, and the layout of a file that outgrew its first strip.
pub fn moves(change: &StreamChange, size: Option<u64>) -> bool {
    match change {
        StreamChange::Advance { .. } => false,
        StreamChange::Resize { size: new, .. } => size != Some(*new),
        StreamChange::Create { .. } | StreamChange::Put { .. } | StreamChange::Remove => true,
    }
}

/// Bytes of a stream are being changed. However that ends, the count moves.
pub struct Changing {
    counts: ChangeCounts,
    stream: Handle,
    first: Move,
    has_ended: bool,
}

impl Changing {
    /// They are changed: the moves of before and after.
    pub fn end(mut self) -> [Move; 2] {
        self.has_ended = true;
        [self.first, self.counts.shift(self.stream)]
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        if !self.has_ended {
            self.counts.shift(self.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Handle = Handle(77);

    #[test]
    fn no_count_is_current_before_and_after_a_change_nor_while_bytes_are_written() {
        let counts = ChangeCounts::new(u64::MAX);
        let mut seen = vec![counts.of(FILE)];
        let mut note = |count: ChangeCount| {
            assert!(!seen.contains(&count) && count != ChangeCount::NONE, "{count} was there before");
            seen.push(count);
        };
        counts.set(FILE, counts.draw());
        note(counts.of(FILE));
        let (one, two) = (counts.begin(FILE), counts.begin(FILE));
        note(counts.of(FILE));
        one.end();
        note(counts.of(FILE));
        drop(two);
        note(counts.of(FILE));
    }

    #[test]
    fn the_moves_of_one_writer_are_a_chain_and_those_of_another_between_them_break_it() {
        let counts = ChangeCounts::new(5);
        let before = counts.of(FILE);
        let [first, last] = counts.begin(FILE).end();
        assert_eq!((first.from, first.to, last.to), (before, last.from, counts.of(FILE)));
        let (own, other) = (counts.begin(FILE), counts.begin(FILE));
        other.end();
        let [first, last] = own.end();
        assert_ne!(first.to, last.from);
    }

    #[test]
    fn another_start_gives_other_counts_and_a_new_generation_alone_is_no_change_of_bytes() {
        assert_ne!(ChangeCounts::new(1).of(FILE), ChangeCounts::new(3).of(FILE));
        assert!(!moves(&StreamChange::Advance { generation: 2 }, Some(7)));
        let resize = |size| StreamChange::Resize { generation: 2, size, written_at: None };
        assert!(!moves(&resize(7), Some(7)) && moves(&resize(8), Some(7)) && moves(&resize(0), None));
    }
}
