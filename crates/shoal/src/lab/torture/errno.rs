//! Error numbers, as the kernel has them.

use rustix::io::Errno;

/// No such file or directory.
pub const ENOENT: i32 = Errno::NOENT.raw_os_error();
/// It exists.
pub const EEXIST: i32 = Errno::EXIST.raw_os_error();
/// Of a directory moved into itself.
pub const EINVAL: i32 = Errno::INVAL.raw_os_error();
/// No space.
pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
/// The directory is not empty.
pub const ENOTEMPTY: i32 = Errno::NOTEMPTY.raw_os_error();
/// The object is gone.
pub const ESTALE: i32 = Errno::STALE.raw_os_error();
/// The disk or a server failed.
pub const EIO: i32 = Errno::IO.raw_os_error();
/// A server did not answer.
pub const ETIMEDOUT: i32 = Errno::TIMEDOUT.raw_os_error();
