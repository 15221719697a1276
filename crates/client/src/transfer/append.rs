//! Appending: the server chooses the offset (the server's `data::append`).
//!
//! In a file laid out over servers the metafile's server writes the data to the other servers, and its
//! answer does not hold their *loss ids* (a server's loss id changes when it has lost its memory). So the
//! client requests the loss ids before it sends the append, keeps them while the append is under way, and
//! notes them when the append is acknowledged. A later sync compares them, and so finds a server that has
//! lost its memory since. A sync that ends while the append is under way does not remove these ids. If the
//! client still treats a laid-out file as stuffed, the server refuses the append, and the client fetches
//! the layout before it tries again.

use crate::core::Operation;
use crate::file::{Opened, Shape};
use crate::{Error, OpenFile};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_proto::message::Loss;
use shoal_proto::op::Answer;
use shoal_proto::{Durability, Layout, Op, Rights, ServerId, Status, limits};

impl OpenFile {
    /// Append all of `data` at the end of the file, also while others append; returns its offset. It is one
    /// message, so at most [`limits::BULK_BYTES_MAX`] bytes: cut, it would not be one append.
    ///
    /// # Errors
    /// `OverLimit`: more than that; as [`OpenFile::write`].
    pub async fn append(&self, data: Bytes) -> Result<u64, Error> {
        let file = &self.0;
        let o = file.client.begin("append", Some(file.handle));
        if data.len() > limits::BULK_BYTES_MAX {
            let words = format!("an append has at most {} bytes; append in parts", limits::BULK_BYTES_MAX);
            return Err(o.error(Status::OverLimit).because(words));
        }
        let (server, len) = (file.handle.server(), data.len() as u32);
        let mut tries = 0;
        let (o, tries, data) = (&o, std::cell::Cell::from_mut(&mut tries), &data);
        let fit = async |shape: Shape| {
            // Refused once for its layout and still stuffed: it has to be laid out for this.
            let is_refused = tries.replace(tries.get() + 1) > 0;
            if is_refused && shape.layout.is_none() { file.laid_out(o).await } else { Ok(shape) }
        };
        let result = file
            .with_shape(o, Rights::WRITE, fit, async |shape| {
                let others = match &shape.layout {
                    Some(layout) => file.losses_of_others(o, layout).await?,
                    None => Vec::new(),
                };
                file.client.core.rendezvous(o, file.handle).await?;
                // The fsync after it makes the bytes on other servers durable.
                let apart = o.with(without_sync(o.durability));
                let o = if shape.layout.is_some() { &apart } else { o };
                let laid_out = shape.layout.is_some();
                let op = Op::Append { object: file.handle, capability: file.capability(), len, laid_out };
                let told = file.client.core.ask_with(o, server, vec![op], vec![data.clone()], 0).await?;
                file.inode.written(server, told.loss);
                others.iter().for_each(|&(server, loss)| file.inode.written_since(server, loss));
                match told.answers.first() {
                    Some(&Answer::Appended { offset, .. }) => {
                        Ok((offset, [&others[..], &[(server, told.loss)]].concat()))
                    }
                    _ => Err(o.error(Status::BadMessage).from(server).because("no offset in its answer")),
                }
            })
            .await;
        file.touched();
        let (offset, own) = result?;
        if o.durability == Durability::Durable && file.shape().layout.is_some() {
            file.fsync(&own).await?;
        }
        Ok(offset)
    }
}

/// A durable append is one that is written, and a sync.
fn without_sync(durability: Durability) -> Durability {
    if durability == Durability::Durable { Durability::Written } else { durability }
}

impl Opened {
    /// The loss ids of all servers but the metafile's that an append may write to, as they are before it. The
    /// metafile's server has its shares written there as the modes say, whatever the append asks for.
    async fn losses_of_others(&self, o: &Operation, layout: &Layout) -> Result<Vec<(ServerId, Loss)>, Error> {
        let home = self.handle.server();
        let others = layout.datafiles.iter().filter(|stream| stream.server() != home);
        let o = &o.with(Durability::Usual);
        let ids = others.map(|&stream| async move {
            let server = stream.server();
            let loss = match self.inode.loss_of(server) {
                Some(loss) => loss,
                None => {
                    let loss = self.client.core.ask(o, server, vec![Op::Streamstat { stream }]).await?.loss;
                    self.inode.asked(server, loss);
                    loss
                }
            };
            Ok((server, loss))
        });
        join_all(ids).await.into_iter().collect()
    }
}
