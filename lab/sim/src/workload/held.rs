//! A file that loses its last name while it is open. The client that has it open uses it until the last
//! close; for other clients the file is gone.

use super::{End, Worker, name};
use crate::ledger::{KnownObject, ObjectId, Slot};
use shoal_client::RenameFlags;
use shoal_env::Instant;
use shoal_proto::{Handle, Kind, Rights, Status};
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// A session that is silent for a minute ends, and its open files with it.
const SESSION_LASTS: Duration = Duration::from_secs(50);
/// A server that did not answer for two leases keeps nothing for its clients.
const CLOSED_LATELY: Duration = Duration::from_secs(120);
/// Pauses before the looks at a removed file that everybody has closed.
const LOOKS_S: [u64; 6] = [0, 1, 10, 60, 60, 60];

impl Worker {
    pub(super) async fn remove_held(&mut self) {
        let is_file = |object: &KnownObject| object.kind == Kind::File && !object.is_public;
        let Some((slot, object)) = self.own(is_file) else { return };
        let Some(at) = self.opened(object).await else { return };
        let file = self.held[at].file.clone();
        let began = self.env.now();
        let removed = if self.rng.below(2) == 0 {
            self.unlink_name(&slot, object).await
        } else {
            self.replace(&slot, object).await
        };
        // Others of the client may close it meanwhile; this holds it all the same.
        if !removed || self.shared.ledger.borrow().links(object) != Some(0) {
            return;
        }
        let words = format!("read {} held open and removed", file.handle());
        let len = self.with_contents(object, |contents| contents.reach()) + 10;
        let called = self.now();
        match self.run("read", &words, &GONE, file.read(0, len as usize)).await {
            End::Done(content) => self.judge_read(&words, object, called, (0, len), &content),
            End::Refused(status) if self.env.now().since(began) < SESSION_LASTS => {
                self.wrong_of(&words, object, status);
            }
            End::Refused(_) | End::Unknown(_) => {}
        }
        if self.rng.below(2) == 0 {
            drop(file);
            self.close_removed(object).await;
        }
    }

    /// Rename another own file over it; whether that was acknowledged.
    pub(super) async fn replace(&mut self, to: &Slot, object: ObjectId) -> bool {
        let other = self.own(|object| object.kind == Kind::File && !object.is_public);
        // A fork does not leave its subfile.
        let may_move = |from: &Slot| !self.is_of_forks() || from.0 == to.0;
        let may_replace = |(from, moved): &(Slot, ObjectId)| from != to && *moved != object && may_move(from);
        let Some((from, moved)) = other.filter(may_replace) else {
            return false;
        };
        let words = format!("rename {from:?} {to:?}, which is held open");
        let (client, from_name, to_name) = (self.client.clone(), name(&from.1), name(&to.1));
        let flags = RenameFlags::default();
        let renamed = client.rename(Handle(from.0), &from_name, Handle(to.0), &to_name, flags);
        let changes = vec![(from.clone(), None), (to.clone(), Some(moved))];
        match self.change("rename", &words, &GONE, changes, renamed).await {
            End::Done(()) => {
                self.lost_name(object);
                true
            }
            End::Refused(status) => {
                self.wrong_name(&words, &[&from, to], status);
                false
            }
            End::Unknown(_) => false,
        }
    }

    /// With its last close it is gone for everybody, sooner or later.
    pub(super) async fn close_removed(&mut self, object: ObjectId) {
        let handle = self.handle(object);
        while let Some(at) = self.held.iter().position(|held| held.object == object) {
            let held = self.held.swap_remove(at);
            if !self.let_go(held).await {
                return;
            }
        }
        if self.is_open_here(object) || self.shared.ledger.borrow().links(object) != Some(0) {
            return;
        }
        let words = format!("open {handle}, removed and closed");
        self.is_gone_at_last(&words, object).await;
    }

    /// No lane of this client has the file open: it is gone at once, unless another client may have it open:
    /// then a lease later.
    pub(super) async fn is_gone_at_last(&self, words: &str, object: ObjectId) {
        let (client, handle) = (self.client.clone(), self.handle(object));
        for pause_s in LOOKS_S {
            self.env.sleep(Duration::from_secs(pause_s)).await;
            let looked = self.run("open", words, &GONE, client.open(handle, Rights::READ)).await;
            if !matches!(looked, End::Done(_)) || self.shared.ledger.borrow().links(object) != Some(0) {
                return;
            }
        }
        self.violation(words, "expected it to be gone, found it");
    }

    /// Whether this life of the client closed the file lately: its server may not have answered since, and
    /// still keep the file for this client.
    pub(super) fn closed_lately(&self, object: ObjectId) -> bool {
        let closed = self.shared.closed.borrow().get(&(self.scope, object)).copied();
        closed.is_some_and(|at| self.env.now().since(Instant(at)) < CLOSED_LATELY)
    }
}
