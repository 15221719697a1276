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
//!
//! **A stream that is reopened stays where it is**: one of this library gets the new file under the number of
//! its descriptor, also a file of the host. One of the C library cannot become one of this library: a new
//! stream is returned, and the former one refuses reads and writes, until it is closed.
//! (test: `tests/preload/files.c`)

mod locked;

use super::also;
use super::open::openat;
use crate::guard::{Res, answer, errno, set_errno};
use crate::real;
use crate::route::{Route, route};
use crate::table::is_virtual;
use libc::{AT_FDCWD, FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use locked::Locked;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Where the C library keeps these in a stream: since 1997 part of its interface to programs.
const FLAGS: usize = 0;
const POINTERS: [usize; 6] = [8, 16, 24, WRITE_BASE, WRITE_POINTER, 48];
const BUFFER: usize = 56;
const WRITE_BASE: usize = 32;
const WRITE_POINTER: usize = 40;
const NUMBER: usize = 112;
const OFFSET: usize = 144;
/// The kind of a stream, and in one of functions its function to read, in a form that is the C library's.
const KIND: usize = 216;
const READ: usize = 232;
/// Both in a stream of ours, once there is one.
static OF_OURS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Bits of its flags, as old as the places.
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const ENDED: c_int = 0x10;
const FAILED: c_int = 0x20;
const WRITES_NOW: c_int = 0x800;
const APPENDS: c_int = 0x1000;

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
            for (at, place) in [KIND, READ].into_iter().enumerate() {
                OF_OURS[at].store(field::<usize>(made, place).read(), Ordering::Relaxed);
            }
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
        let Some(flags) = flags_of(bytes(mode)) else { return answer(Err(libc::EINVAL)) };
        let of_fd = super::descriptors::fcntl(fd, libc::F_GETFL, ptr::null_mut());
        let (wanted, access) = (flags & libc::O_ACCMODE, of_fd & libc::O_ACCMODE);
        if of_fd < 0 {
            return ptr::null_mut();
        }
        if access != libc::O_RDWR && access != wanted {
            return answer(Err(libc::EINVAL));
        }
        if flags & libc::O_APPEND & !of_fd != 0 {
            let appends = (of_fd | libc::O_APPEND) as usize as *mut c_void;
            if super::descriptors::fcntl(fd, libc::F_SETFL, appends) < 0 {
                return ptr::null_mut();
            }
        }
        stream(fd, bytes(mode))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fclose(closed: *mut FILE) -> c_int {
    // SAFETY: the caller's argument.
    unsafe {
        if let Some(status) = super::shells::close_stream(closed) {
            return status;
        }
        if !crate::config::is_on() || crate::guard::is_inside() {
            return real::fclose()(closed);
        }
        let is_it = |ours: &AtomicPtr<FILE>| !closed.is_null() && ours.load(Ordering::Relaxed) == closed;
        let Some(at) = OURS.iter().position(is_it) else { return real::fclose()(closed) };
        // The stream's memory is given back: nothing may lead to it.
        OURS[at].store(ptr::null_mut(), Ordering::Relaxed);
        let variable = variable(at as c_int);
        if variable.read() == closed {
            variable.write(FORMER[at].load(Ordering::Relaxed));
        }
        real::fclose()(closed)
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

/// Bytes that a stream has not written yet, which are not its own any more. The thread has its lock.
unsafe fn take_pending(from: *mut FILE) -> Vec<u8> {
    // SAFETY: it is a stream; what lies between the pointers is pending.
    unsafe {
        let base = field::<*mut u8>(from, WRITE_BASE).read();
        let pointer = field::<*mut u8>(from, WRITE_POINTER);
        let len = (pointer.read() as usize).saturating_sub(base as usize);
        if base.is_null() || len == 0 {
            return Vec::new();
        }
        pointer.write(base);
        std::slice::from_raw_parts(base, len).to_vec()
    }
}

/// A variable leads to `next` from now on, and pending bytes move there.
unsafe fn move_variable(variable: *mut *mut FILE, number: c_int, next: *mut FILE) {
    // SAFETY: the caller's streams.
    unsafe {
        let current = variable.read();
        let pending = {
            let _locked = if current.is_null() { None } else { Locked::soon(current) };
            let is_written = number != 0 && !current.is_null();
            let pending = if is_written { take_pending(current) } else { Vec::new() };
            variable.write(next);
            pending
        };
        if !pending.is_empty() {
            libc::fwrite(pending.as_ptr().cast(), 1, pending.len(), next);
        }
    }
}

/// The stream of ours of descriptor 0, 1 or 2; null if none can be made.
fn own_stream(number: c_int) -> *mut FILE {
    let own = &OURS[number as usize];
    let known = own.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = stream(number, if number == 0 { b"r" } else { b"w" });
    if next.is_null() {
        return next;
    }
    if number == 2 {
        // SAFETY: it was just made.
        unsafe { libc::setvbuf(next, ptr::null_mut(), libc::_IONBF, 0) };
    }
    own.store(next, Ordering::Relaxed);
    next
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
            let next = own_stream(number);
            if next.is_null() {
                return;
            }
            if number == 0 && !ours.is_null() {
                __fpurge(next);
                libc::clearerr(next);
            }
            field::<i64>(next, OFFSET).write(-1);
            if !is_ours {
                FORMER[at].store(current, Ordering::Relaxed);
                move_variable(variable, number, next);
            }
        } else if is_ours {
            let former = FORMER[at].load(Ordering::Relaxed);
            if !former.is_null() {
                move_variable(variable, number, former);
            }
        }
    }
    set_errno(before);
}

/// At the start: a program inherits virtual descriptors.
pub fn inherit() {
    (0..3).filter(|number| is_virtual(*number)).for_each(follow);
}

/// Whether a stream is of this library: one of functions, and they are ours.
unsafe fn is_ours(old: *mut FILE) -> bool {
    let [kind, read] = [0, 1].map(|at: usize| OF_OURS[at].load(Ordering::Relaxed));
    // SAFETY: the caller's stream; all of that kind have functions.
    unsafe {
        kind != 0 && field::<usize>(old, KIND).read() == kind && field::<usize>(old, READ).read() == read
    }
}

/// A stream has no bytes and no state of its file any more; its mode is `flags`. The thread has its lock.
unsafe fn renew(old: *mut FILE, flags: c_int) {
    // SAFETY: the caller's stream.
    unsafe {
        __fpurge(old);
        // Nothing is read, and there is no room to write: the next call of either kind begins anew.
        let buffer = field::<*mut u8>(old, BUFFER).read();
        POINTERS.iter().for_each(|at| field::<*mut u8>(old, *at).write(buffer));
        let refused = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if flags & libc::O_APPEND != 0 { APPENDS } else { 0 };
        let own = field::<c_int>(old, FLAGS);
        let kept = own.read() & !(NO_READS | NO_WRITES | ENDED | FAILED | WRITES_NOW | APPENDS);
        own.write(kept | refused | appends);
        field::<i64>(old, OFFSET).write(-1);
    }
}

/// Put `fd` in the place of `number`.
unsafe fn replace(fd: c_int, number: c_int, flags: c_int) -> Res<()> {
    if fd == number {
        return Ok(());
    }
    // SAFETY: the descriptor is ours.
    unsafe {
        let done = super::descriptors::dup3(fd, number, flags & libc::O_CLOEXEC);
        let why = errno();
        super::descriptors::close(fd);
        if done < 0 { Err(why) } else { Ok(()) }
    }
}

/// `stdin`, `stdout` or `stderr`: its variable follows.
unsafe fn reopen_variable(path: *const c_char, flags: c_int, number: c_int, old: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        let locked = Locked::new(old);
        libc::fflush(old);
        let fd = openat(AT_FDCWD, path, flags, 0o666);
        if fd < 0 {
            return ptr::null_mut();
        }
        if let Err(why) = replace(fd, number, 0) {
            return answer(Err(why));
        }
        follow(number);
        let now = variable(number).read();
        let is_ours = is_virtual(number) && OURS[number as usize].load(Ordering::Relaxed) == now;
        let _locked = if now == old {
            locked
        } else {
            drop(locked);
            Locked::new(now)
        };
        match is_ours {
            true => renew(now, flags),
            false => libc::clearerr(now),
        }
        now
    }
}

/// A stream of ours, to another file: the same stream, at the same number.
unsafe fn reopen_ours(path: *const c_char, flags: c_int, old: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        let _locked = Locked::new(old);
        libc::fflush(old);
        let number = field::<c_int>(old, NUMBER).read();
        let fd = openat(AT_FDCWD, path, flags, 0o666);
        let replaced = if fd < 0 { Err(errno()) } else { replace(fd, number, flags) };
        if let Err(why) = replaced {
            refuse(old);
            return answer(Err(why));
        }
        renew(old, flags);
        old
    }
}

/// A stream of the C library, to a file of ours: a new one.
unsafe fn reopen_new(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        let locked = Locked::new(old);
        libc::fflush(old);
        refuse(old);
        drop(locked);
        fopen(path, mode)
    }
}

/// Close the descriptor of a stream, which refuses all from then on. The thread has its lock.
unsafe fn refuse(old: *mut FILE) {
    // SAFETY: the caller's stream.
    unsafe {
        renew(old, libc::O_RDWR);
        let flags = field::<c_int>(old, FLAGS);
        flags.write(flags.read() | NO_READS | NO_WRITES);
        let number = field::<c_int>(old, NUMBER);
        super::descriptors::close(number.read());
        number.write(-1);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        if !crate::config::is_on() || crate::guard::is_inside() || old.is_null() {
            return real::freopen()(path, mode, old);
        }
        let number = field::<c_int>(old, NUMBER).read();
        let is_virtual = is_virtual(number);
        let was_ours = is_ours(old);
        // Without a path it is the same file, in another mode.
        let same = CString::new(format!("/proc/self/fd/{number}")).unwrap_or_default();
        let path = if path.is_null() && (was_ours || is_virtual) { same.as_ptr() } else { path };
        let becomes_ours = matches!(route(AT_FDCWD, path), Route::Ours(_))
            || crate::route::descriptor_of(bytes(path)).is_some();
        if !was_ours && !becomes_ours && !is_virtual {
            return real::freopen()(path, mode, old);
        }
        let Some(flags) = flags_of(bytes(mode)) else { return answer(Err(libc::EINVAL)) };
        if becomes_ours && (0..3).contains(&number) {
            // Before its lock is taken.
            own_stream(number);
        }
        match was_ours {
            _ if (0..3).contains(&number) => reopen_variable(path, flags, number, old),
            true => reopen_ours(path, flags, old),
            false => reopen_new(path, mode, old),
        }
    }
}

also! {
    _IO_fopen = fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fclose = fclose(closed: *mut FILE) -> c_int;
    _IO_fdopen = fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fopen64 = fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    freopen64 = freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE;
}
