//! Locks.
//!
//! A lock of a virtual file is a lock of the kernel, on an object of the host that stands for the file: the
//! file itself, or the access record of a container. The locks of a ShoalFS are its servers' ([`served`]).
//! The files of containers over several backends have no locks (`ENOLCK`).
//!
//! The files of a composed directory have no object of the host. Each file has a range of offsets in the
//! first physical file, beyond all bytes of files, and the kernel's locks of that range are the file's
//! locks. By chance two files may have the same range, with a probability of 1 in 536 million; then their
//! locks exclude each other. A lock covers bytes below 2 GiB, or reaches to the end of the file: others fail
//! with `ENOLCK`.
//!
//! **Record locks** (`fcntl`) belong to one process, and POSIX releases them at any close of the file in
//! that process. The file system below opens and closes such objects for itself, so a lock of that kind
//! would not last. So record locks are taken on one descriptor for each file and process, as locks of an
//! open file description; locks of other processes respect them. **While a call waits for a lock, its
//! thread is not in the library's world** (its event loop; see [`crate::guard`]). So other threads can use
//! the world, and signals arrive. The descriptor that it waits on stays until the wait is over, although
//! another thread closes the file. (test: `tests/preload/beside.c`)
//!
//! **With a lock a process sees all bytes that other processes wrote before they released the lock**: when
//! the lock is granted, the library reads the records that they published.

mod served;

use super::children;
use crate::config;
use crate::guard::{self, Held, Res, answer, call};
use crate::real;
use crate::record::Record;
use crate::route::{Spot, host_path};
use crate::session::{Call, close_own, own_from};
use crate::table::is_virtual;
use libc::{c_int, c_void};
use shoal_world::Shown;
use std::ffi::CString;
use std::sync::atomic::Ordering;

/// The access record in a container's directory.
const ACCESS_RECORD: &[u8] = b"/.shoal-container";

/// The physical file in a composed directory that locks are on.
const PHYSICAL: &[u8] = b"/blocks.0";
/// Where the ranges of locks begin in it, how many there are, and how long each is.
const RANGES: (i64, u64, i64) = (1 << 61, 1 << 29, 1 << 32);

/// A part of a file that locks of another one are on.
#[derive(Clone, Copy)]
struct Range {
    from: i64,
    len: i64,
}

impl Range {
    fn number(number: u64, (from, count, len): (i64, u64, i64)) -> Range {
        Range { from: from + (number % count).cast_signed() * len, len }
    }

    /// Locks of bytes end here, and the lock of the file is the last byte.
    fn bytes_end(self) -> i64 {
        self.len / 2
    }
}

/// A file system.
pub fn shown(mount: usize) -> Option<&'static Shown> {
    config::get().and_then(|config| config.overs.get(mount)).map(|over| &over.shown)
}

/// The file system of a descriptor's file.
fn shown_of(record: &Record) -> Option<&'static Shown> {
    shown(record.mount as usize)
}

/// The range of a file, if its locks are on a file of many.
fn range_of(record: &Record) -> Option<Range> {
    match shown_of(record) {
        Some(Shown::Composed(_)) => Some(Range::number(record.handle.load(Ordering::Relaxed), RANGES)),
        _ => None,
    }
}

/// A lock of bytes, moved into a range.
fn moved(lock: libc::flock, range: Range) -> Res<libc::flock> {
    let most = range.bytes_end();
    let (from, end) = match lock.l_len {
        0 => (lock.l_start, most),
        // As the kernel takes it: to the end, wherever that is.
        len if len > 0 && lock.l_start.saturating_add(len) == i64::MAX => (lock.l_start, most),
        len if len < 0 => (lock.l_start.saturating_add(len), lock.l_start),
        len => (lock.l_start, lock.l_start.saturating_add(len)),
    };
    if from >= most {
        return Err(libc::ENOLCK);
    }
    // A lock to the end of the file ends with the range; one of bytes must not.
    if end > most {
        return Err(libc::ENOLCK);
    }
    Ok(libc::flock { l_start: range.from + from, l_len: end - from, ..lock })
}

/// `flock` of a file whose locks are on a physical file.
fn lock_range(on: c_int, range: Range, operation: c_int) -> c_int {
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => libc::F_RDLCK,
        libc::LOCK_EX => libc::F_WRLCK,
        libc::LOCK_UN => libc::F_UNLCK,
        _ => return answer(Err(libc::EINVAL)),
    };
    let mut lock = libc::flock {
        l_whence: libc::SEEK_SET as i16,
        l_start: range.from + range.len - 1,
        l_pid: 0,
        l_type: kind as i16,
        l_len: 1,
    };
    let mut set = |command: c_int, kind: c_int| {
        lock.l_type = kind as i16;
        // SAFETY: the lock is ours; the call may wait.
        unsafe { real::fcntl()(on, command, std::ptr::from_mut(&mut lock).cast::<c_void>()) }
    };
    let mut done = set(libc::F_OFD_SETLK, kind);
    let is_held = done < 0 && matches!(guard::errno(), libc::EAGAIN | libc::EACCES);
    if is_held && operation & libc::LOCK_NB == 0 {
        // As `flock` does: the lock held before is given back first, so two that hold a shared one do not
        // wait for each other.
        set(libc::F_OFD_SETLK, libc::F_UNLCK);
        done = set(libc::F_OFD_SETLKW, kind);
    }
    match (done < 0).then(guard::errno) {
        None => done,
        Some(libc::EACCES) => answer(Err(libc::EWOULDBLOCK)),
        // The physical file may only be read here.
        Some(libc::EBADF) => answer(Err(libc::ENOLCK)),
        Some(number) => answer(Err(number)),
    }
}

/// Open the object of the host that stands for a descriptor's file.
fn stand_in(session: &mut Call<'_>, fd: c_int) -> Res<c_int> {
    let record = session.open(fd)?.record;
    let spot = Spot::new(record.mount as usize, record.path());
    let path = match shown_of(record) {
        Some(Shown::Plain) => host_path(&spot),
        Some(Shown::Container(_)) if record.kind == crate::record::FILE => {
            [&host_path(&spot)[..], ACCESS_RECORD].concat()
        }
        Some(Shown::Container(_)) => host_path(&spot),
        // Its record lies on any of the backends, and may get a metalink: no object stands for it.
        Some(Shown::Federation(_)) => return Err(libc::ENOLCK),
        // No object of the host stands for it.
        Some(Shown::Bucket { .. } | Shown::Shoal { .. }) | None => return Err(libc::ENOLCK),
        Some(Shown::Composed(_)) => {
            let root = Spot::new(spot.mount, Vec::new());
            [&host_path(&root)[..], PHYSICAL].concat()
        }
    };
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    let open = |flags: c_int| {
        // SAFETY: the path is a C string.
        unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC) as c_int
        }
    };
    let opened = match open(libc::O_RDWR) {
        // A directory, or a file that may only be read.
        fd if fd < 0 => open(libc::O_RDONLY),
        fd => fd,
    };
    if opened < 0 {
        return Err(libc::ENOLCK);
    }
    // SAFETY: the descriptor is ours.
    let moved = unsafe { libc::syscall(libc::SYS_fcntl, opened, libc::F_DUPFD_CLOEXEC, own_from()) as c_int };
    close_own(opened);
    if moved < 0 { Err(libc::ENOLCK) } else { Ok(moved) }
}

/// Where a record lock is.
struct Place {
    on: c_int,
    key: (usize, u64, u64),
    record: &'static Record,
    range: Option<Range>,
}

/// The place of a descriptor's record locks.
fn place(session: &mut Call<'_>, fd: c_int) -> Res<Place> {
    let record = session.open(fd)?.record;
    let key = session.lock_key(fd)?;
    let on = match session.locks.get(&key) {
        Some(known) => *known,
        None => {
            let on = stand_in(session, fd)?;
            session.locks.insert(key, on);
            children::has_locks(on);
            on
        }
    };
    Ok(Place { on, key, record, range: range_of(record) })
}

/// Refuse a lock for which the file is not open.
fn may_lock(record: &Record, kind: libc::c_short) -> Res<()> {
    let access = record.flags() & libc::O_ACCMODE;
    let is_allowed = match c_int::from(kind) {
        libc::F_WRLCK => access != libc::O_RDONLY,
        libc::F_RDLCK => access != libc::O_WRONLY,
        _ => true,
    };
    if is_allowed { Ok(()) } else { Err(libc::EBADF) }
}

/// A lock as the caller has it, from the beginning of the file.
fn absolute(session: &mut Call<'_>, fd: c_int, wanted: &libc::flock) -> Res<libc::flock> {
    let base = match c_int::from(wanted.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => session.open(fd)?.record.offset.load(Ordering::Relaxed),
        libc::SEEK_END => session.attributes(fd)?.1.size.cast_signed(),
        _ => return Err(libc::EINVAL),
    };
    let start = wanted.l_start.checked_add(base).ok_or(libc::EOVERFLOW)?;
    if start < 0 || wanted.l_len < 0 && start.saturating_add(wanted.l_len) < 0 {
        return Err(libc::EINVAL);
    }
    let (l_whence, l_start) = (libc::SEEK_SET as i16, start);
    Ok(libc::flock { l_whence, l_start, l_pid: 0, l_type: wanted.l_type, l_len: wanted.l_len })
}

/// Take or test a lock of the kernel.
fn set(on: c_int, command: c_int, lock: &mut libc::flock) -> Res<c_int> {
    // SAFETY: the lock is ours; the call may wait.
    let done = unsafe { real::fcntl()(on, command, std::ptr::from_mut(lock).cast::<c_void>()) };
    if done < 0 { Err(guard::errno()) } else { Ok(done) }
}

/// The lock that another process has, as the caller has it.
fn tell(wanted: &mut libc::flock, mut found: libc::flock, range: Option<Range>) {
    if let Some(range) = range.filter(|_| c_int::from(found.l_type) != libc::F_UNLCK) {
        found.l_start -= range.from;
        if found.l_start.saturating_add(found.l_len) >= range.bytes_end() {
            found.l_len = 0;
        }
    } else if range.is_some() {
        found = libc::flock { l_type: libc::F_UNLCK as i16, ..*wanted };
    }
    *wanted = found;
}

/// A lock was granted: what is known after it. If nothing is, the lock holds all the same.
fn granted(session: &mut Call<'_>, fd: c_int) {
    let _ = session.holding(fd, |session, held| session.locked(held));
}

/// `fcntl` with a lock.
///
/// # Safety
/// `lock` is null or a lock.
pub unsafe fn record_lock(fd: c_int, command: c_int, lock: *mut libc::flock) -> Res<c_int> {
    // SAFETY: as the caller promises.
    let wanted = unsafe { lock.as_mut() }.ok_or(libc::EFAULT)?;
    if call(|session| Ok(served::is_served(session.open(fd)?.record)))? {
        return served::record_lock(fd, command, wanted);
    }
    let (command, waits) = match command {
        libc::F_GETLK | libc::F_OFD_GETLK => (libc::F_OFD_GETLK, false),
        libc::F_SETLKW | libc::F_OFD_SETLKW => (libc::F_OFD_SETLK, true),
        _ => (libc::F_OFD_SETLK, false),
    };
    let begun = call(|session| {
        if command != libc::F_OFD_GETLK {
            may_lock(session.open(fd)?.record, wanted.l_type)?;
        }
        let own = absolute(session, fd, wanted)?;
        let place = place(session, fd)?;
        let mut own = place.range.map_or(Ok(own), |range| moved(own, range))?;
        match set(place.on, command, &mut own) {
            // Another thread's close of the file must leave what this one waits on.
            Err(libc::EAGAIN | libc::EACCES) if waits => children::begin_wait(place.on),
            Err(number) => return Err(number),
            Ok(_) if command == libc::F_OFD_GETLK => {
                tell(wanted, own, place.range);
                return Ok(None);
            }
            Ok(_) => {
                if c_int::from(wanted.l_type) != libc::F_UNLCK {
                    granted(session, fd);
                }
                return Ok(None);
            }
        }
        Ok(Some((place, own)))
    })?;
    let Some((place, mut own)) = begun else { return Ok(0) };
    let done = set(place.on, libc::F_OFD_SETLKW, &mut own);
    let ended = call(|session| {
        children::end_wait(&mut children::state_inside(), place.on);
        if session.is_of(fd, place.record) {
            if done.is_ok() {
                granted(session, fd);
            }
            return Ok(());
        }
        // As a kernel does it: the descriptor was closed meanwhile.
        own.l_type = libc::F_UNLCK as i16;
        let _ = set(place.on, libc::F_OFD_SETLK, &mut own);
        session.waited_in_vain(place.key);
        Err(libc::EBADF)
    });
    match ended {
        Err(libc::ETIMEDOUT) => children::end_wait(&mut children::state(&Held::new()), place.on),
        Err(number) if done.is_ok() => return Err(number),
        _ => {}
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::flock()(fd, operation) };
    }
    match call(|session| Ok(served::is_served(session.open(fd)?.record))) {
        Ok(true) => return answer(served::flock(fd, operation)),
        Ok(false) => {}
        Err(number) => return answer(Err(number)),
    }
    let take = |on: c_int, range: Option<Range>, operation: c_int| {
        let done = match range {
            Some(range) => lock_range(on, range, operation),
            // SAFETY: the descriptor is ours; the call may wait.
            None => unsafe { real::flock()(on, operation) },
        };
        if done < 0 { Err(guard::errno()) } else { Ok(done) }
    };
    let begun = call(|session| {
        let open = session.open(fd)?;
        let range = range_of(open.record);
        let on = match open.flock {
            Some(known) => known,
            None => {
                let on = stand_in(session, fd)?;
                *session.open(fd)?.flock.insert(on)
            }
        };
        match take(on, range, operation | libc::LOCK_NB) {
            Err(libc::EWOULDBLOCK) if operation & libc::LOCK_NB == 0 => {
                // Its descriptor stays while this call waits.
                return Ok(Some((on, range, session.use_of(fd)?)));
            }
            Err(number) => return Err(number),
            Ok(_) => {}
        }
        if operation & libc::LOCK_UN == 0 {
            granted(session, fd);
        }
        Ok(None)
    });
    let (on, range, held) = match begun {
        Ok(None) => return 0,
        Ok(Some(waits)) => waits,
        Err(number) => return answer(Err(number)),
    };
    let done = take(on, range, operation);
    let _ = call(|session| {
        if done.is_ok() {
            let _ = session.locked(&held);
        }
        session.unuse(held);
        Ok(())
    });
    answer(done)
}
