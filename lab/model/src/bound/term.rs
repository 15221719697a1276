//! Terms: the limits of a rate, one for each resource. The least term is the bound, and its resource
//! *binds*.
//!
//! The limits of a rate are terms, whether they come from a machine's file ([`Bound::of`]) or from
//! measurements in the same run (the benchmarks have limits of their own). Both use the same rule to make a
//! bound from terms, and the same formula for the wait of clients that have one operation under way each:
//!
//! ```text
//!   clients ÷ (times × each + times × each + …)      the largest summand names the wait
//! ```

use super::Limit;
use serde::{Deserialize, Serialize};

/// One bound, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term<L = Limit> {
    /// The resource.
    pub limit: L,
    /// Operations a second, of all clients together.
    pub per_s: f64,
    /// The arithmetic, with the numbers in it.
    pub arithmetic: String,
}

/// The best possible rate of an operation; the first term is the least, which binds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound<L = Limit> {
    /// From the least on.
    pub terms: Vec<Term<L>>,
}

impl<L: Copy + PartialEq> Bound<L> {
    /// Of some terms, in any order.
    pub fn least_of(terms: impl IntoIterator<Item = Term<L>>) -> Bound<L> {
        let mut terms: Vec<Term<L>> = terms.into_iter().collect();
        terms.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        Bound { terms }
    }

    /// Operations a second, at most.
    pub fn per_s(&self) -> f64 {
        self.terms.first().map_or(f64::INFINITY, |term| term.per_s)
    }

    /// The limit that binds.
    pub fn binds(&self) -> Option<L> {
        self.terms.first().map(|term| term.limit)
    }

    /// One term of it.
    pub fn term(&self, limit: L) -> Option<&Term<L>> {
        self.among(&[limit])
    }

    /// The least of those of some limits.
    pub fn among(&self, limits: &[L]) -> Option<&Term<L>> {
        self.terms.iter().find(|term| limits.contains(&term.limit))
    }

    /// `measured` as a percentage of it.
    pub fn percent(&self, measured: f64) -> Option<f64> {
        (self.per_s() > 0.0).then(|| measured / self.per_s() * 100.0)
    }
}

/// A part of a client's wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<L = Limit> {
    /// The reason of the wait, if this is most of it.
    pub limit: L,
    /// Its name in the arithmetic.
    pub name: String,
    /// How often, one after the other.
    pub times: f64,
    /// How long each time, microseconds.
    pub each_us: f64,
}

impl<L> Part<L> {
    fn us(&self) -> f64 {
        self.times * self.each_us
    }
}

/// The rate of clients that wait for all parts, one after the other; each is written by `words`. `None`: they
/// wait for nothing.
pub fn waiting<L: Copy>(
    clients: u64,
    mut parts: Vec<Part<L>>,
    words: impl Fn(&Part<L>) -> String,
) -> Option<Term<L>> {
    parts.retain(|part| part.us() > 0.0);
    let most = parts.iter().max_by(|a, b| a.us().total_cmp(&b.us()))?;
    let all_us: f64 = parts.iter().map(Part::us).sum();
    let sum: Vec<String> = parts.iter().map(words).collect();
    let arithmetic = format!("{clients} ÷ ({})", sum.join(" + "));
    Some(Term { limit: most.limit, per_s: clients as f64 / all_us * 1e6, arithmetic })
}
