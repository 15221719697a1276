//! Changes of the client's own names: create, remove, rename, replace, exchange. Then lookups of removed
//! names, and opens of objects that another client removed.

use super::{End, LANE, OWNER, Worker, name};
use crate::contents::{Act, Length, filled};
use crate::ledger::{KnownObject, ObjectId, Slot};
use crate::losses::{Held, Stamp};
use crate::register::Seen;
use shoal_client::RenameFlags;
use shoal_proto::{Durability, Handle, Kind, Status, Switches};

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
pub(super) const REPLACE: RenameFlags = RenameFlags { no_replace: false, exchange: false };
pub(super) const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

impl Worker {
    pub(super) async fn create(&mut self) {
        let dir = self.directory();
        self.create_in(dir, false).await;
    }

    /// A new file of its own, written. The directory may vanish meanwhile, if it is a contended one.
    pub(super) async fn create_in(&mut self, dir: Handle, may_vanish: bool) {
        let len = [0, 100, 1500, 5_000, 16_384, 40_000, 65_536, 200_000][self.rng.below(8) as usize];
        let slot = (dir.0, self.fresh_name());
        let tag = self.rng.next_u64() | 1;
        let (now, stamp, made_held) = (self.now(), self.shared.now(), self.held_metadata());
        let object = self.new_object(Kind::File);
        let act = Act {
            kind: "create",
            client: self.id,
            scope: self.scope,
            called: now,
            stamp: stamp.clone(),
            held: self.held_created(len),
            noted: self.told_lost("create", self.asks),
            ranges: std::iter::once(0..len).collect(),
            tag,
            length: Length::Reaches(len),
            base: Some(0),
            ..Act::default()
        };
        let act = self.with_contents(object, |contents| contents.begin(act));
        let words = format!("create {slot:?} of {len} bytes");
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let content = filled(tag, 0, len as usize).into();
        let made = client.create_write(dir, &leaf, OWNER, content, None);
        let vanished = if may_vanish { &GONE[..] } else { &[] };
        match self.change("create", &words, vanished, vec![(slot, Some(object))], made).await {
            End::Done(attr) => {
                let (now, stuffed, held) = (self.now(), self.stuffed(attr.handle), self.held_created(len));
                self.shared.totals.borrow_mut().history.push(format!("{words} is {}", attr.handle));
                self.made(object, attr.handle, &stamp);
                self.with_object(object, |object| {
                    object.contents.made(attr.handle.server().0, stuffed, self.strip());
                    object.contents.learn(&attr);
                    object.contents.done(act, now, held);
                });
                if attr.size != len && stamp == self.shared.now() {
                    self.violation(&words, format!("expected {len} bytes, found {}", attr.size));
                }
            }
            End::Refused(_) => {}
            // It was made, and a fault took it before it was written.
            End::Unknown(error)
                if error.status == Status::Stale
                    && stamp.is_lost_by_any(&self.shared.now(), &[], made_held.min(self.held_metadata())) => {
            }
            End::Unknown(error) if GONE.contains(&error.status) || error.status == Status::Exists => {
                self.wrong(&words, error.status);
            }
            End::Unknown(_) => {}
        }
    }

    /// How the bytes of a new file are held: bytes made with their file in one record, as the file.
    fn held_created(&self, len: u64) -> Held {
        const SMALL_MAX: u64 = 16 << 10;
        let metadata = self.held_metadata();
        match len <= SMALL_MAX && self.shared.switches == Switches::OURS && self.shared.scene.all_hold_data {
            true => metadata,
            false => metadata.min(self.held_data(self.asks)),
        }
    }

    /// An object was made by a change that was requested after these faults.
    pub(super) fn made(&self, object: ObjectId, handle: Handle, stamp: &Stamp) {
        self.shared.ledger.borrow_mut().made(object, handle, stamp, self.held_metadata());
    }

    pub(super) fn new_object(&self, kind: Kind) -> ObjectId {
        let object = KnownObject::new(kind, OWNER.mode, OWNER.uid, OWNER.gid);
        self.shared.ledger.borrow_mut().object(object)
    }

    pub(super) async fn unlink(&mut self) {
        let Some((slot, object)) = self.own(|_| true) else { return };
        self.unlink_name(&slot, object).await;
    }

    /// Remove an own name; whether that was acknowledged.
    pub(super) async fn unlink_name(&mut self, slot: &Slot, object: ObjectId) -> bool {
        let (client, leaf, dir) = (self.client.clone(), name(&slot.1), Handle(slot.0));
        let is_directory = self.with_object(object, |object| object.kind == Kind::Directory);
        let changes = vec![(slot.clone(), None)];
        let end = if is_directory {
            self.change("rmdir", &format!("rmdir {slot:?}"), &GONE, changes, client.rmdir(dir, &leaf)).await
        } else {
            self.change("unlink", &format!("unlink {slot:?}"), &GONE, changes, client.unlink(dir, &leaf))
                .await
        };
        match end {
            End::Done(()) => {
                self.lost_name(object);
                true
            }
            End::Refused(status) => {
                self.wrong_name(&format!("unlink {slot:?}"), &[slot], status);
                false
            }
            End::Unknown(_) => false,
        }
    }

    /// It lost a name, acknowledged: perhaps its last.
    pub(super) fn lost_name(&self, object: ObjectId) {
        if self.shared.ledger.borrow().links(object) == Some(0) {
            self.shared.removed.borrow_mut().push((self.id, object));
        }
    }

    pub(super) async fn rename(&mut self) {
        let is_file = |object: &KnownObject| object.kind != Kind::Directory;
        match self.rng.below(10) {
            0..4 => self.rename_to_fresh().await,
            4..7 => {
                let (a, b) = (self.own(is_file), self.own(is_file));
                let (Some(a), Some(b)) = (a, b) else { return };
                let flags = [REPLACE, NO_REPLACE, EXCHANGE][self.rng.below(3) as usize];
                self.rename_onto_own(a, b, flags).await;
            }
            _ => self.rename_onto_hot().await,
        }
    }

    async fn rename_to_fresh(&mut self) {
        let Some((from, object)) = self.own(|_| true) else { return };
        let to = (self.directory().0, self.fresh_name());
        let flags = if self.rng.below(2) == 0 { REPLACE } else { NO_REPLACE };
        let changes = vec![(from.clone(), None), (to.clone(), Some(object))];
        self.rename_own(&from, &to, flags, changes, &[]).await;
    }

    /// One own name onto another.
    async fn rename_onto_own(&mut self, a: (Slot, ObjectId), b: (Slot, ObjectId), flags: RenameFlags) {
        let ((from, moved), (to, replaced)) = (a.clone(), b.clone());
        if from == to {
            return;
        }
        let changes = onto_own(&a, &b, flags);
        if flags.no_replace {
            self.rename_own(&from, &to, flags, changes, &[Status::Exists]).await;
            return;
        }
        let is_lost = moved != replaced && !flags.exchange;
        if self.rename_own(&from, &to, flags, changes, &[]).await && is_lost {
            self.lost_name(replaced);
        }
    }

    /// Rename; whether it was acknowledged. `expected`: refusals that must be.
    pub(super) async fn rename_own(
        &self,
        from: &Slot,
        to: &Slot,
        flags: RenameFlags,
        changes: Vec<(Slot, Option<ObjectId>)>,
        expected: &[Status],
    ) -> bool {
        let words = format!("rename {from:?} {to:?} {flags:?}");
        let (client, from_name, to_name) = (self.client.clone(), name(&from.1), name(&to.1));
        let renamed = client.rename(Handle(from.0), &from_name, Handle(to.0), &to_name, flags);
        let refusals = [Status::Stale, Status::NotFound, Status::Exists];
        match self.change("rename", &words, &refusals, changes, renamed).await {
            End::Done(()) if expected.is_empty() => return true,
            End::Done(()) if !self.are_settled(from, to) => {}
            End::Done(()) => self.violation(&words, format!("expected {expected:?}, found it done")),
            End::Refused(status) if expected.contains(&status) => {}
            End::Refused(status) => self.wrong_name(&words, &[from, to], status),
            End::Unknown(_) => {}
        }
        false
    }

    fn are_settled(&self, from: &Slot, to: &Slot) -> bool {
        let ledger = self.shared.ledger.borrow();
        ledger.is_settled(from) && ledger.is_settled(to)
    }

    /// Move an own file onto a contended name.
    async fn rename_onto_hot(&mut self) {
        // One that has a contended name already may be renamed to itself, which does nothing.
        let is_file = |object: &KnownObject| object.kind == Kind::File && !object.is_public;
        let Some((from, object)) = self.own(is_file) else { return };
        self.ask_for(Durability::Usual);
        let (dir, leaf) = (self.directory(), self.hot_name());
        let to = (dir.0, leaf);
        let flags = if self.rng.below(2) == 0 { REPLACE } else { NO_REPLACE };
        let words = format!("rename {from:?} {to:?} {flags:?}");
        self.make_public(object).await;
        let handle = self.handle(object).0;
        let maybe = if flags.no_replace { Seen::MaybeTook(handle) } else { Seen::MaybePut(handle) };
        let event = self.note(&to, "rename", maybe);
        let (client, from_name, to_name) = (self.client.clone(), name(&from.1), name(&to.1));
        let renamed = client.rename(Handle(from.0), &from_name, dir, &to_name, flags);
        let refusals = [Status::Stale, Status::NotFound, Status::Exists];
        let changes = vec![(from.clone(), None)];
        let seen = match self.change("rename", &words, &refusals, changes, renamed).await {
            End::Done(()) if flags.no_replace => Some(Seen::Made(handle)),
            End::Done(()) => Some(Seen::Put(handle)),
            End::Refused(Status::Exists) if flags.no_replace => Some(Seen::Occupied),
            End::Refused(status) => {
                self.wrong_name(&words, &[&from], status);
                Some(Seen::Nothing)
            }
            End::Unknown(_) => None,
        };
        self.noted(&to, event, seen);
    }

    /// Others may remove it from now on: it is held open no longer.
    pub(super) async fn make_public(&mut self, object: ObjectId) {
        self.with_object(object, |object| object.is_public = true);
        while let Some(at) = self.held.iter().position(|held| held.object == object) {
            let held = self.held.swap_remove(at);
            self.let_go(held).await;
        }
    }

    /// A removed name stays removed, and so does its object.
    pub(super) async fn look_up_gone(&mut self) {
        if self.rng.below(2) == 0 {
            return self.open_removed().await;
        }
        let gone = self.shared.ledger.borrow().gone(self.id);
        let Some(slot) = self.rng.pick(&gone).cloned() else { return };
        let words = format!("look up removed {slot:?}");
        let (client, leaf) = (self.client.clone(), name(&slot.1));
        let lookup = client.lookup(Handle(slot.0), &leaf);
        if let End::Done(attr) = self.run("lookup", &words, &GONE, lookup).await
            && self.shared.ledger.borrow().is_settled(&slot)
        {
            self.violation(&words, format!("expected nothing, found {}", attr.handle));
        }
    }

    /// An object without a name is gone for all clients but those that have it open.
    async fn open_removed(&mut self) {
        let removed: Vec<(u16, ObjectId)> = self.shared.removed.borrow().clone();
        let Some((owner, object)) = self.rng.pick(&removed).copied() else { return };
        if owner % LANE == self.client_number() || self.client.has_open(self.handle(object)) {
            return;
        }
        let handle = self.handle(object);
        let words = format!("open {handle}, which client {owner} removed");
        let client = self.client.clone();
        let opened = client.open(handle, shoal_proto::Rights::READ);
        if let End::Done(file) = self.run("open", &words, &GONE, opened).await
            && self.shared.ledger.borrow().links(object) == Some(0)
        {
            drop(file);
            match self.closed_lately(object) {
                true => self.is_gone_at_last(&words, object).await,
                false => self.violation(&words, "expected it to be gone, found it"),
            }
        }
    }
}

/// The possible changes of a rename of one name onto another that has an object.
fn onto_own(
    (from, moved): &(Slot, ObjectId),
    (to, replaced): &(Slot, ObjectId),
    flags: RenameFlags,
) -> Vec<(Slot, Option<ObjectId>)> {
    if moved == replaced && !flags.no_replace {
        // Two names of one object: both stay.
        Vec::new()
    } else if flags.exchange {
        vec![(from.clone(), Some(*replaced)), (to.clone(), Some(*moved))]
    } else {
        // With no_replace it is refused; where no answer comes it may be done late, when its target has moved
        // away.
        vec![(from.clone(), None), (to.clone(), Some(*moved))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_that_must_be_refused_and_is_not_answered_may_be_done_late() {
        let (from, to) = ((1, "from".to_owned()), (1, "to".to_owned()));
        for replaced in [0, 1] {
            let changes = onto_own(&(from.clone(), 0), &(to.clone(), replaced), NO_REPLACE);
            assert_eq!(changes, [(from.clone(), None), (to.clone(), Some(0))]);
        }
        assert!(onto_own(&(from.clone(), 0), &(to.clone(), 0), REPLACE).is_empty());
    }
}
