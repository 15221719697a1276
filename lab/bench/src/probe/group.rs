//! Measures durable writes of the size of one journal write (a *group*: the records of operations that share
//! a sync). One writer for each server, but no more than there are clients, writes to the servers' disk; all
//! write at once. The probe also measures the disk's total rate of large durable writes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::probe::Home;
use crate::probe::sync::{SyncFiles, SyncMethod, WRITE_MAX};

/// The disk's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSpeeds {
    /// Bytes of a group.
    pub group_bytes: u64,
    /// The median time of one, microseconds.
    pub sync_us: f64,
    /// Large durable writes of all writers together, 10^6 bytes a second.
    pub mb_per_s: f64,
}

/// Prewritten files for such measurements; removed at the end.
pub struct Groups {
    files: SyncFiles,
    writers: usize,
    _home: Home,
}

impl Groups {
    /// In a folder on the disk that is meant.
    pub fn new(folder: &Path, writers: usize) -> Result<Groups> {
        let home = Home::new(folder)?;
        Ok(Groups { files: SyncFiles::new(&home.0, writers)?, writers, _home: home })
    }

    /// A group of so many bytes, for so long; then large writes, as long.
    pub fn measure(&self, group_bytes: u64, duration: Duration) -> Result<DiskSpeeds> {
        let len = usize::try_from(group_bytes).unwrap_or(WRITE_MAX).min(WRITE_MAX);
        let (sync_us, _) = self.write(len, self.writers, duration)?;
        let (_, per_s) = self.write(WRITE_MAX, self.writers, duration)?;
        Ok(DiskSpeeds { group_bytes, sync_us, mb_per_s: per_s * WRITE_MAX as f64 / 1e6 })
    }

    /// A sync of so many bytes by one writer alone: its median, microseconds.
    pub fn alone(&self, len: usize, duration: Duration) -> Result<f64> {
        Ok(self.write(len, 1, duration)?.0)
    }

    /// Median time and writes a second; as journals write, else (no direct I/O there) appended.
    fn write(&self, len: usize, writers: usize, duration: Duration) -> Result<(f64, f64)> {
        for method in [SyncMethod::DirectDsync, SyncMethod::AppendFdatasync] {
            if let Some(sample) = self.files.measure(method, writers, len, duration)? {
                return Ok((sample.median_us, sample.per_s));
            }
        }
        Ok((0.0, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_any_size_are_measured_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let groups = Groups::new(folder.path(), 2).expect("made");
        let disk = groups.measure(10_000, Duration::from_millis(5)).expect("measured");
        assert!(disk.sync_us > 0.0 && disk.mb_per_s > 0.0 && disk.group_bytes == 10_000, "{disk:?}");
        assert!(groups.alone(4096, Duration::from_millis(1)).expect("measured") > 0.0);
        drop(groups);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
