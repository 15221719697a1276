//! The durable rows of clients with locks. After a restart the clients with such rows claim their locks, and
//! no new lock is granted before. So a missing row loses locks, and a row without need makes other clients
//! wait.
//!
//! ```text
//!   first lock ─▶ row written, durable ─▶ granted … last lock given back
//!                                                     ├─ the client goes on: removed after half a lease
//!                                                     ├─ its connections end: removed after a second
//!                                                     └─ the server stops: removed with the stop
//! ```
//! **A row is durable before its client's first lock is granted**, and stays while its client has a lock or
//! waits for one.
//!
//! **A row may also stay without locks.** If a client lost an exclusive lock, its row stays until the file
//! has begun a new generation. A start that finds the row of a client without a session knows that locks were
//! lost, and not of which files. In the run after such a start each file begins a new generation before its
//! first lock is granted. Therefore the two early removals (after a second, and with the stop) are only for
//! clients that have a session, and not in such a run. Clients that lock and unlock all the time keep their
//! rows, and wait for no sync.

use super::FileLocks;
use crate::data::status_of;
use crate::meta::keys;
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use shoal_proto::{ClientId, Status};
use shoal_store::{Changes, Strength, settle};
use std::rc::Rc;
use std::time::Duration;

/// Rows of one batch.
pub(super) const BATCH: usize = 256;
/// A client without a connection is taken to have ended after so long. One that lost its connection is back
/// before that, and its next lock is granted without a sync.
const GONE_AFTER: Duration = Duration::from_secs(1);

/// A client's row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// It is durable.
    Kept,
    /// It is written or removed at the moment.
    Moving,
}

/// Have a client's row durable.
///
/// # Errors
/// When the store fails.
pub(super) async fn keep(shard: &Rc<Shard>, client: ClientId) -> Result<(), Status> {
    let locks = &shard.file_locks;
    loop {
        let moved = locks.row_moved.wait();
        let row = locks.rows.borrow().get(&client).copied();
        match row {
            Some(Row::Kept) => return Ok(()),
            Some(Row::Moving) => moved.await,
            None => break,
        }
    }
    locks.rows.borrow_mut().insert(client, Row::Moving);
    let mut changes = Changes::default();
    changes.put(keys::locker(client), Bytes::from_static(&[1]));
    let kept = match apply_own(&shard.collection, changes).await {
        Ok(_) => settle(&shard.collection).await,
        Err(error) => Err(error),
    };
    match &kept {
        Ok(()) => locks.rows.borrow_mut().insert(client, Row::Kept),
        Err(_) => locks.rows.borrow_mut().remove(&client),
    };
    locks.row_moved.wake_all();
    kept.map_err(status_of)
}

impl FileLocks {
    /// Whether a client's row means nothing: it has no locks, and those that it lost protect nothing more.
    fn is_unused(&self, client: ClientId) -> bool {
        !self.table.borrow().has(client)
            && !self.claimants.borrow().contains(&client)
            && !self.unfenced.borrow().contains(&client)
    }
}

/// Remove the rows of clients that have no locks, of those that are `meant`.
pub(super) async fn forget(shard: &Rc<Shard>, meant: impl Fn(ClientId) -> bool) {
    let locks = &shard.file_locks;
    let known: Vec<ClientId> = locks.rows.borrow().keys().copied().collect();
    let is_kept = |client: &ClientId| locks.rows.borrow().get(client) == Some(&Row::Kept);
    let is_unused = |client: &ClientId| is_kept(client) && locks.is_unused(*client) && meant(*client);
    let unused: Vec<ClientId> = known.into_iter().filter(is_unused).collect();
    for some in unused.chunks(BATCH) {
        let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
        // While the rows before these were removed a lock may have been granted, or another call of this have
        // removed a row that is now being made anew.
        let some: Vec<ClientId> = some.iter().copied().filter(is_unused).collect();
        for client in &some {
            locks.rows.borrow_mut().insert(*client, Row::Moving);
            changes.remove(keys::locker(*client));
        }
        let removed = apply_own(&shard.collection, changes).await;
        for client in &some {
            match &removed {
                Ok(_) => locks.rows.borrow_mut().remove(client),
                Err(_) => locks.rows.borrow_mut().insert(*client, Row::Kept),
            };
        }
        locks.row_moved.wake_all();
        if let Err(error) = removed {
            return tracing::warn!(%error, "rows of clients without locks could not be removed");
        }
    }
}

/// A connection of a client has ended: if the client does not come back, its row goes.
pub(crate) fn left(shard: &Rc<Shard>, client: ClientId) {
    if shard.file_locks.fences_all.get() || !shard.file_locks.rows.borrow().contains_key(&client) {
        return;
    }
    let own = shard.clone();
    shard.tasks.spawn(&shard.env, "forget a client that left", async move {
        own.env.sleep(GONE_AFTER).await;
        let sessions = own.sessions.of_client(client);
        if !sessions.is_empty() && !sessions.iter().any(|session| session.is_connected()) {
            forget(&own, |other| other == client).await;
        }
    });
}

/// The server stops, and no request runs: clients that have no locks have none to claim after the next start.
pub(crate) async fn forget_at_stop(shard: &Rc<Shard>) {
    if !shard.file_locks.fences_all.get() {
        forget(shard, |client| shard.sessions.has_client(client)).await;
    }
}
