//! The circumstances of a bound: the clients, the number of servers, and the disk accesses that caches save.

use crate::counts::{Counts, Share};
use crate::machine::Machine;

/// How far a disk's head moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To the middle place.
    #[default]
    Average,
    /// To the farthest.
    Worst,
    /// To the next track.
    Track,
}

/// The accesses that the servers' caches save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Nothing: every access is one of the disk.
    Nothing,
    /// Reads are from memory, changes go to the disk.
    #[default]
    Reads,
    /// Nothing is waited for at the disk.
    Everything,
}

/// Servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// So many, each with metadata and data.
    Both(u32),
    /// Some for metadata, some for data.
    Split {
        /// Of metadata.
        metadata: u32,
        /// Of data.
        data: u32,
    },
}

impl Servers {
    /// How many there are.
    pub fn count(self) -> u32 {
        match self {
            Servers::Both(n) => n,
            Servers::Split { metadata, data } => metadata + data,
        }
    }

    /// Data servers.
    pub fn data(self) -> u32 {
        match self {
            Servers::Both(n) => n,
            Servers::Split { data, .. } => data,
        }
    }

    /// The share of the busiest server.
    pub(super) fn busiest(self, counts: &Counts, of: impl Fn(&Share) -> f64) -> f64 {
        let each = |all: f64, servers: u32| all / f64::from(servers.max(1));
        match self {
            Servers::Both(n) => each(of(&counts.servers()), n),
            Servers::Split { metadata, data } => {
                each(of(&counts.metadata), metadata).max(each(of(&counts.data), data))
            }
        }
    }
}

/// The circumstances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Clients, one operation under way each.
    pub clients: u32,
    /// Cores are kept awake.
    pub awake: bool,
    /// Servers.
    pub servers: Servers,
    /// Where disk accesses go.
    pub access: Access,
    /// The accesses that caches save.
    pub caching: Caching,
    /// Operations that one sync may complete; `None`: all that wait.
    pub per_sync: Option<u32>,
}

impl Setting {
    /// So many clients of the machine's own servers.
    pub fn of(machine: &Machine, clients: u32) -> Setting {
        let nodes = &machine.nodes;
        let servers = match nodes.servers_have_both {
            true => Servers::Both(nodes.data_servers),
            false => Servers::Split { metadata: nodes.metadata_servers, data: nodes.data_servers },
        };
        Setting {
            clients,
            awake: clients > 1,
            servers,
            access: Access::default(),
            caching: Caching::default(),
            per_sync: None,
        }
    }

    /// Operations of one server that a sync can complete: of clients that wait there is no more than this.
    pub(super) fn group(&self) -> f64 {
        let waiting = (f64::from(self.clients) / f64::from(self.servers.count().max(1))).max(1.0);
        self.per_sync.map_or(waiting, |most| waiting.min(most.max(1).into()))
    }
}
