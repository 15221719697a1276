//! The calls that open files: `open` and its variants.
//!
//! On the supported machines an optional argument is passed like a fixed argument. So the mode is declared
//! as a fixed argument; it is used only with `O_CREAT`.

use super::also;
use crate::guard::{Res, answer, call};
use crate::opens::{self, Opened};
use crate::real;
use crate::route::{Route, Spot, descriptor_of, route};
use crate::table;
use libc::{AT_FDCWD, O_CREAT, O_LARGEFILE, O_TRUNC, O_WRONLY, c_char, c_int, mode_t};
use std::ffi::CStr;

/// Open a place of ours; with the kernel where it is the kernel's after all.
pub fn open_spot(spot: &Spot, flags: c_int, mode: mode_t) -> Res<c_int> {
    match call(|session| opens::open(session, spot, flags, mode))? {
        Opened::Descriptor(fd) => Ok(fd),
        Opened::Outside(path) => {
            // SAFETY: the path is a C string.
            let fd = unsafe { real::openat()(AT_FDCWD, path.as_ptr(), flags, mode) };
            table::is_kernels(fd);
            if fd < 0 { Err(crate::guard::errno()) } else { Ok(fd) }
        }
    }
}

/// Another description of a descriptor's file (`/dev/fd/N`).
fn open_again(fd: c_int, flags: c_int, mode: mode_t) -> Res<c_int> {
    let spot = call(|session| {
        let record = session.open(fd)?.record;
        Ok(Spot::new(record.mount as usize, record.path()))
    })?;
    if flags & (O_CREAT | libc::O_EXCL) == O_CREAT | libc::O_EXCL {
        return Err(libc::EEXIST);
    }
    // The file is there. One whose name was removed is not made anew.
    open_spot(&spot, flags & !(libc::O_NOFOLLOW | O_CREAT), mode)
}

/// Whether a path begins so, without a look at its end.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn begins_with(path: *const c_char, start: &[u8]) -> bool {
    // SAFETY: a byte is read only if all before it are equal to ours, of which none is the string's end.
    !path.is_null() && start.iter().enumerate().all(|(at, byte)| unsafe { *path.add(at) } as u8 == *byte)
}

/// `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller passes a C string or null.
    match unsafe { route(dir, path) } {
        Route::Ours(spot) => return answer(open_spot(&spot, flags, mode)),
        // SAFETY: the same.
        Route::Kernel if unsafe { begins_with(path, b"/dev/") || begins_with(path, b"/proc/") } => {
            // SAFETY: the same.
            if let Some(fd) = descriptor_of(unsafe { CStr::from_ptr(path) }.to_bytes()) {
                return answer(open_again(fd, flags, mode));
            }
        }
        Route::Kernel => {}
    }
    // SAFETY: the caller's arguments.
    let fd = unsafe { real::openat()(dir, path, flags, mode) };
    // SAFETY: the caller's path, which the kernel has read.
    if fd >= 0 && unsafe { begins_with(path, b"/proc/") } {
        // It may be a descriptor of another process, whose record is in a file in memory.
        table::is_received(fd);
    } else {
        table::is_kernels(fd);
    }
    super::descriptors::out_of_the_way(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(AT_FDCWD, path, flags | O_LARGEFILE, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(dir, path, flags | O_LARGEFILE, 0) }
}

also! {
    open64 = open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open = open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open64 = open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64 = openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat64 = creat(path: *const c_char, mode: mode_t) -> c_int;
    __open64_2 = __open_2(path: *const c_char, flags: c_int) -> c_int;
    __openat64_2 = __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int;
}
