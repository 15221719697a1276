//! Space and limits of file systems.

use super::also;
use crate::guard::{Res, answer, call};
use crate::real;
use crate::route::{Route, on_object, route};
use crate::session::Call;
use crate::table::is_virtual;
use libc::{AT_FDCWD, c_char, c_int, c_long};

/// `f_type` of a file system without a number of its own (FUSE's).
const TYPE: i64 = 0x6573_5546;
const NAME_BYTES_MAX: i64 = 255;

/// Blocks, free blocks, objects.
fn space(session: &mut Call<'_>, mount: usize) -> Res<(u64, u64, u64)> {
    let space = session.on(mount, |tree| tree.statfs())?;
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

also! {
    statfs64 = statfs(path: *const c_char, into: *mut libc::statfs) -> c_int;
    fstatfs64 = fstatfs(fd: c_int, into: *mut libc::statfs) -> c_int;
    __statfs = statfs(path: *const c_char, into: *mut libc::statfs) -> c_int;
    statvfs64 = statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int;
    fstatvfs64 = fstatvfs(fd: c_int, into: *mut libc::statvfs) -> c_int;
}
