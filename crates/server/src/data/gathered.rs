//! The bytes of a read in hand, put together as they come.
//!
//! ```text
//!   dense positions   0 ......... len
//!   runs of a burst   LLLLLLLL sss s LLLLLLLLL sss
//!   kept              LLLLLLLL       LLLLLLLLL       long runs: the buffers that they were read into
//!   stretches                  ssss            sss   all between: one buffer each, records are copied
//! ```
//! **A long run is not copied.** It is an extent of its own, was read into a buffer of its own length, and
//! that buffer goes to the socket. So a read of long records costs no more copies than a contiguous one.
//!
//! **No byte of a stretch is sent that was not set.** A stretch grows as records come. Bytes before a record
//! that came early are zeros until their own record comes; where none comes (a hole, the end of the stream)
//! they stay zeros. Most records come in packed order: then only the next few bytes are cleared before they
//! are copied, while they are in the processor's cache.
//!
//! **The buffers of a burst are no longer than its part.** A stretch has room for its own bytes. Where a
//! burst has no long run, the next one has more of the same records: then there is room for the rest of the
//! part. **At the end all runs were served, and the buffers lie side by side**, from the first byte of the
//! part to its last: else the read fails ([`Gathered::end`]).

use super::burst::Group;
use super::extent::Extent;
use super::pack::Sources;
use bytes::{Bytes, BytesMut};
use shoal_pattern::ViewRun;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Dense positions and bytes of long runs.
    kept: Vec<(u64, Bytes)>,
    /// The bytes between them, in order.
    stretches: Vec<Stretch>,
    /// Dense bytes of the bursts so far.
    upto: u64,
    /// Bytes of the runs that were served, whether the stream had them or not.
    served: u64,
}

/// Dense bytes that are copied together.
#[derive(Debug)]
struct Stretch {
    from: u64,
    len: u64,
    /// Its first bytes.
    bytes: BytesMut,
}

/// Whether a run of an extent stays where it was read, in a part of `len` bytes.
fn is_kept(extent: &Extent, cuts: &[ViewRun], len: u64) -> bool {
    matches!(cuts, [only] if only.len == len || !extent.is_block())
}

impl Gathered {
    /// The next burst of a part of `len` bytes comes: the bytes between its long runs are copied.
    pub fn expect(&mut self, cuts: &[ViewRun], groups: &[Group], len: u64) {
        let long = groups.iter().filter(|(extent, from, to)| is_kept(extent, &cuts[*from..*to], len));
        let mut long: Vec<(u64, u64)> =
            long.map(|&(_, from, _)| (cuts[from].packed, cuts[from].len)).collect();
        long.sort_unstable();
        let keeps_none = long.is_empty();
        let burst: u64 = cuts.iter().map(|cut| cut.len).sum();
        let end = self.upto + burst;
        for (packed, bytes) in long.into_iter().chain([(end, 0)]) {
            match self.stretches.last_mut() {
                _ if packed == self.upto => {}
                Some(last) if last.from + last.len == self.upto => last.len += packed - self.upto,
                _ => {
                    let (from, bytes) = (self.upto, BytesMut::new());
                    self.stretches.push(Stretch { from, len: packed - from, bytes });
                }
            }
            self.upto = packed + bytes;
        }
        // The next burst has more of the same records, if this one has no long ones.
        if let Some(last) = self.stretches.last_mut()
            && last.bytes.capacity() == 0
        {
            let rest = if keeps_none { len.saturating_sub(last.from) } else { last.len };
            last.bytes.reserve(usize::try_from(rest).unwrap_or(0));
        }
    }

    /// Take the pieces of an extent, in packed order, from what was read, of a part of `len` bytes. The
    /// number of bytes that were copied.
    pub fn take(&mut self, extent: &Extent, cuts: &[ViewRun], sources: &Sources, len: u64) -> usize {
        self.served += cuts.iter().map(|cut| cut.len).sum::<u64>();
        if is_kept(extent, cuts, len)
            && let Some(run) = cuts.first()
        {
            if let Some(bytes) = sources.slice(run) {
                self.kept.push((run.packed, bytes));
                return 0;
            }
            let mut own = BytesMut::zeroed(run.len as usize);
            let copied = sources.copy_all(cuts, run.packed, &mut own);
            self.kept.push((run.packed, own.freeze()));
            return copied;
        }
        let (mut copied, mut rest) = (0, cuts);
        while let Some(first) = rest.first() {
            let at = self.stretches.partition_point(|stretch| stretch.from <= first.packed);
            let Some(stretch) = at.checked_sub(1).and_then(|at| self.stretches.get_mut(at)) else { break };
            let inside = stretch.from..stretch.from + stretch.len;
            let here = rest.iter().take_while(|cut| inside.contains(&cut.packed)).count();
            debug_assert!(here > 0, "a piece in no stretch: {first:?}");
            if here == 0 {
                break;
            }
            let (own, others) = rest.split_at(here);
            copied += stretch.fill(own, sources);
            rest = others;
        }
        copied
    }

    /// All `len` bytes of the part, in order. `None`: a run of it was not served, or twice, or its buffers do
    /// not lie side by side.
    pub fn end(self, len: u64) -> Option<Vec<Bytes>> {
        let Gathered { mut kept, stretches, served, .. } = self;
        let filled = stretches.into_iter().map(|Stretch { from, len, mut bytes }| {
            bytes.resize(len as usize, 0);
            (from, bytes.freeze())
        });
        kept.extend(filled);
        kept.sort_unstable_by_key(|(from, _)| *from);
        let mut upto = 0;
        let mut all = Vec::with_capacity(kept.len());
        for (from, bytes) in kept {
            if from != upto {
                return None;
            }
            upto += bytes.len() as u64;
            all.push(bytes);
        }
        (upto == len && served == len).then_some(all)
    }
}

impl Stretch {
    fn fill(&mut self, cuts: &[ViewRun], sources: &Sources) -> usize {
        let end = cuts.iter().map(|cut| cut.packed + cut.len).max().unwrap_or(self.from);
        let end = (end - self.from) as usize;
        if let [only] = cuts
            && (only.packed - self.from) as usize == self.bytes.len()
            && let Some(bytes) = sources.of(only)
        {
            self.bytes.extend_from_slice(bytes);
            return bytes.len();
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(self.len as usize);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        sources.copy_all(cuts, self.from, &mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::burst::{Cutting, cut};
    use super::super::extent::BLOCK_BYTES;
    use super::*;
    use shoal_proto::Handle;

    fn of() -> Extent {
        Extent { disk: 0, stream: Handle(1), from: 0, len: 0, generation: 1 }
    }

    fn byte(at: u64) -> u8 {
        (at % 251) as u8 + 1
    }

    fn read(from: u64, len: u64) -> Bytes {
        (from..from + len).map(byte).collect()
    }

    /// Gather runs whose extents are read one by one in an order of choice: the parts, and the bytes copied.
    fn gather(bursts: &[&[ViewRun]], backwards: bool, holes: bool) -> (Vec<Bytes>, usize) {
        let len = bursts.iter().flat_map(|runs| runs.iter()).map(|run| run.len).sum();
        let (mut gathered, mut copied) = (Gathered::default(), 0);
        for runs in bursts {
            let (cuts, mut groups) = cut(runs, false, Cutting::ToRead, of());
            gathered.expect(&cuts, &groups, len);
            if backwards {
                groups.reverse();
            }
            for (extent, from, to) in groups {
                let mut sources = Sources::default();
                if !holes || extent.from % (2 * BLOCK_BYTES) != 0 {
                    sources.push(extent.from, read(extent.from, extent.len));
                }
                copied += gathered.take(&extent, &cuts[from..to], &sources, len);
            }
        }
        (gathered.end(len).expect("buffers side by side"), copied)
    }

    /// Bytes of memory that are kept or reserved.
    fn reserved(gathered: &Gathered) -> u64 {
        let kept: usize = gathered.kept.iter().map(|(_, bytes)| bytes.len()).sum();
        let stretches: usize = gathered.stretches.iter().map(|stretch| stretch.bytes.capacity()).sum();
        (kept + stretches) as u64
    }

    fn expected(bursts: &[&[ViewRun]]) -> Vec<u8> {
        bursts.iter().flat_map(|runs| runs.iter()).flat_map(|run| read(run.physical, run.len)).collect()
    }

    /// Runs of these lengths, each `stride` after the one before, with dense positions from `packed` on.
    fn runs(lens: &[u64], from: u64, stride: u64, mut packed: u64) -> Vec<ViewRun> {
        let run = |(at, len): (u64, &u64)| {
            packed += len;
            ViewRun { physical: from + at * stride, packed: packed - len, len: *len }
        };
        (0..).zip(lens).map(run).collect()
    }

    #[test]
    fn long_records_are_not_copied_nor_are_their_parts_at_the_ends_of_a_piece() {
        let lens = [27_104, 47_008, 47_008, 47_008, 47_008, 47_008 - 27_104];
        let runs = runs(&lens, 31, 16 * 47_008, 0);
        for backwards in [false, true] {
            let (parts, copied) = gather(&[&runs], backwards, false);
            assert_eq!((parts.len(), copied), (lens.len(), 0));
            assert!(parts.concat() == expected(&[&runs]));
        }
    }

    #[test]
    fn short_records_are_copied_once_into_one_buffer_whatever_their_order() {
        let all = runs(&[100; 500], 7, 3000, 0);
        let (first, second) = all.split_at(200);
        for backwards in [false, true] {
            let (parts, copied) = gather(&[first, second], backwards, false);
            assert_eq!((parts.len(), copied), (1, 50_000));
            assert!(parts[0] == expected(&[&all]));
        }
    }

    #[test]
    fn short_records_between_long_ones_lie_between_them() {
        let lens = [10, 20, BLOCK_BYTES + 1, 30, 5, 3 * BLOCK_BYTES, BLOCK_BYTES, 8];
        let runs = runs(&lens, 3 * BLOCK_BYTES - 15, 5 * BLOCK_BYTES + 100, 0);
        for backwards in [false, true] {
            let (parts, copied) = gather(&[&runs], backwards, false);
            assert_eq!((parts.len(), copied), (6, 10 + 20 + 30 + 5 + 8));
            assert!(parts.concat() == expected(&[&runs]));
        }
    }

    #[test]
    fn bytes_that_were_not_read_are_zeros() {
        let all = runs(&[100; 64], 50, BLOCK_BYTES, 0);
        for backwards in [false, true] {
            let (parts, _) = gather(&[&all], backwards, true);
            let found = parts.concat();
            for run in &all {
                let own = &found[run.packed as usize..(run.packed + run.len) as usize];
                let is_hole = (run.physical / BLOCK_BYTES).is_multiple_of(2);
                assert!((0..).zip(own).all(|(at, found)| match is_hole {
                    true => *found == 0,
                    false => *found == byte(run.physical + at),
                }));
            }
        }
    }
    #[test]
    fn a_burst_with_long_records_reserves_no_more_than_its_part_has() {
        for lens in [
            vec![100, 20 * BLOCK_BYTES],
            vec![100, 3 * BLOCK_BYTES, 100, 9 * BLOCK_BYTES, 100],
            vec![3 * BLOCK_BYTES, 100, 100],
        ] {
            let len = lens.iter().sum();
            let (cuts, groups) = cut(&runs(&lens, 0, 40 * BLOCK_BYTES, 0), false, Cutting::ToRead, of());
            let mut gathered = Gathered::default();
            gathered.expect(&cuts, &groups, len);
            let short: u64 = lens.iter().filter(|len| **len == 100).sum();
            assert!(reserved(&gathered) <= short, "{} for {lens:?}", reserved(&gathered));
            for (extent, from, to) in groups {
                let mut sources = Sources::default();
                sources.push(extent.from, read(extent.from, extent.len));
                gathered.take(&extent, &cuts[from..to], &sources, len);
                assert!(reserved(&gathered) <= len, "{} for {lens:?}", reserved(&gathered));
            }
        }
        // Where all are short the next burst has more of them: room for all is reserved at once.
        let all = runs(&[100; 500], 7, 3000, 0);
        let (cuts, groups) = cut(&all[..200], false, Cutting::ToRead, of());
        let mut gathered = Gathered::default();
        gathered.expect(&cuts, &groups, 50_000);
        assert_eq!(reserved(&gathered), 50_000);
        // Also after a burst that had long ones: what those have is not reserved again.
        let first = runs(&[100, 2 * BLOCK_BYTES], 7, 40 * BLOCK_BYTES, 0);
        let len = 100 + 2 * BLOCK_BYTES + 50_000;
        let mut gathered = Gathered::default();
        for runs in [&first[..], &runs(&[100; 200], 7, 3000, 100 + 2 * BLOCK_BYTES)] {
            let (cuts, groups) = cut(runs, false, Cutting::ToRead, of());
            gathered.expect(&cuts, &groups, len);
            for (extent, from, to) in groups {
                let mut sources = Sources::default();
                sources.push(extent.from, read(extent.from, extent.len));
                gathered.take(&extent, &cuts[from..to], &sources, len);
            }
        }
        assert_eq!(reserved(&gathered), len);
    }

    #[test]
    fn long_and_short_records_of_several_bursts_are_gathered_in_order() {
        const B: u64 = BLOCK_BYTES;
        let lens = [
            vec![10, 20, B + 1],
            vec![30, 5],
            vec![7, 2 * B, B / 4, 8],
            vec![B, B / 2],
            vec![40, 9],
            vec![3 * B],
            vec![6],
        ];
        let lens_in_all: Vec<u64> = lens.concat();
        let all = runs(&lens_in_all, 31, 5 * B + 77, 0);
        let (mut bursts, mut rest) = (Vec::new(), &all[..]);
        for lens in &lens {
            let (burst, later) = rest.split_at(lens.len());
            bursts.push(burst);
            rest = later;
        }
        let short: u64 = lens_in_all.iter().filter(|len| **len < B / 4).sum();
        for backwards in [false, true] {
            let (parts, copied) = gather(&bursts, backwards, false);
            assert_eq!(copied as u64, short, "only short records are copied");
            assert!(parts.concat() == expected(&bursts));
            // Short records that lie side by side are in one buffer, also over the end of a burst.
            let sizes: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
            assert_eq!(sizes, [30, B + 1, 42, 2 * B, B / 4, 8, B, B / 2, 49, 3 * B, 6]);
        }
    }

    #[test]
    fn where_the_stream_ends_inside_a_record_its_rest_and_all_after_it_are_zeros() {
        const B: u64 = BLOCK_BYTES;
        // In packed order records of later and earlier offsets, short and long, of which the stream ends in
        // one and before others.
        let at = |physical, packed, len| ViewRun { physical, packed, len };
        let all = [
            at(9 * B, 0, 100),
            at(40 * B, 100, 2 * B),
            at(20 * B, 2 * B + 100, 3 * B),
            at(3, 5 * B + 100, 200),
        ];
        let len = 5 * B + 300;
        for size in [9 * B + 40, 20 * B + 1, 21 * B + 17, 23 * B, 40 * B, 41 * B - 1] {
            for backwards in [false, true] {
                let (cuts, mut groups) = cut(&all, false, Cutting::ToRead, of());
                let mut gathered = Gathered::default();
                gathered.expect(&cuts, &groups, len);
                if backwards {
                    groups.reverse();
                }
                for (extent, from, to) in groups {
                    let mut sources = Sources::default();
                    let inside = size.saturating_sub(extent.from).min(extent.len);
                    if inside > 0 {
                        sources.push(extent.from, read(extent.from, inside));
                    }
                    gathered.take(&extent, &cuts[from..to], &sources, len);
                }
                let found = gathered.end(len).unwrap().concat();
                let byte_of = |at| if at < size { byte(at) } else { 0 };
                let expected: Vec<u8> =
                    all.iter().flat_map(|run| run.physical..run.physical + run.len).map(byte_of).collect();
                assert!(found == expected, "the stream has {size} bytes");
            }
        }
    }

    #[test]
    fn a_read_of_which_a_run_was_not_served_or_was_served_twice_has_no_bytes() {
        const B: u64 = BLOCK_BYTES;
        let lens = [10, B, 20, 2 * B];
        let len = lens.iter().sum();
        let (cuts, groups) = cut(&runs(&lens, 5, 9 * B, 0), false, Cutting::ToRead, of());
        let with = |served: &[usize]| {
            let mut gathered = Gathered::default();
            gathered.expect(&cuts, &groups, len);
            for (extent, from, to) in served.iter().map(|at| groups[*at]) {
                let mut sources = Sources::default();
                sources.push(extent.from, read(extent.from, extent.len));
                gathered.take(&extent, &cuts[from..to], &sources, len);
            }
            gathered
        };
        assert!(with(&[0, 1, 2, 3]).end(len).is_some());
        assert!(with(&[0, 2, 3]).end(len).is_none(), "a long run in the middle is missing");
        assert!(with(&[0, 1, 2]).end(len).is_none(), "the last is missing");
        assert!(with(&[0, 1, 3]).end(len).is_none(), "a short one is missing: its zeros were not read");
        assert!(with(&[0, 1, 1, 2, 3]).end(len).is_none(), "one came twice");
        assert!(with(&[0, 1, 2, 3]).end(len + 1).is_none(), "a burst is missing");
    }
}
