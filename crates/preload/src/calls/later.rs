//! Asynchronous input and output (`aio_read`, `lio_listio`): the C library carries these calls out later, by
//! threads of its own that bypass this library.
//!
//! On a virtual descriptor these calls are refused (`ENOSYS`): programs then use plain reads and writes.

use crate::guard::{answer, decline};
use crate::real;
use crate::table::is_virtual;
use libc::{c_int, c_void};

/// The descriptor of a control block, which begins with it.
unsafe fn of(block: *const c_void) -> c_int {
    // SAFETY: the caller passes a control block or null.
    unsafe { block.cast::<c_int>().as_ref().map_or(-1, |fd| *fd) }
}

macro_rules! later {
    ($($name:ident, $wide:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(block: *mut c_void) -> c_int {
            // SAFETY: the caller's argument.
            unsafe {
                if !is_virtual(of(block)) {
                    return real::$name()(block);
                }
                decline(stringify!($name), "its thread would not pass through the library");
                answer(Err(libc::ENOSYS))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $wide(block: *mut c_void) -> c_int {
            // SAFETY: the caller's argument.
            unsafe { $name(block) }
        }
    )*};
}

later! {
    aio_read, aio_read64;
    aio_write, aio_write64;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_fsync(kind: c_int, block: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { if is_virtual(of(block)) { answer(Err(libc::ENOSYS)) } else { real::aio_fsync()(kind, block) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_fsync64(kind: c_int, block: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { aio_fsync(kind, block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let blocks = usize::try_from(count).unwrap_or(0);
        if !list.is_null() && (0..blocks).any(|at| is_virtual(of(*list.add(at)))) {
            return answer(Err(libc::ENOSYS));
        }
        real::lio_listio()(mode, list, count, event)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { lio_listio(mode, list, count, event) }
}
