//! The key file. Any reader of the file has access to its file systems within the limits of the key, and the
//! first key has no limits. So the mode of the file is 0600.
//!
//! ```toml
//! key = "64 hexadecimal digits"
//! id = "16 hexadecimal digits"   # these four: only in a key that `shoal key add` made. Servers enforce the
//! name = "lab"                   # limits; the file repeats them for clients and people
//! read_only = true
//! squash_root = true
//! [[file_system]]                # each file system that the key opens
//! name = "demo"
//! id = "32 hexadecimal digits"
//! collection = 1
//! ```

use crate::cluster_file::{ClusterFile, hex, not_toml, random, unhex};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use shoal_proto::{CollectionId, KeyLimits, MountKey, MountKeyId, SecretKey};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The key file, as written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The secret.
    key: String,
    /// Its id; none: it is the first key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Servers refuse its holders every change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Root among its holders has no rights of root at servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub squash_root: bool,
    /// The file systems it opens.
    #[serde(default)]
    pub file_system: Vec<FileSystem>,
}

/// A file system that a key opens.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct FileSystem {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its number on its servers.
    pub collection: u32,
}

impl FileSystem {
    /// The id, as bytes.
    pub fn fs_id(&self) -> Result<[u8; 16]> {
        unhex(&self.id)
    }

    /// The number.
    pub fn collection(&self) -> CollectionId {
        CollectionId(self.collection)
    }
}

impl KeyFile {
    /// A new secret for the file systems of a cluster.
    pub fn draw(cluster: &ClusterFile) -> Result<KeyFile> {
        let key = hex(&random::<32>()?);
        let mut file = KeyFile {
            key,
            id: None,
            name: None,
            read_only: false,
            squash_root: false,
            file_system: Vec::new(),
        };
        file.name_file_systems(cluster);
        Ok(file)
    }

    /// The file of a key with a name, which opens one file system.
    pub fn named(key: &MountKey, secret: &SecretKey, file_system: FileSystem) -> KeyFile {
        KeyFile {
            key: secret.to_hex(),
            id: Some(key.id.to_string()),
            name: Some(key.name.0.clone()),
            read_only: key.limits.contains(KeyLimits::READ_ONLY),
            squash_root: key.limits.contains(KeyLimits::SQUASH_ROOT),
            file_system: vec![file_system],
        }
    }

    /// The key's id.
    ///
    /// # Errors
    /// When it is not 16 hexadecimal digits.
    pub fn id(&self) -> Result<MountKeyId> {
        match &self.id {
            Some(id) => Ok(MountKeyId(u64::from_be_bytes(unhex(id).context("the key's id")?))),
            None => Ok(MountKeyId::FIRST),
        }
    }

    /// Take over the cluster's file systems.
    pub fn name_file_systems(&mut self, cluster: &ClusterFile) {
        let of = |c: &crate::cluster_file::CollectionEntry| FileSystem {
            name: c.name.clone(),
            id: c.id.clone(),
            collection: c.number,
        };
        self.file_system = cluster.collection.iter().map(of).collect();
    }

    /// Read a key file.
    ///
    /// # Errors
    /// When it is missing, others may read it, or it is no key file.
    pub fn load(path: &Path) -> Result<KeyFile> {
        check_private(path).with_context(|| {
            format!(
                "cannot read the key {}; the servers' folder has it, copy it here (mode 0600)",
                path.display()
            )
        })?;
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the key {}", path.display()))?;
        KeyFile::parse(&text, path)
    }

    /// Read the text of a key file; `path` is for the words of a refusal.
    ///
    /// # Errors
    /// When it is no key file.
    pub fn parse(text: &str, path: &Path) -> Result<KeyFile> {
        let file: KeyFile = toml::from_str(text)
            .map_err(|error| not_toml(path, "a key file", "the servers' own key file", text, &error))?;
        file.secret().and_then(|_| file.id()).with_context(|| {
            format!("{} is not a key file; copy the servers' own here (mode 0600)", path.display())
        })?;
        Ok(file)
    }

    /// As it is written.
    ///
    /// # Errors
    /// None but TOML's own.
    pub fn text(&self) -> Result<String> {
        let access = if self.read_only { "may read all of" } else { "has full access to" };
        Ok(format!(
            "# Every reader of this file {access} these file systems.\n{}",
            toml::to_string(self).context("the key file cannot be written as TOML")?
        ))
    }

    /// Write it, mode 0600.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = self.text()?;
        write_whole(path, text.as_bytes(), 0o600)
    }

    /// The secret.
    pub fn secret(&self) -> Result<SecretKey> {
        SecretKey::from_hex(&self.key).map_err(|e| anyhow::anyhow!(e))
    }

    /// A file system by its name; `None` chooses the only one.
    pub fn find(&self, name: Option<&str>) -> Result<&FileSystem> {
        let names: Vec<&str> = self.file_system.iter().map(|f| f.name.as_str()).collect();
        match name {
            Some(name) => self
                .file_system
                .iter()
                .find(|f| f.name == name)
                .with_context(|| format!("the key opens {}, not `{name}`", names.join(", "))),
            None if self.file_system.len() == 1 => Ok(&self.file_system[0]),
            None => bail!("name the file system in the address: {}", names.join(", ")),
        }
    }
}

/// A key file is there, and only its owner may read it.
///
/// # Errors
/// When it is not.
pub(crate) fn check_private(path: &Path) -> Result<()> {
    let meta = std::fs::metadata(path)?;
    if meta.permissions().mode() & 0o077 != 0 {
        bail!("others may read the key {0}: chmod 600 {0}", path.display());
    }
    Ok(())
}

/// Write a whole file under a temporary name and rename it into place, durably. The remains of an interrupted
/// write under that name are removed first: they may have another mode, or be a link.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    // No other file's name, nor another process's: key files are named by their keys.
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() -> KeyFile {
        let (id, name) = (MountKeyId(0xa3), "lab".into());
        let key = MountKey { id, name, limits: KeyLimits::READ_ONLY, revoked: false };
        let of = FileSystem { name: "demo".to_owned(), id: "00".repeat(16), collection: 1 };
        KeyFile::named(&key, &SecretKey::new([7; 32]), of)
    }

    #[test]
    fn the_file_of_a_key_with_a_name_is_for_its_owner_alone_and_refused_where_others_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.lab");
        // The remains of a write that was interrupted: readable by others, then a link to elsewhere.
        let beside = folder.path().join(format!(".key.lab.{}.new", std::process::id()));
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&beside, "").unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o644)).unwrap();
        named().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::os::unix::fs::symlink(&elsewhere, &beside).unwrap();
        named().save(&path).unwrap();
        assert!(!elsewhere.exists() && !path.is_symlink());
        // A key whose name looks like that of a file that is being written.
        let other = folder.path().join("key.lab.new");
        named().save(&other).unwrap();
        named().save(&path).unwrap();
        assert!(other.exists());

        let read = KeyFile::load(&path).unwrap();
        assert_eq!(read.id().unwrap(), MountKeyId(0xa3));
        assert!(read.secret().unwrap() == SecretKey::new([7; 32]) && read.read_only);
        assert_eq!(read.name.as_deref(), Some("lab"));
        for mode in [0o640, 0o604, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = format!("{:#}", KeyFile::load(&path).err().unwrap());
            assert!(refused.contains("chmod 600"), "{mode:o}: {refused}");
        }
    }

    #[test]
    fn the_file_of_the_first_key_has_no_id_and_an_id_that_is_none_is_refused() {
        let text = named().text().unwrap();
        let first: String =
            text.lines().filter(|line| !line.starts_with("id")).collect::<Vec<_>>().join("\n");
        let first = first.replacen("[[file_system]]", "[[file_system]]\nid = \"00\"", 1);
        assert_eq!(KeyFile::parse(&first, Path::new("key")).unwrap().id().unwrap(), MountKeyId::FIRST);
        for wrong in ["", "a3", "00000000000000zz", "0000000000000000a3"] {
            let text = text.replace("00000000000000a3", wrong);
            let refused = format!("{:#}", KeyFile::parse(&text, Path::new("key")).err().unwrap());
            assert!(refused.contains("is not a key file"), "{wrong:?}: {refused}");
        }
    }
}
