//! Calls with a list of arguments of any length: `execl`, `execlp`, `execle`. Some arguments are in
//! registers, the others on the stack.

use super::process::{environ, execve, execvpe};
use libc::{c_char, c_int};
use std::ptr;

type Argument = *const c_char;

/// The arguments up to the null that ends them, and the one after it.
unsafe fn collect(
    registers: *const Argument,
    count: usize,
    stack: *const Argument,
) -> (Vec<Argument>, Argument) {
    let mut all = Vec::new();
    let mut at = 0;
    // SAFETY: the caller has ended the list with null.
    unsafe {
        let argument = |at: usize| if at < count { *registers.add(at) } else { *stack.add(at - count) };
        while !argument(at).is_null() {
            all.push(argument(at));
            at += 1;
        }
        all.push(ptr::null());
        (
            all,
            if at + 1 < count { *registers.add(at + 1) } else { *stack.add((at + 1).saturating_sub(count)) },
        )
    }
}

unsafe extern "C" fn by_path(path: Argument, registers: *const Argument, stack: *const Argument) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execve(path, collect(registers, 5, stack).0.as_ptr(), environ()) }
}

unsafe extern "C" fn by_name(file: Argument, registers: *const Argument, stack: *const Argument) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execvpe(file, collect(registers, 5, stack).0.as_ptr(), environ()) }
}

unsafe extern "C" fn with_environment(
    path: Argument,
    registers: *const Argument,
    stack: *const Argument,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let (arguments, envp) = collect(registers, 5, stack);
        execve(path, arguments.as_ptr(), envp.cast())
    }
}

macro_rules! variadic {
    ($($name:ident = $work:ident;)*) => {$(
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            std::arch::naked_asm!(
                "sub rsp, 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                "lea rdx, [rsp + 64]",
                "call {work}",
                "add rsp, 56",
                "ret",
                work = sym $work,
            )
        }
    )*};
}

variadic! {
    execl = by_path;
    execlp = by_name;
    execle = with_environment;
}
