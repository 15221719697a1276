//! The file of an audit log, and the one before it.
//!
//! ```text
//!   FILE.1  ◀── renamed, in place of an older one, when FILE would grow beyond its bound
//!   FILE    ◀── whole lines, many in one write
//! ```
//! **The file is opened for each append.** So a file that was renamed or removed is made again, and a link
//! or another user's file in its place is refused, at whatever time it comes there. A write that failed is
//! cut off again; a line torn by a power cut is cut off by the next append. A file that does not begin as a
//! log of this kind is refused and not touched. No call on it holds the server's thread.

use super::line::{BEGIN, LINE_BYTES_MAX};
use bytes::Bytes;
use shoal_env::{Env, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
pub(super) struct AuditFile {
    env: Env,
    path: PathBuf,
    bytes_max: u64,
}

impl AuditFile {
    /// The log at a path, with so many bytes at most.
    pub(super) fn new(env: Env, path: PathBuf, bytes_max: u64) -> AuditFile {
        AuditFile { env, path, bytes_max }
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Open it, made if it is missing; the file, and the length of its whole lines.
    ///
    /// # Errors
    /// When it cannot be opened, is not this server's alone, or is no audit log.
    pub(super) async fn open(&self) -> io::Result<(File, u64)> {
        let options = OpenOptions { create: true, private: true, apart: true, ..OpenOptions::default() };
        let file = self.env.open(&self.path, options).await?;
        let len = file.len().await?;
        if len == 0 {
            return Ok((file, 0));
        }
        if file.read_at(0, BEGIN.len()).await? != BEGIN {
            let words = "it is no audit log: name another file, or move this one away";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let from = len.saturating_sub(LINE_BYTES_MAX as u64);
        let end = file.read_at(from, LINE_BYTES_MAX).await?;
        let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| from + at as u64 + 1);
        if whole < len {
            file.truncate(whole).await?;
        }
        Ok((file, whole))
    }

    /// Write whole lines after those that are there, in one write; before that set the file aside, if it
    /// would grow beyond its bound.
    ///
    /// # Errors
    /// As [`AuditFile::open`]; when it cannot be renamed or written. Then none of the lines is there.
    pub(super) async fn append(&self, lines: Bytes) -> io::Result<()> {
        let (mut file, mut at) = self.open().await?;
        if at > 0 && at.saturating_add(lines.len() as u64) > self.bytes_max {
            let mut former = self.path.clone().into_os_string();
            former.push(".1");
            self.env.rename(&self.path, PathBuf::from(former)).await?;
            (file, at) = self.open().await?;
        }
        let written = file.write_at(at, vec![lines]).await;
        if written.is_err() {
            // If this fails too, the next append does it.
            let _ = file.truncate(at).await;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(from: u32, count: u32) -> Bytes {
        let line = |n: u32| format!("{{\"time\":\"T\",\"n\":{n:06}}}\n");
        (from..from + count).map(line).collect::<String>().into()
    }

    #[test]
    fn a_full_file_is_set_aside_whole_lines_are_kept_and_a_torn_one_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let at = path.clone();
        shoal_env::real::run("test", |env| async move {
            let file = AuditFile::new(env, at.clone(), 200);
            for n in 0..20 {
                file.append(lines(n, 1)).await.unwrap();
            }
            let (former, present) = (at.with_file_name("audit.1"), at.clone());
            let read = |path: &Path| std::fs::read(path).unwrap();
            assert!(read(&former).len() <= 200 && read(&present).len() <= 200);
            let kept = [read(&former), read(&present)].concat();
            let line = lines(0, 1).len();
            let first = 20 - (kept.len() / line) as u32;
            assert_eq!(kept, lines(first, 20 - first));
            // As a power cut leaves it.
            let whole = read(&present);
            std::fs::write(&present, [&whole[..], b"{\"time\":\"torn"].concat()).unwrap();
            file.append(lines(20, 1)).await.unwrap();
            assert!(read(&present).ends_with(&lines(19, 2)) || read(&present) == lines(20, 1));
            // Removed by an operator: it is made again.
            std::fs::remove_file(&present).unwrap();
            file.append(lines(21, 1)).await.unwrap();
            assert_eq!(read(&present), lines(21, 1));
        });
    }

    #[test]
    fn a_file_that_is_no_audit_log_is_refused_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, b"a key, and no line").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let at = path.clone();
        shoal_env::real::run("test", |env| async move {
            let error = AuditFile::new(env, at, 200).append(lines(0, 1)).await.unwrap_err();
            assert!(error.to_string().contains("no audit log"), "{error}");
        });
        assert_eq!(std::fs::read(path).unwrap(), b"a key, and no line");
    }
}
