//! Reads blocks, and caches them.
//!
//! The first read of a block fetches it as far as the caller's bytes reach, at least a window: a short
//! process reads one small file. It fetches the whole block if the last record that holds such bytes reaches
//! further. So does the second read, with the neighbouring files: they were written together, and are often
//! read together. The cache is bounded by bytes. A block is valid up to its first record that is not whole.
//!
//! A compaction erases the blocks that it frees, and other writers may fill them. Bytes are returned only if
//! the block's header names the writer that the index names. Otherwise the caller reads the index anew. A
//! cached block is returned until then: its bytes are those that the index names.

use super::Shared;
use super::format::{HEADER_BYTES, Header, Records, Refused, Settings};
use super::lanes::{Extent, split};
use super::object::Stored;
use crate::writer_id::WriterId;
use bytes::Bytes;
use lru::LruCache;
use shoal_proto::Status;
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::RefCell;
use std::num::NonZeroUsize;

/// Bytes of blocks that are kept, at most; and at least so many blocks.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_MIN: usize = 4;

/// Bytes of a block that are read first, at least.
pub(super) const WINDOW_BYTES: usize = 64 << 10;

/// A block as it was read, its writer, and how far its records are whole.
struct Kept {
    bytes: Bytes,
    writer: WriterId,
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
    fn keep(&self, place: u64, writer: WriterId, bytes: Bytes) {
        let valid = bytes.len();
        self.kept.borrow_mut().put(place, Kept { bytes, writer, valid });
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
            Err(error @ Refused::Newer(..)) => {
                Err(Error::new(Status::NotSupported, "read").because(format!("a block's {error}")))
            }
            _ => Ok(None),
        }
    }

    /// Bytes in records of a writer's block; `None`: the block does not hold them any more, or not whole.
    /// After a compaction freed a block it may be another writer's.
    pub(super) async fn bytes(
        &self,
        place: u64,
        writer: WriterId,
        at: usize,
        len: usize,
    ) -> Result<Option<Bytes>> {
        let (end, block) = (at + len, self.settings.block as usize);
        let mut first = end.max(WINDOW_BYTES);
        if let Some(kept) = self.kept.borrow_mut().get(&place) {
            if kept.writer == writer && kept.valid >= end {
                return Ok(Some(kept.bytes.slice(at..end)));
            }
            first = block;
        }
        // The last record that is wanted may reach beyond the bytes that are wanted of it.
        for len in [first.min(block), block] {
            let bytes = self.raw(place, 0, len).await?;
            if self.header(place, &bytes)?.is_none_or(|header| header.writer != writer) {
                return Ok(None);
            }
            let mut records = Records::new(&bytes, HEADER_BYTES);
            records.by_ref().for_each(drop);
            let valid = records.position();
            let found = (valid >= end).then(|| bytes.slice(at..end));
            self.kept.borrow_mut().put(place, Kept { bytes, writer, valid });
            if found.is_some() || len == block {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

impl<B: Vfs> Shared<B> {
    /// Keep a block of this writer's that was just filled.
    pub(super) fn keep_full(&self, place: u64, bytes: Bytes) {
        if let Some(writer) = self.log.own.borrow().get(&Extent::of_place(place).0) {
            self.blocks.keep(place, *writer, bytes);
        }
    }

    /// The writer of the block that the index names now. It belongs to the piece: a later index may name
    /// another writer of the same block.
    pub(super) fn writer_of(&self, stored: Stored) -> Option<WriterId> {
        let extent = Extent::of_place(stored.place).0;
        let known = self.known.borrow().get(&extent).and_then(|known| known.writer);
        known.or_else(|| self.log.own.borrow().get(&extent).copied())
    }

    /// The bytes that the index names; `None`: their block is not that writer's any more.
    pub(super) async fn bytes_by(&self, writer: Option<WriterId>, stored: Stored) -> Result<Option<Bytes>> {
        let (at, len) = (stored.at as usize, stored.len as usize);
        if let Some(found) = self.log.buffered(stored.place, at, len) {
            return Ok(Some(found));
        }
        match writer {
            Some(writer) => self.blocks.bytes(stored.place, writer, at, len).await,
            None => Ok(None),
        }
    }

    /// The same, by the present index.
    pub(super) async fn bytes_of(&self, stored: Stored) -> Result<Option<Bytes>> {
        self.bytes_by(self.writer_of(stored), stored).await
    }
}
