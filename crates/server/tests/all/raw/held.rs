//! A store whose journal stands still when a test says so: applied changes are then neither written nor
//! durable.

#![allow(dead_code, reason = "each test file uses a part")]

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::WallTime;
use shoal_env::local::{Notify, Reached};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use shoal_store::{
    Admission, Ask, Changes, Collection, Loaded, Lookup, LossId, Lsn, Module, ModuleKind, Needs, Over, Scan,
    Space, StoreCounters, StoreError, StreamInfo, SyncModes,
};
use std::cell::Cell;
use std::rc::Rc;

pub struct Held {
    inner: Collection,
    written: Cell<Option<Lsn>>,
    durable: Cell<Option<Lsn>>,
    poisoned: Cell<bool>,
    durables: Reached,
    pub pushes: Cell<u32>,
    /// Changes that it calls durable are said to outlive its process.
    pub keeps: Cell<bool>,
    /// The record that was last waited for without a push.
    pub wanted: Cell<Lsn>,
    /// So many writes to come are held until [`Held::release`]: writes before they are done, appends after
    /// it.
    pub stalls: Cell<u32>,
    /// So many further writes to come are held after they are done.
    pub stalls_behind: Cell<u32>,
    /// So many reads to come are held after they are done.
    pub reads_to_hold: Cell<u32>,
    /// Reads, appends and writes that are done and held.
    pub done: Rc<Cell<u32>>,
    released: Notify,
    /// Room for so many bytes of streams; `None`: for all.
    pub admits_bytes: Cell<Option<u64>>,
    /// The journal has no room until [`Held::has_room`].
    crowded: Rc<Cell<bool>>,
    /// Requests that wait for room.
    pub waits_for_room: Rc<Cell<u32>>,
    room: Notify,
}

/// One server with a store that can be held.
pub async fn held(env: &shoal_env::Env) -> (super::Cluster, Rc<Held>) {
    let mut cluster = super::Cluster::new(env, 1).await;
    cluster.kill(0);
    let held = Rc::new(Held::new(cluster.stores[0].clone()));
    cluster.stores[0] = held.clone();
    cluster.start(0).await;
    (cluster, held)
}

impl Held {
    pub fn new(inner: Collection) -> Held {
        Held {
            inner,
            written: Cell::new(None),
            durable: Cell::new(None),
            poisoned: Cell::new(false),
            durables: Reached::default(),
            pushes: Cell::new(0),
            keeps: Cell::new(false),
            wanted: Cell::default(),
            stalls: Cell::new(0),
            stalls_behind: Cell::new(0),
            reads_to_hold: Cell::new(0),
            done: Rc::default(),
            released: Notify::default(),
            admits_bytes: Cell::new(None),
            crowded: Rc::default(),
            waits_for_room: Rc::default(),
            room: Notify::default(),
        }
    }

    /// From now on the journal has no room.
    pub fn is_crowded(&self) {
        self.crowded.set(true);
    }

    /// It has room again.
    pub fn has_room(&self) {
        self.crowded.set(false);
        self.room.wake_all();
    }

    /// Bulk writes that are held continue.
    pub fn release(&self) {
        self.released.wake_all();
    }

    fn held_behind<T: 'static>(
        &self,
        work: LocalBoxFuture<'static, Result<T, StoreError>>,
    ) -> LocalBoxFuture<'static, Result<T, StoreError>> {
        let (released, done) = (self.released.wait(), self.done.clone());
        Box::pin(async move {
            let result = work.await;
            done.set(done.get() + 1);
            released.await;
            result
        })
    }

    /// From now on nothing more is written nor durable.
    pub fn hold(&self) {
        self.written.set(Some(self.inner.applied()));
        self.durable.set(Some(self.inner.applied()));
    }

    pub fn write(&self) {
        self.written.set(Some(self.inner.applied()));
        self.inner.progress().wake_all();
    }

    pub fn sync(&self) {
        self.durable.set(Some(self.inner.applied()));
        self.durables.wake_to(self.durable().0);
        self.write();
    }

    pub fn poison(&self) {
        self.poisoned.set(true);
        self.durables.wake_all();
        self.inner.progress().wake_all();
    }
}

impl Module for Held {
    fn written(&self) -> Lsn {
        self.written.get().unwrap_or(self.inner.written())
    }

    fn durable(&self) -> Lsn {
        self.durable.get().unwrap_or(self.inner.durable())
    }

    fn push_durable(&self) {
        self.pushes.set(self.pushes.get() + 1);
    }

    fn want_durable(&self, lsn: Lsn) {
        self.wanted.set(lsn);
    }

    fn health(&self) -> Result<(), StoreError> {
        if self.poisoned.get() { Err(StoreError::Poisoned("by the test".into())) } else { Ok(()) }
    }

    fn apply(&self, changes: Changes) -> Result<Lsn, StoreError> {
        self.apply_over(changes, &Loaded::default())
    }

    fn kind(&self) -> ModuleKind {
        self.inner.kind()
    }

    fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup {
        self.inner.lookup(key, loaded)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan> {
        self.inner.scan(prefix, after, limit, loaded)
    }

    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()> {
        self.inner.stream(handle, loaded)
    }

    fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        self.inner.small_content(handle, loaded)
    }

    fn stream_key(&self, handle: Handle) -> Bytes {
        self.inner.stream_key(handle)
    }

    fn load(&self, needs: Needs, loaded: Loaded) -> LocalBoxFuture<'static, Result<Loaded, StoreError>> {
        self.inner.load(needs, loaded)
    }

    fn apply_over(&self, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError> {
        self.inner.apply_over(changes, loaded)
    }

    fn admit(&self, ask: Ask) -> LocalBoxFuture<'static, Result<Admission, StoreError>> {
        if self.admits_bytes.get().is_some_and(|left| ask.stream_bytes > left) {
            let refused = StoreError::NoSpace { available: 0, asked: ask.stream_bytes, reserve: 0 };
            return Box::pin(std::future::ready(Err(refused)));
        }
        self.admits_bytes.set(self.admits_bytes.get().map(|left| left - ask.stream_bytes));
        if !self.crowded.get() {
            return self.inner.admit(ask);
        }
        let (inner, crowded, room) = (self.inner.clone(), self.crowded.clone(), self.room.clone());
        self.waits_for_room.set(self.waits_for_room.get() + 1);
        Box::pin(async move {
            loop {
                let has_room = room.wait();
                if !crowded.get() {
                    return inner.admit(ask).await;
                }
                has_room.await;
            }
        })
    }

    fn applied(&self) -> Lsn {
        self.inner.applied()
    }

    fn progress(&self) -> Notify {
        self.inner.progress()
    }

    fn durables(&self) -> Reached {
        self.durables.clone()
    }

    fn keeps(&self) -> bool {
        self.keeps.get()
    }

    fn loss_id(&self) -> LossId {
        self.inner.loss_id()
    }

    fn sync_modes(&self) -> SyncModes {
        self.inner.sync_modes()
    }

    fn set_sync_modes(&self, modes: SyncModes) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        self.inner.set_sync_modes(modes)
    }

    fn read(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        len: usize,
    ) -> LocalBoxFuture<'static, Result<(Bytes, StreamInfo), StoreError>> {
        let reading = self.inner.read(handle, generation, runs, len);
        if self.reads_to_hold.get() == 0 {
            return reading;
        }
        self.reads_to_hold.set(self.reads_to_hold.get() - 1);
        self.held_behind(reading)
    }

    fn write(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        if self.stalls_behind.get() > 0 {
            self.stalls_behind.set(self.stalls_behind.get() - 1);
            return self.held_behind(self.inner.write(handle, generation, runs, data, at));
        }
        if self.stalls.get() == 0 {
            return self.inner.write(handle, generation, runs, data, at);
        }
        self.stalls.set(self.stalls.get() - 1);
        let (released, inner) = (self.released.wait(), self.inner.clone());
        Box::pin(async move {
            released.await;
            inner.write(handle, generation, runs, data, at).await
        })
    }

    fn write_over(
        &self,
        handle: Handle,
        generation: u64,
        over: Over,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        if self.stalls_behind.get() > 0 {
            self.stalls_behind.set(self.stalls_behind.get() - 1);
            return self.held_behind(self.inner.write_over(handle, generation, over, at));
        }
        if self.stalls.get() == 0 {
            return self.inner.write_over(handle, generation, over, at);
        }
        self.stalls.set(self.stalls.get() - 1);
        let (released, inner) = (self.released.wait(), self.inner.clone());
        Box::pin(async move {
            released.await;
            inner.write_over(handle, generation, over, at).await
        })
    }

    fn append(
        &self,
        handle: Handle,
        generation: u64,
        end_max: u64,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<(u64, StreamInfo), StoreError>> {
        if self.stalls.get() == 0 {
            return self.inner.append(handle, generation, end_max, data, at);
        }
        self.stalls.set(self.stalls.get() - 1);
        self.held_behind(self.inner.append(handle, generation, end_max, data, at))
    }

    fn allocate(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        extend: bool,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        self.inner.allocate(handle, generation, offset, len, extend, at)
    }

    fn punch(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        self.inner.punch(handle, generation, offset, len, at)
    }

    fn fsync(&self, handle: Handle) -> LocalBoxFuture<'static, Result<LossId, StoreError>> {
        self.inner.fsync(handle)
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<LossId, StoreError>> {
        self.inner.sync()
    }

    fn space(&self) -> LocalBoxFuture<'static, Result<Space, StoreError>> {
        self.inner.space()
    }

    fn counters(&self) -> StoreCounters {
        self.inner.counters()
    }

    fn checkpoint(&self) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        self.inner.checkpoint()
    }

    fn close(&self) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        self.inner.close()
    }
}
