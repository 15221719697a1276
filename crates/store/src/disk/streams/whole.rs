//! A sync of the whole collection: rows and small streams by the journal, large streams by their files.
//!
//! **It covers files that an earlier run of the server wrote**: they may still be in the kernel's memory,
//! and no list of this run has them. So the first sync after a start calls `syncfs(2)`, unless the store had
//! no such file at its start. A later sync calls `syncfs(2)` only if a file was changed since the last sync;
//! otherwise it costs as much as a sync of the journal.

use super::super::CollectionState;
use crate::{LossId, StoreError};
use futures_util::future::join;
use std::rc::Rc;

impl CollectionState {
    pub(crate) async fn sync_whole(self: &Rc<Self>) -> Result<LossId, StoreError> {
        self.health()?;
        self.flush_weak();
        let all = self.journal.borrow().applied;
        let (files, journal) = join(self.sync_files(), self.wait_durable(all)).await;
        files?;
        journal?;
        Ok(self.loss_id())
    }
}
