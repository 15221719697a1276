//! Reads: bytes of the content, of parts, and of the tail in memory.

use super::Body;
use crate::AT_ONCE;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_proto::Status;
use shoal_vfs::{Error, Result};
use std::ops::Range;

/// Bytes of a read that lie together.
enum Piece {
    Here(Bytes),
    /// A part, by its offset, and a range in it.
    Part(u64, Range<u64>),
}

/// The part of `[offset, end)` that is in `[at, at + len)`, relative to `at`.
fn within(offset: u64, end: u64, at: u64, len: u64) -> Option<Range<u64>> {
    let (from, to) = (offset.max(at), end.min(at + len));
    (from < to).then(|| from - at..to - at)
}

impl Body {
    pub(super) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let pieces = self.pieces(offset, len);
        let got = stream::iter(pieces).map(|piece| self.piece(piece)).buffered(AT_ONCE);
        let got: Vec<Bytes> = got.try_collect().await?;
        match <[Bytes; 1]>::try_from(got) {
            Ok([one]) => Ok(one),
            Err(several) => {
                let mut all = BytesMut::with_capacity(several.iter().map(Bytes::len).sum());
                several.iter().for_each(|bytes| all.extend_from_slice(bytes));
                Ok(all.freeze())
            }
        }
    }

    fn pieces(&self, offset: u64, len: usize) -> Vec<Piece> {
        let state = self.state.borrow();
        let end = offset.saturating_add(len as u64).min(state.len());
        let mut pieces = Vec::new();
        if state.named.has_parts
            && let Some(range) = within(offset, end, 0, state.named.content.len() as u64)
        {
            pieces.push(Piece::Here(state.named.content.slice(range.start as usize..range.end as usize)));
        }
        let first = state.parts.partition_point(|part| part.at + part.len <= offset);
        for part in state.parts[first..].iter().take_while(|part| part.at < end) {
            pieces.extend(within(offset, end, part.at, part.len).map(|range| Piece::Part(part.at, range)));
        }
        if let Some(range) = within(offset, end, state.tail_at, state.tail.len() as u64) {
            let bytes = &state.tail[range.start as usize..range.end as usize];
            pieces.push(Piece::Here(Bytes::copy_from_slice(bytes)));
        }
        pieces
    }

    async fn piece(&self, piece: Piece) -> Result<Bytes> {
        match piece {
            Piece::Here(bytes) => Ok(bytes),
            Piece::Part(at, range) => self.part(at, range).await,
        }
    }

    /// Bytes of a part.
    pub(super) async fn part(&self, at: u64, range: Range<u64>) -> Result<Bytes> {
        let (op, wanted) = ("read", range.end - range.start);
        let key = self.shared.keys.part(self.state.borrow().named.id, at);
        let has = match self.shared.calls.get_range(op, &key, range.clone()).await? {
            Some(found) if found.data.len() as u64 == wanted => return Ok(found.data),
            Some(found) => {
                format!("has {} bytes from {} on instead of {wanted}", found.data.len(), range.start)
            }
            None => "is missing".to_owned(),
        };
        // Another process may have removed the file.
        let place = self.shared.place_of(op, self.handle)?;
        let is_there = match self.shared.find(op, place.as_ref()).await? {
            Some((named, _)) => self.shared.is_it(self.handle, &named),
            None => self.is_unlinked(),
        };
        if !is_there {
            return Err(Error::new(Status::Stale, op).of(self.handle));
        }
        let words = format!("{}/{key} {has}: restore a version of that object", self.shared.calls.called());
        Err(Error::new(Status::Io, op).of(self.handle).because(words))
    }
}
