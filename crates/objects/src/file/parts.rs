//! The table of a file's parts, from a listing. A key states the offset of its part, and the listing the
//! length: so a part that is missing, or of another length, is found without a read.

use crate::attributes::Extent;
use crate::format::{Id, Named};
use crate::store::Meta;
use crate::vfs::Shared;
use crate::{PAGE_KEYS, PART_BYTES_MAX, PARTS_MAX, Tag};
use shoal_proto::{Status, Time};
use shoal_vfs::{Error, Result};

/// A published part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) tag: Tag,
}

fn has_too_many(prefix: &str, op: &'static str) -> Error {
    let words = format!("{prefix} has more than {PARTS_MAX} parts: write the file anew");
    Error::new(Status::OverLimit, op).because(words)
}

/// The parts that follow each other from the file's content on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) all: Vec<Part>,
    pub(crate) end: u64,
    pub(crate) modified: Option<Time>,
    /// Why the next part does not follow, in words.
    pub(crate) damage: Option<String>,
}

impl Parts {
    /// Of a file's name.
    pub(crate) async fn read(shared: &Shared, op: &'static str, named: &Named) -> Result<Parts> {
        let mut parts = Parts { end: named.content.len() as u64, ..Parts::default() };
        let (prefix, mut after) = (shared.keys.parts(named.id), None::<String>);
        loop {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in &page.found {
                let Some(at) = shared.keys.part_of(named.id, &meta.key) else { continue };
                if parts.damage.is_none() {
                    parts.add(shared, named.id, Part { at, len: meta.size, tag: meta.tag.clone() });
                    parts.modified = parts.modified.max(Some(meta.modified));
                }
            }
            if parts.all.len() > PARTS_MAX {
                return Err(has_too_many(&prefix, op));
            }
            if !page.has_more {
                return Ok(parts);
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }

    /// The offsets and versions of all parts of a file, in order, also of those that do not follow each
    /// other.
    pub(crate) async fn all(shared: &Shared, op: &'static str, file: Id) -> Result<Vec<(u64, Tag)>> {
        let (prefix, mut after, mut all) = (shared.keys.parts(file), None::<String>, Vec::new());
        while all.len() <= PARTS_MAX {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            after = page.found.last().map(|meta| meta.key.clone());
            let part = |meta: Meta| Some((shared.keys.part_of(file, &meta.key)?, meta.tag));
            all.extend(page.found.into_iter().filter_map(part));
            if !page.has_more {
                return Ok(all);
            }
        }
        Err(has_too_many(&prefix, op))
    }

    fn add(&mut self, shared: &Shared, file: Id, part: Part) {
        let key = |at| format!("{}/{}", shared.calls.called(), shared.keys.part(file, at));
        let is_usual = (1..=PART_BYTES_MAX as u64).contains(&part.len);
        if part.at == self.end && is_usual {
            self.end += part.len;
            self.all.push(part);
            return;
        }
        self.damage = Some(match self.all.last() {
            _ if !is_usual => format!("{} has {} bytes", key(part.at), part.len),
            // One of another length ends elsewhere than the next begins.
            Some(last) if part.at < self.end => {
                format!("{} has {} bytes, and the next begins at {}", key(last.at), last.len, part.at)
            }
            _ => format!("{} is missing or short, and a part at {} is there", key(self.end), part.at),
        });
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent { len: self.end, modified: self.modified }
    }

    /// Refuse a file whose parts do not follow each other.
    pub(crate) fn sound(self, op: &'static str) -> Result<Parts> {
        match &self.damage {
            Some(words) => {
                let words = format!("{words}: restore a version of that object");
                Err(Error::new(Status::Io, op).because(words))
            }
            None => Ok(self),
        }
    }
}
