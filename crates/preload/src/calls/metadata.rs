//! Attributes: read, changed, and asked for rights; space.

use super::also;
use crate::guard::{Res, answer, call};
use crate::real;
use crate::route::{Route, Spot, on_object, route};
use crate::session::{Session, number};
use crate::table::is_virtual;
use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, c_uint, gid_t, mode_t, timespec,
    timeval, uid_t,
};
use shoal_proto::{Attr, Handle, SetAttr, Time};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// Our file systems' device numbers begin here; the major number is for local use.
const DEVICE_MAJOR: u32 = 240;
const BLOCK_BYTES: u64 = 512;
const IO_BYTES: i64 = 64 * 1024;
/// `f_type` of a file system without a number of its own (FUSE's).
const TYPE: i64 = 0x6573_5546;
const NAME_BYTES_MAX: i64 = 255;

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
unsafe fn means_descriptor(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller passes a C string or null.
    flags & AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

fn follows(flags: c_int) -> bool {
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

fn set(session: &mut Session, mount: usize, object: Handle, change: SetAttr) -> Res<c_int> {
    session.tree(mount)?.setattr(object, change).map(|_| 0).map_err(|error| number(&error))
}

fn set_at(spot: &Spot, follow: bool, change: SetAttr, kernels: impl FnOnce(*const c_char) -> c_int) -> c_int {
    on_object(spot, follow, |session, found| set(session, spot.mount, found.attr.handle, change), kernels)
}

fn set_open(fd: c_int, change: SetAttr) -> c_int {
    answer(call(|session| {
        let open = session.open(fd)?;
        let mount = open.record.mount as usize;
        if open.record.kind == crate::record::DIRECTORY && open.record.state.load(Ordering::Relaxed) != 0 {
            // A removed directory: only its descriptors show it.
            if let Some(attr) = &mut open.attr {
                attr.mode = change.mode.unwrap_or(attr.mode);
            }
            return Ok(0);
        }
        let object = session.handle(fd)?;
        set(session, mount, object, change)
    }))
}

fn of_mode(mode: mode_t) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

fn of_owner(uid: uid_t, gid: gid_t) -> SetAttr {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::from_parts(since.as_secs() as i64, since.subsec_nanos())
}

unsafe fn of_times(times: *const timespec) -> Res<SetAttr> {
    if times.is_null() {
        return Ok(SetAttr { atime: Some(now()), mtime: Some(now()), ..SetAttr::default() });
    }
    let one = |at: &timespec| match at.tv_nsec {
        libc::UTIME_NOW => Ok(Some(now())),
        libc::UTIME_OMIT => Ok(None),
        nanos @ 0..1_000_000_000 => Ok(Some(Time::from_parts(at.tv_sec, nanos as u32))),
        _ => Err(libc::EINVAL),
    };
    // SAFETY: the caller passes two.
    let (atime, mtime) = unsafe { (one(&*times)?, one(&*times.add(1))?) };
    Ok(SetAttr { atime, mtime, ..SetAttr::default() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::fchmodat()(dir, path, mode, flags);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(_) if !follows(flags) => answer(Err(libc::EOPNOTSUPP)),
            Route::Ours(spot) => set_at(&spot, true, of_mode(mode), kernels),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchmodat(AT_FDCWD, path, mode, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fchmod()(fd, mode) };
    }
    set_open(fd, of_mode(mode))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchownat(
    dir: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if means_descriptor(path, flags) && is_virtual(dir) {
            return set_open(dir, of_owner(uid, gid));
        }
        let kernels = |path| real::fchownat()(dir, path, uid, gid, flags);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => set_at(&spot, follows(flags), of_owner(uid, gid), kernels),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchownat(AT_FDCWD, path, uid, gid, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fchown()(fd, uid, gid) };
    }
    set_open(fd, of_owner(uid, gid))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimensat(
    dir: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if path.is_null() {
            return futimens(dir, times);
        }
        let kernels = |path| real::utimensat()(dir, path, times, flags);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => match of_times(times) {
                Ok(change) => set_at(&spot, follows(flags), change, kernels),
                Err(number) => answer(Err(number)),
            },
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::futimens()(fd, times) };
    }
    // SAFETY: the same.
    match unsafe { of_times(times) } {
        Ok(change) => set_open(fd, change),
        Err(number) => answer(Err(number)),
    }
}

/// Times in microseconds, as those in nanoseconds.
unsafe fn finer(times: *const timeval) -> Option<[timespec; 2]> {
    let one = |at: &timeval| timespec { tv_sec: at.tv_sec, tv_nsec: at.tv_usec * 1000 };
    // SAFETY: the caller passes null or two.
    unsafe { times.as_ref().map(|first| [one(first), one(&*times.add(1))]) }
}

fn pointer(times: &Option<[timespec; 2]>) -> *const timespec {
    times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { utimensat(AT_FDCWD, path, pointer(&finer(times)), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { utimensat(AT_FDCWD, path, pointer(&finer(times)), AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { futimens(fd, pointer(&finer(times))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { utimensat(dir, path, pointer(&finer(times)), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
    let one = |at| timespec { tv_sec: at, tv_nsec: 0 };
    // SAFETY: the caller's arguments.
    unsafe {
        let times = times.as_ref().map(|times| [one(times.actime), one(times.modtime)]);
        utimensat(AT_FDCWD, path, pointer(&times), 0)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, size: libc::off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::truncate()(path, size);
        let Route::Ours(spot) = route(AT_FDCWD, path) else { return kernels(path) };
        let Ok(size) = u64::try_from(size) else { return answer(Err(libc::EINVAL)) };
        let cut = |session: &mut Session, found: shoal_world::Found| {
            let done = session.tree(spot.mount)?.truncate(found.attr.handle, size, true);
            done.map(|_| 0).map_err(|error| number(&error))
        };
        on_object(&spot, true, cut, kernels)
    }
}

/// Blocks, free blocks, objects.
fn space(session: &mut Session, mount: usize) -> Res<(u64, u64, u64)> {
    let space = session.tree(mount)?.statfs().map_err(|error| number(&error))?;
    Ok((space.total / 4096, space.available / 4096, space.objects))
}

fn fill_space((blocks, free, objects): (u64, u64, u64), into: *mut libc::statfs) -> Res<c_int> {
    // SAFETY: the caller passes a place for one, or null; all zeros are a valid one.
    unsafe {
        let into = into.as_mut().ok_or(libc::EFAULT)?;
        *into = std::mem::zeroed();
        (into.f_type, into.f_bsize, into.f_frsize, into.f_namelen) = (TYPE, 4096, 4096, NAME_BYTES_MAX);
        (into.f_blocks, into.f_bfree, into.f_bavail) = (blocks, free, free);
        (into.f_files, into.f_ffree) = (objects, u64::from(u32::MAX));
    }
    Ok(0)
}

fn fill_space_v((blocks, free, objects): (u64, u64, u64), into: *mut libc::statvfs) -> Res<c_int> {
    // SAFETY: the same.
    unsafe {
        let into = into.as_mut().ok_or(libc::EFAULT)?;
        *into = std::mem::zeroed();
        (into.f_bsize, into.f_frsize, into.f_namemax) = (4096, 4096, NAME_BYTES_MAX as u64);
        (into.f_blocks, into.f_bfree, into.f_bavail) = (blocks, free, free);
        (into.f_files, into.f_ffree, into.f_favail) = (objects, u32::MAX.into(), u32::MAX.into());
    }
    Ok(0)
}

macro_rules! spaces {
    ($($of_path:ident, $of_open:ident, $ty:ty, $fill:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $of_path(path: *const c_char, into: *mut $ty) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe {
                let kernels = |path| real::$of_path()(path, into);
                let Route::Ours(spot) = route(AT_FDCWD, path) else { return kernels(path) };
                on_object(&spot, true, |session, _| $fill(space(session, spot.mount)?, into), kernels)
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $of_open(fd: c_int, into: *mut $ty) -> c_int {
            if !is_virtual(fd) {
                // SAFETY: the caller's arguments.
                return unsafe { real::$of_open()(fd, into) };
            }
            answer(call(|session| {
                let mount = session.open(fd)?.record.mount as usize;
                $fill(space(session, mount)?, into)
            }))
        }
    )*};
}

spaces! {
    statfs, fstatfs, libc::statfs, fill_space;
    statvfs, fstatvfs, libc::statvfs, fill_space_v;
}

/// Limits of a path, as the host's root has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn pathconf(path: *const c_char, name: c_int) -> c_long {
    // SAFETY: the caller's arguments.
    unsafe {
        match route(AT_FDCWD, path) {
            Route::Kernel => real::pathconf()(path, name),
            Route::Ours(_) => real::pathconf()(c"/".as_ptr(), name),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fpathconf(fd: c_int, name: c_int) -> c_long {
    // SAFETY: the caller's arguments.
    unsafe {
        if is_virtual(fd) { real::pathconf()(c"/".as_ptr(), name) } else { real::fpathconf()(fd, name) }
    }
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
    truncate64 = truncate(path: *const c_char, size: libc::off_t) -> c_int;
    statfs64 = statfs(path: *const c_char, into: *mut libc::statfs) -> c_int;
    fstatfs64 = fstatfs(fd: c_int, into: *mut libc::statfs) -> c_int;
    __statfs = statfs(path: *const c_char, into: *mut libc::statfs) -> c_int;
    statvfs64 = statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int;
    fstatvfs64 = fstatvfs(fd: c_int, into: *mut libc::statvfs) -> c_int;
}
