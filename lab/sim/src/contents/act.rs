//! An act on a file's bytes (a write, a truncation, a hole): its effect, and the faults that may undo it.

use super::places::bit;
use super::{Syncer, filled};
use crate::losses::{Held, Stamp};
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
    pub(super) fn gives(&self, at: u64) -> bool {
        let shortened = matches!(self.length, Length::Becomes(size) if at >= size);
        shortened || self.base.is_some() && self.ranges.iter().any(|range| range.contains(&at))
    }

    pub(super) fn decides_existence(&self, at: u64) -> bool {
        match self.length {
            Length::Kept => false,
            Length::Reaches(end) => self.base.is_some() && at < end,
            Length::Becomes(_) => true,
        }
    }

    pub(super) fn keeps(&self, at: u64) -> bool {
        !matches!(self.length, Length::Becomes(size) if at >= size)
    }

    /// Whether an fsync through this open file may have no more to say of a loss of it.
    pub(super) fn may_be_told(&self, by: &Syncer) -> bool {
        let told = self.told.contains(&by.open) || self.maybe_told.contains(&by.open);
        told || self.told_first.is_some_and(|(began, _)| by.opened > began)
    }

    /// Whether it certainly has not.
    pub(super) fn is_told(&self, by: &Syncer) -> bool {
        self.told.contains(&by.open) || self.told_first.is_some_and(|(_, ended)| by.open > ended)
    }

    /// Whether this server may have lost it.
    pub(super) fn is_lost_at(&self, server: u16, now: &Stamp) -> bool {
        self.synced & bit(server) == 0 && self.stamp.is_lost(now, server, self.held)
    }

    pub(super) fn floats(&self) -> bool {
        self.kind == "append" && !self.refused && (self.base.is_none() || self.twice)
    }

    pub(super) fn bytes(&self, from: u64, len: usize) -> Vec<u8> {
        let shortens = matches!(self.length, Length::Becomes(_));
        match self.base {
            Some(base) if !shortens => filled(self.tag, from - base, len),
            _ => vec![0; len],
        }
    }

    /// Where in an append's own bytes these are.
    pub(super) fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let own = (self.kind == "append").then(|| filled(self.tag, 0, self.len as usize))?;
        own.windows(bytes.len().max(1)).position(|window| window == bytes)
    }

    pub(super) fn told(&self) -> String {
        let Act { kind, client, called, returned, .. } = self;
        let (until, ranges) = (returned.map_or("?".to_owned(), |at| at.to_string()), &self.ranges);
        format!("{kind} by client {client} at {called}–{until} ns of {ranges:?}, length {:?}", self.length)
    }
}
