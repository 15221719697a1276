//! Set the size of a file.

use super::attr_among;
use crate::{Client, Error};
use shoal_proto::{Attr, Handle, Op, Status, limits};

impl Client {
    /// Set the size; the attributes after it, merged. `kill_privileges`: clear set-user-id and set-group-id,
    /// as for a user other than root.
    ///
    /// # Errors
    /// `IsDirectory`, `Invalid` (no regular file), `FileTooBig`, `Stale`; `TimedOut` where its layout is lost
    /// again and again.
    pub async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr, Error> {
        let o = self.begin("truncate", Some(object));
        if size > limits::FILE_BYTES_MAX {
            return Err(o.error(Status::FileTooBig));
        }
        let op = Op::Truncate { object, size, kill_privileges };
        let mut tries = 0;
        let done = loop {
            match self.core.ask(&o, object.server(), vec![op.clone()]).await {
                // It is stuffed and would outgrow its first strip: it has to be laid out for this. Where
                // metadata is never synced, a power cut between the two takes the layout back.
                Err(error) if error.status == Status::StaleLayout => {
                    tries += 1;
                    if tries > 1 {
                        self.core.back_off(&o, error).await?;
                    }
                    self.core.ask(&o, object.server(), vec![Op::Unstuff { object }]).await?;
                }
                other => break other?,
            }
        };
        self.core.cache.borrow_mut().changed(object);
        match attr_among(&done.answers) {
            Some(attr) => self.core.changed_to(&o, attr).await,
            None => self.core.getattr_anew(&o, object).await,
        }
    }
}
