//! The descriptors of the kernel that this process's record locks are on ([`crate::calls::locks`]), and its
//! locks of a ShoalFS.
//!
//! A server gives the locks of a session back when no request of it came for a lease. A program that
//! computes calls nothing. **So a process that has such locks has a thread of the library, which makes a
//! call now and then.** It ends when the locks do, takes no signal, and is in no child.

use super::{Call, Open, Session};
use crate::calls::children::release;
use crate::guard::{self, say};
use crate::record::Record;
use libc::c_int;
use shoal_proto::{Handle, LockOwner, LockRange};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// The owner of this process's record locks of a ShoalFS.
pub const PROCESS: LockOwner = LockOwner(1);

/// The owner of the first description's locks of a ShoalFS.
const DESCRIPTIONS_FROM: u64 = 2;

/// The owner of a description's locks of a ShoalFS.
pub fn description(record: &Record) -> LockOwner {
    LockOwner(DESCRIPTIONS_FROM + u64::from(record.place))
}

/// This process took a lock of a ShoalFS.
pub static LOCKED: AtomicBool = AtomicBool::new(false);
/// A thread keeps their lease.
static KEPT: AtomicBool = AtomicBool::new(false);
/// Time between its calls: some of them fall into each lease.
const KEEP_EVERY: Duration = Duration::from_secs(10);
/// Bytes of its stack.
const STACK_BYTES: usize = 512 * 1024;

/// Keep the lease of locks from now on.
pub fn keep_lease() {
    if KEPT.swap(true, Ordering::AcqRel) {
        return;
    }
    let keep = || {
        loop {
            std::thread::park_timeout(KEEP_EVERY);
            // Without a turn, or an answer, the next one comes soon enough.
            if let Ok(false) = guard::call(|session| Ok(session.renew())) {
                return;
            }
        }
    };
    // This one is in the world: its signals are blocked, and so are those of the thread.
    debug_assert!(guard::is_inside());
    match std::thread::Builder::new().stack_size(STACK_BYTES).spawn(keep) {
        Ok(started) => *keeper() = Some(started.thread().clone()),
        Err(_) => {
            KEPT.store(false, Ordering::Release);
            say("no thread can be started: locks of this process end when it calls nothing for a minute");
        }
    }
}

/// The thread, to be woken. No call waits while it has this.
fn keeper() -> MutexGuard<'static, Option<Thread>> {
    static KEEPER: Mutex<Option<Thread>> = Mutex::new(None);
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock was given back: the thread looks whether it is needed any more.
pub fn gave_back() {
    if KEPT.load(Ordering::Acquire)
        && let Some(thread) = keeper().as_ref()
    {
        thread.unpark();
    }
}

/// In a child: the locks are the parent's, and so is the thread.
pub fn forget_lease() {
    LOCKED.store(false, Ordering::Release);
    KEPT.store(false, Ordering::Release);
}

impl Session {
    /// A descriptor of a file was closed. POSIX: that gives all of the process's record locks of it back.
    pub(super) fn release_locks(&mut self, (mount, handle): (usize, u64)) {
        let of_file = (mount, handle, 0)..=(mount, handle, u64::MAX);
        let known: Vec<_> = self.locks.range(of_file).map(|(key, on)| (*key, *on)).collect();
        // One that a call waits on stays.
        for (key, _) in known.iter().filter(|(_, on)| release(*on)) {
            self.locks.remove(key);
        }
    }

    /// Whether a descriptor still is one of this record.
    pub fn is_of(&mut self, fd: c_int, record: &'static Record) -> bool {
        self.open(fd).is_ok_and(|open| std::ptr::eq(open.record, record))
    }

    /// A call that waited for a lock has found its descriptor closed: no other close may follow.
    pub fn waited_in_vain(&mut self, (mount, handle, _): (usize, u64, u64)) {
        let is_it = |open: &Open| {
            (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed)) == (mount, handle)
        };
        if !self.opens.iter().flatten().any(is_it) {
            self.release_locks((mount, handle));
        }
    }
}

impl Call<'_> {
    /// The same of a file of a ShoalFS, whose servers keep the locks.
    pub(super) fn release_served(&mut self, key: (usize, u64)) {
        let is_it =
            |open: &&Open| (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed)) == key;
        let files = self.opens.iter().flatten().filter(is_it).filter_map(|open| open.file.clone());
        if let Some(file) = files.into_iter().find(|file| file.has_locks(PROCESS)) {
            // A lock that is not given back now is lost with the last of these files.
            let _ = self.away(|| file.unlock(PROCESS, LockRange::ALL));
        }
    }

    /// Ask the server of each file that this process has locks of for its attributes. Whether there is any: a
    /// lease is one server's.
    fn renew(&mut self) -> bool {
        let is_locked = |open: &&Open| {
            let owners = [PROCESS, description(open.record)];
            open.file.as_ref().is_some_and(|file| owners.iter().any(|owner| file.has_locks(*owner)))
        };
        let file = |open: &Open| (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed));
        let files: BTreeSet<_> = self.opens.iter().flatten().filter(is_locked).map(file).collect();
        if files.is_empty() {
            // Under the turn of the world: a lock that is taken after this starts another thread.
            KEPT.store(false, Ordering::Release);
            return false;
        }
        for (mount, handle) in files {
            let _ = self.on(mount, |tree| tree.getattr(Handle(handle)));
        }
        true
    }

    /// A descriptor of a file of a ShoalFS is being closed: the process's record locks of it end, and with
    /// the last one those of the description.
    pub(super) fn unlock_served(&mut self, index: usize, is_last: bool) {
        let Some(Some(open)) = self.opens.get(index) else { return };
        let Some(file) = open.file.clone() else { return };
        let of_description = (is_last && !open.is_inherited).then(|| description(open.record));
        for owner in [Some(PROCESS), of_description].into_iter().flatten() {
            if file.has_locks(owner) {
                gave_back();
                // A lock that is not given back now goes with the file's close, or with the lease.
                let _ = self.away(|| file.unlock(owner, LockRange::ALL));
            }
        }
    }

    /// The process ends: its locks of a ShoalFS are given back now, and not with its session's lease.
    pub(super) fn give_back(&mut self) {
        let held = |open: &Open| {
            let owners = [PROCESS, description(open.record)].into_iter();
            let file = open.file.clone()?;
            let owned: Vec<LockOwner> = owners.filter(|owner| file.has_locks(*owner)).collect();
            (!owned.is_empty()).then_some((file, owned))
        };
        let all: Vec<_> = self.opens.iter().flatten().filter_map(held).collect();
        for (file, owned) in all {
            for owner in owned {
                let _ = self.away(|| file.unlock(owner, LockRange::ALL));
            }
        }
    }
}
