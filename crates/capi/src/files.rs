//! Calls on files: `shoal_open`, `shoal_pread`, `shoal_pwrite`, `shoal_append` and their like.

use crate::call::{bytes, checked, failure, on, slice, there};
use crate::connect::FileSystemId;
use crate::names::{CStat, stat};
use crate::session::{missing, owner};
use crate::table::{self, Kind};
use bytes::Bytes;
use libc::{c_char, c_int};
use shoal_proto::Rights;
use shoal_world::Walk;

/// An open file (`shoal_file`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileId {
    /// See [`crate::table`].
    pub id: u64,
}

const KNOWN: c_int = libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC;

fn rights(flags: c_int) -> Rights {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Rights::READ,
        libc::O_WRONLY => Rights::WRITE,
        _ => Rights::READ | Rights::WRITE,
    }
}

/// Open a file, or make it. `flags`: the access mode, `O_CREAT`, `O_EXCL`, `O_TRUNC`.
///
/// # Safety
/// `path` is null or a C string; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_open(
    fs: FileSystemId,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    out: *mut FileId,
) -> c_int {
    on("shoal_open", Kind::FileSystem, fs.id, |session, connection| {
        there(out)?;
        if flags & !KNOWN != 0 || flags & libc::O_ACCMODE == libc::O_ACCMODE {
            return Err(failure(libc::EINVAL, format!("flags {flags:#o}: not known to shoal_open")));
        }
        // SAFETY: as the caller promises.
        let path = unsafe { bytes(path) }?;
        let is_exclusive = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
        let (handle, file) = match session.walk(path, !is_exclusive)? {
            Walk::Missing { dir, name, must_be_dir: false, .. } if flags & libc::O_CREAT != 0 => {
                let made =
                    session.on(|tree| tree.create(dir, &name, owner(mode), is_exclusive, rights(flags)))?;
                (made.0.handle, made.2)
            }
            Walk::Object(_) if is_exclusive => return Err(failure(libc::EEXIST, "it exists already")),
            Walk::Object(found) => match found.attr.kind {
                shoal_proto::Kind::File => {
                    let handle = found.attr.handle;
                    (handle, session.on(|tree| tree.open(handle, rights(flags)))?)
                }
                shoal_proto::Kind::Directory => return Err(failure(libc::EISDIR, "it is a directory")),
                _ => return Err(failure(libc::ENXIO, "it is no regular file")),
            },
            _ => return Err(missing()),
        };
        if flags & libc::O_TRUNC != 0 {
            session.on(|tree| tree.truncate(handle, 0, false))?;
        }
        let id = table::add(Kind::File, connection)?;
        session.keep_file(id, file, path)?;
        // SAFETY: as the caller promises.
        unsafe { out.write(FileId { id }) };
        Ok(0)
    })
}

/// Close a file. The id is closed also if this fails.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_close_file(file: FileId) -> c_int {
    on("shoal_close_file", Kind::File, file.id, |session, _| {
        let file = session.drop_file(file.id)?;
        session.away(|| file.close())?;
        Ok(0)
    })
}

/// Read at an offset: the bytes read, fewer only at the end of the file.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pread(file: FileId, buffer: *mut u8, len: usize, offset: u64) -> i64 {
    on("shoal_pread", Kind::File, file.id, |session, _| {
        let len = checked(buffer, len)?;
        let read = session.on_file(file.id, |file| file.read(offset, len))?;
        let part = read.len().min(len);
        // SAFETY: as the caller promises; with none the pointer is not used.
        unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), buffer, part) };
        Ok(part as i64)
    })
}

/// Write all at an offset: the bytes written.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pwrite(file: FileId, buffer: *const u8, len: usize, offset: u64) -> i64 {
    on("shoal_pwrite", Kind::File, file.id, |session, _| {
        // SAFETY: as the caller promises.
        let data = Bytes::copy_from_slice(unsafe { slice(buffer, len) }?);
        if offset.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(failure(libc::EFBIG, "the end lies beyond the largest file"));
        }
        match len {
            0 => drop(session.file(file.id)?),
            _ => session.on_file(file.id, |file| file.write(offset, data))?,
        }
        Ok(len as i64)
    })
}

/// Append all, whole also while others append: its offset.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_append(file: FileId, buffer: *const u8, len: usize) -> i64 {
    on("shoal_append", Kind::File, file.id, |session, _| {
        // SAFETY: as the caller promises.
        let data = Bytes::copy_from_slice(unsafe { slice(buffer, len) }?);
        Ok(session.on_file(file.id, |file| file.append(data))? as i64)
    })
}

/// Make the file's data durable.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_fsync(file: FileId) -> c_int {
    on("shoal_fsync", Kind::File, file.id, |session, _| {
        session.on_file(file.id, |file| file.fsync())?;
        Ok(0)
    })
}

/// Set the size of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_ftruncate(file: FileId, size: u64) -> c_int {
    on("shoal_ftruncate", Kind::File, file.id, |session, _| {
        let handle = session.file(file.id)?.handle();
        session.on(|tree| tree.truncate(handle, size, false))?;
        Ok(0)
    })
}

/// Attributes of an open file.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_fstat(file: FileId, out: *mut CStat) -> c_int {
    on("shoal_fstat", Kind::File, file.id, |session, _| {
        there(out)?;
        let handle = session.file(file.id)?.handle();
        let attr = session.on(|tree| tree.getattr(handle))?;
        // SAFETY: as the caller promises.
        unsafe { out.write(stat(&attr)) };
        Ok(0)
    })
}

crate::version::since_1_0! {
    shoal_open, shoal_close_file, shoal_pread, shoal_pwrite, shoal_append, shoal_fsync,
    shoal_ftruncate, shoal_fstat,
}
