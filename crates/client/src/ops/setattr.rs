//! Change attributes.

use super::attr_among;
use crate::core::{Core, Operation, Told};
use crate::{Client, Error};
use shoal_proto::{Attr, Durability, Handle, Op, SetAttr};

impl Client {
    /// Change attributes; those after it, merged.
    ///
    /// # Errors
    /// `Stale`: the object is gone.
    pub async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr, Error> {
        let o = self.begin("setattr", Some(object));
        let told = self.core.ask(&o, object.server(), vec![Op::Setattr { object, set }]).await?;
        self.core.changed_attributes(&o, object, &told);
        self.core.inherited.borrow_mut().pop(&object);
        match attr_among(&told.answers) {
            Some(attr) => self.core.changed_to(&o, attr).await,
            None => self.core.getattr_anew(&o, object).await,
        }
    }
}

impl Core {
    /// A server answered that it has changed attributes of an object. Unless it was asked for more, a power cut may take that for a
    /// moment: the next fsync of the object must find it.
    pub(crate) fn changed_attributes(&self, o: &Operation, object: Handle, told: &Told) {
        self.cache.borrow_mut().changed(object);
        if o.durability != Durability::Durable {
            self.inodes.borrow_mut().written(object, told.server, told.loss);
        }
    }
}
