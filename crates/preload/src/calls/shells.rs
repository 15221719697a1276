//! The calls that run a shell: `system`, `popen` and `pclose`.
//!
//! The C library starts these shells by itself, with the environment as the program has it. The shell must
//! have our variables, among them that of the working directory: in a file system of ours the kernel's
//! directory is often another one, and a shell that began there would work on other files. So these calls
//! are made here. (test: `tests/preload/children.c`)
//!
//! - As in the C library, `system` ignores `SIGINT` and `SIGQUIT` and blocks `SIGCHLD` while it waits, and a
//!   shell of `popen` has no end of another stream of `popen`.
//! - A wait for a shell is no point of cancellation: an unwinding must not pass this library.
//! - A stream of `popen` is the C library's own. `fclose` of it waits for the shell, as there
//!   ([`super::stdio`]).

use super::also;
use super::children::{self, Stream};
use super::descriptors::pipe2;
use super::process::{Environment, environ, environment};
use crate::config;
use crate::guard::{Held, Res, Uncancelled, answer, errno, is_inside, set_errno};
use crate::real;
use crate::record::Sharing;
use libc::{FILE, c_char, c_int, pid_t, sigset_t};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const INTERRUPTS: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// The status of a shell that could not be run, as if it had ended with 127.
const NOT_RUN: c_int = 127 << 8;
/// Streams of `popen`: most programs have none, and `fclose` looks here first.
static STREAMS: AtomicUsize = AtomicUsize::new(0);

fn empty_set() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call fills it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Actions in a child before its program: pairs of descriptors that become one, and descriptors to close.
#[derive(Default)]
struct Actions {
    becomes: Option<(c_int, c_int)>,
    closes: Vec<c_int>,
}

/// Run a shell, with this mask of signals, and `defaults` as they are in a new process.
///
/// # Safety
/// `command` is a C string.
unsafe fn start(
    command: *const c_char,
    environment: &Environment,
    does: &Actions,
    mask: &sigset_t,
    defaults: &sigset_t,
) -> Res<pid_t> {
    let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), command, ptr::null()];
    let (mut actions, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let mut child = 0;
    // SAFETY: both are made before they are used, and all arguments stay during the calls.
    let failed = unsafe {
        libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        libc::posix_spawnattr_init(attributes.as_mut_ptr());
        if let Some((from, to)) = does.becomes {
            libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), from, to);
        }
        for fd in &does.closes {
            libc::posix_spawn_file_actions_addclose(actions.as_mut_ptr(), *fd);
        }
        libc::posix_spawnattr_setsigmask(attributes.as_mut_ptr(), mask);
        libc::posix_spawnattr_setsigdefault(attributes.as_mut_ptr(), defaults);
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        libc::posix_spawnattr_setflags(attributes.as_mut_ptr(), flags as libc::c_short);
        let _sharing = Sharing::new();
        let failed = real::posix_spawn()(
            &mut child,
            c"/bin/sh".as_ptr(),
            actions.as_ptr().cast(),
            attributes.as_ptr().cast(),
            arguments.as_ptr(),
            environment.list.as_ptr(),
        );
        real::posix_spawn_file_actions_destroy()(actions.as_mut_ptr().cast());
        libc::posix_spawnattr_destroy(attributes.as_mut_ptr());
        failed
    };
    if failed == 0 { Ok(child) } else { Err(failed) }
}

/// Wait for a child: its status.
fn wait(child: pid_t) -> Res<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the status has a place.
        let done = unsafe { libc::waitpid(child, &mut status, 0) };
        match done {
            done if done >= 0 => return Ok(status),
            _ if errno() == libc::EINTR => {}
            _ => return Err(errno()),
        }
    }
}

/// `SIGINT` and `SIGQUIT` are ignored, and `SIGCHLD` is blocked, until it is dropped.
struct Quiet {
    mask: sigset_t,
    defaults: sigset_t,
}

impl Quiet {
    fn new() -> Quiet {
        let (mut defaults, mut blocked, mut mask) = (empty_set(), empty_set(), empty_set());
        let held = Held::new();
        let mut state = children::state(&held);
        // SAFETY: all zeros are a valid action; its handler says that the signal is ignored.
        unsafe {
            if state.shells == 0 {
                let mut ignored: libc::sigaction = std::mem::zeroed();
                ignored.sa_sigaction = libc::SIG_IGN;
                let mut former = [std::mem::zeroed::<libc::sigaction>(); 2];
                for (signal, former) in INTERRUPTS.iter().zip(&mut former) {
                    libc::sigaction(*signal, &ignored, former);
                }
                state.interrupts = Some(former);
            }
            state.shells += 1;
            for (signal, former) in INTERRUPTS.iter().zip(state.interrupts.iter().flatten()) {
                if former.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&mut defaults, *signal);
                }
            }
            drop(state);
            drop(held);
            libc::sigaddset(&mut blocked, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut mask);
        }
        Quiet { mask, defaults }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let held = Held::new();
        let mut state = children::state(&held);
        state.shells = state.shells.saturating_sub(1);
        if state.shells == 0
            && let Some(former) = state.interrupts.take()
        {
            for (signal, former) in INTERRUPTS.iter().zip(&former) {
                // SAFETY: the action was that of the signal before.
                unsafe { libc::sigaction(*signal, former, ptr::null_mut()) };
            }
        }
        drop(state);
        drop(held);
        // SAFETY: the mask is the thread's own of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut()) };
    }
}

/// Run a command, and wait for it.
unsafe fn run(command: *const c_char) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's argument, and the program's environment.
    unsafe {
        let environment = environment(environ());
        let quiet = Quiet::new();
        let done = match start(command, &environment, &Actions::default(), &quiet.mask, &quiet.defaults) {
            Ok(child) => wait(child),
            Err(number) => {
                set_errno(number);
                Ok(NOT_RUN)
            }
        };
        drop(quiet);
        answer(done)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller's argument.
    unsafe {
        if !config::is_on() || is_inside() {
            return real::system()(command);
        }
        if command.is_null() {
            return c_int::from(run(c"exit 0".as_ptr()) == 0);
        }
        run(command)
    }
}

/// A mode of `popen`: whether the stream is read, and whether it is closed at an `exec`.
fn mode_of(mode: &[u8]) -> Option<(bool, bool)> {
    let count = |letter: u8| mode.iter().filter(|byte| **byte == letter).count();
    let is_known = mode.iter().all(|byte| b"rwe".contains(byte));
    (is_known && count(b'r') + count(b'w') == 1).then(|| (count(b'r') == 1, count(b'e') > 0))
}

/// Start the shell of a stream, and note it. The lock is held meanwhile: no other shell of `popen` gets this
/// stream's end, which closes itself at an `exec` until the stream is noted.
unsafe fn attach(
    stream: *mut FILE,
    command: *const c_char,
    (own, childs, number): (c_int, c_int, c_int),
    keeps: bool,
) -> Res<()> {
    // SAFETY: the caller's command, and the program's environment.
    let environment = unsafe { environment(environ()) };
    let held = Held::new();
    let mut state = children::state(&held);
    let others = state.streams.iter().map(|stream| stream.fd).filter(|fd| *fd != number);
    let does = Actions { becomes: Some((childs, number)), closes: others.collect() };
    // SAFETY: the caller's command; the descriptor is ours.
    unsafe {
        let child = start(command, &environment, &does, held.signals(), &empty_set())?;
        state.streams.push(Stream { at: stream as usize, fd: own, child });
        STREAMS.fetch_add(1, Ordering::Relaxed);
        if keeps {
            libc::syscall(libc::SYS_fcntl, own, libc::F_SETFD, 0);
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() || command.is_null() || mode.is_null() {
            return real::popen()(command, mode);
        }
        let Some((reads, closes)) = mode_of(CStr::from_ptr(mode).to_bytes()) else {
            return answer(Err(libc::EINVAL));
        };
        let mut ends = [0; 2];
        if pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return ptr::null_mut();
        }
        let [reader, writer] = ends;
        let (own, childs, number) = if reads { (reader, writer, 1) } else { (writer, reader, 0) };
        let stream = real::fdopen()(own, if reads { c"r" } else { c"w" }.as_ptr());
        let attached = match stream.is_null() {
            true => Err(errno()),
            false => attach(stream, command, (own, childs, number), !closes),
        };
        libc::syscall(libc::SYS_close, childs);
        if let Err(number) = attached {
            match stream.is_null() {
                true => libc::syscall(libc::SYS_close, own),
                false => real::fclose()(stream).into(),
            };
            return answer(Err(number));
        }
        stream
    }
}

/// Close a stream of `popen`: the status of its shell. `None`: it is none.
///
/// # Safety
/// `stream` is a stream.
pub unsafe fn close_stream(stream: *mut FILE) -> Option<c_int> {
    if STREAMS.load(Ordering::Relaxed) == 0 || is_inside() {
        return None;
    }
    let found = {
        let held = Held::new();
        let mut state = children::state(&held);
        let at = state.streams.iter().position(|known| known.at == stream as usize)?;
        STREAMS.fetch_sub(1, Ordering::Relaxed);
        state.streams.swap_remove(at)
    };
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's argument.
    unsafe { real::fclose()(stream) };
    Some(answer(wait(found.child)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { close_stream(stream).unwrap_or_else(|| real::pclose()(stream)) }
}

also! {
    __libc_system = system(command: *const c_char) -> c_int;
    _IO_popen = popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
}
