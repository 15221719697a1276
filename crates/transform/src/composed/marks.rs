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
//!
//! **A call that is given up leaves no marker.** Its future may be dropped at any of these steps. Then a
//! task looks for the marker, and removes it if it names the object of that call. The task waits for its
//! turn among the calls that change names, because a retry of the call may use the same marker.

use super::{Shared, names_of};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Name, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::rc::Rc;

/// Tries to make a marker that others make and give back.
const TRIES_MAX: u32 = 100;

/// A marker that a call has made, or tries to make.
pub(super) struct Marker<B: Vfs> {
    shared: Rc<Shared<B>>,
    name: Name,
    /// Its target, which no other call's has.
    target: String,
    /// It is given back, or with what is published next; or it is another's.
    is_settled: bool,
}

impl<B: Vfs> Drop for Marker<B> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (shared, name) = (self.shared.clone(), self.name.clone());
        let target = std::mem::take(&mut self.target);
        self.shared.env.spawn("give a name's marker back", async move {
            let _turn = shared.naming.acquire(1).await;
            // It goes when the name is published that a retry has logged.
            if shared.log.awaits_mark(&name) {
                return;
            }
            let found = match shared.over.lookup(shared.marks, &name).await {
                Ok(found) => shared.over.readlink(found.handle).await,
                Err(error) => Err(error),
            };
            if found.is_ok_and(|by| by == target) {
                shared.give_back(&name).await;
            }
        });
    }
}

/// The state of a name that is to be made.
pub(super) enum Claimed<B: Vfs> {
    /// The name is free, and this process's until it is published; `None`: nothing holds it.
    Own(Option<Marker<B>>),
    /// The name leads to an object already.
    Taken(u64),
    /// Another process is making it, as this object.
    Making(u64),
}

impl<B: Vfs> Shared<B> {
    /// Claim a name for a new object. This process changes no names meanwhile.
    pub(super) async fn claim_name(
        self: &Rc<Self>,
        dir: u64,
        name: &Name,
        object: u64,
    ) -> Result<Claimed<B>> {
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
        let marker =
            || Marker { shared: self.clone(), name: mark.clone(), target: target.clone(), is_settled: false };
        for _ in 0..TRIES_MAX {
            let mut marker = marker();
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
                            marker.is_settled = true;
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
                        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => {
                            marker.is_settled = true;
                            continue;
                        }
                        Err(error) if error.status == Status::Invalid => {
                            marker.is_settled = true;
                            return Err(foreign(&mark));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
            let fresh = self.refresh().await;
            if let Some(taken) = known() {
                self.not_logged(Some(marker)).await;
                return Ok(Claimed::Taken(taken));
            }
            if let Err(error) = fresh {
                self.not_logged(Some(marker)).await;
                return Err(error);
            }
            return Ok(Claimed::Own(Some(marker)));
        }
        Err(Error::new(Status::Busy, "create").because("others make and remove it all the time"))
    }

    /// The name was logged: its marker is given back when that is published.
    pub(super) fn logged(&self, marker: Option<Marker<B>>) {
        if let Some(mut marker) = marker {
            marker.is_settled = true;
            self.log.holds_mark(marker.name.clone());
        }
    }

    /// The name was not logged.
    pub(super) async fn not_logged(&self, marker: Option<Marker<B>>) {
        if let Some(mut marker) = marker {
            self.give_back(&marker.name).await;
            marker.is_settled = true;
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
