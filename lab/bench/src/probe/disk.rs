//! Measures a disk: large writes and reads in order, and single reads in order and at random. The large
//! accesses also measure the operating system's cache.
//!
//! One file is written once by large writes and then synced. The writes alone give the cache's rate, the
//! writes with the sync give the disk's rate. The file is read through the cache, and without the cache if
//! the file system offers that.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

use crate::buffer::{Buffer, Random};
use crate::probe::Home;

/// Bytes of a large access and of a small one.
const LARGE: usize = 1 << 20;
const SMALL: usize = 4096;
/// The smallest and the largest file.
const FILE_MIN: u64 = 4 << 20;
const FILE_MAX: u64 = 1 << 36;

/// The disk's rates; without those that its file system does not offer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskRates {
    /// Written in order and synced at the end, 10^6 bytes a second.
    pub write_mb_per_s: f64,
    /// Written to the cache.
    pub cache_write_mb_per_s: f64,
    /// Read from the cache.
    pub cache_read_mb_per_s: f64,
    /// Read in order, past the cache.
    pub read_mb_per_s: Option<f64>,
    /// Reads of 4 KiB at random: the middle one and the slowest of a hundred, microseconds.
    pub random_us: Option<(f64, f64)>,
    /// Reads of 4 KiB, each after the last: the middle one.
    pub next_us: Option<f64>,
}

/// A file on the disk that is meant.
pub struct DiskProbe {
    path: PathBuf,
    bytes: u64,
    _home: Home,
}

impl DiskProbe {
    /// In a folder on it; the file has so many bytes.
    pub fn new(folder: &Path, bytes: u64) -> Result<DiskProbe> {
        if !(FILE_MIN..=FILE_MAX).contains(&bytes) {
            bail!("the file of a disk's probe has between {FILE_MIN} and {FILE_MAX} bytes, not {bytes}");
        }
        let home = Home::new(folder)?;
        Ok(DiskProbe { path: home.0.join("disk"), bytes: bytes / LARGE as u64 * LARGE as u64, _home: home })
    }

    /// All of it once; single reads for so long each.
    pub fn measure(&self, duration: Duration) -> Result<DiskRates> {
        let mut rates = DiskRates::default();
        (rates.cache_write_mb_per_s, rates.write_mb_per_s) = self.write()?;
        rates.cache_read_mb_per_s = self.read_all(&File::open(&self.path)?)?;
        let direct =
            OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&self.path);
        match direct {
            Ok(file) => {
                rates.read_mb_per_s = Some(self.read_all(&file)?);
                let mut random = Random::new(1);
                let places = self.bytes / SMALL as u64;
                rates.random_us = Some(single(&file, duration, |_| random.next() % places)?);
                rates.next_us = Some(single(&file, duration, |at| at % places)?.0);
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error).context("cannot open the disk's file past the cache"),
        }
        std::fs::remove_file(&self.path)?;
        Ok(rates)
    }

    /// Rates without the sync, and with it.
    fn write(&self) -> Result<(f64, f64)> {
        let file =
            File::create(&self.path).with_context(|| format!("cannot create {}", self.path.display()))?;
        let block = Buffer::filled(LARGE, 1);
        let begun = Instant::now();
        for at in 0..self.bytes / LARGE as u64 {
            file.write_all_at(block.as_ref(), at * LARGE as u64).context("cannot write the disk's file")?;
        }
        let written = begun.elapsed().as_secs_f64();
        file.sync_data().context("fdatasync")?;
        let megabytes = self.bytes as f64 / 1e6;
        Ok((megabytes / written, megabytes / begun.elapsed().as_secs_f64()))
    }

    fn read_all(&self, file: &File) -> Result<f64> {
        let mut block = Buffer::new(LARGE);
        let begun = Instant::now();
        for at in 0..self.bytes / LARGE as u64 {
            file.read_exact_at(block.as_mut(), at * LARGE as u64).context("cannot read the disk's file")?;
        }
        Ok(self.bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
    }
}

/// The middle one of single reads, and the slowest of a hundred; microseconds.
fn single(file: &File, duration: Duration, mut place: impl FnMut(u64) -> u64) -> Result<(f64, f64)> {
    let mut block = Buffer::new(SMALL);
    let mut times_us = Vec::new();
    let begun = Instant::now();
    while times_us.is_empty() || begun.elapsed() < duration {
        let one = Instant::now();
        let at = place(times_us.len() as u64) * SMALL as u64;
        file.read_exact_at(block.as_mut(), at).context("cannot read the disk's file")?;
        times_us.push(one.elapsed().as_secs_f64() * 1e6);
    }
    times_us.sort_by(f64::total_cmp);
    Ok((times_us[times_us.len() / 2], times_us[times_us.len() * 99 / 100]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let probe = DiskProbe::new(folder.path(), FILE_MIN).expect("made");
        let rates = probe.measure(Duration::from_millis(2)).expect("measured");
        assert!(
            rates.write_mb_per_s > 0.0 && rates.cache_write_mb_per_s >= rates.write_mb_per_s,
            "{rates:?}"
        );
        assert!(rates.cache_read_mb_per_s > 0.0, "{rates:?}");
        if let Some((middle, slow)) = rates.random_us {
            assert!(middle > 0.0 && slow >= middle, "{rates:?}");
        }
        drop(probe);
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_file_of_no_sense_is_refused() {
        assert!(DiskProbe::new(&std::env::temp_dir(), 1).is_err());
    }
}
