//! A container in use: its index, and the writers of this process.

use super::flat;
use super::fold;
use super::load;
use super::names::{Contents, Dropping};
use super::writer::{Broken, Idle, Writer};
use super::{Shared, names, some};
use crate::clock::Clock;
use crate::index::{Index, LogFacts};
use crate::limits::READERS_MAX;
use crate::writer_id::WriterId;
use futures_util::future::join_all;
use lru::LruCache;
use shoal_env::local::{Permit, Semaphore};
use shoal_proto::{Attr, Handle, Name, Owner, SetAttr, Status, Time};
use shoal_vfs::{Error, Result, Vfs};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Writes that may be under way at once; a reload takes all turns.
const TURNS: u64 = 1 << 16;

mod reading;
mod sizing;
#[cfg(test)]
mod tests;
mod writing;

/// See the module.
pub(crate) struct State<B: Vfs> {
    pub(crate) shared: Rc<Shared<B>>,
    pub(crate) object: Handle,
    /// Its directory's birth.
    pub(crate) born: Time,
    /// Open files.
    pub(crate) opens: Cell<u64>,
    /// Closes under way.
    pub(crate) closing: Cell<u64>,
    /// Its name was removed.
    pub(crate) is_removed: Cell<bool>,
    /// Its name in the bin then.
    pub(crate) gone: RefCell<Option<Name>>,
    pub(crate) index: RefCell<Index>,
    /// The container's names when its logs were read.
    read_at: RefCell<Option<Contents>>,
    /// Writers of this process.
    writers: RefCell<Vec<Rc<Writer<B>>>>,
    /// Those of them, and of the released ones, whose logs may get bytes late: of a write that failed or was
    /// given up.
    pub(super) broken: Broken,
    idle: RefCell<Vec<Idle>>,
    /// Writers that were begun or continued.
    begun: Cell<u64>,
    /// How often the logs were read.
    reads: Cell<u64>,
    /// Closes under way that leave the logs as they are.
    unmerged: Cell<u64>,
    /// Closed writers whose bytes are not durable yet.
    unsynced: RefCell<Vec<Rc<Writer<B>>>>,
    /// Syncs that failed.
    losses: Cell<u64>,
    clock: Clock,
    /// Logs that are open for reading: some, as a process has only so many descriptors.
    readers: RefCell<LruCache<WriterId, B::File>>,
    /// Logs when the index was flattened last.
    pub(super) flattened: Cell<usize>,
    /// A write has one turn, a reload all of them.
    turns: Semaphore,
    /// One append at a time: the next one's place is known when it ended.
    appending: Semaphore,
    /// An append that was given up has its place up to here.
    reserved: Cell<u64>,
    /// Writes that failed or were given up have stamps below this: what they left may be newer than the entry
    /// of a writer that goes on.
    unsure: Cell<u64>,
    /// It takes the records of another container: as many as are read.
    pub(super) is_copy: Cell<bool>,
    /// The last write, if its time is not in the access record yet.
    wrote_at: Cell<Option<Time>>,
    /// One sets the times of the access record.
    pub(crate) times: Semaphore,
}

impl<B: Vfs> State<B> {
    pub(super) fn new(shared: Rc<Shared<B>>, dir: &Attr) -> Rc<State<B>> {
        Rc::new(State {
            shared,
            object: dir.handle,
            born: dir.btime,
            opens: Cell::new(0),
            closing: Cell::new(0),
            is_removed: Cell::new(false),
            gone: RefCell::default(),
            index: RefCell::default(),
            read_at: RefCell::default(),
            writers: RefCell::default(),
            broken: Broken::default(),
            idle: RefCell::default(),
            begun: Cell::new(0),
            reads: Cell::new(0),
            unmerged: Cell::new(0),
            unsynced: RefCell::default(),
            losses: Cell::new(0),
            clock: Clock::default(),
            readers: RefCell::new(LruCache::new(some(READERS_MAX))),
            flattened: Cell::new(0),
            turns: Semaphore::new(TURNS),
            appending: Semaphore::new(1),
            reserved: Cell::new(0),
            unsure: Cell::new(0),
            is_copy: Cell::new(false),
            wrote_at: Cell::new(None),
            times: Semaphore::new(1),
        })
    }

    /// Whether files are open, or being closed.
    pub(crate) fn is_in_use(&self) -> bool {
        self.opens.get() + self.closing.get() > 0
    }

    /// It was just made: there is nothing to read.
    pub(super) fn is_new(&self) {
        self.read_at.replace(Some(Contents::default()));
    }

    /// See what other processes published: read the logs, if any changed.
    pub(super) async fn refresh(&self) -> Result<()> {
        let _all = self.turns.acquire(TURNS).await;
        self.reload().await
    }

    /// The caller has all turns.
    async fn reload(&self) -> Result<()> {
        let mut contents = load::contents(&self.shared, self.object).await?;
        // Of a writer whose write failed more may be in the log than is known here.
        let is_own = |id: &WriterId| {
            self.writers.borrow().iter().any(|writer| writer.id == *id && !writer.is_broken())
        };
        let is_open_elsewhere = contents.writers.iter().any(|(id, closed)| closed.is_none() && !is_own(id));
        if !is_open_elsewhere && self.read_at.borrow().as_ref().is_some_and(|seen| *seen == contents) {
            return Ok(());
        }
        let logs = match load::logs(&self.shared, self.object, &contents).await {
            Ok(logs) => logs,
            // A fold may have replaced them meanwhile.
            Err(_) => {
                let (now, logs) = load::all(&self.shared, self.object).await?;
                contents = now;
                logs
            }
        };
        self.has_logs(contents, &logs)
    }

    /// How often this process has begun a writer, and read the logs, so far.
    pub(super) fn seen(&self) -> (u64, u64) {
        (self.begun.get(), self.reads.get())
    }

    /// Use the logs that the members of a group read together. If this process wrote or read them meanwhile
    /// (`seen`: its counts before), it reads them itself: it must continue to see all that it wrote or
    /// returned.
    pub(super) async fn refresh_with(
        &self,
        contents: Contents,
        logs: &[LogFacts],
        seen: (u64, u64),
    ) -> Result<()> {
        let _all = self.turns.acquire(TURNS).await;
        if self.seen() != seen || !self.writers.borrow().is_empty() {
            return self.reload().await;
        }
        self.has_logs(contents, logs)
    }

    /// These are the logs. The caller has all turns.
    fn has_logs(&self, contents: Contents, logs: &[LogFacts]) -> Result<()> {
        let index = load::index(self.object, logs)?;
        self.reads.set(self.reads.get() + 1);
        self.clock.found(index.newest());
        self.index.replace(index);
        self.reserved.set(0);
        // Bytes written from now on are newer than all that was found.
        self.writers.borrow().iter().for_each(|writer| writer.end_entry());
        if self.flattened.get() == 0 && !contents.flat.is_empty() {
            self.flattened.set(contents.writers.len());
        }
        self.read_at.replace(Some(contents));
        Ok(())
    }

    /// The size of the file, as this process knows it.
    pub(super) fn size(&self) -> u64 {
        self.index.borrow().size()
    }

    /// When it was written last, if the access record does not say so yet.
    pub(super) fn wrote_at(&self) -> Option<Time> {
        self.wrote_at.get()
    }

    /// Its times were set.
    pub(super) fn times_were_set(&self) {
        self.wrote_at.set(None);
    }

    /// A writer for an open file: one of this process that is closed, or a new one.
    pub(super) async fn writer(&self, owner: Owner) -> Result<Rc<Writer<B>>> {
        while let Some(idle) = self.pop_idle() {
            if let Some(writer) = Writer::again(self, idle, owner).await? {
                return Ok(self.adopt(writer));
            }
        }
        let writer = Writer::make(self, owner).await?;
        Ok(self.adopt(writer))
    }

    fn pop_idle(&self) -> Option<Idle> {
        self.idle.borrow_mut().pop()
    }

    fn adopt(&self, writer: Writer<B>) -> Rc<Writer<B>> {
        let writer = Rc::new(writer);
        self.begun.set(self.begun.get() + 1);
        // Continued, it makes durable what it wrote before too.
        let mut unsynced = self.unsynced.borrow_mut();
        let before = unsynced.len();
        unsynced.retain(|closed| closed.id != writer.id);
        if unsynced.len() < before {
            writer.was_dirty();
        }
        drop(unsynced);
        self.index.borrow_mut().add_log(writer.id);
        if let Some(seen) = self.read_at.borrow_mut().as_mut() {
            seen.writers.insert(writer.id, None);
        }
        self.writers.borrow_mut().push(writer.clone());
        writer
    }

    /// Whether a file that is closed has bytes that may not be durable.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.borrow().is_empty()
    }

    /// Make all that this process wrote durable.
    pub(super) async fn sync(&self) -> Result<()> {
        let closed = self.unsynced.borrow().clone();
        let writers: Vec<Rc<Writer<B>>> = self.writers.borrow().iter().cloned().chain(closed).collect();
        // All are tried, and a loss is said to each open file once.
        let synced = join_all(writers.iter().map(|writer| writer.sync(self))).await;
        for idle in self.idle.borrow_mut().iter_mut() {
            let is_it = |writer: &&Rc<Writer<B>>| writer.id == idle.id && !writer.is_dirty();
            if self.unsynced.borrow().iter().any(|writer| is_it(&writer)) {
                idle.became_durable();
            }
        }
        self.unsynced.borrow_mut().retain(|writer| writer.is_dirty());
        if let Err(error) = synced.into_iter().collect::<Result<()>>() {
            self.losses.set(self.losses.get() + 1);
            return Err(error);
        }
        self.publish_time().await
    }

    /// Syncs that failed so far.
    pub(super) fn losses(&self) -> u64 {
        self.losses.get()
    }

    /// Bring the time of the last write into the access record.
    async fn publish_time(&self) -> Result<()> {
        let _turn = self.times.acquire(1).await;
        let Some(mtime) = self.wrote_at.take() else { return Ok(()) };
        let record = self.shared.over.lookup(self.object, &names::record()).await?;
        let set = SetAttr { mtime: Some(mtime), ..SetAttr::default() };
        self.shared.over.setattr(record.handle, set).await?;
        Ok(())
    }

    /// An open file that wrote is gone.
    pub(super) async fn release(&self, writer: &Rc<Writer<B>>) -> Result<()> {
        writer.users.set(writer.users.get() - 1);
        if writer.users.get() > 0 {
            return Ok(());
        }
        self.writers.borrow_mut().retain(|other| other.id != writer.id);
        if self.is_removed.get() {
            return Ok(());
        }
        let is_kept = self.shared.outlives_its_process() || writer.is_broken();
        let published = if is_kept { Ok(()) } else { writer.sync(self).await };
        if writer.is_dirty() {
            self.unsynced.borrow_mut().push(writer.clone());
        }
        if writer.is_broken() {
            // Its logs are what they are: no dropping says how long.
            return Ok(());
        }
        // Nor of one whose logs are not published.
        published?;
        let (end, cuts) = (self.size(), self.index.borrow().cuts());
        writer.end_entry();
        let log = self.index.borrow().log(writer.id);
        log.into_iter().for_each(|log| self.index.borrow_mut().ended(log));
        let over = &self.shared.over;
        let owner = self.shared.while_short(async || super::attributes::owner_of(over, self.object).await);
        let owner = owner.await?;
        let Some(idle) = writer.close(self, owner, end, cuts).await? else { return Ok(()) };
        if let Some(seen) = self.read_at.borrow_mut().as_mut() {
            seen.add(idle.dropping_name()?.as_bytes());
            seen.writers.insert(idle.id, Some(idle.dropping()));
        }
        self.idle.borrow_mut().push(idle);
        self.publish_time().await?;
        if self.unmerged.get() == 0 {
            fold::fold_if_worth(self).await;
            flat::flatten_if_many(self).await;
        }
        Ok(())
    }

    /// Do a close that neither folds nor flattens.
    pub(super) async fn without_merging<T>(&self, close: impl Future<Output = T>) -> T {
        struct Under<'a>(&'a Cell<u64>);
        impl Drop for Under<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        self.unmerged.set(self.unmerged.get() + 1);
        let _under = Under(&self.unmerged);
        close.await
    }

    /// Whether this process writes, or has unpublished bytes, with this identity.
    pub(super) fn writes(&self, id: WriterId) -> bool {
        let is_it = |writer: &Rc<Writer<B>>| writer.id == id;
        self.writers.borrow().iter().any(is_it) || self.unsynced.borrow().iter().any(is_it)
    }

    /// The dropping of a writer that was closed here.
    pub(super) fn closed(&self, id: WriterId) -> Option<Dropping> {
        self.idle.borrow().iter().find(|idle| idle.id == id).map(Idle::dropping)
    }

    /// Whether it has an open file here, or a writer.
    pub(super) fn is_in_use_by_others(&self) -> bool {
        self.opens.get() > 0 || !self.writers.borrow().is_empty() || self.is_removed.get()
    }

    /// A turn, with the time limit of one request: where the write before gets no answer, all that wait end
    /// with it.
    pub(super) async fn turn(&self, of: &Semaphore) -> Result<Permit> {
        if let Some(turn) = of.try_acquire(1) {
            return Ok(turn);
        }
        let shared = &self.shared;
        let turn = shared.env.deadline(shared.over.deadline(), of.acquire(1)).await;
        turn.map_err(|_| {
            let words = "an earlier write of the file gets no answer from the file system below";
            Error::new(Status::TimedOut, "write").of(self.object).because(words)
        })
    }

    /// All turns: no write and no reload of this process is under way.
    pub(super) async fn all_turns(&self) -> impl Sized {
        self.turns.acquire(TURNS).await
    }

    /// Its logs were folded. The caller has all turns.
    pub(super) async fn was_folded(&self) -> Result<()> {
        self.idle.borrow_mut().clear();
        // The new log is durable.
        self.unsynced.borrow_mut().clear();
        self.drop_readers();
        self.flattened.set(0);
        self.read_at.replace(None);
        self.reload().await
    }
}
