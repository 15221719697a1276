//! The reaper: the task that removes the datafiles of removed files on other servers. The removal of a file
//! leaves durable rows that name its datafiles; so does a start that retires datafiles of a pool. This task
//! sends requests to remove these datafiles, many in one message, and deletes a row when the reply arrives. A
//! repeated request does no harm.

use crate::counters::add;
use crate::data::status_of;
use crate::meta::keys::{self, Table};
use crate::meta::rows::{Inode, Reap, RowValue};
use crate::shard::{Shard, apply_own};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::crash_point;
use shoal_proto::{Dead, Handle, Op, ServerId, Status, limits};
use shoal_store::{Changes, Strength, look};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// One server has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause when some server did not.
const PAUSE: Duration = Duration::from_secs(1);

/// Rows of one message, at most.
const MESSAGE: usize = limits::HANDLES_MAX;
/// Rows of one group of it: they are removed together, and one that is locked keeps the others of its group
/// waiting.
const GROUP: usize = 64;

const _: () = assert!(MESSAGE.div_ceil(GROUP) <= limits::GROUPS_MAX);

/// A row to be reaped.
struct Row {
    key: Bytes,
    dead: Dead,
}

/// The result of asking one server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reaped {
    All,
    /// Some are locked.
    NotAll,
    /// It could not be reached.
    Away,
}

/// The task of a shard.
pub async fn run(shard: Rc<Shard>) {
    loop {
        let more = shard.reap_rows.wait();
        match sweep(&shard).await {
            Ok(true) => {
                more.await;
                // A client removes the datafiles itself; the reaper removes only those that remain.
                if !shard.identity().map.switches.compound {
                    shard.env.sleep(shard.settings.lease / 4).await;
                }
            }
            Ok(false) => shard.env.sleep(PAUSE).await,
            Err(status) => {
                tracing::warn!(%status, "rows to be reaped could not be handled");
                shard.env.sleep(PAUSE).await;
            }
        }
    }
}

/// Go once over all rows; returns whether all were reaped. A server that is away is waited for once: the
/// others' rows come after its own.
async fn sweep(shard: &Rc<Shard>) -> Result<bool, Status> {
    let mut away = BTreeSet::new();
    let prefix = keys::table(Table::Reap);
    let mut after: Option<Bytes> = None;
    let mut all = true;
    loop {
        let looked = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), MESSAGE)).await;
        let (scan, seen) = looked.map_err(status_of)?;
        // A message: the changes that it depends on are durable before it leaves.
        crate::txn::durable(&shard.collection, seen).await.map_err(status_of)?;
        let mut by_server: BTreeMap<ServerId, Vec<Row>> = BTreeMap::new();
        for (key, value) in &scan.rows {
            if let (Some((server, datafile)), Ok(reap)) = (keys::parse_reap(key), Reap::from_row(value)) {
                if away.contains(&server) {
                    continue;
                }
                if lists(shard, reap.owner, datafile).await? {
                    tracing::error!(%datafile, owner = %reap.owner, "to be reaped, but its file is there: see `shoal fsck`");
                    all = false;
                    continue;
                }
                let dead = Dead { datafile, owner: reap.owner };
                by_server.entry(server).or_default().push(Row { key: key.clone(), dead });
            }
        }
        let asked = by_server
            .into_iter()
            .map(|(server, dead)| async move { (server, reap(shard, server, dead).await) });
        for (server, reaped) in join_all(asked).await {
            let reaped = reaped?;
            all &= reaped == Reaped::All;
            if reaped == Reaped::Away {
                away.insert(server);
            }
        }
        match scan.resume {
            Some(key) => {
                let server = keys::parse_reap(&key).map(|(server, _)| server);
                let skipped = server.filter(|server| away.contains(server));
                after = Some(skipped.map_or(key, |server| keys::reap(server, Handle(u64::MAX))));
            }
            None => return Ok(all),
        }
    }
}

/// Whether the file is here and lists the datafile. By construction it never does; a damaged store is not to
/// cost data.
async fn lists(shard: &Rc<Shard>, owner: Handle, datafile: Handle) -> Result<bool, Status> {
    if owner.server() != shard.id() {
        return Ok(false);
    }
    let key = keys::inode(owner);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
    let inode = row.and_then(|row| Inode::from_row(&row).ok());
    Ok(inode.and_then(|inode| inode.layout).is_some_and(|layout| layout.datafiles.contains(&datafile)))
}

/// Ask one server, a group for some of them; the rows of those it removed go.
async fn reap(shard: &Rc<Shard>, server: ServerId, dead: Vec<Row>) -> Result<Reaped, Status> {
    let ops = dead
        .chunks(GROUP)
        .map(|group| Op::Reap { dead: group.iter().map(|row| row.dead).collect::<Vec<_>>().into() });
    let ops = ops.collect();
    let deadline = shard.env.now() + TIMEOUT;
    let first = dead.first().map_or(0, |row| row.dead.datafile.0);
    shard.env.crash_point(crash_point::REAPER_ASKS, first);
    add(&shard.counters.reap_messages, 1);
    let Ok((replies, _)) = shard.peers.call_all(server, ops, Bytes::new(), deadline).await else {
        return Ok(Reaped::Away);
    };
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    let mut all = Reaped::All;
    for (group, reply) in dead.chunks(GROUP).zip(replies) {
        if reply.status == Status::Ok {
            group.iter().for_each(|row| changes.remove(row.key.clone()));
            add(&shard.counters.reaped, group.len() as u64);
        } else {
            let first = group.first().map(|row| row.dead.datafile);
            tracing::debug!(?first, count = group.len(), status = %reply.status, "not reaped yet");
            all = Reaped::NotAll;
        }
    }
    apply_own(&shard.collection, changes).await.map_err(status_of)?;
    shard.env.crash_point(crash_point::REAPER_DONE, first);
    Ok(all)
}
