//! The calls that map a file into memory (`mmap`), and the calls that load a shared object (`dlopen`).
//!
//! A mapping of a virtual file is memory of the process with the file's bytes at that moment. A shared
//! mapping that may be written is not possible in this way, and fails with `ENODEV`.

use super::also;
use super::program::image;
use crate::guard::{Res, call, errno};
use crate::opens;
use crate::real;
use crate::route::{Route, route};
use crate::table::is_virtual;
use libc::{
    AT_FDCWD, MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_WRITE, c_char, c_int, c_void, off_t, size_t,
};
use std::ptr;
use std::sync::atomic::AtomicPtr;

/// Bits that say whether a mapping is shared.
const MAP_TYPE: c_int = 0x0f;

/// Read a mapping's bytes, up to the end of the file. A part that cannot be read is an error: the bytes of a
/// mapping that are not there would be zeros.
unsafe fn fill(fd: c_int, into: *mut u8, len: size_t, offset: off_t) -> Res<()> {
    let mut done = 0;
    while done < len {
        // SAFETY: the mapping has `len` bytes.
        let read = unsafe { opens::read(fd, into.add(done), len - done, Some(offset + done as off_t))? };
        if read == 0 {
            break;
        }
        done += read as usize;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe {
        if flags & MAP_ANONYMOUS != 0 || !is_virtual(fd) {
            return real::mmap()(at, len, protection, flags, fd, offset);
        }
        let failed = |number: c_int| {
            crate::guard::set_errno(number);
            libc::MAP_FAILED
        };
        if flags & MAP_TYPE != MAP_PRIVATE && protection & PROT_WRITE != 0 {
            crate::guard::decline("mmap", "a shared mapping that may be written");
            return failed(libc::ENODEV);
        }
        let access = match call(|session| Ok(session.open(fd)?.record.flags() & libc::O_ACCMODE)) {
            Ok(access) => access,
            Err(number) => return failed(number),
        };
        if access == libc::O_WRONLY {
            return failed(libc::EACCES);
        }
        let anonymous = (flags & !MAP_TYPE & !MAP_SHARED) | MAP_PRIVATE | MAP_ANONYMOUS;
        let open = libc::PROT_READ | PROT_WRITE;
        let mapped = real::mmap()(at, len, open, anonymous, -1, 0);
        if mapped == libc::MAP_FAILED {
            return mapped;
        }
        if let Err(number) = fill(fd, mapped.cast(), len, offset) {
            libc::munmap(mapped, len);
            return failed(number);
        }
        if protection != open && libc::mprotect(mapped, len, protection) != 0 {
            let number = errno();
            libc::munmap(mapped, len);
            return failed(number);
        }
        mapped
    }
}

/// The object that `dlopen` is to load, and the C library's own function.
#[repr(C)]
struct Load {
    path: *const c_char,
    function: *mut c_void,
}

/// A shared object of ours is loaded from memory. The memory stays: the loader knows the object by it.
unsafe extern "C" fn loaded(path: *const c_char) -> Load {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let function = crate::real::find(&REAL, c"dlopen");
    // SAFETY: the caller's argument.
    unsafe {
        let is_path = !path.is_null() && !libc::strchr(path, b'/'.into()).is_null();
        if is_path && let Route::Ours(spot) = route(AT_FDCWD, path) {
            let own = match image(&spot) {
                Ok(fd) => format!("/proc/self/fd/{fd}"),
                Err(_) => String::from("/shoal-preload/no-such-object"),
            };
            if let Ok(own) = std::ffi::CString::new(own) {
                return Load { path: own.into_raw(), function };
            }
        }
    }
    Load { path, function }
}

/// `dlopen(3)`: the C library looks at its caller (for search paths), so the call must not come from here.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rsi",
        "call {loaded}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        loaded = sym loaded,
    )
}

#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { crate::real::dlopen()(loaded(path).path, flags) }
}

also! {
    __mmap = mmap(
        at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void;
    mmap64 = mmap(
        at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void;
}
