//! Claims: the journal position up to which a server states that its store is durable. It may state a
//! different position to each peer.
//!
//! A peer compares the stated position with the position that it remembers, and so finds an older copy of a
//! store. But every write of a server advances its journal. So an older copy that writes while its peers
//! are down, or at each refused start, would reach the remembered position after some time, and would be
//! accepted. **Therefore a server gives a peer the position at which the store was opened, until the peer
//! has accepted the store.** A *fellow* is one of the servers that remember this position
//! ([`crate::membership::stores`]). Before anything else is written, the position is stored as a row for
//! each fellow that has not answered or has refused the store. Each later start gives that fellow the
//! position of the row. The row is removed when the fellow has accepted the store. A later position is
//! stated only when the removal is durable.
//!
//! The position at which the store was opened is the position of the last record in the folder. Recovery
//! itself writes (it completes a truncation, or corrects a size), so the durable position after recovery
//! may already be later.
//!
//! The start also compares the position with the record next to the cluster file, which names the store that
//! this machine served last, and its position. If this record shows that the store is an older copy, the
//! start is refused, and a row under the server's own id keeps the position ([`refused_by_record`]). So an
//! older copy is not accepted after repeated restarts by a supervisor.

use crate::meta::keys;
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use shoal_proto::ServerId;
use shoal_proto::codec::Codec;
use shoal_store::{Changes, Collection, StoreError, look, settle};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The prefix of the keys of these rows.
const NAME: &str = "claim ";
/// Rows looked at by one turn: a server has three fellows at most, and had others with other maps.
const ROWS: usize = 256;

/// The positions that a server says.
pub struct Claims {
    opened: u64,
    /// Rows; the position does not change while there is one.
    kept: RefCell<BTreeMap<ServerId, u64>>,
    /// Peers that accepted the store since it was opened.
    accepted: RefCell<BTreeSet<ServerId>>,
}

impl Claims {
    /// Of a store that was just opened.
    pub fn new(collection: &Collection) -> Claims {
        Claims { opened: collection.opened_at().0, kept: RefCell::default(), accepted: RefCell::default() }
    }

    /// The position reported to this peer for a store that is durable up to `durable`.
    pub fn position(&self, peer: ServerId, durable: u64) -> u64 {
        let has_accepted = self.has_accepted(peer);
        self.kept.borrow().get(&peer).copied().unwrap_or(if has_accepted { durable } else { self.opened })
    }

    /// The peer has accepted the position that it received.
    pub fn accept(&self, peer: ServerId) {
        self.accepted.borrow_mut().insert(peer);
    }

    /// Whether the peer has accepted this store since it was opened.
    pub fn has_accepted(&self, peer: ServerId) -> bool {
        self.accepted.borrow().contains(&peer)
    }

    /// Whether no row is left.
    pub fn is_clear(&self) -> bool {
        self.kept.borrow().is_empty()
    }
}

/// The row for a fellow, or under the own id for the record.
fn key_of(fellow: ServerId) -> Bytes {
    keys::config(&format!("{NAME}{fellow}"))
}

/// The rows of this store.
async fn rows(collection: &Collection) -> Result<BTreeMap<ServerId, u64>, StoreError> {
    let prefix = keys::config(NAME);
    let (scan, _) = look(collection, |view| view.scan(&prefix, None, ROWS)).await?;
    let own = collection.store_id().0;
    let parse = |(key, value): (Bytes, Bytes)| {
        let server = std::str::from_utf8(key.get(prefix.len()..)?).ok()?.parse().ok()?;
        let (store, position) = <(u64, u64)>::from_bytes(&value).ok()?;
        (store == own).then_some((ServerId(server), position))
    };
    Ok(scan.rows.into_iter().filter_map(parse).collect())
}

/// The position at which a store counts as found: of its rows, if it was served before its fellows had
/// accepted it, or was refused.
///
/// # Errors
/// When the store cannot be read.
pub async fn found(collection: &Collection) -> Result<u64, StoreError> {
    let opened = collection.opened_at().0;
    Ok(rows(collection).await?.into_values().fold(opened, u64::min))
}

/// The position that the record of server `own` is compared with: that of the opening, or of the first start
/// that the record refused.
///
/// # Errors
/// When the store cannot be read.
pub async fn found_for_record(collection: &Collection, own: ServerId) -> Result<u64, StoreError> {
    let opened = collection.opened_at().0;
    Ok(rows(collection).await?.get(&own).map_or(opened, |kept| opened.min(*kept)))
}

/// The record of server `own` refused the store at this position: later starts are compared with the same
/// one.
///
/// # Errors
/// When the store fails.
pub async fn refused_by_record(
    collection: &Collection,
    own: ServerId,
    position: u64,
) -> Result<(), StoreError> {
    let mut changes = Changes::default();
    changes.put(key_of(own), (collection.store_id().0, position).to_bytes());
    apply_own(collection, changes).await?;
    settle(collection).await
}

/// Find the rows of earlier starts.
///
/// # Errors
/// When the store cannot be read.
pub async fn find(shard: &Shard) -> Result<(), StoreError> {
    let found = rows(&shard.collection).await?;
    shard.peers.claims().kept.replace(found);
    Ok(())
}

/// Keep a row for each of `fellows` that has not accepted the store; remove those of the others, durably.
///
/// # Errors
/// When the store fails.
pub async fn keep(shard: &Rc<Shard>, fellows: &BTreeSet<ServerId>) -> Result<(), StoreError> {
    let claims = shard.peers.claims();
    let kept = claims.kept.borrow().clone();
    let mut changes = Changes::default();
    let is_new = |id: &&ServerId| !claims.has_accepted(**id) && !kept.contains_key(id);
    let new: Vec<ServerId> = fellows.iter().filter(is_new).copied().collect();
    for fellow in &new {
        changes.put(key_of(*fellow), (shard.store().0, claims.opened).to_bytes());
    }
    // One that is no fellow any more is not asked.
    let is_done = |id: &ServerId| claims.has_accepted(*id) || !fellows.contains(id);
    let done: Vec<ServerId> = kept.into_keys().filter(is_done).collect();
    done.iter().for_each(|fellow| changes.remove(key_of(*fellow)));
    if changes.rows.is_empty() {
        return Ok(());
    }
    apply_own(&shard.collection, changes).await?;
    claims.kept.borrow_mut().extend(new.into_iter().map(|fellow| (fellow, claims.opened)));
    settle(&shard.collection).await?;
    claims.kept.borrow_mut().retain(|id, _| !done.contains(id));
    Ok(())
}
