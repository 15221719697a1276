//! Medians of samples, and the spread around the medians.

use serde::{Deserialize, Serialize};

/// The middle of several measurements and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one sample; `None` of none.
    pub fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Spread { median: f64::midpoint(sorted[lower], sorted[upper]), min, max })
    }
}

/// `part` as a percentage of `whole`, or `None` of nothing.
pub fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle_one() {
        assert_eq!(Spread::of(&[9.0, 1.0, 5.0]), Some(Spread { median: 5.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 100.0]), Some(Spread { median: 3.0, min: 1.0, max: 100.0 }));
    }

    #[test]
    fn nothing_has_no_median_and_no_percentage() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(percent(1.0, 0.0), None);
        assert_eq!(percent(50.0, 200.0), Some(25.0));
    }
}
