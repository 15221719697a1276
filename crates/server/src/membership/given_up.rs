//! Removes pool rows and precreated datafiles of this server when a store of another server is *given up*: an
//! operator has declared that the store is lost and that a new store replaces it.
//!
//! The cluster map lists the stores that are given up. While the server serves, the batch that writes such a
//! map also removes the pool row that lists datafiles of the lost store. It also removes the batches that
//! this server precreated for the pool of the lost store. A datafile of such a batch stays if a file has used
//! it, because it then has rows of its own. From then on a server with the lost store is refused. If this
//! server itself starts from an older copy, `recovery` writes the map: it removes all pools of the copy, and
//! no batches.
//!
//! While the server serves, the batches stay in two cases. The new store may be an older copy of the lost
//! store: files of the copy may use the datafiles, although no data was written to them. Or this server knew
//! no store of the other server: the new store may be the first one, and may have used the datafiles.

use crate::meta::keys::{self, Table};
use crate::meta::rows::{Batch, RowValue};
use crate::shard::Shard;
use bytes::Bytes;
use shoal_proto::{ClusterMap, ServerId, ServerInfo, StoreId};
use shoal_store::{Changes, StoreError, look};

/// Rows looked at by one turn.
const BATCH: usize = 256;

/// The other servers whose stores `next` gives up: their entries in `present`, and their new ones.
pub(crate) fn given_up<'a>(
    own: ServerId,
    present: &'a ClusterMap,
    next: &'a ClusterMap,
) -> impl Iterator<Item = (&'a ServerInfo, &'a ServerInfo)> {
    let others = present.servers.iter().zip(next.servers.iter()).filter(move |(known, _)| known.id != own);
    others.filter(|(known, next)| next.retired.len() > known.retired.len() && next.store != known.store)
}

/// Why this server does not serve from now on, if `map` gives its own store up.
pub(crate) fn own_given_up(shard: &Shard, map: &ClusterMap) -> Option<String> {
    let (id, store) = (shard.id(), shard.store());
    map.server(id).filter(|info| info.has_retired(store)).map(|_| words(id, store))
}

/// Why a store is refused that was given up.
pub(crate) fn words(id: ServerId, store: StoreId) -> String {
    format!(
        "store {store} of server {id} was given up for good, and another one took its place: the data in this folder is no \
         longer part of the file system"
    )
}

/// The entries here in the pool of such a store's datafiles are removed, and so are the datafiles of this
/// server that were in its pool.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn retire(
    shard: &Shard,
    servers: impl Iterator<Item = (&ServerInfo, &ServerInfo)>,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    for (known, next) in servers {
        changes.remove(keys::pool(next.id));
        changes.remove(keys::grant(next.id));
        if known.store.is_known() && !next.is_copy {
            remove_batches(shard, next.id, changes).await?;
        }
    }
    Ok(())
}

/// It may still run somewhere: its messages are ignored, and the handles that it gave are not used.
pub(crate) fn forget(shard: &Shard, server: ServerId) {
    shard.peers.forget(server);
    let session = shard.peer_sessions.borrow_mut().remove(&server);
    if let Some(line) = session.and_then(|session| session.line.take()) {
        line.end();
    }
}

/// No file is left that could name a datafile of these batches for the first time.
async fn remove_batches(shard: &Shard, pool: ServerId, changes: &mut Changes) -> Result<(), StoreError> {
    let prefix = keys::table(Table::Batch);
    let mut after: Option<Bytes> = None;
    loop {
        let (scan, _) = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await?;
        for (key, value) in &scan.rows {
            if Batch::from_row(value).is_ok_and(|batch| batch.pool == pool) {
                changes.remove(key.clone());
            }
        }
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(()),
        }
    }
}
