//! The servers' key file, `key.server` beside `key`. Only servers have it; its mode is 0600.
//!
//! ```toml
//! server = "64 hexadecimal digits"   # signs capabilities; servers prove themselves to each other by it
//! admin = "64 hexadecimal digits"    # clients that prove it may manage; it is in `key.admin` too
//! place = "64 hexadecimal digits"    # names are placed by it; never replaced
//! ```
//! If a cluster file has no `server_key`, one key has all roles in its file systems, and a client can do
//! what servers can. `shoal key split` then makes this file. The former key becomes the place key, so no
//! name moves.

use crate::admin_key::AdminKeyFile;
use crate::cluster_file::{ClusterFile, hex, not_toml, random};
use crate::secret::{KeyFile, check_private, write_whole};
use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use shoal_proto::{Keys, SecretKey};
use std::path::{Path, PathBuf};

/// Its name, beside the mount key.
pub const FILE_NAME: &str = "key.server";

/// The file, as written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerKeyFile {
    server: String,
    /// None: the mount key is the admin key too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin: Option<String>,
    place: String,
}

impl ServerKeyFile {
    /// New keys.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn draw() -> Result<ServerKeyFile> {
        let draw = || random::<32>().map(|bytes| hex(&bytes));
        Ok(ServerKeyFile { server: draw()?, admin: Some(draw()?), place: draw()? })
    }

    /// New keys of servers and administrators for a file system whose names are placed by its one key.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn split_from(one: &SecretKey) -> Result<ServerKeyFile> {
        Ok(ServerKeyFile { place: one.to_hex(), ..ServerKeyFile::draw()? })
    }

    /// The same with a new servers' key.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn with_new_server_key(self) -> Result<ServerKeyFile> {
        Ok(ServerKeyFile { server: hex(&random::<32>()?), ..self })
    }

    /// The same with a new admin key.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn with_new_admin_key(self) -> Result<ServerKeyFile> {
        Ok(ServerKeyFile { admin: Some(hex(&random::<32>()?)), ..self })
    }

    /// The admin key, if there is one.
    ///
    /// # Errors
    /// When it is not 64 hexadecimal digits.
    pub fn admin(&self) -> Result<Option<SecretKey>> {
        let read = |text: &String| SecretKey::from_hex(text).map_err(|error| anyhow!(error));
        self.admin.as_ref().map(read).transpose()
    }

    /// Read the file.
    ///
    /// # Errors
    /// When it is missing, others may read it, or it is no such file.
    pub fn load(path: &Path) -> Result<ServerKeyFile> {
        check_private(path).with_context(|| {
            format!(
                "cannot read the servers' keys {}; the folder in which the file system was made has them, copy them here (mode 0600)",
                path.display()
            )
        })?;
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the servers' keys {}", path.display()))?;
        ServerKeyFile::parse(&text, path)
    }

    /// Read its text; `path` is for the words of a refusal.
    ///
    /// # Errors
    /// When it is no such file.
    pub fn parse(text: &str, path: &Path) -> Result<ServerKeyFile> {
        let file: ServerKeyFile = toml::from_str(text).map_err(|error| {
            not_toml(path, "a servers' key file", "that of the first server", text, &error)
        })?;
        file.secrets().with_context(|| {
            format!("{} is not a servers' key file; copy that of the first server here", path.display())
        })?;
        Ok(file)
    }

    /// As it is written.
    ///
    /// # Errors
    /// None but TOML's own.
    pub fn text(&self) -> Result<String> {
        Ok(format!(
            "# For servers alone: a reader of this file can do whatever a server can. Clients need `key` only.\n{}",
            toml::to_string(self).context("the servers' key file cannot be written as TOML")?
        ))
    }

    /// Write it, mode 0600.
    ///
    /// # Errors
    /// The disk's.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_whole(path, self.text()?.as_bytes(), 0o600)
    }

    /// With the mount key, a server's keys.
    ///
    /// # Errors
    /// When a key is not 64 hexadecimal digits.
    pub fn with(&self, mount: SecretKey) -> Result<Keys> {
        let (server, place) = self.secrets()?;
        if server == mount {
            bail!(
                "the servers' key is the mount key: every client would be a server; `shoal key split` draws one"
            );
        }
        let admin = self.admin()?;
        if admin.as_ref().is_some_and(|admin| *admin == mount || *admin == server) {
            bail!("the admin key is another key too; `shoal key rotate --admin` draws one");
        }
        Ok(Keys { mount, admin, server, place })
    }

    fn secrets(&self) -> Result<(SecretKey, SecretKey)> {
        let read = |text: &str| SecretKey::from_hex(text).map_err(|error| anyhow!(error));
        self.admin()?;
        Ok((read(&self.server)?, read(&self.place)?))
    }
}

impl ClusterFile {
    /// Where new servers' keys are written: beside the mount key.
    pub fn server_key_beside(&self) -> PathBuf {
        self.key.with_file_name(FILE_NAME)
    }

    /// Draw all keys of a new cluster, and write them.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn draw_keys(&mut self) -> Result<()> {
        let beside = self.server_key_beside();
        let servers = ServerKeyFile::draw()?;
        servers.save(&self.path(&beside))?;
        if let Some(admin) = servers.admin()? {
            AdminKeyFile::of(&admin).save(&self.path(&self.admin_key_beside()))?;
        }
        KeyFile::draw(self)?.save(&self.path(&self.key))?;
        self.server_key = Some(beside);
        Ok(())
    }

    /// A server's keys, from its key files.
    ///
    /// # Errors
    /// When a file is missing, or others may read it.
    pub fn keys(&self) -> Result<Keys> {
        let mount = KeyFile::load(&self.path(&self.key))?.secret()?;
        match &self.server_key {
            Some(path) => ServerKeyFile::load(&self.path(path))?.with(mount),
            None => Ok(Keys::one(mount)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(base: &Path) -> ClusterFile {
        ClusterFile {
            key: "key".into(),
            server_key: None,
            mac: None,
            server: Vec::new(),
            collection: Vec::new(),
            base: base.into(),
        }
    }

    #[test]
    fn a_new_cluster_has_a_key_for_each_role_and_a_split_one_keeps_the_place_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let mut new = cluster(dir.path());
        new.draw_keys().unwrap();
        let keys = new.keys().unwrap();
        let admin = keys.admin.clone().unwrap();
        assert!(admin != keys.mount && admin != keys.server && admin != keys.place);
        assert!(keys.mount != keys.server && keys.server != keys.place && keys.mount != keys.place);

        // As it was made before there were roles.
        new.server_key = None;
        let old = new.keys().unwrap();
        assert!(old.is_shared() && old.place == keys.mount);
        ServerKeyFile::split_from(&old.mount).unwrap().save(&dir.path().join(FILE_NAME)).unwrap();
        new.server_key = Some(FILE_NAME.into());
        let split = new.keys().unwrap();
        assert!(!split.is_shared() && split.mount == old.mount && split.admin.is_some());
        assert_eq!(split.place_key(&[1; 16]).place_of(b"name"), old.place_key(&[1; 16]).place_of(b"name"));
    }

    #[test]
    fn a_servers_key_file_that_is_missing_open_to_others_or_wrong_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = cluster(dir.path());
        file.draw_keys().unwrap();
        let path = dir.path().join(FILE_NAME);
        let words = |file: &ClusterFile| format!("{:#}", file.keys().unwrap_err());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(words(&file).contains("chmod 600"), "{}", words(&file));
        let mount = KeyFile::load(&dir.path().join("key")).unwrap().secret().unwrap();
        let same = ServerKeyFile { server: mount.to_hex(), admin: None, place: mount.to_hex() };
        same.save(&path).unwrap();
        assert!(words(&file).contains("shoal key split"), "{}", words(&file));
        write_whole(&path, b"server = 1\n", 0o600).unwrap();
        assert!(words(&file).contains("key.server"), "{}", words(&file));
        std::fs::remove_file(&path).unwrap();
        assert!(words(&file).contains("copy them here"), "{}", words(&file));
    }
}
