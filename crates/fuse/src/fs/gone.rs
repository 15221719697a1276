//! Objects that were removed through this mount and that the kernel still refers to.
//!
//! A directory that is held open, or is a process's working directory, stays an inode of the kernel after
//! its removal, and so does any object that a descriptor of `O_PATH` leads to. The server has dropped the
//! object and answers `ESTALE`, but a local file system would show the object with no links. **So the mount
//! keeps the attributes that it last returned to the kernel**, and answers from them once the server has
//! reported that the object is gone. (The kernel itself answers creations in a removed directory, and its
//! listing.) Open files are not kept here: their server keeps them until the last close.
//!
//! An object that another client removed is not known here: a request for it fails with `ESTALE`.
//!
//! The kernel reports when it no longer refers to an object (`FORGET`), nearly always at once; that drops
//! the kept attributes. The table is bounded; requests for an object that falls out of it fail with
//! `ESTALE`.

use lru::LruCache;
use shoal_proto::{Attr, Handle, SetAttr};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects kept.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");

/// See the module's words. Shared by the event loops and the client.
#[derive(Debug)]
pub struct Gone(Mutex<LruCache<Handle, Attr>>);

impl Default for Gone {
    fn default() -> Gone {
        Gone(Mutex::new(LruCache::new(OBJECTS_MAX)))
    }
}

impl Gone {
    fn kept(&self) -> MutexGuard<'_, LruCache<Handle, Attr>> {
        // Each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name of it was removed through this mount: perhaps its last. These were its attributes.
    pub(super) fn removed(&self, attr: Attr) {
        self.kept().push(attr.handle, attr);
    }

    /// The kept attributes of an object that its server reports gone.
    pub(super) fn get(&self, object: Handle) -> Option<Attr> {
        self.kept().get(&object).map(|attr| Attr { nlink: 0, ..attr.clone() })
    }

    /// Change the kept attributes.
    pub(super) fn set(&self, object: Handle, set: &SetAttr) -> Option<Attr> {
        if let Some(attr) = self.kept().get_mut(&object) {
            attr.mode = set.mode.unwrap_or(attr.mode);
            attr.uid = set.uid.unwrap_or(attr.uid);
            attr.gid = set.gid.unwrap_or(attr.gid);
            attr.atime = set.atime.unwrap_or(attr.atime);
            attr.mtime = set.mtime.unwrap_or(attr.mtime);
        }
        self.get(object)
    }

    /// The kernel does not refer to it any more.
    pub fn forgotten(&self, object: Handle) {
        self.kept().pop(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{Kind, samples};

    fn directory(handle: u64) -> Attr {
        Attr { handle: Handle(handle), kind: Kind::Directory, nlink: 2, ..samples::attr() }
    }

    #[test]
    fn what_was_removed_has_no_links_until_the_kernel_forgets_it() {
        let gone = Gone::default();
        assert_eq!(gone.get(Handle(7)), None);
        gone.removed(directory(7));
        assert_eq!(gone.get(Handle(7)), Some(Attr { nlink: 0, ..directory(7) }));
        let set = SetAttr { mode: Some(0o500), ..SetAttr::default() };
        assert_eq!(gone.set(Handle(7), &set).map(|attr| (attr.mode, attr.nlink)), Some((0o500, 0)));
        assert_eq!(gone.set(Handle(8), &set), None);
        gone.forgotten(Handle(7));
        assert_eq!(gone.get(Handle(7)), None);
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let gone = Gone::default();
        (0..=OBJECTS_MAX.get() as u64).for_each(|n| gone.removed(directory(n)));
        assert_eq!(gone.get(Handle(0)), None);
        assert!(gone.get(Handle(1)).is_some());
    }
}
