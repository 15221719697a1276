//! The face of the module: each operation goes where it is done.

use super::streams::bulk::Bulk;
use super::{Disk, Shared, identity};
use crate::stream_row::{StreamRow, stream_key};
use crate::{
    Admission, Ask, Changes, Loaded, Lookup, LossId, Lsn, Module, ModuleKind, Needs, Scan, Space,
    StoreCounters, StoreError, StreamInfo, SyncModes,
};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::WallTime;
use shoal_env::local::{Notify, Reached};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use std::rc::Rc;

type Answer<T> = LocalBoxFuture<'static, Result<T, StoreError>>;

impl Disk {
    fn change(&self, handle: Handle, generation: u64, bulk: Bulk, at: WallTime) -> Answer<(u64, StreamInfo)> {
        Box::pin(self.shared.clone().change(handle, generation, bulk, at))
    }

    fn change_only(&self, handle: Handle, generation: u64, bulk: Bulk, at: WallTime) -> Answer<StreamInfo> {
        let change = self.shared.clone().change(handle, generation, bulk, at);
        Box::pin(async move { change.await.map(|(_, info)| info) })
    }

    fn shared(&self) -> Rc<Shared> {
        self.shared.clone()
    }
}

impl Module for Disk {
    fn kind(&self) -> ModuleKind {
        ModuleKind::Disk
    }

    fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup {
        self.shared.rows.borrow().lookup(key, loaded)
    }

    fn look(&self, key: &[u8], loaded: &Loaded, look: &mut dyn FnMut(&[u8])) -> Option<Lsn> {
        let rows = self.shared.rows.borrow();
        let (value, lsn) = rows.find(key, loaded)?;
        if let Some(value) = value {
            look(value);
        }
        Some(lsn)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan> {
        self.shared.rows.borrow().scan(prefix, after, limit, loaded)
    }

    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()> {
        match self.shared.rows.borrow().find(&stream_key(handle), loaded) {
            // A row of an unknown form cannot pass for absent: whoever loads it gets the error.
            Some((Some(value), lsn)) => {
                StreamRow::decode(value).map(|row| Some((row.info(), lsn))).map_err(drop)
            }
            Some((None, _)) => Ok(None),
            None => Err(()),
        }
    }

    fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes> {
        self.shared.small_content(handle, loaded)
    }

    fn stream_key(&self, handle: Handle) -> Bytes {
        Bytes::copy_from_slice(&stream_key(handle))
    }

    fn load(&self, needs: Needs, loaded: Loaded) -> Answer<Loaded> {
        let shared = self.shared();
        Box::pin(async move { shared.load(needs, loaded).await })
    }

    fn apply_over(&self, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError> {
        self.shared.apply(changes, loaded)
    }

    fn apply_failed(&self) -> Lsn {
        self.shared.journal.borrow_mut().failed()
    }

    fn admit(&self, ask: Ask) -> Answer<Admission> {
        self.shared.admit(ask)
    }

    fn applied(&self) -> Lsn {
        self.shared.journal.borrow().applied
    }

    fn written(&self) -> Lsn {
        self.shared.journal.borrow().written
    }

    fn durable(&self) -> Lsn {
        self.shared.journal.borrow().durable
    }

    fn opened_at(&self) -> Lsn {
        self.shared.opened_at
    }

    fn progress(&self) -> Notify {
        self.shared.progress.clone()
    }

    fn durables(&self) -> Reached {
        self.shared.durables.clone()
    }

    fn push_written(&self) {
        self.shared.journal.borrow_mut().hurry();
        self.shared.work.wake_all();
    }

    fn push_durable(&self) {
        self.shared.flush_weak();
        let all = self.applied();
        self.shared.push_to(all);
    }

    fn want_durable(&self, lsn: Lsn) {
        let asks = self.shared.journal.borrow().is_deferred(lsn);
        if asks {
            self.shared.push_to(lsn);
        }
    }

    fn health(&self) -> Result<(), StoreError> {
        self.shared.health()
    }

    fn store_id(&self) -> shoal_proto::StoreId {
        self.shared.identity.store
    }

    fn loss_id(&self) -> LossId {
        self.shared.loss_id()
    }

    fn sync_modes(&self) -> SyncModes {
        self.shared.modes.get()
    }

    fn set_sync_modes(&self, modes: SyncModes) -> Answer<()> {
        let shared = self.shared();
        Box::pin(async move {
            let kept = identity::Kept { modes, ..shared.identity };
            identity::write(&shared.env, &shared.config.dir, &kept).await?;
            shared.modes.set(modes);
            shared.journal.borrow_mut().queues.follow(modes.coalescing);
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
        Box::pin(self.shared().read(handle, generation, runs, len))
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

    fn fsync(&self, handle: Handle) -> Answer<LossId> {
        let shared = self.shared();
        Box::pin(async move { shared.fsync(handle).await })
    }

    fn sync(&self) -> Answer<LossId> {
        let shared = self.shared();
        Box::pin(async move { shared.sync_whole().await })
    }

    fn space(&self) -> Answer<Space> {
        let shared = self.shared();
        Box::pin(async move { shared.space().await })
    }

    fn counters(&self) -> StoreCounters {
        self.shared.counters()
    }

    fn checkpoint(&self) -> Answer<()> {
        let shared = self.shared();
        Box::pin(async move { shared.checkpoint().await })
    }

    fn close(&self) -> Answer<()> {
        let shared = self.shared();
        Box::pin(async move { shared.close().await })
    }
}
