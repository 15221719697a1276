//! `gfs_errno`: the codes of Galley's errors.
//!
//! Galley's manual pages name the codes and give no numbers. Here the numbers are those of the host's
//! `errno`. The last error of a [`Galley`](crate::Galley) is kept ([`gfs_errno`](crate::Galley::gfs_errno)),
//! with the words of the file system below.

use shoal_proto::Status;
use std::fmt;

/// Of a call.
pub type Result<T> = std::result::Result<T, Errno>;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal;)*) => {
        /// A code of an error.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i32)]
        pub enum Errno { $($(#[$doc])* $name = $number,)* }

        impl Errno {
            /// Its name in Galley.
            pub const fn word(self) -> &'static str {
                match self { $(Errno::$name => $word,)* }
            }
        }
    };
}

codes! {
    /// No such file, subfile or fork.
    NoEntry = 2, "GFS_ENOENT";
    /// The transfer failed, a server does not answer, or data is lost.
    Io = 5, "GFS_EIO";
    /// No such open file or fork.
    BadFile = 9, "GFS_EBADF";
    /// Forbidden by the mode, or the fork is open for reading only.
    Access = 13, "GFS_EACCES";
    /// The handle has an operation outstanding.
    Busy = 16, "GFS_EBUSY";
    /// It exists.
    Exists = 17, "GFS_EEXIST";
    /// A name leads out of the file system by `..` (not in Galley).
    Outside = 18, "GFS_EXDEV";
    /// An argument makes no sense: a subfile, a shape, a name, a place in memory.
    Invalid = 22, "GFS_EINVAL";
    /// Too many open files or forks.
    TooManyOpen = 24, "GFS_EMFILE";
    /// No space.
    NoSpace = 28, "GFS_ENOSPC";
    /// A name is over 255 bytes.
    NameTooLong = 36, "GFS_ENAMETOOLONG";
    /// Not possible with this file system.
    NotSupported = 95, "GFS_ENOTSUP";
}

impl Errno {
    /// The number.
    pub const fn number(self) -> i32 {
        self as i32
    }

    pub(crate) const fn of(status: Status) -> Errno {
        match status {
            Status::NotFound | Status::Stale => Errno::NoEntry,
            Status::Exists => Errno::Exists,
            Status::NameTooLong => Errno::NameTooLong,
            Status::NoSpace => Errno::NoSpace,
            Status::AccessDenied | Status::NotPermitted | Status::ReadOnly | Status::BadCapability => {
                Errno::Access
            }
            Status::NotSupported => Errno::NotSupported,
            Status::CrossDevice => Errno::Outside,
            Status::Invalid
            | Status::NotDirectory
            | Status::IsDirectory
            | Status::FileTooBig
            | Status::OverLimit => Errno::Invalid,
            _ => Errno::Io,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl std::error::Error for Errno {}
