//! The file of an audit log (`FILE`), and the file that was full before it (`FILE.1`).
//!
//! ```text
//!   FILE.1  ◀── FILE is renamed to FILE.1 before it would exceed its bound; an older FILE.1 is replaced
//!   FILE    ◀── whole lines, many in one write
//! ```
//! **The file is opened for each append.** So a file that was renamed or removed is made again. A link or a
//! file of another user at its path is refused, even if it was put there while the server runs. After a
//! failed write, the partial line is truncated at once; a line torn by a power cut is truncated by the next
//! append. **A truncation removes at most the bytes of one torn write**: if more bytes follow the last
//! whole line, the file is set aside unchanged. A file that does not begin as an audit log is refused and
//! not changed; this holds for `FILE.1` too. Except for the close, no file call blocks the server's thread.

use super::line::{BEGIN, LINE_BYTES_MAX};
use super::queue::WRITE_BYTES_MAX;
use bytes::Bytes;
use shoal_env::{Env, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that a torn write can leave, at most: those of a write.
const TORN_BYTES_MAX: u64 = (WRITE_BYTES_MAX + LINE_BYTES_MAX) as u64;
/// Bytes of one step of the search for the last line's end.
const STEP_BYTES: u64 = 16 << 10;

/// See the module.
pub(super) struct AuditFile {
    env: Env,
    path: PathBuf,
    former: PathBuf,
    bytes_max: u64,
}

impl AuditFile {
    /// The log at a path, with so many bytes at most.
    pub(super) fn new(env: Env, path: PathBuf, bytes_max: u64) -> AuditFile {
        AuditFile { env, former: beside(&path, "1"), path, bytes_max }
    }

    /// Bytes of the file, at most.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it, and the file before it, may be written.
    ///
    /// # Errors
    /// When not, with the file's name.
    pub(super) async fn check(&self) -> io::Result<()> {
        self.open().await.map_err(|error| named(&self.path, &error))?;
        self.check_former().await
    }

    /// Open it, made if it is missing; the file, and the length of its whole lines.
    ///
    /// # Errors
    /// When it cannot be opened, is not this server's alone, or is no audit log.
    async fn open(&self) -> io::Result<(File, u64)> {
        let (file, len) = self.open_log(&self.path, true).await?;
        let Some(whole) = whole(&file, len).await? else {
            tracing::warn!(file = %self.path.display(), "its end is no line of an audit log: it is set aside as it is");
            self.set_aside().await?;
            return self.open_log(&self.path, true).await;
        };
        if whole < len {
            file.truncate(whole).await?;
        }
        Ok((file, whole))
    }

    /// An audit log, or an empty file; and its length.
    async fn open_log(&self, path: &Path, create: bool) -> io::Result<(File, u64)> {
        let options = OpenOptions { create, private: true, apart: true, ..OpenOptions::default() };
        let file = self.env.open(path, options).await?;
        let len = file.len().await?;
        if len > 0 && file.read_at(0, BEGIN.len()).await? != BEGIN {
            let words = "it is no audit log: name another file, or move this one away";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        Ok((file, len))
    }

    /// Refuse to replace what is no audit log.
    async fn check_former(&self) -> io::Result<()> {
        match self.open_log(&self.former, false).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(&self.former, &error)),
            _ => Ok(()),
        }
    }

    async fn set_aside(&self) -> io::Result<()> {
        self.check_former().await?;
        self.env.rename(&self.path, &self.former).await
    }

    /// Write whole lines after those that are there, in one write; before that set the file aside, if it
    /// would grow beyond its bound.
    ///
    /// # Errors
    /// When one of the two files cannot be opened, is not this server's alone, or is no audit log; when it
    /// cannot be renamed or written. Then none of the lines is there.
    pub(super) async fn append(&self, lines: Bytes) -> io::Result<()> {
        let (mut file, mut at) = self.open().await?;
        if at > 0 && at.saturating_add(lines.len() as u64) > self.bytes_max {
            self.set_aside().await?;
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

/// The length of a file's whole lines; `None` if more follows, or is there instead, than a torn write leaves.
async fn whole(file: &File, len: u64) -> io::Result<Option<u64>> {
    let mut end = len;
    while end > 0 && len - end < TORN_BYTES_MAX {
        let from = end.saturating_sub(STEP_BYTES);
        let part = file.read_at(from, (end - from) as usize).await?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(from + at as u64 + 1));
        }
        end = from;
    }
    Ok((end == 0 && len <= LINE_BYTES_MAX as u64).then_some(0))
}

/// The path with an ending: `FILE.ENDING`.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// An error with the file's name.
pub(super) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
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

    /// A file of mode 0600, as the log makes them.
    fn make(path: &Path, content: &[u8]) {
        std::fs::write(path, content).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    #[test]
    fn an_end_that_no_torn_write_leaves_is_set_aside_with_its_lines_and_never_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let (present, former) = (dir.path().join("audit"), dir.path().join("audit.1"));
        shoal_env::real::run("test", |env| async move {
            let file = AuditFile::new(env, present.clone(), 1 << 20);
            let read = |path: &Path| std::fs::read(path).unwrap();
            // As a power cut leaves a large write: the lines before it stay.
            make(&present, &[&lines(0, 3)[..], &vec![0; WRITE_BYTES_MAX]].concat());
            file.append(lines(3, 1)).await.unwrap();
            assert_eq!(read(&present), lines(0, 4));
            assert!(!former.exists());
            let foreign = [&lines(0, 3)[..], &vec![b'x'; 1 << 17]].concat();
            let one = [BEGIN, &[b'x'; 20 << 10]].concat();
            for odd in [foreign, one] {
                make(&present, &odd);
                file.append(lines(3, 1)).await.unwrap();
                assert_eq!((read(&former), read(&present)), (odd, lines(3, 1).to_vec()));
            }
        });
    }

    #[test]
    fn what_is_no_audit_log_in_the_place_of_the_former_file_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (present, former) = (dir.path().join("audit"), dir.path().join("audit.1"));
        make(&former, b"a user's file");
        shoal_env::real::run("test", |env| async move {
            let file = AuditFile::new(env, present.clone(), 200);
            let refused = file.check().await.unwrap_err().to_string();
            assert!(refused.contains("audit.1: it is no audit log"), "{refused}");
            file.append(lines(0, 5)).await.unwrap();
            let refused = file.append(lines(5, 5)).await.unwrap_err().to_string();
            assert!(refused.contains("audit.1: it is no audit log"), "{refused}");
            assert_eq!(std::fs::read(&former).unwrap(), b"a user's file");
            assert_eq!(std::fs::read(&present).unwrap(), lines(0, 5));
            std::fs::remove_file(&former).unwrap();
            file.append(lines(5, 5)).await.unwrap();
            assert_eq!(
                (std::fs::read(&former).unwrap(), std::fs::read(&present).unwrap()),
                (lines(0, 5).to_vec(), lines(5, 5).to_vec())
            );
        });
    }
}
