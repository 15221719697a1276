//! The cluster file: the servers and what they hold, as an operator writes it.
//!
//! ```toml
//! key = "key"                                   # the file with the secret, beside this one
//! mac = "all"                                   # frames on TCP bear a MAC: all, head (not their data), off; or encrypt
//!
//! [[server]]
//! listen = ["tcp:10.0.0.1:7441"]                # or a host name: ["tcp:node1:7441"]
//! roles = ["metadata", "data"]
//! folder = "/srv/shoal/0"
//! audit = "audit.log"                           # in the folder: which clients did what, JSON lines
//!
//! [[collection]]                                # a file system; several may share the servers
//! name = "demo"
//! module = "disk"                               # disk, memory, null
//! metadata_sync = "reply"                       # reply, fsync, never
//! data_sync = "fsync"                           # fsync, reply
//! strip = "1M"
//! switches = "ours"                             # techniques: ours, paper, baseline, and what differs: "paper,eager=off"
//! ```
//! `shoal init` writes a cluster file; `shoal up` keeps one in its folder. Ids are drawn by `init` and never
//! change. Relative paths are relative to the file. `shoal move-server` changes where a server listens, and
//! counts these changes in `moved`: of two files the one with the greater count is the newer one. If
//! `listen` has a host name, the server listens at the port on all addresses of its machine, and clients
//! resolve the name for each connection. An unknown word is an error, so that no setting is silently
//! ignored.

mod check;
mod names;

use crate::bytes_size::ByteSize;
use anyhow::{Context as _, Result, bail};
pub use check::{check_address, check_servers};
pub use names::{DataSyncName, DistributionName, MacName, MetadataSyncName, ModuleName};
use serde::{Deserialize, Serialize};
use shoal_env::Address;
use shoal_proto::{
    ClusterMap, CollectionId, Dist, Roles, ServerId, ServerInfo, Switches, Template, Text, limits,
};
use shoal_store::{CollectionConfig, DataSync, MetadataSync, SyncModes};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes of an audit log, and of the file before it, at most, if nothing else is said.
pub const AUDIT_BYTES_MAX: u64 = 16 << 20;

/// The file's name in a folder.
pub const FILE_NAME: &str = "cluster.toml";

/// A cluster, as written.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// File of the mount key.
    pub key: PathBuf,
    /// File of the servers' keys. `None`: the file system was made when one key had all roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_key: Option<PathBuf>,
    /// How much of each frame on TCP bears a MAC, or that it is encrypted; a client or server of an older
    /// version, which cannot, is refused. `None`: a MAC over all, and an older one is served without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacName>,
    /// The servers; their order gives their ids.
    #[serde(default)]
    pub server: Vec<ServerEntry>,
    /// The file systems.
    #[serde(default)]
    pub collection: Vec<CollectionEntry>,
    /// Folder of the file: relative paths begin there.
    #[serde(skip)]
    pub base: PathBuf,
}

/// One server.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ServerEntry {
    /// Where it listens: `tcp:IP:PORT`, `tcp:HOST:PORT`, `unix:/PATH`, `local:NAME`.
    pub listen: Vec<String>,
    /// How often that was changed by `shoal move-server`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moved: u32,
    /// Its roles: `metadata`, `data`.
    #[serde(default = "all_roles")]
    pub roles: Vec<Role>,
    /// Where its data is.
    pub folder: PathBuf,
    /// Folders on further disks: the bytes of larger files go there, spread over them. One may be added
    /// later, none taken away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<PathBuf>,
    /// The file of its audit log; a relative path begins in `folder`. `None`: it has no such log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
    /// Bytes of each of its four files, at most; 16 MiB if nothing else is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_bytes_max: Option<ByteSize>,
}

/// A role, as written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Metafiles and directories.
    Metadata,
    /// Datafiles and stuffed files' first strips.
    Data,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn all_roles() -> Vec<Role> {
    vec![Role::Metadata, Role::Data]
}

/// One file system.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CollectionEntry {
    /// Its name, used in addresses.
    pub name: String,
    /// Its id, drawn by `init`: 32 hexadecimal digits.
    pub id: String,
    /// Its number on these servers.
    pub number: u32,
    /// The module that keeps it.
    #[serde(default)]
    pub module: ModuleName,
    /// When metadata changes are durable.
    #[serde(default)]
    pub metadata_sync: MetadataSyncName,
    /// When data writes are durable.
    #[serde(default)]
    pub data_sync: DataSyncName,
    /// Memory for cached rows and data, on each server.
    #[serde(default = "default_cache")]
    pub cache: ByteSize,
    /// Distribution of new files.
    #[serde(default)]
    pub distribution: DistributionName,
    /// Bytes of a strip.
    #[serde(default = "default_strip")]
    pub strip: ByteSize,
    /// Datafiles of a file; 0: one on every data server.
    #[serde(default)]
    pub width: u16,
    /// Which techniques are used: `ours`, `paper`, `baseline`, and the differences: `paper,eager=off`.
    #[serde(default)]
    pub switches: SwitchWords,
}

/// Switches, written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchWords(pub Switches);

impl FromStr for SwitchWords {
    type Err = String;

    fn from_str(text: &str) -> Result<SwitchWords, String> {
        text.parse().map(SwitchWords)
    }
}

impl fmt::Display for SwitchWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for SwitchWords {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SwitchWords {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<SwitchWords, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

fn default_cache() -> ByteSize {
    ByteSize(CollectionConfig::CACHE_BYTES as u64)
}

fn default_strip() -> ByteSize {
    ByteSize(Template::STRIP_DEFAULT)
}

impl CollectionEntry {
    /// A file system of a name with a new id and every default.
    pub fn new(name: &str, number: u32) -> Result<CollectionEntry> {
        Ok(CollectionEntry {
            name: name.to_owned(),
            id: hex(&random::<16>()?),
            number,
            module: ModuleName::default(),
            metadata_sync: MetadataSyncName::default(),
            data_sync: DataSyncName::default(),
            cache: default_cache(),
            distribution: DistributionName::default(),
            strip: default_strip(),
            width: 0,
            switches: SwitchWords::default(),
        })
    }

    /// The sync modes.
    pub fn sync_modes(&self) -> SyncModes {
        SyncModes {
            metadata: match self.metadata_sync {
                MetadataSyncName::Reply => MetadataSync::AtReply,
                MetadataSyncName::Fsync => MetadataSync::AtFsync,
                MetadataSyncName::Never => MetadataSync::Never,
            },
            data: match self.data_sync {
                DataSyncName::Fsync => DataSync::AtFsync,
                DataSyncName::Reply => DataSync::AtReply,
            },
            coalescing: self.switches.0.coalescing,
        }
    }

    /// The layout of new files.
    pub fn template(&self) -> Result<Template> {
        template(self.distribution, self.strip, self.width)
    }

    /// The id, as bytes.
    pub fn fs_id(&self) -> Result<[u8; 16]> {
        unhex(&self.id).with_context(|| format!("the id of file system `{}`", self.name))
    }
}

/// A template from its parts, checked.
pub fn template(distribution: DistributionName, strip: ByteSize, width: u16) -> Result<Template> {
    if usize::from(width) > limits::WIDTH_MAX {
        bail!("a width of {width} is over the limit of {} datafiles", limits::WIDTH_MAX);
    }
    let dist = match distribution {
        DistributionName::Basic => Dist::Basic,
        DistributionName::SimpleStripe => {
            let (min, max) = (limits::STRIP_BYTES_MIN, limits::STRIP_BYTES_MAX);
            if !(min..=max).contains(&strip.0) {
                bail!("a strip of {strip} is outside {} to {}", ByteSize(min), ByteSize(max));
            }
            Dist::SimpleStripe { strip: strip.0 }
        }
    };
    Ok(Template { dist, width })
}

impl ClusterFile {
    /// Read and check a cluster file; a folder means the file in it.
    pub fn load(path: &Path) -> Result<ClusterFile> {
        let path = ClusterFile::path_of(path);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read the cluster file {}; `shoal init --help` says how to make one",
                path.display()
            )
        })?;
        let mut file = ClusterFile::parse(&text, &path)?;
        file.base = path.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(file)
    }

    /// Read and check the text of a cluster file; `path` is for the words of a refusal.
    ///
    /// # Errors
    /// When it is no cluster file, or contradicts itself.
    pub fn parse(text: &str, path: &Path) -> Result<ClusterFile> {
        let file: ClusterFile = toml::from_str(text)
            .map_err(|error| not_toml(path, "a cluster file", "`shoal serve --help`", text, &error))?;
        file.check().with_context(|| format!("{} contradicts itself", path.display()))?;
        Ok(file)
    }

    /// As it is written.
    ///
    /// # Errors
    /// When it cannot be: a path that is no text.
    pub fn text(&self) -> Result<String> {
        Ok(format!(
            "# The servers and file systems of this cluster. `shoal serve --help` explains; ids never change.\n{}",
            toml::to_string_pretty(self).context("the cluster file cannot be written as TOML")?
        ))
    }

    /// The cluster file that a path names: itself, or the one in a folder.
    pub fn path_of(path: &Path) -> PathBuf {
        if path.is_dir() { path.join(FILE_NAME) } else { path.to_path_buf() }
    }

    /// Keep other commands from changing the file while the returned guard lives.
    ///
    /// # Errors
    /// When one is at it, or the folder cannot be opened.
    pub fn lock(&self) -> Result<std::fs::File> {
        let folder = if self.base.as_os_str().is_empty() { Path::new(".") } else { &self.base };
        let held = std::fs::File::open(folder)
            .with_context(|| format!("cannot open the cluster file's folder {}", folder.display()))?;
        let locked = rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        locked.with_context(|| {
            format!("another command changes the cluster file in {}: run this one after it", folder.display())
        })?;
        Ok(held)
    }

    /// Write it to its folder, durably, replacing an older one whole. A contradictory file is not written:
    /// nothing could be started with it.
    pub fn save(&self) -> Result<()> {
        self.save_to(&self.base.join(FILE_NAME))
    }

    /// The same, to a file of any name.
    pub fn save_to(&self, path: &Path) -> Result<()> {
        self.check().with_context(|| format!("{} stays as it was", path.display()))?;
        let text = self.text()?;
        crate::secret::write_whole(path, text.as_bytes(), 0o644)
    }

    /// A path of the file, from where it is.
    pub fn path(&self, relative: &Path) -> PathBuf {
        self.base.join(relative)
    }

    /// Where the audit log of a server lies, and its bound in bytes; none if it has none.
    pub fn audit_of(&self, server: &ServerEntry) -> Option<(PathBuf, u64)> {
        let file = self.path(&server.folder).join(server.audit.as_ref()?);
        Some((file, server.audit_bytes_max.map_or(AUDIT_BYTES_MAX, |size| size.0)))
    }

    /// A file system by its name; `None` chooses the only one.
    pub fn find(&self, name: Option<&str>) -> Result<&CollectionEntry> {
        match name {
            Some(name) => self.collection.iter().find(|c| c.name == name).with_context(|| {
                format!("there is no file system `{name}` here; there is {}", self.names().join(", "))
            }),
            None if self.collection.len() == 1 => Ok(&self.collection[0]),
            None => bail!("name the file system: {}", self.names().join(", ")),
        }
    }

    fn names(&self) -> Vec<String> {
        self.collection.iter().map(|c| c.name.clone()).collect()
    }

    /// The map of a file system, as it was when this file was written: a server's own may be newer.
    pub fn map(&self, collection: &CollectionEntry) -> Result<ClusterMap> {
        let servers: Vec<ServerInfo> = self
            .server
            .iter()
            .enumerate()
            .map(|(id, server)| {
                let addresses: Vec<Text> = server.listen.iter().map(|text| Text(text.clone())).collect();
                let info = ServerInfo::new(ServerId(id as u16), addresses, server.role_bits());
                ServerInfo { moved: server.moved, ..info }
            })
            .collect();
        Ok(ClusterMap {
            fs_id: collection.fs_id()?,
            name: Text(collection.name.clone()),
            collection: CollectionId(collection.number),
            epoch: self
                .server
                .iter()
                .fold(0, |epoch: u32, server| epoch.saturating_add(1).saturating_add(server.moved)),
            template: collection.template()?,
            switches: collection.switches.0,
            servers: servers.into(),
            keys: Vec::new().into(),
        })
    }
}

impl ServerEntry {
    /// The roles, as the map has them.
    pub fn role_bits(&self) -> Roles {
        self.roles.iter().fold(Roles::empty(), |bits, role| {
            bits | match role {
                Role::Metadata => Roles::METADATA,
                Role::Data => Roles::DATA,
            }
        })
    }

    /// Where it listens once it has moved: at `new` instead of the former addresses of its machine. Ways
    /// within the machine and the process stay, unless new ones are named.
    pub fn moved_to(&self, new: &[Address]) -> Result<Vec<String>> {
        let is_replaced = |at: &Address| match at {
            Address::Unix(_) => new.iter().any(|new| matches!(new, Address::Unix(_))),
            Address::Local(_) => false,
            Address::Tcp(_) | Address::Host(..) => true,
        };
        let kept = self.addresses()?.into_iter().filter(|at| !is_replaced(at)).map(|at| at.to_string());
        Ok(kept.chain(new.iter().map(Address::to_string)).collect())
    }

    /// Where it listens.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        self.listen.iter().map(|text| text.parse().map_err(|e: String| anyhow::anyhow!(e))).collect()
    }
}

/// An error in a file that people write: the error, its place and the remedy, in one line.
pub fn not_toml(path: &Path, what: &str, remedy: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    let why = error.message().replace('\n', ", ");
    anyhow::anyhow!(
        "{} is not {what}: line {line}: {why}; correct that line ({remedy} lists what is allowed)",
        path.display()
    )
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("the kernel gives no random bytes: {e}"))?;
    Ok(bytes)
}

/// As hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// From hexadecimal digits.
pub fn unhex<const N: usize>(text: &str) -> Result<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        bail!("`{text}` is not {} hexadecimal digits", 2 * N);
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<ClusterFile> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join(FILE_NAME), text)?;
        ClusterFile::load(dir.path())
    }

    const GOOD: &str = r#"
key = "key"
[[server]]
listen = ["tcp:127.0.0.1:7441"]
folder = "s0"
[[server]]
listen = ["tcp:127.0.0.1:7442"]
roles = ["data"]
folder = "s1"
[[collection]]
name = "demo"
id = "000102030405060708090a0b0c0d0e0f"
number = 1
strip = "64k"
"#;

    #[test]
    fn a_cluster_file_gives_its_map() {
        let file = file(GOOD).unwrap();
        let map = file.map(file.find(None).unwrap()).unwrap();
        assert_eq!(map.servers.len(), 2);
        assert_eq!(map.servers[1].roles, Roles::DATA);
        assert_eq!(map.template.dist, Dist::SimpleStripe { strip: 65536 });
    }

    #[test]
    fn contradictions_and_unknown_words_are_named() {
        for (from, to, says) in [
            ("s1", "s0", "two servers have the folder"),
            ("7442", "7441", "two servers listen at"),
            ("strip = \"64k\"", "strip = \"1k\"", "a strip of 1K is outside"),
            ("strip =", "stripe =", "unknown field"),
            ("number = 1", "number = 0", "numbers begin at 1"),
            ("tcp:127.0.0.1:7441", "127.0.0.1", "is not an address"),
            ("0f\"", "0\"", "is not 32 hexadecimal digits"),
        ] {
            let error = format!("{:#}", file(&GOOD.replace(from, to)).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_saved_is_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = file(GOOD).unwrap();
        one.base = dir.path().to_path_buf();
        one.save().unwrap();
        assert_eq!(ClusterFile::load(dir.path()).unwrap(), one);
    }
}
