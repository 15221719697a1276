//! Patterns by example: the forms they take, the input they refuse, their text, their sizes.

use shoal_pattern::codec::{Codec, DecodeError, Writer};
use shoal_pattern::{Branch, Level, Pattern, PatternError, Region, Window, limits};

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
    let regions = limits::LIST_REGIONS_MAX + 1;
    let index: Vec<Region> = (0..regions as i64).map(|turn| Region::new(turn * 4096, 1000)).collect();
    let refused = PatternError::TooManyRegions { regions, limit: limits::LIST_REGIONS_MAX };
    assert_eq!(Pattern::list(index.clone()), Err(refused));
    assert_eq!(Pattern::compressed(&index), Ok(strided(0, 1000, 4096, regions as u64)));
}

/// A scattered list, its packed bytes 3, 4, 5, 3 ….
fn long_list(regions: usize) -> Pattern {
    let region = |n: usize| Region::new((n * 7919 % regions * 10) as i64, 3 + n as u64 % 3);
    Pattern::list((0..regions).map(region).collect()).unwrap()
}

#[test]
fn a_list_longer_than_a_request_is_cut_into_parts_that_can_be_sent_and_are_the_whole() {
    let most = limits::REQUEST_REGIONS_MAX;
    for regions in [1, most, most + 1, 3 * most, 3 * most + 17] {
        let list = long_list(regions);
        for window in [Window::all(&list), Window::new(2, list.len() - 2), Window::new(list.len() / 2, 5)] {
            let mut at = window.from;
            let mut met = Vec::new();
            let mut parts = 0;
            for part in list.requests(window) {
                assert_eq!(part.from, at, "side by side");
                at += part.len;
                parts += 1;
                let sent = list.slice(part.from, part.len);
                assert!(sent.regions_max() <= most as u64);
                met.extend(Pattern::from_bytes(&sent.to_bytes()).unwrap().regions());
            }
            let end = (window.from + window.len).min(list.len());
            assert_eq!(at, end);
            assert!(parts <= regions.div_ceil(most));
            let whole: Vec<_> = list.iter_window(window.from, window.len).collect();
            assert_eq!(met.iter().map(|region| region.len).sum::<u64>(), end - window.from);
            assert_eq!(met, whole);
        }
    }
    assert_eq!(long_list(10).requests(Window::new(5, 0)).count(), 0);
    assert_eq!(long_list(10).requests(Window::new(1000, 5)).count(), 0);
    let strided = strided(0, 1, 2, 1 << 30);
    assert_eq!(strided.requests(Window::all(&strided)).collect::<Vec<_>>(), [Window::all(&strided)]);
}

#[test]
fn a_long_vector_of_bytes_alone_is_a_list_and_a_long_tree_is_refused() {
    let most = limits::REQUEST_REGIONS_MAX;
    let nodes: Vec<Branch> = (0..2 * most as i64).map(|n| Branch::bytes(n * n, 1)).collect();
    let list = Pattern::list((0..2 * most as i64).map(|n| Region::new(n * n, 1)).collect()).unwrap();
    assert_eq!(Pattern::batched(&nodes), Ok(list));
    let tree = Branch::vector(0, nodes).repeated(1 << 30, 2);
    let regions = 2 * most + 1;
    assert_eq!(Pattern::batched(&[tree]), Err(PatternError::TooManyRegions { regions, limit: most }));
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

fn rows() -> Vec<Branch> {
    let row = vec![Branch::bytes(0, 2), Branch::bytes(10, 2).repeated(8, 4)];
    vec![Branch::bytes(0, 4), Branch::vector(100, row).repeated(50, 3)]
}

#[test]
fn a_tree_has_its_root_outermost_and_places_relative_or_absolute() {
    let tree = Pattern::batched(&rows()).unwrap();
    let row = |at: i64| [(at, 2), (at + 10, 2), (at + 18, 2), (at + 26, 2), (at + 34, 2)];
    let meant: Vec<(i64, u64)> = [vec![(0, 4)], row(100).into(), row(150).into(), row(200).into()].concat();
    assert_eq!(regions(&tree), meant);
    assert_eq!((tree.len(), tree.bounds(), tree.regions_max()), (34, Some((0, 236)), 16));
    let mark = Branch::bytes(7, 1).absolute();
    let marked =
        Pattern::batched(&[Branch::vector(20, vec![Branch::bytes(0, 2), mark]).repeated(5, 3)]).unwrap();
    assert_eq!(regions(&marked), [(20, 2), (7, 1), (25, 2), (7, 1), (30, 2), (7, 1)]);
    assert_eq!(regions(&marked.shift(100).unwrap())[..2], [(120, 2), (107, 1)]);
    assert_eq!(marked.slice(3, 6).bounds(), Some((7, 32)));
}

#[test]
fn a_tree_takes_the_smallest_form() {
    let nested = Branch::vector(5, vec![Branch::bytes(3, 2).repeated(4, 3)]).repeated(20, 2);
    let nest = Pattern::nested(8, 2, vec![level(4, 3), level(20, 2)]).unwrap();
    assert_eq!(Pattern::batched(&[nested]), Ok(nest));
    let flat = [Branch::bytes(0, 4), Branch::vector(9, vec![Branch::bytes(0, 1), Branch::bytes(2, 0)])];
    assert_eq!(Pattern::batched(&flat), Ok(list(&[(0, 4), (9, 1)])));
    let tree = Pattern::batched(&rows()).unwrap();
    assert_eq!(tree.slice(0, 4), Pattern::contiguous(0, 4).unwrap());
    assert_eq!(tree.slice(16, 8), strided(160, 2, 8, 4));
    assert_eq!(tree.slice(5, 4).to_bytes()[0], 0x44, "two leaves are a list of runs");
    assert_eq!(tree.slice(4, 30).slice(10, 10), tree.slice(14, 10));
    assert_eq!(Pattern::batched(&[Branch::vector(0, Vec::new()).repeated(1, 9)]), Ok(Pattern::EMPTY));
}

#[test]
fn a_tree_reads_as_words_and_is_written_as_the_documentation_says() {
    let tree = Pattern::batched(&rows()).unwrap();
    assert_eq!(tree.to_string(), "4 B from 0, (2 B from 100, 2 B x 4 every 8 B from 110) x 3 every 50 B");
    // form; 2 nodes: leaf { kind, offset, record }, vector { kind, quantity, stride, 2 nodes: leaf, leaf }
    let leaf = [0, 0, 4];
    let first = [0, 192, 1, 2];
    let second = [4, 4, 16, 16, 2];
    let meant = [[5, 2].as_slice(), &leaf, &[5, 3, 100, 2], &first, &second].concat();
    assert_eq!(tree.to_bytes(), meant);
    assert_eq!(Pattern::from_bytes(&meant), Ok(tree));
    let mark = Branch::bytes(7, 1).absolute();
    let marked =
        Pattern::batched(&[Branch::vector(20, vec![Branch::bytes(0, 2), mark]).repeated(5, 3)]).unwrap();
    assert_eq!(marked.to_string(), "(2 B from 20, 1 B from 7 always) x 3 every 5 B");
    assert_eq!(marked.to_bytes(), [5, 1, 5, 3, 10, 2, 0, 40, 2, 2, 29, 1]);
}

#[test]
fn trees_have_limits() {
    let deep = |levels: usize, quantity| {
        (0..levels).fold(Branch::bytes(0, 1), |inner, _| {
            Branch::vector(1, vec![Branch::bytes(0, 1), inner]).repeated(2, quantity)
        })
    };
    assert!(Pattern::batched(&[deep(limits::NESTING_DEPTH_MAX, 2)]).is_ok());
    assert_eq!(Pattern::batched(&[deep(9, 2)]), Err(PatternError::TooDeep { levels: 9 }));
    assert!(Pattern::batched(&[deep(limits::BATCH_DEPTH_MAX, 1)]).is_ok());
    assert_eq!(Pattern::batched(&[deep(17, 1)]), Err(PatternError::TooDeep { levels: 17 }));
    let many = vec![Branch::bytes(0, 1); limits::REQUEST_REGIONS_MAX];
    assert!(Pattern::batched(&many).is_ok());
    let too_many = Branch::vector(0, many).repeated(0, 2);
    let limit = limits::REQUEST_REGIONS_MAX;
    let refused = Err(PatternError::TooManyRegions { regions: limit + 1, limit });
    assert_eq!(Pattern::batched(&[too_many]), refused);
    let long = Branch::vector(0, vec![Branch::bytes(0, 1 << 40); 2]).repeated(0, 1 << 30);
    assert_eq!(Pattern::batched(&[long]), Err(PatternError::TooLong));
    let far = Branch::vector(i64::MAX, vec![Branch::bytes(1, 1)]);
    assert_eq!(Pattern::batched(&[far]), Err(PatternError::OutOfRange));
    let wide = Branch::vector(0, vec![Branch::bytes(0, 1); 2]).repeated(i64::MAX, 3);
    assert_eq!(Pattern::batched(&[wide]), Err(PatternError::OutOfRange));
}

#[test]
fn hostile_trees_are_errors() {
    let decode = |bytes: &[u8]| Pattern::from_bytes(&[&[5], bytes].concat());
    let nodes = |value| DecodeError::Limit { what: "a pattern's nodes", value, limit: 4096 };
    assert_eq!(decode(&[0x81, 0x20]), Err(nodes(4097)));
    assert_eq!(decode(&[0x80, 0x20]), Err(DecodeError::Truncated), "before anything is reserved");
    // 4,096 nodes in one vector leave none for another.
    let mut full = vec![0x80, 0x20, 1, 1, 0, 0, 1];
    full.resize(10_000, 0);
    assert_eq!(decode(&full), Err(nodes(1)));
    assert_eq!(decode(&[1, 8, 0, 1]), Err(DecodeError::Invalid("pattern: kind of a node")));
    let deep = [1, 1].repeat(18);
    let too_deep = DecodeError::Limit { what: "a pattern's levels", value: 17, limit: 8 };
    assert_eq!(decode(&deep), Err(too_deep));
    assert_eq!(decode(&[0]), Ok(Pattern::EMPTY));
    assert_eq!(decode(&[1, 4, 2, 2, 10, 3]), Ok(strided(5, 3, 1, 2)), "it is read in its smallest form");
    let outside = Pattern::from_bytes(&[0x45, 1, 0, 10, 3, 1, 3]);
    assert_eq!(outside, Err(DecodeError::Invalid("window of a pattern")));
}

#[test]
fn coalescing_a_tree_joins_what_touches() {
    let row = vec![Branch::bytes(0, 4), Branch::bytes(4, 4), Branch::bytes(8, 2).repeated(2, 4)];
    let touching = Pattern::batched(&[Branch::vector(0, row).repeated(16, 1000)]).unwrap();
    assert_eq!(touching.coalesce(), Pattern::contiguous(0, 16_000).unwrap());
    let row = vec![Branch::bytes(0, 4), Branch::bytes(10, 6)];
    let turning = Pattern::batched(&[Branch::vector(0, row).repeated(16, 3)]).unwrap();
    assert_eq!(regions(&turning.coalesce()), [(0, 4), (10, 10), (26, 10), (42, 6)]);
    assert_eq!(Pattern::from_bytes(&turning.coalesce().to_bytes()), Ok(turning.coalesce()));
}
