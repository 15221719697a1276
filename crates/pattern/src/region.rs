//! A region: one contiguous stretch of a file (or of memory), the unit a pattern expands to.

use std::fmt;

use crate::words::grouped;

/// `len` bytes from `offset`. Offsets are signed, since a pattern may be built relative to a place and
/// shifted there later; a file's own offsets are never negative, which projection checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// Where the region begins, in bytes.
    pub offset: i64,
    /// How long it is, in bytes.
    pub len: u64,
}

impl Region {
    /// `len` bytes from `offset`.
    pub const fn new(offset: i64, len: u64) -> Self {
        Self { offset, len }
    }

    /// The offset just after the region. Exact for every region that a pattern yields; a region made by
    /// hand whose end is past the largest offset ends there.
    pub const fn end(&self) -> i64 {
        self.offset.saturating_add_unsigned(self.len)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B from {}", grouped(i128::from(self.len)), grouped(i128::from(self.offset)))
    }
}
