//! Locks.
//!
//! They are the kernel's, on an object of the host that stands for the file: the file itself, or the access
//! record of a container. A ShoalFS has none: there they are on the reserved descriptor, so they hold between
//! descriptors of one open, and between no others.
//!
//! **Record locks** (`fcntl`) are one process's, and POSIX gives them back at any close of the file in it.
//! The file system below opens and closes such objects for itself, so a lock of that kind would not last.
//! They are taken on one descriptor for each file and process, as locks of an open file description, which
//! other processes' locks respect. **A call that waits for a lock is not in our world.**
//!
//! **With a lock a process sees all bytes that others wrote before they gave it back**: the logs of a
//! container are read anew.

use crate::config;
use crate::guard::{self, Res, answer, call};
use crate::real;
use crate::route::{Spot, host_path};
use crate::session::{Session, close_own, own_from};
use crate::table::is_virtual;
use libc::{c_int, c_void};
use shoal_world::Shown;
use std::ffi::CString;
use std::sync::atomic::Ordering;

/// The access record in a container's directory.
const ACCESS_RECORD: &[u8] = b"/.shoal-container";

/// Open the object of the host that stands for a descriptor's file.
fn stand_in(session: &mut Session, fd: c_int) -> Res<c_int> {
    let record = session.open(fd)?.record;
    let spot = Spot { mount: record.mount as usize, path: record.path() };
    let shown = config::get().and_then(|config| config.overs.get(spot.mount)).map(|over| &over.shown);
    let path = match shown {
        Some(Shown::Plain) => host_path(&spot),
        Some(Shown::Container) if record.kind == crate::record::FILE => {
            [&host_path(&spot)[..], ACCESS_RECORD].concat()
        }
        Some(Shown::Container) => host_path(&spot),
        _ => format!("/proc/self/fd/{fd}").into_bytes(),
    };
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    let open = |flags: c_int| {
        // SAFETY: the path is a C string.
        unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC) as c_int
        }
    };
    let opened = match open(libc::O_RDWR) {
        // A directory, or a file that may only be read.
        fd if fd < 0 => open(libc::O_RDONLY),
        fd => fd,
    };
    if opened < 0 {
        return Err(libc::ENOLCK);
    }
    // SAFETY: the descriptor is ours.
    let moved = unsafe { libc::syscall(libc::SYS_fcntl, opened, libc::F_DUPFD_CLOEXEC, own_from()) as c_int };
    close_own(opened);
    if moved < 0 { Err(libc::ENOLCK) } else { Ok(moved) }
}

/// `fcntl` with a lock.
///
/// # Safety
/// `lock` is null or a lock.
pub unsafe fn record_lock(fd: c_int, command: c_int, lock: *mut libc::flock) -> Res<c_int> {
    // SAFETY: as the caller promises.
    let wanted = unsafe { lock.as_mut() }.ok_or(libc::EFAULT)?;
    let command = match command {
        libc::F_GETLK => libc::F_OFD_GETLK,
        libc::F_SETLK => libc::F_OFD_SETLK,
        libc::F_SETLKW => libc::F_OFD_SETLKW,
        own => own,
    };
    let (on, base) = call(|session| {
        let record = session.open(fd)?.record;
        let access = record.flags() & libc::O_ACCMODE;
        let is_allowed = match c_int::from(wanted.l_type) {
            libc::F_WRLCK => access != libc::O_RDONLY,
            libc::F_RDLCK => access != libc::O_WRONLY,
            _ => true,
        };
        if !is_allowed && command != libc::F_OFD_GETLK {
            return Err(libc::EBADF);
        }
        let base = match c_int::from(wanted.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => record.offset.load(Ordering::Relaxed),
            libc::SEEK_END => session.attributes(fd)?.1.size.cast_signed(),
            _ => return Err(libc::EINVAL),
        };
        let key = (record.mount as usize, record.handle.load(Ordering::Relaxed));
        if let Some(known) = session.locks.get(&key) {
            return Ok((*known, base));
        }
        let on = stand_in(session, fd)?;
        session.locks.insert(key, on);
        Ok((on, base))
    })?;
    let start = wanted.l_start.checked_add(base).ok_or(libc::EOVERFLOW)?;
    let mut own = libc::flock {
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_pid: 0,
        l_type: wanted.l_type,
        l_len: wanted.l_len,
    };
    // SAFETY: the lock is ours; the call may wait.
    let done = unsafe { real::fcntl()(on, command, std::ptr::from_mut(&mut own).cast::<c_void>()) };
    if done < 0 {
        return Err(guard::errno());
    }
    if command == libc::F_OFD_GETLK {
        *wanted = own;
    } else if c_int::from(wanted.l_type) != libc::F_UNLCK {
        // Not known: then the lock holds all the same.
        let _ = call(|session| session.locked(fd));
    }
    Ok(done)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::flock()(fd, operation) };
    }
    let on = call(|session| {
        if let Some(known) = session.open(fd)?.flock {
            return Ok(known);
        }
        let on = stand_in(session, fd)?;
        session.open(fd)?.flock = Some(on);
        Ok(on)
    });
    match on {
        Ok(on) => {
            // SAFETY: the descriptor is ours; the call may wait.
            let done = unsafe { real::flock()(on, operation) };
            if done == 0 && operation & libc::LOCK_UN == 0 {
                let _ = call(|session| session.locked(fd));
            }
            done
        }
        Err(number) => answer(Err(number)),
    }
}
