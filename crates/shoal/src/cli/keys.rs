//! The keys of a file system, by role: `shoal key`.

use super::Key;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `shoal key`.
#[derive(Subcommand, Debug)]
pub enum Keys {
    /// Show which keys a cluster has, by their fingerprints.
    #[command(after_help = "\
Example:  shoal key list /etc/shoal
Two machines have the same key if they show the same fingerprint. Mount keys with names are the servers' to know: where none answers,
they are not shown.")]
    List(OneCluster),
    /// Add a mount key with a name, while the file system runs. It lets clients in beside the others, until
    /// it is revoked.
    #[command(after_help = "\
Example:  shoal key add lab /etc/shoal                        (writes /etc/shoal/key.lab)
          shoal key add backup /etc/shoal --read-only --out backup.key
          shoal key add guests /etc/shoal --squash-root
          shoal mount shoal://node1/demo /mnt/demo --key backup.key
It runs where key.server is. Servers refuse the holder of a read-only key every change, whatever program it uses. A name is 1 to 64
letters, digits, `.`, `_` and `-`.")]
    Add(AddKey),
    /// Write the file of a mount key with a name again, where key.server is.
    #[command(after_help = "\
Example:  shoal key export lab /etc/shoal --out lab.key
After `shoal key rotate --server` all keys with names are others: export them again for their clients.")]
    Export(ExportKey),
    /// Revoke a mount key, while the file system runs. Its sessions end within 10 seconds, and it is never
    /// let in again.
    #[command(after_help = "\
Example:  shoal key revoke lab /etc/shoal
          shoal key revoke lab shoal://node1/demo --key ~/.config/shoal/key
          shoal key revoke first /etc/shoal                   (the key that the file system was made with)
It needs the administrators' key. Programs on mounts with that key fail with `Key has been revoked`. If a server does not answer, the
command fails: that server refuses the key once it has met another server.")]
    Revoke(RevokeKey),
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

/// A key with a name, of a file system.
#[derive(Args, Debug)]
pub struct NamedKey {
    /// Its name.
    pub name: String,
    /// The cluster file, or its folder.
    #[arg(default_value = "shoal-data", value_hint = ValueHint::AnyPath)]
    pub config: PathBuf,
    /// The file system, if the cluster has several.
    #[arg(long, value_name = "NAME")]
    pub file_system: Option<String>,
    /// Write the key to this file. Default: `key.NAME`, beside `key`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal key add`.
#[derive(Args, Debug)]
pub struct AddKey {
    /// Which key.
    #[command(flatten)]
    pub of: NamedKey,
    /// Its holders change nothing.
    #[arg(long)]
    pub read_only: bool,
    /// Its holders' root has no rights of root: all that it makes belongs to user and group 65534, and it
    /// changes no owner, sets no set-id bit, makes no device, and sets no attribute of `trusted.` and
    /// `security.`.
    #[arg(long)]
    pub squash_root: bool,
}

/// `shoal key export`.
#[derive(Args, Debug)]
pub struct ExportKey {
    /// Which key.
    #[command(flatten)]
    pub of: NamedKey,
}

/// `shoal key revoke`.
#[derive(Args, Debug)]
pub struct RevokeKey {
    /// Its name.
    pub name: String,
    /// The cluster's folder, an address, or a path on a mount.
    #[arg(default_value = "shoal-data", value_hint = ValueHint::AnyPath)]
    pub place: String,
    /// Which key file to reach it with.
    #[command(flatten)]
    pub key: Key,
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
