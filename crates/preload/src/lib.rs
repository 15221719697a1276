//! The preload library: an unchanged program sees a file system at a directory, without a mount.
//!
//! `shoal run --over DIR=container -- PROGRAM` starts a program with this library loaded before the C
//! library. This library defines, under the C library's names, all calls that take a path or a descriptor. A
//! call on a path below DIR, or on a descriptor of such a path, is answered by a [`Tree`](shoal_world::Tree)
//! in this process; every other call goes on to the C library, after one look at a table or a comparison of
//! the path.
//!
//! ```text
//!   program ── open("/data/ckpt/x") ── route ─┬─ kernel's ──▶ the C library
//!                                             └─ ours ──▶ guard ─▶ World ─▶ Session ─▶ Tree ─▶ Vfs
//!   program ── write(7, …) ── table ──────────┬─ kernel's ──▶ the C library
//!                                             └─ virtual ─▶ guard ─▶ World ─▶ …
//! ```
//!
//! - [`real`]: the C library's own functions.
//! - [`config`]: the directories that this library serves.
//! - [`route`]: decides whether a path belongs to the kernel or to this library.
//! - [`table`]: decides whether a descriptor belongs to the kernel or to this library.
//! - [`record`]: the kernel's descriptor that stands for a virtual descriptor.
//! - [`guard`]: the way into the library's *world* (its event loop with its clock, sockets and files) and
//!   back.
//! - [`session`]: the state in this world.
//! - [`opens`]: open files, their reads, writes and positions.
//! - [`calls`]: the C calls, a file for each family.
//!
//! **Invariants.** This library starts no thread (test: `tests/preload/programs.sh`, which counts the tasks
//! of a process), except one for requests to an object store, and one for each look-up of a host's name. Such
//! a thread takes no signal, calls the C library alone, and its descriptors have numbers of ours,
//! [`guard::own_thread`] (test: `tests/s3`). A panic never reaches the program. The start of a process opens
//! no file, and no file system is contacted until one of its paths or descriptors is used. Nothing is
//! destroyed at exit: the C library flushes its streams after all destructors (test:
//! `tests/preload/streams.cc`, `tests/preload/beside.c`). Where bytes would end with the process, the exit
//! publishes those of open files ([`session::Session::publish`]), and of each write after it (test:
//! `tests/s3`).
//!
//! The interface to C is unsafe by nature: each exported function has the conditions of the C function of its
//! name, and nothing more.

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must end in the call that had it: build with panic = \"unwind\"");

mod calls;
mod config;
mod guard;
mod opens;
mod real;
mod record;
mod route;
mod session;
mod table;

use libc::{c_char, c_int};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// The end of the process, by `exit` or a return of `main`. A signal and `_exit` end it without this: a
/// handler of a signal may call `_exit` while the program's allocator is locked.
extern "C" fn end() {
    session::publish_at_exit();
}

/// The start of the process, before the C library's own.
extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    // SAFETY: the loader passes the environment; there is one thread.
    unsafe { config::read(envp) };
    if config::is_on() {
        calls::threads::begin();
        calls::forks::begin();
        calls::stdio::inherit();
    }
}
