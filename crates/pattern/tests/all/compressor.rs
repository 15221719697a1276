//! The compressor is lossless, works in constant memory, and finds the strides and nests in its input.

use crate::model::{config, recipes};
use proptest::prelude::*;
use shoal_pattern::codec::Codec;
use shoal_pattern::{Compressor, Level, Pattern, PatternError, Region, limits};

fn compressed(regions: impl IntoIterator<Item = Region>) -> Vec<Pattern> {
    let mut compressor = Compressor::new();
    let mut patterns: Vec<Pattern> =
        regions.into_iter().filter_map(|region| compressor.feed(region).unwrap()).collect();
    patterns.push(compressor.finish().unwrap());
    patterns
}

fn expand(patterns: &[Pattern]) -> Vec<Region> {
    patterns.iter().flat_map(Pattern::regions).collect()
}

fn level(stride: i64, quantity: u64) -> Level {
    Level { stride, quantity }
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn what_was_fed_comes_out_in_its_order(recipes in prop::collection::vec(recipes(-100), 1..4)) {
        let regions: Vec<Region> = recipes.iter().flat_map(|recipe| recipe.regions()).collect();
        let patterns = compressed(regions.iter().copied());
        prop_assert_eq!(patterns.len(), 1, "so few fit");
        prop_assert_eq!(expand(&patterns), regions.clone());
        let list = Pattern::list(regions).unwrap();
        prop_assert!(patterns[0].to_bytes().len() <= list.to_bytes().len());
    }

    #[test]
    fn a_nest_that_is_fed_region_by_region_is_a_nest_again(
        offset in -1000..1000_i64, record in 1..50_u64,
        levels in prop::collection::vec((1..40_u64, 2..6_u64), 1..4),
    ) {
        // Each level is beyond the reach of the inner ones, so no other nest has the same regions.
        let mut reach = record;
        let mut spread = Vec::new();
        for (gap, quantity) in levels {
            spread.push(level((reach * quantity + gap) as i64, quantity));
            reach += (reach * quantity + gap) * quantity;
        }
        let nest = Pattern::nested(offset, record, spread).unwrap();
        prop_assert_eq!(compressed(nest.regions()), [nest]);
    }
}

#[test]
fn a_million_regions_with_two_strides_are_one_nest_of_a_few_bytes() {
    let nest = Pattern::nested(4096, 47_008, vec![level(376_064, 1000), level(400_000_000, 1000)]).unwrap();
    let patterns = compressed(nest.regions());
    assert_eq!(patterns, [nest]);
    assert!(patterns[0].to_bytes().len() < 64, "{} bytes", patterns[0].to_bytes().len());
}

#[test]
fn rows_with_several_fields_are_a_tree() {
    // Of each row of 100 bytes a name of 20, a number of 8 at 40, and every other of six flags.
    let row = |at: i64| {
        [(0, 20), (40, 8), (60, 1), (62, 1), (64, 1)].map(|(field, len)| Region::new(at + field, len))
    };
    let patterns = compressed((0..10_000).flat_map(|at| row(at * 100)));
    let [pattern] = patterns.as_slice() else { panic!("{} patterns", patterns.len()) };
    assert_eq!(
        pattern.to_string(),
        "(20 B from 0, 8 B from 40, 1 B x 3 every 2 B from 60) x 10000 every 100 B"
    );
    assert!(pattern.to_bytes().len() < 32, "{} bytes", pattern.to_bytes().len());
}

#[test]
fn what_has_no_shape_comes_out_in_several_patterns_and_in_order() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let regions: Vec<Region> =
        (0..30_000).map(|_| Region::new(random() as i64, 1 + random() % 999)).collect();
    let patterns = compressed(regions.iter().copied());
    assert!(patterns.len() > 10);
    assert_eq!(expand(&patterns), regions);
}

#[test]
fn a_region_out_of_range_is_refused_and_too_many_bytes_begin_a_pattern() {
    let mut compressor = Compressor::new();
    assert_eq!(compressor.feed(Region::new(i64::MAX, 1)), Err(PatternError::OutOfRange));
    assert_eq!(compressor.feed(Region::new(0, u64::MAX)), Err(PatternError::OutOfRange));
    assert_eq!(compressor.feed(Region::new(-2, 1 << 63)), Err(PatternError::TooLong));
    assert_eq!(compressor.feed(Region::new(5, 0)), Ok(None));
    let whole = Region::new(0, limits::PACKED_BYTES_MAX);
    assert_eq!(compressor.feed(whole), Ok(None));
    assert_eq!(compressor.feed(whole).unwrap().unwrap().as_region(), Some(whole));
    assert_eq!(compressor.finish().unwrap().as_region(), Some(whole));
    assert_eq!(Compressor::new().finish(), Ok(Pattern::EMPTY));
}

#[test]
fn strides_as_wide_as_the_range_of_offsets_are_no_trouble() {
    let regions = [i64::MIN, i64::MAX - 1, i64::MIN, i64::MAX - 1, i64::MIN + 1, -1, i64::MAX - 2];
    let regions = regions.map(|offset| Region::new(offset, 1));
    assert_eq!(expand(&compressed(regions)), regions);
}
