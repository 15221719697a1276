//! Gives a file a further name.

use super::attr_among;
use crate::{Client, Error};
use shoal_proto::{Attr, Handle, Name, Op};

impl Client {
    /// Give a file a further name; its attributes after it, merged.
    ///
    /// # Errors
    /// `Exists`, `NotPermitted` (a directory), `TooManyLinks`, `NotDirectory`, `Stale`.
    pub async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr, Error> {
        let o = self.begin("link", Some(object));
        let told = self.core.ask(&o, dir.server(), vec![Op::Link { object, dir, name: name.clone() }]).await;
        {
            let mut cache = self.core.cache.borrow_mut();
            cache.changed_name(dir, name);
            cache.changed(object);
        }
        match attr_among(&told?.answers).filter(|attr| attr.handle == object) {
            Some(attr) => self.core.made(&o, dir, name, attr).await,
            None => self.core.getattr_anew(&o, object).await,
        }
    }
}
