//! An open directory: its reader's place, and the next entry.
//!
//! The kernel requests entries after an offset: 0 at first, afterwards the offset of the last entry that
//! the program took. The mount may have returned further entries: those that did not fit into the program's
//! buffer are requested again.
//!
//! ```text
//!   offset   0        1         2        place      place          place
//!            ├── . ───┼── .. ───┼─ entry ──┼─ entry ──┼── ... ─ entry ──┤
//! ```
//!
//! An entry's offset is its *place*. In a ShoalFS the place is the 63-bit keyed hash of the entry's name,
//! which stays the same whatever else is created and removed. So an entry that exists from the beginning of
//! a listing to its end is listed exactly once, and any other entry at most once. The entries `.` and `..`
//! use the places up to 2, so an entry whose place would be that low gets place 3. If two entries have the
//! same place (one pair in 2^63), a listing that continues returns both from memory; only a seek to exactly
//! that place may miss one.

use super::errno::Result;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle, Kind};
use shoal_vfs::Listed as Fetched;

/// The offset after `.`.
const BEHIND_DOT: u64 = 1;
/// The offset after `..`.
const BEHIND_DOT_DOT: u64 = 2;

/// Where entries come from: a file system's stream, or a test's script.
pub(crate) trait Source {
    /// The next entry.
    async fn next(&mut self, plus: bool) -> Result<Option<Fetched>>;
    /// Continue after a place.
    fn seek(&mut self, place: u64);
    /// Restart, with the directory's present contents.
    fn rewind(&mut self);
}

/// One entry, as it is returned to the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The object that it leads to.
    pub handle: Handle,
    /// The kind of that.
    pub kind: Kind,
    /// Its name; `.` and `..` too.
    pub name: Bytes,
    /// The offset after it.
    pub offset: u64,
    /// When it was requested: from then on the name may lead elsewhere.
    pub asked_at: Instant,
    /// Its attributes and when they were true. Never of `.` and `..`.
    pub attr: Option<(Attr, Instant)>,
    /// It is there, and its attributes could not be had.
    pub is_unknown: bool,
}

/// A reader's place in a directory.
pub(crate) struct Listing<S> {
    source: S,
    dir: Handle,
    parent: Handle,
    /// The offset after the last passed entry.
    at: u64,
    /// The next entry, if it was peeked at already.
    ahead: Option<Listed>,
}

impl<S: Source> Listing<S> {
    pub(crate) fn new(source: S, dir: Handle, parent: Handle) -> Listing<S> {
        Listing { source, dir, parent, at: 0, ahead: None }
    }

    /// Go to an offset.
    pub(crate) fn go_to(&mut self, offset: u64) {
        if offset == self.at && offset != 0 {
            return;
        }
        self.ahead = None;
        self.at = offset;
        match offset {
            0..=BEHIND_DOT_DOT => self.source.rewind(),
            place => self.source.seek(place),
        }
    }

    /// The next entry, which stays the next until [`Listing::pass`].
    pub(crate) async fn peek(&mut self, plus: bool) -> Result<Option<&mut Listed>> {
        if self.ahead.is_none() {
            self.ahead = match self.at {
                0 => Some(dot(self.dir, b".", BEHIND_DOT)),
                BEHIND_DOT => Some(dot(self.parent, b"..", BEHIND_DOT_DOT)),
                _ => self.source.next(plus).await?.map(listed),
            };
        }
        Ok(self.ahead.as_mut())
    }

    /// Go past the peeked entry.
    pub(crate) fn pass(&mut self) {
        if let Some(entry) = self.ahead.take() {
            self.at = entry.offset;
        }
    }
}

fn dot(handle: Handle, name: &'static [u8], offset: u64) -> Listed {
    let (kind, name, asked_at) = (Kind::Directory, Bytes::from_static(name), Instant(0));
    Listed { handle, kind, name, offset, asked_at, attr: None, is_unknown: false }
}

fn listed(Fetched { entry, asked_at, is_unknown }: Fetched) -> Listed {
    Listed {
        handle: entry.handle,
        kind: entry.kind,
        name: Bytes::copy_from_slice(entry.name.as_bytes()),
        offset: entry.place.max(BEHIND_DOT_DOT + 1),
        asked_at,
        attr: entry.attr.map(|attr| (attr, asked_at)),
        is_unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use shoal_proto::{Entry, Name};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    /// A directory that is read entry by entry as it is at that moment.
    #[derive(Clone, Default)]
    struct Script {
        entries: Rc<RefCell<BTreeMap<(u64, String), u64>>>,
        behind: Option<(u64, String)>,
        rewound: u32,
    }

    impl Script {
        fn of(names: &[(u64, &str)]) -> Script {
            let script = Script::default();
            for (i, (place, name)) in names.iter().enumerate() {
                script.entries.borrow_mut().insert((*place, (*name).to_owned()), 100 + i as u64);
            }
            script
        }
    }

    impl Source for Script {
        async fn next(&mut self, _plus: bool) -> Result<Option<Fetched>> {
            let entries = self.entries.borrow();
            let next =
                entries.iter().find(|(key, _)| self.behind.as_ref().is_none_or(|behind| *key > behind));
            let Some((key, handle)) = next else { return Ok(None) };
            self.behind = Some(key.clone());
            let name = Name::new(key.1.as_bytes()).unwrap();
            let entry = Entry { name, handle: Handle(*handle), kind: Kind::File, place: key.0, attr: None };
            Ok(Some(Fetched { entry, asked_at: Instant(1), is_unknown: false }))
        }

        fn seek(&mut self, place: u64) {
            self.behind = Some((place, "\u{10ffff}".repeat(4)));
        }

        fn rewind(&mut self) {
            self.behind = None;
            self.rewound += 1;
        }
    }

    fn listing(script: &Script) -> Listing<Script> {
        Listing::new(script.clone(), Handle(7), Handle(1))
    }

    /// As the kernel does: ask at `offset` for at most `fit` entries.
    fn ask(listing: &mut Listing<Script>, offset: u64, fit: usize) -> Vec<(String, u64)> {
        listing.go_to(offset);
        let mut got = Vec::new();
        while let Some(entry) = listing.peek(true).now_or_never().unwrap().unwrap() {
            if got.len() == fit {
                break;
            }
            got.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.offset));
            listing.pass();
        }
        got
    }

    fn names(got: &[(String, u64)]) -> Vec<&str> {
        got.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn every_entry_comes_once_whatever_fits_the_buffer() {
        let script = Script::of(&[(10, "a"), (20, "b"), (20, "c"), (20, "d"), (30, "e")]);
        for fit in 1..8 {
            let (mut listing, mut all, mut offset) = (listing(&script), Vec::new(), 0);
            loop {
                let got = ask(&mut listing, offset, fit);
                let Some(last) = got.last() else { break };
                offset = last.1;
                all.extend(got);
            }
            assert_eq!(names(&all), [".", "..", "a", "b", "c", "d", "e"], "{fit} at a time");
        }
    }

    #[test]
    fn what_the_caller_had_no_room_for_comes_again() {
        let script = Script::of(&[(10, "a"), (20, "b"), (30, "c")]);
        let mut listing = listing(&script);
        let got = ask(&mut listing, 0, 5);
        assert_eq!(names(&got), [".", "..", "a", "b", "c"]);
        assert_eq!(names(&ask(&mut listing, got[2].1, 5)), ["b", "c"]);
        assert_eq!(names(&ask(&mut listing, got[0].1, 2)), ["..", "a"]);
    }

    #[test]
    fn a_listing_keeps_its_place_over_creations_and_removals() {
        let script = Script::of(&[(10, "a"), (20, "b"), (30, "c"), (40, "d")]);
        let mut listing = listing(&script);
        let got = ask(&mut listing, 0, 4);
        assert_eq!(names(&got), [".", "..", "a", "b"]);
        script.entries.borrow_mut().remove(&(20, "b".to_owned()));
        script.entries.borrow_mut().insert((5, "before".to_owned()), 1);
        script.entries.borrow_mut().insert((35, "behind".to_owned()), 2);
        assert_eq!(names(&ask(&mut listing, got[3].1, 9)), ["c", "behind", "d"]);
        assert!(ask(&mut listing, 40, 9).is_empty());
    }

    #[test]
    fn a_rewound_listing_shows_what_is_there_now() {
        let script = Script::of(&[(10, "a")]);
        let mut listing = listing(&script);
        ask(&mut listing, 0, 9);
        script.entries.borrow_mut().insert((5, "new".to_owned()), 1);
        assert_eq!(names(&ask(&mut listing, 0, 9)), [".", "..", "new", "a"]);
        assert_eq!(listing.source.rewound, 2);
    }

    #[test]
    fn no_entry_takes_the_dots_offsets() {
        let script =
            Script::of(&[(0, "zero"), (1, "one"), (2, "two"), (3, "three"), (i64::MAX as u64, "last")]);
        let mut listing = listing(&script);
        let got = ask(&mut listing, 0, 9);
        assert_eq!(names(&got), [".", "..", "zero", "one", "two", "three", "last"]);
        assert!(got[2..].iter().all(|(_, offset)| (3..=i64::MAX as u64).contains(offset)));
    }
}
