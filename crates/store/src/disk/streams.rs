//! Byte streams: the homes of their bytes, and the bulk operations on them.

pub(super) mod after;
pub(super) mod bulk;
pub(super) mod contents;
pub(super) mod files;
pub(super) mod folders;
pub(super) mod gates;
pub(super) mod large;
pub(super) mod small;
pub(super) mod whole;
