//! Remove entries: unlink, rmdir and rmforked.

use crate::core::Core;
use crate::{Client, Error};
use shoal_proto::message::VERSION_OF_WHOLE_REMOVALS;
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Name, Op, Status};
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

    /// Remove a forked file with all its subfiles, all at once or nothing; `file`: the file that the name
    /// must lead to.
    ///
    /// # Errors
    /// `NotFound`: the name does not lead to it; `Invalid`: it is no forked file; `NotEmpty`: a subfile has
    /// forks; `NotSupported`: its server is of an older version, and removes subfiles one by one.
    pub async fn rmforked(&self, dir: Handle, name: &Name, file: Handle) -> Result<(), Error> {
        let o = self.begin("rmforked", Some(file));
        let server = file.server();
        if self.core.version_of(server) < VERSION_OF_WHOLE_REMOVALS {
            let words = "a server of an older version removes the subfiles of a forked file one by one";
            return Err(o.error(Status::NotSupported).from(server).because(words));
        }
        let op = Op::Rmforked { dir, name: name.clone(), object: file };
        let told = self.core.ask(&o, server, vec![op]).await;
        self.core.cache.borrow_mut().changed_name(dir, name);
        match told {
            Ok(told) => self.removed(&o, &told.answers).await,
            // Removed meanwhile: so is its name.
            Err(error) if error.status == Status::Stale => Err(o.error(Status::NotFound).from(server)),
            Err(error) => Err(error),
        }
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
