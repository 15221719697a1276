//! Markers of names that dead writers left.
//!
//! **Only the process that holds the lock of the settings removes a marker of another writer**, and it reads
//! the marker again once it has the lock and knows that the writer is dead. No other
//! process changes such a marker. Without the lock it may be the marker of a process that has removed the old
//! one, and made its own, since it was read.
//!
//! All markers are looked at when a directory is opened, and after a compaction. A call that meets the marker
//! of a name looks whether its writer is dead.

use super::marks::MarkedBy;
use super::{Shared, names_of};
use crate::writer_id::WriterId;
use shoal_proto::{Kind, Name, Rights, Status};
use shoal_vfs::{Result, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::time::Duration;

/// Another process may hold the lock for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

impl<B: Vfs> Shared<B> {
    /// Whether a writer has its file. It makes that before it makes a marker.
    async fn runs(&self, writer: WriterId) -> Result<bool> {
        match self.over.lookup(self.claims, &names_of::writer(writer)?).await {
            Err(error) if error.status == Status::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    }

    /// Whether a marker is a link of a token of no running writer, without its own bytes: bytes of a token
    /// are never synced, so a power cut may leave a marker without them, or with those of the marker before.
    async fn is_cut_short(&self, mark: &Name, tokens: &BTreeSet<u64>) -> Result<bool> {
        let found = match self.over.lookup(self.marks, mark).await {
            Err(error) if error.status == Status::NotFound => return Ok(false),
            found => found?,
        };
        if found.kind != Kind::File || tokens.contains(&found.handle.0) {
            return Ok(false);
        }
        let bytes = self.bytes_of_token(mark).await?;
        // A token that was made since they were listed may have its own bytes now.
        let is_own = names_of::token_marked(&bytes, mark).is_some();
        Ok(!is_own && (bytes.iter().all(|byte| *byte == 0) || names_of::is_token(&bytes)))
    }

    /// The lock of the settings; `None`: another process holds it.
    async fn settings_lock(&self, tries: u32) -> Result<Option<B::File>> {
        let settings = names_of::name(names_of::SETTINGS)?;
        let lock = self.over.open_name(self.root, &settings, Rights::READ | Rights::WRITE).await?;
        for left in (0..tries).rev() {
            if lock.hold_alone().await? {
                return Ok(Some(lock));
            }
            if left > 0 {
                self.env.sleep(LOCK_PAUSE).await;
            }
        }
        lock.close().await?;
        Ok(None)
    }

    /// If a marker is a dead writer's, remove it; whether another one can be made.
    pub(super) async fn take_from_dead(&self, mark: &Name, by: WriterId) -> bool {
        let taken = async {
            if by == self.log.id.get() || !self.is_dead(by).await? {
                return Ok(false);
            }
            let Some(lock) = self.settings_lock(LOCK_TRIES).await? else { return Ok(false) };
            if matches!(self.marked_by(mark).await?, MarkedBy::Writer(still, _) if still == by) {
                self.over.unlink(self.marks, mark).await?;
            }
            lock.close().await?;
            Ok::<_, shoal_vfs::Error>(true)
        };
        taken.await.unwrap_or_else(|error| {
            tracing::debug!("whether the marker of a name is left is not known: {error}");
            false
        })
    }

    /// Take the markers of names away that dead writers left. One process does it at a time.
    pub(super) async fn clear_marks(&self) {
        if self.read_only {
            return;
        }
        let cleared = async {
            let names = self.over.names(self.marks).await?;
            if names.is_empty() {
                return Ok(());
            }
            let Some(lock) = self.settings_lock(1).await? else { return Ok(()) };
            let mut tokens = BTreeSet::new();
            for (name, by) in names.iter().filter_map(|name| Some((name, names_of::token_of(name)?))) {
                match self.runs(by).await? {
                    true => {
                        tokens.extend(self.over.lookup(self.marks, name).await.ok().map(|at| at.handle.0))
                    }
                    false => self.over.unlink(self.marks, name).await?,
                }
            }
            for name in names.iter().filter(|name| names_of::token_of(name).is_none()) {
                if self.is_left(name, &tokens).await? {
                    self.over.unlink(self.marks, name).await?;
                }
            }
            lock.close().await
        };
        if let Err(error) = cleared.await
            && !matches!(error.status, Status::NotSupported | Status::NotFound | Status::Stale)
        {
            tracing::warn!("markers of names are left: {error}");
        }
    }

    /// Whether no running writer has a marker. A writer may give it back and end between the look at the
    /// marker and that at the writer, and another one may make it then: it is read again.
    async fn is_left(&self, mark: &Name, tokens: &BTreeSet<u64>) -> Result<bool> {
        match self.marked_by(mark).await? {
            by @ MarkedBy::Writer(writer, _) => {
                Ok(!self.runs(writer).await? && self.marked_by(mark).await? == by)
            }
            MarkedBy::Nobody | MarkedBy::Foreign => self.is_cut_short(mark, tokens).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ComposedOptions, Wishes};
    use bytes::Bytes;
    use shoal_env::real;
    use shoal_vfs::{Connect, LocalOptions};

    /// The tokens are listed before the markers are looked at.
    #[test]
    fn a_marker_of_a_token_that_was_made_since_the_tokens_were_listed_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        real::run("test", move |env| async move {
            let over = LocalOptions::new(dir.path());
            let options = ComposedOptions { over, wishes: Wishes::default() };
            let vfs = options.connect(env.clone()).await.unwrap();
            let (shared, both) = (&vfs.0, Rights::READ | Rights::WRITE);
            let (mark, id) = (names_of::name("0000000000000001.f").unwrap(), WriterId([7; 16]));
            let (_, _, file) =
                shared.over.create(shared.marks, &mark, shared.owner, true, both).await.unwrap();
            let other = names_of::name("0000000000000001.g").unwrap();
            for (of, is_left) in [(&mark, false), (&other, true)] {
                file.write(0, Bytes::from(names_of::token_bytes(id, 5, of))).await.unwrap();
                let found = shared.is_cut_short(&mark, &BTreeSet::new()).await.unwrap();
                assert_eq!(found, is_left, "{of}");
            }
        });
    }
}
