//! Making a file durable, and telling the truth about it.
//!
//! Every reply carries an id of what its server would lose together. When the id that came with a write differs from the
//! one that comes with the sync behind it, the server lost its memory in between, and the write may be gone: `EIO`, once
//! per open file (design §4.1).
//!
//! An fsync covers the inode, not the open file: what was written through any open file of this client
//! ([`crate::inodes`]), and what other clients wrote. **So it goes to all datafiles, also to those that another client laid
//! out**: it carries the generation that this client knows, and the metafile's server refuses an older one (`StaleLayout`).

use crate::core::Operation;
use crate::file::Opened;
use crate::inodes::{Before, generation_known};
use crate::{Error, OpenFile};
use futures_util::future::join_all;
use shoal_proto::{Generation, Handle, Op, Status};

impl OpenFile {
    /// Make all data of the file durable, on all its datafiles at once, through whichever open file it was written.
    ///
    /// # Errors
    /// `Io`: something that this client wrote to the file may be lost; said once through each open file.
    pub async fn fsync(&self) -> Result<(), Error> {
        let file = &self.0;
        let o = file.client.core.begin("fsync", Some(file.handle));
        file.sync(&o).await?;
        if file.report_loss() { Err(lost(&o)) } else { Ok(()) }
    }
}

impl Opened {
    /// Sync all streams; losses are noted.
    async fn sync(&self, o: &Operation) -> Result<(), Error> {
        let before = self.inode.before();
        let mut stale = 0;
        loop {
            match self.sync_streams(o, &before).await {
                Err(error) if error.status == Status::StaleLayout => {
                    stale += 1;
                    if stale > 1 {
                        self.client.core.back_off(o, error).await?;
                    }
                    self.refresh(o).await?;
                }
                // What failed is to be judged by the next sync, so nothing counts as covered.
                Err(error) => return Err(error),
                Ok(()) => {
                    self.inode.covered(&before);
                    return Ok(());
                }
            }
        }
    }

    async fn sync_streams(&self, o: &Operation, before: &Before) -> Result<(), Error> {
        let (core, shape) = (&self.client.core, self.shape());
        let others = shape.layout.iter().flat_map(|layout| layout.datafiles.iter());
        let others = others.filter(|&&stream| stream != self.handle).map(|&stream| (stream, Generation(0)));
        let mut streams: Vec<(Handle, Generation)> = vec![(self.handle, generation_known(&shape))];
        streams.extend(others);
        let all = streams.iter().map(|&(stream, generation)| async move {
            let told = core.ask(o, stream.server(), vec![Op::Fsync { stream, generation }]).await?;
            Ok::<_, Error>((stream.server(), told.loss))
        });
        let mut failed: Option<Error> = None;
        for synced in join_all(all).await {
            match synced {
                Ok((server, loss)) => self.inode.compare(before, server, loss),
                // Another layout is another question: its answer counts.
                Err(error) if failed.is_none() || error.status == Status::StaleLayout => failed = Some(error),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn lost(o: &Operation) -> Error {
    o.error(Status::Io).because(
        "a server lost its memory since this file was written; some of it may be gone, write it again",
    )
}
