//! Extents of streams, and the requests that wait at an extent.

use shoal_proto::Handle;

/// Bytes of a block (Galley's).
pub const BLOCK_BYTES: u64 = 32 * 1024;
/// A block is sparse of which less than this part is wanted, in at most so many pieces.
const SPARSE: u64 = 64;
/// See [`SPARSE`].
const SPARSE_PIECES_MAX: usize = 8;

/// Bytes of a stream, of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The disk of the stream's file, for the order of steps: the same bytes may be known under another one.
    pub disk: u16,
    /// The stream.
    pub stream: Handle,
    /// The first byte.
    pub from: u64,
    /// Bytes.
    pub len: u64,
    /// The generation that the requests know.
    pub generation: u64,
}

impl Extent {
    /// The byte after it.
    pub fn end(&self) -> u64 {
        self.from.saturating_add(self.len)
    }

    /// Whether it is a block, and not a longer run.
    pub fn is_block(&self) -> bool {
        self.len == BLOCK_BYTES && self.from.is_multiple_of(BLOCK_BYTES)
    }

    pub(super) fn meets(&self, other: &Extent) -> bool {
        self.stream == other.stream && self.from < other.end() && other.from < self.end()
    }

    pub(super) fn first_of(stream: Handle) -> Extent {
        Extent { disk: 0, stream, from: 0, len: 0, generation: 0 }
    }
}

/// The wish of one request at an extent.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The request's number.
    pub request: u64,
    /// It writes.
    pub is_write: bool,
    /// Its bytes in the extent, and in how many pieces they lie.
    pub bytes: u64,
    /// See `bytes`.
    pub pieces: usize,
}

/// The requests that wait at an extent.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those that read, in order of arrival.
    pub readers: Vec<u64>,
    /// Those that write, in order of arrival.
    pub writers: Vec<u64>,
    bytes_read: u64,
    pieces_read: usize,
    bytes_written: u64,
    pieces_written: usize,
}

impl Wanted {
    pub(super) fn add(&mut self, wish: Wish) {
        if wish.is_write {
            self.writers.push(wish.request);
            self.bytes_written += wish.bytes;
            self.pieces_written += wish.pieces;
        } else {
            self.readers.push(wish.request);
            self.bytes_read += wish.bytes;
            self.pieces_read += wish.pieces;
        }
    }

    /// Whether it is read, and so little of it that the rest of the block is not worth reading.
    pub fn is_sparse(&self) -> bool {
        self.writers.is_empty()
            && self.pieces_read <= SPARSE_PIECES_MAX
            && self.bytes_read * SPARSE < BLOCK_BYTES
    }

    /// Whether company could fill gaps between the parts that are written.
    pub(super) fn has_gaps(&self, extent: &Extent) -> bool {
        self.readers.is_empty() && self.pieces_written > 1 && self.bytes_written < extent.len
    }
}
