//! Target of a symbolic link.

use crate::core::{Core, Operation};
use crate::{Client, Error};
use bytes::Bytes;
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Op, Status};
use std::rc::Rc;

impl Client {
    /// Target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid`: it is no symbolic link.
    pub async fn readlink(&self, object: Handle) -> Result<Bytes, Error> {
        let o = self.core.begin("readlink", Some(object));
        self.core.readlink(&o, object).await
    }
}

impl Core {
    pub(crate) async fn readlink(self: &Rc<Core>, o: &Operation, object: Handle) -> Result<Bytes, Error> {
        let told = self.ask(o, object.server(), vec![Op::Readlink { object }]).await?;
        match told.answers.into_iter().next() {
            Some(Answer::Bytes { bytes }) => Ok(bytes.0),
            _ => Err(o.error(Status::BadMessage).from(object.server()).because("no target in its answer")),
        }
    }
}
