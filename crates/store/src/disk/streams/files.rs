//! The local files of large streams: `streams/xx/hhhhhhhhhhhhhhhh`, named by the handle, in the folder
//! that is named by the handle's last byte. If the stream's row names a [folder](super::folders) on
//! another disk, the file is there, under the same name.
//!
//! A bounded number of these files is kept open. **Invariant: a changed file is synced before it is closed**
//! (test: `a_file_that_is_closed_to_make_room_is_synced_and_a_failure_of_that_is_not_lost`). If the writeback
//! of a page fails, the kernel reports the error at the next `fsync` of each descriptor that is open at that
//! time. A descriptor that is opened later reports it only while the kernel still has the inode in memory. A
//! file closed with unwritten bytes could lose them without an error; an `fsync` through a new descriptor
//! would then succeed. While the file is open, its inode stays in memory.

use super::super::CollectionState;
use super::folders::FolderNumber;
use crate::StoreError;
use crate::stream_row::StreamRow;
use futures_util::future::join_all;
use lru::LruCache;
use shoal_env::local::{Notify, Semaphore};
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Env, File, OpenOptions};
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) struct StreamFiles {
    env: Env,
    /// By their numbers.
    folders: Vec<PathBuf>,
    open: RefCell<LruCache<Handle, File>>,
    /// Of the files changed or synced lately; unknown for others.
    states: RefCell<LruCache<Handle, State>>,
    changes: Cell<u64>,
    /// All changes with numbers up to this one are durable. `None`: an earlier start may have left some
    /// that are not.
    whole: Cell<Option<u64>>,
    /// Evicted from `open`, and no sync has covered them.
    leaving: RefCell<Vec<Leaving>>,
    /// Turns for their syncs.
    leaving_turns: Semaphore,
    /// Files of which a sync is under way, and their ends.
    syncing: RefCell<BTreeSet<Handle>>,
    sync_ended: Notify,
}

struct Leaving {
    handle: Handle,
    file: File,
    state: State,
}

/// The one sync of a file that is under way.
struct SyncTurn<'a> {
    files: &'a StreamFiles,
    handle: Handle,
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        self.files.syncing.borrow_mut().remove(&self.handle);
        self.files.sync_ended.wake_all();
    }
}

/// Most evicted files that are synced at once.
const LEAVING_MAX: u64 = 16;

/// The work of a sync for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Changed; each change has a number of its own.
    Changed(u64),
    /// A sync has covered everything.
    Synced,
}

/// States kept for each file that may be open.
const STATES_PER_FILE: usize = 8;

impl StreamFiles {
    /// The files in these folders, by number; so many are kept open.
    pub fn new(env: Env, folders: Vec<PathBuf>, open_max: usize) -> StreamFiles {
        let open_max = NonZeroUsize::new(open_max).unwrap_or(NonZeroUsize::MIN);
        let states_max = open_max.saturating_mul(NonZeroUsize::MIN.saturating_add(STATES_PER_FILE - 1));
        StreamFiles {
            env,
            folders,
            open: RefCell::new(LruCache::new(open_max)),
            states: RefCell::new(LruCache::new(states_max)),
            changes: Cell::new(0),
            whole: Cell::new(None),
            leaving: RefCell::default(),
            leaving_turns: Semaphore::new(LEAVING_MAX),
            syncing: RefCell::default(),
            sync_ended: Notify::default(),
        }
    }

    /// The file was changed: call this before the reply to the change.
    pub fn changed(&self, handle: Handle, file: &File) {
        self.number(handle);
        if !self.open.borrow().contains(&handle) {
            // It was evicted while it was being changed.
            self.opened(handle, file);
        }
    }

    fn number(&self, handle: Handle) -> State {
        self.changes.set(self.changes.get() + 1);
        let state = State::Changed(self.changes.get());
        self.states.borrow_mut().put(handle, state);
        state
    }

    /// Make the file's bytes durable, if a sync has anything to do. Returns whether it had.
    ///
    /// One sync of a file at a time: the kernel reports an error of writing back once to each open file, and
    /// all syncs share one. A second sync under way would succeed beside the one that fails.
    pub async fn sync(&self, handle: Handle, file: &File) -> io::Result<bool> {
        loop {
            let ended = self.sync_ended.wait();
            if self.syncing.borrow_mut().insert(handle) {
                break;
            }
            ended.await;
        }
        let _turn = SyncTurn { files: self, handle };
        let known = self.states.borrow_mut().get(&handle).copied();
        let before = match known {
            Some(State::Synced) => return Ok(false),
            Some(changed) => changed,
            None => self.number(handle),
        };
        self.sync_as(handle, file, before).await?;
        Ok(true)
    }

    /// Sync a file that was in this state, in whatever state it is now.
    async fn sync_as(&self, handle: Handle, file: &File, before: State) -> io::Result<()> {
        if !mutant::is(Mutant::DropSync) {
            let synced = file.sync().await;
            if !mutant::is(Mutant::SyncErrorIgnored) {
                synced?;
            }
        }
        let mut states = self.states.borrow_mut();
        // Changes made meanwhile may be covered or not.
        if states.peek(&handle) == Some(&before) {
            states.put(handle, State::Synced);
        }
        Ok(())
    }

    /// There was no file when this run began.
    pub fn begin_without_files(&self) {
        self.whole.set(Some(0));
    }

    /// Make the bytes and names of all files durable that were changed so far, if there are any.
    pub async fn sync_whole(&self) -> io::Result<()> {
        let changes = self.changes.get();
        if self.whole.get() == Some(changes) {
            return Ok(());
        }
        // An earlier run's files, and names: only the kernel knows which of them are not durable.
        if !mutant::is(Mutant::DropSync) {
            for folder in &self.folders {
                let synced = self.env.sync_all(folder).await;
                if !mutant::is(Mutant::SyncErrorIgnored) {
                    synced?;
                }
            }
        }
        // The kernel reports an earlier error to those that hold the file open.
        let changed = self.changed_open();
        for some in changed.chunks(LEAVING_MAX as usize) {
            let synced = some.iter().map(|(handle, file, state)| self.sync_as(*handle, file, *state));
            join_all(synced).await.into_iter().collect::<io::Result<()>>()?;
        }
        self.whole.set(self.whole.get().max(Some(changes)));
        Ok(())
    }

    /// Open files that no sync has covered since they were changed.
    fn changed_open(&self) -> Vec<(Handle, File, State)> {
        let (open, states) = (self.open.borrow(), self.states.borrow());
        let state = |handle: &Handle| states.peek(handle).copied().filter(|state| *state != State::Synced);
        open.iter().filter_map(|(handle, file)| Some((*handle, file.clone(), state(handle)?))).collect()
    }

    /// The folders, by number.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The name of the part of a folder that has the files of handles with this last byte.
    pub fn folder_name(last_byte: u8) -> String {
        format!("{last_byte:02x}")
    }

    /// Whether it is a name of such a part.
    pub fn is_folder(name: &str) -> bool {
        (0..=255).any(|byte| StreamFiles::folder_name(byte) == name)
    }

    /// The directory of a stream's file. A number that no folder has leads to a name that is not there.
    fn directory(&self, handle: Handle, folder: FolderNumber) -> PathBuf {
        let name = StreamFiles::folder_name(handle.0 as u8);
        let missing = || PathBuf::from(format!("stream-folder-{}", folder.0));
        self.folders.get(usize::from(folder.0)).cloned().unwrap_or_else(missing).join(name)
    }

    fn path(&self, handle: Handle, folder: FolderNumber) -> PathBuf {
        self.directory(handle, folder).join(format!("{:016x}", handle.0))
    }

    fn error(&self, what: &str, handle: Handle, folder: FolderNumber, error: &io::Error) -> StoreError {
        let path = self.path(handle, folder);
        StoreError::io(format!("{what} the file of stream {handle}, {}", path.display()), error)
    }

    /// The file of a stream that has one. A power cut may have removed one that no sync has covered: it is
    /// made again.
    pub async fn open(&self, handle: Handle, folder: FolderNumber, loose: bool) -> Result<File, StoreError> {
        if let Some(file) = self.open.borrow_mut().get(&handle) {
            // Its state is known for as long as it is open.
            self.states.borrow_mut().promote(&handle);
            return Ok(file.clone());
        }
        let options = OpenOptions { create: loose, ..OpenOptions::default() };
        let opened = self.env.open(self.path(handle, folder), options).await;
        let file = opened.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                let path = self.path(handle, folder);
                return StoreError::Damaged(format!(
                    "the file of stream {handle}, {}, is not there",
                    path.display()
                ));
            }
            self.error("opening", handle, folder, &error)
        })?;
        self.opened(handle, &file);
        Ok(file)
    }

    /// Whether the name of a stream's file leads nowhere. A descriptor that is open does not count: it ends
    /// with this process.
    pub async fn is_gone(&self, handle: Handle, folder: FolderNumber) -> Result<bool, StoreError> {
        match self.env.open(self.path(handle, folder), OpenOptions::default()).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(self.error("looking for", handle, folder, &error)),
        }
    }

    fn opened(&self, handle: Handle, file: &File) {
        let fell_out = self.open.borrow_mut().push(handle, file.clone());
        let Some((handle, file)) = fell_out.filter(|(other, _)| *other != handle) else { return };
        // Not read before this run changed it: so after a restart the kernel still has an error that was
        // reported to no descriptor.
        let Some(state) = self.states.borrow().peek(&handle).copied() else { return };
        if state != State::Synced {
            self.leaving.borrow_mut().push(Leaving { handle, file, state });
        }
    }

    /// A new, empty file; remains of a crash are cut away.
    pub async fn create(&self, handle: Handle, folder: FolderNumber) -> Result<File, StoreError> {
        let create = async {
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = self.env.open(self.path(handle, folder), options).await?;
            if file.len().await? > 0 {
                file.truncate(0).await?;
            }
            Ok(file)
        };
        let file = create.await.map_err(|error| self.error("making", handle, folder, &error))?;
        self.number(handle);
        self.opened(handle, &file);
        Ok(file)
    }

    /// Make the file's name durable.
    pub async fn sync_name(&self, handle: Handle, folder: FolderNumber) -> Result<(), StoreError> {
        let synced = self.env.sync_dir(self.directory(handle, folder)).await;
        synced.map_err(|error| self.error("making the name durable of", handle, folder, &error))
    }

    /// Remove the file; a missing one is no error.
    pub async fn remove(&self, handle: Handle, folder: FolderNumber) -> Result<(), StoreError> {
        self.open.borrow_mut().pop(&handle);
        self.states.borrow_mut().pop(&handle);
        match self.env.remove(self.path(handle, folder)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("removing", handle, folder, &error))
            }
            _ => Ok(()),
        }
    }

    /// Remove a file that is no stream's home, durably.
    pub async fn discard(&self, handle: Handle, folder: FolderNumber) -> Result<(), StoreError> {
        self.remove(handle, folder).await?;
        self.sync_name(handle, folder).await
    }

    /// Make the folders.
    pub async fn make_folders(env: &Env, dir: &Path) -> io::Result<()> {
        for byte in 0..=255 {
            env.create_dir(dir.join(StreamFiles::folder_name(byte))).await?;
        }
        env.sync_dir(dir).await
    }

    /// The first of the folders that is not there.
    pub async fn missing_folder(env: &Env, dir: &Path) -> Option<PathBuf> {
        let there: BTreeSet<String> = match env.list(dir.to_path_buf()).await {
            Ok(entries) => entries.into_iter().map(|entry| entry.name).collect(),
            Err(_) => return Some(dir.to_path_buf()),
        };
        (0..=255).map(StreamFiles::folder_name).find(|name| !there.contains(name)).map(|name| dir.join(name))
    }

    /// All files, with their lengths, of handles with this last byte in one folder.
    pub async fn list(&self, folder: FolderNumber, last_byte: u8) -> Result<Vec<(Handle, u64)>, StoreError> {
        let directory = self.directory(Handle(last_byte.into()), folder);
        let listed = self.env.list(&directory).await;
        let entries =
            listed.map_err(|error| StoreError::io(format!("listing {}", directory.display()), &error))?;
        let of_ours =
            |name: &str| u64::from_str_radix(name, 16).ok().filter(|_| name.len() == 16).map(Handle);
        Ok(entries.into_iter().filter_map(|entry| Some((of_ours(&entry.name)?, entry.len))).collect())
    }
}

impl CollectionState {
    /// See [`StreamFiles::sync_whole`]; evicted files are synced too.
    pub(crate) async fn sync_files(self: &Rc<Self>) -> Result<(), StoreError> {
        self.let_go().await;
        drop(self.files.leaving_turns.acquire(LEAVING_MAX).await);
        self.health()?;
        self.files.sync_whole().await.map_err(|error| {
            let error = StoreError::io("syncing all streams", &error);
            self.poison(&error);
            error
        })
    }

    /// The file of a stream that has one; see [`StreamFiles::open`].
    pub(crate) async fn file(self: &Rc<Self>, handle: Handle, row: &StreamRow) -> Result<File, StoreError> {
        let file = self.files.open(handle, row.folder, row.loose).await?;
        self.let_go().await;
        Ok(file)
    }

    /// See [`StreamFiles::create`].
    pub(crate) async fn new_file(
        self: &Rc<Self>,
        handle: Handle,
        folder: FolderNumber,
    ) -> Result<File, StoreError> {
        let file = self.files.create(handle, folder).await?;
        self.let_go().await;
        Ok(file)
    }

    /// Sync evicted files, in parallel to the next open; if too many are evicted, the open waits.
    async fn let_go(self: &Rc<Self>) {
        loop {
            let Some(Leaving { handle, file, state }) = self.files.leaving.borrow_mut().pop() else { return };
            let turn = self.files.leaving_turns.acquire(1).await;
            let collection = self.clone();
            self.env.spawn("store leaving", async move {
                let synced = collection.files.sync_as(handle, &file, state).await;
                if let Err(error) = synced {
                    collection.poison(&StoreError::io(format!("syncing stream {handle}"), &error));
                }
                drop(turn);
            });
        }
    }
}
