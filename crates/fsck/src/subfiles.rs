//! A subfile whose entry is lost takes its place in its forked file again.
//!
//! The subfile itself knows its file (its parent), and not its number. So it is put back where one number and
//! one nameless subfile of the file are left: then only that one can be meant. Of several, each could be at
//! each number, and forks of one name would change their places: they go to `/lost+found` instead, and the
//! file stays incomplete.

use super::mend::{Offer, Site, Step};
use super::tables::Tables;
use shoal_proto::{Action, Dist, Handle, Kind, Name};
use std::collections::BTreeSet;

/// The repair of a forked file that lacks this subfile.
pub fn missing(file: Handle, number: u16, tables: &Tables, site: &Site) -> Offer {
    let name = Name::new(number.to_string().as_bytes());
    let (Some((handle, lacks)), Ok(name)) = (lone(file, tables), name) else {
        return Offer::Leave(
            "the number of its subfiles is fixed: copy the forks that are left to a new forked file, and remove this one",
        );
    };
    if lacks != number {
        return Offer::Later;
    }
    let put = Action::EntryPut {
        shard: file.server(),
        dir: file,
        name,
        handle,
        kind: Kind::Directory,
        expect: None,
        subdirs: 1,
        time: site.now,
    };
    Offer::Mend(vec![Step::Act(put)], Some("in its place again: no other subfile is missing"))
}

/// Whether a nameless object is the one subfile that its forked file lacks.
pub fn is_lone(object: Handle, parent: Handle, tables: &Tables) -> bool {
    lone(parent, tables).is_some_and(|(lone, _)| lone == object)
}

/// The one nameless subfile of a forked file, and the one number that the file lacks.
fn lone(file: Handle, tables: &Tables) -> Option<(Handle, u16)> {
    let Dist::Forked { subfiles } = dist(file, tables)? else { return None };
    let entries = tables.entries.iter().filter(|entry| entry.dir == file);
    let taken: BTreeSet<&[u8]> = entries.map(|entry| entry.name.as_bytes()).collect();
    let free = (0..subfiles).filter(|number| !taken.contains(number.to_string().as_bytes()));
    let named: BTreeSet<Handle> = tables.entries.iter().map(|entry| entry.handle).collect();
    let is_nameless = |handle: &Handle| {
        let is_its = tables.objects.get(handle).is_some_and(|object| object.parent == file);
        is_its && dist(*handle, tables) == Some(Dist::Fork) && !named.contains(handle)
    };
    Some((only(tables.objects.keys().copied().filter(is_nameless))?, only(free)?))
}

fn dist(dir: Handle, tables: &Tables) -> Option<Dist> {
    Some(tables.objects.get(&dir)?.shard.as_ref()?.attr.template.dist)
}

/// The only one of them.
fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next();
    if all.next().is_some() { None } else { first }
}
