//! Combinations of switches (techniques that a file system has or has not). Every test that holds for one
//! combination should hold for all combinations.
//!
//! *Singles* are the named sets, and also our set and the baseline with the value of one switch changed. So
//! if only one single fails, its changed technique is the cause. In the *covering set*, every pair of values
//! of every two switches is in some combination (pairwise testing: Cohen et al. 1997). So a failure of two
//! values together is found too, by a handful of combinations instead of all 384.

use crate::rng::Rng;
use shoal_proto::Switches;
use std::collections::BTreeSet;

/// The switches and their values, as words. A directory is split early, so that it happens.
const VALUES: [(&str, &[&str]); 8] = [
    ("precreate", &["off", "on"]),
    ("stuffing", &["off", "on"]),
    ("coalescing", &["per-op", "watermark", "pipelined"]),
    ("eager", &["off", "on"]),
    ("readdirplus", &["off", "on"]),
    ("placement", &["spread", "colocated"]),
    ("compound", &["off", "on"]),
    ("split", &["off", "16"]),
];

/// Of each switch, which of its values.
type Row = [usize; VALUES.len()];

fn switches(row: &Row) -> Switches {
    let mut switches = Switches::OURS;
    for ((name, values), &at) in VALUES.iter().zip(row) {
        // Words of this file: a test reads them all.
        let _ = switches.set(name, values[at]);
    }
    switches
}

fn rows() -> impl Iterator<Item = Row> {
    let count: usize = VALUES.iter().map(|(_, values)| values.len()).product();
    (0..count).map(|mut number| {
        VALUES.map(|(_, values)| {
            let at = number % values.len();
            number /= values.len();
            at
        })
    })
}

/// The pairs of values that a combination has: (switch, value, another switch, its value).
fn pairs(row: &Row) -> BTreeSet<(usize, usize, usize, usize)> {
    let of = |a: usize| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b]));
    (0..row.len()).flat_map(of).collect()
}

/// The techniques of a seed's run: every second one has all techniques, the others any combination.
pub fn drawn(seed: u64) -> Switches {
    if seed.is_multiple_of(2) {
        return Switches { split_entries: 16, ..Switches::OURS };
    }
    let mut rng = Rng::new(seed, 0x5317);
    let row = VALUES.map(|(_, values)| rng.below(values.len() as u64) as usize);
    switches(&row)
}

/// The named sets, and those of everything and of nothing with one technique changed.
pub fn singles() -> Vec<Switches> {
    let mut all: Vec<Switches> = Switches::NAMED.iter().map(|(_, set)| *set).collect();
    for base in [Switches::OURS, Switches::BASELINE] {
        for (name, values) in VALUES {
            for value in values {
                let mut changed = base;
                let _ = changed.set(name, value);
                if !all.contains(&changed) {
                    all.push(changed);
                }
            }
        }
    }
    all
}

/// Combinations that have every pair of values.
pub fn covering() -> Vec<Switches> {
    let mut missing: BTreeSet<_> = rows().flat_map(|row| pairs(&row)).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        // Of several that add as much the first: always the same set.
        let best = rows().first_max_by(|row| pairs(row).intersection(&missing).count());
        let Some(row) = best else { break };
        missing = &missing - &pairs(&row);
        chosen.push(switches(&row));
    }
    chosen
}

trait FirstMax: Iterator + Sized {
    /// The first of the largest.
    fn first_max_by(self, key: impl Fn(&Self::Item) -> usize) -> Option<Self::Item> {
        self.fold(None, |best: Option<(usize, Self::Item)>, item| {
            let size = key(&item);
            match best {
                Some((most, _)) if most >= size => best,
                _ => Some((size, item)),
            }
        })
        .map(|(_, item)| item)
    }
}

impl<I: Iterator> FirstMax for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_can_be_set_and_every_pair_is_covered() {
        for (name, values) in VALUES {
            values.iter().for_each(|value| Switches::OURS.clone().set(name, value).unwrap());
        }
        let chosen = covering();
        assert!(chosen.len() <= 12, "{} combinations", chosen.len());
        for row in rows() {
            for (a, x, b, y) in pairs(&row) {
                let has = |set: &Switches| {
                    let mut same = *set;
                    same.set(VALUES[a].0, VALUES[a].1[x]).unwrap();
                    same.set(VALUES[b].0, VALUES[b].1[y]).unwrap();
                    same == *set
                };
                assert!(chosen.iter().any(has), "{:?}", (VALUES[a].0, x, VALUES[b].0, y));
            }
        }
    }

    #[test]
    fn each_technique_is_changed_alone_both_ways() {
        let all = singles();
        for (name, values) in VALUES {
            for value in values {
                for mut base in [Switches::OURS, Switches::BASELINE] {
                    base.set(name, value).unwrap();
                    assert!(all.contains(&base), "{base}");
                }
            }
        }
    }

    #[test]
    fn half_of_the_seeds_have_all_techniques_and_the_others_differ() {
        assert!((0..100).step_by(2).all(|seed| drawn(seed).compound && drawn(seed).stuffing));
        let others: BTreeSet<String> = (1..100).step_by(2).map(|seed| drawn(seed).to_string()).collect();
        assert!(others.len() > 30);
    }
}
