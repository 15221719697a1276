//! Compares two programs by the same benchmark, and decides if possible which program is faster.
//!
//! The two programs take turns, round by round, and each round's rates are a pair: a slow period of the
//! machine affects both. The ratio of a pair cancels such a period, and [`crate::interval`] gives the
//! interval of the ratios' median. A difference is reported if the whole interval lies on one side of 1, and
//! further from 1 than the least difference that is requested. That least difference is needed: equal
//! programs differ by a part of a percent, by the addresses of their memory, and an interval of 95 % misses
//! the truth once in twenty times. An interval that misses the truth *and* lies a further percent away is far
//! rarer. More rounds make the interval narrower; a quieter machine makes it much narrower.
//!
//! A program's rates are read from the report that it prints ([`crate::report`]), in any version of it.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::interval::{Interval, SAMPLES_MIN};
use crate::report::plain_table;
use shoal_model::short;

/// The result of two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The second is faster.
    Faster,
    /// The second is slower.
    Slower,
    /// Neither, for sure.
    NoDifference,
    /// There are too few rounds for any certainty.
    TooFewRounds,
}

impl std::fmt::Display for Comparison {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Comparison::Faster => "B is faster",
            Comparison::Slower => "B is slower",
            Comparison::NoDifference => "no difference can be shown",
            Comparison::TooFewRounds => "too few rounds",
        })
    }
}

/// One phase on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Both {
    /// The phase.
    pub phase: String,
    /// As written after its rates.
    pub unit: String,
    /// The first side's median.
    pub a: Interval,
    /// The second side's.
    pub b: Interval,
    /// How many times the first the second is, round by round.
    pub ratio: Interval,
    /// The verdict.
    pub told: Comparison,
}

/// The rates of one run: phase, unit, rate.
pub type Rates = Vec<(String, String, f64)>;

/// The rates in a program's report, of its only target.
pub fn rates(report: &str) -> Result<Rates> {
    let report: Value = serde_json::from_str(report).context("the program printed no report")?;
    let phases = report["targets"][0]["phases"].as_array().context("the program's report has no phases")?;
    let rate = |phase: &Value| {
        // The watch on the wall; the first reports had no such clock.
        let clock = ["rate_wall", "rate"].into_iter().find_map(|clock| phase[clock]["median"].as_f64())?;
        let unit = if phase["unit"] == "megabytes_per_second" { " MB/s" } else { "/s" };
        Some((phase["phase"].as_str()?.to_owned(), unit.to_owned(), clock))
    };
    let rates: Rates = phases.iter().filter_map(rate).collect();
    if rates.is_empty() {
        bail!("the program's report has no rates");
    }
    Ok(rates)
}

/// Compare rounds of two sides, phase by phase; phases that only one of them has are left out. A difference
/// is reported where all of the interval lies beyond `least`, a part of the first side's rate.
pub fn compare(a: &[Rates], b: &[Rates], least: f64) -> Vec<Both> {
    let of = |side: &[Rates], phase: &str| -> Vec<f64> {
        let rate = |round: &Rates| round.iter().find(|(name, ..)| name == phase).map(|(.., rate)| *rate);
        side.iter().filter_map(rate).collect()
    };
    let both = |(phase, unit, _): &(String, String, f64)| {
        let (ours, theirs) = (of(a, phase), of(b, phase));
        let ratio = Interval::of_ratio(&theirs, &ours)?;
        let told = match ratio.ends {
            None => Comparison::TooFewRounds,
            Some(_) if ratio.is_above(1.0 + least) => Comparison::Faster,
            Some(_) if ratio.is_below(1.0 - least) => Comparison::Slower,
            Some(_) => Comparison::NoDifference,
        };
        let (a, b) = (Interval::of_median(&ours)?, Interval::of_median(&theirs)?);
        Some(Both { phase: phase.clone(), unit: unit.clone(), a, b, ratio, told })
    };
    a.first().into_iter().flatten().filter_map(both).collect()
}

/// The rate of going once through some phases, one after the other; `None` where one of them is missing.
pub fn through(rates: &Rates, phases: &[&str]) -> Option<f64> {
    let time = |name: &&str| rates.iter().find(|(phase, ..)| phase == name).map(|(.., rate)| 1.0 / rate);
    phases.iter().map(time).sum::<Option<f64>>().map(|time| 1.0 / time)
}

/// As text.
pub fn table(all: &[Both], rounds: usize, least: f64) -> String {
    let header = ["phase", "A", "B", "B to A (95 %)", ""].map(str::to_owned).to_vec();
    let mut table = plain_table(header);
    for both in all {
        let rate = |one: &Interval| format!("{}{}", short(one.value), both.unit);
        table.add_row([
            both.phase.clone(),
            rate(&both.a),
            rate(&both.b),
            both.ratio.as_ratio(),
            both.told.to_string(),
        ]);
    }
    let few = if rounds < SAMPLES_MIN {
        format!("an interval of 95 % takes {SAMPLES_MIN} rounds or more\n")
    } else {
        String::new()
    };
    let least = least * 100.0;
    format!(
        "{table}\nmedians of {rounds} rounds in turn; differences of {least} % or less are not reported\n{few}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(of: &[f64]) -> Vec<Rates> {
        of.iter().map(|&rate| vec![("create".into(), "/s".into(), rate)]).collect()
    }

    #[test]
    fn a_difference_is_told_when_all_of_the_interval_lies_on_one_side() {
        let a = [100.0, 103.0, 99.0, 101.0, 98.0, 102.0, 100.0];
        let told = |factor: f64| compare(&rounds(&a), &rounds(&a.map(|rate| rate * factor)), 0.01)[0].told;
        assert_eq!((told(1.1), told(0.9)), (Comparison::Faster, Comparison::Slower));
        assert_eq!(
            (told(1.009), told(0.991)),
            (Comparison::NoDifference, Comparison::NoDifference),
            "less than was asked for"
        );
        let mut mixed = a;
        mixed.reverse();
        let both = &compare(&rounds(&a), &rounds(&mixed), 0.0)[0];
        assert_eq!(both.told, Comparison::NoDifference, "{both:?}");
        assert_eq!(compare(&rounds(&a[..5]), &rounds(&[200.0; 5]), 0.0)[0].told, Comparison::TooFewRounds);
        let text = table(&compare(&rounds(&a), &rounds(&mixed), 0.0), 7, 0.0);
        assert!(text.contains("no difference can be shown") && text.contains("create"), "{text}");
    }

    #[test]
    fn going_through_phases_takes_the_time_of_all_of_them() {
        let rates: Rates = vec![("create".into(), "/s".into(), 20.0), ("read".into(), "/s".into(), 5.0)];
        assert_eq!((through(&rates, &["create", "read"]), through(&rates, &["stat"])), (Some(4.0), None));
    }

    #[test]
    fn rates_are_read_from_the_reports_of_any_version() {
        let first = r#"{"targets": [{"phases": [{"phase": "create", "unit": "ops_per_second", "rate": {"median": 7.5}}]}]}"#;
        assert_eq!(rates(first).expect("read"), [("create".into(), "/s".into(), 7.5)]);
        let later = r#"{"targets": [{"phases": [
            {"phase": "write", "unit": "megabytes_per_second", "rate": {"median": 1.0}, "rate_wall": {"median": 2.0}},
            {"phase": "nothing", "unit": "ops_per_second", "rate": null, "rate_wall": null}]}]}"#;
        assert_eq!(rates(later).expect("read"), [("write".into(), " MB/s".into(), 2.0)]);
        assert!(rates("{}").is_err() && rates("what").is_err());
    }
}
