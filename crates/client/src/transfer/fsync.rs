//! Makes a file durable, and reports losses.
//!
//! Every reply carries a loss id, which names everything that its server would lose together. When the id
//! that came with a write differs from the id that comes with the sync after it, the server lost its memory
//! in between, and the write may be gone: `EIO`, once per open file (SEMANTICS §4).
//!
//! An fsync covers the inode, not the open file: writes through any open file of this client
//! ([`crate::inodes`]), and writes of other clients. **So it goes to all datafiles, also to those that
//! another client laid out**: the request carries the generation that this client knows, and the metafile's
//! server refuses an older generation (`StaleLayout`).

use crate::core::Operation;
use crate::file::{Opened, Shape};
use crate::inodes::{Before, generation_known};
use crate::{Error, OpenFile};
use futures_util::future::join_all;
use shoal_proto::message::Loss;
use shoal_proto::{Generation, Handle, Op, ServerId, Status};

impl OpenFile {
    /// Make all data of the file durable, on all its datafiles at once, through any open file it was written.
    ///
    /// # Errors
    /// `Io`: something that this client wrote to the file may be lost; said once through each open file.
    pub async fn fsync(&self) -> Result<(), Error> {
        self.0.fsync(&[]).await
    }
}

impl Opened {
    /// Make all data of the file durable. `own` are the loss ids of the caller's latest writes.
    ///
    /// # Errors
    /// `Io`: something of `own` may be lost, whether or not that loss was reported; or another loss that was
    /// not.
    pub(super) async fn fsync(&self, own: &[(ServerId, Loss)]) -> Result<(), Error> {
        let o = self.client.core.begin("fsync", Some(self.handle));
        let synced = self.sync(&o).await?;
        let is_lost = |&(server, loss): &(ServerId, Loss)| {
            synced.iter().any(|&(of, since)| of == server && loss.is_lost(since))
        };
        let is_new = self.report_loss();
        if is_new || own.iter().any(is_lost) { Err(lost(&o)) } else { Ok(()) }
    }

    /// Sync all streams; losses are noted. The loss ids that came back.
    async fn sync(&self, o: &Operation) -> Result<Vec<(ServerId, Loss)>, Error> {
        let before = self.inode.before();
        let mut stale = 0;
        loop {
            let shape = self.shape();
            match self.sync_streams(o, &before, &shape).await {
                Err(error) if error.status == Status::StaleLayout => {
                    stale += 1;
                    if stale > 1 {
                        self.client.core.back_off(o, error).await?;
                    }
                    self.refresh(o).await?;
                }
                Err(error) if error.status == Status::Stale && self.has_moved(o, &shape).await => {}
                // The next sync decides about the failed one, so nothing counts as covered.
                Err(error) => return Err(error),
                Ok(synced) => {
                    self.inode.covered(&before);
                    return Ok(synced);
                }
            }
        }
    }

    async fn sync_streams(
        &self,
        o: &Operation,
        before: &Before,
        shape: &Shape,
    ) -> Result<Vec<(ServerId, Loss)>, Error> {
        let core = &self.client.core;
        let others = shape.layout.iter().flat_map(|layout| layout.datafiles.iter());
        let others = others.filter(|&&stream| stream != self.handle).map(|&stream| (stream, Generation(0)));
        let mut streams: Vec<(Handle, Generation)> = vec![(self.handle, generation_known(shape))];
        streams.extend(others);
        let all = streams.iter().map(|&(stream, generation)| async move {
            let told = core.ask(o, stream.server(), vec![Op::Fsync { stream, generation }]).await?;
            Ok::<_, Error>((stream.server(), told.loss))
        });
        let (mut ids, mut failed) = (Vec::new(), None::<Error>);
        for synced in join_all(all).await {
            match synced {
                Ok((server, loss)) => {
                    self.inode.compare(before, server, loss);
                    ids.push((server, loss));
                }
                // Another layout is another question: its answer counts.
                Err(error) if failed.is_none() || error.status == Status::StaleLayout => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(ids), Err)
    }
}

fn lost(o: &Operation) -> Error {
    o.error(Status::Io).because(
        "a server lost its memory since this file was written; some of it may be gone, write it again",
    )
}
