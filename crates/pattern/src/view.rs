//! The view: a pattern as one server sees it.
//!
//! One server's part of a pattern has in general no short closed form: 47,008 bytes at stride 376,064 over
//! 4 x 64 KiB repeat only after 1,024 records. So no per-server pattern is computed or sent. A message
//! carries the pattern, a window (a range of its *packed* bytes, which are counted in the order of a
//! message), the distribution and the server. Client and server then walk the same view, lazily. PVFS does
//! the same with MPI datatypes on both sides of its flows.
//!
//! ```text
//!   logical     0       8       16      24          two servers, strips of 4
//!   servers     00001111000011110000111100001111
//!   pattern     ..######..######..######..######    strided(2, 6, 8, 4)
//!   packed        012345  6789ab  ...
//!   server 0      ^^      ^^      ^^      ^^        ViewRun { physical 2, packed 0, len 2 }, { 6, 6, 2 } …
//! ```
//!
//! Invariants: the views over all servers partition the window's packed bytes; runs come in packed order,
//! each maximal (the next run is not contiguous with it in both spaces) (test:
//! `views_over_all_servers_partition_the_pattern`).
//!
//! Cost: a server's view skips the other servers' bytes by arithmetic when the distribution gives a
//! [`Cycle`]: whole strips inside a record, whole records inside a row. It costs O(own runs), and O(log
//! period) for each row in the outer levels and each run of a list.
//!
//! **A pattern of a few bytes may have 2^60 records of which a server holds none.** Code that walks a
//! pattern from the wire must bound the walk ([`View::at_most`]).
//!
//! [`Split`] divides a server's share of a transfer into messages, at packed positions: only the part of a
//! pattern between two packed positions is a pattern again.

use crate::congruence::first_below;
use crate::distribution::{Cycle, Distribution};
use crate::packed::PackedRanges;
use crate::pattern::Pattern;
use crate::regions::{RowRecords, Walk};

/// Packed bytes `from .. from + len` of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The first packed byte.
    pub from: u64,
    /// How many.
    pub len: u64,
}

impl Window {
    /// `len` packed bytes from `from`.
    pub const fn new(from: u64, len: u64) -> Self {
        Self { from, len }
    }

    /// All packed bytes of `pattern`.
    pub fn all(pattern: &Pattern) -> Self {
        Self { from: 0, len: pattern.len() }
    }

    /// The packed position after the window; `u64::MAX` if the end is beyond that.
    pub const fn end(&self) -> u64 {
        self.from.saturating_add(self.len)
    }
}

/// Bytes of a view that are contiguous in the datafile and in packed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewRun {
    /// Where they begin in the server's datafile.
    pub physical: u64,
    /// Their packed position, counted from the start of the view's window.
    pub packed: u64,
    /// How many bytes.
    pub len: u64,
}

/// Why a pattern cannot be projected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The window does not lie inside the pattern.
    #[error("the window {from}+{len} is not inside a pattern of {pattern_len} bytes")]
    OutsidePattern {
        /// The window's start.
        from: u64,
        /// The window's length.
        len: u64,
        /// The pattern's packed length.
        pattern_len: u64,
    },
    /// The window has a byte before the start of the file.
    #[error("the pattern reaches offset {offset}, before the start of the file")]
    NegativeOffset {
        /// The smallest offset in the window.
        offset: i64,
    },
    /// The distribution has no such server.
    #[error("server {server} is not among the file's {servers}")]
    NoSuchServer {
        /// The requested server.
        server: u32,
        /// How many there are.
        servers: u32,
    },
    /// The message size is 0 bytes.
    #[error("a transfer cannot be cut into messages of 0 bytes")]
    EmptyMessages,
}

/// The runs of one server in a packed window of a pattern, in packed order. An iterator; a clone continues
/// from the position of the original.
#[derive(Clone)]
pub struct View<'a> {
    walk: Walk<'a>,
    distribution: &'a dyn Distribution,
    server: u32,
    cycle: Option<Cycle>,
    /// The bytes of the server around the last piece: of many small records in one strip only the first is
    /// located.
    here: Here,
    window_len: u64,
    /// Found and not yet yielded, since the next may extend it.
    pending: Option<ViewRun>,
    /// Pieces that the walk may still visit.
    steps_left: u64,
    gave_up: bool,
}

/// Logical bytes that follow each other in the server's datafile.
#[derive(Clone, Copy, Default)]
struct Here {
    from: u64,
    end: u64,
    physical: u64,
}

impl Here {
    /// The place of a byte, and how many follow it; `None`: it is not among them.
    fn locate(&self, logical: u64) -> Option<(u64, u64)> {
        let is_inside = self.from <= logical && logical < self.end;
        is_inside.then(|| (self.physical + (logical - self.from), self.end - logical))
    }
}

impl Here {
    /// How many records of a row lie whole in these bytes, one after the other from its first on.
    fn records(&self, row: RowRecords) -> u64 {
        let RowRecords { offset, record, stride, records } = row;
        let Ok(from) = u64::try_from(offset) else { return 0 };
        if from < self.from || from.checked_add(record).is_none_or(|end| end > self.end) {
            return 0;
        }
        let room = if stride < 0 { from - self.from } else { self.end - from - record };
        room.checked_div(stride.unsigned_abs()).map_or(records, |more| records.min(more.saturating_add(1)))
    }
}

impl<'a> View<'a> {
    /// The share of `server` in the packed `window` of `pattern` under `distribution`.
    pub fn new(
        pattern: &'a Pattern,
        window: Window,
        distribution: &'a dyn Distribution,
        server: u32,
    ) -> Result<Self, ViewError> {
        check(pattern, window)?;
        if server >= distribution.objects() {
            return Err(ViewError::NoSuchServer { server, servers: distribution.objects() });
        }
        Ok(Self {
            walk: Walk::new(pattern, window.from, window.len),
            distribution,
            server,
            cycle: distribution.cycle(server).filter(Cycle::is_valid),
            here: Here::default(),
            window_len: window.len,
            pending: None,
            steps_left: u64::MAX,
            gave_up: false,
        })
    }

    /// The same, but the view ends after it visited `steps` pieces, of this server or not; then
    /// [`View::gave_up`] returns true. A piece lies between two boundaries of records, rows or strips.
    pub fn at_most(mut self, steps: u64) -> Self {
        self.steps_left = steps;
        self
    }

    /// Whether the walk ended before the pattern did, because of [`View::at_most`].
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Packed bytes of the window that the walk has passed: those of the yielded runs, and those of other
    /// servers. A view of the rest of the window continues there.
    pub fn passed(&self) -> u64 {
        self.pending.map_or(self.window_len - self.walk.left(), |run| run.packed)
    }

    /// The packed ranges of the server, wherever they lie in its datafile.
    pub fn packed(self) -> PackedRanges<'a> {
        PackedRanges::of(self)
    }

    /// Passes whole records of a row that follow packed byte `packed` at once and lie in the datafile near
    /// the last piece; how many bytes they have. A found piece that is not yet yielded counts as their first.
    pub(crate) fn pass_here(&mut self, packed: u64) -> u64 {
        // With a piece pending, the walk is after it.
        let pending = self.pending.take_if(|run| run.packed == packed).map_or(0, |run| run.len);
        if self.pending.is_some() || self.window_len - self.walk.left() != packed + pending {
            return pending;
        }
        let Some(records) = self.walk.row_records().map(|row| self.here.records(row)) else { return pending };
        let left = self.walk.left();
        if records > 0 && self.steps_left > 0 {
            self.steps_left -= 1;
            self.walk.pass_records(records - 1);
        }
        pending + (left - self.walk.left())
    }

    /// Bytes of the server that are not yet yielded. Counts whole records by arithmetic if the distribution
    /// gives a cycle, and otherwise by iteration.
    pub fn len(&self) -> u64 {
        match self.cycle {
            Some(cycle) => self.count(cycle),
            None => self.clone().map(|run| run.len).sum(),
        }
    }

    /// Whether no byte of the server is left to yield.
    pub fn is_empty(&self) -> bool {
        self.clone().next().is_none()
    }

    fn count(&self, cycle: Cycle) -> u64 {
        let mut walk = self.walk.clone();
        let mut held = self.pending.map_or(0, |run| run.len);
        while let Some(region) = walk.peek() {
            let offset = region.offset as u64;
            let here = cycle.held_below(offset + region.len) - cycle.held_below(offset);
            held += here;
            if here == 0 {
                skip_records(&mut walk, cycle);
            } else {
                walk.pass(region.len);
            }
        }
        held
    }

    /// The next run up to the end of its record or strip.
    fn next_piece(&mut self) -> Option<ViewRun> {
        loop {
            let region = self.walk.peek()?;
            let Some(steps_left) = self.steps_left.checked_sub(1) else {
                self.gave_up = true;
                return None;
            };
            self.steps_left = steps_left;
            let logical = region.offset as u64;
            let (physical, run) = match self.here.locate(logical) {
                Some(here) => here,
                None => {
                    let found = self.distribution.locate(logical);
                    match found.piece().filter(|piece| piece.object == self.server) {
                        Some(piece) => {
                            let run = found.run();
                            let end = logical.saturating_add(run);
                            self.here = Here { from: logical, end, physical: piece.physical };
                            (piece.physical, run)
                        }
                        None => {
                            self.pass_over(region.len, logical, found.run().min(region.len));
                            continue;
                        }
                    }
                }
            };
            let (packed, len) = (self.window_len - self.walk.left(), run.min(region.len));
            self.walk.pass(len);
            return Some(ViewRun { physical, packed, len });
        }
    }

    /// Passes over bytes of other servers: at least `run`, of the `len` that are left of the record.
    fn pass_over(&mut self, len: u64, logical: u64, run: u64) {
        let next = self.distribution.next_on(self.server, logical);
        let gap = next.map(|next| next.saturating_sub(logical).max(run));
        match (gap, self.cycle) {
            (Some(gap), _) if gap < len => self.walk.pass(gap),
            (_, Some(cycle)) => skip_records(&mut self.walk, cycle),
            (Some(_), None) => self.walk.pass(len),
            (None, None) => self.walk.pass(run),
        }
    }
}

/// The window is inside the pattern, and nothing in it lies before the start of the file.
pub(crate) fn check(pattern: &Pattern, window: Window) -> Result<(), ViewError> {
    let Window { from, len } = window;
    if from.checked_add(len).is_none_or(|end| end > pattern.len()) {
        return Err(ViewError::OutsidePattern { from, len, pattern_len: pattern.len() });
    }
    match pattern.window_bounds(from, len) {
        Some((offset, _)) if offset < 0 => Err(ViewError::NegativeOffset { offset }),
        _ => Ok(()),
    }
}

/// Passes the current record, of which the server holds nothing, and all that follow it in its row up to
/// the first of which it holds something.
fn skip_records(walk: &mut Walk<'_>, cycle: Cycle) {
    let Some(row) = walk.row() else { return };
    // A record at x of r bytes meets the server's range when (x + r - 1 - start) mod period < len + r - 1.
    let reach = row.record - 1;
    let width = cycle.len.saturating_add(reach);
    let until_met = if cycle.len == 0 {
        None
    } else {
        let first =
            u128::from(row.next_offset as u64) + u128::from(reach) + u128::from(cycle.period - cycle.start);
        let place = (first % u128::from(cycle.period)) as u64;
        if width >= cycle.period { Some(0) } else { first_below(place, row.stride, cycle.period, width) }
    };
    walk.pass_records(until_met.unwrap_or(u64::MAX));
}

impl Iterator for View<'_> {
    type Item = ViewRun;

    fn next(&mut self) -> Option<ViewRun> {
        let mut run = match self.pending.take() {
            Some(pending) => pending,
            None => self.next_piece()?,
        };
        while let Some(piece) = self.next_piece() {
            if piece.physical != run.physical + run.len || piece.packed != run.packed + run.len {
                self.pending = Some(piece);
                break;
            }
            run.len += piece.len;
        }
        Some(run)
    }
}

impl std::iter::FusedIterator for View<'_> {}

/// Packed windows that cut a server's share of a transfer into messages. Made by [`split`].
///
/// The windows are in order and disjoint; each begins and ends with a byte of the server and holds at most
/// `max_bytes` of them; together they hold all. Packed bytes of other servers between two windows are in
/// neither.
#[derive(Clone)]
pub struct Split<'a> {
    view: View<'a>,
    /// The window's start: windows are given in the pattern's packed positions.
    base: u64,
    max_bytes: u64,
    /// The rest of the current run.
    rest: Option<ViewRun>,
}

/// Cuts the share of `server` in the packed `window` of `pattern` into windows of at most `max_bytes` of its
/// bytes each.
pub fn split<'a>(
    pattern: &'a Pattern,
    window: Window,
    distribution: &'a dyn Distribution,
    server: u32,
    max_bytes: u64,
) -> Result<Split<'a>, ViewError> {
    if max_bytes == 0 {
        return Err(ViewError::EmptyMessages);
    }
    let view = View::new(pattern, window, distribution, server)?;
    Ok(Split { view, base: window.from, max_bytes, rest: None })
}

impl Iterator for Split<'_> {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        let mut run = self.rest.take().or_else(|| self.view.next())?;
        let from = run.packed;
        let mut room = self.max_bytes;
        loop {
            if run.len > room {
                let cut = run.packed + room;
                self.rest = Some(ViewRun { physical: run.physical + room, packed: cut, len: run.len - room });
                return Some(Window::new(self.base + from, cut - from));
            }
            room -= run.len;
            let end = run.packed + run.len;
            match self.view.next() {
                Some(next) if room > 0 => run = next,
                next => {
                    self.rest = next;
                    return Some(Window::new(self.base + from, end - from));
                }
            }
        }
    }
}

impl std::iter::FusedIterator for Split<'_> {}
