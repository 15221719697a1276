//! Remove entries: unlink and rmdir.

use crate::core::Core;
use crate::{Client, Error};
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Name, Op};
use std::rc::Rc;

impl Client {
    /// Have each object reported that loses a name by a call of this client for one entry (unlink, rmdir, a
    /// rename that replaces), before the call ends.
    pub fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
        self.core.cache.borrow_mut().on_removal = Some(Rc::new(listener));
    }

    /// Remove an entry that is no directory. A file held open here lives on until its last close.
    ///
    /// # Errors
    /// `NotFound`, `IsDirectory`, `NotDirectory`, `Stale`.
    pub async fn unlink(&self, dir: Handle, name: &Name) -> Result<(), Error> {
        let o = self.begin("unlink", Some(dir));
        if !self.core.switches().compound {
            return Box::pin(self.core.unlink_apart(&o, dir, name)).await;
        }
        let held = self.core.held.borrow().to_tell();
        let told = self.core.ask_in_directory(&o, dir, Op::Unlink { dir, name: name.clone(), held }).await;
        self.core.cache.borrow_mut().changed_name(dir, name);
        self.removed(&o, &told?.answers).await
    }

    /// Remove an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDirectory`, `NotEmpty`, `Stale`.
    pub async fn rmdir(&self, dir: Handle, name: &Name) -> Result<(), Error> {
        let o = self.begin("rmdir", Some(dir));
        let told = self.core.ask(&o, dir.server(), vec![Op::Rmdir { dir, name: name.clone() }]).await;
        self.core.cache.borrow_mut().changed_name(dir, name);
        self.removed(&o, &told?.answers).await
    }

    /// Drop an object that an answer reports as removed from the cache, and release it if it is an orphan
    /// that is not held.
    pub(crate) async fn removed(&self, o: &crate::core::Operation, answers: &[Answer]) -> Result<(), Error> {
        for answer in answers {
            if let Answer::Removed { handle, orphaned, .. } = *answer {
                self.core.lost_a_name(handle);
                if orphaned {
                    Box::pin(self.core.orphaned(o, handle)).await?;
                }
            }
        }
        Ok(())
    }
}

impl Core {
    /// An object has lost a name: drop its cached facts.
    pub(crate) fn lost_a_name(&self, object: Handle) {
        let listener = {
            let mut cache = self.cache.borrow_mut();
            cache.changed(object);
            cache.on_removal.clone()
        };
        if let Some(listener) = listener {
            listener(object);
        }
    }
}
