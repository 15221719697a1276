//! The row of a byte stream: its facts, and its *home* (the place of its bytes: this row, the journal, or a
//! local file).
//!
//! Only the store writes a stream's row (through [`StreamChange`](crate::StreamChange) and the bulk
//! operations); handlers read it as [`StreamInfo`]. Key: `S` + handle, big-endian.
//!
//! The row, all numbers little-endian:
//!
//! ```text
//! 0  format version (1)          u8
//! 1  generation                  u64
//! 9  size                        u64
//! 17 space taken, as far as known u64
//! 25 bits                        u8: 1 a write time follows, 2 the stream had a local file before
//! 26 time of the newest write    i64 (0 if none)
//! 34 home                        u8: 0 tiny, 1 log, 2 file, 3 file that no sync has covered yet; 4 and 5:
//!                                as 2 and 3, with the number of the stream folder
//! 35 tiny: the content
//!    log:  segment u64, its generation u64, offset u64, stored bytes u32, CRC-32C u32, bytes still valid u32
//!    file: nothing; 4 and 5: number of the folder u16
//! ```
//!
//! If a stream held no byte and never had a file, its first file is made without a sync (*loose*): no sync
//! has promised any of its bytes yet, and no older file can have its name. If a power cut loses the name, the
//! file is made again, empty. The first sync of the stream covers the name too.

use crate::StoreError;
use crate::disk::FolderNumber;
use bytes::Bytes;
use shoal_env::WallTime;
use shoal_proto::Handle;

/// The place of a stream's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the row itself (tiny data; at most [`Home::TINY_MAX`] bytes).
    Tiny,
    /// In the journal segment that carried it (the value log).
    Log {
        /// Number of the segment.
        segment: u64,
        /// The segment's generation when the bytes were written.
        generation: u64,
        /// Byte offset in the segment.
        offset: u64,
        /// Bytes stored (a stream may be longer: the rest is zeros).
        len: u32,
        /// CRC-32C of the bytes.
        crc: u32,
    },
    /// A local file named by the handle.
    File,
}

impl Home {
    /// Largest content kept in the row: LMDB keeps it on the leaf's page.
    pub const TINY_MAX: usize = 1900;
}

/// A handler's view of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Carried by every data request; one with an older generation gets `Stale`.
    pub generation: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of space taken, as far as known (holes not counted).
    pub space: u64,
    /// The newest write since `generation` began, if any.
    pub written_at: Option<WallTime>,
    /// Whether the bytes are small and can be read and replaced by
    /// [`View::small_content`](crate::View::small_content) and
    /// [`StreamChange::Put`](crate::StreamChange::Put).
    pub small: bool,
}

/// First byte of a stream row's key.
pub(crate) const STREAM_PREFIX: u8 = b'S';

/// The key of a stream's row.
pub(crate) fn stream_key(handle: Handle) -> [u8; 9] {
    let mut key = [STREAM_PREFIX; 9];
    key[1..].copy_from_slice(&handle.key_bytes());
    key
}

/// The stream a row's key names.
pub(crate) fn stream_of_key(key: &[u8]) -> Option<Handle> {
    let (first, rest) = key.split_first()?;
    let bytes: [u8; 8] = rest.try_into().ok()?;
    (*first == STREAM_PREFIX).then(|| Handle(u64::from_be_bytes(bytes)))
}

/// The row itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRow {
    pub generation: u64,
    pub size: u64,
    pub space: u64,
    pub written_at: Option<WallTime>,
    pub home: Home,
    /// Home tiny: the content. Else empty.
    pub tiny: Bytes,
    /// Home log: how many of the stored bytes are still valid (a shrink cuts them; zeros follow).
    pub valid: u32,
    /// Home file: no sync has covered the file and its name yet; after a power cut it may not be there.
    pub loose: bool,
    /// Home file: the folder of its file.
    pub folder: FolderNumber,
    /// A file was its home before: a power cut may restore older bytes under its name.
    pub had_file: bool,
}

const VERSION: u8 = 1;
const HAD_FILE: u8 = 2;
const HEAD: usize = 35;
/// Length of the row of a stream whose home is the log.
pub(crate) const LOG_ROW: usize = HEAD + 36;

impl StreamRow {
    pub fn empty(generation: u64) -> StreamRow {
        StreamRow {
            generation,
            size: 0,
            space: 0,
            written_at: None,
            home: Home::Tiny,
            tiny: Bytes::new(),
            valid: 0,
            loose: false,
            folder: FolderNumber::default(),
            had_file: false,
        }
    }

    /// An empty stream of `generation`; facts of its past that must survive do.
    pub fn emptied(&self, generation: u64) -> StreamRow {
        let had_file = self.had_file || self.home == Home::File;
        StreamRow { had_file, ..StreamRow::empty(generation) }
    }

    pub fn info(&self) -> StreamInfo {
        StreamInfo {
            generation: self.generation,
            size: self.size,
            space: self.space,
            written_at: self.written_at,
            small: self.home != Home::File,
        }
    }

    /// Bytes of small content.
    pub fn content_len(&self) -> u64 {
        match self.home {
            Home::Tiny => self.tiny.len() as u64,
            Home::Log { .. } => u64::from(self.valid),
            Home::File => 0,
        }
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(LOG_ROW.max(HEAD + self.tiny.len()));
        out.push(VERSION);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.space.to_le_bytes());
        out.push(u8::from(self.written_at.is_some()) | if self.had_file { HAD_FILE } else { 0 });
        out.extend_from_slice(&self.written_at.unwrap_or_default().0.to_le_bytes());
        match &self.home {
            Home::Tiny => {
                out.push(0);
                out.extend_from_slice(&self.tiny);
            }
            Home::Log { segment, generation, offset, len, crc } => {
                out.push(1);
                out.extend_from_slice(&segment.to_le_bytes());
                out.extend_from_slice(&generation.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&crc.to_le_bytes());
                out.extend_from_slice(&self.valid.to_le_bytes());
            }
            Home::File => {
                let home = if self.loose { 3 } else { 2 };
                match self.folder {
                    FolderNumber(0) => out.push(home),
                    FolderNumber(folder) => {
                        out.push(home + 2);
                        out.extend_from_slice(&folder.to_le_bytes());
                    }
                }
            }
        }
        out.into()
    }

    pub fn decode(row: &Bytes) -> Result<StreamRow, StoreError> {
        StreamRow::parse(row)
            .ok_or_else(|| StoreError::Damaged("a stream's row has a form this version does not know".into()))
    }

    fn parse(row: &Bytes) -> Option<StreamRow> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(row.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(row.get(at..at + 4)?.try_into().ok()?));
        if *row.first()? != VERSION {
            return None;
        }
        let bits = *row.get(25)?;
        let written_at = (bits & 1 != 0).then_some(WallTime(u64_at(26)?.cast_signed()));
        let (home, tiny, valid) = match *row.get(34)? {
            0 => (Home::Tiny, row.slice(HEAD..), 0),
            1 => {
                let len = u32_at(HEAD + 24)?;
                let home = Home::Log {
                    segment: u64_at(HEAD)?,
                    generation: u64_at(HEAD + 8)?,
                    offset: u64_at(HEAD + 16)?,
                    len,
                    crc: u32_at(HEAD + 28)?,
                };
                (home, Bytes::new(), u32_at(HEAD + 32)?.min(len))
            }
            2..=5 => (Home::File, Bytes::new(), 0),
            _ => return None,
        };
        let folder = match *row.get(34)? {
            4 | 5 => u16::from_le_bytes(row.get(HEAD..HEAD + 2)?.try_into().ok()?),
            _ => 0,
        };
        Some(StreamRow {
            generation: u64_at(1)?,
            size: u64_at(9)?,
            space: u64_at(17)?,
            written_at,
            home,
            tiny,
            valid,
            loose: matches!(*row.get(34)?, 3 | 5),
            folder: FolderNumber(folder),
            had_file: bits & HAD_FILE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_decodes_to_what_was_encoded() {
        let tiny = StreamRow {
            size: 70,
            written_at: Some(WallTime(-5)),
            tiny: Bytes::from_static(b"content"),
            ..StreamRow::empty(3)
        };
        let home = Home::Log { segment: 1, generation: 2, offset: 4176, len: 5, crc: 6 };
        let log = StreamRow { home, valid: 4, ..StreamRow::empty(9) };
        let file = StreamRow { home: Home::File, space: 4096, ..StreamRow::empty(1) };
        let loose = StreamRow { loose: true, ..file.clone() };
        let elsewhere = StreamRow { folder: FolderNumber(259), ..file.clone() };
        let loose_there = StreamRow { loose: true, ..elsewhere.clone() };
        for row in [tiny, log, file.emptied(2), file, loose, elsewhere, loose_there] {
            assert_eq!(StreamRow::decode(&row.encode()).unwrap(), row);
        }
    }

    #[test]
    fn a_cut_or_foreign_row_is_damage_not_a_panic() {
        let row = StreamRow { home: Home::File, ..StreamRow::empty(1) }.encode();
        for len in 0..row.len() {
            assert!(matches!(StreamRow::decode(&row.slice(..len)), Err(StoreError::Damaged(_))));
        }
        assert!(StreamRow::decode(&Bytes::from_static(&[9; 80])).is_err());
    }

    #[test]
    fn keys_sort_as_handles() {
        assert!(stream_key(Handle(255)) < stream_key(Handle(256)));
        assert_eq!(stream_of_key(&stream_key(Handle(77))), Some(Handle(77)));
        assert_eq!(stream_of_key(b"D1234567"), None);
    }
}
