//! The packed bytes of a pattern that one server holds, as ranges. *Packed* bytes are counted in the order in
//! which a message carries the bytes of the pattern. The offsets of the bytes in the datafile do not matter.
//!
//! A client that receives a server's bytes needs only the packed ranges to put the bytes in their places. If
//! records are small, the ranges are fewer than the runs of a [`View`]. Records with gaps between them in the
//! datafile can follow each other in packed order:
//!
//! ```text
//!   pattern   #...#...#...#...#...#...    strided(0, 1, 4, 6), strips of 12, two servers
//!   server 0  ^   ^   ^                   View: 3 runs       PackedRanges: 0..3
//!   server 1              ^   ^   ^       View: 3 runs       PackedRanges: 3..6
//! ```
//! Invariant: together the ranges have the same packed bytes as the runs of the view. They come in order, and
//! each is maximal (test: `views_over_all_servers_partition_the_pattern`).
//!
//! Cost: arithmetic passes the whole records of a row that lie in one strip, in either direction. So a range
//! costs O(strips + rows) and not O(records).

use crate::view::View;
use std::ops::Range;

/// Packed ranges of a server, counted from the start of the view's window. Made by [`View::packed`].
#[derive(Clone)]
pub struct PackedRanges<'a> {
    view: View<'a>,
    /// Found, and not in the range before it.
    next: Option<Range<u64>>,
}

impl<'a> PackedRanges<'a> {
    pub(crate) fn of(mut view: View<'a>) -> Self {
        let next = view.next().map(|run| run.packed..run.packed + run.len);
        Self { view, next }
    }
}

impl Iterator for PackedRanges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let mut range = self.next.take()?;
        loop {
            range.end += self.view.pass_here(range.end);
            match self.view.next() {
                Some(run) if run.packed == range.end => range.end += run.len,
                next => {
                    self.next = next.map(|run| run.packed..run.packed + run.len);
                    return Some(range);
                }
            }
        }
    }
}

impl std::iter::FusedIterator for PackedRanges<'_> {}
