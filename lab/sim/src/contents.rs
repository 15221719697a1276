//! Bytes of a file: whether a read's result is possible.
//!
//! Each byte of a file is two registers: *whether it exists* and *its value*. A write makes all bytes up to
//! its end exist and gives its own their values; a truncation to `s` takes away those from `s` on (and makes
//! them zeros, should they come back), and makes those below exist; punching and zeroing give zeros. Every
//! write fills its bytes with words of its own, so each byte read identifies its write.
//!
//! The promise (SEMANTICS §1–§4) is that each such register is *regular* (Lamport 1986): a read sees the last
//! act that ended before it began, or one that ran at the same time, for each byte. So an act is no longer
//! possible when another that is *certain* began after it had ended. An act is certain if it ended before the
//! read began and cannot be lost: it was synced, or the server that holds the byte had no fault since the
//! act's call that takes bytes held so ([`crate::losses`]). An act without an answer is possible for ever.
//!
//! *Appends* have no place until they are acknowledged. One without an answer floats: its bytes may be
//! anywhere, in one piece, and only once. Its place must be after the bytes that certainly existed, and apart
//! from every other append's.

use crate::losses::{Held, Stamp};
use crate::rng::mix;
use shoal_proto::{Attr, Dist};
use std::collections::BTreeMap;
use std::ops::Range;

/// The effect on the file's length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Length {
    /// Nothing.
    #[default]
    Kept,
    /// It is at least this.
    Reaches(u64),
    /// It is this.
    Becomes(u64),
}

/// The kind of an act that changes attributes alone: of the file's bytes none, but fsyncs report its loss.
pub const ATTRIBUTES: &str = "attributes";

/// Something done to a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Act {
    /// The operation.
    pub kind: &'static str,
    /// The client.
    pub client: u16,
    /// Through an open file of which life of which client: its fsyncs report a loss. 0: of none.
    pub scope: u64,
    /// Open files through which an fsync said that it may be lost.
    pub told: Vec<u64>,
    /// Those through which one said so of the file that was called before this was acknowledged: it may have
    /// been meant or not.
    pub maybe_told: Vec<u64>,
    /// When the first of them was called and when it returned.
    pub told_first: Option<(u64, u64)>,
    /// When it was called, in nanoseconds.
    pub called: u64,
    /// The faults begun before it was called.
    pub stamp: Stamp,
    /// The faults that may take it.
    pub held: Held,
    /// The changes that an fsync may take for lost: its client does not know which of them the modes made
    /// durable at reply.
    pub noted: Held,
    /// The faults before its client requested the loss ids that an fsync compares. For an append to a file
    /// over several servers that may be long before it was called: when an fsync had last covered the file.
    pub compared: Stamp,
    /// Servers that cannot lose it any more, since an fsync covered it there: a bit each.
    pub synced: u64,
    /// An fsync of its own client covered it: the client has nothing more to say of it.
    pub covered: bool,
    /// When it was acknowledged.
    pub returned: Option<u64>,
    /// Ranges that get bytes.
    pub ranges: Vec<Range<u64>>,
    /// Tells its bytes from all others; 0: they are zeros.
    pub tag: u64,
    /// The effect on the length.
    pub length: Length,
    /// The place where its words are counted from; `None`: an append that has no place (yet).
    pub base: Option<u64>,
    /// Bytes of an append.
    pub len: u64,
    /// An append that may have been done twice, once in vain.
    pub twice: bool,
    /// It did nothing for certain.
    pub refused: bool,
}

impl Act {
    fn gives(&self, at: u64) -> bool {
        let shortened = matches!(self.length, Length::Becomes(size) if at >= size);
        shortened || self.base.is_some() && self.ranges.iter().any(|range| range.contains(&at))
    }

    fn decides_existence(&self, at: u64) -> bool {
        match self.length {
            Length::Kept => false,
            Length::Reaches(end) => self.base.is_some() && at < end,
            Length::Becomes(_) => true,
        }
    }

    fn keeps(&self, at: u64) -> bool {
        !matches!(self.length, Length::Becomes(size) if at >= size)
    }

    /// Whether an fsync through this open file may have no more to say of a loss of it.
    fn may_be_told(&self, by: &Syncer) -> bool {
        let told = self.told.contains(&by.open) || self.maybe_told.contains(&by.open);
        told || self.told_first.is_some_and(|(began, _)| by.opened > began)
    }

    /// Whether it certainly has not.
    fn is_told(&self, by: &Syncer) -> bool {
        self.told.contains(&by.open) || self.told_first.is_some_and(|(_, ended)| by.open > ended)
    }

    /// Whether this server may have lost it.
    fn is_lost_at(&self, server: u16, now: &Stamp) -> bool {
        self.synced & bit(server) == 0 && self.stamp.is_lost(now, server, self.held)
    }

    fn floats(&self) -> bool {
        self.kind == "append" && !self.refused && (self.base.is_none() || self.twice)
    }

    fn bytes(&self, from: u64, len: usize) -> Vec<u8> {
        let shortens = matches!(self.length, Length::Becomes(_));
        match self.base {
            Some(base) if !shortens => filled(self.tag, from - base, len),
            _ => vec![0; len],
        }
    }

    /// Where in an append's own bytes these are.
    fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let own = (self.kind == "append").then(|| filled(self.tag, 0, self.len as usize))?;
        own.windows(bytes.len().max(1)).position(|window| window == bytes)
    }

    fn told(&self) -> String {
        let Act { kind, client, called, returned, .. } = self;
        let (until, ranges) = (returned.map_or("?".to_owned(), |at| at.to_string()), &self.ranges);
        format!("{kind} by client {client} at {called}–{until} ns of {ranges:?}, length {:?}", self.length)
    }
}

/// The source of an fsync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syncer {
    /// Which life of which client.
    pub scope: u64,
    /// Through which open file: when its open was called.
    pub open: u64,
    /// When that returned.
    pub opened: u64,
}

/// Servers that a run may have: each is a bit of the synced set.
pub(crate) const SERVERS_MAX: u16 = 64;

fn bit(server: u16) -> u64 {
    assert!(server < SERVERS_MAX, "a simulated cluster has at most {SERVERS_MAX} servers");
    1 << server
}

/// Which servers hold which bytes of a file, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// The server of the metafile; `None`: not known.
    home: Option<u16>,
    /// Up to here the bytes are the metafile's own.
    stuffed: u64,
    /// Bytes of a strip (0: not known), and the servers of the datafiles in their order; none: not known.
    strip: u64,
    dealt: Vec<u16>,
}

impl Places {
    /// The server that holds a byte; `None`: it may be any.
    fn of(&self, at: u64) -> Option<u16> {
        match self.dealt.len() as u64 {
            0 => self.home.filter(|_| at < self.stuffed),
            count => Some(self.dealt[(at / self.strip % count) as usize]),
        }
    }

    /// All servers that hold something of the file; none: they are not known.
    fn all(&self) -> Vec<u16> {
        match &self.dealt[..] {
            [] => Vec::new(),
            dealt => dealt.iter().copied().chain(self.home).collect(),
        }
    }

    /// Where strips begin, between two places.
    fn borders(&self, from: u64, end: u64) -> impl Iterator<Item = u64> {
        let strip = self.strip;
        let last = end.checked_div(strip).unwrap_or(0);
        let first = from.checked_div(strip).unwrap_or(0) + 1;
        (first..=last).map(move |index| index * strip)
    }
}

/// The circumstances of a read.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The client.
    pub client: u16,
    /// When it was called.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
    /// Faults begun before it returned.
    pub now: &'a Stamp,
    /// Where it began.
    pub from: u64,
    /// How many bytes it requested.
    pub len: u64,
    /// Its result.
    pub content: &'a [u8],
}

/// So many bytes of an append without a place are not there by chance.
const BEGINNING: usize = 8;
/// The same of what is left of one between two borders.
const REST: usize = 3;

/// How many first bytes two have in common.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Whether the bytes are a piece of one, and after it the beginnings of others, each at most once. `begun`:
/// the bytes before them were not read.
fn are_pieces(all: &[Vec<u8>], bytes: &[u8], begun: bool) -> bool {
    let mut left: Vec<usize> = (0..all.len()).collect();
    (0..all.len()).any(|first| {
        left.retain(|act| *act != first);
        let own = &all[first];
        let is_one = (0..own.len()).any(|at| {
            let len = common(&own[at..], bytes);
            let is_piece = len >= BEGINNING || len > 0 && (at == 0 || begun);
            is_piece && borders(len).any(|end| others_begin(all, &mut left, &bytes[end..]))
        });
        left.push(first);
        is_one
    })
}

/// Whether the rest are beginnings of those that are left, each at most once.
fn others_begin(all: &[Vec<u8>], left: &mut Vec<usize>, rest: &[u8]) -> bool {
    rest.is_empty()
        || (0..left.len()).any(|index| {
            let act = left.swap_remove(index);
            let len = common(&all[act], rest);
            let begins = len == rest.len() || len == all[act].len() || len >= BEGINNING;
            let is_one = len > 0 && begins && borders(len).any(|end| others_begin(all, left, &rest[end..]));
            left.push(act);
            let last = left.len() - 1;
            left.swap(index, last);
            is_one
        })
}

/// Whether the bytes are the last ones of one, and after them the beginnings of others, each at most once.
fn are_end_and_beginnings(all: &[Vec<u8>], bytes: &[u8]) -> bool {
    let mut left: Vec<usize> = (0..all.len()).collect();
    (0..all.len()).any(|first| {
        left.retain(|act| *act != first);
        let own = &all[first];
        let ends = (1..=own.len().min(bytes.len())).filter(|len| own.ends_with(&bytes[..*len]));
        let is_one = ends.into_iter().any(|len| others_begin(all, &mut left, &bytes[len..]));
        left.push(first);
        is_one
    })
}

/// Whether the run of the content is this one's bytes at a place that a longer piece of it, elsewhere in the
/// content, shows to be its own.
fn shows_its_place(own: &[u8], content: &[u8], run: &Range<usize>) -> bool {
    let is_shown = |skipped: usize, begins: usize| {
        let pairs = own[skipped..].iter().zip(&content[begins..]);
        let mut in_a_row = 0;
        pairs.into_iter().any(|(one, other)| {
            in_a_row = if one == other { in_a_row + 1 } else { 0 };
            in_a_row == BEGINNING
        })
    };
    // The run is at `at` of its bytes; those before the content were not read.
    (0..(own.len() + 1).saturating_sub(run.len())).any(|at| {
        own[at..].starts_with(&content[run.clone()])
            && is_shown(at.saturating_sub(run.start), run.start.saturating_sub(at))
    })
}

/// Whether the bytes are some of those that are left, whole, one after the other.
fn are_whole(all: &[Vec<u8>], left: &mut Vec<usize>, bytes: &[u8]) -> bool {
    bytes.is_empty()
        || (0..left.len()).any(|index| {
            let act = left.swap_remove(index);
            let rest = bytes.strip_prefix(&all[act][..]).filter(|rest| rest.len() < bytes.len());
            let is_one = rest.is_some_and(|rest| are_whole(all, left, rest));
            left.push(act);
            let last = left.len() - 1;
            left.swap(index, last);
            is_one
        })
}

/// The possible ends of one that has so many bytes in common with the present ones: by chance the next one's
/// first bytes equal the next bytes of this one.
fn borders(len: usize) -> impl Iterator<Item = usize> {
    (len.saturating_sub(2).max(1)..=len).rev()
}

/// The bytes at `from .. from + len` of a content filled with the words of `tag`.
pub fn filled(tag: u64, from: u64, len: usize) -> Vec<u8> {
    if tag == 0 {
        return vec![0; len];
    }
    let skipped = (from % 8) as usize;
    let mut bytes = Vec::with_capacity(len + 16);
    for word in from / 8..=(from + len as u64) / 8 {
        bytes.extend_from_slice(&mix(tag ^ mix(word)).to_le_bytes());
    }
    bytes.drain(..skipped);
    bytes.truncate(len);
    bytes
}

/// All that was done to one file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    acts: Vec<Act>,
    places: Places,
    /// The faults before the last fsync of each life of a client that said that all is durable.
    synced_at: BTreeMap<u64, Stamp>,
}

impl Contents {
    /// The file was made on this server. Its first bytes, so many, are the metafile's own; its strips are so
    /// long.
    pub fn made(&mut self, home: u16, stuffed: u64, strip: u64) {
        self.places = Places { home: Some(home), stuffed, strip, ..self.places.clone() };
    }

    /// Where the file's bytes are: a layout stays as long as the file.
    pub fn learn(&mut self, attr: &Attr) {
        let Some(layout) = &attr.layout else { return };
        let strip = if let Dist::SimpleStripe { strip } = layout.dist { strip } else { u64::MAX };
        let dealt = layout.datafiles.iter().map(|datafile| datafile.server().0).collect();
        self.places = Places { home: Some(attr.handle.server().0), strip, dealt, ..self.places };
    }

    /// Something is about to be done; its number.
    pub fn begin(&mut self, mut act: Act) -> usize {
        act.compared = match act.kind {
            "append" => self.synced_at.get(&act.scope).cloned().unwrap_or_default(),
            _ => act.stamp.clone(),
        };
        self.acts.push(act);
        self.acts.len() - 1
    }

    /// It ended without an answer, and what was done of it may be held less well than was thought when it was
    /// requested: the modes of durability may have been changed meanwhile.
    pub fn is_held(&mut self, act: usize, held: Held) {
        let act = &mut self.acts[act];
        act.held = act.held.min(held);
    }

    /// It was acknowledged, and may be held less well than was thought when it was requested.
    pub fn done(&mut self, act: usize, now: u64, held: Held) {
        let act = &mut self.acts[act];
        (act.returned, act.held) = (Some(now), act.held.min(held));
    }

    /// It was refused, and nothing was done.
    pub fn refused(&mut self, act: usize) {
        let act = &mut self.acts[act];
        act.refused = true;
        act.ranges.clear();
        act.length = Length::Kept;
    }

    /// An append was acknowledged, at `offset`. `twice`: it may also be elsewhere.
    ///
    /// # Errors
    /// The violation of its place, in words.
    pub fn appended(
        &mut self,
        act: usize,
        offset: u64,
        (now, stamp, held): (u64, &Stamp, Held),
        twice: bool,
    ) -> Result<(), String> {
        let end = offset + self.acts[act].len;
        let judged = self.may_begin(act, offset, now, stamp);
        let appended = &mut self.acts[act];
        (appended.returned, appended.held) = (Some(now), appended.held.min(held));
        appended.base = Some(offset);
        appended.ranges = std::iter::once(offset..end).collect();
        appended.length = Length::Reaches(end);
        appended.twice = twice;
        judged
    }

    /// A server was killed while an append was under way that ended with an error: it may be there twice.
    pub fn may_be_twice(&mut self, act: usize) {
        self.acts[act].twice = true;
    }

    fn may_begin(&self, act: usize, offset: u64, now: u64, stamp: &Stamp) -> Result<(), String> {
        let own = &self.acts[act];
        let asked = Read {
            client: own.client,
            called: own.called,
            returned: now,
            now: stamp,
            from: offset,
            len: 0,
            content: &[],
        };
        if let Err(other) = self.may_be_absent(offset, &asked) {
            return Err(format!(
                "expected it after the existing bytes, found it at {offset}, before {other}"
            ));
        }
        let end = offset + own.len;
        for other in self.acts.iter().filter(|other| other.kind == "append" && other.returned.is_some()) {
            let apart = other.ranges.iter().all(|range| range.end <= offset || end <= range.start);
            let shortened = self.acts.iter().any(|shrink| {
                let earlier = |act: &Act| shrink.returned.is_some_and(|returned| returned < act.called);
                matches!(shrink.length, Length::Becomes(_)) && !(earlier(own) && earlier(other))
            });
            let strips = |from| self.places.borders(from, end.saturating_sub(1)).chain([from]);
            let is_lost = strips(offset).any(|at| self.may_be_lost(other, at, stamp));
            // Its answer may be a kept one: its bytes from the other's place on may have been lost before
            // that began.
            let place = other.base.unwrap_or(offset).max(offset);
            let was_lost =
                own.called < other.called && strips(place).all(|at| self.may_be_lost(own, at, &other.stamp));
            if !apart && !shortened && !is_lost && !was_lost {
                return Err(format!("found it at {offset}–{end}, where there is the {}", other.told()));
            }
        }
        Ok(())
    }

    /// An fsync, called at `called` and done when there were these faults, reported that all is durable. It
    /// covers writes through any open file of the same client, unless their possible loss may have been
    /// reported through this one, or before this one was opened; and writes of any client, on the servers
    /// that lost none of them.
    pub fn synced(&mut self, by: Syncer, called: u64, now: &Stamp) {
        self.synced_at.insert(by.scope, now.clone());
        for act in self.acts.iter_mut().filter(|act| act.returned.is_some_and(|at| at <= called)) {
            if by.scope != 0 && act.scope == by.scope && !act.may_be_told(&by) {
                (act.synced, act.covered) = (u64::MAX, true);
            }
            let kept = (0..now.servers()).filter(|server| !act.is_lost_at(*server, now));
            act.synced |= kept.map(bit).fold(0, |all, server| all | server);
        }
    }

    /// An fsync from `called` to `ended` reported that its client's writes may be lost: a later one through
    /// the same open file does not cover them, nor does one through a file that is opened from now on. For
    /// writes acknowledged since the call, a later one may report the same.
    ///
    /// An append under way has the ids that its client knew of its other writes: as those are noted, so is
    /// it.
    pub fn lost(&mut self, by: Syncer, called: u64, ended: u64) {
        let own = self.acts.iter().filter(|act| act.scope == by.scope);
        let weakest = own.map(|act| act.noted).min().unwrap_or_default();
        for act in self.acts.iter_mut().filter(|act| act.scope == by.scope) {
            if act.kind == "append" && act.returned.is_none_or(|returned| returned > called) {
                (act.compared, act.noted) = (Stamp::default(), weakest);
            }
            let Some(returned) = act.returned else { continue };
            let (told, until) = match returned <= called {
                true => (&mut act.told, ended),
                false => (&mut act.maybe_told, u64::MAX),
            };
            told.push(by.open);
            let (began, before) = act.told_first.unwrap_or((called, until));
            act.told_first = Some((began, before.min(until)));
        }
    }

    /// Whether an fsync of this client may report a loss: a server that may hold some of the file had a fault
    /// that takes the client's writes. This client does not know whether another client's fsync covered them.
    pub fn may_have_lost(&self, by: Syncer, now: &Stamp) -> bool {
        let servers = self.places.all();
        let own = self.acts.iter().filter(|act| act.scope == by.scope && !act.covered);
        let mut own = own.filter(|act| !act.is_told(&by));
        own.any(|act| act.compared.is_lost_by_any(now, &servers, act.noted.min(act.held)))
    }

    /// A client's writes, and the results of its fsyncs: for the words of a violation.
    pub fn written_by(&self, scope: u64) -> String {
        let own = self.acts.iter().filter(|act| act.scope == scope);
        let words = own.map(|act| {
            let Act { noted, held, covered, told, told_first, .. } = act;
            let told = format!("told through {told:?}, first at {told_first:?}");
            format!("{}, held {held:?}, noted {noted:?}, covered {covered}, {told}", act.told())
        });
        format!("{}, on {:?}", words.collect::<Vec<_>>().join("; "), self.places.all())
    }

    /// Whether a server that may hold some of it was killed between two moments.
    pub fn was_killed(&self, since: &Stamp, now: &Stamp) -> bool {
        since.is_lost_by_any(now, &self.places.all(), Held::Memory)
    }

    /// Whether an act's effect on a byte may be lost. The metafile's server sets a file's length.
    fn may_be_lost(&self, act: &Act, at: u64, now: &Stamp) -> bool {
        let is_cut = matches!(act.length, Length::Becomes(_));
        match if is_cut { self.places.home } else { self.places.of(at) } {
            Some(server) => {
                // A change held in memory only may have laid the file out: that is lost with the metafile's
                // server.
                let lays_out = act.held == Held::Memory && at >= self.places.stuffed;
                let home = self.places.home.filter(|_| lays_out);
                act.is_lost_at(server, now) || home.is_some_and(|home| act.is_lost_at(home, now))
            }
            None => (0..now.servers()).any(|server| act.is_lost_at(server, now)),
        }
    }

    /// Whether the existence of a byte that an act gave or took may be lost: it follows from any later byte
    /// that there is.
    fn may_lose_existence(&self, act: &Act, at: u64, now: &Stamp) -> bool {
        let last = match act.length {
            Length::Reaches(end) => end.saturating_sub(1),
            Length::Kept | Length::Becomes(_) => at,
        };
        let given = act.ranges.iter().any(|range| range.contains(&at));
        self.may_be_lost(act, last, now) && (!given || self.may_be_lost(act, at, now))
    }

    /// The furthest that anything reaches.
    pub fn reach(&self) -> u64 {
        let reach = |act: &Act| match act.length {
            Length::Kept => 0,
            Length::Reaches(end) | Length::Becomes(end) => end,
        };
        self.acts.iter().map(reach).max().unwrap_or(0)
    }

    /// Whether anything may have been done at or after that moment.
    pub fn touched_since(&self, at: u64) -> bool {
        let mut acts = self.acts.iter().filter(|act| act.kind != ATTRIBUTES);
        acts.any(|act| act.returned.is_none_or(|returned| returned >= at) && !act.refused)
    }

    /// The acts that a register may show: `None` is its beginning. `lost`: whether an act's effect on it may
    /// be lost.
    fn possible(
        &self,
        read: &Read<'_>,
        decides: impl Fn(&Act) -> bool,
        lost: impl Fn(&Act) -> bool,
    ) -> Vec<Option<&Act>> {
        let seen: Vec<&Act> =
            self.acts.iter().filter(|act| act.called < read.returned && decides(act)).collect();
        let is_certain = |act: &&&Act| {
            let before = act.returned.is_some_and(|returned| returned < read.called);
            before && !lost(act)
        };
        let last_begun = seen.iter().filter(is_certain).map(|act| act.called).max();
        let outdated =
            |act: &Act| last_begun.is_some_and(|begun| act.returned.is_some_and(|returned| returned < begun));
        let first = last_begun.is_none().then_some(None);
        first.into_iter().chain(seen.into_iter().filter(|act| !outdated(act)).map(Some)).collect()
    }

    fn possible_ends(&self, at: u64, read: &Read<'_>) -> Vec<Option<&Act>> {
        let lost = |act: &Act| self.may_lose_existence(act, at, read.now);
        self.possible(read, |act| act.decides_existence(at), lost)
    }

    fn may_exist(&self, at: u64, read: &Read<'_>) -> bool {
        let floats = self.acts.iter().any(|act| act.called < read.returned && act.floats());
        let possible = self.possible_ends(at, read);
        floats || possible.iter().any(|act| act.is_some_and(|act| act.keeps(at)))
    }

    fn may_be_absent(&self, at: u64, read: &Read<'_>) -> Result<(), String> {
        let possible = self.possible_ends(at, read);
        let absent = possible.iter().any(|act| act.is_none_or(|act| !act.keeps(at)));
        let told = || possible.first().copied().flatten().map_or(String::new(), Act::told);
        if absent { Ok(()) } else { Err(told()) }
    }

    /// Whether the file's length may be `size`, asked as `read` says.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn judge_size(&self, size: u64, read: &Read<'_>) -> Result<(), String> {
        if size > 0 && !self.may_exist(size - 1, read) {
            return Err(format!("expected a shorter file, found {size} bytes"));
        }
        self.may_be_absent(size, read)
            .map_err(|act| format!("expected a longer file, found {size} bytes: {act}"))
    }

    /// Whether a read's result is possible.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn judge(&self, read: &Read<'_>) -> Result<(), String> {
        let end = read.from + read.content.len() as u64;
        if end < read.from + read.len {
            let ended = self.may_be_absent(end, read);
            ended.map_err(|act| format!("expected bytes at {end}, found the end of the file: {act}"))?;
        }
        let mut edges = vec![read.from, end];
        for act in &self.acts {
            edges.extend(act.ranges.iter().flat_map(|range| [range.start, range.end]));
            if let Length::Reaches(size) | Length::Becomes(size) = act.length {
                edges.push(size);
            }
        }
        edges.extend(self.places.borders(read.from, end));
        edges.retain(|edge| (read.from..=end).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        edges.windows(2).try_for_each(|pair| self.judge_between(pair[0], pair[1], read))
    }

    fn judge_between(&self, from: u64, end: u64, read: &Read<'_>) -> Result<(), String> {
        if !self.may_exist(from, read) {
            return Err(format!("expected the end of the file at or before {from}, found bytes up to {end}"));
        }
        let found = &read.content[(from - read.from) as usize..(end - read.from) as usize];
        let lost = |act: &Act| self.may_be_lost(act, from, read.now);
        let possible = self.possible(read, |act| act.gives(from), lost);
        let fills: Vec<Vec<u8>> = possible
            .iter()
            .map(|act| act.map_or_else(|| vec![0; found.len()], |act| act.bytes(from, found.len())))
            .collect();
        if fills.iter().any(|fill| fill == found) {
            return Ok(());
        }
        let fits = |at: &usize| fills.iter().any(|fill| fill[*at] == found[*at]);
        let mut at = 0;
        while let Some(first) = (at..found.len()).find(|at| !fits(at)) {
            let last = (first..found.len()).find(fits).unwrap_or(found.len());
            let is_cut = first == 0 && last == found.len();
            let before = (from - read.from) as usize;
            if !self.is_floating(before + first..before + last, (first == 0, is_cut), read) {
                return Err(self.unexplained(from, first, found, &possible));
            }
            at = last;
        }
        Ok(())
    }

    /// Whether these bytes of the content are a piece of an append that has no place. After it others may
    /// begin: where a server did not take its share of one, that one ends sooner, and the next goes there.
    /// `begins_cut`, `is_cut`: at its beginning, or at both ends of the run, another act's range begins or
    /// ends: the run may be what that one left.
    fn is_floating(&self, run: Range<usize>, (begins_cut, is_cut): (bool, bool), read: &Read<'_>) -> bool {
        let floating = self.acts.iter().filter(|act| act.called < read.returned && act.floats());
        // One that was under way when a server was killed may be there twice.
        let times = |act: &Act| if self.was_killed(&act.stamp, read.now) { 2 } else { 1 };
        let fills = floating.flat_map(|act| vec![filled(act.tag, 0, act.len as usize); times(act)]);
        let all: Vec<Vec<u8>> = fills.collect();
        let bytes = &read.content[run.clone()];
        // A few bytes within the read fit some append by chance; at its edge the rest is not seen.
        let at_edge = run.start == 0 || run.end == read.content.len();
        let tells = at_edge || is_cut && bytes.len() >= REST || bytes.len() >= BEGINNING;
        if tells && all.iter().any(|own| own.windows(bytes.len()).any(|window| window == bytes)) {
            return true;
        }
        if are_whole(&all, &mut (0..all.len()).collect(), bytes) {
            return true;
        }
        if begins_cut && tells && are_end_and_beginnings(&all, bytes)
            || all.iter().any(|own| shows_its_place(own, read.content, &run))
            || self.is_before_an_append(&run, read)
        {
            return true;
        }
        // A few bytes are soon an end of one and the beginning of another. Their neighbours decide; those fit
        // another append by chance, or lie beyond an edge.
        let ends = run.end..=read.content.len().min(run.end + BEGINNING);
        let starts = run.start.saturating_sub(BEGINNING)..=run.start;
        let windows = starts.flat_map(|start| ends.clone().map(move |end| start..end));
        windows.filter(|window| window.len() >= BEGINNING).any(|window| {
            let begun = window.start == 0;
            are_pieces(&all, &read.content[window], begun)
        })
    }

    /// Whether a run is of an append without a place that ends where another one, which has a place, begins:
    /// that one went to the end of the file, which this one had made.
    fn is_before_an_append(&self, run: &Range<usize>, read: &Read<'_>) -> bool {
        let at = read.from + run.start as u64;
        let floating = self.acts.iter().filter(|act| act.called < read.returned && act.floats());
        floating.into_iter().any(|act| {
            let later = self.acts.iter().filter(|next| next.kind == "append" && next.called >= act.called);
            let places = later.filter_map(|next| next.base?.checked_sub(act.len));
            places.into_iter().any(|place| {
                let Some(skipped) = at.checked_sub(place) else { return false };
                let own = filled(act.tag, 0, act.len as usize);
                let own = own.get(skipped as usize..).unwrap_or_default();
                own.starts_with(&read.content[run.clone()])
            })
        })
    }

    fn unexplained(&self, from: u64, first: usize, found: &[u8], possible: &[Option<&Act>]) -> String {
        let at = from + first as u64;
        let bytes = &found[first..found.len().min(first + 8)];
        let whose = self.acts.iter().find(|act| {
            act.base.is_some_and(|base| base <= at) && act.tag != 0 && act.bytes(at, bytes.len()) == bytes
        });
        let zeros = bytes.iter().all(|byte| *byte == 0);
        let elsewhere = self.acts.iter().find_map(|act| Some((act, act.place_of(bytes)?)));
        let whose = match whose {
            Some(act) => format!("those of the {}", act.told()),
            None if zeros => "zeros".to_owned(),
            None => match elsewhere {
                Some((act, place)) => format!("byte {place} of the {}, whose place is another", act.told()),
                None => format!("{bytes:02x?}, of nobody"),
            },
        };
        let possible = possible.iter().map(|act| act.map_or("zeros".to_owned(), Act::told));
        let possible: Vec<String> = possible.collect();
        format!("at byte {at} expected one of [{}], found {whose}", possible.join("; "))
    }

    /// How often each append without an answer is in the whole content: more than once is wrong.
    pub fn judge_once(&self, content: &[u8]) -> Result<(), String> {
        for act in self.acts.iter().filter(|act| act.floats() && act.base.is_none() && act.len >= 16) {
            let head = filled(act.tag, 0, 16);
            let count = content.windows(16).filter(|window| *window == head).count();
            if count > 1 && !act.twice {
                return Err(format!("expected it at most once, found {count} times the {}", act.told()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
