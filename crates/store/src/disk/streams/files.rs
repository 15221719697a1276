//! The local files of large streams: `streams/xx/hhhhhhhhhhhhhhhh`, named by the handle, in the folder of its last byte.

use crate::StoreError;
use lru::LruCache;
use shoal_env::{Env, File, OpenOptions};
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub(crate) struct StreamFiles {
    env: Env,
    dir: PathBuf,
    open: RefCell<LruCache<Handle, File>>,
    /// Of the files changed or synced lately; of others it is not known.
    states: RefCell<LruCache<Handle, State>>,
    changes: Cell<u64>,
}

/// What a sync would do for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Changed; each change has a number of its own.
    Changed(u64),
    /// A sync has covered everything.
    Synced,
}

/// States kept for each file that may be open.
const STATES_PER_FILE: usize = 8;

/// The folder of a handle's file.
fn folder(handle: Handle) -> String {
    format!("{:02x}", handle.0 & 0xff)
}

impl StreamFiles {
    pub fn new(env: Env, dir: PathBuf, open_max: usize) -> StreamFiles {
        let open_max = NonZeroUsize::new(open_max).unwrap_or(NonZeroUsize::MIN);
        let states_max = open_max.saturating_mul(NonZeroUsize::MIN.saturating_add(STATES_PER_FILE - 1));
        StreamFiles {
            env,
            dir,
            open: RefCell::new(LruCache::new(open_max)),
            states: RefCell::new(LruCache::new(states_max)),
            changes: Cell::new(0),
        }
    }

    /// The file was changed: to be called before the change is answered.
    pub fn changed(&self, handle: Handle) {
        self.number(handle);
    }

    fn number(&self, handle: Handle) -> State {
        self.changes.set(self.changes.get() + 1);
        let state = State::Changed(self.changes.get());
        self.states.borrow_mut().put(handle, state);
        state
    }

    /// Make the file's bytes durable, if a sync has anything to do. Whether it had.
    pub async fn sync(&self, handle: Handle, file: &File) -> io::Result<bool> {
        let known = self.states.borrow_mut().get(&handle).copied();
        let before = match known {
            Some(State::Synced) => return Ok(false),
            Some(changed) => changed,
            None => self.number(handle),
        };
        file.sync().await?;
        let mut states = self.states.borrow_mut();
        // What was changed meanwhile may be covered or not.
        if states.peek(&handle) == Some(&before) {
            states.put(handle, State::Synced);
        }
        Ok(true)
    }

    pub fn path(&self, handle: Handle) -> PathBuf {
        self.dir.join(folder(handle)).join(format!("{:016x}", handle.0))
    }

    fn error(&self, what: &str, handle: Handle, error: &io::Error) -> StoreError {
        StoreError::io(format!("{what} the file of stream {handle}, {}", self.path(handle).display()), error)
    }

    /// The file of a stream that has one. One that no sync has covered may be gone by a power cut: it is made again.
    pub async fn open(&self, handle: Handle, loose: bool) -> Result<File, StoreError> {
        if let Some(file) = self.open.borrow_mut().get(&handle) {
            return Ok(file.clone());
        }
        let options = OpenOptions { create: loose, ..OpenOptions::default() };
        let opened = self.env.open(self.path(handle), options).await;
        let file = opened.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                let path = self.path(handle);
                return StoreError::Damaged(format!(
                    "the file of stream {handle}, {}, is not there",
                    path.display()
                ));
            }
            self.error("opening", handle, &error)
        })?;
        self.open.borrow_mut().put(handle, file.clone());
        Ok(file)
    }

    /// A new, empty file; what may stand there from before a crash is cut away.
    pub async fn create(&self, handle: Handle) -> Result<File, StoreError> {
        let create = async {
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = self.env.open(self.path(handle), options).await?;
            if file.len().await? > 0 {
                file.truncate(0).await?;
            }
            Ok(file)
        };
        let file = create.await.map_err(|error| self.error("making", handle, &error))?;
        self.changed(handle);
        self.open.borrow_mut().put(handle, file.clone());
        Ok(file)
    }

    /// Make the file's name durable.
    pub async fn sync_name(&self, handle: Handle) -> Result<(), StoreError> {
        let synced = self.env.sync_dir(self.dir.join(folder(handle))).await;
        synced.map_err(|error| self.error("making the name durable of", handle, &error))
    }

    /// Remove the file; that it is not there is no error.
    pub async fn remove(&self, handle: Handle) -> Result<(), StoreError> {
        self.open.borrow_mut().pop(&handle);
        self.states.borrow_mut().pop(&handle);
        match self.env.remove(self.path(handle)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error("removing", handle, &error))
            }
            _ => Ok(()),
        }
    }

    /// Make the folders.
    pub async fn make_folders(env: &Env, dir: &Path) -> io::Result<()> {
        for byte in 0..=255_u64 {
            env.create_dir(dir.join(folder(Handle(byte)))).await?;
        }
        env.sync_dir(dir).await
    }

    /// All files there are, with their lengths, folder by folder.
    pub async fn list(&self, folder_of: u8) -> Result<Vec<(Handle, u64)>, StoreError> {
        let name = folder(Handle(folder_of.into()));
        let listed = self.env.list(self.dir.join(&name)).await;
        let entries = listed.map_err(|error| StoreError::io(format!("listing streams/{name}"), &error))?;
        let of_ours =
            |name: &str| u64::from_str_radix(name, 16).ok().filter(|_| name.len() == 16).map(Handle);
        Ok(entries.into_iter().filter_map(|entry| Some((of_ours(&entry.name)?, entry.len))).collect())
    }
}
