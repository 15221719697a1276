//! Patterns by example: the forms they take, the input they refuse, their text, their sizes.

use shoal_pattern::codec::{Codec, DecodeError, Writer};
use shoal_pattern::{Level, Pattern, PatternError, Region, limits};

fn strided(offset: i64, record: u64, stride: i64, quantity: u64) -> Pattern {
    Pattern::strided(offset, record, stride, quantity).unwrap()
}

fn regions(pattern: &Pattern) -> Vec<(i64, u64)> {
    pattern.regions().map(|region| (region.offset, region.len)).collect()
}

fn list(regions: &[(i64, u64)]) -> Pattern {
    Pattern::list(regions.iter().map(|&(offset, len)| Region::new(offset, len)).collect()).unwrap()
}

fn level(stride: i64, quantity: u64) -> Level {
    Level { stride, quantity }
}

#[test]
fn a_nest_is_innermost_first_as_in_galley() {
    let nest = Pattern::nested(0, 2, vec![level(4, 3), level(20, 2)]).unwrap();
    assert_eq!(regions(&nest), [(0, 2), (4, 2), (8, 2), (20, 2), (24, 2), (28, 2)]);
    assert_eq!((nest.len(), nest.bounds(), nest.regions_max()), (12, Some((0, 30)), 6));
}

#[test]
fn a_stride_may_run_backwards_and_stand_still() {
    assert_eq!(regions(&strided(100, 5, -10, 3)), [(100, 5), (90, 5), (80, 5)]);
    assert_eq!(strided(100, 5, -10, 3).bounds(), Some((80, 105)));
    assert_eq!(regions(&strided(7, 5, 0, 2)), [(7, 5), (7, 5)]);
}

#[test]
fn nothing_is_one_pattern_however_it_is_said() {
    let nothings = [
        Pattern::contiguous(5, 0).unwrap(),
        strided(5, 0, 10, 10),
        strided(5, 10, 10, 0),
        list(&[]),
        list(&[(3, 0), (9, 0)]),
        strided(0, 8, 64, 10).slice(80, 5),
        strided(0, 8, 64, 10).slice(3, 0),
    ];
    for nothing in nothings {
        assert_eq!(nothing, Pattern::EMPTY);
        assert_eq!((nothing.bounds(), nothing.regions().next(), nothing.as_region()), (None, None, None));
        assert!(nothing.is_empty() && nothing.is_contiguous());
        assert_eq!(Pattern::from_bytes(&nothing.to_bytes()), Ok(nothing));
    }
    assert_eq!(Pattern::EMPTY.to_string(), "nothing");
}

#[test]
fn a_slice_takes_the_smallest_form() {
    let nest = Pattern::nested(0, 4, vec![level(8, 10), level(1000, 10)]).unwrap();
    assert_eq!(nest.slice(0, 400), nest);
    assert_eq!(nest.slice(40, 80), Pattern::nested(1000, 4, vec![level(8, 10), level(1000, 2)]).unwrap());
    assert_eq!(nest.slice(48, 8), strided(1016, 4, 8, 2));
    assert_eq!(nest.slice(49, 2), Pattern::contiguous(1017, 2).unwrap());
    assert_eq!(regions(&nest.slice(46, 6)), [(1010, 2), (1016, 4)]);
    assert_eq!(list(&[(0, 4), (10, 4), (20, 4)]).slice(5, 2), Pattern::contiguous(11, 2).unwrap());
}

#[test]
fn what_a_sliced_list_does_not_show_is_not_sent() {
    let long = list(&(0..4000).map(|at| (at * 100, 10)).collect::<Vec<_>>());
    let part = long.slice(20_005, 20);
    assert_eq!(regions(&part), [(200_005, 5), (200_100, 10), (200_200, 5)]);
    assert!(part.to_bytes().len() < 24, "{} bytes", part.to_bytes().len());
}

#[test]
fn a_million_records_weigh_a_dozen_bytes() {
    assert!(strided(0, 47_008, 376_064, 1_000_000).to_bytes().len() <= 12);
    let part = strided(0, 47_008, 376_064, 1_000_000).slice(123_456_789, 262_144);
    assert!(part.to_bytes().len() <= 20);
}

#[test]
fn coalescing_finds_the_closed_form_where_there_is_one() {
    assert_eq!(strided(9, 8, 8, 100).coalesce(), Pattern::contiguous(9, 800).unwrap());
    let rows = Pattern::nested(0, 8, vec![level(8, 4), level(32, 10), level(1000, 3)]).unwrap();
    assert_eq!(rows.coalesce(), strided(0, 320, 1000, 3));
    let flat = Pattern::nested(0, 8, vec![level(16, 4), level(64, 10)]).unwrap();
    assert_eq!(flat.coalesce(), strided(0, 8, 16, 40));
    assert_eq!(list(&[(0, 5), (5, 5), (20, 1), (21, 2)]).coalesce(), list(&[(0, 10), (20, 3)]));
    assert_eq!(list(&[(0, 5), (5, 5)]).coalesce(), Pattern::contiguous(0, 10).unwrap());
}

#[test]
fn records_that_touch_where_a_level_turns_over_are_joined_without_a_closed_form() {
    let nest = Pattern::nested(0, 4, vec![level(8, 2), level(12, 3)]).unwrap();
    assert_eq!(regions(&nest), [(0, 4), (8, 4), (12, 4), (20, 4), (24, 4), (32, 4)]);
    assert_eq!(regions(&nest.coalesce()), [(0, 4), (8, 8), (20, 8), (32, 4)]);
    assert_eq!(regions(&nest.coalesce().slice(6, 8)), [(10, 6), (20, 2)]);
}

#[test]
fn a_claim_that_regions_are_joined_is_not_believed() {
    // A contiguous file, written as 2^40 records of one byte, marked as joined: walking it record by record
    // would take an hour before the first region came.
    let mut writer = Writer::new();
    writer.put_u8(0x82);
    writer.put_zigzag(0);
    writer.put_varint(1);
    writer.put_u8(1);
    writer.put_zigzag(1);
    writer.put_varint(1 << 40);
    let pattern = Pattern::from_bytes(writer.as_slice()).unwrap();
    assert_eq!(regions(&pattern), [(0, 1 << 40)]);
}

#[test]
fn compression_finds_the_strides_and_keeps_the_boundaries() {
    let index: Vec<(i64, u64)> =
        (0..500).map(|turn| (turn * 376_064, 47_008)).chain([(7, 3), (10, 5)]).collect();
    let packed = list(&index).compress();
    assert_eq!(regions(&packed), index);
    assert!(packed.to_bytes().len() < 32);
    assert_eq!(list(&index[..500]).compress(), strided(0, 47_008, 376_064, 500));
    let scattered = list(&[(0, 1), (10, 2), (50, 3)]);
    assert_eq!(scattered.compress(), scattered);
    let touching = list(&[(0, 4), (4, 4), (8, 4)]).compress();
    assert_eq!(regions(&touching), [(0, 4), (4, 4), (8, 4)]);
}

#[test]
fn a_long_index_compresses_though_no_list_could_hold_it() {
    let index: Vec<Region> = (0..100_000).map(|turn| Region::new(turn * 4096, 1000)).collect();
    assert_eq!(Pattern::list(index.clone()), Err(PatternError::TooManyRegions { regions: 100_000 }));
    assert_eq!(Pattern::compressed(&index), Ok(strided(0, 1000, 4096, 100_000)));
}

#[test]
fn what_would_leave_the_range_of_offsets_is_refused() {
    let max = i64::MAX;
    assert_eq!(Pattern::contiguous(max, 1), Err(PatternError::OutOfRange));
    assert_eq!(Pattern::contiguous(1, max as u64), Err(PatternError::OutOfRange));
    assert!(Pattern::contiguous(0, max as u64).is_ok());
    assert_eq!(Pattern::contiguous(0, max as u64 + 1), Err(PatternError::TooLong));
    assert_eq!(Pattern::strided(0, 1, max, 3), Err(PatternError::OutOfRange));
    assert_eq!(Pattern::strided(-5, 1, i64::MIN, 2), Err(PatternError::OutOfRange));
    assert_eq!(Pattern::strided(0, 1, i64::MIN, u64::MAX), Err(PatternError::TooLong));
    assert_eq!(Pattern::strided(0, 1 << 40, 0, 1 << 40), Err(PatternError::TooLong));
    assert_eq!(strided(0, 1, 10, 2).shift(max - 5), Err(PatternError::OutOfRange));
    let wide = strided(i64::MIN, 1, max, 3);
    assert_eq!(regions(&wide), [(i64::MIN, 1), (-1, 1), (max - 1, 1)]);
    let both = list(&[(0, max as u64), (0, 1)].map(|(offset, len)| (offset, len / 2)));
    assert_eq!(both.len(), max as u64 / 2);
    let too_long = vec![Region::new(0, max as u64), Region::new(0, 1)];
    assert_eq!(Pattern::list(too_long), Err(PatternError::TooLong));
}

#[test]
fn depth_is_limited_and_single_turns_do_not_count() {
    let levels = |count| (0..count).map(|place| level(100 << place, 2)).collect::<Vec<_>>();
    assert!(Pattern::nested(0, 1, levels(limits::NESTING_DEPTH_MAX)).is_ok());
    assert_eq!(Pattern::nested(0, 1, levels(9)), Err(PatternError::TooDeep { levels: 9 }));
    let single = vec![level(9, 1), level(8, 4), level(7, 1)];
    assert_eq!(Pattern::nested(0, 1, single), Pattern::strided(0, 1, 8, 4));
}

#[test]
fn patterns_read_as_words() {
    let words = [
        (strided(0, 47_008, 376_064, 1024), "47,008 B x 1024 every 376,064 B from 0"),
        (Pattern::contiguous(-1_000_000, 999).unwrap(), "999 B from -1,000,000"),
        (
            Pattern::nested(64, 8, vec![level(32, 4), level(-4096, 10)]).unwrap(),
            "8 B x 4 every 32 B x 10 every -4,096 B from 64",
        ),
        (strided(0, 1000, 4000, 4).slice(500, 1500), "bytes 500..2,000 of 1,000 B x 2 every 4,000 B from 0"),
        (list(&[(0, 4), (10, 6)]), "4 B from 0, 6 B from 10"),
        (
            list(&[(0, 1), (2, 1), (4, 1), (6, 9), (50, 1)]),
            "1 B from 0, 1 B from 2, 1 B from 4 and 2 more, 13 B in all",
        ),
    ];
    for (pattern, text) in words {
        assert_eq!(pattern.to_string(), text);
    }
    assert_eq!(Region::new(4096, 1000).to_string(), "1,000 B from 4,096");
}

#[test]
fn hostile_forms_are_errors() {
    let put = |form: u8, body: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        writer.put_u8(form);
        body(&mut writer);
        Pattern::from_bytes(writer.as_slice())
    };
    assert_eq!(put(6, &|_| {}), Err(DecodeError::Invalid("pattern")));
    assert_eq!(put(0x11, &|_| {}), Err(DecodeError::Invalid("pattern")));
    let many = Err(DecodeError::Limit { what: "a count", value: u32::MAX.into(), limit: 4096 });
    assert_eq!(put(3, &|writer| writer.put_u32(u32::MAX)), many);
    assert_eq!(put(3, &|writer| writer.put_u32(4096)), Err(DecodeError::Truncated));
    let deep = put(2, &|writer| {
        writer.put_raw(&[0, 1, 9]);
    });
    assert_eq!(deep, Err(DecodeError::Limit { what: "a pattern's levels", value: 9, limit: 8 }));
    let outside = put(0x41, &|writer| {
        writer.put_raw(&[0, 10, 8, 3]);
    });
    assert_eq!(outside, Err(DecodeError::Invalid("window of a pattern")));
    let wrapping = put(0x41, &|writer| {
        writer.put_raw(&[0, 10, 8]);
        writer.put_varint(u64::MAX);
    });
    assert_eq!(wrapping, Err(DecodeError::Invalid("window of a pattern")));
    let far = put(1, &|writer| {
        writer.put_zigzag(i64::MAX);
        writer.put_varint(2);
    });
    assert_eq!(far, Err(DecodeError::Invalid("pattern: a region is out of range")));
    assert_eq!(put(1, &|writer| writer.put_raw(&[0, 10, 0])), Err(DecodeError::Trailing));
}

#[test]
fn the_encoding_is_what_the_documentation_draws() {
    assert_eq!(Pattern::contiguous(-1, 300).unwrap().to_bytes(), [1, 1, 0xac, 2]);
    assert_eq!(strided(1, 2, 3, 4).to_bytes(), [2, 2, 2, 1, 6, 4]);
    assert_eq!(list(&[(0, 4), (5, 4)]).to_bytes(), [3, 2, 0, 0, 0, 0, 4, 2, 4]);
    assert_eq!(strided(0, 4, 6, 3).slice(1, 10).to_bytes(), [0x42, 0, 4, 1, 12, 3, 1, 10]);
    let runs = Pattern::compressed(&[0, 5, 10, 15, 90].map(|offset| Region::new(offset, 2))).unwrap();
    assert_eq!(runs.to_bytes(), [4, 2, 0, 0, 0, 0, 2, 4, 10, 180, 1, 2, 1]);
}
