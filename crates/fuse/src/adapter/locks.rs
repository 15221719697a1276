//! Locks, in the form of the kernel's requests.
//!
//! The owner of a POSIX record lock is the process's table of files; the owner of an `flock`, or of a lock
//! of an open file description, is the open file. The kernel marks a request as `flock` by a flag that
//! fuser 0.18 does not pass on. So all locks are locks of ranges here, and an `flock` is a lock of the
//! whole file, as in NFS.

use crate::fs::{Errno, Result};
use shoal_vfs::{LockCall, LockKind, LockOwner, LockRange};

/// The last byte that the kernel knows: a range up to it has no end.
const LAST: u64 = i64::MAX as u64;

/// A lock, or the end of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Take it.
    Lock(LockCall),
    /// Give it back.
    Unlock(LockOwner, LockRange),
}

/// The request of the kernel.
pub(super) fn asked(owner: u64, first: u64, last: u64, kind: i32, pid: u32, wait: bool) -> Result<Asked> {
    let range = LockRange { first, last: if last >= LAST { u64::MAX } else { last } };
    let owner = LockOwner(owner);
    let lock = |kind| Ok(Asked::Lock(LockCall { owner, range, kind, wait, pid }));
    match kind {
        libc::F_RDLCK => lock(LockKind::Shared),
        libc::F_WRLCK => lock(LockKind::Exclusive),
        libc::F_UNLCK => Ok(Asked::Unlock(owner, range)),
        _ => Err(Errno::INVAL),
    }
}

/// A range as the kernel has it.
pub(super) fn range(range: LockRange) -> (u64, u64) {
    (range.first, range.last.min(LAST))
}

/// A kind as the kernel has it.
pub(super) fn kind(kind: LockKind) -> i32 {
    match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_up_to_the_kernels_last_byte_has_no_end_and_comes_back_as_it_was() {
        let Ok(Asked::Lock(call)) = asked(7, 0, LAST, libc::F_WRLCK, 9, true) else { panic!("a lock") };
        assert_eq!((call.range, call.kind), (LockRange::ALL, LockKind::Exclusive));
        assert_eq!((range(call.range), kind(call.kind)), ((0, LAST), libc::F_WRLCK));
        let range = LockRange { first: 3, last: 5 };
        assert_eq!(asked(7, 3, 5, libc::F_UNLCK, 0, false), Ok(Asked::Unlock(LockOwner(7), range)));
        assert_eq!(asked(7, 3, 5, 77, 0, false), Err(Errno::INVAL));
    }
}
