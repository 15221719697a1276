//! Directories that are listed ahead of lookups (*statahead*).
//!
//! A program that walks a tree by names (a build, `git status`, a restart that looks for its files) looks up
//! one entry after the other, and each lookup costs a message. After a few such lookups in a directory the
//! mount lists all of it with attributes, a message for hundreds of entries. It then answers the following
//! lookups from the listing, **on the event loop's own thread**: they cost no message and wake no other
//! thread.
//!
//! ```text
//!   lookup by message      m m m m m m m m m m m            m m m m m
//!   listing ahead                         └ list ┘│ believed │     └ list ┘
//!   lookup answered here                   h h hhhhhhhhhhhhhhh            hhhhh …
//! ```
//!
//! **An entry's cache time counts from the moment at which the entry was requested**; the kernel receives
//! the remaining time, so the cache times of the mount and of the kernel do not add up. A mount that caches
//! nothing lists nothing. **A lookup is not answered from here if its name or its object was changed through
//! this mount since that moment** ([`Known`] remembers the changes), or if a server has reported that the
//! object is gone. The listing never gives a negative answer for a name.
//!
//! **A listing must be worth its cost**: a thousand listed entries take as much CPU time as 200 lookups. The
//! first listing of a directory begins after [`FIRST`] lookups by message within the cache time, and the
//! next one after [`FEW`]. If fewer than one in [`ENTRIES_A_HIT`] of the last listing's entries was looked
//! up, the next one needs more lookups: as many as would have paid for that listing, and at least twice as
//! many as that listing needed.

use super::known::Known;
use bytes::Bytes;
use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle, Shards};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lookups by message in a directory, within the time that they are cached, after which it is listed for the
/// first time.
const FIRST: u32 = 8;
/// The same after a listing that was worth it.
const FEW: u32 = 2;
/// No more are ever needed: so many do not come within any time that names are cached, or they pay.
const MOST: u32 = 1 << 16;
/// A listing was worth it if one of so many entries was requested.
const ENTRIES_A_HIT: usize = 6;
/// While no listing of a directory has been useful, it has this many entries for each lookup there, at most:
/// a program that looks at a few names of many directories does not have them all listed.
const ENTRIES_A_LOOKUP: usize = 64;
/// How often a listing that is too far ahead looks whether it still is.
pub(super) const PACE: Duration = Duration::from_millis(1);
/// After so many looks in a row it ends.
pub(super) const PAUSES_MAX: u32 = 100;
/// Entries of one directory, at most; of a larger one its first.
const ENTRIES_MAX: usize = 4096;
/// Entries of all directories, at most: some 400 bytes each.
const ALL_ENTRIES_MAX: usize = 32_768;
/// Directories whose lookups are counted.
const DIRECTORIES_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");
/// Directories that are listed at once, at most.
const LISTINGS_MAX: usize = 8;

/// By name: attributes, and when they were requested.
type Entries = HashMap<Bytes, (Attr, Instant)>;

/// The entries of one directory's listing, and the lookups that it did not answer.
struct Listed {
    entries: Entries,
    round: Option<Round>,
    /// Lookups by message since `missed_at`.
    misses: u32,
    missed_at: Option<Instant>,
    /// After how many it is listed.
    needed: u32,
}

/// One listing.
struct Round {
    begun_at: Instant,
    is_under_way: bool,
    hits: usize,
    /// Lookups by message that led to it, and since.
    misses: usize,
}

struct State {
    directories: LruCache<Handle, Listed>,
    /// Entries of all of them.
    entries: usize,
    /// Listings under way.
    listings: usize,
}

/// Whether a listing is to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Now,
    /// It is far enough ahead.
    Later,
    Never,
}

/// See the module's words. Shared by the event loops and the client.
pub struct Ahead {
    believed: Duration,
    known: Arc<Mutex<Known>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ahead").field("believed", &self.believed).finish_non_exhaustive()
    }
}

/// Code under these locks does not panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ahead {
    /// Nothing is listed. `believed`: how long the kernel caches names and attributes.
    pub fn new(believed: Duration) -> Ahead {
        let state = State { directories: LruCache::new(DIRECTORIES_MAX), entries: 0, listings: 0 };
        Ahead { believed, known: Arc::new(Mutex::new(Known::new(believed))), state: Mutex::new(state) }
    }

    /// The other facts that the mount remembers.
    pub(super) fn known(&self) -> &Arc<Mutex<Known>> {
        &self.known
    }

    /// The object of a name that this thread looks up, if a listing has it, and how long that is still valid.
    pub fn get(&self, thread: u32, dir: Handle, name: &[u8], now: Instant) -> Option<(Attr, Duration)> {
        let mut state = lock(&self.state);
        let listed = state.directories.get_mut(&dir)?;
        let (attr, asked_at) = listed.entries.get(name)?;
        let left = self.believed.checked_sub(now.since(*asked_at)).filter(|left| !left.is_zero())?;
        let mut known = lock(&self.known);
        // Facts that the kernel learned since, of this object by any name, must not be replaced by older
        // ones.
        if known.is_second_try(thread, now)
            || known.name_changed_since(dir, name, *asked_at)
            || known.is_outdated(attr, *asked_at)
            || known.may_be_told_since(attr.handle, *asked_at)
        {
            return None;
        }
        known.told(attr, *asked_at);
        if let Some(round) = &mut listed.round {
            round.hits += 1;
        }
        Some((attr.clone(), left))
    }

    /// A lookup took a message and found something; whether the directory is to be listed now. Then
    /// [`Ahead::end`] follows.
    pub(super) fn missed(&self, dir: Handle, now: Instant) -> bool {
        if self.believed.is_zero() {
            return false;
        }
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let mut old = Entries::new();
        if !state.directories.contains(&dir)
            && let Some((_, fallen)) = state.directories.push(dir, Listed::new())
        {
            state.entries -= fallen.entries.len();
            old = fallen.entries;
        }
        let listed = state.directories.get_or_insert_mut(dir, Listed::new);
        let is_over = |at: Instant| now.since(at) >= self.believed;
        if listed.missed_at.is_none_or(is_over) {
            (listed.misses, listed.missed_at) = (0, Some(now));
        }
        listed.misses += 1;
        if let Some(round) = &mut listed.round {
            round.misses += 1;
            if round.is_under_way || !is_over(round.begun_at) {
                return false;
            }
            old = listed.judge();
            state.entries -= old.len();
        }
        let begins = listed.misses >= listed.needed && state.listings < LISTINGS_MAX;
        if begins {
            state.listings += 1;
            let misses = listed.misses as usize;
            listed.round = Some(Round { begun_at: now, is_under_way: true, hits: 0, misses });
        }
        drop(guard);
        // Thousands of entries are freed outside the lock.
        drop(old);
        begins
    }

    /// Whether the listing under way is to continue.
    pub(super) fn wanted(&self, dir: Handle, now: Instant) -> Wanted {
        let state = lock(&self.state);
        let listed = state.directories.peek(&dir);
        let Some((listed, round)) = listed.and_then(|listed| Some((listed, listed.round.as_ref()?))) else {
            return Wanted::Never;
        };
        let is_over = now.since(round.begun_at) >= self.believed;
        if !round.is_under_way || is_over || listed.entries.len() >= ENTRIES_MAX {
            return Wanted::Never;
        }
        let is_trusted = listed.needed == FEW;
        match is_trusted || listed.entries.len() < (round.hits + round.misses) * ENTRIES_A_LOOKUP {
            true => Wanted::Now,
            false => Wanted::Later,
        }
    }

    /// An entry of the listing under way, requested at `asked_at`.
    pub(super) fn add(&self, dir: Handle, name: Bytes, attr: Attr, asked_at: Instant) {
        // The kernel does not need the file's layout, and it would be most of an entry's size.
        let attr = Attr { layout: None, shards: Shards::WHOLE, ..attr };
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let Some(listed) = state.directories.peek_mut(&dir) else { return };
        if !listed.round.as_ref().is_some_and(|round| round.is_under_way) {
            return;
        }
        if listed.entries.insert(name, (attr, asked_at)).is_none() {
            state.entries += 1;
        }
        let old = if state.entries > ALL_ENTRIES_MAX { state.make_room() } else { Entries::new() };
        drop(guard);
        drop(old);
    }

    /// The listing has ended, or failed.
    pub(super) fn end(&self, dir: Handle) {
        let mut state = lock(&self.state);
        state.listings -= 1;
        if let Some(round) = state.directories.peek_mut(&dir).and_then(|listed| listed.round.as_mut()) {
            round.is_under_way = false;
        }
    }
}

impl State {
    /// Forget the entries of the directory that was requested least recently; not how much use it was.
    fn make_room(&mut self) -> Entries {
        let oldest = self.directories.iter_mut().rev().find(|(_, listed)| !listed.entries.is_empty());
        let old = oldest.map_or_else(Entries::new, |(_, listed)| listed.judge());
        self.entries -= old.len();
        old
    }
}

impl Listed {
    fn new() -> Listed {
        Listed { entries: Entries::new(), round: None, misses: 0, missed_at: None, needed: FIRST }
    }

    /// A round is over: decide the size of the next one, and free its entries.
    fn judge(&mut self) -> Entries {
        let (listed, hits) = (self.entries.len(), self.round.take().map_or(0, |round| round.hits));
        self.needed = match hits * ENTRIES_A_HIT >= listed && hits > 0 {
            true => FEW,
            false => (self.needed * 2).max((listed / ENTRIES_A_HIT) as u32).min(MOST),
        };
        std::mem::take(&mut self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    const DIR: Handle = Handle(78);
    const SPAN: Duration = Duration::from_nanos(1000);

    fn file(handle: u64) -> Attr {
        Attr { handle: Handle(handle), nlink: 1, layout: None, ..samples::attr() }
    }

    fn name(n: u64) -> Bytes {
        Bytes::from(format!("f{n}"))
    }

    /// Lookups by message, one each nanosecond from `from` on, until one has the directory listed: which.
    fn lookups_until_listed(ahead: &Ahead, from: u64, most: u64) -> Option<u64> {
        (0..most).find(|n| ahead.missed(DIR, Instant(from + n))).map(|n| n + 1)
    }

    /// A listing of `entries`, requested at `at`.
    fn list(ahead: &Ahead, entries: u64, at: u64) {
        for n in 0..entries {
            ahead.add(DIR, name(n), file(1000 + n), Instant(at));
        }
        ahead.end(DIR);
    }

    fn hit(ahead: &Ahead, n: u64, now: u64) -> Option<u64> {
        ahead.get(7, DIR, &name(n), Instant(now)).map(|(attr, _)| attr.handle.0)
    }

    #[test]
    fn after_some_lookups_a_directory_is_listed_once_and_an_entry_believed_for_the_rest_of_its_time() {
        let ahead = Ahead::new(SPAN);
        assert_eq!(lookups_until_listed(&ahead, 0, 100), Some(u64::from(FIRST)));
        assert!(!ahead.missed(DIR, Instant(20)), "it is under way");
        list(&ahead, 10, 7);
        assert!(!ahead.missed(DIR, Instant(30)), "it is believed");
        let (attr, left) = ahead.get(7, DIR, b"f3", Instant(1006)).unwrap();
        assert_eq!((attr.handle, left), (Handle(1003), Duration::from_nanos(1)));
        assert_eq!(hit(&ahead, 3, 1007), None);
        assert_eq!(hit(&ahead, 11, 10), None, "it was not listed");
    }

    #[test]
    fn lookups_that_come_seldom_list_nothing_and_in_a_strict_mount_none_do() {
        let ahead = Ahead::new(SPAN);
        assert!(!(0..1000).any(|n| ahead.missed(DIR, Instant(n * 200))));
        let strict = Ahead::new(Duration::ZERO);
        assert_eq!(lookups_until_listed(&strict, 0, 1000), None);
    }

    #[test]
    fn what_was_changed_since_is_not_answered() {
        let ahead = Ahead::new(SPAN);
        lookups_until_listed(&ahead, 0, 100);
        list(&ahead, 10, 50);
        let mut known = lock(ahead.known());
        known.changed(Handle(1001), Instant(50));
        known.changed(Handle(1002), Instant(49));
        known.name_changed(DIR, b"f3", Instant(51));
        drop(known);
        assert_eq!([1, 2, 3, 4].map(|n| hit(&ahead, n, 60)), [None, Some(1002), None, Some(1004)]);
    }

    #[test]
    fn a_listing_that_was_worth_it_comes_again_soon_and_another_takes_more_lookups() {
        let ahead = Ahead::new(SPAN);
        let mut now = 0;
        let mut round = |hits: u64| {
            let took = lookups_until_listed(&ahead, now, 1000);
            list(&ahead, 48, now);
            (0..hits).for_each(|n| assert!(hit(&ahead, n, now + 1).is_some()));
            now += 3000;
            took
        };
        assert_eq!(round(8), Some(8));
        assert_eq!(round(8), Some(2));
        assert_eq!(round(7), Some(2));
        assert_eq!(round(0), Some(8), "so many would have been worth it");
        assert_eq!(round(0), Some(16));
        assert_eq!(round(8), Some(32));
        assert_eq!(round(8), Some(2));
    }

    #[test]
    fn what_the_kernel_was_told_later_is_not_taken_back_and_what_it_was_told_from_here_is_told_again() {
        let ahead = Ahead::new(SPAN);
        lookups_until_listed(&ahead, 0, 100);
        list(&ahead, 10, 50);
        lock(ahead.known()).told_size(Handle(1001), 20, Instant(51));
        lock(ahead.known()).told_size(Handle(1002), 2, Instant(50));
        assert_eq!([1, 2, 3].map(|n| hit(&ahead, n, 60)), [None, Some(1002), Some(1003)]);
        assert_eq!([2, 3].map(|n| hit(&ahead, n, 70)), [Some(1002), Some(1003)]);
    }

    #[test]
    fn a_first_listing_goes_on_only_as_far_as_lookups_follow_it() {
        let ahead = Ahead::new(SPAN);
        lookups_until_listed(&ahead, 0, 100);
        let wanted = || ahead.wanted(DIR, Instant(20));
        let room = FIRST as usize * ENTRIES_A_LOOKUP;
        for n in 0..room as u64 {
            assert_eq!(wanted(), Wanted::Now);
            ahead.add(DIR, name(n), file(1000 + n), Instant(9));
        }
        assert_eq!(wanted(), Wanted::Later);
        assert!(hit(&ahead, 3, 20).is_some());
        assert_eq!(wanted(), Wanted::Now);
        assert_eq!(ahead.wanted(DIR, Instant(1100)), Wanted::Never, "its time is over");
        assert_eq!(ahead.wanted(Handle(1), Instant(20)), Wanted::Never);
        ahead.end(DIR);
        assert_eq!(wanted(), Wanted::Never);
    }

    #[test]
    fn no_more_entries_are_kept_than_there_is_room_for_and_no_listing_is_repeated_for_want_of_room() {
        let ahead = Ahead::new(SPAN);
        let directories = 2 * ALL_ENTRIES_MAX / ENTRIES_MAX;
        let fill = |dir: u64, now: u64| {
            let begins = (0..FIRST).any(|_| ahead.missed(Handle(dir), Instant(now)));
            if begins {
                (0..ENTRIES_MAX as u64).for_each(|n| ahead.add(Handle(dir), name(n), file(n), Instant(now)));
                ahead.end(Handle(dir));
            }
            begins
        };
        assert!((0..directories as u64).all(|dir| fill(dir, 0)));
        let state = lock(&ahead.state);
        let kept: usize = state.directories.iter().map(|(_, listed)| listed.entries.len()).sum();
        assert_eq!((state.entries, kept, state.listings), (ALL_ENTRIES_MAX, ALL_ENTRIES_MAX, 0));
        drop(state);
        assert!(!(0..directories as u64).any(|dir| fill(dir, 5000)));
    }

    #[test]
    fn only_some_directories_are_listed_at_once() {
        let ahead = Ahead::new(SPAN);
        let begin = |dir: usize| (0..FIRST).any(|_| ahead.missed(Handle(dir as u64), Instant(0)));
        assert!((0..LISTINGS_MAX).all(begin));
        assert!(!begin(LISTINGS_MAX));
        ahead.end(Handle(0));
        assert!(begin(LISTINGS_MAX + 1));
    }
}
