//! Builds the index from index logs.

use super::Index;
use super::run::Run;
use crate::limits::SINGLE_RECORDS_MAX;
use crate::record::{Cut, Entry, Found, Record};
use crate::writer_id::WriterId;
use std::collections::HashMap;

/// One writer's logs, as they were read.
#[derive(Clone, Debug)]
pub struct LogFacts {
    /// The writer.
    pub id: WriterId,
    /// Bytes of its data log.
    pub data: u64,
    /// All of the data log is named: its page cache is this machine's, or its writer closed it so.
    pub is_whole: bool,
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
        /// The error.
        words: &'static str,
    },
    /// There is more than can be kept.
    #[error(
        "its index has more than {SINGLE_RECORDS_MAX} records that are not regular, more than this program reads: \
         restore the file from a copy"
    )]
    TooLarge,
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
        Index::build_within(logs, SINGLE_RECORDS_MAX)
    }

    fn build_within(logs: &[LogFacts], singles_max: u64) -> Result<Index, IndexError> {
        let mut index = Index::default();
        let mut parts: HashMap<WriterId, Parts> = HashMap::new();
        for facts in logs {
            let log = index.add_log(facts.id);
            index.stored = index.stored.saturating_add(facts.data);
            parts.insert(facts.id, read(log, facts)?);
        }
        for cut in cuts(logs) {
            index.newest = index.newest.max(cut.stamp);
            index.cuts += 1;
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
        for run in runs {
            let more = if index.family_for(&run).is_none() { run.records() } else { 0 };
            if index.spans.count().saturating_add(more) > singles_max {
                return Err(IndexError::TooLarge);
            }
            index.add(run);
        }
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
    let mut entries: Vec<Entry> = Vec::new();
    let mut named = 0;
    let damaged = |words| IndexError::Damaged { id: facts.id, words };
    for (record, position) in &facts.records {
        match record {
            Record::Entry(entry) => entries.push(*entry),
            Record::End { size, stamp } => parts.ends.push((*size, *position, *stamp)),
            Record::Named { data } => named = *data,
            // A cut says too how long the file is.
            Record::Cut(cut) => parts.ends.push((cut.size, *position, cut.stamp)),
            Record::Head { version, .. } if *version > crate::record::VERSION => {
                let known = crate::record::VERSION;
                return Err(IndexError::Newer { id: facts.id, version: *version, known });
            }
            Record::Head { .. } => {}
        }
    }
    // Bytes of an entry that another one follows are bounded by that.
    let bounded = entries.last().map_or(0, |last| last.physical);
    let data = if facts.is_whole { facts.data } else { facts.data.min(named.max(bounded)) };
    let latest = parts.ends.iter().map(|(_, _, stamp)| *stamp).chain(entries.iter().map(|entry| entry.stamp));
    if latest.max().is_some_and(|stamp| i64::try_from(stamp).is_err()) {
        return Err(damaged("a stamp is beyond all clocks"));
    }
    for (at, entry) in entries.iter().enumerate() {
        let next = entries.get(at + 1).map_or(data, |next| next.physical);
        if next < entry.physical && at + 1 < entries.len() {
            return Err(damaged("its entries do not follow each other"));
        }
        let bytes = next.min(data).saturating_sub(entry.physical);
        let mut run = Run::of(log, facts.id, *entry, bytes);
        if !run.is_sound() {
            // Bytes after the last entry's own may be another's, whose entry is lost; others are damage.
            if at + 1 < entries.len() || !run.clip() {
                return Err(damaged("an entry names bytes that no file has"));
            }
        }
        if run.bytes > 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One log that writes single records at these places, each of 10 bytes.
    fn facts(places: impl Iterator<Item = u64>) -> LogFacts {
        let entry = |(turn, logical): (usize, u64)| {
            let (record, stride, physical) = (0, 0, 10 * turn as u64);
            (Record::Entry(Entry { logical, record, stride, physical, stamp: 1 + turn as u64 }), 0)
        };
        let records: Vec<_> = places.enumerate().map(entry).collect();
        LogFacts { id: WriterId([1; 16]), data: 10 * records.len() as u64, is_whole: true, records }
    }

    #[test]
    fn records_that_newer_ones_cover_do_not_count_to_the_limit() {
        let again = facts((0..2000).map(|turn| turn % 50 * 100));
        let index = Index::build_within(&[again], 100).unwrap();
        assert_eq!(index.newest_at(100).0, Some((0, 19_510, 1952)));
        assert_eq!(index.spans.count(), 50);
        let apart = facts((0..2000).map(|turn| turn * 100));
        assert_eq!(Index::build_within(&[apart], 100).unwrap_err(), IndexError::TooLarge);
    }
}
