//! The table of locks: the owners that hold bytes of each file, and the requests that wait for bytes. No I/O,
//! no clock.
//!
//! ```text
//!   file ── held:  owner A [0..99 shared]   owner B [50..199 shared]
//!        └─ queue: C wants 0..9 exclusive ◀── D wants 5..7 shared
//! ```
//! **A request waits for conflicting holders, and for conflicting requests before it in the queue**, so
//! readers do not starve a writer. It does not wait for an earlier request that waits, directly or through
//! other holders, for a lock of the new request's owner: both requests would wait for each other. A request
//! that is not to wait is compared with holders only.
//!
//! A request that would close a circle of waits is refused ([`Outcome::Deadlock`]). Only this table is
//! searched, so a circle over several servers is not found.
//!
//! An owner's own locks never conflict with its request: the requested lock replaces what the owner has there
//! (POSIX). While the request waits, the owner keeps what it has.
//!
//! The table finds a repeated request among the waiting ones by its owner and the number of its call. If the
//! lock was granted, the repeated request finds it among the owner's locks.

use shoal_proto::{ClientId, Handle, LockHolder, LockKind, LockOwner, LockRange, LockRanges};
use std::collections::{BTreeMap, BTreeSet};

/// An owner of locks, across all clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Locker {
    /// Its client.
    pub client: ClientId,
    /// Its number there.
    pub owner: LockOwner,
}

/// A lock that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The file.
    pub file: Handle,
    /// For this owner.
    pub by: Locker,
    /// The bytes.
    pub range: LockRange,
    /// The kind.
    pub kind: LockKind,
    /// The process, on its client's machine.
    pub pid: u32,
    /// The number of the call.
    pub call: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The owner has the lock.
    Granted,
    /// It waits; the number of its wait.
    Queued(u64),
    /// Another owner is in the way, and it does not wait.
    Refused,
    /// Its wait would never end.
    Deadlock,
    /// The client has too many.
    NoLocks,
}

struct Waiter {
    ticket: u64,
    wanted: Wanted,
}

#[derive(Default)]
struct File {
    held: BTreeMap<Locker, LockRanges>,
    /// In order of arrival.
    queue: Vec<Waiter>,
}

impl File {
    fn is_unused(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// The first lock of each other owner in the way.
    fn in_the_way(&self, wanted: &Wanted) -> impl Iterator<Item = LockHolder> + '_ {
        let Wanted { by, range, kind, .. } = *wanted;
        let others = self.held.iter().filter(move |(locker, _)| **locker != by);
        others.filter_map(move |(locker, ranges)| {
            let (range, kind, pid) = ranges.within(range).find(|(_, held, _)| held.excludes(kind))?;
            Some(LockHolder { client: locker.client, owner: locker.owner, range, kind, pid })
        })
    }

    fn holders(&self, wanted: &Wanted) -> impl Iterator<Item = Locker> + '_ {
        self.in_the_way(wanted).map(|held| Locker { client: held.client, owner: held.owner })
    }

    /// Those of the first `before` requests of the queue that conflict with this one.
    fn earlier(&self, wanted: &Wanted, before: usize) -> impl Iterator<Item = (usize, &Wanted)> {
        let wanted = *wanted;
        let first = self.queue.iter().take(before).map(|waiter| &waiter.wanted).enumerate();
        first.filter(move |(_, other)| {
            other.by != wanted.by && other.range.overlaps(wanted.range) && other.kind.excludes(wanted.kind)
        })
    }
}

/// See the module's page.
pub struct LockTable {
    files: BTreeMap<Handle, File>,
    /// Ranges that each client holds or waits for.
    counts: BTreeMap<ClientId, usize>,
    /// How many files each owner holds bytes of.
    held: BTreeMap<Locker, usize>,
    /// The files in whose queues each owner waits.
    waits: BTreeMap<Locker, Vec<Handle>>,
    next_ticket: u64,
    client_max: usize,
}

impl LockTable {
    /// An empty table, in which a client may have so many ranges.
    pub fn new(client_max: usize) -> LockTable {
        LockTable {
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
            held: BTreeMap::new(),
            waits: BTreeMap::new(),
            next_ticket: 1,
            client_max,
        }
    }

    /// Ask for a lock, or again. Waits that this ended are put into `granted`.
    pub fn ask(&mut self, wanted: &Wanted, wait: bool, granted: &mut Vec<u64>) -> Outcome {
        let file = self.files.entry(wanted.file).or_default();
        let before = |waiter: &&Waiter| waiter.wanted.by == wanted.by && waiter.wanted.call == wanted.call;
        if let Some(waiter) = file.queue.iter().find(before) {
            return Outcome::Queued(waiter.ticket);
        }
        if file.held.get(&wanted.by).is_some_and(|own| covers_exactly(own, wanted)) {
            return Outcome::Granted;
        }
        let outcome = self.ask_anew(wanted, wait);
        if matches!(outcome, Outcome::Granted | Outcome::Queued(_)) {
            // It may have replaced a stronger lock, or wait for the owner of a request that waits after it.
            self.settle(wanted.file, granted);
        }
        self.tidy(wanted.file);
        match outcome {
            Outcome::Queued(ticket) if granted.contains(&ticket) => Outcome::Granted,
            outcome => outcome,
        }
    }

    fn ask_anew(&mut self, wanted: &Wanted, wait: bool) -> Outcome {
        // A range that is cut in two counts as two.
        if self.count(wanted.by.client) + 2 > self.client_max {
            return Outcome::NoLocks;
        }
        let Some(file) = self.files.get(&wanted.file) else { return Outcome::Refused };
        let is_held = file.holders(wanted).next().is_some();
        let len = file.queue.len();
        if !is_held && (!wait || !self.waits_in_queue(wanted, len)) {
            self.give(wanted);
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::Refused;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.enqueue(Waiter { ticket, wanted: *wanted });
        if self.closes_a_circle(wanted.file, len) {
            self.dequeue(wanted.file, len);
            return Outcome::Deadlock;
        }
        Outcome::Queued(ticket)
    }

    /// The number that was given last.
    #[cfg(test)]
    pub fn last_ticket(&self) -> u64 {
        self.next_ticket - 1
    }

    /// Give a range back.
    pub fn unlock(&mut self, file: Handle, by: Locker, range: LockRange, granted: &mut Vec<u64>) {
        self.change(file, by, |ranges| ranges.clear(range));
        self.settle(file, granted);
        self.tidy(file);
    }

    /// The number of a call's wait.
    pub fn ticket(&self, wanted: &Wanted) -> Option<u64> {
        let queue = &self.files.get(&wanted.file)?.queue;
        let is_it = |waiter: &&Waiter| waiter.wanted.by == wanted.by && waiter.wanted.call == wanted.call;
        queue.iter().find(is_it).map(|waiter| waiter.ticket)
    }

    /// A call waits no longer. Whether its owner holds the lock.
    pub fn unwait(&mut self, wanted: &Wanted, granted: &mut Vec<u64>) -> bool {
        let Some(file) = self.files.get(&wanted.file) else { return false };
        let is_it = |waiter: &Waiter| waiter.wanted.by == wanted.by && waiter.wanted.call == wanted.call;
        let Some(at) = file.queue.iter().position(is_it) else { return self.holds(wanted) };
        self.dequeue(wanted.file, at);
        self.settle(wanted.file, granted);
        self.tidy(wanted.file);
        false
    }

    /// Whether its owner holds a lock as strong as this one.
    pub fn holds(&self, wanted: &Wanted) -> bool {
        let own = self.files.get(&wanted.file).and_then(|file| file.held.get(&wanted.by));
        own.is_some_and(|own| own.covers(wanted.range, wanted.kind))
    }

    /// Whether a wait goes on.
    pub fn is_queued(&self, file: Handle, ticket: u64) -> bool {
        self.files.get(&file).is_some_and(|file| file.queue.iter().any(|waiter| waiter.ticket == ticket))
    }

    /// Take a lock that its holder had before a restart of the server; false: another one has it.
    pub fn claim(&mut self, wanted: &Wanted) -> bool {
        let file = self.files.entry(wanted.file).or_default();
        let is_free = file.holders(wanted).next().is_none();
        let is_taken = is_free && self.count(wanted.by.client) + 2 <= self.client_max;
        if is_taken {
            self.give(wanted);
        }
        self.tidy(wanted.file);
        is_taken
    }

    /// The lock in the way with the first bytes.
    pub fn holder(&self, wanted: &Wanted) -> Option<LockHolder> {
        let file = self.files.get(&wanted.file)?;
        file.in_the_way(wanted).min_by_key(|held| held.range.first)
    }

    /// Whether a client holds anything or waits for it.
    pub fn has(&self, client: ClientId) -> bool {
        self.counts.contains_key(&client)
    }

    /// Ranges that a client holds or waits for.
    pub fn count(&self, client: ClientId) -> usize {
        self.counts.get(&client).copied().unwrap_or(0)
    }

    /// Ranges that are held, and requests that wait, of all clients.
    pub fn totals(&self) -> (usize, usize) {
        self.files.values().fold((0, 0), |(held, waiting), file| {
            let ranges: usize = file.held.values().map(LockRanges::len).sum();
            (held + ranges, waiting + file.queue.len())
        })
    }

    /// A client is gone. Its waits end, and so do its shared locks. Files of which it held bytes exclusively
    /// stay locked, by `ghost`, until [`LockTable::end`]; they are returned.
    pub fn disown(&mut self, client: ClientId, ghost: ClientId, granted: &mut Vec<u64>) -> Vec<Handle> {
        let (mut exclusive, mut touched) = (Vec::new(), Vec::new());
        for file in self.files_of(client) {
            let Some(state) = self.files.get_mut(&file) else { continue };
            let lockers: Vec<Locker> = state.held.keys().filter(|by| by.client == client).copied().collect();
            for by in lockers {
                let kept = state.held.remove(&by).unwrap_or_default();
                for (range, kind, pid) in kept.iter().filter(|(_, kind, _)| *kind == LockKind::Exclusive) {
                    let ranges = state.held.entry(Locker { client: ghost, ..by }).or_default();
                    if ranges.is_empty() {
                        *self.held.entry(Locker { client: ghost, ..by }).or_default() += 1;
                    }
                    ranges.set(range, kind, pid);
                    *self.counts.entry(ghost).or_default() += 1;
                    exclusive.push(file);
                }
            }
            while let Some(at) =
                self.files.get(&file).and_then(|f| f.queue.iter().position(|w| w.wanted.by.client == client))
            {
                self.dequeue(file, at);
            }
            touched.push(file);
        }
        self.counts.remove(&client);
        self.held.retain(|by, _| by.client != client);
        for file in touched {
            self.settle(file, granted);
            self.tidy(file);
        }
        exclusive.dedup();
        exclusive
    }

    /// A client has nothing of a file any more.
    pub fn end(&mut self, client: ClientId, file: Handle, granted: &mut Vec<u64>) {
        let lockers: Vec<Locker> = match self.files.get(&file) {
            Some(state) => state.held.keys().filter(|by| by.client == client).copied().collect(),
            None => return,
        };
        lockers.into_iter().for_each(|by| self.change(file, by, |ranges| ranges.clear(LockRange::ALL)));
        self.settle(file, granted);
        self.tidy(file);
    }

    fn files_of(&self, client: ClientId) -> BTreeSet<Handle> {
        let is_there = |file: &File| {
            file.held.keys().any(|by| by.client == client)
                || file.queue.iter().any(|waiter| waiter.wanted.by.client == client)
        };
        self.files.iter().filter(|(_, file)| is_there(file)).map(|(handle, _)| *handle).collect()
    }

    fn give(&mut self, wanted: &Wanted) {
        self.change(wanted.file, wanted.by, |ranges| ranges.set(wanted.range, wanted.kind, wanted.pid));
    }

    fn change(&mut self, file: Handle, by: Locker, change: impl FnOnce(&mut LockRanges)) {
        let Some(state) = self.files.get_mut(&file) else { return };
        let ranges = state.held.entry(by).or_default();
        let before = ranges.len();
        change(ranges);
        let after = ranges.len();
        if after == 0 {
            state.held.remove(&by);
        }
        match (before, after) {
            (0, 1..) => *self.held.entry(by).or_default() += 1,
            (1.., 0) => match self.held.get_mut(&by) {
                Some(files) if *files > 1 => *files -= 1,
                _ => drop(self.held.remove(&by)),
            },
            _ => {}
        }
        self.recount(by.client, before, after);
    }

    fn recount(&mut self, client: ClientId, before: usize, after: usize) {
        let count = self.count(client) + after - before;
        match count {
            0 => self.counts.remove(&client),
            count => self.counts.insert(client, count),
        };
    }

    fn enqueue(&mut self, waiter: Waiter) {
        let Wanted { file, by, .. } = waiter.wanted;
        self.files.entry(file).or_default().queue.push(waiter);
        self.waits.entry(by).or_default().push(file);
        self.recount(by.client, 0, 1);
    }

    fn dequeue(&mut self, file: Handle, at: usize) -> Option<Waiter> {
        let state = self.files.get_mut(&file).filter(|state| at < state.queue.len())?;
        let waiter = state.queue.remove(at);
        let by = waiter.wanted.by;
        if let Some(files) = self.waits.get_mut(&by) {
            if let Some(place) = files.iter().position(|other| *other == file) {
                files.swap_remove(place);
            }
            if files.is_empty() {
                self.waits.remove(&by);
            }
        }
        self.recount(by.client, 1, 0);
        Some(waiter)
    }

    fn tidy(&mut self, file: Handle) {
        if self.files.get(&file).is_some_and(File::is_unused) {
            self.files.remove(&file);
        }
    }

    /// Grant all waits that may end after a change of a file. Which requests wait for their own owners
    /// depends on other files too, where an owner waits and holds, or waits several times.
    fn settle(&mut self, file: Handle, granted: &mut Vec<u64>) {
        self.pump(file, granted);
        loop {
            let before = granted.len();
            if self.is_tangled() {
                let queued = self.files.iter().filter(|(_, file)| file.queue.len() > 1);
                let queued: BTreeSet<Handle> = queued.map(|(handle, _)| *handle).collect();
                queued.into_iter().for_each(|file| self.pump(file, granted));
            }
            if granted.len() == before {
                return;
            }
        }
    }

    fn is_tangled(&self) -> bool {
        self.waits.iter().any(|(by, files)| files.len() > 1 || self.held.contains_key(by))
    }

    /// Grant all waits of a file that may end, in order of arrival.
    fn pump(&mut self, file: Handle, granted: &mut Vec<u64>) {
        let mut at = 0;
        while let Some(wanted) = self.files.get(&file).and_then(|f| f.queue.get(at)).map(|w| w.wanted) {
            let is_held = self.files.get(&file).is_some_and(|f| f.holders(&wanted).next().is_some());
            if is_held || self.waits_in_queue(&wanted, at) {
                at += 1;
                continue;
            }
            if let Some(waiter) = self.dequeue(file, at) {
                granted.push(waiter.ticket);
                self.give(&wanted);
            }
            // A wait before it may have waited for a lock that this one replaced.
            at = 0;
        }
    }

    /// Whether a request has to wait for one of the first `before` requests of its file's queue.
    fn waits_in_queue(&self, wanted: &Wanted, before: usize) -> bool {
        let Some(file) = self.files.get(&wanted.file) else { return false };
        file.earlier(wanted, before).any(|(_, other)| !self.waits_for(other.by, wanted.by))
    }

    /// Whether an owner waits for another, directly or through other holders.
    fn waits_for(&self, from: Locker, target: Locker) -> bool {
        let (mut seen, mut todo) = (BTreeSet::from([from]), vec![from]);
        while let Some(by) = todo.pop() {
            for (file, wanted) in self.waits_of(by) {
                for holder in file.holders(wanted) {
                    if holder == target {
                        return true;
                    }
                    if seen.insert(holder) {
                        todo.push(holder);
                    }
                }
            }
        }
        false
    }

    fn waits_of(&self, by: Locker) -> impl Iterator<Item = (&File, &Wanted)> {
        let files: BTreeSet<Handle> = self.waits.get(&by).into_iter().flatten().copied().collect();
        let files = files.into_iter().filter_map(|handle| self.files.get(&handle));
        files.flat_map(move |file| {
            let own = file.queue.iter().filter(move |waiter| waiter.wanted.by == by);
            own.map(move |waiter| (file, &waiter.wanted))
        })
    }

    /// Whether the wait at this place leads back to its own owner, over holders and requests before others.
    fn closes_a_circle(&self, file: Handle, at: usize) -> bool {
        let queue_of = |file: &Handle| self.files.get(file).map_or(&[][..], |file| &file.queue);
        let Some(owner) = queue_of(&file).get(at).map(|waiter| waiter.wanted.by) else { return false };
        let (mut seen, mut todo) = (BTreeSet::from([(file, at)]), vec![(file, at)]);
        while let Some((handle, at)) = todo.pop() {
            let (Some(file), Some(waiter)) = (self.files.get(&handle), queue_of(&handle).get(at)) else {
                continue;
            };
            let wanted = &waiter.wanted;
            let mut next: Vec<(Handle, usize)> = Vec::new();
            for holder in file.holders(wanted) {
                if holder == owner {
                    return true;
                }
                for other in self.waits.get(&holder).into_iter().flatten() {
                    let places = queue_of(other).iter().enumerate();
                    next.extend(places.filter(|(_, w)| w.wanted.by == holder).map(|(at, _)| (*other, at)));
                }
            }
            let earlier = file.earlier(wanted, at).filter(|(_, other)| !self.waits_for(other.by, wanted.by));
            next.extend(earlier.map(|(place, _)| (handle, place)));
            todo.extend(next.into_iter().filter(|place| seen.insert(*place)));
        }
        false
    }
}

/// Whether an owner has just what is asked for: then nothing is replaced.
fn covers_exactly(own: &LockRanges, wanted: &Wanted) -> bool {
    own.covers(wanted.range, wanted.kind) && own.within(wanted.range).all(|(_, kind, _)| kind == wanted.kind)
}
