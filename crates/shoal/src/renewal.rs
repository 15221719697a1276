//! Giving stores up: servers whose folders are lost for good begin anew in empty ones (`--new-store`), or go on with older copies
//! of them, as new stores (`--accept-older`).
//!
//! In this order, so that an interruption leaves nothing half done that the same command does not complete:
//!
//! 1. Each server that keeps its store is asked for its map; the newest one, with new stores for the lost ones, is the next map.
//! 2. Each of them takes that map, and retires what its pools hold of the lost stores. From then on the old stores are refused.
//! 3. The record beside the cluster file names the new store, which the server makes when it begins.
//!
//! All servers that keep their store must answer: one that did not hear of it would take the new store for a foreign one.
//!
//! With an older copy the record keeps the new store from the beginning on, and at the end the identity file of the folder names
//! it, which is what decides. The server's start does the rest (`server::older`). A copy is accepted only if it is known to be
//! older, so that the command does no harm to the folder of a server that was named by mistake, nor when it is given again.

use crate::address::{Place, ShoalAddress};
use crate::cluster_file::{ClusterFile, CollectionEntry, ModuleName, random};
use crate::connect;
use crate::older_copy::OlderCopy;
use crate::store_record::StoreRecord;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use shoal_client::Client;
use shoal_env::Address;
use shoal_proto::op::Answer;
use shoal_proto::{ClusterMap, Op, ServerId, StoreId};
use shoal_server::stores;
use std::collections::BTreeSet;

/// Name of the file that says whose data a folder holds.
const IDENTITY: &str = "collection";

/// Servers whose stores are given up.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Their folders are lost.
    pub anew: &'a [u16],
    /// Their folders are older copies.
    pub older: &'a [u16],
}

impl Given<'_> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.anew.is_empty() && self.older.is_empty()
    }

    /// Whether the store of this server is given up.
    pub fn has(&self, id: u16) -> bool {
        self.anew.contains(&id) || self.older.contains(&id)
    }
}

/// Give the stores of these servers up, in every file system.
pub fn renew(cluster: &ClusterFile, given: Given<'_>) -> Result<()> {
    let mut older = BTreeSet::new();
    for entry in cluster.collection.iter().filter(|entry| entry.module == ModuleName::Disk) {
        older.extend(
            renew_one(cluster, entry, given).with_context(|| {
                format!("the stores of file system `{}` stay as they are known", entry.name)
            })?,
        );
    }
    match given.older.iter().find(|id| !older.contains(id)) {
        Some(id) => bail!(
            "the folder of server {id} is not an older copy: it is as far as this machine and the other servers remember; start \
             the server without --accept-older {id}"
        ),
        None => Ok(()),
    }
}

/// Which servers are served from older copies from now on.
fn renew_one(cluster: &ClusterFile, entry: &CollectionEntry, given: Given<'_>) -> Result<Vec<u16>> {
    let fs_id = entry.fs_id()?;
    let mut lost = lost_stores(cluster, entry, given.anew)?;
    let copies = given.older.iter().map(|&id| OlderCopy::find(cluster, entry, id));
    let mut copies = copies.collect::<Result<Vec<_>>>()?;
    let others: Vec<ServerId> =
        (0..cluster.server.len() as u16).filter(|id| !given.has(*id)).map(ServerId).collect();
    let (map, stores) = if others.is_empty() {
        // Nobody else has a map: what was given up before stands in the records.
        let mut map = cluster.map(entry)?;
        for record in lost.iter().map(|(_, record)| record).chain(copies.iter().map(|copy| &copy.record)) {
            map = record.map(&fs_id)?.map_or(map.clone(), |kept| kept.succeeded_by(&map));
        }
        copies.iter().try_for_each(|copy| copy.check(&map))?;
        copies.retain(|copy| copy.is_older(&fs_id, 0));
        begin(&mut copies, &fs_id, &mut map)?;
        let stores = succeed_all(&mut map, &lost)?;
        (map, stores)
    } else {
        let (copies, lost) = (&mut copies, &lost);
        let tell = |_, client: Client| async move {
            let mut map = newest_map(&client, &others).await?;
            if map.servers.len() != cluster.server.len() {
                bail!(
                    "the running file system has {} servers, the cluster file {}: take over the newest file first",
                    map.servers.len(),
                    cluster.server.len()
                );
            }
            copies.iter().try_for_each(|copy| copy.check(&map))?;
            let mut older = Vec::new();
            for copy in copies.drain(..) {
                if copy.is_older(&fs_id, remembered(&client, &others, &copy).await?) {
                    older.push(copy);
                }
            }
            *copies = older;
            begin(copies, &fs_id, &mut map)?;
            let ids: Vec<ServerId> = copies.iter().map(|copy| copy.id).collect();
            tell_all(&client, &others, &ids, &map, true).await?;
            let stores = succeed_all(&mut map, lost)?;
            let ids: Vec<ServerId> = lost.iter().map(|(id, _)| *id).collect();
            tell_all(&client, &others, &ids, &map, false).await?;
            Ok((map, stores))
        };
        connect::with_client_within(&place(cluster, entry, given)?, connect::IMPATIENT, tell)
            .context("every server that keeps its store must run and answer")?
    };
    for ((_, record), store) in lost.iter_mut().zip(stores) {
        record.renew(store, &map);
        record.save()?;
    }
    let older = copies.iter().map(|copy| copy.id.0).collect();
    copies.into_iter().try_for_each(|copy| copy.accept(&map))?;
    Ok(older)
}

/// The records of servers that begin anew; their folders hold nothing.
fn lost_stores(
    cluster: &ClusterFile,
    entry: &CollectionEntry,
    anew: &[u16],
) -> Result<Vec<(ServerId, StoreRecord)>> {
    let mut records = Vec::new();
    for &id in anew {
        let server =
            cluster.server.get(usize::from(id)).with_context(|| format!("there is no server {id}"))?;
        let folder = cluster.path(&server.folder).join(&entry.name);
        if folder.join(IDENTITY).exists() {
            bail!(
                "{} holds a store: --new-store {id} begins in an empty folder; move that one away first, or serve it",
                folder.display()
            );
        }
        records.push((ServerId(id), StoreRecord::load(cluster, id)?));
    }
    Ok(records)
}

/// The successors of the copies are kept, and stand in the map.
fn begin(copies: &mut [OlderCopy], fs_id: &[u8; 16], map: &mut ClusterMap) -> Result<()> {
    // What is refused is refused before anything is kept.
    copies.iter().try_for_each(|copy| copy.enter(map))?;
    copies.iter_mut().try_for_each(|copy| copy.begin(fs_id))
}

/// New stores of the servers that begin anew, in the map.
fn succeed_all(map: &mut ClusterMap, lost: &[(ServerId, StoreRecord)]) -> Result<Vec<StoreId>> {
    let fs_id = map.fs_id;
    lost.iter().map(|(id, record)| succeed(map, *id, record.of(&fs_id).0)).collect()
}

/// Each of `others` takes the map, and retires what it has of the stores of `ids`.
async fn tell_all(
    client: &Client,
    others: &[ServerId],
    ids: &[ServerId],
    map: &ClusterMap,
    keeps: bool,
) -> Result<()> {
    for &server in others.iter().filter(|_| !ids.is_empty()) {
        client.renew(server, ids, map, keeps).await?;
    }
    Ok(())
}

/// How far the store of a copy was durable, as the other servers remember it.
async fn remembered(client: &Client, others: &[ServerId], copy: &OlderCopy) -> Result<u64> {
    let key = stores::key_of(copy.id);
    let mut newest = 0;
    for &server in others {
        let (rows, _) = client.rows(server, &key, &[], 1).await?;
        let row = rows.first().filter(|row| row.key.0 == key).and_then(|row| stores::remembered(&row.value));
        newest =
            newest.max(row.filter(|(store, _)| *store == copy.store()).map_or(0, |(_, position)| position));
    }
    Ok(newest)
}

/// In the map, a new store takes the place of a server's present one.
fn succeed(map: &mut ClusterMap, id: ServerId, recorded: StoreId) -> Result<StoreId> {
    let info = map.servers.0.get_mut(usize::from(id.0)).context("the map does not have the server")?;
    if !info.store.is_known() {
        info.store = recorded;
    }
    let store = StoreId(u64::from_be_bytes(random::<8>()?) | 1);
    info.renew(store).map_err(|_| anyhow::anyhow!("too many stores of server {id} were given up"))?;
    map.epoch += 1;
    Ok(store)
}

/// The newest map of these servers; each must answer.
async fn newest_map(client: &Client, servers: &[ServerId]) -> Result<ClusterMap> {
    let mut newest: Option<ClusterMap> = None;
    for &server in servers {
        let (answer, _) = client.request(server, Op::Map {}, Bytes::new()).await?;
        let Answer::Map { map } = answer else { bail!("the answer of server {server} is no map") };
        newest = Some(newest.map_or(map.clone(), |known| known.succeeded_by(&map)));
    }
    newest.context("there is no other server")
}

/// How to reach the servers that keep their stores.
fn place(cluster: &ClusterFile, entry: &CollectionEntry, given: Given<'_>) -> Result<Place> {
    let kept = cluster.server.iter().enumerate().filter(|(id, _)| !given.has(*id as u16));
    let servers = kept.map(|(_, server)| server.addresses()).collect::<Result<Vec<_>>>()?;
    let servers = servers.into_iter().flatten().filter(|at| !matches!(at, Address::Local(_))).collect();
    let address = ShoalAddress { servers, name: entry.name.clone(), path: "/".to_owned() };
    Ok(Place { address, key: cluster.path(&cluster.key) })
}
