//! From index logs to the index.

use super::Index;
use super::run::Run;
use crate::record::{Cut, Found, Record};
use crate::writer_id::WriterId;
use std::collections::HashMap;

/// One writer's logs, as they were read.
#[derive(Clone, Debug)]
pub struct LogFacts {
    /// The writer.
    pub id: WriterId,
    /// Bytes of its data log.
    pub data: u64,
    /// Its records, each with the position in the index log after it.
    pub records: Vec<(Record, u64)>,
}

/// Why index logs make no index.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexError {
    /// An entry is impossible.
    #[error("the index log of writer {id} is damaged: {words}")]
    Damaged {
        /// Whose log.
        id: WriterId,
        /// What is wrong.
        words: &'static str,
    },
    /// It is of a newer version.
    #[error(
        "the logs of writer {id} have format {version}, and this program knows none above {known}: use a newer program"
    )]
    Newer {
        /// Whose log.
        id: WriterId,
        /// Its version.
        version: u16,
        /// The newest that is known.
        known: u16,
    },
}

/// The parts of one log.
struct Parts {
    runs: Vec<Run>,
    /// Sizes that it states, with the position of their record.
    ends: Vec<(u64, u64, u64)>,
}

impl Index {
    /// The index of a container whose logs are these.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn build(logs: &[LogFacts]) -> Result<Index, IndexError> {
        let mut index = Index::default();
        let mut parts: HashMap<WriterId, Parts> = HashMap::new();
        for facts in logs {
            let log = index.add_log(facts.id);
            index.stored += facts.data;
            parts.insert(facts.id, read(log, facts)?);
        }
        for cut in cuts(logs) {
            index.newest = index.newest.max(cut.stamp);
            for found in &cut.logs {
                if let Some(parts) = parts.get_mut(&found.id) {
                    parts.cut(cut.size, found);
                }
            }
        }
        let mut runs: Vec<Run> = Vec::new();
        for parts in parts.into_values() {
            for (size, _, stamp) in parts.ends {
                index.ends_at_least(size, stamp);
            }
            runs.extend(parts.runs);
        }
        // Oldest first: a newer record then replaces at once what it covers. And always in one order.
        runs.sort_unstable_by_key(|run| (run.order, run.physical));
        runs.into_iter().for_each(|run| index.add(run));
        Ok(index)
    }
}

fn cuts(logs: &[LogFacts]) -> impl Iterator<Item = &Cut> {
    logs.iter().flat_map(|facts| &facts.records).filter_map(|(record, _)| match record {
        Record::Cut(cut) => Some(cut),
        _ => None,
    })
}

/// The runs and ends of a log, as if nothing were cut.
fn read(log: u32, facts: &LogFacts) -> Result<Parts, IndexError> {
    let mut parts = Parts { runs: Vec::new(), ends: Vec::new() };
    let mut entries = Vec::new();
    for (record, position) in &facts.records {
        match record {
            Record::Entry(entry) => entries.push(*entry),
            Record::End { size, stamp } => parts.ends.push((*size, *position, *stamp)),
            // A cut says too how long the file is.
            Record::Cut(cut) => parts.ends.push((cut.size, *position, cut.stamp)),
            Record::Head { version, .. } if *version > crate::record::VERSION => {
                let known = crate::record::VERSION;
                return Err(IndexError::Newer { id: facts.id, version: *version, known });
            }
            Record::Head { .. } => {}
        }
    }
    let damaged = |words| IndexError::Damaged { id: facts.id, words };
    for (at, entry) in entries.iter().enumerate() {
        let next = entries.get(at + 1).map_or(facts.data, |next| next.physical);
        if next < entry.physical && at + 1 < entries.len() {
            return Err(damaged("its entries do not follow each other"));
        }
        let bytes = next.min(facts.data).saturating_sub(entry.physical);
        let run = Run::of(log, facts.id, *entry, bytes);
        if !run.is_sound() {
            return Err(damaged("an entry names bytes that no file has"));
        }
        if bytes > 0 {
            parts.runs.push(run);
        }
    }
    Ok(parts)
}

impl Parts {
    fn cut(&mut self, size: u64, found: &Found) {
        self.ends.retain(|(_, position, _)| *position > found.index);
        let mut left = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            run.cut(size, found.data, |kept| left.push(kept));
        }
        self.runs = left;
    }
}
