//! Long reads under way: the pieces that have arrived, and the rest that is requested again after a lost
//! connection. *Packed* bytes are counted in the order of the pattern that is read.
//!
//! ```text
//!   packed bytes     0 ├─ piece ─┤├─ piece ─┤          ├─ piece ─┤
//!   connection lost                          T = the first missing byte
//!   requested again                          ├──────────────────────────────┤   the rest, from T on
//! ```
//! The pieces come in any order. **After a lost connection the rest is requested**: from the first packed
//! byte that did not come. Pieces after that byte come again. So a transfer completes even if no connection
//! lasts for the whole transfer, and each lost connection repeats at most one connection's credit. Each piece
//! carries the facts of its stream (size, change count) at the moment at which the piece was read.
//!
//! **A piece is accepted only if it was requested, lies inside the window, and comes once**; else the request
//! fails and the connection ends. The time limit counts from the last piece that brought new bytes: repeated
//! pieces do not extend it.

use super::Session;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::message::{Piece, Request};
use shoal_proto::{Op, Status, StreamFacts, Transfer, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// A piece that came.
#[derive(Debug)]
pub(crate) struct Brought {
    /// Its packed bytes in the pattern: the first, and how many.
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) facts: StreamFacts,
    pub(crate) bulk: Bytes,
}

/// A read that may be answered by pieces.
pub(super) struct LongRead {
    /// The window that its caller asks for.
    from: u64,
    len: u64,
    /// Without anything new for so long it ends.
    limit: Duration,
    /// By their first packed byte.
    pieces: BTreeMap<u64, Brought>,
    /// Packed bytes that came, and the most that ever were there.
    covered: u64,
    covered_most: u64,
}

impl LongRead {
    pub(super) fn new(transfer: &Transfer, limit: Duration) -> LongRead {
        LongRead {
            from: transfer.window_from,
            len: transfer.window_len,
            limit,
            pieces: BTreeMap::new(),
            covered: 0,
            covered_most: 0,
        }
    }

    /// Take a piece; whether it brings something new.
    ///
    /// # Errors
    /// It was not asked for, in words.
    fn take(&mut self, asked_from: u64, piece: Piece, bulk: Bytes) -> Result<bool, &'static str> {
        let Piece { from, len, facts } = piece;
        let end = from.checked_add(len).filter(|&end| len > 0 && end <= self.from + self.len);
        let Some(end) = end.filter(|_| from >= asked_from) else {
            return Err("a piece outside of the window that was asked for");
        };
        if bulk.len() > limits::FLOW_CHUNK_BYTES || bulk.len() as u64 > len {
            return Err("a piece with more bytes than it may bring");
        }
        let before = self.pieces.range(..end).next_back();
        if before.is_some_and(|(_, before)| before.from + before.len > from) {
            return Err("a piece that came before");
        }
        self.pieces.insert(from, Brought { from, len, facts, bulk });
        self.covered += len;
        let is_new = self.covered > self.covered_most;
        self.covered_most = self.covered_most.max(self.covered);
        Ok(is_new)
    }

    /// The first packed byte that did not come. Pieces after it are forgotten.
    fn keep_first(&mut self) -> u64 {
        let mut upto = self.from;
        for piece in self.pieces.values() {
            if piece.from != upto {
                break;
            }
            upto += piece.len;
        }
        self.pieces.retain(|from, _| *from < upto);
        self.covered = upto - self.from;
        upto
    }

    /// The reply came: its pieces. The request is again as it was asked first.
    pub(super) fn end(self, request: &mut Request) -> Vec<Brought> {
        if let Some(transfer) = transfer_of(request) {
            (transfer.window_from, transfer.window_len) = (self.from, self.len);
        }
        self.pieces.into_values().collect()
    }
}

fn transfer_of(request: &mut Request) -> Option<&mut Transfer> {
    match request.groups.first_mut()?.ops.first_mut()? {
        Op::Read { transfer } => Some(transfer),
        _ => None,
    }
}

impl Session {
    /// A piece came.
    ///
    /// # Errors
    /// When the connection is of no further use: it was not asked for.
    pub(crate) fn piece(&mut self, tag: u64, piece: Piece, bulk: Bytes, now: Instant) -> Result<(), String> {
        self.answers();
        if self.left.contains(&tag) {
            return Ok(());
        }
        let pending = self.pending.get_mut(tag).filter(|pending| pending.sent);
        let Some(pending) = pending else { return Err("a piece of no request".to_owned()) };
        let asked_from = transfer_of(&mut pending.request).map_or(0, |transfer| transfer.window_from);
        let taken = match &mut pending.long_read {
            Some(long_read) => {
                long_read.take(asked_from, piece, bulk).map(|is_new| (is_new, long_read.limit))
            }
            None => Err("a piece of a request that is answered by its reply alone"),
        };
        match taken {
            Ok((is_new, limit)) => {
                if is_new {
                    pending.deadline = pending.deadline.max(now + limit);
                }
                Ok(())
            }
            Err(words) => {
                self.fail(tag, Status::BadMessage, words);
                Err(words.to_owned())
            }
        }
    }

    /// A new connection: long reads that were under way ask for what did not come.
    pub(super) fn resume_long_reads(&mut self) {
        for tag in self.pending.tags(|pending| pending.sent && pending.long_read.is_some()) {
            let Some(pending) = self.pending.get_mut(tag) else { continue };
            let Some(long_read) = &mut pending.long_read else { continue };
            let upto = long_read.keep_first();
            let end = long_read.from + long_read.len;
            if let Some(transfer) = transfer_of(&mut pending.request) {
                (transfer.window_from, transfer.window_len) = (upto, end - upto);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_pattern::Pattern;
    use shoal_proto::{ChangeCount, Generation, Handle, Share};

    const FACTS: StreamFacts =
        StreamFacts { generation: Generation(1), size: 0, space: 0, written_at: None, count: ChangeCount(1) };

    fn long_read(from: u64, len: u64) -> LongRead {
        let transfer = Transfer {
            stream: Handle(1),
            generation: Generation(1),
            capability: None,
            pattern: Pattern::contiguous(0, from + len).unwrap(),
            window_from: from,
            window_len: len,
            share: Share::WHOLE,
        };
        LongRead::new(&transfer, Duration::from_secs(1))
    }

    fn take(read: &mut LongRead, from: u64, len: u64, bytes: usize) -> Result<bool, &'static str> {
        read.take(read.from, Piece { from, len, facts: FACTS }, vec![0; bytes].into())
    }

    #[test]
    fn a_piece_is_taken_once_and_only_inside_what_was_asked_for() {
        let mut read = long_read(1000, 1000);
        assert_eq!(take(&mut read, 1200, 100, 100), Ok(true));
        for (from, len) in [(999, 10), (1990, 11), (2000, 1), (1300, 0), (u64::MAX, 2), (0, u64::MAX)] {
            let words = take(&mut read, from, len, 0).unwrap_err();
            assert!(words.contains("outside"), "{from} {len}: {words}");
        }
        for (from, len) in [(1200, 100), (1250, 10), (1100, 101), (1299, 50), (1000, 1000)] {
            let words = take(&mut read, from, len, 0).unwrap_err();
            assert!(words.contains("came before"), "{from} {len}: {words}");
        }
        assert!(take(&mut read, 1300, 10, 11).unwrap_err().contains("more bytes"));
        assert_eq!(take(&mut read, 1300, 700, 0), Ok(true));
        assert_eq!(take(&mut read, 1000, 200, 10), Ok(true));
        let froms: Vec<u64> = read.pieces.keys().copied().collect();
        assert_eq!(froms, [1000, 1200, 1300]);
    }

    #[test]
    fn a_piece_of_more_than_a_chunk_is_refused() {
        let mut read = long_read(0, 1 << 30);
        let words = take(&mut read, 0, 1 << 20, limits::FLOW_CHUNK_BYTES + 1).unwrap_err();
        assert!(words.contains("more bytes"), "{words}");
        assert_eq!(take(&mut read, 0, 1 << 20, limits::FLOW_CHUNK_BYTES), Ok(true));
    }

    #[test]
    fn after_a_lost_connection_the_rest_is_asked_for_and_what_comes_again_is_nothing_new() {
        let mut read = long_read(0, 1000);
        for (from, len) in [(0, 100), (100, 50), (300, 100), (500, 100)] {
            assert_eq!(take(&mut read, from, len, 1), Ok(true));
        }
        assert_eq!(read.keep_first(), 150);
        assert_eq!(read.pieces.len(), 2);
        assert!(read.take(150, Piece { from: 100, len: 50, facts: FACTS }, Bytes::new()).is_err());
        assert_eq!(take(&mut read, 300, 100, 1), Ok(false), "it was there before");
        assert_eq!(take(&mut read, 500, 100, 1), Ok(false));
        assert_eq!(take(&mut read, 150, 10, 1), Ok(true));
        assert_eq!(read.keep_first(), 160);
    }
}
