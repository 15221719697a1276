//! The state of one session with one server: the requests to send, those under way, and their slots.
//!
//! ```text
//!   enqueue ─▶ want slot ─▶ want credit ─▶ ready ─▶ under way ─▶ answered
//!              (changes)    (with data)      ▲          │
//!                                            └── lost ──┘   same tag, same slot, same sequence
//! ```
//! **Invariant: a change is executed exactly once** (test:
//! `a_change_whose_reply_was_lost_goes_again_with_its_slot_and_sequence_and_is_done_once`). A slot holds one
//! change at a time. The slot's sequence grows when the change is first sent, never before, so a change that
//! was taken back unsent leaves no gap. Requests that were sent and not answered are sent again on the next
//! connection, with the same tag, slot and sequence. A change whose caller stopped waiting keeps its slot
//! until the answer comes.
//!
//! **A caller is answered by its deadline** ([`watch`]): with the answer, or with a timeout. **A read ends
//! with its deadline**, even if no caller collects its answer (a batch of a listing that is left open): the
//! client makes no connection for a late read, and drops it when a connection is made for another request.
//!
//! **Invariant: a session that the server no longer knows takes its changes with it**: changes that were sent
//! fail with `NoSession` (their outcome is unknown), the other changes go to the next session (test:
//! `a_session_the_server_forgot_fails_the_changes_under_way_and_a_new_one_begins`).
//!
//! Each queue keeps the order of its requests: in the queue for credit, small requests do not overtake a
//! large transfer at the head.

mod long_read;
mod long_write;
mod watch;

pub(crate) use long_read::Brought;
use long_read::LongRead;
pub(crate) use long_write::Giver;
use long_write::LongWrite;
pub(crate) use watch::QUIET;

use crate::Error;
use crate::call::Call;
use bytes::Bytes;
use hashbrown::HashTable;
use shoal_env::Instant;
use shoal_env::local::Sender;
use shoal_proto::codec::Codec;
use shoal_proto::message::{Attached, Grant, Leave, Reply, Request, SlotUse};
use shoal_proto::seal::{FrameEnd, Sealer};
use shoal_proto::{Durability, Frame, FrameKind, Group, Op, ServerId, SessionId, Slot, Status, message};
use std::collections::{BTreeSet, VecDeque};
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;

/// A call asks a server early if it does so in this part of its time limit.
const EARLY_PART: u32 = 10;
/// Requests given to one write, at most.
const BATCH_REQUESTS_MAX: usize = 256;
/// Data given to one write, at most (one request more may pass it).
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// An answered request, with the sent message, for another try.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    pub(crate) bulk: Bytes,
    pub(crate) groups: Vec<Group>,
    pub(crate) sent: Vec<Bytes>,
    /// The pieces that came before the reply, in packed order.
    pub(crate) pieces: Vec<Brought>,
}

/// The receiver of the answer.
pub(crate) enum Waiter {
    Caller(Sender<Result<Answered, Error>>),
    /// The core itself: the answer holds a map.
    Map,
    /// None (any more).
    Nobody,
}

/// A request as it is asked.
pub(crate) struct Asked {
    pub(crate) op: &'static str,
    pub(crate) groups: Vec<Group>,
    pub(crate) bulk: Vec<Bytes>,
    /// Data expected with the reply.
    pub(crate) reply_bytes: u64,
    pub(crate) deadline: Instant,
    pub(crate) durability: Durability,
    /// The call of a program that it is a part of.
    pub(crate) call: Option<Rc<Call>>,
    /// The data of a long write.
    pub(crate) giver: Option<Rc<Giver>>,
    pub(crate) waiter: Waiter,
}

struct Pending {
    tag: u64,
    op: &'static str,
    request: Request,
    bulk: Vec<Bytes>,
    bulk_len: u64,
    credit: u64,
    changes: bool,
    slot: Option<Slot>,
    admitted: bool,
    sent: bool,
    deadline: Instant,
    asked_at: Instant,
    call: Option<Rc<Call>>,
    waiter: Waiter,
    /// It may be answered by pieces.
    long_read: Option<Box<LongRead>>,
    /// Its data is pulled.
    long_write: Option<Box<LongWrite>>,
}

impl Pending {
    /// A long write that was given up: where it is sent again, it writes nothing.
    fn gives_nothing(&mut self) {
        let ops = self.request.groups.iter_mut().flat_map(|group| group.ops.iter_mut());
        for op in ops {
            if let Op::Write { transfer, .. } = op {
                transfer.window_len = 0;
            }
        }
    }

    fn has_caller(&self) -> bool {
        matches!(self.waiter, Waiter::Caller(_))
    }

    /// Whether nothing of it can have been done, or nothing that matters. A lock that was asked for may be
    /// granted, or have a place in its queue.
    fn leaves_nothing(&self) -> bool {
        let locks =
            || self.request.groups.iter().any(|group| matches!(group.ops.first(), Some(Op::Lock { .. })));
        !self.sent || !(self.changes || locks())
    }

    /// A read whose deadline has passed.
    fn is_late_read(&self, now: Instant) -> bool {
        !self.changes && self.deadline <= now
    }
}

/// Unanswered requests, by tag.
#[derive(Default)]
struct Requests(HashTable<Pending>);

impl Requests {
    fn hash(tag: u64) -> u64 {
        // Tags are counted; the table looks at the highest bits as well as at the lowest.
        tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn get(&self, tag: u64) -> Option<&Pending> {
        self.0.find(Requests::hash(tag), |pending| pending.tag == tag)
    }

    fn get_mut(&mut self, tag: u64) -> Option<&mut Pending> {
        self.0.find_mut(Requests::hash(tag), |pending| pending.tag == tag)
    }

    fn insert(&mut self, pending: Pending) {
        let hash = Requests::hash(pending.tag);
        self.0.insert_unique(hash, pending, |pending| Requests::hash(pending.tag));
    }

    fn remove(&mut self, tag: u64) -> Option<Pending> {
        let entry = self.0.find_entry(Requests::hash(tag), |pending| pending.tag == tag).ok()?;
        Some(entry.remove().0)
    }

    /// The tags of some, in order of asking.
    fn tags(&self, of: impl Fn(&Pending) -> bool) -> Vec<u64> {
        let mut tags: Vec<u64> = self.0.iter().filter(|pending| of(pending)).map(|p| p.tag).collect();
        tags.sort_unstable();
        tags
    }
}

#[derive(Clone, Copy)]
struct SlotState {
    sequence: u64,
}

/// See the module's page.
pub(crate) struct Session {
    server: ServerId,
    id: Option<SessionId>,
    asked_id: Option<SessionId>,
    up: bool,
    version: u16,
    slots: Vec<SlotState>,
    slots_free: Vec<Slot>,
    credit_all: u64,
    credit_used: u64,
    want_slot: VecDeque<u64>,
    want_credit: VecDeque<u64>,
    ready: VecDeque<u64>,
    pending: Requests,
    next_tag: u64,
    /// Data carried in a message itself, as the server allows.
    pub(crate) eager_bytes: usize,
    /// The last error on the way to the server.
    pub(crate) trouble: String,
    /// Since when something is asked and no answer came; `None`: nothing is asked, or it is to be looked at
    /// from now on.
    unanswered_since: Option<Instant>,
    /// For how long something was asked before that without an answer, and when the last of it was given up.
    given_up: Option<(Duration, Instant)>,
    /// When a connection was last refused.
    refused_at: Option<Instant>,
    silent: bool,
    /// The lease, and when the newest request was made that was answered.
    lease: Duration,
    renewed_at: Instant,
    /// Long reads that were left on this connection, and whose replies did not come yet.
    left: BTreeSet<u64>,
    /// Those of them that the server is still to be informed of.
    leaving: Vec<u64>,
    /// Parts of long writes that were granted and not sent.
    gives: VecDeque<(u64, Grant)>,
    /// Times attached.
    pub(crate) attachments: u64,
    /// Seals what is sent on the present connection.
    pub(crate) sealer: Option<Sealer>,
    /// Batches taken: tells a keeper of the lease that there was traffic.
    pub(crate) batches: u64,
}

/// Memory of sent frames that is kept for the next ones, at most.
const KEPT_BYTES: usize = 256 * 1024;

/// Requests to be written: frames' heads and bodies in `bytes`, and data to be put in at positions of it.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) bulks: Vec<(usize, Vec<Bytes>)>,
    /// The operations sent, and their data's length, for the counters.
    pub(crate) ops: Vec<(&'static str, u64)>,
    /// Bytes of long writes among the data, and how many of them were copied.
    pub(crate) given: u64,
    pub(crate) copied: usize,
}

impl Outgoing {
    /// All of it in order, the data in its places.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(1 + 2 * self.bulks.len());
        let mut from = 0;
        for (at, bulk) in &self.bulks {
            slices.push(IoSlice::new(&self.bytes[from..*at]));
            slices.extend(bulk.iter().map(|part| IoSlice::new(part)));
            from = *at;
        }
        slices.push(IoSlice::new(&self.bytes[from..]));
        slices
    }

    /// Add a frame of a kind, version and tag; its seal follows its data.
    fn put<T: Codec>(
        &mut self,
        sealer: Option<&mut Sealer>,
        (kind, version, tag): (FrameKind, u16, u64),
        message: &T,
        bulk: &[Bytes],
    ) {
        let start = self.bytes.len();
        let bulk_len = bulk.iter().map(Bytes::len).sum();
        Frame::put(kind, version, tag, message, bulk_len, &mut self.bytes);
        let parts = bulk.iter().map(|part| &part[..]);
        let end = sealer.map_or(FrameEnd::Bulk, |sealer| sealer.seal(&mut self.bytes, start, parts));
        match end.has_bulk() {
            false => self.copied += bulk_len,
            true if bulk_len > 0 => self.bulks.push((self.bytes.len(), bulk.to_vec())),
            true => {}
        }
        self.bytes.extend_from_slice(end.seal());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // Encrypted data was in it: a connection without work holds no burst's memory.
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bulks.clear();
        self.ops.clear();
        (self.given, self.copied) = (0, 0);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Session {
    pub(crate) fn new(server: ServerId) -> Session {
        Session {
            server,
            id: None,
            asked_id: None,
            up: false,
            version: message::VERSIONS.1,
            slots: Vec::new(),
            slots_free: Vec::new(),
            credit_all: 0,
            credit_used: 0,
            want_slot: VecDeque::new(),
            want_credit: VecDeque::new(),
            ready: VecDeque::new(),
            pending: Requests::default(),
            next_tag: 1,
            eager_bytes: shoal_proto::limits::EAGER_BYTES_MAX,
            trouble: String::new(),
            unanswered_since: None,
            given_up: None,
            refused_at: None,
            silent: false,
            lease: Duration::ZERO,
            renewed_at: Instant(0),
            left: BTreeSet::new(),
            leaving: Vec::new(),
            gives: VecDeque::new(),
            attachments: 0,
            sealer: None,
            batches: 0,
        }
    }

    /// Take a request in; its tag.
    ///
    /// A server that is asked early in a call is waited for from the call's begin on: else a call would end a
    /// moment before its server counts as silent, and the next one would wait as long.
    pub(crate) fn enqueue(&mut self, asked: Asked, now: Instant, timeout: Duration) -> u64 {
        let begun_at = Instant(asked.deadline.0.saturating_sub(nanos(timeout)));
        let early = Instant(now.0.saturating_sub(nanos(timeout / EARLY_PART)));
        let lately = self.given_up.filter(|(_, at)| now.since(*at) < timeout);
        let before = lately.map_or(Duration::ZERO, |(waited, _)| waited);
        let since = begun_at.max(early).0.saturating_sub(nanos(before));
        self.unanswered_since.get_or_insert(Instant(since));
        let tag = self.next_tag;
        self.next_tag += 1;
        let bulk_len = asked.bulk.iter().map(|part| part.len() as u64).sum();
        let changes = asked.groups.iter().flat_map(|group| group.ops.iter()).any(Op::changes);
        let groups = asked.groups.into();
        let request = Request { slot: None, timeout_ms: 0, durability: asked.durability, groups };
        let limit = Duration::from_nanos(asked.deadline.0.saturating_sub(now.0));
        let long_write = asked.giver.map(|giver| Box::new(LongWrite::new(giver, limit)));
        let long_read = request.long_read().map(|transfer| Box::new(LongRead::new(transfer, limit)));
        let pending = Pending {
            tag,
            op: asked.op,
            request,
            credit: bulk_len + asked.reply_bytes,
            bulk: asked.bulk,
            bulk_len,
            changes,
            slot: None,
            admitted: false,
            sent: false,
            deadline: asked.deadline,
            asked_at: now,
            call: asked.call,
            waiter: asked.waiter,
            long_read,
            long_write,
        };
        let queue = if changes { &mut self.want_slot } else { self.behind_slots(pending.credit) };
        queue.push_back(tag);
        self.pending.insert(pending);
        self.admit();
        tag
    }

    fn behind_slots(&mut self, credit: u64) -> &mut VecDeque<u64> {
        if credit > 0 { &mut self.want_credit } else { &mut self.ready }
    }

    /// Move what may go from queue to queue.
    fn admit(&mut self) {
        while let Some(&tag) = self.want_slot.front() {
            let Some(pending) = self.pending.get_mut(tag) else {
                self.want_slot.pop_front();
                continue;
            };
            let Some(slot) = self.slots_free.pop() else { break };
            pending.slot = Some(slot);
            let credit = pending.credit;
            self.want_slot.pop_front();
            self.behind_slots(credit).push_back(tag);
        }
        while let Some(&tag) = self.want_credit.front() {
            let Some(pending) = self.pending.get_mut(tag) else {
                self.want_credit.pop_front();
                continue;
            };
            // A request larger than all credit goes alone.
            let fits = self.credit_used + pending.credit <= self.credit_all || self.credit_used == 0;
            if self.credit_all == 0 || !fits {
                break;
            }
            self.credit_used += pending.credit;
            pending.admitted = true;
            self.want_credit.pop_front();
            self.ready.push_back(tag);
        }
    }

    /// Whether a connection is wanted: a caller waits, or the server is to be found again.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        let waits = |pending: &Pending| !matches!(pending.waiter, Waiter::Nobody);
        self.silent || self.pending.0.iter().any(|pending| waits(pending) && !pending.is_late_read(now))
    }

    /// Whether an answer is expected.
    pub(crate) fn is_under_way(&self) -> bool {
        self.pending.0.iter().any(|pending| pending.sent)
    }

    /// Whether something can be sent now.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.up && !(self.ready.is_empty() && self.leaving.is_empty() && self.gives.is_empty())
    }

    /// Whether there is a session to keep alive.
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Its id.
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.id
    }

    /// The version that its connection speaks; before the first one, this program's.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    /// Whether the server is sure to keep it: a lease from the newest request that was answered.
    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        self.id.is_some() && (self.lease.is_zero() || now < self.renewed_at + self.lease)
    }

    /// The session to ask for in the next attachment.
    pub(crate) fn attach_id(&mut self) -> Option<SessionId> {
        self.asked_id = self.id;
        self.id
    }

    /// A connection is up: requests that were under way are sent again, first.
    pub(crate) fn attached(&mut self, attached: &Attached, version: u16, slots_max: u16, now: Instant) {
        if self.id.is_some() && self.id != Some(attached.session) {
            self.session_lost();
        }
        if self.id.is_none() {
            self.id = Some(attached.session);
            let slots = attached.slots.clamp(1, slots_max.max(1));
            self.slots = vec![SlotState { sequence: 0 }; usize::from(slots)];
            self.slots_free = (0..slots).rev().map(Slot).collect();
        }
        self.lease = Duration::from_millis(u64::from(attached.lease_ms));
        self.version = version;
        self.credit_all = u64::from(attached.credit_bytes).max(1);
        self.eager_bytes = attached.eager_bytes as usize;
        self.up = true;
        self.answers();
        self.trouble.clear();
        self.attachments += 1;
        for tag in self.pending.tags(|pending| pending.is_late_read(now)) {
            self.fail(tag, Status::TimedOut, "the connection to it was restored only after the deadline");
        }
        self.left.clear();
        self.leaving.clear();
        self.resume_long_reads();
        self.begin_long_writes_anew();
        let mut ready = VecDeque::from(self.pending.tags(|pending| pending.sent));
        ready.extend(self.ready.iter().filter(|tag| self.pending.get(**tag).is_some_and(|p| !p.sent)));
        self.ready = ready;
        self.admit();
    }

    /// The connection is gone, or could not be made.
    pub(crate) fn lost(&mut self, words: &str) {
        self.up = false;
        words.clone_into(&mut self.trouble);
    }

    /// The server does not know the session any more.
    pub(crate) fn session_lost(&mut self) {
        self.id = None;
        self.up = false;
        self.slots.clear();
        self.slots_free.clear();
        let (mut failed, mut waiting) = (Vec::new(), Vec::new());
        for tag in self.pending.tags(|pending| pending.slot.is_some()) {
            let Some(pending) = self.pending.get_mut(tag) else { continue };
            pending.slot = None;
            if pending.sent {
                failed.push(tag);
            } else {
                waiting.push(tag);
                if std::mem::take(&mut pending.admitted) {
                    self.credit_used -= pending.credit;
                }
            }
        }
        for queue in [&mut self.ready, &mut self.want_credit] {
            queue.retain(|tag| !waiting.contains(tag));
        }
        for tag in waiting.into_iter().rev() {
            self.want_slot.push_front(tag);
        }
        for tag in failed {
            self.fail(
                tag,
                Status::NoSession,
                "the session ended with changes under way; look before trying again",
            );
        }
    }

    /// The server refuses for good: everything that waits fails.
    pub(crate) fn refused(&mut self, status: Status, words: &str) {
        self.up = false;
        self.silent = false;
        words.clone_into(&mut self.trouble);
        for tag in self.pending.tags(|_| true) {
            self.fail(tag, status, words);
        }
        self.session_lost();
    }

    fn fail(&mut self, tag: u64, status: Status, words: &str) {
        let Some(pending) = self.remove(tag) else { return };
        if let Waiter::Caller(waiter) = pending.waiter {
            let error = Error::new(status, pending.op).from(self.server).because(words);
            // A caller that has gone needs no answer.
            waiter.send(Err(error));
        }
    }

    /// Take a request out and release its resources.
    fn remove(&mut self, tag: u64) -> Option<Pending> {
        let pending = self.pending.remove(tag)?;
        if let Some(slot) = pending.slot {
            self.slots_free.push(slot);
        }
        if pending.admitted {
            self.credit_used -= pending.credit;
        }
        if self.pending.0.is_empty() {
            self.unanswered_since = None;
        }
        self.admit();
        Some(pending)
    }

    /// The caller waits no longer.
    pub(crate) fn abandon(&mut self, tag: u64, now: Instant) {
        let since = self.unanswered_since;
        self.forsake(tag);
        // Requests that follow soon continue the wait: else each caller of a server would wait for it anew,
        // if all give up early.
        if let (Some(since), None) = (since, self.unanswered_since) {
            self.given_up = Some((now.since(since), now));
        }
    }

    fn forsake(&mut self, tag: u64) {
        match self.pending.get_mut(tag) {
            Some(pending) if pending.sent && pending.changes => {
                pending.waiter = Waiter::Nobody;
                if pending.long_write.take().is_some() {
                    pending.gives_nothing();
                    self.gives.retain(|(of, _)| *of != tag);
                }
            }
            Some(pending) if pending.sent => {
                // A read: an answer that still comes has no receiver.
                pending.waiter = Waiter::Nobody;
                if pending.long_read.is_some() && self.up {
                    self.left.insert(tag);
                    self.leaving.push(tag);
                }
                self.remove(tag);
            }
            _ => drop(self.remove(tag)),
        }
    }

    /// Put the bytes that are to be written now, in one write, into `out`, which is cleared first; returns
    /// whether there are any.
    pub(crate) fn take(&mut self, now: Instant, out: &mut Outgoing) -> bool {
        out.clear();
        if !self.up {
            return false;
        }
        for request in std::mem::take(&mut self.leaving) {
            out.put(self.sealer.as_mut(), (FrameKind::Leave, self.version, 0), &Leave { request }, &[]);
        }
        let mut data = 0;
        while out.ops.len() < BATCH_REQUESTS_MAX && data < BATCH_BYTES_MAX {
            let Some(tag) = self.ready.pop_front() else { break };
            let Some(pending) = self.pending.get_mut(tag) else { continue };
            if let (Some(slot), false) = (pending.slot, pending.sent) {
                let state = &mut self.slots[usize::from(slot.0)];
                state.sequence += 1;
                pending.request.slot = Some(SlotUse { slot, sequence: state.sequence });
            }
            pending.sent = true;
            let left = pending.deadline.since(now).as_millis().max(1);
            pending.request.timeout_ms = u32::try_from(left).unwrap_or(u32::MAX);
            let head = (FrameKind::Request, self.version, tag);
            out.put(self.sealer.as_mut(), head, &pending.request, &pending.bulk);
            out.ops.push((pending.op, pending.bulk_len));
            data += pending.bulk_len;
        }
        self.give(data, out);
        self.batches += 1;
        !out.bytes.is_empty()
    }

    /// An answer came. Returns the waiter and its result; `None` for an answer without a waiter.
    ///
    /// # Errors
    /// When the connection is of no further use: the server does not know the session, or does not follow the
    /// protocol.
    pub(crate) fn replied(
        &mut self,
        tag: u64,
        reply: Reply,
        bulk: Bytes,
    ) -> Result<Option<(Waiter, Answered)>, String> {
        self.answers();
        self.left.remove(&tag);
        // A read whose caller has gone was dropped.
        let Some(pending) = self.pending.get(tag) else { return Ok(None) };
        if !pending.sent || reply.groups.len() != pending.request.groups.len() {
            let words = "its reply does not fit the request";
            self.fail(tag, Status::BadMessage, words);
            return Err(words.to_owned());
        }
        let ended = |status: Status| matches!(status, Status::NoSession | Status::BadSequence);
        if reply.groups.iter().any(|group| ended(group.status)) {
            self.session_lost();
            return Err("the server does not know the session".to_owned());
        }
        let Some(mut pending) = self.remove(tag) else { return Ok(None) };
        self.renewed_at = self.renewed_at.max(pending.asked_at);
        let pieces = match pending.long_read.take() {
            Some(long_read) => long_read.end(&mut pending.request),
            None => Vec::new(),
        };
        let answered = Answered { reply, bulk, groups: pending.request.groups.0, sent: pending.bulk, pieces };
        Ok(Some((pending.waiter, answered)))
    }
}
