//! Directory streams.
//!
//! A stream of the C library begins with a descriptor, which is never negative. A stream of this library
//! begins with two words with which no stream of the C library can begin. Threads that read one stream each
//! get entries of their own, as with the C library's; `readdir` returns the stream's one place for an entry.
//! (test: `tests/preload/beside.c`)

use super::also;
use super::open::open_spot;
use crate::guard::{Res, answer, call};
use crate::real;
use crate::record;
use crate::route::{Route, route};
use crate::session::{Call, Held};
use crate::table::is_virtual;
use libc::{AT_FDCWD, DIR, c_char, c_int, c_long, c_void, dirent};
use shoal_proto::{Handle, Kind};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

const MARK: [u64; 2] = [u64::from_ne_bytes(*b"oalDIRS\xff") | 0x8000_0000, 0x5348_4f41_4c44_4952];
/// Entries that are taken at once.
const BATCH: usize = 128;
/// Bytes of a name and its end.
const NAME_BYTES: usize = 256;
/// Positions after `.` and `..`; entries' own are at least 3.
const AFTER_DOT: i64 = 1;
const AFTER_DOTS: i64 = 2;

/// A stream.
#[repr(C)]
struct Stream {
    mark: [u64; 2],
    fd: c_int,
    ahead: Mutex<Ahead>,
    current: UnsafeCell<dirent>,
}

/// Entries that were taken, and not returned yet.
struct Ahead {
    /// The position of the entry returned last.
    at: i64,
    next: VecDeque<Next>,
}

struct Next {
    name: Vec<u8>,
    ino: u64,
    kind: u8,
    after: i64,
}

impl Stream {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Put the next entry into `entry`; whether there was one.
    unsafe fn read(&self, entry: *mut dirent) -> Res<bool> {
        let mut ahead = self.ahead();
        if ahead.next.is_empty() {
            ahead.next = more(self.fd)?;
        }
        let Some(next) = ahead.next.pop_front() else { return Ok(false) };
        ahead.at = next.after;
        // SAFETY: the caller's place, which another thread may have too, as with the C library; the name has
        // room for it and its end.
        unsafe {
            (&raw mut (*entry).d_ino).write(next.ino);
            (&raw mut (*entry).d_off).write(next.after);
            (&raw mut (*entry).d_type).write(next.kind);
            (&raw mut (*entry).d_reclen).write(size_of::<dirent>() as u16);
            let name = (&raw mut (*entry).d_name).cast::<u8>();
            let len = next.name.len().min(NAME_BYTES - 1);
            std::ptr::copy_nonoverlapping(next.name.as_ptr(), name, len);
            name.add(len).write(0);
        }
        Ok(true)
    }
}

unsafe fn ours<'a>(stream: *mut DIR) -> Option<&'a Stream> {
    if stream.is_null() || !crate::config::is_on() {
        return None;
    }
    // SAFETY: the caller passes a stream, and all streams are that large.
    unsafe { (*stream.cast::<[u64; 2]>() == MARK).then(|| &*stream.cast::<Stream>()) }
}

fn kind_of(kind: Kind) -> u8 {
    match kind {
        Kind::Directory => libc::DT_DIR,
        Kind::File | Kind::Datafile => libc::DT_REG,
        Kind::Symlink => libc::DT_LNK,
        Kind::Fifo => libc::DT_FIFO,
        Kind::Socket => libc::DT_SOCK,
        Kind::CharDevice => libc::DT_CHR,
        Kind::BlockDevice => libc::DT_BLK,
    }
}

/// Entries after the record's position.
fn more(fd: c_int) -> Res<VecDeque<Next>> {
    call(|session| {
        session.holding(fd, |session, held| session.in_turn(held, |session| next_of(session, held)))
    })
}

fn next_of(session: &mut Call<'_>, held: &Held) -> Res<VecDeque<Next>> {
    let record = held.record;
    let own = session.handle_of(held)?;
    let mut at = record.offset.load(Ordering::Relaxed);
    let mut found = VecDeque::new();
    for (name, before, after) in [(".", 0, AFTER_DOT), ("..", AFTER_DOT, AFTER_DOTS)] {
        if at == before {
            let Handle(ino) = own;
            found.push_back(Next { name: name.into(), ino, kind: libc::DT_DIR, after });
            at = after;
        }
    }
    let kept = session.held(held)?.listing.take().filter(|(_, reached)| *reached == at);
    let mut listing = match kept {
        Some((listing, _)) => listing,
        None => {
            let mut listing = session.tree(record.mount as usize)?.opendir(own);
            if at > AFTER_DOTS {
                listing.seek(at as u64);
            }
            listing
        }
    };
    while found.len() < BATCH {
        let entry = match session.away(|| listing.next()) {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(_) if !found.is_empty() => break,
            Err(number) => return Err(number),
        };
        at = entry.place.cast_signed();
        let (name, kind) = (entry.name.as_bytes().to_vec(), kind_of(entry.kind));
        found.push_back(Next { name, ino: entry.handle.0, kind, after: at });
    }
    record.offset.store(at, Ordering::Relaxed);
    session.held(held)?.listing = Some((listing, at));
    Ok(found)
}

fn stream_of(fd: c_int) -> *mut DIR {
    // SAFETY: all zeros are a valid entry.
    let current = UnsafeCell::new(unsafe { std::mem::zeroed() });
    let at = call(|session| Ok(session.open(fd)?.record.offset.load(Ordering::Relaxed))).unwrap_or(0);
    let ahead = Mutex::new(Ahead { at, next: VecDeque::new() });
    Box::into_raw(Box::new(Stream { mark: MARK, fd, ahead, current })).cast()
}

/// `opendir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: the caller's argument.
    unsafe {
        let Route::Ours(spot) = route(AT_FDCWD, path) else { return real::opendir()(path) };
        match open_spot(&spot, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) {
            Ok(fd) if is_virtual(fd) => stream_of(fd),
            Ok(fd) => real::fdopendir()(fd),
            Err(number) => answer(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    if !is_virtual(fd) {
        // SAFETY: the caller's argument.
        return unsafe { real::fdopendir()(fd) };
    }
    let kind = call(|session| Ok(session.open(fd)?.record.kind));
    match kind {
        Ok(record::DIRECTORY) => stream_of(fd),
        Ok(_) => answer(Err(libc::ENOTDIR)),
        Err(number) => answer(Err(number)),
    }
}

/// `readdir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir(stream: *mut DIR) -> *mut dirent {
    // SAFETY: the caller's argument.
    let Some(own) = (unsafe { ours(stream) }) else {
        // SAFETY: the same.
        return unsafe { real::readdir()(stream) };
    };
    // SAFETY: the place is the stream's.
    match unsafe { own.read(own.current.get()) } {
        Ok(true) => own.current.get(),
        Ok(false) => std::ptr::null_mut(),
        Err(number) => answer(Err(number)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readdir_r(stream: *mut DIR, into: *mut dirent, found: *mut *mut dirent) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let Some(own) = ours(stream) else { return real::readdir_r()(stream, into, found) };
        let read = own.read(into);
        found.write(if read == Ok(true) { into } else { std::ptr::null_mut() });
        read.err().unwrap_or(0)
    }
}

/// `closedir(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(stream: *mut DIR) -> c_int {
    // SAFETY: the caller's argument; a stream of ours was made by `stream_of`.
    unsafe {
        let Some(own) = ours(stream) else { return real::closedir()(stream) };
        let fd = own.fd;
        let mut own = Box::from_raw(stream.cast::<Stream>());
        own.mark = [0; 2];
        drop(own);
        super::descriptors::close(fd)
    }
}

fn go(own: &Stream, at: i64) {
    let mut ahead = own.ahead();
    ahead.next.clear();
    ahead.at = at;
    let _ = crate::opens::seek(own.fd, at, libc::SEEK_SET);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rewinddir(stream: *mut DIR) {
    // SAFETY: the caller's argument.
    unsafe {
        match ours(stream) {
            Some(own) => go(own, 0),
            None => real::rewinddir()(stream),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn seekdir(stream: *mut DIR, at: c_long) {
    // SAFETY: the caller's arguments.
    unsafe {
        match ours(stream) {
            Some(own) => go(own, at),
            None => real::seekdir()(stream, at),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn telldir(stream: *mut DIR) -> c_long {
    // SAFETY: the caller's argument.
    unsafe {
        match ours(stream) {
            Some(own) => own.ahead().at,
            None => real::telldir()(stream),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dirfd(stream: *mut DIR) -> c_int {
    // SAFETY: the caller's argument.
    unsafe {
        match ours(stream) {
            Some(own) => own.fd,
            None => real::dirfd()(stream),
        }
    }
}

/// `getdents64(2)`, one entry after the other, as the C library's name of it has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn getdents64(fd: c_int, into: *mut c_void, room: libc::size_t) -> libc::ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { libc::syscall(libc::SYS_getdents64, fd, into, room) as libc::ssize_t };
    }
    let found = match more(fd) {
        Ok(found) => found,
        Err(number) => return answer(Err(number)),
    };
    let (mut used, mut last) = (0, None);
    let count = found.len();
    for (index, next) in found.into_iter().enumerate() {
        let len = (19 + next.name.len() + 1).next_multiple_of(8);
        if used + len > room {
            // The rest comes again.
            let at = last.unwrap_or(0);
            let _ = crate::opens::seek(fd, at, libc::SEEK_SET);
            break;
        }
        let mut raw = Vec::with_capacity(len);
        raw.extend_from_slice(&next.ino.to_ne_bytes());
        raw.extend_from_slice(&next.after.to_ne_bytes());
        raw.extend_from_slice(&(len as u16).to_ne_bytes());
        raw.push(next.kind);
        raw.extend_from_slice(&next.name);
        raw.resize(len, 0);
        // SAFETY: there is room for `len` more bytes.
        unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr(), into.cast::<u8>().add(used), len) };
        used += len;
        last = Some(next.after);
        let _ = index;
    }
    if used == 0 && count > 0 { answer(Err(libc::EINVAL)) } else { used as libc::ssize_t }
}

also! {
    readdir64 = readdir(stream: *mut DIR) -> *mut dirent;
    readdir64_r = readdir_r(stream: *mut DIR, into: *mut dirent, found: *mut *mut dirent) -> c_int;
}
