//! The calls that close, duplicate and query descriptors. This file also keeps the library's own
//! descriptors out of the program's way.
//!
//! **A descriptor that the library makes for itself is moved to a high number**: programs choose low
//! numbers themselves (a shell's `exec 3>file`), and would close or replace it.

use super::{also, stdio};
use crate::config;
use crate::guard::{self, Res, answer, call};
use crate::opens;
use crate::real;
use crate::session::own_from;
use crate::table::{self, is_kernels, is_virtual};
use libc::{c_int, c_uint, c_ulong, c_void};
use std::sync::atomic::Ordering;

/// A descriptor that was made in our world, at a number that is ours.
pub fn out_of_the_way(fd: c_int) -> c_int {
    if fd < 0 || !guard::is_inside() {
        return fd;
    }
    let first = own_from();
    if fd >= first {
        return fd;
    }
    // SAFETY: the descriptor was just made by this thread.
    unsafe {
        let moved = libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, first) as c_int;
        if moved < 0 {
            return fd;
        }
        libc::syscall(libc::SYS_close, fd);
        moved
    }
}

/// A descriptor came from another process, at a number that is free.
pub fn received(fd: c_int) {
    abandon(fd);
    table::is_received(fd);
}

/// A descriptor is no virtual one any more. If its description still counts it, the next call takes it off.
fn abandon(fd: c_int) {
    if let Some(index) = table::take(fd) {
        super::children::abandon(&guard::Held::new(), index);
    }
}

/// A virtual descriptor is closed; an error of its file is the call's.
pub fn close_virtual(fd: c_int) -> Res<c_int> {
    let done = call(|session| session.unrefer(fd));
    // The number is free whatever the call says: without its turn it leaves its part to the next call.
    abandon(fd);
    // From here on the number may be another thread's next open.
    // SAFETY: the program gives it up.
    let closed = unsafe { real::close()(fd) };
    if closed < 0 { Err(guard::errno()) } else { done.map(|()| 0) }
}

/// `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if table::index(fd).is_some() && is_virtual(fd) {
        return answer(close_virtual(fd));
    }
    if !guard::is_inside() {
        // Its number may be the next open's, which says whose that is.
        is_kernels(fd);
    }
    // SAFETY: the caller's argument.
    unsafe { real::close()(fd) }
}

unsafe fn close_from(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let clip = |number: c_uint| c_int::try_from(number).unwrap_or(c_int::MAX);
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        for fd in table::virtual_ones(clip(first), clip(last)) {
            let _ = close_virtual(fd);
        }
    }
    // Ours stay open in this process; they close themselves at an `exec`.
    let last = if config::is_on() { last.min(own_from() as c_uint - 1) } else { last };
    if first > last {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::close_range()(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        return answer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's arguments.
    unsafe { close_from(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's argument.
    unsafe { close_from(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// `new` stands for `old` from now on, in the kernel.
fn doubled(old: c_int, new: c_int) -> c_int {
    if new < 0 {
        return new;
    }
    if !is_virtual(old) {
        is_kernels(new);
        return new;
    }
    let done = call(|session| {
        let index = session.index(old)?;
        session.refer(new, index)
    });
    match done {
        Ok(()) => new,
        Err(number) => {
            // SAFETY: the descriptor was just made.
            unsafe { real::close()(new) };
            answer(Err(number))
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    // SAFETY: the caller's argument.
    doubled(old, unsafe { real::dup()(old) })
}

/// `old` gets the number of a virtual descriptor. Until the kernel has done it, the number is the former
/// file's.
fn replace_virtual(old: c_int, new: c_int, kernels: &dyn Fn() -> c_int) -> Res<c_int> {
    let has_old = is_virtual(old);
    let doubled = || match kernels() {
        done if done < 0 => Err(guard::errno()),
        done => Ok(done),
    };
    let done = call(|session| {
        let index = if has_old { Some(session.index(old)?) } else { None };
        // Another thread may have closed it meanwhile.
        let done = doubled()?;
        session.replace(new, index)?;
        Ok(done)
    });
    match done {
        // Without a turn the former file leaves its part to the next call.
        Err(libc::ETIMEDOUT) if !has_old => {
            let done = doubled()?;
            abandon(new);
            table::changed_owner();
            Ok(done)
        }
        done => done,
    }
}

/// A virtual descriptor gets a number of the kernel's. The number is ours before the kernel has done it: a
/// call on it never finds the file in memory.
fn replace_kernels(old: c_int, new: c_int, kernels: &dyn Fn() -> c_int) -> Res<c_int> {
    call(|session| {
        let index = session.index(old)?;
        session.refer(new, index)?;
        table::changed_owner();
        Ok(())
    })?;
    // Not in our world: the close of the kernel's file may take long.
    let done = kernels();
    if done >= 0 {
        return Ok(done);
    }
    let number = guard::errno();
    let _ = call(|session| session.unrefer(new));
    abandon(new);
    table::changed_owner();
    Err(number)
}

unsafe fn replace(old: c_int, new: c_int, flags: Option<c_int>) -> c_int {
    // SAFETY: the caller's arguments.
    let kernels = || unsafe {
        match flags {
            Some(flags) => real::dup3()(old, new, flags),
            None => real::dup2()(old, new),
        }
    };
    let (has_old, had_new) = (is_virtual(old), table::index(new).is_some());
    if old == new || new < 0 || guard::is_inside() {
        return kernels();
    }
    if !has_old && !had_new {
        let done = kernels();
        is_kernels(done);
        return done;
    }
    let done =
        if had_new { replace_virtual(old, new, &kernels) } else { replace_kernels(old, new, &kernels) };
    if done.is_ok() && (0..3).contains(&new) {
        stdio::follow(new);
    }
    answer(done)
}

/// `dup2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { replace(old, new, None) }
}

/// `dup3(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { replace(old, new, Some(flags)) }
}

/// Status flags that `F_SETFL` changes.
const CHANGED: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;

/// `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    if !is_virtual(fd) {
        let is_copy = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
        let argument = match is_copy && guard::is_inside() {
            // The runtime's copies of its own descriptors.
            true => (argument as usize).max(own_from() as usize) as *mut c_void,
            false => argument,
        };
        // SAFETY: the caller's arguments.
        let done = unsafe { real::fcntl()(fd, command, argument) };
        if is_copy {
            is_kernels(done);
        }
        return done;
    }
    match command {
        // SAFETY: the caller's arguments.
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => doubled(fd, unsafe { real::fcntl()(fd, command, argument) }),
        libc::F_GETFL => answer(call(|session| Ok(session.open(fd)?.record.flags()))),
        libc::F_SETFL => answer(call(|session| {
            let flags = &session.open(fd)?.record.flags;
            let new =
                (flags.load(Ordering::Relaxed) as c_int & !CHANGED) | (argument as usize as c_int & CHANGED);
            flags.store(new as u32, Ordering::Relaxed);
            Ok(0)
        })),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            // SAFETY: the caller passes a lock.
            answer(unsafe { super::locks::record_lock(fd, command, argument.cast()) })
        }
        // SAFETY: the caller's arguments.
        libc::F_GETFD | libc::F_SETFD => unsafe { real::fcntl()(fd, command, argument) },
        libc::F_GETLEASE | libc::F_SETLEASE | libc::F_NOTIFY | libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => {
            answer(Err(libc::EINVAL))
        }
        _ => answer(Err(libc::EINVAL)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::ioctl()(fd, request, argument) };
    }
    match request {
        libc::FIONREAD if argument.is_null() => answer(Err(libc::EFAULT)),
        libc::FIONREAD => answer(call(|session| {
            let size = session.attributes(fd)?.1.size.cast_signed();
            let left = size - session.open(fd)?.record.offset.load(Ordering::Relaxed);
            // SAFETY: the caller passes an integer.
            unsafe { *argument.cast::<c_int>() = left.clamp(0, c_int::MAX.into()) as c_int };
            Ok(0)
        })),
        // SAFETY: the caller's arguments.
        libc::FIOCLEX | libc::FIONCLEX => unsafe { real::ioctl()(fd, request, argument) },
        libc::FICLONE | libc::FICLONERANGE => answer(Err(libc::EOPNOTSUPP)),
        _ => answer(Err(libc::ENOTTY)),
    }
}

/// Makers of descriptors whose files are always the kernel's.
macro_rules! makers {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the caller's arguments.
            let fd = unsafe { real::$name()($($arg),*) };
            is_kernels(fd);
            out_of_the_way(fd)
        }
    )*};
}

makers! {
    socket(domain: c_int, kind: c_int, protocol: c_int);
    eventfd(value: c_uint, flags: c_int);
    epoll_create1(flags: c_int);
    accept(fd: c_int, address: *mut c_void, len: *mut c_void);
    accept4(fd: c_int, address: *mut c_void, len: *mut c_void, flags: c_int);
}

/// Two descriptors of the kernel's were made.
unsafe fn both(done: c_int, ends: *const c_int) -> c_int {
    if done == 0 {
        // SAFETY: the call has filled both.
        unsafe {
            is_kernels(*ends);
            is_kernels(*ends.add(1));
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { both(real::pipe()(ends), ends) }
}

/// `pipe2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { both(real::pipe2()(ends, flags), ends) }
}

/// Whether a descriptor is a terminal: a virtual one never is.
#[unsafe(no_mangle)]
unsafe extern "C" fn isatty(fd: c_int) -> c_int {
    if is_virtual(fd) {
        guard::set_errno(libc::ENOTTY);
        return 0;
    }
    let mut settings = [0_u8; 256];
    // SAFETY: the settings of a terminal are smaller.
    let done = unsafe { real::ioctl()(fd, libc::TCGETS, settings.as_mut_ptr().cast()) };
    c_int::from(done == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lockf(fd: c_int, command: c_int, len: libc::off_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::lockf()(fd, command, len) };
    }
    let mut lock = libc::flock {
        l_type: if command == libc::F_ULOCK { libc::F_UNLCK as i16 } else { libc::F_WRLCK as i16 },
        l_whence: libc::SEEK_SET as i16,
        l_start: match opens::seek(fd, 0, libc::SEEK_CUR) {
            Ok(at) => at,
            Err(number) => return answer(Err(number)),
        },
        l_len: len,
        l_pid: 0,
    };
    let kind = match command {
        libc::F_TEST => libc::F_GETLK,
        libc::F_LOCK => libc::F_SETLKW,
        _ => libc::F_SETLK,
    };
    // SAFETY: the lock is ours.
    let done = unsafe { super::locks::record_lock(fd, kind, &mut lock) };
    answer(done.and_then(|done| match command {
        libc::F_TEST if lock.l_type != libc::F_UNLCK as i16 => Err(libc::EACCES),
        _ => Ok(done),
    }))
}

also! {
    __close = close(fd: c_int) -> c_int;
    __dup2 = dup2(old: c_int, new: c_int) -> c_int;
    fcntl64 = fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    __fcntl = fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    lockf64 = lockf(fd: c_int, command: c_int, len: libc::off_t) -> c_int;
}
