//! Appending: the server gives the place (design §4.5).

use crate::{Error, OpenFile};
use bytes::Bytes;
use shoal_proto::op::Answer;
use shoal_proto::{Op, Rights, Status, limits};

impl OpenFile {
    /// Append all of `data` at the end of the file, whoever else appends; the offset it got. It is one message, so at most
    /// [`limits::BULK_BYTES_MAX`] bytes: cut, it would not be one append.
    ///
    /// # Errors
    /// `OverLimit`: more than that; as [`OpenFile::write`].
    pub async fn append(&self, data: Bytes) -> Result<u64, Error> {
        let file = &self.0;
        let o = file.client.core.begin("append", Some(file.handle));
        if data.len() > limits::BULK_BYTES_MAX {
            let words = format!("an append has at most {} bytes; append in parts", limits::BULK_BYTES_MAX);
            return Err(o.error(Status::OverLimit).because(words));
        }
        let (server, len) = (file.handle.server(), data.len() as u32);
        let mut tries = 0;
        let (o, tries, data) = (&o, std::cell::Cell::from_mut(&mut tries), &data);
        let result = file
            .with_shape(o, Rights::WRITE, async |shape| {
                // Refused once for its layout and still stuffed: it has to be laid out for this.
                if tries.replace(tries.get() + 1) > 0 && shape.layout.is_none() {
                    file.unstuff(o).await?;
                }
                let op = Op::Append { object: file.handle, capability: file.capability(), len };
                let told = file.client.core.ask_with(o, server, vec![op], vec![data.clone()], 0).await?;
                file.written(server, told.loss);
                match told.answers.first() {
                    Some(&Answer::Appended { offset, .. }) => Ok(offset),
                    _ => Err(o.error(Status::BadMessage).from(server).because("no offset in its answer")),
                }
            })
            .await;
        file.touched();
        result
    }
}
