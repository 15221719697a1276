//! The record that names the store of a server on this machine, for each file system. It is a file next to
//! the cluster file, one for each server.
//!
//! ```toml
//! # server 2: which store it is served from, and how far that was durable
//! [[store]]
//! file_system = "32 hexadecimal digits"
//! store = "16 hexadecimal digits"
//! position = 48211
//! ```
//! The record is next to `cluster.toml`, not in the server's folder, because that folder can be lost. **A
//! store is made only if the record names none, or has `to_make`.** Without other servers only this record
//! distinguishes a new folder from a lost one.
//!
//! When a store is given up (`--new-store`), its entry names its successor in `store`. The entry has
//! `to_make` until the successor is made, and `map`: the map with the successor that the other servers took.
//!
//! When an older copy is accepted (`--accept-older`), a new store id is drawn for the copy. The entry keeps
//! this id in `successor` until all other servers know it. Then the entry names it in `store`, and has
//! `copy_of`, the former store of the copy, until the folder is served.

use crate::cluster_file::{ClusterFile, hex, not_toml, unhex};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use shoal_proto::codec::Codec as _;
use shoal_proto::{ClusterMap, StoreId};
use std::path::PathBuf;

/// The record of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreRecord {
    /// A store for each file system.
    #[serde(default)]
    store: Vec<Entry>,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    server: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    file_system: String,
    store: String,
    #[serde(default)]
    position: u64,
    /// The store is still to be made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    to_make: bool,
    /// The store that an older copy is to become, while not all other servers know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    successor: Option<String>,
    /// The folder may still name this store, of which it is an older copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy_of: Option<String>,
    /// The map that names it, where an earlier store was given up: encoded, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    map: Option<String>,
}

impl Entry {
    fn new(fs_id: &[u8; 16], store: StoreId) -> Entry {
        Entry {
            file_system: hex(fs_id),
            store: store.to_string(),
            position: 0,
            to_make: false,
            successor: None,
            copy_of: None,
            map: None,
        }
    }
}

/// The store of a text that was read: [`StoreRecord::load`] has looked at it.
fn store_of(text: &str) -> StoreId {
    StoreId(unhex::<8>(text).map(u64::from_be_bytes).unwrap_or_default())
}

impl StoreRecord {
    /// The record of a server; an empty one if there is none.
    pub fn load(cluster: &ClusterFile, server: u16) -> Result<StoreRecord> {
        let path = cluster.base.join(format!("store-{server}.toml"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) if !text.contains("[[store]]") => bail!(
                "{} names no store: it was emptied or cut short; restore it from a copy, or remove it if the folder of \
                 server {server} is certainly the one that was served last (without a record an older copy of the folder \
                 is served too where no other server remembers more)",
                path.display()
            ),
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mut record: StoreRecord = toml::from_str(&text)
            .map_err(|error| not_toml(&path, "a store's record", "ARCHITECTURE.md", &text, &error))?;
        for entry in &record.store {
            for store in [Some(&entry.store), entry.successor.as_ref(), entry.copy_of.as_ref()] {
                let named = store.map(|store| unhex::<8>(store)).transpose();
                named.with_context(|| format!("{} names no store", path.display()))?;
            }
        }
        (record.path, record.server) = (path, server);
        Ok(record)
    }

    fn entry(&self, fs_id: &[u8; 16]) -> Option<&Entry> {
        let fs = hex(fs_id);
        self.store.iter().find(|entry| entry.file_system == fs)
    }

    /// The store of a file system, and how far it was durable; [`StoreId::NONE`] if none is known.
    pub fn of(&self, fs_id: &[u8; 16]) -> (StoreId, u64) {
        self.entry(fs_id).map_or((StoreId::NONE, 0), |entry| (store_of(&entry.store), entry.position))
    }

    /// The store that an older copy is to become, if that was begun and not all other servers know it.
    pub fn successor(&self, fs_id: &[u8; 16]) -> Option<StoreId> {
        self.entry(fs_id)?.successor.as_deref().map(store_of)
    }

    /// The store of the older copy that becomes the present store, if the folder was not served since.
    pub fn copy_of(&self, fs_id: &[u8; 16]) -> Option<StoreId> {
        self.entry(fs_id)?.copy_of.as_deref().map(store_of)
    }

    /// Whether the store of a file system may be made: none is known, or it takes the place of one that was
    /// given up.
    pub fn may_make(&self, fs_id: &[u8; 16]) -> bool {
        self.entry(fs_id).is_none_or(|entry| entry.to_make)
    }

    /// The map that came with the present store, if an earlier one was given up.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn map(&self, fs_id: &[u8; 16]) -> Result<Option<ClusterMap>> {
        let Some(text) = self.entry(fs_id).and_then(|entry| entry.map.as_ref()) else { return Ok(None) };
        let damaged = || format!("the map in {} is damaged", self.path.display());
        let digit = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
        let map = ClusterMap::from_bytes(&bytes.with_context(damaged)?);
        map.map(Some).map_err(|error| anyhow::anyhow!("{}: {error}", damaged()))
    }

    /// Enter a store, durable up to `position`; whether that is new.
    pub fn enter(&mut self, fs_id: &[u8; 16], store: StoreId, position: u64) -> bool {
        let known = self.entry(fs_id);
        let map = known.and_then(|entry| entry.map.clone());
        let successor = known.filter(|entry| store_of(&entry.store) == store);
        let successor = successor.and_then(|entry| entry.successor.clone());
        self.put(Entry { position, map, successor, ..Entry::new(fs_id, store) })
    }

    /// Enter stores, and write the new ones. Those that could not be written count as new the next time.
    pub fn keep(&mut self, stores: &[([u8; 16], StoreId, u64)]) -> Result<()> {
        let mut next = self.clone();
        let entered = stores.iter().filter(|(fs, store, position)| next.enter(fs, *store, *position)).count();
        if entered > 0 {
            next.save()?;
            *self = next;
        }
        Ok(())
    }

    /// An older copy of the present store is to become `successor`.
    pub fn begin_to_accept(&mut self, fs_id: &[u8; 16], store: StoreId, successor: StoreId) {
        let known = self.entry(fs_id).cloned().unwrap_or_else(|| Entry::new(fs_id, store));
        self.put(Entry { successor: Some(successor.to_string()), ..known });
    }

    /// All other servers have taken `map`, in which `successor` takes the place of the store that the folder
    /// is an older copy of.
    pub fn accept(&mut self, copy_of: StoreId, successor: StoreId, map: &ClusterMap) {
        self.put(Entry {
            copy_of: Some(copy_of.to_string()),
            map: Some(hex(&map.to_bytes())),
            ..Entry::new(&map.fs_id, successor)
        });
    }

    /// The present store was given up: `map` names its successor, which is still to be made.
    pub fn renew(&mut self, store: StoreId, map: &ClusterMap) {
        let map_text = Some(hex(&map.to_bytes()));
        self.put(Entry { to_make: true, map: map_text, ..Entry::new(&map.fs_id, store) });
    }

    fn put(&mut self, entry: Entry) -> bool {
        match self.store.iter_mut().find(|known| known.file_system == entry.file_system) {
            Some(known) if *known == entry => return false,
            Some(known) => *known = entry,
            None => self.store.push(entry),
        }
        true
    }

    /// Write it, durably.
    pub fn save(&self) -> Result<()> {
        let text = toml::to_string(self).context("the record cannot be written as TOML")?;
        let head = format!(
            "# server {}: which store it is served from, and how far that was durable\n",
            self.server
        );
        crate::secret::write_whole(&self.path, format!("{head}{text}").as_bytes(), 0o644)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_could_not_be_written_is_written_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("away");
        let cluster = ClusterFile {
            key: "key".into(),
            server_key: None,
            mac: None,
            server: Vec::new(),
            collection: Vec::new(),
            base: base.clone(),
        };
        let mut record = StoreRecord::load(&cluster, 3).unwrap();
        let stores = [([7; 16], StoreId(0xab), 5)];
        assert!(record.keep(&stores).is_err());
        std::fs::create_dir(&base).unwrap();
        record.keep(&stores).unwrap();
        assert_eq!(StoreRecord::load(&cluster, 3).unwrap().of(&[7; 16]), (StoreId(0xab), 5));
    }

    #[test]
    fn a_store_that_was_entered_is_known_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = ClusterFile {
            key: "key".into(),
            server_key: None,
            mac: None,
            server: Vec::new(),
            collection: Vec::new(),
            base: dir.path().to_path_buf(),
        };
        let mut record = StoreRecord::load(&cluster, 3).unwrap();
        assert_eq!(record.of(&[7; 16]), (StoreId::NONE, 0));
        assert!(record.enter(&[7; 16], StoreId(0xab), 5));
        assert!(!record.enter(&[7; 16], StoreId(0xab), 5));
        record.save().unwrap();
        let read = StoreRecord::load(&cluster, 3).unwrap();
        assert_eq!(read.of(&[7; 16]), (StoreId(0xab), 5));
        assert_eq!(read.of(&[8; 16]), (StoreId::NONE, 0));
        let map = ClusterMap { fs_id: [7; 16], ..shoal_proto::samples::map() };
        record.renew(StoreId(0xcd), &map);
        record.save().unwrap();
        let mut copied = StoreRecord::load(&cluster, 3).unwrap();
        copied.begin_to_accept(&[7; 16], StoreId(0xcd), StoreId(0xef));
        copied.save().unwrap();
        let mut copied = StoreRecord::load(&cluster, 3).unwrap();
        assert_eq!((copied.of(&[7; 16]).0, copied.successor(&[7; 16])), (StoreId(0xcd), Some(StoreId(0xef))));
        copied.accept(StoreId(0xcd), StoreId(0xef), &map);
        assert_eq!((copied.of(&[7; 16]).0, copied.copy_of(&[7; 16])), (StoreId(0xef), Some(StoreId(0xcd))));
        assert_eq!((copied.successor(&[7; 16]), copied.may_make(&[7; 16])), (None, false));
        assert!(copied.enter(&[7; 16], StoreId(0xef), 4) && copied.copy_of(&[7; 16]).is_none());
        let mut read = StoreRecord::load(&cluster, 3).unwrap();
        read.renew(StoreId(0xcd), &map);
        assert_eq!((read.of(&[7; 16]), read.may_make(&[7; 16])), ((StoreId(0xcd), 0), true));
        assert!(read.enter(&[7; 16], StoreId(0xcd), 9) && !read.may_make(&[7; 16]));
        assert_eq!(read.map(&[7; 16]).unwrap(), Some(map));
        assert_eq!(StoreRecord::load(&cluster, 4).unwrap().of(&[7; 16]), (StoreId::NONE, 0));
        std::fs::write(dir.path().join("store-3.toml"), "[[store]]\nfile_system = \"x\"\nstore = \"y\"\n")
            .unwrap();
        assert!(format!("{:#}", StoreRecord::load(&cluster, 3).unwrap_err()).contains("store-3.toml"));
    }
}
