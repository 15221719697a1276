//! A handler's view: the rows and streams at one moment. It collects the keys that were not in memory, and
//! the changes that the handler's reply depends on.

use crate::{Collection, Follow, Loaded, Lookup, Lsn, Needs, RangeNeed, Scan, StoreError, StreamInfo};
use bytes::Bytes;
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};

/// A row is not in memory: return at once; the handler runs again when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss;

/// One run of a handler over a collection. Cheap to make; records missing keys and the newest change seen.
pub struct View<'a> {
    collection: &'a Collection,
    loaded: &'a Loaded,
    needs: RefCell<Needs>,
    depends_on: Cell<Lsn>,
    excuse: Option<&'a Excuse<'a>>,
    excused: Cell<Lsn>,
}

/// Of a change that was seen: whether the reply need not wait until it is durable, and what it depends on
/// instead.
pub type Excuse<'a> = dyn Fn(Lsn) -> Option<Lsn> + 'a;

impl<'a> View<'a> {
    /// A view over the present moment.
    pub fn new(collection: &'a Collection, loaded: &'a Loaded) -> View<'a> {
        View {
            collection,
            loaded,
            needs: RefCell::default(),
            depends_on: Cell::default(),
            excuse: None,
            excused: Cell::default(),
        }
    }

    /// The same; changes that `excuse` knows are excused.
    #[must_use]
    pub fn excusing(self, excuse: &'a Excuse<'a>) -> View<'a> {
        View { excuse: Some(excuse), ..self }
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

    /// The result of `of` on a row's value, read in place.
    pub fn row<T>(&self, key: &[u8], of: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Miss> {
        let (mut of, mut made) = (Some(of), None);
        let mut look = |value: &[u8]| made = of.take().map(|of| of(value));
        match self.collection.look(key, self.loaded, &mut look) {
            Some(lsn) => {
                self.depend(lsn);
                Ok(made)
            }
            None => {
                self.needs.borrow_mut().keys.push(Bytes::copy_from_slice(key));
                Err(Miss)
            }
        }
    }

    /// Rows with `prefix` after `after`, at most `limit`; see [`Scan`].
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Scan, Miss> {
        self.scan_following(prefix, after, limit, None)
    }

    /// The same; if they must be loaded, the rows they lead to are loaded with them.
    pub fn scan_following(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        follow: Option<&Follow>,
    ) -> Result<Scan, Miss> {
        if let Some(scan) = self.collection.scan(prefix, after, limit, self.loaded) {
            self.depend(scan.lsn);
            return Ok(scan);
        }
        let (prefix, after) = (Bytes::copy_from_slice(prefix), after.map(Bytes::copy_from_slice));
        self.needs.borrow_mut().ranges.push(RangeNeed { prefix, after, limit, follow: follow.cloned() });
        Err(Miss)
    }

    /// Facts of a stream.
    pub fn stream(&self, handle: Handle) -> Result<Option<StreamInfo>, Miss> {
        match self.collection.stream(handle, self.loaded) {
            Ok(Some((info, lsn))) => {
                self.depend(lsn);
                Ok(Some(info))
            }
            Ok(None) => {
                // Its removal may not be durable yet.
                if let Lookup::Absent(lsn) =
                    self.collection.lookup(&self.collection.stream_key(handle), self.loaded)
                {
                    self.depend(lsn);
                }
                Ok(None)
            }
            Err(()) => {
                self.needs.borrow_mut().keys.push(self.collection.stream_key(handle));
                Err(Miss)
            }
        }
    }

    /// Content of a small stream ([`StreamInfo::small`]); may be shorter than its size (the rest is zeros).
    pub fn small_content(&self, handle: Handle) -> Result<Bytes, Miss> {
        self.stream(handle)?;
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

    /// The newest change seen that is excused.
    pub fn excused(&self) -> Lsn {
        self.excused.get()
    }

    /// The missing rows and contents.
    pub fn into_needs(self) -> Needs {
        self.needs.into_inner()
    }

    fn depend(&self, lsn: Lsn) {
        let lsn = match self.excuse.and_then(|excuse| excuse(lsn)) {
            Some(instead) => {
                self.excused.set(self.excused.get().max(lsn));
                instead
            }
            None => lsn,
        };
        if lsn > self.depends_on.get() {
            self.depends_on.set(lsn);
        }
    }
}

/// Run a handler until it misses nothing, loading missing rows in between. Returns its value with the
/// newest change it saw.
///
/// # Errors
///
/// When loading fails.
pub async fn look<T>(
    collection: &Collection,
    handler: impl Fn(&View<'_>) -> Result<T, Miss>,
) -> Result<(T, Lsn), StoreError> {
    let mut loaded = Loaded::default();
    loop {
        let view = View::new(collection, &loaded);
        match handler(&view) {
            Ok(value) => return Ok((value, view.depends_on())),
            Err(Miss) => {
                let needs = view.into_needs();
                loaded = collection.load(needs, loaded).await?;
            }
        }
    }
}

/// Wait until everything applied so far is durable, in every mode.
///
/// # Errors
///
/// When the store is poisoned first.
pub async fn settle(collection: &Collection) -> Result<(), StoreError> {
    let all = collection.applied();
    collection.push_durable();
    loop {
        collection.health()?;
        if collection.durable() >= all {
            return Ok(());
        }
        collection.durables().wait(all.0).await;
    }
}
