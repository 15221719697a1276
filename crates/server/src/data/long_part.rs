//! One stream's part of a long read or a long write. A part of any length is divided into pieces, one at a
//! time, as the pieces are sent or requested.
//!
//! ```text
//!   window   ....####....####....####....####....####....
//!   pieces   ├────────────────┤├───────────────┤├───────┤   each piece has at most 256 KiB
//! ```
//! Pieces lie side by side in packed bytes (the bytes of the whole pattern in the order of a message). Each
//! piece begins where the previous piece ended; bytes of other servers may lie between them. A piece is
//! found by a walk that is bounded in steps, so that the thread is never held for long. Tiny records
//! therefore make small pieces.

use super::hand::BURST_RUNS;
use super::part::{StreamPart, end_of, place_of};
use shoal_pattern::{Distribution, Pattern, View, ViewRun, Window, share_len};
use shoal_proto::{Status, Striping, Transfer, limits};
use std::rc::Rc;

/// Bytes of a piece, and of a share that is answered in the reply itself, at most.
pub const PIECE_BYTES_MAX: u64 = limits::FLOW_CHUNK_BYTES as u64;
/// Records (rows, strips) that the walk for one piece visits.
const PIECE_STEPS_MAX: u64 = 16_384;
/// Walks one after the other that may find no byte of the stream.
const WALKS_IN_VAIN_MAX: u64 = limits::TRANSFER_STEPS_MAX / PIECE_STEPS_MAX;

/// See the module's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPart {
    pattern: Rc<Pattern>,
    window: Window,
    striping: Striping,
    index: u32,
}

/// A piece that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartPiece {
    /// Its packed bytes in the pattern.
    pub window: Window,
    /// Its bytes in the stream.
    pub part: StreamPart,
}

impl PartPiece {
    /// Bytes of memory that it takes while it is read or written: its data, and the records of a burst, which
    /// are more than the data where records are tiny.
    pub fn bytes_in_hand(&self) -> usize {
        let bytes = usize::try_from(self.part.len()).unwrap_or(usize::MAX);
        bytes.saturating_add(bytes.min(BURST_RUNS) * size_of::<ViewRun>())
    }
}

/// The pieces of a part, one after the other.
#[derive(Debug)]
pub struct PieceWalk {
    whole: LongPart,
    /// Size of the stream: nothing after it is sent.
    size: u64,
    /// Packed bytes of the window that the walk has passed.
    passed: u64,
    /// Those of them that pieces have: the next one begins there.
    cut: u64,
    /// Walks since the last byte of the share.
    in_vain: u64,
}

/// The next step of a [`PieceWalk`].
#[derive(Debug, PartialEq, Eq)]
pub enum PieceStep {
    /// A piece.
    Piece(Box<PartPiece>),
    /// No byte of the stream was found in many records: walk on, after others had their turn.
    Nothing,
    /// There is none any more.
    End,
}

impl LongPart {
    /// The part of a transfer's stream, if it is too long for the reply itself.
    ///
    /// # Errors
    /// As [`StreamPart::of`]; `OverLimit`: longer than a transfer may be.
    pub fn of(transfer: &Transfer) -> Result<Option<LongPart>, Status> {
        if transfer.window_len <= PIECE_BYTES_MAX {
            return Ok(None);
        }
        let (window, striping, index) = place_of(transfer)?;
        let counted = share_len(&transfer.pattern, window, &striping, index).map_err(|_| Status::Invalid)?;
        let pattern = Rc::new(transfer.pattern.clone());
        let part = LongPart { pattern, window, striping, index };
        let is_long = match counted {
            Some(len) => len > PIECE_BYTES_MAX,
            None => part.is_long_by_walk()?,
        };
        if is_long && window.len > limits::TRANSFER_BYTES_MAX {
            return Err(Status::OverLimit);
        }
        Ok(is_long.then_some(part))
    }

    /// The part of a transfer's stream, whatever its length: of a write.
    ///
    /// # Errors
    /// As [`LongPart::of`].
    pub fn of_write(transfer: &Transfer) -> Result<LongPart, Status> {
        let (window, striping, index) = place_of(transfer)?;
        share_len(&transfer.pattern, window, &striping, index).map_err(|_| Status::Invalid)?;
        if window.len > limits::TRANSFER_BYTES_MAX {
            return Err(Status::OverLimit);
        }
        Ok(LongPart { pattern: Rc::new(transfer.pattern.clone()), window, striping, index })
    }

    /// No byte of it lies at this offset of the stream or after it.
    pub fn end(&self) -> u64 {
        end_of(&self.pattern, self.window, &self.striping, self.index)
    }

    fn is_long_by_walk(&self) -> Result<bool, Status> {
        let mut len = 0;
        for run in self.view(0)?.at_most(limits::TRANSFER_STEPS_MAX) {
            len += run.len;
            if len > PIECE_BYTES_MAX {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn view(&self, passed: u64) -> Result<View<'_>, Status> {
        let Window { from, len } = self.window;
        let rest = Window::new(from + passed, len - passed);
        View::new(&self.pattern, rest, &self.striping, self.index).map_err(|_| Status::Invalid)
    }

    /// Its pieces, as far as a stream of `size` bytes has something of them.
    pub fn pieces(self, size: u64) -> PieceWalk {
        PieceWalk { whole: self, size, passed: 0, cut: 0, in_vain: 0 }
    }
}

impl PieceWalk {
    /// Up to which packed byte of the pattern there were pieces.
    pub fn upto(&self) -> u64 {
        self.whole.window.from + self.cut
    }

    /// Find the next piece.
    ///
    /// # Errors
    /// `OverLimit`: a long way through the pattern had nothing of the stream.
    pub fn step(&mut self) -> Result<PieceStep, Status> {
        if self.is_after_end() {
            return Ok(PieceStep::End);
        }
        let mut view = self.whole.view(self.passed)?.at_most(PIECE_STEPS_MAX);
        let (mut len, mut end) = (0, None);
        for run in &mut view {
            let room = PIECE_BYTES_MAX - len;
            if run.len >= room {
                (len, end) = (PIECE_BYTES_MAX, Some(run.packed + room));
                break;
            }
            len += run.len;
        }
        let rest = self.whole.window.len - self.passed;
        let end = end.unwrap_or(if view.gave_up() { view.passed() } else { rest });
        self.passed += end;
        let window = Window::new(self.upto(), self.passed - self.cut);
        let LongPart { pattern, striping, index, .. } = &self.whole;
        let part = StreamPart::piece(pattern.clone(), window, *striping, *index, len).trimmed(self.size)?;
        // A piece after the stream's end is none in vain: the pattern may come back.
        self.in_vain = if len == 0 { self.in_vain + 1 } else { 0 };
        if self.in_vain > WALKS_IN_VAIN_MAX {
            return Err(Status::OverLimit);
        }
        if len == 0 {
            return Ok(PieceStep::Nothing);
        }
        // Bytes after the stream's end are a piece as well: later ones may be inside it.
        self.cut = self.passed;
        Ok(PieceStep::Piece(Box::new(PartPiece { window, part })))
    }

    /// Whether nothing of the rest is inside the stream.
    fn is_after_end(&self) -> bool {
        let LongPart { pattern, window, striping, index } = &self.whole;
        let rest = pattern.window_bounds(window.from + self.passed, window.len - self.passed);
        let Some((first, _)) = rest else { return true };
        striping.physical_size(*index, u64::try_from(first).unwrap_or(0)) >= self.size
    }
}
