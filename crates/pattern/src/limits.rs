//! The limits of a pattern, in one place.
//!
//! The limits are the same for patterns made in this process and for patterns read from the wire, so no
//! pattern fails only when it is sent. Lists are the exception: a list that is longer than a request may hold
//! is sent in parts ([`Pattern::requests`](crate::Pattern::requests)). The limits are chosen so that no
//! arithmetic in this crate can overflow: packed positions fit `i64`, offsets fit `i64`, and the sum of two
//! packed positions fits `u64`.

/// Levels a nested pattern may have, after levels of quantity 1 are dropped. Eight is one more than the
/// dimensions of any array that MPI or HDF5 programs are known to describe in practice.
pub const NESTING_DEPTH_MAX: usize = 8;

/// Regions in a list pattern, and strided runs in a compressed one: 192 MiB of memory.
pub const LIST_REGIONS_MAX: usize = 1 << 22;

/// Those of them that one request carries, and the nodes of a batched tree: 64 KiB of list at most.
pub const REQUEST_REGIONS_MAX: usize = 4096;

/// Vectors inside each other in a batched tree as it is given. Its normal form, in which every vector is
/// repeated, has at most [`NESTING_DEPTH_MAX`] levels; its nodes count against [`REQUEST_REGIONS_MAX`].
pub const BATCH_DEPTH_MAX: usize = 16;

/// Streams of ascending offsets that a walk in order of offsets may merge
/// ([`Pattern::by_offset`](crate::Pattern::by_offset)): as many as a request's list has regions. 1.3 MiB at
/// most.
pub const ORDER_STREAMS_MAX: usize = REQUEST_REGIONS_MAX;

/// Nodes that a [`Compressor`](crate::Compressor) keeps: less than 200 KiB.
pub const COMPRESSOR_KNOTS_MAX: usize = 2048;

/// Items that may repeat together in a [`Compressor`](crate::Compressor): the fields of a row of a table.
pub const COMPRESSOR_PERIOD_MAX: usize = 8;

/// Sums that a count of an object's bytes may take ([`share_len`](crate::share_len)): some milliseconds.
pub const COUNT_SUMS_MAX: usize = 4096;

/// Packed bytes of one pattern: the largest offset a file can have.
pub const PACKED_BYTES_MAX: u64 = i64::MAX as u64;
