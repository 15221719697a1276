//! Facts about objects that the mount remembers for a moment, to save messages that the kernel would
//! otherwise cause.
//!
//! Each fact is kept with the moment at which it was true:
//!
//! - *bare*: the object has no extended attributes. Programs and the kernel ask for `security.capability`,
//!   `security.selinux` and others of nearly every file; they are answered from here.
//! - *incapable*: the object has no file capability. Every write by a user other than root removes the
//!   capability.
//! - *privileged*: its mode has set-user-id or set-group-id. Every write by a user other than root requests
//!   that these bits are cleared, whether they are set or not.
//! - *changed*: when it was last changed through this mount, or a server reported that it is gone. An entry
//!   of a listing that was fetched before that must not replace the kernel's newer attributes of the file.
//! - *names*: when a name was last made, removed or moved through this mount. An entry that was requested
//!   before that may lead to the wrong object: the kernel receives it, but with a cache time of zero. For a
//!   while the same holds for a name whose file another client replaces ([`attempts`](super::attempts)).
//! - *second tries*: threads whose call met an object that is gone ([`attempts`](super::attempts)). Their
//!   next lookup asks a server.
//! - `told`: its attributes as last returned to the kernel, for removed objects: see [`gone`](super::gone).
//! - *size*: the size that the kernel received, the time of that size, and its value after the kernel's own
//!   writes. If an open finds another size, the kernel requests the attributes again.
//!
//! **A fact is valid no longer than the kernel caches names and attributes** (a *strict* mount caches
//! nothing, and keeps no fact), and a change through this mount ends it at once. The tables are bounded. A
//! fact that falls out of them is requested again, and an object or a name that falls out counts as changed.

use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle, Kind, Shards};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Objects remembered.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Changed names remembered.
const NAMES_MAX: NonZeroUsize = OBJECTS_MAX;
/// Threads on a second try remembered.
const SECOND_TRIES_MAX: usize = 1024;
/// Set-user-id and set-group-id.
const PRIVILEGES: u32 = 0o6000;

#[derive(Clone, Debug, Default)]
struct Fact {
    told: Option<Box<Attr>>,
    bare_at: Option<Instant>,
    incapable_at: Option<Instant>,
    privileged: Option<(bool, Instant)>,
    changed_at: Option<Instant>,
    /// `None` within: the kernel may cache any size.
    size: Option<(Option<u64>, Instant)>,
}

/// See the module's words.
#[derive(Debug)]
pub(crate) struct Known {
    facts: LruCache<Handle, Fact>,
    believed: Duration,
    /// The newest change of an object that fell out of the table.
    forgotten_change_at: Option<Instant>,
    /// The newest time of an object in the kernel that fell out of the table.
    forgotten_size_at: Option<Instant>,
    /// When names were changed, by [`name_hash`]: two of one hash count as changed both.
    names: LruCache<u64, Instant>,
    /// The newest change of a name that fell out of the table.
    forgotten_name_at: Option<Instant>,
    /// Until when a lookup of a thread belongs to a second try.
    second_tries: BTreeMap<u32, Instant>,
    /// When a name was last removed: its object may have other names.
    taken_at: Option<Instant>,
    /// Counts changes of extended attributes, so that a list fetched meanwhile is not kept.
    xattr_changes: u64,
}

impl Known {
    pub(crate) fn new(believed: Duration) -> Known {
        Known {
            facts: LruCache::new(OBJECTS_MAX),
            believed,
            forgotten_change_at: None,
            forgotten_size_at: None,
            names: LruCache::new(NAMES_MAX),
            forgotten_name_at: None,
            second_tries: BTreeMap::new(),
            taken_at: None,
            xattr_changes: 0,
        }
    }

    fn fact(&mut self, object: Handle) -> &mut Fact {
        if !self.facts.contains(&object)
            && let Some((_, fallen)) = self.facts.push(object, Fact::default())
        {
            self.forgotten_change_at = self.forgotten_change_at.max(fallen.changed_at);
            self.forgotten_size_at = self.forgotten_size_at.max(fallen.size.map(|(_, at)| at));
        }
        self.facts.get_or_insert_mut(object, Fact::default)
    }

    fn fresh(&self, at: Instant, now: Instant) -> bool {
        now.since(at) < self.believed
    }

    /// Its mode was seen, as it was at `at`.
    pub(crate) fn saw_mode(&mut self, object: Handle, mode: u32, at: Instant) {
        self.fact(object).privileged = Some((mode & PRIVILEGES != 0, at));
    }

    /// The kernel receives its attributes, as they were at `at`.
    pub(crate) fn told(&mut self, attr: &Attr, at: Instant) {
        self.saw_mode(attr.handle, attr.mode, at);
        self.told_size(attr.handle, attr.size, at);
        // The kernel does not need the file's layout.
        let told = Attr { layout: None, shards: Shards::WHOLE, ..attr.clone() };
        match &mut self.fact(attr.handle).told {
            Some(kept) => **kept = told,
            none => *none = Some(Box::new(told)),
        }
    }

    /// It has a name less; if that was the last one, its attributes.
    pub(crate) fn lost_a_name(&mut self, object: Handle) -> Option<Attr> {
        let attr = self.facts.get_mut(&object)?.told.as_deref_mut()?;
        attr.nlink = attr.nlink.saturating_sub(1);
        (attr.nlink == 0 || attr.kind == Kind::Directory).then(|| attr.clone())
    }

    /// Whether it has privileges that a write takes away, if that is known.
    pub(crate) fn privileged(&mut self, object: Handle, now: Instant) -> Option<bool> {
        let (privileged, at) = self.facts.get(&object)?.privileged?;
        self.fresh(at, now).then_some(privileged)
    }

    /// A mark to hand to [`Known::saw_bare`].
    pub(crate) fn xattr_mark(&self) -> u64 {
        self.xattr_changes
    }

    /// It was seen to have no extended attributes, requested when the mark was taken.
    pub(crate) fn saw_bare(&mut self, object: Handle, mark: u64, now: Instant) {
        if mark == self.xattr_changes {
            self.fact(object).bare_at = Some(now);
        }
    }

    /// It was seen to have no file capability, requested when the mark was taken.
    pub(crate) fn saw_incapable(&mut self, object: Handle, mark: u64, now: Instant) {
        if mark == self.xattr_changes {
            self.fact(object).incapable_at = Some(now);
        }
    }

    /// An extended attribute is being set, or was.
    pub(crate) fn xattr_changed(&mut self, object: Handle) {
        self.xattr_changes += 1;
        let fact = self.fact(object);
        (fact.bare_at, fact.incapable_at) = (None, None);
    }

    /// Whether it is known to have no file capability.
    pub(crate) fn incapable(&mut self, object: Handle, now: Instant) -> bool {
        let at = self.facts.get(&object).and_then(|fact| fact.incapable_at.max(fact.bare_at));
        at.is_some_and(|at| self.fresh(at, now))
    }

    /// Whether it is known to have no extended attributes.
    pub(crate) fn bare(&mut self, object: Handle, now: Instant) -> bool {
        let at = self.facts.get(&object).and_then(|fact| fact.bare_at);
        at.is_some_and(|at| self.fresh(at, now))
    }

    /// The kernel receives its size, as it was at `at`.
    pub(crate) fn told_size(&mut self, object: Handle, size: u64, at: Instant) {
        self.fact(object).size = Some((Some(size), at));
    }

    /// The kernel wrote to it up to `end`.
    pub(crate) fn grew_to(&mut self, object: Handle, end: u64) {
        if let Some((Some(size), _)) = &mut self.fact(object).size {
            *size = end.max(*size);
        }
    }

    /// The kernel may have any size of it from here on.
    pub(crate) fn unsure_of_size(&mut self, object: Handle) {
        if let Some((size, _)) = &mut self.fact(object).size {
            *size = None;
        }
    }

    /// Whether the kernel may have another size than this one cached; `None`: it is not known here.
    pub(crate) fn may_believe_another_size(
        &mut self,
        object: Handle,
        size: Option<u64>,
        now: Instant,
    ) -> bool {
        match self.facts.get(&object).and_then(|fact| fact.size) {
            Some((believed, at)) => self.fresh(at, now) && (size.is_none() || believed != size),
            // It fell out of the table.
            None => !self.believed.is_zero(),
        }
    }

    /// It was changed through this mount, or is gone.
    pub(crate) fn changed(&mut self, object: Handle, now: Instant) {
        self.fact(object).changed_at = Some(now);
    }

    /// Whether it may have been changed through this mount at `at` or later.
    pub(crate) fn changed_since(&mut self, object: Handle, at: Instant) -> bool {
        let changed_at = self.facts.get(&object).and_then(|fact| fact.changed_at);
        changed_at.max(self.forgotten_change_at).is_some_and(|changed| changed >= at)
    }

    /// Whether an object's attributes, requested at `at`, may be older than a change of it through this
    /// mount, or than the kernel's: newer attributes in the kernel must not be replaced by older ones.
    pub(crate) fn is_outdated(&mut self, attr: &Attr, at: Instant) -> bool {
        // The object that lost a name is not known: any that had more than one.
        let linked = attr.kind != Kind::Directory && attr.nlink > 1;
        let told = self.facts.peek(&attr.handle).and_then(|fact| fact.size);
        let is_older = told.is_some_and(|(_, told_at)| told_at > at);
        is_older || self.changed_since(attr.handle, at) || linked && self.some_taken_since(at)
    }

    /// Whether the kernel may have received the state of an object later than `at`, also of one that fell out
    /// of the table.
    pub(crate) fn may_be_told_since(&self, object: Handle, at: Instant) -> bool {
        let told_at = self.facts.peek(&object).and_then(|fact| fact.size).map(|(_, at)| at);
        told_at.max(self.forgotten_size_at).is_some_and(|told| told > at)
    }

    /// A name leads elsewhere since a change through this mount, or perhaps; so its directory was changed,
    /// too.
    pub(crate) fn name_changed(&mut self, dir: Handle, name: &[u8], now: Instant) {
        self.changed(dir, now);
        self.doubt_name(dir, name, now);
    }

    /// The object of a name is not valid if it was requested at `until` or before.
    pub(crate) fn doubt_name(&mut self, dir: Handle, name: &[u8], until: Instant) {
        let hash = name_hash(dir, name);
        let until = self.names.peek(&hash).map_or(until, |doubted| until.max(*doubted));
        if let Some((old, at)) = self.names.push(hash, until)
            && old != hash
        {
            self.forgotten_name_at = self.forgotten_name_at.max(Some(at));
        }
    }

    /// A call of this thread met an object that is gone: its lookups until then ask a server anew. Of more
    /// than [`SECOND_TRIES_MAX`] threads at once the others may be answered from a listing.
    pub(crate) fn tries_again(&mut self, thread: u32, now: Instant, until: Instant) {
        self.second_tries.retain(|_, until| *until > now);
        if self.second_tries.len() < SECOND_TRIES_MAX {
            self.second_tries.insert(thread, until);
        }
    }

    /// Whether a lookup of this thread belongs to a second try.
    pub(super) fn is_second_try(&self, thread: u32, now: Instant) -> bool {
        self.second_tries.get(&thread).is_some_and(|until| *until > now)
    }

    /// A name was removed from its object, or perhaps.
    pub(crate) fn name_taken(&mut self, dir: Handle, name: &[u8], now: Instant) {
        self.name_changed(dir, name, now);
        self.taken_at = Some(now);
    }

    /// Whether a name may have been changed through this mount at `at` or later.
    pub(crate) fn name_changed_since(&self, dir: Handle, name: &[u8], at: Instant) -> bool {
        let changed_at = self.names.peek(&name_hash(dir, name)).copied();
        changed_at.max(self.forgotten_name_at).is_some_and(|changed| changed >= at)
    }

    /// Whether some name may have been taken away through this mount at `at` or later.
    fn some_taken_since(&self, at: Instant) -> bool {
        self.taken_at.is_some_and(|taken| taken >= at)
    }
}

fn name_hash(dir: Handle, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (dir.0, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    const FILE: Handle = Handle(77);
    const SPAN: Duration = Duration::from_nanos(100);

    #[test]
    fn a_fact_is_believed_for_the_cache_time_and_in_a_strict_mount_never() {
        let mut known = Known::new(SPAN);
        known.saw_mode(FILE, 0o4755, Instant(10));
        known.saw_bare(FILE, known.xattr_mark(), Instant(10));
        assert_eq!(known.privileged(FILE, Instant(109)), Some(true));
        assert!(known.bare(FILE, Instant(109)));
        assert_eq!(known.privileged(FILE, Instant(110)), None);
        assert!(!known.bare(FILE, Instant(110)));

        let mut strict = Known::new(Duration::ZERO);
        strict.saw_mode(FILE, 0o755, Instant(10));
        strict.saw_bare(FILE, strict.xattr_mark(), Instant(10));
        assert_eq!(strict.privileged(FILE, Instant(10)), None);
        assert!(!strict.bare(FILE, Instant(10)));
    }

    #[test]
    fn a_size_is_that_which_the_kernel_was_told_and_made_of_it_for_the_cache_time() {
        let mut known = Known::new(SPAN);
        assert!(known.may_believe_another_size(FILE, Some(5), Instant(10)), "nothing is known");
        known.told_size(FILE, 5, Instant(10));
        assert!(!known.may_believe_another_size(FILE, Some(5), Instant(10)));
        assert!(known.may_believe_another_size(FILE, Some(6), Instant(10)));
        assert!(known.may_believe_another_size(FILE, None, Instant(10)));
        known.grew_to(FILE, 3);
        known.grew_to(FILE, 6);
        assert!(!known.may_believe_another_size(FILE, Some(6), Instant(109)));
        known.unsure_of_size(FILE);
        assert!(known.may_believe_another_size(FILE, Some(6), Instant(109)));
        assert!(!known.may_believe_another_size(FILE, Some(5), Instant(110)), "it asks by itself");
    }

    fn known_sample() -> Attr {
        Attr { layout: None, shards: Shards::WHOLE, ..samples::attr() }
    }

    #[test]
    fn what_loses_its_last_name_leaves_the_attributes_that_the_kernel_was_told() {
        let mut known = Known::new(SPAN);
        let file = Attr { handle: FILE, kind: Kind::File, nlink: 2, ..known_sample() };
        assert_eq!(known.lost_a_name(FILE), None, "the kernel was told nothing");
        known.told(&file, Instant(10));
        assert_eq!(known.lost_a_name(FILE), None, "it has another name");
        assert_eq!(known.lost_a_name(FILE), Some(Attr { nlink: 0, ..file.clone() }));
        let directory = Attr { kind: Kind::Directory, nlink: 3, ..file };
        known.told(&directory, Instant(10));
        assert!(known.lost_a_name(FILE).is_some());
    }

    #[test]
    fn an_attribute_set_while_the_list_is_fetched_is_not_overlooked() {
        let mut known = Known::new(SPAN);
        let mark = known.xattr_mark();
        known.xattr_changed(FILE);
        known.saw_bare(FILE, mark, Instant(1));
        known.saw_incapable(FILE, mark, Instant(1));
        assert!(!known.bare(FILE, Instant(1)) && !known.incapable(FILE, Instant(1)));
        known.saw_incapable(FILE, known.xattr_mark(), Instant(1));
        assert!(!known.bare(FILE, Instant(1)) && known.incapable(FILE, Instant(1)));
        known.xattr_changed(FILE);
        assert!(!known.incapable(FILE, Instant(1)));
    }

    #[test]
    fn what_fell_out_of_the_table_counts_as_changed() {
        let mut known = Known::new(SPAN);
        known.changed(FILE, Instant(50));
        for other in 0..OBJECTS_MAX.get() as u64 {
            known.saw_mode(Handle(1000 + other), 0, Instant(60));
        }
        assert!(known.changed_since(FILE, Instant(50)));
        assert!(!known.changed_since(FILE, Instant(51)));
    }

    #[test]
    fn a_changed_name_is_remembered_with_its_directory_and_one_forgotten_counts_as_changed() {
        const DIR: Handle = Handle(78);
        let mut known = Known::new(SPAN);
        known.name_taken(DIR, b"x", Instant(50));
        assert!(known.name_changed_since(DIR, b"x", Instant(50)) && known.changed_since(DIR, Instant(50)));
        assert!(!known.name_changed_since(DIR, b"x", Instant(51)));
        assert!(!known.name_changed_since(DIR, b"y", Instant(50)), "another name");
        assert!(!known.name_changed_since(FILE, b"x", Instant(50)), "another directory");
        assert!(known.some_taken_since(Instant(50)) && !known.some_taken_since(Instant(51)));
        known.name_changed(DIR, b"x", Instant(60));
        assert!(known.name_changed_since(DIR, b"x", Instant(60)));
        assert!(!known.name_changed_since(DIR, b"y", Instant(50)), "nothing was forgotten");
        for n in 0..NAMES_MAX.get() {
            known.name_changed(DIR, format!("{n}").as_bytes(), Instant(70));
        }
        assert!(known.name_changed_since(DIR, b"x", Instant(60)));
        assert!(!known.name_changed_since(DIR, b"x", Instant(61)));
    }
}
