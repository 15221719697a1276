//! Faults of a cluster while clients are at work: their kinds, times and targets, all drawn from the seed.
//!
//! Each seed has its own mix (swarm testing: Groce et al. 2012): some kinds of fault are left out and others
//! occur several times, because faults hide each other when all fall into every run. A fault begins at a
//! moment within the work, lasts a while, and ends by itself: servers start again, connections work again,
//! disks have space again. Two effects stay: an added server, and a wall clock that is at most 600 s wrong.
//! So a run is judged at its end on a cluster that should be healthy.

mod added;
mod older;
mod operators;
mod plan;

use crate::rng::Rng;
pub(crate) use operators::Operators;
pub(crate) use plan::{Plan, Told};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A server is killed, and starts again.
    Crash,
    /// A server's machine loses power and unsynced changes; the server starts again.
    PowerCut,
    /// A process gets no processor for a while.
    Pause,
    /// Two machines do not reach each other for a while; messages wait.
    Partition,
    /// All connections between two machines break, with the messages on their way.
    Reset,
    /// One end forgets its connections to the other, which learns it late.
    HalfOpen,
    /// A machine's links are slow and uneven for a while, lose segments and break connections.
    Slow,
    /// A server's disk is nearly full for a while.
    FullDisk,
    /// A server's disk fails to sync; the server is started again later.
    FailingSync,
    /// A machine's wall clock jumps.
    ClockJump,
    /// A server is stopped just after a step of its work ([`shoal_env::crash_point`]), and starts again.
    StopAt,
    /// A client is killed, and another one takes its place.
    ClientCrash,
    /// A server is killed, and its disk is not mounted when it starts; later it is, and the server starts
    /// again.
    LostFolder,
    /// Two servers are killed, and each starts with the other's folder; later each has its own, and starts
    /// again.
    SwappedFolders,
    /// A server gets no processor for longer than clients wait for it.
    Silence,
    /// A server is killed, and starts with an older copy of its folder; later it has the newest one, and
    /// starts again.
    OlderCopy,
    /// A server is added.
    AddServer,
}

impl Fault {
    /// All kinds, in the order in which they are drawn.
    pub const ALL: [Fault; 17] = [
        Fault::Crash,
        Fault::PowerCut,
        Fault::Pause,
        Fault::Partition,
        Fault::Reset,
        Fault::HalfOpen,
        Fault::Slow,
        Fault::FullDisk,
        Fault::FailingSync,
        Fault::ClockJump,
        Fault::StopAt,
        Fault::ClientCrash,
        Fault::LostFolder,
        Fault::SwappedFolders,
        Fault::Silence,
        Fault::OlderCopy,
        Fault::AddServer,
    ];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Fault::Crash => "crash",
            Fault::PowerCut => "power-cut",
            Fault::Pause => "pause",
            Fault::Partition => "partition",
            Fault::Reset => "reset",
            Fault::HalfOpen => "half-open",
            Fault::Slow => "slow",
            Fault::FullDisk => "full-disk",
            Fault::FailingSync => "failing-sync",
            Fault::ClockJump => "clock-jump",
            Fault::StopAt => "stop-at",
            Fault::ClientCrash => "client-crash",
            Fault::LostFolder => "lost-folder",
            Fault::SwappedFolders => "swapped-folders",
            Fault::Silence => "silence",
            Fault::OlderCopy => "older-copy",
            Fault::AddServer => "add-server",
        }
    }
}

/// The target that a fault should hit in some run: a soak that never saw it has not tried it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// A server was refused with an older copy of its folder.
    OlderCopyRefused,
    /// At the end, a file, directory or part of one is on a server that was added.
    AddedServerUsed,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 2] = [Outcome::OlderCopyRefused, Outcome::AddedServerUsed];

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Outcome::OlderCopyRefused => "starts refused with an older copy",
            Outcome::AddedServerUsed => "objects on a server that was added",
        }
    }
}

/// How many faults of each kind.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Faults(BTreeMap<Fault, u32>);

/// Fewer faults than this no seed draws.
const FAULTS_MIN: u32 = 3;
/// Those that take more time than all others together, and which of a seed's streams says whether there is
/// one: the draws of all others stay as they were.
const DRAWN_APART: [(Fault, u64); 3] = [(Fault::Silence, 4), (Fault::OlderCopy, 5), (Fault::AddServer, 6)];
/// Of one kind, at most, in a list that is given.
const COUNT_MAX: u32 = 1000;

impl Faults {
    /// None at all.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// So many of each.
    pub fn of(counts: &[(Fault, u32)]) -> Faults {
        Faults(counts.iter().copied().filter(|(_, count)| *count > 0).collect())
    }

    /// The mix of a seed.
    pub fn drawn(seed: u64) -> Faults {
        let mut rng = Rng::new(seed, 2);
        let mut faults = Faults::none();
        let common: Vec<Fault> = Fault::ALL
            .into_iter()
            .filter(|fault| DRAWN_APART.iter().all(|(apart, _)| apart != fault))
            .collect();
        for fault in common.iter().copied() {
            if rng.below(3) == 0 {
                faults.add(fault, 1 + rng.below(2) as u32);
            }
            // There are many steps, and the worst case falls between two of them.
            if fault == Fault::StopAt {
                faults.add(fault, rng.below(4) as u32);
            }
        }
        while faults.total() < FAULTS_MIN {
            faults.add(common[rng.below(common.len() as u64) as usize], 1);
        }
        for (fault, stream) in DRAWN_APART {
            if Rng::new(seed, stream).below(3) == 0 {
                faults.add(fault, 1);
            }
        }
        faults
    }

    fn add(&mut self, fault: Fault, count: u32) {
        if count > 0 {
            *self.0.entry(fault).or_default() += count;
        }
    }

    /// How many of a kind.
    pub fn count(&self, fault: Fault) -> u32 {
        self.0.get(&fault).copied().unwrap_or_default()
    }

    /// How many in all.
    pub fn total(&self) -> u32 {
        self.0.values().sum()
    }

    /// Each kind that there is, and how many.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u32)> {
        self.0.iter().map(|(fault, count)| (*fault, *count))
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let words: Vec<String> =
            self.iter().map(|(fault, count)| format!("{}={count}", fault.word())).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Faults {
    type Err = String;

    /// `none`, or a list such as `crash=2,partition`.
    fn from_str(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::none();
        for part in text.split(',').filter(|_| text != "none") {
            let (word, count) = part.split_once('=').unwrap_or((part, "1"));
            let fault = Fault::ALL.into_iter().find(|fault| fault.word() == word);
            let known = || Fault::ALL.map(Fault::word).join(", ");
            let fault = fault.ok_or_else(|| format!("no such fault: `{word}`; there are {}", known()))?;
            let count = count.parse().ok().filter(|count| *count <= COUNT_MAX);
            faults.add(
                fault,
                count.ok_or_else(|| format!("`{part}`: the count is to be a number up to {COUNT_MAX}"))?,
            );
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_some_faults_and_all_kinds_are_drawn() {
        let mixes: Vec<Faults> = (0..100).map(Faults::drawn).collect();
        assert!(mixes.iter().all(|faults| faults.total() >= FAULTS_MIN));
        for fault in Fault::ALL {
            let with = mixes.iter().filter(|faults| faults.0.contains_key(&fault)).count();
            assert!((10..90).contains(&with), "{fault:?} in {with} of 100");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for faults in [Faults::none(), Faults::drawn(1), Faults::drawn(2)] {
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
        let given: Faults = "crash=2,partition".parse().unwrap();
        assert_eq!(given, Faults::of(&[(Fault::Crash, 2), (Fault::Partition, 1)]));
        assert!("rain=1".parse::<Faults>().unwrap_err().contains("power-cut"));
        assert!("crash=many".parse::<Faults>().is_err());
    }
}
