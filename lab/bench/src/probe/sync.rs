//! Measures the time until four kilobytes, or another number of bytes, are durable.
//!
//! They are written in two ways: into prewritten space with `O_DIRECT|O_DSYNC`, as a journal that recycles
//! its segments does; and appended with `fdatasync`, which also has to make the new size durable.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::buffer::{ALIGNMENT, Buffer};
use crate::spread::Spread;

/// Bytes of one write where nothing else is said.
pub(crate) const WRITE: usize = 4096;
/// The largest write, bytes.
pub const WRITE_MAX: usize = 1 << 20;
/// Prewritten space of a writer, bytes; writes go round in it.
const PREWRITTEN: usize = 4 << 20;

/// How bytes are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethod {
    /// Into prewritten space, `O_DIRECT|O_DSYNC`.
    DirectDsync,
    /// After the end of the file, then `fdatasync`.
    AppendFdatasync,
}

impl std::fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SyncMethod::DirectDsync => "O_DIRECT|O_DSYNC write",
            SyncMethod::AppendFdatasync => "append and fdatasync",
        })
    }
}

/// One round of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_s: f64,
    pub(crate) median_us: f64,
}

/// A prewritten file for each writer.
pub(crate) struct SyncFiles {
    home: PathBuf,
}

impl SyncFiles {
    pub(crate) fn new(home: &Path, writers: usize) -> Result<SyncFiles> {
        for writer in 0..writers {
            let path = prewritten(home, writer);
            let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            file.write_all_at(Buffer::filled(PREWRITTEN, writer as u64).as_ref(), 0)?;
            file.sync_all().with_context(|| format!("cannot sync {}", path.display()))?;
        }
        Ok(SyncFiles { home: home.to_owned() })
    }

    /// `None` where the file system refuses to open a file for this method.
    pub(crate) fn measure(
        &self,
        method: SyncMethod,
        writers: usize,
        write: usize,
        duration: Duration,
    ) -> Result<Option<Sample>> {
        let write = write.clamp(1, WRITE_MAX).next_multiple_of(ALIGNMENT);
        let mut files = Vec::with_capacity(writers);
        for writer in 0..writers {
            match self.open(method, writer) {
                Ok(file) => files.push(file),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Ok(None),
                Err(error) => return Err(error).context("cannot open a file to sync"),
            }
        }
        let begun = Instant::now();
        let times: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = files
                .iter()
                .map(|file| scope.spawn(move || write_until(file, method, write, begun + duration)))
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a writer panicked"))))
                .collect()
        });
        let elapsed = begun.elapsed().as_secs_f64();
        let mut all_us = Vec::new();
        for times_us in times {
            all_us.extend(times_us?);
        }
        let Some(spread) = Spread::of(&all_us) else { return Ok(None) };
        Ok(Some(Sample { per_s: all_us.len() as f64 / elapsed, median_us: spread.median }))
    }

    fn open(&self, method: SyncMethod, writer: usize) -> std::io::Result<File> {
        match method {
            SyncMethod::DirectDsync => OpenOptions::new()
                .write(true)
                .custom_flags((OFlags::DIRECT | OFlags::DSYNC).bits() as i32)
                .open(prewritten(&self.home, writer)),
            SyncMethod::AppendFdatasync => File::create(self.home.join(format!("append.{writer}"))),
        }
    }
}

fn prewritten(home: &Path, writer: usize) -> PathBuf {
    home.join(format!("prewritten.{writer}"))
}

/// Writes and syncs until the deadline, once at least; returns each one's time in microseconds.
fn write_until(file: &File, method: SyncMethod, write: usize, deadline: Instant) -> Result<Vec<f64>> {
    let data = Buffer::filled(write, 1);
    let mut times_us = Vec::new();
    let mut offset = 0;
    loop {
        let begun = Instant::now();
        file.write_all_at(data.as_ref(), offset).with_context(|| method.to_string())?;
        offset += write as u64;
        match method {
            SyncMethod::AppendFdatasync => file.sync_data().context("fdatasync")?,
            // Round again, before a write would end after the prewritten space.
            SyncMethod::DirectDsync if offset + write as u64 > PREWRITTEN as u64 => offset = 0,
            SyncMethod::DirectDsync => {}
        }
        let now = Instant::now();
        times_us.push((now - begun).as_secs_f64() * 1e6);
        if now >= deadline {
            return Ok(times_us);
        }
    }
}
