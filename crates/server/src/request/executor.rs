//! The executor: from a request to its reply.
//!
//! A request that finds everything in memory runs at once, in the connection's loop, without a task or an
//! `await` ([`Compound::go`]). Any other becomes a task ([`drive`]) that awaits what it needs and runs the
//! group's handlers again from their start: rows to load, a transaction's lock, a fact of another server,
//! handles, bulk data, space. No wait is longer than the request's deadline, with three exceptions. A write
//! whose first byte is written is completed. Each piece of a long read or write moves the deadline. An
//! operation that is no handler ([`RunAs::Direct`](crate::ops::RunAs)) limits its waits itself.

mod compound;
mod pieces;
mod pull;
mod wait;

pub use compound::{Asker, Collected, Compound, decode_replies, encode_reply};
pub use wait::{Wait, drive, own_handle};

use crate::counters::add;
use crate::net::connection::Admitted;
use crate::net::session::{Claim, Running, Session, Waiter};
use crate::shard::Shard;
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::codec::{Codec, DecodeError, Reader, Writer};
use shoal_proto::message::Loss;
use shoal_proto::{FrameKind, Group, GroupReply, Op, Request, Status};
use shoal_store::Lsn;
use std::rc::Rc;
use std::time::Duration;

/// A request that says 0 waits this long.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// No request waits longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A reply whose groups are encoded already: on the wire the same as [`shoal_proto::Reply`].
struct EncodedReply<'a> {
    loss: Loss,
    map_epoch: u32,
    count: usize,
    groups: &'a [u8],
}

impl Codec for EncodedReply<'_> {
    fn encode(&self, w: &mut Writer) {
        self.loss.encode(w);
        w.put_u32(self.map_epoch);
        w.put_count(self.count);
        w.put_raw(self.groups);
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Invalid("reply that is only written"))
    }
}

/// Run a request: its reply leaves by the waiter's connection, now or later.
pub fn accept(shard: &Rc<Shard>, session: &Rc<Session>, request: Request, bulk: Bytes, waiter: Waiter) {
    add(&shard.counters.requests, 1);
    let timeout = match request.timeout_ms {
        0 => TIMEOUT_DEFAULT,
        ms => Duration::from_millis(u64::from(ms)).min(TIMEOUT_MAX),
    };
    let deadline = waiter.arrived + timeout;
    let Admitted { manages, mount } = waiter.line.admitted.get();
    let version = waiter.line.version;
    let asker = Asker { client: session.client, peer: session.peer, own: false, manages, mount, version };
    let running = Running::of(waiter);
    let durability = request.durability;
    let groups = request.groups.0;
    let mut compound =
        match request.slot {
            None => {
                let changes = groups.iter().any(|g| g.ops.iter().any(Op::changes));
                let compound = Compound::new(shard, asker, groups, bulk, deadline);
                if changes { compound.without_slot(session.begin_slotless()) } else { compound }
            }
            Some(slot_use) => match session.claim(slot_use, groups.len(), &running) {
                Claim::Joined => return,
                Claim::Refused(status) => return refuse(shard, &running, groups.len(), status),
                Claim::Run { retry, kept_groups } => Compound::new(shard, asker, groups, bulk, deadline)
                    .in_slot(session.clone(), slot_use, retry, kept_groups),
            },
        }
        .with_durability(durability)
        .for_waiters(running);
    match compound.go() {
        None => end(compound),
        Some(wait) => {
            add(&shard.counters.parked, 1);
            shard.work.spawn(&shard.env, "request", drive(compound, wait));
        }
    }
}

/// Run groups for the server itself, without a slot.
pub async fn run_own(
    shard: &Rc<Shard>,
    asker: Asker,
    groups: Vec<Group>,
    timeout: Duration,
) -> Vec<GroupReply> {
    let mut compound = Compound::new(shard, asker, groups, Bytes::new(), shard.env.now() + timeout);
    if let Some(wait) = compound.go() {
        wait::pass_all(&mut compound, wait).await;
    }
    decode_replies(&compound.collected)
}

/// All groups have ended: free the slot and let the reply go when it may.
fn end(compound: Compound) {
    let shard = compound.shard.clone();
    if let Some((session, slot_use)) = &compound.place {
        session.free(slot_use.slot);
    }
    let waiters = compound.running.waiters.take();
    let collected = compound.collected;
    let Some(noted) = compound.noted else { return deliver(&shard, waiters, collected) };
    let own = shard.clone();
    shard.work.spawn(&shard.env, "audited", async move {
        own.audit.until_tried(noted).await;
        deliver(&own, waiters, collected);
    });
}

fn refuse(shard: &Rc<Shard>, running: &Rc<Running>, groups: usize, status: Status) {
    let mut collected = Collected::default();
    for _ in 0..groups {
        collected.groups.put_raw(&encode_reply(status, &[]));
    }
    collected.count = groups;
    deliver(shard, running.waiters.take(), collected);
}

fn deliver(shard: &Rc<Shard>, waiters: Vec<Waiter>, collected: Collected) {
    if mutant::is(Mutant::AckEarly) || shard.gate.is_open(&shard.collection, collected.target) {
        return send(shard, &waiters, &collected, true);
    }
    let target = collected.target;
    if target.durable > shard.collection.durable() {
        add(&shard.counters.sync_waits, 1);
        if collected.made == Lsn(0) {
            add(&shard.counters.shown_waits, 1);
        }
    }
    let own = shard.clone();
    let leave = move |well| send(&own, &waiters, &collected, well);
    shard.gate.wait(&shard.collection, target, Box::new(leave));
}

fn send(shard: &Shard, waiters: &[Waiter], collected: &Collected, well: bool) {
    let poisoned;
    let (groups, bulk): (&[u8], &[Bytes]) = if well {
        (collected.groups.as_slice(), &collected.bulk)
    } else {
        poisoned = encode_reply(Status::Poisoned, &[]).repeat(collected.count);
        (&poisoned, &[])
    };
    let is_durable = collected.made <= shard.collection.durable() && shard.collection.keeps();
    let loss = match collected.loss {
        Some(loss) => loss,
        None if collected.is_compared || !is_durable => shard.loss(collected.with_start),
        None => Loss::default(),
    };
    let map_epoch = shard.identity().map.epoch;
    let reply = EncodedReply { loss, map_epoch, count: collected.count, groups };
    let now = shard.env.now();
    for waiter in waiters {
        add(&shard.counters.replies, 1);
        shard.counters.latency(now.since(waiter.arrived));
        // The replies are there already; entering them into the frame is a copy.
        shoal_env::Counters::add(&shard.env.counters().copied_bytes, groups.len() as u64);
        waiter.line.send(FrameKind::Reply, waiter.tag, &reply, bulk);
        waiter.line.answered(waiter.tag, waiter.bulk_bytes, waiter.wanted_bytes);
    }
}

/// A compound without a waiting client: operations not executed are discarded.
fn discard(compound: Compound) {
    if let Some((session, slot_use)) = &compound.place {
        session.free(slot_use.slot);
    }
    let is_left = |waiter: &Waiter| !waiter.line.is_dead();
    if compound.running.waiters.borrow().iter().any(is_left) {
        // A long read that its client left: from the reply on the client knows that no piece comes.
        return refuse(&compound.shard, &compound.running, 1, Status::Interrupted);
    }
    for waiter in compound.running.waiters.take() {
        waiter.line.answered(waiter.tag, waiter.bulk_bytes, waiter.wanted_bytes);
    }
}
