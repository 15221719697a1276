//! The clients that may have a file open, roughly. When a file loses its last name, this decides whether a
//! client other than the remover may still use it.
//!
//! Clients send no message when they close a file. So an open counts for a short time only ([`OPEN_SHARE`] of
//! a lease). A client that has a file open for longer reports that several times a lease ([`crate::ops`]'
//! `hold`), and each report counts for a lease.
//!
//! ```text
//!   open ──▶ slot[hash(file)] = (client, until now + lease/6)      hold ──▶ (client, until now + lease)
//!   open or hold by another client, before that time is over ──▶ (several clients, the later of both times)
//! ```
//! **Invariant: the table may count a closed file as open. It never counts a file as closed that a client
//! opened or held within these times and still has open** (tests:
//! `an_open_counts_for_others_and_for_its_time`, `no_client_is_forgotten_because_files_share_a_slot`). Files
//! share slots, and closes are not known, so a file may be kept without need. Files that were open before
//! this start of the server are not known: for a lease, every client that had a session then may have any
//! file open.
//!
//! The memory is fixed: [`SLOTS`] times 8 bytes, however many files are open.

use shoal_env::Instant;
use shoal_proto::{ClientId, Handle};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

/// Slots.
const SLOTS: usize = 1 << 16;
/// An open counts for this part of a lease.
pub const OPEN_SHARE: u32 = 6;
/// Units of a slot's time.
const UNIT_NS: u64 = 10_000_000;
/// In place of a client: several.
const SEVERAL: u32 = u32::MAX;

/// The monotonic clock.
pub type Clock = Box<dyn Fn() -> Instant>;

#[derive(Clone, Copy, Default)]
struct Slot {
    /// A mark of the client; [`SEVERAL`].
    client: u32,
    /// In units of the clock.
    until: u32,
}

/// See the module's page.
#[derive(Default)]
pub struct Openers {
    slots: RefCell<Vec<Slot>>,
    clock: OnceCell<Clock>,
    lease: Cell<Duration>,
    /// Clients that had sessions before this start: until then, each may have anything open.
    former: RefCell<BTreeSet<ClientId>>,
    unknown_until: Cell<u32>,
}

impl Openers {
    /// Begin, with nothing open.
    pub fn begin(&self, clock: Clock, lease: Duration) {
        self.lease.set(lease);
        // Set once.
        let _ = self.clock.set(clock);
    }

    /// This client has had a session before this start of the server: it may have anything open.
    pub fn found(&self, client: ClientId) {
        self.former.borrow_mut().insert(client);
        self.unknown_until.set(unit(self.now() + self.lease.get()));
    }

    /// A client opens a file.
    pub fn opened(&self, object: Handle, client: ClientId) {
        self.note(object, client, self.lease.get() / OPEN_SHARE);
    }

    /// A client has a file open, still.
    pub fn held(&self, object: Handle, client: ClientId) {
        self.note(object, client, self.lease.get());
    }

    /// Whether another client than this one may have the file open.
    pub fn may_be_elsewhere(&self, object: Handle, client: ClientId) -> bool {
        let now = unit(self.now());
        let mut former = self.former.borrow_mut();
        if now > self.unknown_until.get() {
            former.clear();
        }
        if former.len() > usize::from(former.contains(&client)) {
            return true;
        }
        let slots = self.slots.borrow();
        slots.get(place(object)).is_some_and(|slot| slot.until >= now && slot.client != mark(client))
    }

    fn note(&self, object: Handle, client: ClientId, span: Duration) {
        let now = self.now();
        let (now, until) = (unit(now), unit(now + span));
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            slots.resize(SLOTS, Slot::default());
        }
        let Some(slot) = slots.get_mut(place(object)) else { return };
        let mine = mark(client);
        *slot = match slot.until >= now && slot.until > 0 {
            true if slot.client != mine => Slot { client: SEVERAL, until: slot.until.max(until) },
            true => Slot { client: mine, until: slot.until.max(until) },
            false => Slot { client: mine, until },
        };
    }

    fn now(&self) -> Instant {
        self.clock.get().map_or(Instant(0), |clock| clock())
    }
}

/// The unit that is over at this time.
fn unit(time: Instant) -> u32 {
    u32::try_from(time.0 / UNIT_NS + 1).unwrap_or(u32::MAX)
}

fn place(object: Handle) -> usize {
    let mixed = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SLOTS.trailing_zeros())) as usize
}

/// A mark of a client; two may have the same, with a chance of one in 2^32: they would be taken for one.
fn mark(client: ClientId) -> u32 {
    let word =
        |at: usize| client.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    (word(0) ^ word(4).rotate_left(7) ^ word(8).rotate_left(13) ^ word(12).rotate_left(19)) & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    const A: ClientId = ClientId([1; 16]);
    const B: ClientId = ClientId([2; 16]);
    const LEASE: Duration = Duration::from_secs(60);

    /// A server's, and its clock.
    fn openers() -> (Openers, Rc<Cell<Instant>>) {
        let time = Rc::new(Cell::new(Instant(0)));
        let (openers, clock) = (Openers::default(), time.clone());
        openers.begin(Box::new(move || clock.get()), LEASE);
        (openers, time)
    }

    fn pass(time: &Cell<Instant>, span: Duration) {
        time.set(time.get() + span);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn after_a_start_what_its_former_clients_may_have_open_is_anything_for_a_lease() {
        let (openers, time) = openers();
        assert!(!openers.may_be_elsewhere(Handle(1), A));
        openers.found(B);
        assert!(openers.may_be_elsewhere(Handle(1), A) && !openers.may_be_elsewhere(Handle(1), B));
        pass(&time, LEASE);
        assert!(openers.may_be_elsewhere(Handle(1), A));
        pass(&time, SECOND);
        assert!(!openers.may_be_elsewhere(Handle(1), A));
    }

    #[test]
    fn an_open_counts_for_others_and_for_its_time() {
        let (openers, time) = openers();
        openers.opened(Handle(1), A);
        assert!(!openers.may_be_elsewhere(Handle(1), A) && openers.may_be_elsewhere(Handle(1), B));
        assert!(!openers.may_be_elsewhere(Handle(2), B));
        openers.opened(Handle(1), B);
        assert!(openers.may_be_elsewhere(Handle(1), A) && openers.may_be_elsewhere(Handle(1), B));
        pass(&time, LEASE / OPEN_SHARE);
        assert!(openers.may_be_elsewhere(Handle(1), B));
        pass(&time, SECOND);
        assert!(!openers.may_be_elsewhere(Handle(1), B));
    }

    #[test]
    fn what_is_held_counts_for_a_lease_and_an_open_does_not_shorten_it() {
        let (openers, time) = openers();
        openers.held(Handle(1), A);
        openers.opened(Handle(1), A);
        pass(&time, LEASE);
        assert!(openers.may_be_elsewhere(Handle(1), B));
        pass(&time, SECOND);
        assert!(!openers.may_be_elsewhere(Handle(1), B));
    }

    #[test]
    fn no_client_is_forgotten_because_files_share_a_slot() {
        let (openers, _time) = openers();
        let client = |n: u64| if n.is_multiple_of(3) { A } else { B };
        let all = 4 * SLOTS as u64;
        (0..all).for_each(|n| openers.opened(Handle(n), client(n)));
        let other = |n: u64| if client(n) == A { B } else { A };
        assert!((0..all).all(|n| openers.may_be_elsewhere(Handle(n), other(n))));
    }
}
