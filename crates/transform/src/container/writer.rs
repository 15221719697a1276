//! A writer: a data log and an index log of its own.
//!
//! **An entry is in the index log before the bytes that it names are appended.** The writer keeps the end of
//! each log, and does one write at a time. After a failed write it notes the data log's real length and
//! writes no more: later bytes and records go to another writer's logs. Each waits for the writer's turn, and
//! looks after the wait whether the write before failed.

use super::names;
use super::remove::gone_is_fine;
use super::state::State;
use crate::limits::FOLDERS;
use crate::online::{Online, Stretch};
use crate::record::{Cut, Entry, Record, VERSION};
use crate::writer_id::WriterId;
use bytes::Bytes;
use futures_util::future::{join, try_join};
use shoal_env::local::Semaphore;
use shoal_pattern::Region;
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_vfs::{Result, Vfs, VfsFile};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::rc::Rc;

/// Writers of this process whose logs may get bytes late.
pub(super) type Broken = Rc<RefCell<BTreeSet<WriterId>>>;

/// A writer's logs, open.
pub(crate) struct Writer<B: Vfs> {
    pub(super) id: WriterId,
    pub(super) data: B::File,
    index: B::File,
    folder: Handle,
    online: RefCell<Online>,
    index_bytes: Cell<u64>,
    /// One write at a time.
    pub(super) turn: Semaphore,
    /// Writes to its logs.
    written: Cell<u64>,
    /// Of those, how many are durable.
    synced: Cell<u64>,
    /// One sync at a time: each waits for the one before.
    syncing: Semaphore,
    /// Has its id once a write of a log failed, and may still be done: nothing is appended any more.
    broken: Broken,
    /// That log is the index: its end is not known.
    is_index_broken: Cell<bool>,
    /// Its dropping says how long its logs are.
    is_closed: Cell<bool>,
    /// Its names were not made durable yet.
    is_new: Cell<bool>,
    /// Its name: the text says what was synced, so that a log that lost it later is found out.
    name: RefCell<Option<B::File>>,
    /// Open files that write with it.
    pub(super) users: Cell<u32>,
}

/// A writer of this process that is closed, and may be continued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) id: WriterId,
    data: u64,
    index: u64,
    dropping: names::Dropping,
    /// All of it is durable, and only its dropping says so.
    is_durable: bool,
}

/// A write of a log that is under way: unless it ends well, the writer is broken.
struct UnderWay<'a, B: Vfs> {
    writer: &'a Writer<B>,
    is_of_index: bool,
}

impl<B: Vfs> UnderWay<'_, B> {
    fn ended(self) {
        std::mem::forget(self);
    }
}

impl<B: Vfs> Drop for UnderWay<'_, B> {
    fn drop(&mut self) {
        let writer = self.writer;
        writer.broken.borrow_mut().insert(writer.id);
        writer.is_index_broken.set(writer.is_index_broken.get() || self.is_of_index);
    }
}

const RIGHTS: Rights = Rights::READ.union(Rights::WRITE);

impl<B: Vfs> Writer<B> {
    /// A new writer of a container. If that fails nothing of it stays.
    pub(super) async fn make(state: &State<B>, owner: Owner) -> Result<Writer<B>> {
        let shared = &state.shared;
        let number = shared.writers.get();
        shared.writers.set(number.wrapping_add(1));
        let id = WriterId::draw_for(&shared.env, number, FOLDERS);
        let made = Writer::make_logs(state, id, owner).await;
        if made.is_err() {
            let (shared, object) = (state.shared.clone(), state.object);
            let words = "a writer that was not made stays: `shoal container recover`";
            state.shared.clean(words, async move || take_back(&shared.over, object, id).await).await;
        }
        made
    }

    async fn make_logs(state: &State<B>, id: WriterId, owner: Owner) -> Result<Writer<B>> {
        let shared = &state.shared;
        let over = &shared.over;
        shared.put(state.object, &names::writer(id)?, owner, Bytes::new()).await?;
        let folder = folder(state, id, owner).await?;
        let (index, data) = (names::index(id)?, names::data(id)?);
        // Both are waited for: one that fails leaves none that is made later.
        let (index, data) = join(
            over.create(folder, &index, owner, true, RIGHTS),
            over.create(folder, &data, owner, true, RIGHTS),
        )
        .await;
        let ((_, _, index), (_, _, data)) = (index?, data?);
        let (boot, words) = (shared.env.boot_id(), shared.words.clone());
        let head = Record::Head { version: VERSION, id, boot, words }.encode();
        let index_bytes = head.len() as u64;
        index.write(0, head.into()).await?;
        Ok(Writer {
            id,
            data,
            index,
            folder,
            online: RefCell::new(Online::at(0)),
            index_bytes: Cell::new(index_bytes),
            turn: Semaphore::new(1),
            written: Cell::new(1),
            synced: Cell::new(0),
            syncing: Semaphore::new(1),
            broken: state.broken.clone(),
            is_index_broken: Cell::new(false),
            is_closed: Cell::new(false),
            is_new: Cell::new(true),
            name: RefCell::new(None),
            users: Cell::new(0),
        })
    }

    /// Continue a closed writer of this process. `None`: another process changed it.
    pub(super) async fn again(state: &State<B>, idle: Idle, owner: Owner) -> Result<Option<Writer<B>>> {
        let over = &state.shared.over;
        let folder = folder(state, idle.id, owner).await?;
        let (index, data) = (names::index(idle.id)?, names::data(idle.id)?);
        let found = try_join(over.lookup(folder, &index), over.lookup(folder, &data)).await;
        let Ok((index, data)) = found else { return Ok(None) };
        if index.size != idle.index || data.size != idle.data {
            return Ok(None);
        }
        let opened = try_join(over.open(index.handle, RIGHTS), over.open(data.handle, RIGHTS));
        let (index, data) = opened.await?;
        // Sealed, or taken by another process: then its logs are not touched.
        match over.lookup(state.object, &idle.dropping.name(idle.id)?).await {
            Err(error) if error.status == Status::NotFound => return Ok(None),
            found => found?,
        };
        let mut index_bytes = idle.index;
        if idle.is_durable {
            // Its dropping made its bytes known after a power cut: from now on this does.
            let named = Record::Named { data: idle.data }.encode();
            let len = named.len() as u64;
            index.write(index_bytes, named.into()).await?;
            index.fsync().await?;
            index_bytes += len;
        }
        // Without its dropping it counts as open.
        match over.unlink(state.object, &idle.dropping.name(idle.id)?).await {
            Err(error) if error.status == Status::NotFound => return Ok(None),
            removed => removed?,
        }
        Ok(Some(Writer {
            id: idle.id,
            data,
            index,
            folder,
            online: RefCell::new(Online::at(idle.data)),
            index_bytes: Cell::new(index_bytes),
            turn: Semaphore::new(1),
            written: Cell::new(0),
            synced: Cell::new(0),
            syncing: Semaphore::new(1),
            broken: state.broken.clone(),
            is_index_broken: Cell::new(false),
            is_closed: Cell::new(false),
            is_new: Cell::new(true),
            name: RefCell::new(None),
            users: Cell::new(0),
        }))
    }

    /// Bytes of its data log and of its index log.
    pub(super) fn lengths(&self) -> (u64, u64) {
        (self.online.borrow().physical(), self.index_bytes.get())
    }

    /// The entry under way.
    pub(super) fn current(&self) -> Option<Entry> {
        self.online.borrow().current()
    }

    /// The next write begins an entry.
    pub(super) fn end_entry(&self) {
        self.online.borrow_mut().end_entry();
    }

    async fn record(&self, record: &Record) -> Result<()> {
        let (bytes, at) = (record.encode(), self.index_bytes.get());
        self.written.set(self.written.get() + 1);
        let len = bytes.len() as u64;
        // Where it fails, or is given up, it may be there all the same, or come late: bytes below it would be
        // taken for its.
        let under_way = UnderWay { writer: self, is_of_index: true };
        self.index.write(at, bytes.into()).await?;
        under_way.ended();
        self.index_bytes.set(at + len);
        Ok(())
    }

    /// The next regions of a write whose bytes go under one entry ([`Online::stretch`]). The caller holds the
    /// writer's turn until they are appended.
    pub(super) fn stretch(
        &self,
        regions: &mut Peekable<impl Iterator<Item = Region>>,
        is_newer: impl Fn(Region, u64) -> bool,
        stamp: impl FnOnce() -> u64,
    ) -> Stretch {
        self.online.borrow().stretch(regions, is_newer, stamp)
    }

    /// Append the bytes of a stretch, with their entry first if they need one. The entry that names them. The
    /// caller holds the writer's turn.
    pub(super) async fn append(&self, over: &B, stretch: Stretch, data: Bytes) -> Result<Entry> {
        debug_assert_eq!(stretch.len, data.len() as u64);
        if let Some(entry) = stretch.entry {
            self.record(&Record::Entry(entry)).await?;
        }
        self.written.set(self.written.get() + 1);
        let physical = self.online.borrow().physical();
        // Where it fails, or is given up, a part may be there, or come late.
        let under_way = UnderWay { writer: self, is_of_index: false };
        if let Err(error) = self.data.write(physical, data).await {
            let now = over.getattr(self.data.handle()).await;
            let now = now.map_or(physical + stretch.len, |attr| attr.size);
            self.online.borrow_mut().failed(now.max(physical));
            return Err(error);
        }
        under_way.ended();
        self.online.borrow_mut().appended(stretch);
        Ok(self.current().expect("bytes were just written under it"))
    }

    /// Publish a cut. The caller holds the writer's turn.
    pub(super) async fn cut(&self, cut: Cut) -> Result<()> {
        self.end_entry();
        // Its name is new in the container.
        self.is_new.set(true);
        self.record(&Record::Cut(cut)).await
    }

    /// Say that the file is at least so long. The caller holds the writer's turn.
    pub(super) async fn extend(&self, size: u64, stamp: u64) -> Result<()> {
        self.record(&Record::End { size, stamp }).await
    }

    /// Whether something is not durable.
    pub(super) fn is_dirty(&self) -> bool {
        self.synced.get() < self.written.get() || self.is_new.get()
    }

    /// It was continued, and what it wrote before is not durable.
    pub(super) fn was_dirty(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// A write failed: the next bytes go to another writer's logs.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.borrow().contains(&self.id)
    }

    /// Make all durable that was written before this call.
    pub(super) async fn sync(&self, state: &State<B>) -> Result<()> {
        let target = self.written.get();
        let _turn = self.syncing.acquire(1).await;
        if self.synced.get() < target {
            let written = {
                let _own = self.turn.acquire(1).await;
                let (written, mut physical) = (self.written.get(), self.online.borrow().physical());
                self.data.fsync().await?;
                let outlives = state.shared.outlives_its_process();
                if self.is_broken() && !outlives {
                    // While the write failed its length could not be seen.
                    let now = state.shared.over.getattr(self.data.handle()).await?.size;
                    physical = physical.min(now);
                }
                // Elsewhere another process believes its log as it is. Here it would not believe bytes that
                // were written before the write that failed.
                let is_sound = match outlives {
                    true => !self.is_broken(),
                    false => !self.is_index_broken.get(),
                };
                if is_sound && !self.is_closed.get() {
                    self.record(&Record::Named { data: physical }).await?;
                }
                (written, physical, self.index_bytes.get())
            };
            let (written, data, index) = written;
            self.index.fsync().await?;
            if let Err(error) = self.say_synced(state, data, index).await {
                tracing::debug!("what was synced is not said beside the logs: {error}");
            }
            // The record just written is durable too.
            self.synced.set(written + u64::from(self.written.get() == written + 1));
        }
        if self.is_new.get() {
            let over = &state.shared.over;
            try_join(over.fsync_directory(self.folder), over.fsync_directory(state.object)).await?;
            self.is_new.set(false);
        }
        Ok(())
    }

    /// So many bytes of its logs are durable. This is evidence only: it is not synced itself.
    async fn say_synced(&self, state: &State<B>, data: u64, index: u64) -> Result<()> {
        let known = self.name.borrow().clone();
        let file = match known {
            Some(file) => file,
            None => {
                let over = &state.shared.over;
                let named = over.lookup(state.object, &names::writer(self.id)?).await?;
                over.open(named.handle, RIGHTS).await?
            }
        };
        self.name.replace(Some(file.clone()));
        file.write(0, Bytes::copy_from_slice(&names::synced(data, index))).await
    }

    /// Close it: a dropping states its facts. Its name in the container stays: a listing that is under way
    /// while a name is replaced may show neither the old one nor the new one.
    ///
    /// `None`: a sync that it waited for failed. Its logs may become longer, so no dropping says how long.
    pub(super) async fn close(
        &self,
        state: &State<B>,
        owner: Owner,
        end: u64,
        cuts: u64,
    ) -> Result<Option<Idle>> {
        let _own = self.turn.acquire(1).await;
        if self.is_broken() {
            return Ok(None);
        }
        self.is_closed.set(true);
        let (data, index) = self.lengths();
        let is_durable = !self.is_dirty();
        let boot = if is_durable { 0 } else { names::short_boot(state.shared.env.boot_id()) };
        let dropping = names::Dropping { end, bytes: data, index, cuts, boot };
        let (shared, name) = (&state.shared, dropping.name(self.id)?);
        let put = async || match shared.put(state.object, &name, owner, Bytes::new()).await {
            // Of a try that was not closed.
            Err(error) if error.status == Status::Exists => Ok(()),
            put => put,
        };
        shared.while_short(put).await?;
        // With the dropping a sync after this makes known how long the logs are.
        self.is_new.set(true);
        Ok(Some(Idle { id: self.id, data, index, dropping, is_durable }))
    }
}

/// Remove what was made of a writer that was not made.
async fn take_back<B: Vfs>(over: &B, object: Handle, id: WriterId) -> Result<()> {
    match over.lookup(object, &names::folder(id.folder(FOLDERS))?).await {
        Ok(folder) => {
            gone_is_fine(over.unlink(folder.handle, &names::data(id)?).await)?;
            gone_is_fine(over.unlink(folder.handle, &names::index(id)?).await)?;
        }
        Err(error) if !matches!(error.status, Status::NotFound | Status::Stale) => return Err(error),
        Err(_) => {}
    }
    gone_is_fine(over.unlink(object, &names::writer(id)?).await)
}

/// The folder of a writer's logs, made if it is missing.
pub(super) async fn folder<B: Vfs>(state: &State<B>, id: WriterId, owner: Owner) -> Result<Handle> {
    let (over, name) = (&state.shared.over, names::folder(id.folder(FOLDERS))?);
    let owner = Owner { mode: super::attributes::folder_mode(owner.mode), ..owner };
    match over.mkdir(state.object, &name, owner).await {
        Ok(attr) => Ok(attr.handle),
        Err(error) if error.status == Status::Exists => Ok(over.lookup(state.object, &name).await?.handle),
        Err(error) => Err(error),
    }
}

impl Idle {
    /// The facts of its closing.
    pub(super) fn dropping(&self) -> names::Dropping {
        self.dropping
    }

    /// The name that says them.
    pub(super) fn dropping_name(&self) -> Result<Name> {
        self.dropping.name(self.id)
    }
}

impl Idle {
    /// All that it wrote is durable now, with its dropping.
    pub(super) fn became_durable(&mut self) {
        self.is_durable = true;
    }
}
