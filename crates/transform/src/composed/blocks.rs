//! Reads blocks. Each block is read whole, and cached.
//!
//! A read of a small file fetches its whole block, with the neighbouring files in it: they were written
//! together, and are often read together. A block is valid up to its first record that is not whole. Blocks
//! are cached up to a bound. If a block no longer belongs to its writer (a compaction freed it), its bytes
//! are not returned as zeros: the caller reads the index anew.

use super::format::{HEADER_BYTES, Header, Records, Refused, Settings};
use super::lanes::split;
use bytes::Bytes;
use lru::LruCache;
use shoal_proto::Status;
use shoal_vfs::{Error, Result, VfsFile};
use std::cell::RefCell;
use std::num::NonZeroUsize;

/// Bytes of blocks that are kept, at most; and at least so many blocks.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_MIN: usize = 4;

/// A block as it was read, and how far its records are whole.
struct Kept {
    bytes: Bytes,
    valid: usize,
}

/// The blocks of all physical files.
pub(crate) struct Blocks<F> {
    settings: Settings,
    files: Vec<F>,
    kept: RefCell<LruCache<u64, Kept>>,
}

impl<F: VfsFile> Blocks<F> {
    pub(super) fn new(settings: Settings, files: Vec<F>) -> Blocks<F> {
        let count = (KEPT_BYTES / settings.block as usize).max(KEPT_MIN);
        let count = NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Blocks { settings, files, kept: RefCell::new(LruCache::new(count)) }
    }

    /// A physical file.
    pub(super) fn file(&self, file: u16) -> Result<&F> {
        self.files.get(usize::from(file)).ok_or_else(|| {
            Error::new(Status::Io, "read").because(format!("there is no physical file blocks.{file}"))
        })
    }

    pub(super) fn files(&self) -> &[F] {
        &self.files
    }

    /// Keep a block that was just filled.
    pub(super) fn keep(&self, place: u64, bytes: Bytes) {
        let valid = bytes.len();
        self.kept.borrow_mut().put(place, Kept { bytes, valid });
    }

    /// Keep none.
    pub(super) fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Bytes of a block; fewer where the physical file ends.
    pub(super) async fn raw(&self, place: u64, at: usize, len: usize) -> Result<Bytes> {
        let (file, block) = split(place);
        let offset = block * u64::from(self.settings.block) + at as u64;
        self.file(file)?.read(offset, len).await
    }

    /// The header of a block; `None`: there is none of this directory.
    ///
    /// # Errors
    /// It is of a newer format.
    pub(super) fn header(&self, place: u64, bytes: &[u8]) -> Result<Option<Header>> {
        match Header::decode(bytes) {
            Ok(header) if header.place == place && header.directory == self.settings.short_id() => {
                Ok(Some(header))
            }
            Err(error @ Refused::Newer(_)) => {
                Err(Error::new(Status::NotSupported, "read").because(format!("a block's {error}")))
            }
            _ => Ok(None),
        }
    }

    /// Bytes in records of a block; `None`: the block does not hold them any more, or not whole.
    pub(super) async fn bytes(&self, place: u64, at: usize, len: usize) -> Result<Option<Bytes>> {
        let end = at + len;
        if let Some(kept) = self.kept.borrow_mut().get(&place)
            && kept.valid >= end
        {
            return Ok(Some(kept.bytes.slice(at..end)));
        }
        let bytes = self.raw(place, 0, self.settings.block as usize).await?;
        if self.header(place, &bytes)?.is_none() {
            return Ok(None);
        }
        let mut records = Records::new(&bytes, HEADER_BYTES);
        records.by_ref().for_each(drop);
        let valid = records.position();
        let found = (valid >= end).then(|| bytes.slice(at..end));
        self.kept.borrow_mut().put(place, Kept { bytes, valid });
        Ok(found)
    }
}
