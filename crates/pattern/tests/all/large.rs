//! The laws where naive expansion is too slow: offsets and quantities of all sizes, against arithmetic in
//! 128 bits.

use crate::model;
use proptest::prelude::*;
use shoal_pattern::codec::Codec;
use shoal_pattern::{Level, Pattern, PatternError, Region, View, ViewRun, Window, share_len};

/// Numbers of every magnitude.
fn wide() -> impl Strategy<Value = u64> {
    (any::<u64>(), 1..64_u32).prop_map(|(value, bits)| value >> bits)
}

fn signed() -> impl Strategy<Value = i64> {
    (wide(), any::<bool>())
        .prop_map(|(value, negative)| if negative { -(value as i64) } else { value as i64 })
}

/// A nest that may be refused.
#[derive(Clone, Debug)]
struct Nest {
    offset: i64,
    record: u64,
    levels: Vec<Level>,
}

fn nests() -> impl Strategy<Value = Nest> {
    // Quantities are kept smaller than strides by a square, or nearly every nest would be too long.
    let root = |value: u64| 1 + ((value as f64).sqrt().sqrt() as u64);
    let level = (signed(), wide())
        .prop_map(move |(stride, quantity)| Level { stride: stride >> 8, quantity: root(quantity) });
    (signed(), wide(), prop::collection::vec(level, 0..6)).prop_map(move |(offset, record, levels)| Nest {
        offset,
        record: root(record),
        levels,
    })
}

impl Nest {
    fn pattern(&self) -> Result<Pattern, PatternError> {
        Pattern::nested(self.offset, self.record, self.levels.clone())
    }

    /// The offset of one packed byte, by definition.
    fn byte(&self, packed: u64) -> i128 {
        let mut turn = packed / self.record;
        let mut offset = i128::from(self.offset) + i128::from(packed % self.record);
        for level in &self.levels {
            offset += i128::from(turn % level.quantity) * i128::from(level.stride);
            turn /= level.quantity;
        }
        offset
    }
}

/// The offset of one packed byte, by the pattern.
fn byte(pattern: &Pattern, packed: u64) -> i128 {
    let found: Vec<Region> = pattern.iter_window(packed, 1).collect();
    assert_eq!((found.len(), found[0].len), (1, 1));
    i128::from(found[0].offset)
}

proptest! {
    #![proptest_config(model::config(3000))]

    #[test]
    fn every_byte_is_where_arithmetic_says_whatever_was_done(
        nest in nests(), places in prop::collection::vec(any::<prop::sample::Index>(), 4), delta in signed(),
    ) {
        let Ok(pattern) = nest.pattern() else { return Ok(()) };
        let place = |at: usize| places[at].index(pattern.len() as usize) as u64;
        let (from, packed) = (place(0).min(place(1)), place(2).max(place(0)).max(place(1)));
        let meant = nest.byte(packed);
        let (low, high) = pattern.bounds().unwrap();
        prop_assert!(i128::from(low) <= meant && meant < i128::from(high));
        prop_assert_eq!(byte(&pattern, packed), meant);
        prop_assert_eq!(byte(&pattern.coalesce(), packed), meant);

        let part = pattern.slice(from, packed - from + 1);
        prop_assert_eq!(byte(&part, packed - from), meant);
        prop_assert_eq!(byte(&part.coalesce(), packed - from), meant);
        let (low, high) = part.bounds().unwrap();
        for inside in [from, packed, from + (packed - from) / 2] {
            prop_assert!(i128::from(low) <= nest.byte(inside) && nest.byte(inside) < i128::from(high));
        }
        prop_assert_eq!(Pattern::from_bytes(&part.to_bytes()), Ok(part.clone()));
        if let Ok(shifted) = part.shift(delta) {
            prop_assert_eq!(byte(&shifted, packed - from), meant + i128::from(delta));
        }
    }

    #[test]
    fn a_nest_is_refused_only_for_bytes_that_leave_the_range(nest in nests()) {
        let reach = |level: &Level| i128::from(level.stride) * i128::from(level.quantity - 1);
        let ends: i128 = nest.levels.iter().map(|level| reach(level).max(0)).sum();
        let starts: i128 = nest.levels.iter().map(|level| reach(level).min(0)).sum();
        let records: u128 = nest.levels.iter().map(|level| u128::from(level.quantity)).product();
        let len = records * u128::from(nest.record);
        let fits = len <= i64::MAX as u128
            && i128::from(nest.offset) + starts >= i128::from(i64::MIN)
            && i128::from(nest.offset) + ends + i128::from(nest.record) <= i128::from(i64::MAX);
        prop_assert_eq!(Pattern::nested(nest.offset, nest.record, nest.levels).is_ok(), fits);
    }

    #[test]
    fn a_view_of_far_records_skips_to_what_it_would_find_by_walking(
        nest in nests(), strip in wide(), servers in 1..40_u32, at in any::<prop::sample::Index>(),
    ) {
        let Ok(pattern) = nest.pattern() else { return Ok(()) };
        let from = at.index(pattern.len() as usize) as u64;
        let window = Window::new(from, (pattern.len() - from).min(nest.record.saturating_mul(300)));
        // Strips from a fifth of a record up, so that walking takes no longer than this test may.
        let strip = (strip >> 10) + nest.record / 5 + 1;
        let walking = model::Stripe { servers, strip, has_cycle: false };
        let skipping = model::Stripe { has_cycle: true, ..walking };
        let Ok(walk) = View::new(&pattern, window, &walking, servers - 1) else { return Ok(()) };
        let walked: Vec<ViewRun> = walk.collect();
        let skip = View::new(&pattern, window, &skipping, servers - 1).unwrap();
        prop_assert_eq!(skip.len(), walked.iter().map(|run| run.len).sum::<u64>());
        prop_assert_eq!(skip.clone().packed().collect::<Vec<_>>(), model::packed_ranges(&walked));
        prop_assert_eq!(skip.collect::<Vec<_>>(), walked);
    }

    #[test]
    fn a_byte_of_far_records_is_found_and_the_least_offset_comes_first(
        nest in nests(), at in any::<prop::sample::Index>(),
    ) {
        let Ok(pattern) = nest.pattern() else { return Ok(()) };
        let packed = at.index(pattern.len() as usize) as u64;
        let offset = i64::try_from(nest.byte(packed)).unwrap();
        if let Ok(found) = pattern.packed_at_within(offset, 2000) {
            let found = found.unwrap();
            prop_assert!(found >= packed, "{} is before {}", found, packed);
            prop_assert_eq!(nest.byte(found), i128::from(offset));
        }
        if let Ok(mut visits) = pattern.by_offset() {
            let first = visits.next().unwrap();
            prop_assert_eq!(first.offset, pattern.bounds().unwrap().0);
            let mut before = first;
            for visit in visits.take(50) {
                prop_assert!((before.offset, before.packed) < (visit.offset, visit.packed));
                prop_assert_eq!(nest.byte(visit.packed), i128::from(visit.offset));
                prop_assert_eq!(nest.byte(visit.packed + visit.len - 1) - i128::from(visit.offset), i128::from(visit.len - 1));
                before = visit;
            }
        }
    }

    #[test]
    fn a_stride_of_any_size_is_counted_as_a_walk_counts_it(
        offset in wide(), record in wide(), stride in wide(), quantity in 1..400_u64, strip in wide(),
        servers in 1..40_u32,
    ) {
        let pattern = Pattern::strided((offset >> 2) as i64, 1 + (record >> 12), (stride >> 12) as i64, quantity);
        let Ok(pattern) = pattern else { return Ok(()) };
        let stripe = model::Stripe { servers, strip: 1 + (strip >> 8), has_cycle: true };
        let window = Window::all(&pattern);
        let counted = share_len(&pattern, window, &stripe, servers - 1).unwrap();
        prop_assert_eq!(counted, Some(View::new(&pattern, window, &stripe, servers - 1).unwrap().len()));
    }
}
