//! A burst: the runs of a request (ranges of consecutive bytes) that are kept in memory at once. They are
//! sorted in the order in which the sweep serves extents. Short runs are cut at the borders of blocks; if
//! runs overlap, long runs are cut, too.
//!
//! ```text
//!   blocks   |       |       |       |
//!   runs       aa bb      ccc dddddddddddd
//!   extents  [a, b]   [c] [c] [d d d d d d]     a long run is an extent of its own
//! ```
//! A piece of a transfer begins and ends somewhere in a record. In a **read** the parts of long records at
//! its ends are extents of their own, too, if they have a quarter of a block or more: then they are not
//! copied. It costs a call: the two parts of a record, which are in two pieces, no longer come from one read
//! of the blocks around them. A **write** gains nothing by that: pieces are written from where they were
//! received, and a block takes all that several requests write into it. So its parts are cut at the borders
//! of blocks.

use super::extent::{BLOCK_BYTES, Extent};
use shoal_pattern::ViewRun;

/// An extent, and where its pieces begin and end in the burst.
pub(super) type Group = (Extent, usize, usize);

/// The purpose for which runs are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutting {
    ToRead,
    ToWrite,
}

impl Cutting {
    /// The least part of a long record that is an extent of its own, bytes.
    const fn long_part_min(self) -> u64 {
        match self {
            Cutting::ToRead => BLOCK_BYTES / 4,
            Cutting::ToWrite => BLOCK_BYTES,
        }
    }
}

/// Cut runs at the borders of blocks, but for those that are long: a run of a block or more, or the only one,
/// is an extent of its own, and in a read beside such runs one of a quarter of a block: it may be a part of a
/// longer one. Pieces of an extent stay in packed order. Where runs overlap, all are cut: a byte then belongs
/// to one block, where the order decides.
pub(super) fn cut(
    runs: &[ViewRun],
    is_only: bool,
    cutting: Cutting,
    of: Extent,
) -> (Vec<ViewRun>, Vec<Group>) {
    let is_long = |run: &ViewRun| is_only || run.len >= cutting.long_part_min();
    let keeps_long = runs.iter().any(|run| is_only || run.len >= BLOCK_BYTES) && !overlap(runs);
    let mut cuts = Cuts { cuts: Vec::with_capacity(runs.len()), groups: Vec::new() };
    for run in runs {
        if keeps_long && is_long(run) {
            cuts.push(Extent { from: run.physical, len: run.len, ..of }, *run);
            continue;
        }
        let (mut rest, end) = (*run, run.physical + run.len);
        while rest.len > 0 {
            let from = rest.physical / BLOCK_BYTES * BLOCK_BYTES;
            let len = rest.len.min(from + BLOCK_BYTES - rest.physical);
            cuts.push(Extent { from, len: BLOCK_BYTES, ..of }, ViewRun { len, ..rest });
            let (physical, packed) = (rest.physical + len, rest.packed + len);
            rest = ViewRun { physical, packed, len: end - physical };
        }
    }
    cuts.sorted()
}

/// Pieces in packed order, and the groups of those that follow each other in one extent.
struct Cuts {
    cuts: Vec<ViewRun>,
    groups: Vec<Group>,
}

impl Cuts {
    fn push(&mut self, extent: Extent, piece: ViewRun) {
        let at = self.cuts.len();
        self.cuts.push(piece);
        match self.groups.last_mut() {
            Some((last, _, to)) if *last == extent => *to = at + 1,
            _ => self.groups.push((extent, at, at + 1)),
        }
    }

    /// In order of extents, one group each. Pieces of one extent keep their order.
    fn sorted(self) -> (Vec<ViewRun>, Vec<Group>) {
        let Cuts { cuts, mut groups } = self;
        // Extents that come again later are found by the sort, too.
        if groups.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return (cuts, groups);
        }
        groups.sort_by_key(|(extent, ..)| *extent);
        let mut sorted =
            Cuts { cuts: Vec::with_capacity(cuts.len()), groups: Vec::with_capacity(groups.len()) };
        for (extent, from, to) in groups {
            cuts[from..to].iter().for_each(|piece| sorted.push(extent, *piece));
        }
        (sorted.cuts, sorted.groups)
    }
}

fn overlap(runs: &[ViewRun]) -> bool {
    let mut spans: Vec<(u64, u64)> = runs.iter().map(|run| (run.physical, run.physical + run.len)).collect();
    if !spans.is_sorted() {
        spans.sort_unstable();
    }
    spans.windows(2).any(|pair| pair[0].1 > pair[1].0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::Handle;

    fn run(physical: u64, packed: u64, len: u64) -> ViewRun {
        ViewRun { physical, packed, len }
    }

    fn of() -> Extent {
        Extent { disk: 0, stream: Handle(1), from: 0, len: 0, generation: 1 }
    }

    fn froms(groups: &[Group]) -> Vec<(u64, u64, usize)> {
        groups.iter().map(|(extent, from, to)| (extent.from, extent.len, to - from)).collect()
    }

    #[test]
    fn runs_are_cut_at_blocks_and_sorted_but_long_ones_stay_whole() {
        const B: u64 = BLOCK_BYTES;
        let runs = [run(3 * B - 2, 0, 4), run(10, 4, 5), run(20, 9, 5), run(5 * B + 1, 14, B)];
        for cutting in [Cutting::ToRead, Cutting::ToWrite] {
            let (cuts, groups) = cut(&runs, false, cutting, of());
            assert_eq!(froms(&groups), [(0, B, 2), (2 * B, B, 1), (3 * B, B, 1), (5 * B + 1, B, 1)]);
            assert_eq!(cuts[..2], [run(10, 4, 5), run(20, 9, 5)]);
            assert_eq!(cuts[2..4], [run(3 * B - 2, 0, 2), run(3 * B, 2, 2)]);
            let (_, groups) = cut(&[run(7, 0, 9)], true, cutting, of());
            assert_eq!(froms(&groups), [(7, 9, 1)], "the only run");
        }
    }

    #[test]
    fn parts_of_long_records_stay_whole_in_a_read_and_are_cut_at_blocks_in_a_write() {
        const B: u64 = BLOCK_BYTES;
        let ends = [run(7, 0, B / 4), run(9 * B - 5, B / 4, 2 * B), run(20 * B - 9, 9 * B / 4, B / 4 - 1)];
        let (_, groups) = cut(&ends, false, Cutting::ToRead, of());
        assert_eq!(froms(&groups), [(7, B / 4, 1), (9 * B - 5, 2 * B, 1), (19 * B, B, 1), (20 * B, B, 1)]);
        let (_, groups) = cut(&ends[..1], false, Cutting::ToRead, of());
        assert_eq!(froms(&groups), [(0, B, 1)], "no long record beside it");
        let (_, groups) = cut(&ends, false, Cutting::ToWrite, of());
        assert_eq!(froms(&groups), [(0, B, 1), (9 * B - 5, 2 * B, 1), (19 * B, B, 1), (20 * B, B, 1)]);
        let almost = [run(7, 0, B - 1), run(9 * B - 5, B - 1, 2 * B)];
        let (_, groups) = cut(&almost, false, Cutting::ToWrite, of());
        assert_eq!(froms(&groups), [(0, B, 1), (B, B, 1), (9 * B - 5, 2 * B, 1)], "a byte less than a block");
    }

    #[test]
    fn where_runs_overlap_all_are_cut_and_stay_in_packed_order() {
        const B: u64 = BLOCK_BYTES;
        let (cuts, groups) = cut(&[run(0, 0, 2 * B), run(B + 5, 2 * B, 3)], false, Cutting::ToRead, of());
        assert_eq!(froms(&groups), [(0, B, 1), (B, B, 2)]);
        assert_eq!(cuts[1..], [run(B, B, B), run(B + 5, 2 * B, 3)]);
    }
}
