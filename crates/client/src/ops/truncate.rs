//! Set the size of a file.

use super::attr_among;
use crate::{Client, Error};
use shoal_proto::{Attr, Handle, Op, Status, limits};

impl Client {
    /// Set the size; the attributes after it, merged. `kill_privileges`: clear set-user-id and set-group-id,
    /// as for a user other than root.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` (no regular file), `FileTooBig`, `Stale`.
    pub async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr, Error> {
        let o = self.begin("truncate", Some(object));
        if size > limits::FILE_BYTES_MAX {
            return Err(o.error(Status::FileTooBig));
        }
        let op = Op::Truncate { object, size, kill_privileges };
        let told = match self.core.ask(&o, object.server(), vec![op.clone()]).await {
            // It is stuffed and would outgrow its first strip: it has to be laid out for this.
            Err(error) if error.status == Status::StaleLayout => {
                self.core.ask(&o, object.server(), vec![Op::Unstuff { object }]).await?;
                self.core.ask(&o, object.server(), vec![op]).await?
            }
            other => other?,
        };
        self.core.cache.borrow_mut().changed(object);
        match attr_among(&told.answers) {
            Some(attr) => self.core.changed_to(&o, attr).await,
            None => self.core.getattr_anew(&o, object).await,
        }
    }
}
