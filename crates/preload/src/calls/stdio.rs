//! The streams of the C library (`FILE`).
//!
//! The C library's streams read and write by calls that do not pass through this library. So a stream on a
//! virtual descriptor is made of functions that call this library (`fopencookie`); the number of its
//! descriptor is put where `fileno` finds it.
//!
//! **`stdin`, `stdout` and `stderr`** are variables. When descriptor 0, 1 or 2 becomes virtual (a shell's
//! redirection, inherited or made by `dup2`), its variable gets a stream of this library, with the bytes
//! that the former stream had not written yet. When the descriptor belongs to the kernel again, the
//! variable gets its first stream back. If a program copied the variable before, its copy still leads to
//! the old stream.

use super::also;
use super::open::open_spot;
use crate::guard::{answer, errno, set_errno};
use crate::real;
use crate::route::{Route, route};
use crate::table::is_virtual;
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the C library keeps these in a stream: since 1997 part of its interface to programs.
const WRITE_BASE: usize = 32;
const WRITE_POINTER: usize = 40;
const NUMBER: usize = 112;
const OFFSET: usize = 144;

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn __fpurge(stream: *mut FILE);
}

unsafe extern "C" fn read(cookie: *mut c_void, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's arguments.
    unsafe { super::io::read(cookie as usize as c_int, into.cast(), len) }
}

unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's arguments. It takes 0 for an error, and -1 not.
    let written = unsafe { super::io::write(cookie as usize as c_int, from.cast(), len) };
    written.max(0)
}

unsafe extern "C" fn seek(cookie: *mut c_void, at: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the C library's arguments.
    unsafe {
        let done = super::io::lseek(cookie as usize as c_int, *at, whence);
        if done < 0 {
            return -1;
        }
        *at = done;
        0
    }
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the C library's argument.
    unsafe { super::descriptors::close(cookie as usize as c_int) }
}

unsafe fn field<T>(stream: *mut FILE, at: usize) -> *mut T {
    // SAFETY: a stream is that large.
    unsafe { stream.cast::<u8>().add(at).cast() }
}

/// A stream of ours on a descriptor. `mode` begins with `r`, `w` or `a`.
fn stream(fd: c_int, mode: &[u8]) -> *mut FILE {
    let letter = mode.first().copied().unwrap_or(b'r');
    let text = if mode.contains(&b'+') { vec![letter, b'+'] } else { vec![letter] };
    let Ok(mode) = CString::new(text) else { return answer(Err(libc::EINVAL)) };
    // SAFETY: the functions live as long as the program.
    unsafe {
        let made =
            fopencookie(fd as usize as *mut c_void, mode.as_ptr(), Functions { read, write, seek, close });
        if !made.is_null() {
            field::<c_int>(made, NUMBER).write(fd);
        }
        made
    }
}

fn flags_of(mode: &[u8]) -> Option<c_int> {
    let both = mode.contains(&b'+');
    let access = |one: c_int| if both { libc::O_RDWR } else { one };
    let mut flags = match mode.first()? {
        b'r' => access(libc::O_RDONLY),
        b'w' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        b'a' => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let letters = mode.split(|byte| *byte == b',').next().unwrap_or(mode);
    if letters.contains(&b'e') {
        flags |= libc::O_CLOEXEC;
    }
    if letters.contains(&b'x') {
        flags |= libc::O_EXCL;
    }
    Some(flags)
}

unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller passes a C string or null.
    unsafe { if text.is_null() { b"" } else { CStr::from_ptr(text).to_bytes() } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        let is_ours = matches!(route(AT_FDCWD, path), Route::Ours(_))
            || (!path.is_null() && crate::route::descriptor_of(bytes(path)).is_some());
        if !is_ours {
            return real::fopen()(path, mode);
        }
        let mode = bytes(mode);
        let Some(flags) = flags_of(mode) else { return answer(Err(libc::EINVAL)) };
        let fd = super::open::openat(AT_FDCWD, path, flags, 0o666);
        if fd < 0 {
            return ptr::null_mut();
        }
        if !is_virtual(fd) {
            let Ok(mode) = CString::new(mode) else { return answer(Err(libc::EINVAL)) };
            return real::fdopen()(fd, mode.as_ptr());
        }
        stream(fd, mode)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        if !is_virtual(fd) {
            return real::fdopen()(fd, mode);
        }
        match flags_of(bytes(mode)) {
            Some(_) => stream(fd, bytes(mode)),
            None => answer(Err(libc::EINVAL)),
        }
    }
}

fn variable(number: c_int) -> *mut *mut FILE {
    match number {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// The C library's own streams, and ours, of 0, 1 and 2.
static FORMER: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];
static OURS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

/// Bytes that a stream has not written yet move to another.
unsafe fn move_pending(from: *mut FILE, to: *mut FILE) {
    // SAFETY: both are streams; what lies between the pointers is pending.
    unsafe {
        let base = field::<*mut u8>(from, WRITE_BASE).read();
        let pointer = field::<*mut u8>(from, WRITE_POINTER);
        let len = (pointer.read() as usize).saturating_sub(base as usize);
        if base.is_null() || len == 0 {
            return;
        }
        let pending = std::slice::from_raw_parts(base, len).to_vec();
        pointer.write(base);
        libc::fwrite(pending.as_ptr().cast(), 1, len, to);
    }
}

/// The descriptor 0, 1 or 2 has another meaning: its variable follows.
pub fn follow(number: c_int) {
    let (at, variable) = (number as usize, variable(number));
    let before = errno();
    // SAFETY: the variables are the C library's, and a program has them changed only by its own `dup2`.
    unsafe {
        let current = variable.read();
        let ours = OURS[at].load(Ordering::Relaxed);
        let is_ours = !ours.is_null() && current == ours;
        if is_virtual(number) {
            let mut next = ours;
            if next.is_null() {
                next = stream(number, if number == 0 { b"r" } else { b"w" });
                if next.is_null() {
                    return;
                }
                if number == 2 {
                    libc::setvbuf(next, ptr::null_mut(), libc::_IONBF, 0);
                }
                OURS[at].store(next, Ordering::Relaxed);
            } else if number == 0 {
                __fpurge(next);
                libc::clearerr(next);
            }
            field::<i64>(next, OFFSET).write(-1);
            if !is_ours {
                FORMER[at].store(current, Ordering::Relaxed);
                if number != 0 && !current.is_null() {
                    move_pending(current, next);
                }
                variable.write(next);
            }
        } else if is_ours {
            let former = FORMER[at].load(Ordering::Relaxed);
            if !former.is_null() {
                if number != 0 {
                    move_pending(current, former);
                }
                variable.write(former);
            }
        }
    }
    set_errno(before);
}

/// At the start: a program inherits virtual descriptors.
pub fn inherit() {
    (0..3).filter(|number| is_virtual(*number)).for_each(follow);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        let number = if old.is_null() { -1 } else { field::<c_int>(old, NUMBER).read() };
        let spot = match route(AT_FDCWD, path) {
            Route::Ours(spot) => Some(spot),
            Route::Kernel => None,
        };
        if path.is_null() || (spot.is_none() && !is_virtual(number)) {
            return real::freopen()(path, mode, old);
        }
        let Some(flags) = flags_of(bytes(mode)) else { return answer(Err(libc::EINVAL)) };
        libc::fflush(old);
        if !(0..3).contains(&number) {
            libc::fclose(old);
            return fopen(path, mode);
        }
        let fd = match &spot {
            Some(spot) => answer(open_spot(spot, flags, 0o666)),
            None => real::openat()(AT_FDCWD, path, flags, 0o666),
        };
        if fd < 0 {
            return ptr::null_mut();
        }
        let done = libc::dup2(fd, number);
        libc::close(fd);
        if done < 0 {
            return ptr::null_mut();
        }
        variable(number).read()
    }
}

also! {
    _IO_fopen = fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fopen64 = fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    freopen64 = freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE;
}
