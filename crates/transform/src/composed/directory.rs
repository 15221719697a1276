//! The file of the merged directory (the whole index in one file): reads it and checks that it is current,
//! and writes it anew when enough records are new.

use super::index::Names;
use super::merged::{Extents, Merged};
use super::scan::Claims;
use super::{Shared, names_of};
use crate::writer_id::WriterId;
use bytes::{Bytes, BytesMut};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Name, Rights, Status};
use shoal_vfs::{RenameFlags, Result, Vfs, VfsFile};
use std::rc::Rc;

/// Bytes that are written and believed, at most.
const BYTES_MAX: u64 = 1 << 31;
/// Bytes that are read or written at once: some 20,000 names.
const PART_BYTES: usize = 4 << 20;

impl<B: Vfs> Shared<B> {
    /// The merged directory, if it is the present one's.
    pub(super) async fn merged(&self, claims: &Claims) -> Result<Option<(Names, Extents)>> {
        let name = names_of::name(names_of::MERGED)?;
        let file = match self.over.open_name(self.root, &name, Rights::READ).await {
            // There is none, or another one takes its place now: the blocks are scanned.
            Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => return Ok(None),
            file => file?,
        };
        let mut bytes = BytesMut::new();
        loop {
            let part = file.read(bytes.len() as u64, PART_BYTES).await?;
            bytes.extend_from_slice(&part);
            if part.len() < PART_BYTES || bytes.len() as u64 > BYTES_MAX {
                break;
            }
        }
        file.close().await?;
        let merged = match Merged::decode(&bytes) {
            Ok(merged) => merged,
            Err(error) => {
                tracing::warn!("the merged directory is not believed, the blocks are scanned: {error}");
                return Ok(None);
            }
        };
        let is_of_now = merged.epoch == claims.epoch
            && merged.extents.keys().all(|extent| claims.extents.contains(extent));
        let is_present = merged.id == self.settings.id && (is_of_now || mutant::is(Mutant::StaleDirectory));
        if is_present && !merged.fits(self.settings.block) {
            tracing::warn!("the merged directory names places that no block has: the blocks are scanned");
            return Ok(None);
        }
        Ok(is_present.then_some((merged.names, merged.extents)))
    }

    /// Write a merged directory, unless another writer runs or little is new: fewer records than an eighth of
    /// the objects, or than `least`. It waits until the blocks are durable.
    pub(super) async fn leave_directory(self: &Rc<Self>, least: u64) {
        let left = async {
            self.refresh().await?;
            let claims = self.claims().await?;
            let own = self.log.id.get();
            let (applied, objects) = {
                let names = self.names.borrow();
                (names.applied, names.objects.len() as u64)
            };
            let new = applied.saturating_sub(self.covered.get());
            let others_run = claims.writers.iter().any(|writer| *writer != own);
            if others_run || claims.epoch != self.epoch.get() || new < least.max(objects.div_ceil(8)) {
                return Ok(());
            }
            self.write_directory().await
        };
        if let Err(error) = left.await {
            tracing::warn!("the merged directory is not written: the next open scans the blocks: {error}");
        }
    }

    /// Write the merged directory. All records that it covers are durable.
    pub(super) async fn write_directory(self: &Rc<Self>) -> Result<()> {
        let bytes = {
            let mut extents = self.known.borrow().clone();
            extents.extend(self.own_known());
            let names = self.names.borrow().clone();
            self.covered.set(names.applied);
            let (id, epoch) = (self.settings.id, self.epoch.get());
            Bytes::from(Merged { id, epoch, extents, names }.encode())
        };
        if bytes.len() as u64 > BYTES_MAX {
            return Ok(());
        }
        self.sync_blocks().await?;
        let aside = names_of::name(&format!("t.{}", WriterId::draw(&self.env)))?;
        self.write_aside(self.root, &aside, bytes).await?;
        let merged = names_of::name(names_of::MERGED)?;
        self.over.rename(self.root, &aside, self.root, &merged, RenameFlags::default()).await
    }

    /// Write a whole file, durably.
    pub(super) async fn write_aside(
        &self,
        dir: shoal_proto::Handle,
        name: &Name,
        bytes: Bytes,
    ) -> Result<()> {
        let rights = Rights::READ | Rights::WRITE;
        let (_, _, file) = self.over.create(dir, name, self.owner, true, rights).await?;
        let written = async {
            let mut at = 0;
            while at < bytes.len() {
                let end = (at + PART_BYTES).min(bytes.len());
                file.write(at as u64, bytes.slice(at..end)).await?;
                at = end;
            }
            file.fsync().await
        };
        if let Err(error) = written.await {
            drop(self.over.unlink(dir, name).await);
            return Err(error);
        }
        file.close().await
    }
}
