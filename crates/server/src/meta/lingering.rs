//! Lingering objects: files without a name that clients other than the remover may have open.
//!
//! ```text
//!   event                                                                 rows that are added or removed
//!   last name removed by a client that has the file open: an orphan       + o file client
//!   last name removed, another client may have the file open (openers)    + o file anyone, z time file
//!   `hold`: a client reports that it still has the file open              + o file client
//!   a lease later                                                         - o file anyone, z time file
//!   the last row `o file …` is removed                                    - the file
//! ```
//! So a client can use an open file for a lease after its removal, unless space is short or more than 2^20
//! files linger. If it reports within that time that it holds the file open, it can use the file as long as
//! it holds it. All of that is kept in rows, so it survives a restart; after a restart the lease begins
//! again. The lease is measured by the monotonic clock: the wall clock only orders the rows.
//!
//! **Lingering objects never cause a lack of space**: before a request is refused for lack of space,
//! lingering objects on any server are removed, the oldest first ([`Lingering::make_room`]), and `statfs`
//! counts their space as free.

use crate::meta::keys::{self, Table};
use crate::meta::rows::{self, RowValue};
use crate::request::executor::{Asker, run_own};
use crate::shard::Shard;
use bytes::Bytes;
use futures_util::future::{Either, join_all, select};
use shoal_env::Instant;
use shoal_env::local::Notify;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Answer, ClientId, Group, Handle, Op, ServerId, Status};
use shoal_store::{Changes, StoreError, look};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Objects removed by one compound.
const BATCH: usize = 64;
/// How long one such compound may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer that is asked for space may take: requests wait for it, and it may be away.
const PEER_TIMEOUT: Duration = Duration::from_secs(1);
/// A round that found nothing on any server stands for so long.
const EMPTY_FOR: Duration = Duration::from_millis(100);
/// Checks per lease for objects that have lingered long enough.
const LOOKS: u32 = 6;
/// The most objects that linger at once: of more than that, the oldest is removed before its time.
const OBJECTS_MAX: usize = 1 << 20;

/// A removed object.
struct Lingers {
    object: Handle,
    bytes: u64,
    until: Instant,
}

/// The lingering objects of this server, and the requests that wait for their space.
#[derive(Default)]
pub struct Lingering {
    /// The oldest first.
    objects: RefCell<VecDeque<Lingers>>,
    bytes: Cell<u64>,
    /// Bytes that requests wait for.
    wanted: Cell<u64>,
    is_wanted: Notify,
    /// Rounds that were begun, and that have ended.
    rounds: Cell<(u64, u64)>,
    ended: Notify,
    /// Bytes that the last round removed, on any server.
    freed: Cell<u64>,
    /// Until then a round would find nothing, as the last one did.
    empty_until: Cell<Instant>,
}

impl Lingering {
    /// How many objects.
    pub fn objects(&self) -> usize {
        self.objects.borrow().len()
    }

    /// Bytes of them.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Take in the objects that a batch of changes adds; kept until `until()`. Few batches add anything: only
    /// they read the clock.
    pub fn take_in(&self, changes: &Changes, until: impl Fn() -> Instant) {
        for (key, value) in &changes.rows {
            if let Some(value) = value
                && key.first() == Some(&(Table::Lingering as u8))
            {
                self.add(key, value, until());
            }
        }
    }

    fn add(&self, key: &[u8], value: &[u8], until: Instant) {
        let (Some((_, object)), Ok(row)) = (keys::parse_lingering(key), rows::Lingering::from_row(value))
        else {
            return tracing::error!("a row of a removed file is damaged: see `shoal fsck`");
        };
        self.push(Lingers { object, bytes: row.bytes, until });
        self.empty_until.set(Instant(0));
    }

    fn push(&self, one: Lingers) {
        self.bytes.set(self.bytes.get().saturating_add(one.bytes));
        self.objects.borrow_mut().push_back(one);
    }

    /// Take the oldest, if its time has come or there are too many.
    fn pop(&self, now: Instant) -> Option<Lingers> {
        let mut objects = self.objects.borrow_mut();
        let is_due = objects.front().is_some_and(|one| one.until <= now) || objects.len() > OBJECTS_MAX;
        let one = if is_due { objects.pop_front() } else { None }?;
        self.bytes.set(self.bytes.get().saturating_sub(one.bytes));
        Some(one)
    }

    /// Have lingering objects removed, here and on the other servers, the oldest first; returns whether any
    /// were.
    pub async fn make_room(&self, bytes: u64) -> bool {
        let goal = self.rounds.get().0 + 1;
        self.wanted.set(self.wanted.get().max(bytes));
        loop {
            let ended = self.ended.wait();
            if self.rounds.get().1 >= goal {
                return self.freed.get() > 0;
            }
            self.is_wanted.wake_all();
            ended.await;
        }
    }
}

/// Take in the lingering objects when the server starts.
///
/// # Errors
/// When the store fails.
pub async fn open(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let (prefix, mut after) = (keys::table(Table::Lingering), None::<Bytes>);
    let until = until(shard);
    loop {
        let (scan, _) = look(&shard.collection, |view| view.scan(&prefix, after.as_deref(), BATCH)).await?;
        scan.rows.iter().for_each(|(key, value)| shard.lingering.add(key, value, until));
        match scan.resume {
            Some(key) => after = Some(key),
            None => return Ok(()),
        }
    }
}

/// Until when an object that is removed now is kept.
pub fn until(shard: &Shard) -> Instant {
    shard.env.now() + shard.settings.lease
}

/// The task of a shard.
pub async fn run(shard: Rc<Shard>) {
    let mut due = shard.env.now();
    loop {
        let wanted = shard.lingering.is_wanted.wait();
        let now = shard.env.now();
        if now >= due {
            due = now + shard.settings.lease / LOOKS;
            let until = if mutant::is(Mutant::LingeringFreedEarly) { Instant(u64::MAX) } else { now };
            free(&shard, u64::MAX, until).await;
        }
        if shard.lingering.wanted.get() > 0 {
            round(&shard).await;
            continue;
        }
        let pause = shard.env.sleep(due.since(shard.env.now()));
        if let Either::Left(_) = select(wanted, std::pin::pin!(pause)).await {
            // The loop looks at it.
        }
    }
}

/// Remove for those that wait, on all servers.
async fn round(shard: &Rc<Shard>) {
    let state = &shard.lingering;
    let wanted = state.wanted.replace(0);
    let began = state.rounds.get().0 + 1;
    state.rounds.set((began, began - 1));
    if shard.env.now() >= state.empty_until.get() {
        let map = shard.identity().map.clone();
        let deadline = shard.env.now() + PEER_TIMEOUT;
        let others = map.servers.iter().map(|info| info.id).filter(|id| *id != shard.id());
        let asked = others.map(|server| ask(shard, server, wanted, deadline));
        let own = free(shard, wanted, Instant(u64::MAX));
        let (own, others) = futures_util::future::join(own, join_all(asked)).await;
        state.freed.set(others.into_iter().fold(own, u64::saturating_add));
        if state.freed.get() == 0 {
            state.empty_until.set(shard.env.now() + EMPTY_FOR);
        }
    }
    state.rounds.set((began, began));
    state.ended.wake_all();
}

async fn ask(shard: &Rc<Shard>, server: ServerId, bytes: u64, deadline: Instant) -> u64 {
    match shard.peers.call(server, Op::Yield { bytes }, deadline).await {
        Ok(Answer::Yielded { bytes }) => bytes,
        Ok(_) | Err(_) => 0,
    }
}

/// Remove lingering objects that were to be kept until `until` at most, the oldest first, up to so many
/// bytes. Returns the number of bytes freed; at least 1 where anything was. An object that a client still
/// holds is removed later, with that client, and frees nothing now.
pub async fn free(shard: &Rc<Shard>, bytes: u64, until: Instant) -> u64 {
    let mut freed = 0_u64;
    while freed < bytes {
        let mut batch: Vec<Lingers> = Vec::new();
        let mut taken = freed;
        while batch.len() < BATCH
            && taken < bytes
            && let Some(one) = shard.lingering.pop(until)
        {
            taken = taken.saturating_add(one.bytes.max(1));
            batch.push(one);
        }
        if batch.is_empty() {
            break;
        }
        let (bytes, failed) = release(shard, batch).await;
        freed = freed.saturating_add(bytes);
        if failed {
            break;
        }
    }
    freed
}

/// Keep these no longer for clients that may have them open. Returns the bytes of the removed ones, and
/// whether some failed. Those are retried later.
async fn release(shard: &Rc<Shard>, batch: Vec<Lingers>) -> (u64, bool) {
    let group = |one: &Lingers| Group { ops: vec![Op::Release { object: one.object }].into() };
    let asker = Asker::own(ClientId::ANYONE);
    let replies = run_own(shard, asker, batch.iter().map(group).collect(), TIMEOUT).await;
    let later = shard.env.now() + shard.settings.lease / LOOKS;
    let (mut freed, mut failed) = (0_u64, false);
    for (one, reply) in batch.into_iter().zip(replies) {
        if matches!(reply.status, Status::Ok | Status::Stale) {
            if !is_held(shard, one.object).await {
                freed = freed.saturating_add(one.bytes.max(1));
            }
        } else {
            failed = true;
            tracing::warn!(object = %one.object, status = %reply.status, "a removed file could not be freed yet");
            shard.lingering.push(Lingers { until: later, ..one });
        }
    }
    (freed, failed)
}

/// Whether a client has reported that it has the object open: its rows keep it. An unreadable one counts as
/// held.
async fn is_held(shard: &Rc<Shard>, object: Handle) -> bool {
    let prefix = keys::orphan_of(object);
    let looked = look(&shard.collection, |view| view.scan(&prefix, None, 1)).await;
    looked.map_or(true, |(scan, _)| !scan.rows.is_empty())
}
