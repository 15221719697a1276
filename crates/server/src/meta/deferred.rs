//! Changes of attributes that were answered before they were durable (`shoal_store::Strength::Deferred`).
//!
//! ```text
//!   chmod by client A                 answered when it is written
//!   chown of the same object by A     reads the row that the chmod changed; answered when both are written
//!   chown of the same object by B     answered when the chmod is durable, because its answer shows the mode
//!   any other request on the object   answered when the chmod is durable
//! ```
//! So a change is remembered until it is durable, with its client and with the earlier changes that had to be
//! durable for its answer. The number of remembered changes is limited. If a change is forgotten before it is
//! durable, its client waits longer for the next reply, and nothing else happens.

use shoal_proto::ClientId;
use shoal_store::Lsn;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Changes remembered, at most.
const CHANGES_MAX: usize = 65_536;

/// A change that is remembered.
struct Change {
    maker: ClientId,
    /// Changes of others, up to here, had to be durable when the client was answered.
    rests_on: Lsn,
}

/// See the module's page.
#[derive(Default)]
pub struct Deferred {
    changes: RefCell<BTreeMap<Lsn, Change>>,
}

impl Deferred {
    /// This client's change was applied, which rests on changes of others up to `rests_on`.
    pub fn made(&self, lsn: Lsn, maker: ClientId, rests_on: Lsn) {
        let mut changes = self.changes.borrow_mut();
        changes.insert(lsn, Change { maker, rests_on });
        if changes.len() > CHANGES_MAX {
            changes.pop_first();
        }
    }

    /// Everything up to here is durable.
    pub fn durable(&self, upto: Lsn) {
        let mut changes = self.changes.borrow_mut();
        while changes.first_key_value().is_some_and(|(lsn, _)| *lsn <= upto) {
            changes.pop_first();
        }
    }

    /// The target of an answer to this client that shows the change `lsn`, if it is its own.
    pub fn of(&self, lsn: Lsn, client: ClientId) -> Option<Lsn> {
        let changes = self.changes.borrow();
        changes.get(&lsn).filter(|change| change.maker == client).map(|change| change.rests_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_its_makers_until_it_is_durable_and_so_many_are_remembered() {
        let (deferred, [maker, other]) = (Deferred::default(), [1, 2].map(|n| ClientId([n; 16])));
        deferred.made(Lsn(5), maker, Lsn(3));
        deferred.made(Lsn(7), maker, Lsn(3));
        let of = |lsn, client| deferred.of(Lsn(lsn), client);
        assert_eq!((of(5, maker), of(5, other), of(6, maker)), (Some(Lsn(3)), None, None));
        deferred.durable(Lsn(5));
        assert_eq!((of(5, maker), of(7, maker)), (None, Some(Lsn(3))));
        (0..CHANGES_MAX as u64).for_each(|n| deferred.made(Lsn(8 + n), maker, Lsn(3)));
        assert_eq!((of(7, maker), of(8, maker)), (None, Some(Lsn(3))));
    }
}
