//! The accuracy of a figure: intervals that contain the true value with 95 % confidence, without an
//! assumption about the distribution of samples.
//!
//! Benchmarks' samples have tails and steps, so nothing here assumes that they are normal:
//!
//! * The interval of a *median* is two samples of the sorted list: each sample lies above or below the true
//!   median like the toss of a coin.
//! * A *ratio* of two sides is measured in turns, pair by pair. Its value is the Hodges–Lehmann estimate:
//!   the median of the means of any two pairs' ratios (as logarithms). Its interval is the one that
//!   Wilcoxon's signed ranks give. A slow period of the machine slows both sides of a pair, and cancels.
//!
//! Fewer than six samples give no such interval: five samples are all on one side once in 16 times by
//! chance alone, six samples once in 32 times. Source: Hollander and Wolfe, "Nonparametric Statistical
//! Methods", chapter 3.

use serde::{Deserialize, Serialize};

use crate::spread::Spread;

/// The part outside, on each side.
const TAIL: f64 = 0.025;
/// Fewer samples hold no interval.
pub const SAMPLES_MIN: usize = 6;
/// From so many samples on ranks are as good as normal.
const EXACT_MAX: usize = 60;
/// The normal distribution's quantile of [`TAIL`].
const NORMAL: f64 = 1.96;

/// A figure, and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower and upper end of the interval of 95 %; `None` of too few samples.
    pub ends: Option<(f64, f64)>,
}

impl Interval {
    /// The median of samples; `None` of none.
    pub fn of_median(samples: &[f64]) -> Option<Interval> {
        let value = Spread::of(samples)?.median;
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Interval { value, ends: cut(&sorted, outside_coins(sorted.len())) })
    }

    /// How many times `base` the samples are, pair by pair; `None` where there are no pairs.
    pub fn of_ratio(samples: &[f64], base: &[f64]) -> Option<Interval> {
        let pairs = samples.iter().zip(base).filter(|(a, b)| **a > 0.0 && **b > 0.0);
        let logs: Vec<f64> = pairs.map(|(a, b)| (a / b).ln()).collect();
        let first = |at: usize| logs[..=at].iter().map(move |a| (a, at));
        let mut means: Vec<f64> =
            (0..logs.len()).flat_map(first).map(|(a, at)| f64::midpoint(*a, logs[at])).collect();
        means.sort_by(f64::total_cmp);
        let value = Spread::of(&means)?.median.exp();
        let ends = cut(&means, outside_ranks(logs.len()));
        Some(Interval { value, ends: ends.map(|(low, high)| (low.exp(), high.exp())) })
    }

    /// Whether it is below `limit` for sure; as far as the estimate says, where there is no interval.
    pub fn is_below(&self, limit: f64) -> bool {
        self.ends.map_or(self.value, |(_, high)| high) < limit
    }

    /// Whether it is above `limit` for sure; as far as the estimate says, where there is no interval.
    pub fn is_above(&self, limit: f64) -> bool {
        self.ends.map_or(self.value, |(low, _)| low) > limit
    }

    /// A ratio in words: `1.04 × (0.98–1.11)`.
    pub fn as_ratio(&self) -> String {
        match self.ends {
            Some((low, high)) => format!("{:.2} × ({low:.2}–{high:.2})", self.value),
            None => format!("{:.2} ×", self.value),
        }
    }
}

/// The values that have `outside - 1` others on their far side.
fn cut(sorted: &[f64], outside: usize) -> Option<(f64, f64)> {
    let low = outside.checked_sub(1)?;
    Some((*sorted.get(low)?, *sorted.get(sorted.len().checked_sub(outside)?)?))
}

/// The largest k so that k - 1 or fewer heads of n coins are rarer than [`TAIL`]; 0: there is none.
fn outside_coins(n: usize) -> usize {
    if n > EXACT_MAX {
        return normal(n as f64 / 2.0, n as f64 / 4.0);
    }
    let mut ways = vec![1.0];
    for _ in 0..n {
        ways = added(&ways, 1);
    }
    rarer(&ways)
}

/// The largest k so that a sum of signed ranks of n below k is rarer than [`TAIL`]; 0: there is none.
fn outside_ranks(n: usize) -> usize {
    let m = n as f64;
    if n > EXACT_MAX {
        return normal(m * (m + 1.0) / 4.0, m * (m + 1.0) * (2.0 * m + 1.0) / 24.0);
    }
    let mut ways = vec![1.0];
    for rank in 1..=n {
        ways = added(&ways, rank);
    }
    rarer(&ways)
}

/// In how many ways a sum comes about when a further summand is taken or not.
fn added(ways: &[f64], summand: usize) -> Vec<f64> {
    let mut more = vec![0.0; ways.len() + summand];
    for (sum, n) in ways.iter().enumerate() {
        more[sum] += n;
        more[sum + summand] += n;
    }
    more
}

fn rarer(ways: &[f64]) -> usize {
    let all: f64 = ways.iter().sum();
    let mut below = 0.0;
    ways.iter()
        .take_while(|&&n| {
            below += n;
            below / all <= TAIL
        })
        .count()
}

fn normal(mean: f64, variance: f64) -> usize {
    (mean - NORMAL * variance.sqrt()).floor().max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Random;

    #[test]
    fn intervals_have_the_ends_of_the_tables() {
        // Tables of the sign test and of the signed ranks, two-sided 5 %.
        assert_eq!([5, 6, 8, 9, 15, 20].map(outside_coins), [0, 1, 1, 2, 4, 6]);
        assert_eq!([5, 6, 7, 10, 15, 20].map(outside_ranks), [0, 1, 3, 9, 26, 53]);
        for n in [EXACT_MAX, EXACT_MAX + 1] {
            assert!((outside_coins(n) as f64 - 22.0).abs() < 2.0 && outside_ranks(n) > 600, "{n}");
        }
    }

    #[test]
    fn too_few_samples_have_a_median_and_no_interval() {
        assert_eq!(Interval::of_median(&[3.0, 1.0, 2.0]), Some(Interval { value: 2.0, ends: None }));
        assert_eq!(Interval::of_median(&[]), None);
        assert_eq!(Interval::of_ratio(&[1.0], &[]), None);
        assert!(Interval { value: 0.8, ends: None }.is_below(0.85));
    }

    #[test]
    fn six_samples_are_held_by_their_extremes() {
        let six = [5.0, 1.0, 6.0, 2.0, 4.0, 3.0];
        assert_eq!(Interval::of_median(&six), Some(Interval { value: 3.5, ends: Some((1.0, 6.0)) }));
    }

    #[test]
    fn a_ratio_is_found_though_both_sides_wander_together() {
        let drift = [1.0, 9.0, 2.0, 40.0, 3.0, 7.0, 0.5, 1.5];
        let base = drift.map(|d| 100.0 * d);
        let samples = drift.map(|d| 110.0 * d);
        let ratio = Interval::of_ratio(&samples, &base).expect("pairs");
        assert!(
            (ratio.value - 1.1).abs() < 1e-9 && ratio.is_above(1.09) && ratio.is_below(1.11),
            "{ratio:?}"
        );
        assert_eq!(ratio.as_ratio(), "1.10 × (1.10–1.10)");
    }

    #[test]
    fn of_a_hundred_intervals_some_ninety_five_hold_the_truth() {
        let mut random = Random::new(7);
        let mut sample = || (random.next() % 1000) as f64 + 500.0;
        let held = (0..400).filter(|_| {
            let (a, b): (Vec<f64>, Vec<f64>) = (0..10).map(|_| (sample(), sample())).unzip();
            let ratio = Interval::of_ratio(&a, &b).expect("pairs");
            !ratio.is_below(1.0) && !ratio.is_above(1.0)
        });
        let held = held.count();
        assert!((366..=396).contains(&held), "{held} of 400");
    }
}
