//! Module `memory`: the semantics of `disk` without storage: everything is lost when the server stops. It
//! is for scratch data, and its speed is the upper bound of `disk`.
//!
//! A change never becomes more durable than it is at once, so nothing waits. Stream rows are in the same key
//! space as in `disk`; bytes are in separate sparse chunks. With `bytes: false` it is the module
//! [`null`](crate::null).

mod body;
mod streams;

use crate::stream_row::{StreamRow, stream_key};
use crate::{
    Admission, Ask, Changes, Collection, CollectionConfig, Loaded, Lookup, LossId, Lsn, Module, ModuleKind,
    Needs, Over, Row, Scan, Space, StoreCounters, StoreError, StreamChange, StreamInfo, Strength, SyncModes,
};
use body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use shoal_env::local::{Notify, Reached};
use shoal_env::{Counters, Env, WallTime, Work};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) fn open(env: &Env, config: &CollectionConfig, bytes: bool) -> Collection {
    let mut boot = [0; 16];
    env.random(&mut boot);
    let state =
        State { modes: config.sync_modes, bytes, bytes_max: config.memory_bytes_max, ..State::default() };
    let state = State { counters: env.counters().clone(), ..state };
    let state = Rc::new(RefCell::new(state));
    Rc::new(Memory { boot, env: env.clone(), progress: Notify::default(), state })
}

struct Memory {
    boot: [u8; 16],
    env: Env,
    progress: Notify,
    state: Rc<RefCell<State>>,
}

impl Memory {
    /// Report bytes that will be kept.
    fn keeps(&self, data: &Bytes) {
        if self.state.borrow().bytes {
            self.env.work(Work::Keep, data.len() as u64 / 1024);
        }
    }
}

#[derive(Default)]
struct State {
    modes: SyncModes,
    /// Counts copies.
    counters: Arc<Counters>,
    /// Whether the bytes of streams are kept.
    bytes: bool,
    rows: BTreeMap<Bytes, (Bytes, Lsn)>,
    bodies: HashMap<Handle, Body>,
    lsn: Lsn,
    /// The batch being applied is weak: rows keep the dependency they had.
    weak: bool,
    batches: u64,
    bytes_max: u64,
    used: u64,
    granted: u64,
}

/// Approximate bytes of a row beside its key and value.
const ROW_OVERHEAD: u64 = 100;

impl State {
    /// Count bytes that were copied from buffer to buffer.
    fn copied(&self, bytes: usize) {
        Counters::add(&self.counters.copied_bytes, bytes as u64);
    }

    fn put_row(&mut self, key: Bytes, value: Option<Bytes>) {
        let len = key.len() as u64 + ROW_OVERHEAD;
        let old = match value {
            Some(value) => {
                self.used += len + value.len() as u64;
                let strong =
                    if self.weak { self.rows.get(&key).map_or(Lsn(0), |(_, lsn)| *lsn) } else { self.lsn };
                self.rows.insert(key, (value, strong))
            }
            None => self.rows.remove(&key),
        };
        if let Some((old, _)) = old {
            self.used = self.used.saturating_sub(len + old.len() as u64);
        }
    }

    fn stream(&self, handle: Handle) -> Result<StreamRow, StoreError> {
        let (row, _) = self.rows.get(stream_key(handle).as_slice()).ok_or(StoreError::NoStream)?;
        StreamRow::decode(row)
    }

    fn put_stream(&mut self, handle: Handle, row: &StreamRow) {
        self.put_row(Bytes::copy_from_slice(&stream_key(handle)), Some(row.encode()));
    }

    fn next_lsn(&mut self) {
        self.lsn.0 += 1;
        self.batches += 1;
    }

    fn apply(&mut self, changes: Changes) -> Result<Lsn, StoreError> {
        if changes.is_empty() {
            return Ok(self.lsn);
        }
        self.check(&changes)?;
        self.next_lsn();
        self.weak = changes.strength == Strength::Weak;
        for (key, value) in changes.rows {
            self.put_row(key, value);
        }
        for (handle, change) in changes.streams {
            self.change_stream(handle, change)?;
        }
        Ok(self.lsn)
    }

    /// A batch is atomic: everything that can fail is checked before anything is done.
    fn check(&self, changes: &Changes) -> Result<(), StoreError> {
        let mut there: Vec<(Handle, bool)> = Vec::new();
        for (handle, change) in &changes.streams {
            let known = there.iter().rev().find(|(h, _)| h == handle).map(|(_, there)| *there);
            let exists = known.unwrap_or_else(|| self.rows.contains_key(stream_key(*handle).as_slice()));
            match change {
                StreamChange::Create { .. } => there.push((*handle, true)),
                _ if !exists => return Err(StoreError::NoStream),
                StreamChange::Put { content, .. } if content.len() > Changes::SMALL_MAX => {
                    return Err(StoreError::too_large(content.len()));
                }
                StreamChange::Remove => there.push((*handle, false)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Most keys examined by one scan.
const SCAN_KEYS_MAX: usize = 8192;

impl Module for Memory {
    fn kind(&self) -> ModuleKind {
        if self.state.borrow().bytes { ModuleKind::Memory } else { ModuleKind::Null }
    }

    fn lookup(&self, key: &[u8], _: &Loaded) -> Lookup {
        match self.state.borrow().rows.get(key) {
            Some((value, lsn)) => Lookup::Found(Row { value: value.clone(), lsn: *lsn }),
            None => Lookup::Absent(Lsn(0)),
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, _: &Loaded) -> Option<Scan> {
        let state = self.state.borrow();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let limit = limit.clamp(1, SCAN_KEYS_MAX);
        let mut scan = Scan::default();
        let rows = state.rows.range::<[u8], _>((from, Bound::Unbounded));
        for (key, (value, lsn)) in rows.take_while(|(key, _)| key.starts_with(prefix)) {
            if scan.rows.len() == limit {
                scan.resume = scan.rows.last().map(|(key, _)| key.clone());
                break;
            }
            scan.rows.push((key.clone(), value.clone()));
            scan.lsn = scan.lsn.max(*lsn);
        }
        Some(scan)
    }

    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()> {
        match self.lookup(&stream_key(handle), loaded) {
            Lookup::Found(row) => Ok(StreamRow::decode(&row.value).ok().map(|r| (r.info(), row.lsn))),
            Lookup::Absent(_) | Lookup::Unknown => Ok(None),
        }
    }

    fn small_content(&self, handle: Handle, _: &Loaded) -> Option<Bytes> {
        let state = self.state.borrow();
        let content = state.bodies.get(&handle).and_then(|body| body.content(Changes::SMALL_MAX));
        let content = content.unwrap_or_default();
        state.copied(content.len());
        Some(content)
    }

    fn stream_key(&self, handle: Handle) -> Bytes {
        Bytes::copy_from_slice(&stream_key(handle))
    }

    fn load(&self, _: Needs, loaded: Loaded) -> LocalBoxFuture<'static, Result<Loaded, StoreError>> {
        ready(Ok(loaded)).boxed_local()
    }

    fn apply_over(&self, changes: Changes, _: &Loaded) -> Result<Lsn, StoreError> {
        let lsn = self.state.borrow_mut().apply(changes)?;
        self.progress.wake_all();
        Ok(lsn)
    }

    fn admit(&self, ask: Ask) -> LocalBoxFuture<'static, Result<Admission, StoreError>> {
        let mut state = self.state.borrow_mut();
        let asked = ask.journal_bytes.saturating_add(ask.stream_bytes);
        let available = state.bytes_max.saturating_sub(state.used + state.granted);
        if asked > available && !ask.frees {
            return ready(Err(StoreError::NoSpace { available, asked, reserve: 0 })).boxed_local();
        }
        state.granted += asked;
        let shared = self.state.clone();
        let give_back = move || {
            let mut state = shared.borrow_mut();
            state.granted = state.granted.saturating_sub(asked);
        };
        ready(Ok(Admission(Some(Box::new(give_back))))).boxed_local()
    }

    fn applied(&self) -> Lsn {
        self.state.borrow().lsn
    }

    fn written(&self) -> Lsn {
        self.applied()
    }

    fn durable(&self) -> Lsn {
        self.applied()
    }

    fn progress(&self) -> Notify {
        self.progress.clone()
    }

    /// Everything is durable when it is applied: nothing waits.
    fn durables(&self) -> Reached {
        Reached::default()
    }

    fn push_durable(&self) {}

    fn health(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn loss_id(&self) -> LossId {
        LossId { boot: self.boot, poisonings: 0 }
    }

    fn sync_modes(&self) -> SyncModes {
        self.state.borrow().modes
    }

    fn set_sync_modes(&self, modes: SyncModes) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        self.state.borrow_mut().modes = modes;
        ready(Ok(())).boxed_local()
    }

    fn read(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        len: usize,
    ) -> LocalBoxFuture<'static, Result<(Bytes, StreamInfo), StoreError>> {
        ready(self.state.borrow().read(handle, generation, &runs, len)).boxed_local()
    }

    fn write(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        self.keeps(&data);
        ready(self.state.borrow_mut().write(handle, generation, &runs, &data, at)).boxed_local()
    }

    fn write_over(
        &self,
        handle: Handle,
        generation: u64,
        over: Over,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        let write = || {
            let whole = over.whole()?;
            let (old, _) = self.state.borrow().read(handle, generation, &[whole], whole.len as usize)?;
            let (runs, data) = (over.merge)(Some(&old));
            self.keeps(&data);
            self.state.borrow_mut().write(handle, generation, &runs, &data, at)
        };
        ready(write()).boxed_local()
    }

    fn append(
        &self,
        handle: Handle,
        generation: u64,
        end_max: u64,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<(u64, StreamInfo), StoreError>> {
        self.keeps(&data);
        ready(self.state.borrow_mut().append(handle, generation, end_max, &data, at)).boxed_local()
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
        let end = if extend { offset.saturating_add(len) } else { 0 };
        ready(self.state.borrow_mut().touch(handle, generation, end, at)).boxed_local()
    }

    fn punch(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>> {
        let end = offset.saturating_add(len);
        ready(self.state.borrow_mut().punch(handle, generation, offset, end, at)).boxed_local()
    }

    fn fsync(&self, handle: Handle) -> LocalBoxFuture<'static, Result<LossId, StoreError>> {
        let there = self.state.borrow().stream(handle).map(|_| self.loss_id());
        ready(there).boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<LossId, StoreError>> {
        ready(Ok(self.loss_id())).boxed_local()
    }

    fn space(&self) -> LocalBoxFuture<'static, Result<Space, StoreError>> {
        let state = self.state.borrow();
        let available = state.bytes_max.saturating_sub(state.used);
        ready(Ok(Space { total: state.bytes_max, available, free: available, ..Space::default() }))
            .boxed_local()
    }

    fn counters(&self) -> StoreCounters {
        let state = self.state.borrow();
        StoreCounters {
            batches: state.batches,
            table_rows: state.rows.len() as u64,
            ..StoreCounters::default()
        }
    }

    fn checkpoint(&self) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        ready(Ok(())).boxed_local()
    }

    fn close(&self) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        ready(Ok(())).boxed_local()
    }
}
