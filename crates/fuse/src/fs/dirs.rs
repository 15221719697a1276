//! Open directories.
//!
//! With attributes (readdirplus) a listing answers the lookups that follow it. But entries come in batches,
//! some of them read ahead. A file may be written through this mount while its entry waits in a batch; with
//! the earlier attributes the kernel would set the file back to its former size. **Attributes that were
//! requested before the object was last changed through this mount are requested again.** The kernel caches
//! attributes only for the rest of their cache time, counted from their request. A name that was made,
//! removed or moved through this mount since its entry was requested is returned with a cache time of zero.
//!
//! **A server that does not answer delays a listing by [`PATIENCE`] at most**: entries of its objects are
//! returned without attributes. If a program needs the attributes, the kernel looks the name up, and the
//! program gets the server's error.

use super::ahead::{PACE, PAUSES_MAX, Wanted};
use super::listing::{Listed, Listing, Source};
use super::{Errno, Fs, Result};
use bytes::Bytes;
use shoal_env::local::Semaphore;
use shoal_proto::{Handle, Kind};
use shoal_vfs::{Listed as Fetched, Listing as _, Vfs};
use std::cell::RefCell;
use std::time::Duration;

/// How long a listing waits for attributes.
const PATIENCE: Duration = Duration::from_secs(1);

/// An open directory.
pub(crate) struct OpenDir<V: Vfs> {
    dir: Handle,
    /// Away while a request reads on.
    listing: RefCell<Option<Listing<Stream<V>>>>,
    turn: Semaphore,
}

/// Entries of a directory from the file system.
struct Stream<V: Vfs> {
    vfs: V,
    dir: Handle,
    stream: V::Listing,
}

impl<V: Vfs> Stream<V> {
    fn new(vfs: &V, dir: Handle) -> Stream<V> {
        Stream { vfs: vfs.clone(), dir, stream: vfs.opendir(dir, PATIENCE) }
    }
}

impl<V: Vfs> Source for Stream<V> {
    async fn next(&mut self, plus: bool) -> Result<Option<Fetched>> {
        Ok(self.stream.next(plus).await?)
    }

    fn seek(&mut self, place: u64) {
        self.stream.seek(place);
    }

    fn rewind(&mut self) {
        self.stream = self.vfs.opendir(self.dir, PATIENCE);
    }
}

impl<V: Vfs> Fs<V> {
    /// Open a directory, which must be there, or was removed through this mount: the kernel then lists
    /// nothing.
    pub async fn opendir(&self, dir: Handle) -> Result<u64> {
        let attr = self.getattr(dir).await?;
        if attr.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        let listing = RefCell::new(Some(Listing::new(Stream::new(&self.vfs, dir), dir, attr.parent)));
        Ok(self.dirs.insert(OpenDir { dir, listing, turn: Semaphore::new(1) }))
    }

    /// List a directory for the lookups that come; one that cannot be listed is looked up in name by name.
    pub(super) fn list_ahead(&self, dir: Handle) {
        let (at_once, mut stream) = (self.at_once.clone(), self.vfs.opendir(dir, PATIENCE));
        let env = self.env.clone();
        self.env.spawn("list ahead", async move {
            let ahead = &at_once.ahead;
            let mut pauses = 0;
            loop {
                match ahead.wanted(dir, env.now()) {
                    Wanted::Now => pauses = 0,
                    Wanted::Later if pauses < PAUSES_MAX => {
                        pauses += 1;
                        env.sleep(PACE).await;
                        continue;
                    }
                    Wanted::Later | Wanted::Never => break,
                }
                let Ok(Some(Fetched { entry, asked_at, .. })) = stream.next(true).await else { break };
                // Gone meanwhile, or of a server that does not answer.
                let Some(attr) = entry.attr else { continue };
                ahead.add(dir, Bytes::copy_from_slice(entry.name.as_bytes()), attr, asked_at);
            }
            ahead.end(dir);
        });
    }

    /// Entries after `offset`, passed to `full` with their cache time until it takes no more. With `plus`
    /// each entry but `.` and `..` has its attributes. An error after the first entry waits for the next
    /// call.
    pub async fn readdir(
        &self,
        fh: u64,
        offset: u64,
        plus: bool,
        mut full: impl FnMut(&Listed, Duration) -> bool,
    ) -> Result<()> {
        let dir = self.dirs.get(fh)?;
        let _turn = dir.turn.acquire(1).await;
        let mut listing = dir.listing.take().ok_or(Errno::IO)?;
        listing.go_to(offset);
        let mut given = false;
        let result = loop {
            match self.readdir_one(dir.dir, &mut listing, plus, &mut full).await {
                Ok(Some(true)) => given = true,
                Ok(Some(false)) => {}
                Ok(None) => break Ok(()),
                Err(_) if given => break Ok(()),
                Err(errno) => break Err(errno),
            }
        };
        dir.listing.replace(Some(listing));
        result
    }

    /// Give one entry, or pass one that is gone (`false`); `None` at the end or when no more is taken.
    async fn readdir_one(
        &self,
        dir: Handle,
        listing: &mut Listing<Stream<V>>,
        plus: bool,
        full: &mut impl FnMut(&Listed, Duration) -> bool,
    ) -> Result<Option<bool>> {
        let Some(entry) = listing.peek(plus).await? else { return Ok(None) };
        let dot = matches!(&entry.name[..], b"." | b"..");
        if plus && !dot && !entry.is_unknown && !self.refresh(entry).await {
            listing.pass();
            return Ok(Some(false));
        }
        if full(entry, self.believed(dir, entry)) {
            return Ok(None);
        }
        if plus && !dot {
            // Also without attributes: the kernel then forgets it once.
            self.vfs.referred(entry.handle);
        }
        if let Some((attr, at)) = &entry.attr {
            let mut known = self.known();
            match plus && !dot {
                true => known.told(attr, *at),
                false => known.saw_mode(attr.handle, attr.mode, *at),
            }
        }
        listing.pass();
        Ok(Some(true))
    }

    /// How long an entry and its attributes are valid. Attributes may be newer than the entry, never older.
    fn believed(&self, dir: Handle, entry: &Listed) -> Duration {
        let changed = || self.known().name_changed_since(dir, &entry.name, entry.asked_at);
        if entry.attr.is_none() || changed() {
            return Duration::ZERO;
        }
        self.cache.saturating_sub(self.now().since(entry.asked_at))
    }

    /// See that an entry has attributes that are not older than our own changes, or none; `false`: the object
    /// is gone.
    async fn refresh(&self, entry: &mut Listed) -> bool {
        if let Some((attr, at)) = &entry.attr
            && !self.known().is_outdated(attr, *at)
        {
            return true;
        }
        let asked_at = self.now();
        let asking = Box::pin(self.getattr_of_server(entry.handle));
        let asked = self.env.deadline(asked_at + PATIENCE, asking).await;
        (entry.attr, entry.is_unknown) = match asked {
            Ok(Ok(attr)) => (Some((attr, asked_at)), false),
            Ok(Err(Errno::STALE | Errno::NOENT)) => return false,
            Ok(Err(_)) | Err(_) => (None, true),
        };
        true
    }

    /// The last descriptor of an open directory is gone.
    pub fn releasedir(&self, fh: u64) -> Result<()> {
        self.dirs.remove(fh).map(drop)
    }

    /// Make a directory durable: its entries, its attributes, and the objects that were made with their
    /// entries, on the servers of all its shards. Transactions over several servers were durable when they
    /// were answered.
    pub async fn fsyncdir(&self, fh: u64) -> Result<()> {
        let dir = self.dirs.get(fh)?.dir;
        match self.vfs.fsync_directory(dir).await.map_err(Errno::from) {
            Err(Errno::STALE) if self.at_once.gone.get(dir).is_some() => Ok(()),
            done => done,
        }
    }
}
