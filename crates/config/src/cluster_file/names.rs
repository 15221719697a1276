//! The words of a cluster file: each choice as it is written, and its meaning.

use serde::{Deserialize, Serialize};
use shoal_proto::Seal;
use shoal_store::ModuleKind;

/// How much of each frame bears a MAC, and whether it is encrypted, as written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MacName {
    /// A MAC over all of each frame, and all but its head is encrypted.
    Encrypt,
    /// A MAC over all of each frame.
    All,
    /// A MAC that leaves out the data of files: that can be changed on its way.
    Head,
    /// Nothing: an attacker on the wire can do what a client can.
    Off,
}

impl From<MacName> for Seal {
    fn from(name: MacName) -> Seal {
        match name {
            MacName::Encrypt => Seal::Encrypted,
            MacName::All => Seal::All,
            MacName::Head => Seal::Head,
            MacName::Off => Seal::Off,
        }
    }
}

/// A module's name.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ModuleName {
    /// Journal, tables and streams on the local disk.
    #[default]
    Disk,
    /// The same semantics; nothing is kept.
    Memory,
    /// Metadata in memory; data acknowledged and not kept (for study).
    Null,
}

/// When metadata changes are durable.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MetadataSyncName {
    /// When the reply leaves.
    #[default]
    Reply,
    /// At the next fsync; a killed server loses nothing.
    Fsync,
    /// Written back later (scratch).
    Never,
}

/// When data writes are durable.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DataSyncName {
    /// At the next fsync; a killed server loses nothing.
    #[default]
    Fsync,
    /// When the reply leaves.
    Reply,
}

/// A distribution's name.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum DistributionName {
    /// Strips dealt round robin.
    #[default]
    SimpleStripe,
    /// All in one datafile.
    Basic,
}

impl From<ModuleName> for ModuleKind {
    fn from(name: ModuleName) -> ModuleKind {
        match name {
            ModuleName::Disk => ModuleKind::Disk,
            ModuleName::Memory => ModuleKind::Memory,
            ModuleName::Null => ModuleKind::Null,
        }
    }
}
