//! Pairings, both orders, and finding a byte: each gives the same result as the pattern written out byte by
//! byte.

use crate::model::{bytes, config, recipes};
use proptest::prelude::*;
use shoal_pattern::{
    Branch, Interleaved, Level, PairedRun, Pairing, Pattern, TooManySteps, UnequalLengths, Visit, limits,
};

fn level(stride: i64, quantity: u64) -> Level {
    Level { stride, quantity }
}

/// (file, memory) of each byte, in the order of the runs.
fn pairs(runs: &[PairedRun]) -> Vec<(i64, i64)> {
    runs.iter().flat_map(|run| (0..run.len as i64).map(|at| (run.file + at, run.memory + at))).collect()
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn a_byte_is_found_where_the_walk_visits_it_last(recipe in recipes(-100), beside in -300..900_i64) {
        let pattern = recipe.pattern();
        let offsets = bytes(&recipe.regions());
        let last = |offset: i64| offsets.iter().rposition(|there| *there == offset).map(|at| at as u64);
        for offset in offsets.iter().copied().chain([beside, i64::MIN, i64::MAX]) {
            prop_assert_eq!(pattern.packed_at(offset), last(offset), "{}", offset);
        }
    }

    #[test]
    fn a_byte_of_woven_levels_is_found_where_it_is_visited_last(
        record in 1..14_u64, inner in (-45..45_i64, 1..30_u64), outer in (-45..45_i64, 1..30_u64),
        third in (-45..45_i64, 1..4_u64), probe in -2000..2000_i64,
    ) {
        let levels = [inner, outer, third].map(|(stride, quantity)| level(stride, quantity));
        let pattern = Pattern::nested(0, record, levels.into()).unwrap();
        let last = pattern.regions().zip(0_u64..).filter(|(region, _)| (region.offset..region.end()).contains(&probe));
        let last = last.last().map(|(region, place)| place * record + region.offset.abs_diff(probe));
        prop_assert_eq!(pattern.packed_at(probe), last);
    }

    #[test]
    fn runs_in_order_of_offsets_are_those_of_the_packed_order(recipe in recipes(-100)) {
        let pattern = recipe.pattern();
        let visits: Vec<Visit> = pattern.by_offset().unwrap().collect();
        let ascend = |pair: &[Visit]| (pair[0].offset, pair[0].packed) < (pair[1].offset, pair[1].packed);
        prop_assert!(visits.windows(2).all(ascend), "{:?}", visits);
        let mut packed = visits;
        packed.sort_by_key(|visit| visit.packed);
        let mut end = 0;
        for visit in &packed {
            prop_assert_eq!(visit.packed, end);
            end += visit.len;
        }
        let offsets: Vec<i64> =
            packed.iter().flat_map(|visit| visit.offset..visit.offset + visit.len as i64).collect();
        prop_assert_eq!(offsets, bytes(&recipe.regions()));
    }

    #[test]
    fn a_pairing_pairs_byte_by_byte_in_both_orders(file in recipes(-100), memory in recipes(-100)) {
        let (file, memory) = (file.pattern(), memory.pattern());
        let len = file.len().min(memory.len());
        let (file, memory) = (file.slice(0, len), memory.slice(memory.len() - len, len));
        let pairing = Pairing::new(&file, &memory).unwrap();
        let runs: Vec<PairedRun> = pairing.runs().collect();
        let of = |pattern: &Pattern| bytes(&pattern.regions().collect::<Vec<_>>());
        let meant: Vec<(i64, i64)> = of(&file).into_iter().zip(of(&memory)).collect();
        prop_assert_eq!(pairs(&runs), meant);
        prop_assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), pairing.len());

        let ordered: Vec<PairedRun> = pairing.by_file_offset().unwrap().collect();
        prop_assert!(ordered.windows(2).all(|pair| pair[0].file <= pair[1].file), "{:?}", ordered);
        let sorted = |mut runs: Vec<PairedRun>| {
            runs.sort();
            runs
        };
        prop_assert_eq!(sorted(ordered), sorted(runs), "a permutation");
    }
}

#[test]
fn what_differs_in_length_is_no_pair() {
    let (file, memory) = (Pattern::strided(0, 4, 8, 3).unwrap(), Pattern::contiguous(0, 13).unwrap());
    assert_eq!(Pairing::new(&file, &memory).err(), Some(UnequalLengths { file: 12, memory: 13 }));
    assert!(Pairing::new(&Pattern::EMPTY, &Pattern::EMPTY).unwrap().is_empty());
}

#[test]
fn levels_that_do_not_interleave_are_one_stream_whatever_their_order_and_signs() {
    // The columns of a matrix, right to left, each from its end to its start.
    let columns = Pattern::nested(1 << 40, 8, vec![level(-4096, 1000), level(-8, 512)]).unwrap();
    let ordered = columns.by_offset().unwrap();
    assert_eq!(ordered.streams(), 1);
    let mut end = i64::MIN;
    for visit in ordered.take(10_000) {
        assert!(visit.offset >= end);
        end = visit.offset + visit.len as i64;
    }
    let overlapping = Pattern::strided(0, 25, 10, 100).unwrap();
    assert_eq!(overlapping.by_offset().unwrap().streams(), 3);
}

#[test]
fn what_interleaves_without_bound_is_refused_before_it_is_built() {
    let wide = Pattern::nested(0, 1 << 20, vec![level(1, 1 << 30)]).unwrap();
    assert_eq!(wide.by_offset().err(), Some(Interleaved { streams: 1 << 20 }));
    let still = Pattern::strided(0, 1, 0, u64::MAX >> 1).unwrap();
    assert_eq!(still.by_offset().err(), Some(Interleaved { streams: u64::MAX >> 1 }));
    let most = Pattern::strided(0, 4096, 1, 1 << 30).unwrap();
    assert_eq!(most.by_offset().unwrap().streams(), limits::ORDER_STREAMS_MAX);
}

#[test]
fn a_byte_of_a_billion_records_is_found_by_arithmetic() {
    let columns = Pattern::nested(64, 8, vec![level(4096, 1_000_000), level(8, 500)]).unwrap();
    assert_eq!(
        columns.packed_at(64 + 777_777 * 4096 + 8 * 321 + 5),
        Some((321 * 1_000_000 + 777_777) * 8 + 5)
    );
    assert_eq!(
        columns.packed_at_within(64 + 777_777 * 4096 + 8 * 321 + 5, 4),
        Ok(Some((321 * 1_000_000 + 777_777) * 8 + 5))
    );
    assert_eq!(columns.packed_at(63), None);
    assert_eq!(columns.packed_at(64 + 4095), None);
    // Two levels that interleave: Euclid's algorithm, not a search through 2^30 turns.
    let woven = Pattern::nested(0, 3, vec![level(1009, 1 << 20), level(1_000_003, 1 << 20)]).unwrap();
    let (inner, outer) = (1 << 19, 1 << 18);
    let found = woven.packed_at_within(inner * 1009 + outer * 1_000_003 + 1, 20).unwrap().unwrap();
    let region = woven.iter_window(found, 1).next().unwrap();
    assert_eq!(region.offset, inner * 1009 + outer * 1_000_003 + 1);
    assert!(found >= ((outer as u64) << 20 | inner as u64) * 3);
}

#[test]
fn a_search_through_woven_levels_ends_where_it_is_told_to() {
    let woven = vec![level(2, 1 << 15), level(7, 1 << 15), level(11, 1 << 15), level(13, 1 << 15)];
    let woven = Pattern::nested(0, 1, woven).unwrap();
    assert_eq!(woven.packed_at_within(100_001, 1000), Err(TooManySteps { steps: 1000 }));
}

#[test]
fn a_byte_written_twice_is_where_it_was_written_last() {
    let log =
        Pattern::list([(0, 10), (5, 10), (0, 6)].map(|(at, len)| shoal_pattern::Region::new(at, len)).into());
    let log = log.unwrap();
    assert_eq!(
        [0, 5, 6, 14, 15].map(|offset| log.packed_at(offset)),
        [Some(20), Some(25), Some(11), Some(19), None]
    );
    let tree = [Branch::vector(0, vec![Branch::bytes(0, 2), Branch::bytes(7, 1).absolute()]).repeated(10, 5)];
    let tree = Pattern::batched(&tree).unwrap();
    assert_eq!([7, 20, 9].map(|offset| tree.packed_at(offset)), [Some(14), Some(6), None]);
}
