//! The reaper: datafiles of removed files on other servers. A removal leaves durable rows that name them; this task asks
//! their servers to remove them, many by one message, and removes the rows when they did. Asking twice does no harm.

use crate::counters::add;
use crate::data::status_of;
use crate::keys::{self, Table};
use crate::rows::{Inode, Reap, RowValue};
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::point;
use shoal_proto::{Handle, Op, ServerId, Status, limits};
use shoal_store::{Changes, Strength, look};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// One server has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause when some server did not.
const PAUSE: Duration = Duration::from_secs(1);

/// A row to be reaped.
struct Dead {
    row: Bytes,
    datafile: Handle,
    owner: Handle,
}

/// The task of a shard.
pub async fn run(shard: Rc<Shard>) {
    loop {
        let more = shard.reap_rows.wait();
        match sweep(&shard).await {
            Ok(true) => more.await,
            Ok(false) => shard.env.sleep(PAUSE).await,
            Err(status) => {
                tracing::warn!(%status, "rows to be reaped could not be handled");
                shard.env.sleep(PAUSE).await;
            }
        }
    }
}

/// Go once over all rows; whether all were reaped.
async fn sweep(shard: &Rc<Shard>) -> Result<bool, Status> {
    let prefix = keys::table(Table::Reap);
    let mut after: Option<Bytes> = None;
    let mut all = true;
    loop {
        let looked =
            look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), limits::GROUPS_MAX)).await;
        let (scan, seen) = looked.map_err(status_of)?;
        // A message: what it depends on is durable before it leaves.
        crate::tx::durable(&shard.collection, seen).await.map_err(status_of)?;
        let mut by_server: BTreeMap<ServerId, Vec<Dead>> = BTreeMap::new();
        for (key, value) in &scan.rows {
            if let (Some((server, datafile)), Ok(reap)) = (keys::parse_reap(key), Reap::from_row(value)) {
                if lists(shard, reap.owner, datafile).await? {
                    tracing::error!(%datafile, owner = %reap.owner, "to be reaped, but its file is there: see `shoal fsck`");
                    all = false;
                    continue;
                }
                by_server.entry(server).or_default().push(Dead {
                    row: key.clone(),
                    datafile,
                    owner: reap.owner,
                });
            }
        }
        for reaped in join_all(by_server.into_iter().map(|(server, dead)| reap(shard, server, dead))).await {
            all &= reaped?;
        }
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(all),
        }
    }
}

/// Whether the file is here and lists the datafile. By construction it never does; a damaged store is not to cost data.
async fn lists(shard: &Rc<Shard>, owner: Handle, datafile: Handle) -> Result<bool, Status> {
    if owner.server() != shard.id() {
        return Ok(false);
    }
    let key = keys::inode(owner);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
    let inode = row.and_then(|row| Inode::from_row(&row).ok());
    Ok(inode.and_then(|inode| inode.layout).is_some_and(|layout| layout.datafiles.contains(&datafile)))
}

/// Ask one server; the rows of those it removed go.
async fn reap(shard: &Rc<Shard>, server: ServerId, dead: Vec<Dead>) -> Result<bool, Status> {
    let ops = dead.iter().map(|d| Op::Reap { owner: d.owner, datafiles: vec![d.datafile].into() }).collect();
    let deadline = shard.env.now() + TIMEOUT;
    let first = dead.first().map_or(0, |dead| dead.datafile.0);
    shard.env.point(point::REAPER_ASKS, first);
    let Ok((replies, _)) = shard.peers.call_all(server, ops, Bytes::new(), deadline).await else {
        return Ok(false);
    };
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    let mut all = true;
    for (dead, reply) in dead.into_iter().zip(replies) {
        if reply.status == Status::Ok {
            changes.remove(dead.row);
            add(&shard.counters.reaped, 1);
        } else {
            tracing::debug!(datafile = %dead.datafile, status = %reply.status, "not reaped yet");
            all = false;
        }
    }
    apply_own(&shard.collection, changes).await.map_err(status_of)?;
    shard.env.point(point::REAPER_DONE, first);
    Ok(all)
}
