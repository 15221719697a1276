//! `gfs_init`: makes the state of one application, with its open files, its open forks and its last error.

use crate::{Errno, FILES_MAX, FORKS_MAX, FileId, ForkId, Result};
use shoal_env::Env;
use shoal_proto::{Handle, Name, Owner, Status};
use shoal_vfs::{Error, Vfs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Galley's calls on one file system. Clones share everything, so that tasks of one application use the same
/// ids.
pub struct Galley<V: Vfs>(pub(crate) Rc<State<V>>);

impl<V: Vfs> Clone for Galley<V> {
    fn clone(&self) -> Galley<V> {
        Galley(self.0.clone())
    }
}

pub(crate) struct State<V: Vfs> {
    pub env: Env,
    pub vfs: V,
    files: RefCell<Table<Rc<OpenedFile>>>,
    forks: RefCell<Table<Rc<OpenedFork<V>>>>,
    last: RefCell<Option<(Errno, String)>>,
    /// That one failed because a server did not answer in time.
    is_late: Cell<bool>,
}

/// An open file: its name, its subfiles, in order, and the owner of its forks.
pub(crate) struct OpenedFile {
    pub name: String,
    pub subfiles: Vec<Handle>,
    pub owner: Owner,
}

/// An open fork.
pub(crate) struct OpenedFork<V: Vfs> {
    pub file: V::File,
    /// For the words of errors.
    pub name: String,
}

/// A path as errors show it.
pub(crate) fn quoted(path: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(path))
}

/// The next ids of files and forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NextIds {
    /// Of a file.
    pub file: u32,
    /// Of a fork.
    pub fork: u32,
}

/// Ids, each given once: one that is closed stays unknown.
struct Table<T> {
    used: BTreeMap<u32, T>,
    next: u32,
    most: usize,
}

impl<T: Clone> Table<T> {
    fn put(&mut self, value: T) -> Result<u32> {
        if self.used.len() >= self.most {
            return Err(Errno::TooManyOpen);
        }
        // After 2^31 opens the ids end; C knows no larger ones.
        let id = self.next;
        self.next = id.checked_add(1).filter(|next| *next <= i32::MAX as u32).ok_or(Errno::TooManyOpen)?;
        self.used.insert(id, value);
        Ok(id)
    }

    fn get(&self, id: u32) -> Result<T> {
        self.used.get(&id).cloned().ok_or(Errno::BadFile)
    }

    fn take(&mut self, id: u32) -> Result<T> {
        self.used.remove(&id).ok_or(Errno::BadFile)
    }
}

impl<V: Vfs> Galley<V> {
    /// Begin, over a file system that is connected. Galley's list of I/O processors is the map of the file
    /// system.
    pub fn gfs_init(env: Env, vfs: V) -> Galley<V> {
        Galley::gfs_init_after(env, vfs, NextIds::default())
    }

    /// The same after another of one application: no id of that one is given again.
    pub fn gfs_init_after(env: Env, vfs: V, next: NextIds) -> Galley<V> {
        Galley(Rc::new(State {
            env,
            vfs,
            files: RefCell::new(Table { used: BTreeMap::new(), next: next.file, most: FILES_MAX }),
            forks: RefCell::new(Table { used: BTreeMap::new(), next: next.fork, most: FORKS_MAX }),
            last: RefCell::default(),
            is_late: Cell::default(),
        }))
    }

    /// The ids that would be given next.
    pub fn next_ids(&self) -> NextIds {
        NextIds { file: self.0.files.borrow().next, fork: self.0.forks.borrow().next }
    }

    /// The file system.
    pub fn vfs(&self) -> &V {
        &self.0.vfs
    }

    /// The code of the last call that failed, and its words.
    pub fn gfs_errno(&self) -> Option<(Errno, String)> {
        self.0.last.borrow().clone()
    }

    /// Whether that call failed because a server did not answer in time.
    pub fn is_late(&self) -> bool {
        self.0.is_late.get()
    }

    /// Keep the error of a call.
    pub(crate) fn kept<T>(&self, done: std::result::Result<T, Error>) -> Result<T> {
        done.map_err(|error| self.failed(error.status, error.to_string()))
    }

    /// The same of an object that the caller knows by a name.
    pub(crate) fn kept_of<T>(
        &self,
        name: impl FnOnce() -> String,
        done: std::result::Result<T, Error>,
    ) -> Result<T> {
        done.map_err(|error| self.failed(error.status, error.named(name())))
    }

    fn failed(&self, status: Status, words: String) -> Errno {
        let code = self.fail(Errno::of(status), words);
        self.0.is_late.set(status == Status::TimedOut);
        code
    }

    pub(crate) fn fail(&self, code: Errno, words: impl Into<String>) -> Errno {
        self.0.is_late.set(false);
        self.0.last.replace(Some((code, words.into())));
        code
    }

    pub(crate) fn keep_file(&self, file: OpenedFile) -> Result<FileId> {
        let put = self.0.files.borrow_mut().put(Rc::new(file));
        put.map(FileId).map_err(|code| self.fail(code, format!("{FILES_MAX} files are open: close some")))
    }

    pub(crate) fn file(&self, id: FileId) -> Result<Rc<OpenedFile>> {
        let found = self.0.files.borrow().get(id.0);
        found.map_err(|code| self.fail(code, format!("file {} is not open", id.0)))
    }

    pub(crate) fn open_files(&self) -> Vec<Rc<OpenedFile>> {
        self.0.files.borrow().used.values().cloned().collect()
    }

    pub(crate) fn open_forks(&self) -> Vec<Rc<OpenedFork<V>>> {
        self.0.forks.borrow().used.values().cloned().collect()
    }

    pub(crate) fn drop_file(&self, id: FileId) -> Result<()> {
        let taken = self.0.files.borrow_mut().take(id.0);
        taken.map(drop).map_err(|code| self.fail(code, format!("file {} is not open", id.0)))
    }

    /// The directory of a subfile of an open file.
    pub(crate) fn subfile(&self, id: FileId, subfile: u32) -> Result<Handle> {
        let file = self.file(id)?;
        file.subfiles.get(subfile as usize).copied().ok_or_else(|| {
            let (name, count) = (&file.name, file.subfiles.len());
            self.fail(Errno::Invalid, format!("there is no subfile {subfile}: the file {name} has {count}"))
        })
    }

    /// A fork of an open file, as errors call it.
    pub(crate) fn name_of_fork(&self, fid: FileId, subfile: u32, name: &Name) -> String {
        let file = self.file(fid).map_or_else(|_| "a closed file".to_owned(), |file| file.name.clone());
        format!("the fork {} of subfile {subfile} of {file}", quoted(name.as_bytes()))
    }

    /// All of these forks, or none.
    pub(crate) fn keep_forks(
        &self,
        files: Vec<V::File>,
        name: impl Fn(usize) -> String,
    ) -> Result<Vec<ForkId>> {
        let mut ids = Vec::with_capacity(files.len());
        for (at, file) in files.into_iter().enumerate() {
            match self.keep_fork(file, name(at)) {
                Ok(id) => ids.push(id),
                Err(code) => {
                    ids.into_iter().for_each(|id| drop(self.drop_fork(id)));
                    return Err(code);
                }
            }
        }
        Ok(ids)
    }

    pub(crate) fn keep_fork(&self, file: V::File, name: String) -> Result<ForkId> {
        let fork = Rc::new(OpenedFork { file, name });
        let put = self.0.forks.borrow_mut().put(fork);
        put.map(ForkId).map_err(|code| self.fail(code, format!("{FORKS_MAX} forks are open: close some")))
    }

    pub(crate) fn fork(&self, id: ForkId) -> Result<Rc<OpenedFork<V>>> {
        let found = self.0.forks.borrow().get(id.0);
        found.map_err(|code| self.fail(code, format!("fork {} is not open", id.0)))
    }

    pub(crate) fn drop_fork(&self, id: ForkId) -> Result<Rc<OpenedFork<V>>> {
        let taken = self.0.forks.borrow_mut().take(id.0);
        taken.map_err(|code| self.fail(code, format!("fork {} is not open", id.0)))
    }

    /// The name of a fork.
    pub(crate) fn name(&self, name: &[u8]) -> Result<Name> {
        Name::new(name).map_err(|status| {
            let words = format!("`{}` is no name of a fork", String::from_utf8_lossy(name));
            self.fail(Errno::of(status), words)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_closed_is_never_given_again() {
        let mut table = Table { used: BTreeMap::new(), next: 0, most: 2 };
        let (first, second) = (table.put('a').unwrap(), table.put('b').unwrap());
        assert_eq!(table.put('c'), Err(Errno::TooManyOpen));
        assert_eq!(table.take(first), Ok('a'));
        let third = table.put('c').unwrap();
        assert!(third != first && third != second);
        assert_eq!(table.get(first), Err(Errno::BadFile));
        assert_eq!(table.take(first), Err(Errno::BadFile));
        table.next = i32::MAX as u32;
        table.take(second).unwrap();
        assert_eq!(table.put('d'), Err(Errno::TooManyOpen), "the ids have ended");
    }
}
