//! Formatted writes to a descriptor: `dprintf` and `vdprintf`.
//!
//! The C library formats into a stream of its own and writes that by a call that does not pass through this
//! library. So on a virtual descriptor the text is formatted here, and written by our `write`. A list of
//! arguments (`va_list`) is passed by its address on the supported machines. Arguments of any number can be
//! taken on x86-64 alone, where a list is made of them; elsewhere `dprintf` on a virtual descriptor fails
//! with `EBADF`, and `vdprintf` does not. (test: `tests/preload/files.c`)

use super::io::write;
use crate::guard::{answer, errno};
use crate::real;
use crate::table::is_virtual;
use libc::{c_char, c_int, c_void};
use std::ptr;

unsafe extern "C" {
    fn vasprintf(into: *mut *mut c_char, format: *const c_char, list: *mut c_void) -> c_int;
    fn __vasprintf_chk(
        into: *mut *mut c_char,
        flag: c_int,
        format: *const c_char,
        list: *mut c_void,
    ) -> c_int;
}

/// Write a text of `len` bytes, and free it.
unsafe fn put(fd: c_int, text: *mut c_char, len: c_int) -> c_int {
    let Ok(len) = usize::try_from(len) else { return -1 };
    let mut done = 0;
    // SAFETY: the C library has made the text with its length.
    unsafe {
        while done < len {
            let put = write(fd, text.add(done).cast(), len - done);
            if put <= 0 {
                let number = if put < 0 { errno() } else { libc::EIO };
                libc::free(text.cast());
                return answer(Err(number));
            }
            done += put as usize;
        }
        libc::free(text.cast());
    }
    done as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !is_virtual(fd) {
            return real::vdprintf()(fd, format, list);
        }
        let mut text = ptr::null_mut();
        let len = vasprintf(&mut text, format, list);
        put(fd, text, len)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !is_virtual(fd) {
            return real::__vdprintf_chk()(fd, flag, format, list);
        }
        let mut text = ptr::null_mut();
        let len = __vasprintf_chk(&mut text, flag, format, list);
        put(fd, text, len)
    }
}

/// A function of any number of arguments: it makes a list of them, and calls the function that takes one.
///
/// ```text
///   rsp + 0    the list: bytes of registers used, those with vector registers, the stack's arguments, the
///              saved registers
///   rsp + 32   6 registers of 8 bytes, then 8 vector registers of 16 bytes
///   rsp + 224  the arguments on the stack
/// ```
#[cfg(target_arch = "x86_64")]
macro_rules! variadic {
    ($($name:ident = $work:ident, $named:literal, $list:literal;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "sub rsp, 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $named),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $list, ", rsp"),
                "call {work}",
                "add rsp, 216",
                "ret",
                work = sym $work,
            )
        }
    )*};
}

// Bytes of the registers of the arguments that have names, and the register of the list after them.
#[cfg(target_arch = "x86_64")]
variadic! {
    dprintf = vdprintf, "16", "rdx";
    __dprintf_chk = __vdprintf_chk, "24", "rcx";
}
