//! The index: gives for each byte of the file the log and the position that hold it. The newest write wins.
//!
//! It is built from the index logs of all writers. It has three kinds of parts, and each kind is searched in
//! its own way:
//!
//! ```text
//!   part       contents                                                           search
//!   spans      single records, disjoint: of two that overlap, the newer is kept   a tree, by offset
//!   families   runs with the same stride and record length; at most 64 families   a tree each, by phase
//!   growing    the current entry of each writer of this process                   one by one
//! ```
//!
//! A look-up asks all parts and takes the newest byte. Its time is logarithmic in the number of single
//! records and of phases. It is linear in the number of families, of the runs whose phase fits the byte, and
//! of the writers of this process that have a current entry. The search for the next record after a byte may
//! visit all phases of a family.
//!
//! Invariants: spans are disjoint; a run has at least [`RUN_RECORDS_MIN`] records when it enters a family; no
//! record of a run overlaps another record of this run. `locate` keeps the laws of a [`Placement`] (test:
//! `every_byte_is_the_newest_write_s_however_writers_overlap_and_cut`).

mod build;
mod family;
mod run;
mod spans;

use crate::record::Entry;
use crate::writer_id::WriterId;
pub use build::{IndexError, LogFacts};
use family::Family;
use run::Run;
use shoal_pattern::{Located, Piece, Placement};
use spans::Spans;
use std::collections::{BTreeMap, BTreeSet};

/// A shorter run is kept record by record.
pub(crate) const RUN_RECORDS_MIN: u64 = 8;
/// The most families: a look-up asks each of them. Runs that fit none of them are kept record by record.
const FAMILIES_MAX: usize = 64;

/// The position of a byte in a log, and for how many bytes from there the answer is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    log: u32,
    physical: u64,
    run: u64,
    order: Order,
}

/// When bytes were written: by stamp, and by writer where stamps are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Order {
    stamp: u64,
    id: WriterId,
}

/// The index of a container. See the module.
#[derive(Clone, Debug, Default)]
pub struct Index {
    logs: Vec<WriterId>,
    numbers: BTreeMap<WriterId, u32>,
    spans: Spans,
    families: Vec<Family>,
    /// By log.
    growing: BTreeMap<u32, Run>,
    /// The file is at least so long, by truncation.
    at_least: u64,
    /// Bytes of all data logs.
    stored: u64,
    newest: u64,
    cuts: u64,
}

impl Index {
    /// The writers, by the number of their log.
    pub fn logs(&self) -> &[WriterId] {
        &self.logs
    }

    /// The size of the file.
    pub fn size(&self) -> u64 {
        let growing = self.growing.values().map(Run::end).max().unwrap_or(0);
        let families = self.families.iter().map(Family::end).max().unwrap_or(0);
        self.at_least.max(growing).max(families).max(self.spans.end())
    }

    /// Bytes of all data logs.
    pub fn stored(&self) -> u64 {
        self.stored
    }

    /// The newest stamp.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The number of cuts (truncations) in the index logs.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// A further log; its number.
    pub fn add_log(&mut self, id: WriterId) -> u32 {
        if let Some(log) = self.log(id) {
            return log;
        }
        let log = self.logs.len() as u32;
        self.logs.push(id);
        self.numbers.insert(id, log);
        log
    }

    /// The number of a writer's log.
    pub fn log(&self, id: WriterId) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// Whether more than so many records are kept one by one, once the entries under way have ended.
    pub(crate) fn keeps_singly_more_than(&self, singles_max: u64) -> bool {
        let with = |more: u64| self.spans.count().saturating_add(more) > singles_max;
        with(records(self.growing.values())) && with(self.growing_singly())
    }

    /// Records of growing runs that no family takes. If there are more new families than places for them, it
    /// is open which of them get one: then the runs of all count.
    fn growing_singly(&self) -> u64 {
        let is_new = |run: &&Run| !self.families.iter().any(|family| family.holds(run));
        let is_short = |run: &&Run| run.records() < RUN_RECORDS_MIN;
        let new = self.growing.values().filter(|run| !is_short(run) && is_new(run));
        let new: BTreeSet<(u64, u64)> = new.map(|run| (run.record, run.stride.unsigned_abs())).collect();
        let is_crowded = self.families.len() + new.len() > FAMILIES_MAX;
        records(self.growing.values().filter(|run| is_short(run) || (is_crowded && is_new(run))))
    }

    /// The file is at least so long.
    pub fn ends_at_least(&mut self, size: u64, stamp: u64) {
        self.at_least = self.at_least.max(size);
        self.newest = self.newest.max(stamp);
    }

    /// Whether any byte of a range was written after `stamp`.
    pub fn is_newer_within(&self, from: u64, len: u64, stamp: u64) -> bool {
        if self.newest <= stamp {
            return false;
        }
        let (mut at, end) = (from, from.saturating_add(len));
        while at < end {
            let (hit, boundary) = self.find(at);
            if hit.is_some_and(|hit| hit.order.stamp > stamp) {
                return true;
            }
            at = at.saturating_add(hit.map_or(boundary, |hit| hit.run.min(boundary)).max(1));
        }
        false
    }

    /// `len` bytes were appended to a log under the entry `current`; `begins`: they are the entry's first.
    pub fn wrote(&mut self, log: u32, current: Entry, begins: bool, len: u64) {
        let id = self.logs[log as usize];
        if begins {
            self.ended(log);
        }
        self.growing.entry(log).or_insert_with(|| Run::of(log, id, current, 0)).bytes += len;
        self.stored = self.stored.saturating_add(len);
        self.newest = self.newest.max(current.stamp);
    }

    /// The current entry of a log is complete: move it to the families or the spans.
    pub fn ended(&mut self, log: u32) {
        if let Some(ended) = self.growing.remove(&log) {
            self.add(ended);
        }
    }

    fn add(&mut self, run: Run) {
        self.newest = self.newest.max(run.order.stamp);
        if run.bytes == 0 {
            return;
        }
        match self.family_for(&run) {
            Some(at) if at < self.families.len() => self.families[at].add(run),
            Some(_) => self.families.push(Family::new(run)),
            None => self.add_singly(run),
        }
    }

    /// The number of the run's family; the number after the last one is a new family. `None`: the run is kept
    /// record by record.
    fn family_for(&self, run: &Run) -> Option<usize> {
        if run.records() < RUN_RECORDS_MIN {
            return None;
        }
        let known = self.families.iter().position(|family| family.holds(run));
        known.or_else(|| Some(self.families.len()).filter(|next| *next < FAMILIES_MAX))
    }

    fn add_singly(&mut self, run: Run) {
        run.each_record(|logical, len, physical| {
            self.spans.insert(logical, len, run.log, physical, run.order);
        });
    }

    /// Of the newest byte at an offset of the file, if there is one: log, position in the log, and stamp.
    /// Also the number of bytes for which this answer is valid.
    pub(crate) fn newest_at(&self, at: u64) -> (Option<(u32, u64, u64)>, u64) {
        let (hit, boundary) = self.find(at);
        let run = hit.map_or(boundary, |hit| hit.run.min(boundary));
        (hit.map(|hit| (hit.log, hit.physical, hit.order.stamp)), run)
    }

    /// The newest byte at a place, if any, and the distance to the next place where a record begins.
    fn find(&self, at: u64) -> (Option<Hit>, u64) {
        let mut best: Option<Hit> = None;
        let mut boundary = u64::MAX;
        let mut ask = |hit: Option<Hit>, next: Option<u64>| {
            if let Some(hit) = hit
                && best.is_none_or(|best| best.order < hit.order)
            {
                best = Some(hit);
            }
            if let Some(next) = next {
                boundary = boundary.min(next - at);
            }
        };
        ask(self.spans.at(at), self.spans.next_start(at));
        for family in &self.families {
            ask(family.at(at), family.next_start(at));
        }
        for run in self.growing.values() {
            ask(run.at(at), run.next_start(at));
        }
        (best, boundary)
    }
}

fn records<'a>(runs: impl Iterator<Item = &'a Run>) -> u64 {
    runs.map(Run::records).fold(0, u64::saturating_add)
}

impl Placement for Index {
    fn objects(&self) -> u32 {
        self.logs.len() as u32
    }

    fn locate(&self, logical: u64) -> Located {
        match self.find(logical) {
            (Some(hit), boundary) => {
                Located::Piece(Piece { object: hit.log, physical: hit.physical, run: hit.run.min(boundary) })
            }
            (None, boundary) => Located::Hole { run: boundary },
        }
    }
}
