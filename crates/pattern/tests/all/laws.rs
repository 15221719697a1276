//! The laws of the algebra: each operation equals itself on the pattern written out byte by byte.

use crate::model;
use crate::model::packed_ranges;
use crate::model::{bytes, config, cut, distributions, expand, recipes};
use proptest::prelude::*;
use shoal_pattern::codec::{Codec, Reader};
use shoal_pattern::{Pattern, Region, View, ViewRun, Window, split};

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn a_pattern_and_all_operations_on_it_expand_to_what_they_mean(recipe in recipes(-100)) {
        let pattern = recipe.pattern();
        let meant = recipe.regions();
        prop_assert_eq!(expand(&pattern), meant.clone());
        prop_assert_eq!(pattern.len(), meant.iter().map(|region| region.len).sum::<u64>());
        prop_assert!(pattern.regions_max() >= meant.len() as u64);
        let low = meant.iter().map(|region| region.offset).min();
        let high = meant.iter().map(Region::end).max();
        prop_assert_eq!(pattern.bounds(), low.zip(high));
        prop_assert_eq!(pattern.is_empty(), meant.is_empty());
        if pattern.is_contiguous() {
            prop_assert!(meant.len() <= 1);
            prop_assert_eq!(pattern.as_region(), meant.first().copied());
        }
    }

    #[test]
    fn a_walk_of_a_window_equals_the_slice_and_the_cut(
        recipe in recipes(-100), from in 0..90_u64, len in 0..120_u64,
    ) {
        let pattern = recipe.pattern();
        let walked: Vec<Region> = pattern.iter_window(from, len).collect();
        prop_assert_eq!(expand(&pattern.slice(from, len)), walked.clone());
        prop_assert_eq!(pattern.window_bounds(from, len), pattern.slice(from, len).bounds());
        prop_assert_eq!(walked, cut(&recipe.regions(), from, len));
        let window = Window::new(from, len);
        prop_assert_eq!(Window::from_bytes(&window.to_bytes()), Ok(window));
    }

    #[test]
    fn slices_put_together_are_the_whole(recipe in recipes(-100), step in 1..50_u64) {
        let pattern = recipe.pattern();
        let parts: Vec<i64> = (0..pattern.len())
            .step_by(step as usize)
            .flat_map(|from| bytes(&expand(&pattern.slice(from, step))))
            .collect();
        prop_assert_eq!(parts, bytes(&recipe.regions()));
    }

    #[test]
    fn decoding_what_was_encoded_gives_the_same_pattern(recipe in recipes(-100)) {
        let pattern = recipe.pattern();
        let encoded = pattern.to_bytes();
        let decoded = Pattern::from_bytes(&encoded).unwrap();
        prop_assert_eq!(&decoded, &pattern);
        prop_assert_eq!(expand(&decoded), recipe.regions());
        prop_assert_eq!(decoded.to_bytes(), encoded);
    }

    #[test]
    fn compressing_never_costs_bytes(recipe in recipes(-100)) {
        let pattern = recipe.pattern();
        prop_assert!(pattern.compress().to_bytes().len() <= pattern.to_bytes().len());
        let regions = recipe.regions();
        let list = Pattern::list(regions.clone()).unwrap();
        let compressed = Pattern::compressed(&regions).unwrap();
        prop_assert!(compressed.to_bytes().len() <= list.to_bytes().len());
        prop_assert_eq!(expand(&compressed), regions);
    }

    #[test]
    fn operations_agree_with_each_other(recipe in recipes(-100), from in 0..90_u64, len in 0..120_u64) {
        let pattern = recipe.pattern();
        prop_assert_eq!(pattern.coalesce().coalesce(), pattern.coalesce());
        prop_assert_eq!(pattern.shift(0).unwrap(), pattern.clone());
        prop_assert_eq!(pattern.slice(0, u64::MAX), pattern.clone());
        prop_assert_eq!(pattern.shift(77).unwrap().shift(-77).unwrap(), pattern.clone());
        let shifted = pattern.shift(9).unwrap();
        prop_assert_eq!(pattern.slice(from, len).shift(9).unwrap(), shifted.slice(from, len));
    }

    #[test]
    fn decoding_arbitrary_bytes_gives_a_pattern_that_can_be_used_or_an_error(
        input in prop::collection::vec(any::<u8>(), 0..80),
        form in prop::sample::select(vec![1_u8, 2, 3, 4, 5, 0x41, 0x42, 0x43, 0x44, 0x45, 0x82, 0x84, 0x85, 0xc2, 0xc4, 0xc5]),
    ) {
        use_if_decoded(&input);
        let mut formed = vec![form];
        formed.extend_from_slice(&input);
        use_if_decoded(&formed);
    }

    #[test]
    fn decoding_a_damaged_pattern_gives_a_pattern_that_can_be_used_or_an_error(
        recipe in recipes(-100), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut encoded = recipe.pattern().to_bytes();
        let place = at.index(encoded.len());
        encoded[place] = byte;
        use_if_decoded(&encoded);
        use_if_decoded(&encoded[..keep.index(encoded.len())]);
    }

    #[test]
    fn views_over_all_servers_partition_the_pattern(
        recipe in recipes(300), distribution in distributions(), from in 0..40_u64, len in 0..300_u64,
    ) {
        let pattern = recipe.pattern();
        let regions = recipe.regions();
        let window = clip(&pattern, from, len);
        let offsets = bytes(&cut(&regions, window.from, window.len));
        prop_assume!(offsets.iter().all(|offset| *offset >= 0));
        let mut owners = vec![None; offsets.len()];
        for server in 0..distribution.objects() {
            let view = View::new(&pattern, window, &*distribution, server).unwrap();
            let runs: Vec<ViewRun> = view.clone().collect();
            prop_assert_eq!(view.len(), runs.iter().map(|run| run.len).sum::<u64>());
            prop_assert_eq!(view.is_empty(), runs.is_empty());
            prop_assert_eq!(view.packed().collect::<Vec<_>>(), packed_ranges(&runs));
            for pair in runs.windows(2) {
                prop_assert!(pair[0].packed + pair[0].len <= pair[1].packed);
                let goes_on = pair[0].packed + pair[0].len == pair[1].packed
                    && pair[0].physical + pair[0].len == pair[1].physical;
                prop_assert!(!goes_on, "runs that should be one: {:?}", pair);
            }
            for run in &runs {
                prop_assert!(run.len > 0);
                for byte in 0..run.len {
                    let packed = (run.packed + byte) as usize;
                    let piece = distribution.locate(offsets[packed] as u64).piece().unwrap();
                    prop_assert_eq!((piece.object, piece.physical), (server, run.physical + byte));
                    prop_assert_eq!(owners[packed].replace(server), None);
                }
            }
        }
        prop_assert!(owners.iter().all(Option::is_some));
    }

    #[test]
    fn a_split_holds_the_view_in_messages_of_the_size_asked_for(
        recipe in recipes(300), distribution in distributions(), from in 0..40_u64, len in 0..300_u64,
        max in 1..50_u64,
    ) {
        let pattern = recipe.pattern();
        let window = clip(&pattern, from, len);
        prop_assume!(pattern.slice(window.from, window.len).bounds().is_none_or(|(low, _)| low >= 0));
        for server in 0..distribution.objects() {
            let whole = View::new(&pattern, window, &*distribution, server).unwrap();
            let cuts = split(&pattern, window, &*distribution, server, max).unwrap();
            let windows: Vec<Window> = cuts.collect();
            let mut held = Vec::new();
            let mut end = window.from;
            for (place, message) in windows.iter().enumerate() {
                prop_assert!(end <= message.from && message.end() <= window.end());
                end = message.end();
                let view = View::new(&pattern, *message, &*distribution, server).unwrap();
                prop_assert!(view.len() <= max && !view.is_empty());
                prop_assert!(view.len() == max || place + 1 == windows.len(), "all but the last are full");
                held.extend(view.flat_map(|run| positions(run, message.from - window.from)));
            }
            let expected: Vec<_> = whole.flat_map(|run| positions(run, 0)).collect();
            prop_assert_eq!(held, expected);
        }
    }

    #[test]
    fn a_view_skips_to_what_it_would_find_by_walking(
        recipe in recipes(300), servers in 1..6_u32, strip in 1..40_u64, from in 0..40_u64, len in 0..300_u64,
    ) {
        let pattern = recipe.pattern();
        let window = clip(&pattern, from, len);
        prop_assume!(pattern.slice(window.from, window.len).bounds().is_none_or(|(low, _)| low >= 0));
        let walking = model::Stripe { servers, strip, has_cycle: false };
        let skipping = model::Stripe { has_cycle: true, ..walking };
        for server in 0..servers {
            let walked: Vec<_> = View::new(&pattern, window, &walking, server).unwrap().collect();
            let skipped: Vec<_> = View::new(&pattern, window, &skipping, server).unwrap().collect();
            prop_assert_eq!(walked, skipped);
        }
    }
}

/// The window's part that lies inside the pattern.
fn clip(pattern: &Pattern, from: u64, len: u64) -> Window {
    let from = from.min(pattern.len());
    Window::new(from, len.min(pattern.len() - from))
}

/// Each byte of a run: its place in the datafile, and its packed position.
fn positions(run: ViewRun, base: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..run.len).map(move |byte| (run.physical + byte, base + run.packed + byte))
}

/// Every operation must work on any decoded pattern.
fn use_if_decoded(input: &[u8]) {
    let mut reader = Reader::new(input);
    let Ok(pattern) = Pattern::decode(&mut reader) else { return };
    let bounds = pattern.bounds();
    assert_eq!(bounds.is_none(), pattern.is_empty());
    let middle = pattern.len() / 2;
    for part in [pattern.slice(middle, 100), pattern.slice(0, 100), pattern.coalesce().slice(middle, 100)] {
        for region in part.regions().take(100) {
            let (low, high) = bounds.unwrap();
            assert!(low <= region.offset && region.end() <= high && region.len > 0);
        }
    }
    let stripe = model::Stripe { servers: 3, strip: 4096, has_cycle: true };
    if let Ok(view) = View::new(&pattern, Window::new(middle, (pattern.len() - middle).min(50)), &stripe, 1) {
        view.take(50).for_each(drop);
    }
    let _ = (pattern.shift(i64::MAX), pattern.shift(i64::MIN), pattern.to_string(), pattern.regions_max());
    assert_eq!(Pattern::from_bytes(&pattern.to_bytes()), Ok(pattern));
}
