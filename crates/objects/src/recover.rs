//! Checks all names of a file system in an object store, and removes objects that ended processes left.
//!
//! If a file with parts loses its name, the process that removes the name writes the object `g/ID` (`ID` is
//! the file's id). It deletes `g/ID` after the last part. A `g/ID` that stays belongs to a process that
//! ended, or to a process that has the file open. The repair removes the parts and `g/ID` if `g/ID` is older
//! than a day, or if the operator states that the process ended. It keeps a file that this process has open.
//! By the same rule the repair removes trials of the store (`t/ID`), and hints (`m/ID`) that do not lead to
//! their directory.
//!
//! Some leftovers have no `g/ID`. A process may write parts of a file that another process removed meanwhile.
//! Two moves at the same time may leave a directory that no path reaches from the root. So the check also
//! lists the keys of all names, parts and hints. It reports an object as *unreached* if no name leads to it
//! and it is older than the check. **The repair does not remove unreached parts and names.** A file may move
//! during the check, from a directory that is not listed yet into a directory that is listed already. Such a
//! file looks the same.
//!
//! If anything is damaged, the check reports unreached objects as damage too: a directory whose name cannot
//! be read leads to everything below it. An unreached name leads to a file that is whole, so an operator must
//! not remove it. A name that was removed already is the exception, and the report says so.

use crate::PAGE_KEYS;
use crate::file::parts::Parts;
use crate::format::{ENDED_BYTES, Id, Named, Place};
use crate::name_space::At;
use crate::store::Meta;
use crate::vfs::Objects;
use shoal_proto::{Kind, Status, Time};
use shoal_vfs::{Error, Result};
use std::collections::HashSet;
use std::time::Duration;

/// A file without a name is removed when it is older, unless the operator says that its process ended.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The names of a file system, looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Names in all directories that can be reached.
    pub names: u64,
    /// Objects of killed programs, in words.
    pub leftovers: Vec<String>,
    /// Damage, in words.
    pub damage: Vec<String>,
}

/// Objects to which nothing may lead, and the remedy where nothing is damaged.
const PARTS: (&str, &str) =
    ("parts of a file", "if no program changes files meanwhile, remove these objects");
const NAMES: (&str, &str) = (
    "names of a directory",
    "keep them, they lead to files: check again while no program changes files, then restore a version of the \
     name of that directory",
);
const BELOW: &str = "they may belong to a directory above: give it its name first, and remove nothing";
const FOREIGN: &str = "it is of another program: remove it, if no program needs it";
const MOVED: (&str, &str) =
    ("the name of a directory", "`shoal container recover --ended` removes it if no process does");

/// Files with parts that the check remembers, at most: 16 MiB of numbers.
const FILES_MAX: usize = 1 << 20;
/// Words that are kept, at most.
const WORDS_MAX: usize = 1000;

/// The repairs that were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// Files without a name whose parts were removed.
    pub removed: u64,
    /// Those that were left, as a process may have them open.
    pub kept: u64,
}

impl Objects {
    /// The bucket and the prefix.
    pub fn called(&self) -> String {
        format!("{}/{}", self.0.calls.called(), self.0.keys.0)
    }

    /// Look at all names, and at the tables of parts of all files.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn check(&self) -> Result<Checked> {
        let (op, shared) = ("check", &self.0);
        let (mut todo, mut checked) = (vec![Id::ROOT], Checked::default());
        let (mut seen, mut files) = (HashSet::new(), HashSet::new());
        let begun = shared.now();
        while let Some(dir) = todo.pop() {
            if !seen.insert(dir) {
                checked.damage(format!(
                    "two names lead to the directory {dir}: restore a version of one of them"
                ));
                continue;
            }
            let (prefix, mut after) = (shared.keys.directory(dir), None::<String>);
            loop {
                let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
                for meta in &page.found {
                    let Some(name) = shared.keys.name_of(dir, &meta.key) else {
                        // No damage: it hides nothing of ours.
                        let called = shared.calls.called();
                        checked.leftover(format!("{called}/{} is no name: {FOREIGN}", meta.key));
                        continue;
                    };
                    let place = Place { dir, name };
                    match shared.at(op, Some(&place)).await {
                        Err(error) if error.is_silence() => return Err(error),
                        Err(error) => checked.damage(error.words),
                        Ok(At::Held(named, _)) => {
                            note(&named, &mut todo, &mut files);
                            self.check_named(named, &mut checked).await?;
                        }
                        Ok(At::Free) => {}
                        Ok(At::Moving(named, _)) => {
                            note(&named, &mut todo, &mut files);
                            self.check_named(named, &mut checked).await?;
                            checked.leftover(format!("{} is being moved", meta.key));
                        }
                        Ok(At::Moved { swap, .. }) => {
                            if let Some(named) = swap {
                                note(&named, &mut todo, &mut files);
                                self.check_named(named, &mut checked).await?;
                            }
                            checked.leftover(format!("{} is being moved", meta.key));
                        }
                        Ok(At::Ended { dir, .. }) => {
                            // It may have entries, and is then given back.
                            todo.extend(dir.map(|dir| dir.id));
                            checked.leftover(format!("{} is being removed", meta.key));
                        }
                    }
                }
                if !page.has_more {
                    break;
                }
                after = page.found.last().map(|meta| meta.key.clone());
            }
        }
        let (going, has_more_going) = self.own(op, &shared.keys.all_going()).await?;
        for (id, meta) in &going {
            files.insert(*id);
            checked.leftover(format!("{}: parts of a removed file", meta.key));
        }
        let (trials, _) = self.own(op, &shared.keys.all_trials()).await?;
        trials.iter().for_each(|(_, meta)| checked.leftover(format!("{}: a trial of the store", meta.key)));
        let is_cut_off = self.unreached(&shared.keys.all_names(), &NAMES, &seen, begun, &mut checked).await?;
        let below = |(what, remedy)| (what, if is_cut_off { BELOW } else { remedy });
        if has_more_going || files.len() >= FILES_MAX {
            checked.leftover("too many files: parts to which no name leads were not looked for".to_owned());
        } else {
            self.unreached(&shared.keys.all_parts(), &below(PARTS), &files, begun, &mut checked).await?;
        }
        self.unreached(&shared.keys.all_moved(), &below(MOVED), &seen, begun, &mut checked).await?;
        Ok(checked)
    }

    /// The first objects of a prefix whose names there are ids, as many as a page has; whether there may be
    /// more. Others are of other programs, and are left alone: a bucket without a prefix may have folders of
    /// theirs.
    async fn own(&self, op: &'static str, prefix: &str) -> Result<(Vec<(Id, Meta)>, bool)> {
        let (mut after, mut own) = (None::<String>, Vec::new());
        loop {
            let page = self.0.calls.list(op, prefix, after.as_deref(), PAGE_KEYS).await?;
            after = page.found.last().map(|meta| meta.key.clone());
            let with_id = |meta: Meta| Some((meta.key.strip_prefix(prefix).and_then(Id::parse)?, meta));
            own.extend(page.found.into_iter().filter_map(with_id));
            if !page.has_more || own.len() >= PAGE_KEYS {
                return Ok((own, page.has_more));
            }
        }
    }

    /// Remove the names of moved directories that do not lead to them any more. A name that is missing makes
    /// a process look its directory up again, and no more.
    async fn forget_moves(&self, op: &'static str, is_old: impl Fn(&Meta) -> bool) -> Result<()> {
        let (shared, prefix, mut after) = (&self.0, self.0.keys.all_moved(), None::<String>);
        loop {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in page.found.iter().filter(|meta| is_old(meta)) {
                let Some(dir) = meta.key.strip_prefix(&prefix).and_then(Id::parse) else { continue };
                if !shared.is_moved_to(op, dir).await? {
                    shared.calls.delete(op, &meta.key).await?;
                }
            }
            if !page.has_more {
                return Ok(());
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }

    /// Report the objects below `PREFIX/ID/` whose id was not reached, and which are older than the check;
    /// whether there are some, other than names that were removed.
    async fn unreached(
        &self,
        prefix: &str,
        (what, remedy): &(&str, &str),
        reached: &HashSet<Id>,
        begun: Time,
        checked: &mut Checked,
    ) -> Result<bool> {
        let (mut after, mut said, mut are_there) = (None::<String>, None, false);
        let keys = &self.0.keys;
        let (is_names, is_parts) = (prefix == keys.all_names(), prefix == keys.all_parts());
        let is_ended = |meta: &Meta| is_names && matches!(meta.size, 0 | ENDED_BYTES);
        // One of a directory that was reached is named there.
        let is_foreign = |id, key: &str| {
            (is_names && keys.name_of(id, key).is_none()) || (is_parts && keys.part_of(id, key).is_none())
        };
        loop {
            let page = self.0.calls.list("check", prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in &page.found {
                let rest = meta.key.strip_prefix(prefix).and_then(|rest| rest.split('/').next());
                let Some(id) = rest.and_then(Id::parse) else { continue };
                if meta.modified >= begun || (reached.contains(&id) && !is_foreign(id, &meta.key)) {
                    continue;
                }
                if is_foreign(id, &meta.key) {
                    if !(is_names && reached.contains(&id)) {
                        checked.leftover(format!("{}: {FOREIGN}", meta.key));
                    }
                } else if is_ended(meta) {
                    checked.unreached(format!("{}: a name that was removed", meta.key), PARTS.1);
                } else if said != Some(id) {
                    said = Some(id);
                    checked.unreached(format!("{prefix}{id}: {what} to which no name leads"), remedy);
                    are_there = true;
                }
            }
            if !page.has_more {
                return Ok(are_there);
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }

    async fn check_named(&self, named: Named, checked: &mut Checked) -> Result<()> {
        checked.names += 1;
        if named.has_parts {
            let parts = Parts::read(&self.0, "check", &named).await?;
            parts.damage.into_iter().for_each(|words| checked.damage(words));
        }
        Ok(())
    }

    /// Remove the parts of files without a name. `ended`: the processes that removed them have ended.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn recover(&self, ended: bool) -> Result<Repaired> {
        let (op, shared) = ("recover", &self.0);
        let (prefix, mut after, mut repaired) =
            (shared.keys.all_going(), None::<String>, Repaired::default());
        let is_old =
            |meta: &Meta| ended || shared.now().0.saturating_sub(meta.modified.0) > AGE.as_nanos() as i64;
        let (trials, _) = self.own(op, &shared.keys.all_trials()).await?;
        for (_, meta) in trials.iter().filter(|(_, meta)| is_old(meta)) {
            shared.calls.delete(op, &meta.key).await?;
        }
        self.forget_moves(op, is_old).await?;
        loop {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in &page.found {
                let Some(file) = meta.key.strip_prefix(&prefix).and_then(Id::parse) else { continue };
                let is_open = shared.nodes.borrow_mut().by_id(file).is_some_and(|node| !node.is_gone);
                if is_open || !is_old(meta) {
                    repaired.kept += 1;
                    continue;
                }
                shared.remove_parts(op, file).await.map_err(|error| Error { status: Status::Io, ..error })?;
                repaired.removed += 1;
            }
            if !page.has_more {
                return Ok(repaired);
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }
}

/// Something leads to an object.
fn note(named: &Named, todo: &mut Vec<Id>, files: &mut HashSet<Id>) {
    if named.kind == Kind::Directory {
        todo.push(named.id);
    }
    if named.has_parts && files.len() < FILES_MAX {
        files.insert(named.id);
    }
}

impl Checked {
    fn damage(&mut self, words: String) {
        if self.damage.len() < WORDS_MAX {
            self.damage.push(words);
        }
    }

    /// Nothing leads to some objects; objects that are damaged may.
    fn unreached(&mut self, words: String, remedy: &str) {
        if self.damage.is_empty() {
            self.leftover(format!("{words}; {remedy}"));
        } else {
            self.damage(format!(
                "{words}: they may belong to what is damaged above: restore that first, and remove nothing"
            ));
        }
    }

    fn leftover(&mut self, words: String) {
        if self.leftovers.len() < WORDS_MAX {
            self.leftovers.push(words);
        }
    }
}
