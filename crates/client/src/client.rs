//! The face of the client.

use crate::{ClientCounters, DirStream, Error, OpenFile, Options, RenameFlags, Statfs};
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::op::{Row, XattrName};
use shoal_proto::{
    Action, Answer, Attr, ClientId, ClusterMap, Handle, Kind, Name, Op, Owner, Rights, Roles, ServerId,
    SetAttr, Status, Template,
};
use std::rc::Rc;
use std::time::Duration;

/// A client of one file system. Cheap to clone; bound to its thread.
#[derive(Clone)]
pub struct Client {
    map: Rc<ClusterMap>,
    id: ClientId,
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        impl Client { $(
            $(#[$doc])*
            pub async fn $name(&self $(, $arg: $ty)*) -> Result<$out, Error> {
                $(let _ = $arg;)*
                Err(Error::new(Status::NotSupported, stringify!($name)))
            }
        )* }
    };
}

impl Client {
    /// Connect to a file system: fetch its map.
    pub async fn connect(env: Env, options: Options) -> Result<Client, Error> {
        let _ = (env, options);
        Err(Error::new(Status::NotSupported, "connect"))
    }
    /// The servers, as last heard.
    pub fn map(&self) -> Rc<ClusterMap> {
        self.map.clone()
    }
    /// This client's id.
    pub fn id(&self) -> ClientId {
        self.id
    }
    /// What was counted.
    pub fn counters(&self) -> ClientCounters {
        ClientCounters::default()
    }
    /// End the sessions; orphans still held are released.
    pub async fn close(&self) {}
    /// List a directory.
    pub fn opendir(&self, dir: Handle) -> DirStream {
        DirStream { dir }
    }
}

verbs! {
    /// What a name leads to.
    lookup(dir: Handle, name: &Name) -> Attr;
    /// Attributes, merged.
    getattr(object: Handle) -> Attr;
    /// Change attributes.
    setattr(object: Handle, set: SetAttr) -> Attr;
    /// Set the size.
    truncate(object: Handle, size: u64, kill_privileges: bool) -> Attr;
    /// Make (or find) a regular file and open it.
    create(dir: Handle, name: &Name, owner: Owner, exclusive: bool, rights: Rights, template: Option<Template>) -> (Attr, bool, OpenFile);
    /// Make a FIFO, socket, device, or regular file without opening it.
    mknod(dir: Handle, name: &Name, owner: Owner, kind: Kind, rdev: u64) -> Attr;
    /// Make a symbolic link.
    symlink(dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Attr;
    /// Make a directory.
    mkdir(dir: Handle, name: &Name, owner: Owner) -> Attr;
    /// Remove an entry that is no directory.
    unlink(dir: Handle, name: &Name) -> ();
    /// Remove an empty directory.
    rmdir(dir: Handle, name: &Name) -> ();
    /// Move an entry.
    rename(from_dir: Handle, from_name: &Name, to_dir: Handle, to_name: &Name, flags: RenameFlags) -> ();
    /// A further name of a file.
    link(object: Handle, dir: Handle, name: &Name) -> Attr;
    /// Target of a symbolic link.
    readlink(object: Handle) -> Bytes;
    /// Value of an extended attribute.
    getxattr(object: Handle, name: &[u8]) -> Bytes;
    /// Set an extended attribute.
    setxattr(object: Handle, name: &[u8], value: &[u8], create: bool, replace: bool) -> ();
    /// Names of the extended attributes.
    listxattr(object: Handle) -> Vec<XattrName>;
    /// Remove an extended attribute.
    removexattr(object: Handle, name: &[u8]) -> ();
    /// Space, summed over the servers.
    statfs() -> Statfs;
    /// Open a file; revalidates it.
    open(object: Handle, rights: Rights) -> OpenFile;
    /// Set the template of a directory's new files, or of an empty file.
    setlayout(object: Handle, template: Template) -> ();
    /// A whole small new file in one message.
    create_write(dir: Handle, name: &Name, owner: Owner, data: Bytes, template: Option<Template>) -> Attr;
    /// Look up and read a whole file of at most `max` bytes; `None`: it is larger.
    read_small(dir: Handle, name: &Name, max: usize) -> (Attr, Option<Bytes>);

    /// What a path leads to, from the root.
    walk(path: &[u8], follow_last: bool) -> Attr;
    /// The directory and the last name of a path.
    walk_parent(path: &[u8]) -> (Handle, Name);
    /// [`Client::create`] by path.
    create_at(path: &[u8], owner: Owner, exclusive: bool, rights: Rights, template: Option<Template>) -> (Attr, bool, OpenFile);
    /// [`Client::open`] by path.
    open_at(path: &[u8], rights: Rights) -> OpenFile;
    /// [`Client::mkdir`] by path.
    mkdir_at(path: &[u8], owner: Owner) -> Attr;
    /// [`Client::symlink`] by path.
    symlink_at(path: &[u8], owner: Owner, target: &[u8]) -> Attr;
    /// [`Client::unlink`] by path.
    unlink_at(path: &[u8]) -> ();
    /// [`Client::rmdir`] by path.
    rmdir_at(path: &[u8]) -> ();
    /// [`Client::rename`] by path.
    rename_at(from: &[u8], to: &[u8], flags: RenameFlags) -> ();
    /// [`Client::link`] by path.
    link_at(from: &[u8], to: &[u8]) -> Attr;

    /// The way to a server and back.
    ping(server: ServerId) -> Duration;
    /// State and counts of a server, as JSON.
    status(server: ServerId) -> String;
    /// Rows of a server's store behind a key; whether these are the last.
    rows(server: ServerId, prefix: &[u8], after: &[u8], limit: u32) -> (Vec<Row>, bool);
    /// Carry out repairs on a server, as one local transaction.
    repair(server: ServerId, actions: Vec<Action>) -> ();
    /// Add a server to the running file system; the new map.
    add_server(addresses: Vec<String>, roles: Roles) -> Rc<ClusterMap>;
    /// Change the sync modes of all servers.
    set_sync(metadata: &str, data: &str) -> ();
    /// Make everything applied so far durable on all servers.
    sync_all() -> ();
    /// Any operation, as it is, to a server; the answer and the bulk beside it.
    request(server: ServerId, op: Op, bulk: Bytes) -> (Answer, Bytes);
}
