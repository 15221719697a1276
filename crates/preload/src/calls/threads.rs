//! Thread-local variables at the end of a program.
//!
//! At `exit` the C library runs the destructors of the main thread's variables first, and flushes streams
//! later, which calls this library. The runtime and the standard library keep some of their state in such
//! variables. So this library's variables on the main thread are never destroyed.

use crate::real;
use libc::{c_int, c_void};

unsafe extern "C" {
    // The linker's marks of this library's first byte and of the one after its last.
    static __ehdr_start: c_void;
    static _end: c_void;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: *mut c_void,
    of: *mut c_void,
    library: *mut c_void,
) -> c_int {
    // SAFETY: the calls have no conditions.
    let is_main = unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) };
    let (first, end) = (&raw const __ehdr_start, &raw const _end);
    let is_own = (first..end).contains(&library.cast_const());
    if is_own && is_main {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::__cxa_thread_atexit_impl()(destructor, of, library) }
}
