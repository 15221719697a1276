//! Makes durable what was published in a composed directory, by this process and by others.
//!
//! A program may sync a file that another process wrote (`sync FILE` after `cp`), and its bytes, its name
//! and its directory may lie in blocks of several writers. So a sync covers **all physical files, and the
//! folder of claims**, also if other processes wrote to them: a block counts only if its claim is there. A
//! sync of a file without changes is cheap. They are synced at the same time, so the sync takes as long as
//! the slowest one.
//!
//! **One sync runs at a time, and it counts for all calls that waited for it to begin.** So a call never
//! returns while another one still makes durable what both need, and many calls at one time cost two rounds.

use super::Shared;
use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use shoal_env::local::Semaphore;
use shoal_vfs::{Result, Vfs, VfsFile};
use std::cell::Cell;
use std::rc::Rc;

/// Physical files that are synced at the same time, at most.
const AT_ONCE: usize = 16;

/// The syncs of a directory.
pub(crate) struct SyncRounds {
    /// One runs.
    turn: Semaphore,
    /// So many were begun.
    begun: Cell<u64>,
    /// The last of them that succeeded.
    done: Cell<u64>,
}

impl Default for SyncRounds {
    fn default() -> SyncRounds {
        SyncRounds { turn: Semaphore::new(1), begun: Cell::new(0), done: Cell::new(0) }
    }
}

impl<B: Vfs> Shared<B> {
    /// Make all durable that was logged here, and that other processes have published.
    pub(super) async fn sync(self: &Rc<Self>) -> Result<()> {
        self.publish().await?;
        let seen = self.syncs.begun.get();
        let _turn = self.syncs.turn.acquire(1).await;
        // One that began after this call had published, and succeeded, covers it.
        if self.syncs.done.get() > seen {
            return Ok(());
        }
        let own = self.syncs.begun.get() + 1;
        self.syncs.begun.set(own);
        let (blocks, claims) = join(self.sync_blocks(), self.over.fsync_directory(self.claims)).await;
        blocks.and(claims)?;
        self.syncs.done.set(own);
        Ok(())
    }

    /// Sync all physical files. Each is tried, and the first error returned.
    pub(super) async fn sync_blocks(&self) -> Result<()> {
        let files = stream::iter(self.blocks.files()).map(VfsFile::fsync);
        let synced: Vec<Result<()>> = files.buffered(AT_ONCE).collect().await;
        synced.into_iter().collect()
    }
}
