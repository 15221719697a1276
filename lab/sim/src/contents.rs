//! The bytes of a file: decides whether the result of a read is possible.
//!
//! Each byte of a file is two registers: *whether it exists* and *its value*. A write makes all bytes up to
//! its end exist and gives its own bytes their values. A truncation to `s` makes the bytes below `s` exist
//! and removes the bytes from `s` on. If removed bytes exist again later, they are zeros. Punching and
//! zeroing give zeros. Every write fills its bytes with words of its own, so each byte read identifies its
//! write.
//!
//! The promise (SEMANTICS §1–§4) is that each such register is *regular* (Lamport 1986): for each byte, a
//! read sees the last act that ended before it began, or one that ran at the same time. So an act is no
//! longer possible if a *certain* act began after it had ended. An act is certain if it ended before the
//! read began and cannot be lost. An act cannot be lost if it was synced, or if since its call the server
//! that holds the byte had no fault that loses bytes held in that way ([`crate::losses`]). An act without
//! an answer is possible for ever.
//!
//! *Appends* have no place until they are acknowledged. An append without an answer floats: its bytes may be
//! anywhere, in pieces that begin where strips do, and only once. Its place must be after the bytes that
//! certainly existed, and apart from every other append's.

mod act;
mod floating;
mod judge;
mod places;

pub use act::{ATTRIBUTES, Act, Length};
pub use places::Places;
pub(crate) use places::SERVERS_MAX;
use places::bit;

use crate::losses::{Held, Stamp};
use crate::rng::mix;
use shoal_proto::{Attr, Dist};
use std::collections::BTreeMap;

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
}

#[cfg(test)]
mod tests;
