//! Pools: datafiles of other servers, made ahead of need, for files of this server (PVFS small files,
//! section III-A).
//!
//! A file that grows out of its first strip needs datafiles on other servers, and so does a new file whose
//! server holds no data. The pools hold such datafiles in reserve, as handles. So both cases are **one local
//! transaction**, one record and one sync, and no other server is asked. There is one pool for each other
//! data server. It is a row on disk, and batches ([`crate::data::precreated`]) fill it in the background.
//!
//! ```text
//!   row p server:  ranges  ├────────┬───────────────────────────┬──────────┤
//!                        taken     lent: up to here           level: under `low` the next batch is requested
//!                          └ next   may be taken; this limit advances durably, before it is used
//! ```
//! * **Taking is a change of the pool's row in the batch of the file that takes**: both happen, or neither.
//! * **No datafile is given twice.** In the weaker sync modes a client may see a file's layout, and write
//!   to its datafiles, before the record is durable. If the record is then lost, the row says that the
//!   datafiles are still in the pool. So datafiles are *lent* before they may be taken, durably in every
//!   mode, some at a time. When a server starts, it retires all datafiles that are lent and not taken:
//!   through the reaper, the server that holds a retired datafile marks it as used up, whether it was
//!   touched or not.
//! * **A batch is numbered.** Its number is one more than the number of the pool's last batch, and the row
//!   of the pool names the batch stored last. If an answer is lost, the server requests the same number
//!   again and gets the same batch, so no datafile leaks. A new pool draws an id, durably, before its first
//!   request, so that it never takes a batch of a lost pool for its own.
//! * Each pool has a fill task of its own: other pools are filled while one server does not answer, and its
//!   pool is filled when it answers again. A new server gets a pool when the map contains it.
//! * If a pool is empty, callers wait until their deadline, then fail with the refill error (`Unavailable`,
//!   …) or `Busy`.
//!
//! # Which objects have pools
//!
//! Datafiles only. Directories have none, although the paper's pools have object types: a directory must
//! have its attributes on its server before its name becomes visible, and a handle made ahead saves none of
//! the messages that bring them. Handles for new directories are drawn, 64 by one message. A drawn handle
//! has no object, so nothing leaks if a handle is lost.
//!
//! All batches are large, also the first. A large batch costs as much as a small batch (a message, and a
//! record on each side), because it is one row on each server.

use crate::counters::{Counters, add};
use crate::data::status_of;
use crate::meta::keys::{self, Table};
use crate::meta::rows::{Pool, Range, Reap, RowValue};
use crate::request::ctx::{Ctx, Stopped};
use crate::shard::Shard;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_env::crash_point::{self, CrashPoint};
use shoal_env::local::{Notify, NotifyWait};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Answer, Handle, Op, Roles, ServerId, Status, limits};
use shoal_store::{Ask, Changes, Loaded, StoreError, look, settle};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// How large pools are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Datafiles of a batch.
    pub batch: u16,
    /// A pool with fewer asks for the next batch.
    pub low: u64,
    /// Datafiles lent ahead of need at once: also the most that a start may find lent and not taken. When
    /// fewer than half of them are left, the next are lent.
    pub lent: u64,
}

impl Sizes {
    /// Those of OrangeFS.
    pub const DEFAULT: Sizes = Sizes { batch: limits::BATCH_MAX as u16, low: 256, lent: 128 };
}

/// A peer has this long to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause when it did not, or the store did not accept its answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of journal that a change of a pool's row takes at most.
const JOURNAL_BYTES: u64 = 1024;

impl Pool {
    /// Batches of a pool at most.
    pub const RANGES_MAX: usize = 8;

    /// An empty one.
    pub fn new(id: u64) -> Pool {
        Pool { id, sequence: 0, taken: 0, lent: 0, ranges: Vec::new().into() }
    }

    /// How many are left.
    pub fn level(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.count)).sum()
    }

    /// Take the next one.
    pub fn take(&mut self) -> Option<Handle> {
        let range = self.ranges.first_mut()?;
        let handle = range.first;
        range.first = Handle(handle.0 + 1);
        range.count = range.count.saturating_sub(1);
        if range.count == 0 {
            self.ranges.remove(0);
        }
        self.taken += 1;
        Some(handle)
    }

    /// Store a batch.
    pub fn add(&mut self, sequence: u64, range: Range) {
        self.sequence = sequence;
        self.ranges.push(range);
    }

    /// Lend as many as may be, `max` at once.
    pub fn lend(&mut self, max: u64) {
        self.lent = self.lent.max(self.taken + self.level().min(max));
    }

    /// The mutant: the datafiles that were taken last are in the pool again.
    fn untake(&mut self) -> Vec<Handle> {
        if let Some(range) = self.ranges.first_mut() {
            let count = (range.first.counter() % crate::data::precreated::BLOCK).min(3) as u16;
            range.first = Handle(range.first.0 - u64::from(count));
            range.count += count;
        }
        Vec::new()
    }

    /// Take datafiles that were lent and not taken.
    pub fn take_lent(&mut self) -> Vec<Handle> {
        let count = self.lent.saturating_sub(self.taken);
        (0..count).map_while(|_| self.take()).collect()
    }
}

/// The state of one pool in memory.
#[derive(Default)]
struct Known {
    id: Cell<u64>,
    taken: Cell<u64>,
    level: Cell<u64>,
    /// Lent, durably.
    lent: Cell<u64>,
    /// Of the pool of which id, and up to which count of it, how many wait to take.
    awaited: RefCell<BTreeMap<(u64, u64), u64>>,
    /// Why it could not be filled, until it is.
    failure: Cell<Option<Status>>,
    /// Woken when there is something to do for it.
    wanted: Notify,
}

impl Known {
    fn is_low(&self, sizes: Sizes) -> bool {
        self.wants_batch(sizes, self.level.get()) || self.lends_more(sizes)
    }

    fn wants_batch(&self, sizes: Sizes, level: u64) -> bool {
        level < sizes.low || level < self.awaited_now()
    }

    fn lends_more(&self, sizes: Sizes) -> bool {
        let lent = self.lent.get().saturating_sub(self.taken.get());
        (lent < sizes.lent.div_ceil(2) || lent < self.awaited_now()) && lent < self.level.get()
    }

    /// How many of the remaining ones are awaited.
    fn awaited_now(&self) -> u64 {
        let id = self.id.get();
        let awaited = self.awaited.borrow();
        let upto = awaited.range((id, 0)..=(id, u64::MAX)).next_back().map_or(0, |((_, upto), _)| *upto);
        upto.saturating_sub(self.taken.get())
    }

    /// How many are lent at once: enough for the waiting callers.
    fn lends(&self, sizes: Sizes) -> u64 {
        sizes.lent.max(self.awaited_now())
    }
}

/// The pools of a shard.
pub struct Pools {
    sizes: Sizes,
    known: RefCell<BTreeMap<ServerId, Rc<Known>>>,
    /// Woken when more may be taken from some pool, or it is known why not.
    filled: Notify,
    /// Woken when there may be another server, or another switch.
    pub map_changed: Notify,
}

impl Pools {
    /// None known yet.
    pub fn new(sizes: Sizes) -> Pools {
        Pools { sizes, known: RefCell::default(), filled: Notify::default(), map_changed: Notify::default() }
    }

    fn of(&self, peer: ServerId) -> Rc<Known> {
        self.known.borrow_mut().entry(peer).or_default().clone()
    }

    /// Up to which count datafiles may be taken from a pool of this id.
    fn lent(&self, peer: ServerId, id: u64) -> u64 {
        let known = self.known.borrow();
        known.get(&peer).filter(|known| known.id.get() == id).map_or(0, |known| known.lent.get())
    }

    /// More of a server's pool is wanted than may be taken at this moment. Events from now on end the wait
    /// for it ([`wait`]), however much later that begins.
    pub(crate) fn shortage(&self, peer: ServerId, upto: u64) -> Shortage {
        let known = self.of(peer);
        Shortage { id: known.id.get(), known, upto, filled: self.filled.wait() }
    }

    /// How many datafiles of each server lie ready.
    pub fn levels(&self) -> BTreeMap<ServerId, u64> {
        self.known.borrow().iter().map(|(peer, known)| (*peer, known.level.get())).collect()
    }

    /// A pool's row is this now, and `lent` of it is durable.
    pub(crate) fn is_now(&self, peer: ServerId, pool: &Pool, lent: u64) {
        let known = self.of(peer);
        known.id.set(pool.id);
        known.taken.set(pool.taken);
        known.level.set(pool.level());
        known.lent.set(lent);
    }

    /// Datafiles were taken by a batch that was applied: count them, and have more made ready.
    pub fn taken(&self, counters: &Counters, changes: &[(Bytes, Option<Bytes>)]) {
        for (key, value) in changes.iter().filter(|(key, _)| is_pool(key)) {
            let pool = value.as_ref().and_then(|row| Pool::from_row(row).ok());
            let Some(peer) = keys::parse_server(key) else { continue };
            let known = self.of(peer);
            match pool {
                Some(pool) => {
                    add(&counters.pool_taken, pool.taken.saturating_sub(known.taken.get()));
                    known.taken.set(pool.taken);
                    known.level.set(pool.level());
                }
                // A repair removed it: it begins anew.
                None => self.is_now(peer, &Pool::new(0), 0),
            }
            if known.is_low(self.sizes) {
                known.wanted.wake_all();
            }
        }
    }
}

/// See [`Pools::shortage`].
pub struct Shortage {
    known: Rc<Known>,
    id: u64,
    upto: u64,
    filled: NotifyWait,
}

/// A count that is waited for, until this is dropped.
struct Awaits<'a> {
    known: &'a Known,
    what: (u64, u64),
}

impl Awaits<'_> {
    fn new(known: &Known, id: u64, upto: u64) -> Awaits<'_> {
        let what = (id, upto);
        *known.awaited.borrow_mut().entry(what).or_default() += 1;
        Awaits { known, what }
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        let mut awaited = self.known.awaited.borrow_mut();
        if let Some(count) = awaited.get_mut(&self.what) {
            *count -= 1;
            if *count == 0 {
                awaited.remove(&self.what);
            }
        }
    }
}

/// Whether a key is a pool's.
pub fn is_pool(key: &[u8]) -> bool {
    key.first() == Some(&(Table::Pool as u8))
}

/// Take a datafile of another server from its pool, in this group's batch.
pub fn take(ctx: &mut Ctx<'_>, peer: ServerId) -> Result<Handle, Stopped> {
    let key = keys::pool(peer);
    let Some(mut pool) = ctx.row::<Pool>(&key)? else { return Err(Stopped::Pool(peer, 1)) };
    // This group may have taken some before, which is not visible to others yet.
    let upto = pool.taken + 1;
    if upto > ctx.pools().lent(peer, pool.id) {
        return Err(Stopped::Pool(peer, upto));
    }
    let handle = pool.take().ok_or(Stopped::Pool(peer, upto))?;
    ctx.put(key, &pool)?;
    Ok(handle)
}

/// Wait until of a pool as much may be taken as was wanted.
///
/// # Errors
/// Why it could not be filled until `deadline`.
pub async fn wait(shard: &Rc<Shard>, shortage: Shortage, deadline: Instant) -> Result<(), Status> {
    let Shortage { known, id, upto, mut filled } = shortage;
    add(&shard.counters.pool_waits, 1);
    let _awaits = Awaits::new(&known, id, upto);
    // Of a pool that began anew the counts are others.
    while known.id.get() == id {
        known.wanted.wake_all();
        // The caller looked when this wait began: another look is useful only after a change.
        if shard.env.deadline(deadline, filled).await.is_err() {
            return Err(known.failure.get().unwrap_or(Status::Busy));
        }
        if known.lent.get() >= upto {
            break;
        }
        filled = shard.pools.filled.wait();
    }
    Ok(())
}

/// At a start: datafiles that were lent and not taken are retired; the rest is available again.
///
/// # Errors
/// When the store fails.
pub async fn open(shard: &Rc<Shard>, rows: Vec<(Bytes, Bytes)>) -> Result<(), StoreError> {
    let mut has_retired = false;
    for (key, row) in rows {
        let damaged = |words: String| StoreError::Damaged(format!("a pool of datafiles: {words}"));
        let peer = keys::parse_server(&key).ok_or_else(|| damaged("its key".into()))?;
        let mut pool = Pool::from_row(&row).map_err(|error| damaged(error.to_string()))?;
        let retired = if mutant::is(Mutant::TakeAgain) { pool.untake() } else { pool.take_lent() };
        let mut changes = Changes::default();
        let owner = Handle::pool_of(shard.id());
        for &datafile in &retired {
            changes.put(keys::reap(datafile.server(), datafile), Reap { owner }.to_row());
        }
        add(&shard.counters.pool_retired, retired.len() as u64);
        pool.lent = pool.taken;
        shard.pools.is_now(peer, &pool, pool.lent);
        if !retired.is_empty() || mutant::is(Mutant::TakeAgain) {
            changes.put(key, pool.to_row());
            crate::shard::apply_own(&shard.collection, changes).await?;
            has_retired = true;
        }
    }
    if has_retired { settle(&shard.collection).await } else { Ok(()) }
}

/// The task of a shard: a task for each data server there is, and for each that comes.
pub async fn run(shard: Rc<Shard>) {
    let mut filled: BTreeMap<ServerId, ()> = BTreeMap::new();
    loop {
        let changed = shard.pools.map_changed.wait();
        let identity = shard.identity();
        let is_metadata = identity.map.server(identity.id).is_some_and(|s| s.roles.contains(Roles::METADATA));
        let peers = identity.map.with_roles(Roles::DATA).filter(|peer| is_metadata && *peer != identity.id);
        for peer in peers {
            if filled.insert(peer, ()).is_none() {
                shard.tasks.spawn(&shard.env, "pool", fill(shard.clone(), peer));
            }
            shard.pools.of(peer).wanted.wake_all();
        }
        changed.await;
    }
}

/// Keep one pool filled.
async fn fill(shard: Rc<Shard>, peer: ServerId) {
    let known = shard.pools.of(peer);
    loop {
        let wanted = known.wanted.wait();
        match step(&shard, peer).await {
            Ok(true) => {}
            Ok(false) => wanted.await,
            Err(status) => {
                tracing::debug!(%peer, %status, "the pool of datafiles could not be filled");
                known.failure.set(Some(status));
                shard.env.sleep(PAUSE).await;
            }
        }
    }
}

/// Do the next step for a pool; returns whether there was one.
async fn step(shard: &Rc<Shard>, peer: ServerId) -> Result<bool, Status> {
    let identity = shard.identity();
    let is_wanted = identity.precreates()
        && identity.map.server(peer).is_some_and(|server| server.roles.contains(Roles::DATA));
    let known = shard.pools.of(peer);
    match read(shard, peer).await? {
        _ if !is_wanted => Ok(false),
        // Its id is durable before it asks for anything.
        None => {
            let id = shard.env.random_u64().max(1);
            change(shard, peer, None, |present| present.is_none().then(|| Pool::new(id))).await
        }
        Some(_) if known.lends_more(shard.pools.sizes) => {
            shard.env.crash_point(crash_point::POOL_LENDS, u64::from(peer.0));
            let lent = change(shard, peer, None, |present| {
                let mut pool = present?;
                pool.lend(known.lends(shard.pools.sizes));
                Some(pool)
            });
            let lent = lent.await;
            shard.env.crash_point(crash_point::POOL_LENT, u64::from(peer.0));
            lent
        }
        Some(pool)
            if known.wants_batch(shard.pools.sizes, pool.level()) && pool.ranges.len() < Pool::RANGES_MAX =>
        {
            refill(shard, peer, &pool).await
        }
        Some(_) => Ok(false),
    }
}

/// Ask for the next batch, and store it.
async fn refill(shard: &Rc<Shard>, peer: ServerId, pool: &Pool) -> Result<bool, Status> {
    let (id, sequence) = (pool.id, pool.sequence + 1);
    // The row that was read may be one that a failed store did not make durable. The next start would draw
    // another id, and no server would request this batch again.
    shard.collection.health().map_err(status_of)?;
    shard.env.crash_point(crash_point::POOL_ASKS, u64::from(peer.0));
    let deadline = shard.env.now() + TIMEOUT;
    let op = Op::Batchcreate { pool: id, sequence, count: shard.pools.sizes.batch };
    let answer = shard.peers.call(peer, op, deadline).await?;
    let Answer::Batch { first, count } = answer else { return Err(Status::BadMessage) };
    if first.server() != peer || count == 0 || usize::from(count) > limits::BATCH_MAX {
        return Err(Status::BadMessage);
    }
    shard.env.crash_point(crash_point::POOL_HEARS, u64::from(peer.0));
    let stored = change(shard, peer, Some(crash_point::POOL_STORES), |present| {
        let mut pool = present.filter(|pool| pool.id == id && pool.sequence + 1 == sequence)?;
        pool.add(sequence, Range { first, count });
        pool.lend(shard.pools.of(peer).lends(shard.pools.sizes));
        Some(pool)
    });
    stored.await?;
    add(&shard.counters.pool_refills, 1);
    shard.pools.of(peer).failure.set(None);
    shard.env.crash_point(crash_point::POOL_FILLED, u64::from(peer.0));
    Ok(true)
}

async fn read(shard: &Rc<Shard>, peer: ServerId) -> Result<Option<Pool>, Status> {
    let key = keys::pool(peer);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await.map_err(status_of)?;
    row.map(|row| Pool::from_row(&row)).transpose().map_err(|error| {
        tracing::error!(%peer, %error, "the row of a pool cannot be decoded: see `shoal fsck`");
        Status::Io
    })
}

/// Change a pool's row, from its value at that moment, durably; then waiting callers may take from it.
/// Returns whether there was something to change. `step` runs when the change is applied and not durable yet.
async fn change(
    shard: &Rc<Shard>,
    peer: ServerId,
    step: Option<CrashPoint>,
    how: impl FnOnce(Option<Pool>) -> Option<Pool>,
) -> Result<bool, Status> {
    let ask = Ask { journal_bytes: JOURNAL_BYTES, stream_bytes: 0, stream: None, frees: true };
    let _admission = shard.collection.admit(ask).await.map_err(status_of)?;
    let present = read(shard, peer).await?;
    // From here to the batch's end nothing else runs.
    let Some(pool) = how(present) else { return Ok(false) };
    let mut changes = Changes::default();
    changes.put(keys::pool(peer), pool.to_row());
    shard.collection.apply_over(changes, &Loaded::default()).map_err(status_of)?;
    if let Some(step) = step {
        shard.env.crash_point(step, u64::from(peer.0));
    }
    let known = shard.pools.of(peer);
    let before = if known.id.get() == pool.id { known.lent.get() } else { 0 };
    shard.pools.is_now(peer, &pool, before);
    let lent = pool.lent;
    if !mutant::is(Mutant::LoanEarly) {
        settle(&shard.collection).await.map_err(status_of)?;
    }
    if known.id.get() == pool.id {
        known.lent.set(lent.max(known.lent.get()));
    }
    shard.pools.filled.wake_all();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(counter: u64) -> Handle {
        Handle::new(ServerId(2), counter)
    }

    #[test]
    fn datafiles_are_taken_in_order_over_the_batches_and_each_once() {
        let mut pool = Pool::new(9);
        pool.add(1, Range { first: at(1024), count: 2 });
        pool.add(2, Range { first: at(4096), count: 1 });
        assert_eq!(pool.level(), 3);
        let taken: Vec<Handle> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken, [at(1024), at(1025), at(4096)]);
        assert_eq!((pool.level(), pool.taken, pool.sequence), (0, 3, 2));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_asked_for_nor_what_was_wanted_of_another_pool() {
        let known = Known::default();
        known.id.set(9);
        known.taken.set(10);
        let (more, less) = (Awaits::new(&known, 9, 2000), Awaits::new(&known, 9, 300));
        let again = Awaits::new(&known, 9, 2000);
        assert_eq!(known.awaited_now(), 1990);
        drop(more);
        assert_eq!(known.awaited_now(), 1990);
        drop(again);
        assert_eq!(known.awaited_now(), 290);
        // It began anew.
        known.id.set(8);
        known.taken.set(0);
        assert_eq!(known.awaited_now(), 0);
        let anew = Awaits::new(&known, 8, 300);
        drop(less);
        assert_eq!(known.awaited_now(), 300);
        drop(anew);
        assert!(known.awaited.borrow().is_empty());
    }

    #[test]
    fn what_was_lent_and_not_taken_is_no_more_and_no_less() {
        let mut pool = Pool::new(9);
        pool.add(1, Range { first: at(1024), count: 1000 });
        pool.lend(100);
        pool.take();
        let retired = pool.take_lent();
        assert_eq!(retired.len(), 99);
        assert_eq!((retired[0], pool.take()), (at(1025), Some(at(1124))));
        assert_eq!(pool.taken, pool.lent + 1);
    }
}
