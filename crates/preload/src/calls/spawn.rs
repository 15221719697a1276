//! `posix_spawn`.
//!
//! The C library makes the child and runs the other program in it without a call that this library sees. So
//! this library prepares everything before the call: the environment, the program, and the files that the
//! child is to open. Such a file is opened when the action is added, at a number that is the library's, and
//! closed when the actions are destroyed. (test: `tests/preload/children.c`)

use super::children;
use super::process::{candidates, environment};
use super::program::{arguments, program};
use crate::config;
use crate::guard::{Held, Res, errno, is_inside};
use crate::real;
use crate::record::Sharing;
use crate::route::{Route, route};
use crate::session::own_from;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, pid_t};
use std::ffi::CStr;

unsafe fn spawn(
    child: *mut pid_t,
    path: *const c_char,
    (actions, attributes): (*const c_void, *const c_void),
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let environment = environment(envp);
        let _sharing = Sharing::new();
        let own = match route(AT_FDCWD, path) {
            Route::Kernel => {
                return real::posix_spawn()(
                    child,
                    path,
                    actions,
                    attributes,
                    argv,
                    environment.list.as_ptr(),
                );
            }
            Route::Ours(spot) => match program(&spot, CStr::from_ptr(path)) {
                Ok(program) => program,
                Err(number) => return number,
            },
        };
        let arguments = arguments(&own, argv);
        let path = own.path.as_ptr();
        let done = real::posix_spawn()(
            child,
            path,
            actions,
            attributes,
            arguments.as_ptr(),
            environment.list.as_ptr(),
        );
        if own.fd >= 0 {
            crate::session::close_own(own.fd);
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() {
            return real::posix_spawn()(child, path, actions, attributes, argv, envp);
        }
        spawn(child, path, (actions, attributes), argv, envp)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() || file.is_null() {
            return real::posix_spawnp()(child, file, actions, attributes, argv, envp);
        }
        let all = candidates(file);
        if !all.iter().any(|path| matches!(route(AT_FDCWD, path.as_ptr()), Route::Ours(_))) {
            let environment = environment(envp);
            let _sharing = Sharing::new();
            return real::posix_spawnp()(child, file, actions, attributes, argv, environment.list.as_ptr());
        }
        // In the order of PATH: the first that can be run.
        let mut failed = libc::ENOENT;
        for path in &all {
            match spawn(child, path.as_ptr(), (actions, attributes), argv, envp) {
                libc::EACCES => failed = libc::EACCES,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                done => return done,
            }
        }
        failed
    }
}

/// Move a descriptor to a number that is the library's: a child's actions name low ones.
unsafe fn lifted(fd: c_int) -> Res<c_int> {
    let first = own_from() as usize as *mut c_void;
    // SAFETY: the descriptor was just made.
    unsafe {
        let high = super::descriptors::fcntl(fd, libc::F_DUPFD_CLOEXEC, first);
        let number = errno();
        super::descriptors::close(fd);
        if high < 0 { Err(number) } else { Ok(high) }
    }
}

/// A file that a child is to open: opened here and now, and given to the child as a descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let Route::Ours(spot) = route(AT_FDCWD, path) else {
            return real::posix_spawn_file_actions_addopen()(actions, fd, path, flags, mode);
        };
        let opened = super::open::open_spot(&spot, flags | libc::O_CLOEXEC, mode);
        let opened = match opened.and_then(|opened| lifted(opened)) {
            Ok(opened) => opened,
            Err(number) => return number,
        };
        let added = libc::posix_spawn_file_actions_adddup2(actions.cast(), opened, fd);
        if added != 0 {
            super::descriptors::close(opened);
            return added;
        }
        let held = Held::new();
        children::state(&held).opened.push((actions as usize, opened));
        0
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    if config::is_on() && !is_inside() {
        let of_these = |(known, _): &mut (usize, c_int)| *known == actions as usize;
        let opened: Vec<(usize, c_int)> = {
            let held = Held::new();
            children::state(&held).opened.extract_if(.., of_these).collect()
        };
        for (_, fd) in opened {
            // SAFETY: it was opened for these actions.
            unsafe { super::descriptors::close(fd) };
        }
    }
    // SAFETY: the caller's argument.
    unsafe { real::posix_spawn_file_actions_destroy()(actions) }
}
