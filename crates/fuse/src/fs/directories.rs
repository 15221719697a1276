//! Attributes of directories after the last change through this mount.
//!
//! When an entry is made or removed, the kernel drops the cached attributes of the directory. Before the next
//! change it requests them again, to check permissions. The mount already has them from the answer to the
//! last change ([`Vfs::hear_directories`]). So **the event loop's own thread** answers the request from this
//! table. Such an answer needs no message to a server and wakes no other thread.
//!
//! **The cache time of these attributes begins when the change is requested**; the kernel receives the
//! remaining time. A mount without a cache time keeps no attributes here. If two changes are under way
//! together, the attributes with the later change time are kept. Any other change of a directory through this
//! mount drops the directory's attributes from the table. From then on the table accepts no attributes, of
//! any directory, that were requested before this change.
//!
//! [`Vfs::hear_directories`]: shoal_vfs::Vfs::hear_directories

use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle};
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Directories remembered.
const DIRECTORIES_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not zero");

/// See the module's words. Shared by the event loops and the client.
#[derive(Debug)]
pub struct Directories {
    believed: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// The attributes, and the moment at which their cache time begins.
    attrs: LruCache<Handle, (Attr, Instant)>,
    /// The time of the last change of any directory that returned no attributes.
    changed_at: Option<Instant>,
}

impl Directories {
    /// An empty table. `believed`: the time for which the kernel caches attributes.
    pub fn new(believed: Duration) -> Directories {
        let known = Known { attrs: LruCache::new(DIRECTORIES_MAX), changed_at: None };
        Directories { believed, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // No panic leaves it half changed: each change is one call.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the table ever keeps attributes: the mount has a cache time.
    pub(super) fn are_believed(&self) -> bool {
        !self.believed.is_zero()
    }

    /// The attributes after a change that was requested at `asked_at`.
    pub(super) fn saw(&self, attr: &Attr, asked_at: Instant) {
        let mut known = self.known();
        let outdated = known.changed_at.is_some_and(|changed| changed >= asked_at);
        let later = known.attrs.peek(&attr.handle).is_some_and(|(kept, _)| kept.ctime > attr.ctime);
        if self.are_believed() && !outdated && !later {
            known.attrs.push(attr.handle, (attr.clone(), asked_at));
        }
    }

    /// A directory was changed, or may have been: drop its attributes, so that they are requested again.
    pub(super) fn changed(&self, dir: Handle, now: Instant) {
        let mut known = self.known();
        known.changed_at = Some(now);
        known.attrs.pop(&dir);
    }

    /// Some were changed, and it is not known which.
    pub(super) fn some_changed(&self, now: Instant) {
        let mut known = self.known();
        known.changed_at = Some(now);
        known.attrs.clear();
    }

    /// A directory's attributes, if they are known, and how long they are still valid.
    pub fn get(&self, dir: Handle, now: Instant) -> Option<(Attr, Duration)> {
        let mut known = self.known();
        let (attr, at) = known.attrs.get(&dir)?;
        let left = self.believed.checked_sub(now.since(*at)).filter(|left| !left.is_zero())?;
        Some((attr.clone(), left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{Kind, Time, samples};

    const DIR: Handle = Handle(78);
    const SPAN: Duration = Duration::from_nanos(100);

    fn directory(ctime: i64) -> Attr {
        Attr { handle: DIR, kind: Kind::Directory, ctime: Time(ctime), layout: None, ..samples::attr() }
    }

    fn ctime(directories: &Directories, now: u64) -> Option<i64> {
        directories.get(DIR, Instant(now)).map(|(attr, _)| attr.ctime.0)
    }

    #[test]
    fn a_directory_is_believed_for_the_rest_of_its_time_and_in_a_strict_mount_never() {
        let directories = Directories::new(SPAN);
        directories.saw(&directory(1), Instant(10));
        let left = directories.get(DIR, Instant(109)).map(|(_, left)| left);
        assert_eq!(left, Some(Duration::from_nanos(1)));
        assert_eq!(ctime(&directories, 110), None);
        let strict = Directories::new(Duration::ZERO);
        strict.saw(&directory(1), Instant(10));
        assert_eq!(ctime(&strict, 10), None);
    }

    #[test]
    fn of_two_changes_of_a_directory_the_later_state_counts() {
        let directories = Directories::new(SPAN);
        directories.saw(&directory(2), Instant(10));
        directories.saw(&directory(1), Instant(11));
        assert_eq!(ctime(&directories, 12), Some(2));
        directories.saw(&directory(3), Instant(9));
        assert_eq!(ctime(&directories, 12), Some(3));
    }

    #[test]
    fn another_change_of_a_directory_ends_what_was_known_and_what_was_asked_before() {
        let directories = Directories::new(SPAN);
        directories.saw(&directory(1), Instant(10));
        directories.changed(DIR, Instant(20));
        directories.saw(&directory(2), Instant(20));
        assert_eq!(ctime(&directories, 20), None);
        directories.saw(&directory(3), Instant(21));
        assert_eq!(ctime(&directories, 21), Some(3));
        directories.some_changed(Instant(30));
        directories.saw(&directory(4), Instant(29));
        assert_eq!(ctime(&directories, 31), None);
    }
}
