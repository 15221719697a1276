//! Changes of attributes: mode, owner, times, size.

use super::also;
use super::metadata::{follows, means_descriptor};
use crate::guard::{Res, answer, call};
use crate::real;
use crate::route::{Route, Spot, on_object, route};
use crate::session::Call;
use crate::table::is_virtual;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, gid_t, mode_t, timespec, timeval, uid_t};
use shoal_proto::{Handle, SetAttr, Time};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

fn set(session: &mut Call<'_>, mount: usize, object: Handle, change: SetAttr) -> Res<c_int> {
    session.on(mount, |tree| tree.setattr(object, change)).map(|_| 0)
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
        let cut = |session: &mut Call<'_>, found: shoal_world::Found| {
            session.on(spot.mount, |tree| tree.truncate(found.attr.handle, size, true)).map(|_| 0)
        };
        on_object(&spot, true, cut, kernels)
    }
}

also! {
    truncate64 = truncate(path: *const c_char, size: libc::off_t) -> c_int;
}
