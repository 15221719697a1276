//! Repairs of forked files: a subfile whose entry is lost gets its entry again; a subfile that was removed is
//! made anew.
//!
//! The subfile itself records its file (its parent), but not its number. So it is put back only if exactly
//! one number of the file lacks its subfile, and exactly one subfile of the file has no entry: then the two
//! belong together. If several were missing, a subfile could get the number of another subfile, and the
//! forks would be exchanged. So in that case the subfiles go to `/lost+found`, and the file stays
//! incomplete.
//!
//! A request (an `rm -r` that was interrupted) removes a subfile only while it is empty, so a new empty
//! subfile in its place loses nothing. **A subfile is made anew only if nothing but a request can have
//! removed the old subfile**: each server has the store with which it began (no store was declared lost,
//! and no older copy was accepted; the map remembers both), no row is damaged, no directory that has
//! entries is missing, and no nameless subfile of the file is left.

use super::mend::{Offer, Site, Step};
use super::tables::{NamedEntry, Tables};
use shoal_proto::{Action, Attr, Dist, Handle, Kind, Name, Owner, ServerId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A subfile that is made anew.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSubfile {
    /// Its forked file.
    pub file: Handle,
    /// Its number.
    pub number: Name,
    /// Its server.
    pub server: ServerId,
    /// Owner and mode: those of the file.
    pub owner: Owner,
    /// The directory in which it is made before it gets its place.
    pub within: Handle,
    /// When.
    pub time: Time,
}

impl NewSubfile {
    /// The steps by which a new subfile of another forked file comes to its place here. After each of them it
    /// is found again by its parent.
    pub fn moved(&self, from: Handle, zero: &Name, subfile: Handle) -> [Action; 3] {
        let (time, name) = (self.time, zero.clone());
        [
            Action::EntryRemove { shard: from.server(), dir: from, name, expect: subfile, subdirs: -1, time },
            Action::Reparent { dir: subfile, expect: from, parent: self.file, time },
            put(self.file, self.number.clone(), subfile, time),
        ]
    }
}

/// The repair of a forked file that lacks this subfile.
pub fn missing(file: Handle, number: u16, tables: &Tables, site: &Site) -> Offer {
    let leave = Offer::Leave(
        "the number of its subfiles is fixed: copy the forks that are left to a new forked file, and remove this one",
    );
    let Ok(name) = Name::new(number.to_string().as_bytes()) else { return leave };
    match lone(file, tables) {
        Some((_, lacks)) if lacks != number => Offer::Later,
        Some((handle, _)) => {
            let put = put(file, name, handle, site.now);
            Offer::Mend(vec![Step::Act(put)], Some("in its place again: no other subfile is missing".into()))
        }
        None => match made_anew(file, (number, name), tables, site) {
            Some(new) => {
                let words =
                    format!("it was removed while it was empty: it is made anew on server {}", new.server);
                Offer::Mend(vec![Step::Subfile(new)], Some(words.into()))
            }
            None => leave,
        },
    }
}

fn put(file: Handle, name: Name, handle: Handle, time: Time) -> Action {
    let (shard, kind) = (file.server(), Kind::Directory);
    Action::EntryPut { shard, dir: file, name, handle, kind, expect: None, subdirs: 1, time }
}

/// A new subfile, where the missing one is sure to have been empty.
fn made_anew(file: Handle, (number, name): (u16, Name), tables: &Tables, site: &Site) -> Option<NewSubfile> {
    let is_there = |entry: &NamedEntry| tables.objects.contains_key(&entry.dir);
    let is_undamaged = tables.wrong.is_empty() && tables.entries.iter().all(is_there);
    let is_named = tables.entries.iter().any(|entry| entry.dir == file && entry.name == name);
    if !site.renewed.is_empty() || !is_undamaged || is_named || nameless(file, tables).next().is_some() {
        return None;
    }
    let Attr { mode, uid, gid, .. } = tables.objects.get(&file)?.shard.as_ref()?.attr;
    let server = server_of(file, number, tables);
    let (owner, within, time) = (Owner { mode, uid, gid }, site.lost_and_found, site.now);
    Some(NewSubfile { file, number: name, server, owner, within, time })
}

/// The server of a missing subfile: subfiles are on their servers in turn, so it is that of one whose turn is
/// the same; the file's own, if none is left.
fn server_of(file: Handle, number: u16, tables: &Tables) -> ServerId {
    let entries = tables.entries.iter().filter(|entry| entry.dir == file);
    let number_of = |entry: &NamedEntry| std::str::from_utf8(entry.name.as_bytes()).ok()?.parse::<u16>().ok();
    let there: BTreeMap<u16, ServerId> =
        entries.filter_map(|entry| Some((number_of(entry)?, entry.handle.server()))).collect();
    let of_turn = |turn: u16, index: u16| there.iter().filter(move |(at, _)| **at % turn == index % turn);
    let fits = |turn: &u16| {
        there.iter().all(|(at, server)| of_turn(*turn, *at).all(|(_, other)| other == server))
            && of_turn(*turn, number).next().is_some()
    };
    let most = there.len() as u16 + 1;
    let turn = (1..=most).find(fits);
    let same = turn.and_then(|turn| of_turn(turn, number).next());
    same.or_else(|| there.iter().next()).map_or(file.server(), |(_, server)| *server)
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
    Some((only(nameless(file, tables))?, only(free)?))
}

/// The subfiles of a forked file to which no entry leads.
fn nameless(file: Handle, tables: &Tables) -> impl Iterator<Item = Handle> {
    let named: BTreeSet<Handle> = tables.entries.iter().map(|entry| entry.handle).collect();
    tables.objects.iter().filter_map(move |(&handle, object)| {
        let is_its = object.parent == file && dist(handle, tables) == Some(Dist::Fork);
        (is_its && !named.contains(&handle)).then_some(handle)
    })
}

fn dist(dir: Handle, tables: &Tables) -> Option<Dist> {
    Some(tables.objects.get(&dir)?.shard.as_ref()?.attr.template.dist)
}

/// The only one of them.
fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next();
    if all.next().is_some() { None } else { first }
}
