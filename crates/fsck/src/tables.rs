//! The rows of all servers, decoded to the facts that the check needs.

use shoal_proto::{Action, Attr, ClientId, Handle, Kind, Name, ServerId, Time, TxId};
use shoal_server::inode::attr_of;
use shoal_server::keys::{self, Table};
use shoal_server::rows::{
    self, Batch, Datafile, Dirent, Grant, Inode, Orphan, Pool, Reap, RowValue as _, TxState,
};
use std::collections::{BTreeMap, BTreeSet};

/// First byte of the keys of streams' rows (`docs/reference/DISK.md`).
pub const STREAM_TABLE: u8 = b'S';

/// The relevant fields of an inode.
#[derive(Clone, Debug, PartialEq)]
pub struct InodeFields {
    /// Its kind.
    pub kind: Kind,
    /// Links it says it has.
    pub nlink: u32,
    /// A directory's parent.
    pub parent: Handle,
    /// Datafiles, once unstuffed.
    pub datafiles: Option<Vec<Handle>>,
    /// Of a directory, the part on its own server.
    pub shard: Option<Shard>,
}

/// The relevant fields of a directory's row, or of the row of one of its shards.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    /// The attributes, with the shards.
    pub attr: Attr,
    /// Entries it says it has.
    pub entries: u32,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedEntry {
    /// Its directory.
    pub dir: Handle,
    /// Its name.
    pub name: Name,
    /// The object that it leads to.
    pub handle: Handle,
    /// Which kind it says that is.
    pub kind: Kind,
    /// The place of its name.
    pub place: u64,
    /// The server that has it.
    pub at: ServerId,
}

/// A row of a datafile to be reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToReap {
    /// The server that remembers it.
    pub by: ServerId,
    /// The datafile.
    pub datafile: Handle,
    /// Its owner.
    pub owner: Handle,
}

/// A row whose contents are impossible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wrong {
    /// Where.
    pub server: ServerId,
    /// Its key.
    pub key: Vec<u8>,
    /// Why.
    pub why: String,
}

/// The relevant fields of a stream's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its generation.
    pub generation: u64,
    /// Its bytes.
    pub size: u64,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Inodes.
    pub objects: BTreeMap<Handle, InodeFields>,
    /// Shards of directories on other servers than the directory's own.
    pub shards: BTreeMap<(Handle, ServerId), Shard>,
    /// Entries.
    pub entries: Vec<NamedEntry>,
    /// Datafiles, with their owners.
    pub datafiles: BTreeMap<Handle, Handle>,
    /// Streams.
    pub streams: BTreeMap<Handle, Stream>,
    /// Streams whose bytes were in a file that is not there.
    pub lost_files: BTreeSet<Handle>,
    /// Objects that have extended attributes.
    pub xattrs: BTreeSet<Handle>,
    /// Orphans, with the clients that they are kept for.
    pub orphans: BTreeMap<Handle, BTreeSet<ClientId>>,
    /// Removed files that are kept for a while, since when.
    pub lingering: BTreeMap<Handle, Time>,
    /// Objects that clients are making, step by step.
    pub new: BTreeSet<Handle>,
    /// Names that were taken from objects, whose links count them still.
    pub unnamed: BTreeMap<Handle, u32>,
    /// Datafiles to be reaped.
    pub reaps: BTreeSet<ToReap>,
    /// The generation with which a file's layout began.
    pub laid_out: BTreeMap<Handle, u64>,
    /// Pools: their owner, and the server whose datafiles they hold.
    pub pools: BTreeMap<(ServerId, ServerId), Pool>,
    /// The batches made last: the server, and the server that they are for.
    pub grants: BTreeMap<(ServerId, ServerId), Grant>,
    /// Batches, by their first handle.
    pub batches: BTreeMap<Handle, Batch>,
    /// Transactions prepared and not decided, as their participants know them.
    pub prepared: BTreeMap<(ServerId, TxId), Undecided>,
    /// Transactions that were carried out, as participants remember them.
    pub ended: BTreeSet<(ServerId, TxId)>,
    /// Rows that are damaged or on the wrong server.
    pub wrong: BTreeSet<Wrong>,
}

/// The tables that are read, in this order: entries first, so that a create in the meantime appears as an
/// object without an entry (it is looked at again) rather than as an entry without its object.
pub const READ: [u8; 15] = [
    Table::Entry as u8,
    Table::Inode as u8,
    Table::Datafile as u8,
    STREAM_TABLE,
    Table::Xattr as u8,
    Table::Orphan as u8,
    Table::Lingering as u8,
    Table::New as u8,
    Table::Unnamed as u8,
    Table::Reap as u8,
    Table::Tx as u8,
    Table::Ended as u8,
    Table::Pool as u8,
    Table::Grant as u8,
    Table::Batch as u8,
];

/// A transaction as one participant has it prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    /// The servers with a part in it, but for its coordinator; none: there were more actions to come.
    pub participants: Vec<ServerId>,
    /// The objects that it would change here.
    pub objects: BTreeSet<Handle>,
}

/// The object that an action of a transaction changes.
fn rows_object(action: &Action) -> Option<Handle> {
    match action {
        Action::EntryPut { dir, .. }
        | Action::EntryRemove { dir, .. }
        | Action::DirectoryRemove { dir, .. }
        | Action::Reparent { dir, .. }
        | Action::ShardKeep { dir, .. }
        | Action::ShardSet { dir, .. }
        | Action::ShardCount { dir, .. } => Some(*dir),
        Action::ObjectCreate { attr }
        | Action::AttrSet { attr, .. }
        | Action::ShardCreate { attr, .. }
        | Action::ForkedCreate { attr, .. }
        | Action::StreamAdopt { attr } => Some(attr.handle),
        Action::ForkedRemove { file, .. } => Some(*file),
        Action::Links { object, .. }
        | Action::Touch { object, .. }
        | Action::LayoutSet { object, .. }
        | Action::ObjectRemove { object }
        | Action::LinksSet { object, .. } => Some(*object),
        Action::StreamAdvance { stream, .. } | Action::StreamCreate { stream, .. } => Some(*stream),
        Action::DatafileCreate { owner, .. }
        | Action::DatafileRemove { owner, .. }
        | Action::DatafileAdopt { owner, .. } => Some(*owner),
        Action::RowRemove { .. } | Action::Retire { .. } | Action::RenameLock {} => None,
    }
}

impl Tables {
    /// Whether a row that says something of a transaction cannot be read.
    pub fn has_damaged_transactions(&self) -> bool {
        let is_one = |table: &u8| [Table::Tx as u8, Table::Ended as u8].contains(table);
        self.wrong.iter().any(|wrong| wrong.key.first().is_some_and(is_one))
    }

    /// Take a row of a server.
    pub fn take(&mut self, server: ServerId, key: &[u8], value: &[u8]) {
        if let Err(why) = self.decode(server, key, value) {
            self.wrong.insert(Wrong { server, key: key.to_vec(), why });
        }
    }

    fn decode(&mut self, server: ServerId, key: &[u8], value: &[u8]) -> Result<(), String> {
        let table = *key.first().ok_or("an empty key")?;
        let own = |handle: Handle| match handle.server() == server {
            true => Ok(handle),
            false => Err(format!("it belongs to server {}", handle.server())),
        };
        let handle = || keys::parse_handle(key).ok_or("a key of another length".to_owned());
        if table == Table::Entry as u8 {
            let (dir, place, name) = keys::parse_entry(key).ok_or("not an entry's key")?;
            let name = Name::new(name).map_err(|_| "not a name")?;
            let row = Dirent::from_row(value).map_err(|e| e.to_string())?;
            self.entries.push(NamedEntry {
                dir,
                name,
                handle: row.handle,
                kind: row.kind,
                place,
                at: server,
            });
        } else if table == Table::Inode as u8 {
            let handle = handle()?;
            let row = Inode::from_row(value).map_err(|e| e.to_string())?;
            let is_directory = row.kind == Kind::Directory;
            let shard =
                is_directory.then(|| Shard { attr: attr_of(handle, &row, None), entries: row.entries });
            if let Some(shard) = shard.clone().filter(|_| handle.server() != server && row.shards.is_split())
            {
                self.shards.insert((handle, server), shard);
                return Ok(());
            }
            let handle = own(handle)?;
            if let Some(layout) = &row.layout {
                self.laid_out.insert(handle, layout.generation.0);
            }
            let datafiles = row.layout.map(|layout| layout.datafiles.0);
            let object =
                InodeFields { kind: row.kind, nlink: row.nlink, parent: row.parent, datafiles, shard };
            self.objects.insert(handle, object);
        } else if table == Table::Datafile as u8 {
            let row = Datafile::from_row(value).map_err(|e| e.to_string())?;
            self.datafiles.insert(own(handle()?)?, row.owner);
        } else if table == STREAM_TABLE {
            let word = |at| value.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
            let stream = word(1).zip(word(9)).map(|(generation, size)| Stream { generation, size });
            self.streams.insert(own(handle()?)?, stream.ok_or("a stream's row cut short")?);
        } else if table == Table::Xattr as u8 {
            let handle = key.get(1..9).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
            self.xattrs.insert(own(Handle(handle.ok_or("an attribute's key cut short")?))?);
        } else if table == Table::Orphan as u8 {
            let (object, client) = keys::parse_orphan(key).ok_or("not an orphan's key")?;
            Orphan::from_row(value).map_err(|e| e.to_string())?;
            self.orphans.entry(own(object)?).or_default().insert(client);
        } else if table == Table::Lingering as u8 {
            let (since, object) = keys::parse_lingering(key).ok_or("not the key of a removed file")?;
            rows::Lingering::from_row(value).map_err(|e| e.to_string())?;
            self.lingering.insert(own(object)?, since);
        } else if table == Table::New as u8 {
            self.new.insert(own(handle()?)?);
        } else if table == Table::Unnamed as u8 {
            let (object, _) = keys::parse_unnamed(key).ok_or("not the key of a name taken away")?;
            *self.unnamed.entry(object).or_default() += 1;
        } else if table == Table::Reap as u8 {
            let (_, datafile) = keys::parse_reap(key).ok_or("not a reap row's key")?;
            let owner = Reap::from_row(value).map_err(|e| e.to_string())?.owner;
            self.reaps.insert(ToReap { by: server, datafile, owner });
        } else if table == Table::Tx as u8 {
            let tx = rows::tx_of_key(key).ok_or("not a transaction's key")?;
            let row = rows::Tx::from_row(value).map_err(|e| e.to_string())?;
            if let TxState::Prepared { actions, participants } = row.state {
                let objects = actions.iter().filter_map(rows_object).collect();
                self.prepared.insert((server, tx), Undecided { participants, objects });
            }
        } else if table == Table::Ended as u8 {
            let tx = rows::tx_of_key(key).ok_or("not an ended transaction's key")?;
            rows::Ended::from_row(value).map_err(|e| e.to_string())?;
            self.ended.insert((server, tx));
        } else if table == Table::Pool as u8 {
            let peer = keys::parse_server(key).ok_or("not a pool's key")?;
            self.pools.insert((server, peer), Pool::from_row(value).map_err(|e| e.to_string())?);
        } else if table == Table::Grant as u8 {
            let peer = keys::parse_server(key).ok_or("not the key of a last batch")?;
            self.grants.insert((server, peer), Grant::from_row(value).map_err(|e| e.to_string())?);
        } else if table == Table::Batch as u8 {
            self.batches.insert(own(handle()?)?, Batch::from_row(value).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// Add another server's.
    pub fn join(&mut self, other: Tables) {
        // Taken apart, so that a table that is not joined does not compile.
        let Tables {
            mut objects,
            mut shards,
            mut entries,
            mut datafiles,
            mut streams,
            mut lost_files,
            mut xattrs,
            mut orphans,
            mut lingering,
            mut new,
            unnamed,
            mut reaps,
            mut laid_out,
            mut pools,
            mut grants,
            mut batches,
            mut prepared,
            mut ended,
            mut wrong,
        } = other;
        self.new.append(&mut new);
        for (object, names) in unnamed {
            *self.unnamed.entry(object).or_default() += names;
        }
        self.objects.append(&mut objects);
        self.shards.append(&mut shards);
        self.entries.append(&mut entries);
        self.datafiles.append(&mut datafiles);
        self.streams.append(&mut streams);
        self.lost_files.append(&mut lost_files);
        self.xattrs.append(&mut xattrs);
        self.orphans.append(&mut orphans);
        self.lingering.append(&mut lingering);
        self.reaps.append(&mut reaps);
        self.laid_out.append(&mut laid_out);
        self.pools.append(&mut pools);
        self.grants.append(&mut grants);
        self.batches.append(&mut batches);
        self.prepared.append(&mut prepared);
        self.ended.append(&mut ended);
        self.wrong.append(&mut wrong);
    }
}
