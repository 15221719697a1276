//! The form of a group of the journal and of its records.
//!
//! A group is one write: a header, records one after the other, zeros up to a multiple of 4,096 bytes. All
//! numbers are little-endian.
//!
//! ```text
//! 0   magic "shoaljrn"
//! 8   format version                          u32
//! 12  bytes of records                        u32
//! 16  segment's number                        u64
//! 24  segment's generation                    u64
//! 32  sequence: one more than the last group's u64
//! 40  LSN of the first record                 u64
//! 48  LSN of the last record                  u64
//! 56  durable LSN, as known when it was written u64
//! 64  CRC-32C of the records                  u32
//! 68  zero                                    u64
//! 76  CRC-32C of bytes 0..76                  u32
//! 80  records
//!
//! record: bytes after this field u32, bytes of contents u32, contents, number of rows u32, rows
//! row:    key length u16, value length u32 (2^32-1: the row is removed), key, value
//! ```
//!
//! The *contents* of a record are the bytes of small streams. The record also has the row of each of these
//! streams, which states the offset of the stream's bytes in the segment.

use crate::StoreError;
use bytes::Bytes;

/// Groups begin and end at multiples of this.
pub(crate) const BLOCK: usize = 4096;
/// Bytes of the header.
pub(crate) const HEADER: usize = 80;
/// Version of the format. 1: the first.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"shoaljrn";
const REMOVED: u32 = u32::MAX;

/// The fields of a group's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub body_len: u32,
    pub segment: u64,
    pub generation: u64,
    pub sequence: u64,
    pub first: u64,
    pub last: u64,
    pub durable: u64,
    pub body_crc: u32,
}

/// The bytes at a place where a header was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Header(Header),
    /// A header of a version this program does not know.
    Newer(u32),
    Nothing,
}

impl Header {
    pub fn encode(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.body_len.to_le_bytes());
        let words = [self.segment, self.generation, self.sequence, self.first, self.last, self.durable];
        for (i, word) in words.into_iter().enumerate() {
            out[16 + i * 8..24 + i * 8].copy_from_slice(&word.to_le_bytes());
        }
        out[64..68].copy_from_slice(&self.body_crc.to_le_bytes());
        out[68..76].fill(0);
        let crc = crc32c::crc32c(&out[..76]);
        out[76..80].copy_from_slice(&crc.to_le_bytes());
    }

    pub fn find(at: &[u8]) -> Found {
        let Some(head) = at.get(..HEADER) else { return Found::Nothing };
        let (u32_at, u64_at) = (|i| le32(head, i), |i| le64(head, i));
        if head[..8] != MAGIC || u32_at(76) != crc32c::crc32c(&head[..76]) {
            return Found::Nothing;
        }
        if u32_at(8) != VERSION {
            return Found::Newer(u32_at(8));
        }
        Found::Header(Header {
            body_len: u32_at(12),
            segment: u64_at(16),
            generation: u64_at(24),
            sequence: u64_at(32),
            first: u64_at(40),
            last: u64_at(48),
            durable: u64_at(56),
            body_crc: u32_at(64),
        })
    }

    /// Bytes of the whole group on the disk.
    pub fn group_len(&self) -> usize {
        (HEADER + self.body_len as usize).next_multiple_of(BLOCK)
    }

    /// The records, if they are complete and valid.
    pub fn body<'a>(&self, at: &'a [u8]) -> Option<&'a [u8]> {
        let body = at.get(HEADER..HEADER + self.body_len as usize)?;
        (crc32c::crc32c(body) == self.body_crc).then_some(body)
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Bytes of a record of rows of these lengths.
pub(crate) fn record_len(contents: usize, rows: impl Iterator<Item = (usize, usize)>) -> usize {
    12 + contents + rows.map(|(key, value)| 6 + key + value).sum::<usize>()
}

/// Offset of a record's contents in it.
pub(crate) const CONTENTS_AT: usize = 8;

/// Writes a record to its place in the group's buffer.
pub(crate) struct RecordWriter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> RecordWriter<'a> {
    /// `out` is exactly as long as [`record_len`] returned.
    pub fn new(out: &'a mut [u8], contents: usize) -> RecordWriter<'a> {
        let len = (out.len() - 4) as u32;
        let mut writer = RecordWriter { out, at: 0 };
        writer.bytes(&len.to_le_bytes());
        writer.bytes(&(contents as u32).to_le_bytes());
        writer
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub fn rows(&mut self, count: usize) {
        self.bytes(&(count as u32).to_le_bytes());
    }

    pub fn row(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes(&(key.len() as u16).to_le_bytes());
        self.bytes(&value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
        self.bytes(key);
        self.bytes(value.unwrap_or_default());
    }
}

/// Rows of one record.
pub(crate) type Rows = Vec<(Bytes, Option<Bytes>)>;

/// The next record of a group's body; `body` advances; `None` at its end. Rows are copies: they outlive the
/// buffer.
pub(crate) fn next_record(body: &mut &[u8]) -> Result<Option<Rows>, StoreError> {
    if body.is_empty() {
        return Ok(None);
    }
    let malformed =
        || StoreError::Damaged("a record of the journal is malformed though its checksum is right".into());
    let mut record = {
        let len = le32(take(body, 4).ok_or_else(malformed)?, 0) as usize;
        take(body, len).ok_or_else(malformed)?
    };
    parse_rows(&mut record).map(Some).ok_or_else(malformed)
}

fn parse_rows(record: &mut &[u8]) -> Option<Rows> {
    let contents = le32(take(record, 4)?, 0) as usize;
    take(record, contents)?;
    let count = le32(take(record, 4)?, 0) as usize;
    // A row takes 6 bytes at least: a hostile count allocates no more than the record's length.
    let mut rows = Vec::with_capacity(count.min(record.len() / 6));
    for _ in 0..count {
        let lens = take(record, 6)?;
        let (key_len, value_len) = (u16::from_le_bytes([lens[0], lens[1]]), le32(lens, 2));
        let key = Bytes::copy_from_slice(take(record, key_len.into())?);
        let value = match value_len {
            REMOVED => None,
            len => Some(Bytes::copy_from_slice(take(record, len as usize)?)),
        };
        rows.push((key, value));
    }
    record.is_empty().then_some(rows)
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            body_len: 10,
            segment: 1,
            generation: 2,
            sequence: 3,
            first: 4,
            last: 5,
            durable: 3,
            body_crc: 9,
        }
    }

    #[test]
    fn a_header_is_found_as_it_was_written_and_any_flipped_bit_hides_it() {
        let mut block = [0; BLOCK];
        header().encode(&mut block);
        assert_eq!(Header::find(&block), Found::Header(header()));
        for bit in 0..HEADER * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::find(&block), Found::Nothing, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_bytes_of_version_1_never_change() {
        let mut block = [0; HEADER];
        header().encode(&mut block);
        assert_eq!(&block[..16], b"shoaljrn\x01\0\0\0\x0a\0\0\0");
        assert_eq!(block[16..24], 1_u64.to_le_bytes());
        assert_eq!(le32(&block, 76), crc32c::crc32c(&block[..76]));
    }

    #[test]
    fn records_come_back_in_order_and_a_cut_one_is_malformed() {
        let len = record_len(3, [(2, 1), (1, 0)].into_iter());
        let mut body = vec![0; len];
        let mut writer = RecordWriter::new(&mut body, 3);
        writer.bytes(b"abc");
        writer.rows(2);
        writer.row(b"k1", Some(b"v"));
        writer.row(b"k", None);
        let mut rest = &body[..];
        let rows = next_record(&mut rest).unwrap().unwrap();
        assert_eq!(rows, [(Bytes::from("k1"), Some(Bytes::from("v"))), (Bytes::from("k"), None)]);
        assert_eq!(next_record(&mut rest).unwrap(), None);
        for cut in 1..len {
            assert!(next_record(&mut &body[..cut]).is_err());
        }
    }
}
