//! The setting of one run: the cluster, its techniques, and the amount of work.
//!
//! A setting is put together from tables: the experiment's `[parameters]`, the parameters of the mode
//! (`[real]`, `[simulated]`), of `[quick]` and of the series, and the place on the axis. A later table
//! overrides an earlier table. So anything here can vary along an axis.

use serde::{Deserialize, Serialize};
use shoal_proto::Switches;
use shoal_store::{DataSync, MetadataSync, ModuleKind, SyncModes};

/// The most processes of a run, clients and servers.
pub const PROCESSES_MAX: u32 = 65_536;
/// The most client nodes, and servers.
pub const NODES_MAX: u16 = 1024;
/// The most files of one process.
pub const FILES_MAX: u64 = 10_000_000;
/// The most bytes of a block: one call.
pub const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// The storage module of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    /// Journal, tables, streams on the local disk.
    #[default]
    Disk,
    /// The same semantics, nothing kept.
    Memory,
    /// Metadata in memory; data acknowledged and not done.
    Null,
}

impl Module {
    /// In a word, as the command line takes it.
    pub fn word(self) -> &'static str {
        match self {
            Module::Disk => "disk",
            Module::Memory => "memory",
            Module::Null => "null",
        }
    }

    /// Of the store.
    pub fn kind(self) -> ModuleKind {
        match self {
            Module::Disk => ModuleKind::Disk,
            Module::Memory => ModuleKind::Memory,
            Module::Null => ModuleKind::Null,
        }
    }
}

/// When metadata is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metadata {
    /// When the reply leaves.
    #[default]
    Reply,
    /// At the next fsync.
    Fsync,
    /// Written back later.
    Never,
}

impl Metadata {
    /// In a word, as the command line takes it.
    pub fn word(self) -> &'static str {
        match self {
            Metadata::Reply => "reply",
            Metadata::Fsync => "fsync",
            Metadata::Never => "never",
        }
    }
}

/// When data is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// At the next fsync.
    #[default]
    Fsync,
    /// When the reply leaves.
    Reply,
}

impl Data {
    /// In a word, as the command line takes it.
    pub fn word(self) -> &'static str {
        match self {
            Data::Fsync => "fsync",
            Data::Reply => "reply",
        }
    }
}

/// Where the servers' folders lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// On the disk.
    #[default]
    Disk,
    /// In a file system in memory.
    Tmpfs,
}

/// The setting of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setting {
    /// Servers with metadata and data.
    pub servers: u16,
    /// How many of them, from the last, hold no data.
    pub metadata_only: u16,
    /// Computers with a client each.
    pub clients: u16,
    /// Application processes, spread evenly over the clients; 0: one a client.
    pub processes: u32,
    /// Techniques, as `--switches` takes them.
    pub switches: String,
    /// The storage module of the data.
    pub module: Module,
    /// When metadata is durable.
    pub metadata_sync: Metadata,
    /// When data is durable.
    pub data_sync: Data,
    /// Where the servers' folders lie.
    pub storage: Storage,
    /// Bytes of a strip.
    pub strip_bytes: u64,
    /// Memory of a server for rows and data, bytes; 0: as usual.
    pub cache_bytes: u64,
    /// Memory of a server's computer, available to its page cache, bytes; 0: the machine's. Scaled with the
    /// files, so that data larger than memory stays so. Real runs cannot choose it.
    pub memory_bytes: u64,
    /// How long clients cache names and attributes, milliseconds; PVFS's caches do so for 100. As long passes
    /// between two phases: entries that expire in a long run would still be valid in a short one.
    pub client_cache_ms: u64,
    /// Files of each process.
    pub files: u64,
    /// Files of all processes together, instead; 0: not so.
    pub files_total: u64,
    /// Bytes of each small file.
    pub file_bytes: u64,
    /// Bytes of one shared file, of all processes together.
    pub total_bytes: u64,
    /// Bytes moved by one call.
    pub block_bytes: u64,
    /// Look-ups of each process.
    pub lookups: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            servers: 1,
            metadata_only: 0,
            clients: 1,
            processes: 0,
            switches: "ours".to_owned(),
            module: Module::default(),
            metadata_sync: Metadata::default(),
            data_sync: Data::default(),
            storage: Storage::default(),
            strip_bytes: 1 << 20,
            cache_bytes: 0,
            memory_bytes: 0,
            client_cache_ms: 100,
            files: 100,
            files_total: 0,
            file_bytes: 8192,
            total_bytes: 100_000_000,
            block_bytes: 65_536,
            lookups: 100,
        }
    }
}

/// The parameters of the cluster, for any workload.
pub const CLUSTER: &[&str] = &[
    "servers",
    "metadata_only",
    "clients",
    "processes",
    "switches",
    "module",
    "metadata_sync",
    "data_sync",
    "storage",
    "strip_bytes",
    "cache_bytes",
    "memory_bytes",
    "client_cache_ms",
];

/// The amounts that a scale multiplies.
pub const SCALED: &[&str] = &["files", "files_total", "total_bytes", "lookups", "memory_bytes"];

impl Setting {
    /// From a table.
    ///
    /// # Errors
    /// Its error, in words.
    pub fn of(table: &toml::Table) -> Result<Setting, String> {
        let setting: Setting =
            table.clone().try_into().map_err(|e: toml::de::Error| e.message().to_owned())?;
        setting.check()?;
        Ok(setting)
    }

    fn check(&self) -> Result<(), String> {
        self.techniques()?;
        let within = |key: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{key} is {value}: write {least} to {most}")),
        };
        within("servers", self.servers.into(), 1, NODES_MAX.into())?;
        within("clients", self.clients.into(), 1, NODES_MAX.into())?;
        within("processes", self.processes.into(), 0, PROCESSES_MAX.into())?;
        within("files", self.files, 0, FILES_MAX)?;
        within("block_bytes", self.block_bytes, 1, BLOCK_BYTES_MAX)?;
        within("strip_bytes", self.strip_bytes, 1, 1 << 40)?;
        if self.metadata_only >= self.servers {
            return Err(format!(
                "metadata_only is {} of {} servers: at least one holds data",
                self.metadata_only, self.servers
            ));
        }
        Ok(())
    }

    /// The switches.
    ///
    /// # Errors
    /// The error of their words.
    pub fn techniques(&self) -> Result<Switches, String> {
        self.switches.parse()
    }

    /// Application processes.
    pub fn process_count(&self) -> u32 {
        if self.processes == 0 { self.clients.into() } else { self.processes }
    }

    /// Files of the process of this index.
    pub fn files_of(&self, index: u32) -> u64 {
        let of = u64::from(self.process_count());
        match self.files_total {
            0 => self.files,
            total => total / of + u64::from(u64::from(index) < total % of),
        }
    }

    /// The store's sync modes.
    pub fn sync_modes(&self) -> SyncModes {
        let metadata = match self.metadata_sync {
            Metadata::Reply => MetadataSync::AtReply,
            Metadata::Fsync => MetadataSync::AtFsync,
            Metadata::Never => MetadataSync::Never,
        };
        let data = match self.data_sync {
            Data::Fsync => DataSync::AtFsync,
            Data::Reply => DataSync::AtReply,
        };
        let coalescing = self.techniques().map(|switches| switches.coalescing).unwrap_or_default();
        SyncModes { metadata, data, coalescing }
    }

    /// Whether metadata waits for something durable.
    pub fn is_synced(&self) -> bool {
        self.module == Module::Disk && self.storage == Storage::Disk && self.metadata_sync == Metadata::Reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> toml::Table {
        toml::from_str(text).expect("TOML")
    }

    #[test]
    fn what_is_not_said_is_as_usual_and_what_nobody_knows_is_refused() {
        let setting =
            Setting::of(&table("servers = 8\nswitches = \"paper,eager=off\"")).expect("it is right");
        assert_eq!((setting.servers, setting.clients, setting.process_count()), (8, 1, 1));
        for (text, words) in [
            ("server = 8", "server"),
            ("servers = 0", "servers is 0"),
            ("switches = \"fast\"", "no set"),
            ("servers = 2\nmetadata_only = 2", "at least one holds data"),
            ("block_bytes = 0", "block_bytes is 0"),
            ("module = \"paper\"", "`memory`"),
        ] {
            let told = Setting::of(&table(text)).expect_err(text);
            assert!(told.contains(words), "{text}: {told}");
        }
    }

    #[test]
    fn a_total_of_files_is_spread_over_the_processes_and_none_is_lost() {
        let setting = Setting { clients: 3, files_total: 200, ..Setting::default() };
        let each: Vec<u64> = (0..3).map(|index| setting.files_of(index)).collect();
        assert_eq!(each, [67, 67, 66]);
    }
}
