//! Passes a change of the cluster map on to all servers.
//!
//! A change is made, durably, on the server that receives the request for it, and passed on to all others
//! at once. A server that is down at that time learns of the change later: every handshake with a peer, and
//! every answer of a peer, carries the epoch of the peer's map. **The connecting server fetches the peer's
//! map if that is newer, and sends its own map if that is not older**: two maps with the same epoch may
//! differ, if two servers that could not reach each other have each made a change. So one connection in
//! either direction is enough. If a peer connected before this server served, its map is requested when
//! this server begins to serve. Each server connects to its *fellows* (the servers that remember its
//! position) when it begins, and sends them a request once a minute ([`crate::membership::stores`]). So a
//! change needs no particular server: if server 0 has moved to an address that no other server knows yet,
//! server 0 itself connects.
//!
//! Two maps are merged by [`ClusterMap::succeeded_by`], which loses no change of either. **Rows of the map
//! are written in the order in which maps are taken**: between the read of the present map and the write of
//! the next row nothing is awaited ([`change`]).

use crate::data::status_of;
use crate::membership::given_up::{forget, given_up, own_given_up, retire};
use crate::meta::keys;
use crate::shard::Shard;
use bytes::Bytes;
use shoal_proto::codec::Codec;
use shoal_proto::{Answer, ClusterMap, Op, ServerId, Status};
use shoal_store::{Ask, Changes, Loaded, StoreError, settle};
use std::rc::Rc;
use std::time::Duration;

/// How long a change is tried to be passed on to one server; otherwise that server learns of it later.
const PUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for the exchange with a server that has another map.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two exchanges: after one that was of use, and after one that was not.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The most that a change may add to the map, in bytes of its row.
const ADDED_BYTES: u64 = 64 << 10;

/// Change the map, durably: the result of `change` replaces the present one, and the datafiles here of a
/// store that it gives up are retired ([`crate::membership::given_up`]). The status of `change` is returned
/// when the whole map is durable, also the changes by others. Before the fellows have accepted this server's
/// store nothing is written: the map at that time is kept when it begins to serve.
///
/// # Errors
/// When the store fails.
pub(crate) async fn change<T>(shard: &Shard, change: impl Fn(&mut ClusterMap) -> T) -> Result<T, StoreError> {
    let (told, next) = loop {
        let present = shard.identity().map.clone();
        let mut map = ClusterMap::clone(&present);
        let told = change(&mut map);
        if map == *present {
            break (told, present);
        }
        let (mut changes, mut admission) = (Changes::default(), None);
        let may_write = shard.may_write.get();
        if may_write {
            let lost = given_up(shard.id(), &present, &map);
            retire(shard, lost, &mut changes).await?;
            changes.put(keys::config("map"), map.to_bytes());
            let journal_bytes = ADDED_BYTES + present.to_bytes().len() as u64 + size_of(&changes);
            let ask = Ask { journal_bytes, stream_bytes: 0, stream: None, frees: true };
            admission = Some(shard.collection.admit(ask).await?);
        }
        // From here on nothing is awaited.
        if *shard.identity().map != *present || shard.may_write.get() != may_write {
            continue;
        }
        if may_write {
            shard.pools.taken(&shard.counters, &changes.rows);
            shard.collection.apply_over(changes, &Loaded::default())?;
        }
        shard.adopt_map(map);
        let next = shard.identity().map.clone();
        for (_, info) in given_up(shard.id(), &present, &next) {
            forget(shard, info.id);
        }
        drop(admission);
        break (told, next);
    };
    if shard.may_write.get() {
        settle(&shard.collection).await?;
    }
    if let Some(words) = own_given_up(shard, &next) {
        shard.set_aside(&words);
    }
    Ok(told)
}

fn size_of(changes: &Changes) -> u64 {
    let row = |(key, value): &(Bytes, Option<Bytes>)| 64 + key.len() + value.as_ref().map_or(0, Bytes::len);
    changes.rows.iter().map(row).sum::<usize>() as u64
}

/// Accept the newer parts of a map of another server, or of this process (`None`).
///
/// # Errors
/// `BadCollection`: of another file system. `Conflict`: it is no map of servers by their numbers.
pub(crate) async fn take(shard: &Shard, from: Option<ServerId>, given: &ClusterMap) -> Result<(), Status> {
    check(shard, given)?;
    let before = shard.identity().map.clone();
    let taken = change(shard, |map| *map = map.succeeded_by(given)).await.map_err(status_of);
    let is_new = *shard.identity().map != *before;
    if let Some(server) = from.filter(|_| is_new) {
        shard.audit.map_taken(shard, server, &before);
    }
    taken
}

/// The same, if `given` names the stores of `servers` that are to be served from now on.
///
/// # Errors
/// `Conflict`: another store of one of them was given up, or took its place, before. As [`take`].
pub(crate) async fn renew(shard: &Shard, servers: &[ServerId], given: &ClusterMap) -> Result<(), Status> {
    check(shard, given)?;
    let renewed = |map: &mut ClusterMap| {
        let succeeds = |id: &ServerId| match (map.server(*id), given.server(*id)) {
            (Some(known), Some(next)) => next.store == known.store || next.succeeds(known),
            _ => false,
        };
        if !servers.iter().all(succeeds) {
            return Err(Status::Conflict);
        }
        *map = map.succeeded_by(given);
        Ok(())
    };
    change(shard, renewed).await.map_err(status_of)?
}

fn check(shard: &Shard, given: &ClusterMap) -> Result<(), Status> {
    let present = shard.identity().map.clone();
    if given.fs_id != present.fs_id || given.collection != present.collection {
        return Err(Status::BadCollection);
    }
    if given.servers.iter().zip(0_u16..).any(|(info, at)| info.id.0 != at) {
        return Err(Status::Conflict);
    }
    Ok(())
}

/// Push this server's map to all others, in the background, once it is durable here.
pub(crate) fn push_to_all(shard: &Rc<Shard>) {
    let map = shard.identity().map.clone();
    for server in map.servers.iter().map(|s| s.id).filter(|id| *id != shard.id()) {
        let own = shard.clone();
        let map = map.clone();
        shard.tasks.spawn(&shard.env, "push map", async move { push(own, server, map).await });
    }
}

async fn push(shard: Rc<Shard>, server: ServerId, map: Rc<ClusterMap>) {
    if settle(&shard.collection).await.is_err() {
        return;
    }
    let deadline = shard.env.now() + PUSH_TIMEOUT;
    let op = Op::Setmap { map: ClusterMap::clone(&map) };
    if let Err(status) = shard.peers.call(server, op, deadline).await {
        tracing::warn!(%server, %status, epoch = map.epoch, "a server does not take the new map yet");
    }
}

/// The task of a shard that exchanges maps with peers: after a handshake, and where the epoch of one is
/// another.
pub(crate) async fn run(shard: Rc<Shard>) {
    loop {
        let told = shard.peers.epoch_told.wait();
        let Some((server, epoch)) = shard.peers.take_told_epoch() else {
            told.await;
            continue;
        };
        let exchanged = exchange(&shard, server, epoch).await;
        if let Err(status) = exchanged {
            tracing::debug!(%server, %status, epoch, "the map of a peer is another and stays so for now");
        }
        shard.env.sleep(if exchanged.is_ok() { PAUSES.0 } else { PAUSES.1 }).await;
    }
}

async fn exchange(shard: &Rc<Shard>, server: ServerId, epoch: u32) -> Result<(), Status> {
    let own = shard.identity().map.clone();
    let deadline = shard.env.now() + EXCHANGE_TIMEOUT;
    if epoch > own.epoch {
        return match shard.peers.call(server, Op::Map {}, deadline).await? {
            Answer::Map { map } => take(shard, Some(server), &map).await,
            _ => Err(Status::BadMessage),
        };
    }
    settle(&shard.collection).await.map_err(status_of)?;
    shard.peers.call(server, Op::Setmap { map: ClusterMap::clone(&own) }, deadline).await.map(drop)
}
