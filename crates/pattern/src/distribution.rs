//! A distribution: a placement that is computed by arithmetic. Arithmetic also gives three things that other
//! placements do not have: the inverse, the cycle and the sizes of a server's datafile.
//!
//! The idea is from PVFS: each file has a fixed rule that distributes its bytes over *n* datafiles, one on
//! each server. This trait and [`Placement`] together have the functions of PVFS's distributions
//! (`logical_to_physical_offset`, `next_mapped_offset`, `contiguous_length`, `logical_file_size`). A
//! [`View`](crate::View) needs no others. The concrete distributions (`simple_stripe`, `basic`) live in
//! `proto`, since their parameters go over the wire.
//!
//! ```text
//!   logical    0   4   8   12  16  20             strips of 4 over three servers
//!   server     0000111122220000111122220000…      cycle(1) = { period 12, start 4, len 4 }
//!   physical   0123012301234567456745678901…      logical(1, 5) = 17
//! ```
//!
//! Implementations test these laws, and the laws of a placement, with [`broken_law`](crate::broken_law):
//! - no byte is in a hole, and `logical(object, physical)` of `locate(l)` is `l` again;
//! - `next_on(s, l) = Some(m)` means: `m >= l`, `locate(m)` names `s`, and nothing in `l .. m` does;
//! - `cycle(s) = Some(c)` means: `s` holds exactly the bytes that `c` says;
//! - `logical_end(s, physical_size(s, size)) <= size`; the two are equal if `s` holds the file's last byte.

use crate::Placement;

/// The bytes a server holds under a round robin: `len` bytes from `start`, again in each `period` bytes.
///
/// A view uses it to compute the next record that touches a server; without it the view visits every
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cycle {
    /// Bytes of a round; at least 1.
    pub period: u64,
    /// Where in each round the server's bytes begin; below `period`.
    pub start: u64,
    /// How many there are; `start + len <= period`. 0 for a server that never holds anything.
    pub len: u64,
}

impl Cycle {
    /// Whether the fields satisfy the documented relations. A cycle that does not is ignored.
    pub fn is_valid(&self) -> bool {
        self.start < self.period && self.len <= self.period - self.start
    }

    /// The first position at or after `logical` that the server holds, if there is one within `u64`.
    pub fn next(&self, logical: u64) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let place = logical % self.period;
        let round = logical - place;
        if place < self.start {
            return round.checked_add(self.start);
        }
        if place < self.start + self.len {
            return Some(logical);
        }
        round.checked_add(self.period)?.checked_add(self.start)
    }

    /// How many of the bytes `0 .. logical` the server holds.
    pub fn held_below(&self, logical: u64) -> u64 {
        let place = (logical % self.period).saturating_sub(self.start);
        logical / self.period * self.len + place.min(self.len)
    }
}

/// The rule by which a file's bytes are dealt to servers. See the module for the laws.
pub trait Distribution: Placement {
    /// The byte of the file that lies at `physical` in `server`'s datafile.
    fn logical(&self, server: u32, physical: u64) -> u64;

    /// The end of the file that a datafile of `physical_size` bytes on `server` implies: the logical
    /// position after its last byte, 0 if it has none. The file's size is the largest of these.
    fn logical_end(&self, server: u32, physical_size: u64) -> u64;

    /// The size of `server`'s datafile for a file of `logical_size` bytes: the size that truncate sets.
    fn physical_size(&self, server: u32, logical_size: u64) -> u64;

    /// The bytes of `server`, if the rule is a round robin of equal rounds. `None`, the default: it is not,
    /// or the rule does not say so. Views are then slower, and return the same.
    fn cycle(&self, server: u32) -> Option<Cycle> {
        let _ = server;
        None
    }

    /// The first position at or after `logical` that `server` holds. `None`: there is none, or the rule
    /// does not say; a view then goes from boundary to boundary. The default calls [`Distribution::cycle`].
    fn next_on(&self, server: u32, logical: u64) -> Option<u64> {
        self.cycle(server).filter(Cycle::is_valid)?.next(logical)
    }
}
