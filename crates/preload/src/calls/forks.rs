//! `fork`, as handlers that the C library calls.
//!
//! The *world* is the library's event loop with its clock, sockets and files; one thread at a time has the
//! right to run it (its *turn*). The turn is held during a fork. The child forgets the world without dropping
//! it, and identifies each virtual descriptor anew. Record locks are not the child's ([`super::children`]).
//!
//! **A thread that has the turn waits for nothing that another thread has during a call of ours.** Two such
//! things are needed for a fork:
//!
//! - Locks that the program's own handlers take. Our handler is the first that is registered, as this library
//!   begins first, so the C library calls it after all others.
//! - The C library's lock of the list of streams, which a flush of all streams has while a stream of ours
//!   writes. It is taken before the turn, and given back while another thread has the turn for long.
//!
//! ```text
//!   fork ── the program's handlers ── prepare: list of streams, turn, tables ── the C library's own locks
//!        ── child is made ── parent, child: given back, or forgotten ── the program's handlers ── returns
//! ```
//! (test: `tests/preload/beside.c`)

use super::children;
use crate::config;
use crate::guard::{self, Held, PATIENCE, WORLD, errno, is_inside, set_errno};
use crate::real;
use crate::record::Sharing;
use crate::route::{Spot, hold_here};
use crate::table;
use std::cell::Cell;
use std::ptr;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// The list of streams is kept so long while another thread has the turn: a look-up of a host's name, for
/// which that thread may wait, opens streams.
const LIST_WAIT: Duration = Duration::from_millis(10);

/// A fork has all of this, from our first handler to the second one in each process.
struct Fork {
    has_turn: bool,
    children: MutexGuard<'static, children::State>,
    gate: Option<children::Gate>,
    here: MutexGuard<'static, Option<Spot>>,
    sharing: Sharing,
    held: Held,
}

thread_local! {
    /// This thread's fork.
    static FORK: Cell<*mut Fork> = const { Cell::new(ptr::null_mut()) };
}

/// Have the list of streams, and the turn; whether the turn was had in time.
fn hold() -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        // SAFETY: the thread gives it back.
        unsafe { real::_IO_list_lock()() };
        if WORLD.hold(LIST_WAIT) {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // SAFETY: the thread has it.
        unsafe { real::_IO_list_unlock()() };
        if WORLD.hold(left) {
            WORLD.release();
        }
    }
}

unsafe extern "C" fn prepare() {
    if !config::is_on() || is_inside() {
        return;
    }
    let held = Held::new();
    let has_turn = hold();
    let children = children::state(&held);
    let gate = children::Gate::new(&children);
    let here = hold_here(&held);
    let fork = Fork { has_turn, children, gate, here, sharing: Sharing::new(), held };
    FORK.set(Box::into_raw(Box::new(fork)));
}

/// This thread's fork, which is over.
fn over() -> Option<Fork> {
    let fork = FORK.replace(ptr::null_mut());
    // SAFETY: it was made by `prepare`, for this thread.
    (!fork.is_null()).then(|| *unsafe { Box::from_raw(fork) })
}

unsafe extern "C" fn parent() {
    let number = errno();
    let Some(Fork { has_turn, children, gate, here, sharing, held }) = over() else { return };
    if let Some(gate) = gate {
        gate.wait();
    }
    drop((here, children, sharing));
    if has_turn {
        WORLD.release();
    }
    // SAFETY: the thread has it.
    unsafe { real::_IO_list_unlock()() };
    drop(held);
    set_errno(number);
}

unsafe extern "C" fn child() {
    let Some(Fork { mut children, gate, here, sharing, held, .. }) = over() else { return };
    sharing.forget();
    // SAFETY: a child has one thread, which is here; the C library has it forget the list's lock, or not.
    unsafe {
        WORLD.forget();
        real::_IO_list_resetlock()();
    }
    table::forget();
    crate::session::forget_closes();
    guard::own_process();
    children::forget(&mut children);
    if let Some(gate) = gate {
        gate.open();
    }
    drop((here, children, held));
}

/// At the start of a process, before all other libraries.
pub fn begin() {
    // SAFETY: the handlers stay.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}
