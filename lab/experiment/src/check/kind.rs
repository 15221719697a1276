//! The kinds of checks. A check that holds is a reproduced finding of the paper only if its kind is
//! [`Kind::Predicted`].

use super::{Check, Shape};
use crate::file::Experiment;
use crate::run::Mode;
use serde::{Deserialize, Serialize};

/// The meaning of a check that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A finding of the paper that no cost was fitted on.
    Predicted,
    /// A finding of the paper that a cost of the machine was fitted on: that it comes out again says only
    /// that the fit is one.
    Fitted,
    /// It follows from how the program or the simulation is made: it fails only where that has a bug.
    Identity,
    /// A value next to our own bound of it, or a property of our own bound: nothing of the paper.
    OwnBound,
    /// The thesis's chapter 4 computed again.
    Arithmetic,
    /// A claim of ours about our own set of techniques, which no paper measured.
    Ours,
}

impl Kind {
    /// All, in the order in which they are printed.
    pub const ALL: [Kind; 6] =
        [Kind::Predicted, Kind::Fitted, Kind::Ours, Kind::OwnBound, Kind::Identity, Kind::Arithmetic];

    /// In a word or two.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Predicted => "predicted",
            Kind::Fitted => "fitted",
            Kind::Identity => "identity",
            Kind::OwnBound => "own bound",
            Kind::Arithmetic => "arithmetic",
            Kind::Ours => "ours",
        }
    }

    /// Its description, in a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::Predicted => "a finding of the paper, and no cost of the machine was fitted on it",
            Kind::Fitted => "a finding of the paper on which a cost of the machine was fitted",
            Kind::Identity => "follows from how the program or the simulation is made",
            Kind::OwnBound => "compares with our own bound, not with the paper",
            Kind::Arithmetic => "chapter 4 of the thesis, computed again",
            Kind::Ours => "a claim about our own techniques, which no paper measured",
        }
    }
}

impl Check {
    /// Its kind in a mode: a fitted value, or an identity, under virtual time may be a finding on real
    /// servers.
    pub fn kind_in(&self, mode: Option<Mode>) -> Kind {
        self.kind_real.filter(|_| mode == Some(Mode::Real)).unwrap_or(self.kind)
    }

    /// The kind is one that such a check can have.
    pub(super) fn suits(&self, experiment: &Experiment) -> Result<(), String> {
        let is_of_bound = matches!(self.shape, Shape::BelowBound(_) | Shape::Reaches(_) | Shape::Binds(_));
        let is_computed = experiment.workload.is_computed();
        let is_real = !is_computed
            && experiment.real.skip.is_empty()
            && self.only.is_none_or(|only| only == Mode::Real);
        let is_fit = match &self.shape {
            Shape::Within(near) => {
                experiment.fit.iter().any(|fit| fit.series == near.series && fit.x == near.x)
            }
            _ => false,
        };
        let wrong = |words: &str| Err(words.to_owned());
        match (self.kind, self.kind_real) {
            (kind, _) if is_of_bound != (kind == Kind::OwnBound) => {
                wrong("the kind of a check of a bound, and of no other, is own_bound")
            }
            (kind, _) if is_computed != (kind == Kind::Arithmetic) => {
                wrong("the kind of a check of computed values, and of no other, is arithmetic")
            }
            (kind, _) if is_fit && kind != Kind::Fitted => {
                wrong("a cost is fitted on this point: the kind is fitted")
            }
            (Kind::Fitted, None) if is_real => wrong("nothing is fitted in real runs: write kind_real"),
            (_, Some(Kind::Predicted | Kind::Ours)) if is_real && self.kind != Kind::OwnBound => Ok(()),
            (_, Some(_)) => wrong("kind_real is predicted or ours, where the check is run real"),
            (_, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::file::Experiment;
    use std::path::Path;

    /// An experiment's file, with a change in it, and the result.
    fn with(name: &str, from: &str, to: &str) -> Result<Experiment, String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../experiments/{name}.toml"));
        let text = std::fs::read_to_string(path).expect("it is there");
        assert!(text.contains(from), "{name}: {from}");
        Experiment::parse(&text.replacen(from, to, 1), "a.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_check_without_a_kind_is_refused_and_so_is_one_that_shows_more_than_it_does() {
        for (name, from, to, words) in [
            ("pvfs-3a", "kind = \"predicted\"\n", "", "missing field `kind`"),
            ("pvfs-3a", "kind = \"own_bound\"", "kind = \"predicted\"", "own_bound"),
            ("pvfs-3a", "kind = \"predicted\"", "kind = \"own_bound\"", "own_bound"),
            ("thesis-4-1", "kind = \"arithmetic\"", "kind = \"predicted\"", "arithmetic"),
            ("bgp-table2", "kind = \"fitted\"", "kind = \"predicted\"", "a cost is fitted on this point"),
            ("pvfs-table1", "kind_real = \"predicted\"\n", "", "nothing is fitted in real runs"),
            ("bgp-7", "kind = \"predicted\"", "kind = \"predicted\"\nkind_real = \"predicted\"", "kind_real"),
        ] {
            let told = with(name, from, to).expect_err(words);
            assert!(told.contains(words), "{name}, {to}: {told}");
        }
    }
}
