//! Open files.
//!
//! ```text
//!   0 ........... content ....... part ....... part ...........| tail ............ end
//!   in the object of the name     d/ID/OFFSET, unchanged        in memory; published beside the name while
//!                                                               it is short, and then as the last part
//! ```
//!
//! **A file has one writer**: the process whose put of its next part, or of its name, meets the version that
//! it knows. Another one is refused (`EBUSY`).
//!
//! **The tail is in memory**, and may be changed there; bytes before it may not. It is published by a sync,
//! by a close, and when it is full. A short one is put again with more bytes ([`PART_BYTES_MIN`]): so many
//! syncs do not make many parts.
//!
//! **A process that ends leaves a beginning of the file**, at least as long as it was published last. Of
//! several files each has its own: a container must not believe that bytes of one file are as new as those of
//! another ([`Vfs::outlives_its_process`](shoal_vfs::Vfs::outlives_its_process)).

mod content;
pub(crate) mod parts;
mod publish;
mod reading;

use crate::attributes::{self, Extent};
use crate::format::Named;
use crate::name_space::Version;
use crate::vfs::{Objects, Shared};
use crate::{BUFFERED_BYTES_MAX, GAP_BYTES_MAX, PART_BYTES_MAX, PART_BYTES_MIN, Tag};
use bytes::Bytes;
use content::Content;
use parts::Parts;
use shoal_env::local::Semaphore;
use shoal_proto::{Allocation, Attr, Handle, Rights, SetAttr, Status};
use shoal_vfs::{Error, Result, VfsFile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A file that is open here, for all its opens.
pub(crate) struct Body {
    shared: Rc<Shared>,
    handle: Handle,
    /// One change or publication at a time.
    pub(crate) turn: Semaphore,
    opens: Cell<u64>,
    /// Bytes in memory, as [`Shared`] counts them.
    buffered: Cell<usize>,
    state: RefCell<Content>,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.shared.buffers(&self.buffered, 0);
    }
}

impl Body {
    fn new(shared: &Rc<Shared>, handle: Handle, content: Content) -> Rc<Body> {
        let body = Rc::new(Body {
            shared: shared.clone(),
            handle,
            turn: Semaphore::new(1),
            opens: Cell::new(0),
            buffered: Cell::new(0),
            state: RefCell::new(content),
        });
        shared.nodes.borrow_mut().set_body(handle, Some(body.clone()));
        body
    }

    /// Count bytes in memory; whether all files together have so many that larger tails are published.
    fn is_crowded(&self, state: &Content) -> bool {
        self.shared.buffers(&self.buffered, state.tail.len()) > BUFFERED_BYTES_MAX
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.get() > 0
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.state.borrow().is_unlinked
    }

    /// It has no name any more. Whether it has parts.
    pub(crate) fn lost_name(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.is_unlinked = true;
        state.named.has_parts
    }

    pub(crate) fn has_written(&self) -> bool {
        self.state.borrow().has_written
    }

    /// Its name's object is this one now.
    pub(crate) fn has_version(&self, named: &Named, tag: Version) {
        let mut state = self.state.borrow_mut();
        if !state.has_version(named, tag) && !state.is_dirty() {
            // Another process wrote it, and all that was written here is published: the next open takes it.
            state.has_written = false;
        }
    }

    /// Attributes were changed in the object of its name, which is this one now.
    pub(crate) fn changed(&self, set: &SetAttr, named: &Named, tag: &Tag) {
        self.has_version(named, Some(tag.clone()));
        let mut state = self.state.borrow_mut();
        let len = state.len();
        attributes::change(&mut state.named, set, len, named.ctime);
    }

    /// Bytes and attributes are here that the object of its name must not take back, or it has no name.
    pub(crate) fn is_ahead(&self) -> bool {
        let state = self.state.borrow();
        state.is_unlinked || state.is_dirty()
    }

    /// Its attributes as they are here.
    pub(crate) fn attr(&self) -> Attr {
        let place = self.shared.place_of("getattr", self.handle).ok().flatten();
        let state = self.state.borrow();
        let modified = state.modified.filter(|_| !state.has_written);
        let extent = Extent { len: state.len(), modified };
        let mut attr = self.shared.attr(&state.named, self.handle, place.as_ref(), extent);
        if state.is_unlinked {
            attr.nlink = 0;
        }
        attr
    }

    /// Change attributes.
    pub(crate) async fn set_attributes(&self, set: &SetAttr) -> Result<Attr> {
        let _turn = self.turn.acquire(1).await;
        let now = self.shared.now();
        {
            let mut state = self.state.borrow_mut();
            let len = state.len();
            attributes::change(&mut state.named, set, len, now);
            (state.has_new_attributes, state.has_written) = (true, true);
        }
        self.publish("setattr").await?;
        Ok(self.attr())
    }

    fn refused(&self, op: &'static str, status: Status, words: &str) -> Error {
        Error::new(status, op).of(self.handle).because(words)
    }

    /// Write bytes, after zeros if there is a gap. The caller has the turn.
    async fn write_now(&self, offset: u64, data: &[u8]) -> Result<()> {
        let op = "write";
        let end = offset.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        end.ok_or_else(|| Error::new(Status::FileTooBig, op).of(self.handle))?;
        if data.is_empty() {
            return Ok(());
        }
        self.load_tail(op).await?;
        self.is_in_tail(op, offset)?;
        let len = self.state.borrow().len();
        if offset > len {
            self.fill(offset - len).await?;
        }
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            // A publication that failed before may have left more than one part.
            self.is_in_tail(op, at)?;
            let now = self.shared.now();
            let is_full = {
                let mut state = self.state.borrow_mut();
                let from = (at - state.tail_at) as usize;
                let part = rest.len().min(PART_BYTES_MAX.saturating_sub(from).max(1));
                let end = from + part;
                if state.tail.len() < end {
                    state.tail.resize(end, 0);
                }
                state.tail[from..end].copy_from_slice(&rest[..part]);
                (at, rest) = (at + part as u64, &rest[part..]);
                (state.has_new_bytes, state.has_written) = (true, true);
                (state.named.mtime, state.named.ctime) = (now, now);
                let most = if self.is_crowded(&state) { PART_BYTES_MIN } else { PART_BYTES_MAX };
                state.tail.len() >= most
            };
            if is_full {
                self.publish(op).await?;
            }
        }
        Ok(())
    }

    /// Only bytes in memory change.
    fn is_in_tail(&self, op: &'static str, offset: u64) -> Result<()> {
        let tail_at = self.state.borrow().tail_at;
        if offset >= tail_at {
            return Ok(());
        }
        let words = format!(
            "bytes before {tail_at} are published, and do not change: over an object store a file grows at its end; \
             use containers (`container`)"
        );
        Err(self.refused(op, Status::NotSupported, &words))
    }

    /// Append zeros.
    async fn fill(&self, mut count: u64) -> Result<()> {
        if count > GAP_BYTES_MAX {
            let words = format!(
                "{count} bytes after the end: over an object store a hole is stored as zeros, and {GAP_BYTES_MAX} are the most; \
                 use containers (`container`)"
            );
            return Err(self.refused("write", Status::NotSupported, &words));
        }
        while count > 0 {
            let part = count.min(PART_BYTES_MAX as u64);
            let is_full = {
                let mut state = self.state.borrow_mut();
                let len = state.tail.len() + part as usize;
                state.tail.resize(len, 0);
                (state.has_new_bytes, state.has_written) = (true, true);
                len >= PART_BYTES_MAX
            };
            if is_full {
                self.publish("write").await?;
            }
            count -= part;
        }
        Ok(())
    }

    /// Set the length. It is published when this returns.
    pub(crate) async fn set_len(&self, size: u64) -> Result<()> {
        if i64::try_from(size).is_err() {
            return Err(Error::new(Status::FileTooBig, "truncate").of(self.handle));
        }
        let _turn = self.turn.acquire(1).await;
        self.set_len_now(size).await
    }

    /// The same, if it is shorter.
    async fn extend(&self, size: u64) -> Result<()> {
        let _turn = self.turn.acquire(1).await;
        let len = self.state.borrow().len();
        if len < size { self.set_len_now(size).await } else { Ok(()) }
    }

    /// The caller has the turn.
    async fn set_len_now(&self, size: u64) -> Result<()> {
        let op = "truncate";
        // No open replaces the state from now on.
        self.state.borrow_mut().has_written = true;
        self.load_tail(op).await?;
        let len = self.state.borrow().len();
        if size > len {
            self.fill(size - len).await?;
        } else {
            self.cut(size).await?;
        }
        let now = self.shared.now();
        {
            let mut state = self.state.borrow_mut();
            (state.named.mtime, state.named.ctime) = (now, now);
            (state.has_new_attributes, state.has_written) = (true, true);
            state.named.mtime_of = state.len();
        }
        self.publish(op).await
    }

    /// Publish all of it, if it has a name.
    pub(crate) async fn sync(&self) -> Result<()> {
        let _turn = self.turn.acquire(1).await;
        if self.is_unlinked() { Ok(()) } else { self.publish("fsync").await }
    }

    /// The last open file is closed: publish, and forget it.
    async fn close(&self) -> Result<()> {
        let _turn = self.turn.acquire(1).await;
        let closed = match self.is_unlinked() {
            true => Ok(()),
            false => self.publish("close").await,
        };
        if self.is_open() {
            return closed;
        }
        self.shared.nodes.borrow_mut().closed(self.handle, self.has_written());
        let (is_unlinked, named) = {
            let state = self.state.borrow();
            (state.is_unlinked, state.named.clone())
        };
        if is_unlinked && named.has_parts {
            self.shared.remove_parts_in_time("unlink", named.id).await?;
        }
        closed
    }
}

impl Objects {
    /// Open a file that is at a place, as its name's object says by a look that began at `asked`. `None`: the
    /// file was written and closed here since, and the caller is to look again.
    pub(crate) async fn open_named(
        &self,
        handle: Handle,
        (named, tag): (Named, Version),
        rights: Rights,
        asked: u64,
    ) -> Result<Option<ObjectFile>> {
        let op = "open";
        let shared = &self.0;
        let parts = match named.has_parts {
            true => Parts::read(shared, op, &named).await?,
            false => Parts::default(),
        };
        let known = shared.nodes.borrow().body(handle);
        // Bytes that were written here are newer, and so is a removal here.
        let is_newer = known.as_ref().is_some_and(|body| body.has_written() || body.is_unlinked());
        if !is_newer && shared.nodes.borrow().is_closed_since(handle, asked) {
            return Ok(None);
        }
        let known = match known {
            // The parts are not used, and may be of both sides of a cut that was made here meanwhile.
            Some(body) if is_newer => return Ok(Some(ObjectFile::new(body, rights))),
            known => known,
        };
        let parts = parts.sound(op).map_err(|error| error.of(handle))?;
        let content = Content::new(named, tag, parts);
        let body = match known {
            Some(body) => {
                body.state.replace(content);
                body
            }
            None => Body::new(shared, handle, content),
        };
        Ok(Some(ObjectFile::new(body, rights)))
    }

    /// Open a file that was just made here, and that another task may have opened since.
    pub(crate) fn open_new(&self, handle: Handle, named: Named, tag: Version, rights: Rights) -> ObjectFile {
        let known = self.0.nodes.borrow().body(handle);
        let new = || Body::new(&self.0, handle, Content::new(named, tag, Parts::default()));
        ObjectFile::new(known.unwrap_or_else(new), rights)
    }

    /// A further open of a file that is open.
    pub(crate) fn open_body(&self, body: Rc<Body>, rights: Rights) -> ObjectFile {
        ObjectFile::new(body, rights)
    }
}

/// An open file of [`Objects`]. See the module.
#[derive(Clone)]
pub struct ObjectFile(Rc<Opened>);

struct Opened {
    body: Rc<Body>,
    rights: Rights,
    is_closed: Cell<bool>,
}

impl Opened {
    /// Whether the file is to be closed.
    fn end(&self) -> bool {
        if self.is_closed.replace(true) {
            return false;
        }
        self.body.opens.set(self.body.opens.get() - 1);
        !self.body.is_open()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.end() {
            let (body, shared) = (self.body.clone(), self.body.shared.clone());
            self.body.shared.in_background("close a file", async move {
                if let Err(error) = body.close().await {
                    tracing::warn!("a file that was dropped is not published: {error}");
                }
                drop(shared);
            });
        }
    }
}

impl ObjectFile {
    fn new(body: Rc<Body>, rights: Rights) -> ObjectFile {
        body.opens.set(body.opens.get() + 1);
        ObjectFile(Rc::new(Opened { body, rights, is_closed: Cell::new(false) }))
    }

    fn may(&self, op: &'static str, rights: Rights) -> Result<()> {
        match self.0.rights.contains(rights) {
            true => Ok(()),
            false => Err(self.0.body.refused(op, Status::BadCapability, "the file was not opened for it")),
        }
    }

    pub(crate) fn attr(&self) -> Attr {
        self.0.body.attr()
    }

    pub(crate) fn body(&self) -> &Rc<Body> {
        &self.0.body
    }
}

impl VfsFile for ObjectFile {
    type PageCounts = ();

    const READS_AT_ONCE: usize = 4;

    const REPORTS_CLOSES: bool = true;

    async fn flush(&self) -> Result<()> {
        self.fsync().await
    }

    fn handle(&self) -> Handle {
        self.0.body.handle
    }

    fn rights(&self) -> Rights {
        self.0.rights
    }

    fn again(&self) -> ObjectFile {
        ObjectFile::new(self.0.body.clone(), self.0.rights)
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.may("read", Rights::READ)?;
        self.0.body.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.may("write", Rights::WRITE)?;
        let _turn = self.0.body.turn.acquire(1).await;
        self.0.body.write_now(offset, &data).await
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.may("append", Rights::WRITE)?;
        let _turn = self.0.body.turn.acquire(1).await;
        let end = self.0.body.state.borrow().len();
        self.0.body.write_now(end, &data).await?;
        Ok(end)
    }

    async fn fsync(&self) -> Result<()> {
        self.0.body.sync().await
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        self.may("fallocate", Rights::WRITE)?;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| Error::new(Status::FileTooBig, "fallocate").of(self.handle()))?;
        match mode {
            // Nothing can be reserved.
            Allocation::KeepSize => Ok(()),
            Allocation::Extend => self.0.body.extend(end).await,
            _ => Err(self.0.body.refused("fallocate", Status::NotSupported, "published bytes do not change")),
        }
    }

    async fn close(self) -> Result<()> {
        let Ok(opened) = Rc::try_unwrap(self.0) else { return Ok(()) };
        if opened.end() { opened.body.clone().close().await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
