//! Data requests that the server is working on, and the *sweep*: the cyclic order in which it serves them.
//!
//! A request is kept as its part of a pattern ([`StreamPart`]). Its runs are computed one *burst* at a time,
//! cut at the borders of blocks and sorted. The sweep takes extents in the order of [`Order`], with several
//! steps under way at once. Each step serves all requests that want bytes of its extents:
//!
//! ```text
//!   burst of request 1 ─┐  ┌─ read once ──── cut for every reader ──▶ packed bytes, dense
//!   burst of request 2 ─┼─▶│ step: blocks side by side
//!   burst of request 3 ─┘  └─ merged ─────── written once ─────────▶ acknowledged after write(2)
//! ```
//! **A request ends when all its steps have ended**: none of them still writes when its answer leaves, even
//! if another step has failed. If its caller drops the request (the server ends), no further step begins for
//! it.
//!
//! Small contiguous requests do not wait for the sweep: they take the lock of their extent and go to the
//! store, between two steps.
//!
//! A handler that replaces the content of a small stream in its batch uses neither this module nor its locks.
//! So **a step never writes old bytes back to a small stream**: it writes only the new pieces.
//!
//! The thread is never held for long: a burst is bounded in runs, a step in bytes, and the copying of records
//! yields between requests.

use super::blocks::BlockCache;
use super::burst::{Cutting, Group, cut};
use super::change_counts::ChangeCounts;
use super::extent::{Extent, Wish};
use super::gathered::Gathered;
use super::order::{LockedExtent, Order, Taken};
use super::pack::Sources;
use super::part::{StreamPart, WalkPlace};
use crate::counters::Counters;
use crate::tasks::Tasks;
use bytes::Bytes;
use futures_util::future::{pending, poll_fn, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use shoal_env::local::{Notify, Sender, oneshot};
use shoal_env::{Env, WallTime};
use shoal_pattern::ViewRun;
use shoal_proto::{Handle, Status, limits};
use shoal_store::{Collection, StreamInfo};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Runs of a request that are known at once.
pub(super) const BURST_RUNS: usize = 2048;
/// Records that are copied before others get a turn.
pub(super) const RECORDS_A_TURN: usize = 8192;

/// The engine of one shard. Clones share it.
#[derive(Clone)]
pub struct Sweep(pub(super) Rc<SweepState>);

/// See [`Sweep`].
pub(super) struct SweepState {
    pub env: Env,
    pub collection: Collection,
    pub changes: ChangeCounts,
    pub counters: Rc<Counters>,
    pub cache: RefCell<BlockCache>,
    pub order: Rc<Order>,
    pub requests: RefCell<BTreeMap<u64, HandRequest>>,
    tasks: Tasks,
    next: Cell<u64>,
    is_running: Cell<bool>,
    arrived: Notify,
}

/// The kind of a request, and its bytes.
pub(super) enum HandWork {
    /// Bytes read so far.
    Read(Gathered),
    /// Bytes to be written, and their time.
    Write(Bytes, WallTime),
}

/// The end of a request: bytes that were read, facts after a write.
type Given = Result<(Vec<Bytes>, Option<StreamInfo>), Status>;

/// A request in hand.
pub(super) struct HandRequest {
    disk: u16,
    stream: Handle,
    generation: u64,
    part: StreamPart,
    place: WalkPlace,
    /// The burst: pieces of runs, sorted by extent; `packed` is the dense position.
    cuts: Vec<ViewRun>,
    /// The extents of the burst.
    groups: Vec<Group>,
    /// Extents of the burst that are not served yet.
    left: usize,
    /// Steps under way for it.
    under_way: usize,
    pub work: HandWork,
    pub info: Option<StreamInfo>,
    pub failed: Option<Status>,
    done: Option<Sender<Given>>,
}

impl HandRequest {
    /// Its pieces in an extent, in packed order.
    pub fn cuts(&self, extent: &Extent) -> &[ViewRun] {
        let at = self.groups.binary_search_by_key(extent, |(group, ..)| *group);
        at.ok().and_then(|at| self.groups.get(at)).map_or(&[], |&(_, from, to)| &self.cuts[from..to])
    }

    /// Take bytes of an extent from what was read. The numbers of copied bytes and of records.
    pub fn take(&mut self, extent: &Extent, sources: &Sources) -> (usize, usize) {
        let at = self.groups.binary_search_by_key(extent, |(group, ..)| *group);
        let Some(&(_, from, to)) = at.ok().and_then(|at| self.groups.get(at)) else { return (0, 0) };
        let HandWork::Read(gathered) = &mut self.work else { return (0, 0) };
        let cuts = &self.cuts[from..to];
        (gathered.take(extent, cuts, sources, self.part.len()), cuts.len())
    }

    /// Find the next burst: `None` when all runs were served, else whether one is there.
    fn load(&mut self) -> Result<Option<bool>, Status> {
        if self.part.is_walked(self.place) {
            return Ok(None);
        }
        let is_first = self.place == WalkPlace::default();
        let (runs, place) = self.part.runs_from(self.place, BURST_RUNS)?;
        self.place = place;
        let is_only = is_first && runs.len() == 1 && self.part.is_walked(place);
        let extent = Extent { disk: self.disk, generation: self.generation, ..Extent::first_of(self.stream) };
        let cutting = match self.work {
            HandWork::Read(_) => Cutting::ToRead,
            HandWork::Write(..) => Cutting::ToWrite,
        };
        (self.cuts, self.groups) = cut(&runs, is_only, cutting, extent);
        if let HandWork::Read(gathered) = &mut self.work {
            gathered.expect(&self.cuts, &self.groups, self.part.len());
        }
        self.left = self.groups.len();
        Ok(Some(self.left > 0))
    }

    fn wishes(&self, request: u64) -> Vec<(Extent, Wish)> {
        let is_write = matches!(self.work, HandWork::Write(..));
        let wish = |&(extent, from, to): &Group| {
            let bytes = self.cuts[from..to].iter().map(|cut| cut.len).sum();
            (extent, Wish { request, is_write, bytes, pieces: to - from })
        };
        self.groups.iter().map(wish).collect()
    }
}

/// A caller that waits; dropped, its request leaves.
struct Caller<'a>(&'a SweepState, u64);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.requests.borrow_mut().remove(&self.1);
    }
}

impl Sweep {
    /// The engine of a shard, with a cache of at most so many bytes.
    pub fn new(
        env: Env,
        collection: Collection,
        changes: ChangeCounts,
        counters: Rc<Counters>,
        tasks: Tasks,
        cache_bytes: u64,
    ) -> Sweep {
        Sweep(Rc::new(SweepState {
            env,
            collection,
            changes,
            counters,
            cache: RefCell::new(BlockCache::new(cache_bytes)),
            order: Rc::default(),
            requests: RefCell::default(),
            tasks,
            next: Cell::default(),
            is_running: Cell::default(),
            arrived: Notify::default(),
        }))
    }

    /// Read a part, densely: its bytes are those of the buffers, one after the other. Bytes after the
    /// stream's end, and holes, are zeros.
    ///
    /// # Errors
    /// As the store answers.
    pub async fn read(
        &self,
        stream: Handle,
        generation: u64,
        part: StreamPart,
    ) -> Result<Vec<Bytes>, Status> {
        if part.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(run) = self.small_run(&part)? {
            let extent = Extent { from: run.physical, len: run.len, generation, ..Extent::first_of(stream) };
            let _inside = self.0.order.locks.lock(extent, false).await;
            let read = self.0.collection.read(stream, generation, vec![run], run.len as usize).await;
            return read.map(|(bytes, _)| vec![bytes]).map_err(super::status_of);
        }
        let work = HandWork::Read(Gathered::default());
        self.request(stream, generation, part, work).await.map(|(bytes, _)| bytes)
    }

    /// Write a part from dense bytes. The stream's facts after the last of them.
    ///
    /// # Errors
    /// As the store answers; some of the bytes may then be written.
    pub async fn write(
        &self,
        stream: Handle,
        generation: u64,
        part: StreamPart,
        data: Bytes,
        at: WallTime,
    ) -> Result<StreamInfo, Status> {
        if let Some(run) = self.small_run(&part)? {
            let extent = Extent { from: run.physical, len: run.len, generation, ..Extent::first_of(stream) };
            let _inside = self.0.order.locks.lock(extent, true).await;
            self.0.cache.borrow_mut().forget(&extent);
            let written = self.0.collection.write(stream, generation, vec![run], data, at);
            return written.await.map_err(super::status_of);
        }
        if part.is_empty() {
            let written = self.0.collection.write(stream, generation, Vec::new(), data, at);
            return written.await.map_err(super::status_of);
        }
        let given = self.request(stream, generation, part, HandWork::Write(data, at)).await?;
        given.1.ok_or(Status::Io)
    }

    /// Have a stream alone, for a change that is no write to a known place.
    pub async fn alone(&self, stream: Handle) -> LockedExtent {
        self.0.order.locks.lock_stream(stream).await
    }

    /// Requests in hand.
    pub fn requests(&self) -> usize {
        self.0.requests.borrow().len()
    }

    /// Drop the blocks of a stream that the cache holds. A step under way may put some back.
    pub fn drop_blocks(&self, stream: Handle) {
        self.0.cache.borrow_mut().drop_stream(stream);
    }

    /// Bytes in the block cache.
    pub fn cached_bytes(&self) -> u64 {
        self.0.cache.borrow().bytes()
    }

    /// The one run of a small contiguous part.
    fn small_run(&self, part: &StreamPart) -> Result<Option<ViewRun>, Status> {
        if part.len() > limits::EAGER_BYTES_MAX as u64 || part.is_empty() {
            return Ok(None);
        }
        part.only_run()
    }

    async fn request(&self, stream: Handle, generation: u64, part: StreamPart, work: HandWork) -> Given {
        let state = &self.0;
        let (send, receive) = oneshot();
        let id = state.next.get();
        state.next.set(id + 1);
        let request = HandRequest {
            disk: state.collection.disk_of(stream),
            stream,
            generation,
            part,
            place: WalkPlace::default(),
            cuts: Vec::new(),
            groups: Vec::new(),
            left: 0,
            under_way: 0,
            work,
            info: None,
            failed: None,
            done: Some(send),
        };
        state.requests.borrow_mut().insert(id, request);
        let _caller = Caller(state, id);
        state.load(id).await;
        // The sender is dropped without a value only when the server ends.
        receive.await.unwrap_or(Err(Status::Unavailable))
    }
}

impl SweepState {
    /// The next burst of a request waits at its extents, or the request ends.
    async fn load(self: &Rc<SweepState>, id: u64) {
        loop {
            let loaded = match self.requests.borrow_mut().get_mut(&id) {
                Some(request) => request.load(),
                None => return,
            };
            match loaded {
                // A long walk over other servers' bytes.
                Ok(Some(false)) => give_way().await,
                Ok(Some(true)) => break,
                Ok(None) => return self.end(id, Ok(())),
                Err(status) => return self.end(id, Err(status)),
            }
        }
        let wishes = self.requests.borrow().get(&id).map(|request| request.wishes(id));
        let now = self.env.now();
        for (extent, wish) in wishes.unwrap_or_default() {
            self.order.wait(extent, wish, now);
        }
        self.arrived.wake_all();
        if !self.is_running.replace(true) {
            let state = self.clone();
            self.tasks.spawn(&self.env, "data sweep", async move { state.sweep().await });
        }
    }

    fn end(&self, id: u64, result: Result<(), Status>) {
        let Some(request) = self.requests.borrow_mut().remove(&id) else { return };
        let given = result.and_then(|()| match request.work {
            HandWork::Read(gathered) => all_of(gathered, request.stream, request.part.len()),
            HandWork::Write(..) => Ok(Vec::new()),
        });
        if let Some(done) = request.done {
            done.send(given.map(|bytes| (bytes, request.info)));
        }
    }

    /// Serve all requests in hand, until there is none.
    async fn sweep(self: Rc<SweepState>) {
        let mut steps = FuturesUnordered::new();
        loop {
            let (arrived, changed) = (self.arrived.wait(), self.order.locks.changed());
            let again_at = self.order.ripen(self.env.now());
            while let Some(taken) = self.order.take() {
                steps.push(self.clone().step(taken));
            }
            if steps.is_empty() && self.order.is_empty() {
                self.is_running.set(false);
                return;
            }
            let step = async {
                match steps.is_empty() {
                    true => pending().await,
                    false => steps.next().await,
                }
            };
            let timer = async {
                match again_at {
                    Some(at) => self.env.sleep_until(at).await,
                    None => pending().await,
                }
            };
            let news = select(arrived, changed);
            select(pin!(step), select(news, pin!(timer))).await;
            give_way().await;
        }
    }

    /// Serve the requests of one step.
    async fn step(self: Rc<SweepState>, taken: Taken) {
        let mut served: Vec<(Extent, u64)> = Vec::new();
        for (extent, wanted) in &taken.extents {
            for id in wanted.readers.iter().chain(&wanted.writers) {
                self.begin(*id, extent, &mut served);
            }
        }
        if taken.extents.iter().any(|(_, wanted)| !wanted.readers.is_empty()) {
            self.read_step(&taken, &mut served).await;
        }
        if taken.extents.iter().any(|(_, wanted)| !wanted.writers.is_empty()) {
            self.write_step(&taken).await;
        }
        drop(taken);
        let mut ended: Vec<u64> = Vec::new();
        for (_, id) in served {
            if let Some(request) = self.requests.borrow_mut().get_mut(&id) {
                request.under_way -= 1;
                request.left -= 1;
                if request.under_way == 0 && (request.left == 0 || request.failed.is_some()) {
                    ended.push(id);
                }
            }
        }
        let mut records = 0;
        for id in ended {
            let failed = self.requests.borrow().get(&id).and_then(|request| request.failed);
            match failed {
                Some(status) => self.end(id, Err(status)),
                None => self.load(id).await,
            }
            // A crowd's requests may end together: their next bursts are walked in several turns.
            records += self.requests.borrow().get(&id).map_or(0, |request| request.cuts.len());
            if records > BURST_RUNS {
                records = 0;
                give_way().await;
            }
        }
    }

    /// A step begins for a request, unless that is gone or has failed.
    pub fn begin(&self, id: u64, extent: &Extent, served: &mut Vec<(Extent, u64)>) {
        if let Some(request) = self.requests.borrow_mut().get_mut(&id)
            && request.failed.is_none()
        {
            request.under_way += 1;
            served.push((*extent, id));
        }
    }

    /// A step failed for a request.
    pub fn fail(&self, id: u64, status: Status) {
        if let Some(request) = self.requests.borrow_mut().get_mut(&id) {
            request.failed.get_or_insert(status);
        }
    }
}

/// The bytes of a read of a stream, `len` of them. Bytes that are missing in the middle would shift those
/// after them: such a read ends with an error, and none of it is sent.
fn all_of(gathered: Gathered, stream: Handle, len: u64) -> Result<Vec<Bytes>, Status> {
    let bytes = gathered.end(len);
    debug_assert!(bytes.is_some(), "a run of a read of {len} bytes of stream {stream} was not served");
    bytes.ok_or_else(|| {
        tracing::error!(%stream, len, "a run of a read was not served: nothing of it is sent. This is a bug");
        Status::Io
    })
}

/// Let other tasks have a turn.
pub(crate) async fn give_way() {
    let mut gave = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds for tests stop there: it is a bug.
    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "was not served"))]
    fn a_read_of_which_a_run_was_not_served_ends_with_an_error_and_has_no_bytes() {
        assert_eq!(all_of(Gathered::default(), Handle(1), 5), Err(Status::Io));
    }
}
