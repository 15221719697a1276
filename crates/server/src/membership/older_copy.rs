//! Accepts an older copy of a server's folder as a new store, when an operator requests it.
//!
//! Changes acknowledged after the copy was made are lost, but others remember them: a client has a reply,
//! another server has taken a datafile. So no promise of the copy to others continues. The operator's
//! command first *gives up* the store of the copy on all other servers: their maps then name a new store,
//! the successor, in its place. Then the command writes the successor's identity to the identity file of
//! the folder. The next start finds rows of a store that was given up ([`is_accepted`]). Before the server
//! serves requests, it removes
//!
//! * the pools: files that were lost may have taken these datafiles after the copy was made, and a pool that
//!   is used again would give one datafile to two files;
//! * the rows of the newest batches, so that no other server gets as an answer a batch that was made before
//!   the loss;
//! * the sessions and their kept replies: a client that continued would get replies for changes that are not
//!   there.
//!
//! The successor gives handles of a range of its own ([`shoal_proto::ServerInfo::handles_from`]), reports no
//! transaction of the lost time as aborted ([`crate::membership::stores::is_of_lost_store`]), and has another
//! loss id ([`crate::shard::Shard::loss_kept`]), by which clients see that unsynced changes are lost. Files
//! of other servers may have taken untouched datafiles of this server. These datafiles stay, because only the
//! other servers know whether a file names them.
//!
//! **The map's row is written last**, and names the store whose rows these are. A start that was interrupted
//! begins again.

use crate::meta::keys::{self, Table};
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use shoal_proto::ClusterMap;
use shoal_store::{Changes, StoreError, look};
use std::rc::Rc;

/// Rows removed by one batch.
const BATCH: usize = 256;

/// Whether the rows are of a store that was given up, and `map` names the present one as its successor.
/// `kept` is the map that lies among the rows.
pub fn is_accepted(shard: &Shard, kept: &ClusterMap, map: &ClusterMap) -> bool {
    let (Some(before), Some(now)) = (kept.server(shard.id()), map.server(shard.id())) else { return false };
    let present = shard.store();
    present.is_known() && now.store == present && before.store != present && now.has_retired(before.store)
}

/// Remove the promises to others.
///
/// # Errors
/// When the store fails.
pub async fn forget_promises(shard: &Rc<Shard>) -> Result<(), StoreError> {
    for table in [Table::Pool, Table::Grant, Table::Kept, Table::Session] {
        empty(shard, table).await?;
    }
    Ok(())
}

async fn empty(shard: &Rc<Shard>, table: Table) -> Result<(), StoreError> {
    let prefix = keys::table(table);
    let mut after: Option<Bytes> = None;
    loop {
        let (scan, _) = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await?;
        let mut changes = Changes::default();
        scan.rows.into_iter().for_each(|(key, _)| changes.remove(key));
        apply_own(&shard.collection, changes).await?;
        after = scan.resume;
        if after.is_none() {
            return Ok(());
        }
    }
}
