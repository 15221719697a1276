//! Bytes of files: transfers, sizes, layouts, and the removal of their datafiles.
//!
//! They check rights and layouts here and leave the bytes to the [data engine](crate::data).

pub(crate) mod allocate;
pub(crate) mod append;
pub(crate) mod fsync;
pub(crate) mod read;
pub(crate) mod reap;
pub(crate) mod setlayout;
pub(crate) mod streamstat;
pub(crate) mod truncate;
pub(crate) mod unstuff;
pub(crate) mod write;
