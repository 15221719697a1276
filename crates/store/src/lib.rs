//! The persistency layer (the seeds' Trove).
//!
//! A *collection* is one file system's part on one server. It is created with a [`Module`]: `disk` (the product),
//! `memory` (the same semantics, nothing kept) or `null` (the thesis's analysis stub: metadata in memory, byte streams
//! acknowledged and not done). All modules pass one conformance suite ([`conformance`]).
//!
//! Two kinds of things are kept. *Rows*: one ordered key space a collection, read through a [`View`] by synchronous
//! handlers and changed only by [`Changes`], a batch that is atomic and has one place in the journal (its [`Lsn`]).
//! *Byte streams*, one per handle, whose facts (size, generation, time of the newest write, home) are a row too.
//!
//! The order of the world is the journal's order: a batch is visible to later handlers at once, and **no message may
//! leave before the records it depends on are durable** ([`View::depends_on`], [`Module::durable`]).

mod changes;
mod error;
mod module;
mod stream_row;
mod view;

pub use changes::{Changes, Strength, StreamChange};
pub use error::StoreError;
pub use module::{
    Admission, Ask, Collection, LossId, Lsn, Module, ModuleKind, Needs, Loaded, Row, Scan, Space, StoreCounters, SyncModes,
    DataSync, MetadataSync, Lookup,
};
pub use stream_row::{Home, StreamInfo};
pub use view::{Miss, View};
