//! What this machine knows of the store of a server that it runs: a file beside the cluster file, one a server.
//!
//! ```toml
//! # server 2: which store it is served from, and how far that was durable
//! [[store]]
//! file_system = "32 hexadecimal digits"
//! store = "16 hexadecimal digits"
//! position = 48211
//! ```
//! It stands beside `cluster.toml`, and not in the server's folder, because that folder is what can be lost. **A store is made
//! only where the record names none.** Without other servers this record is all that tells a new folder from one that was
//! lost.

use crate::cluster_file::{ClusterFile, hex, not_toml, unhex};
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use shoal_proto::StoreId;
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
}

impl StoreRecord {
    /// The record of a server; an empty one if there is none.
    pub fn load(cluster: &ClusterFile, server: u16) -> Result<StoreRecord> {
        let path = cluster.base.join(format!("store-{server}.toml"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mut record: StoreRecord = toml::from_str(&text)
            .map_err(|error| not_toml(&path, "a store's record", "ARCHITECTURE.md", &text, &error))?;
        for entry in &record.store {
            unhex::<8>(&entry.store).with_context(|| format!("{} names no store", path.display()))?;
        }
        (record.path, record.server) = (path, server);
        Ok(record)
    }

    /// The store of a file system, and how far it was durable; [`StoreId::NONE`] if none was made.
    pub fn of(&self, fs_id: &[u8; 16]) -> (StoreId, u64) {
        let fs = hex(fs_id);
        let entry = self.store.iter().find(|entry| entry.file_system == fs);
        entry.map_or((StoreId::NONE, 0), |entry| {
            let id = unhex::<8>(&entry.store).map(u64::from_be_bytes).unwrap_or_default();
            (StoreId(id), entry.position)
        })
    }

    /// Enter a store, durable up to `position`; whether that is new.
    pub fn enter(&mut self, fs_id: &[u8; 16], store: StoreId, position: u64) -> bool {
        let entry = Entry { file_system: hex(fs_id), store: store.to_string(), position };
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
    fn a_store_that_was_entered_is_known_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = ClusterFile {
            key: "key".into(),
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
        assert_eq!(StoreRecord::load(&cluster, 4).unwrap().of(&[7; 16]), (StoreId::NONE, 0));
        std::fs::write(dir.path().join("store-3.toml"), "[[store]]\nfile_system = \"x\"\nstore = \"y\"\n")
            .unwrap();
        assert!(format!("{:#}", StoreRecord::load(&cluster, 3).unwrap_err()).contains("store-3.toml"));
    }
}
