//! Splits a large directory over several servers (decision 0009).
//!
//! ```text
//!   home (server 1)                      after the split, one shard on each metadata server
//!   a dir    inode                       server 0   a dir  inode   d dir 00… – 3f…   first range of places
//!   d dir …  4,096 entries     ─────▶    server 1   a dir  inode   d dir 40… – 7f…   home; parent, xattrs
//!                                        server 2   a dir  inode   d dir 80… – bf…
//!                                        server 3   a dir  inode   d dir c0… – ff…
//! ```
//! When the number of a directory's entries reaches the switch `split`, it is split **once**, over all
//! metadata servers of that moment, in equal ranges of the keyed hash that places its names. The split is one
//! transaction ([`crate::ops`]' split plans it), which the directory's own server, its *home*, coordinates.
//! The inode is locked exclusively. The entries of other ranges are sent with the prepare messages, and are
//! removed from home in the batch of the decision. The entries for each server must fit into one prepare
//! message ([`shoal_proto::limits::SHARD_BYTES_MAX`]: 2,900 entries with the longest names), and the
//! directory may have 16,384 entries ([`shoal_proto::limits::SPLIT_ENTRIES_MAX`]). A directory that exceeds
//! one of these limits before it could be split stays whole.
//!
//! **Each shard has the directory's inode row under the directory's own handle**, so a handler runs on a
//! shard as it runs on a whole directory. **Objects stay where they are**: an entry older than the split
//! leads to an object of another server. Later objects are colocated with their shards, so a create still
//! costs one message and one record.
//!
//! *Mode, owner, template and explicit times* are alike on all shards: a change of them is one transaction
//! over all (`ShardSet`). *Counts and times of change* are each shard's own; clients merge them. *Parent
//! and extended attributes* are kept only at home. A removal is one transaction over all shards, each of
//! which must be empty.
//!
//! A client that asks a server for a name of another shard is redirected
//! ([`crate::request::ctx::Stopped::Split`]) and asks again there. A shard cannot be read before the
//! transaction has finished on its server: earlier requests wait for the lock.
//!
//! **A split is tried only when all servers answer**: if one were down, its prepare would wait, and the
//! directory would be locked for that time.

use crate::counters::add;
use crate::data::status_of;
use crate::meta::keys;
use crate::meta::rows::{Inode, RowValue};
use crate::request::executor::{Asker, run_own};
use crate::shard::Shard;
use futures_util::future::join_all;
use shoal_env::crash_point;
use shoal_env::local::Notify;
use shoal_proto::{ClientId, Group, Handle, Op, Roles, Status};
use shoal_store::look;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The other servers have this long to say that they are there.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// One try, with all its pauses, takes no longer.
const TRY_TIMEOUT: Duration = Duration::from_secs(4);
/// Pause after a try that failed, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The directories of one shard that are to be split.
#[derive(Default)]
pub struct Splits {
    wanted: RefCell<BTreeSet<Handle>>,
    /// Those that cannot be.
    whole: RefCell<BTreeSet<Handle>>,
    more: Notify,
}

impl Splits {
    /// A directory has grown to this size. Reported again with every entry, as long as it is whole.
    pub fn want(&self, dir: Handle) {
        if !self.whole.borrow().contains(&dir) && self.wanted.borrow_mut().insert(dir) {
            self.more.wake_all();
        }
    }
}

/// The task of a shard.
pub async fn run(shard: Rc<Shard>) {
    let mut pause = PAUSES.0;
    loop {
        let more = shard.splits.more.wait();
        let next = shard.splits.wanted.borrow().first().copied();
        let Some(dir) = next else {
            more.await;
            continue;
        };
        let end = split(&shard, dir).await;
        shard.splits.wanted.borrow_mut().remove(&dir);
        shard.env.crash_point(crash_point::SPLIT_DONE, dir.0);
        match end {
            Ok(()) => pause = PAUSES.0,
            Err(Status::OverLimit) => {
                tracing::warn!(%dir, "a directory is too large to be split: it stays whole");
                shard.splits.whole.borrow_mut().insert(dir);
            }
            Err(Status::Stale | Status::NotSupported) => {}
            Err(status) => {
                tracing::debug!(%dir, %status, "a directory could not be split yet");
                add(&shard.counters.splits_given_up, 1);
                shard.env.sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
    }
}

async fn split(shard: &Rc<Shard>, dir: Handle) -> Result<(), Status> {
    let key = keys::inode(dir);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
    let inode = row.and_then(|row| Inode::from_row(&row).ok()).ok_or(Status::Stale)?;
    if inode.shards.is_split() {
        return Ok(());
    }
    shard.env.crash_point(crash_point::SPLIT_ASKS, dir.0);
    let until = shard.env.now() + ANSWER_TIMEOUT;
    let map = shard.identity().map.clone();
    let others = map.with_roles(Roles::METADATA).filter(|&server| server != shard.id());
    let answers = join_all(others.map(|server| shard.peers.call(server, Op::Ping {}, until))).await;
    answers.into_iter().try_for_each(|answer| answer.map(drop))?;
    let group = Group { ops: vec![Op::Split { dir, entries: inode.entries }].into() };
    let asker = Asker::own(ClientId::default());
    let replies = run_own(shard, asker, vec![group], TRY_TIMEOUT).await;
    match replies.first().map(|reply| reply.status) {
        Some(Status::Ok) => {
            add(&shard.counters.splits, 1);
            tracing::info!(%dir, entries = inode.entries, "a directory was split");
            Ok(())
        }
        Some(status) => Err(status),
        None => Err(Status::Unavailable),
    }
}
