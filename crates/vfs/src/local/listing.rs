//! Listings of a [`Local`]: entries come from the host in batches, with their attributes.
//!
//! **A place is the place of the host, raised by two**, because a mount uses the first places itself. So a
//! place stays valid after other changes if the host's place does. The host's places may be in any order.

use super::Local;
use super::attributes::{attr_of, kind_of};
use super::calls::{in_directory, stale};
use crate::{Listed, Listing, Result};
use shoal_env::{HostEntry, HostFacts, HostFiles, HostListing, HostNode, Instant};
use shoal_proto::{Entry, Handle, Kind, Name, Status};
use std::collections::VecDeque;
use std::io;

/// Places below are a mount's own.
const RAISED_BY: u64 = 2;
/// The last place there is, of an entry that is the last one on some hosts.
const LAST: u64 = i64::MAX as u64;

/// A place, from the host's.
fn raised(place: u64) -> u64 {
    if place >= LAST { place } else { (place + RAISED_BY).min(LAST - 1) }
}

/// The host's place.
fn lowered(place: u64) -> u64 {
    if place >= LAST { place } else { place.saturating_sub(RAISED_BY) }
}

/// See the module.
pub struct LocalListing {
    local: Local,
    dir: Handle,
    /// Away while a call of the host has it, and lost if that gets no answer.
    listing: Option<HostListing>,
    /// The place after the last entry that was returned; 0: the start.
    at: u64,
    /// The host's listing is elsewhere.
    is_moved: bool,
    /// Entries to return.
    ready: VecDeque<Listed>,
    has_ended: bool,
    /// Only the names are wanted.
    bare: bool,
}

/// Some entries, and their facts, unless those cannot be had.
struct Batch {
    listing: HostListing,
    entries: Vec<(HostEntry, Option<HostFacts>)>,
    has_ended: bool,
}

/// Read on until there is an entry; `bare`: without facts.
fn read_on(
    host: &dyn HostFiles,
    mut listing: HostListing,
    from: Option<u64>,
    bare: bool,
) -> io::Result<Batch> {
    if let Some(from) = from {
        host.seek(&mut listing, lowered(from))?;
    }
    let dir = listing.node();
    loop {
        let raw = in_directory(host, &dir, host.entries(&mut listing))?;
        let has_ended = raw.is_empty();
        let mut entries = Vec::with_capacity(raw.len());
        for entry in raw.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
            if bare {
                entries.push((entry, None));
                continue;
            }
            match host.look(&dir, &entry.name) {
                Ok(facts) => entries.push((entry, Some(facts))),
                Err(error) if error.raw_os_error() == Some(Status::NotFound.errno()) => {}
                Err(_) => entries.push((entry, None)),
            }
        }
        if has_ended || !entries.is_empty() {
            return Ok(Batch { listing, entries, has_ended });
        }
    }
}

fn open(host: &dyn HostFiles, dir: &HostNode) -> io::Result<HostListing> {
    let facts = host.facts(dir)?;
    if facts.is_dir() && facts.nlink == 0 {
        return Err(stale());
    }
    host.list(dir)
}

impl Local {
    /// The names of a directory, without a call for each.
    pub(super) async fn names_of(&self, dir: Handle) -> Result<Vec<Name>> {
        let (mut listing, mut names) = (LocalListing::new(self, dir), Vec::new());
        listing.bare = true;
        while let Some(listed) = listing.next(false).await? {
            names.push(listed.entry.name);
        }
        Ok(names)
    }
}

impl LocalListing {
    pub(super) fn new(local: &Local, dir: Handle) -> LocalListing {
        LocalListing {
            local: local.clone(),
            dir,
            listing: None,
            at: 0,
            is_moved: false,
            ready: VecDeque::new(),
            has_ended: false,
            bare: false,
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        let asked_at = self.local.0.env.now();
        let (at, bare) = (self.at, self.bare);
        let batch = match self.listing.take() {
            Some(listing) => {
                let from = self.is_moved.then_some(at);
                self.local.run("readdir", self.dir, move |host| read_on(host, listing, from, bare)).await?
            }
            None => {
                let from = (at != 0).then_some(at);
                let work =
                    move |host: &dyn HostFiles, dir: &HostNode| read_on(host, open(host, dir)?, from, bare);
                self.local.at("readdir", self.dir, work).await?
            }
        };
        self.is_moved = false;
        self.listing = Some(batch.listing);
        self.has_ended = batch.has_ended;
        for (entry, facts) in batch.entries {
            // A name that is too long for the house cannot be looked up either.
            let Ok(name) = Name::new(&entry.name) else { continue };
            self.ready.push_back(self.listed(name, &entry, facts.as_ref(), asked_at));
        }
        Ok(())
    }

    fn listed(&self, name: Name, entry: &HostEntry, facts: Option<&HostFacts>, asked_at: Instant) -> Listed {
        let place = raised(entry.place);
        let attr = facts.map(|facts| {
            let handle = self.local.nodes().saw(facts, (self.dir, &name), None);
            attr_of(facts, handle, if handle == Handle::ROOT { handle } else { self.dir })
        });
        let handle = attr.as_ref().map_or(Handle(entry.ino), |attr| attr.handle);
        let kind = facts.map_or(Kind::File, kind_of);
        Listed { entry: Entry { name, handle, kind, place, attr }, asked_at, is_unknown: facts.is_none() }
    }
}

impl Listing for LocalListing {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        while self.ready.is_empty() && !self.has_ended {
            self.fetch().await?;
        }
        let Some(mut listed) = self.ready.pop_front() else { return Ok(None) };
        self.at = listed.entry.place;
        if !plus {
            (listed.entry.attr, listed.is_unknown) = (None, false);
        }
        Ok(Some(listed))
    }

    fn seek(&mut self, place: u64) {
        self.ready.clear();
        (self.at, self.is_moved, self.has_ended) = (place, true, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_no_mounts_own_and_lead_back() {
        for place in [1, 2, 3, 77, u64::from(u32::MAX), LAST - 3, LAST, LAST + 1, u64::MAX] {
            assert!(raised(place) > RAISED_BY);
            assert_eq!(lowered(raised(place)), place);
        }
    }
}
