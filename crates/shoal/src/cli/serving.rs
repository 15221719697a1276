//! Commands that begin and end a file system and its mounts: `shoal up`, `init`, `serve`, `mount`, `umount`,
//! `add-server`, `move-server`.

use super::{Key, TimeLimit};
use crate::bytes_size::ByteSize;
use crate::cluster_file::{
    DataSyncName, DistributionName, MacName, MetadataSyncName, ModuleName, Role, SwitchWords,
};
use crate::renewal::Anew;
use clap::{Args, ValueHint};
use shoal_transform::{ContainerSettings, IndexDesign};
use std::path::{Path, PathBuf};

/// Settings of a new file system.
#[derive(Args, Debug, Clone)]
pub struct NewFileSystem {
    /// Name of the file system.
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// The storage module.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// When metadata changes are durable: at reply, at fsync (a killed server loses nothing), never
    /// (scratch).
    #[arg(long, value_enum, default_value_t)]
    pub metadata_sync: MetadataSyncName,
    /// When data writes are durable: at fsync, at reply.
    #[arg(long, value_enum, default_value_t)]
    pub data_sync: DataSyncName,
    /// Bytes of a strip: the size up to which a file is not spread over servers.
    #[arg(long, default_value = "1M")]
    pub strip: ByteSize,
    /// Datafiles of a file; 0: one on every data server.
    #[arg(long, default_value_t = 0)]
    pub width: u16,
    /// How bytes are dealt to datafiles.
    #[arg(long, value_enum, default_value_t)]
    pub distribution: DistributionName,
    /// Memory for cached rows and data, on each server.
    #[arg(long, default_value = "64M")]
    pub cache: ByteSize,
    /// Which techniques are used: ours, paper or baseline, and the differences from the set (for study):
    /// paper,eager=off. Switches: precreate, stuffing, readdirplus, compound (on, off); eager (on, off,
    /// bytes); split (on, off, entries); placement (colocated, spread); coalescing (pipelined, watermark,
    /// watermark:LOW:HIGH, per-op).
    #[arg(long, default_value_t, value_name = "WORDS")]
    pub switches: SwitchWords,
}

/// `shoal up`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal up ./shoal-data --servers 4 --mount ./mnt
          cp -a /usr/include mnt/        (in another terminal; Ctrl-C stops and unmounts)
          shoal up ./shoal-data --accept-older 2    (the folder of server 2 was restored from a backup)
A second `up` on the same folder goes on with its data; settings of a new file system are taken only when there is none.
The line with `ready` names the address, so that others can:  shoal mount ADDRESS DIR --key FOLDER/key")]
pub struct Up {
    /// Folder of the data; made if missing.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// How many servers [default: 4 for a new file system]. More than there are: servers are added.
    #[arg(long)]
    pub servers: Option<u16>,
    /// Mount here.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub mount: Option<PathBuf>,
    /// Servers write which clients did what, as JSON lines, to this file in the folder of each. It stays so:
    /// `audit` in cluster.toml changes it.
    #[arg(long, value_name = "NAME")]
    pub audit: Option<PathBuf>,
    /// Protection of frames over TCP [default: all, and programs of older versions are served without]. It
    /// stays so: `mac` in cluster.toml.
    #[arg(long, value_enum)]
    pub mac: Option<MacName>,
    /// Settings of a new file system.
    #[command(flatten)]
    pub new: NewFileSystem,
    /// Give the store of this server up for good, and begin anew in its folder, which must be empty. Data
    /// that only this server held is lost: names and files on the other servers stay, and `shoal fsck` finds
    /// their missing parts. All other servers must run. Of several file systems it is the store of each whose
    /// folder is missing, or of the one that is named.
    #[arg(long, value_name = "ID[/FILE SYSTEM]")]
    pub new_store: Vec<Anew>,
    /// Continue with the folder of this server although it is an older copy (a backup, a snapshot). Changes
    /// acknowledged after the copy was made are lost as far as they were stored there: `shoal fsck` finds the
    /// mismatches. Sessions with this server end. All other servers must run. A copy that was accepted cannot
    /// be taken back for a newer one.
    #[arg(long, value_name = "ID")]
    pub accept_older: Vec<u16>,
    /// How it is mounted.
    #[command(flatten)]
    pub options: MountOptions,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

/// `shoal init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal init ./cluster --server tcp:10.0.0.1:7441=/srv/shoal --server tcp:10.0.0.2:7441=/srv/shoal
          shoal serve --config ./cluster --server 0        (on the first machine; 1 on the second)")]
pub struct Init {
    /// Folder for cluster.toml and key.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// A server: ADDRESS=FOLDER. Repeat for each, in order of their ids.
    #[arg(long = "server", value_name = "ADDRESS=FOLDER", required_unless_present = "collection")]
    pub servers: Vec<String>,
    /// Add a further file system to an existing cluster file instead.
    #[arg(long, conflicts_with = "servers")]
    pub collection: bool,
    /// Each server writes which clients did what, as JSON lines, to this file in its folder (an absolute path
    /// only for one server).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "collection")]
    pub audit: Option<PathBuf>,
    /// Protection of frames over TCP [default: all, and programs of older versions are served without]; `mac`
    /// in cluster.toml.
    #[arg(long, value_enum, conflicts_with = "collection")]
    pub mac: Option<MacName>,
    /// Settings of the file system.
    #[command(flatten)]
    pub new: NewFileSystem,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal serve`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal serve --config /etc/shoal/cluster.toml --server 0
          shoal serve --config /etc/shoal/cluster.toml --server 0 --accept-older 0     (its folder was restored from a backup)")]
pub struct Serve {
    /// The cluster file, or its folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Which servers run in this process [default: all].
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u16>,
    /// Give the store of this server up for good, and begin anew in its folder, which must be empty. Data
    /// that only this server held is lost: names and files on the other servers stay, and `shoal fsck` finds
    /// their missing parts. All other servers must run. Of several file systems it is the store of each whose
    /// folder is missing, or of the one that is named.
    #[arg(long, value_name = "ID[/FILE SYSTEM]")]
    pub new_store: Vec<Anew>,
    /// Continue with the folder of this server although it is an older copy (a backup, a snapshot). Changes
    /// acknowledged after the copy was made are lost as far as they were stored there: `shoal fsck` finds the
    /// mismatches. Sessions with this server end. All other servers must run. A copy that was accepted cannot
    /// be taken back for a newer one.
    #[arg(long, value_name = "ID")]
    pub accept_older: Vec<u16>,
    /// Microseconds to poll before sleeping; for cores with nothing else to do.
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub polling_us: u64,
    /// Seconds without a message after which a client's session ends, and files that only it held open are
    /// removed.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lease: u64,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

/// How a file system is mounted.
#[derive(Args, Debug, Clone)]
pub struct MountOptions {
    /// Milliseconds that names and attributes are cached; 0: strict, every look asks.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub attr_timeout: u64,
    /// Never list a directory ahead of lookups: every name costs a message.
    #[arg(long)]
    pub no_stat_ahead: bool,
    /// Bypass the page cache.
    #[arg(long)]
    pub direct: bool,
    /// Keep locks of files (flock, fcntl) in this mount's kernel: faster, and they hold within this mount
    /// only.
    #[arg(long)]
    pub local_locks: bool,
    /// Threads that read requests from the kernel.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: usize,
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
    /// Let other users in (root mounts do anyway).
    #[arg(long)]
    pub allow_other: bool,
    /// Options as mount(8) and /etc/fstab write them, separated by commas: ro, rw, nosuid, suid, nodev, dev
    /// (suid and dev: root only), noexec, exec, and those above (attr_timeout=MS, key=FILE, ...). They count
    /// before the others.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub mount_options: Vec<String>,
}

/// `shoal mount`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal mount shoal://127.0.0.1:7441/demo ./mnt --key ./shoal-data/key
          shoal mount shoal://10.0.0.1:7441/demo /mnt/demo -o ro,noexec,key=/etc/shoal/key
          shoal mount --over /scratch/me --transform container ./checkpoints
          shoal mount --over /scratch/run17 --transform composed ./run17
          shoal mount --over s3://bucket/runs/me --transform container ./checkpoints
Stays in the foreground; Ctrl-C, SIGTERM or `shoal umount` end it. --background returns when it is mounted, and names the log:
in /var/log/shoal for root, else in ~/.local/state/shoal (or $XDG_STATE_HOME/shoal), two files of 8 MiB at most (or
SHOAL_LOG_BYTES each).

For `mount` and /etc/fstab:  ln -s \"$(command -v shoal)\" /sbin/mount.fuse.shoal
  shoal://10.0.0.1:7441/demo  /mnt/demo  fuse.shoal  key=/etc/shoal/key,_netdev,nofail  0 0")]
pub struct Mount {
    /// Address of the file system (not with --over), and the directory to mount it at.
    #[arg(value_names = ["ADDRESS", "MOUNTPOINT"], num_args = 1..=2, required = true, value_hint = ValueHint::DirPath)]
    pub places: Vec<String>,
    /// Mount a directory of any mounted file system, in the place of a ShoalFS; or a bucket of an object
    /// store as containers (s3://BUCKET/PREFIX, with --transform container). Its address and credentials are
    /// in AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub over: Option<PathBuf>,
    /// The layout of its files. `container`: each writer of a file appends to a log of its own;
    /// `container,backends=DIR2:DIR3` spreads the files over further directories (DIR keeps the list, so it
    /// is given once, and again with a further one); `container,index=original` makes and uses no merged
    /// index of many writers (`flatten`, the default, does). `composed`: the files of all processes lie in
    /// blocks of one file; with settings as `composed,block=SIZE,files=N`, `buffer=block` (a kill of the
    /// mount may take what was closed in the last 5 seconds), `names=own` (no other mount makes names at the
    /// same time).
    #[arg(long, value_name = "LAYOUT", value_parser = Transform::parse)]
    pub transform: Option<Transform>,
    /// Show directories with the layout `container` or `composed` as they lie on the servers, for the tools
    /// (`shoal container`, `shoal composed`). Files that other programs write there are damage.
    #[arg(long, conflicts_with = "transform")]
    pub raw: bool,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// How.
    #[command(flatten)]
    pub options: MountOptions,
    /// Return when it is mounted, and continue in the background.
    #[arg(long)]
    pub background: bool,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

impl Mount {
    /// Where.
    pub fn mountpoint(&self) -> &Path {
        self.places.last().map_or(Path::new("."), Path::new)
    }
}

/// A layout over another file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transform {
    /// Many writers of one file, a log each.
    Container(ContainerSettings),
    /// Many files in blocks of one.
    Composed(shoal_transform::Wishes),
}

impl Transform {
    fn parse(text: &str) -> Result<Transform, String> {
        let (layout, words) = text.split_once(',').unwrap_or((text, ""));
        match layout {
            "container" => match ContainerSettings::parse(words)? {
                ContainerSettings { index: Some(IndexDesign::Parallel), .. } => Err(
                    "`index=parallel` is for the processes of a group under `shoal run`: a mount reads for all of \
                     its programs, so each index log is read once already; leave it out"
                        .into(),
                ),
                settings => Ok(Transform::Container(settings)),
            },
            "composed" => shoal_transform::Wishes::parse(words).map(Transform::Composed),
            _ => Err("the layouts are `container` and `composed`".into()),
        }
    }
}

/// `shoal umount`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal umount ./mnt")]
pub struct Umount {
    /// The mount point.
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Detach it now; programs that still use it continue until they close their files.
    #[arg(long)]
    pub lazy: bool,
}

/// `shoal add-server`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal add-server --config ./cluster --listen tcp:10.0.0.3:7441 --folder /srv/shoal
          shoal serve --config ./cluster --server 2        (on the new machine, with the new cluster.toml and the key)
New directories and files use it; nothing is moved.")]
pub struct AddServer {
    /// The cluster file, or its folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Where the new server listens.
    #[arg(long, required = true)]
    pub listen: Vec<String>,
    /// Folder of its data.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// A folder on a further disk for the bytes of larger files; repeat it for more disks.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub streams: Vec<PathBuf>,
    /// Its roles [default: both].
    #[arg(long, value_enum)]
    pub role: Vec<Role>,
    /// It writes which clients did what, as JSON lines, to this file; a relative path begins in its folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub audit: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal move-server`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal move-server ./cluster 2 tcp:10.0.0.9:7441
          shoal move-server ./cluster 2 tcp:node9:7441       (by name: clients resolve it for each connection)
The new address is written to the maps of all servers that answer, durably, and then to the cluster file. Mounted clients and
the other servers take it over by themselves; a server that does not answer takes it over when it is back.
The order does not matter, but two servers with one identity must never run:
  1. run this command, while the server runs at its old address or while it is stopped
  2. stop the server there; bring its disk, the new cluster file and its store-ID.toml here, with the same folder names
  3. start it here:  shoal serve --config FILE --server ID
Of a file system with one server do step 1 while it runs: its clients hear of the new address within 30 seconds, from it alone.
A command that was interrupted is run again. It moves no data.")]
pub struct MoveServer {
    /// The cluster file or its folder; or an address (shoal://HOST:PORT/NAME) or a path on a mount: then no
    /// cluster file is written.
    #[arg(value_name = "FILE-OR-ADDRESS")]
    pub place: String,
    /// Which server.
    pub id: u16,
    /// Where it is reached from now on: tcp:IP:PORT or tcp:HOST:PORT. These take the place of all addresses
    /// of its machine.
    #[arg(required = true, value_name = "NEW-ADDRESS")]
    pub addresses: Vec<String>,
    /// Which key, if no cluster file names it.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
