//! The benchmark of one directory with very many files: its requirements and its results.
//!
//! Several clients fill one directory, list it, and empty it again. While it is full and other clients
//! create and remove files, a listing must show each file that is there all the time exactly once
//! ([`Seen`]).
//!
//! Source of directories that split over servers as they grow: GIGA+ (Patil and Gibson 2011), and decision
//! 0009 here.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::demands::DemandVerdict;
use crate::report::plain_table;
use crate::seconds::Seconds;
use shoal_model::short;

/// The allowed difference of the servers' shares of the entries, percent.
const SHARES: f64 = 20.0;
/// Entries a second, with attributes.
const LISTED_NATIVELY: f64 = 200_000.0;
const LISTED_BY_MOUNT: f64 = 60_000.0;
/// Memory of a client that lists, bytes.
const PEAK: u64 = 64 << 20;

/// The name of the file `index`.
pub fn name(index: u64) -> String {
    format!("f{index:09}")
}

/// The name of a file that comes and goes.
pub fn passing(client: usize, index: u64) -> String {
    format!("x{client}-{index}")
}

/// Which files a listing has shown.
#[derive(Debug)]
pub struct Seen {
    files: u64,
    bits: Vec<u64>,
    shown: u64,
    twice: u64,
    passing: BTreeSet<String>,
    strangers: u64,
}

/// Whether a listing was right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rightness {
    /// Files that were there all the time and were not shown.
    pub missing: u64,
    /// Names shown again.
    pub twice: u64,
    /// Files shown that came and went meanwhile.
    pub passing: u64,
    /// Names shown that there never were.
    pub strangers: u64,
    /// Files made and removed meanwhile.
    pub changes: u64,
}

impl Seen {
    /// Nothing yet, of so many files.
    pub fn new(files: u64) -> Seen {
        let bits = vec![0; files.div_ceil(64) as usize];
        Seen { files, bits, shown: 0, twice: 0, passing: BTreeSet::new(), strangers: 0 }
    }

    /// A listing shows a name.
    pub fn show(&mut self, shown: &str) {
        let index =
            shown.strip_prefix('f').and_then(|n| n.parse().ok()).filter(|&index| name(index) == shown);
        match index {
            Some(index) if index < self.files => {
                let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
                match self.bits[word] & bit == 0 {
                    true => self.shown += 1,
                    false => self.twice += 1,
                }
                self.bits[word] |= bit;
            }
            None if shown.starts_with('x') => {
                self.twice += u64::from(!self.passing.insert(shown.to_owned()));
            }
            _ => self.strangers += 1,
        }
    }

    /// The remark when so many files were made and removed meanwhile.
    pub fn rightness(&self, changes: u64) -> Rightness {
        Rightness {
            missing: self.files - self.shown,
            twice: self.twice,
            passing: self.passing.len() as u64,
            strangers: self.strangers,
            changes,
        }
    }
}

/// One listing by a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListingTime {
    /// Entries it saw, with their attributes.
    pub entries: u64,
    /// How long it took.
    pub took_s: f64,
    /// The most memory it had, bytes.
    pub peak_bytes: u64,
    /// Entries by the server of their shard; empty where a listing does not know.
    #[serde(default)]
    pub by_server: Vec<u64>,
}

impl ListingTime {
    fn per_s(&self) -> f64 {
        self.entries as f64 / self.took_s.max(1e-9)
    }
}

/// One look of fsck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FsckLook {
    /// When, in words.
    pub when: String,
    /// Nothing was wrong.
    pub is_clean: bool,
    /// How long it took.
    pub took_s: f64,
}

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrowdReport {
    /// Files in the directory.
    pub files: u64,
    /// Clients that filled it.
    pub clients: usize,
    /// Servers.
    pub servers: usize,
    /// Creates.
    pub created: Seconds,
    /// Listed by the native client.
    pub natively: ListingTime,
    /// Listed through a mount; `None`: there was none.
    pub by_mount: Option<ListingTime>,
    /// The most memory of the mount's process, bytes.
    pub mount_peak_bytes: Option<u64>,
    /// Listed natively while others created and removed.
    pub among_changes: Rightness,
    /// Removes.
    pub removed: Seconds,
    /// Checks.
    pub checked: Vec<FsckLook>,
}

impl CrowdReport {
    /// The requirements, and whether they are met.
    pub fn verdicts(&self) -> Vec<DemandVerdict> {
        let mut all = vec![self.created.is_steady("creates"), self.shares()];
        all.push(self.listed("the native client", Some(&self.natively), LISTED_NATIVELY));
        all.push(below("memory of the native client that lists", Some(self.natively.peak_bytes)));
        if self.by_mount.is_some() {
            all.push(self.listed("the mount", self.by_mount.as_ref(), LISTED_BY_MOUNT));
            all.push(below("memory of the mount's process", self.mount_peak_bytes));
        }
        all.push(self.among());
        all.push(self.clean());
        all
    }

    fn shares(&self) -> DemandVerdict {
        let shares = &self.natively.by_server;
        let (most, least) = (shares.iter().max().copied(), shares.iter().min().copied());
        let (most, least) = (most.unwrap_or(0), least.unwrap_or(0));
        let is_met = most > 0 && (most - least) as f64 <= SHARES / 100.0 * most as f64;
        DemandVerdict {
            demand: format!("the servers' shares of the entries are within {SHARES:.0} % of each other"),
            measured: shares.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
            is_met,
        }
    }

    fn listed(&self, who: &str, listed: Option<&ListingTime>, wanted: f64) -> DemandVerdict {
        let listed = listed.cloned().unwrap_or_default();
        DemandVerdict {
            demand: format!("{who} lists with attributes ≥ {} entries/s", short(wanted)),
            measured: format!(
                "{}/s: {} entries in {:.2} s",
                short(listed.per_s()),
                listed.entries,
                listed.took_s
            ),
            is_met: listed.per_s() >= wanted && listed.entries == self.files,
        }
    }

    fn among(&self) -> DemandVerdict {
        let Rightness { missing, twice, passing, strangers, changes } = self.among_changes;
        DemandVerdict {
            demand: "a listing while others create and remove shows every file once".into(),
            measured: format!(
                "{missing} missing, {twice} twice, {strangers} strangers; {changes} files came and went, {passing} of them shown"
            ),
            is_met: missing + twice + strangers == 0,
        }
    }

    fn clean(&self) -> DemandVerdict {
        let word = |one: &FsckLook| {
            let word = if one.is_clean { "clean" } else { "NOT CLEAN" };
            format!("{} {word} ({:.1} s)", one.when, one.took_s)
        };
        DemandVerdict {
            demand: "fsck finds nothing wrong".into(),
            measured: self.checked.iter().map(word).collect::<Vec<_>>().join(", "),
            is_met: !self.checked.is_empty() && self.checked.iter().all(|one| one.is_clean),
        }
    }

    /// As text.
    pub fn to_table(&self) -> String {
        let header = ["one directory", "files", "seconds", "rate", "most memory"].map(str::to_owned).to_vec();
        let mut table = plain_table(header);
        let mut row = |what: &str, n: u64, took_s: f64, peak: Option<u64>| {
            let rate = format!("{}/s", short(n as f64 / took_s.max(1e-9)));
            let peak = peak.map_or("–".to_owned(), mebibytes);
            table.add_row([what.to_owned(), n.to_string(), format!("{took_s:.2}"), rate, peak]);
        };
        row("created", self.created.done, self.created.took_s, None);
        row("listed natively", self.natively.entries, self.natively.took_s, Some(self.natively.peak_bytes));
        if let Some(listed) = &self.by_mount {
            row("listed through the mount", listed.entries, listed.took_s, self.mount_peak_bytes);
        }
        row("removed", self.removed.done, self.removed.took_s, None);
        let (clients, servers) = (self.clients, self.servers);
        format!("{} files, {clients} clients, {servers} servers\n{table}\n", self.files)
    }
}

fn below(what: &str, peak: Option<u64>) -> DemandVerdict {
    DemandVerdict {
        demand: format!("{what} is below {}", mebibytes(PEAK)),
        measured: peak.map_or("not known".to_owned(), mebibytes),
        is_met: peak.is_some_and(|peak| peak < PEAK),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The most memory a process has had so far, bytes; `None` where the kernel does not say.
pub fn peak_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(report: &CrowdReport) -> Vec<bool> {
        report.verdicts().iter().map(|verdict| verdict.is_met).collect()
    }

    #[test]
    fn a_listing_is_right_when_it_shows_every_file_once() {
        let mut seen = Seen::new(100);
        (0..100).for_each(|index| seen.show(&name(index)));
        seen.show(&passing(1, 7));
        assert_eq!(seen.rightness(9), Rightness { passing: 1, changes: 9, ..Rightness::default() });
        for wrong in [name(3), name(100), "f3".into(), passing(1, 7), "y".into()] {
            seen.show(&wrong);
        }
        let told = seen.rightness(9);
        assert_eq!((told.missing, told.twice, told.strangers), (0, 2, 3));
        assert_eq!(Seen::new(70).rightness(0).missing, 70);
    }

    #[test]
    fn every_demand_is_judged() {
        let listed = |by_server: Vec<u64>| ListingTime {
            entries: 1_000_000,
            took_s: 4.0,
            peak_bytes: 32 << 20,
            by_server,
        };
        let checked = FsckLook { when: "full".into(), is_clean: true, took_s: 1.0 };
        let good = CrowdReport {
            files: 1_000_000,
            created: Seconds { seconds: vec![Default::default(); 3], ..Seconds::default() },
            natively: listed(vec![250_000, 240_000, 260_000, 250_000]),
            by_mount: Some(listed(Vec::new())),
            mount_peak_bytes: Some(63 << 20),
            checked: vec![checked.clone()],
            ..CrowdReport::default()
        };
        assert_eq!(met(&good), [true; 8]);
        let bad = CrowdReport {
            natively: ListingTime { took_s: 6.0, peak_bytes: 65 << 20, ..listed(vec![1_000_000, 0, 0, 0]) },
            by_mount: None,
            among_changes: Rightness { missing: 1, ..Rightness::default() },
            checked: vec![checked.clone(), FsckLook { is_clean: false, ..checked }],
            ..good
        };
        assert_eq!(met(&bad), [true, false, false, false, false, false]);
    }

    #[test]
    fn a_process_knows_its_most_memory() {
        assert!(peak_bytes(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(peak_bytes(u32::MAX), None);
    }
}
