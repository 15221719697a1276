//! Locks of files: ranges of bytes, shared or exclusive. Each lock has one owner.
//!
//! ```text
//!   an owner's ranges    [0..99 shared][100..199 exclusive]      [300..last shared]
//!   set 50..149 shared   [0..149 shared            ][150..199 exclusive] [300..last shared]
//! ```
//! An owner is a number that its client chooses: a process (POSIX record locks), or an open file
//! (open-file-description locks, and `flock`, which locks the whole range). [`LockRanges`] is the arithmetic
//! of one owner's locks of one file, the same on both sides of the wire.
//!
//! **Invariant: an owner's ranges are disjoint, and neighbours of one kind are one range** (test:
//! `an_owners_ranges_are_those_of_a_table_of_bytes_and_never_touch_their_like`).

use crate::wire::{wire_choice, wire_struct};
use crate::{ClientId, Handle};
use shoal_pattern::codec::{Codec, DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// An owner of locks within its client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockOwner(pub u64);

impl Codec for LockOwner {
    fn encode(&self, w: &mut Writer) {
        w.put_u64(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(LockOwner(r.get_u64()?))
    }
}

wire_choice! {
    /// The kind of a lock.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum LockKind {
        /// Any number of owners may have it.
        Shared = 1,
        /// No other owner has any lock there.
        Exclusive = 2,
    }
}

impl LockKind {
    /// Whether two owners cannot have both.
    pub fn excludes(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

wire_choice! {
    /// The state of a lock that was requested.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum LockState {
        /// The owner has it.
        Granted = 1,
        /// It waits in the queue, and keeps its place there: ask again.
        Queued = 2,
        /// Another owner has a lock in its way.
        Refused = 3,
    }
}

wire_struct! {
    /// Bytes of a file, the last one included.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct LockRange {
        /// The first byte.
        pub first: u64,
        /// The last byte; the largest number: without end.
        pub last: u64,
    }
}

impl LockRange {
    /// All bytes that a file can have.
    pub const ALL: LockRange = LockRange { first: 0, last: u64::MAX };

    /// Whether it has a byte.
    pub fn is_valid(self) -> bool {
        self.first <= self.last
    }

    /// Whether both have a byte in common.
    pub fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

wire_struct! {
    /// A lock, as its holder states it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LockClaim {
        /// The file.
        pub object: Handle,
        /// The owner.
        pub owner: LockOwner,
        /// The bytes.
        pub range: LockRange,
        /// The kind.
        pub kind: LockKind,
        /// The process that took it, on its client's machine.
        pub pid: u32,
    }
}

wire_struct! {
    /// A lock in the way of another.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct LockHolder {
        /// The holder's client.
        pub client: ClientId,
        /// The holder.
        pub owner: LockOwner,
        /// The bytes.
        pub range: LockRange,
        /// The kind.
        pub kind: LockKind,
        /// The process that took it, on its client's machine.
        pub pid: u32,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    last: u64,
    kind: LockKind,
    pid: u32,
}

/// The locks of one owner on one file, by their first bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockRanges(BTreeMap<u64, Held>);

impl LockRanges {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LockRange, LockKind, u32)> + '_ {
        self.0.iter().map(|(&first, held)| (LockRange { first, last: held.last }, held.kind, held.pid))
    }

    /// Those that have a byte of `range`.
    pub fn within(&self, range: LockRange) -> impl Iterator<Item = (LockRange, LockKind, u32)> + '_ {
        let before = self.0.range(..range.first).next_back().filter(|(_, held)| held.last >= range.first);
        let inside = self.0.range(range.first..=range.last);
        let each =
            |(&first, held): (&u64, &Held)| (LockRange { first, last: held.last }, held.kind, held.pid);
        before.into_iter().chain(inside).map(each)
    }

    /// Whether all of `range` is held, by this kind or a stronger one.
    pub fn covers(&self, range: LockRange, kind: LockKind) -> bool {
        let mut next = Some(range.first);
        for (held, held_kind, _) in self.within(range) {
            match next {
                Some(first) if held.first <= first && held_kind >= kind => next = held.last.checked_add(1),
                _ => return false,
            }
        }
        next.is_none_or(|next| next > range.last)
    }

    /// Take nothing of `range` any more.
    pub fn clear(&mut self, range: LockRange) {
        let inside: Vec<(u64, Held)> = self
            .within(range)
            .map(|(held, kind, pid)| (held.first, Held { last: held.last, kind, pid }))
            .collect();
        for (first, held) in inside {
            self.0.remove(&first);
            if first < range.first {
                self.0.insert(first, Held { last: range.first - 1, ..held });
            }
            if held.last > range.last {
                self.0.insert(range.last + 1, held);
            }
        }
    }

    /// Take `range` as this kind, whatever of it was held before.
    pub fn set(&mut self, range: LockRange, kind: LockKind, pid: u32) {
        self.clear(range);
        let LockRange { mut first, mut last } = range;
        let before = self.0.range(..first).next_back().map(|(&at, held)| (at, *held));
        if let Some((at, held)) = before
            && held.kind == kind
            && held.last.checked_add(1) == Some(first)
        {
            self.0.remove(&at);
            first = at;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(held) = self.0.get(&next).copied().filter(|held| held.kind == kind)
        {
            self.0.remove(&next);
            last = held.last;
        }
        self.0.insert(first, Held { last, kind, pid });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockKind::{Exclusive, Shared};

    fn range(first: u64, last: u64) -> LockRange {
        LockRange { first, last }
    }

    /// The kind that each of the first bytes is held as.
    fn bytes(ranges: &LockRanges, count: u64) -> Vec<Option<LockKind>> {
        (0..count).map(|at| ranges.within(range(at, at)).next().map(|(_, kind, _)| kind)).collect()
    }

    #[test]
    fn an_owners_ranges_are_those_of_a_table_of_bytes_and_never_touch_their_like() {
        const BYTES: u64 = 24;
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut ranges, mut model) = (LockRanges::default(), vec![None; BYTES as usize]);
        for _ in 0..20_000 {
            let first = draw(BYTES);
            let last = first + draw(BYTES - first);
            let kind = [None, Some(Shared), Some(Exclusive)][draw(3) as usize];
            match kind {
                Some(kind) => ranges.set(range(first, last), kind, 1),
                None => ranges.clear(range(first, last)),
            }
            model[first as usize..=last as usize].fill(kind);
            assert_eq!(bytes(&ranges, BYTES), model);
            let all: Vec<_> = ranges.iter().collect();
            for pair in all.windows(2) {
                let ((one, kind, _), (next, other, _)) = (pair[0], pair[1]);
                assert!(one.last < next.first && !(one.last + 1 == next.first && kind == other), "{all:?}");
            }
            let covered = model[first as usize..=last as usize].iter().all(Option::is_some);
            assert_eq!(ranges.covers(range(first, last), Shared), covered);
        }
    }

    #[test]
    fn a_range_without_end_is_cut_and_covered_like_any_other() {
        let mut ranges = LockRanges::default();
        ranges.set(LockRange::ALL, Exclusive, 1);
        assert!(ranges.covers(LockRange::ALL, Shared) && ranges.covers(range(5, 5), Exclusive));
        ranges.clear(range(10, u64::MAX));
        assert!(!ranges.covers(LockRange::ALL, Shared) && ranges.covers(range(0, 9), Exclusive));
        ranges.set(range(10, u64::MAX), Exclusive, 1);
        assert_eq!(ranges.len(), 1);
    }
}
