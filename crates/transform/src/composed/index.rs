//! The index of a composed directory: objects, and names keyed by directory and name.
//!
//! Each name is a register with a stamp, and so is each changeable fact of an object: the newest record
//! wins, whatever the order in which records are found. A move of a directory is one record, because entries
//! are keyed by the number of their directory, which does not change.
//!
//! **A name made in a removed directory restores the directory.** If one process removes a directory while
//! another process makes a name in it, the directory gets its last name back, if that name is free. The
//! last name is a register too: the removal of a name may be found before the record that made it.

use super::format::{Bind, Op, Record, Stamp};
use super::object::{NOWHERE, Object, Stored};
use shoal_proto::{Attr, Generation, Handle, Kind, Name, Shards, Template, Time};
use std::collections::{BTreeMap, BTreeSet};

/// An entry: the object that a name leads to; 0: to none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leads {
    /// When.
    pub stamp: Stamp,
    /// The object, or 0.
    pub object: u64,
}

/// The entries of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// All names that ever were.
    pub(super) names: BTreeMap<Name, Leads>,
    /// Those that lead to an object, by their places in listings.
    pub(super) places: BTreeMap<u64, Name>,
    /// Those that lead to a directory.
    pub(super) directories: u32,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names {
    pub(super) objects: BTreeMap<u64, Object>,
    pub(super) dirs: BTreeMap<u64, Entries>,
    /// Directories without a name in which a name was found.
    pub(super) lost: BTreeSet<u64>,
    /// The newest stamp.
    pub newest: Stamp,
    /// Records that were applied.
    pub applied: u64,
}

/// The place of a name in listings: 63 bits of its hash; the next free one where that is taken.
fn place_of(name: &Name) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in name.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    (hash ^ hash >> 29) >> 1 | 4
}

fn next_place(place: u64) -> u64 {
    (place + 1) & (u64::MAX >> 1) | 4
}

impl Names {
    /// An object whose making was found.
    pub fn object(&self, object: u64) -> Option<&Object> {
        self.objects.get(&object).filter(|found| found.origin.is_some())
    }

    /// The object that a name leads to.
    pub fn find(&self, dir: u64, name: &Name) -> Option<u64> {
        let leads = self.dirs.get(&dir)?.names.get(name)?;
        (leads.object != 0 && self.object(leads.object).is_some()).then_some(leads.object)
    }

    /// Whether a name was taken away, or leads somewhere.
    pub fn knows(&self, dir: u64, name: &Name) -> bool {
        self.dirs.get(&dir).is_some_and(|entries| entries.names.contains_key(name))
    }

    /// The next entry after a place.
    pub fn after(&self, dir: u64, place: u64) -> Option<(u64, Name, u64)> {
        let entries = self.dirs.get(&dir)?;
        let mut rest = entries.places.range(place.checked_add(1)?..);
        rest.find_map(|(place, name)| Some((*place, name.clone(), self.find(dir, name)?)))
    }

    /// Whether a directory has no entry.
    pub fn is_empty(&self, dir: u64) -> bool {
        self.after(dir, 0).is_none()
    }

    /// Whether an object has a name.
    pub fn has_name(&self, object: u64) -> bool {
        object == Handle::ROOT.0 || self.objects.get(&object).is_some_and(|found| !found.links.is_empty())
    }

    /// Whether a directory is another, or lies in it.
    pub fn lies_in(&self, dir: u64, above: u64) -> bool {
        let (mut at, mut steps) = (dir, 0);
        while at != above {
            let up = self.objects.get(&at).and_then(|found| found.links.first());
            let Some((parent, _)) = up.filter(|_| at != Handle::ROOT.0 && steps < 1 << 16) else {
                return false;
            };
            (at, steps) = (*parent, steps + 1);
        }
        true
    }

    /// Apply a record; `spot`: the block and the place of its data there.
    pub fn apply(&mut self, record: &Record, spot: (u64, u32)) {
        let Record { stamp, object, op } = record;
        self.newest = self.newest.max(*stamp);
        self.applied += 1;
        match op {
            Op::Data { offset, len } => {
                let stored = Stored { len: *len, stamp: *stamp, place: spot.0, at: spot.1 };
                self.entry(*object).put(*offset, stored, true);
            }
            Op::Hole { offset, len } => {
                let stored = Stored { len: *len, stamp: *stamp, place: NOWHERE, at: 0 };
                self.entry(*object).put(*offset, stored, false);
            }
            Op::Create(made) => {
                let was = self.entry(*object).kind();
                self.entry(*object).made(*stamp, made);
                if was.is_none() {
                    self.count_links(*object);
                    self.find_lost(*object);
                }
                self.bind(*stamp, &Bind { dir: made.dir, name: made.name.clone(), object: *object });
            }
            Op::Size(size) => self.entry(*object).cut(*stamp, *size),
            Op::Attributes(changed) => self.entry(*object).change(*stamp, changed),
            Op::Xattr(name, value) => {
                let found = self.entry(*object);
                found.xattrs.entry(name.clone()).or_default().set(*stamp, value.clone());
                found.touched(*stamp);
            }
            Op::Bind(binds) => binds.iter().for_each(|bind| self.bind(*stamp, bind)),
            Op::Next(_) | Op::End => {}
        }
    }

    /// An object's kind was found after names that lead to it.
    fn count_links(&mut self, object: u64) {
        let found = self.objects.get(&object).filter(|found| found.kind() == Some(Kind::Directory));
        for (dir, _) in found.map(|found| found.links.clone()).unwrap_or_default() {
            self.dirs.entry(dir).or_default().directories += 1;
        }
    }

    /// An object was found after names that lead to it: their directories are not empty.
    fn find_lost(&mut self, object: u64) {
        let links = self.objects.get(&object).into_iter().flat_map(|found| &found.links);
        let lost: Vec<u64> = links.map(|(dir, _)| *dir).filter(|dir| !self.has_name(*dir)).collect();
        self.lost.extend(lost);
    }

    fn is_directory(&self, object: u64) -> bool {
        self.objects.get(&object).is_some_and(|found| found.kind() == Some(Kind::Directory))
    }

    fn entry(&mut self, object: u64) -> &mut Object {
        self.objects.entry(object).or_default()
    }

    pub(super) fn bind(&mut self, stamp: Stamp, bind: &Bind) {
        let Bind { dir, name, object } = bind;
        let entries = self.dirs.entry(*dir).or_default();
        let new = Leads { stamp, object: *object };
        let old = entries.names.get(name).copied();
        let is_over = old.is_some_and(|old| old.stamp >= stamp);
        if !is_over {
            entries.names.insert(name.clone(), new);
        }
        let link = (*dir, name.clone());
        if *object != 0 {
            self.entry(*object).named(stamp, &link);
        }
        if is_over {
            // The name was taken from it before this was found.
            if *object != 0 && !self.has_name(*object) {
                self.lost.insert(*object);
            }
            return;
        }
        let old = old.map_or(0, |old| old.object);
        if (old == 0) != (*object == 0) {
            let entries = self.dirs.entry(*dir).or_default();
            let mut place = place_of(name);
            while entries.places.get(&place).is_some_and(|other| other != name) {
                place = next_place(place);
            }
            match object {
                0 => drop(entries.places.remove(&place)),
                _ => drop(entries.places.insert(place, name.clone())),
            }
        }
        if old != *object {
            let (less, more) = (self.is_directory(old), self.is_directory(*object));
            let entries = self.dirs.entry(*dir).or_default();
            entries.directories = (entries.directories + u32::from(more)).saturating_sub(u32::from(less));
        }
        if old != 0 && old != *object {
            let found = self.entry(old);
            found.links.retain(|other| *other != link);
            found.touched(stamp);
            if found.links.is_empty() && !self.is_empty(old) {
                self.lost.insert(old);
            }
        }
        if *object != 0 {
            let found = self.entry(*object);
            if old != *object {
                found.links.push(link);
            }
            found.touched(stamp);
            if !self.has_name(*dir) {
                self.lost.insert(*dir);
            }
        }
        self.entry(*dir).modified(stamp);
    }

    /// Give lost directories their names again. All records that can be found have been applied.
    pub fn bring_back(&mut self) {
        while let Some(dir) = self.lost.pop_first() {
            let found = self.objects.get(&dir).filter(|found| found.kind() == Some(Kind::Directory));
            let last = found.and_then(|found| found.last.value.clone());
            let Some((parent, name)) = last.filter(|_| !self.has_name(dir) && !self.is_empty(dir)) else {
                continue;
            };
            let was = self.dirs.get(&parent).and_then(|entries| entries.names.get(&name));
            let Some(was) = was.filter(|was| was.object == 0) else { continue };
            let stamp = was.stamp + 1;
            self.bind(stamp, &Bind { dir: parent, name, object: dir });
        }
    }

    /// Make links and places of listings from the entries.
    pub(super) fn link_all(&mut self) {
        for (dir, entries) in &mut self.dirs {
            for (name, leads) in entries.names.iter().filter(|(_, leads)| leads.object != 0) {
                let mut place = place_of(name);
                while entries.places.contains_key(&place) {
                    place = next_place(place);
                }
                entries.places.insert(place, name.clone());
                let found = self.objects.get(&leads.object);
                let is_directory = found.is_some_and(|found| found.kind() == Some(Kind::Directory));
                entries.directories += u32::from(is_directory);
                let found = self.objects.entry(leads.object).or_default();
                found.links.push((*dir, name.clone()));
                found.named(leads.stamp, &(*dir, name.clone()));
            }
        }
    }

    /// Attributes of an object; `None`: it is not known.
    pub fn attr(&self, object: u64) -> Option<Attr> {
        let found = self.object(object)?;
        let origin = found.origin.as_ref()?;
        let kind = origin.kind;
        let links = u32::try_from(found.links.len()).unwrap_or(u32::MAX);
        let (nlink, size, space) = match kind {
            Kind::Directory => {
                let inner = self.dirs.get(&object).map_or(0, |entries| entries.directories);
                (if self.has_name(object) { 2 + inner } else { 0 }, 4096, 4096)
            }
            Kind::Symlink => (links, origin.target.len() as u64, 0),
            _ => (links, found.size(), found.space()),
        };
        let parent = match kind {
            Kind::Directory => found.links.first().map_or(Handle::ROOT.0, |(parent, _)| *parent),
            _ => 0,
        };
        Some(Attr {
            handle: Handle(object),
            kind,
            mode: found.mode.value,
            uid: found.uid.value,
            gid: found.gid.value,
            nlink,
            rdev: origin.rdev,
            size,
            space,
            atime: Time(found.atime.value),
            mtime: Time(found.mtime.value),
            ctime: Time(found.ctime.value),
            btime: Time(i64::try_from(super::format::clock_of(origin.stamp)).unwrap_or(0)),
            generation: Generation(0),
            parent: Handle(parent),
            template: Template::default(),
            layout: None,
            shards: Shards::WHOLE,
        })
    }
}
