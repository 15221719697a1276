//! How new files are to be laid out.

use crate::{Client, Error};
use shoal_proto::{Handle, Op, Template};

impl Client {
    /// Set the template of a directory's new files, or of an empty file.
    ///
    /// # Errors
    /// `Invalid`: the file is not empty.
    pub async fn setlayout(&self, object: Handle, template: Template) -> Result<(), Error> {
        let o = self.begin("setlayout", Some(object));
        self.core.ask(&o, object.server(), vec![Op::Setlayout { object, template }]).await?;
        self.core.cache.borrow_mut().changed(object);
        self.core.inherited.borrow_mut().pop(&object);
        Ok(())
    }
}
