//! Change attributes.

use super::attr_among;
use crate::{Client, Error};
use shoal_proto::{Attr, Handle, Op, SetAttr};

impl Client {
    /// Change attributes; those after it, merged.
    ///
    /// # Errors
    /// `Stale`: the object is gone.
    pub async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr, Error> {
        let o = self.begin("setattr", Some(object));
        let told = self.core.ask(&o, object.server(), vec![Op::Setattr { object, set }]).await?;
        self.core.cache.borrow_mut().changed(object);
        self.core.inherited.borrow_mut().pop(&object);
        match attr_among(&told.answers) {
            Some(attr) => self.core.changed_to(&o, attr).await,
            None => self.core.getattr_anew(&o, object).await,
        }
    }
}
