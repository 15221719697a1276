//! The checks of a cluster file, before it is written or a server is started with it. They refuse
//! contradictions that would lose data or mislead. Each refusal names the contradiction and the remedy.

use super::{ClusterFile, CollectionEntry, Role, ServerEntry};
use crate::bytes_size::ByteSize;
use anyhow::{Context as _, Result, bail};
use shoal_env::Address;
use shoal_proto::limits;
use std::path::{Component, Path, PathBuf};

/// An audit log may have so many bytes at least.
const AUDIT_BYTES_LEAST: u64 = 64 << 10;

impl ClusterFile {
    /// Refuse contradictions.
    pub fn check(&self) -> Result<()> {
        self.check_counts()?;
        self.check_addresses()?;
        self.check_folders()?;
        self.check_audits()?;
        self.check_roles()?;
        for (at, one) in self.collection.iter().enumerate() {
            one.check()?;
            for other in &self.collection[..at] {
                if other.name == one.name || other.id == one.id || other.number == one.number {
                    bail!(
                        "two file systems share a name, id or number: `{}`, `{}`: give each its own",
                        other.name,
                        one.name
                    );
                }
            }
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<()> {
        if self.server.is_empty() {
            bail!("it names no server: add a [[server]]");
        }
        if self.collection.is_empty() {
            bail!("it names no file system: add a [[collection]] (`shoal init` draws its id)");
        }
        check_servers(self.server.len())
    }

    fn check_addresses(&self) -> Result<()> {
        let mut addresses = Vec::new();
        for (id, server) in self.server.iter().enumerate() {
            if server.listen.is_empty() {
                bail!("server {id} listens nowhere: give it `listen = [\"tcp:IP:PORT\"]`");
            }
            for text in &server.listen {
                let address: Address = text.parse().map_err(|e| anyhow::anyhow!("server {id}: {e}"))?;
                check_address(id, &address)?;
                if addresses.contains(&address) {
                    bail!("two servers listen at {address}: give each its own port");
                }
                addresses.push(address);
            }
        }
        Ok(())
    }

    fn check_folders(&self) -> Result<()> {
        let folders: Vec<PathBuf> = self.server.iter().map(|server| plain(&server.folder)).collect();
        for (id, folder) in folders.iter().enumerate() {
            for other in &folders[..id] {
                if other == folder {
                    bail!("two servers have the folder {}: give each its own", folder.display());
                }
                if folder.starts_with(other) || other.starts_with(folder) {
                    bail!(
                        "the folders {} and {} of two servers lie within each other: give each its own",
                        other.display(),
                        folder.display()
                    );
                }
            }
        }
        Ok(())
    }

    fn check_audits(&self) -> Result<()> {
        let mut files: Vec<PathBuf> = Vec::new();
        for (id, server) in self.server.iter().enumerate() {
            let Some((file, bytes_max)) = self.audit_of(server) else {
                if server.audit_bytes_max.is_some() {
                    bail!(
                        "server {id} has `audit_bytes_max` and no audit log: give it `audit = \"audit.log\"`"
                    );
                }
                continue;
            };
            let file = plain(&file);
            let (given, within) = (server.audit.as_deref().unwrap_or(Path::new("")), plain(&server.folder));
            if given.file_name().is_none() || given.components().any(|part| part == Component::ParentDir) {
                bail!(
                    "server {id}: `{}` is no file for an audit log: write a name (it lies in the server's folder) or an absolute \
                     path, without `..`",
                    given.display()
                );
            }
            let stores = || self.collection.iter().map(|one| self.base.join(&within).join(&one.name));
            if stores().any(|store| file.starts_with(plain(&store))) {
                bail!(
                    "server {id}: the audit log {} would lie within a file system's data: give it another name",
                    file.display()
                );
            }
            let written = audit_files(&file);
            if let Some(both) = written.iter().find(|path| files.contains(path)) {
                bail!(
                    "two servers write the audit log {}: give each its own (beside FILE also FILE.1, FILE.connections, \
                     FILE.connections.1 and FILE.lock are written)",
                    both.display()
                );
            }
            if bytes_max < AUDIT_BYTES_LEAST {
                bail!(
                    "server {id}: `audit_bytes_max` of {} is less than {}: an audit log needs some room",
                    ByteSize(bytes_max),
                    ByteSize(AUDIT_BYTES_LEAST)
                );
            }
            files.extend(written);
        }
        Ok(())
    }

    fn check_roles(&self) -> Result<()> {
        if let Some(id) = self.server.iter().position(|server| server.roles.is_empty()) {
            bail!("server {id} has no role: `roles = [\"metadata\", \"data\"]`, or one of them");
        }
        if !self.server[0].roles.contains(&Role::Metadata) {
            bail!("server 0 holds the root directory: it needs the role `metadata`");
        }
        if !self.server.iter().any(|server: &ServerEntry| server.roles.contains(&Role::Data)) {
            bail!("no server has the role `data`: one at least must hold the files' bytes");
        }
        Ok(())
    }
}

/// All files that a server with this audit log writes.
fn audit_files(file: &Path) -> Vec<PathBuf> {
    let beside = |ending: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    ["", ".1", ".connections", ".connections.1", ".lock"].map(beside).into()
}

impl CollectionEntry {
    /// Refuse impossible file systems.
    pub fn check(&self) -> Result<()> {
        // It is a folder's name, and a part of addresses.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if self.name.is_empty() || !self.name.bytes().all(is_plain) || self.name.starts_with('.') {
            bail!(
                "`{}` cannot name a file system: use letters, digits, `-`, `_` and `.`, not `.` first",
                self.name
            );
        }
        if self.name.len() > limits::NAME_BYTES_MAX {
            bail!(
                "a name of {} bytes is too long for a file system: {} at most",
                self.name.len(),
                limits::NAME_BYTES_MAX
            );
        }
        if self.number == 0 {
            bail!("file system `{}` has number 0: numbers begin at 1", self.name);
        }
        self.fs_id()?;
        self.template().with_context(|| format!("file system `{}`", self.name)).map(drop)
    }
}

/// Whether a file system may have so many servers.
pub fn check_servers(count: usize) -> Result<()> {
    if count > limits::SERVERS_MAX {
        bail!("{count} servers are over the limit of {}", limits::SERVERS_MAX);
    }
    Ok(())
}

/// Clients receive these addresses unchanged: each must lead to the server.
pub fn check_address(id: usize, address: &Address) -> Result<()> {
    if matches!(address, Address::Host(_, 0)) {
        bail!("server {id} listens at {address}: clients must know the port, name one that is free");
    }
    let Address::Tcp(at) = address else { return Ok(()) };
    if at.port() == 0 {
        bail!("server {id} listens at {address}: clients must know the port, name one that is free");
    }
    if at.ip().is_unspecified() {
        bail!(
            "server {id} listens at {address}: clients use this address, and from them it leads nowhere; name the \
             address by which they reach this machine"
        );
    }
    Ok(())
}

/// The path without `.` in it.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}
