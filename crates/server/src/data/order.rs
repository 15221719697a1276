//! The order in which data requests are served: by extents of streams, in cyclic sweeps (C-SCAN).
//!
//! An *extent* is the unit that a step reads or writes: a block, or a longer run of one request. All requests
//! that want bytes of an extent wait at it together, and one step serves them. The sweep goes upwards over
//! (stream, offset) and begins again at the lowest. Each disk has a sweep of its own.
//!
//! ```text
//!   young    blocks with parts of writers and gaps between them: they wait for further writers ([`young`])
//!   ripe     ──▶──▶──▶──▶ at ──▶──▶──▶   extents of this round of the sweep; `at` is its position
//!   later    extents that came since the round began: they belong to the next round
//!   locked   extents of steps under way: an extent that is written is locked alone ([`locks`])
//! ```
//! **No request starves.** A round consists of the extents that were waiting when it began, and ends when all
//! of these were served. (If steps already read all extents that remain, the next round begins early.) So a
//! transfer that always adds the next extent ahead of the sweep cannot keep the sweep there. A writer that
//! must wait for a lock *claims* its extent: readers that come later do not lock the extent before it.
//!
//! **Invariant: while bytes of a stream are written, no other step reads or writes them** (asserted in
//! `order/locks.rs::enter`; test: `a_written_extent_is_locked_against_all_and_a_read_one_against_writers`).
//! So when a block is read, changed and written, no other write to it is lost. Changes whose place is not
//! known beforehand (appends), or that are not writes (space, holes), lock the whole stream.

mod locks;
mod young;

pub use locks::LockedExtent;

use super::extent::{Extent, Wanted, Wish};
use locks::{Lock, Locks, NO_CLAIM};
use shoal_env::Instant;
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;
use young::Young;

/// Steps under way at once on a disk.
pub const STEPS_MAX: usize = 16;
/// Blocks side by side that one step serves at most.
pub const STEP_BLOCKS_MAX: usize = 16;
/// Sparse blocks that one step reads at most: a call each, some at once.
pub const STEP_SPARSE_MAX: usize = 64;

/// Extents of a round, and the requests that wait at each.
type Ripe = BTreeMap<Extent, Wanted>;

/// See the module's page.
#[derive(Default)]
pub struct Order {
    young: Young,
    ripe: RefCell<Ripe>,
    later: RefCell<Ripe>,
    /// Where the sweep of each disk is.
    at: RefCell<BTreeMap<u16, Extent>>,
    /// Disks whose round has begun: what comes now is for the next one.
    begun: RefCell<BTreeSet<u16>>,
    /// The disk that got the last step: the others are looked at first.
    last_disk: Cell<u16>,
    /// Locks of its steps, and of what goes between them.
    pub locks: Rc<Locks>,
}

/// A step: one extent, blocks side by side, or sparse blocks of one stream; their requests; their lock.
pub struct Taken {
    /// In order of offsets, of one stream and generation.
    pub extents: Vec<(Extent, Wanted)>,
    /// The lock of all from the first to the last.
    pub inside: LockedExtent,
}

impl Taken {
    /// All of them as one.
    pub fn whole(&self) -> Extent {
        match (self.extents.first(), self.extents.last()) {
            (Some((first, _)), Some((last, _))) => Extent { len: last.end() - first.from, ..*first },
            _ => Extent::first_of(Handle(0)),
        }
    }
}

impl Order {
    /// A request waits at an extent.
    pub fn wait(&self, extent: Extent, wish: Wish, now: Instant) {
        for waiting in [&self.ripe, &self.later] {
            if let Some(wanted) = waiting.borrow_mut().get_mut(&extent) {
                wanted.add(wish);
                return;
            }
        }
        if let Some(wanted) = self.young.wait(extent, wish, now) {
            self.put(extent, wanted);
        }
    }

    /// Blocks that waited long enough are served as they are. Gives when to look again.
    pub fn ripen(&self, now: Instant) -> Option<Instant> {
        loop {
            match self.young.ripe(now) {
                Ok((extent, wanted)) => self.put(extent, wanted),
                Err(again_at) => return again_at,
            }
        }
    }

    /// An extent is to be served: in this round, if that has not begun, else in the next one.
    fn put(&self, extent: Extent, wanted: Wanted) {
        let has_begun = self.begun.borrow().contains(&extent.disk);
        let round = if has_begun { &self.later } else { &self.ripe };
        round.borrow_mut().insert(extent, wanted);
    }

    /// The next step of the sweep of some disk that no lock hinders: the disks take turns, and each has some
    /// steps under way.
    pub fn take(&self) -> Option<Taken> {
        let mut ripe = self.ripe.borrow_mut();
        let mut disks = disks_of(&ripe);
        debug_assert!(
            disks_of(&self.later.borrow()).iter().all(|disk| disks.contains(disk)),
            "a round that has nothing of a disk has ended: nothing waits for the next one alone"
        );
        let after = disks.partition_point(|disk| *disk <= self.last_disk.get());
        disks.rotate_left(after);
        let mut idle = disks.into_iter().filter(|disk| self.locks.steps_on(*disk) < STEPS_MAX);
        let next = idle.find_map(|disk| self.next_on(&mut ripe, disk))?;
        self.last_disk.set(next.disk);
        let wanted = ripe.remove(&next)?;
        let is_write = !wanted.writers.is_empty();
        let extents = match (next.is_block(), wanted.is_sparse()) {
            (true, true) => self.sparse(&mut ripe, (next, wanted)),
            (true, false) => self.side_by_side(&mut ripe, (next, wanted)),
            (false, _) => vec![(next, wanted)],
        };
        self.locks.claims_served(|claimed| extents.iter().any(|(extent, _)| extent == claimed));
        let last = extents.last().map_or(next, |(extent, _)| *extent);
        self.at.borrow_mut().insert(next.disk, last);
        self.begun.borrow_mut().insert(next.disk);
        if of_disk(&ripe, next.disk).next().is_none() {
            self.begin_round(&mut ripe, next.disk);
        }
        let whole = Extent { len: last.end() - next.from, ..next };
        // Sparse blocks lie far apart: what is between them is not read.
        let is_shared = whole.len == extents.iter().map(|(extent, _)| extent.len).sum::<u64>();
        let lock = match (is_write, is_shared) {
            (true, _) => Lock::Written,
            (false, true) => Lock::Shared,
            (false, false) => Lock::Read,
        };
        let inside = self.locks.enter(whole, lock, true);
        Some(Taken { extents, inside })
    }

    /// The next extent of a disk's sweep: the one after the last step's, or the lowest. Where all of the
    /// round are hindered, the next round begins only if they are being read already.
    fn next_on(&self, ripe: &mut Ripe, disk: u16) -> Option<Extent> {
        self.free_of(ripe, disk).or_else(|| {
            let mut are_read = true;
            for (extent, wanted) in of_disk(ripe, disk) {
                let is_written = !wanted.writers.is_empty();
                are_read &= !is_written && self.locks.is_being_read(extent);
                if is_written {
                    self.locks.claim_for_sweep(*extent);
                }
            }
            if !are_read || !self.begin_round(ripe, disk) {
                return None;
            }
            self.free_of(ripe, disk)
        })
    }

    fn free_of(&self, ripe: &Ripe, disk: u16) -> Option<Extent> {
        let first = first_of_disk(disk);
        let at = self.at.borrow().get(&disk).copied().unwrap_or(first);
        let is_free = |&(extent, wanted): &(&Extent, &Wanted)| {
            self.locks.is_free(extent, !wanted.writers.is_empty(), self.locks.claim_of(extent))
        };
        let after = ripe.range((Bound::Excluded(at), Bound::Unbounded));
        let after = after.take_while(|(extent, _)| extent.disk == disk).find(is_free);
        let before = || ripe.range(first..=at).filter(|(extent, _)| extent.disk == disk).find(is_free);
        after.or_else(before).map(|(extent, _)| *extent)
    }

    /// A round ends: the next one has what came meanwhile, and what comes until its first step. Gives
    /// whether there is any.
    fn begin_round(&self, ripe: &mut Ripe, disk: u16) -> bool {
        self.begun.borrow_mut().remove(&disk);
        let mut later = self.later.borrow_mut();
        let next: Vec<Extent> = of_disk(&later, disk).map(|(extent, _)| *extent).collect();
        for extent in &next {
            ripe.extend(later.remove(extent).map(|wanted| (*extent, wanted)));
        }
        !next.is_empty()
    }

    /// A block, and those that follow it and are wanted likewise.
    fn side_by_side(&self, ripe: &mut Ripe, first: (Extent, Wanted)) -> Vec<(Extent, Wanted)> {
        let (is_write, is_read) = (!first.1.writers.is_empty(), !first.1.readers.is_empty());
        let mut following = Extent { from: first.0.end(), ..first.0 };
        let mut extents = vec![first];
        while extents.len() < STEP_BLOCKS_MAX {
            let fits = ripe.get(&following).is_some_and(|wanted| {
                wanted.writers.is_empty() != is_write
                    && wanted.readers.is_empty() != is_read
                    && self.locks.is_free(&following, is_write, self.locks.claim_of(&following))
            });
            let Some(wanted) = fits.then(|| ripe.remove(&following)).flatten() else { break };
            extents.push((following, wanted));
            following = Extent { from: following.end(), ..following };
        }
        extents
    }

    /// A sparse block, and the next ones of the stream, if they are sparse too.
    fn sparse(&self, ripe: &mut Ripe, first: (Extent, Wanted)) -> Vec<(Extent, Wanted)> {
        let following = ripe.range((Bound::Excluded(first.0), Bound::Unbounded));
        let is_like = |(extent, wanted): &(&Extent, &Wanted)| {
            // The step locks all from the first to the last: nothing between is written, or claimed.
            let span = Extent { len: extent.end().saturating_sub(first.0.from), ..first.0 };
            extent.is_block()
                && Extent { from: first.0.from, ..**extent } == first.0
                && wanted.is_sparse()
                && self.locks.is_free(extent, false, NO_CLAIM)
                && self.locks.is_free(&span, false, NO_CLAIM)
        };
        let more = following.take_while(is_like).take(STEP_SPARSE_MAX - 1).map(|(extent, _)| *extent);
        let more: Vec<Extent> = more.collect();
        let more = more.into_iter().filter_map(|extent| Some((extent, ripe.remove(&extent)?)));
        std::iter::once(first).chain(more).collect()
    }

    /// The readers that came to an extent since its step began, if no writer did.
    pub fn late_readers(&self, extent: &Extent) -> Vec<u64> {
        let mut ripe = self.ripe.borrow_mut();
        let readers = readers_of(&mut ripe, extent);
        if !readers.is_empty() && of_disk(&ripe, extent.disk).next().is_none() {
            self.begin_round(&mut ripe, extent.disk);
        }
        if readers.is_empty() { readers_of(&mut self.later.borrow_mut(), extent) } else { readers }
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ripe.borrow().is_empty() && self.later.borrow().is_empty() && self.young.is_empty()
    }
}

fn first_of_disk(disk: u16) -> Extent {
    Extent { disk, ..Extent::first_of(Handle(0)) }
}

/// The extents of a disk.
fn of_disk(ripe: &Ripe, disk: u16) -> impl Iterator<Item = (&Extent, &Wanted)> {
    ripe.range(first_of_disk(disk)..).take_while(move |(extent, _)| extent.disk == disk)
}

/// Take the readers of an extent, if it has no writers.
fn readers_of(waiting: &mut Ripe, extent: &Extent) -> Vec<u64> {
    match waiting.get(extent) {
        Some(wanted) if wanted.writers.is_empty() => {
            waiting.remove(extent).map_or_else(Vec::new, |wanted| wanted.readers)
        }
        _ => Vec::new(),
    }
}

/// The disks on which something waits.
fn disks_of(ripe: &Ripe) -> Vec<u16> {
    let mut disks = Vec::new();
    let mut next = ripe.first_key_value().map(|(extent, _)| extent.disk);
    while let Some(disk) = next {
        disks.push(disk);
        let after = disk.checked_add(1).map(|disk| Extent { disk, ..Extent::first_of(Handle(0)) });
        next = after.and_then(|after| ripe.range(after..).next()).map(|(extent, _)| extent.disk);
    }
    disks
}

#[cfg(test)]
mod tests {
    use super::super::extent::BLOCK_BYTES;
    use super::young::PATIENCE_MAX;
    use super::*;

    fn block(at: u64) -> Extent {
        Extent { disk: 0, stream: Handle(1), from: at * BLOCK_BYTES, len: BLOCK_BYTES, generation: 1 }
    }

    fn wish(request: u64, is_write: bool, bytes: u64, pieces: usize) -> Wish {
        Wish { request, is_write, bytes, pieces }
    }

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn froms(taken: &Taken) -> Vec<u64> {
        taken.extents.iter().map(|(extent, _)| extent.from / BLOCK_BYTES).collect()
    }

    #[test]
    fn the_sweep_goes_upwards_and_begins_again_at_the_lowest() {
        let order = Rc::new(Order::default());
        for block_at in [9, 3, 6] {
            order.wait(block(block_at), wish(block_at, false, 8192, 1), at(0));
        }
        assert_eq!(froms(&order.take().unwrap()), [3]);
        for block_at in [1, 7, 8] {
            order.wait(block(block_at), wish(10, false, 8192, 1), at(0));
        }
        assert_eq!(froms(&order.take().unwrap()), [6]);
        assert_eq!(froms(&order.take().unwrap()), [9], "the others are the next round's");
        assert_eq!(froms(&order.take().unwrap()), [1]);
        assert_eq!(froms(&order.take().unwrap()), [7, 8], "side by side, in one step");
        assert!(order.take().is_none() && order.is_empty());
        for block_at in [1, 15, 900] {
            order.wait(block(block_at), wish(block_at, false, 8, 1), at(0));
        }
        assert_eq!(froms(&order.take().unwrap()), [15, 900], "sparse ones, though far apart");
        assert_eq!(froms(&order.take().unwrap()), [1]);
    }

    #[test]
    fn each_disk_has_a_sweep_of_its_own_and_they_take_turns() {
        let order = Rc::new(Order::default());
        let on = |disk, n| Extent { disk, stream: Handle(10 + u64::from(disk)), ..block(n) };
        for (disk, n) in [(1, 5), (1, 2), (4, 9), (4, 3), (4, 6)] {
            order.wait(on(disk, n), wish(n, false, 8192, 1), at(0));
        }
        let mut steps = Vec::new();
        let places: Vec<(u16, u64)> = std::iter::from_fn(|| order.take())
            .map(|taken| {
                let first = taken.extents[0].0;
                steps.push(taken);
                (first.disk, first.from / BLOCK_BYTES)
            })
            .collect();
        assert_eq!(places, [(1, 2), (4, 3), (1, 5), (4, 6), (4, 9)]);
        steps.clear();
        // A disk that has all its steps under way leaves the other one free.
        for n in 0..STEPS_MAX as u64 + 3 {
            order.wait(on(1, 2 * n), wish(n, false, 8192, 1), at(0));
        }
        steps.extend(std::iter::from_fn(|| order.take()));
        assert_eq!(steps.len(), STEPS_MAX);
        order.wait(on(4, 1), wish(99, false, 8192, 1), at(0));
        assert_eq!(order.take().unwrap().extents[0].0.disk, 4);
        steps.clear();
        assert!(order.take().is_some());
    }

    #[test]
    fn blocks_of_a_stream_that_is_known_under_two_disks_are_two_steps() {
        let order = Rc::new(Order::default());
        for (disk, n) in [(1, 10), (2, 2)] {
            order.wait(Extent { disk, ..block(n) }, wish(n, false, 8, 1), at(0));
        }
        let steps = [order.take().unwrap(), order.take().unwrap()];
        let places = steps.map(|step| (step.whole().from / BLOCK_BYTES, step.whole().len));
        assert_eq!(places, [(10, BLOCK_BYTES), (2, BLOCK_BYTES)]);
    }

    #[test]
    fn a_written_extent_is_locked_against_all_and_a_read_one_against_writers() {
        let order = Rc::new(Order::default());
        order.wait(block(0), wish(1, true, 8, 1), at(0));
        let written = order.take().unwrap();
        order.wait(block(0), wish(2, false, 8, 1), at(0));
        assert!(order.take().is_none());
        drop(written);
        let read = order.take().unwrap();
        order.wait(block(0), wish(3, false, 8, 1), at(0));
        assert!(order.take().is_none(), "the block is being read already");
        assert_eq!(order.late_readers(&block(0)), [3], "for this one too");
        order.wait(block(7), wish(5, false, 8192, 1), at(0));
        assert_eq!(froms(&order.take().unwrap()), [7], "the round that lost its last extent has ended");
        order.wait(block(0), wish(4, true, 8, 1), at(0));
        assert!(order.take().is_none());
        drop(read);
        assert!(order.take().is_some());
    }

    #[test]
    fn a_transfer_that_always_brings_the_next_extent_does_not_hold_the_sweep() {
        for other in [1, 3] {
            let order = Rc::new(Order::default());
            let far = |n: u64| Extent { stream: Handle(2), ..block(2 * n) };
            for n in 0..40 {
                order.wait(far(n), wish(n, false, 8192, 1), at(0));
            }
            drop(order.take());
            order.wait(Extent { stream: Handle(other), ..block(0) }, wish(999, false, 8192, 1), at(0));
            let steps = (40..1000).position(|n| {
                order.wait(far(n), wish(n, false, 8192, 1), at(0));
                order.take().unwrap().extents[0].0.stream == Handle(other)
            });
            assert!(steps.is_some_and(|steps| steps < 100), "{steps:?}");
        }
    }

    #[test]
    fn a_writer_gets_its_extent_although_readers_that_overlap_it_come_without_end() {
        let long = |n: u64| Extent { len: 8 * BLOCK_BYTES, ..block(n) };
        // A small write beside the sweep, and a long one of the sweep.
        for is_small in [true, false] {
            let order = Rc::new(Order::default());
            let read = |n| order.wait(long(n), wish(n, false, 8 * BLOCK_BYTES, 1), at(0));
            read(0);
            let mut under_way = order.take();
            let written = Extent { len: 100, ..block(5) };
            let small = order.locks.lock(written, true);
            let mut small = std::pin::pin!(small);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            if is_small {
                assert!(small.as_mut().poll(&mut context).is_pending());
            } else {
                order.wait(long(3), wish(999, true, 8 * BLOCK_BYTES, 1), at(0));
            }
            let mut rounds = 0;
            loop {
                rounds += 1;
                assert!(rounds < 10, "it waits for ever");
                read(rounds % 4 + 1);
                let next = order.take();
                drop(std::mem::replace(&mut under_way, next));
                let is_written =
                    |taken: &Taken| taken.extents.iter().any(|(_, wanted)| !wanted.writers.is_empty());
                if under_way.as_ref().is_some_and(is_written)
                    || is_small && small.as_mut().poll(&mut context).is_ready()
                {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_step_of_sparse_blocks_ends_before_bytes_that_are_written_or_are_waited_for_to_be() {
        let order = Rc::new(Order::default());
        let read = |n| order.wait(block(n), wish(n, false, 8, 1), at(0));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let written = Extent { len: 100, ..block(5) };
        let mut first = std::pin::pin!(order.locks.lock(written, true));
        let std::task::Poll::Ready(inside) = first.as_mut().poll(&mut context) else { panic!("it is free") };
        [1, 3, 9].into_iter().for_each(read);
        let before = order.take().unwrap();
        assert_eq!(froms(&before), [1, 3]);
        let after = order.take().unwrap();
        assert_eq!(froms(&after), [9]);
        drop((inside, before, after));

        // Readers at both sides come without end; a writer waits between them.
        [1, 9].into_iter().for_each(read);
        let mut under_way = order.take();
        let mut second = std::pin::pin!(order.locks.lock(written, true));
        assert!(second.as_mut().poll(&mut context).is_pending());
        for round in 2..10 {
            [round, 9 + round].into_iter().filter(|n| *n != 5).for_each(read);
            let next = order.take();
            drop(std::mem::replace(&mut under_way, next));
            if second.as_mut().poll(&mut context).is_ready() {
                return;
            }
        }
        panic!("the writer waits for ever");
    }

    #[test]
    fn parts_with_gaps_wait_for_company_and_no_longer_than_a_moment() {
        let order = Rc::new(Order::default());
        order.wait(block(0), wish(1, true, BLOCK_BYTES / 2, 64), at(0));
        assert!(order.take().is_none());
        order.wait(block(0), wish(2, true, BLOCK_BYTES / 2, 64), at(0));
        let taken = order.take().unwrap();
        assert_eq!(taken.extents[0].1.writers, [1, 2], "one step for both");
        drop(taken);
        order.wait(block(5), wish(3, true, 8, 2), at(1));
        let until = order.ripen(at(1)).unwrap();
        assert!(order.take().is_none() && until <= at(1) + PATIENCE_MAX);
        assert_eq!(order.ripen(until), None);
        assert_eq!(froms(&order.take().unwrap()), [5]);
    }

    #[test]
    fn writers_that_never_fill_a_block_wait_for_each_other_and_not_for_more() {
        let order = Rc::new(Order::default());
        let both = |block_at, now| {
            order.wait(block(block_at), wish(1, true, 8, 2), now);
            order.wait(block(block_at), wish(2, true, 8, 2), now);
        };
        both(0, at(0));
        let until = order.ripen(at(0)).unwrap();
        order.ripen(until);
        assert!(order.take().is_some());
        for block_at in 1..20 {
            both(block_at, until);
            assert_eq!(order.take().unwrap().extents[0].1.writers, [1, 2]);
        }
    }

    #[test]
    fn a_lone_writer_soon_waits_no_more() {
        let order = Rc::new(Order::default());
        let mut now = at(0);
        for request in 0..20 {
            order.wait(block(request), wish(request, true, 8, 2), now);
            if let Some(until) = order.ripen(now) {
                now = until;
            }
            order.ripen(now);
            assert!(order.take().is_some());
        }
        assert!(now < at(9), "{now:?}");
    }
}
