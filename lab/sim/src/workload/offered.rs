//! A file that its client holds open and another client removes, or replaces: it can be used by its holder
//! all the same, and is gone for everybody with the holder's last close.
//!
//! The holder *offers* the name: it has no owner until another client takes the offer and changes the name,
//! or the holder takes the offer back. So one client alone changes a name at any time, as the ledger requires
//! it.

use super::{End, Worker};
use crate::ledger::{NOBODY, Object, ObjectId, Slot};
use shoal_env::Instant;
use shoal_proto::{Kind, Status};
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// How often the holder looks whether the offer was taken.
const LOOKS: usize = 20;
/// Uses of the file after that.
const USES_MAX: u64 = 4;
/// A session that is silent for a minute ends, and its open files with it.
const SESSION_LASTS: Duration = Duration::from_secs(50);

/// A name that another client is to take away from a file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The client that offers it.
    client: u16,
    slot: Slot,
    object: ObjectId,
}

impl Worker {
    pub(super) async fn offered(&mut self) {
        let taken = {
            let (mut offers, own) = (self.shared.offers.borrow_mut(), self.client_number());
            let at = offers.iter().position(|offer| offer.client != own);
            at.map(|at| offers.swap_remove(at))
        };
        match taken {
            Some(offer) => self.take(offer).await,
            None => self.offer().await,
        }
    }

    /// Take the name of another client's file away, or give it to another file.
    async fn take(&mut self, Offer { slot, object, .. }: Offer) {
        self.shared.ledger.borrow_mut().give(&slot, self.id, self.now());
        match self.rng.below(2) {
            0 => self.unlink_name(&slot, object).await,
            _ => self.replace(&slot, object).await,
        };
    }

    /// Whether a file that another client may have removed from this moment on may be gone, though it is
    /// open: its time is over, or space ran short.
    pub(super) fn may_have_been_freed(&self, since: Option<u64>) -> bool {
        let is_over = |since: u64| self.env.now().since(Instant(since)) >= SESSION_LASTS;
        since.is_some_and(|since| is_over(since) || self.shared.may_be_full.get())
    }

    async fn offer(&mut self) {
        let is_file = |object: &Object| object.kind == Kind::File && !object.is_public;
        let Some((slot, object)) = self.own(is_file) else { return };
        let Some(at) = self.opened(object).await else { return };
        let file = self.held[at].file.clone();
        let offer = Offer { client: self.client_number(), slot: slot.clone(), object };
        {
            let mut ledger = self.shared.ledger.borrow_mut();
            // Another lane of this client may have changed it meanwhile.
            if !ledger.live(self.id).contains(&(slot.clone(), object)) {
                return;
            }
            ledger.give(&slot, NOBODY, self.now());
        }
        self.shared.offers.borrow_mut().push(offer.clone());
        let mut began = self.env.now();
        for _ in 0..LOOKS {
            let pause = Duration::from_micros(self.rng.below(5_000));
            self.env.sleep(pause).await;
            if !self.shared.offers.borrow().contains(&offer) {
                break;
            }
            began = self.env.now();
        }
        {
            let mut offers = self.shared.offers.borrow_mut();
            if let Some(at) = offers.iter().position(|other| *other == offer) {
                offers.swap_remove(at);
                return self.shared.ledger.borrow_mut().give(&slot, self.id, self.now());
            }
        }
        for _ in 0..=self.rng.below(USES_MAX) {
            let pause = Duration::from_micros(self.rng.below(40_000));
            self.env.sleep(pause).await;
            let words = format!("read {}, which another client removes", file.handle());
            let (len, called) = (self.with_contents(object, |contents| contents.reach()) + 10, self.now());
            match self.run("read", &words, &GONE, file.read(0, len as usize)).await {
                End::Done(content) => self.judge_read(&words, object, called, (0, len), &content),
                End::Refused(status) if !self.may_have_been_freed(Some(began.0)) => {
                    self.wrong_of(&words, object, status);
                }
                End::Refused(_) | End::Unknown(_) => {}
            }
        }
        drop(file);
        self.close_removed(object).await;
    }
}
