//! Keeps the rows that a repair removes in a file. Each row is one line of JSON, which is durable before
//! the row is removed.
//!
//! ```text
//! {"server":0,"key":"61…","value":"…"}        key and value are in hex; docs/reference/DISK.md explains them
//! ```

use anyhow::{Context as _, Result};
use serde_json::json;
use shoal_proto::ServerId;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file, made when the first row comes.
pub struct Aside {
    path: PathBuf,
    file: Option<File>,
}

impl Aside {
    /// Nothing yet.
    pub fn new(path: PathBuf) -> Aside {
        Aside { path, file: None }
    }

    /// The file, if there is anything in it.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|_| self.path.as_path())
    }

    /// Keep a row.
    ///
    /// # Errors
    /// When it is not surely kept: then it must not be removed.
    pub fn keep(&mut self, server: ServerId, key: &[u8], value: &[u8]) -> Result<()> {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = json!({ "server": server.0, "key": hex(key), "value": hex(value) });
        let words = || format!("cannot keep a row in {}: it is not removed", self.path.display());
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(make(&self.path).with_context(words)?),
        };
        writeln!(file, "{line}").and_then(|()| file.sync_data()).with_context(words)
    }
}

/// A new file, never one that is there; its name is durable.
fn make(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new().append(true).create_new(true).open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(file)
}
