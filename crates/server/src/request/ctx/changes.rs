//! The changes that one run of a handler makes. It changes rows and streams of this server directly, or
//! plans actions for a transaction over several servers.

use super::{Ctx, Stopped};
use crate::data::change_counts;
use crate::meta::keys;
use crate::meta::rows::RowValue;
use crate::request::locks::Mode;
use bytes::Bytes;
use shoal_proto::{Action, Handle, Move, ServerId, Status};
use shoal_store::{Changes, StreamChange, StreamInfo, Strength};
use std::collections::BTreeMap;

/// The changes of a run so far.
#[derive(Default)]
pub(super) struct Made {
    /// Rows, as the rest of the group sees them.
    pub(super) rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Streams, likewise.
    pub(super) streams: BTreeMap<Handle, Option<(StreamInfo, Bytes)>>,
    /// The newest move of the change counts of streams that this group changes.
    pub(super) moved: BTreeMap<Handle, Move>,
    changes: Changes,
    /// Something else than data and attributes was changed.
    is_strong: bool,
    /// Attributes were changed.
    is_deferred: bool,
    /// Data was changed.
    is_weak: bool,
    local: Vec<Action>,
    remote: BTreeMap<ServerId, Vec<Action>>,
    to_split: Option<Handle>,
}

/// The result of a group.
pub struct Outcome {
    /// Changes of this server's rows.
    pub changes: Changes,
    /// Actions of this server, to be applied at the moment of decision. Empty unless `remote` has any, or
    /// they hold the rename lock (the plan rests on facts of other servers): then all of the group's effects
    /// are actions.
    pub local: Vec<Action>,
    /// Actions of other servers.
    pub remote: BTreeMap<ServerId, Vec<Action>>,
    /// A directory that has grown so large that it is to be split.
    pub to_split: Option<Handle>,
}

impl Ctx<'_> {
    /// Put a row of this server.
    pub fn put<T: RowValue>(&mut self, key: Bytes, value: &T) -> Result<(), Stopped> {
        self.put_raw(key, Some(value.to_row()))
    }

    /// Remove a row of this server.
    pub fn remove(&mut self, key: Bytes) -> Result<(), Stopped> {
        self.put_raw(key, None)
    }

    /// Put or remove a row, as bytes. Stops at another transaction's exclusive lock.
    pub fn put_raw(&mut self, key: Bytes, value: Option<Bytes>) -> Result<(), Stopped> {
        if !self.around.locks.is_empty() && self.around.locks.stops(&key, Mode::Shared, self.own) {
            return Err(Stopped::Locked(key));
        }
        self.inodes.get_mut().retain(|(of, _)| keys::inode_read(*of) != key[..]);
        self.made.rows.insert(key.clone(), value.clone());
        self.made.changes.rows.push((key, value));
        self.made.is_strong = true;
        Ok(())
    }

    /// Change a stream of this server.
    pub fn change_stream(&mut self, handle: Handle, change: StreamChange) -> Result<(), Stopped> {
        let info = self.stream(handle)?;
        let keeps_content = matches!(change, StreamChange::Resize { .. } | StreamChange::Advance { .. });
        let content = match info {
            Some(info) if info.small && keeps_content => self.small_content(handle)?,
            _ => Bytes::new(),
        };
        let next = crate::meta::inode::stream_after(info, &content, &change);
        self.made.streams.insert(handle, next);
        if change_counts::moves(&change, info.map(|info| info.size)) {
            self.made
                .moved
                .insert(handle, Move { from: self.count_of(handle), to: self.around.counts.draw() });
        }
        self.made.changes.streams.push((handle, change));
        self.made.is_strong = true;
        Ok(())
    }

    /// Change a stream by a data write: as long as a group does nothing else, its reply does not wait for the
    /// sync unless the data mode says so.
    pub fn write_stream(&mut self, handle: Handle, change: StreamChange) -> Result<(), Stopped> {
        self.weakly(|ctx| ctx.change_stream(handle, change))
    }

    /// Change something that need be no more durable than the data that is written with it.
    pub fn weakly(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Stopped>) -> Result<(), Stopped> {
        let strong = self.made.is_strong;
        change(self)?;
        self.made.is_strong = strong;
        self.made.is_weak = true;
        Ok(())
    }

    /// Change attributes alone: as long as a group does nothing else, its own answer does not wait for a
    /// sync.
    pub fn deferring(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let strong = self.made.is_strong;
        change(self)?;
        self.made.is_strong = strong;
        self.made.is_deferred = true;
        Ok(())
    }

    /// This directory has grown to where it is to be split.
    pub fn wants_split(&mut self, dir: Handle) {
        self.made.to_split = Some(dir);
    }

    /// Whether this group changed nothing so far: bulk work is done only then, since it is done before the
    /// group's end.
    pub fn is_unchanged(&self) -> bool {
        self.made.changes.is_empty() && self.made.local.is_empty() && self.made.remote.is_empty()
    }

    /// Plan an action on the server of the object it concerns (`RenameLock`: server 0). All actions of a
    /// group are one transaction.
    pub fn act(&mut self, server: ServerId, action: Action) {
        if server == self.identity.id {
            self.made.local.push(action);
        } else {
            self.made.remote.entry(server).or_default().push(action);
        }
    }

    /// Actions on other servers were planned: the group is a transaction over servers.
    pub fn is_distributed(&self) -> bool {
        !self.made.remote.is_empty()
    }

    /// The requesting client opens this file. If a file is made on another server, the client reports the
    /// open to that one.
    pub fn opened(&self, object: Handle) {
        if object.server() == self.identity.id {
            self.around.sessions.openers.opened(object, self.client);
        }
    }

    /// The asking client has this file open, still.
    pub fn held_open(&self, object: Handle) {
        self.around.sessions.openers.held(object, self.client);
    }

    /// End the run. Where only this server is concerned, its actions are applied now and become changes; else
    /// direct changes and actions must not be mixed. The change counts move: the changes are applied before
    /// any other request runs.
    pub fn finish(&mut self) -> Result<Outcome, Stopped> {
        if self.made.remote.is_empty() && !self.made.local.contains(&Action::RenameLock {}) {
            for action in std::mem::take(&mut self.made.local) {
                crate::txn::actions::apply(self, &action)?;
            }
        } else if !self.made.changes.is_empty() {
            return Err(Stopped::Status(Status::NotSupported));
        }
        self.made.moved.iter().for_each(|(&stream, moved)| self.around.counts.set(stream, moved.to));
        self.made.changes.strength = match (self.made.is_strong, self.made.is_deferred, self.made.is_weak) {
            (false, false, _) => Strength::Weak,
            (false, true, false) => Strength::Deferred,
            _ => Strength::Strong,
        };
        let changes = std::mem::take(&mut self.made.changes);
        let (local, remote) = (std::mem::take(&mut self.made.local), std::mem::take(&mut self.made.remote));
        Ok(Outcome { changes, local, remote, to_split: self.made.to_split.take() })
    }
}
