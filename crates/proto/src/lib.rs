//! The protocol between servers and clients: ids, limits, statuses, attributes, distributions, operations,
//! frames. No I/O.
//!
//! Read it in this order: [`ids`], [`attr`] and [`layout`] (objects), [`op`] (operations), [`tx`] (actions
//! of transactions between servers), [`message`] (compounds, and the handshake before them), [`frame`]
//! (bytes on a stream), [`seal`] (the proof that a frame is genuine). `docs/reference/WIRE.md` draws the
//! whole.
//!
//! **Invariant: everything that decodes is bounded by [`limits`]; no allocation trusts a count from the
//! input** (tests: `lengths_over_the_limits_are_refused_before_anything_is_reserved`,
//! `every_decoder_stands_its_corpus_and_some_thousand_mutations_of_it`). **Invariant: one operation, one
//! name** ([`op::Op::name`]; test: `the_samples_hold_every_variant_and_every_name_is_used_once`).

pub mod attr;
pub mod capability;
pub mod cluster;
mod durability;
pub mod frame;
pub mod ids;
pub mod keys;
mod layout;
pub mod limits;
pub mod locks;
pub mod message;
pub mod mount_keys;
pub mod op;
#[doc(hidden)]
pub mod samples;
pub mod seal;
pub mod shards;
mod status;
pub mod switches;
pub mod tx;
pub mod wire;

pub use attr::{Attr, Kind, Move, SetAttr, StreamFacts, Time};
pub use capability::{Capability, Rights, SecretKey};
pub use cluster::{ClusterMap, Roles, ServerInfo};
pub use durability::Durability;
pub use frame::{Frame, FrameKind};
pub use ids::{
    ChangeCount, CollectionId, Generation, Handle, MountKeyId, ServerId, SessionId, Slot, StoreId, TxId,
};
pub use keys::Keys;
pub use layout::{Dist, Layout, Share, Striping, Template};
pub use locks::{LockClaim, LockHolder, LockKind, LockOwner, LockRange, LockRanges, LockState};
pub use message::{Group, GroupReply, Peer, Reply, Request, SlotUse};
pub use mount_keys::{KeyLimits, MountKey};
pub use op::{Allocation, Answer, Dead, Entry, Held, Op, Owner, Place, Transfer, Vouched};
pub use seal::Seal;
pub use shards::{PlaceKey, ShardEntry, Shards};
pub use shoal_pattern::codec;
pub use status::Status;
pub use switches::{Coalescing, Placement, Switches};
pub use tx::{Action, ClientId, Decision};
pub use wire::{Blob, Many, Name, Text};
