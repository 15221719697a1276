//! A placement: gives for each byte of a file the object that holds it, and the offset in the object. Every
//! layout implements this interface.
//!
//! A striped file computes its placement ([`Distribution`](crate::Distribution)); a container looks it up
//! in an index, where the newest write wins; a composed file has extents of one shared object. Each
//! placement answers one question, [`Placement::locate`]: the place of a byte, and the number of bytes for
//! which the answer holds. A byte that was never written is in a **hole**. One walk of a pattern over a
//! placement ([`Deal`](crate::Deal)) then serves every layout.
//!
//! ```text
//!   logical   0         10        20        30          two objects, one of them a log
//!             00000000001111111111............          locate(12) = object 1 at 2, 8 bytes more
//!             └ object 0 ┘└ object 1 ┘└ hole …          locate(25) = a hole, u64::MAX - 25 bytes more
//! ```
//!
//! **`locate` is a pure, synchronous function**: all that it needs is in memory before a walk begins.
//! `locate` has no inverse: a byte of a log that was overwritten later has no place in the file.
//!
//! Implementations test these laws with [`broken_placement_law`](crate::broken_placement_law):
//! - the object of an answer is below `objects()`, and its run is at least 1;
//! - for each `i < run`, `locate(l + i)` is the same object at `physical + i` (or a hole again), with a run
//!   of `run - i` or more.

/// The position of one byte of a file, and the number of bytes that follow it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The object, by its place in the file's list of objects (of datafiles, in a striped file).
    pub object: u32,
    /// The byte's position in that object, in bytes.
    pub physical: u64,
    /// Bytes from this one to the next boundary, at least 1: so many lie in the same object without a gap.
    /// `u64::MAX`: there is no boundary.
    pub run: u64,
}

/// The answer of a placement for one byte of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// An object has it.
    Piece(Piece),
    /// No object has it: it reads as zero.
    Hole {
        /// Bytes from this one to the next boundary, at least 1, all of them in no object. `u64::MAX`: there
        /// is no boundary.
        run: u64,
    },
}

impl Located {
    /// The place in an object; `None` for a hole.
    pub const fn piece(self) -> Option<Piece> {
        match self {
            Self::Piece(piece) => Some(piece),
            Self::Hole { .. } => None,
        }
    }

    /// How far the answer holds, in bytes. An answer of 0 would break the law and must not stop a walk: it
    /// counts as 1.
    pub const fn run(self) -> u64 {
        let (Self::Piece(Piece { run, .. }) | Self::Hole { run }) = self;
        if run == 0 { 1 } else { run }
    }
}

/// Where the bytes of a file lie. See the module for the laws.
pub trait Placement {
    /// How many objects the file has; their numbers are 0 to this.
    fn objects(&self) -> u32;

    /// Where the byte at `logical` lies, and how far the answer holds.
    fn locate(&self, logical: u64) -> Located;
}
