//! Renewal of stores. A server whose folder is lost for good begins anew in an empty folder
//! (`--new-store`). A server with an older copy of its folder continues with the copy, as a new store
//! (`--accept-older`).
//!
//! The steps have this order, so that the same command completes an interrupted renewal:
//!
//! 1. Each server that keeps its store is asked for its map. The newest map, with new stores in place of
//!    the lost stores, is the next map.
//! 2. Each server that keeps its store takes that map. It also removes the datafiles of the lost stores from
//!    its pools. From then on the old stores are refused.
//! 3. The record next to the cluster file names the new store, which the server makes when it begins.
//!
//! All servers that keep their store must answer: a server without the new map would refuse the new store
//! as a foreign store.
//!
//! For an older copy, the record names the new store before step 2. After step 3 the folder's identity file
//! names the new store too. From then on the folder is the new store. The server's next start does the rest
//! (`older_copy` in `shoal-server`). A copy is accepted only if it is known to be older. So the command does
//! no harm if it names a wrong server. It also does no harm if it is given again.

use crate::address::{CommandTarget, ShoalAddress};
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
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

/// A server that does not answer for so long does not serve.
const AWAY: Duration = Duration::from_secs(3);
/// Name of the file that names the owner of a folder's data.
const IDENTITY: &str = "collection";

/// The store of a server, or each of its stores whose folder is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anew {
    /// The server.
    pub server: u16,
    /// The file system.
    pub name: Option<String>,
}

impl FromStr for Anew {
    type Err = String;

    fn from_str(text: &str) -> Result<Anew, String> {
        let (server, name) = match text.split_once('/') {
            Some((server, name)) => (server, Some(name.to_owned())),
            None => (text, None),
        };
        let server = server.parse().map_err(|_| {
            format!(
                "`{text}` names no store: give a server's number, or number and file system as in `1/demo`"
            )
        })?;
        Ok(Anew { server, name })
    }
}

/// Servers whose stores are given up.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// Their folders are lost.
    pub anew: &'a [Anew],
    /// Their folders are older copies.
    pub older: &'a [u16],
    /// The servers of this machine that are started.
    pub here: &'a [u16],
}

impl Given<'_> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.anew.is_empty() && self.older.is_empty()
    }

    /// Whether the store of this server is given up.
    pub fn has(&self, id: u16) -> bool {
        self.anew.iter().any(|anew| anew.server == id) || self.older.contains(&id)
    }
}

/// Give the stores of these servers up, in every file system.
pub fn renew(cluster: &ClusterFile, given: Given<'_>) -> Result<()> {
    let mut older = BTreeSet::new();
    let entries = cluster.collection.iter().filter(|entry| entry.module == ModuleName::Disk);
    // Refusals come before anything is given up.
    let lost = lost_folders(cluster, &entries.clone().collect::<Vec<_>>(), given.anew)?;
    for entry in entries {
        let anew: Vec<u16> =
            lost.iter().filter(|(name, _)| *name == entry.name).map(|(_, server)| *server).collect();
        if anew.is_empty() && given.older.is_empty() {
            continue;
        }
        for &id in anew.iter().filter(|id| !given.here.contains(id)) {
            is_away(cluster, entry, id)?;
        }
        let took = RefCell::new(Vec::new());
        older.extend(
            renew_one(cluster, entry, given, &anew, &took)
                .with_context(|| left(&entry.name, &anew, &took.borrow()))?,
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

/// The state after a failure, as far as servers were asked to accept a new map: those of `took` may have it.
fn left(name: &str, anew: &[u16], took: &[ServerId]) -> String {
    if took.is_empty() {
        return format!("the stores of file system `{name}` stay as they are known");
    }
    let took: Vec<String> = took.iter().map(|server| format!("server {server}")).collect();
    let stores =
        if anew.is_empty() { "the older copies".to_owned() } else { format!("--new-store {anew:?}") };
    format!(
        "{stores} of file system `{name}` was begun and not completed: {} took, or may have taken, the map that gives the old store \
         up, and refuse that one from now on; give the same command again when all other servers run",
        took.join(", ")
    )
}

/// Which servers are served from older copies from now on. `took` are the servers that were asked to take the
/// new map.
fn renew_one(
    cluster: &ClusterFile,
    entry: &CollectionEntry,
    given: Given<'_>,
    anew: &[u16],
    took: &RefCell<Vec<ServerId>>,
) -> Result<Vec<u16>> {
    let fs_id = entry.fs_id()?;
    let mut lost = anew
        .iter()
        .map(|&id| Ok((ServerId(id), StoreRecord::load(cluster, id)?)))
        .collect::<Result<Vec<_>>>()?;
    let copies = given.older.iter().map(|&id| OlderCopy::find(cluster, entry, id));
    let mut copies = copies.collect::<Result<Vec<_>>>()?;
    let others: Vec<ServerId> =
        (0..cluster.server.len() as u16).filter(|id| !given.has(*id)).map(ServerId).collect();
    let (map, stores) = if others.is_empty() {
        // No other server has a map: the stores given up before are in the records.
        let mut map = cluster.map(entry)?;
        for record in lost.iter().map(|(_, record)| record).chain(copies.iter().map(|copy| &copy.record)) {
            map = record.map(&fs_id)?.map_or(map.clone(), |kept| kept.succeeded_by(&map));
        }
        copies.iter().try_for_each(|copy| copy.check(&map))?;
        copies.retain(|copy| copy.is_older(&fs_id, 0));
        begin(&mut copies, &fs_id, &mut map)?;
        let stores = succeed_all(&mut map, &lost, &[])?;
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
                if copy.is_older(&fs_id, remembered(&client, &others, copy.id, copy.store()).await?) {
                    older.push(copy);
                }
            }
            *copies = older;
            begin(copies, &fs_id, &mut map)?;
            let ids: Vec<ServerId> = copies.iter().map(|copy| copy.id).collect();
            tell_all(&client, &others, &ids, &map, took).await?;
            let mut made = Vec::new();
            for (id, _) in lost {
                let store = map.server(*id).map_or(StoreId::NONE, |info| info.store);
                if remembered(&client, &others, *id, store).await? > 0 {
                    made.push(*id);
                }
            }
            let stores = succeed_all(&mut map, lost, &made)?;
            let ids: Vec<ServerId> = lost.iter().map(|(id, _)| *id).collect();
            tell_all(&client, &others, &ids, &map, took).await?;
            Ok((map, stores))
        };
        connect::with_admin_within(&place(cluster, entry, |id| !given.has(id))?, connect::IMPATIENT, tell)
            .context("every server that keeps its store must run and answer")?
    };
    for ((id, record), store) in lost.iter_mut().zip(stores) {
        record.renew(store, &map);
        // That of another machine is written there.
        if given.here.contains(&id.0) {
            record.save()?;
        }
    }
    let older = copies.iter().map(|copy| copy.id.0).collect();
    copies.into_iter().try_for_each(|copy| copy.accept(&map))?;
    Ok(older)
}

/// The folders that are missing, of those that are named: file system and server.
fn lost_folders(
    cluster: &ClusterFile,
    entries: &[&CollectionEntry],
    anew: &[Anew],
) -> Result<BTreeSet<(String, u16)>> {
    let mut lost = BTreeSet::new();
    for Anew { server: id, name } in anew {
        let server =
            cluster.server.get(usize::from(*id)).with_context(|| format!("there is no server {id}"))?;
        let is_named = |entry: &&&CollectionEntry| name.as_ref().is_none_or(|name| *name == entry.name);
        let named: Vec<_> = entries.iter().filter(is_named).collect();
        let folder = |entry: &CollectionEntry| cluster.path(&server.folder).join(&entry.name);
        let missing: Vec<_> = named.iter().filter(|entry| !folder(entry).join(IDENTITY).exists()).collect();
        match (named.first(), name) {
            (None, Some(name)) => {
                bail!(
                    "--new-store {id}/{name}: the cluster file has no file system `{name}` that is kept on a disk"
                )
            }
            (Some(entry), _) if missing.is_empty() => bail!(
                "{} holds a store: --new-store {id} begins in an empty folder; move that one away first, or serve it",
                folder(entry).display()
            ),
            _ => lost.extend(missing.iter().map(|entry| (entry.name.clone(), *id))),
        }
    }
    Ok(lost)
}

/// The successors of the copies are kept, and stand in the map.
fn begin(copies: &mut [OlderCopy], fs_id: &[u8; 16], map: &mut ClusterMap) -> Result<()> {
    // Refusals come before anything is kept.
    copies.iter().try_for_each(|copy| copy.enter(map))?;
    copies.iter_mut().try_for_each(|copy| copy.begin(fs_id))
}

/// New stores of the servers that begin anew, in the map. The present stores of `made` were served; any other
/// one is still to be made where the map has given the recorded one up: the command was interrupted, or was
/// given for this server on another machine.
fn succeed_all(
    map: &mut ClusterMap,
    lost: &[(ServerId, StoreRecord)],
    made: &[ServerId],
) -> Result<Vec<StoreId>> {
    let fs_id = map.fs_id;
    let mut stores = Vec::new();
    for (id, record) in lost {
        let recorded = record.of(&fs_id).0;
        let info = map.server(*id).context("the map does not have the server")?;
        let is_to_make = info.store.is_known() && info.has_retired(recorded) && !made.contains(id);
        stores.push(if is_to_make { info.store } else { succeed(map, *id, recorded)? });
    }
    Ok(stores)
}

/// Each of `others` accepts the map, and retires its datafiles of the stores of `ids`.
async fn tell_all(
    client: &Client,
    others: &[ServerId],
    ids: &[ServerId],
    map: &ClusterMap,
    took: &RefCell<Vec<ServerId>>,
) -> Result<()> {
    for &server in others.iter().filter(|_| !ids.is_empty()) {
        took.borrow_mut().push(server);
        client.renew(server, ids, map).await?;
    }
    Ok(())
}

/// How far a store was durable, as the other servers remember it.
async fn remembered(client: &Client, others: &[ServerId], of: ServerId, store: StoreId) -> Result<u64> {
    let key = stores::key_of(of);
    let mut newest = 0;
    for &server in others {
        let (rows, _) = client.rows(server, &key, &[], 1).await?;
        let row = rows.first().filter(|row| row.key.0 == key).and_then(|row| stores::remembered(&row.value));
        newest = newest.max(row.filter(|(known, _)| *known == store).map_or(0, |(_, position)| position));
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
    info.renew(store, false).map_err(|_| anyhow::anyhow!("too many stores of server {id} were given up"))?;
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

/// A server of another machine whose store is to be given up must not serve it.
fn is_away(cluster: &ClusterFile, entry: &CollectionEntry, id: u16) -> Result<()> {
    let place = place(cluster, entry, |server| server == id)?;
    match connect::with_client_within(&place, AWAY, |_, _| async { Ok(()) }) {
        Ok(()) => bail!("server {id} serves its store of file system `{}`: it is not given up", entry.name),
        Err(_) => Ok(()),
    }
}

/// How to reach some servers.
fn place(cluster: &ClusterFile, entry: &CollectionEntry, has: impl Fn(u16) -> bool) -> Result<CommandTarget> {
    let kept = cluster.server.iter().enumerate().filter(|(id, _)| has(*id as u16));
    let servers = kept.map(|(_, server)| server.addresses()).collect::<Result<Vec<_>>>()?;
    let servers = servers.into_iter().flatten().filter(|at| !matches!(at, Address::Local(_))).collect();
    let address = ShoalAddress { servers, name: entry.name.clone(), path: "/".to_owned() };
    Ok(CommandTarget { address, key: cluster.path(&cluster.key) })
}
