//! Repair: parts of files that were removed by processes that ended.
//!
//! `g/ID` is put when a file with parts lost its name, and deleted after its parts. One that is left belongs
//! to a process that ended, or that has the file open: by its age, or by the operator's word, it is removed.

use crate::PAGE_KEYS;
use crate::format::Id;
use crate::vfs::Objects;
use shoal_proto::Status;
use shoal_vfs::{Error, Result};
use std::time::Duration;

/// A file without a name is removed when it is older, unless the operator says that its process ended.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The repairs that were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repaired {
    /// Files without a name whose parts were removed.
    pub removed: u64,
    /// Those that were left, as a process may have them open.
    pub kept: u64,
}

impl Objects {
    /// Remove the parts of files without a name. `ended`: the processes that removed them have ended.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn recover(&self, ended: bool) -> Result<Repaired> {
        let (op, shared) = ("recover", &self.0);
        let (prefix, mut after, mut repaired) =
            (shared.keys.all_going(), None::<String>, Repaired::default());
        loop {
            let page = shared.calls.list(op, &prefix, after.as_deref(), PAGE_KEYS).await?;
            for meta in &page.found {
                let Some(file) = meta.key.strip_prefix(&prefix).and_then(Id::parse) else { continue };
                let age = shared.now().0.saturating_sub(meta.modified.0);
                let is_open = shared.nodes.borrow_mut().by_id(file).is_some_and(|node| !node.is_gone);
                if is_open || !(ended || age > AGE.as_nanos() as i64) {
                    repaired.kept += 1;
                    continue;
                }
                shared.remove_parts(op, file).await.map_err(|error| Error { status: Status::Io, ..error })?;
                repaired.removed += 1;
            }
            if !page.has_more {
                return Ok(repaired);
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }
}
