//! The check after the faults of a round. Every acknowledged name must be there through every way to the file
//! system. The files of each client are read through one of the ways, which changes from round to round: they
//! must be whole. `shoal fsck` must find nothing.

use super::crew::Hand;
use super::gang::Gang;
use super::hand::{Act, Said, Spec};
use super::ledger::{Found, Ledger, Wrong};
use super::load;
use super::report::Violation;
use super::site::Site;
use super::together::BELIEVED;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// All that a listing found, by path.
type Tree = BTreeMap<String, Found>;

/// The check of one round: the ledgers' clients rest.
pub struct Check<'a> {
    /// The file system.
    pub site: &'a Site,
    /// The clients.
    pub gang: &'a Gang,
    /// Which round, for the words; it also turns which ledger is read through which way.
    pub round: usize,
    /// How long an operation may take.
    pub patience: Duration,
}

impl Check<'_> {
    /// How many files and directories were checked, and the violations.
    ///
    /// # Errors
    /// When it could not be looked.
    pub fn run(&self) -> Result<(u64, Vec<Violation>)> {
        std::thread::sleep(BELIEVED);
        let mut violations = Vec::new();
        let mut looked_at = 0;
        let ways = self.site.ways();
        let seen = std::thread::scope(|scope| {
            let look = |(number, way)| {
                let count = ways.len();
                let mine = move |client: usize| (client + self.round) % count == number;
                scope.spawn(move || self.look(way, number, mine))
            };
            let threads: Vec<_> = ways.iter().enumerate().map(look).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for seen in seen {
            let Ok(seen) = seen else { bail!("a check panicked") };
            let (count, wrong) = seen?;
            looked_at += count;
            violations.extend(wrong);
        }
        let (status, words) = self.site.command(&["fsck", &self.site.address, "--quiet"])?;
        if !status.success() {
            violations.push(self.wrong(format!("shoal fsck: {}", words.trim().replace('\n', "; ")), None));
        }
        Ok((looked_at, violations))
    }

    fn wrong(&self, words: String, ledger: Option<String>) -> Violation {
        Violation { when: format!("the check after round {}", self.round), words, ledger }
    }

    /// Through one way: all names, and the contents of some clients.
    fn look(&self, way: &Spec, number: usize, mine: impl Fn(usize) -> bool) -> Result<(u64, Vec<Violation>)> {
        let mut hand = Hand::start(way)?;
        hand.ready()?;
        let through = match way {
            Spec::Mount(_) => format!("through mount {number}"),
            Spec::Native { .. } => "by the native client".to_owned(),
        };
        let mut violations = Vec::new();
        let mut trees = BTreeMap::<String, Tree>::new();
        self.list(&mut hand, load::ROOT, &mut trees).with_context(|| format!("cannot list {through}"))?;
        let mut looked_at = 0;
        for client in 0..self.gang.clients() {
            let told = |ledger: &Ledger, wrong: Wrong| {
                self.wrong(format!("{through}: {}", wrong.words), Some(ledger.place(wrong.entry)))
            };
            let found = {
                let ledger = self.gang.ledger(client);
                let found = trees.remove(&ledger.name).unwrap_or_default();
                violations.extend(ledger.judge_names(&found).into_iter().map(|wrong| told(&ledger, wrong)));
                found
            };
            looked_at += found.len() as u64;
            for path in found.iter().filter(|(_, found)| !found.is_dir && mine(client)).map(|(path, _)| path)
            {
                let heard = hand.ask(&Act::Read { path: path.clone() }, self.patience);
                let ledger = self.gang.ledger(client);
                let wrong = match heard {
                    Ok((Said::Bytes { seen, .. }, bytes)) => {
                        ledger.judge_file(path, &seen, &bytes).map(|wrong| told(&ledger, wrong))
                    }
                    other => {
                        let said = other.map(|(said, _)| said);
                        Some(self.wrong(format!("{through}: {path} cannot be read: {said:?}"), None))
                    }
                };
                violations.extend(wrong);
            }
        }
        for path in trees.values().flat_map(BTreeMap::keys) {
            violations.push(self.wrong(format!("{through}: {path} belongs to no client"), None));
        }
        Ok((looked_at, violations))
    }

    /// All below a directory, by its owner.
    fn list(&self, hand: &mut Hand, root: &str, trees: &mut BTreeMap<String, Tree>) -> Result<()> {
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            let entries = match hand.ask(&Act::List { path: dir.clone() }, self.patience) {
                Ok((Said::Entries(entries), _)) => entries,
                other => bail!("{dir}: {:?}", other.map(|(said, _)| said)),
            };
            for (name, ino, is_dir) in entries {
                let path = format!("{dir}/{name}");
                if is_dir {
                    todo.push(path.clone());
                }
                if let Some(owner) = load::owner(&path).map(str::to_owned) {
                    let before = trees.entry(owner).or_default().insert(path.clone(), Found { ino, is_dir });
                    if before.is_some() {
                        bail!("{path} is listed twice");
                    }
                }
            }
        }
        Ok(())
    }
}
