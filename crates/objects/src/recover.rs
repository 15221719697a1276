//! Check of all names, and repair: parts of files that were removed by processes that ended.
//!
//! `g/ID` is put when a file with parts lost its name, and deleted after its parts. One that is left belongs
//! to a process that ended, or that has the file open: by its age, or by the operator's word, it is removed.

use crate::PAGE_KEYS;
use crate::file::parts::Parts;
use crate::format::{Id, Named, Place};
use crate::name_space::At;
use crate::vfs::Objects;
use shoal_proto::{Kind, Status};
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
        let mut seen = HashSet::new();
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
                        checked.damage(format!("{}/{} is no name", shared.calls.called(), meta.key));
                        continue;
                    };
                    let place = Place { dir, name };
                    match shared.at(op, Some(&place)).await {
                        Err(error) if error.is_silence() => return Err(error),
                        Err(error) => checked.damage(error.words),
                        Ok(At::Held(named, _)) => self.check_named(named, &mut todo, &mut checked).await?,
                        Ok(At::Free) => {}
                        Ok(At::Moving(named, _)) => {
                            self.check_named(named, &mut todo, &mut checked).await?;
                            checked.leftover(format!("{} is being moved", meta.key));
                        }
                        Ok(At::Left { .. }) => checked.leftover(format!("{} is being removed", meta.key)),
                    }
                }
                if !page.has_more {
                    break;
                }
                after = page.found.last().map(|meta| meta.key.clone());
            }
        }
        let going = shared.calls.list(op, &shared.keys.all_going(), None, PAGE_KEYS).await?;
        going
            .found
            .iter()
            .for_each(|meta| checked.leftover(format!("{}: parts of a removed file", meta.key)));
        Ok(checked)
    }

    async fn check_named(&self, named: Named, todo: &mut Vec<Id>, checked: &mut Checked) -> Result<()> {
        checked.names += 1;
        if named.kind == Kind::Directory {
            todo.push(named.id);
        }
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
        loop {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in &page.found {
                let Some(file) = meta.key.strip_prefix(&prefix).and_then(Id::parse) else { continue };
                let age = shared.now().0.saturating_sub(meta.modified.0);
                let is_open = shared.nodes.borrow_mut().by_id(file).is_some_and(|node| !node.is_gone);
                if is_open || !(ended || age > AGE.as_nanos() as i64) {
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

impl Checked {
    fn damage(&mut self, words: String) {
        if self.damage.len() < WORDS_MAX {
            self.damage.push(words);
        }
    }

    fn leftover(&mut self, words: String) {
        if self.leftovers.len() < WORDS_MAX {
            self.leftovers.push(words);
        }
    }
}
