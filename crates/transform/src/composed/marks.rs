//! Exclusive creation of names: of several processes that make the same name, only one succeeds.
//!
//! ```text
//!   1. make the marker of the name             if it exists, another process makes the name: `Exists`
//!   2. read the records published since        if the name is there, remove the marker: `Exists`
//!   3. log the name, publish it, remove the marker
//! ```
//!
//! If two processes make the same name, only one of them can make the marker. The second process may make
//! the marker after the first has removed it. But the first process published the name before that, so step
//! 2 of the second process finds the name. A marker holds the number of the object that is being made: an
//! open without `O_EXCL` that meets the marker uses the same object.

use super::{Marked, Shared, names_of};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Name, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::rc::Rc;

/// Tries to make a marker that others make and give back.
const TRIES_MAX: u32 = 100;

/// The state of a name that is to be made.
pub(super) enum Claimed {
    /// The name is free, and this process's until it is published; `None`: nothing holds it.
    Own(Option<Marked>),
    /// The name leads to an object already.
    Taken(u64),
    /// Another process is making it, as this object.
    Making(u64),
}

impl<B: Vfs> Shared<B> {
    /// Claim a name for a new object. This process changes no names meanwhile.
    pub(super) async fn claim_name(self: &Rc<Self>, dir: u64, name: &Name, object: u64) -> Result<Claimed> {
        let known = || self.names.borrow().find(dir, name);
        if let Some(taken) = known() {
            return Ok(Claimed::Taken(taken));
        }
        if self.own_names || mutant::is(Mutant::NameWithoutMarker) {
            return Ok(Claimed::Own(None));
        }
        self.hold().await?;
        let mark = names_of::mark(dir, name)?;
        let target = format!("{}.{object:x}", self.log.id.get());
        for _ in 0..TRIES_MAX {
            match self.over.symlink(self.marks, &mark, self.owner, target.as_bytes()).await {
                Ok(_) => {}
                Err(error) if error.status == Status::Exists => {
                    let by = match self.over.lookup(self.marks, &mark).await {
                        Ok(found) => self.over.readlink(found.handle).await,
                        Err(error) => Err(error),
                    };
                    match by {
                        // The reply to this writer's own try was lost.
                        Ok(by) if by == target => {}
                        Ok(by) => {
                            self.refresh().await?;
                            if let Some(taken) = known() {
                                return Ok(Claimed::Taken(taken));
                            }
                            match names_of::marked(&by) {
                                Some((_, making)) => return Ok(Claimed::Making(making)),
                                None => return Err(foreign(&mark)),
                            }
                        }
                        // Given back meanwhile.
                        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => continue,
                        Err(error) if error.status == Status::Invalid => return Err(foreign(&mark)),
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            let fresh = self.refresh().await;
            if let Some(taken) = known() {
                self.give_back(&mark).await;
                return Ok(Claimed::Taken(taken));
            }
            if let Err(error) = fresh {
                self.give_back(&mark).await;
                return Err(error);
            }
            return Ok(Claimed::Own(Some((mark, object))));
        }
        Err(Error::new(Status::Busy, "create").because("others make and remove it all the time"))
    }

    /// The name was logged: its marker is given back when that is published.
    pub(super) fn logged(&self, marked: Option<Marked>) {
        if let Some((mark, _)) = marked {
            self.log.holds_mark(mark);
        }
    }

    /// The name was not logged.
    pub(super) async fn not_logged(&self, marked: Option<Marked>) {
        if let Some((mark, _)) = marked {
            self.give_back(&mark).await;
        }
    }

    async fn give_back(&self, mark: &Name) {
        if let Err(error) = self.over.unlink(self.marks, mark).await {
            tracing::warn!("a name's marker is left: {error}");
        }
    }
}

fn foreign(mark: &Name) -> Error {
    let words = format!("`names/{mark}` is not a marker of this program: move it away");
    Error::new(Status::Io, "create").because(words)
}
