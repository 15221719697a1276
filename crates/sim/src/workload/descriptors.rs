//! Several open files of one file in a client: an fsync through any of them covers what was written through all of them, and
//! each of them says once that something was lost. So programs do that have a process of their own to sync what others wrote.

use super::{End, Held, Worker};
use crate::contents::Syncer;
use crate::ledger::ObjectId;
use shoal_proto::Status;
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// Between a write and its sync a fault may fall.
const PAUSE_MS_MAX: u64 = 40;

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
        let Held { object, ref file, open, cuts } = self.held[at];
        let (file, called, now_cut) = (file.clone(), self.now(), self.shared.cuts.get());
        let (words, by) = (format!("fsync of {}", file.handle()), Syncer { scope: self.scope, open });
        match self.run("fsync", &words, &GONE, file.fsync()).await {
            End::Done(()) => {
                let cuts = self.shared.cuts.get();
                self.with_contents(object, |contents| contents.synced(by, called, cuts));
                self.settle(at, now_cut);
            }
            End::Refused(status) => self.wrong_if_named(&words, object, status),
            End::Unknown(error) if error.status == Status::Io && cuts == self.shared.cuts.get() => {
                self.violation(&words, "expected it durable, as no power was cut, found Io");
            }
            End::Unknown(error) => {
                if error.status == Status::Io {
                    let newest = self.shared.opens.get();
                    self.with_contents(object, |contents| contents.lost(by, newest));
                    self.settle(at, now_cut);
                }
            }
        }
    }

    /// What was lost before so many power cuts was told, or nothing was.
    fn settle(&mut self, at: usize, cuts: u64) {
        self.held[at].cuts = cuts;
        self.settled.insert(self.held[at].object, cuts);
    }

    fn wrong_if_named(&self, words: &str, object: ObjectId, status: Status) {
        if self.shared.ledger.borrow().links(object).is_some_and(|links| links > 0) {
            self.wrong(words, status);
        }
    }
}
