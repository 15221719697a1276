//! The gate: no reply leaves before the records it depends on are as durable as the sync mode says (SEMANTICS
//! §1).
//!
//! A reply depends on the newest change that its handlers saw and on the change that they made. Its
//! [`Target`] states how durable these must be:
//!
//! ```text
//!   metadata mode      strong changes seen or made     data mode     weak changes made (small data writes)
//!   at reply           durable                         at reply      durable
//!   at fsync           written (write(2) has ended)    at fsync      written
//!   never              nothing                         at fsync      nothing, with metadata never
//! ```
//! A change of attributes alone is *deferred* ([`Strength::Deferred`]): its own reply waits only until the
//! change is written, also in mode *at reply*. Other replies that saw the change wait as the table says, and
//! cause a sync at once. Only replies to further changes of attributes by the same client do not wait for the
//! sync ([`crate::meta::deferred`]).
//!
//! With metadata *never*, a kill of the server may lose answered changes, except data that is durable at
//! reply (with the records before it). The reply names the server's start
//! ([`shoal_proto::message::Loss::start`]), so that a later fsync detects such a loss.
//!
//! A request may ask for another durability than the collection's modes ([`Durability`]). Then the line of
//! the table for that durability holds for its reply, and for no other reply.
//!
//! Waiting replies are kept in order of the LSN they wait for; at each step of the journal one task of the
//! shard releases all replies whose LSN is reached. When the store is poisoned, all waiting requests are
//! answered `Poisoned`, because it is not known whether their changes are kept.

use shoal_proto::Durability;
use shoal_store::{Collection, DataSync, Lsn, MetadataSync, Strength, SyncModes};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The target that a reply waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Written to the kernel up to here.
    pub written: Lsn,
    /// Durable up to here.
    pub durable: Lsn,
    /// And the journal has to be asked for that.
    pub asks: bool,
}

impl Target {
    /// The target of a group that saw changes up to `seen` and made the change `made`, whose request asked
    /// for `durability`.
    pub fn of(
        collection: SyncModes,
        durability: Durability,
        seen: Lsn,
        made: Option<(Lsn, Strength)>,
    ) -> Target {
        let modes = modes_for(collection, durability);
        let mut target = Target::default();
        let strong = match made {
            Some((lsn, Strength::Strong)) => seen.max(lsn),
            _ => seen,
        };
        match modes.metadata {
            MetadataSync::AtReply => {
                target.durable = strong;
                // Strong changes become durable by themselves where the collection says so; and its policy
                // says when.
                target.asks = strong > Lsn(0) && collection.metadata != MetadataSync::AtReply;
            }
            MetadataSync::AtFsync => target.written = strong,
            MetadataSync::Never => {}
        }
        if let Some((lsn, Strength::Weak)) = made {
            match modes.data {
                // Data alone never becomes durable by itself.
                DataSync::AtReply => {
                    target.durable = target.durable.max(lsn);
                    target.asks = true;
                }
                DataSync::AtFsync if modes.metadata == MetadataSync::Never => {}
                DataSync::AtFsync => target.written = target.written.max(lsn),
            }
        }
        if let Some((lsn, Strength::Deferred)) = made {
            match durability {
                Durability::Durable => {
                    target.durable = target.durable.max(lsn);
                    // A strong change that follows it is not synced by itself there.
                    target.asks |= collection.metadata != MetadataSync::AtReply;
                }
                _ => target = target.and(Target::of_deferred(modes, lsn)),
            }
        }
        target
    }

    /// The target of a reply that shows its asker's own deferred changes, up to this one.
    pub fn of_deferred(modes: SyncModes, lsn: Lsn) -> Target {
        match modes.metadata {
            MetadataSync::AtReply | MetadataSync::AtFsync => Target { written: lsn, ..Target::default() },
            MetadataSync::Never => Target::default(),
        }
    }

    /// Both.
    pub fn and(self, other: Target) -> Target {
        Target {
            written: self.written.max(other.written),
            durable: self.durable.max(other.durable),
            asks: self.asks || other.asks,
        }
    }

    fn is_met(self, collection: &Collection) -> bool {
        (self.durable == Lsn(0) || self.durable <= collection.durable())
            && (self.written == Lsn(0) || self.written <= collection.written())
    }
}

/// The modes that hold for a request.
pub fn modes_for(collection: SyncModes, durability: Durability) -> SyncModes {
    let (metadata, data) = match durability {
        Durability::Usual => return collection,
        Durability::Durable => (MetadataSync::AtReply, DataSync::AtReply),
        Durability::Written => (MetadataSync::AtFsync, DataSync::AtFsync),
        Durability::Unheld => (MetadataSync::Never, DataSync::AtFsync),
    };
    SyncModes { metadata, data, ..collection }
}

/// Whether a kill of the server alone would lose a request's changes under these modes; `made`: nothing, or
/// how strong a change.
pub fn is_lost_by_a_kill(modes: SyncModes, made: Option<Strength>) -> bool {
    modes.metadata == MetadataSync::Never
        && (modes.data != DataSync::AtReply || made.is_some_and(|strength| strength != Strength::Weak))
}

/// The released reply: called with whether the store is still usable.
pub type Leave = Box<dyn FnOnce(bool)>;

/// The gate of one shard.
#[derive(Default)]
pub struct Gate {
    by_durable: RefCell<BTreeMap<(Lsn, u64), (Target, Leave)>>,
    by_written: RefCell<BTreeMap<(Lsn, u64), (Target, Leave)>>,
    sequence: Cell<u64>,
}

impl Gate {
    /// Whether a reply may leave at once.
    pub fn is_open(&self, collection: &Collection, target: Target) -> bool {
        target.is_met(collection)
    }

    /// Let `leave` go when its target is met.
    pub fn wait(&self, collection: &Collection, target: Target, leave: Leave) {
        if target.durable > collection.durable() {
            match target.asks {
                true => collection.push_durable(),
                false => collection.want_durable(target.durable),
            }
        }
        if target.written > collection.written() {
            collection.push_written();
        }
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.queue(collection, sequence, target, leave);
    }

    fn queue(&self, collection: &Collection, sequence: u64, target: Target, leave: Leave) {
        let (queue, lsn) = if target.durable > collection.durable() {
            (&self.by_durable, target.durable)
        } else {
            (&self.by_written, target.written)
        };
        queue.borrow_mut().insert((lsn, sequence), (target, leave));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.by_durable.borrow().len() + self.by_written.borrow().len()
    }

    /// Whether no reply waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The journal moved, or is poisoned: release all free replies.
    pub fn release(&self, collection: &Collection) {
        let well = collection.health().is_ok();
        for (queue, upto) in
            [(&self.by_durable, collection.durable()), (&self.by_written, collection.written())]
        {
            loop {
                let mut waiting = queue.borrow_mut();
                let Some(first) = waiting.first_entry() else { break };
                if well && first.key().0 > upto {
                    break;
                }
                let (lsn, sequence) = *first.key();
                let (target, leave) = first.remove();
                drop(waiting);
                debug_assert!(lsn <= target.durable.max(target.written));
                match well && !target.is_met(collection) {
                    // Durable at last, and it waits for something newer to be written.
                    true => self.queue(collection, sequence, target, leave),
                    false => leave(well),
                }
            }
        }
    }
}
