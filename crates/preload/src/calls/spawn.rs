//! `posix_spawn`.
//!
//! The C library makes the child and runs the other program in it without a call that this library sees. So
//! this library prepares everything before the call: the environment, the program, and the files that the
//! child is to open.

use super::process::{candidates, environment};
use super::program::{arguments, program};
use crate::config;
use crate::guard::is_inside;
use crate::real;
use crate::route::{Route, route};
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
        for path in candidates(file) {
            if matches!(route(AT_FDCWD, path.as_ptr()), Route::Ours(_))
                && super::metadata::faccessat(AT_FDCWD, path.as_ptr(), libc::X_OK, 0) == 0
            {
                return spawn(child, path.as_ptr(), (actions, attributes), argv, envp);
            }
        }
        let environment = environment(envp);
        real::posix_spawnp()(child, file, actions, attributes, argv, environment.list.as_ptr())
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
        match super::open::open_spot(&spot, flags | libc::O_CLOEXEC, mode) {
            Ok(opened) => libc::posix_spawn_file_actions_adddup2(actions.cast(), opened, fd),
            Err(number) => number,
        }
    }
}
