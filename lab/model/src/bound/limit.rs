//! The possible limits: the resources of a machine, and the largest waits of clients.
//!
//! Each has a word, for programs, and a name, for people. The waits of a client are one term, which has the
//! name of the longest wait.

/// A possible limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Clients wait, most of it for round trips.
    RoundTrip,
    /// Clients wait, most of it for syncs.
    Sync,
    /// Clients wait, most of it for disk accesses.
    Access,
    /// Clients wait, most of it for bytes.
    Transfer,
    /// Clients wait, most of it for processing.
    Processing,
    /// Messages a second.
    Messages,
    /// The clients' links.
    ClientLink,
    /// The servers' links.
    ServerLink,
    /// Syncs a second.
    Syncs,
    /// The disks.
    Disk,
    /// The clients' cores.
    ClientCpu,
    /// The servers' cores.
    ServerCpu,
    /// The cores that clients and servers share.
    Cpu,
}

impl Limit {
    /// In a word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Limit::RoundTrip => "round_trip",
            Limit::Sync => "sync",
            Limit::Access => "disk_access",
            Limit::Transfer => "transfer",
            Limit::Processing => "processing",
            Limit::Messages => "messages",
            Limit::ClientLink => "client_link",
            Limit::ServerLink => "server_link",
            Limit::Syncs => "syncs",
            Limit::Disk => "disk",
            Limit::ClientCpu => "client_cpu",
            Limit::ServerCpu => "server_cpu",
            Limit::Cpu => "cpu",
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Limit::RoundTrip => "waiting: round trips",
            Limit::Sync => "waiting: syncs",
            Limit::Access => "waiting: disk accesses",
            Limit::Transfer => "waiting: transfer",
            Limit::Processing => "waiting: processing",
            Limit::Messages => "messages",
            Limit::ClientLink => "client links",
            Limit::ServerLink => "server links",
            Limit::Syncs => "syncs",
            Limit::Disk => "disks",
            Limit::ClientCpu => "client CPU",
            Limit::ServerCpu => "server CPU",
            Limit::Cpu => "CPU, shared",
        })
    }
}
