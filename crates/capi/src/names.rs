//! Calls on names: `shoal_stat`, `shoal_mkdir`, `shoal_unlink`, `shoal_rename` and their like.

use crate::call::{bytes, failure, on, put, slice, there};
use crate::connect::FileSystemId;
use crate::session::owner;
use crate::table::Kind::FileSystem;
use libc::{c_char, c_int};
use shoal_proto::{Attr, Handle, Kind, SetAttr, Time};
use shoal_vfs::RenameFlags;
use shoal_world::Walk;

/// A time (`shoal_time`).
#[repr(C)]
pub struct CTime {
    seconds: i64,
    nanoseconds: i64,
}

/// Attributes (`shoal_stat_t`).
#[repr(C)]
pub struct CStat {
    object: u64,
    size: u64,
    space: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    accessed: CTime,
    modified: CTime,
    changed: CTime,
    born: CTime,
}

fn time(time: Time) -> CTime {
    CTime { seconds: time.0.div_euclid(1_000_000_000), nanoseconds: time.0.rem_euclid(1_000_000_000) }
}

/// The bits of a kind in a mode.
pub fn kind_bits(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
        _ => libc::S_IFREG,
    }
}

/// Attributes, as C has them.
pub fn stat(attr: &Attr) -> CStat {
    CStat {
        object: attr.handle.0,
        size: attr.size,
        space: attr.space,
        mode: attr.mode | kind_bits(attr.kind),
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        accessed: time(attr.atime),
        modified: time(attr.mtime),
        changed: time(attr.ctime),
        born: time(attr.btime),
    }
}

unsafe fn stat_of(
    function: &str,
    fs: FileSystemId,
    path: *const c_char,
    out: *mut CStat,
    follow: bool,
) -> c_int {
    on(function, FileSystem, fs.id, |session, _| {
        there(out)?;
        // SAFETY: as the caller promises.
        let found = session.object(unsafe { bytes(path) }?, follow)?;
        // SAFETY: as the caller promises.
        unsafe { put(out, stat(&found.attr)) }
    })
}

/// Attributes of an object; links are followed.
///
/// # Safety
/// `path` is null or a C string; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_stat(fs: FileSystemId, path: *const c_char, out: *mut CStat) -> c_int {
    // SAFETY: the same conditions.
    unsafe { stat_of("shoal_stat", fs, path, out, true) }
}

/// Attributes of an object, which may be a link.
///
/// # Safety
/// As [`shoal_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_lstat(fs: FileSystemId, path: *const c_char, out: *mut CStat) -> c_int {
    // SAFETY: the same conditions.
    unsafe { stat_of("shoal_lstat", fs, path, out, false) }
}

/// Make a directory.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_mkdir(fs: FileSystemId, path: *const c_char, mode: u32) -> c_int {
    on("shoal_mkdir", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (dir, name) = session.free(unsafe { bytes(path) }?, true)?;
        session.on(|tree| tree.mkdir(dir, &name, owner(mode)))?;
        Ok(0)
    })
}

/// Remove a name that leads to no directory.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_unlink(fs: FileSystemId, path: *const c_char) -> c_int {
    on("shoal_unlink", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (dir, name, _) = session.place(unsafe { bytes(path) }?)?;
        session.on(|tree| tree.unlink(dir, &name))?;
        Ok(0)
    })
}

/// Remove an empty directory.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_rmdir(fs: FileSystemId, path: *const c_char) -> c_int {
    on("shoal_rmdir", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (dir, name, _) = session.place(unsafe { bytes(path) }?)?;
        session.on(|tree| tree.rmdir(dir, &name))?;
        Ok(0)
    })
}

/// Move a name.
///
/// # Safety
/// The paths are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_rename(fs: FileSystemId, from: *const c_char, to: *const c_char) -> c_int {
    on("shoal_rename", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (from, to) = unsafe { (bytes(from)?, bytes(to)?) };
        let (from_dir, from_name, attr) = session.place(from)?;
        let (to_dir, to_name) = match session.walk(to, false)? {
            Walk::Missing { must_be_dir: true, .. } if attr.kind != Kind::Directory => {
                return Err(failure(libc::ENOTDIR, "the new name ends in `/`"));
            }
            Walk::Missing { dir, name, .. } => (dir, name),
            _ => session.place(to).map(|(dir, name, _)| (dir, name))?,
        };
        session.on(|tree| tree.rename(from_dir, &from_name, to_dir, &to_name, RenameFlags::default()))?;
        Ok(0)
    })
}

/// Make a symbolic link.
///
/// # Safety
/// The strings are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_symlink(
    fs: FileSystemId,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    on("shoal_symlink", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (target, path) = unsafe { (bytes(target)?, bytes(path)?) };
        let (dir, name) = session.free(path, false)?;
        session.on(|tree| tree.symlink(dir, &name, owner(0o777), target))?;
        Ok(0)
    })
}

/// The target of a symbolic link, without an end; its whole length.
///
/// # Safety
/// `path` is null or a C string; `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_readlink(
    fs: FileSystemId,
    path: *const c_char,
    buffer: *mut c_char,
    len: usize,
) -> i64 {
    on("shoal_readlink", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let len = unsafe { slice(buffer, len) }?.len();
        // SAFETY: as the caller promises.
        let found = session.object(unsafe { bytes(path) }?, false)?;
        if found.attr.kind != Kind::Symlink {
            return Err(failure(libc::EINVAL, "it is no symbolic link"));
        }
        let target = session.on(|tree| tree.readlink(found.attr.handle))?;
        let part = len.min(target.len());
        // SAFETY: both have that many bytes; with none the pointer is not used.
        unsafe { std::ptr::copy_nonoverlapping(target.as_ptr().cast(), buffer, part) };
        Ok(target.len() as i64)
    })
}

/// A further name of an object.
///
/// # Safety
/// The paths are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_link(fs: FileSystemId, from: *const c_char, to: *const c_char) -> c_int {
    on("shoal_link", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let (from, to) = unsafe { (bytes(from)?, bytes(to)?) };
        let object: Handle = session.object(from, false)?.attr.handle;
        let (dir, name) = session.free(to, false)?;
        session.on(|tree| tree.link(object, dir, &name))?;
        Ok(0)
    })
}

/// Set the permission bits.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_chmod(fs: FileSystemId, path: *const c_char, mode: u32) -> c_int {
    on("shoal_chmod", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let found = session.object(unsafe { bytes(path) }?, true)?;
        let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        session.on(|tree| tree.setattr(found.attr.handle, set))?;
        Ok(0)
    })
}

/// Set the size of a file.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_truncate(fs: FileSystemId, path: *const c_char, size: u64) -> c_int {
    on("shoal_truncate", FileSystem, fs.id, |session, _| {
        // SAFETY: as the caller promises.
        let found = session.object(unsafe { bytes(path) }?, true)?;
        if found.attr.kind == Kind::Directory {
            return Err(failure(libc::EISDIR, "it is a directory"));
        }
        session.on(|tree| tree.truncate(found.attr.handle, size, false))?;
        Ok(0)
    })
}

crate::version::since_1_0! {
    shoal_stat, shoal_lstat, shoal_mkdir, shoal_unlink, shoal_rmdir, shoal_rename, shoal_symlink,
    shoal_readlink, shoal_link, shoal_chmod, shoal_truncate,
}
