//! renew: stores of other servers were given up, and others take their place.
//!
//! In one batch: what the pools here hold of the lost stores is retired, and the map that names the new ones is taken. From then
//! on a server of an old store is refused. Where the map is not taken, the old stores and what is held of them stay. Asked twice,
//! it finds the map taken and does nothing.

use crate::data::status_of;
use crate::keys::{self, Table};
use crate::ops::setmap;
use crate::rows::{Batch, RowValue};
use crate::shard::Shard;
use bytes::Bytes;
use shoal_proto::{Answer, ClusterMap, ServerId, Status};
use shoal_store::{Changes, look};
use std::rc::Rc;

/// Rows looked at by one turn.
const BATCH: usize = 256;

/// Take the map, and retire what is held of the lost stores of `servers`. With `keeps`, their successors have what older copies
/// had: files there may use datafiles of here that nobody has touched yet.
///
/// # Errors
/// `Conflict`: one of them is this server, or the map is older than the present one. As `setmap`.
pub async fn run(
    shard: &Rc<Shard>,
    servers: &[ServerId],
    map: ClusterMap,
    keeps: bool,
) -> Result<Answer, Status> {
    let present = shard.identity().map.clone();
    if servers.contains(&shard.id()) || map.epoch < present.epoch {
        return Err(Status::Conflict);
    }
    if map.epoch == present.epoch {
        let same = |id: &ServerId| {
            map.server(*id).map(|info| info.store) == present.server(*id).map(|info| info.store)
        };
        return if servers.iter().all(same) { Ok(Answer::Done {}) } else { Err(Status::Conflict) };
    }
    let mut changes = Changes::default();
    for &server in servers {
        retire(shard, server, keeps, &mut changes).await?;
    }
    setmap::run_with(shard, map, changes).await?;
    for server in servers {
        shard.peers.forget(*server);
        // It may still run somewhere: it is heard no more.
        let session = shard.peer_sessions.borrow_mut().remove(server);
        if let Some(line) = session.and_then(|session| session.line.take()) {
            line.end();
        }
    }
    Ok(Answer::Done {})
}

/// What lies here in the pool of a lost store's datafiles goes, and so do the datafiles of here that lay in its pool.
async fn retire(
    shard: &Rc<Shard>,
    server: ServerId,
    keeps: bool,
    changes: &mut Changes,
) -> Result<(), Status> {
    changes.remove(keys::pool(server));
    changes.remove(keys::grant(server));
    if keeps { Ok(()) } else { remove_batches(shard, server, changes).await }
}

/// No file is left that could name a datafile of these batches for the first time.
async fn remove_batches(shard: &Rc<Shard>, pool: ServerId, changes: &mut Changes) -> Result<(), Status> {
    let prefix = keys::table(Table::Batch);
    let mut after: Option<Bytes> = None;
    loop {
        let looked = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await;
        let (scan, _) = looked.map_err(status_of)?;
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
