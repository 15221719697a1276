//! Mounts the file system, and unmounts exactly the mount that it made.
//!
//! **A path may lead to another mount later.** When a mount ends, another file system may be mounted at the
//! same path: by an administrator after an unmount, or by the next `shoal mount`. So this module makes the
//! mount, and not the crate fuser: when a session ends, fuser unmounts any file system that is mounted at
//! the path. Before it unmounts, fuser 0.18 checks whether the mount exists (`is_mounted` in
//! `src/mnt/mod.rs`). The check takes `POLLERR` from the FUSE device as a sign that the mount exists. But
//! the kernel reports `POLLERR` for a mount that is *gone* (`fuse_dev_poll`: the connection is not
//! connected). This is the fix that fuser needs:
//!
//! ```text
//!     -            Ok(1) => poll_fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR)),
//!     +            Ok(1) => !poll_fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR)),
//! ```
//!
//! Even with the fix, fuser would unmount by a path that it checked a moment before. So
//! [`Attached::take_away`] makes two checks before it unmounts by force, in this order
//! ([`Attached::is_there`]):
//!
//! 1. the table of mounts has the device number of this mount at the path;
//! 2. *after that*, the connection to the kernel exists. The kernel gives a device number to another mount
//!    only after the connection has ended. So at the first check the number was that of this mount.
//!
//! A process of root opens the path before these checks. It then detaches the mount that it has opened, even
//! if the path leads to another mount by then. [`Attached::unmount`] does not force, and takes a path. Its
//! caller makes the checks, and some microseconds pass between them and the call: in this time another file
//! system could be mounted at the path. After the connection has ended, [`Attached::end_loudly`] also
//! removes a dead mount at the path, if it has the device number of this mount.

use crate::mounts::{self, FILE_SYSTEM, Mounted, SUBTYPE};
use crate::options::MountOptions;
use crate::session::MountError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The kernel's side of FUSE.
const DEVICE: &str = "/dev/fuse";
/// The program that mounts for users other than root.
const HELPER: &str = "fusermount3";
/// Where it finds the socket on which it hands out the device.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
/// Words of the helper that are read, at most.
const WORDS_MAX: u64 = 4096;

/// A mount that this process made.
pub(crate) struct Attached {
    point: PathBuf,
    /// Its number in the table of mounts.
    device: Option<String>,
    /// The connection; `None` when no process serves it any more.
    connection: Mutex<Option<OwnedFd>>,
}

impl Attached {
    /// Mount at a directory that was prepared. With the device to serve it by.
    pub(crate) fn new(point: &Path, options: &MountOptions) -> Result<(Attached, OwnedFd), MountError> {
        let cannot = |error| MountError::io(format!("cannot mount at {}", point.display()), error);
        let served = mount(point, options).map_err(cannot)?;
        let connection = Mutex::new(Some(served.try_clone().map_err(cannot)?));
        let at = mounts::mounted_at(point)?.filter(|at| at.kind == FILE_SYSTEM);
        let device = at.map(|Mounted { device, .. }| device);
        Ok((Attached { point: point.to_owned(), device, connection }, served))
    }

    /// Its number in the table of mounts.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Whether this mount is the one mounted at its place.
    pub(crate) fn is_there(&self) -> Result<bool, MountError> {
        let at = mounts::mounted_at(&self.point)?;
        let is_its_number = at.is_some_and(|at| Some(at.device.as_str()) == self.device());
        // In this order: see above.
        Ok(is_its_number && self.is_connected())
    }

    /// The mount over it.
    pub(crate) fn covered_by(&self) -> Result<Option<Mounted>, MountError> {
        let mut stack = mounts::stack_at(&self.point)?;
        let top = stack.pop();
        let is_below = stack.iter().any(|at| Some(at.device.as_str()) == self.device());
        Ok(top.filter(|_| is_below && self.is_connected()))
    }

    fn is_connected(&self) -> bool {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(device) = &*connection else { return false };
        let mut polled = [PollFd::new(device, PollFlags::empty())];
        loop {
            match poll(&mut polled, Some(&Timespec::default())) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return !polled[0].revents().contains(PollFlags::ERR),
            }
        }
    }

    /// Unmount it if it is not in use; otherwise an error of the kind [`io::ErrorKind::ResourceBusy`].
    pub(crate) fn unmount(&self) -> io::Result<()> {
        mounts::unmount_now(&self.point, UnmountFlags::empty(), &[])
    }

    /// Take it out of the tree of names, if it is still at its place, and end it for its users. Not as root
    /// it ends with its last user.
    pub(crate) fn take_away(&self) -> Result<(), MountError> {
        // Held only until it is detached.
        let found = rustix::fs::open(&self.point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        if !self.is_there()? {
            return Ok(());
        }
        let point = found.map(|found| PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd())));
        let done = match point.as_ref().map(|point| mounts::force_opened(point)) {
            Some(Ok(())) => Ok(()),
            _ if !self.is_there()? => Ok(()),
            _ => mounts::force(&self.point),
        };
        done.map_err(|error| MountError::io(format!("cannot unmount {}", self.point.display()), error))
    }

    /// No process serves it any more: it is unmounted if it is there, and its users get errors.
    pub(crate) fn end_loudly(&self) {
        let taken = self.take_away();
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The connection may have been ended without unmounting.
        if let Err(error) = taken.and_then(|()| self.clear()) {
            tracing::error!("the mount is dead and stays: {error}");
        }
    }

    fn clear(&self) -> Result<(), MountError> {
        match mounts::mounted_at(&self.point)? {
            Some(at) if Some(at.device.as_str()) == self.device() => {
                mounts::clear_dead_mount(&self.point).map(drop)
            }
            _ => Ok(()),
        }
    }
}

fn mount(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    match mount_by_ourselves(point, options) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => mount_by_helper(point, options),
        done => done,
    }
}

fn mount_by_ourselves(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,subtype={SUBTYPE}",
        device.as_raw_fd()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data)?;
    let source = CString::new(options.name.as_str())?;
    let mut flags = MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    rustix::mount::mount(&source, point, c"fuse", flags, &*data)?;
    Ok(device)
}

/// As `fusermount3` takes them: one text, in which a comma within a name is escaped.
fn words_for_helper(options: &MountOptions) -> String {
    let switch = |on: bool, word: &str, other: &str| if on { word.to_owned() } else { other.to_owned() };
    let mut words = vec![
        format!("fsname={}", options.name.replace('\\', "\\\\").replace(',', "\\,")),
        format!("subtype={SUBTYPE}"),
        "default_permissions".to_owned(),
        "noatime".to_owned(),
        switch(options.read_only, "ro", "rw"),
        switch(options.suid, "suid", "nosuid"),
        switch(options.dev, "dev", "nodev"),
        switch(options.exec, "exec", "noexec"),
    ];
    if options.allow_other {
        words.push("allow_other".to_owned());
    }
    words.join(",")
}

/// The helper mounts, hands out the device over a socket, its standard input here, and ends.
fn mount_by_helper(point: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, its) = UnixStream::pair()?;
    let child = Command::new(HELPER)
        .args(["-o", &words_for_helper(options), "--"])
        .arg(point)
        .env(HELPER_SOCKET, "0")
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}")))?;
    let device = received(&ours);
    let mut words = String::new();
    if let Some(said) = child.stderr.take() {
        said.take(WORDS_MAX).read_to_string(&mut words)?;
    }
    let ended = child.wait()?;
    match device? {
        Some(device) if ended.success() => Ok(device),
        _ => Err(io::Error::other(format!("{HELPER} failed: {}", words.trim()))),
    }
}

/// The one descriptor that comes over a socket; `None` if it is closed before.
fn received(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => break,
        }
    }
    let fds = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_within_a_name_is_no_end_of_an_option_for_the_helper() {
        let options = MountOptions { name: r"shoal://a,b\c".to_owned(), ..MountOptions::default() };
        let words = words_for_helper(&options);
        assert!(words.starts_with(r"fsname=shoal://a\,b\\c,subtype=shoal,"), "{words}");
    }

    #[test]
    fn the_helper_mounts_and_hands_out_the_device() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let options = MountOptions { allow_other: false, exec: false, ..MountOptions::default() };
        let device = mount_by_helper(&point, &options)
            .unwrap_or_else(|error| panic!("this test needs /dev/fuse and fusermount3: {error}"));
        let at = mounts::mounted_at(&point).unwrap().unwrap();
        assert_eq!((at.kind.as_str(), at.source.as_str()), (FILE_SYSTEM, "shoal"));
        let number = Some(at.device);
        let attached =
            Attached { point: point.clone(), device: number, connection: Mutex::new(Some(device)) };
        assert!(attached.is_there().unwrap());
        attached.take_away().unwrap();
        assert_eq!(mounts::mounted_at(&point).unwrap(), None);
        assert!(!attached.is_there().unwrap());
    }
}
