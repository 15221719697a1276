//! Giving stores up: servers whose folders are lost for good begin anew in empty ones (`--new-store`).
//!
//! In this order, so that an interruption leaves nothing half done that the same command does not complete:
//!
//! 1. Each server that keeps its store is asked for its map; the newest one, with new stores for the lost ones, is the next map.
//! 2. Each of them takes that map, and retires what its pools hold of the lost stores. From then on the old stores are refused.
//! 3. The record beside the cluster file names the new store, which the server makes when it begins.
//!
//! All servers that keep their store must answer: one that did not hear of it would take the new store for a foreign one.

use crate::address::{Place, ShoalAddress};
use crate::cluster_file::{ClusterFile, CollectionEntry, ModuleName, random};
use crate::connect;
use crate::store_record::StoreRecord;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use shoal_client::Client;
use shoal_env::Address;
use shoal_proto::op::Answer;
use shoal_proto::{ClusterMap, Op, ServerId, StoreId};

/// Name of the file that says whose data a folder holds.
const IDENTITY: &str = "collection";

/// Give the stores of these servers up, in every file system.
pub fn renew(cluster: &ClusterFile, lost: &[u16]) -> Result<()> {
    for entry in cluster.collection.iter().filter(|entry| entry.module == ModuleName::Disk) {
        renew_one(cluster, entry, lost)
            .with_context(|| format!("the stores of file system `{}` stay as they are known", entry.name))?;
    }
    Ok(())
}

fn renew_one(cluster: &ClusterFile, entry: &CollectionEntry, lost: &[u16]) -> Result<()> {
    let fs_id = entry.fs_id()?;
    let mut records = Vec::new();
    for &id in lost {
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
    let known = |map: &mut ClusterMap| -> Result<Vec<StoreId>> {
        records.iter().map(|(id, record)| succeed(map, *id, record.of(&fs_id).0)).collect()
    };
    let others: Vec<ServerId> =
        (0..cluster.server.len() as u16).filter(|id| !lost.contains(id)).map(ServerId).collect();
    let (map, stores) = if others.is_empty() {
        // Nobody else has a map: what was given up before stands in the records.
        let mut map = cluster.map(entry)?;
        for (_, record) in &records {
            map = record.map(&fs_id)?.map_or(map.clone(), |kept| kept.succeeded_by(&map));
        }
        let stores = known(&mut map)?;
        (map, stores)
    } else {
        let ids: Vec<ServerId> = lost.iter().copied().map(ServerId).collect();
        let tell = |_, client: Client| async move {
            let mut map = newest_map(&client, &others).await?;
            if map.servers.len() != cluster.server.len() {
                bail!(
                    "the running file system has {} servers, the cluster file {}: take over the newest file first",
                    map.servers.len(),
                    cluster.server.len()
                );
            }
            let stores = known(&mut map)?;
            for &server in &others {
                client.renew(server, &ids, &map, false).await?;
            }
            Ok((map, stores))
        };
        connect::with_client_within(&place(cluster, entry, lost)?, connect::IMPATIENT, tell)
            .context("every server that keeps its store must run and answer")?
    };
    for ((_, record), store) in records.iter_mut().zip(stores) {
        record.renew(store, &map);
        record.save()?;
    }
    Ok(())
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
        let Answer::Map { mut map } = answer else { bail!("the answer of server {server} is no map") };
        if let Some(known) = newest.take() {
            let (older, newer) = if known.epoch > map.epoch { (map, known) } else { (known, map) };
            map = newer;
            map.remember_stores(&older);
        }
        newest = Some(map);
    }
    newest.context("there is no other server")
}

/// How to reach the servers that keep their stores.
fn place(cluster: &ClusterFile, entry: &CollectionEntry, lost: &[u16]) -> Result<Place> {
    let kept = cluster.server.iter().enumerate().filter(|(id, _)| !lost.contains(&(*id as u16)));
    let servers = kept.map(|(_, server)| server.addresses()).collect::<Result<Vec<_>>>()?;
    let servers = servers.into_iter().flatten().filter(|at| !matches!(at, Address::Local(_))).collect();
    let address = ShoalAddress { servers, name: entry.name.clone(), path: "/".to_owned() };
    Ok(Place { address, key: cluster.path(&cluster.key) })
}
