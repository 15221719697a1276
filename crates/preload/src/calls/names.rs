//! The calls that make, move and remove entries of directories, and read links.

use crate::guard::{Failed, Res, answer, call};
use crate::real;
use crate::route::{Route, Spot, descriptor_of, on_object, route};
use crate::session::{Call, number, owner};
use libc::{AT_FDCWD, AT_REMOVEDIR, c_char, c_int, c_uint, dev_t, mode_t, size_t, ssize_t};
use shoal_proto::{Attr, Handle, Kind, Name};
use shoal_vfs::RenameFlags;
use shoal_world::{Tree, Walk};
use std::ffi::{CStr, CString};

/// A call that makes an entry: `ours`, with the directory, the new name and the whole path, or the kernel's.
fn make<T: Failed>(
    spot: &Spot,
    is_dir: bool,
    ours: impl FnOnce(&dyn Tree, Handle, &Name) -> shoal_vfs::Result<T>,
    kernels: impl FnOnce(*const c_char) -> T,
) -> T {
    let done = call(|session| match session.walk(spot, false)? {
        Walk::Object(_) => Err(libc::EEXIST),
        Walk::Missing { must_be_dir: true, .. } if !is_dir => Err(libc::ENOENT),
        Walk::Missing { dir, name, .. } => session.on(spot.mount, |tree| ours(tree, dir, &name)).map(Ok),
        Walk::Outside(path) => CString::new(path).map(Err).map_err(|_| libc::EINVAL),
    });
    match done {
        Ok(Ok(value)) => value,
        Ok(Err(path)) => kernels(path.as_ptr()),
        Err(number) => answer(Err(number)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::mkdirat()(dir, path, mode);
        match route(dir, path) {
            Route::Kernel => kernels(path),
            Route::Ours(spot) => {
                make(&spot, true, |tree, dir, name| tree.mkdir(dir, name, owner(mode)).map(|_| 0), kernels)
            }
        }
    }
}

/// `mkdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::mknodat()(dir, path, mode, device);
        let Route::Ours(spot) = route(dir, path) else { return kernels(path) };
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => Kind::File,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            _ => return answer(Err(libc::EINVAL)),
        };
        make(
            &spot,
            false,
            |tree, dir, name| tree.mknod(dir, name, owner(mode), kind, device).map(|_| 0),
            kernels,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(AT_FDCWD, path, mode, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknod(
    _version: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(AT_FDCWD, path, mode, *device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknodat(
    _version: c_int,
    dir: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(dir, path, mode, *device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mknodat(dir, path, mode & 0o7777 | libc::S_IFIFO, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkfifoat(AT_FDCWD, path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::symlinkat()(target, dir, path);
        let Route::Ours(spot) = route(dir, path) else { return kernels(path) };
        if target.is_null() {
            return answer(Err(libc::EFAULT));
        }
        let target = CStr::from_ptr(target).to_bytes();
        if target.is_empty() {
            return answer(Err(libc::ENOENT));
        }
        make(
            &spot,
            false,
            |tree, dir, name| tree.symlink(dir, name, owner(0o777), target).map(|_| 0),
            kernels,
        )
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { symlinkat(target, AT_FDCWD, path) }
}

/// The object that a new name is to lead to.
unsafe fn linked(
    session: &mut Call<'_>,
    dir: c_int,
    path: *const c_char,
    flags: c_int,
) -> Res<(usize, Attr)> {
    // SAFETY: the caller's arguments.
    unsafe {
        let bytes = if path.is_null() { return Err(libc::EFAULT) } else { CStr::from_ptr(path).to_bytes() };
        if let Some(fd) = descriptor_of(bytes) {
            return session.attributes(fd);
        }
        if bytes.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            return session.attributes(dir);
        }
    }
    Err(libc::EXDEV)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let (source, place) = match (route(from_dir, from), route(to_dir, to)) {
            (Route::Kernel, Route::Kernel) => return real::linkat()(from_dir, from, to_dir, to, flags),
            (Route::Kernel, Route::Ours(place)) => (None, place),
            (Route::Ours(_), Route::Kernel) => return answer(Err(libc::EXDEV)),
            (Route::Ours(source), Route::Ours(place)) => (Some(source), place),
        };
        answer(call(|session| {
            let (mount, attr) = match &source {
                Some(spot) => {
                    let found = session.find(spot, flags & libc::AT_SYMLINK_FOLLOW != 0)?;
                    (spot.mount, found.attr)
                }
                None => linked(session, from_dir, from, flags)?,
            };
            if mount != place.mount {
                return Err(libc::EXDEV);
            }
            match session.walk(&place, false)? {
                Walk::Object(_) => Err(libc::EEXIST),
                Walk::Outside(_) => Err(libc::EXDEV),
                Walk::Missing { must_be_dir: true, .. } => Err(libc::ENOENT),
                Walk::Missing { dir, name, .. } => {
                    session.on(mount, |tree| tree.link(attr.handle, dir, &name)).map(|_| 0)
                }
            }
        }))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// `readlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::readlinkat()(dir, path, into, room);
        match route(dir, path) {
            Route::Ours(spot) => {
                let read = |session: &mut Call<'_>, found: shoal_world::Found| {
                    if found.attr.kind != Kind::Symlink || room == 0 {
                        return Err(libc::EINVAL);
                    }
                    let target = session.on(spot.mount, |tree| tree.readlink(found.attr.handle))?;
                    super::io::shown(&target, into, room)
                };
                on_object(&spot, false, read, kernels)
            }
            Route::Kernel if path.is_null() => kernels(path),
            // A virtual descriptor's name leads to the path that was opened.
            Route::Kernel => match descriptor_of(CStr::from_ptr(path).to_bytes()) {
                Some(fd) => answer(
                    call(|session| {
                        let record = session.open(fd)?.record;
                        Ok(Spot::new(record.mount as usize, record.path()))
                    })
                    .and_then(|spot| super::io::shown(&crate::route::host_path(&spot), into, room)),
                ),
                None => kernels(path),
            },
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readlink(path: *const c_char, into: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { readlinkat(AT_FDCWD, path, into, room) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { readlink(path, into, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __readlinkat_chk(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { readlinkat(dir, path, into, len) }
}

/// `unlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernels = |path| real::unlinkat()(dir, path, flags);
        let Route::Ours(spot) = route(dir, path) else { return kernels(path) };
        let is_rmdir = flags & AT_REMOVEDIR != 0;
        let remove = |session: &mut Call<'_>, found: shoal_world::Found| {
            let Some((dir, name)) = &found.place else {
                let last = spot.path.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty());
                return Err(match last {
                    _ if !is_rmdir => libc::EISDIR,
                    Some(b".") => libc::EINVAL,
                    Some(b"..") => libc::ENOTEMPTY,
                    _ => libc::EBUSY,
                });
            };
            session.on(spot.mount, |tree| match is_rmdir {
                true => tree.rmdir(*dir, name),
                false => tree.unlink(*dir, name),
            })?;
            session.removed(spot.mount, &found.path, found.attr.handle);
            Ok(0)
        };
        on_object(&spot, false, remove, kernels)
    }
}

/// `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let before = crate::guard::errno();
        if unlink(path) == 0 {
            return 0;
        }
        if !matches!(crate::guard::errno(), libc::EISDIR | libc::EPERM) {
            return -1;
        }
        crate::guard::set_errno(before);
        rmdir(path)
    }
}

fn moved(session: &mut Call<'_>, from: &Spot, to: &Spot, flags: c_uint) -> Res<c_int> {
    let how = RenameFlags {
        no_replace: flags & libc::RENAME_NOREPLACE != 0,
        exchange: flags & libc::RENAME_EXCHANGE != 0,
    };
    if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 || (how.no_replace && how.exchange) {
        return Err(libc::EINVAL);
    }
    // As in a kernel: first the directories of both, then the entries.
    let source = session.walk_here(from)?;
    let target = session.walk_here(to)?;
    let Walk::Object(source) = source else {
        return Err(if matches!(source, Walk::Outside(_)) { libc::EXDEV } else { libc::ENOENT });
    };
    let is_dir = source.attr.kind == Kind::Directory;
    let (to_dir, to_name, to_path) = match target {
        Walk::Object(found) => {
            let (dir, name) = found.place.clone().ok_or(libc::EBUSY)?;
            (dir, name, found.path)
        }
        Walk::Missing { must_be_dir: true, .. } if !is_dir => return Err(libc::ENOTDIR),
        Walk::Missing { dir, name, path, .. } => (dir, name, path),
        Walk::Outside(_) => return Err(libc::EXDEV),
    };
    let Some((dir, name)) = &source.place else { return Err(libc::EBUSY) };
    let is_below = |path: &[u8], of: &[u8]| path.strip_prefix(of).is_some_and(|rest| rest.starts_with(b"/"));
    if is_below(&to_path, &source.path) {
        return Err(libc::EINVAL);
    }
    if is_below(&source.path, &to_path) {
        return Err(if how.exchange { libc::EINVAL } else { libc::ENOTEMPTY });
    }
    // Not away, as the walks: the paths of records change with it.
    let tree = session.tree(from.mount)?;
    tree.rename(*dir, name, to_dir, &to_name, how).map_err(|error| number(&error))?;
    if source.path != to_path {
        session.moved(from.mount, &source.path, &to_path, how.exchange);
    }
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        match (route(from_dir, from), route(to_dir, to)) {
            (Route::Kernel, Route::Kernel) => real::renameat2()(from_dir, from, to_dir, to, flags),
            (Route::Ours(from), Route::Ours(to)) if from.mount == to.mount => {
                answer(call(|session| moved(session, &from, &to, flags)))
            }
            _ => answer(Err(libc::EXDEV)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(from_dir, from, to_dir, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(AT_FDCWD, from, AT_FDCWD, to, 0) }
}
