//! Tests of the table against a model that stores each byte by itself and searches everything each time.

use super::table::{LockTable, Locker, Outcome, Wanted};
use shoal_proto::{ClientId, Handle, LockKind, LockOwner, LockRange};
use std::collections::BTreeMap;

const BYTES: u64 = 12;
const FILES: u64 = 3;
const CALLS: usize = 100_000;
/// Requests that wait at once.
const WAITS: usize = 16;

/// The rules of the module's page, over single bytes.
#[derive(Default)]
struct Model {
    held: BTreeMap<(Handle, u64, Locker), LockKind>,
    queue: Vec<(u64, Wanted)>,
}

/// The bytes of a range; one more stands for all after those that are drawn.
fn bytes(range: LockRange) -> std::ops::RangeInclusive<u64> {
    range.first..=range.last.min(BYTES)
}

fn conflict(one: &Wanted, other: &Wanted) -> bool {
    one.file == other.file
        && one.by != other.by
        && one.range.overlaps(other.range)
        && one.kind.excludes(other.kind)
}

impl Model {
    fn holders(&self, wanted: &Wanted) -> Vec<Locker> {
        let is_in = |file: Handle, byte: u64| file == wanted.file && bytes(wanted.range).contains(&byte);
        let held = self.held.iter().filter(|((file, byte, by), kind)| {
            is_in(*file, *byte) && *by != wanted.by && kind.excludes(wanted.kind)
        });
        held.map(|((.., by), _)| *by).collect()
    }

    fn reaches(&self, from: Locker, target: Locker) -> bool {
        let mut reached = vec![from];
        let mut at = 0;
        while at < reached.len() {
            let of = reached[at];
            for (_, wanted) in self.queue.iter().filter(|(_, wanted)| wanted.by == of) {
                for holder in self.holders(wanted) {
                    if holder == target {
                        return true;
                    }
                    if !reached.contains(&holder) {
                        reached.push(holder);
                    }
                }
            }
            at += 1;
        }
        false
    }

    fn before(&self, wanted: &Wanted, place: usize) -> Vec<usize> {
        let is_before = |at: &usize| {
            conflict(&self.queue[*at].1, wanted) && !self.reaches(self.queue[*at].1.by, wanted.by)
        };
        (0..place).filter(is_before).collect()
    }

    fn is_circle(&self, start: usize) -> bool {
        let owner = self.queue[start].1.by;
        let (mut reached, mut at) = (vec![start], 0);
        while at < reached.len() {
            let place = reached[at];
            let wanted = self.queue[place].1;
            let mut next = self.before(&wanted, place);
            for holder in self.holders(&wanted) {
                if holder == owner {
                    return true;
                }
                next.extend((0..self.queue.len()).filter(|at| self.queue[*at].1.by == holder));
            }
            next.into_iter().for_each(|place| {
                if !reached.contains(&place) {
                    reached.push(place);
                }
            });
            at += 1;
        }
        false
    }

    fn give(&mut self, wanted: &Wanted) {
        bytes(wanted.range).for_each(|byte| {
            self.held.insert((wanted.file, byte, wanted.by), wanted.kind);
        });
    }

    fn has(&self, wanted: &Wanted, exactly: bool) -> bool {
        bytes(wanted.range).all(|byte| {
            let kind = self.held.get(&(wanted.file, byte, wanted.by));
            kind.is_some_and(|kind| *kind == wanted.kind || (!exactly && *kind > wanted.kind))
        })
    }

    /// `ticket`: what the table calls the wait, if it waits.
    fn ask(&mut self, wanted: &Wanted, wait: bool, ticket: u64) -> Outcome {
        if let Some((ticket, _)) =
            self.queue.iter().find(|(_, w)| (w.file, w.by, w.call) == (wanted.file, wanted.by, wanted.call))
        {
            return Outcome::Queued(*ticket);
        }
        if self.has(wanted, true) {
            return Outcome::Granted;
        }
        let is_free = self.holders(wanted).is_empty();
        if is_free && (!wait || self.before(wanted, self.queue.len()).is_empty()) {
            self.give(wanted);
            return Outcome::Granted;
        }
        if !wait {
            return Outcome::Refused;
        }
        self.queue.push((ticket, *wanted));
        if self.is_circle(self.queue.len() - 1) {
            self.queue.pop();
            return Outcome::Deadlock;
        }
        Outcome::Queued(ticket)
    }

    fn pump(&mut self, file: Handle) -> Vec<u64> {
        let mut granted = Vec::new();
        loop {
            let may = |at: &usize| {
                let wanted = self.queue[*at].1;
                wanted.file == file
                    && self.holders(&wanted).is_empty()
                    && self.before(&wanted, *at).is_empty()
            };
            let Some(at) = (0..self.queue.len()).find(may) else { return granted };
            let (ticket, wanted) = self.queue.remove(at);
            self.give(&wanted);
            granted.push(ticket);
        }
    }
}

impl Model {
    /// All waits that may end after a change of a file, and of any other.
    fn settle(&mut self, file: Handle) -> Vec<u64> {
        let mut granted = self.pump(file);
        loop {
            let before = granted.len();
            (0..FILES).for_each(|file| granted.extend(self.pump(Handle(file))));
            if granted.len() == before {
                return granted;
            }
        }
    }
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn client(number: u64) -> ClientId {
    ClientId([number as u8 + 1; 16])
}

fn check_against_the_model(seed: u64, clients: u64, calls: usize) -> [usize; 5] {
    let mut draw = Draw(seed);
    let (mut table, mut model) = (LockTable::new(usize::MAX - 8), Model::default());
    let (mut outcomes, mut call) = ([0; 5], 0);
    for _ in 0..calls {
        let by = Locker { client: client(draw.below(clients)), owner: LockOwner(draw.below(2)) };
        let first = draw.below(BYTES);
        let last = if draw.below(8) == 0 { u64::MAX } else { first + draw.below(BYTES - first) };
        let kind = if draw.below(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
        call += 1;
        let file = Handle(draw.below(FILES));
        let mut wanted = Wanted { file, by, range: LockRange { first, last }, kind, pid: 1, call };
        let (mut granted, mut expected) = (Vec::new(), Vec::new());
        match draw.below(16) {
            0..8 => {
                // Sometimes an earlier call again.
                if draw.below(6) == 0
                    && let Some((_, again)) = model.queue.get(draw.below(8) as usize)
                {
                    wanted = *again;
                }
                let wait = draw.below(3) > 0 && model.queue.len() < WAITS;
                let outcome = table.ask(&wanted, wait, &mut granted);
                let ticket = table.last_ticket();
                let mut asked = model.ask(&wanted, wait, ticket);
                if matches!(asked, Outcome::Granted | Outcome::Queued(_)) {
                    expected = model.settle(wanted.file);
                }
                // A request that waits may be the reason why it does not.
                if expected.contains(&ticket) && asked == Outcome::Queued(ticket) {
                    asked = Outcome::Granted;
                }
                assert_eq!(outcome, asked, "{wanted:?}");
                outcomes[match outcome {
                    Outcome::Granted => 0,
                    Outcome::Queued(_) => 1,
                    Outcome::Refused => 2,
                    Outcome::Deadlock => 3,
                    Outcome::NoLocks => 4,
                }] += 1;
            }
            8..13 => {
                table.unlock(file, by, wanted.range, &mut granted);
                bytes(wanted.range).for_each(|byte| {
                    let _ = model.held.remove(&(file, byte, by));
                });
                expected = model.settle(file);
            }
            13 | 14 => {
                if let Some((_, waits)) = model.queue.get(draw.below(8) as usize).copied() {
                    assert!(!table.unwait(&waits, &mut granted), "it waits");
                    model.queue.retain(|(_, w)| (w.by, w.call) != (waits.by, waits.call));
                    expected = model.settle(waits.file);
                } else {
                    assert_eq!(table.unwait(&wanted, &mut granted), model.has(&wanted, false));
                }
            }
            _ if draw.below(8) == 0 => {
                let ghost = ClientId([200; 16]);
                let locked = table.disown(by.client, ghost, &mut granted);
                let had = |file: &Handle| {
                    model.held.iter().any(|((of, _, who), kind)| {
                        of == file && who.client == by.client && *kind == LockKind::Exclusive
                    })
                };
                let files: Vec<Handle> = (0..FILES).map(Handle).collect();
                assert_eq!(locked, files.iter().copied().filter(had).collect::<Vec<_>>());
                assert!(!table.has(by.client));
                // The locks that stay for a while have no client.
                let ghosts: Vec<_> =
                    model.held.extract_if(.., |(.., who), _| who.client == by.client).collect();
                let ghosts = ghosts.into_iter().filter(|(_, kind)| *kind == LockKind::Exclusive);
                let ghosts: Vec<_> = ghosts
                    .map(|((file, byte, who), kind)| ((file, byte, Locker { client: ghost, ..who }), kind))
                    .collect();
                model.held.extend(ghosts);
                model.queue.retain(|(_, w)| w.by.client != by.client);
                expected = files.iter().flat_map(|file| model.settle(*file)).collect();
                for file in locked {
                    table.end(ghost, file, &mut granted);
                    model.held.retain(|(of, _, who), _| *of != file || who.client != ghost);
                    expected.extend(model.settle(file));
                }
                assert!(!table.has(ghost));
            }
            _ => {
                let holder = table.holder(&wanted).map(|h| Locker { client: h.client, owner: h.owner });
                let holders = model.holders(&wanted);
                assert!(holder.map_or(holders.is_empty(), |holder| holders.contains(&holder)));
            }
        }
        granted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(granted, expected);
        let waiting: usize = (0..clients).map(|n| table.count(client(n))).sum();
        assert_eq!(waiting == 0, model.held.is_empty() && model.queue.is_empty());
    }
    outcomes
}

#[test]
fn a_hundred_thousand_calls_of_one_to_eight_clients_end_as_a_model_of_single_bytes_says() {
    let mut all = [0; 5];
    for clients in 1..=8 {
        let outcomes = check_against_the_model(clients, clients, CALLS / 8);
        all.iter_mut().zip(outcomes).for_each(|(all, one)| *all += one);
    }
    let [granted, queued, refused, deadlocks, _] = all;
    assert!(granted > 5_000 && queued > 1_000 && refused > 1_000 && deadlocks > 100, "{all:?}");
}

fn wanted(owner: u64, kind: LockKind, call: u64) -> Wanted {
    let by = Locker { client: client(owner), owner: LockOwner(1) };
    Wanted { file: Handle(7), by, range: LockRange { first: 0, last: 9 }, kind, pid: 1, call }
}

#[test]
fn readers_do_not_starve_a_writer_and_a_request_that_does_not_wait_looks_at_holders_only() {
    let (mut table, mut granted) = (LockTable::new(100), Vec::new());
    let mut ask = |table: &mut LockTable, wanted: &Wanted, wait| table.ask(wanted, wait, &mut granted);
    assert_eq!(ask(&mut table, &wanted(1, LockKind::Shared, 1), true), Outcome::Granted);
    let writer = ask(&mut table, &wanted(2, LockKind::Exclusive, 2), true);
    let reader = ask(&mut table, &wanted(3, LockKind::Shared, 3), true);
    let (Outcome::Queued(writer), Outcome::Queued(reader)) = (writer, reader) else { panic!("both wait") };
    assert_eq!(ask(&mut table, &wanted(4, LockKind::Shared, 4), false), Outcome::Granted);
    table.unlock(Handle(7), wanted(4, LockKind::Shared, 4).by, LockRange::ALL, &mut granted);
    assert!(granted.is_empty());
    table.unlock(Handle(7), wanted(1, LockKind::Shared, 1).by, LockRange::ALL, &mut granted);
    assert_eq!(granted, [writer]);
    table.unlock(Handle(7), wanted(2, LockKind::Shared, 1).by, LockRange::ALL, &mut granted);
    assert_eq!(granted, [writer, reader]);
}

#[test]
fn a_request_is_not_queued_after_one_that_waits_for_its_own_owner() {
    let (mut table, mut granted) = (LockTable::new(100), Vec::new());
    assert_eq!(table.ask(&wanted(1, LockKind::Shared, 1), true, &mut granted), Outcome::Granted);
    let waits = table.ask(&wanted(2, LockKind::Exclusive, 2), true, &mut granted);
    assert!(matches!(waits, Outcome::Queued(_)));
    let more = Wanted { range: LockRange { first: 5, last: 20 }, ..wanted(1, LockKind::Shared, 3) };
    assert_eq!(table.ask(&more, true, &mut granted), Outcome::Granted);
}

#[test]
fn of_two_readers_that_both_want_to_write_the_second_is_told_that_it_would_wait_for_ever() {
    let (mut table, mut granted) = (LockTable::new(100), Vec::new());
    for owner in [1, 2] {
        assert_eq!(table.ask(&wanted(owner, LockKind::Shared, owner), true, &mut granted), Outcome::Granted);
    }
    let first = table.ask(&wanted(1, LockKind::Exclusive, 3), true, &mut granted);
    assert!(matches!(first, Outcome::Queued(_)));
    assert_eq!(table.ask(&wanted(2, LockKind::Exclusive, 4), true, &mut granted), Outcome::Deadlock);
    table.unlock(Handle(7), wanted(2, LockKind::Shared, 1).by, LockRange::ALL, &mut granted);
    assert_eq!(granted.len(), 1);
}

#[test]
fn a_million_locks_of_one_client_end_at_its_limit_and_others_go_on() {
    const LIMIT: usize = 16_384;
    let (mut table, mut granted) = (LockTable::new(LIMIT), Vec::new());
    let mut refused = 0;
    for at in 0..1_000_000_u64 {
        let range = LockRange { first: 2 * at, last: 2 * at };
        let one = Wanted { range, ..wanted(1, LockKind::Exclusive, at) };
        match table.ask(&one, false, &mut granted) {
            Outcome::NoLocks => refused += 1,
            outcome => assert_eq!(outcome, Outcome::Granted),
        }
    }
    assert_eq!(table.count(client(1)) + 1, LIMIT);
    assert_eq!(refused, 1_000_000 - table.count(client(1)));
    let other = Wanted { range: LockRange { first: 1, last: 1 }, ..wanted(2, LockKind::Exclusive, 1) };
    assert_eq!(table.ask(&other, false, &mut granted), Outcome::Granted);
    table.unlock(Handle(7), wanted(1, LockKind::Shared, 1).by, LockRange::ALL, &mut granted);
    assert!(!table.has(client(1)) && table.has(client(2)));
}
