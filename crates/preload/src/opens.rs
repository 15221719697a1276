//! Opens, reads, writes and positions of virtual descriptors.
//!
//! **The position is in the record of the open** ([`record`](crate::record)), which all processes that have
//! the open share. A write reserves its range by one addition. A read moves the position only if no other
//! call has moved it meanwhile; otherwise it reads again. So two processes that write at once do not
//! overwrite each other.

use crate::guard::{Res, call};
use crate::record::{self, New, Record};
use crate::route::{Spot, host_path};
use crate::session::{Call, Held, close_own, owner, rights};
use bytes::Bytes;
use libc::{c_int, off_t};
use shoal_proto::{Handle, Kind, Rights};
use shoal_world::{Shown, TreeFile, Walk, WalkOpen};
use std::ffi::CString;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Looks of one open at a name that other processes replace, at most.
const LOOKS_MAX: usize = 32;
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

/// `open(2)`. A name that another process replaces between the look and the open is looked up again: it is a
/// file at each moment.
pub fn open(session: &mut Call<'_>, spot: &Spot, flags: c_int, mode: u32) -> Res<Opened> {
    let is_exclusive = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    for _ in 1..LOOKS_MAX {
        match open_once(session, spot, flags, mode) {
            Err(libc::ESTALE) if !is_exclusive => {}
            done => return done,
        }
    }
    open_once(session, spot, flags, mode)
}

fn open_once(session: &mut Call<'_>, spot: &Spot, flags: c_int, mode: u32) -> Res<Opened> {
    let has = |flag: c_int| flags & flag == flag;
    if has(libc::O_TMPFILE) {
        crate::guard::decline("open", "a file without a name (O_TMPFILE)");
        return Err(libc::EOPNOTSUPP);
    }
    let exclusive = has(libc::O_CREAT | libc::O_EXCL);
    let follow = !has(libc::O_NOFOLLOW) && !exclusive;
    let began = session.moves_so_far();
    let walk = if exclusive || has(libc::O_PATH) || has(libc::O_DIRECTORY) || !is_opened_by_name(spot) {
        session.walk(spot, follow)?
    } else {
        match session.walk_open(spot, follow, rights(flags))? {
            WalkOpen::Walk(walk) => walk,
            WalkOpen::File(file, path) => {
                let handle = file.handle();
                if has(libc::O_TRUNC) {
                    session.on(spot.mount, |tree| tree.truncate(handle, 0, true))?;
                }
                let found = Found { kind: Kind::File, handle, path, file: Some(file) };
                return finish(session, spot.mount, flags, found, began);
            }
        }
    };
    let found = match walk {
        Walk::Outside(path) => return outside(path),
        Walk::Missing { .. } if !has(libc::O_CREAT) => return Err(libc::ENOENT),
        Walk::Missing { must_be_dir: true, .. } => return Err(libc::EISDIR),
        Walk::Missing { dir, name, path, .. } => {
            let (attr, _, file) = session.on(spot.mount, |tree| {
                let made = tree.create(dir, &name, owner(mode), exclusive, rights(flags))?;
                if !made.1 && has(libc::O_TRUNC) {
                    tree.truncate(made.0.handle, 0, false)?;
                }
                Ok(made)
            })?;
            let found = Found { kind: attr.kind, handle: attr.handle, path, file: Some(file) };
            return finish(session, spot.mount, flags, found, began);
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
            let (kind, handle, path) = (attr.kind, attr.handle, found.path);
            let opened = finish(session, spot.mount, flags, Found { kind, handle, path, file: None }, began)?;
            if let Opened::Descriptor(fd) = opened {
                session.open(fd)?.attr = Some(found.attr);
            }
            Ok(opened)
        }
        _ if has(libc::O_DIRECTORY) => Err(libc::ENOTDIR),
        Kind::File => {
            let file = session.on(spot.mount, |tree| {
                let file = tree.open(attr.handle, rights(flags))?;
                if has(libc::O_TRUNC) {
                    tree.truncate(attr.handle, 0, true)?;
                }
                Ok(file)
            })?;
            let (kind, handle, path) = (attr.kind, attr.handle, found.path);
            finish(session, spot.mount, flags, Found { kind, handle, path, file: Some(file) }, began)
        }
        _ => outside(host_path(&Spot::new(spot.mount, found.path))),
    }
}

fn kept(flags: c_int) -> c_int {
    flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY)
}

/// Whether an open by name saves a request, or is the file that the name leads to although it is replaced
/// meanwhile. Elsewhere it is a look and an open.
fn is_opened_by_name(spot: &Spot) -> bool {
    matches!(super::calls::locks::shown(spot.mount), Some(Shown::Shoal { .. } | Shown::Plain))
}

/// An object that was found, and opened if it is a file.
struct Found {
    kind: Kind,
    handle: Handle,
    path: Vec<u8>,
    file: Option<Rc<dyn TreeFile>>,
}

/// A descriptor for an open object, which was looked for after the first `began` moves of this process.
fn finish(session: &mut Call<'_>, mount: usize, flags: c_int, found: Found, began: u64) -> Res<Opened> {
    let kind = if found.kind == Kind::Directory { record::DIRECTORY } else { record::FILE };
    let (path, is_there) = session.present(mount, found.handle, found.path, began)?;
    let new = New { kind, mount: mount as u32, flags: kept(flags), handle: found.handle.0, path: &path };
    let reserved = session.records.reserve(&new)?;
    if !is_there {
        reserved.record.state.store(1, Ordering::Relaxed);
    }
    let index = session.add(reserved.record, reserved.identity, found.file);
    // A number that is too high for our table.
    if let Err(number) = session.refer(reserved.fd, index) {
        close_own(reserved.fd);
        session.give_up(index);
        return Err(number);
    }
    Ok(Opened::Descriptor(reserved.fd))
}

/// Bytes of one append: a ShoalFS does no longer one.
fn append_piece(record: &Record) -> usize {
    match super::calls::locks::shown(record.mount as usize) {
        Some(Shown::Shoal { .. }) => shoal_proto::limits::BULK_BYTES_MAX,
        _ => PIECE,
    }
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
unsafe fn read_into(
    session: &mut Call<'_>,
    file: &dyn TreeFile,
    into: *mut u8,
    len: usize,
    offset: u64,
) -> Res<usize> {
    let mut done = 0;
    while done < len {
        let wanted = (len - done).min(PIECE);
        let read = match session.away(|| file.read(offset.saturating_add(done as u64), wanted)) {
            Ok(read) => read,
            Err(_) if done > 0 => break,
            Err(number) => return Err(number),
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
    let read = |session: &mut Call<'_>, held: &Held| {
        let (file, record) = (session.file(held)?, held.record);
        needs(record, Rights::READ)?;
        if let Some(offset) = offset {
            // SAFETY: as the caller promises.
            return Ok(unsafe { read_into(session, &*file, into, len, offset_of(offset)?)? } as isize);
        }
        // Another process may move the position meanwhile.
        session.in_turn(held, |session| {
            loop {
                let at = record.offset.load(Ordering::Acquire);
                // SAFETY: as the caller promises.
                let read = unsafe { read_into(session, &*file, into, len, at as u64)? };
                let after = at + read as i64;
                if record.offset.compare_exchange(at, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Ok(read as isize);
                }
            }
        })
    };
    call(|session| session.holding(fd, read))
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
        let written = session.holding(fd, |session, held| {
            needs(held.record, Rights::WRITE)?;
            let appends = held.record.flags() & libc::O_APPEND != 0;
            if appends && len > 0 {
                session.appends(held);
            }
            let file = session.file(held)?;
            // SAFETY: as the caller promises.
            let write =
                |session: &mut Call<'_>| unsafe { write_from(session, held, &*file, from, len, offset) };
            let write = |session: &mut Call<'_>| match appends {
                true => session.appending(held, len > append_piece(held.record), write),
                false => write(session),
            };
            match (len, offset) {
                (0, _) => Ok(0),
                (_, None) => session.in_turn(held, write),
                _ => write(session),
            }
        });
        session.publish_at_end();
        written
    })
}

/// # Safety
/// `from` has `len` bytes.
unsafe fn write_from(
    session: &mut Call<'_>,
    held: &Held,
    file: &dyn TreeFile,
    from: *const u8,
    len: usize,
    offset: Option<off_t>,
) -> Res<isize> {
    let record = held.record;
    let appends = record.flags() & libc::O_APPEND != 0;
    let is_synced = record.flags() & libc::O_DSYNC != 0;
    let mut at = match offset {
        Some(offset) => offset_of(offset)?,
        None if appends => 0,
        None => record.offset.fetch_add(len as i64, Ordering::AcqRel) as u64,
    };
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(if appends { append_piece(record) } else { PIECE });
        // SAFETY: `from` has `len` bytes.
        let data = unsafe { std::slice::from_raw_parts(from.add(done), piece) };
        let data = Bytes::copy_from_slice(data);
        let written = session.away(|| match (appends, is_synced) {
            (true, _) => file.append(data).map(|place| at = place),
            (false, true) => file.write_durable(at, data),
            (false, false) => file.write(at, data),
        });
        if let Err(number) = written {
            if !appends && offset.is_none() {
                // Unless another process has moved on from there.
                let (reserved, reached) = (at + (len - done) as u64, at as i64);
                let _ = record.offset.compare_exchange(
                    reserved as i64,
                    reached,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
            if done == 0 {
                return Err(number);
            }
            break;
        }
        at += piece as u64;
        done += piece;
    }
    if appends && offset.is_none() {
        record.offset.store(at as i64, Ordering::Release);
    }
    session.wrote(held);
    if appends && is_synced {
        session.away(|| file.fsync())?;
    }
    session.publish_late(held, file)?;
    Ok(done as isize)
}

/// `lseek`.
pub fn seek(fd: c_int, offset: off_t, whence: c_int) -> Res<off_t> {
    call(|session| {
        session.holding(fd, |session, held| {
            session.in_turn(held, |session| seek_in(session, held, offset, whence))
        })
    })
}

fn seek_in(session: &mut Call<'_>, held: &Held, offset: off_t, whence: c_int) -> Res<off_t> {
    let record = held.record;
    if record.kind == record::DIRECTORY {
        let at = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR if offset == 0 => return Ok(record.offset.load(Ordering::Relaxed)),
            _ => return Err(libc::EINVAL),
        };
        session.held(held)?.listing = None;
        record.offset.store(at, Ordering::Relaxed);
        return Ok(at);
    }
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => record.offset.load(Ordering::Acquire),
        libc::SEEK_END | libc::SEEK_DATA | libc::SEEK_HOLE => {
            session.attributes_of(held)?.1.size.cast_signed()
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
}

/// `ftruncate`.
pub fn truncate(fd: c_int, size: off_t) -> Res<c_int> {
    let size = offset_of(size)?;
    call(|session| {
        let done = session.holding(fd, |session, held| {
            needs(held.record, Rights::WRITE).map_err(|_| libc::EINVAL)?;
            let file = session.file(held)?;
            session.on(held.record.mount as usize, |tree| tree.truncate(file.handle(), size, true))?;
            session.wrote(held);
            session.publish_late(held, &*file).map(|()| 0)
        });
        session.publish_at_end();
        done
    })
}

/// `fsync`.
pub fn sync(fd: c_int) -> Res<c_int> {
    call(|session| {
        session.holding(fd, |session, held| {
            let record = held.record;
            if record.kind == record::FILE {
                let file = session.file(held)?;
                session.away(|| file.fsync())?;
                // Programs of MPI sync, meet, and sync again: the second one shows what others wrote.
                let _ = session.locked(held);
                return Ok(0);
            }
            if record.state.load(Ordering::Relaxed) != 0 {
                return Ok(0);
            }
            let handle = session.handle_of(held)?;
            session.on(record.mount as usize, |tree| tree.fsync_directory(handle)).map(|()| 0)
        })
    })
}
