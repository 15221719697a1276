//! The working directory, canonical paths, and the umask.
//!
//! While the program's working directory lies in a file system of this library, the kernel's working
//! directory of the process is the host directory of the same path. A child process without this library
//! starts there. If the host has no such directory (under the mount point of a ShoalFS it has none), the
//! kernel's working directory is the host directory of the file system's root.

use crate::config;
use crate::guard::{Res, answer, call, errno, is_inside, set_errno};
use crate::real;
use crate::route::{self, Route, Spot, Target, directory, host_name, host_path, route};
use crate::table::is_virtual;
use libc::{AT_FDCWD, c_char, c_int, mode_t, size_t};
use shoal_proto::Kind;
use std::ffi::{CStr, CString};

const PATH_BYTES: usize = 4096;

/// Bring the kernel's directory as near as it gets.
fn enter(spot: &Spot) -> Res<()> {
    let root = Spot::new(spot.mount, Vec::new());
    for place in [spot, &root] {
        let path = host_name(place)?;
        // SAFETY: the path is a C string.
        if unsafe { real::chdir()(path.as_ptr()) } == 0 {
            return Ok(());
        }
    }
    Err(errno())
}

fn change(spot: &Spot) -> Result<c_int, Res<CString>> {
    let target = call(|session| route::target(session, spot, true));
    let found = match target {
        Ok(Target::Found(found)) => found,
        Ok(Target::Outside(path)) => return Err(Ok(path)),
        Err(number) => return Err(Err(number)),
    };
    if found.attr.kind != Kind::Directory {
        return Err(Err(libc::ENOTDIR));
    }
    let spot = Spot::new(spot.mount, found.path);
    route::move_to(spot, enter).map(|()| 0).map_err(Err)
}

/// `chdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's argument.
    unsafe {
        let kernels = |path| {
            let done = real::chdir()(path);
            if done == 0 && config::is_on() && !is_inside() {
                route::moved_away();
            }
            done
        };
        let Route::Ours(spot) = route(AT_FDCWD, path) else { return kernels(path) };
        match change(&spot) {
            Ok(done) => done,
            Err(Ok(path)) => kernels(path.as_ptr()),
            Err(Err(number)) => answer(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's argument.
        let done = unsafe { real::fchdir()(fd) };
        if done == 0 && config::is_on() && !is_inside() {
            route::moved_away();
        }
        return done;
    }
    let spot = call(|session| session.directory_of(fd));
    match spot.map(|spot| change(&spot)) {
        Ok(Ok(done)) => done,
        Ok(Err(Ok(_))) => answer(Err(libc::ENOENT)),
        Ok(Err(Err(number))) | Err(number) => answer(Err(number)),
    }
}

/// Hand a path to a caller that gives a buffer, or wants a new one.
unsafe fn hand(path: &[u8], into: *mut c_char, room: size_t) -> Res<*mut c_char> {
    let needed = path.len() + 1;
    if !into.is_null() && room < needed {
        return Err(if room == 0 { libc::EINVAL } else { libc::ERANGE });
    }
    if into.is_null() && room != 0 && room < needed {
        return Err(libc::ERANGE);
    }
    // SAFETY: the caller's buffer has room, or a new one is made.
    unsafe {
        let into = if into.is_null() { libc::malloc(room.max(needed)).cast() } else { into };
        if into.is_null() {
            return Err(libc::ENOMEM);
        }
        std::ptr::copy_nonoverlapping(path.as_ptr(), into.cast(), path.len());
        into.add(path.len()).write(0);
        Ok(into)
    }
}

/// `getcwd(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcwd(into: *mut c_char, room: size_t) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe {
        match directory() {
            None => real::getcwd()(into, room),
            Some(spot) => answer(hand(&host_path(&spot), into, room)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __getcwd_chk(into: *mut c_char, room: size_t, _len: size_t) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe { getcwd(into, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getwd(into: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's argument.
    unsafe { getcwd(into, PATH_BYTES) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn get_current_dir_name() -> *mut c_char {
    // SAFETY: a new buffer is wanted.
    unsafe { getcwd(std::ptr::null_mut(), 0) }
}

unsafe fn canonical(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe {
        let Route::Ours(spot) = route(AT_FDCWD, path) else { return real::realpath()(path, into) };
        let found = call(|session| route::target(session, &spot, true));
        match found {
            Ok(Target::Found(found)) => {
                let path = host_path(&Spot::new(spot.mount, found.path));
                if path.len() >= PATH_BYTES {
                    return answer(Err(libc::ENAMETOOLONG));
                }
                answer(hand(&path, into, if into.is_null() { 0 } else { PATH_BYTES }))
            }
            Ok(Target::Outside(path)) => real::realpath()(path.as_ptr(), into),
            Err(number) => answer(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe {
        if path.is_null() || CStr::from_ptr(path).to_bytes().is_empty() {
            return real::realpath()(path, into);
        }
        let before = errno();
        let found = canonical(path, into);
        if !found.is_null() {
            set_errno(before);
        }
        found
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(path: *const c_char, into: *mut c_char, _room: size_t) -> *mut c_char {
    // SAFETY: the caller's arguments.
    unsafe { realpath(path, into) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's argument.
    unsafe { realpath(path, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn umask(mask: mode_t) -> mode_t {
    // SAFETY: the caller's argument.
    let before = unsafe { real::umask()(mask) };
    config::set_umask(mask);
    before
}
