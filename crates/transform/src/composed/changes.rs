//! Notification of changes between the processes of a machine: `changes`, a file of eight bytes.
//!
//! A process that has published records writes a random number to this file. Each process that may write
//! reads the number before it looks a name up. That is a read of eight bytes; a check of all claims would
//! cost one call for each claim. So a process sees at once the changes that another process made before, as
//! a shell sees a removal by its child. The first process that publishes each write (`shoal run`) makes the
//! file. A process that began before the file existed, or that only reads, does not use the file: a name
//! that it knows may be 100 ms old.
//!
//! ```text
//!   process A   writes records into its block ─▶ changes := 0x7f31…
//!   process B   reads a new number in `changes` ─▶ reads the new records ─▶ the name
//! ```
//! **The number is read before the records**: a change in between is found the next time. Over a file system
//! that caches (NFS) the number of another machine arrives late, so a known name may be as old as the cache
//! time.
//!
//! The lock of this file serializes the appends of several processes: each append begins at the end of the
//! append before it.

use super::{Shared, names_of};
use bytes::Bytes;
use shoal_proto::{Handle, Owner, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// An append waits so long for the others, and looks so often.
const ALONE_MAX: Duration = Duration::from_secs(30);
const ALONE_PAUSE: Duration = Duration::from_micros(300);

/// The file, and the number in it when all that was published was read last.
pub(crate) struct Changes<F> {
    file: F,
    seen: Cell<u64>,
}

/// The file of a directory; made if it is `wanted`.
pub(super) async fn open<B: Vfs>(over: &B, owner: Owner, wanted: bool) -> Result<Option<Changes<B::File>>> {
    let (name, rights) = (names_of::name(names_of::CHANGES)?, Rights::READ | Rights::WRITE);
    let file = match wanted {
        true => over.create(Handle::ROOT, &name, owner, false, rights).await?.2,
        false => match over.open_name(Handle::ROOT, &name, rights).await {
            Ok(file) => file,
            // Those that may only read the directory see changes later.
            Err(_) => return Ok(None),
        },
    };
    Ok(Some(Changes { file, seen: Cell::new(0) }))
}

impl<B: Vfs> Shared<B> {
    /// Records were published.
    pub(super) async fn announce(&self) {
        let Some(changes) = &self.changes else { return };
        let number = Bytes::copy_from_slice(&(self.env.random_u64() | 1).to_le_bytes());
        if let Err(error) = changes.file.write(0, number).await {
            tracing::warn!("other processes see a change later: {error}");
        }
    }

    /// Read what was published, unless nothing was since, or that is not known and was done within this span.
    pub(super) async fn look(self: &Rc<Self>, span: Duration) -> Result<()> {
        let number = match &self.changes {
            Some(changes) => {
                let bytes = changes.file.read(0, 8).await?;
                bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
            }
            None => 0,
        };
        let is_known = self.changes.as_ref().is_none_or(|changes| changes.seen.get() == number);
        if is_known && self.env.now() < self.looked_at.get() + span {
            return Ok(());
        }
        self.looked_at.set(self.env.now());
        self.refresh().await?;
        if let Some(changes) = &self.changes {
            changes.seen.set(number);
        }
        Ok(())
    }

    /// No other process appends until the result is closed. `None`: nothing tells of other processes.
    pub(super) async fn alone(self: &Rc<Self>) -> Result<Option<B::File>> {
        if self.changes.is_none() {
            return Ok(None);
        }
        let name = names_of::name(names_of::CHANGES)?;
        let file = self.over.open_name(self.root, &name, Rights::READ | Rights::WRITE).await?;
        let until = self.env.now() + ALONE_MAX;
        loop {
            match file.hold_alone().await {
                Ok(true) => return Ok(Some(file)),
                Err(error) if error.status == Status::NotSupported => return Ok(Some(file)),
                Ok(false) if self.env.now() < until => self.env.sleep(ALONE_PAUSE).await,
                Ok(false) => {
                    let words = "another process holds `changes`, as for an append, all the time";
                    return Err(Error::new(Status::TimedOut, "append").because(words));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
