//! Encodes the records of index logs as messages of bounded size: a log with many records is sent in
//! pieces.
//!
//! ```text
//!   more u8 | count u32, then each: ID 16 bytes | data u64 | is whole u8 | place u64 | length u32 | records
//! ```
//!
//! `place` is the number of bytes of the log's records in the earlier pieces; a piece with a different
//! place is refused. The records have the form of the index log ([format](crate::record)), and no record is
//! divided.

use crate::index::LogFacts;
use crate::limits::CUT_LOGS_MAX;
use crate::record::Records;
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// Bytes of a piece beside its records.
const PIECE_BYTES: usize = 37;

/// Logs that are sent, piece by piece.
pub(super) struct Outbox {
    logs: Vec<LogFacts>,
    /// The next log, and its next record.
    log: usize,
    record: usize,
    /// Bytes of that log's records that were sent.
    place: u64,
}

impl Outbox {
    pub(super) fn new(logs: Vec<LogFacts>) -> Outbox {
        Outbox { logs, log: 0, record: 0, place: 0 }
    }

    /// The next message, of about `limit` bytes: one record at least, and each whole.
    pub(super) fn next_part(&mut self, limit: usize) -> Bytes {
        let (mut w, mut count) = (Writer::new(), 0u32);
        w.put_u8(0);
        let counted = w.hold_u32();
        while (count == 0 || w.len() < limit) && self.log < self.logs.len() {
            self.put_piece(&mut w, limit);
            count += 1;
        }
        w.patch_u32(counted, count);
        let mut bytes = w.into_vec();
        bytes[0] = u8::from(self.log < self.logs.len());
        bytes.into()
    }

    fn put_piece(&mut self, w: &mut Writer, limit: usize) {
        let facts = &self.logs[self.log];
        w.put_raw(&facts.id.0);
        w.put_u64(facts.data);
        w.put_u8(u8::from(facts.is_whole));
        w.put_u64(self.place);
        let mut bytes = Vec::new();
        while let Some((record, _)) = facts.records.get(self.record) {
            bytes.extend(record.encode());
            self.record += 1;
            if w.len() + bytes.len() >= limit {
                break;
            }
        }
        w.put_bytes(&bytes);
        self.place += bytes.len() as u64;
        if self.record >= facts.records.len() {
            (self.log, self.record, self.place) = (self.log + 1, 0, 0);
        }
    }
}

/// Logs as they come.
#[derive(Default)]
pub(super) struct Inbox {
    logs: BTreeMap<WriterId, LogFacts>,
}

impl Inbox {
    /// Take a message. Whether its sender has more.
    pub(super) fn take(&mut self, part: &[u8]) -> Result<bool, DecodeError> {
        let r = &mut Reader::new(part);
        let has_more = r.get_bool()?;
        let count = r.get_count(CUT_LOGS_MAX, PIECE_BYTES)?;
        for _ in 0..count {
            self.take_piece(r)?;
        }
        r.finish()?;
        Ok(has_more)
    }

    fn take_piece(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let (id, data, is_whole) = (WriterId(r.get_array()?), r.get_u64()?, r.get_bool()?);
        let (place, bytes) = (r.get_u64()?, r.get_bytes(r.remaining())?);
        if place == 0 && self.logs.contains_key(&id) || self.logs.len() > CUT_LOGS_MAX {
            return Err(DecodeError::Invalid("log that came twice, or too many"));
        }
        let new = || LogFacts { id, data, is_whole, records: Vec::new() };
        let facts = self.logs.entry(id).or_insert_with(new);
        if facts.records.last().map_or(0, |(_, end)| *end) != place {
            return Err(DecodeError::Invalid("place of records"));
        }
        let mut records = Records::new(bytes);
        facts.records.extend(records.by_ref().map(|(record, end)| (record, place + end)));
        if records.position() < bytes.len() {
            return Err(DecodeError::Invalid("record"));
        }
        Ok(())
    }

    pub(super) fn into_logs(self) -> Vec<LogFacts> {
        self.logs.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entry, Record};

    fn log(byte: u8, records: u64) -> LogFacts {
        let entry = |n: u64| Entry { logical: n * 9, record: 3, stride: 9, physical: n * 3, stamp: n };
        let end = |n: u64| (n + 1) * 49;
        let records = (0..records).map(|n| (Record::Entry(entry(n)), end(n))).collect();
        LogFacts { id: WriterId([byte; 16]), data: 30, is_whole: byte.is_multiple_of(2), records }
    }

    fn parts(logs: &[LogFacts], limit: usize) -> Vec<Bytes> {
        let mut outbox = Outbox::new(logs.to_vec());
        let mut parts = vec![outbox.next_part(limit)];
        while parts.last().is_some_and(|part| part[0] == 1) {
            parts.push(outbox.next_part(limit));
        }
        parts
    }

    #[test]
    fn logs_come_as_they_were_sent_in_messages_of_any_limit() {
        let logs = [log(1, 100), log(2, 0), log(3, 7)];
        for limit in [1, 60, 500, 1 << 20] {
            let (mut inbox, parts) = (Inbox::default(), parts(&logs, limit));
            assert!(parts.iter().all(|part| part.len() < limit + 100), "one record more, at most");
            for (at, part) in parts.iter().enumerate() {
                assert_eq!(inbox.take(part).unwrap(), at + 1 < parts.len());
            }
            let came = inbox.into_logs();
            for (came, sent) in came.iter().zip(&logs) {
                assert_eq!((came.id, came.data, came.is_whole), (sent.id, sent.data, sent.is_whole));
                assert_eq!(came.records, sent.records);
            }
            assert_eq!(came.len(), 3);
        }
    }

    #[test]
    fn a_piece_that_is_missing_cut_or_comes_twice_is_refused() {
        let parts = parts(&[log(1, 100)], 500);
        for lost in 0..parts.len() - 1 {
            let mut inbox = Inbox::default();
            let kept = parts.iter().enumerate().filter(|(at, _)| *at != lost);
            assert!(kept.map(|(_, part)| inbox.take(part)).any(|taken| taken.is_err()), "without {lost}");
        }
        for end in 0..parts[0].len() {
            assert!(Inbox::default().take(&parts[0][..end]).is_err(), "{end} bytes");
        }
        let mut inbox = Inbox::default();
        inbox.take(&parts[0]).unwrap();
        assert!(inbox.take(&parts[0]).is_err());
    }
}
