//! The bytes and attributes of an open file, and those of its puts whose results are not known.

use super::parts::{Part, Parts};
use crate::format::Named;
use crate::name_space::Version;
use crate::store::{Tag, When};
use bytes::Bytes;
use shoal_proto::Time;
use std::collections::VecDeque;

/// Puts of a name's object without an answer that are remembered.
const TRIED_MAX: usize = 8;

/// See the module.
pub(super) struct Content {
    /// As the file is here: whether its bytes go on in parts after the content, and attributes that are not
    /// published.
    pub(super) named: Named,
    /// The object of the name as this process knows that it is in the store.
    pub(super) stored: Named,
    /// The version of the name's object, on whose condition it is put anew.
    pub(super) tag: Version,
    /// Parts that do not change any more.
    pub(super) parts: Vec<Part>,
    /// Where the tail begins.
    pub(super) tail_at: u64,
    pub(super) tail: Vec<u8>,
    /// The version of the part at `tail_at`, if there is one.
    pub(super) tail_tag: Option<Tag>,
    /// A put of a part at `tail_at` whose result is not known: its bytes and its condition.
    pub(super) unsure: Option<(Bytes, When)>,
    /// Puts of the name's object whose results are not known: whether it has parts, and its content.
    pub(super) tried: Vec<(bool, Bytes)>,
    /// Parts that were cut, and whose removal is not known to be done, by their offsets; the last one first.
    pub(super) cut: VecDeque<u64>,
    /// Bytes of the tail that are published.
    pub(super) published: usize,
    /// The last part was short, and is in the tail now.
    pub(super) is_tail_loaded: bool,
    pub(super) modified: Option<Time>,
    /// Bytes of the tail are not published as they are.
    pub(super) has_new_bytes: bool,
    /// The name's object was put by the publication that is under way.
    pub(super) is_name_put: bool,
    /// Attributes are not published.
    pub(super) has_new_attributes: bool,
    pub(super) has_written: bool,
    pub(super) is_unlinked: bool,
}

impl Content {
    pub(super) fn new(named: Named, tag: Version, parts: Parts) -> Content {
        let is_small = !named.has_parts;
        let tail = if is_small { named.content.to_vec() } else { Vec::new() };
        Content {
            tag,
            tail_at: if is_small { 0 } else { parts.end },
            parts: parts.all,
            published: tail.len(),
            tail,
            tail_tag: None,
            unsure: None,
            tried: Vec::new(),
            cut: VecDeque::new(),
            is_tail_loaded: is_small,
            modified: parts.modified,
            has_new_bytes: false,
            is_name_put: false,
            has_new_attributes: false,
            has_written: false,
            is_unlinked: false,
            stored: named.clone(),
            named,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    /// This is about to be put as the object of the name.
    pub(super) fn tries(&mut self, has_parts: bool, content: &Bytes) {
        let tried = (has_parts, content.clone());
        if self.tried.first() != Some(&tried) {
            self.tried.truncate(TRIED_MAX - 1);
            self.tried.insert(0, tried);
        }
    }

    /// Whether an object of the name has the bytes of the one that is known, or of a put whose result is not.
    pub(super) fn may_be_own(&self, now: &Named) -> bool {
        let is_it = |has_parts: bool, content: &Bytes| (has_parts, content) == (now.has_parts, &now.content);
        is_it(self.stored.has_parts, &self.stored.content)
            || self.tried.iter().any(|(has_parts, content)| is_it(*has_parts, content))
    }

    /// The object of the name is this one in the store. Bytes of another process in it are found by the next
    /// put: so the version stays the old one then.
    pub(super) fn has_version(&mut self, now: &Named, tag: Version) -> bool {
        if !self.may_be_own(now) {
            return false;
        }
        // An own put that was done late says how the bytes lie in the store. Here they lie as they did, until
        // the caller's put is done.
        self.named = self.named.with_changes(&self.stored, now);
        (self.stored, self.tag) = (now.clone(), tag);
        true
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.has_new_bytes || self.has_new_attributes || !self.cut.is_empty()
    }
}
