//! The persistency layer (Trove in PVFS).
//!
//! A *collection* is one file system's part on one server. It is created with a [`Module`]: `disk` (the
//! usual one), `memory` (the same semantics in memory, lost at a stop of the server) or `null` (metadata in
//! memory, byte streams acknowledged and not kept: the analysis stub of J. Kunkel, *Performance Analysis of
//! the PVFS2 Persistency Layer*). All modules pass one conformance suite ([`conformance`]).
//!
//! Two kinds of state are kept. *Rows*: one ordered key space a collection, read through a [`View`] by
//! synchronous handlers and changed only by [`Changes`], a batch that is atomic and has one place in the
//! journal (its [`Lsn`]). *Byte streams*, one per handle. The facts of a stream are a row too: size,
//! generation, time of the newest write, and *home* (the place of its bytes).
//!
//! The journal's order is the only order: a batch is visible to later handlers at once, and **no message
//! may leave before the records it depends on are durable** ([`View::depends_on`], [`Module::durable`]).

mod changes;
mod config;
pub mod conformance;
mod disk;
mod error;
mod memory;
mod module;
mod null;
mod open;
mod runs;
mod stream_row;
mod view;

pub use changes::{Changes, StreamChange, Strength};
pub use config::{CollectionConfig, Identity};
#[doc(hidden)]
pub use disk::aged;
#[doc(hidden)]
pub use disk::hostile;
pub use error::StoreError;
pub use module::{
    Admission, Ask, Collection, DataSync, Follow, Leading, Leads, Loaded, LoadedRange, Lookup, LossId, Lsn,
    Merging, MetadataSync, Module, ModuleKind, Needs, Over, RangeNeed, Row, Scan, Space, StoreCounters,
    SyncModes,
};
pub use open::{open, succeed};
pub use stream_row::{Home, StreamInfo};
pub use view::{Excuse, Miss, View, look, settle};
