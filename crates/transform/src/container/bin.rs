//! The bin (`.shoal` at the root): containers that have no name, as they are being made or were removed.
//!
//! A process that is killed leaves them there. So each process that opens the directory deletes the removed
//! ones of processes that have ended. Those of a process that runs, or may run on another host, stay: its
//! open files live on in them. Recovery deletes those that were being made, too.

use super::living::{Life, Process};
use super::names;
use super::recover::{Allowed, Recovered};
use super::remove::{entries, gone_is_fine};
use super::{Container, Shared};
use crate::limits::LEFTOVERS_LOOKED_AT_MAX;
use crate::writer_id::WriterId;
use shoal_proto::{Handle, Kind, Name, Owner, Status};
use shoal_vfs::{Error, Listing, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

/// How the name of a removed container begins.
const REMOVED: &[u8] = b"gone.";
/// How the names of containers begin that are being made.
const MADE: [&[u8]; 3] = [b"new.", b"compact.", b"held."];

/// Names drawn for one of a place, at most: of 64 places one is found in a thousand draws but for 1 in a
/// million.
const NAME_DRAWS_MAX: u32 = 1000;

/// A container in the bin.
struct Left {
    name: Name,
    object: Handle,
    /// Of the process that put it there.
    life: Life,
}

impl Left {
    fn is_removed(&self) -> bool {
        self.name.as_bytes().starts_with(REMOVED)
    }
}

/// The containers in the bin, at most `most` of them.
async fn left<B: Vfs>(shared: &Shared<B>, most: usize) -> Result<Vec<Left>> {
    let (over, mut left) = (&shared.over, Vec::new());
    let bin = match over.lookup(Handle::ROOT, &names::bin()).await {
        Err(error) if error.status == Status::NotFound => return Ok(left),
        found => found?.handle,
    };
    let mut listing = over.opendir(bin, Duration::from_secs(1));
    while left.len() < most
        && let Some(listed) = listing.next(false).await?
    {
        let (name, object) = (listed.entry.name, listed.entry.handle);
        let is_own = [REMOVED, MADE[0], MADE[1]].iter().any(|own| name.as_bytes().starts_with(own));
        if listed.entry.kind != Kind::Directory || !is_own {
            continue;
        }
        let life = match (Process::of_name(name.as_bytes()), &shared.process) {
            (Some(process), Some(here)) => process.life(here),
            _ => Life::Unknown("its name has no process"),
        };
        left.push(Left { name, object, life });
    }
    Ok(left)
}

/// Delete the containers in the bin: removed ones, and those that were being made when their process was
/// killed. Those of processes that run, or may run, stay.
///
/// # Errors
/// Errors of the file system below.
pub async fn empty_bin<B: Vfs>(container: &Container<B>, allowed: Allowed) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    for Left { name, object, life } in left(&container.0, usize::MAX).await? {
        if life == Life::Ended || (allowed.ended && life != Life::Runs) {
            container.delete_in_bin(&name, object).await?;
            recovered.deleted += 1;
        } else {
            recovered.kept += 1;
        }
    }
    Ok(recovered)
}

/// The containers that processes left in the bin, in words. Those of processes that run are no leftovers.
///
/// # Errors
/// Errors of the file system below.
pub async fn leftovers<B: Vfs>(container: &Container<B>) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for left in left(&container.0, usize::MAX).await? {
        let process = match left.life {
            Life::Runs => continue,
            Life::Ended => "its process has ended: `shoal container recover DIR` deletes it".to_owned(),
            Life::Unknown(why) => {
                format!("its process may run ({why}); if it has ended: `shoal container recover DIR --ended`")
            }
        };
        let kind = if left.is_removed() { "a removed file" } else { "a file that was being made" };
        let stored = match stored(&container.0.over, left.object).await {
            Ok(bytes) => format!("{bytes} bytes"),
            Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => continue,
            Err(error) => error.to_string(),
        };
        let name = String::from_utf8_lossy(left.name.as_bytes()).into_owned();
        words.push(format!(".shoal/{name}: {kind}, {stored}; {process}"));
    }
    Ok(words)
}

/// Bytes of the data logs of a container in the bin.
async fn stored<B: Vfs>(over: &B, object: Handle) -> Result<u64> {
    let mut bytes = 0;
    for (_, kind, folder) in entries(over, object).await? {
        if kind != Kind::Directory {
            continue;
        }
        for (name, _, log) in entries(over, folder).await? {
            if name.as_bytes().starts_with(b"data.") {
                bytes += over.getattr(log).await?.size;
            }
        }
    }
    Ok(bytes)
}

impl<B: Vfs> Container<B> {
    /// A process begins to use the directory. `awaits_deletions`: it may end after any call.
    ///
    /// The removed containers that ended processes left are deleted. That costs a look-up and the beginning
    /// of a listing. In a bucket it is not done.
    pub(crate) async fn is_used(&self, awaits_deletions: bool) {
        let shared = &self.0;
        shared.awaits_deletions.set(awaits_deletions);
        if !shared.outlives_its_process() {
            return;
        }
        if awaits_deletions {
            return shared.sweep().await;
        }
        let shared = shared.clone();
        shared.closes.set(shared.closes.get() + 1);
        shared.env.clone().spawn("delete leftovers", async move {
            shared.sweep().await;
            shared.closes.set(shared.closes.get() - 1);
            shared.removed.wake_all();
        });
    }
}

impl<B: Vfs> Shared<B> {
    /// The directory of containers that have no name, made if it is missing.
    pub(crate) async fn bin(&self) -> Result<Handle> {
        if let Some(bin) = self.bin.get() {
            return Ok(bin);
        }
        let name = names::bin();
        let owner = Owner { mode: 0o1777, uid: 0, gid: 0 };
        let found = match self.over.lookup(Handle::ROOT, &name).await {
            Err(error) if error.status == Status::NotFound => {
                match self.over.mkdir(Handle::ROOT, &name, owner).await {
                    Err(error) if error.status == Status::Exists => {
                        self.over.lookup(Handle::ROOT, &name).await
                    }
                    made => made,
                }
            }
            found => found,
        }?;
        if self.over.lookup(found.handle, &names::record()).await.is_ok() || found.kind != Kind::Directory {
            let words = "`.shoal` at its root is not a directory of this program: move it away";
            return Err(Error::new(Status::NotDirectory, "open").because(words));
        }
        self.knows(&found, false);
        self.bin.set(Some(found.handle));
        Ok(found.handle)
    }

    /// A name that nothing has, with this process in it. Over several backends it lies where `like` does, so
    /// that a rename of one to the other is one of that backend.
    pub(crate) fn draw_name(&self, prefix: &str, like: &Name) -> Result<Name> {
        let process = self.process.as_ref().map(|process| format!(".{}", process.suffix()));
        let (process, place) = (process.unwrap_or_default(), self.over.place_of(like));
        let draw = || names::name(&format!("{prefix}.{}{process}", WriterId::draw(&self.env)));
        for _ in 0..NAME_DRAWS_MAX {
            let name = draw()?;
            if self.over.place_of(&name) == place {
                return Ok(name);
            }
        }
        draw()
    }

    /// Delete what ended processes removed. Some may be another user's: those stay.
    async fn sweep(self: &Rc<Self>) {
        let found = left(self, LEFTOVERS_LOOKED_AT_MAX).await.unwrap_or_default();
        for left in found.iter().filter(|left| left.is_removed() && left.life == Life::Ended) {
            if let Err(error) = self.delete_named(&left.name, left.object).await {
                tracing::debug!("a leftover stays in `.shoal`: {error}");
            }
        }
    }
}

impl<B: Vfs> Container<B> {
    /// Remove the bin of a root that is empty for its users, so that the root's directory can be removed.
    ///
    /// # Errors
    /// `NotEmpty`: it has entries, or the bin has a file that is still open, or that a process is making or
    /// removing.
    pub(crate) async fn clear_root(&self) -> Result<()> {
        let (shared, over) = (&self.0, &self.0.over);
        let refused = || Error::new(Status::NotEmpty, "rmdir");
        if self.opendir(Handle::ROOT, Duration::ZERO).next(false).await?.is_some() {
            return Err(refused());
        }
        let bin = names::bin();
        if over.lookup(Handle::ROOT, &bin).await.is_err_and(|error| error.status == Status::NotFound) {
            return Ok(());
        }
        let removed = shared.env.deadline(self.deadline(), shared.removals_ended()).await;
        for pause in BIN_PAUSES {
            if removed.is_ok() {
                empty_bin(self, Allowed::default()).await?;
            }
            shared.bin.set(None);
            match over.rmdir(Handle::ROOT, &bin).await {
                Err(error) if error.status == Status::NotEmpty => shared.env.sleep(pause).await,
                removed => return gone_is_fine(removed),
            }
        }
        let words = "files in it were removed and are still open, or a process that runs, or may run, is making or \
                     removing some: close them; `shoal container recover` removes what killed processes left";
        Err(refused().because(words))
    }
}

/// Before the bin is looked at again, in which other processes have files.
const BIN_PAUSES: [Duration; 4] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(300), Duration::ZERO];
