//! The locks that this client has. For each lock it notes the owner, the file, the range of bytes, and the
//! open files through which it was taken.
//!
//! ```text
//!   server ── its session; whether locks are being claimed on a new connection
//!     file ── owner ── ranges; the open files; whether the locks are lost
//! ```
//! **A lock is used only as long as its server is sure to keep it**: for one lease, counted from the sending
//! of the last request that was answered. Reads and writes through an open file that took a lock wait when
//! that time is over, and while locks are claimed on a new connection.
//!
//! **A lost lock protects nothing**: all reads and writes through the open files that took it fail with
//! `Io`, until the lock is unlocked or these files are closed. A lock is lost when the session is lost, and
//! when a restarted server refuses the claim.

use shoal_env::local::Notify;
use shoal_proto::{Handle, LockClaim, LockKind, LockOwner, LockRange, LockRanges, Op, ServerId, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Requests for locks that servers may keep at once; further ones ask now and then.
pub(crate) const PARKED_MAX: u32 = 256;

#[derive(Default)]
struct Owned {
    ranges: LockRanges,
    /// The open files through which it locked.
    via: BTreeSet<u64>,
    is_lost: bool,
    /// The end of a call is not known: it may have more than its ranges.
    is_unsure: bool,
    /// Calls under way that ask for a lock.
    asking: u32,
    /// How often it gave something back.
    given_back: u32,
}

impl Owned {
    fn has_something(&self) -> bool {
        !self.ranges.is_empty() || self.is_unsure
    }
}

struct OfServer {
    session: SessionId,
    is_claiming: bool,
}

/// Whether a file may be read and written through an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It may.
    Free,
    /// If the lease of its locks goes on.
    Locked,
    /// Its locks are claimed at the moment.
    Claiming,
    /// A lock was lost.
    Lost,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct OwnLocks {
    files: BTreeMap<Handle, BTreeMap<LockOwner, Owned>>,
    servers: BTreeMap<ServerId, OfServer>,
    /// Servers that were asked for a lock: one that is restarted may wait for this client's claims, also
    /// where it granted none.
    asked: BTreeSet<ServerId>,
    /// Calls under way that ask for a lock, each with the request that takes it back.
    under_way: BTreeMap<u64, Op>,
    calls: u64,
    open_files: u64,
    parked: u32,
    /// Woken when the locks of a server are claimed, or lost.
    pub(crate) settled: Notify,
}

impl OwnLocks {
    /// A number for a call.
    pub(crate) fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// A number for an open file that locks for the first time; never 0.
    pub(crate) fn next_open_file(&mut self) -> u64 {
        self.open_files += 1;
        self.open_files
    }

    /// Whether a server may keep one request more; [`OwnLocks::unpark`] follows.
    pub(crate) fn park(&mut self) -> bool {
        self.parked += 1;
        self.parked <= PARKED_MAX
    }

    /// It has answered.
    pub(crate) fn unpark(&mut self) {
        self.parked = self.parked.saturating_sub(1);
    }

    /// A call asks for a lock, until [`OwnLocks::ends`].
    pub(crate) fn begins(&mut self, (number, unwait): (u64, Op), file: Handle, owner: LockOwner) {
        self.asked.insert(file.server());
        self.under_way.insert(number, unwait);
        self.files.entry(file).or_default().entry(owner).or_default().asking += 1;
    }

    /// The requests that take all calls under way back.
    pub(crate) fn all_under_way(&self) -> Vec<Op> {
        self.under_way.values().cloned().collect()
    }

    /// It has ended.
    pub(crate) fn ends(&mut self, number: u64, file: Handle, owner: LockOwner) {
        self.under_way.remove(&number);
        let Some(owned) = self.owned(file, owner) else { return };
        owned.asking = owned.asking.saturating_sub(1);
        if owned.asking == 0 && !owned.has_something() {
            self.forget(file, owner);
        }
    }

    /// How often an owner gave something of a file back: a grant is sure only if it is the same after it.
    pub(crate) fn given_back(&self, file: Handle, owner: LockOwner) -> Option<u32> {
        let owned = self.files.get(&file).and_then(|owners| owners.get(&owner));
        owned.map(|owned| owned.given_back)
    }

    /// All of a range is given back that the owner is not known to hold; those parts of it.
    pub(crate) fn gives_back_rest(
        &mut self,
        file: Handle,
        owner: LockOwner,
        range: LockRange,
    ) -> Vec<LockRange> {
        let mut rest = LockRanges::default();
        rest.set(range, LockKind::Exclusive, 0);
        if let Some(owned) = self.owned(file, owner) {
            owned.given_back = owned.given_back.wrapping_add(1);
            owned.ranges.within(range).for_each(|(held, ..)| rest.clear(held));
        }
        rest.iter().map(|(part, ..)| part).collect()
    }

    fn owned(&mut self, file: Handle, owner: LockOwner) -> Option<&mut Owned> {
        self.files.get_mut(&file).and_then(|owners| owners.get_mut(&owner))
    }

    /// A call through an open file ended, and it is not known how: what it may have is given back with that.
    pub(crate) fn unsure(&mut self, file: Handle, owner: LockOwner, via: u64) {
        let owned = self.files.entry(file).or_default().entry(owner).or_default();
        owned.is_unsure = true;
        owned.via.insert(via);
    }

    /// An owner has a lock, from the server's present session, and took it through an open file.
    pub(crate) fn granted(&mut self, claim: &LockClaim, session: SessionId, via: u64) {
        let owned = self.files.entry(claim.object).or_default().entry(claim.owner).or_default();
        owned.via.insert(via);
        owned.ranges.set(claim.range, claim.kind, claim.pid);
        let server = claim.object.server();
        self.servers.entry(server).or_insert(OfServer { session, is_claiming: false });
    }

    /// An owner gives a range back. Whether it may have any; whether that was lost.
    pub(crate) fn unlocks(&mut self, file: Handle, owner: LockOwner, range: LockRange) -> (bool, bool) {
        let Some(owned) = self.owned(file, owner).filter(|owned| owned.has_something()) else {
            return (false, false);
        };
        owned.given_back = owned.given_back.wrapping_add(1);
        let was_lost = owned.is_lost && owned.ranges.within(range).next().is_some();
        owned.ranges.clear(range);
        owned.is_lost &= !owned.ranges.is_empty();
        owned.is_unsure &= range != LockRange::ALL;
        if !owned.has_something() && owned.asking == 0 {
            self.forget(file, owner);
        }
        (true, was_lost)
    }

    /// An open file is closed: the owners that locked through it alone, which have nothing any more.
    pub(crate) fn closed(&mut self, file: Handle, via: u64) -> Vec<LockOwner> {
        let Some(owners) = self.files.get_mut(&file) else { return Vec::new() };
        let mut ended = Vec::new();
        for (owner, owned) in owners.iter_mut() {
            if owned.via.remove(&via) && owned.via.is_empty() {
                ended.push(*owner);
            }
        }
        for owner in &ended {
            let Some(owned) = self.owned(file, *owner) else { continue };
            owned.given_back = owned.given_back.wrapping_add(1);
            (owned.ranges, owned.is_unsure, owned.is_lost) = (LockRanges::default(), false, false);
            if owned.asking == 0 {
                self.forget(file, *owner);
            }
        }
        ended
    }

    fn forget(&mut self, file: Handle, owner: LockOwner) {
        if let Some(owners) = self.files.get_mut(&file) {
            owners.remove(&owner);
            if owners.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    /// Whether an owner has, or may have, locks of a file.
    pub(crate) fn has(&self, file: Handle, owner: LockOwner) -> bool {
        let owned = self.files.get(&file).and_then(|owners| owners.get(&owner));
        owned.is_some_and(Owned::has_something)
    }

    /// Whether an owner's locks of a file were lost.
    pub(crate) fn is_lost(&self, file: Handle, owner: LockOwner) -> bool {
        self.files.get(&file).and_then(|owners| owners.get(&owner)).is_some_and(|owned| owned.is_lost)
    }

    /// Whether a file may be read and written through an open file.
    pub(crate) fn standing(&self, file: Handle, via: u64) -> Standing {
        let Some(owners) = self.files.get(&file) else { return Standing::Free };
        let own = || owners.values().filter(|owned| owned.via.contains(&via));
        if own().any(|owned| owned.is_lost) {
            return Standing::Lost;
        }
        if own().all(|owned| owned.ranges.is_empty()) {
            return Standing::Free;
        }
        match self.servers.get(&file.server()) {
            Some(server) if server.is_claiming => Standing::Claiming,
            _ => Standing::Locked,
        }
    }

    /// A connection stands again. Returns the files whose locks are lost, because the session is another.
    pub(crate) fn attached(&mut self, server: ServerId, session: SessionId) -> Vec<Handle> {
        match self.servers.get_mut(&server) {
            None => {
                if self.asked.contains(&server) {
                    self.servers.insert(server, OfServer { session, is_claiming: true });
                }
                Vec::new()
            }
            Some(known) if known.session == session => {
                known.is_claiming = true;
                Vec::new()
            }
            Some(_) => {
                let lost = self.session_lost(server);
                self.servers.insert(server, OfServer { session, is_claiming: true });
                lost
            }
        }
    }

    /// The session with a server is gone, and all its locks. Returns the files.
    pub(crate) fn session_lost(&mut self, server: ServerId) -> Vec<Handle> {
        self.servers.remove(&server);
        let (first, last) = (Handle::new(server, 0), Handle::new(server, Handle::COUNTER_MAX));
        let mut lost = Vec::new();
        for (file, owners) in self.files.range_mut(first..=last) {
            for owned in owners.values_mut().filter(|owned| !owned.ranges.is_empty()) {
                owned.is_lost = true;
                lost.push(*file);
            }
        }
        self.settled.wake_all();
        lost.dedup();
        lost
    }

    /// The locks to claim of a server; `None`: there is nothing to say, as it was asked for none.
    pub(crate) fn claims(&self, server: ServerId) -> Option<Vec<LockClaim>> {
        self.servers.get(&server).filter(|server| server.is_claiming)?;
        let (first, last) = (Handle::new(server, 0), Handle::new(server, Handle::COUNTER_MAX));
        let mut claims = Vec::new();
        for (&object, owners) in self.files.range(first..=last) {
            for (&owner, owned) in owners.iter().filter(|(_, owned)| !owned.is_lost) {
                let all = owned.ranges.iter();
                claims.extend(all.map(|(range, kind, pid)| LockClaim { object, owner, range, kind, pid }));
            }
        }
        Some(claims)
    }

    /// Whether a claim still is what its owner has.
    pub(crate) fn stands(&self, claim: &LockClaim) -> bool {
        let owned = self.files.get(&claim.object).and_then(|owners| owners.get(&claim.owner));
        owned.is_some_and(|owned| !owned.is_lost && owned.ranges.covers(claim.range, claim.kind))
    }

    /// The server does not give a lock again.
    pub(crate) fn refused(&mut self, claim: &LockClaim) {
        let owned = self.owned(claim.object, claim.owner);
        if let Some(owned) = owned.filter(|owned| owned.ranges.covers(claim.range, LockKind::Shared)) {
            owned.is_lost = true;
        }
    }

    /// All claims of a server were answered.
    pub(crate) fn claimed(&mut self, server: ServerId) {
        if let Some(server) = self.servers.get_mut(&server) {
            server.is_claiming = false;
        }
        self.settled.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Handle = Handle::new(ServerId(1), 7);
    const SESSION: SessionId = SessionId(5);

    fn claim(owner: u64, first: u64, last: u64) -> LockClaim {
        let range = LockRange { first, last };
        LockClaim { object: FILE, owner: LockOwner(owner), range, kind: LockKind::Exclusive, pid: 1 }
    }

    fn locked(owner: u64, via: u64) -> OwnLocks {
        let mut locks = OwnLocks::default();
        locks.granted(&claim(owner, 0, 9), SESSION, via);
        locks
    }

    #[test]
    fn a_lock_that_goes_with_its_session_spoils_the_open_files_that_took_it_until_it_is_given_back() {
        let mut locks = locked(1, 3);
        assert_eq!(locks.standing(FILE, 3), Standing::Locked);
        assert_eq!(locks.session_lost(ServerId(1)), [FILE]);
        assert_eq!((locks.standing(FILE, 3), locks.standing(FILE, 4)), (Standing::Lost, Standing::Free));
        assert_eq!(locks.unlocks(FILE, LockOwner(1), LockRange { first: 0, last: 4 }), (true, true));
        assert_eq!(locks.standing(FILE, 3), Standing::Lost);
        assert_eq!(locks.unlocks(FILE, LockOwner(1), LockRange::ALL), (true, true));
        assert_eq!(locks.standing(FILE, 3), Standing::Free);
    }

    #[test]
    fn locks_are_claimed_on_a_new_connection_of_their_session_and_lost_with_another_session() {
        let mut locks = locked(1, 3);
        assert_eq!(locks.claims(ServerId(1)), None, "nothing is new");
        assert!(locks.attached(ServerId(1), SESSION).is_empty());
        assert_eq!(locks.standing(FILE, 3), Standing::Claiming);
        assert_eq!(locks.claims(ServerId(1)), Some(vec![claim(1, 0, 9)]));
        locks.claimed(ServerId(1));
        assert_eq!(locks.standing(FILE, 3), Standing::Locked);
        assert_eq!(locks.attached(ServerId(1), SessionId(6)), [FILE]);
        assert_eq!(locks.standing(FILE, 3), Standing::Lost);
    }

    #[test]
    fn what_an_owner_locked_through_an_open_file_goes_with_the_last_of_those() {
        let mut locks = locked(1, 3);
        locks.granted(&claim(1, 20, 29), SESSION, 4);
        assert!(locks.closed(FILE, 3).is_empty());
        assert_eq!(locks.closed(FILE, 4), [LockOwner(1)]);
        assert!(!locks.has(FILE, LockOwner(1)));
    }

    #[test]
    fn an_owner_that_has_given_all_back_has_nothing_to_give_back_at_the_close_unless_a_call_ended_unknown() {
        let mut locks = locked(1, 3);
        assert_eq!(locks.unlocks(FILE, LockOwner(1), LockRange { first: 0, last: 9 }), (true, false));
        assert!(!locks.has(FILE, LockOwner(1)) && locks.closed(FILE, 3).is_empty());
        locks.unsure(FILE, LockOwner(1), 3);
        assert_eq!(locks.unlocks(FILE, LockOwner(1), LockRange { first: 0, last: 9 }), (true, false));
        assert_eq!(locks.closed(FILE, 3), [LockOwner(1)]);
    }
}
