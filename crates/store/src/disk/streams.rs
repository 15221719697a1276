//! Byte streams, and the bulk operations on them. The *home* of a stream is the place of its bytes: the
//! journal, a row, or a local file.

pub(super) mod after;
pub(super) mod bulk;
pub(super) mod contents;
pub(super) mod files;
pub(super) mod folders;
pub(super) mod gates;
pub(super) mod large;
pub(super) mod small;
pub(super) mod whole;
