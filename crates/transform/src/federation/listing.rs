//! Listings: the listings of all backends, merged.
//!
//! The names of a directory are gathered at the first entry, and ordered by their hash: an entry's place is
//! its hash, the same in all listings, whatever other entries come and go. A listing of an item (a
//! container) is the listing of its backend.

use super::Federated;
use super::handles::{Object, Shape};
use super::text;
use shoal_env::Instant;
use shoal_proto::{Attr, Entry, Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listed, Listing, Result, Vfs};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Entries of a directory, at most: they are in memory while it is listed.
const ENTRIES_MAX: usize = 1 << 23;
/// Places below are a mount's own.
const PLACES_FROM: u64 = 3;

/// A listing of [`Federated`].
pub struct FederatedListing<V: Vfs> {
    federated: Federated<V>,
    dir: Handle,
    patience: Duration,
    kind: Listings<V>,
}

enum Listings<V: Vfs> {
    /// Of an object of one backend.
    Inner(Object, V::Listing),
    /// Entries after this place are to come.
    Merged {
        all: Option<Gathered>,
        at: u64,
        last: Option<Vec<u8>>,
    },
    Refused(Error),
}

/// By place and name.
type Gathered = BTreeMap<(u64, Vec<u8>), (Name, Known)>;

/// An entry that was listed.
#[derive(Clone)]
struct Known {
    backend: usize,
    shape: Shape,
    attr: Option<Attr>,
    kind: Kind,
    handle: Handle,
    asked_at: Instant,
}

fn place_of(name: &Name) -> u64 {
    (text::hash(name.as_bytes()) >> 2).max(PLACES_FROM)
}

impl<V: Vfs> FederatedListing<V> {
    pub(super) fn new(federated: &Federated<V>, dir: Handle, patience: Duration) -> FederatedListing<V> {
        let kind = match federated.object(dir, "readdir") {
            Err(error) => Listings::Refused(error),
            Ok(object) if object.shape == Shape::Directory => {
                Listings::Merged { all: None, at: 0, last: None }
            }
            Ok(object) => {
                let listing = federated.on(object.backend).opendir(object.handle, patience);
                Listings::Inner(object, listing)
            }
        };
        FederatedListing { federated: federated.clone(), dir, patience, kind }
    }

    /// All entries of the directory, on all backends.
    async fn gather(&self) -> Result<Gathered> {
        let (federated, mut all) = (&self.federated, Gathered::new());
        federated.check_lists("readdir").await?;
        let mut parts = vec![(0, self.dir)];
        parts.extend(federated.folders(self.dir).await?);
        for (backend, folder) in parts {
            let mut listing = federated.on(backend).opendir(folder, self.patience);
            loop {
                let listed = match listing.next(true).await {
                    // The folder was empty, and was removed meanwhile.
                    Err(error) if error.status == Status::Stale && backend != 0 => {
                        federated.forget(self.dir);
                        break;
                    }
                    listed => listed.map_err(|error| federated.said(backend, error))?,
                };
                let Some(Listed { entry, asked_at, .. }) = listed else { break };
                if federated.is_own(self.dir, &entry.name) {
                    continue;
                }
                let Some(known) = self.known(backend, &entry, asked_at).await? else { continue };
                let key = (place_of(&entry.name), entry.name.as_bytes().to_vec());
                all.entry(key).or_insert((entry.name, known));
                if all.len() > ENTRIES_MAX {
                    let words = format!("it has more than {ENTRIES_MAX} entries");
                    return Err(Error::new(Status::OverLimit, "readdir").of(self.dir).because(words));
                }
            }
        }
        Ok(all)
    }

    /// An entry of a backend as it is seen; `None`: it is none.
    async fn known(&self, backend: usize, entry: &Entry, asked_at: Instant) -> Result<Option<Known>> {
        let federated = &self.federated;
        let Some(attr) = &entry.attr else {
            // It cannot be looked at: what it is is for a look-up.
            let Entry { handle, kind, .. } = *entry;
            return Ok(Some(Known { backend, shape: Shape::Plain, attr: None, kind, handle, asked_at }));
        };
        let shape = match attr.kind {
            Kind::Directory => federated.shape(backend, self.dir, attr).await?,
            _ => Some(Shape::Plain),
        };
        let Some(shape) = shape else { return Ok(None) };
        let (mut object, mut attr) = (Object { backend, handle: attr.handle, shape }, attr.clone());
        if let Some(target) = federated.read_link(backend, &attr).await? {
            match federated.follow(target, false).await? {
                Some(linked) => (object, attr) = (linked.object, linked.attr),
                None => return Ok(None),
            }
        }
        let (kind, handle, shape) = (attr.kind, object.handle, object.shape);
        Ok(Some(Known { backend: object.backend, shape, attr: Some(attr), kind, handle, asked_at }))
    }
}

/// The next of the gathered entries.
async fn next_known<V: Vfs>(
    federated: &Federated<V>,
    (name, place): (Name, u64),
    known: Known,
    plus: bool,
) -> Result<Option<Listed>> {
    let Known { backend, shape, attr, kind, handle, asked_at } = known;
    let object = Object { backend, handle, shape };
    let is_unknown = plus && attr.is_none();
    let attr = match attr.filter(|_| plus) {
        Some(attr) => match federated.seen(object, attr).await {
            Err(error) if error.status == Status::Stale => return Ok(None),
            seen => Some(seen?),
        },
        None => None,
    };
    let entry = Entry { name, handle: object.handle()?, kind, place, attr };
    Ok(Some(Listed { entry, asked_at, is_unknown }))
}

impl<V: Vfs> Listing for FederatedListing<V> {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        if let Listings::Inner(object, listing) = &mut self.kind {
            let object = *object;
            return Box::pin(next_inner(&self.federated, object, listing, plus)).await;
        }
        if matches!(self.kind, Listings::Merged { all: None, .. }) {
            let gathered = Box::pin(self.federated.fresh(&[self.dir], async || self.gather().await)).await?;
            if let Listings::Merged { all, .. } = &mut self.kind {
                *all = Some(gathered);
            }
        }
        loop {
            let (all, at, last) = match &mut self.kind {
                Listings::Merged { all: Some(all), at, last } => (all, at, last),
                Listings::Refused(error) => return Err(error.clone()),
                _ => return Ok(None),
            };
            let from = match last {
                Some(last) => Bound::Excluded((*at, last.clone())),
                None => Bound::Included((at.saturating_add(1), Vec::new())),
            };
            let Some((key, (name, known))) = all.range((from, Bound::Unbounded)).next() else {
                return Ok(None);
            };
            let (place, name, known) = (key.0, name.clone(), known.clone());
            (*at, *last) = (place, Some(name.as_bytes().to_vec()));
            if let Some(listed) = next_known(&self.federated, (name, place), known, plus).await? {
                return Ok(Some(listed));
            }
        }
    }

    fn seek(&mut self, place: u64) {
        match &mut self.kind {
            Listings::Inner(_, listing) => listing.seek(place),
            Listings::Merged { at, last, .. } => (*at, *last) = (place, None),
            Listings::Refused(_) => {}
        }
    }
}

async fn next_inner<V: Vfs>(
    federated: &Federated<V>,
    object: Object,
    listing: &mut V::Listing,
    plus: bool,
) -> Result<Option<Listed>> {
    let listed = listing.next(plus).await.map_err(|error| federated.said(object.backend, error))?;
    let Some(mut listed) = listed else { return Ok(None) };
    let entry = &mut listed.entry;
    let mut inner = Object { backend: object.backend, handle: entry.handle, shape: Shape::Plain };
    if entry.kind == Kind::File
        && object.shape == Shape::Item
        && crate::container::is_folder_name(&entry.name)
    {
        let attr = match entry.attr.take() {
            Some(attr) => attr,
            None => federated.on(object.backend).getattr(entry.handle).await?,
        };
        let (found, attr) = match federated.inner(object, &entry.name, attr.clone()).await? {
            Some(found) => found,
            // A removal that was killed left it.
            None => (inner, attr),
        };
        (inner, entry.kind, entry.attr) = (found, attr.kind, plus.then_some(attr));
    }
    entry.handle = inner.handle()?;
    if let Some(attr) = &mut entry.attr {
        attr.handle = entry.handle;
    }
    Ok(Some(listed))
}
