//! The first member of an arithmetic progression whose remainder falls in a range.
//!
//! A server's bytes repeat with period *P*. A record at stride *s* touches the server when the remainder of
//! the record's offset modulo *P* falls into the server's range. A stride that shares a large divisor with
//! the period can pass thousands of records, or all of them, without touching it. Euclid's algorithm on
//! (stride, period) finds the first record that touches it, in O(log P).

/// The smallest `k >= 0` with `(start + k * stride) mod modulus < width`. `modulus` > 0.
pub(crate) fn first_below(start: u64, stride: impl Into<i128>, modulus: u64, width: u64) -> Option<u64> {
    let start = start % modulus;
    if start < width {
        return Some(0);
    }
    if width == 0 {
        return None;
    }
    let stride = stride.into().rem_euclid(i128::from(modulus)) as u64;
    let low = modulus - start;
    first_between(stride, modulus, low, low + (width - 1))
}

/// The smallest `k` with `low <= k * step mod modulus <= high`, where `0 < low <= high < modulus` and
/// `step < modulus`.
///
/// If a multiple of `step` lies in the range, the first such is the answer. Otherwise `k * step` is `y` whole
/// moduli and a remainder in the range, so `y * modulus` modulo `step` must lie in `-high ..= -low` modulo
/// `step`: the same question, smaller, whose least `y` gives the least `k`.
fn first_between(step: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    if step == 0 {
        return None;
    }
    let first = low.div_ceil(step);
    if u128::from(first) * u128::from(step) <= u128::from(high) {
        return Some(first);
    }
    let rounds = first_between(modulus % step, step, step - high % step, step - low % step)?;
    let least = u128::from(low) + u128::from(rounds) * u128::from(modulus);
    u64::try_from(least.div_ceil(u128::from(step))).ok()
}

#[cfg(test)]
mod tests {
    use super::first_below;

    #[test]
    fn the_first_member_is_the_one_that_counting_finds() {
        for modulus in 1..24_u64 {
            for stride in -25..26_i64 {
                for start in 0..modulus {
                    for width in 0..=modulus {
                        let counted = (0..modulus).find(|k| {
                            let place = start as i64 + *k as i64 * stride;
                            (place.rem_euclid(modulus as i64) as u64) < width
                        });
                        let found = first_below(start, stride, modulus, width);
                        assert_eq!(found, counted, "{start} + k * {stride} mod {modulus} < {width}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        assert_eq!(first_below(u64::MAX - 1, i64::MAX, u64::MAX, 1), Some(u64::MAX - 2));
        assert_eq!(first_below(u64::MAX - 1, 2_i64, u64::MAX - 2, 1), Some((u64::MAX - 3) / 2));
        assert_eq!(first_below(1, i64::MIN, 1 << 63, 1), None);
    }
}
