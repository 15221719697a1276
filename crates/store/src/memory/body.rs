//! The bytes of a stream in memory: chunks for written ranges, nothing for holes.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// Bytes of a chunk. A chunk is only as long as its written part.
const CHUNK: u64 = 16 * 1024;

#[derive(Default)]
pub(super) struct Body {
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl Body {
    pub fn with_content(content: &[u8]) -> Body {
        let mut body = Body::default();
        body.write(0, content);
        body
    }

    /// Bytes of memory taken.
    pub fn space(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.len() as u64).sum()
    }

    /// End of the last byte written.
    pub fn end(&self) -> u64 {
        self.chunks.last_key_value().map_or(0, |(index, chunk)| index * CHUNK + chunk.len() as u64)
    }

    pub fn write(&mut self, mut at: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (index, within) = (at / CHUNK, (at % CHUNK) as usize);
            let n = data.len().min(CHUNK as usize - within);
            let chunk = self.chunks.entry(index).or_default();
            if chunk.len() < within + n {
                chunk.resize(within + n, 0);
            }
            chunk[within..within + n].copy_from_slice(&data[..n]);
            at += n as u64;
            data = &data[n..];
        }
    }

    /// Fill `out` with the bytes at `at`; holes leave it unchanged (zeros).
    pub fn read(&self, at: u64, out: &mut [u8]) {
        let end = at.saturating_add(out.len() as u64);
        for (index, chunk) in self.chunks.range(at / CHUNK..end.div_ceil(CHUNK)) {
            let start = index * CHUNK;
            let (from, to) = (at.max(start), end.min(start + chunk.len() as u64));
            if from < to {
                let source = &chunk[(from - start) as usize..(to - start) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(source);
            }
        }
    }

    /// Remove everything from `len` on.
    pub fn cut(&mut self, len: u64) {
        self.chunks.split_off(&len.div_ceil(CHUNK));
        if let Some(chunk) = self.chunks.get_mut(&(len / CHUNK)) {
            chunk.truncate((len % CHUNK) as usize);
        }
    }

    /// Zeros in `from..to`.
    pub fn punch(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> =
            self.chunks.range(from / CHUNK..to.div_ceil(CHUNK)).map(|(i, _)| *i).collect();
        for index in touched {
            let start = index * CHUNK;
            if from <= start && start + CHUNK <= to {
                self.chunks.remove(&index);
                continue;
            }
            if let Some(chunk) = self.chunks.get_mut(&index) {
                let len = chunk.len() as u64;
                let (a, b) = (from.saturating_sub(start).min(len), (to - start).min(len));
                chunk[a as usize..b as usize].fill(0);
            }
        }
    }

    /// All of it, if that is at most `max` bytes.
    pub fn content(&self, max: usize) -> Option<Bytes> {
        let end = usize::try_from(self.end()).ok().filter(|end| *end <= max)?;
        let mut out = BytesMut::zeroed(end);
        self.read(0, &mut out);
        Some(out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(body: &Body, at: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        body.read(at, &mut out);
        out
    }

    #[test]
    fn what_was_cut_reads_as_zeros_when_it_grows_again() {
        let mut body = Body::with_content(&[7; 40_000]);
        body.cut(100);
        body.write(200, &[9; 2]);
        assert_eq!(bytes(&body, 98, 6), [7, 7, 0, 0, 0, 0]);
        assert_eq!(bytes(&body, 199, 4), [0, 9, 9, 0]);
    }

    #[test]
    fn a_hole_far_away_takes_no_memory() {
        let mut body = Body::default();
        body.write(1 << 40, b"x");
        assert!(body.space() <= CHUNK);
        assert_eq!(bytes(&body, (1 << 40) - 1, 3), [0, b'x', 0]);
    }

    #[test]
    fn a_punched_range_reads_as_zeros() {
        let mut body = Body::with_content(&[1; 60_000]);
        body.punch(10, 50_000);
        assert_eq!(bytes(&body, 9, 2), [1, 0]);
        assert_eq!(bytes(&body, 49_999, 2), [0, 1]);
        assert_eq!(body.end(), 60_000);
    }
}
