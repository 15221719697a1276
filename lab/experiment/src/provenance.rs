//! The origin of a figure: the program, the time, the machine, and the amount that really ran.

use crate::file::Experiment;
use crate::setting::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The program that ran, and when and where it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The commit of the program, with a mark where its sources had changes; `unknown commit` where it was
    /// built without git.
    pub commit: String,
    /// The day, in UTC.
    pub date: String,
    /// How the program was built: `release`, `quick`, `profiled`.
    pub build: String,
    /// The computer that ran it: processor, cores, memory, kernel.
    pub host: String,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Provenance { commit, date, build, host } = self;
        write!(f, "{commit}; {date}; build `{build}`; on {host}")
    }
}

/// The text where nothing was recorded.
pub const NOT_RECORDED: &str = "commit, date, build and machine were not recorded";

/// One amount of a run, from the least to the most of its cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// The parameter.
    pub key: String,
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// The paper's least and most in the same cells, where they differ.
    pub paper: Option<(u64, u64)>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words =
            WORDS.iter().find(|(key, _)| *key == self.key).map_or(self.key.as_str(), |(_, words)| words);
        write!(f, "{words} {}", span(self.least, self.most))?;
        self.paper.map_or(Ok(()), |(least, most)| write!(f, " (the paper: {})", span(least, most)))
    }
}

/// Amounts, in the order in which they are printed, with their words.
const WORDS: &[(&str, &str)] = &[
    ("servers", "servers"),
    ("clients", "clients"),
    ("processes", "processes"),
    ("files", "files a process"),
    ("files_total", "files of all processes together"),
    ("file_bytes", "bytes a file"),
    ("total_bytes", "bytes of the shared file"),
    ("block_bytes", "bytes a call"),
    ("lookups", "look-ups a process"),
    ("memory_bytes", "bytes of memory a server"),
];

/// The amounts of all cells, each next to the paper's of the same cell.
pub fn sizes(experiment: &Experiment, cells: &[(Setting, Setting)]) -> Vec<Size> {
    let used = experiment.workload.uses();
    let size = |(key, _): &(&str, &str)| {
        let is_told = used.contains(key) || ["servers", "clients", "processes", "memory_bytes"].contains(key);
        let of = |side: fn(&(Setting, Setting)) -> &Setting| {
            let values = || cells.iter().filter_map(|cell| amount(side(cell), key));
            values().min().zip(values().max())
        };
        let (run, paper) = (of(|cell| &cell.0).filter(|_| is_told)?, of(|cell| &cell.1));
        let paper = paper.filter(|paper| *paper != run);
        Some(Size { key: (*key).to_owned(), least: run.0, most: run.1, paper })
    };
    WORDS.iter().filter_map(size).collect()
}

/// An amount of a setting; `None`: it plays no part there.
fn amount(setting: &Setting, key: &str) -> Option<u64> {
    let some = |value: u64| Some(value).filter(|value| *value > 0);
    match key {
        "servers" => Some(setting.servers.into()),
        "clients" => Some(setting.clients.into()),
        "processes" => Some(setting.process_count().into()),
        "files" => some(setting.files).filter(|_| setting.files_total == 0),
        "files_total" => some(setting.files_total),
        "file_bytes" => Some(setting.file_bytes),
        "total_bytes" => Some(setting.total_bytes),
        "block_bytes" => Some(setting.block_bytes),
        "lookups" => Some(setting.lookups),
        "memory_bytes" => some(setting.memory_bytes),
        _ => None,
    }
}

fn span(least: u64, most: u64) -> String {
    if least == most { grouped(least) } else { format!("{}–{}", grouped(least), grouped(most)) }
}

/// A number with its thousands apart.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::run::{Amount, Mode};

    #[test]
    fn fewer_files_than_the_paper_has_stand_beside_its_own() {
        let experiment = builtin::find("pvfs-3a").expect("it is there");
        let amount = Amount::default();
        let cells: Vec<(Setting, Setting)> = experiment
            .values(Mode::Simulated, &amount)
            .iter()
            .map(|x| {
                let series = &experiment.series[0];
                let run = experiment.setting(Mode::Simulated, &amount, series, x).expect("right");
                (run, experiment.setting_of_the_paper(series, x).expect("right"))
            })
            .collect();
        let told: Vec<String> = sizes(&experiment, &cells).iter().map(Size::to_string).collect();
        assert_eq!(
            told,
            [
                "servers 8",
                "clients 1–14",
                "processes 1–14",
                "files a process 60 (the paper: 12,000)",
                "bytes a file 8,192"
            ]
        );
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
