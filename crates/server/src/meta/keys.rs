//! Keys of the collection's rows. They form one ordered space; the first byte of a key is the table.
//!
//! ```text
//! a handle                       inode: attributes of an object            rows::Inode
//! d dir hash(8) name             entry of a directory                      rows::Dirent
//! x handle name                  extended attribute                        the value
//! f datafile                     owner of a datafile                       rows::Datafile
//! h client                       has locks of files                        a byte, 1
//! s session                      session                                   rows::Session
//! k session slot group           reply kept for a retry                    rows::Kept
//! o handle client                orphan: removed, but held open            rows::Orphan
//! z time handle                  removed, kept for clients that use it     rows::Lingering
//! r server datafile              to be reaped on that server               rows::Reap
//! n handle                       made, and not yet known to be named       rows::New
//! u object ticket                name removed, the link still counted      rows::Unnamed
//! v handle                       never to be entered into a directory      rows::Void
//! l handle                       has, or had, more names than one          rows::Linked
//! t tx                           transaction prepared or committed here    rows::Tx
//! e tx                           transaction carried out here              rows::Ended
//! p server                       datafiles made ahead on that server       rows::Pool
//! g server                       the batch made last for that server       rows::Grant
//! b first handle of 1,024        datafiles made ahead here                 rows::Batch
//! c word                         facts of this server: format, map, handles, …
//! ```
//! Numbers are big-endian, so that the order of keys is the order of numbers. The store's own rows begin with
//! other bytes (`docs/reference/DISK.md`).

use bytes::{BufMut, Bytes, BytesMut};
use shoal_proto::{ClientId, Handle, Name, ServerId, SessionId, Slot, Time, TxId};

/// A table of the key space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the module's picture says it")]
pub enum Table {
    Inode = b'a',
    Entry = b'd',
    Xattr = b'x',
    Datafile = b'f',
    Locker = b'h',
    Session = b's',
    Kept = b'k',
    Orphan = b'o',
    Lingering = b'z',
    Reap = b'r',
    New = b'n',
    Unnamed = b'u',
    Void = b'v',
    Linked = b'l',
    Tx = b't',
    Ended = b'e',
    Pool = b'p',
    Grant = b'g',
    Batch = b'b',
    Config = b'c',
}

fn key(table: Table, parts: &[&[u8]]) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    key.put_u8(table as u8);
    for part in parts {
        key.put_slice(part);
    }
    key.freeze()
}

/// All rows of a table.
pub fn table(table: Table) -> Bytes {
    key(table, &[])
}

/// An object's inode.
pub fn inode(handle: Handle) -> Bytes {
    key(Table::Inode, &[&handle.key_bytes()])
}

/// The same key, to look it up by: very many are.
pub fn inode_read(handle: Handle) -> [u8; 9] {
    let mut key = [Table::Inode as u8; 9];
    key[1..].copy_from_slice(&handle.key_bytes());
    key
}

/// All entries of a directory.
pub fn entries(dir: Handle) -> Bytes {
    key(Table::Entry, &[&dir.key_bytes()])
}

/// An entry, by the hash of its name ([`crate::shard::Identity::place_of`]).
pub fn entry(dir: Handle, hash: u64, name: &[u8]) -> Bytes {
    key(Table::Entry, &[&dir.key_bytes(), &hash.to_be_bytes(), name])
}

/// The last possible key of a hash's entries: listing continues after it.
pub fn entries_behind(dir: Handle, hash: u64) -> Bytes {
    key(Table::Entry, &[&dir.key_bytes(), &hash.to_be_bytes(), &[0xff; 256]])
}

/// Hash and name of an entry's key.
pub fn parse_entry(key: &[u8]) -> Option<(Handle, u64, &[u8])> {
    let rest = key.strip_prefix(&[Table::Entry as u8])?;
    let (dir, rest) = rest.split_first_chunk::<8>()?;
    let (hash, name) = rest.split_first_chunk::<8>()?;
    Some((Handle(u64::from_be_bytes(*dir)), u64::from_be_bytes(*hash), name))
}

/// An object's extended attributes.
pub fn xattrs(handle: Handle) -> Bytes {
    key(Table::Xattr, &[&handle.key_bytes()])
}

/// One extended attribute.
pub fn xattr(handle: Handle, name: &[u8]) -> Bytes {
    key(Table::Xattr, &[&handle.key_bytes(), name])
}

/// A datafile's owner.
pub fn datafile(handle: Handle) -> Bytes {
    key(Table::Datafile, &[&handle.key_bytes()])
}

/// A session.
pub fn session(session: SessionId) -> Bytes {
    key(Table::Session, &[&session.0.to_be_bytes()])
}

/// A client that has locks of files.
pub fn locker(client: ClientId) -> Bytes {
    key(Table::Locker, &[&client.0])
}

/// The client of such a key.
pub fn parse_locker(key: &[u8]) -> Option<ClientId> {
    Some(ClientId(key.strip_prefix(&[Table::Locker as u8])?.try_into().ok()?))
}

/// All replies kept of a session.
pub fn kept_of(session: SessionId) -> Bytes {
    key(Table::Kept, &[&session.0.to_be_bytes()])
}

/// The reply kept for a group of a slot's compound.
pub fn kept(session: SessionId, slot: Slot, group: u8) -> Bytes {
    key(Table::Kept, &[&session.0.to_be_bytes(), &slot.0.to_be_bytes(), &[group]])
}

/// Slot and group of a kept reply's key.
pub fn parse_kept(key: &[u8]) -> Option<(Slot, u8)> {
    let rest = key.strip_prefix(&[Table::Kept as u8])?.get(8..)?;
    match rest {
        [high, low, group] => Some((Slot(u16::from_be_bytes([*high, *low])), *group)),
        _ => None,
    }
}

/// Server and datafile of a row to be reaped.
pub fn parse_reap(key: &[u8]) -> Option<(ServerId, Handle)> {
    let rest = key.strip_prefix(&[Table::Reap as u8])?;
    let (server, rest) = rest.split_first_chunk::<2>()?;
    let datafile: [u8; 8] = rest.try_into().ok()?;
    Some((ServerId(u16::from_be_bytes(*server)), Handle(u64::from_be_bytes(datafile))))
}

/// The handle of a key that is a table's letter and a handle.
pub fn parse_handle(key: &[u8]) -> Option<Handle> {
    let bytes: [u8; 8] = key.get(1..)?.try_into().ok()?;
    Some(Handle(u64::from_be_bytes(bytes)))
}

/// The session of its row's key.
pub fn parse_session(key: &[u8]) -> Option<SessionId> {
    parse_handle(key).map(|h| SessionId(h.0))
}

/// An orphan, as it is kept for a client ([`ClientId::ANYONE`]: for any that may have it open).
pub fn orphan(handle: Handle, client: ClientId) -> Bytes {
    key(Table::Orphan, &[&handle.key_bytes(), &client.0])
}

/// All rows of an orphan.
pub fn orphan_of(handle: Handle) -> Bytes {
    key(Table::Orphan, &[&handle.key_bytes()])
}

/// Object and client of an orphan's key.
pub fn parse_orphan(key: &[u8]) -> Option<(Handle, ClientId)> {
    let rest = key.strip_prefix(&[Table::Orphan as u8])?;
    let (object, rest) = rest.split_first_chunk::<8>()?;
    Some((Handle(u64::from_be_bytes(*object)), ClientId(rest.try_into().ok()?)))
}

/// A removed object that is kept for a while, in the order of removals.
pub fn lingering(since: Time, object: Handle) -> Bytes {
    key(Table::Lingering, &[&since.0.cast_unsigned().to_be_bytes(), &object.key_bytes()])
}

/// Time and object of such a key.
pub fn parse_lingering(key: &[u8]) -> Option<(Time, Handle)> {
    let rest = key.strip_prefix(&[Table::Lingering as u8])?;
    let (since, rest) = rest.split_first_chunk::<8>()?;
    let object: [u8; 8] = rest.try_into().ok()?;
    Some((Time(u64::from_be_bytes(*since).cast_signed()), Handle(u64::from_be_bytes(object))))
}

/// A datafile to be reaped on another server.
pub fn reap(server: ServerId, datafile: Handle) -> Bytes {
    key(Table::Reap, &[&server.0.to_be_bytes(), &datafile.key_bytes()])
}

/// The pool of datafiles of another server.
pub fn pool(peer: ServerId) -> Bytes {
    key(Table::Pool, &[&peer.0.to_be_bytes()])
}

/// The batch made last for another server.
pub fn grant(peer: ServerId) -> Bytes {
    key(Table::Grant, &[&peer.0.to_be_bytes()])
}

/// The batch that a handle would be of, by its first handle.
pub fn batch(first: Handle) -> Bytes {
    key(Table::Batch, &[&first.key_bytes()])
}

/// The server of a key that is a table's letter and a server.
pub fn parse_server(key: &[u8]) -> Option<ServerId> {
    let bytes: [u8; 2] = key.get(1..)?.try_into().ok()?;
    Some(ServerId(u16::from_be_bytes(bytes)))
}

/// A metafile not yet known to be entered, or a datafile not yet known to be listed.
pub fn new(handle: Handle) -> Bytes {
    key(Table::New, &[&handle.key_bytes()])
}

/// All names taken of an object, as far as its links still count them.
pub fn unnamed_of(object: Handle) -> Bytes {
    key(Table::Unnamed, &[&object.key_bytes()])
}

/// One of them.
pub fn unnamed(object: Handle, ticket: Handle) -> Bytes {
    key(Table::Unnamed, &[&object.key_bytes(), &ticket.key_bytes()])
}

/// Object and ticket of such a key.
pub fn parse_unnamed(key: &[u8]) -> Option<(Handle, Handle)> {
    let rest = key.strip_prefix(&[Table::Unnamed as u8])?;
    let (object, rest) = rest.split_first_chunk::<8>()?;
    let ticket: [u8; 8] = rest.try_into().ok()?;
    Some((Handle(u64::from_be_bytes(*object)), Handle(u64::from_be_bytes(ticket))))
}

/// An object that may never be entered.
pub fn void(handle: Handle) -> Bytes {
    key(Table::Void, &[&handle.key_bytes()])
}

/// An object that has, or had, several names.
pub fn linked(handle: Handle) -> Bytes {
    key(Table::Linked, &[&handle.key_bytes()])
}

/// A transaction.
pub fn tx(tx: TxId) -> Bytes {
    key(Table::Tx, &[&tx.0.to_be_bytes()])
}

/// A transaction that was carried out.
pub fn ended(tx: TxId) -> Bytes {
    key(Table::Ended, &[&tx.0.to_be_bytes()])
}

/// A fact of this server.
pub fn config(word: &str) -> Bytes {
    key(Table::Config, &[word.as_bytes()])
}

/// The lock that covers one entry's name, whatever its hash: the same key as the entry's.
pub fn entry_lock(dir: Handle, hash: u64, name: &Name) -> Bytes {
    entry(dir, hash, name.as_bytes())
}

/// The collection's one rename lock (server 0).
pub fn rename_lock() -> Bytes {
    config("rename lock")
}
