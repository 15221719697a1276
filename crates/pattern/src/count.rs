//! The number of a pattern's bytes in one object, by arithmetic.
//!
//! The object of a round robin holds the bytes of a [`Cycle`]. Let `H(y)` be the number of them below `y`.
//! Then a record of `r` bytes at `x` has `H(x + r) - H(x)` of them. Over a stride this is a sum of `H` along
//! an arithmetic progression. `H` is made of floors, and [their sums](crate::floor_sum) take O(log period),
//! whatever the number of records.
//!
//! ```text
//!   object     ....####........####........####....      period 12, start 4, len 4
//!   stride     ######    ######    ######    ######       rec 6 every 10:  2 + 0 + 2 + …
//!
//!   H(y) = S(y - start) - S(y - start - len)    with S(t) = sum of floor(x / period) for x below t
//! ```
//!
//! A *nest* is a record that several levels of strides repeat; a *turn* is one repetition of a level. A
//! nest needs one such sum for each turn of its other levels. The sum depends only on the offset modulo the
//! period. If the offset of a level repeats, modulo the period, after *T* turns, only *T* of its turns are
//! computed. If all levels together need more than [`COUNT_SUMS_MAX`] sums, the answer is `None`, and a
//! walk counts ([`View::len`](crate::View::len)).

use crate::distribution::{Cycle, Distribution};
use crate::floor_sum::{Residue, floor_sums};
use crate::lattice::{self, Ascent, Step};
use crate::limits::COUNT_SUMS_MAX;
use crate::pattern::Pattern;
use crate::view::{ViewError, Window, check};

/// The bytes of `server` in the packed `window` of `pattern` under `distribution`, counted without a walk.
/// `None`: the distribution gives no cycle, or the pattern's levels would take too many sums.
///
/// # Errors
/// As [`View::new`](crate::View::new).
pub fn share_len(
    pattern: &Pattern,
    window: Window,
    distribution: &dyn Distribution,
    server: u32,
) -> Result<Option<u64>, ViewError> {
    check(pattern, window)?;
    if server >= distribution.objects() {
        return Err(ViewError::NoSuchServer { server, servers: distribution.objects() });
    }
    let Some(cycle) = distribution.cycle(server).filter(Cycle::is_valid) else { return Ok(None) };
    let part = pattern.slice(window.from, window.len);
    let mut count = Count { cycle, sums_left: COUNT_SUMS_MAX, is_over: false };
    let mut bytes = 0_u64;
    lattice::each(&part, |lattice| bytes += count.of(&lattice.ascending()));
    Ok((!count.is_over).then_some(bytes))
}

/// So few records are counted one by one.
const FEW: u64 = 8;

struct Count {
    cycle: Cycle,
    sums_left: usize,
    is_over: bool,
}

/// A step, and the number of turns after which it is at its first place again, modulo the period.
#[derive(Clone, Copy)]
struct Round {
    /// Below the period.
    stride: u64,
    quantity: u64,
    turns: u64,
}

impl Round {
    /// Places that it has at most.
    fn places(&self) -> u64 {
        self.quantity.min(self.turns)
    }
}

impl Count {
    fn of(&mut self, ascent: &Ascent) -> u64 {
        let Cycle { period, len, .. } = self.cycle;
        let records: u64 = ascent.steps().iter().map(|step| step.quantity).product();
        let whole = records * (ascent.record / period * len);
        let rest = ascent.record % period;
        if rest == 0 || len == 0 {
            return whole;
        }
        if len == period {
            return whole + records * rest;
        }
        let mut rounds = [Round { stride: 0, quantity: 1, turns: 1 }; crate::limits::NESTING_DEPTH_MAX];
        let rounds = &mut rounds[..ascent.steps().len()];
        for (round, step) in rounds.iter_mut().zip(ascent.steps()) {
            *round = round_of(step, period);
        }
        // The one with the most places is summed, the others are tried.
        rounds.sort_unstable_by_key(|round| std::cmp::Reverse(round.places()));
        let (summed, tried) =
            rounds.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
        whole + self.tried(tried, summed, ascent.start as u64 % period, rest)
    }

    /// The bytes of records of `record` bytes (less than a period) from `place` on.
    fn tried(&mut self, tried: &[Round], summed: Option<&Round>, place: u64, record: u64) -> u64 {
        let Some((round, tried)) = tried.split_first() else {
            if self.sums_left == 0 {
                self.is_over = true;
                return 0;
            }
            self.sums_left -= 1;
            let (stride, quantity) = summed.map_or((0, 1), |round| (round.stride, round.quantity));
            return held(&self.cycle, place, stride, quantity, record);
        };
        let (often, rest) = (round.quantity / round.turns, round.quantity % round.turns);
        let mut bytes = 0;
        let mut place = place;
        for turn in 0..round.places() {
            if self.is_over {
                return 0;
            }
            let times = often + u64::from(turn < rest);
            bytes += times * self.tried(tried, summed, place, record);
            place = add_below(place, round.stride, self.cycle.period);
        }
        bytes
    }
}

fn round_of(step: &Step, period: u64) -> Round {
    let stride = step.stride % period;
    Round { stride, quantity: step.quantity, turns: period / greatest_divisor(stride, period) }
}

/// `a + b` modulo `period`; both below it.
fn add_below(a: u64, b: u64, period: u64) -> u64 {
    if a >= period - b { a - (period - b) } else { a + b }
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if a == 0 { b } else { greatest_divisor(b % a, a) }
}

/// The bytes of `cycle` in `quantity` records of `record` bytes, every `stride` from `place`; all below the
/// period but the quantity.
fn held(cycle: &Cycle, place: u64, stride: u64, quantity: u64, record: u64) -> u64 {
    let Cycle { period, start, len } = *cycle;
    if quantity <= FEW && period <= u64::MAX / 2 {
        let mut at = place;
        let mut bytes = 0;
        for _ in 0..quantity {
            bytes += cycle.held_below(at + record) - cycle.held_below(at);
            at = add_below(at, stride, period);
        }
        return bytes;
    }
    let progression =
        Progression { stride: stride.into(), last: u128::from(quantity - 1), period: period.into() };
    let (place, record) = (u128::from(place), u128::from(record));
    let (start, len) = (u128::from(start), u128::from(len));
    // A period is added so that nothing is negative: it adds as much to both ends of a record.
    let from = place + u128::from(period) - start;
    let below = |at: u128| progression.sum(at) - progression.sum(at - len);
    (below(from + record) - below(from)).get()
}

struct Progression {
    stride: u128,
    /// Index of its last member.
    last: u128,
    period: u128,
}

impl Progression {
    /// The sum of `S(from + k stride)`, where `S(t)` is the sum of `floor(x / period)` for all x below t.
    /// With `u = floor(t / period)` it is `u t - period u (u + 1) / 2`.
    fn sum(&self, from: u128) -> Residue {
        let sums = floor_sums(self.last, self.stride, from, self.period);
        let products = Residue::of(self.stride) * sums.weighted + Residue::of(from) * sums.floors;
        products - (Residue::of(self.period) * (sums.squares + sums.floors)).half()
    }
}

#[cfg(test)]
mod tests {
    use super::held;
    use crate::Cycle;

    #[test]
    fn the_bytes_of_a_stride_are_those_that_counting_gives() {
        for period in 1..9_u64 {
            for (start, len) in
                (0..period).flat_map(|start| (0..=period - start).map(move |len| (start, len)))
            {
                let cycle = Cycle { period, start, len };
                for (place, stride, record) in (0..period * period * period)
                    .map(|n| (n % period, n / period % period, n / period / period))
                {
                    for quantity in [1, 5, 9, 13] {
                        let one = |k: u64| {
                            let at = place + k * stride;
                            cycle.held_below(at + record) - cycle.held_below(at)
                        };
                        let counted: u64 = (0..quantity).map(one).sum();
                        let found = held(&cycle, place, stride, quantity, record);
                        assert_eq!(found, counted, "{cycle:?} {place} {stride} {quantity} {record}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let cycle = Cycle { period: u64::MAX, start: 1 << 62, len: 1 << 62 };
        assert_eq!(held(&cycle, 0, 1, 1 << 63, 1), 1 << 62);
        // Backwards, down to 2^63 - 1, which is the last of the cycle.
        assert_eq!(held(&cycle, u64::MAX - 1, u64::MAX - 1, 1 << 63, 1), 1);
    }
}
