//! A sync of the whole collection: rows and small streams by the journal, large streams by their files.
//!
//! **It covers files that a former life of the server wrote**: they are in the kernel's memory still, and no list of this life
//! has them. So the first such sync after a start asks the kernel for all (`syncfs(2)`), and later ones do whenever a file
//! was changed in between; where none was, they cost what a sync of the journal costs.

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
