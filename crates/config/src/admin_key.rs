//! The administrators' key file, `key.admin` beside `key`. Its mode is 0600.
//!
//! ```toml
//! admin = "64 hexadecimal digits"   # by it a client may manage: add and move servers, check, repair
//! ```
//! The servers have the same key in `key.server`, which is written first. If `key.server` is beside `key`,
//! its admin key is used. So an interrupted command never leaves an administrator with a key that no server
//! knows. If the servers of a file system have no admin key, the mount key manages it until `shoal key
//! split`.

use crate::address::CommandTarget;
use crate::cluster_file::{self, ClusterFile, MacName, not_toml};
use crate::secret::{check_private, write_whole};
use crate::server_key::{self, ServerKeyFile};
use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use shoal_proto::SecretKey;
use std::path::{Path, PathBuf};

/// Its name, beside the mount key.
pub const FILE_NAME: &str = "key.admin";

/// The file, as written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminKeyFile {
    admin: String,
}

impl AdminKeyFile {
    /// The file of a key.
    pub fn of(key: &SecretKey) -> AdminKeyFile {
        AdminKeyFile { admin: key.to_hex() }
    }

    /// Read the file.
    ///
    /// # Errors
    /// When it is missing, others may read it, or it is no such file.
    pub fn load(path: &Path) -> Result<AdminKeyFile> {
        let words = || format!("cannot read the administrators' key {}", path.display());
        check_private(path).with_context(words)?;
        let text = std::fs::read_to_string(path).with_context(words)?;
        let file: AdminKeyFile = toml::from_str(&text).map_err(|error| {
            not_toml(path, "an administrators' key file", "the one that was made with it", &text, &error)
        })?;
        file.secret().with_context(|| {
            format!("{} is not an administrators' key file; copy it here anew", path.display())
        })?;
        Ok(file)
    }

    /// Write it, mode 0600.
    ///
    /// # Errors
    /// The disk's.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).context("the administrators' key file cannot be written as TOML")?;
        let text =
            format!("# For administrators: beside `key`, its reader may manage these file systems.\n{text}");
        write_whole(path, text.as_bytes(), 0o600)
    }

    /// The secret.
    ///
    /// # Errors
    /// When it is not 64 hexadecimal digits.
    pub fn secret(&self) -> Result<SecretKey> {
        SecretKey::from_hex(&self.admin).map_err(|error| anyhow!(error))
    }
}

impl ClusterFile {
    /// Where the administrators' key is written: beside the mount key.
    pub fn admin_key_beside(&self) -> PathBuf {
        self.key.with_file_name(FILE_NAME)
    }
}

impl CommandTarget {
    /// The administrators' key that lies beside the mount key, in `key.server` or in `key.admin`.
    ///
    /// # Errors
    /// When `key.admin` is there and cannot be used.
    pub fn admin_key(&self) -> Result<Option<SecretKey>> {
        // One of before there were admin keys says nothing.
        let servers = ServerKeyFile::load(&self.key.with_file_name(server_key::FILE_NAME)).ok();
        if let Some(admin) = servers.map(|servers| servers.admin()).transpose()?.flatten() {
            return Ok(Some(admin));
        }
        let path = self.key.with_file_name(FILE_NAME);
        match path.exists() {
            true => AdminKeyFile::load(&path)?.secret().map(Some),
            false => Ok(None),
        }
    }

    /// Whether the cluster file beside the mount key says that no connection is sealed (`mac = "off"`).
    pub fn has_no_seals(&self) -> bool {
        let file = self.key.with_file_name(cluster_file::FILE_NAME);
        ClusterFile::load(&file).is_ok_and(|cluster| cluster.mac == Some(MacName::Off))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_administrators_key_is_found_beside_the_mount_key_and_the_servers_file_decides() {
        let dir = tempfile::tempdir().unwrap();
        let place = CommandTarget {
            address: "shoal://127.0.0.1:1/demo".parse().unwrap(),
            key: dir.path().join("key"),
        };
        assert!(place.admin_key().unwrap().is_none());
        let own = dir.path().join(FILE_NAME);
        let key = SecretKey::new([3; 32]);
        AdminKeyFile::of(&key).save(&own).unwrap();
        assert!(place.admin_key().unwrap() == Some(key));
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = format!("{:#}", place.admin_key().unwrap_err());
        assert!(refused.contains("chmod 600"), "{refused}");
        // As after an interrupted `shoal key rotate --admin`: the servers know the new one.
        let servers = ServerKeyFile::draw().unwrap();
        servers.save(&dir.path().join(server_key::FILE_NAME)).unwrap();
        assert!(place.admin_key().unwrap() == servers.admin().unwrap());
    }

    #[test]
    fn an_administrators_key_file_that_is_no_such_file_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        for text in ["", "admin = 1\n", "admin = \"77\"\n", "key = \"77\"\n"] {
            write_whole(&path, text.as_bytes(), 0o600).unwrap();
            let refused = format!("{:#}", AdminKeyFile::load(&path).err().expect(text));
            assert!(refused.contains(FILE_NAME), "{refused}");
        }
    }
}
