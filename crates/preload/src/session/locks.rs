//! The descriptors of the kernel that this process's record locks are on ([`crate::calls::locks`]).

use super::{Call, Open, Session};
use crate::calls::children::release;
use crate::record::Record;
use libc::c_int;
use shoal_proto::{LockOwner, LockRange};
use std::sync::atomic::{AtomicBool, Ordering};

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
