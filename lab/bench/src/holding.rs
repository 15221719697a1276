//! Bounds compared with figures: no figure may be above its bound, and the bound of a hot operation may not
//! be far above the rate of servers that keep nothing.
//!
//! A *figure* is the median of several rounds, with its interval of 95 %. It *exceeds* its bound if the
//! whole interval is above the bound: an interval that contains the bound is noise. A server that keeps
//! nothing does as little work as ours can. If the whole interval of its figure is below a third of the
//! bound, the bound is *loose*: the model lacks a cost. If servers keep and sync their data, the distance
//! to the bound is their possible gain, and is not judged.

use serde::{Deserialize, Serialize};
use shoal_model::{Bound, short};

use crate::interval::Interval;

/// A bound is loose where servers that keep nothing reach less than one part in so many.
pub const LOOSE: f64 = 3.0;

/// The verdict on a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundVerdict {
    /// The figure is below it.
    Holds,
    /// The figure is above it, and its interval is not.
    Noise,
    /// The figure is above it, for sure.
    Exceeded,
    /// The figure of a server that keeps nothing is far below it, for sure.
    Loose,
}

impl BoundVerdict {
    /// Whether the model is right, as far as can be decided.
    pub fn is_well(self) -> bool {
        matches!(self, BoundVerdict::Holds | BoundVerdict::Noise)
    }
}

impl std::fmt::Display for BoundVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            BoundVerdict::Holds => "holds",
            BoundVerdict::Noise => "holds (noise)",
            BoundVerdict::Exceeded => "EXCEEDED",
            BoundVerdict::Loose => "LOOSE",
        })
    }
}

/// A figure next to its bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The operation.
    pub operation: String,
    /// Where servers keep their data.
    pub module: String,
    /// Clients, one operation under way each.
    pub clients: u32,
    /// Operations a second.
    pub per_s: Interval,
    /// At most.
    pub bound_per_s: f64,
    /// The limit that binds, in a word.
    pub binds: &'static str,
    /// The arithmetic of every term, the one that binds first.
    pub arithmetic: Vec<String>,
    /// The verdict.
    pub verdict: BoundVerdict,
}

impl Figure {
    /// Judge the rates of several rounds; `None` where there is none. `is_hot`: nothing is kept, so the bound
    /// must be near.
    pub fn judged(
        (operation, module, clients): (&str, &str, u32),
        rates: &[f64],
        bound: &Bound,
        is_hot: bool,
    ) -> Option<Figure> {
        let (per_s, bound_per_s) = (Interval::of_median(rates)?, bound.per_s());
        let verdict = match per_s.value > bound_per_s {
            true if per_s.is_above(bound_per_s) => BoundVerdict::Exceeded,
            true => BoundVerdict::Noise,
            false if is_hot && per_s.is_below(bound_per_s / LOOSE) => BoundVerdict::Loose,
            false => BoundVerdict::Holds,
        };
        Some(Figure {
            operation: operation.to_owned(),
            module: module.to_owned(),
            clients,
            per_s,
            bound_per_s,
            binds: bound.binds().map_or("nothing", |limit| limit.word()),
            arithmetic: bound.explain(),
            verdict,
        })
    }

    /// Of the bound.
    pub fn percent(&self) -> f64 {
        self.per_s.value / self.bound_per_s * 100.0
    }

    /// Cells of a table.
    pub fn row(&self) -> [String; 8] {
        let ends =
            self.per_s.ends.map_or("–".to_owned(), |(low, high)| format!("{}–{}", short(low), short(high)));
        [
            self.operation.clone(),
            self.module.clone(),
            self.clients.to_string(),
            short(self.per_s.value),
            ends,
            short(self.bound_per_s),
            format!("{:.0} %", self.percent()),
            format!("{} ({})", self.verdict, self.binds.replace('_', " ")),
        ]
    }
}

/// All of it in a line.
pub fn verdict(all: &[Figure]) -> String {
    let of = |verdict| all.iter().filter(|figure| figure.verdict == verdict).count();
    let most = all.iter().map(Figure::percent).fold(0.0, f64::max);
    let (noise, exceeded, loose) =
        (of(BoundVerdict::Noise), of(BoundVerdict::Exceeded), of(BoundVerdict::Loose));
    format!(
        "{} figures: {exceeded} above their bounds, {noise} more by no more than noise (the most {most:.0} %); {loose} bounds are more than {LOOSE:.0} times what servers reach that keep nothing",
        all.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_model::Term;
    use shoal_model::bound::Limit;

    fn judged(rate: f64, is_hot: bool) -> Figure {
        let rates: Vec<f64> = (0..9).map(|n| rate * (0.96 + 0.01 * f64::from(n))).collect();
        let term = Term { limit: Limit::Cpu, per_s: 1000.0, arithmetic: "1 s ÷ 1 ms".to_owned() };
        let bound = Bound::least_of([term]);
        Figure::judged(("stat", "null", 16), &rates, &bound, is_hot).expect("there are rates")
    }

    #[test]
    fn what_lies_above_its_bound_with_all_of_its_interval_exceeds_it() {
        let verdicts = [900.0, 1000.5, 1010.0, 1100.0].map(|rate| judged(rate, true).verdict);
        assert_eq!(
            verdicts,
            [BoundVerdict::Holds, BoundVerdict::Noise, BoundVerdict::Noise, BoundVerdict::Exceeded]
        );
    }

    #[test]
    fn a_bound_is_loose_only_where_nothing_is_kept() {
        assert_eq!(
            [320.0, 330.0, 340.0].map(|rate| judged(rate, true).verdict),
            [BoundVerdict::Loose, BoundVerdict::Holds, BoundVerdict::Holds]
        );
        assert_eq!(judged(100.0, false).verdict, BoundVerdict::Holds);
    }

    #[test]
    fn a_figure_tells_all_that_it_is_held_by() {
        let one = judged(500.0, true);
        assert_eq!(one.row()[5..], ["1000".to_owned(), "50 %".to_owned(), "holds (cpu)".to_owned()]);
        assert!(verdict(&[one, judged(1200.0, true)]).starts_with("2 figures: 1 above their bounds"));
    }
}
