//! Finds the problems in tables. A plain function, tested with tables made by hand.

use super::Problem;
use super::tables::{InodeFields, NamedEntry, Tables, ToReap};
use shoal_proto::{ClientId, Dist, Handle, Kind, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// Names of a path that is shown, at most: a loop of directories has no end.
const DEPTH_MAX: usize = 1024;

/// All that is wrong.
pub fn check(tables: &Tables) -> BTreeSet<Problem> {
    let names = Names::of(tables);
    let mut found: BTreeSet<Problem> = tables.wrong.iter().cloned().map(Problem::RowWrong).collect();
    found.extend(tables.prepared.iter().map(|(&(server, tx), row)| {
        let objects = row.objects.iter().copied().collect();
        Problem::Undecided { server, tx, objects }
    }));
    check_root(tables, &mut found);
    check_entries(tables, &names, &mut found);
    check_shards(tables, &mut found);
    check_forked(tables, &names, &mut found);
    check_objects(tables, &names, &mut found);
    check_counts(tables, &names, &mut found);
    check_orphans(tables, &names, &mut found);
    check_reachable(tables, &names, &mut found);
    check_datafiles(tables, &mut found);
    super::pools::check(tables, &mut found);
    check_streams(tables, &names, &mut found);
    found
}

/// The names and their objects.
struct Names<'a> {
    /// The entries that lead to each object.
    of: BTreeMap<Handle, Vec<&'a NamedEntry>>,
    /// Subdirectories and entries of each directory on each server.
    counts: BTreeMap<(Handle, ServerId), (u32, u32)>,
}

impl<'a> Names<'a> {
    fn of(tables: &'a Tables) -> Names<'a> {
        let mut names = Names { of: BTreeMap::new(), counts: BTreeMap::new() };
        for entry in &tables.entries {
            names.of.entry(entry.handle).or_default().push(entry);
            let (subdirs, entries) = names.counts.entry((entry.dir, entry.at)).or_default();
            *entries += 1;
            if tables.objects.get(&entry.handle).is_some_and(|o| o.kind == Kind::Directory) {
                *subdirs += 1;
            }
        }
        names
    }

    fn leading_to(&self, object: Handle) -> &[&'a NamedEntry] {
        self.of.get(&object).map_or(&[], Vec::as_slice)
    }

    /// A path that leads to an object from the root, if there is one.
    fn path_of(&self, object: Handle) -> Option<String> {
        let (mut at, mut path) = (object, String::new());
        for _ in 0..DEPTH_MAX {
            if at == Handle::ROOT {
                return Some(path);
            }
            let entry = self.leading_to(at).first()?;
            path = format!("/{}{path}", String::from_utf8_lossy(entry.name.as_bytes()));
            at = entry.dir;
        }
        None
    }

    /// Subdirectories and entries of a directory on a server.
    fn counted(&self, dir: Handle, server: ServerId) -> (u32, u32) {
        self.counts.get(&(dir, server)).copied().unwrap_or_default()
    }
}

fn check_root(tables: &Tables, found: &mut BTreeSet<Problem>) {
    if tables.objects.get(&Handle::ROOT).is_none_or(|root| root.kind != Kind::Directory) {
        found.insert(Problem::RootMissing);
    }
}

fn check_entries(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    for entry in &tables.entries {
        match tables.objects.get(&entry.dir).and_then(|dir| dir.shard.as_ref()) {
            None => {
                found.insert(Problem::DirectoryMissing(entry.dir));
            }
            Some(dir) => {
                let to = dir.attr.shards.server_of(entry.place).unwrap_or(entry.dir.server());
                if to != entry.at {
                    found.insert(Problem::EntryMisplaced { entry: entry.clone(), to });
                }
            }
        }
        match tables.objects.get(&entry.handle) {
            None => {
                found.insert(Problem::EntryDangling(entry.clone()));
            }
            Some(object) if object.kind != entry.kind => {
                found.insert(Problem::EntryKindWrong(entry.clone(), object.kind));
            }
            Some(object) if object.kind == Kind::Directory => check_parent(entry, object, names, found),
            Some(_) => {}
        }
    }
}

/// The shards that a directory says it has are there, and no other.
fn check_shards(tables: &Tables, found: &mut BTreeSet<Problem>) {
    for (&dir, object) in &tables.objects {
        let shards = object.shard.iter().flat_map(|home| home.attr.shards.servers());
        for &server in shards.filter(|&&server| server != dir.server()) {
            if !tables.shards.contains_key(&(dir, server)) {
                found.insert(Problem::ShardMissing { dir, server });
            }
        }
    }
    for &(dir, server) in tables.shards.keys() {
        match tables.objects.get(&dir).and_then(|object| object.shard.as_ref()) {
            Some(home) if home.attr.shards.servers().contains(&server) => {}
            Some(_) => {
                found.insert(Problem::ShardUnowned { dir, server });
            }
            None => {
                found.insert(Problem::DirectoryMissing(dir));
            }
        }
    }
}

/// A forked file has all its subfiles, and nothing else.
fn check_forked(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    let dist = |dir: &Handle| Some(tables.objects.get(dir)?.shard.as_ref()?.attr.template.dist);
    let mut there: BTreeMap<Handle, BTreeSet<u16>> = BTreeMap::new();
    for entry in &tables.entries {
        let Some(Dist::Forked { subfiles }) = dist(&entry.dir) else { continue };
        let text = std::str::from_utf8(entry.name.as_bytes()).ok();
        let number = text.and_then(|text| text.parse().ok().filter(|n: &u16| n.to_string() == text));
        match number.filter(|number| *number < subfiles) {
            // One that leads to nothing is that problem.
            Some(number) if dist(&entry.handle).is_none_or(|dist| dist == Dist::Fork) => {
                there.entry(entry.dir).or_default().insert(number);
            }
            _ => {
                found.insert(Problem::SubfileStrange(entry.clone()));
            }
        }
    }
    for &file in tables.objects.keys() {
        let Some(Dist::Forked { subfiles }) = dist(&file) else { continue };
        let has = |subfile: &u16| there.get(&file).is_some_and(|there| there.contains(subfile));
        for subfile in (0..subfiles).filter(|subfile| !has(subfile)) {
            found.insert(Problem::SubfileMissing { file, subfile, path: names.path_of(file) });
        }
    }
}

/// The counts of directories and shards. ([`check_objects`] checks the links of objects on a directory's own
/// server.)
fn check_counts(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    let homes = tables.objects.iter().filter_map(|(&dir, object)| {
        let shard = object.shard.as_ref()?;
        Some((dir, dir.server(), shard))
    });
    let others = tables.shards.iter().map(|(&(dir, server), shard)| (dir, server, shard));
    for (dir, server, shard) in homes.chain(others) {
        let (subdirs, entries) = names.counted(dir, server);
        let (says, counted) = ((shard.attr.nlink, shard.entries), (2 + subdirs, entries));
        let is_wrong = if server == dir.server() { says.1 != counted.1 } else { says != counted };
        if is_wrong {
            found.insert(Problem::CountsWrong { dir, server, says, counted, changed: shard.attr.ctime });
        }
    }
}

/// The name in the directory that a directory takes for its parent is the right one; of several there, the
/// first.
fn check_parent(entry: &NamedEntry, dir: &InodeFields, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    let all = names.leading_to(entry.handle);
    let right = all.iter().filter(|e| e.dir == dir.parent).min().or(all.iter().min());
    if entry.handle == Handle::ROOT || right.is_some_and(|right| *right != entry) {
        found.insert(Problem::DirectoryNamedTwice(entry.clone()));
    } else if entry.dir != dir.parent {
        found.insert(Problem::ParentWrong { dir: entry.handle, says: dir.parent, entry_in: entry.dir });
    }
}

fn check_objects(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    for (&handle, object) in &tables.objects {
        let taken = tables.unnamed.get(&handle).copied().unwrap_or(0);
        let named = names.leading_to(handle).len() as u32 + taken;
        if named == 0 && handle != Handle::ROOT {
            if !tables.orphans.contains_key(&handle) && !tables.new.contains(&handle) {
                let InodeFields { kind, nlink, parent, .. } = *object;
                found.insert(Problem::Nameless { object: handle, kind, nlink, parent });
            }
            continue;
        }
        let counted = match object.kind {
            Kind::Directory => 2 + names.counted(handle, handle.server()).0,
            _ => named,
        };
        if counted != object.nlink {
            found.insert(Problem::LinksWrong { object: handle, says: object.nlink, counted });
        }
    }
    let gone = tables.xattrs.iter().filter(|object| !tables.objects.contains_key(object));
    found.extend(gone.map(|&object| Problem::XattrsUnowned(object)));
}

fn check_orphans(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    for &object in tables.orphans.keys() {
        if !tables.objects.contains_key(&object) {
            found.insert(Problem::OrphanGone(object));
        } else if !names.leading_to(object).is_empty() {
            found.insert(Problem::OrphanNamed(object));
        }
    }
    let is_for_anyone = |object: &Handle| {
        tables.orphans.get(object).is_some_and(|clients| clients.contains(&ClientId::ANYONE))
    };
    for (&object, &since) in tables.lingering.iter().filter(|(object, _)| !is_for_anyone(object)) {
        found.insert(Problem::LingeringAlone { object, since });
    }
    for &object in tables.orphans.keys().filter(|object| is_for_anyone(object)) {
        if !tables.lingering.contains_key(&object) {
            found.insert(Problem::LingeringUntimed(object));
        }
    }
}

/// Every directory that has a name hangs on the root. Of each loop its first directory is named.
fn check_reachable(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    let mut below: BTreeMap<Handle, Vec<Handle>> = BTreeMap::new();
    for entry in tables.entries.iter().filter(|e| e.kind == Kind::Directory) {
        below.entry(entry.dir).or_default().push(entry.handle);
    }
    let mut reached: BTreeSet<Handle> = BTreeSet::new();
    let mut walk = |from: Handle| {
        let mut todo = vec![from];
        while let Some(dir) = todo.pop() {
            if reached.insert(dir) {
                todo.extend(below.get(&dir).into_iter().flatten());
            }
        }
        reached.clone()
    };
    let mut all = walk(Handle::ROOT);
    let directories = || tables.objects.iter().filter(|(_, o)| o.kind == Kind::Directory).map(|(&h, _)| h);
    // An object in a nameless directory, or in one that is not there, is that directory's problem.
    let hung = directories().filter(|&h| names.leading_to(h).is_empty());
    let missing = tables.entries.iter().map(|e| e.dir).filter(|dir| !tables.objects.contains_key(dir));
    for start in hung.chain(missing).collect::<BTreeSet<_>>() {
        all = walk(start);
    }
    for dir in directories().collect::<Vec<_>>() {
        if !all.contains(&dir)
            && let Some(entry) = names.leading_to(dir).first()
        {
            found.insert(Problem::Loop((*entry).clone()));
            all = walk(dir);
        }
    }
}

fn check_datafiles(tables: &Tables, found: &mut BTreeSet<Problem>) {
    let mut listed: BTreeSet<(Handle, Handle)> = BTreeSet::new();
    for (&object, file) in &tables.objects {
        for &datafile in file.datafiles.iter().flatten().filter(|&&datafile| datafile != object) {
            listed.insert((object, datafile));
            match tables.datafiles.get(&datafile) {
                Some(&owner) if owner == object => {}
                Some(&owner) => {
                    found.insert(Problem::DatafileOfAnother { object, datafile, owner });
                }
                None if super::pools::is_untouched_for(tables, datafile, object.server()) => {}
                None => {
                    let generation = tables.streams.get(&object).map_or(0, |stream| stream.generation);
                    found.insert(Problem::DatafileMissing { object, datafile, generation });
                }
            }
        }
    }
    let reaped: BTreeSet<Handle> = tables.reaps.iter().map(|reap| reap.datafile).collect();
    for (&datafile, &owner) in &tables.datafiles {
        if !listed.contains(&(owner, datafile))
            && !reaped.contains(&datafile)
            && !tables.new.contains(&datafile)
        {
            found.insert(Problem::DatafileUnowned { datafile, owner });
        }
    }
    let living = |reap: &&ToReap| listed.contains(&(reap.owner, reap.datafile));
    found.extend(tables.reaps.iter().filter(living).map(|&reap| Problem::ReapOfLiving(reap)));
}

fn check_streams(tables: &Tables, names: &Names<'_>, found: &mut BTreeSet<Problem>) {
    let files = || tables.objects.iter().filter(|(_, o)| o.kind == Kind::File);
    let owners = files().map(|(handle, _)| handle).chain(tables.datafiles.keys());
    let missing = owners.filter(|stream| !tables.streams.contains_key(stream));
    found.extend(missing.map(|&stream| Problem::StreamMissing { stream }));
    let is_owned = |stream: &Handle| {
        tables.datafiles.contains_key(stream)
            || tables.objects.get(stream).is_some_and(|object| object.kind == Kind::File)
    };
    let lost = tables.lost_files.iter().filter_map(|&stream| {
        let object = tables.datafiles.get(&stream).copied().unwrap_or(stream);
        is_owned(&stream).then(|| Problem::FileLost { object, stream, path: names.path_of(object) })
    });
    found.extend(lost);
    let unowned = tables.streams.keys().filter(|stream| !is_owned(stream));
    found.extend(unowned.map(|&stream| Problem::StreamUnowned { stream }));
    for (&object, file) in files() {
        let Some(datafiles) = &file.datafiles else { continue };
        let all: BTreeSet<Handle> = datafiles.iter().copied().chain([object]).collect();
        let generations: Vec<(Handle, u64)> =
            all.iter().filter_map(|h| Some((*h, tables.streams.get(h)?.generation))).collect();
        let newest = generations.iter().map(|(_, generation)| *generation).max().unwrap_or(0);
        for (stream, generation) in generations.into_iter().filter(|(_, generation)| *generation < newest) {
            found.insert(Problem::GenerationBehind { object, stream, generation, newest });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Shard, Stream};
    use shoal_proto::{Attr, ClientId, Name, ServerId, Shards, Time, TxId};

    fn at(server: u16, counter: u64) -> Handle {
        Handle::new(ServerId(server), counter)
    }

    fn object(kind: Kind, nlink: u32, parent: Handle) -> InodeFields {
        let shard = (kind == Kind::Directory).then(|| shard(0, nlink, Shards::WHOLE));
        InodeFields { kind, nlink, parent, datafiles: None, shard }
    }

    /// A directory's row that says so.
    fn shard(entries: u32, nlink: u32, shards: Shards) -> Shard {
        let attr = Attr { nlink, shards, ctime: Time(7), ..shoal_proto::samples::attr() };
        Shard { attr, entries }
    }

    fn says(tables: &mut Tables, dir: Handle, entries: u32) {
        tables.objects.get_mut(&dir).unwrap().shard.as_mut().unwrap().entries = entries;
    }

    fn stream(generation: u64) -> Stream {
        Stream { generation, size: 10 }
    }

    fn entry(dir: Handle, name: &str, handle: Handle, kind: Kind) -> NamedEntry {
        let (name, at) = (Name::new(name.as_bytes()).unwrap(), dir.server());
        NamedEntry { dir, name, handle, kind, place: 1, at }
    }

    const FILE: Handle = Handle::new(ServerId(0), 10);
    const DIR: Handle = Handle::new(ServerId(1), 20);
    const WIDE: Handle = Handle::new(ServerId(1), 30);

    /// `/file` (two names: the other is `/dir/again`), `/dir`, `/dir/wide` over two servers.
    fn good() -> Tables {
        let mut tables = Tables::default();
        tables.objects.insert(Handle::ROOT, object(Kind::Directory, 3, Handle::ROOT));
        tables.objects.insert(DIR, object(Kind::Directory, 2, Handle::ROOT));
        tables.objects.insert(FILE, object(Kind::File, 2, Handle(0)));
        let wide = InodeFields { datafiles: Some(vec![WIDE, at(0, 31)]), ..object(Kind::File, 1, Handle(0)) };
        tables.objects.insert(WIDE, wide);
        tables.datafiles.insert(at(0, 31), WIDE);
        tables.streams.extend([(FILE, stream(0)), (WIDE, stream(4)), (at(0, 31), stream(4))]);
        tables.entries = vec![
            entry(Handle::ROOT, "file", FILE, Kind::File),
            entry(Handle::ROOT, "dir", DIR, Kind::Directory),
            entry(DIR, "again", FILE, Kind::File),
            entry(DIR, "wide", WIDE, Kind::File),
        ];
        says(&mut tables, Handle::ROOT, 2);
        says(&mut tables, DIR, 2);
        tables
    }

    #[test]
    fn a_file_whose_local_file_is_not_there_is_named_by_a_path() {
        let mut tables = good();
        tables.lost_files = [at(0, 31), FILE, at(0, 99)].into();
        let found: Vec<String> = check(&tables).iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), 2, "a stream without an owner is no file: {found:?}");
        assert!(found.iter().any(|words| words.contains("`/dir/wide`")), "{found:?}");
        assert!(found.iter().any(|words| words.contains("`/file`")), "{found:?}");
    }

    /// The problems after a change, as words.
    fn after(change: impl FnOnce(&mut Tables)) -> Vec<&'static str> {
        let mut tables = good();
        change(&mut tables);
        check(&tables).iter().map(Problem::word).collect()
    }

    #[test]
    fn a_whole_file_system_has_no_problem() {
        assert_eq!(check(&good()), BTreeSet::new());
    }

    #[test]
    fn orphans_of_clients_and_rows_to_be_reaped_are_no_problem() {
        let change = |t: &mut Tables| {
            t.objects.insert(at(0, 50), object(Kind::File, 0, Handle(0)));
            t.orphans.insert(at(0, 50), [ClientId([1; 16])].into());
            t.datafiles.insert(at(1, 51), at(0, 9));
            t.streams.extend([(at(0, 50), stream(0)), (at(1, 51), stream(0))]);
            t.reaps.insert(ToReap { by: ServerId(0), datafile: at(1, 51), owner: at(0, 9) });
        };
        assert!(after(change).is_empty());
    }

    #[test]
    fn what_clients_have_half_done_is_no_problem_whichever_server_knows_of_it() {
        let words = after(|t| {
            t.objects.get_mut(&FILE).unwrap().nlink = 4;
            t.unnamed.insert(FILE, 1);
            let mut other = Tables::default();
            other.objects.insert(at(1, 50), object(Kind::File, 1, Handle(0)));
            other.datafiles.insert(at(1, 51), at(1, 50));
            other.streams.extend([(at(1, 50), stream(0)), (at(1, 51), stream(0))]);
            other.new.extend([at(1, 50), at(1, 51)]);
            other.unnamed.insert(FILE, 1);
            t.join(other);
        });
        assert!(words.is_empty(), "{words:?}");
    }

    #[test]
    fn every_damage_of_names_is_found_by_its_word() {
        assert_eq!(after(|t| _ = t.objects.remove(&Handle::ROOT)), ["root_missing", "directory_missing"]);
        assert_eq!(after(|t| t.entries[0].handle = at(2, 2)), ["entry_dangling", "links_wrong"]);
        assert_eq!(after(|t| t.entries[0].kind = Kind::Fifo), ["entry_kind_wrong"]);
        assert_eq!(after(|t| t.objects.get_mut(&DIR).unwrap().parent = at(5, 5)), ["parent_wrong"]);
        assert_eq!(after(|t| t.objects.get_mut(&FILE).unwrap().nlink = 1), ["links_wrong"]);
        assert_eq!(after(|t| _ = t.entries.remove(3)), ["nameless", "counts_wrong"]);
        assert_eq!(
            after(|t| t.entries.push(entry(DIR, "me", DIR, Kind::Directory))),
            ["directory_named_twice", "links_wrong", "counts_wrong"]
        );
        assert_eq!(
            after(|t| _ = t.objects.remove(&DIR)),
            ["directory_missing", "entry_dangling", "links_wrong"]
        );
    }

    #[test]
    fn directories_that_hold_each_other_are_a_loop() {
        let (a, b) = (at(0, 60), at(1, 61));
        let words = after(|t| {
            t.objects.insert(a, object(Kind::Directory, 3, b));
            t.objects.insert(b, object(Kind::Directory, 3, a));
            t.entries.push(entry(a, "b", b, Kind::Directory));
            t.entries.push(entry(b, "a", a, Kind::Directory));
            says(t, a, 1);
            says(t, b, 1);
        });
        assert_eq!(words, ["loop"]);
    }

    #[test]
    fn what_hangs_on_a_nameless_directory_is_not_counted_twice() {
        let (a, b) = (at(0, 60), at(1, 61));
        let words = after(|t| {
            t.objects.insert(a, object(Kind::Directory, 3, Handle::ROOT));
            t.objects.insert(b, object(Kind::Directory, 2, a));
            t.entries.push(entry(a, "b", b, Kind::Directory));
            says(t, a, 1);
        });
        assert_eq!(words, ["nameless"]);
    }

    #[test]
    fn every_damage_of_data_is_found_by_its_word() {
        assert_eq!(after(|t| _ = t.datafiles.remove(&at(0, 31))), ["datafile_missing", "stream_unowned"]);
        assert_eq!(
            after(|t| _ = t.datafiles.insert(at(0, 31), FILE)),
            ["datafile_unowned", "datafile_of_another"]
        );
        assert_eq!(after(|t| _ = t.streams.remove(&FILE)), ["stream_missing"]);
        assert_eq!(after(|t| _ = t.streams.insert(at(3, 3), stream(0))), ["stream_unowned"]);
        assert_eq!(after(|t| _ = t.streams.insert(at(0, 31), stream(3))), ["generation_behind"]);
        let reap = ToReap { by: ServerId(1), datafile: at(0, 31), owner: WIDE };
        assert_eq!(after(|t| _ = t.reaps.insert(reap)), ["reap_of_living"]);
        assert_eq!(after(|t| _ = t.xattrs.insert(at(3, 3))), ["xattrs_unowned"]);
        assert_eq!(
            after(|t| _ = t.prepared.insert((ServerId(1), TxId(7)), Default::default())),
            ["undecided"]
        );
        let one = || BTreeSet::from([ClientId([3; 16])]);
        assert_eq!(after(|t| _ = t.orphans.insert(at(3, 3), one())), ["orphan_gone"]);
        assert_eq!(after(|t| _ = t.orphans.insert(FILE, one())), ["orphan_named"]);
        let removed = |t: &mut Tables, clients| {
            t.objects.insert(at(0, 50), object(Kind::File, 0, Handle::ROOT));
            t.streams.insert(at(0, 50), stream(1));
            t.orphans.insert(at(0, 50), clients);
        };
        let anyone = || BTreeSet::from([ClientId::ANYONE]);
        assert_eq!(after(|t| removed(t, anyone())), ["lingering_untimed"]);
        let timed = |t: &mut Tables| _ = t.lingering.insert(at(0, 50), Time(5));
        assert!(after(|t| (removed(t, anyone()), timed(t)).1).is_empty());
        assert_eq!(after(|t| (removed(t, one()), timed(t)).1), ["lingering_alone"]);
    }

    /// `/dir` is split: `again` is of the first range, at server 0, `wide` of the second, at home.
    fn split(t: &mut Tables) {
        let shards = Shards::over([ServerId(0), ServerId(1)]);
        t.objects.get_mut(&DIR).unwrap().shard = Some(shard(1, 2, shards.clone()));
        t.shards.insert((DIR, ServerId(0)), shard(1, 2, shards));
        t.entries[2].at = ServerId(0);
        t.entries[3].place = 1 << 62;
    }

    #[test]
    fn every_damage_of_a_split_directory_is_found_by_its_word() {
        let words = |change: &dyn Fn(&mut Tables)| {
            after(|t| {
                split(t);
                change(t);
            })
        };
        let other = (DIR, ServerId(0));
        assert!(words(&|_| {}).is_empty());
        assert_eq!(
            words(&|t| t.entries[2].at = ServerId(1)),
            ["entry_misplaced", "counts_wrong", "counts_wrong"]
        );
        assert_eq!(words(&|t| _ = t.shards.remove(&other)), ["shard_missing"]);
        assert_eq!(words(&|t| t.shards.get_mut(&other).unwrap().entries = 9), ["counts_wrong"]);
        assert_eq!(words(&|t| t.shards.get_mut(&other).unwrap().attr.nlink = 9), ["counts_wrong"]);
        let unowned = shard(0, 2, Shards::over([ServerId(0), ServerId(2)]));
        assert_eq!(words(&|t| _ = t.shards.insert((DIR, ServerId(2)), unowned.clone())), ["shard_unowned"]);
        assert_eq!(
            words(&|t| _ = t.objects.remove(&DIR)),
            ["directory_missing", "entry_dangling", "links_wrong"]
        );
    }

    #[test]
    fn a_forked_file_that_lacks_a_subfile_or_has_another_entry_is_named() {
        let (mut tables, forked) = (good(), |dist| shoal_proto::Template { dist, width: 1 });
        let (file, subfile) = (at(0, 40), at(1, 41));
        for (handle, nlink, parent, dist) in
            [(file, 4, Handle::ROOT, Dist::Forked { subfiles: 2 }), (subfile, 2, file, Dist::Fork)]
        {
            let mut made = object(Kind::Directory, nlink, parent);
            made.shard.as_mut().unwrap().attr.template = forked(dist);
            tables.objects.insert(handle, made);
        }
        let strange = entry(file, "2", DIR, Kind::Directory);
        tables.entries.push(entry(file, "0", subfile, Kind::Directory));
        tables.entries.push(strange.clone());
        let found: BTreeSet<Problem> = {
            let mut found = BTreeSet::new();
            check_forked(&tables, &Names::of(&tables), &mut found);
            found
        };
        let missing = Problem::SubfileMissing { file, subfile: 1, path: None };
        assert_eq!(found, BTreeSet::from([missing, Problem::SubfileStrange(strange)]));
    }
}
