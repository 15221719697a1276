//! Listings: pages of keys of the store, in the order of the keys.
//!
//! A place is 3 and the number of entries before. A page is one request; a name's object is another, and
//! those of the next names are got together. [`ObjectListing::next_name`] needs only those that are so short
//! that a name may be removed there, or damaged. Within this page and the one before it, a listing continues
//! after a name, whatever was made and removed; further back it counts anew.
//!
//! An object of a name that is damaged is an entry of which nothing is known but its name: it hides no other
//! one (test: `a_damaged_name_is_named_and_all_other_files_work`).

use crate::AT_ONCE;
use crate::format::{ENDED_BYTES, Id, Place};
use crate::nodes::HANDLE_MIN;
use crate::vfs::Objects;
use crate::{PAGE_KEYS, format::Named};
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_env::Instant;
use shoal_proto::{Entry, Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listed, Listing, Result};
use std::collections::VecDeque;

/// Entries whose objects are got together.
const AHEAD: usize = 64;
const FIRST_PLACE: u64 = 3;

/// The object of a name, as it was found.
#[derive(Clone)]
enum Object {
    Gone,
    There(Box<Named>, Asked),
    Damaged(Asked),
}

/// When an object was asked for: the time, and [`Nodes::moment`](crate::nodes::Nodes::moment).
#[derive(Clone, Copy)]
struct Asked(Instant, u64);

/// Names of a listing, as one request found them.
#[derive(Clone, Default)]
struct Page {
    /// The number of its first entry.
    first: usize,
    names: Vec<Name>,
    /// The key after which the next page begins; `None`: there is none.
    next: Option<String>,
}

impl Page {
    fn end(&self) -> usize {
        self.first + self.names.len()
    }
}

/// See the module.
pub struct ObjectListing {
    objects: Objects,
    dir: Handle,
    /// The number of the next entry.
    at: usize,
    page: Option<Page>,
    before: Option<Page>,
    /// Of each page so far, its number and the key after which it begins.
    starts: Vec<(usize, Option<String>)>,
    /// Objects of the next names, from number `ready_from` on.
    ready: VecDeque<Object>,
    ready_from: usize,
}

impl ObjectListing {
    pub(crate) fn new(objects: &Objects, dir: Handle) -> ObjectListing {
        ObjectListing {
            objects: objects.clone(),
            dir,
            at: 0,
            page: None,
            before: None,
            starts: vec![(0, None)],
            ready: VecDeque::new(),
            ready_from: 0,
        }
    }

    /// The name of the next entry, without its object. An entry whose move or removal is under way may come
    /// too.
    pub(crate) async fn next_name(&mut self) -> Result<Option<Name>> {
        let name = self.here().await?;
        self.at += usize::from(name.is_some());
        Ok(name)
    }

    /// The directory. One that another process removed is gone.
    async fn directory(&self) -> Result<Id> {
        let (op, shared) = ("readdir", &self.objects.0);
        let id = shared.directory(op, self.dir)?;
        let place = shared.place_of(op, self.dir)?;
        match shared.find(op, place.as_ref()).await? {
            Some((named, _)) if named.id == id => Ok(id),
            _ => Err(Error::new(Status::Stale, op).of(self.dir)),
        }
    }

    async fn fetch(&self, id: Id, first: usize, after: Option<String>) -> Result<Page> {
        let shared = &self.objects.0;
        let prefix = shared.keys.directory(id);
        let keys = shared.calls.list("readdir", &prefix, after.as_deref(), PAGE_KEYS).await?;
        let found = keys.found.iter();
        let found = found.filter_map(|meta| Some((shared.keys.name_of(id, &meta.key)?, meta.size)));
        let looked = found.map(async |(name, size): (Name, u64)| {
            let place = Place { dir: id, name };
            let is_name = size > ENDED_BYTES || !matches!(self.look(&place).await?, Object::Gone);
            Ok::<_, Error>(is_name.then_some(place.name))
        });
        let names: Vec<Option<Name>> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
        let last = keys.found.last().map(|meta| meta.key.clone());
        let names = names.into_iter().flatten().collect();
        Ok(Page { first, names, next: last.filter(|_| keys.has_more) })
    }

    /// The name at the place, fetched if need be; `None` at the end.
    async fn here(&mut self) -> Result<Option<Name>> {
        loop {
            if let Some(page) = &self.page
                && (page.first..page.end()).contains(&self.at)
            {
                return Ok(Some(page.names[self.at - page.first].clone()));
            }
            let (first, after) = match &self.page {
                Some(page) if self.at >= page.end() => match &page.next {
                    None => return Ok(None),
                    Some(next) => (page.end(), Some(next.clone())),
                },
                _ => self
                    .starts
                    .iter()
                    .rev()
                    .find(|(first, _)| *first <= self.at)
                    .cloned()
                    .unwrap_or((0, None)),
            };
            let id = self.directory().await?;
            let page = self.fetch(id, first, after.clone()).await?;
            if self.starts.last().is_some_and(|(last, _)| *last < first) {
                self.starts.push((first, after));
            }
            self.before = self.page.replace(page);
        }
    }

    /// A number for an object whose id cannot be read. One that is also an object's handle, of 63 bits that
    /// were drawn, makes no difference: nothing is looked up by it but attributes.
    fn unknown(&self, place: &Place) -> Handle {
        let sum = crc32c::crc32c(self.objects.0.keys.name(place).as_bytes());
        Handle(HANDLE_MIN + u64::from(sum))
    }

    /// Get the object of a name.
    async fn look(&self, place: &Place) -> Result<Object> {
        let shared = &self.objects.0;
        let asked = Asked(shared.env.now(), shared.moment());
        match shared.find("readdir", Some(place)).await {
            Ok(Some((named, _))) => Ok(Object::There(Box::new(named), asked)),
            Ok(None) => Ok(Object::Gone),
            Err(error) if error.status == Status::Io => {
                tracing::warn!("an entry of a directory is listed without its attributes: {error}");
                Ok(Object::Damaged(asked))
            }
            Err(error) => Err(error),
        }
    }

    /// Get the objects of the next names.
    async fn get_ahead(&mut self) -> Result<()> {
        let Some(page) = &self.page else { return Ok(()) };
        let dir = self.objects.0.directory("readdir", self.dir)?;
        let names = page.names[self.at - page.first..].iter().take(AHEAD).cloned();
        let got = names.map(async |name: Name| self.look(&Place { dir, name }).await);
        let ready = stream::iter(got).buffered(AT_ONCE).try_collect().await?;
        (self.ready, self.ready_from) = (ready, self.at);
        Ok(())
    }
}

impl Listing for ObjectListing {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        loop {
            let Some(name) = self.here().await? else { return Ok(None) };
            if !(self.ready_from..self.ready_from + self.ready.len()).contains(&self.at) {
                self.get_ahead().await?;
            }
            let mut found = self.ready.get(self.at - self.ready_from).cloned().unwrap_or(Object::Gone);
            self.at += 1;
            let number = FIRST_PLACE + self.at as u64 - 1;
            let shared = &self.objects.0;
            let place = Place { dir: shared.directory("readdir", self.dir)?, name };
            if let Object::There(named, Asked(_, moment)) = &found
                && shared.nodes.borrow().is_newer(named.id, *moment)
            {
                // It has another name since, or none; another object may have this one.
                found = self.look(&place).await?;
            }
            let (named, Asked(asked_at, moment)) = match found {
                Object::There(named, asked) => (named, asked),
                Object::Damaged(Asked(asked_at, _)) => {
                    let (handle, kind) = (self.unknown(&place), Kind::File);
                    let entry = Entry { name: place.name, handle, kind, place: number, attr: None };
                    return Ok(Some(Listed { entry, asked_at, is_unknown: true }));
                }
                Object::Gone => continue,
            };
            let handle = shared.nodes.borrow_mut().saw(&named, Some(&place), moment);
            let attr = match plus {
                true => shared.seen("readdir", &named, Some(&place), moment).await.ok(),
                false => None,
            };
            let is_unknown = plus && attr.is_none();
            let entry = Entry { name: place.name, handle, kind: named.kind, place: number, attr };
            return Ok(Some(Listed { entry, asked_at, is_unknown }));
        }
    }

    fn seek(&mut self, place: u64) {
        self.at = place.saturating_sub(FIRST_PLACE - 1) as usize;
        self.ready.clear();
        let has = |page: &Option<Page>| {
            page.as_ref().is_some_and(|page| (page.first..=page.end()).contains(&self.at))
        };
        if has(&self.page) {
            return;
        }
        self.page = if has(&self.before) { self.before.take() } else { None };
    }
}
