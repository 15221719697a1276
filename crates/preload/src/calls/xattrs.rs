//! Extended attributes.

use crate::guard::{Res, answer, call};
use crate::real;
use crate::route::{Route, on_object, route};
use crate::session::Call;
use crate::table::is_virtual;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};
use shoal_proto::Handle;
use std::ffi::CStr;

/// Access control lists: the kernel keeps them and the mode one, which no file system below can.
const LISTS: &[u8] = b"system.posix_acl_";

/// Give bytes to a caller with a buffer of `room`; with none it wants to know how many there are.
fn give(bytes: &[u8], into: *mut c_void, room: size_t) -> Res<ssize_t> {
    if room == 0 {
        return Ok(bytes.len() as ssize_t);
    }
    if room < bytes.len() {
        return Err(libc::ERANGE);
    }
    // SAFETY: the caller's buffer has `room` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.cast(), bytes.len()) };
    Ok(bytes.len() as ssize_t)
}

unsafe fn name_of<'a>(name: *const c_char) -> Res<&'a [u8]> {
    // SAFETY: the caller passes a C string or null.
    unsafe { if name.is_null() { Err(libc::EFAULT) } else { Ok(CStr::from_ptr(name).to_bytes()) } }
}

fn get(
    session: &mut Call<'_>,
    (mount, object): (usize, Handle),
    name: *const c_char,
    (into, room): (*mut c_void, size_t),
) -> Res<ssize_t> {
    // SAFETY: the caller's name.
    let name = unsafe { name_of(name)? };
    if name.starts_with(LISTS) {
        return Err(libc::EOPNOTSUPP);
    }
    let value = session.on(mount, |tree| tree.getxattr(object, name))?;
    give(&value, into, room)
}

fn set(
    session: &mut Call<'_>,
    (mount, object): (usize, Handle),
    name: *const c_char,
    (value, len): (*const c_void, size_t),
    flags: c_int,
) -> Res<c_int> {
    // SAFETY: the caller's name.
    let name = unsafe { name_of(name)? };
    if name.starts_with(LISTS) {
        // Programs that copy a mode as a list go on with the mode alone.
        return Err(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's value has `len` bytes.
    let value = if len == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(value.cast(), len) } };
    let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
    session.on(mount, |tree| tree.setxattr(object, name, value, create, replace)).map(|()| 0)
}

fn list(
    session: &mut Call<'_>,
    (mount, object): (usize, Handle),
    into: *mut c_char,
    room: size_t,
) -> Res<ssize_t> {
    let names = session.on(mount, |tree| tree.listxattr(object))?;
    let all: Vec<u8> = names.iter().flat_map(|name| [&name.0[..], &[0]].concat()).collect();
    give(&all, into.cast(), room)
}

fn remove(session: &mut Call<'_>, (mount, object): (usize, Handle), name: *const c_char) -> Res<c_int> {
    // SAFETY: the caller's name.
    let name = unsafe { name_of(name)? };
    session.on(mount, |tree| tree.removexattr(object, name)).map(|()| 0)
}

macro_rules! by_path {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $follow:literal, $work:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, $($arg: $ty),*) -> $ret {
            // SAFETY: the caller's arguments.
            unsafe {
                let kernels = |path| real::$name()(path, $($arg),*);
                let Route::Ours(spot) = route(AT_FDCWD, path) else { return kernels(path) };
                on_object(&spot, $follow, |session, found| $work(session, (spot.mount, found.attr.handle), $($arg),*), kernels)
            }
        }
    )*};
}

macro_rules! by_descriptor {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $work:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fd: c_int, $($arg: $ty),*) -> $ret {
            if !is_virtual(fd) {
                // SAFETY: the caller's arguments.
                return unsafe { real::$name()(fd, $($arg),*) };
            }
            answer(call(|session| {
                let mount = session.open(fd)?.record.mount as usize;
                let object = session.handle(fd)?;
                $work(session, (mount, object), $($arg),*)
            }))
        }
    )*};
}

type Object = (usize, Handle);

fn get_into(
    s: &mut Call<'_>,
    o: Object,
    name: *const c_char,
    into: *mut c_void,
    room: size_t,
) -> Res<ssize_t> {
    get(s, o, name, (into, room))
}

fn set_from(
    s: &mut Call<'_>,
    o: Object,
    name: *const c_char,
    value: *const c_void,
    len: size_t,
    flags: c_int,
) -> Res<c_int> {
    set(s, o, name, (value, len), flags)
}

by_path! {
    getxattr(name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, true, get_into;
    lgetxattr(name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, false, get_into;
    setxattr(name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int, true, set_from;
    lsetxattr(name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int, false, set_from;
    listxattr(into: *mut c_char, room: size_t) -> ssize_t, true, list;
    llistxattr(into: *mut c_char, room: size_t) -> ssize_t, false, list;
    removexattr(name: *const c_char) -> c_int, true, remove;
    lremovexattr(name: *const c_char) -> c_int, false, remove;
}

by_descriptor! {
    fgetxattr(name: *const c_char, into: *mut c_void, room: size_t) -> ssize_t, get_into;
    fsetxattr(name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int, set_from;
    flistxattr(into: *mut c_char, room: size_t) -> ssize_t, list;
    fremovexattr(name: *const c_char) -> c_int, remove;
}
