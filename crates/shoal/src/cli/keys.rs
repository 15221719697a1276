//! The keys of a file system, by role: `shoal key`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `shoal key`.
#[derive(Subcommand, Debug)]
pub enum Keys {
    /// Show which keys a cluster has, by their fingerprints.
    #[command(after_help = "\
Example:  shoal key list /etc/shoal
Two machines have the same key if they show the same fingerprint.")]
    List(OneCluster),
    /// Give servers and administrators keys of their own, where the mount key has these roles (file systems
    /// made before there were roles). No name and no file changes.
    #[command(after_help = "\
Example:  shoal key split /etc/shoal
All servers must be stopped. Afterwards copy cluster.toml and key.server to each server's machine and start the servers. Clients
keep their key; those that are mounted go on. Commands that manage (add-server, move-server, fsck, sync with modes) then need key.admin
beside the key.")]
    Split(OneCluster),
    /// Replace the mount key (after a leak, say), or with --server the servers' key, or with --admin the
    /// administrators' key. No name and no file changes.
    #[command(after_help = "\
Example:  shoal key rotate /etc/shoal              (clients need the new `key`)
          shoal key rotate /etc/shoal --server     (clients keep theirs; files that are open are opened anew)
          shoal key rotate /etc/shoal --admin      (clients keep theirs)
All servers must be stopped. Afterwards copy the key files to each server's machine, start the servers, and copy `key` to the clients.
The former file is kept beside the new one as `key.former`, `key.server.former` or `key.admin.former`: remove it when all is well.")]
    Rotate(Rotate),
}

/// Which cluster.
#[derive(Args, Debug)]
pub struct OneCluster {
    /// The cluster file, or its folder.
    #[arg(default_value = "shoal-data", value_hint = ValueHint::AnyPath)]
    pub config: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal key rotate`.
#[derive(Args, Debug)]
pub struct Rotate {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: OneCluster,
    /// The servers' key in place of the mount key.
    #[arg(long)]
    pub server: bool,
    /// The administrators' key in place of the mount key.
    #[arg(long, conflicts_with = "server")]
    pub admin: bool,
}
