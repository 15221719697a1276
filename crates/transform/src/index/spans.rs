//! Single records, kept disjoint: if two records overlap, the newer bytes are kept.

use super::{Hit, Order};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Span {
    len: u64,
    log: u32,
    physical: u64,
    order: Order,
}

impl Span {
    /// The same without its first bytes.
    fn behind(self, skip: u64) -> Span {
        Span { len: self.len - skip, physical: self.physical + skip, ..self }
    }
}

/// See the module. By the first byte's place.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(BTreeMap<u64, Span>);

impl Spans {
    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(start, span)| start + span.len)
    }

    pub(super) fn at(&self, at: u64) -> Option<Hit> {
        let (start, span) = self.0.range(..=at).next_back()?;
        let inner = at - start;
        let run = span.len.checked_sub(inner).filter(|run| *run > 0)?;
        Some(Hit { log: span.log, physical: span.physical + inner, run, order: span.order })
    }

    pub(super) fn next_start(&self, at: u64) -> Option<u64> {
        Some(*self.0.range(at.checked_add(1)?..).next()?.0)
    }

    /// A record. Bytes that are newer stay.
    pub(super) fn insert(&mut self, logical: u64, len: u64, log: u32, physical: u64, order: Order) {
        let (mut at, end) = (logical, logical + len);
        let new =
            |from: u64, to: u64| Span { len: to - from, log, physical: physical + (from - logical), order };
        while at < end {
            // The part up to the next span, then that span.
            let under = self.0.range(..=at).next_back().map(|(start, span)| (*start, *span));
            let under = under.filter(|(start, span)| start + span.len > at);
            let Some((start, span)) = under else {
                let next = self.next_start(at).map_or(end, |next| next.min(end));
                self.put(at, new(at, next));
                at = next;
                continue;
            };
            let to = (start + span.len).min(end);
            if span.order < order {
                self.replace(start, span, at, to);
                self.put(at, new(at, to));
            }
            at = to;
        }
    }

    /// Take `from .. to` out of a span.
    fn replace(&mut self, start: u64, span: Span, from: u64, to: u64) {
        self.0.remove(&start);
        if start < from {
            self.0.insert(start, Span { len: from - start, ..span });
        }
        if to < start + span.len {
            self.0.insert(to, span.behind(to - start));
        }
    }

    /// Put a span where there is none, joined to the one before if it goes on there.
    fn put(&mut self, start: u64, span: Span) {
        if let Some((before, last)) = self.0.range_mut(..start).next_back()
            && before + last.len == start
            && (last.log, last.order) == (span.log, span.order)
            && last.physical + last.len == span.physical
        {
            last.len += span.len;
            return;
        }
        self.0.insert(start, span);
    }
}
