//! The calls that make a temporary file or directory under a new name.

use super::also;
use super::metadata::fstatat;
use super::open::openat;
use crate::guard::{answer, errno, set_errno};
use crate::real;
use crate::route::{Route, route};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const DRAWN: usize = 6;
/// Names that are tried.
const TRIES: usize = 1000;

/// Draw letters for the `X`s of a template, until `made` takes the name.
unsafe fn draw(template: *mut c_char, suffix: c_int, mut made: impl FnMut() -> c_int) -> c_int {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the caller passes a C string that may be changed.
    unsafe {
        let len = libc::strlen(template);
        let Some(from) = usize::try_from(suffix).ok().and_then(|suffix| len.checked_sub(suffix + DRAWN))
        else {
            return answer(Err(libc::EINVAL));
        };
        let place = std::slice::from_raw_parts_mut(template.cast::<u8>().add(from), DRAWN);
        if place != b"XXXXXX" {
            return answer(Err(libc::EINVAL));
        }
        let before = errno();
        for _ in 0..TRIES {
            let mut seed = [0_u8; 8];
            libc::syscall(libc::SYS_getrandom, seed.as_mut_ptr(), seed.len(), libc::GRND_NONBLOCK);
            let mut number = u64::from_ne_bytes(seed).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
            for byte in place.iter_mut() {
                *byte = LETTERS[(number % 62) as usize];
                number /= 62;
            }
            let done = made();
            if done >= 0 {
                set_errno(before);
                return done;
            }
            if errno() != libc::EEXIST {
                break;
            }
        }
        place.copy_from_slice(b"XXXXXX");
        -1
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if matches!(route(AT_FDCWD, template), Route::Kernel) {
            return real::mkostemps()(template, suffix, flags);
        }
        let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        draw(template, suffix, || openat(AT_FDCWD, template, flags, 0o600))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkostemps(template, 0, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkostemps(template, suffix, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemp(template: *mut c_char) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { mkostemps(template, 0, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's argument.
    unsafe {
        if matches!(route(AT_FDCWD, template), Route::Kernel) {
            return real::mkdtemp()(template);
        }
        let done = draw(template, 0, || super::names::mkdir(template, 0o700));
        if done < 0 { std::ptr::null_mut() } else { template }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mktemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's argument; all zeros are a valid `stat`.
    unsafe {
        if matches!(route(AT_FDCWD, template), Route::Kernel) {
            return real::mktemp()(template);
        }
        let is_free = || {
            let mut stat: libc::stat = std::mem::zeroed();
            if fstatat(AT_FDCWD, template, &mut stat, AT_SYMLINK_NOFOLLOW) == 0 {
                set_errno(libc::EEXIST);
                return -1;
            }
            if errno() == libc::ENOENT { 0 } else { -1 }
        };
        if draw(template, 0, is_free) < 0 {
            template.write(0);
        }
        template
    }
}

also! {
    __mktemp = mktemp(template: *mut c_char) -> *mut c_char;
    mkstemp64 = mkstemp(template: *mut c_char) -> c_int;
    mkostemp64 = mkostemp(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps64 = mkstemps(template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps64 = mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
}
