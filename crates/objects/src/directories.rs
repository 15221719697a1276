//! Removal of directories, also while other processes make entries in them, or move them.
//!
//! ```text
//!   the process that removes it        the one that makes an entry
//!   put "ended" at its name            put the entry
//!   list its entries                   get its name: is it there?
//! ```
//!
//! So one of them sees the other: the removal is taken back, or the entry. The name is the one by which this
//! process knows the directory. Another process may have moved it since: so a move of a directory also puts
//! its new name as `m/ID`, which a process asks where the name that it knows does not lead there, until it
//! says the same name twice. It is a hint: a process that is misled by it takes its entry back, and its
//! caller looks the directory up again.
//!
//! An entry that is taken back may be a directory, in which another process made an entry meanwhile. So that
//! is a removal as any other: list after "ended", and put the name again if there is an entry.

use crate::PAGE_KEYS;
use crate::calls::Put;
use crate::format::{self, Id, Named, Place};
use crate::name_space::{At, LEASE, PATIENCE};
use crate::store::{Tag, When};
use crate::vfs::Shared;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::Instant;
use shoal_proto::{Handle, Kind, Name, Status};
use shoal_vfs::{Error, Result};
use std::collections::HashSet;

/// Bytes of a key, at most.
const KEY_BYTES_MAX: u64 = 2048;

/// An object of a name that was removed from a directory.
pub(crate) struct Leftover {
    place: Place,
    tag: Tag,
    /// The file that lost it.
    gone: Option<Id>,
}

/// The result of taking the name of a directory.
pub(crate) enum Ended {
    /// It is taken. These objects are left in the directory.
    Done(Vec<Leftover>),
    /// An entry was made meanwhile: the directory has its name again.
    HasEntries,
    /// The name's object was another one.
    Changed,
}

impl Shared {
    /// Whether a directory has no entries (`None`: it has). Objects of names that were removed are none; they
    /// are returned. An object that moved away may come back, if its new directory was removed meanwhile: so
    /// this waits until the move is over. Of directories in it whose removal is under way the entries count,
    /// as that may be taken back.
    pub(crate) async fn left_in(&self, op: &'static str, dir: Id) -> Result<Option<Vec<Leftover>>> {
        // Another program may have copied the object of such a directory into itself.
        let (mut todo, mut seen, mut left) = (vec![dir], HashSet::from([dir]), Vec::new());
        while let Some(dir) = todo.pop() {
            let (prefix, mut after) = (self.keys.directory(dir), None::<String>);
            loop {
                let page = self.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
                for meta in &page.found {
                    let Some(name) = self.keys.name_of(dir, &meta.key) else { continue };
                    let place = Place { dir, name };
                    match self.at(op, Some(&place)).await? {
                        At::Free => {}
                        At::Ended { tag, gone, dir } => {
                            todo.extend(dir.map(|dir| dir.id).filter(|dir| seen.insert(*dir)));
                            left.push(Leftover { place, tag, gone });
                        }
                        At::Moved { swap: None, .. } => {
                            let settled: LocalBoxFuture<'_, _> = Box::pin(self.settled(op, Some(&place)));
                            if settled.await?.is_some() {
                                return Ok(None);
                            }
                        }
                        At::Held(..) | At::Moving(..) | At::Moved { .. } => return Ok(None),
                    }
                }
                if !page.has_more {
                    break;
                }
                after = page.found.last().map(|meta| meta.key.clone());
            }
        }
        // Those in inner directories first: the others lead to them.
        left.reverse();
        Ok(Some(left))
    }

    /// Remove an empty directory.
    pub(crate) async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        let op = "rmdir";
        let place = self.place(op, dir, name)?;
        let refused = |status| Err(Error::new(status, op).of(dir));
        let since = self.env.now();
        loop {
            self.calls.may_repeat(op, &self.keys.name(&place), since, PATIENCE)?;
            let found = self.settled(op, Some(&place)).await?;
            let Some((named, tag)) = found else { return refused(Status::NotFound) };
            if named.kind != Kind::Directory {
                return refused(Status::NotDirectory);
            }
            if self.left_in(op, named.id).await?.is_none() {
                return refused(Status::NotEmpty);
            }
            if !self.leaves(op, &place, &named, &tag).await? {
                continue;
            }
            let begun = self.begin();
            let left = match self.end_directory(op, &place, &named, tag).await? {
                Ended::Done(left) => left,
                Ended::HasEntries => return refused(Status::NotEmpty),
                Ended::Changed => continue,
            };
            self.nodes.borrow_mut().changed(place.dir, self.now());
            self.lost_name(op, &named).await;
            // First: it has a time by which it must be done.
            self.clear(op, &place, begun).await;
            self.sweep(op, named.id, left).await;
            return Ok(());
        }
    }

    /// Remove the objects that a removed directory leaves, if they are as they were found: each is ended anew
    /// first, so that no delete takes another object. The call is done: so errors are none of its own.
    /// `check` names the objects that stay.
    pub(crate) async fn sweep(&self, op: &'static str, dir: Id, left: Vec<Leftover>) {
        let deadline = self.env.now() + LEASE;
        let swept = async {
            for Leftover { place, tag, gone } in left {
                if let Some(gone) = gone {
                    self.mark_going(op, gone).await?;
                }
                if self.end(op, &place, Id::ROOT, tag).await?.is_some() {
                    self.calls.delete_once(op, &self.keys.name(&place), deadline).await?;
                }
            }
            self.calls.delete(op, &self.keys.moved(dir)).await
        };
        match self.env.deadline(deadline, Box::pin(swept)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("objects of a removed directory are left: {error}"),
            Err(_) => tracing::debug!("objects of the removed directory {dir} are left: the time is over"),
        }
    }

    /// Take the name of a directory, if its object is still of this version. It keeps the name if an entry
    /// was made in it meanwhile, also where this process ends before it looks ([`Shared::finish`]).
    pub(crate) async fn end_directory(
        &self,
        op: &'static str,
        place: &Place,
        dir: &Named,
        tag: Tag,
    ) -> Result<Ended> {
        let key = self.keys.name(place);
        let ended = format::ended(dir.id, Id::draw(&self.env), Some(dir));
        let Put::Done(tag) = self.calls.put(op, &key, ended, When::Is(tag)).await? else {
            return Ok(Ended::Changed);
        };
        match self.left_in(op, dir.id).await? {
            Some(left) => Ok(Ended::Done(left)),
            None => {
                self.calls.put(op, &key, self.object(dir), When::Is(tag)).await?;
                Ok(Ended::HasEntries)
            }
        }
    }

    /// An object was made in a directory. One that another process moves is that one's, if its directory is
    /// gone.
    pub(crate) async fn made_in(
        &self,
        op: &'static str,
        place: &Place,
        named: &Named,
        tag: Option<&Tag>,
    ) -> Result<()> {
        if self.is_there(op, place.dir).await? {
            self.nodes.borrow_mut().changed(place.dir, self.now());
            return Ok(());
        }
        let begun = self.begin();
        let words = "another process removed its directory: look that up again";
        let gone = Error::new(Status::Stale, op).because(words);
        let Some(tag) = tag else { return Err(gone) };
        if named.kind == Kind::Directory {
            match self.end_directory(op, place, named, tag.clone()).await? {
                Ended::Done(left) => {
                    self.clear(op, place, begun).await;
                    self.sweep(op, named.id, left).await;
                }
                // Another process found it, and made an entry in it. So its directory may be there after all.
                Ended::HasEntries if self.is_there(op, place.dir).await? => return Ok(()),
                Ended::HasEntries | Ended::Changed => {}
            }
        } else if let Some(_ended) = self.end(op, place, named.id, tag.clone()).await? {
            self.clear(op, place, begun).await;
        }
        Err(gone)
    }

    /// Whether a name leads to a directory.
    pub(crate) async fn is_there(&self, op: &'static str, dir: Id) -> Result<bool> {
        Ok(dir == Id::ROOT || self.place_now(op, dir).await?.is_some())
    }

    /// The name that leads to a directory now, other than the root; `None`: it was removed, or another
    /// process moved it, and its new name is not known.
    pub(crate) async fn place_now(&self, op: &'static str, dir: Id) -> Result<Option<Place>> {
        let begun = self.env.now();
        let (asked, mut place) = {
            let mut nodes = self.nodes.borrow_mut();
            (nodes.moment(), nodes.by_id(dir).and_then(|node| node.place()))
        };
        let mut said = None;
        loop {
            if let Some(place) = place
                && self.leads_to(op, &place, dir).await?
            {
                if said.is_some() {
                    self.nodes.borrow_mut().found(dir, &place, asked);
                }
                return Ok(Some(place));
            }
            // It may be moved again between the two looks.
            let moved = self.moved_to(op, dir).await?;
            if moved.is_none() || moved == said {
                return Ok(None);
            }
            self.calls.may_repeat(op, &self.keys.moved(dir), begun, PATIENCE)?;
            (place, said) = (moved.clone(), moved);
        }
    }

    /// The newest name of a directory, if it was moved and that is known.
    async fn moved_to(&self, op: &'static str, dir: Id) -> Result<Option<Place>> {
        let found = self.calls.get(op, &self.keys.moved(dir), KEY_BYTES_MAX).await?;
        let text = found.as_ref().and_then(|found| std::str::from_utf8(&found.data).ok());
        Ok(text.and_then(|text| self.keys.place_in(text)))
    }

    /// Whether the newest name of a directory that was moved leads to it. So does one that cannot be read.
    pub(crate) async fn is_moved_to(&self, op: &'static str, dir: Id) -> Result<bool> {
        let Some(place) = self.moved_to(op, dir).await? else { return Ok(false) };
        match self.find(op, Some(&place)).await {
            Err(error) if error.is_silence() => Err(error),
            found => {
                Ok(!matches!(found, Ok(found) if found.as_ref().is_none_or(|(named, _)| named.id != dir)))
            }
        }
    }

    async fn leads_to(&self, op: &'static str, place: &Place, dir: Id) -> Result<bool> {
        let leads = |found: Option<Named>| found.is_some_and(|named| named.id == dir);
        if leads(self.find(op, Some(place)).await?.map(|(named, _)| named)) {
            return Ok(true);
        }
        // Its removal may be under way, and be taken back.
        Ok(leads(self.settled(op, Some(place)).await?.map(|(named, _)| named)))
    }

    /// A directory is about to have another name. Without this, a process that knows the old one must look
    /// the new one up before it makes an entry.
    pub(crate) async fn says_where(&self, op: &'static str, dir: &Named, place: &Place, until: Instant) {
        if dir.kind != Kind::Directory {
            return;
        }
        let said = async {
            let (key, text) = (self.keys.moved(dir.id), Bytes::from(self.keys.text_of(place)));
            let put = self.calls.put_until(op, &key, text.clone(), When::Absent, until).await?;
            if put == Put::Refused
                && let Some(found) = self.calls.get(op, &key, KEY_BYTES_MAX).await?
            {
                self.calls.put_until(op, &key, text, When::Is(found.tag), until).await?;
            }
            Ok::<(), Error>(())
        };
        if let Ok(Err(error)) = self.env.deadline(until, Box::pin(said)).await {
            tracing::debug!("the new name of a directory is not said: {error}");
        }
    }
}
