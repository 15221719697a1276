//! Opens, reads, writes and positions of virtual descriptors.
//!
//! **The position is in the record of the open** ([`record`](crate::record)), which all processes that have
//! the open share. A write reserves its range by one addition. A read moves the position only if no other
//! call has moved it meanwhile; otherwise it reads again. So two processes that write at once do not
//! overwrite each other.

use crate::guard::{Res, call};
use crate::record::{self, New, Record};
use crate::route::{Spot, host_path};
use crate::session::{Session, close_own, number, owner, rights};
use bytes::Bytes;
use libc::{c_int, off_t};
use shoal_proto::{Handle, Kind, Rights};
use shoal_world::{Shown, TreeFile, Walk, WalkOpen};
use std::ffi::CString;
use std::sync::atomic::Ordering;

/// Bytes of one request.
const PIECE: usize = 4 << 20;
/// Bytes of one call, as the kernel limits it.
pub const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// The result of an open.
pub enum Opened {
    /// A virtual descriptor.
    Descriptor(c_int),
    /// The kernel's: a path outside, or an object that is no file and no directory.
    Outside(CString),
}

fn outside(path: Vec<u8>) -> Res<Opened> {
    CString::new(path).map(Opened::Outside).map_err(|_| libc::EINVAL)
}

/// `open(2)`.
pub fn open(session: &mut Session, spot: &Spot, flags: c_int, mode: u32) -> Res<Opened> {
    let has = |flag: c_int| flags & flag == flag;
    if has(libc::O_TMPFILE) {
        crate::guard::decline("open", "a file without a name (O_TMPFILE)");
        return Err(libc::EOPNOTSUPP);
    }
    let exclusive = has(libc::O_CREAT | libc::O_EXCL);
    let follow = !has(libc::O_NOFOLLOW) && !exclusive;
    let walk = if exclusive || has(libc::O_PATH) || has(libc::O_DIRECTORY) || !is_opened_by_name(spot) {
        session.walk(spot, follow)?
    } else {
        match session.walk_open(spot, follow, rights(flags))? {
            WalkOpen::Walk(walk) => walk,
            WalkOpen::File(file, path) => {
                let handle = file.handle();
                if has(libc::O_TRUNC) {
                    let tree = session.tree(spot.mount)?;
                    tree.truncate(handle, 0, true).map_err(|error| number(&error))?;
                }
                return finish(session, &new(spot.mount, Kind::File, handle, flags, &path), Some(file));
            }
        }
    };
    let found = match walk {
        Walk::Outside(path) => return outside(path),
        Walk::Missing { .. } if !has(libc::O_CREAT) => return Err(libc::ENOENT),
        Walk::Missing { must_be_dir: true, .. } => return Err(libc::EISDIR),
        Walk::Missing { dir, name, path, .. } => {
            let tree = session.tree(spot.mount)?;
            let made = tree.create(dir, &name, owner(mode), exclusive, rights(flags));
            let (attr, is_new, file) = made.map_err(|error| number(&error))?;
            if !is_new && has(libc::O_TRUNC) {
                tree.truncate(attr.handle, 0, false).map_err(|error| number(&error))?;
            }
            let new = new(spot.mount, attr.kind, attr.handle, flags, &path);
            return finish(session, &new, Some(file));
        }
        Walk::Object(found) => *found,
    };
    if exclusive {
        return Err(libc::EEXIST);
    }
    let attr = &found.attr;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || has(libc::O_TRUNC);
    match attr.kind {
        Kind::Symlink => Err(libc::ELOOP),
        Kind::Directory if writes || has(libc::O_CREAT) => Err(libc::EISDIR),
        Kind::Directory => {
            let fd = reserve(session, &new(spot.mount, attr.kind, attr.handle, flags, &found.path), None)?;
            session.open(fd)?.attr = Some(found.attr);
            Ok(Opened::Descriptor(fd))
        }
        _ if has(libc::O_DIRECTORY) => Err(libc::ENOTDIR),
        Kind::File => {
            let tree = session.tree(spot.mount)?;
            let file = tree.open(attr.handle, rights(flags)).map_err(|error| number(&error))?;
            if has(libc::O_TRUNC) {
                tree.truncate(attr.handle, 0, true).map_err(|error| number(&error))?;
            }
            finish(session, &new(spot.mount, attr.kind, attr.handle, flags, &found.path), Some(file))
        }
        _ => outside(host_path(&Spot { mount: spot.mount, path: found.path })),
    }
}

fn kept(flags: c_int) -> c_int {
    flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY)
}

/// Whether an open by name saves a request. Elsewhere it is a look and an open, and the look must come first:
/// an open of a FIFO would wait.
fn is_opened_by_name(spot: &Spot) -> bool {
    matches!(super::calls::locks::shown(spot.mount), Some(Shown::Shoal { .. }))
}

fn new(mount: usize, kind: Kind, handle: Handle, flags: c_int, path: &[u8]) -> New<'_> {
    let kind = if kind == Kind::Directory { record::DIRECTORY } else { record::FILE };
    New { kind, mount: mount as u32, flags: kept(flags), handle: handle.0, path }
}

/// A descriptor for an open file.
fn reserve(session: &mut Session, new: &New<'_>, file: Option<Box<dyn TreeFile>>) -> Res<c_int> {
    let reserved = session.records.reserve(new)?;
    let index = session.add(reserved.record, reserved.identity, file);
    // A number that is too high for our table.
    if let Err(number) = session.refer(reserved.fd, index) {
        close_own(reserved.fd);
        session.give_up(index);
        return Err(number);
    }
    Ok(reserved.fd)
}

fn finish(session: &mut Session, new: &New<'_>, file: Option<Box<dyn TreeFile>>) -> Res<Opened> {
    reserve(session, new, file).map(Opened::Descriptor)
}

fn needs(record: &Record, right: Rights) -> Res<()> {
    let flags = record.flags();
    if flags & libc::O_PATH != 0 || !rights(flags).contains(right) { Err(libc::EBADF) } else { Ok(()) }
}

fn offset_of(offset: off_t) -> Res<u64> {
    u64::try_from(offset).map_err(|_| libc::EINVAL)
}

/// Read at an offset until `into` is full or the file ends.
///
/// # Safety
/// `into` has room for `len` bytes.
unsafe fn read_into(session: &mut Session, fd: c_int, into: *mut u8, len: usize, offset: u64) -> Res<usize> {
    let (file, record) = session.file(fd)?;
    needs(record, Rights::READ)?;
    let mut done = 0;
    while done < len {
        let wanted = (len - done).min(PIECE);
        let read = match file.read(offset.saturating_add(done as u64), wanted) {
            Ok(read) => read,
            Err(_) if done > 0 => break,
            Err(error) => return Err(number(&error)),
        };
        // SAFETY: `read` has at most `wanted` bytes, which `into` has room for.
        unsafe { std::ptr::copy_nonoverlapping(read.as_ptr(), into.add(done), read.len()) };
        done += read.len();
        if read.len() < wanted {
            break;
        }
    }
    Ok(done)
}

/// `pread`, or with no offset `read`.
///
/// # Safety
/// `into` has room for `len` bytes.
pub unsafe fn read(fd: c_int, into: *mut u8, len: usize, offset: Option<off_t>) -> Res<isize> {
    if into.is_null() && len > 0 {
        return Err(libc::EFAULT);
    }
    let len = len.min(CALL_BYTES_MAX);
    call(|session| {
        if let Some(offset) = offset {
            // SAFETY: as the caller promises.
            return Ok(unsafe { read_into(session, fd, into, len, offset_of(offset)?)? } as isize);
        }
        loop {
            let record = session.open(fd)?.record;
            let at = record.offset.load(Ordering::Acquire);
            // SAFETY: as the caller promises.
            let read = unsafe { read_into(session, fd, into, len, at as u64)? };
            let after = at + read as i64;
            if record.offset.compare_exchange(at, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(read as isize);
            }
        }
    })
}

/// `pwrite`, or with no offset `write`.
///
/// # Safety
/// `from` has `len` bytes.
pub unsafe fn write(fd: c_int, from: *const u8, len: usize, offset: Option<off_t>) -> Res<isize> {
    if from.is_null() && len > 0 {
        return Err(libc::EFAULT);
    }
    let len = len.min(CALL_BYTES_MAX);
    call(|session| {
        let record = session.open(fd)?.record;
        needs(record, Rights::WRITE)?;
        let appends = record.flags() & libc::O_APPEND != 0;
        if appends && len > 0 {
            session.appends(fd)?;
        }
        let (file, record) = session.file(fd)?;
        if len == 0 {
            return Ok(0);
        }
        let mut at = match offset {
            Some(offset) => offset_of(offset)?,
            None if appends => 0,
            None => record.offset.fetch_add(len as i64, Ordering::AcqRel) as u64,
        };
        let is_synced = record.flags() & libc::O_DSYNC != 0;
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(PIECE);
            // SAFETY: `from` has `len` bytes.
            let data = unsafe { std::slice::from_raw_parts(from.add(done), piece) };
            let data = Bytes::copy_from_slice(data);
            let written = match (appends, is_synced) {
                (true, _) => file.append(data).map(|place| at = place),
                (false, true) => file.write_durable(at, data),
                (false, false) => file.write(at, data),
            };
            if let Err(error) = written {
                if !appends && offset.is_none() {
                    record.offset.fetch_sub((len - done) as i64, Ordering::AcqRel);
                }
                if done == 0 {
                    return Err(number(&error));
                }
                break;
            }
            at += piece as u64;
            done += piece;
        }
        if appends && offset.is_none() {
            record.offset.store(at as i64, Ordering::Release);
        }
        if appends && is_synced {
            file.fsync().map_err(|error| number(&error))?;
        }
        session.wrote(fd);
        Ok(done as isize)
    })
}

/// `lseek`.
pub fn seek(fd: c_int, offset: off_t, whence: c_int) -> Res<off_t> {
    call(|session| {
        let open = session.open(fd)?;
        let record = open.record;
        if record.kind == record::DIRECTORY {
            let at = match whence {
                libc::SEEK_SET => offset,
                libc::SEEK_CUR if offset == 0 => return Ok(record.offset.load(Ordering::Relaxed)),
                _ => return Err(libc::EINVAL),
            };
            open.listing = None;
            record.offset.store(at, Ordering::Relaxed);
            return Ok(at);
        }
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => record.offset.load(Ordering::Acquire),
            libc::SEEK_END | libc::SEEK_DATA | libc::SEEK_HOLE => {
                session.attributes(fd)?.1.size.cast_signed()
            }
            _ => return Err(libc::EINVAL),
        };
        let at = match whence {
            // A file without holes: data up to its end.
            libc::SEEK_DATA | libc::SEEK_HOLE if offset < 0 || offset >= base => return Err(libc::ENXIO),
            libc::SEEK_DATA => offset,
            libc::SEEK_HOLE => base,
            _ => base.checked_add(offset).ok_or(libc::EOVERFLOW)?,
        };
        if at < 0 {
            return Err(libc::EINVAL);
        }
        record.offset.store(at, Ordering::Release);
        Ok(at)
    })
}

/// `ftruncate`.
pub fn truncate(fd: c_int, size: off_t) -> Res<c_int> {
    let size = offset_of(size)?;
    call(|session| {
        needs(session.open(fd)?.record, Rights::WRITE).map_err(|_| libc::EINVAL)?;
        let (file, record) = session.file(fd)?;
        let handle = file.handle();
        let tree = session.tree(record.mount as usize)?;
        tree.truncate(handle, size, true).map_err(|error| number(&error))?;
        session.wrote(fd);
        Ok(0)
    })
}

/// `fsync`.
pub fn sync(fd: c_int) -> Res<c_int> {
    call(|session| {
        let record = session.open(fd)?.record;
        if record.kind == record::DIRECTORY {
            if record.state.load(Ordering::Relaxed) != 0 {
                return Ok(0);
            }
            let handle = session.handle(fd)?;
            let done = session.tree(record.mount as usize)?.fsync_directory(handle);
            return done.map(|()| 0).map_err(|error| number(&error));
        }
        session.file(fd)?.0.fsync().map(|()| 0).map_err(|error| number(&error))
    })
}
