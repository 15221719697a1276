//! Locks of transactions: the locked keys and their holders.
//!
//! An *exclusive* lock (an entry, an inode that is being changed or removed) stops every other reader and
//! writer of the key. A *shared* lock (the directory an entry is put into) stops only requests that would
//! remove it or lock it exclusively: counts and times of a directory are changes that commute, applied when
//! the transaction finishes. No request waits while it holds a lock. A transaction that meets a lock of
//! another transaction gives up its own locks and tries again ([`shoal_proto::Status::Busy`]). An ordinary
//! operation, which holds no locks, waits for [`Locks::released`] and runs again. A release wakes the
//! operations that wait for one of its keys, and no others: with a thousand waiting, each release would
//! otherwise run a thousand handlers again.
//!
//! Locks are in memory. When a server starts, a participant's locks are made again from its *prepared*
//! rows. The locks of a coordinator are not made again: without a commit record its transaction is aborted.

use bytes::Bytes;
use shoal_env::local::{Notify, NotifyWait};
use shoal_proto::TxId;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// How a key is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// See the module's page.
    Shared,
    /// See the module's page.
    Exclusive,
}

#[derive(Default)]
struct State {
    exclusive: HashMap<Bytes, TxId>,
    shared: HashMap<Bytes, Vec<TxId>>,
    held: BTreeMap<TxId, Vec<(Bytes, Mode)>>,
    /// Of keys that are locked and waited for.
    released: BTreeMap<Bytes, Notify>,
}

/// The locks of one shard.
#[derive(Default)]
pub struct Locks {
    state: RefCell<State>,
}

impl Locks {
    /// Take all of `keys` for `tx`, or none; `false` if another's lock is in the way. Taking its own locks
    /// again is fine.
    pub fn take(&self, tx: TxId, keys: &[(Bytes, Mode)]) -> bool {
        let mut state = self.state.borrow_mut();
        if keys.iter().any(|(key, mode)| state.stops(key, *mode, Some(tx))) {
            return false;
        }
        for (key, mode) in keys {
            match mode {
                Mode::Exclusive => {
                    state.exclusive.insert(key.clone(), tx);
                }
                Mode::Shared => state.shared.entry(key.clone()).or_default().push(tx),
            }
        }
        state.held.entry(tx).or_default().extend_from_slice(keys);
        true
    }

    /// Release all locks of `tx`.
    pub fn release(&self, tx: TxId) {
        let mut state = self.state.borrow_mut();
        let mut wakes = Vec::new();
        for (key, mode) in state.held.remove(&tx).unwrap_or_default() {
            wakes.extend(state.released.remove(&key));
            match mode {
                Mode::Exclusive => {
                    state.exclusive.remove(&key);
                }
                Mode::Shared => {
                    if let Some(holders) = state.shared.get_mut(&key) {
                        if let Some(at) = holders.iter().position(|&holder| holder == tx) {
                            holders.swap_remove(at);
                        }
                        if holders.is_empty() {
                            state.shared.remove(&key);
                        }
                    }
                }
            }
        }
        drop(state);
        wakes.iter().for_each(Notify::wake_all);
    }

    /// Release one lock of `tx`, and keep its others.
    pub fn release_one(&self, tx: TxId, key: &Bytes) {
        let mut state = self.state.borrow_mut();
        let Some(held) = state.held.get_mut(&tx) else { return };
        held.retain(|(of, _)| of != key);
        if held.is_empty() {
            state.held.remove(&tx);
        }
        if state.exclusive.get(key) == Some(&tx) {
            state.exclusive.remove(key);
        }
        if let Some(holders) = state.shared.get_mut(key) {
            holders.retain(|&holder| holder != tx);
            if holders.is_empty() {
                state.shared.remove(key);
            }
        }
        let released = state.released.remove(key);
        drop(state);
        released.iter().for_each(Notify::wake_all);
    }

    /// Whether a lock of another transaction than `own` stops an access of this mode.
    pub fn stops(&self, key: &[u8], mode: Mode, own: Option<TxId>) -> bool {
        self.state.borrow().stops(key, mode, own)
    }

    /// Whether nothing is locked: the ordinary case, worth a look before any key is made.
    pub fn is_empty(&self) -> bool {
        self.state.borrow().held.is_empty()
    }

    /// Transactions that hold locks.
    pub fn holders(&self) -> Vec<TxId> {
        self.state.borrow().held.keys().copied().collect()
    }

    /// The next release of a lock on `key`. A key that is not locked is not waited for: the wait is over at
    /// once.
    pub fn released(&self, key: &Bytes) -> NotifyWait {
        let mut state = self.state.borrow_mut();
        if !state.is_locked(key) {
            let free = Notify::default();
            let wait = free.wait();
            free.wake_all();
            return wait;
        }
        state.released.entry(key.clone()).or_default().wait()
    }

    /// Keys that are waited for, or were: each is locked.
    pub fn waited_for(&self) -> usize {
        let state = self.state.borrow();
        debug_assert!(state.released.keys().all(|key| state.is_locked(key)), "a release forgets its keys");
        state.released.len()
    }
}

impl State {
    fn is_locked(&self, key: &[u8]) -> bool {
        self.exclusive.contains_key(key) || self.shared.contains_key(key)
    }

    fn stops(&self, key: &[u8], mode: Mode, own: Option<TxId>) -> bool {
        if self.exclusive.get(key).is_some_and(|&holder| Some(holder) != own) {
            return true;
        }
        mode == Mode::Exclusive
            && self.shared.get(key).is_some_and(|holders| holders.iter().any(|&holder| Some(holder) != own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use shoal_proto::{Handle, ServerId};

    fn key(n: u32) -> Bytes {
        Bytes::copy_from_slice(&n.to_be_bytes())
    }

    fn tx(n: u64) -> TxId {
        TxId(Handle::new(ServerId(0), n).0)
    }

    #[test]
    fn a_release_wakes_the_operations_that_wait_for_its_keys_and_no_others() {
        let locks = Locks::default();
        for n in 0..1000 {
            assert!(locks.take(tx(u64::from(n) + 1), &[(key(n), Mode::Exclusive)]));
        }
        let mut waiting: Vec<_> = (0..1000).map(|n| Some(locks.released(&key(n)))).collect();
        let ready = |waiting: &mut Vec<Option<NotifyWait>>| -> Vec<usize> {
            let is_ready =
                |wait: &mut Option<NotifyWait>| wait.as_mut().is_some_and(|w| w.now_or_never().is_some());
            let found: Vec<usize> = (0..1000).filter(|&n| is_ready(&mut waiting[n])).collect();
            found.iter().for_each(|&n| waiting[n] = None);
            found
        };
        assert_eq!(ready(&mut waiting), [0; 0]);
        locks.release(tx(8));
        assert_eq!(ready(&mut waiting), [7]);
        assert_eq!(locks.waited_for(), 999);
        locks.release(tx(1000));
        assert_eq!(ready(&mut waiting), [999]);
    }

    #[test]
    fn waits_that_were_given_up_leave_nothing_once_their_keys_are_released() {
        let locks = Locks::default();
        assert!(locks.take(tx(1), &[(key(1), Mode::Shared), (key(2), Mode::Exclusive)]));
        assert!(locks.take(tx(2), &[(key(1), Mode::Shared)]));
        for _ in 0..100 {
            drop((locks.released(&key(1)), locks.released(&key(2))));
        }
        assert_eq!(locks.waited_for(), 2);
        // Each release of a shared key is one: the wait looks whether others have it.
        let wait = locks.released(&key(1));
        locks.release(tx(1));
        assert!(wait.now_or_never().is_some());
        locks.release(tx(2));
        assert_eq!(locks.waited_for(), 0);
    }

    #[test]
    fn one_lock_is_released_for_others_and_stays_theirs_when_the_rest_is_released() {
        let locks = Locks::default();
        let both = [(key(1), Mode::Exclusive), (key(2), Mode::Shared)];
        // Taken twice, as a longer list is that is prepared under the same id.
        assert!(locks.take(tx(1), &both[..1]) && locks.take(tx(1), &both));
        let waiting = locks.released(&key(1));
        locks.release_one(tx(1), &key(1));
        assert!(waiting.now_or_never().is_some());
        assert!(locks.take(tx(2), &both[..1]));
        assert!(locks.stops(&key(2), Mode::Exclusive, None), "the other lock is kept");
        locks.release(tx(1));
        assert!(locks.stops(&key(1), Mode::Shared, None), "it is another transaction's now");
        locks.release_one(tx(2), &key(1));
        assert!(locks.is_empty());
    }

    #[test]
    fn a_key_that_is_not_locked_is_not_waited_for() {
        let locks = Locks::default();
        assert!(locks.released(&key(1)).now_or_never().is_some());
        assert_eq!(locks.waited_for(), 0);
    }
}
