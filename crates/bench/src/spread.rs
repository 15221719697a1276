//! Medians and their neighbours.

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

/// A number with its thousands or millions: `41.2 k`, `1.06 M`, `337`; three digits that say something.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
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

    #[test]
    fn numbers_are_shortened_to_three_digits() {
        assert_eq!(short(0.5), "0.50");
        assert_eq!(short(337.0), "337");
        assert_eq!(short(9_870.4), "9870");
        assert_eq!(short(41_234.0), "41.2 k");
        assert_eq!(short(1_060_000.0), "1.06 M");
    }
}
