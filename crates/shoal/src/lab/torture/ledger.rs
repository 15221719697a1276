//! One client's ledger: the changes that it intended, those that were acknowledged, and the state that must
//! follow from them.
//!
//! The ledger is a file, with one line for an intention, written before the act, and one for its result:
//!
//! ```text
//!   17 ? {"rename":{"from":"work/w3/f5","to":"work/shared-1/w3-f9"}}
//!   17 !                       acknowledged (with the inode number of what was made)
//!   18 ? {"write":{…}}
//!   18 - no space              refused: no name was changed; a part of a write may be there
//!   19 ~ killed                in doubt: done, or not
//! ```
//! The ledger has the same rules as the simulator's ledger (`shoal_sim::ledger`), for a client that alone
//! uses its names, and for servers that lose no power. Acknowledged changes are there, byte for byte, as the
//! same object, by each of its names; removed names are not there. **If a change of names is in doubt, it was
//! done wholly or not at all. If a write is in doubt, any part of its bytes may be there, and nothing else
//! may have changed.** The client never changes names in doubt again. So each later check judges them by the
//! same two possible states.

use super::hand::{Act, Seen, content};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// An object of a ledger.
pub type ObjectId = usize;

/// A name: its object before and after a change.
type Step = (String, Option<ObjectId>, Option<ObjectId>);

/// Something made.
#[derive(Clone, Debug, Default)]
struct Object {
    /// Its inode number, if its making was acknowledged.
    ino: Option<u64>,
    /// Its bytes; `None`: a directory.
    bytes: Option<Vec<u8>>,
    /// A change of bytes that may have been done.
    maybe: Option<Change>,
    /// It is, or a name of it is, in doubt: it is not touched any more.
    spent: bool,
    /// The longest it ever was.
    longest: usize,
    /// The entry that changed it last.
    entry: u64,
}

/// A change of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Cut(usize),
}

/// A change of names that may have been done.
#[derive(Clone, Debug)]
struct Doubt {
    entry: u64,
    act: Act,
    steps: Vec<Step>,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The violation; it names the file.
    pub words: String,
    /// The entry.
    pub entry: u64,
}

/// The result of a listing at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Inode number.
    pub ino: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// See the module.
pub struct Ledger {
    /// The client's name.
    pub name: String,
    path: PathBuf,
    file: File,
    entries: u64,
    objects: Vec<Object>,
    live: BTreeMap<String, ObjectId>,
    gone: BTreeMap<String, u64>,
    doubts: Vec<Doubt>,
}

impl Ledger {
    /// A new ledger of a client, in `folder`.
    pub fn new(folder: &Path, name: &str) -> Result<Ledger> {
        let path = folder.join(name);
        let file = File::create_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Ledger {
            name: name.to_owned(),
            path,
            file,
            entries: 0,
            objects: Vec::new(),
            live: BTreeMap::new(),
            gone: BTreeMap::new(),
            doubts: Vec::new(),
        })
    }

    /// An entry, as a report names it.
    pub fn place(&self, entry: u64) -> String {
        format!("{}, entry {entry}", self.path.display())
    }

    /// Files whose state is certain, by all their names.
    pub fn files(&self) -> Vec<&str> {
        self.certain().filter(|(_, object)| object.bytes.is_some()).map(|(path, _)| path).collect()
    }

    /// Directories whose state is certain.
    pub fn directories(&self) -> Vec<&str> {
        self.certain().filter(|(_, object)| object.bytes.is_none()).map(|(path, _)| path).collect()
    }

    fn certain(&self) -> impl Iterator<Item = (&str, &Object)> {
        let named = self.live.iter().map(|(path, object)| (path.as_str(), &self.objects[*object]));
        named.filter(|(_, object)| !object.spent)
    }

    /// Whether a directory may be moved or removed: nothing in doubt is below it.
    pub fn is_settled(&self, dir: &str) -> bool {
        let doubted = self.doubts.iter().flat_map(|doubt| &doubt.steps).map(|(path, ..)| path);
        let spent = self.live.iter().filter(|(_, object)| self.objects[**object].spent).map(|(path, _)| path);
        !doubted.chain(spent).any(|path| is_below(path, dir))
    }

    /// Whether nothing is in a directory.
    pub fn is_empty(&self, dir: &str) -> bool {
        !self.live.keys().any(|path| is_below(path, dir))
    }

    /// Whether two names lead to one object.
    pub fn is_same(&self, one: &str, other: &str) -> bool {
        self.live.get(one) == self.live.get(other)
    }

    /// Bytes of a file now, and the most it ever had.
    pub fn size(&self, path: &str) -> Option<(usize, usize)> {
        let object = &self.objects[*self.live.get(path)?];
        Some((object.bytes.as_ref()?.len(), object.longest))
    }

    /// It is about to be done.
    pub fn intend(&mut self, act: &Act) -> Result<u64> {
        self.entries += 1;
        writeln!(self.file, "{} ? {}", self.entries, serde_json::to_string(act)?)?;
        Ok(self.entries)
    }

    /// It was acknowledged; the inode number of the new object.
    pub fn done(&mut self, entry: u64, act: &Act, made: Option<u64>) -> Result<()> {
        let ino = made.map(|ino| format!(" {ino}")).unwrap_or_default();
        writeln!(self.file, "{entry} !{ino}")?;
        let (steps, change) = self.effect(entry, act);
        for (path, _, after) in &steps {
            match *after {
                Some(object) => {
                    self.objects[object].ino = self.objects[object].ino.or(made);
                    self.gone.remove(path);
                    self.live.insert(path.clone(), object);
                }
                None => {
                    self.live.remove(path);
                    self.gone.insert(path.clone(), entry);
                }
            }
        }
        // An object without a name has no bytes to be judged.
        for object in steps.iter().filter_map(|(_, before, _)| *before) {
            if !self.live.values().any(|live| *live == object)
                && let Some(bytes) = &mut self.objects[object].bytes
            {
                *bytes = Vec::new();
            }
        }
        if let Some((object, change)) = change {
            let object = &mut self.objects[object];
            object.entry = entry;
            if let Some(bytes) = &mut object.bytes {
                change.apply(bytes);
                object.longest = object.longest.max(bytes.len());
            }
        }
        Ok(())
    }

    /// It was refused: no name has changed. Of a write a part may have been done before it was.
    pub fn refused(&mut self, entry: u64, act: &Act, words: &str) -> Result<()> {
        writeln!(self.file, "{entry} - {words}")?;
        if let (_, Some((object, change))) = self.effect(entry, act) {
            self.objects[object].maybe = Some(change);
            self.objects[object].spent = true;
        }
        Ok(())
    }

    /// It is unknown whether it was done.
    pub fn in_doubt(&mut self, entry: u64, act: &Act, words: &str) -> Result<()> {
        writeln!(self.file, "{entry} ~ {words}")?;
        let (steps, change) = self.effect(entry, act);
        for (path, before, after) in &steps {
            self.live.remove(path);
            for object in before.iter().chain(after) {
                self.objects[*object].spent = true;
            }
        }
        if !steps.is_empty() {
            self.doubts.push(Doubt { entry, act: act.clone(), steps });
        }
        if let Some((object, change)) = change {
            self.objects[object].maybe = Some(change);
            self.objects[object].spent = true;
            self.objects[object].entry = entry;
        }
        Ok(())
    }

    /// The effect of an act on names, and on bytes.
    fn effect(&mut self, entry: u64, act: &Act) -> (Vec<Step>, Option<(ObjectId, Change)>) {
        let led = |path: &String| self.live.get(path).copied();
        let bytes = |path: &String, change: Change| (Vec::new(), led(path).map(|object| (object, change)));
        match act {
            Act::Create { path } | Act::Mkdir { path } => {
                let bytes = matches!(act, Act::Create { .. }).then(Vec::new);
                self.objects.push(Object { bytes, entry, ..Object::default() });
                (vec![(path.clone(), None, Some(self.objects.len() - 1))], None)
            }
            Act::Rmdir { path } | Act::Unlink { path } => (vec![(path.clone(), led(path), None)], None),
            Act::Link { from, to } => (vec![(to.clone(), None, led(from))], None),
            Act::Rename { from, to } => {
                let mut steps = vec![(from.clone(), led(from), None), (to.clone(), led(to), led(from))];
                for (path, object) in self.live.iter().filter(|(path, _)| is_below(path, from)) {
                    steps.push((path.clone(), Some(*object), None));
                    steps.push((format!("{to}{}", &path[from.len()..]), None, Some(*object)));
                }
                (steps, None)
            }
            Act::Truncate { path, size } => bytes(path, Change::Cut(*size as usize)),
            Act::Write { path, offset, len, seed, .. } => {
                bytes(path, Change::Write { offset: *offset as usize, bytes: content(*seed, *len) })
            }
            Act::Append { path, len, seed } => {
                let end = self.size(path).map_or(0, |(now, _)| now);
                bytes(path, Change::Write { offset: end, bytes: content(*seed, *len) })
            }
            Act::Read { .. } | Act::Look { .. } | Act::List { .. } | Act::Many(_) => (Vec::new(), None),
        }
    }

    /// Hold the names against all that was found of this client's.
    pub fn judge_names(&self, found: &BTreeMap<String, Found>) -> Vec<Wrong> {
        let mut wrong = Vec::new();
        let mut known: BTreeSet<&str> = self.live.keys().map(String::as_str).collect();
        for (path, object) in &self.live {
            let entry = self.objects[*object].entry;
            match found.get(path) {
                None => {
                    wrong.push(Wrong { words: format!("{path} was acknowledged and is not there"), entry })
                }
                Some(found) if !self.is_it(*object, found) => {
                    wrong.push(Wrong { words: format!("{path} is another object: {found:?}"), entry });
                }
                Some(_) => {}
            }
        }
        for Doubt { entry, act, steps } in &self.doubts {
            known.extend(steps.iter().map(|(path, ..)| path.as_str()));
            let leads = |path: &str, object: Option<ObjectId>| match (object, found.get(path)) {
                (None, found) => found.is_none(),
                (Some(_), None) => false,
                (Some(object), Some(found)) => self.is_it(object, found),
            };
            let before = steps.iter().all(|(path, before, _)| leads(path, *before));
            let after = steps.iter().all(|(path, _, after)| leads(path, *after));
            if !before && !after {
                wrong.push(Wrong { words: format!("{act:?} was done by half"), entry: *entry });
            }
        }
        for path in found.keys().filter(|path| !known.contains(path.as_str())) {
            let (words, entry) = match self.gone.get(path) {
                Some(entry) => (format!("{path} was removed and is there again"), *entry),
                None => (format!("{path} is there and was never made"), 0),
            };
            wrong.push(Wrong { words, entry });
        }
        wrong
    }

    fn is_it(&self, object: ObjectId, found: &Found) -> bool {
        let object = &self.objects[object];
        object.bytes.is_none() == found.is_dir && object.ino.is_none_or(|ino| ino == found.ino)
    }

    /// Hold a file's bytes and links against the ledger.
    pub fn judge_file(&self, path: &str, seen: &Seen, found: &[u8]) -> Option<Wrong> {
        let doubted = || {
            let steps =
                self.doubts.iter().flat_map(|doubt| &doubt.steps).filter(|(doubted, ..)| doubted == path);
            // Of two objects the name may lead to, the one with this inode number.
            let objects: Vec<ObjectId> =
                steps.flat_map(|(_, before, after)| before.iter().chain(after)).copied().collect();
            let same = |object: &ObjectId| self.objects[*object].ino.is_none_or(|ino| ino == seen.ino);
            objects.into_iter().find(same)
        };
        let id = self.live.get(path).copied().or_else(doubted)?;
        let object = &self.objects[id];
        let wrong = |words: String| Some(Wrong { words: format!("{path} {words}"), entry: object.entry });
        let names = self.live.values().filter(|live| **live == id).count() as u64;
        if !object.spent && seen.nlink != names {
            return wrong(format!("has {} links, not {names}", seen.nlink));
        }
        let was = object.bytes.as_ref()?;
        match &object.maybe {
            None => differs(found, was).and_then(wrong),
            Some(change) => change.judge(was, found).and_then(wrong),
        }
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Cut(size) => to.resize(*size, 0),
            // A write of nothing lengthens nothing.
            Change::Write { bytes, .. } if bytes.is_empty() => {}
            Change::Write { offset, bytes } => {
                to.resize(to.len().max(offset + bytes.len()), 0);
                to[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// The violation if this may have been done to `was`, for a write in any part.
    fn judge(&self, was: &[u8], found: &[u8]) -> Option<String> {
        let mut after = was.to_vec();
        self.apply(&mut after);
        if let Change::Cut(_) = self {
            return differs(found, was).and_then(|_| differs(found, &after));
        }
        if found.len() < was.len() || found.len() > after.len() {
            return Some(format!("has {} bytes, not {} to {}", found.len(), was.len(), after.len()));
        }
        let old = |at: usize| was.get(at).copied().unwrap_or(0);
        let at = (0..found.len()).find(|at| found[*at] != old(*at) && found[*at] != after[*at])?;
        Some(format!("has at {at} a byte of neither before nor after the write in doubt"))
    }
}

fn differs(found: &[u8], expected: &[u8]) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("has {} bytes, not {}", found.len(), expected.len()));
    }
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    let wrong = found.iter().zip(expected).filter(|(found, expected)| found != expected).count();
    Some(format!(
        "has {wrong} wrong bytes of {}, the first at {at}: {:#04x}, not {:#04x}",
        found.len(),
        found[at],
        expected[at]
    ))
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Desk(Ledger, #[expect(dead_code, reason = "it holds the ledger's file")] tempfile::TempDir);

    impl Desk {
        fn new() -> Desk {
            let folder = tempfile::tempdir().unwrap();
            Desk(Ledger::new(folder.path(), "w0").unwrap(), folder)
        }

        fn done(&mut self, act: Act, made: Option<u64>) {
            let entry = self.0.intend(&act).unwrap();
            self.0.done(entry, &act, made).unwrap();
        }

        fn doubt(&mut self, act: Act) {
            let entry = self.0.intend(&act).unwrap();
            self.0.in_doubt(entry, &act, "").unwrap();
        }

        /// Sentences about names that lead to these inodes, directories being those above 100.
        fn names(&self, found: &[(&str, u64)]) -> Vec<String> {
            let found =
                found.iter().map(|(path, ino)| ((*path).to_owned(), Found { ino: *ino, is_dir: *ino > 100 }));
            self.0.judge_names(&found.collect()).into_iter().map(|wrong| wrong.words).collect()
        }

        fn file(&self, path: &str, ino: u64, nlink: u64, bytes: &[u8]) -> Option<String> {
            let seen = Seen { ino, nlink, size: bytes.len() as u64, is_dir: false };
            self.0.judge_file(path, &seen, bytes).map(|wrong| wrong.words)
        }
    }

    fn text(path: &str) -> String {
        path.to_owned()
    }

    fn create(path: &str) -> Act {
        Act::Create { path: text(path) }
    }

    fn rename(from: &str, to: &str) -> Act {
        Act::Rename { from: text(from), to: text(to) }
    }

    fn write(path: &str, offset: u64, len: usize) -> Act {
        Act::Write { path: text(path), offset, len, seed: 9, sync: false }
    }

    #[test]
    fn what_was_acknowledged_is_there_and_what_was_removed_is_not() {
        let mut desk = Desk::new();
        desk.done(create("a"), Some(7));
        assert_eq!(desk.names(&[("a", 7)]), [""; 0]);
        assert_eq!(desk.names(&[]), ["a was acknowledged and is not there"]);
        assert_eq!(desk.names(&[("a", 8)]).len(), 1);
        assert_eq!(desk.names(&[("a", 7), ("b", 8)]), ["b is there and was never made"]);
        desk.done(Act::Unlink { path: text("a") }, None);
        assert_eq!(desk.names(&[]), [""; 0]);
        assert_eq!(desk.names(&[("a", 7)]), ["a was removed and is there again"]);
    }

    #[test]
    fn a_file_has_its_bytes_and_links_by_each_of_its_names() {
        let mut desk = Desk::new();
        desk.done(create("a"), Some(7));
        desk.done(write("a", 3, 10), None);
        desk.done(Act::Link { from: text("a"), to: text("b") }, None);
        desk.done(Act::Truncate { path: text("b"), size: 5 }, None);
        desk.done(Act::Append { path: text("a"), len: 1, seed: 1 }, None);
        let expected = [0, 0, 0, 9, 0, 1];
        assert_eq!(desk.file("a", 7, 2, &expected), None);
        assert_eq!(desk.file("b", 7, 2, &expected), None);
        assert!(desk.file("a", 7, 1, &expected).is_some());
        assert!(desk.file("a", 7, 2, &expected[..5]).is_some());
        assert!(desk.file("a", 7, 2, &[0, 0, 0, 9, 0, 2]).is_some());
    }

    #[test]
    fn a_move_of_a_directory_in_doubt_takes_all_below_it_or_nothing() {
        let mut desk = Desk::new();
        desk.done(Act::Mkdir { path: text("d") }, Some(101));
        desk.done(create("d/f"), Some(7));
        desk.done(rename("d", "e"), None);
        assert_eq!(desk.names(&[("e", 101), ("e/f", 7)]), [""; 0]);
        desk.doubt(rename("e", "g"));
        assert_eq!(desk.names(&[("e", 101), ("e/f", 7)]), [""; 0]);
        assert_eq!(desk.names(&[("g", 101), ("g/f", 7)]), [""; 0]);
        assert_eq!(desk.names(&[("g", 101)]).len(), 1);
        assert_eq!(desk.names(&[("e", 101), ("g/f", 7)]).len(), 1);
        assert!(desk.0.files().is_empty() && desk.0.directories().is_empty());
    }

    #[test]
    fn a_directory_with_something_in_doubt_below_it_is_not_settled() {
        let mut desk = Desk::new();
        desk.done(Act::Mkdir { path: text("d") }, Some(101));
        assert!(desk.0.is_settled("d") && desk.0.is_empty("d"));
        desk.doubt(create("d/f"));
        assert!(!desk.0.is_settled("d"));
        assert_eq!(desk.names(&[("d", 101), ("d/f", 7)]), [""; 0]);
        assert_eq!(desk.names(&[("d", 101)]), [""; 0]);
    }

    #[test]
    fn a_write_in_doubt_may_be_there_in_part_and_nothing_else_may_have_changed() {
        let mut desk = Desk::new();
        desk.done(create("a"), Some(7));
        desk.done(write("a", 0, 4), None);
        desk.doubt(Act::Write { path: text("a"), offset: 2, len: 4, seed: 0x0403_0201, sync: false });
        let (old, new) = ([9, 0, 0, 0], [9, 0, 1, 2, 3, 4]);
        assert_eq!(desk.file("a", 7, 1, &old), None);
        assert_eq!(desk.file("a", 7, 1, &new), None);
        assert_eq!(desk.file("a", 7, 1, &[9, 0, 0, 2, 0]), None);
        assert!(desk.file("a", 7, 1, &[8, 0, 1, 2, 3, 4]).is_some());
        assert!(desk.file("a", 7, 1, &[9, 0, 5, 2, 3, 4]).is_some());
        assert!(desk.file("a", 7, 1, &old[..3]).is_some());
    }

    #[test]
    fn a_cut_in_doubt_was_done_or_not() {
        let mut desk = Desk::new();
        desk.done(create("a"), Some(7));
        desk.done(write("a", 0, 4), None);
        desk.doubt(Act::Truncate { path: text("a"), size: 1 });
        assert_eq!(desk.file("a", 7, 1, &[9]), None);
        assert_eq!(desk.file("a", 7, 1, &[9, 0, 0, 0]), None);
        assert!(desk.file("a", 7, 1, &[9, 0]).is_some());
    }

    #[test]
    fn what_was_refused_has_changed_no_name() {
        let mut desk = Desk::new();
        let act = create("a");
        let entry = desk.0.intend(&act).unwrap();
        desk.0.refused(entry, &act, "no space").unwrap();
        assert_eq!(desk.names(&[]), [""; 0]);
        assert_eq!(desk.names(&[("a", 7)]).len(), 1);
    }
}
