//! Mount points: lists them, checks whether a directory can be used as one, and ends mounts.
//!
//! A mount whose process was killed is *dead*: it stays in the tree of names, and every call on it fails
//! with `ENOTCONN`. Mounts and their paths are read from `/proc/self/mountinfo`, which needs no answer of
//! the mount itself.
//!
//! **Only a mount that is dead, or is a ShoalFS, is ever unmounted here.**

use crate::session::MountError;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of a ShoalFS in the table of mounts.
pub const FILE_SYSTEM: &str = "fuse.shoal";
/// The kind of FUSE file system, without the prefix.
pub(crate) const SUBTYPE: &str = "shoal";
/// Dead mounts on top of each other that are cleared at once, at most.
const STACKED_MAX: usize = 64;

/// A line of the table of mounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mounted {
    /// `major:minor`: unlike any other mounted file system's.
    pub(crate) device: String,
    /// Where.
    pub(crate) point: PathBuf,
    /// Which kind of file system.
    pub(crate) kind: String,
    /// From where.
    pub(crate) source: String,
}

impl Mounted {
    /// A line of `/proc/self/mountinfo` (proc(5)).
    fn parse(line: &str) -> Option<Mounted> {
        let (front, back) = line.split_once(" - ")?;
        let (mut front, mut back) = (front.split(' '), back.split(' '));
        let device = front.nth(2)?.to_owned();
        let point = PathBuf::from(OsString::from_vec(unescape(front.nth(1)?)));
        Some(Mounted { device, point, kind: back.next()?.to_owned(), source: back.next()?.to_owned() })
    }
}

/// Spaces and the like stand in the table as a backslash and three octal digits.
fn unescape(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// The mount at exactly this path; of several, the one on top.
pub(crate) fn mounted_at(point: &Path) -> Result<Option<Mounted>, MountError> {
    Ok(stack_at(point)?.pop())
}

/// The mounts at exactly this path, one over the other.
pub(crate) fn stack_at(point: &Path) -> Result<Vec<Mounted>, MountError> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| MountError::io("cannot read /proc/self/mountinfo", error))?;
    Ok(table.lines().filter_map(Mounted::parse).filter(|mounted| mounted.point == point).collect())
}

/// The path as the table of mounts has it. For a dead mount only the folders above it can be looked at.
fn absolute(path: &Path) -> Result<PathBuf, MountError> {
    let cannot = |error| MountError::io(format!("cannot find {}", path.display()), error);
    let error = match path.canonicalize() {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    let path = std::path::absolute(path).map_err(cannot)?;
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => Ok(above.canonicalize().map_err(cannot)?.join(name)),
        _ => Err(cannot(error)),
    }
}

/// Whether no process serves the mount at this path.
fn is_dead(point: &Path) -> bool {
    matches!(rustix::fs::statfs(point), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Detach the dead mounts that killed processes left at a path. Whether there were any.
///
/// # Errors
/// If the path cannot be found, or there is a dead mount and we may not detach it.
pub fn clear_dead_mount(path: &Path) -> Result<bool, MountError> {
    let point = absolute(path)?;
    let mut cleared = false;
    for _ in 0..STACKED_MAX {
        match mounted_at(&point)? {
            Some(mounted) if mounted.kind.starts_with("fuse") && is_dead(&point) => {
                detach(&point).map_err(|error| {
                    MountError::io(format!("cannot detach the dead mount at {}", point.display()), error)
                })?;
                cleared = true;
            }
            _ => break,
        }
    }
    Ok(cleared)
}

/// Unmount the ShoalFS at a path, dead or alive; its process notices. `lazy`: also while it is in use; it
/// then leaves the tree of names at once and ends with its last user.
///
/// # Errors
/// If there is no ShoalFS, or it is in use and `lazy` is not set.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), MountError> {
    if clear_dead_mount(path)? {
        return Ok(());
    }
    let point = absolute(path)?;
    match mounted_at(&point)? {
        Some(mounted) if mounted.kind == FILE_SYSTEM => {}
        Some(mounted) => {
            let words = format!("{} is a {}, not a ShoalFS", point.display(), mounted.kind);
            return Err(MountError::Refused(words));
        }
        None => return Err(MountError::Refused(format!("nothing is mounted at {}", point.display()))),
    }
    let done = if lazy { detach(&point) } else { unmount_now(&point, UnmountFlags::empty(), &[]) };
    done.map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => MountError::Busy(point),
        _ => MountError::io(format!("cannot unmount {}", point.display()), error),
    })
}

/// See that a directory can be mounted on: clear dead mounts, make it if it is missing, and refuse a live
/// mount and a directory with something in it. The path to mount on.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    if clear_dead_mount(path)? {
        tracing::info!("detached the dead mount at {}", path.display());
    }
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(MountError::io(format!("cannot make {}", path.display()), error));
        }
        _ => {}
    }
    let point = absolute(path)?;
    if let Some(Mounted { kind, source, .. }) = mounted_at(&point)? {
        let words = format!("{source} ({kind}) is mounted at {} already", point.display());
        return Err(MountError::Refused(words));
    }
    let cannot = |error| MountError::io(format!("cannot look into {}", point.display()), error);
    if std::fs::read_dir(&point).map_err(cannot)?.next().is_some() {
        let words = format!("{} is not empty: a mount would hide its contents", point.display());
        return Err(MountError::Refused(words));
    }
    Ok(point)
}

/// Take a mount out of the tree of names.
pub(crate) fn detach(point: &Path) -> io::Result<()> {
    unmount_now(point, UnmountFlags::DETACH, &["-z"])
}

/// Take a mount out of the tree of names and end it for its users. Not as root it ends with its last user.
pub(crate) fn force(point: &Path) -> io::Result<()> {
    unmount_now(point, UnmountFlags::DETACH | UnmountFlags::FORCE, &["-z"])
}

/// The same, as root, by a path that leads to the mount that was opened there.
pub(crate) fn force_opened(opened: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(opened, UnmountFlags::DETACH | UnmountFlags::FORCE)?)
}

/// Unmount; not as root, by `fusermount3` with these arguments.
pub(crate) fn unmount_now(point: &Path, flags: UnmountFlags, arguments: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(point, flags) {
        Err(Errno::PERM) => fusermount(point, arguments),
        done => Ok(done?),
    }
}

fn fusermount(point: &Path, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("fusermount3").arg("-u").args(arguments).arg("--").arg(point).output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = match words.contains("busy") {
        true => io::ErrorKind::ResourceBusy,
        false => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes() {
        let line =
            r"36 35 0:40 / /mnt/my\040files\134x rw,nosuid shared:7 - fuse.shoal shoal://a,b rw,user_id=0";
        let mounted = Mounted::parse(line).unwrap();
        assert_eq!(mounted.device, "0:40");
        assert_eq!(mounted.point, Path::new(r"/mnt/my files\x"));
        assert_eq!((mounted.kind.as_str(), mounted.source.as_str()), ("fuse.shoal", "shoal://a,b"));
        assert!(Mounted::parse("nonsense").is_none());
        assert_eq!(unescape(r"\04"), br"\04");
    }

    #[test]
    fn the_root_is_in_the_table_and_a_plain_directory_is_not() {
        let plain = tempfile::tempdir().unwrap();
        assert!(mounted_at(Path::new("/")).unwrap().is_some());
        assert_eq!(mounted_at(plain.path()).unwrap(), None);
        assert!(!clear_dead_mount(plain.path()).unwrap());
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused_and_a_missing_one_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("mnt");
        let canonical = dir.path().canonicalize().unwrap().join("mnt");
        assert_eq!(prepare(&missing).unwrap(), canonical);
        std::fs::write(missing.join("file"), b"x").unwrap();
        assert!(prepare(&missing).unwrap_err().to_string().contains("not empty"));
        assert!(prepare(&dir.path().join("no/such")).is_err());
        assert!(prepare(&missing.join("file")).is_err());
    }

    #[test]
    fn what_is_not_a_shoalfs_is_not_unmounted() {
        let plain = tempfile::tempdir().unwrap();
        assert!(unmount(plain.path(), true).unwrap_err().to_string().contains("nothing is mounted"));
        assert!(unmount(Path::new("/proc"), true).unwrap_err().to_string().contains("not a ShoalFS"));
    }
}
