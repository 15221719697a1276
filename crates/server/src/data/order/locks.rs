//! Locks of extents, and claims. A *claim* is the place of a writer that waits for a lock: no later request
//! may pass it.
//!
//! ```text
//!   locked    Written    held alone
//!             Shared     held with other readers; readers of the same block wait for the bytes of this read
//!             Read       held with other readers
//!   claimed   the extent of a writer that waits: a request that comes later does not lock it
//! ```
//! **Invariant: while an extent is locked to be written, no other lock overlaps it** (asserted in `enter`).
//! The key of a claim shows its age: of two claims that overlap, the older claim goes first.

use super::super::extent::Extent;
use shoal_env::local::{Notify, NotifyWait};
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Why an extent is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is written.
    Written,
    /// It is read.
    Read,
    /// It is read for all that want it: later requests wait for this step, and do not read it again.
    Shared,
}

/// An extent that is locked.
struct Locked {
    key: u64,
    extent: Extent,
    lock: Lock,
    /// By a step of the sweep.
    is_step: bool,
}

/// An extent that waits to be written: nothing that came later enters it.
#[derive(Clone, Copy)]
struct Claimed {
    key: u64,
    extent: Extent,
    /// By an extent of the sweep.
    is_of_sweep: bool,
}

/// The key of a visitor that has no claim itself: every claim is older.
pub const NO_CLAIM: u64 = u64::MAX;

/// See the module's page.
#[derive(Default)]
pub struct Locks {
    inside: RefCell<Vec<Locked>>,
    /// Extents that wait to be written, in the order in which they began to wait.
    claimed: RefCell<Vec<Claimed>>,
    next_key: Cell<u64>,
    changed: Notify,
}

/// An extent that is locked, until this is dropped.
pub struct LockedExtent {
    locks: Rc<Locks>,
    key: u64,
}

impl Drop for LockedExtent {
    fn drop(&mut self) {
        self.locks.inside.borrow_mut().retain(|locked| locked.key != self.key);
        self.locks.changed.wake_all();
    }
}

/// A claim of a change beside the sweep; given up when dropped.
struct Claim<'a>(&'a Locks, u64);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.claimed.borrow_mut().retain(|claimed| claimed.key != self.1);
        self.0.changed.wake_all();
    }
}

impl Locks {
    /// Whether no lock hinders a visitor, and no claim that is older than its own.
    pub fn is_free(&self, extent: &Extent, writes: bool, claim: u64) -> bool {
        let hinders = |Locked { extent: other, lock, .. }: &Locked| match lock {
            Lock::Written => other.meets(extent),
            _ if writes => other.meets(extent),
            Lock::Shared if extent.is_block() => other.meets(extent),
            Lock::Shared => other == extent,
            Lock::Read => false,
        };
        let is_claimed = |claimed: &Claimed| claimed.key < claim && claimed.extent.meets(extent);
        !self.claimed.borrow().iter().any(is_claimed) && !self.inside.borrow().iter().any(hinders)
    }

    /// Whether the block is read by a step, whose bytes are for those that wait at it, too.
    pub fn is_being_read(&self, extent: &Extent) -> bool {
        let inside = self.inside.borrow();
        inside.iter().any(|other| other.lock == Lock::Shared && other.extent.meets(extent))
    }

    /// Steps of the sweep under way on a disk.
    pub fn steps_on(&self, disk: u16) -> usize {
        let inside = self.inside.borrow();
        inside.iter().filter(|locked| locked.is_step && locked.extent.disk == disk).count()
    }

    fn key(&self) -> u64 {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        key
    }

    /// Lock an extent that is free.
    pub fn enter(self: &Rc<Locks>, extent: Extent, lock: Lock, is_step: bool) -> LockedExtent {
        let key = self.key();
        let mut inside = self.inside.borrow_mut();
        debug_assert!(
            !inside.iter().any(|other| {
                (lock == Lock::Written || other.lock == Lock::Written) && other.extent.meets(&extent)
            }),
            "while an extent is written no other lock meets it"
        );
        inside.push(Locked { key, extent, lock, is_step });
        drop(inside);
        LockedExtent { locks: self.clone(), key }
    }

    /// The key of the claim that an extent of the sweep has.
    pub fn claim_of(&self, extent: &Extent) -> u64 {
        let claimed = self.claimed.borrow();
        let own = claimed.iter().find(|claimed| claimed.is_of_sweep && claimed.extent == *extent);
        own.map_or(NO_CLAIM, |claimed| claimed.key)
    }

    /// Claim an extent for the sweep, once, until [`Locks::claims_served`].
    pub fn claim_for_sweep(&self, extent: Extent) {
        if self.claim_of(&extent) == NO_CLAIM {
            let claimed = Claimed { key: self.key(), extent, is_of_sweep: true };
            self.claimed.borrow_mut().push(claimed);
        }
    }

    /// The claims of extents that a step of the sweep has taken end.
    pub fn claims_served(&self, is_taken: impl Fn(&Extent) -> bool) {
        self.claimed.borrow_mut().retain(|claimed| !(claimed.is_of_sweep && is_taken(&claimed.extent)));
    }

    /// Claim an extent, until the claim is dropped.
    fn claim(&self, extent: Extent) -> Claim<'_> {
        let key = self.key();
        self.claimed.borrow_mut().push(Claimed { key, extent, is_of_sweep: false });
        Claim(self, key)
    }

    /// Lock an extent, between two steps of the sweep.
    pub async fn lock(self: &Rc<Locks>, extent: Extent, writes: bool) -> LockedExtent {
        let lock = if writes { Lock::Written } else { Lock::Read };
        if self.is_free(&extent, writes, NO_CLAIM) {
            return self.enter(extent, lock, false);
        }
        let claim = writes.then(|| self.claim(extent));
        let key = claim.as_ref().map_or(NO_CLAIM, |claim| claim.1);
        loop {
            let changed = self.changed.wait();
            if self.is_free(&extent, writes, key) {
                return self.enter(extent, lock, false);
            }
            changed.await;
        }
    }

    /// Lock a whole stream; nothing new begins in it meanwhile.
    pub async fn lock_stream(self: &Rc<Locks>, stream: Handle) -> LockedExtent {
        let whole = Extent { len: u64::MAX, ..Extent::first_of(stream) };
        let claim = self.claim(whole);
        loop {
            let changed = self.changed.wait();
            if !self.inside.borrow().iter().any(|locked| locked.extent.meets(&whole)) {
                let inside = self.enter(whole, Lock::Written, false);
                drop(claim);
                return inside;
            }
            changed.await;
        }
    }

    /// Until a lock is free again.
    pub fn changed(&self) -> NotifyWait {
        self.changed.wait()
    }
}
