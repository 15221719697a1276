//! Copies bytes between requests and blocks: it merges parts of several requests into one write, and cuts
//! records from blocks that were read.
//!
//! ```text
//!   request 1   AA......AA......AA......          pieces, each with its place in the stream
//!   request 2   ..BB......BB......BB....
//!   cover       ====....====....====....          few runs, or far apart: written alone, nothing is read
//!   block       AABBooooAABBooooAABB              many runs close together: written with the old bytes
//! ```
//! **If two pieces overlap, the later piece wins.** In one request this is the later piece in packed order
//! (the order of the bytes in the message). Of two requests it is the piece of the later request.
//!
//! A gap that reads as zeros and covers a whole page of the disk may be a hole. No bytes are written there,
//! so a hole stays a hole.

use bytes::{Bytes, BytesMut};
use shoal_pattern::ViewRun;
use std::ops::Range;

/// Bytes of a page of the disk: the smallest hole.
const PAGE_BYTES: u64 = 4096;
/// Fewer separate runs are written one by one rather than with what is between them.
const SEPARATE_MAX: usize = 8;

/// A piece of one request's data for a place of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePiece {
    /// Where it goes.
    pub at: u64,
    /// Which request's data.
    pub source: usize,
    /// Where it lies in that.
    pub from: usize,
    /// Bytes.
    pub len: usize,
}

impl WritePiece {
    fn end(&self) -> u64 {
        self.at + self.len as u64
    }
}

/// The pieces of one step, in the order in which they are to be applied, and the data that they lie in.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The data of each request.
    pub sources: Vec<Bytes>,
    /// The pieces.
    pub pieces: Vec<WritePiece>,
}

/// Runs to be written, disjoint and ascending, and the buffer that they lie in.
#[derive(Debug, PartialEq, Eq)]
pub struct Merged {
    /// `packed` is the position in `data`.
    pub runs: Vec<ViewRun>,
    /// The bytes.
    pub data: Bytes,
    /// Bytes that were copied for it.
    pub copied: usize,
}

/// Disjoint ranges, ascending, that do not touch.
pub type Cover = Vec<Range<u64>>;

impl Pieces {
    /// The bytes that the pieces bring.
    pub fn cover(&self) -> Cover {
        let mut ranges: Cover = self.pieces.iter().map(|piece| piece.at..piece.end()).collect();
        if !ranges.is_sorted_by_key(|range| range.start) {
            ranges.sort_unstable_by_key(|range| range.start);
        }
        let mut cover = Cover::new();
        for range in ranges {
            match cover.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => cover.push(range),
            }
        }
        cover
    }

    /// The pieces alone, those that touch as one run.
    pub fn merged(&self, cover: &Cover) -> Merged {
        if let [only] = self.pieces.as_slice()
            && let Some(source) = self.sources.get(only.source)
        {
            let run = ViewRun { physical: only.at, packed: 0, len: only.len as u64 };
            return Merged {
                runs: vec![run],
                data: source.slice(only.from..only.from + only.len),
                copied: 0,
            };
        }
        let mut len = 0;
        let runs: Vec<ViewRun> = cover
            .iter()
            .map(|range| {
                let run = ViewRun { physical: range.start, packed: len, len: range.end - range.start };
                len += run.len;
                run
            })
            .collect();
        let mut data = BytesMut::zeroed(len as usize);
        let mut copied = 0;
        for piece in &self.pieces {
            // The run that holds it.
            let at = runs.partition_point(|run| run.physical <= piece.at).saturating_sub(1);
            let Some(run) = runs.get(at) else { continue };
            let to = (run.packed + (piece.at - run.physical)) as usize;
            copied += self.copy(piece, &mut data[to..to + piece.len]);
        }
        Merged { runs, data: data.freeze(), copied }
    }

    /// The pieces over the old bytes from `from` on, which reach to the end of the cover.
    pub fn over(&self, old: &[u8], from: u64, cover: &Cover) -> Merged {
        let mut data = BytesMut::from(old);
        let mut copied = old.len();
        for piece in &self.pieces {
            let to = (piece.at - from) as usize;
            copied += self.copy(piece, &mut data[to..to + piece.len]);
        }
        let runs = without_holes(&data, from, cover);
        Merged { runs, data: data.freeze(), copied }
    }

    fn copy(&self, piece: &WritePiece, to: &mut [u8]) -> usize {
        let Some(source) = self.sources.get(piece.source) else { return 0 };
        to.copy_from_slice(&source[piece.from..piece.from + piece.len]);
        piece.len
    }
}

/// Whether runs lie so close that they are written with the bytes between them.
pub fn is_dense(cover: &Cover) -> bool {
    let span = match (cover.first(), cover.last()) {
        (Some(first), Some(last)) => last.end - first.start,
        _ => 0,
    };
    cover.len() > SEPARATE_MAX && span <= cover.len() as u64 * PAGE_BYTES
}

/// The runs of a buffer without those pages that no piece touches and that hold nothing but zeros.
fn without_holes(data: &[u8], from: u64, cover: &Cover) -> Vec<ViewRun> {
    let end = from + data.len() as u64;
    let mut runs = vec![ViewRun { physical: from, packed: 0, len: data.len() as u64 }];
    for gap in cover.windows(2) {
        let (first, last) = (gap[0].end.next_multiple_of(PAGE_BYTES), gap[1].start / PAGE_BYTES * PAGE_BYTES);
        let mut page = first;
        while page < last {
            let at = (page - from) as usize;
            let to = page + PAGE_BYTES;
            if data[at..at + PAGE_BYTES as usize].iter().all(|byte| *byte == 0) {
                if let Some(run) = runs.last_mut() {
                    run.len = page - run.physical;
                }
                runs.push(ViewRun { physical: to, packed: to - from, len: end - to });
            }
            page = to;
        }
    }
    runs.retain(|run| run.len > 0);
    runs
}

/// The bytes read of a stream: disjoint pieces, ascending.
#[derive(Debug, Default)]
pub struct Sources(Vec<(u64, Bytes)>);

impl Sources {
    /// Bytes from an offset on; calls come in ascending order of offsets.
    pub fn push(&mut self, from: u64, bytes: Bytes) {
        self.0.push((from, bytes));
    }

    /// In order of offsets from now on.
    pub fn sort(&mut self) {
        self.0.sort_unstable_by_key(|(from, _)| *from);
    }

    /// A run that one piece holds.
    pub fn slice(&self, run: &ViewRun) -> Option<Bytes> {
        let (from, bytes) = self.piece(run.physical)?;
        let at = (run.physical - from) as usize;
        let end = at.checked_add(run.len as usize)?;
        (end <= bytes.len()).then(|| bytes.slice(at..end))
    }

    fn piece(&self, at: u64) -> Option<&(u64, Bytes)> {
        let next = self.0.partition_point(|(from, _)| *from <= at);
        self.0.get(next.checked_sub(1)?)
    }

    /// The bytes of a run that one piece holds.
    pub fn of(&self, run: &ViewRun) -> Option<&[u8]> {
        let (from, bytes) = self.piece(run.physical)?;
        let at = usize::try_from(run.physical - from).ok()?;
        bytes.get(at..at.checked_add(run.len as usize)?)
    }

    /// Copy runs into their places in `out`, whose first byte is the packed byte `base`. Most lie in the
    /// piece of the run before. Bytes that were not read stay as they are. The number of copied bytes.
    pub fn copy_all(&self, runs: &[ViewRun], base: u64, out: &mut [u8]) -> usize {
        let (mut copied, mut near) = (0, None::<&(u64, Bytes)>);
        for run in runs {
            let inside = near.and_then(|(from, bytes)| {
                let at = usize::try_from(run.physical.checked_sub(*from)?).ok()?;
                bytes.get(at..at.checked_add(run.len as usize)?)
            });
            match inside {
                Some(bytes) => {
                    let to = (run.packed - base) as usize;
                    out[to..to + bytes.len()].copy_from_slice(bytes);
                    copied += bytes.len();
                }
                None => {
                    near = self.piece(run.physical);
                    copied += self.copy(run, base, out);
                }
            }
        }
        copied
    }

    /// See [`Sources::copy_all`].
    fn copy(&self, run: &ViewRun, base: u64, out: &mut [u8]) -> usize {
        let mut copied = 0;
        let end = run.physical + run.len;
        let first = self.0.partition_point(|(from, _)| *from <= run.physical).saturating_sub(1);
        for (from, bytes) in self.0.iter().skip(first).take_while(|(from, _)| *from < end) {
            let (begin, stop) = (run.physical.max(*from), end.min(from + bytes.len() as u64));
            if begin < stop {
                let to = (run.packed - base + (begin - run.physical)) as usize;
                let len = (stop - begin) as usize;
                let at = (begin - from) as usize;
                out[to..to + len].copy_from_slice(&bytes[at..at + len]);
                copied += len;
            }
        }
        copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(of: &[(u64, &'static [u8])]) -> Pieces {
        let mut all = Pieces::default();
        for (at, data) in of {
            all.pieces.push(WritePiece { at: *at, source: all.sources.len(), from: 0, len: data.len() });
            all.sources.push(Bytes::from_static(data));
        }
        all
    }

    #[test]
    fn pieces_without_gaps_become_one_run_and_the_later_byte_wins() {
        let all = pieces(&[(10, b"aaaa"), (18, b"cc"), (14, b"bbbb"), (12, b"xx")]);
        let cover = all.cover();
        assert_eq!((cover.len(), &cover[0]), (1, &(10..20)));
        let merged = all.merged(&cover);
        assert_eq!(merged.runs, [ViewRun { physical: 10, packed: 0, len: 10 }]);
        assert_eq!(&merged.data[..], b"aaxxbbbbcc");
    }

    #[test]
    fn separate_pieces_stay_separate_runs_of_one_buffer() {
        let all = pieces(&[(30, b"cc"), (10, b"aa"), (12, b"b")]);
        let merged = all.merged(&all.cover());
        let run = |physical, packed, len| ViewRun { physical, packed, len };
        assert_eq!(merged.runs, [run(10, 0, 3), run(30, 3, 2)]);
        assert_eq!(&merged.data[..], b"aabcc");
        let one = pieces(&[(7, b"zz")]);
        assert_eq!(one.merged(&one.cover()).copied, 0, "one piece is not copied");
    }

    #[test]
    fn gaps_keep_the_old_bytes_and_a_page_of_zeros_stays_a_hole() {
        let all = pieces(&[(10, b"aa"), (20_000, b"bb")]);
        let cover = all.cover();
        let mut old = vec![0; 20_002 - 10];
        old[5000 - 10] = 7;
        let merged = all.over(&old, 10, &cover);
        let at = |offset: u64| merged.data[(offset - 10) as usize];
        assert_eq!((at(10), at(5000), at(20_000)), (b'a', 7, b'b'));
        let run = |from: u64, to: u64| ViewRun { physical: from, packed: from - 10, len: to - from };
        // Pages: 4096 to 8192 has the old byte; 8192 to 16384 are zeros.
        assert_eq!(merged.runs, [run(10, 8192), run(16_384, 20_002)]);
    }

    #[test]
    fn records_are_cut_from_what_was_read_also_over_two_pieces() {
        let mut sources = Sources::default();
        sources.push(104, Bytes::from_static(b"efgh"));
        sources.push(100, Bytes::from_static(b"abcd"));
        sources.sort();
        let mut out = *b"........";
        assert_eq!(sources.copy(&ViewRun { physical: 102, packed: 1, len: 4 }, 0, &mut out), 4);
        assert_eq!(sources.copy(&ViewRun { physical: 106, packed: 25, len: 3 }, 20, &mut out), 2);
        assert_eq!(&out, b".cdefgh.");
        let mut all = *b"........";
        let run = |physical, packed, len| ViewRun { physical, packed, len };
        assert_eq!(
            sources.copy_all(
                &[run(104, 9, 1), run(105, 10, 2), run(102, 12, 3), run(100, 15, 2)],
                9,
                &mut all
            ),
            8
        );
        assert_eq!(&all, b"efgcdeab");
        assert_eq!(sources.slice(&ViewRun { physical: 105, packed: 0, len: 2 }).as_deref(), Some(&b"fg"[..]));
        assert_eq!(sources.slice(&ViewRun { physical: 102, packed: 0, len: 4 }), None);
    }
}
