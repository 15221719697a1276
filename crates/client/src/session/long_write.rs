//! Long writes under way: the client sends their data in the parts that the server grants.
//!
//! ```text
//!   request ─────────▶      the pattern, no data
//!           ◀───────── grant 0 .. T      granted in the pattern's order
//!   give 0 .. T ─────▶
//!           ◀───────── reply             when all is written
//! ```
//! The data stays in the caller's buffer until it is granted, and is sent from there. **After a lost
//! connection the client requests the whole write again**, under the same slot and sequence. If the server
//! has answered the write before, it repeats the answer. Otherwise the write begins again with its first
//! byte. Each grant of bytes that were not granted before restarts the write's time limit. Each of the first
//! [`RESTARTS_MAX`] lost connections makes all bytes count as not granted; after a later one, bytes that are
//! granted again do not restart the time limit.
//!
//! **If the caller gives a long write up, the client sends no more of its data.** It drops the granted parts
//! that it has not sent. The next grant ends the connection. On the next connection the request is sent
//! again without any bytes to write, so that its answer frees the slot. The server may still write the bytes
//! that were on their way (at most one connection's credit).

use super::{Outgoing, Session};
use crate::transfer::gather;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_pattern::{Pattern, View, Window};
use shoal_proto::message::{Give, Grant};
use shoal_proto::{FrameKind, Status, Striping, limits};
use std::rc::Rc;
use std::time::Duration;

/// If a write to the connection has this many bytes of data, no further granted part is added to it.
const BATCH_BYTES_MAX: u64 = 1024 * 1024;

/// After this many lost connections of a long write, bytes that are granted again do not restart its time
/// limit any more.
const RESTARTS_MAX: u32 = 16;

/// The data of a long write, and where one server's share of it lies.
pub(crate) struct Giver {
    pub(crate) pattern: Pattern,
    pub(crate) striping: Striping,
    pub(crate) index: u32,
    /// The packed position, in the caller's pattern, at which `pattern` begins.
    pub(crate) base: u64,
    pub(crate) data: Bytes,
    /// The places of the packed bytes in `data`; `None`: `data` is the packed bytes, without gaps.
    pub(crate) memory: Option<Pattern>,
}

impl Giver {
    /// The share's bytes of a window, where they lie, and how many of them were copied.
    fn gather(&self, window: Window) -> Result<(Vec<Bytes>, u64, usize), &'static str> {
        let view = View::new(&self.pattern, window, &self.striping, self.index);
        let view = view.map_err(|_| "a grant outside of the write")?;
        let (bulk, len, copied) = gather(view, self.base + window.from, &self.data, self.memory.as_ref());
        match len <= limits::FLOW_CHUNK_BYTES {
            true => Ok((bulk, len as u64, copied)),
            false => Err("a grant of more bytes than a part may have"),
        }
    }
}

/// A write whose data the server requests in parts, by grants.
pub(super) struct LongWrite {
    giver: Rc<Giver>,
    /// The write times out if no new bytes are granted for this long.
    limit: Duration,
    /// Packed bytes granted on this connection, and the most on any connection since the last reset.
    granted: u64,
    granted_most: u64,
    restarts: u32,
}

impl LongWrite {
    pub(super) fn new(giver: Rc<Giver>, limit: Duration) -> LongWrite {
        LongWrite { giver, limit, granted: 0, granted_most: 0, restarts: 0 }
    }

    /// The connection was lost: the server grants the write from its first byte again.
    fn begin_anew(&mut self) {
        self.granted = 0;
        self.restarts += 1;
        if self.restarts <= RESTARTS_MAX {
            self.granted_most = 0;
        }
    }

    /// Accept a grant; returns whether it has bytes that were not granted before.
    ///
    /// # Errors
    /// The reason why the grant is invalid, in words.
    fn take(&mut self, grant: Grant) -> Result<bool, &'static str> {
        if grant.from != self.granted {
            return Err("a grant that is not the next one");
        }
        let end = grant.from.checked_add(grant.len).filter(|_| grant.len > 0);
        let end = end.filter(|&end| end <= self.giver.pattern.len()).ok_or("a grant outside of the write")?;
        self.granted = end;
        let is_new = end > self.granted_most;
        self.granted_most = self.granted_most.max(end);
        Ok(is_new)
    }
}

impl Session {
    /// A part of a long write was granted.
    ///
    /// # Errors
    /// The connection must end: the grant is invalid, or the caller has given the write up.
    pub(crate) fn granted(&mut self, tag: u64, grant: Grant, now: Instant) -> Result<(), String> {
        self.answers();
        let pending = self.pending.get_mut(tag).filter(|pending| pending.sent);
        let Some(pending) = pending else { return Err("a grant to no request".to_owned()) };
        if !pending.has_caller() {
            return Err("a long write was given up: its connection ends, and nothing more of it".to_owned());
        }
        let taken = match &mut pending.long_write {
            Some(long_write) => long_write.take(grant).map(|is_new| (is_new, long_write.limit)),
            None => Err("a grant to a request that has all its data"),
        };
        match taken {
            Ok((is_new, limit)) => {
                if is_new {
                    pending.deadline = pending.deadline.max(now + limit);
                }
                self.gives.push_back((tag, grant));
                Ok(())
            }
            Err(words) => {
                self.fail(tag, Status::BadMessage, words);
                Err(words.to_owned())
            }
        }
    }

    /// Put granted parts into `out`, which already has `data` bytes of data. At least one part is put in, so
    /// that requests with data cannot delay the parts for ever.
    pub(super) fn give(&mut self, mut data: u64, out: &mut Outgoing) {
        let mut is_first = true;
        while (is_first || data < BATCH_BYTES_MAX)
            && let Some((tag, Grant { from, len })) = self.gives.pop_front()
        {
            let Some(long_write) = self.pending.get(tag).and_then(|pending| pending.long_write.as_ref())
            else {
                continue;
            };
            let (bulk, bytes, copied) = match long_write.giver.gather(Window::new(from, len)) {
                Ok(gathered) => gathered,
                Err(words) => {
                    self.fail(tag, Status::BadMessage, words);
                    continue;
                }
            };
            let give = Give { from, len };
            out.put(self.sealer.as_mut(), (FrameKind::Give, self.version, tag), &give, &bulk);
            out.given += bytes;
            out.copied += copied;
            data += bytes;
            is_first = false;
        }
    }

    /// A new connection: the data of long writes that were under way is granted from the start again.
    pub(super) fn begin_long_writes_anew(&mut self) {
        self.gives.clear();
        for tag in self.pending.tags(|pending| pending.sent && pending.long_write.is_some()) {
            let pending = self.pending.get_mut(tag);
            if let Some(long_write) = pending.and_then(|pending| pending.long_write.as_mut()) {
                long_write.begin_anew();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::Share;

    fn long_write(len: u64) -> LongWrite {
        let giver = Giver {
            pattern: Pattern::contiguous(0, len).unwrap(),
            striping: Share::WHOLE.striping(),
            index: 0,
            base: 0,
            data: vec![7; len as usize].into(),
            memory: None,
        };
        LongWrite::new(Rc::new(giver), Duration::from_secs(1))
    }

    #[test]
    fn grants_come_side_by_side_and_inside_the_write() {
        let mut write = long_write(1000);
        let mut take = |from, len| write.take(Grant { from, len });
        assert_eq!(take(0, 100), Ok(true));
        for (from, len) in [(0, 100), (50, 100), (101, 10), (u64::MAX, 2)] {
            assert!(take(from, len).unwrap_err().contains("next"), "{from} {len}");
        }
        for (from, len) in [(100, 0), (100, 901), (100, u64::MAX)] {
            assert!(take(from, len).unwrap_err().contains("outside"), "{from} {len}");
        }
        assert_eq!(take(100, 900), Ok(true));
        for restart in 1..=RESTARTS_MAX + 1 {
            write.begin_anew();
            let counts = restart <= RESTARTS_MAX;
            assert_eq!(
                write.take(Grant { from: 0, len: 1000 }),
                Ok(counts),
                "after {restart} lost connections"
            );
        }
    }

    #[test]
    fn a_grant_of_more_than_a_chunk_gives_nothing() {
        let write = long_write(2 * limits::FLOW_CHUNK_BYTES as u64);
        let window = Window::new(0, 1 + limits::FLOW_CHUNK_BYTES as u64);
        assert!(write.giver.gather(window).unwrap_err().contains("more bytes"));
    }
}
