//! Opens and looks of programs that met a file which was replaced, and are on their second try.
//!
//! The kernel walks a path by what it believes, and opens (or looks at) what that leads to. Where that is gone, `ESTALE` makes
//! it walk once more, asking for every name, and open what it then finds. Between that second lookup and that open the file can
//! be replaced again: programs that replace a file all day (write a temporary one, rename it over) would fail others' opens.
//!
//! ```text
//!   thread 7:  OPEN 51 ─▶ ESTALE        refused, with its flags
//!              LOOKUP dir "name"  ─▶    found: 52, looked up *and opened* at once, after the refusal
//!              (LOOKUP dir "name" ─▶    found anew, in its place: the kernel asks twice where it believed something else)
//!              OPEN 52 ─▶               that open file, though 53 may have replaced it meanwhile
//! ```
//! Where the kernel caches nothing, it looks at a file before it opens it, and the look may be what is refused: the second lookup
//! then opens the file for reading, and the open that follows finds it kept.
//!
//! **Invariant: what was gone before an open began is not opened.** What is handed over was opened by the last lookup of the
//! same thread, and only where the server says at the open that it is gone by then. That lookup was made within the open: the
//! refused call may have ended meanwhile (the second lookup found nothing, or the kernel refused what it found), and another
//! begun; but while a file is kept, the kernel is to believe no name of it ([`Known::keep`](super::known::Known::keep)), so
//! that each open looks its name up, and what was kept before is replaced. Threads are told apart, and one waits for one call.
//! What a thread does not come for within [`TRY_SPAN`] is dropped.

use shoal_client::OpenFile;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A second try comes at once.
pub(super) const TRY_SPAN: Duration = Duration::from_secs(1);
/// Threads that are remembered at once, at most.
const THREADS_MAX: usize = 1024;

/// What was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// An open, with these flags.
    Open(i32),
    /// A look at attributes.
    Look,
}

enum Try {
    Refused(Refused),
    Found { refused: Refused, object: Handle, attr: Option<Box<Attr>>, file: Option<OpenFile> },
}

/// By thread. See the module's page.
#[derive(Default)]
pub(super) struct Attempts(RefCell<BTreeMap<u32, (Instant, Try)>>);

impl Attempts {
    /// A call of this thread met an object that is gone. The kernel does not say which thread (0): then nothing is remembered.
    pub(super) fn refused(&self, thread: u32, refused: Refused, now: Instant) {
        self.put(thread, Try::Refused(refused), now);
    }

    /// Whether a lookup of this thread belongs to a second try, and what of.
    pub(super) fn second_try(&self, thread: u32, now: Instant) -> Option<Refused> {
        let tries = self.0.borrow();
        match tries.get(&thread) {
            // The kernel may ask for a name twice: whether what it believes is true, and what is.
            Some((at, Try::Refused(refused) | Try::Found { refused, .. })) if now.since(*at) < TRY_SPAN => {
                Some(*refused)
            }
            _ => None,
        }
    }

    /// A lookup of a second try found this.
    pub(super) fn found(
        &self,
        thread: u32,
        refused: Refused,
        attr: &Attr,
        file: Option<OpenFile>,
        now: Instant,
    ) {
        let (object, attr) = (attr.handle, Some(Box::new(attr.clone())));
        self.put(thread, Try::Found { refused, object, attr, file }, now);
    }

    /// The file that a second try opened, for the open that follows; once.
    pub(super) fn take_file(&self, thread: u32, object: Handle, now: Instant) -> Option<OpenFile> {
        if self.0.borrow().is_empty() {
            return None;
        }
        match self.0.borrow_mut().remove(&thread) {
            Some((at, Try::Found { object: found, file, .. }))
                if found == object && now.since(at) < TRY_SPAN =>
            {
                file
            }
            _ => None,
        }
    }

    /// The attributes that a second try found, for the look that follows; once.
    pub(super) fn take_attr(&self, thread: u32, object: Handle, now: Instant) -> Option<Attr> {
        let mut tries = self.0.borrow_mut();
        match tries.get_mut(&thread) {
            Some((at, Try::Found { object: found, attr, .. }))
                if *found == object && now.since(*at) < TRY_SPAN =>
            {
                attr.take().map(|attr| *attr)
            }
            _ => None,
        }
    }

    /// What nobody came for is dropped: its files are closed.
    pub(super) fn forget_old(&self, now: Instant) {
        self.0.borrow_mut().retain(|_, (at, _)| now.since(*at) < TRY_SPAN);
    }

    fn put(&self, thread: u32, what: Try, now: Instant) {
        if thread == 0 {
            return;
        }
        self.forget_old(now);
        let mut tries = self.0.borrow_mut();
        if tries.len() < THREADS_MAX || tries.contains_key(&thread) {
            tries.insert(thread, (now, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn attr(object: u64) -> Attr {
        Attr { handle: Handle(object), ..samples::attr() }
    }

    #[test]
    fn a_second_try_is_the_same_threads_and_comes_at_once() {
        let attempts = Attempts::default();
        attempts.refused(7, Refused::Open(2), at(0));
        assert_eq!(attempts.second_try(7, at(1)), Some(Refused::Open(2)));
        assert_eq!(attempts.second_try(8, at(1)), None);
        assert_eq!(attempts.second_try(7, at(1000)), None);
        attempts.refused(0, Refused::Look, at(0));
        assert_eq!(attempts.second_try(0, at(1)), None);
    }

    #[test]
    fn what_a_second_try_found_is_for_one_look_of_its_thread_at_that_object() {
        let attempts = Attempts::default();
        let found = || attempts.found(7, Refused::Look, &attr(52), None, at(0));
        found();
        assert!(attempts.take_attr(7, Handle(51), at(1)).is_none());
        assert!(attempts.take_attr(8, Handle(52), at(1)).is_none());
        assert!(attempts.take_attr(7, Handle(52), at(1000)).is_none());
        assert!(attempts.take_attr(7, Handle(52), at(1)).is_some());
        assert!(attempts.take_attr(7, Handle(52), at(1)).is_none());
        found();
        attempts.refused(7, Refused::Look, at(1));
        assert!(attempts.take_attr(7, Handle(52), at(1)).is_none(), "another call began");
    }

    #[test]
    fn no_more_threads_are_remembered_than_there_is_room_for() {
        let attempts = Attempts::default();
        (1..=2 * THREADS_MAX as u32).for_each(|thread| attempts.refused(thread, Refused::Look, at(0)));
        assert_eq!(attempts.0.borrow().len(), THREADS_MAX);
        attempts.refused(9999, Refused::Look, at(2000));
        assert_eq!(attempts.0.borrow().len(), 1);
    }
}
