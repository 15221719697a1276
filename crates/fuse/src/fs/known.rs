//! What the mount remembers of objects for a moment, to save messages that the kernel would otherwise cause.
//!
//! Four facts, each with the moment it was true:
//!
//! - *bare*: the object has no extended attributes. Programs and the kernel ask for `security.capability`,
//!   `security.selinux` and others of nearly every file; they are answered from here.
//! - *privileged*: its mode has set-user-id or set-group-id. Every write by another than root asks for these bits to be
//!   cleared, whether they are set or not.
//! - *changed*: when something was last changed through this mount. An entry of a listing that was fetched before that
//!   must not take the kernel's newer view of the file back.
//! - *size*: what the kernel was told, and what it made of it by its own writes. An open that finds another one has the
//!   kernel ask again.
//!
//! **A fact is believed no longer than the kernel believes names and attributes** (a strict mount believes none), and a
//! change through this mount ends it at once. The table is bounded; what falls out of it is asked again, and counts as
//! changed.

use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::Handle;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Objects remembered.
const OBJECTS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Set-user-id and set-group-id.
const PRIVILEGES: u32 = 0o6000;

#[derive(Clone, Copy, Default)]
struct Fact {
    bare_at: Option<Instant>,
    privileged: Option<(bool, Instant)>,
    changed_at: Option<Instant>,
    /// `None` within: the kernel may believe any size.
    size: Option<(Option<u64>, Instant)>,
}

/// See the module's words.
pub(crate) struct Known {
    facts: LruCache<Handle, Fact>,
    believed: Duration,
    /// The newest change of an object that fell out of the table.
    forgotten_change_at: Option<Instant>,
    /// Counts changes of extended attributes, so that a list fetched meanwhile is not believed.
    xattr_changes: u64,
}

impl Known {
    pub(crate) fn new(believed: Duration) -> Known {
        Known { facts: LruCache::new(OBJECTS_MAX), believed, forgotten_change_at: None, xattr_changes: 0 }
    }

    fn fact(&mut self, object: Handle) -> &mut Fact {
        if !self.facts.contains(&object)
            && let Some((_, Fact { changed_at: Some(at), .. })) = self.facts.push(object, Fact::default())
        {
            self.forgotten_change_at = self.forgotten_change_at.max(Some(at));
        }
        self.facts.get_or_insert_mut(object, Fact::default)
    }

    fn fresh(&self, at: Instant, now: Instant) -> bool {
        now.since(at) < self.believed
    }

    /// Its mode was seen.
    pub(crate) fn saw_mode(&mut self, object: Handle, mode: u32, now: Instant) {
        self.fact(object).privileged = Some((mode & PRIVILEGES != 0, now));
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

    /// It was seen to have no extended attributes, asked for when the mark was taken.
    pub(crate) fn saw_bare(&mut self, object: Handle, mark: u64, now: Instant) {
        if mark == self.xattr_changes {
            self.fact(object).bare_at = Some(now);
        }
    }

    /// An extended attribute is being set, or was.
    pub(crate) fn xattr_changed(&mut self, object: Handle) {
        self.xattr_changes += 1;
        self.fact(object).bare_at = None;
    }

    /// Whether it is known to have no extended attributes.
    pub(crate) fn bare(&mut self, object: Handle, now: Instant) -> bool {
        let at = self.facts.get(&object).and_then(|fact| fact.bare_at);
        at.is_some_and(|at| self.fresh(at, now))
    }

    /// The kernel is told its size.
    pub(crate) fn told_size(&mut self, object: Handle, size: u64, now: Instant) {
        self.fact(object).size = Some((Some(size), now));
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

    /// Whether the kernel may believe in another size than this one; `None`: it is not known here.
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

    /// It was changed through this mount.
    pub(crate) fn changed(&mut self, object: Handle, now: Instant) {
        self.fact(object).changed_at = Some(now);
    }

    /// Whether it may have been changed through this mount at `at` or later.
    pub(crate) fn changed_since(&mut self, object: Handle, at: Instant) -> bool {
        let changed_at = self.facts.get(&object).and_then(|fact| fact.changed_at);
        changed_at.max(self.forgotten_change_at).is_some_and(|changed| changed >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_attribute_set_while_the_list_is_fetched_is_not_overlooked() {
        let mut known = Known::new(SPAN);
        let mark = known.xattr_mark();
        known.xattr_changed(FILE);
        known.saw_bare(FILE, mark, Instant(1));
        assert!(!known.bare(FILE, Instant(1)));
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
}
