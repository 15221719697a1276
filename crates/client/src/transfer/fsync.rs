//! Making a file durable, and telling the truth about it.
//!
//! Every reply carries an id of what its server would lose together. When the id that came with a write differs from the
//! one that comes with the sync behind it, the server lost its memory in between, and the write may be gone: `EIO`, once
//! per open file (design §4.1).

use crate::core::Operation;
use crate::{Error, OpenFile};
use futures_util::future::join_all;
use shoal_proto::{Handle, Op, Status};

impl OpenFile {
    /// Make all data of the file durable, on all its datafiles at once.
    ///
    /// # Errors
    /// `Io`: something written through this open file since its last fsync may be lost; said once.
    pub async fn fsync(&self) -> Result<(), Error> {
        let file = &self.0;
        let core = &file.client.core;
        let o = core.begin("fsync", Some(file.handle));
        let written = file.take_losses();
        let shape = file.shape();
        let mut streams: Vec<Handle> = match &shape.layout {
            Some(layout) => layout.datafiles.to_vec(),
            None => Vec::new(),
        };
        if !streams.contains(&file.handle) {
            streams.push(file.handle);
        }
        let o = &o;
        let all = streams.iter().map(|&stream| async move {
            let told = core.ask(o, stream.server(), vec![Op::Fsync { stream }]).await?;
            Ok((stream.server(), told.loss))
        });
        let mut failed = None;
        for synced in join_all(all).await {
            match synced {
                Ok((server, loss)) if written.get(&server).is_some_and(|&before| before != loss) => {
                    file.note_lost()
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            // The next one is to judge these writes.
            file.put_back_losses(written);
            return Err(error);
        }
        if file.take_lost() { Err(lost(o)) } else { Ok(()) }
    }
}

fn lost(o: &Operation) -> Error {
    o.error(Status::Io).because(
        "a server lost its memory since this file was written; some of it may be gone, write it again",
    )
}
