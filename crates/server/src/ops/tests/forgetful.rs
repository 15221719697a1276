//! A store that has no row in memory until the row is loaded. So every handler first fails to find each row
//! that it reads.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use shoal_env::WallTime;
use shoal_env::local::{Notify, Reached};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use shoal_store::{
    Admission, Ask, Changes, Collection, Loaded, LoadedRange, Lookup, LossId, Lsn, Module, ModuleKind, Needs,
    Over, RangeNeed, Scan, Space, StoreCounters, StoreError, StreamInfo, SyncModes,
};

pub struct Forgetful(pub Collection);

type Waits<T> = LocalBoxFuture<'static, Result<T, StoreError>>;

impl Module for Forgetful {
    fn kind(&self) -> ModuleKind {
        self.0.kind()
    }

    fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup {
        match loaded.rows.contains_key(key) {
            true => self.0.lookup(key, loaded),
            false => Lookup::Unknown,
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan> {
        let covers = |range: &LoadedRange| range.prefix == prefix && range.after.as_deref() == after;
        loaded.ranges.iter().any(covers).then(|| self.0.scan(prefix, after, limit, loaded))?
    }

    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()> {
        match loaded.rows.contains_key(&self.stream_key(handle)) {
            true => self.0.stream(handle, loaded),
            false => Err(()),
        }
    }

    fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        loaded.contents.contains_key(&handle).then(|| self.0.small_content(handle, loaded))?
    }

    fn stream_key(&self, handle: Handle) -> Bytes {
        self.0.stream_key(handle)
    }

    fn load(&self, needs: Needs, mut loaded: Loaded) -> Waits<Loaded> {
        assert!(!needs.is_empty(), "a handler missed nothing and yet stopped");
        loaded.rows.extend(needs.keys.into_iter().map(|key| (key, None)));
        let range =
            |RangeNeed { prefix, after, .. }| LoadedRange { prefix, after, last: None, rows: Vec::new() };
        loaded.ranges.extend(needs.ranges.into_iter().map(range));
        loaded.contents.extend(needs.contents.into_iter().map(|h| (h, (Bytes::new(), Bytes::new()))));
        ready(Ok(loaded)).boxed_local()
    }

    fn apply_over(&self, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError> {
        for (handle, _) in &changes.streams {
            assert!(
                loaded.rows.contains_key(&self.stream_key(*handle)),
                "a stream is changed that was not looked at"
            );
        }
        self.0.apply_over(changes, loaded)
    }

    fn admit(&self, ask: Ask) -> Waits<Admission> {
        self.0.admit(ask)
    }

    fn applied(&self) -> Lsn {
        self.0.applied()
    }

    fn written(&self) -> Lsn {
        self.0.written()
    }

    fn durable(&self) -> Lsn {
        self.0.durable()
    }

    fn progress(&self) -> Notify {
        self.0.progress()
    }

    fn durables(&self) -> Reached {
        self.0.durables()
    }

    fn push_durable(&self) {
        self.0.push_durable();
    }

    fn health(&self) -> Result<(), StoreError> {
        self.0.health()
    }

    fn loss_id(&self) -> LossId {
        self.0.loss_id()
    }

    fn sync_modes(&self) -> SyncModes {
        self.0.sync_modes()
    }

    fn set_sync_modes(&self, modes: SyncModes) -> Waits<()> {
        self.0.set_sync_modes(modes)
    }

    fn read(&self, h: Handle, generation: u64, runs: Vec<ViewRun>, len: usize) -> Waits<(Bytes, StreamInfo)> {
        self.0.read(h, generation, runs, len)
    }

    fn write(
        &self,
        h: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        data: Bytes,
        at: WallTime,
    ) -> Waits<StreamInfo> {
        self.0.write(h, generation, runs, data, at)
    }

    fn write_over(&self, h: Handle, generation: u64, over: Over, at: WallTime) -> Waits<StreamInfo> {
        self.0.write_over(h, generation, over, at)
    }

    fn append(
        &self,
        h: Handle,
        generation: u64,
        end_max: u64,
        data: Bytes,
        at: WallTime,
    ) -> Waits<(u64, StreamInfo)> {
        self.0.append(h, generation, end_max, data, at)
    }

    fn allocate(
        &self,
        h: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        extend: bool,
        at: WallTime,
    ) -> Waits<StreamInfo> {
        self.0.allocate(h, generation, offset, len, extend, at)
    }

    fn punch(&self, h: Handle, generation: u64, offset: u64, len: u64, at: WallTime) -> Waits<StreamInfo> {
        self.0.punch(h, generation, offset, len, at)
    }

    fn fsync(&self, handle: Handle) -> Waits<LossId> {
        self.0.fsync(handle)
    }

    fn sync(&self) -> Waits<LossId> {
        self.0.sync()
    }

    fn space(&self) -> Waits<Space> {
        self.0.space()
    }

    fn counters(&self) -> StoreCounters {
        self.0.counters()
    }

    fn checkpoint(&self) -> Waits<()> {
        self.0.checkpoint()
    }

    fn close(&self) -> Waits<()> {
        self.0.close()
    }
}
