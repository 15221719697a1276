//! Second tries of the kernel, for opens and attribute requests that met a file which was just replaced.
//!
//! The kernel walks a path by its cached entries, and opens (or requests the attributes of) the object that
//! they lead to. If that object is gone, the reply `ESTALE` makes the kernel walk once more: it looks up
//! every name, and opens the object that it then finds. Between that second lookup and that open the file
//! can be replaced again. So a program that replaces a file again and again (it writes a temporary file and
//! renames it to the name) would make opens of other programs fail.
//!
//! ```text
//!   thread 7:  OPEN 51 ─▶ ESTALE        refused: file 51 is gone
//!              LOOKUP dir "name"  ─▶    file 52 is looked up *and opened* at once
//!              (LOOKUP dir "name" ─▶    a second lookup, if the kernel had cached a different object)
//!              OPEN 52                  the server is asked; if file 53 has replaced file 52 meanwhile,
//!                                       the mount answers with the open of file 52 that it already has
//! ```
//! If the kernel caches nothing, it requests a file's attributes before it opens the file, and that request
//! may be refused. Then the second lookup opens the file for reading, and the kernel's next open uses that
//! file.
//!
//! **Invariant: a file that was gone before an open began is not opened** (tests:
//! `a_refused_open_that_found_nothing_does_not_have_a_later_open_get_what_was_gone_before_it_began`,
//! `what_is_gone_is_given_only_to_threads_that_were_refused_before_it_was_found`). A file that is gone at its
//! open is opened only if
//!
//! - a lookup found it within [`TRY_SPAN`] after a refusal of the same thread. The lookup may be another
//!   thread's: threads of one mount share a lookup of one name. Meanwhile the kernel caches nothing of that
//!   name ([`Known::doubt_name`](super::known::Known::doubt_name)), and each lookup of the name opens the
//!   file that it finds. So an open that begins after the refused open has ended makes a lookup of its own;
//! - or the same thread was refused the same object, and has looked up no name since: then the kernel opens
//!   it without a path (`/proc/self/fd/7`), and the client still has it open.

use shoal_env::Instant;
use shoal_proto::{Attr, Handle};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A second try comes at once.
pub(super) const TRY_SPAN: Duration = Duration::from_secs(1);
/// Threads, and found objects, that are remembered at once, at most.
const REMEMBERED_MAX: usize = 1024;

/// The refused object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// An open, with these flags.
    Open(i32),
    /// A look at attributes.
    Look,
}

struct Refusal {
    refused: Refused,
    object: Handle,
    at: Instant,
    /// The thread asked for a name since.
    looked_up: bool,
}

/// The result of the lookup of a second try.
pub(super) struct Found<F> {
    /// When the lookup began.
    pub asked_at: Instant,
    /// The object that it found.
    pub attr: Attr,
    /// The same, opened.
    pub file: Option<F>,
}

/// Refusals by thread, and finds by object. See the module's page.
pub(super) struct Attempts<F> {
    refusals: RefCell<BTreeMap<u32, Refusal>>,
    found: RefCell<BTreeMap<Handle, Found<F>>>,
}

impl<F> Default for Attempts<F> {
    fn default() -> Attempts<F> {
        Attempts { refusals: RefCell::default(), found: RefCell::default() }
    }
}

impl<F: Clone> Attempts<F> {
    /// A call of this thread met an object that is gone. The kernel does not say which thread (0): then
    /// nothing is remembered.
    pub(super) fn refused(&self, thread: u32, refused: Refused, object: Handle, now: Instant) {
        if thread == 0 {
            return;
        }
        self.forget_old(now);
        let mut refusals = self.refusals.borrow_mut();
        if refusals.len() < REMEMBERED_MAX || refusals.contains_key(&thread) {
            refusals.insert(thread, Refusal { refused, object, at: now, looked_up: false });
        }
    }

    /// The object of the second try to which a lookup of this thread belongs, if any.
    pub(super) fn second_try(&self, thread: u32, now: Instant) -> Option<Refused> {
        let mut refusals = self.refusals.borrow_mut();
        let refusal = refusals.get_mut(&thread).filter(|refusal| now.since(refusal.at) < TRY_SPAN)?;
        refusal.looked_up = true;
        Some(refusal.refused)
    }

    /// The call that was refused has ended.
    pub(super) fn ended(&self, thread: u32) {
        self.refusals.borrow_mut().remove(&thread);
    }

    /// A lookup of a second try found this.
    pub(super) fn found(&self, found: Found<F>, now: Instant) {
        self.forget_old(now);
        let mut all = self.found.borrow_mut();
        let object = found.attr.handle;
        let is_newer = all.get(&object).is_none_or(|former| former.asked_at <= found.asked_at);
        if is_newer && (all.len() < REMEMBERED_MAX || all.contains_key(&object)) {
            all.insert(object, found);
        }
    }

    /// The file of an object that was found after this thread's refusal.
    pub(super) fn file(&self, thread: u32, object: Handle, now: Instant) -> Option<F> {
        self.since_refusal(thread, object, now, |found| found.file.clone())
    }

    /// The attributes of an object that was found after this thread's refusal.
    pub(super) fn attr(&self, thread: u32, object: Handle, now: Instant) -> Option<Attr> {
        self.since_refusal(thread, object, now, |found| Some(found.attr.clone()))
    }

    /// Whether this thread was refused this object, and asked for no name since.
    pub(super) fn has_no_path(&self, thread: u32, object: Handle, now: Instant) -> bool {
        let refusals = self.refusals.borrow();
        let refusal = refusals.get(&thread).filter(|refusal| now.since(refusal.at) < TRY_SPAN);
        refusal.is_some_and(|refusal| refusal.object == object && !refusal.looked_up)
    }

    fn since_refusal<T>(
        &self,
        thread: u32,
        object: Handle,
        now: Instant,
        part: impl FnOnce(&Found<F>) -> Option<T>,
    ) -> Option<T> {
        let (refusals, all) = (self.refusals.borrow(), self.found.borrow());
        let refused_at = refusals.get(&thread)?.at;
        let found = all.get(&object).filter(|found| found.asked_at >= refused_at)?;
        (now.since(refused_at) < TRY_SPAN).then(|| part(found))?
    }

    /// Drop all that is too old for a second try: its files are closed.
    pub(super) fn forget_old(&self, now: Instant) {
        self.refusals.borrow_mut().retain(|_, refusal| now.since(refusal.at) < TRY_SPAN);
        // Closing a file sends no message at once.
        self.found.borrow_mut().retain(|_, found| now.since(found.asked_at) < TRY_SPAN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    const OPEN: Refused = Refused::Open(2);

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn found(object: u64, ms: u64) -> Found<()> {
        let attr = Attr { handle: Handle(object), ..samples::attr() };
        Found { asked_at: at(ms), attr, file: None }
    }

    #[test]
    fn a_second_try_is_the_same_threads_and_comes_at_once() {
        let attempts = Attempts::<()>::default();
        attempts.refused(7, OPEN, Handle(51), at(0));
        assert_eq!(attempts.second_try(7, at(1)), Some(OPEN));
        assert_eq!(attempts.second_try(8, at(1)), None);
        assert_eq!(attempts.second_try(7, at(1000)), None);
        attempts.ended(7);
        assert_eq!(attempts.second_try(7, at(1)), None);
        attempts.refused(0, Refused::Look, Handle(51), at(0));
        assert_eq!(attempts.second_try(0, at(1)), None);
    }

    #[test]
    fn what_is_gone_is_given_only_to_threads_that_were_refused_before_it_was_found() {
        let attempts = Attempts::<()>::default();
        let given = |thread, object, ms| attempts.attr(thread, Handle(object), at(ms)).is_some();
        attempts.refused(7, OPEN, Handle(51), at(0));
        attempts.refused(8, OPEN, Handle(51), at(2));
        attempts.found(found(52, 1), at(1));
        assert!(given(7, 52, 3) && !given(7, 51, 3), "another object was found");
        assert!(!given(8, 52, 3), "it was found before the refusal");
        assert!(!given(9, 52, 3), "nothing was refused");
        attempts.found(found(52, 5), at(6));
        assert!(given(7, 52, 6) && given(8, 52, 6), "two threads may share a lookup");
        attempts.found(found(52, 1), at(6));
        assert!(given(8, 52, 6), "an answer that comes late does not take the newer one's place");
        attempts.refused(7, OPEN, Handle(51), at(7));
        assert!(!given(7, 52, 8), "another call began");
        assert!(!given(8, 52, 1002), "too late");
        attempts.forget_old(at(1006));
        assert!(attempts.found.borrow().is_empty() && attempts.refusals.borrow().len() == 1);
    }

    #[test]
    fn an_object_without_a_path_is_asked_for_again_with_no_name_between() {
        let attempts = Attempts::<()>::default();
        assert!(!attempts.has_no_path(7, Handle(51), at(0)));
        attempts.refused(7, OPEN, Handle(51), at(0));
        assert!(attempts.has_no_path(7, Handle(51), at(1)));
        assert!(!attempts.has_no_path(7, Handle(52), at(1)) && !attempts.has_no_path(8, Handle(51), at(1)));
        assert!(!attempts.has_no_path(7, Handle(51), at(1000)));
        attempts.second_try(7, at(1));
        assert!(!attempts.has_no_path(7, Handle(51), at(1)), "its path leads elsewhere");
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let attempts = Attempts::<()>::default();
        for n in 1..=2 * REMEMBERED_MAX as u32 {
            attempts.refused(n, Refused::Look, Handle(51), at(0));
            attempts.found(found(u64::from(n), 0), at(0));
        }
        assert_eq!(attempts.refusals.borrow().len(), REMEMBERED_MAX);
        assert_eq!(attempts.found.borrow().len(), REMEMBERED_MAX);
        attempts.refused(9999, Refused::Look, Handle(51), at(2000));
        assert_eq!(attempts.refusals.borrow().len(), 1);
        assert!(attempts.found.borrow().is_empty());
    }
}
