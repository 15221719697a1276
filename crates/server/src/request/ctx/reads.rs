//! Reads of this server's rows and streams by a run. They show the changes that the run's group has made so
//! far, except in scans. The read of a row stops at another transaction's exclusive lock.

use super::{Ctx, Stopped};
use crate::meta::keys;
use crate::meta::rows::{Datafile, Dirent, Inode, RowValue};
use crate::request::locks::Mode;
use bytes::Bytes;
use shoal_proto::{
    Answer, Attr, ChangeCount, ClientId, Dist, Generation, Handle, Kind, Move, Name, Status, StreamFacts,
};
use shoal_store::{Follow, Scan, StreamInfo};

/// Inodes that a run remembers: those read last.
const INODES_KEPT: usize = 8;

impl Ctx<'_> {
    /// The handle meant: the current object for [`Handle::CURRENT`].
    pub fn object(&self, handle: Handle) -> Result<Handle, Stopped> {
        match handle {
            Handle::CURRENT => self.current.map(|(object, _)| object).ok_or(Stopped::Status(Status::Invalid)),
            handle => Ok(handle),
        }
    }

    /// A row, with this group's changes; stops at another transaction's exclusive lock.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Stopped> {
        self.must_be_readable(key)?;
        match self.made.rows.get(key) {
            Some(row) => Ok(row.clone()),
            None => Ok(self.view.get(key)?),
        }
    }

    /// A decoded row; one that cannot be decoded is damage: `Io`.
    pub fn row<T: RowValue>(&self, key: &[u8]) -> Result<Option<T>, Stopped> {
        self.must_be_readable(key)?;
        let decoded = match self.made.rows.get(key) {
            Some(row) => row.as_ref().map(|row| T::from_row(row)),
            None => self.view.row(key, T::from_row)?,
        };
        decoded.transpose().map_err(|error| {
            tracing::error!(?key, %error, "a row cannot be decoded");
            Stopped::Status(Status::Io)
        })
    }

    fn must_be_readable(&self, key: &[u8]) -> Result<(), Stopped> {
        match !self.around.locks.is_empty() && self.around.locks.stops(key, Mode::Shared, self.own) {
            true => Err(Stopped::Locked(Bytes::copy_from_slice(key))),
            false => Ok(()),
        }
    }

    /// Stops at another transaction's lock on a stream. Its part on other servers may be done, so that the
    /// file's streams do not fit each other until it is done here.
    pub fn stream_must_be_readable(&self, stream: Handle) -> Result<(), Stopped> {
        if self.around.locks.is_empty() {
            return Ok(());
        }
        self.must_be_readable(&keys::inode(stream))?;
        self.must_be_readable(&keys::datafile(stream))
    }

    /// Whether a lock, even a shared one, stops the removal of this key's object.
    pub fn must_be_unlocked(&self, key: &[u8]) -> Result<(), Stopped> {
        if self.around.locks.stops(key, Mode::Exclusive, self.own) {
            return Err(Stopped::Locked(Bytes::copy_from_slice(key)));
        }
        Ok(())
    }

    /// An object of this server that must exist: `WrongServer` if it is another's, `Stale` if it is gone.
    pub fn inode(&self, handle: Handle) -> Result<Inode, Stopped> {
        let known = self.inodes.borrow().iter().find(|(of, _)| *of == handle).map(|(_, inode)| inode.clone());
        if let Some(inode) = known {
            self.must_be_readable(&keys::inode_read(handle))?;
            return Ok(inode);
        }
        let inode = self.inode_once(handle)?;
        let mut inodes = self.inodes.borrow_mut();
        inodes.truncate(INODES_KEPT - 1);
        inodes.insert(0, (handle, inode.clone()));
        Ok(inode)
    }

    /// As [`Ctx::inode`], of an object that is requested once: it is not kept.
    pub fn inode_once(&self, handle: Handle) -> Result<Inode, Stopped> {
        if handle.server() != self.identity.id {
            return Err(Stopped::Status(Status::WrongServer));
        }
        self.row(&keys::inode_read(handle))?.ok_or(Stopped::Status(Status::Stale))
    }

    /// A directory that must exist: this server's own, or its shard of another's.
    ///
    /// # Errors
    /// `NotSupported`: clients follow its layout, and this one does not know it.
    pub fn directory(&self, handle: Handle) -> Result<Inode, Stopped> {
        if handle.server() != self.identity.id {
            return self.shard(handle)?.ok_or(Stopped::Status(Status::WrongServer));
        }
        let inode = self.inode(handle)?;
        if inode.kind != Kind::Directory {
            return Err(Stopped::Status(Status::NotDirectory));
        }
        self.must_know(inode.template.dist)?;
        Ok(inode)
    }

    /// A client that does not know a layout would make plain objects among those that the layout keeps.
    pub fn must_know(&self, dist: Dist) -> Result<(), Stopped> {
        match self.knows_followed || !dist.is_followed() {
            true => Ok(()),
            false => Err(Stopped::Status(Status::NotSupported)),
        }
    }

    /// The program of an older client takes rows of this format for damaged ones, and would repair them.
    ///
    /// # Errors
    /// `NotSupported`: this client is one.
    pub fn must_know_rows(&self) -> Result<(), Stopped> {
        match self.knows_followed {
            true => Ok(()),
            false => Err(Stopped::Status(Status::NotSupported)),
        }
    }

    /// This server's shard of another server's directory, if it has one.
    pub(super) fn shard(&self, dir: Handle) -> Result<Option<Inode>, Stopped> {
        if self.identity.splits_at().is_none() {
            return Ok(None);
        }
        let shard = self.row::<Inode>(&keys::inode(dir))?.filter(|inode| inode.shards.is_split());
        shard.as_ref().map_or(Ok(()), |inode| self.must_know(inode.template.dist))?;
        Ok(shard)
    }

    /// The directory of an entry, which must be on this server as far as `name` is concerned.
    ///
    /// # Errors
    /// [`Stopped::Split`]: the name's place is another shard's.
    pub fn directory_of(&self, dir: Handle, name: &Name) -> Result<Inode, Stopped> {
        let inode = self.directory(dir)?;
        self.must_hold(dir, &inode, name)?;
        Ok(inode)
    }

    /// As [`Ctx::directory_of`], of a directory that was read already.
    pub fn must_hold(&self, dir: Handle, inode: &Inode, name: &Name) -> Result<(), Stopped> {
        match self.holds(inode, name) {
            true => Ok(()),
            false => Err(Stopped::Split(Box::new((dir, inode.shards.clone())))),
        }
    }

    /// Whether this server holds the place of a name.
    pub fn holds(&self, inode: &Inode, name: &Name) -> bool {
        !inode.shards.is_split()
            || inode.shards.server_of(self.identity.place_of(name.as_bytes())) == Some(self.identity.id)
    }

    /// An entry of a directory of this server.
    pub fn entry(&self, dir: Handle, name: &Name) -> Result<Option<Dirent>, Stopped> {
        self.row(&self.entry_key(dir, name))
    }

    /// The key of an entry.
    pub fn entry_key(&self, dir: Handle, name: &Name) -> Bytes {
        keys::entry(dir, self.identity.place_of(name.as_bytes()), name.as_bytes())
    }

    /// Rows of a range, without this group's changes (listings are groups of their own).
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Scan, Stopped> {
        Ok(self.view.scan(prefix, after, limit)?)
    }

    /// The same; where they must be loaded, the objects that they lead to are loaded with them.
    pub fn scan_following(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        follow: &Follow,
    ) -> Result<Scan, Stopped> {
        Ok(self.view.scan_following(prefix, after, limit, Some(follow))?)
    }

    /// Keys under a prefix that this group itself put (`true`) or removed: a scan does not show them.
    pub fn own_under(&self, prefix: &[u8]) -> impl Iterator<Item = (&Bytes, bool)> {
        let from = Bytes::copy_from_slice(prefix);
        let rows = self.made.rows.range(from.clone()..).take_while(move |(key, _)| key.starts_with(&from));
        rows.map(|(key, value)| (key, value.is_some()))
    }

    /// Facts of a stream, with this group's changes.
    pub fn stream(&self, handle: Handle) -> Result<Option<StreamInfo>, Stopped> {
        match self.made.streams.get(&handle) {
            Some(state) => Ok(state.as_ref().map(|(info, _)| *info)),
            None => Ok(self.view.stream(handle)?),
        }
    }

    /// The change count of a stream of this server, with this group's changes.
    pub fn count_of(&self, stream: Handle) -> ChangeCount {
        self.made.moved.get(&stream).map_or_else(|| self.around.counts.of(stream), |moved| moved.to)
    }

    /// The same of an object, if it is a file of this server.
    pub fn count_in(&self, attr: &Attr) -> ChangeCount {
        match attr.kind == Kind::File && attr.handle.server() == self.identity.id {
            true => self.count_of(attr.handle),
            false => ChangeCount::NONE,
        }
    }

    /// The effect of this group's newest change of a stream on its change count.
    pub fn move_of(&self, stream: Handle) -> Option<Move> {
        self.made.moved.get(&stream).copied()
    }

    /// Facts of a stream of this server as the wire has them.
    pub fn facts_of(&self, stream: Handle, info: &StreamInfo) -> StreamFacts {
        crate::meta::inode::facts_of(info, self.count_of(stream))
    }

    /// Content of a small stream, with this group's changes; may be shorter than its size.
    pub fn small_content(&self, handle: Handle) -> Result<Bytes, Stopped> {
        match self.made.streams.get(&handle) {
            Some(Some((_, content))) => Ok(content.clone()),
            Some(None) => Ok(Bytes::new()),
            None => Ok(self.view.small_content(handle)?),
        }
    }

    /// The owner of a stream's handle for capability checks: the metafile itself, or the datafile's owner.
    pub fn owner_of(&self, stream: Handle) -> Result<Handle, Stopped> {
        if let Some(row) = self.row::<Datafile>(&keys::datafile(stream))? {
            return Ok(row.owner);
        }
        self.inode(stream).map(|_| stream)
    }

    /// Attributes of an object of this server, as the wire has them.
    pub fn attr(&self, handle: Handle) -> Result<Attr, Stopped> {
        let inode = self.inode(handle)?;
        let stream = if inode.kind == Kind::File { self.stream(handle)? } else { None };
        Ok(crate::meta::inode::attr_of(handle, &inode, stream))
    }

    /// Attributes of an object of this server, as an answer.
    pub fn attr_answer(&self, handle: Handle) -> Result<Answer, Stopped> {
        let attr = self.attr(handle)?;
        let count = self.count_in(&attr);
        Ok(Answer::Attr { attr, count })
    }

    /// Attributes of this server's part of an object: of a split directory those of its shard.
    pub fn attr_here(&self, handle: Handle) -> Result<Attr, Stopped> {
        if handle.server() == self.identity.id {
            return self.attr(handle);
        }
        Ok(crate::meta::inode::attr_of(handle, &self.directory(handle)?, None))
    }

    /// The generation of a file's streams, as carried by data requests.
    pub fn generation(&self, handle: Handle) -> Result<Generation, Stopped> {
        Ok(Generation(self.stream(handle)?.map_or(0, |info| info.generation)))
    }

    /// Whether the run is part of a transaction that has begun.
    pub fn is_in_transaction(&self) -> bool {
        self.own.is_some()
    }

    /// Whether another client than this one may have the file open.
    pub fn may_be_open_elsewhere(&self, object: Handle, client: ClientId) -> bool {
        self.around.sessions.has_another_client(client)
            && self.around.sessions.openers.may_be_elsewhere(object, client)
    }
}
