//! The bytes of several parts of a read, set in packed order.
//!
//! ```text
//!   part 0   aaaa        cccc         ranges of packed bytes, ascending in each part
//!   part 1       bbbb          dd
//!   buffer   aaaabbbb....ccccdd..     in no part: zeros
//! ```
//! **A byte is set once.** To clear a buffer first costs as much as the copy itself. So ranges are taken in
//! the order of their positions, from the part that has the next one, and appended. Bytes between two of them
//! and bytes that are missing at the end are a hole, or were after the end of a stream: zeros.
//!
//! Nothing here trusts a server: a range that begins before the end of the one before it (it cannot be in the
//! parts of one window) is put over it, and bytes after the buffer's length are left out.

use bytes::Bytes;
use shoal_pattern::PackedRanges;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Packed positions of the ranges of a part, in order, and those of their bytes that came.
pub(super) struct Ranges<'a> {
    ranges: PackedRanges<'a>,
    from: u64,
    bulk: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// Ranges of a window that begins at packed byte `from`, and their bytes, densely: those at their end may
    /// be missing.
    pub(super) fn new(ranges: PackedRanges<'a>, from: u64, bulk: &'a [u8]) -> Ranges<'a> {
        Ranges { ranges, from, bulk }
    }
}

impl<'a> Iterator for Ranges<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        if self.bulk.is_empty() {
            return None;
        }
        let range = self.ranges.next()?;
        let (own, rest) = self.bulk.split_at(((range.end - range.start) as usize).min(self.bulk.len()));
        self.bulk = rest;
        Some((self.from + range.start, own))
    }
}

/// The first `len` packed bytes of several parts, each of which has ranges in order.
pub(super) fn in_order<'a, R: Iterator<Item = (u64, &'a [u8])>>(mut parts: Vec<R>, len: usize) -> Bytes {
    let mut all = Vec::with_capacity(len);
    let mut next: Vec<Option<(u64, &[u8])>> = parts.iter_mut().map(Iterator::next).collect();
    let place =
        |(part, next): (usize, &Option<(u64, &[u8])>)| next.map(|(packed, _)| Reverse((packed, part)));
    let mut order: BinaryHeap<Reverse<(u64, usize)>> = next.iter().enumerate().filter_map(place).collect();
    while let Some(Reverse((_, part))) = order.pop() {
        let Some((packed, own)) = next[part].take() else { continue };
        let at = usize::try_from(packed).map_or(len, |packed| packed.min(len));
        if all.len() < at {
            all.resize(at, 0);
        }
        let own = &own[..own.len().min(len - at)];
        let (over, after) = own.split_at(own.len().min(all.len() - at));
        all[at..at + over.len()].copy_from_slice(over);
        all.extend_from_slice(after);
        next[part] = parts[part].next();
        order.extend(place((part, &next[part])));
    }
    all.resize(len, 0);
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_pattern::{Pattern, View, Window};
    use shoal_proto::{Dist, Striping};

    fn ordered(parts: &[&[(u64, &[u8])]], len: usize) -> Bytes {
        in_order(parts.iter().map(|part| part.iter().copied()).collect(), len)
    }

    #[test]
    fn ranges_of_several_parts_are_set_in_packed_order_and_the_rest_is_zeros() {
        let all = ordered(&[&[(0, b"aaaa"), (12, b"cccc")], &[(4, b"bbbb"), (16, b"dd")], &[]], 20);
        assert_eq!(&all[..], b"aaaabbbb\0\0\0\0ccccdd\0\0");
        assert_eq!(&ordered(&[&[(3, b"x")]], 5)[..], b"\0\0\0x\0");
        assert_eq!(&ordered(&[], 3)[..], b"\0\0\0");
        assert!(ordered(&[&[(0, b"x")]], 0).is_empty());
    }

    #[test]
    fn the_buffer_is_of_its_length_and_what_comes_twice_has_the_later_bytes() {
        assert_eq!(&ordered(&[&[(0, b"abcdef"), (9, b"x")]], 4)[..], b"abcd");
        assert_eq!(&ordered(&[&[(0, b"abc"), (u64::MAX, b"x")], &[(3, b"d")]], 4)[..], b"abcd");
        assert_eq!(&ordered(&[&[(0, b"abcd")], &[(2, b"yyzz")]], 7)[..], b"abyyzz\0");
        assert_eq!(&ordered(&[&[(0, b"abcdef")], &[(2, b"yy")]], 6)[..], b"abyyef");
    }

    #[test]
    fn parts_of_a_striped_pattern_come_together_whole_or_short() {
        let striping = Striping { dist: Dist::SimpleStripe { strip: 16 }, width: 3 };
        let pattern = Pattern::strided(5, 7, 11, 40).unwrap();
        let byte = |packed: u64| (packed % 251) as u8 + 1;
        for (from, len) in [(0, pattern.len()), (13, 200), (1, 1)] {
            let window = Window::new(from, len);
            let view = |server| View::new(&pattern, window, &striping, server).unwrap();
            // As each server sends it: the bytes of its ranges, densely; one sends fewer.
            for missing in [0, 1, 30, 1000] {
                let mut expected: Vec<u8> = vec![0; len as usize];
                let bulks: Vec<Vec<u8>> = (0..3)
                    .map(|server| {
                        let mut own: Vec<u64> = view(server).packed().flatten().collect();
                        let left_out = if server == 1 { missing.min(own.len()) } else { 0 };
                        own.truncate(own.len() - left_out);
                        own.iter().for_each(|at| expected[*at as usize] = byte(from + at));
                        own.iter().map(|at| byte(from + at)).collect()
                    })
                    .collect();
                let parts =
                    (0..3).map(|server| Ranges::new(view(server).packed(), 0, &bulks[server as usize]));
                let found = in_order(parts.collect(), len as usize);
                assert!(found[..] == expected[..], "{missing} bytes of {len} from {from} on are missing");
                // The same as the second half of a longer read.
                let parts =
                    (0..3).map(|server| Ranges::new(view(server).packed(), 50, &bulks[server as usize]));
                let found = in_order(parts.collect(), 50 + len as usize);
                assert!(found[50..] == expected[..] && found[..50].iter().all(|byte| *byte == 0));
            }
        }
    }
}
