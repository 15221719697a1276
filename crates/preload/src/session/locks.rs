//! The descriptors of the kernel that this process's record locks are on ([`crate::calls::locks`]).

use super::{Open, Session};
use crate::calls::children::release;
use crate::record::Record;
use libc::c_int;
use std::sync::atomic::Ordering;

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
