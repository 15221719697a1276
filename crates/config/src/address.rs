//! The address of a file system, and a path in it: `shoal://HOST:PORT[,HOST:PORT…]/NAME[/PATH]`, a path on a
//! mount, or a folder of `shoal up`.
//!
//! A path on a mounted ShoalFS means the file system mounted there: the mount table names its address, and a
//! note that the mount leaves in the runtime folder names its key. So `shoal map mnt/big.bin` needs neither
//! an address nor a key.

use crate::runtime;
use crate::secret::KeyFile;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use shoal_env::Address;
use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file system's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShoalAddress {
    /// Servers to ask for the map; any of them will do.
    pub servers: Vec<Address>,
    /// Name of the file system.
    pub name: String,
    /// Path in it, with a leading `/`.
    pub path: String,
}

impl FromStr for ShoalAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ShoalAddress> {
        let Some(rest) = text.strip_prefix("shoal://") else {
            bail!("`{text}` is not an address of a file system: write shoal://HOST:PORT/NAME");
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let servers = hosts.split(',').map(host).collect::<Result<Vec<_>>>()?;
        let (name, path) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            bail!("`{text}` names no file system: write shoal://HOST:PORT/NAME");
        }
        Ok(ShoalAddress { servers, name: name.to_owned(), path: format!("/{path}") })
    }
}

/// A host and port, by number or by name; a name is resolved for each connection.
fn host(text: &str) -> Result<Address> {
    text.parse().ok().with_context(|| format!("`{text}` is no server: write HOST:PORT"))
}

/// A port of a machine, as it stands in an address.
pub fn host_of(address: &Address) -> String {
    let text = address.to_string();
    text.strip_prefix("tcp:").map(str::to_owned).unwrap_or(text)
}

impl fmt::Display for ShoalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Sockets of this machine are ways to the same servers; in an address stand those that others can
        // use.
        let mut hosts: Vec<String> =
            self.servers.iter().filter(|server| server.is_tcp()).map(host_of).collect();
        if hosts.is_empty() {
            hosts = self.servers.iter().map(Address::to_string).collect();
        }
        write!(f, "shoal://{}/{}", hosts.join(","), self.name)?;
        if self.path != "/" {
            f.write_str(&self.path)?;
        }
        Ok(())
    }
}

/// The record of a mount, written for the other commands.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct MountNote {
    /// The mounted file system's address.
    pub address: String,
    /// Its key file.
    pub key: PathBuf,
    /// The process that serves the mount.
    pub pid: u32,
    /// Where all servers are, as the mount's map has it.
    #[serde(default)]
    pub servers: Vec<String>,
}

impl MountNote {
    /// Leave a note for a mount point.
    pub fn leave(&self, mountpoint: &Path) -> Result<()> {
        let path = note_path(mountpoint)?;
        runtime::make(&runtime::folder())?;
        crate::secret::write_whole(&path, toml::to_string(self)?.as_bytes(), 0o600)
    }

    /// Read the note of a mount point.
    pub fn read(mountpoint: &Path) -> Result<MountNote> {
        let path = note_path(mountpoint)?;
        runtime::check(&runtime::folder())?;
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "{} was mounted by another user or program: give its address and --key",
                mountpoint.display()
            )
        })?;
        toml::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Remove the note of a mount point, if there is one.
    pub fn remove(mountpoint: &Path) {
        if let Ok(path) = note_path(mountpoint) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn note_path(mountpoint: &Path) -> Result<PathBuf> {
    Ok(runtime::folder().join(file_of(mountpoint, "toml")?))
}

/// Where a mount in the background writes its messages: on disk, so that they outlive the machine's next
/// start.
pub fn log_path(mountpoint: &Path) -> Result<PathBuf> {
    let folder = state_folder();
    if folder == runtime::folder() {
        runtime::make(&folder)?;
    }
    Ok(folder.join(file_of(mountpoint, "log")?))
}

/// The folder of files that are kept but are not needed to continue.
fn state_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => state.join("shoal"),
        (None, _) if rustix::process::geteuid().is_root() => PathBuf::from("/var/log/shoal"),
        (None, Some(home)) => home.join(".local/state/shoal"),
        (None, None) => runtime::folder(),
    }
}

fn file_of(mountpoint: &Path, ending: &str) -> Result<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.';
    let word = |&b: &u8| if plain(b) { char::from(b).to_string() } else { format!("-{b:02x}") };
    let name: String = resolved(mountpoint)?.as_os_str().as_bytes().iter().map(word).collect();
    Ok(format!("{name}.{ending}"))
}

/// The path without symbolic links above its last component, as the mount table has it. The last one is not
/// looked at: a dead mount answers no question.
pub fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    Ok(match (above, path.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => path,
    })
}

/// A mounted ShoalFS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub mountpoint: PathBuf,
    /// Its source: the address.
    pub source: String,
}

/// The mounts of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MountTable {
    /// Those of a ShoalFS.
    shoals: Vec<Mounted>,
    /// Mount points of other file systems.
    others: Vec<PathBuf>,
}

impl MountTable {
    fn read() -> Result<MountTable> {
        let text = std::fs::read_to_string("/proc/self/mountinfo");
        Ok(MountTable::parse(&text.context("cannot read /proc/self/mountinfo")?))
    }

    /// The mount of a ShoalFS that a path is on. A file system that is mounted on a directory of it is
    /// another one.
    fn holder_of(&self, path: &Path) -> Option<&Mounted> {
        let len = |mountpoint: &Path| mountpoint.as_os_str().len();
        let holders = self.shoals.iter().filter(|mounted| path.starts_with(&mounted.mountpoint));
        let holder = holders.max_by_key(|mounted| len(&mounted.mountpoint))?;
        let is_inner = |other: &&PathBuf| path.starts_with(other) && len(other) > len(&holder.mountpoint);
        self.others.iter().find(is_inner).is_none().then_some(holder)
    }
}

/// The ShoalFS mounts of this machine.
pub fn mounts() -> Result<Vec<Mounted>> {
    Ok(MountTable::read()?.shoals)
}

impl MountTable {
    /// `36 35 0:41 / /mnt rw,… shared:1 - fuse.shoal shoal://… rw,…`
    fn parse(text: &str) -> MountTable {
        let mut table = MountTable::default();
        for (left, right) in text.lines().filter_map(|line| line.split_once(" - ")) {
            let mut right = right.split(' ');
            let (kind, source) = (right.next(), right.next());
            let Some(mountpoint) = left.split(' ').nth(4).map(|path| PathBuf::from(unescape(path))) else {
                continue;
            };
            match (kind, source) {
                (Some("fuse.shoal"), Some(source)) => {
                    table.shoals.push(Mounted { mountpoint, source: unescape(source) });
                }
                _ => table.others.push(mountpoint),
            }
        }
        table
    }
}

/// The kernel writes blanks in paths as `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match (bytes[at], octal.and_then(|d| u8::from_str_radix(d, 8).ok())) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The target of a command: an address with its key.
#[derive(Clone, Debug)]
pub struct CommandTarget {
    /// The file system, and the path in it.
    pub address: ShoalAddress,
    /// The key file.
    pub key: PathBuf,
}

impl CommandTarget {
    /// The meaning of `text` if it is an address or a path on a mount.
    ///
    /// # Errors
    /// When it is one of them, and wrong.
    pub fn find_mounted(text: &str, key: Option<&Path>) -> Result<Option<CommandTarget>> {
        let mounts = MountTable::read()?;
        if text.starts_with("shoal://") {
            let address: ShoalAddress = text.parse()?;
            let key = match key.map(Path::to_path_buf).or_else(|| key_of_mount(&mounts.shoals, &address)) {
                Some(key) => key,
                None => find_key()?,
            };
            return Ok(Some(CommandTarget { address, key }));
        }
        let mut path = std::path::absolute(text)?;
        let mut holder = mounts.holder_of(&path);
        if holder.is_none() {
            path = resolved(&path)?;
            holder = mounts.holder_of(&path);
        }
        let Some(mounted) = holder else { return Ok(None) };
        let note = MountNote::read(&mounted.mountpoint)?;
        let mut address: ShoalAddress = note.address.parse()?;
        let inside = path.strip_prefix(&mounted.mountpoint).unwrap_or(&path);
        address.path = format!("{}/{}", address.path.trim_end_matches('/'), inside.to_string_lossy());
        Ok(Some(CommandTarget { address, key: key.map_or(note.key, Path::to_path_buf) }))
    }

    /// Find the meaning of `text`: an address, a path on a mount, or a folder of `shoal up` (its root).
    ///
    /// # Errors
    /// When it is none of these; the message says what would be.
    pub fn find(text: &str, key: Option<&Path>) -> Result<CommandTarget> {
        if let Some(place) = CommandTarget::find_mounted(text, key)? {
            return Ok(place);
        }
        let path = std::path::absolute(text)?;
        if path.join(crate::cluster_file::FILE_NAME).is_file() {
            let cluster = crate::cluster_file::ClusterFile::load(&path)?;
            let collection = cluster.find(None)?;
            let servers = cluster.server.iter().map(|s| s.addresses()).collect::<Result<Vec<_>>>()?;
            let address = ShoalAddress {
                servers: servers.into_iter().flatten().filter(|a| !matches!(a, Address::Local(_))).collect(),
                name: collection.name.clone(),
                path: "/".to_owned(),
            };
            return Ok(CommandTarget {
                address,
                key: key.map_or_else(|| cluster.path(&cluster.key), Path::to_path_buf),
            });
        }
        bail!(
            "`{text}` is not on a mounted ShoalFS; give a path on a mount, an address (shoal://HOST:PORT/NAME/PATH) or the \
             folder of `shoal up`"
        )
    }

    /// Where servers of this file system are, as this machine knows beside the address: from mounts of it,
    /// and from the cluster file beside the key.
    pub fn servers_known_here(&self) -> Vec<Address> {
        let mut known = self.servers_of_cluster_file().unwrap_or_default();
        for mounted in mounts().unwrap_or_default() {
            let Ok(note) = MountNote::read(&mounted.mountpoint) else { continue };
            let Ok(address) = note.address.parse::<ShoalAddress>() else { continue };
            // One key file has one file system of a name.
            if address.name == self.address.name && same_file(&note.key, &self.key) {
                known.extend(address.servers);
                known.extend(note.servers.iter().filter_map(|server| server.parse().ok()));
            }
        }
        known.retain(|server| server.is_tcp() && !self.address.servers.contains(server));
        let mut seen = BTreeSet::new();
        known.retain(|server| seen.insert(server.clone()));
        known
    }

    /// The same place, asked for at these servers too.
    pub fn or_at(mut self, servers: &[Address]) -> CommandTarget {
        self.address.servers.extend_from_slice(servers);
        self
    }

    fn servers_of_cluster_file(&self) -> Option<Vec<Address>> {
        let file = self.key.parent()?.join(crate::cluster_file::FILE_NAME);
        let cluster = crate::cluster_file::ClusterFile::load(&file).ok()?;
        cluster.find(Some(&self.address.name)).ok()?;
        let servers = cluster.server.iter().filter_map(|server| server.addresses().ok()).flatten();
        same_file(&cluster.path(&cluster.key), &self.key).then(|| servers.collect())
    }

    /// The key's file system that the address names.
    pub fn open_key(&self) -> Result<(KeyFile, crate::secret::FileSystem)> {
        let key = KeyFile::load(&self.key)?;
        let file_system = key.find(Some(&self.address.name))?.clone();
        Ok((key, file_system))
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Where the ShoalFS is mounted that a path lies on; of an address, or a path elsewhere, nowhere.
///
/// # Errors
/// When the mount table cannot be read.
pub fn mountpoint_of(text: &str) -> Result<Option<PathBuf>> {
    if text.starts_with("shoal://") {
        return Ok(None);
    }
    let (mounts, path) = (MountTable::read()?, std::path::absolute(text)?);
    let holder = match mounts.holder_of(&path) {
        Some(holder) => Some(holder),
        None => mounts.holder_of(&resolved(&path)?),
    };
    Ok(holder.map(|mounted| mounted.mountpoint.clone()))
}

/// The key that a mount of the same file system on this machine uses.
fn key_of_mount(mounts: &[Mounted], address: &ShoalAddress) -> Option<PathBuf> {
    let same = |note: &MountNote| {
        let mounted = note.address.parse::<ShoalAddress>();
        mounted.is_ok_and(|m| m.name == address.name && m.servers.iter().any(|s| address.servers.contains(s)))
    };
    let notes = mounts.iter().filter_map(|mounted| MountNote::read(&mounted.mountpoint).ok());
    notes.filter(same).map(|note| note.key).find(|key| key.is_file())
}

/// The key of `SHOAL_KEY`, or of the folders where one is kept.
fn find_key() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config/shoal/key"));
    let places = [
        std::env::var_os("SHOAL_KEY").map(PathBuf::from),
        Some(PathBuf::from("shoal-data/key")),
        home,
        Some(PathBuf::from("/etc/shoal/key")),
    ];
    let places: Vec<PathBuf> = places.into_iter().flatten().collect();
    places.iter().find(|p| p.is_file()).cloned().with_context(|| {
        let tried: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        format!("no key: give --key FILE or set SHOAL_KEY (looked at {})", tried.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_being_printed() {
        for text in ["shoal://127.0.0.1:7441/demo", "shoal://127.0.0.1:1,node2.lab:2/demo/a/b c"] {
            assert_eq!(text.parse::<ShoalAddress>().unwrap().to_string(), text);
        }
        for wrong in
            ["demo", "shoal://127.0.0.1:1", "shoal:///demo", "shoal://127.0.0.1/demo", "shoal://node2/demo"]
        {
            assert!(wrong.parse::<ShoalAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn mounts_are_found_in_the_mount_table() {
        let table = "36 35 0:41 / /mnt/a\\040b rw shared:1 - fuse.shoal shoal://127.0.0.1:1/demo rw\n\
                     37 35 0:42 / /proc rw - proc proc rw\n";
        let found = MountTable::parse(table).shoals;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].mountpoint, Path::new("/mnt/a b"));
        assert_eq!(found[0].source, "shoal://127.0.0.1:1/demo");
    }

    #[test]
    fn a_file_system_mounted_on_a_directory_of_a_mount_is_another_one() {
        let line =
            |at: &str, kind: &str| format!("36 35 0:41 / {at} rw - {kind} shoal://127.0.0.1:1/demo rw\n");
        let all = [("/", "ext4"), ("/m", "fuse.shoal"), ("/m/t", "tmpfs"), ("/m/t/n", "fuse.shoal")];
        let table: String = all.iter().map(|(at, kind)| line(at, kind)).collect();
        let table = MountTable::parse(&table);
        let holder = |path: &str| table.holder_of(Path::new(path)).map(|found| found.mountpoint.clone());
        assert_eq!(holder("/m/d/f"), Some("/m".into()));
        assert_eq!(holder("/m/tx"), Some("/m".into()));
        assert_eq!((holder("/m/t"), holder("/m/t/f"), holder("/f")), (None, None, None));
        assert_eq!(holder("/m/t/n/f"), Some("/m/t/n".into()));
    }
}
