//! The row of a byte stream: its facts and its home.
//!
//! A stream's row is written by the store alone (through [`StreamChange`](crate::StreamChange) and the bulk operations),
//! read by handlers as [`StreamInfo`]. Key: `S` + handle, big-endian.

use shoal_env::WallTime;

/// Where a stream's bytes live.
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

/// What a handler sees of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Carried by every data request; an older one is answered stale.
    pub generation: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of space taken, as far as known (holes not counted).
    pub space: u64,
    /// The newest write since `generation` began, if any.
    pub written_at: Option<WallTime>,
    /// Whether the bytes are small and can be read and replaced by [`View::small_content`](crate::View::small_content)
    /// and [`StreamChange::Put`](crate::StreamChange::Put).
    pub small: bool,
}
