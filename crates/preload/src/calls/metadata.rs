//! Reads of attributes, and checks of access rights.

use super::also;
use crate::guard::{Res, answer, call};
use crate::real;
use crate::route::{Route, on_object, route};
use crate::table::is_virtual;
use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, gid_t, uid_t};
use shoal_proto::{Attr, Time};

/// Our file systems' device numbers begin here; the major number is for local use.
const DEVICE_MAJOR: u32 = 240;
const BLOCK_BYTES: u64 = 512;
const IO_BYTES: i64 = 64 * 1024;

fn device(mount: usize) -> u64 {
    libc::makedev(DEVICE_MAJOR, mount as u32)
}

/// Fill a `stat`.
pub fn fill(mount: usize, attr: &Attr, into: *mut libc::stat) -> Res<c_int> {
    if into.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device(mount);
    stat.st_ino = attr.handle.0;
    stat.st_mode = attr.kind.mode_bits() | attr.mode;
    stat.st_nlink = attr.nlink.into();
    (stat.st_uid, stat.st_gid, stat.st_rdev) = (attr.uid, attr.gid, attr.rdev);
    stat.st_size = attr.size.cast_signed();
    stat.st_blksize = IO_BYTES;
    stat.st_blocks = attr.space.div_ceil(BLOCK_BYTES).cast_signed();
    let (seconds, nanos) = attr.atime.parts();
    (stat.st_atime, stat.st_atime_nsec) = (seconds, nanos.into());
    let (seconds, nanos) = attr.mtime.parts();
    (stat.st_mtime, stat.st_mtime_nsec) = (seconds, nanos.into());
    let (seconds, nanos) = attr.ctime.parts();
    (stat.st_ctime, stat.st_ctime_nsec) = (seconds, nanos.into());
    // SAFETY: the caller passes a place for one.
    unsafe { into.write(stat) };
    Ok(0)
}

/// Whether a path is empty and means its descriptor.
pub unsafe fn means_descriptor(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller passes a C string or null.
    flags & AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

/// Whether a link at the end is followed.
pub fn follows(flags: c_int) -> bool {
    flags & AT_SYMLINK_NOFOLLOW == 0
}

/// `fstat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, into: *mut libc::stat) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fstat()(fd, into) };
    }
    answer(call(|session| session.attributes(fd)).and_then(|(mount, attr)| fill(mount, &attr, into)))
}

/// `fstatat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if means_descriptor(path, flags) && is_virtual(dir) {
            return fstat(dir, into);
        }
        let kernels = |path| real::fstatat()(dir, path, into, flags);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => {
                on_object(&spot, follows(flags), |_, found| fill(spot.mount, &found.attr, into), kernels)
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fstatat(AT_FDCWD, path, into, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fstatat(AT_FDCWD, path, into, AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xstat(_version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { stat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __lxstat(_version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { lstat(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstat(version: c_int, fd: c_int, into: *mut libc::stat) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::__fxstat()(version, fd, into) };
    }
    // SAFETY: the same.
    unsafe { fstat(fd, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __fxstatat(
    _version: c_int,
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fstatat(dir, path, into, flags) }
}

fn fill_wide(mount: usize, attr: &Attr, into: *mut libc::statx) -> Res<c_int> {
    if into.is_null() {
        return Err(libc::EFAULT);
    }
    let moment = |at: Time| {
        let (seconds, nanos) = at.parts();
        // SAFETY: all zeros are a valid time.
        let mut moment: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (moment.tv_sec, moment.tv_nsec) = (seconds, nanos);
        moment
    };
    // SAFETY: all zeros are a valid `statx`.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    stat.stx_blksize = IO_BYTES as u32;
    stat.stx_nlink = attr.nlink;
    (stat.stx_uid, stat.stx_gid) = (attr.uid, attr.gid);
    stat.stx_mode = (attr.kind.mode_bits() | attr.mode) as u16;
    (stat.stx_ino, stat.stx_size) = (attr.handle.0, attr.size);
    stat.stx_blocks = attr.space.div_ceil(BLOCK_BYTES);
    (stat.stx_atime, stat.stx_btime) = (moment(attr.atime), moment(attr.btime));
    (stat.stx_ctime, stat.stx_mtime) = (moment(attr.ctime), moment(attr.mtime));
    (stat.stx_rdev_major, stat.stx_rdev_minor) = (libc::major(attr.rdev), libc::minor(attr.rdev));
    (stat.stx_dev_major, stat.stx_dev_minor) = (DEVICE_MAJOR, mount as u32);
    // SAFETY: the caller passes a place for one.
    unsafe { into.write(stat) };
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if means_descriptor(path, flags) && is_virtual(dir) {
            let known = call(|session| session.attributes(dir));
            return answer(known.and_then(|(mount, attr)| fill_wide(mount, &attr, into)));
        }
        let kernels = |path| real::statx()(dir, path, flags, mask, into);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => {
                on_object(&spot, follows(flags), |_, found| fill_wide(spot.mount, &found.attr, into), kernels)
            }
        }
    }
}

/// Whether a user may do something with an object.
fn may(attr: &Attr, uid: uid_t, gid: gid_t, wanted: c_int) -> Res<c_int> {
    let wanted = wanted as u32 & 7;
    if uid == 0 {
        // Root may execute only where anyone may.
        let is_blocked = wanted & 1 != 0 && attr.mode & 0o111 == 0 && attr.kind.mode_bits() != 0o040_000;
        return if is_blocked { Err(libc::EACCES) } else { Ok(0) };
    }
    let mut groups = [0; 256];
    // SAFETY: the array has that many.
    let count = unsafe { libc::getgroups(groups.len() as c_int, groups.as_mut_ptr()) }.max(0) as usize;
    let is_member = attr.gid == gid || groups[..count].contains(&attr.gid);
    let shift = if attr.uid == uid {
        6
    } else if is_member {
        3
    } else {
        0
    };
    if (attr.mode >> shift) & wanted == wanted { Ok(0) } else { Err(libc::EACCES) }
}

/// `faccessat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(dir: c_int, path: *const c_char, wanted: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::faccessat()(dir, path, wanted, flags);
        let (uid, gid) = match flags & libc::AT_EACCESS {
            0 => (libc::getuid(), libc::getgid()),
            _ => (libc::geteuid(), libc::getegid()),
        };
        if means_descriptor(path, flags) && is_virtual(dir) {
            return answer(
                call(|session| session.attributes(dir)).and_then(|(_, attr)| may(&attr, uid, gid, wanted)),
            );
        }
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => {
                on_object(&spot, follows(flags), |_, found| may(&found.attr, uid, gid, wanted), kernels)
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, wanted: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { faccessat(AT_FDCWD, path, wanted, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn euidaccess(path: *const c_char, wanted: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { faccessat(AT_FDCWD, path, wanted, libc::AT_EACCESS) }
}

/// A key from a file's numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn ftok(path: *const c_char, project: c_int) -> libc::key_t {
    // SAFETY: the caller's arguments; all zeros are a valid `stat`.
    unsafe {
        if matches!(route(AT_FDCWD, path), Route::Kernel) {
            return real::ftok()(path, project);
        }
        let mut found: libc::stat = std::mem::zeroed();
        if fstatat(AT_FDCWD, path, &mut found, 0) != 0 {
            return -1;
        }
        (found.st_ino & 0xffff) as c_int | ((found.st_dev & 0xff) << 16) as c_int | (project & 0xff) << 24
    }
}

also! {
    stat64 = stat(path: *const c_char, into: *mut libc::stat) -> c_int;
    lstat64 = lstat(path: *const c_char, into: *mut libc::stat) -> c_int;
    fstat64 = fstat(fd: c_int, into: *mut libc::stat) -> c_int;
    fstatat64 = fstatat(dir: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int;
    __xstat64 = __xstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int;
    __lxstat64 = __lxstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int;
    __fxstat64 = __fxstat(version: c_int, fd: c_int, into: *mut libc::stat) -> c_int;
    __fxstatat64 = __fxstatat(
        version: c_int, dir: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int,
    ) -> c_int;
    __fstat64 = fstat(fd: c_int, into: *mut libc::stat) -> c_int;
    eaccess = euidaccess(path: *const c_char, wanted: c_int) -> c_int;
}
