//! Module `disk` as a [`Module`]: passes each operation to the part that implements it.

use super::streams::bulk::Bulk;
use super::{CollectionState, Disk, identity};
use crate::stream_row::{StreamRow, stream_key};
use crate::{
    Admission, Ask, Changes, Loaded, Lookup, LossId, Lsn, Module, ModuleKind, Needs, Over, Scan, Space,
    StoreCounters, StoreError, StreamInfo, SyncModes,
};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::WallTime;
use shoal_env::local::{Notify, Reached};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use std::path::Path;
use std::rc::Rc;

type Answer<T> = LocalBoxFuture<'static, Result<T, StoreError>>;

impl Disk {
    fn change(&self, handle: Handle, generation: u64, bulk: Bulk, at: WallTime) -> Answer<(u64, StreamInfo)> {
        Box::pin(self.collection.clone().change(handle, generation, bulk, at))
    }

    fn change_only(&self, handle: Handle, generation: u64, bulk: Bulk, at: WallTime) -> Answer<StreamInfo> {
        let change = self.collection.clone().change(handle, generation, bulk, at);
        Box::pin(async move { change.await.map(|(_, info)| info) })
    }

    fn collection(&self) -> Rc<CollectionState> {
        self.collection.clone()
    }
}

impl Module for Disk {
    fn kind(&self) -> ModuleKind {
        ModuleKind::Disk
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.collection.config.dir)
    }

    fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup {
        self.collection.rows.borrow().lookup(key, loaded)
    }

    fn look(&self, key: &[u8], loaded: &Loaded, look: &mut dyn FnMut(&[u8])) -> Option<Lsn> {
        let rows = self.collection.rows.borrow();
        let (value, lsn) = rows.find(key, loaded)?;
        if let Some(value) = value {
            look(value);
        }
        Some(lsn)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan> {
        self.collection.rows.borrow().scan(prefix, after, limit, loaded)
    }

    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()> {
        match self.collection.rows.borrow().find(&stream_key(handle), loaded) {
            // A row of an unknown form must not pass for absent: the load of it fails.
            Some((Some(value), lsn)) => {
                StreamRow::decode(value).map(|row| Some((row.info(), lsn))).map_err(drop)
            }
            Some((None, _)) => Ok(None),
            None => Err(()),
        }
    }

    fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        self.collection.small_content(handle, loaded)
    }

    fn stream_key(&self, handle: Handle) -> Bytes {
        Bytes::copy_from_slice(&stream_key(handle))
    }

    fn load(&self, needs: Needs, loaded: Loaded) -> Answer<Loaded> {
        let collection = self.collection();
        Box::pin(async move { collection.load(needs, loaded).await })
    }

    fn apply_over(&self, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError> {
        self.collection.apply(changes, loaded)
    }

    fn apply_failed(&self) -> Lsn {
        self.collection.journal.borrow_mut().failed()
    }

    fn admit(&self, ask: Ask) -> Answer<Admission> {
        self.collection.admit(ask)
    }

    fn applied(&self) -> Lsn {
        self.collection.journal.borrow().applied
    }

    fn written(&self) -> Lsn {
        self.collection.journal.borrow().written
    }

    fn durable(&self) -> Lsn {
        self.collection.journal.borrow().durable
    }

    fn opened_at(&self) -> Lsn {
        self.collection.opened_at
    }

    fn progress(&self) -> Notify {
        self.collection.progress.clone()
    }

    fn durables(&self) -> Reached {
        self.collection.durables.clone()
    }

    fn push_written(&self) {
        self.collection.journal.borrow_mut().hurry();
        self.collection.work.wake_all();
    }

    fn push_durable(&self) {
        self.collection.flush_weak();
        let all = self.applied();
        self.collection.push_to(all);
    }

    fn want_durable(&self, lsn: Lsn) {
        let asks = self.collection.journal.borrow().is_deferred(lsn);
        if asks {
            self.collection.push_to(lsn);
        }
    }

    fn disk_of(&self, handle: Handle) -> u16 {
        self.collection.disk_of(handle)
    }

    fn health(&self) -> Result<(), StoreError> {
        self.collection.health()
    }

    fn store_id(&self) -> shoal_proto::StoreId {
        self.collection.identity.store
    }

    fn loss_id(&self) -> LossId {
        self.collection.loss_id()
    }

    fn sync_modes(&self) -> SyncModes {
        self.collection.modes.get()
    }

    fn set_sync_modes(&self, modes: SyncModes) -> Answer<()> {
        let collection = self.collection();
        Box::pin(async move {
            let kept = identity::Kept { modes, ..collection.identity };
            identity::write(&collection.env, &collection.config.dir, &kept).await?;
            collection.modes.set(modes);
            collection.journal.borrow_mut().queues.follow(modes.coalescing);
            Ok(())
        })
    }

    fn read(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        len: usize,
    ) -> Answer<(Bytes, StreamInfo)> {
        Box::pin(self.collection().read(handle, generation, runs, len))
    }

    fn write(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        data: Bytes,
        at: WallTime,
    ) -> Answer<StreamInfo> {
        self.change_only(handle, generation, Bulk::Write { runs, data }, at)
    }

    fn write_over(&self, handle: Handle, generation: u64, over: Over, at: WallTime) -> Answer<StreamInfo> {
        let writing = self.collection().write_over(handle, generation, over, at);
        Box::pin(async move { writing.await.map(|(_, info)| info) })
    }

    fn append(
        &self,
        handle: Handle,
        generation: u64,
        end_max: u64,
        data: Bytes,
        at: WallTime,
    ) -> Answer<(u64, StreamInfo)> {
        self.change(handle, generation, Bulk::Append { data, end_max }, at)
    }

    fn allocate(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        extend: bool,
        at: WallTime,
    ) -> Answer<StreamInfo> {
        self.change_only(handle, generation, Bulk::Allocate { offset, len, extend }, at)
    }

    fn punch(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        at: WallTime,
    ) -> Answer<StreamInfo> {
        self.change_only(handle, generation, Bulk::Punch { offset, len }, at)
    }

    fn drop_pages(&self, handle: Handle) -> Answer<()> {
        let collection = self.collection();
        Box::pin(async move { collection.drop_pages(handle).await })
    }

    fn has_lost_file(&self, handle: Handle) -> Answer<bool> {
        let collection = self.collection();
        Box::pin(async move { collection.has_lost_file(handle).await })
    }

    fn fsync(&self, handle: Handle) -> Answer<LossId> {
        let collection = self.collection();
        Box::pin(async move { collection.fsync(handle).await })
    }

    fn sync(&self) -> Answer<LossId> {
        let collection = self.collection();
        Box::pin(async move { collection.sync_whole().await })
    }

    fn space(&self) -> Answer<Space> {
        let collection = self.collection();
        Box::pin(async move { collection.space().await })
    }

    fn counters(&self) -> StoreCounters {
        self.collection.counters()
    }

    fn checkpoint(&self) -> Answer<()> {
        let collection = self.collection();
        Box::pin(async move { collection.checkpoint().await })
    }

    fn close(&self) -> Answer<()> {
        let collection = self.collection();
        Box::pin(async move { collection.close().await })
    }
}
