//! The table of virtual descriptors.
//!
//! The table has one word for each descriptor number, and no lock: a call on a descriptor of the kernel
//! costs one load.
//!
//! ```text
//!   0  not known: inherited or received. The descriptor itself is examined, once
//!   1  a descriptor of the kernel
//!   n  virtual: the open file description n - 2 of this process
//! ```

use crate::record;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers that are known. A higher one is always the kernel's.
pub const NUMBERS: usize = 1 << 16;
const UNKNOWN: u32 = 0;
const KERNEL: u32 = 1;

static TABLE: [AtomicU32; NUMBERS] = [const { AtomicU32::new(UNKNOWN) }; NUMBERS];
/// One more than the highest number that was virtual.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// How many times a number in use was given to the other owner.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// A number in use was given to the other owner.
pub fn changed_owner() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// See [`changed_owner`].
pub fn changes() -> u32 {
    CHANGES.load(Ordering::SeqCst)
}

fn slot(fd: i32) -> Option<&'static AtomicU32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Whether a descriptor is virtual. The kernel's are known after one look.
#[inline]
pub fn is_virtual(fd: i32) -> bool {
    let Some(slot) = slot(fd) else { return false };
    match slot.load(Ordering::Relaxed) {
        KERNEL => false,
        UNKNOWN => look(fd, slot),
        _ => !crate::guard::is_inside(),
    }
}

#[cold]
fn look(fd: i32, slot: &AtomicU32) -> bool {
    if crate::guard::is_inside() || !crate::config::is_on() {
        return false;
    }
    if record::is_one(fd) {
        return true;
    }
    slot.store(KERNEL, Ordering::Relaxed);
    false
}

/// The open file description of a descriptor, if that is known.
pub fn index(fd: i32) -> Option<usize> {
    let at = slot(fd)?.load(Ordering::Relaxed);
    (at > KERNEL).then(|| (at - 2) as usize)
}

/// A descriptor is virtual from now on.
pub fn set(fd: i32, index: usize) -> bool {
    let Some(slot) = slot(fd) else { return false };
    slot.store(index as u32 + 2, Ordering::Relaxed);
    HIGHEST.fetch_max(fd as u32 + 1, Ordering::Relaxed);
    true
}

/// A descriptor is the kernel's: it was just made, or closed.
#[inline]
pub fn is_kernels(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.store(KERNEL, Ordering::Relaxed);
    }
}

/// A descriptor came from another process: it is examined at its first use.
pub fn is_received(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.store(UNKNOWN, Ordering::Relaxed);
    }
}

/// A descriptor is the kernel's from now on: the description that it had.
pub fn take(fd: i32) -> Option<usize> {
    let before = slot(fd)?.swap(KERNEL, Ordering::Relaxed);
    (before > KERNEL).then(|| (before - 2) as usize)
}

/// The virtual descriptors from `first` to `last`.
pub fn virtual_ones(first: i32, last: i32) -> impl Iterator<Item = i32> {
    let end = (HIGHEST.load(Ordering::Relaxed) as i32).min(last.saturating_add(1));
    (first.max(0)..end).filter(|fd| index(*fd).is_some())
}

/// After a fork, in the child: the descriptions were the parent's, and each descriptor is asked again.
pub fn forget() {
    for slot in &TABLE[..HIGHEST.load(Ordering::Relaxed) as usize] {
        slot.store(UNKNOWN, Ordering::Relaxed);
    }
}
