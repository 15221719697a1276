//! Processes: `fork`, `exec` and their like.
//!
//! - **fork** is the C library's, with handlers ([`super::forks`]). `vfork` is `fork`, because a child of
//!   `vfork` would write into our tables. `forkpty` and `daemon` are made of our `fork`.
//! - **exec**: the files of this process are closed first; descriptors stay, and the next program finds their
//!   records. Our variables are put back into an environment that lacks them.
//! - **A program in a file system of ours** runs from a sealed file in memory. For a script there, the
//!   interpreter gets the script's name, and opens it through this library.

use super::program::{arguments, program};
use crate::config::{self, Config};
use crate::guard::{self, answer, call, errno, is_inside};
use crate::real;
use crate::route::{Route, Spot, directory, host_name, route, route_bytes};
use crate::table::is_virtual;
use libc::{AT_FDCWD, c_char, c_int, pid_t};
use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

/// A program begins at the latest after so long, although another thread closes a file.
const CLOSES_WAIT: Duration = Duration::from_secs(60);

/// `fork(2)`. The library's part is in handlers ([`super::forks`]).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: the call has no conditions.
    unsafe { real::fork()() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !path.is_null() && *path == 0 && flags & libc::AT_EMPTY_PATH != 0 {
            return fexecve(dir, argv, envp);
        }
        match route(dir, path).spot().map(|spot| host_name(&spot)) {
            None if !config::is_on() => real::execveat()(dir, path, argv, envp, flags),
            None => real::execveat()(dir, path, argv, environment_or(envp).as_ptr(), flags),
            Some(Ok(path)) => execve(path.as_ptr(), argv, envp),
            Some(Err(number)) => answer(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: the call has no conditions.
    unsafe { fork() }
}

/// The C library's own makes a child without a call that this library sees.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const libc::termios,
    size: *const libc::winsize,
) -> pid_t {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: the caller's arguments, and two numbers of our own.
    unsafe {
        if real::openpty()(&mut ours, &mut theirs, name, settings, size) < 0 {
            return -1;
        }
        let child = fork();
        match child {
            0 => {
                real::close()(ours);
                if real::login_tty()(theirs) < 0 {
                    libc::_exit(1);
                }
                return 0;
            }
            -1 => {
                let number = errno();
                real::close()(ours);
                real::close()(theirs);
                guard::set_errno(number);
            }
            _ => {
                *master = ours;
                real::close()(theirs);
            }
        }
        child
    }
}

/// As [`forkpty`].
#[unsafe(no_mangle)]
unsafe extern "C" fn daemon(keeps_directory: c_int, keeps_streams: c_int) -> c_int {
    // SAFETY: the calls have no conditions, and the names end.
    unsafe {
        match fork() {
            0 => {}
            -1 => return -1,
            _ => libc::_exit(0),
        }
        if libc::setsid() < 0 {
            return -1;
        }
        if keeps_directory == 0 {
            super::places::chdir(c"/".as_ptr());
        }
        if keeps_streams == 0 {
            let nothing = real::openat()(AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR, 0);
            if nothing < 0 {
                return -1;
            }
            for fd in 0..=2 {
                super::descriptors::dup2(nothing, fd);
            }
            if nothing > 2 {
                real::close()(nothing);
            }
        }
        0
    }
}

/// An environment with our variables.
pub struct Environment {
    _own: Vec<CString>,
    /// Its entries, and null.
    pub list: Vec<*const c_char>,
}

fn entry(name: &str, value: &[u8]) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value].concat()).ok()
}

/// The libraries to load first, with ours.
fn preload(config: &Config, given: Option<&[u8]>) -> Vec<u8> {
    match given {
        Some(given) if given.split(|b| *b == b':' || *b == b' ').any(|one| one == config.library) => {
            given.to_vec()
        }
        Some(given) if !given.is_empty() => [&config.library[..], b":", given].concat(),
        _ => config.library.clone(),
    }
}

/// An environment, with our variables put back.
///
/// # Safety
/// `envp` is null, or an array of C strings that ends with null.
pub unsafe fn environment(envp: *const *const c_char) -> Environment {
    let Some(config) = config::get() else {
        return Environment { _own: Vec::new(), list: Vec::new() };
    };
    // SAFETY: the caller's environment.
    unsafe {
        let mut own = Vec::new();
        // A `shoal run` within this one adds file systems of its own to the list.
        let given = config::variable(envp, config::OVERS).filter(|given| given.starts_with(&config.text));
        own.extend(entry(config::OVERS, given.unwrap_or(&config.text)));
        own.extend(entry(config::LIBRARY, &config.library));
        own.extend(entry("LD_PRELOAD", &preload(config, config::variable(envp, "LD_PRELOAD"))));
        if let Some(spot) = directory() {
            own.extend(entry(config::DIRECTORY, &spot.path));
        }
        let ours = [config::OVERS, config::LIBRARY, "LD_PRELOAD", config::DIRECTORY];
        let mut list: Vec<*const c_char> = own.iter().map(|entry| entry.as_ptr()).collect();
        let mut at = envp;
        while let Some(given) = at.as_ref().filter(|given| !given.is_null()) {
            let bytes = CStr::from_ptr(*given).to_bytes();
            let name = bytes.split(|byte| *byte == b'=').next().unwrap_or(bytes);
            if !ours.iter().any(|own| own.as_bytes() == name) {
                list.push(*given);
            }
            at = at.add(1);
        }
        list.push(ptr::null());
        Environment { _own: own, list }
    }
}

/// `execve(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() || path.is_null() {
            return real::execve()(path, argv, envp);
        }
        let environment = environment(envp);
        let own = match route(AT_FDCWD, path) {
            Route::Kernel => None,
            Route::Ours(spot) => match program(&spot, CStr::from_ptr(path)) {
                Ok(program) => Some(program),
                Err(number) => return answer(Err(number)),
            },
        };
        let _ = call(|session| {
            // First: no other thread opens a file again after the rest.
            let waited = session.wait_for_closes(CLOSES_WAIT);
            session.rest();
            waited
        });
        match own {
            None => real::execve()(path, argv, environment.list.as_ptr()),
            Some(own) => {
                let arguments = arguments(&own, argv);
                // An interpreter may be one of ours too.
                let is_again =
                    !own.before.is_empty() && matches!(route_bytes(own.path.to_bytes()), Route::Ours(_));
                let done = match is_again {
                    true => execve(own.path.as_ptr(), arguments.as_ptr(), envp),
                    false => real::execve()(own.path.as_ptr(), arguments.as_ptr(), environment.list.as_ptr()),
                };
                if own.fd >= 0 {
                    crate::session::close_own(own.fd);
                }
                done
            }
        }
    }
}

/// The process's environment.
///
/// # Safety
/// No other thread changes it.
pub unsafe fn environ() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's variable.
    unsafe { environ }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execve(path, argv, environ()) }
}

/// The places where a program of a name may lie.
///
/// # Safety
/// `file` is a C string.
pub unsafe fn candidates(file: *const c_char) -> Vec<CString> {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(file) };
    if name.to_bytes().contains(&b'/') || name.to_bytes().is_empty() {
        return vec![name.to_owned()];
    }
    // SAFETY: the program's environment.
    let path = unsafe { config::variable(environ(), "PATH") }.unwrap_or(b"/bin:/usr/bin");
    let join = |dir: &[u8]| match dir {
        b"" => CString::new([b"./", name.to_bytes()].concat()),
        dir => CString::new([dir, b"/", name.to_bytes()].concat()),
    };
    path.split(|byte| *byte == b':').filter_map(|dir| join(dir).ok()).collect()
}

/// `execvpe(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if file.is_null() {
            return answer(Err(libc::EFAULT));
        }
        let mut is_denied = false;
        for path in candidates(file) {
            execve(path.as_ptr(), argv, envp);
            match errno() {
                libc::EACCES => is_denied = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                libc::ENOEXEC => {
                    let mut all = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
                    let mut at = argv;
                    if !at.is_null() && !(*at).is_null() {
                        at = at.add(1);
                    }
                    while let Some(one) = at.as_ref().filter(|one| !one.is_null()) {
                        all.push(*one);
                        at = at.add(1);
                    }
                    all.push(ptr::null());
                    return execve(c"/bin/sh".as_ptr(), all.as_ptr(), envp);
                }
                _ => return -1,
            }
        }
        if is_denied {
            guard::set_errno(libc::EACCES);
        }
        -1
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execvpe(file, argv, environ()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !is_virtual(fd) {
            let own = if config::is_on() { environment_or(envp) } else { Vec::new() };
            return real::fexecve()(fd, argv, if own.is_empty() { envp } else { own.as_ptr() });
        }
        let spot = call(|session| {
            let record = session.open(fd)?.record;
            Ok(Spot::new(record.mount as usize, record.path()))
        });
        match spot.and_then(|spot| host_name(&spot)) {
            Ok(path) => execve(path.as_ptr(), argv, envp),
            Err(number) => answer(Err(number)),
        }
    }
}

/// Kept until the program is another.
unsafe fn environment_or(envp: *const *const c_char) -> Vec<*const c_char> {
    // SAFETY: the caller's environment.
    let environment = unsafe { environment(envp) };
    let list = environment.list.clone();
    std::mem::forget(environment);
    if list.is_empty() { vec![ptr::null()] } else { list }
}

/// `_exit(2)`: locks of a ShoalFS are given back first; a kernel does so, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    crate::session::give_back_at_end();
    // SAFETY: the caller's argument.
    unsafe { real::_exit()(status) };
    // The C library's does not return.
    std::process::abort()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the caller's argument.
    unsafe { _exit(status) }
}

super::also! {
    __fork = fork() -> pid_t;
    __libc_fork = fork() -> pid_t;
    _Fork = fork() -> pid_t;
    __vfork = fork() -> pid_t;
}
