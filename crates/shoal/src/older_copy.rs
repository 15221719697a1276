//! Handles the folder of a server that an operator has declared to be an older copy.

use crate::cluster_file::{ClusterFile, CollectionEntry, random};
use crate::node::collection_config;
use crate::store_record::StoreRecord;
use anyhow::{Context as _, Result, anyhow, bail};
use shoal_proto::{ClusterMap, ServerId, StoreId};
use shoal_server::stores;
use shoal_store::CollectionConfig;

/// An older copy, and the store that it becomes.
pub struct OlderCopy {
    /// Of this server.
    pub id: ServerId,
    /// The record of that server.
    pub record: StoreRecord,
    config: CollectionConfig,
    /// The store that the folder names.
    found: StoreId,
    /// How far that is durable.
    position: u64,
    successor: StoreId,
}

impl OlderCopy {
    /// Look at the folder. The error says that it is not there, is of another server or file system, or is of
    /// a store that was never known.
    pub fn find(cluster: &ClusterFile, entry: &CollectionEntry, id: u16) -> Result<OlderCopy> {
        let server =
            cluster.server.get(usize::from(id)).with_context(|| format!("there is no server {id}"))?;
        let folder = cluster.path(&server.folder).join(&entry.name);
        let record = StoreRecord::load(cluster, id)?;
        let map = cluster.map(entry)?;
        let mut config = collection_config(entry, &map, ServerId(id), folder.clone())?;
        config.create = false;
        let opened = config.clone();
        let looked = shoal_env::real::run("shoal", |env| async move {
            let store = shoal_store::open(env, opened).await?;
            let found = (store.store_id(), stores::position_found(&store).await?);
            store.close().await.map(|()| found)
        });
        let (found, position) = looked
            .with_context(|| format!("{} is no older copy of the store of server {id}", folder.display()))?;
        let (known, fs) = (record.of(&map.fs_id).0, map.fs_id);
        // One that was interrupted continues with the successor that it had drawn.
        let drawn = match record.copy_of(&fs) {
            Some(copy_of) if found == copy_of || found == known => Some(known),
            _ => record.successor(&fs),
        };
        let successor = match drawn {
            Some(drawn) => drawn,
            None => StoreId(u64::from_be_bytes(random::<8>()?) | 1),
        };
        Ok(OlderCopy { id: ServerId(id), record, config, found, position, successor })
    }

    /// Whether it is older than the position that the record or another server (`remembered`) has for its
    /// store; or all other servers were informed before that it is to be accepted.
    pub fn is_older(&self, fs_id: &[u8; 16], remembered: u64) -> bool {
        let (store, position) = self.record.of(fs_id);
        let is_behind = store == self.found && self.position < position;
        is_behind || self.position < remembered || self.record.copy_of(fs_id).is_some()
    }

    /// Which store the folder holds a copy of.
    pub fn store(&self) -> StoreId {
        self.found
    }

    /// Keep the successor, so that a command that is interrupted continues with it.
    pub fn begin(&mut self, fs_id: &[u8; 16]) -> Result<()> {
        if self.record.copy_of(fs_id).is_none() {
            self.record.begin_to_accept(fs_id, self.found, self.successor);
            self.record.save()?;
        }
        Ok(())
    }

    /// Whether it is a copy of the store that the map knows.
    pub fn check(&self, map: &ClusterMap) -> Result<()> {
        let id = self.id;
        let info = map.server(id).context("the map does not have the server")?;
        if info.store == self.successor {
            return Ok(());
        }
        if info.has_retired(self.found) {
            bail!(
                "store {} of server {id} was given up for good, and another one took its place: a copy of it is not accepted",
                self.found
            );
        }
        if !info.admits(self.found) {
            bail!(
                "server {id} has store {}, and {} holds a copy of store {}: restore a copy of store {}",
                info.store,
                self.config.dir.display(),
                self.found,
                info.store
            );
        }
        Ok(())
    }

    /// In the map the successor takes the place of the copy's store.
    pub fn enter(&self, map: &mut ClusterMap) -> Result<()> {
        self.check(map)?;
        let id = self.id;
        let Some(info) = map.servers.0.get_mut(usize::from(id.0)) else { return Ok(()) };
        if info.store == self.successor {
            return Ok(());
        }
        info.store = self.found;
        info.renew(self.successor, true)
            .map_err(|_| anyhow!("too many stores of server {id} were given up"))?;
        map.epoch += 1;
        Ok(())
    }

    /// All other servers have taken `map`: the folder holds the successor from now on. The server's next
    /// start completes it.
    pub fn accept(mut self, map: &ClusterMap) -> Result<()> {
        if self.found != self.successor {
            self.record.accept(self.found, self.successor, map);
            self.record.save()?;
        }
        let OlderCopy { config, found, successor, .. } = self;
        let renamed = shoal_env::real::run("shoal", |env| async move {
            shoal_store::succeed(&env, &config, found, successor).await
        });
        renamed.map_err(Into::into)
    }
}
