//! An allocator that counts the bytes that one thread holds, so that a decoder that allocates too much is
//! found.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes allocated less bytes freed by this thread since it began; may be below zero.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// The most of it since the last [`measured`] began.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends has no counts any more, and still frees.
    let held = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        held.get()
    });
    if let Ok(held) = held {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held)));
    }
}

/// The system's allocator, counting. A driver makes it its `#[global_allocator]`.
pub struct Counting;

// SAFETY: every call goes to `System` unchanged; counting touches only thread-local cells that need no
// allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is `System`'s.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is `System`'s.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// The result of `work`, and the most bytes this thread held during it beyond what it held before. 0 where
/// [`Counting`] is not the allocator.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = work();
    (value, usize::try_from(PEAK.get() - before).unwrap_or(0))
}
