//! What a handler sees: rows and streams at one moment, with what it missed and what its reply will depend on.

use crate::{Collection, Loaded, Lookup, Lsn, Needs, Scan, StreamInfo};
use bytes::Bytes;
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};

/// Something is not in memory: return at once; the handler runs again when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss;

/// One run of a handler over a collection. Cheap to make; records what was missed and the newest change seen.
pub struct View<'a> {
    collection: &'a Collection,
    loaded: &'a Loaded,
    needs: RefCell<Needs>,
    depends_on: Cell<Lsn>,
}

impl<'a> View<'a> {
    /// A view over the present moment.
    pub fn new(collection: &'a Collection, loaded: &'a Loaded) -> View<'a> {
        View { collection, loaded, needs: RefCell::default(), depends_on: Cell::default() }
    }

    /// A row's value.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Miss> {
        match self.collection.lookup(key, self.loaded) {
            Lookup::Found(row) => {
                self.depend(row.lsn);
                Ok(Some(row.value))
            }
            Lookup::Absent(lsn) => {
                self.depend(lsn);
                Ok(None)
            }
            Lookup::Unknown => {
                self.needs.borrow_mut().keys.push(Bytes::copy_from_slice(key));
                Err(Miss)
            }
        }
    }

    /// Rows with `prefix` after `after`, at most `limit`; see [`Scan`].
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Scan, Miss> {
        if let Some(scan) = self.collection.scan(prefix, after, limit, self.loaded) {
            self.depend(scan.lsn);
            return Ok(scan);
        }
        let range = (Bytes::copy_from_slice(prefix), after.map(Bytes::copy_from_slice), limit);
        self.needs.borrow_mut().ranges.push(range);
        Err(Miss)
    }

    /// Facts of a stream.
    pub fn stream(&self, handle: Handle) -> Result<Option<StreamInfo>, Miss> {
        match self.collection.stream(handle, self.loaded) {
            Ok(Some((info, lsn))) => {
                self.depend(lsn);
                Ok(Some(info))
            }
            Ok(None) => Ok(None),
            Err(()) => {
                self.needs.borrow_mut().keys.push(self.collection.stream_key(handle));
                Err(Miss)
            }
        }
    }

    /// Content of a small stream ([`StreamInfo::small`]); may be shorter than its size (the rest is zeros).
    pub fn small_content(&self, handle: Handle) -> Result<Bytes, Miss> {
        match self.collection.small_content(handle, self.loaded) {
            Some(content) => Ok(content),
            None => {
                self.needs.borrow_mut().contents.push(handle);
                Err(Miss)
            }
        }
    }

    /// The newest change seen that may not be durable yet: the reply waits for it.
    pub fn depends_on(&self) -> Lsn {
        self.depends_on.get()
    }

    /// What was missed.
    pub fn into_needs(self) -> Needs {
        self.needs.into_inner()
    }

    fn depend(&self, lsn: Lsn) {
        if lsn > self.depends_on.get() {
            self.depends_on.set(lsn);
        }
    }
}
