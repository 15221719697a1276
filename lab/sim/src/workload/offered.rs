//! A file that one client (the holder) has open, while a second client removes or replaces it. The holder
//! can still use the file, and with the holder's last close it is gone for all clients.
//!
//! The holder *offers* the name. The name then has no owner until another client takes the offer and changes
//! it, or the holder takes the offer back. So at any time only one client changes a name, as the ledger
//! requires.

use super::{End, Worker};
use crate::ledger::{KnownObject, NOBODY, ObjectId, Slot};
use shoal_env::Instant;
use shoal_proto::{Kind, Status};
use std::ops::Range;
use std::time::Duration;

const GONE: [Status; 2] = [Status::Stale, Status::NotFound];
/// How often the holder looks whether the offer was taken.
const LOOKS: usize = 20;
/// Uses of the file after that.
const USES_MAX: u64 = 4;
/// A session that is silent for a minute ends, and its open files with it.
const SESSION_LASTS: Duration = Duration::from_secs(50);

/// A client reports within this time that it has a file open.
const REPORTED: Duration = Duration::from_millis(5_100);
/// An open that was not reported counts for so long.
const OPEN_COUNTS: Duration = Duration::from_secs(10);
/// A report counts for a lease, and the next one may come 25 s after it: half a lease is certain.
const REPORT_COUNTS: Duration = Duration::from_secs(30);

/// Whether a server that was paused so may not know of a file that was opened at this moment.
fn is_forgotten(opened: u64, pause: &Range<u64>) -> bool {
    let (opened, begun, ended) = (Instant(opened), Instant(pause.start), Instant(pause.end));
    let is_before_report = begun < opened + REPORTED && ended > opened + OPEN_COUNTS;
    is_before_report || ended.since(begun.max(opened)) > REPORT_COUNTS
}

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
            // A lane of files takes files, a lane of forks forks.
            let ledger = self.shared.ledger.borrow();
            let is_mine = |offer: &Offer| ledger.unsplit.contains(&offer.slot.0) == self.is_of_forks();
            let at = offers.iter().position(|offer| offer.client != own && is_mine(offer));
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
    /// open: its time is over, or space ran short, or its server did not know that it is open here.
    pub(super) fn may_have_been_freed(&self, object: ObjectId, since: Option<u64>) -> bool {
        let is_over = |since: u64| self.env.now().since(Instant(since)) >= SESSION_LASTS;
        since.is_some_and(|since| {
            is_over(since) || self.shared.may_be_full.get() || self.is_unreported(object)
        })
    }

    /// Whether the file's server may not know that this client has it open: it was paused for too long.
    fn is_unreported(&self, object: ObjectId) -> bool {
        let opened = self.shared.opens.borrow().get(&(self.client_number(), object)).map(|(_, since)| *since);
        let (server, pauses) = (self.handle(object).server().0, self.shared.pauses.borrow());
        let mut pauses = pauses.iter().filter(|(of, _)| *of == server);
        opened.is_some_and(|opened| pauses.any(|(_, pause)| is_forgotten(opened, pause)))
    }

    async fn offer(&mut self) {
        let is_file = |object: &KnownObject| object.kind == Kind::File && !object.is_public;
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
                End::Refused(status) if !self.may_have_been_freed(object, Some(began.0)) => {
                    self.wrong_of(&words, object, status);
                }
                End::Refused(_) | End::Unknown(_) => {}
            }
        }
        drop(file);
        self.close_removed(object).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_forgets_an_open_that_was_not_reported_for_ten_seconds_and_a_report_after_half_a_lease() {
        let is_forgotten = |from: u64, until: u64| {
            let second = 1_000_000_000;
            is_forgotten(100 * second, &(from * second..until * second))
        };
        assert!(is_forgotten(101, 112) && is_forgotten(99, 112));
        assert!(!is_forgotten(101, 109), "it is reported in time");
        assert!(!is_forgotten(106, 130), "it was reported");
        assert!(!is_forgotten(80, 105), "it was opened, or reported, at the end of the pause");
        assert!(is_forgotten(120, 151));
    }
}
