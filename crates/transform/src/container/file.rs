//! An open container.

use super::Shared;
use super::state::State;
use super::writer::Writer;
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_env::local::{Semaphore, oneshot};
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, Owner, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// An open file of [`Container`](super::Container). Its writer is made with the first write.
pub struct ContainerFile<B: Vfs>(Rc<Opened<B>>);

impl<B: Vfs> Clone for ContainerFile<B> {
    fn clone(&self) -> ContainerFile<B> {
        ContainerFile(self.0.clone())
    }
}

struct Opened<B: Vfs> {
    state: Rc<State<B>>,
    rights: Rights,
    writer: RefCell<Option<Rc<Writer<B>>>>,
    /// One makes the writer.
    making: Semaphore,
    is_closed: Cell<bool>,
    /// Losses that were reported through it, or were before it was opened.
    seen: Cell<u64>,
}

impl<B: Vfs> ContainerFile<B> {
    /// An open of a container.
    pub(super) fn new(state: Rc<State<B>>, rights: Rights) -> ContainerFile<B> {
        state.opens.set(state.opens.get() + 1);
        let seen = Cell::new(state.losses());
        let opened = Opened {
            seen,
            state,
            rights,
            writer: RefCell::default(),
            making: Semaphore::new(1),
            is_closed: Cell::new(false),
        };
        ContainerFile(Rc::new(opened))
    }

    fn is_not_open_for(&self, call: &'static str) -> Error {
        let words = "the file is not open for that";
        Error::new(Status::BadCapability, call).of(self.handle()).because(words)
    }

    fn may_write(&self) -> Result<()> {
        if self.0.rights.contains(Rights::WRITE) { Ok(()) } else { Err(self.is_not_open_for("write")) }
    }

    fn may_read(&self) -> Result<()> {
        if self.0.rights.contains(Rights::READ) { Ok(()) } else { Err(self.is_not_open_for("read")) }
    }

    async fn writer(&self) -> Result<Rc<Writer<B>>> {
        self.may_write()?;
        let opened = &self.0;
        let known = || opened.writer.borrow().clone().filter(|writer| !writer.is_broken());
        if let Some(writer) = known() {
            return Ok(writer);
        }
        let _turn = opened.state.turn(&opened.making).await?;
        if let Some(writer) = known() {
            return Ok(writer);
        }
        if let Some(broken) = opened.writer.take() {
            opened.state.release(&broken).await?;
        }
        let owner = super::attributes::owner_of(&opened.state.shared.over, self.handle()).await;
        let owner = owner.unwrap_or(Owner { mode: 0o600, uid: 0, gid: 0 });
        let writer = opened.state.writer(owner).await?;
        writer.users.set(writer.users.get() + 1);
        opened.writer.replace(Some(writer.clone()));
        Ok(writer)
    }
}

/// The rest of a close: of a container, and of the writer of the file that was closed.
type Todo<B> = (Rc<State<B>>, Option<Rc<Writer<B>>>);

impl<B: Vfs> Opened<B> {
    /// The file is closed: the rest to do, if any. Said once.
    fn end(&self) -> Option<Todo<B>> {
        let state = &self.state;
        if self.is_closed.replace(true) {
            return None;
        }
        state.opens.set(state.opens.get() - 1);
        let writer = self.writer.take();
        let is_last = state.opens.get() == 0;
        if writer.is_none() && !is_last {
            return None;
        }
        // The state stays in use until the writer's facts are in a name.
        state.closing.set(state.closing.get() + 1);
        Some((state.clone(), writer))
    }
}

async fn close<B: Vfs>(state: Rc<State<B>>, writer: Option<Rc<Writer<B>>>) -> Result<()> {
    let mut closed = Ok(());
    if let Some(writer) = writer {
        closed = state.release(&writer).await;
    }
    // A writer of a write that failed is not closed, and has bytes of writes that did not.
    if !state.shared.outlives_its_process() && state.has_unsynced() && !state.is_removed.get() {
        closed = closed.and(state.sync().await);
    }
    state.closing.set(state.closing.get() - 1);
    if !state.is_in_use() {
        state.drop_readers();
        let shared: Rc<Shared<B>> = state.shared.clone();
        shared.is_idle(&state);
        if let Some(gone) = state.gone.take() {
            shared.delete(gone, state.object).await;
        }
    }
    closed
}

/// Close in a task of its own: it ends also where no caller waits for it any more.
fn close_apart<B: Vfs>((state, writer): Todo<B>, report: impl FnOnce(Result<()>) + 'static) {
    let (env, shared) = (state.shared.env.clone(), state.shared.clone());
    shared.closes.set(shared.closes.get() + 1);
    env.spawn("close a container", async move {
        report(close(state, writer).await);
        shared.closes.set(shared.closes.get() - 1);
        shared.removed.wake_all();
    });
}

impl<B: Vfs> Drop for Opened<B> {
    fn drop(&mut self) {
        let Some(todo) = self.end() else { return };
        close_apart(todo, |closed| {
            if let Err(error) = closed {
                tracing::warn!("{error}");
            }
        });
    }
}

impl<B: Vfs> VfsFile for ContainerFile<B> {
    type PageCounts = ();

    /// Where bytes of the logs end with the process, and then for all files.
    fn reports_closes(&self) -> bool {
        !self.0.state.shared.outlives_its_process()
    }

    async fn flush(&self) -> Result<()> {
        if self.reports_closes() { self.fsync().await } else { Ok(()) }
    }

    fn handle(&self) -> Handle {
        self.0.state.object
    }

    fn rights(&self) -> Rights {
        self.0.rights
    }

    fn again(&self) -> ContainerFile<B> {
        ContainerFile::new(self.0.state.clone(), self.0.rights)
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.may_read()?;
        self.0.state.read(offset, len).await
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        self.may_read()?;
        self.0.state.read_pattern(pattern).await
    }

    async fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> Result<()> {
        self.may_write()?;
        self.0.state.write_pattern(async || self.writer().await, pattern, data).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.may_write()?;
        self.0.state.write(async || self.writer().await, offset, data).await
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.may_write()?;
        self.0.state.append(async || self.writer().await, data).await
    }

    async fn fsync(&self) -> Result<()> {
        let (state, seen) = (&self.0.state, &self.0.seen);
        let synced = state.sync().await;
        // A loss that another open file met is a loss of this one's bytes too.
        let is_new = seen.replace(state.losses()) < state.losses();
        match synced {
            Ok(()) if is_new => {
                let words = "an earlier sync of this file failed: what it was to write may be lost";
                Err(Error::new(Status::Io, "fsync").of(self.handle()).because(words))
            }
            synced => synced,
        }
    }

    async fn refresh(&self) -> Result<()> {
        self.refreshed().await
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        self.may_write()?;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| Error::new(Status::FileTooBig, "fallocate").of(self.handle()))?;
        match mode {
            // A log grows as it is written: nothing can be reserved.
            Allocation::KeepSize => Ok(()),
            Allocation::Extend if self.0.state.size() < end => {
                self.0.state.extend_to(async || self.writer().await, end).await
            }
            Allocation::Extend => Ok(()),
            _ => Err(Error::new(Status::NotSupported, "fallocate").of(self.handle())),
        }
    }

    async fn close(self) -> Result<()> {
        let Ok(opened) = Rc::try_unwrap(self.0) else { return Ok(()) };
        let Some(todo) = opened.end() else { return Ok(()) };
        let (closed, result) = oneshot();
        close_apart(todo, |done| closed.send(done));
        let ended = || Err(Error::new(Status::Io, "close").because("its task ended before it was done"));
        result.await.unwrap_or_else(ended)
    }
}

impl<B: Vfs> ContainerFile<B> {
    /// The size, as this process knows it.
    pub(super) fn state_size(&self) -> u64 {
        self.0.state.size()
    }

    pub(super) fn state(&self) -> Rc<State<B>> {
        self.0.state.clone()
    }

    /// Its writer, if it wrote.
    pub(super) fn writer_id(&self) -> Option<WriterId> {
        self.0.writer.borrow().as_ref().map(|writer| writer.id)
    }

    /// Its index, to compare it.
    #[cfg(test)]
    pub(super) fn index_in_words(&self) -> String {
        format!("{:?}", self.0.state.index.borrow())
    }

    /// Read what other processes published.
    pub(crate) async fn refreshed(&self) -> Result<()> {
        self.0.state.refresh().await
    }

    /// Whether its name was removed here.
    pub(super) fn is_removed(&self) -> bool {
        self.0.state.is_removed.get()
    }

    /// Set the size through an open file.
    pub(super) async fn truncate(&self, size: u64) -> Result<()> {
        self.0.state.truncate(async || self.writer().await, size).await
    }
}
