//! The log of a process in the background: the current file, and the file before it.
//!
//! The standard error of such a process is the file itself, so nothing is lost however the process ends: the
//! message of a panic, or of the C library, or the last line before a kill for lack of memory. **Each log
//! line checks the file's length.** A file that has reached its bound is renamed to `….log.1`, which replaces
//! an older file of that name. A new file is begun, and becomes standard error. If the file cannot be
//! renamed, it is emptied instead. So there are at most two files of [`BYTES_MAX`], plus one message.

use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Bytes of one file, unless `SHOAL_LOG_BYTES` says otherwise.
pub const BYTES_MAX: u64 = 8 << 20;
/// Set for a process whose standard error is such a file: the file's path.
pub const FILE: &str = "SHOAL_LOG_FILE";
/// The bound of one file, in bytes.
const BYTES: &str = "SHOAL_LOG_BYTES";

/// A log.
pub struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    /// Held while the files are exchanged.
    turn: Mutex<()>,
}

impl LogFile {
    /// The log at a path.
    pub fn at(path: &Path) -> LogFile {
        let given = std::env::var(BYTES).ok().and_then(|bytes| bytes.parse().ok());
        LogFile { path: path.to_owned(), bytes_max: given.unwrap_or(BYTES_MAX), turn: Mutex::default() }
    }

    /// The log of this process, if it has one.
    pub fn of_this_process() -> Option<LogFile> {
        std::env::var_os(FILE).map(|path| LogFile::at(Path::new(&path)))
    }

    /// Open it, and its folder, for this user alone; its contents stay, up to its bound.
    ///
    /// # Errors
    /// When the folder or the file cannot be made.
    pub fn open(&self) -> Result<File> {
        let words = || {
            format!(
                "cannot write the log {}: let this user write there, or set XDG_STATE_HOME to another folder",
                self.path.display()
            )
        };
        if let Some(folder) = self.path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(words)?;
        }
        if std::fs::metadata(&self.path).is_ok_and(|meta| meta.len() >= self.bytes_max) {
            self.set_aside().with_context(words)?;
        }
        self.append().with_context(words)
    }

    fn append(&self) -> io::Result<File> {
        File::options().append(true).create(true).mode(0o600).open(&self.path)
    }

    fn set_aside(&self) -> io::Result<()> {
        let mut former: OsString = self.path.clone().into_os_string();
        former.push(".1");
        std::fs::rename(&self.path, former)
    }

    /// A new file, if `present` has grown to its bound.
    fn next(&self, present: u64) -> Option<File> {
        if present < self.bytes_max {
            return None;
        }
        // Another thread is at it: this message is the last of the old file, or the first of the new one.
        let _turn = self.turn.try_lock().ok()?;
        // Where it cannot be renamed, the log is cut rather than let grow.
        match self.set_aside() {
            Ok(()) => self.append().ok(),
            Err(_) => File::options()
                .append(true)
                .open(&self.path)
                .and_then(|file| file.set_len(0).map(|()| file))
                .ok(),
        }
    }

    fn keep_bounded(&self) {
        let stderr = rustix::stdio::stderr();
        let present = rustix::fs::fstat(stderr).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if let Some(next) = self.next(present) {
            // The old one stays standard error where that fails.
            let _ = rustix::stdio::dup2_stderr(&next);
        }
    }
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.keep_bounded();
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_has_grown_to_its_bound_is_set_aside_and_begun_anew_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/mount.log");
        let log = LogFile { bytes_max: 100, ..LogFile::at(&path) };
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let mut file = log.open().unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        // The last file is not full.
        for n in 0..98 {
            if let Some(next) = log.next(file.metadata().unwrap().len()) {
                file = next;
            }
            writeln!(file, "message number {n:04}").unwrap();
        }
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let (former, present) = (read(dir.path().join("logs/mount.log.1")), read(path.clone()));
        assert!(former.len() <= 120 && present.len() <= 120, "{former}{present}");
        assert!(format!("{former}{present}").ends_with("message number 0096\nmessage number 0097\n"));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 2);
        // The next process continues with it, or begins anew where it is full.
        drop(log.open().unwrap());
        assert_eq!(read(path.clone()), present);
        std::fs::write(&path, [b'x'; 200]).unwrap();
        drop(log.open().unwrap());
        assert_eq!(read(path), "");
    }
}
