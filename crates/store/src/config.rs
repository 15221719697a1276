//! The configuration of a collection.

use crate::{ModuleKind, SyncModes};
use shoal_proto::StoreId;
use std::path::PathBuf;

/// The owner of a folder's data. Kept in the folder; a folder of another identity is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// The file system's id, drawn once when it was made.
    pub fs: [u8; 16],
    /// The collection's number.
    pub collection: u32,
    /// The server's number.
    pub server: u16,
}

/// How to open a collection. [`CollectionConfig::new`] sets sensible values; the limits are for studies and
/// tests.
#[derive(Clone, Debug)]
pub struct CollectionConfig {
    /// The folder that holds everything (module `disk`; the others keep nothing).
    pub dir: PathBuf,
    /// Folders for the files of large streams, on disks of their own: new files go to these. None: to the
    /// store's folder, or to those that it had before. One that is new is added; none may be taken away.
    pub stream_folders: Vec<PathBuf>,
    /// The module: the one a new collection gets; an existing folder of another module is refused.
    pub module: ModuleKind,
    /// The owner of the data.
    pub identity: Identity,
    /// Make the collection if the folder holds none. Without: a folder that holds none is refused as
    /// [`StoreError::Missing`](crate::StoreError::Missing), and stays as it is.
    pub create: bool,
    /// The store that the folder must hold, or that is made. [`StoreId::NONE`]: any store is accepted, and
    /// a new one is drawn at random.
    pub store: StoreId,
    /// Sync modes of a new collection; an existing one has kept its own.
    pub sync_modes: SyncModes,
    /// Bytes of a journal segment; a multiple of 4,096. Fixed when the collection is made.
    pub segment_bytes: u64,
    /// A group takes no more batches beyond this many bytes (one large batch may exceed it).
    pub group_bytes_max: usize,
    /// Most rows of the active table before it is frozen.
    pub table_rows_max: usize,
    /// Most bytes of keys and values of the active table before it is frozen.
    pub table_bytes_max: usize,
    /// Most rows of one part of a checkpoint.
    pub part_rows_max: usize,
    /// Most bytes of records that wait to be written: above, changes wait.
    pub queue_bytes_max: usize,
    /// Most cached rows that were read from the checkpointed table, and as many rows of tables that were
    /// checkpointed lately.
    pub row_cache_rows: usize,
    /// Most bytes of them.
    pub row_cache_bytes: usize,
    /// Bytes of the Bloom filter of the checkpointed keys; about one byte a key is good.
    pub bloom_filter_bytes: usize,
    /// Bytes of contents of small streams kept in memory.
    pub data_cache_bytes: usize,
    /// Local files of streams kept open.
    pub open_files: usize,
    /// Bytes of free space kept for removals and recovery.
    pub reserve_bytes: u64,
    /// Bytes of address space of a new checkpointed table; grows automatically. A multiple of the page
    /// size.
    pub table_map_bytes: usize,
    /// Most bytes of memory of modules that keep nothing.
    pub memory_bytes_max: u64,
}

impl CollectionConfig {
    /// Smallest segment: a group of one largest batch and some.
    pub const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
    /// Largest segment: a content's offset in it is 32 bits.
    pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

    /// Free segments kept ready, where the disk has room: each start takes one. On a full disk no checkpoint
    /// frees any, and the server may be stopped and started again.
    pub const SEGMENTS_READY: usize = 2;

    /// Default memory for cached rows and contents.
    pub const CACHE_BYTES: usize = 64 << 20;
    /// Approximate memory of a cached row.
    const ROW_BYTES: usize = 256;

    /// The same with so much memory for cached rows and contents: half for each.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> CollectionConfig {
        CollectionConfig {
            data_cache_bytes: bytes / 2,
            row_cache_bytes: bytes / 2,
            row_cache_rows: (bytes / 2 / CollectionConfig::ROW_BYTES).max(1000),
            ..self
        }
    }

    /// A collection in `dir`, made if there is none, with the default limits.
    pub fn new(dir: impl Into<PathBuf>, module: ModuleKind, identity: Identity) -> CollectionConfig {
        CollectionConfig {
            dir: dir.into(),
            stream_folders: Vec::new(),
            module,
            identity,
            create: true,
            store: StoreId::NONE,
            sync_modes: SyncModes::default(),
            segment_bytes: 32 << 20,
            group_bytes_max: 1 << 20,
            table_rows_max: 100_000,
            table_bytes_max: 64 << 20,
            part_rows_max: 16_384,
            queue_bytes_max: 16 << 20,
            row_cache_rows: 200_000,
            row_cache_bytes: 64 << 20,
            bloom_filter_bytes: 8 << 20,
            data_cache_bytes: 64 << 20,
            open_files: 512,
            reserve_bytes: 128 << 20,
            table_map_bytes: 1 << 30,
            memory_bytes_max: 16 << 30,
        }
    }
}
