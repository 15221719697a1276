//! Locks of transactions: which keys are spoken for, and by whom.
//!
//! An *exclusive* lock (an entry, an inode that is being removed) stops every other reader and writer of the key. A
//! *shared* lock (the directory an entry is put into) stops only who would remove or lock it exclusively: counts and times
//! of a directory are changes that commute, applied when the transaction finishes. Nobody waits holding a lock: a
//! transaction that meets another's lock gives up its own and tries again ([`shoal_proto::Status::Busy`]); an ordinary
//! operation, which holds none, waits for [`Locks::changed`] and runs again.
//!
//! Locks live in memory; a participant's are made again from its *prepared* rows at start, a coordinator's need not be
//! (without a commit record its transaction is aborted).

use bytes::Bytes;
use shoal_env::local::Notify;
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
}

/// The locks of one shard.
#[derive(Default)]
pub struct Locks {
    state: RefCell<State>,
    changed: Notify,
}

impl Locks {
    /// Take all of `keys` for `tx`, or none; `false` if another's lock is in the way. Taking again what it has is fine.
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
        for (key, mode) in state.held.remove(&tx).unwrap_or_default() {
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
        self.changed.wake_all();
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

    /// Woken at every release.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }
}

impl State {
    fn stops(&self, key: &[u8], mode: Mode, own: Option<TxId>) -> bool {
        if self.exclusive.get(key).is_some_and(|&holder| Some(holder) != own) {
            return true;
        }
        mode == Mode::Exclusive
            && self.shared.get(key).is_some_and(|holders| holders.iter().any(|&holder| Some(holder) != own))
    }
}
