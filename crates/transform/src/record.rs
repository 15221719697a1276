//! The grammar of an index log.
//!
//! ```text
//!   log      head, then records, each:   crc32c u32 | len u32 | kind u8 | body
//!   entry    logical u64, record u64, stride i64, physical u64, stamp u64
//!   cut      size u64, stamp u64, logs: [id 16 bytes, data u64, index u64]
//!   end      size u64, stamp u64
//!   named    data u64
//!   head     version u16, id 16 bytes, boot id 16 bytes, host and process in words
//! ```
//!
//! An **entry** gives the places in the file of the bytes of the data log from `physical` on, up to the next
//! entry's `physical` or the end of the data log. In the file these bytes are pieces of `record` bytes; each
//! piece lies `stride` bytes after the previous piece. A `stride` of 0 means one piece without end, so
//! contiguous bytes. A **cut** is a truncation: it states the length of each log at that time, and truncates
//! only the bytes up to these lengths. An **end** says that the file has at least `size` bytes.
//!
//! A **named** record says that the bytes of the data log below `data` were durable, with their entries,
//! when it was written. A power cut may remove the end of the index log and leave the end of the data log:
//! a reader would take those bytes for bytes of the last entry. Logs that no writer closed and that were
//! written in an earlier boot or on a different host are read with care: the bytes of their last entry are
//! read only below `data`.
//!
//! All numbers are little endian. **A record whose check sum is wrong ends the log**: its bytes and all
//! bytes after it are not used. `container/damage.rs` decides whether these bytes are the torn end of a
//! killed write, or damage.

use crate::limits::CUT_LOGS_MAX;
use crate::writer_id::WriterId;
use shoal_pattern::codec::{DecodeError, Reader, Writer};

/// The version of the format.
pub const VERSION: u16 = 1;
/// Bytes of a frame before its body.
const FRAME_BYTES: usize = 9;
/// The largest body: a cut of all logs.
const BODY_BYTES_MAX: usize = 64 + CUT_LOGS_MAX * 32;
/// The largest record.
pub(crate) const RECORD_BYTES_MAX: usize = FRAME_BYTES + BODY_BYTES_MAX;
/// The largest words in a head.
const WORDS_BYTES_MAX: usize = 256;

/// Where bytes of a data log lie in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The first byte's place in the file.
    pub logical: u64,
    /// Bytes of a record; not used where `stride` is 0.
    pub record: u64,
    /// From one record to the next, in bytes, forwards or back; 0: one record without end.
    pub stride: i64,
    /// The first byte's place in the data log.
    pub physical: u64,
    /// When it was begun, by the hybrid clock.
    pub stamp: u64,
}

/// How far a cut found a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The writer.
    pub id: WriterId,
    /// Bytes of its data log.
    pub data: u64,
    /// Bytes of its index log.
    pub index: u64,
}

impl Found {
    /// A length: all of a log that nothing is appended to any more.
    pub const ALL: u64 = u64::MAX;
}

/// A truncation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The size that it sets.
    pub size: u64,
    /// When, by the hybrid clock.
    pub stamp: u64,
    /// The logs that it found, and how far.
    pub logs: Vec<Found>,
}

/// A record of an index log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// The beginning of a log.
    Head {
        /// The format's version.
        version: u16,
        /// Whose log it is.
        id: WriterId,
        /// The boot of its machine: the page cache of another one is not known.
        boot: [u8; 16],
        /// Host and process, for people.
        words: String,
    },
    /// Bytes.
    Entry(Entry),
    /// A truncation.
    Cut(Cut),
    /// The file is at least so long.
    End {
        /// Its size.
        size: u64,
        /// When, by the hybrid clock.
        stamp: u64,
    },
    /// So many bytes of the data log were durable, with their entries.
    Named {
        /// Bytes.
        data: u64,
    },
}

impl Record {
    /// The record's bytes in the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let (crc, len) = (w.hold_u32(), w.hold_u32());
        match self {
            Record::Head { version, id, boot, words } => {
                w.put_u8(0);
                w.put_u16(*version);
                w.put_raw(&id.0);
                w.put_raw(boot);
                let mut end = words.len().min(WORDS_BYTES_MAX);
                while !words.is_char_boundary(end) {
                    end -= 1;
                }
                w.put_str(&words[..end]);
            }
            Record::Entry(entry) => {
                w.put_u8(1);
                w.put_u64(entry.logical);
                w.put_u64(entry.record);
                w.put_i64(entry.stride);
                w.put_u64(entry.physical);
                w.put_u64(entry.stamp);
            }
            Record::Cut(cut) => {
                w.put_u8(2);
                w.put_u64(cut.size);
                w.put_u64(cut.stamp);
                w.put_count(cut.logs.len());
                for found in &cut.logs {
                    w.put_raw(&found.id.0);
                    w.put_u64(found.data);
                    w.put_u64(found.index);
                }
            }
            Record::End { size, stamp } => {
                w.put_u8(3);
                w.put_u64(*size);
                w.put_u64(*stamp);
            }
            Record::Named { data } => {
                w.put_u8(4);
                w.put_u64(*data);
            }
        }
        let body = w.len() - FRAME_BYTES;
        w.patch_u32(len, body as u32);
        let sum = crc32c::crc32c(&w.as_slice()[4..]);
        w.patch_u32(crc, sum);
        w.into_vec()
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Record, DecodeError> {
        let r = &mut Reader::new(body);
        let record = match kind {
            0 => Record::Head {
                version: r.get_u16()?,
                id: WriterId(r.get_array()?),
                boot: r.get_array()?,
                words: r.get_str(WORDS_BYTES_MAX)?.to_owned(),
            },
            1 => Record::Entry(Entry {
                logical: r.get_u64()?,
                record: r.get_u64()?,
                stride: r.get_i64()?,
                physical: r.get_u64()?,
                stamp: r.get_u64()?,
            }),
            2 => {
                let (size, stamp) = (r.get_u64()?, r.get_u64()?);
                let count = r.get_count(CUT_LOGS_MAX, 32)?;
                let mut logs = Vec::with_capacity(count);
                for _ in 0..count {
                    logs.push(Found {
                        id: WriterId(r.get_array()?),
                        data: r.get_u64()?,
                        index: r.get_u64()?,
                    });
                }
                Record::Cut(Cut { size, stamp, logs })
            }
            3 => Record::End { size: r.get_u64()?, stamp: r.get_u64()? },
            4 => Record::Named { data: r.get_u64()? },
            _ => return Err(DecodeError::Invalid("kind of an index record")),
        };
        r.finish()?;
        Ok(record)
    }
}

/// The records of an index log, each with the position after it; they end with the log, or before the first
/// that is torn.
#[derive(Debug)]
pub struct Records<'a> {
    log: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Of these bytes.
    pub fn new(log: &'a [u8]) -> Records<'a> {
        Records { log, at: 0 }
    }

    /// Where the last good record ended: bytes after it are torn.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether the bytes left are not the beginning of a record that was being written: a write that is
    /// interrupted leaves a shorter record, never a wrong one.
    pub fn is_broken(&self) -> bool {
        let rest = &self.log[self.at..];
        let Some(len) = word(rest, 4) else { return false };
        len as usize > BODY_BYTES_MAX || rest.len() >= FRAME_BYTES + len as usize
    }

    /// Whether bytes are left that are no record.
    pub fn is_torn(&self) -> bool {
        self.at < self.log.len()
    }
}

impl Iterator for Records<'_> {
    type Item = (Record, u64);

    fn next(&mut self) -> Option<(Record, u64)> {
        let rest = &self.log[self.at..];
        let (crc, len) = (word(rest, 0)?, word(rest, 4)? as usize);
        if len > BODY_BYTES_MAX || rest.len() < FRAME_BYTES + len {
            return None;
        }
        let frame = &rest[4..FRAME_BYTES + len];
        if crc32c::crc32c(frame) != crc {
            return None;
        }
        let record = Record::decode(frame[4], &frame[5..]).ok()?;
        self.at += FRAME_BYTES + len;
        Some((record, self.at as u64))
    }
}

/// Records of one writer's common kinds that begin anywhere in `bytes`: what follows damage.
pub(crate) fn found_within(bytes: &[u8]) -> usize {
    const KINDS: [(u8, u32); 3] = [(1, 40), (3, 16), (4, 8)];
    let is_record = |at: usize| {
        let len = word(bytes, at + 4).unwrap_or(0);
        let kind = bytes.get(at + 8).copied().unwrap_or(0);
        KINDS.contains(&(kind, len)) && Records { log: bytes, at }.next().is_some()
    };
    (0..bytes.len().saturating_sub(FRAME_BYTES)).filter(|at| is_record(*at)).count()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Record> {
        let id = WriterId([7; 16]);
        vec![
            Record::Head { version: VERSION, id, boot: [9; 16], words: "node1, process 17".into() },
            Record::Named { data: 77 },
            Record::Entry(Entry {
                logical: 5,
                record: 47_008,
                stride: -376_064,
                physical: 9,
                stamp: 1 << 60,
            }),
            Record::Cut(Cut { size: 4, stamp: 3, logs: vec![Found { id, data: 8, index: 16 }] }),
            Record::End { size: u64::MAX, stamp: 2 },
        ]
    }

    #[test]
    fn a_log_is_read_as_it_was_written_and_a_torn_tail_says_nothing() {
        let log: Vec<u8> = samples().iter().flat_map(Record::encode).collect();
        let read: Vec<Record> = Records::new(&log).map(|(record, _)| record).collect();
        assert_eq!(read, samples());
        let last = samples()[4].encode().len();
        for torn in 1..last {
            let mut records = Records::new(&log[..log.len() - torn]);
            assert_eq!(records.by_ref().count(), 4);
            assert!(records.is_torn());
            assert_eq!(records.position(), log.len() - last);
        }
    }

    #[test]
    fn a_damaged_record_ends_the_log_wherever_the_damage_is() {
        let log: Vec<u8> = samples().iter().flat_map(Record::encode).collect();
        for at in 0..log.len() {
            let mut damaged = log.clone();
            damaged[at] ^= 0x40;
            let read: Vec<Record> = Records::new(&damaged).map(|(record, _)| record).collect();
            assert!(read.len() < 5 && samples().starts_with(&read), "byte {at}");
        }
    }

    #[test]
    fn an_entry_takes_49_bytes_so_that_irregular_records_cost_little() {
        assert_eq!(samples()[2].encode().len(), 49);
    }
}
