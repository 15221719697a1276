//! The deal: one walk gives the same objects and holes as a look-up of every byte; and its cost.

use crate::model::{Extents, Stripe, bytes, config, cut, distributions, extents, recipes};
use proptest::prelude::*;
use shoal_pattern::{Deal, Dealt, Level, Pattern, Placement, View, ViewError, Window, share_len};

/// Every byte, by its place: (packed, object, place).
fn asked(offsets: &[i64], placement: &dyn Placement) -> Vec<(u64, Option<u32>, u64)> {
    let ask = |(packed, offset): (u64, &i64)| match placement.locate(*offset as u64).piece() {
        Some(piece) => (packed, Some(piece.object), piece.physical),
        None => (packed, None, *offset as u64),
    };
    (0..).zip(offsets).map(ask).collect()
}

fn written_out(runs: &[Dealt]) -> Vec<(u64, Option<u32>, u64)> {
    let byte = |run: &Dealt| {
        let run = *run;
        (0..run.len).map(move |at| (run.packed + at, run.object, run.place + at))
    };
    runs.iter().flat_map(byte).collect()
}

fn check_deal(pattern: &Pattern, window: Window, offsets: &[i64], placement: &dyn Placement) {
    let runs: Vec<Dealt> = Deal::new(pattern, window, placement).unwrap().collect();
    assert_eq!(written_out(&runs), asked(offsets, placement));
    for pair in runs.windows(2) {
        let same = pair[0].object == pair[1].object && pair[0].place + pair[0].len == pair[1].place;
        assert!(!same, "runs that should be one: {pair:?}");
    }
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn a_deal_over_a_layout_with_holes_puts_each_byte_where_the_layout_says(
        recipe in recipes(300), layout in extents(), from in 0..40_u64, len in 0..300_u64,
    ) {
        let pattern = recipe.pattern();
        let from = from.min(pattern.len());
        let window = Window::new(from, len.min(pattern.len() - from));
        let offsets = bytes(&cut(&recipe.regions(), window.from, window.len));
        prop_assume!(offsets.iter().all(|offset| *offset >= 0));
        check_deal(&pattern, window, &offsets, &layout);
    }

    #[test]
    fn a_deal_over_a_distribution_is_all_its_views(
        recipe in recipes(300), distribution in distributions(), from in 0..40_u64, len in 0..300_u64,
    ) {
        let pattern = recipe.pattern();
        let from = from.min(pattern.len());
        let window = Window::new(from, len.min(pattern.len() - from));
        let offsets = bytes(&cut(&recipe.regions(), window.from, window.len));
        prop_assume!(offsets.iter().all(|offset| *offset >= 0));
        check_deal(&pattern, window, &offsets, &*distribution);
        for server in 0..distribution.objects() {
            let walked = View::new(&pattern, window, &*distribution, server).unwrap().len();
            let counted = share_len(&pattern, window, &*distribution, server).unwrap();
            prop_assert_eq!(counted, distribution.cycle(server).map(|_| walked));
        }
    }
}

#[test]
fn holes_come_in_their_turn_with_their_place_in_the_file() {
    let layout =
        Extents { objects: 2, extents: vec![(0, 4, 0, 0), (4, 8, 1, 0), (12, 16, 0, 4), (16, 20, 1, 4)] };
    let pattern = Pattern::strided(2, 6, 8, 3).unwrap();
    let run = |object, place, packed, len| Dealt { object, place, packed, len };
    assert_eq!(
        Deal::new(&pattern, Window::all(&pattern), &layout).unwrap().collect::<Vec<_>>(),
        [
            run(Some(0), 2, 0, 2),
            run(Some(1), 0, 2, 4),
            run(None, 10, 6, 2),
            run(Some(0), 4, 8, 4),
            run(Some(1), 6, 12, 2),
            run(None, 20, 14, 4),
        ]
    );
}

#[test]
fn a_deal_is_refused_where_a_view_is_and_gives_up_where_it_is_told_to() {
    let layout = Extents { objects: 1, extents: Vec::new() };
    let pattern = Pattern::strided(-8, 4, 8, 10).unwrap();
    let refusal = |window| Deal::new(&pattern, window, &layout).err();
    assert_eq!(refusal(Window::all(&pattern)), Some(ViewError::NegativeOffset { offset: -8 }));
    assert!(matches!(refusal(Window::new(4, 37)), Some(ViewError::OutsidePattern { .. })));
    let mut deal = Deal::new(&pattern, Window::new(4, 36), &layout).unwrap().at_most(4);
    assert_eq!((deal.by_ref().count(), deal.gave_up()), (4, true));
    let mut whole = Deal::new(&pattern, Window::new(4, 36), &layout).unwrap().at_most(9);
    assert_eq!((whole.by_ref().count(), whole.gave_up()), (9, false));
}

/// A billion records over 16 objects.
fn billion() -> (Pattern, Stripe) {
    let pattern = Pattern::strided(100, 40, 376_064, 1_000_000_000).unwrap();
    (pattern, Stripe { servers: 16, strip: 65_536, has_cycle: true })
}

#[test]
fn the_bytes_of_a_billion_records_are_counted_without_a_walk() {
    let (pattern, stripe) = billion();
    let counted: Vec<u64> = (0..16)
        .map(|server| share_len(&pattern, Window::all(&pattern), &stripe, server).unwrap().unwrap())
        .collect();
    assert_eq!(counted.iter().sum::<u64>(), pattern.len());
    // 4,096 records are a whole number of rounds: what they give, times as often.
    let few = Window::new(0, 4096 * 40);
    for server in 0..16 {
        let round = View::new(&pattern, few, &stripe, server).unwrap().len();
        let rest = Window::new(0, 1_000_000_000 % 4096 * 40);
        let rest = View::new(&pattern, rest, &stripe, server).unwrap().len();
        assert_eq!(counted[server as usize], 1_000_000_000 / 4096 * round + rest);
    }
}

#[test]
fn deep_nests_are_counted_up_to_the_limit_and_not_beyond() {
    let level = |stride, quantity| Level { stride, quantity };
    let stripe = Stripe { servers: 3, strip: 7919, has_cycle: true };
    let page = Pattern::nested(5, 100, vec![level(1000, 4000), level(4_000_000, 500)]).unwrap();
    let all = Window::all(&page);
    let counted: u64 = (0..3).map(|server| share_len(&page, all, &stripe, server).unwrap().unwrap()).sum();
    assert_eq!(counted, page.len());
    let deep =
        Pattern::nested(5, 100, vec![level(1001, 9000), level(4_000_003, 9001), level(-7, 9002)]).unwrap();
    let deep = deep.shift(1 << 40).unwrap();
    assert_eq!(share_len(&deep, Window::all(&deep), &stripe, 0), Ok(None));
}
