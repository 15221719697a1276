//! Several open files of one file in a client: an fsync through any of them covers the writes through all
//! of them, and each of them reports a loss once. Real programs use descriptors in this way when one
//! process syncs the writes of other processes.

use super::{End, Opened, Worker};
use crate::contents::Syncer;
use crate::ledger::ObjectId;
use shoal_client::Error;
use shoal_proto::Status;
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Between a write and its sync a fault may fall.
const PAUSE_MS_MAX: u64 = 40;

/// Whether an error is an fsync's report of a loss: found by the client, not returned by a server.
pub(super) fn is_loss(error: &Error) -> bool {
    error.op == "fsync" && error.status == Status::Io && error.server.is_none()
}

impl Worker {
    /// Open a file twice, write through one, sync through the other.
    pub(super) async fn descriptors(&mut self) {
        let Some(object) = self.target(true) else { return };
        let Some(syncing) = self.open_more(object).await else { return };
        let Some(writing) = self.open_more(object).await else { return };
        for _ in 0..=self.rng.below(2) {
            let Some(at) = self.held_as(writing) else { return };
            self.write_held(at).await;
        }
        if self.rng.below(3) == 0
            && let Some(at) = self.held_as(writing)
        {
            let held = self.held.swap_remove(at);
            self.let_go(held).await;
        }
        if self.rng.below(2) == 0 {
            let pause = self.rng.below(PAUSE_MS_MAX);
            self.env.sleep(Duration::from_millis(pause)).await;
        }
        for open in [syncing, writing] {
            if let Some(at) = self.held_as(open) {
                self.sync_held(at).await;
            }
        }
    }

    /// Open the file once more; the number of the open file.
    async fn open_more(&mut self, object: ObjectId) -> Option<u64> {
        let at = self.open_anew(object).await?;
        Some(self.held[at].open)
    }

    /// Where an open file is held, if it still is.
    fn held_as(&self, open: u64) -> Option<usize> {
        self.held.iter().position(|held| held.open == open)
    }

    /// Sync through this open file.
    pub(super) async fn sync_held(&mut self, at: usize) {
        let Opened { object, ref file, open, opened, .. } = self.held[at];
        let (file, called) = (file.clone(), self.now());
        let words = format!("fsync of {}", file.handle());
        let by = Syncer { scope: self.scope, open, opened };
        let end = self.run("fsync", &words, &GONE, file.fsync()).await;
        let now = self.shared.now();
        match end {
            End::Done(()) => {
                self.with_contents(object, |contents| contents.synced(by, called, &now));
                self.shared.ledger.borrow_mut().facts(object, true);
            }
            End::Refused(status) => self.wrong_if_named(&words, object, status),
            End::Unknown(error) if is_loss(&error) => self.told_of_loss(&words, object, by, called),
            End::Unknown(_) => {}
        }
    }

    /// An fsync that was called then said that something its client wrote may be lost.
    pub(super) fn told_of_loss(&self, words: &str, object: ObjectId, by: Syncer, called: u64) {
        let now = self.shared.now();
        let is_excused = self.with_contents(object, |contents| contents.may_have_lost(by, &now));
        if !is_excused {
            let Syncer { open, opened, .. } = by;
            let written = self.with_contents(object, |contents| contents.written_by(self.scope));
            let expected = "expected it durable, as no server lost any of the writes, found Io";
            self.violation(words, format!("{expected}: {open}–{opened}: {written}"));
        }
        let ended = self.now();
        self.with_contents(object, |contents| contents.lost(by, called, ended));
    }

    /// A refusal that cannot be, unless the object may have lost its last name.
    pub(super) fn wrong_if_named(&self, words: &str, object: ObjectId, status: Status) {
        let links = self.shared.ledger.borrow().links(object);
        if links.is_some_and(|links| links > 0) {
            self.wrong_of(words, object, status);
        }
    }
}
