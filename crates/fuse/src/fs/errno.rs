//! Errors as a program sees them: error numbers.
//!
//! Statuses that POSIX does not know (a server that is not ready, a message out of order) have no error
//! number that a program would understand: `EAGAIN` would mean "try again", `ECANCELED` nothing. They become
//! `EIO`, and the original status is written to the log, with the server, the operation and the object.

use shoal_proto::Status;
use shoal_vfs::Error;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// Of an operation of the mount.
pub type Result<T> = std::result::Result<T, Errno>;

impl Errno {
    /// No such entry.
    pub const NOENT: Errno = Errno(libc::ENOENT);
    /// Something went wrong that has no number of its own.
    pub const IO: Errno = Errno(libc::EIO);
    /// The opened file is not open.
    pub const BADF: Errno = Errno(libc::EBADF);
    /// The object is gone: the kernel looks its name up again.
    pub const STALE: Errno = Errno(libc::ESTALE);
    /// An argument makes no sense.
    pub const INVAL: Errno = Errno(libc::EINVAL);
    /// Not a directory.
    pub const NOTDIR: Errno = Errno(libc::ENOTDIR);
    /// Not offered for this object.
    pub const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    /// No such extended attribute.
    pub const NODATA: Errno = Errno(libc::ENODATA);
    /// The buffer is too small.
    pub const RANGE: Errno = Errno(libc::ERANGE);
    /// Another owner has the lock.
    pub const AGAIN: Errno = Errno(libc::EAGAIN);
    /// Never to be asked again.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
}

impl From<Status> for Errno {
    fn from(status: Status) -> Errno {
        match status {
            Status::StaleLayout
            | Status::Changed
            | Status::Unavailable
            | Status::NotRun
            | Status::BadSequence
            | Status::WrongServer
            | Status::Conflict
            | Status::BadVersion
            | Status::BadMessage => Errno::IO,
            _ => Errno(status.errno()),
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        let errno = error.kernel.map_or_else(|| Errno::from(error.status), Errno);
        if errno == Errno::IO
            || matches!(error.status, Status::TimedOut | Status::BadKey | Status::BadCapability)
        {
            tracing::warn!("{error}");
        } else {
            // Not for a silent server either: the calls that waited for it have logged it, and there may be
            // thousands of calls a second.
            tracing::debug!("{error}");
        }
        errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_status_reads_as_success_or_as_a_call_to_try_again() {
        for &status in Status::ALL.iter().filter(|status| **status != Status::Ok) {
            let Errno(number) = Errno::from(status);
            assert!(number > 0 && number != libc::EAGAIN && number != libc::ECANCELED, "{status:?}");
        }
    }
}
