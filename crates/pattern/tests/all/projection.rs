//! Views by example, their errors, and their cost, counted in calls of the distribution.

use crate::model;
use std::cell::Cell;

use crate::model::{Basic, Stripe};
use shoal_pattern::{
    Cycle, Distribution, Level, Located, Pattern, Piece, Placement, View, ViewError, ViewRun, Window,
    broken_law, broken_placement_law, split,
};

const STRIPE: Stripe = Stripe { servers: 4, strip: 65_536, has_cycle: true };

fn runs(pattern: &Pattern, window: Window, distribution: &dyn Distribution, server: u32) -> Vec<ViewRun> {
    View::new(pattern, window, distribution, server).unwrap().collect()
}

/// Counts the calls of `locate`.
struct Counted {
    stripe: Stripe,
    asked: Cell<u64>,
}

impl Counted {
    fn new(stripe: Stripe) -> Self {
        Self { stripe, asked: Cell::new(0) }
    }
}

impl Placement for Counted {
    fn objects(&self) -> u32 {
        self.stripe.objects()
    }

    fn locate(&self, logical: u64) -> Located {
        self.asked.set(self.asked.get() + 1);
        self.stripe.locate(logical)
    }
}

impl Distribution for Counted {
    fn logical(&self, server: u32, physical: u64) -> u64 {
        self.stripe.logical(server, physical)
    }

    fn logical_end(&self, server: u32, physical_size: u64) -> u64 {
        self.stripe.logical_end(server, physical_size)
    }

    fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
        self.stripe.physical_size(server, logical_size)
    }

    fn cycle(&self, server: u32) -> Option<Cycle> {
        self.stripe.cycle(server)
    }
}

#[test]
fn the_designs_example_repeats_after_1024_records_and_not_before() {
    let turns = |first: u64, count: u64| {
        let pattern = Pattern::strided(first as i64 * 376_064, 47_008, 376_064, count).unwrap();
        (0..4).map(|server| runs(&pattern, Window::all(&pattern), &STRIPE, server)).collect::<Vec<_>>()
    };
    // 1,024 strides are 1,469 whole rounds of 4 x 64 KiB: each datafile has advanced by as many strips.
    assert_eq!(1024 * 376_064, 1469 * 4 * 65_536);
    let moved = |mut views: Vec<Vec<ViewRun>>, strips: u64| {
        views.iter_mut().flatten().for_each(|run| run.physical += strips * 65_536);
        views
    };
    let first = turns(0, 1024);
    assert_eq!(turns(1024, 1024), moved(first.clone(), 1469));
    assert_eq!(first.iter().flatten().map(|run| run.len).sum::<u64>(), 1024 * 47_008);
    // Fewer records are never a whole number of rounds, so no shift by rounds can be the same view.
    assert!((1..1024).all(|records| records * 376_064 % (4 * 65_536) != 0));
}

#[test]
fn a_file_is_dealt_strip_by_strip() {
    let file = Pattern::contiguous(0, 300_000).unwrap();
    let run = |physical, packed, len| ViewRun { physical, packed, len };
    assert_eq!(
        runs(&file, Window::all(&file), &STRIPE, 0),
        [run(0, 0, 65_536), run(65_536, 262_144, 300_000 - 262_144)]
    );
    assert_eq!(runs(&file, Window::new(60_000, 10_000), &STRIPE, 1), [run(0, 5536, 4464)]);
    assert_eq!(runs(&file, Window::new(60_000, 5_000), &STRIPE, 3), []);
    assert_eq!(View::new(&file, Window::all(&file), &STRIPE, 2).unwrap().len(), 65_536);
}

#[test]
fn one_server_alone_sees_one_run() {
    let file = Pattern::strided(0, 100, 100, 1000).unwrap();
    let alone = Stripe { servers: 1, ..STRIPE };
    assert_eq!(
        runs(&file, Window::all(&file), &alone, 0),
        [ViewRun { physical: 0, packed: 0, len: 100_000 }]
    );
    let basic = Basic { holder: 1, has_cycle: false };
    assert_eq!(runs(&file, Window::all(&file), &basic, 1).len(), 1);
    assert_eq!(runs(&file, Window::all(&file), &basic, 0), []);
}

#[test]
fn what_cannot_be_projected_is_refused() {
    let pattern = Pattern::strided(-8, 4, 8, 10).unwrap();
    let refusal = |window, server| View::new(&pattern, window, &STRIPE, server).err();
    assert_eq!(refusal(Window::all(&pattern), 0), Some(ViewError::NegativeOffset { offset: -8 }));
    assert_eq!(refusal(Window::new(4, 36), 0), None, "the window begins at offset 0");
    let outside = |from, len| Some(ViewError::OutsidePattern { from, len, pattern_len: 40 });
    assert_eq!(refusal(Window::new(4, 37), 0), outside(4, 37));
    assert_eq!(refusal(Window::new(u64::MAX, 2), 0), outside(u64::MAX, 2));
    assert_eq!(refusal(Window::new(4, 1), 4), Some(ViewError::NoSuchServer { server: 4, servers: 4 }));
    let uncut = split(&pattern, Window::new(4, 1), &STRIPE, 0, 0).err();
    assert_eq!(uncut, Some(ViewError::EmptyMessages));
}

#[test]
fn a_contiguous_file_costs_a_server_its_own_strips_alone() {
    let counted = Counted::new(Stripe { servers: 1000, ..STRIPE });
    let file = Pattern::contiguous(12_345, 1 << 40).unwrap();
    let own = runs(&file, Window::all(&file), &counted, 999).len() as u64;
    assert!(counted.asked.get() <= 2 * own + 2, "{} questions for {own} runs", counted.asked.get());
}

#[test]
fn records_of_other_servers_are_passed_over_by_arithmetic() {
    // Records of 8 bytes every 4 KiB: sixteen to a strip, one strip in four is the server's.
    let counted = Counted::new(STRIPE);
    let column = Pattern::strided(64, 8, 4096, 100_000).unwrap();
    let own = runs(&column, Window::all(&column), &counted, 2).len() as u64;
    assert_eq!(own, 24_992);
    // One question finds the strip, and at most two pass over those of the others.
    assert!(counted.asked.get() <= 3 * (own / 16) + 3, "{} for {own}", counted.asked.get());
}

#[test]
fn the_packed_ranges_of_small_records_cost_a_step_for_each_strip() {
    // Records of 8 bytes every 4 KiB: sixteen to a strip, all side by side in packed order.
    let column = Pattern::strided(64, 8, 4096, 100_000).unwrap();
    let view = View::new(&column, Window::all(&column), &STRIPE, 2).unwrap();
    let ranges: Vec<_> = view.clone().at_most(5 * 100_000 / 64).packed().collect();
    assert!(ranges == model::packed_ranges(&view.collect::<Vec<_>>()));
    assert_eq!(ranges.len(), 1562);
}

#[test]
fn a_stride_that_never_meets_a_server_ends_at_once() {
    let counted = Counted::new(STRIPE);
    let column = Pattern::strided(0, 100, 262_144, 1 << 40).unwrap();
    assert_eq!(runs(&column, Window::all(&column), &counted, 1), []);
    assert_eq!(View::new(&column, Window::all(&column), &counted, 1).unwrap().len(), 0);
    assert!(counted.asked.get() <= 2);
}

#[test]
fn lengths_are_counted_without_walking_strips() {
    let counted = Counted::new(STRIPE);
    let file = Pattern::contiguous(0, 1 << 60).unwrap();
    assert_eq!(View::new(&file, Window::all(&file), &counted, 3).unwrap().len(), 1 << 58);
    assert_eq!(counted.asked.get(), 0);
}

#[test]
fn a_window_deep_in_a_large_nest_is_found_by_arithmetic() {
    let cube = Pattern::nested(
        0,
        64,
        vec![
            Level { stride: 4096, quantity: 1 << 12 },
            Level { stride: 1 << 24, quantity: 1 << 12 },
            Level { stride: 1 << 36, quantity: 1 << 12 },
        ],
    )
    .unwrap();
    let window = Window::new(cube.len() - 100, 100);
    let end = cube.bounds().unwrap().1;
    let found: Vec<_> = cube.iter_window(window.from, window.len).collect();
    assert_eq!(found.len(), 2);
    assert_eq!(found[1].end(), end);
    let held: u64 = (0..4).map(|server| View::new(&cube, window, &STRIPE, server).unwrap().len()).sum();
    assert_eq!(held, 100);
}

#[test]
fn a_transfer_is_cut_into_messages_that_hold_what_was_asked_for() {
    let file = Pattern::contiguous(0, 1 << 20).unwrap();
    let cuts: Vec<_> = split(&file, Window::all(&file), &STRIPE, 1, 100_000).unwrap().collect();
    // Server 1 has 65,536..131,072 of each 262,144: four strips, cut after 100,000 and 200,000 of their
    // bytes.
    assert_eq!(
        cuts,
        [
            Window::new(65_536, 262_144 + 34_464),
            Window::new(327_680 + 34_464, 31_072 + 196_608 + 65_536 + 196_608 + 3_392),
            Window::new(851_968 + 3_392, 62_144),
        ]
    );
    let held = |cut: &Window| View::new(&file, *cut, &STRIPE, 1).unwrap().len();
    assert_eq!(cuts.iter().map(held).collect::<Vec<_>>(), [100_000, 100_000, 62_144]);
}

#[test]
fn a_distribution_that_breaks_its_laws_cannot_hang_a_view() {
    struct Broken;
    impl Placement for Broken {
        fn objects(&self) -> u32 {
            2
        }
        fn locate(&self, logical: u64) -> Located {
            Located::Piece(Piece { object: 0, physical: logical, run: 0 })
        }
    }
    impl Distribution for Broken {
        fn logical(&self, _: u32, physical: u64) -> u64 {
            physical
        }
        fn logical_end(&self, _: u32, _: u64) -> u64 {
            0
        }
        fn physical_size(&self, _: u32, _: u64) -> u64 {
            0
        }
        fn cycle(&self, _: u32) -> Option<Cycle> {
            Some(Cycle { period: 0, start: 9, len: u64::MAX })
        }
        fn next_on(&self, _: u32, _: u64) -> Option<u64> {
            Some(0)
        }
    }
    let pattern = Pattern::strided(5, 10, 20, 10).unwrap();
    assert_eq!(runs(&pattern, Window::all(&pattern), &Broken, 1), []);
    assert_eq!(View::new(&pattern, Window::all(&pattern), &Broken, 0).unwrap().len(), 100);
}

#[test]
fn placements_are_held_to_their_laws() {
    let extents = vec![(3, 10, 0, 5), (10, 12, 1, 0), (20, 25, 0, 12)];
    let layout = model::Extents { objects: 2, extents };
    assert_eq!(broken_placement_law(&layout, 60), None);
    let law = broken_placement_law(&model::Extents { objects: 1, ..layout }, 60).unwrap();
    assert!(law.starts_with("at byte 10: located at Piece"), "{law}");
    struct Short;
    impl Placement for Short {
        fn objects(&self) -> u32 {
            1
        }
        fn locate(&self, logical: u64) -> Located {
            if logical < 8 {
                return Located::Hole { run: 9 - logical };
            }
            Located::Piece(Piece { object: 0, physical: logical, run: 1 })
        }
    }
    let law = broken_placement_law(&Short, 60).unwrap();
    assert!(law.starts_with("at byte 7: its run Hole { run: 2 } does not go on"), "{law}");
}

#[test]
fn distributions_are_held_to_their_laws() {
    for has_cycle in [false, true] {
        assert_eq!(broken_law(&Stripe { servers: 3, strip: 7, has_cycle }, 200), None);
        assert_eq!(broken_law(&Stripe { servers: 1, strip: 7, has_cycle }, 200), None);
        assert_eq!(broken_law(&Basic { holder: 1, has_cycle }, 200), None);
    }
    struct Late(Stripe);
    impl Placement for Late {
        fn objects(&self) -> u32 {
            self.0.objects()
        }
        fn locate(&self, logical: u64) -> Located {
            self.0.locate(logical)
        }
    }
    impl Distribution for Late {
        fn logical(&self, server: u32, physical: u64) -> u64 {
            self.0.logical(server, physical)
        }
        fn logical_end(&self, server: u32, physical_size: u64) -> u64 {
            self.0.logical_end(server, physical_size)
        }
        fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
            self.0.physical_size(server, logical_size)
        }
        fn cycle(&self, server: u32) -> Option<Cycle> {
            self.0.cycle(server).map(|cycle| Cycle { len: cycle.len - 1, ..cycle })
        }
    }
    let law = broken_law(&Late(Stripe { servers: 3, strip: 7, has_cycle: true }), 200).unwrap();
    assert!(law.starts_with("at byte 6: byte 21 is not the next on server 0"), "{law}");
}

#[test]
fn a_cycle_tells_where_a_servers_bytes_are() {
    let cycle = Cycle { period: 10, start: 4, len: 3 };
    let next: Vec<_> = (0..12).map(|logical| cycle.next(logical).unwrap()).collect();
    assert_eq!(next, [4, 4, 4, 4, 4, 5, 6, 14, 14, 14, 14, 14]);
    let held: Vec<_> = (0..12).map(|logical| cycle.held_below(logical)).collect();
    assert_eq!(held, [0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3]);
    assert_eq!(Cycle { start: 0, len: 1, ..cycle }.next(u64::MAX), None);
    assert_eq!(Cycle { len: 0, ..cycle }.next(0), None);
}

#[test]
fn a_bounded_walk_gives_up_and_says_so_and_an_unbounded_one_does_not() {
    let stripe = Stripe { servers: 3, strip: 7, has_cycle: true };
    let level = |stride, quantity| Level { stride, quantity };
    // Every record is on server 1.
    let elsewhere = Pattern::nested(7, 1, vec![level(21, 10), level(2100, 1000)]).unwrap();
    let view = View::new(&elsewhere, Window::all(&elsewhere), &stripe, 0).unwrap();
    let mut bounded = view.clone().at_most(100);
    assert_eq!((bounded.next(), bounded.gave_up()), (None, true));
    let mut whole = view.at_most(1001);
    assert_eq!((whole.next(), whole.gave_up()), (None, false));
}
