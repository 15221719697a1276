//! Opens a shard, and continues the operations that its rows show as under way.
//!
//! 1. [`find`] reads, and writes nothing: the format of the rows, the key of the names, and the map. It
//!    merges the map of the store with the map of the configuration.
//! 2. The fellows are asked ([`crate::membership::stores`]).
//! 3. If none of the fellows refuses the store, [`open`] runs before any client is admitted. It writes the
//!    positions that fellows have not accepted yet ([`crate::membership::claims`]), the map, and the root
//!    directory of a new file system, and reserves handles. Then it reads the rest of the state: transactions
//!    (prepared ones are locked again, committed ones are finished), sessions, whose lease begins anew,
//!    clients with file locks, pools of datafiles, lingering files.
//! 4. [`open`] starts the tasks of the shard: gate, lease, reaper, pools, resolver and others.

use crate::data::{pools, reaper};
use crate::file_locks;
use crate::membership::{claims, maps, older_copy, stores};
use crate::meta::keys::{self, Table};
use crate::meta::rows::{self, RowValue, Tx, TxState};
use crate::meta::{dir_split, format, inode, lingering, placed};
use crate::net::session::Session;
use crate::net::{lease, revoked};
use crate::shard::{Shard, apply_own};
use crate::txn::{self, Prepared};
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, crash_point};
use shoal_proto::codec::Codec;
use shoal_proto::op::Owner;
use shoal_proto::wire::Many;
use shoal_proto::{ClusterMap, Handle, ServerId, Text, Time};
use shoal_store::{Changes, StoreError, look, settle};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Rows looked at by one turn.
const BATCH: usize = 512;

/// Find out which file system a shard is of. Nothing is written.
///
/// # Errors
/// When the store fails or holds another file system.
pub async fn find(shard: &Rc<Shard>) -> Result<(), StoreError> {
    format::check(shard).await?;
    placed::check(shard).await?;
    let mut map = find_map(shard).await?;
    stores::enter_own(shard, &mut map)?;
    shard.adopt_map(map);
    claims::find(shard).await
}

/// Open a shard whose fellows were asked. `root` gives the attributes of the root directory of a new file
/// system.
///
/// # Errors
/// When the store fails.
pub async fn open(shard: &Rc<Shard>, root: Owner) -> Result<(), StoreError> {
    stores::keep_claims(shard).await?;
    keep_map(shard).await?;
    stores::keep_heard(shard).await?;
    make_root(shard, root).await?;
    if let Some(info) = shard.identity().map.server(shard.id()) {
        shard.handles.keep_within(info);
    }
    shard.handles.grow(&shard.collection).await?;
    find_transactions(shard).await?;
    shard.env.crash_point(crash_point::START_TRANSACTIONS, 0);
    find_sessions(shard).await?;
    file_locks::open(shard).await?;
    shard.env.crash_point(crash_point::START_SESSIONS, 0);
    pools::open(shard, table(shard, Table::Pool).await?).await?;
    shard.env.crash_point(crash_point::START_POOLS, 0);
    let spawn = |name, task: futures_util::future::LocalBoxFuture<'static, ()>| {
        shard.tasks.spawn(&shard.env, name, task);
    };
    lingering::open(shard).await?;
    spawn("gate", Box::pin(gate(shard.clone())));
    spawn("lease", Box::pin(lease::run(shard.clone())));
    spawn("revoked", Box::pin(revoked::run(shard.clone())));
    spawn("locks", Box::pin(file_locks::run(shard.clone())));
    spawn("lingering", Box::pin(lingering::run(shard.clone())));
    spawn("reaper", Box::pin(reaper::run(shard.clone())));
    spawn("pools", Box::pin(pools::run(shard.clone())));
    spawn("splits", Box::pin(dir_split::run(shard.clone())));
    spawn("stores", Box::pin(stores::run(shard.clone())));
    spawn("watch", Box::pin(stores::watch(shard.clone())));
    spawn("maps", Box::pin(maps::run(shard.clone())));
    spawn("ended", Box::pin(txn::forget_ended(shard.clone())));
    spawn("resolver", Box::pin(txn::resolve(shard.clone())));
    Ok(())
}

/// Let replies go whenever the journal moves.
async fn gate(shard: Rc<Shard>) {
    let progress = shard.collection.progress();
    loop {
        let moved = progress.wait();
        shard.deferred.durable(shard.collection.durable());
        shard.gate.release(&shard.collection);
        moved.await;
    }
}

/// The map that lies among the rows.
async fn kept_map(shard: &Shard) -> Result<Option<ClusterMap>, StoreError> {
    let key = keys::config("map");
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await?;
    let kept = row.map(|row| ClusterMap::from_bytes(&row)).transpose();
    kept.map_err(|error| damaged("the cluster's map", &error))
}

/// The present map: the one among the rows, with the changes of the configuration.
async fn find_map(shard: &Rc<Shard>) -> Result<ClusterMap, StoreError> {
    let given = shard.identity().map.clone();
    let mut map = ClusterMap::clone(&given);
    let kept = kept_map(shard).await?;
    if let Some(kept) = &kept {
        if kept.fs_id != given.fs_id || kept.collection != given.collection {
            return Err(StoreError::Refused("the store holds another file system than the map names".into()));
        }
        map = kept.succeeded_by(&given);
        // As long as it was never moved, the map here counts, however many more servers a copied file names.
        let moved = |map: &ClusterMap| map.server(shard.id()).is_some_and(|info| info.moved > 0);
        check_address(if moved(&map) { &map } else { kept }, &given, shard.id())?;
        shard.was_given_news.set(map != *kept);
    }
    check_moved(shard, kept.as_ref(), &given).await?;
    Ok(map)
}

/// Keep the map that holds now. From then on others may write it, as they meet peers.
async fn keep_map(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let mut kept = kept_map(shard).await?;
    let mut changes = Changes::default();
    format::raise(shard, &mut changes).await?;
    match &kept {
        Some(kept) if older_copy::is_accepted(shard, kept, &shard.identity().map) => {
            older_copy::forget_promises(shard).await?;
        }
        Some(_) => {}
        None => format::put(&mut changes),
    }
    placed::keep(shard, &mut changes).await?;
    let served = addresses(&shard.identity().map, shard.id());
    if served != served_row(shard).await? {
        changes.put(keys::config("served"), many(served).to_bytes());
    }
    // A peer that is met meanwhile is entered in memory alone.
    loop {
        let map = shard.identity().map.clone();
        if kept.as_ref() != Some(&*map) {
            changes.put(keys::config("map"), map.to_bytes());
        }
        if changes.rows.is_empty() {
            shard.may_write.set(true);
            return Ok(());
        }
        apply_own(&shard.collection, std::mem::take(&mut changes)).await?;
        kept = Some(ClusterMap::clone(&map));
    }
}

/// A server stays where its clients know it, until an operator moves it. One that would serve elsewhere is
/// most likely a copy of the folder: two servers with one identity, each with a part of the changes. `known`
/// is the map of the store, or of a fellow.
///
/// # Errors
/// `Refused`, with the remedy.
pub(crate) fn check_address(known: &ClusterMap, given: &ClusterMap, id: ServerId) -> Result<(), StoreError> {
    let (name, moved) = (&known.name, known.server(id).map_or(0, |info| info.moved));
    let is_older = given.server(id).is_some_and(|info| info.moved < moved);
    let (known, now) = (addresses(known, id), addresses(given, id));
    let (network, network_now) = (of_network(&known), of_network(&now));
    // Each machine has a socket of that name.
    let is_there = match network.is_empty() && network_now.is_empty() {
        true => now.iter().any(|at| known.contains(at)),
        false if is_older => network == network_now,
        false => !network.is_disjoint(&network_now),
    };
    if known.is_empty() || now.is_empty() || is_there {
        return Ok(());
    }
    let remedy = match is_older {
        true => "it was moved there, and this cluster file is older: take over the newest one",
        false => {
            "listen there, or say that it moves (`shoal move-server`); if this folder is a copy, use the one it was copied from \
             (two servers with one identity would part the data)"
        }
    };
    Err(StoreError::Refused(format!(
        "clients and servers know server {id} of file system `{name}` at {}, and here it would be at {}: {remedy}",
        known.join(", "),
        now.join(", "),
    )))
}

/// Where clients find a server. Names inside of a process lead no client anywhere else.
fn addresses(map: &ClusterMap, id: ServerId) -> Vec<String> {
    let all = map.server(id).map(|info| info.addresses.iter()).into_iter().flatten();
    all.filter(|at| !at.0.starts_with("local:")).map(|at| at.0.clone()).collect()
}

/// Those of them that lead to this machine from others.
fn of_network(addresses: &[String]) -> BTreeSet<&str> {
    addresses.iter().filter(|at| !at.starts_with("unix:")).map(String::as_str).collect()
}

/// A server that begins elsewhere must not still run where it was served from this store the last time: the
/// two would part the data. A row says where that was; the map may have said before it moved where it goes.
/// Nor where that map has it: a copy may have gone there.
async fn check_moved(
    shard: &Rc<Shard>,
    kept: Option<&ClusterMap>,
    given: &ClusterMap,
) -> Result<(), StoreError> {
    let id = shard.id();
    let now = addresses(given, id);
    let mut former: BTreeSet<String> = served_row(shard).await?.into_iter().collect();
    former.extend(kept.into_iter().flat_map(|kept| addresses(kept, id)));
    let former: Vec<String> = former.into_iter().filter(|at| !now.contains(at)).collect();
    let Some(at) = stores::still_serves(shard, &former).await else { return Ok(()) };
    Err(StoreError::Refused(format!(
        "server {id} of file system `{}` still runs at {at}, and here it would be at {}: stop it there first; if this folder is a \
         copy, use the one it was copied from",
        given.name,
        now.join(", "),
    )))
}

/// Where the server was served the last time.
async fn served_row(shard: &Shard) -> Result<Vec<String>, StoreError> {
    let key = keys::config("served");
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await?;
    let served = row.map(|row| Many::<Text, 8>::from_bytes(&row)).transpose();
    let served = served.map_err(|error| damaged("where the server was served", &error))?.unwrap_or_default();
    Ok(served.iter().map(|at| at.0.clone()).collect())
}

fn many(addresses: Vec<String>) -> Many<Text, 8> {
    addresses.into_iter().map(Text).collect::<Vec<_>>().into()
}

/// The root directory, made once, by the server that holds it.
async fn make_root(shard: &Rc<Shard>, owner: Owner) -> Result<(), StoreError> {
    let key = keys::inode(Handle::ROOT);
    if shard.id() != ServerId(0) || look(&shard.collection, |view| view.get(&key)).await?.0.is_some() {
        return Ok(());
    }
    let root = inode::root(&owner, shard.identity().map.template, Time(shard.env.wall().0));
    let mut changes = Changes::default();
    changes.put(key, root.to_row());
    apply_own(&shard.collection, changes).await?;
    settle(&shard.collection).await
}

async fn find_transactions(shard: &Rc<Shard>) -> Result<(), StoreError> {
    for (key, value) in table(shard, Table::Tx).await? {
        let tx = rows::tx_of_key(&key).ok_or_else(|| StoreError::Damaged("a transaction's key".into()))?;
        match Tx::from_row(&value).map_err(|error| damaged("a transaction", &error))?.state {
            TxState::Prepared { .. } if mutant::is(Mutant::ForgetInDoubt) => {}
            TxState::Prepared { actions: list, participants } => {
                let identity = shard.identity();
                let wanted = txn::locks_held(&identity, &list, &participants);
                if !shard.locks.take(tx, &wanted) {
                    return Err(StoreError::Damaged(format!(
                        "two transactions hold one lock, one of them {tx}"
                    )));
                }
                shard.env.crash_point(crash_point::PARTICIPANT_FOUND, tx.0);
                // In doubt since long ago: its coordinator is asked soon.
                shard.book.add_prepared(tx, Prepared::new(list, participants, Instant(0)));
            }
            TxState::Committed { unfinished } => {
                shard.env.crash_point(crash_point::COORDINATOR_FOUND, tx.0);
                let own = shard.clone();
                shard.book.begin_finishing(tx, unfinished.clone());
                let task = async move { txn::finish_committed(own, tx, unfinished).await };
                shard.tasks.spawn(&shard.env, "finish", task);
            }
        }
    }
    let now = shard.env.now();
    for (key, _) in table(shard, Table::Ended).await? {
        let tx =
            rows::tx_of_key(&key).ok_or_else(|| StoreError::Damaged("an ended transaction's key".into()))?;
        shard.book.add_ended(tx, now);
    }
    Ok(())
}

async fn find_sessions(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let now = shard.env.now();
    for (key, value) in table(shard, Table::Session).await? {
        let id = keys::parse_session(&key).ok_or_else(|| StoreError::Damaged("a session's key".into()))?;
        let row = rows::Session::from_row(&value).map_err(|error| damaged("a session", &error))?;
        if row.peer.is_none() {
            shard.sessions.openers.found(row.client);
        }
        let session = Session::new(id, row.client, row.peer, row.slots, false, now);
        shard.sessions.add(Rc::new(session.of_key(row.client_key.0)));
    }
    Ok(())
}

async fn table(shard: &Rc<Shard>, table: Table) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let prefix = keys::table(table);
    let (mut rows, mut after) = (Vec::new(), None::<Bytes>);
    loop {
        let (scan, _) = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await?;
        rows.extend(scan.rows);
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(rows),
        }
    }
}

fn damaged(what: &str, error: &shoal_proto::codec::DecodeError) -> StoreError {
    StoreError::Damaged(format!("{what}: {error}"))
}
