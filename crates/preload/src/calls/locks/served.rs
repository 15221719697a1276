//! Locks of the files of a ShoalFS: its servers keep them, for all machines and mounts.
//!
//! - **Record locks** are this process's. They end with any close of the file in it, as POSIX has it.
//! - **Locks of an open file description, and `flock`**, are the description's. An `flock` is a lock of all
//!   bytes, as on a mount.
//! - The session of the process that opened a file has the locks of its description. A process that
//!   inherited the descriptor can neither take nor give back such a lock (`ENOLCK`): with its end the lock
//!   would end that the other process counts on.
//! - **A wait looks again after a pause, outside of the library's world.** So signals arrive and end it
//!   (`EINTR`, whatever `SA_RESTART` says), and the order of arrival does not count. A cycle of waits is not
//!   found.
//!
//! A server gives the locks of a process that ended without a close back when its lease is over.

use super::{absolute, may_lock, shown_of};
use crate::guard::{self, Res, call};
use crate::record::{self, Record};
use crate::session::{Call, LOCKED, PROCESS, description, gave_back, keep_lease};
use libc::c_int;
use shoal_proto::{LockKind, LockOwner, LockRange};
use shoal_vfs::{HeldLock, LockCall};
use shoal_world::{Shown, TreeFile};
use std::sync::atomic::Ordering;

/// The first and the longest pause of a wait.
const PAUSE_US: (i64, i64) = (500, 20_000);

/// Whether a file's locks are its servers'.
pub fn is_served(record: &Record) -> bool {
    matches!(shown_of(record), Some(Shown::Shoal { .. }))
}

/// `fcntl` with a lock.
pub fn record_lock(fd: c_int, command: c_int, wanted: &mut libc::flock) -> Res<c_int> {
    let is_process = matches!(command, libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW);
    let is_test = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
    let done = patiently(waits, || {
        call(|session| {
            if !is_test {
                may_lock(session.open(fd)?.record, wanted.l_type)?;
            }
            let range = range(&absolute(session, fd, wanted)?);
            let owner = owner(session, fd, is_process)?;
            match kind(c_int::from(wanted.l_type)) {
                Some(kind) if is_test => {
                    let asked = asked(owner, range, kind);
                    let found = of(session, fd, |session, file| session.away(|| file.lock_holder(&asked)))?;
                    tell(wanted, found, is_process);
                    Ok(true)
                }
                Some(kind) => {
                    of(session, fd, |session, file| lock(session, file, &asked(owner, range, kind)))
                }
                None => of(session, fd, |session, file| unlock(session, file, owner, range)).map(|()| true),
            }
        })
    });
    done.map(|()| 0)
}

/// `flock`.
pub fn flock(fd: c_int, operation: c_int) -> Res<c_int> {
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => Some(LockKind::Shared),
        libc::LOCK_EX => Some(LockKind::Exclusive),
        libc::LOCK_UN => None,
        _ => return Err(libc::EINVAL),
    };
    let waits = operation & libc::LOCK_NB == 0;
    // As with a kernel, the description stays until the wait is over, although another thread closes it.
    let (owner, held) = call(|session| Ok((owner(session, fd, false)?, session.use_of(fd)?)))?;
    let done = patiently(waits, || {
        call(|session| {
            let file = session.file(&held)?;
            let Some(kind) = kind else {
                return unlock(session, &*file, owner, LockRange::ALL).map(|()| true);
            };
            let is_granted = lock(session, &*file, &asked(owner, LockRange::ALL, kind))?;
            if !is_granted && waits {
                // Two that hold a shared lock and want it alone do not wait for each other.
                unlock(session, &*file, owner, LockRange::ALL)?;
            }
            Ok(is_granted)
        })
    });
    let _ = call(|session| {
        session.unuse(held);
        Ok(())
    });
    done.map(|()| 0)
}

/// Try until it is done. If it need not wait, another owner's lock is `EAGAIN`.
fn patiently(waits: bool, mut attempt: impl FnMut() -> Res<bool>) -> Res<()> {
    let mut pause_us = PAUSE_US.0;
    while !attempt()? {
        if !waits {
            return Err(libc::EAGAIN);
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: pause_us * 1000 };
        // SAFETY: the time is there.
        if unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) } < 0 {
            return Err(guard::errno());
        }
        pause_us = (pause_us * 2).min(PAUSE_US.1);
    }
    Ok(())
}

fn kind(of: c_int) -> Option<LockKind> {
    match of {
        libc::F_RDLCK => Some(LockKind::Shared),
        libc::F_WRLCK => Some(LockKind::Exclusive),
        _ => None,
    }
}

fn asked(owner: LockOwner, range: LockRange, kind: LockKind) -> LockCall {
    LockCall { owner, range, kind, wait: false, pid: std::process::id() }
}

fn owner(session: &mut Call<'_>, fd: c_int, is_process: bool) -> Res<LockOwner> {
    let open = session.open(fd)?;
    match is_process {
        // A directory has no locks at a server.
        _ if open.record.kind != record::FILE => Err(libc::ENOLCK),
        true => Ok(PROCESS),
        false if open.is_inherited => Err(libc::ENOLCK),
        false => Ok(description(open.record)),
    }
}

/// The bytes of a lock that begins where the file begins.
fn range(lock: &libc::flock) -> LockRange {
    let first = |at: i64| at.max(0).unsigned_abs();
    match lock.l_len {
        0 => LockRange { first: first(lock.l_start), last: u64::MAX },
        len if len < 0 => LockRange { first: first(lock.l_start + len), last: first(lock.l_start - 1) },
        len => match lock.l_start.checked_add(len - 1) {
            Some(last) if last < i64::MAX => LockRange { first: first(lock.l_start), last: first(last) },
            // As the kernel takes it: to the end, wherever that is.
            _ => LockRange { first: first(lock.l_start), last: u64::MAX },
        },
    }
}

/// Do `work` with a descriptor's file.
fn of<T>(
    session: &mut Call<'_>,
    fd: c_int,
    work: impl FnOnce(&mut Call<'_>, &dyn TreeFile) -> Res<T>,
) -> Res<T> {
    session.holding(fd, |session, held| {
        let file = session.file(held)?;
        work(session, &*file)
    })
}

fn lock(session: &mut Call<'_>, file: &dyn TreeFile, asked: &LockCall) -> Res<bool> {
    LOCKED.store(true, Ordering::Relaxed);
    let is_granted = session.away(|| file.lock(asked))?;
    if is_granted {
        keep_lease();
    }
    Ok(is_granted)
}

fn unlock(session: &mut Call<'_>, file: &dyn TreeFile, owner: LockOwner, range: LockRange) -> Res<()> {
    if !file.has_locks(owner) {
        return Ok(());
    }
    gave_back();
    session.away(|| file.unlock(owner, range))
}

/// The lock in the way, as the caller has it. A description has no process.
fn tell(wanted: &mut libc::flock, found: Option<HeldLock>, is_process: bool) {
    let Some(held) = found else {
        wanted.l_type = libc::F_UNLCK as i16;
        return;
    };
    let end = |last: u64| i64::try_from(last).ok().filter(|last| *last < i64::MAX);
    let first = held.range.first.cast_signed();
    wanted.l_whence = libc::SEEK_SET as i16;
    wanted.l_start = first;
    wanted.l_len = end(held.range.last).map_or(0, |last| last - first + 1);
    wanted.l_pid = if is_process { held.pid.cast_signed() } else { -1 };
    wanted.l_type = match held.kind {
        LockKind::Shared => libc::F_RDLCK as i16,
        LockKind::Exclusive => libc::F_WRLCK as i16,
    };
}
