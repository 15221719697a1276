//! Move an entry.

use crate::cache::Leads;
use crate::{Client, Error, RenameFlags};
use shoal_proto::{Handle, Name, Op, Status};

impl Client {
    /// Move an entry; a replaced object is removed (kept until its last close, if it is held open here).
    ///
    /// # Errors
    /// `NotFound`, `Exists` (`no_replace`), `NotEmpty`, `IsDirectory`, `NotDirectory`, `Invalid` (into
    /// itself).
    pub async fn rename(
        &self,
        from_dir: Handle,
        from_name: &Name,
        to_dir: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        let o = self.begin("rename", Some(from_dir));
        if flags.no_replace && flags.exchange {
            return Err(o.error(Status::Invalid));
        }
        let held = self.core.held.borrow().to_tell();
        let op = Op::Rename {
            from_dir,
            from_name: from_name.clone(),
            to_dir,
            to_name: to_name.clone(),
            no_replace: flags.no_replace,
            exchange: flags.exchange,
            held,
        };
        let told = self.core.ask(&o, to_dir.server(), vec![op]).await;
        {
            let mut cache = self.core.cache.borrow_mut();
            // The moved object's time of change is new, and a moved directory's parent.
            for (dir, name) in [(from_dir, from_name), (to_dir, to_name)] {
                if let Some(Leads::To(object, _)) = cache.name_once(dir, name) {
                    cache.changed(object);
                }
                cache.changed_name(dir, name);
            }
        }
        self.removed(&o, &told?.answers).await
    }
}
