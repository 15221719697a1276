//! Variables of a thread, in a program that ends.
//!
//! At `exit` the C library runs the destructors of the main thread's variables first, and flushes streams later,
//! which call us. The runtime and the standard library keep some of their state in such variables. So those of
//! this library's on the main thread are never destroyed.

use crate::real;
use libc::{c_int, c_void};

unsafe extern "C" {
    static __dso_handle: c_void;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: *mut c_void,
    of: *mut c_void,
    library: *mut c_void,
) -> c_int {
    // SAFETY: the calls have no conditions.
    let is_main = unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) };
    let is_own = std::ptr::eq(library, &raw const __dso_handle);
    if is_own && is_main {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { real::__cxa_thread_atexit_impl()(destructor, of, library) }
}
