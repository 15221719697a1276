//! The state of this process that a child must not find locked, or must close: shells, and descriptors of
//! locks.
//!
//! One lock protects it. `fork` takes the lock after the turn of the world, so the child finds it free and
//! complete. It is held for a few system calls at most, with all signals blocked, so no wait for it is long.
//!
//! **A lock of this process is not its child's.** The descriptors of record locks are locks of open file
//! descriptions, which a child shares: so a child closes its copies at once ([`forget`]), and a lock is
//! released by an unlock, not by a close alone ([`release`]). (test: `tests/preload/children.c`)

use crate::guard::Held;
use crate::real;
use crate::session::close_own;
use libc::{c_int, c_void, pid_t};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A stream of `popen`.
pub struct Stream {
    /// Its address.
    pub at: usize,
    /// Its descriptor.
    pub fd: c_int,
    /// Its shell.
    pub child: pid_t,
}

/// See the module.
pub struct State {
    /// Calls of `system` that wait now.
    pub shells: usize,
    /// The actions of `SIGINT` and `SIGQUIT` before the first of them.
    pub interrupts: Option<[libc::sigaction; 2]>,
    /// Streams of `popen`.
    pub streams: Vec<Stream>,
    /// Files that were opened for actions of `posix_spawn`, by the address of the actions.
    pub opened: Vec<(usize, c_int)>,
    /// Descriptions, each once for a descriptor that was closed and that they still count.
    abandoned: Vec<usize>,
    /// Descriptors of the kernel that record locks are on, with the calls that wait for a lock on each.
    locks: Vec<(c_int, usize)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    shells: 0,
    interrupts: None,
    streams: Vec::new(),
    opened: Vec::new(),
    abandoned: Vec::new(),
    locks: Vec::new(),
});

/// The state. The caller is in the library ([`Held`]): no handler of a signal finds the lock taken.
pub fn state(_held: &Held) -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, of a thread that is in our world.
pub fn state_inside() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

static HAS_ABANDONED: AtomicBool = AtomicBool::new(false);

/// A descriptor was closed without a turn in the world: its description still counts it.
pub fn abandon(held: &Held, index: usize) {
    state(held).abandoned.push(index);
    HAS_ABANDONED.store(true, Ordering::Release);
}

/// All that were abandoned, once. In the world.
pub fn abandoned() -> Vec<usize> {
    match HAS_ABANDONED.swap(false, Ordering::AcqRel) {
        true => std::mem::take(&mut state_inside().abandoned),
        false => Vec::new(),
    }
}

/// A record lock may be on this descriptor from now on.
pub fn has_locks(fd: c_int) {
    state_inside().locks.push((fd, 0));
}

/// A call is about to wait for a lock on this descriptor, which stays meanwhile.
pub fn begin_wait(fd: c_int) {
    state_inside().locks.iter_mut().filter(|(known, _)| *known == fd).for_each(|(_, waits)| *waits += 1);
}

/// A call waits for it no more.
pub fn end_wait(state: &mut State, fd: c_int) {
    state.locks.iter_mut().filter(|(known, _)| *known == fd).for_each(|(_, waits)| *waits -= 1);
}

/// Release all locks on a descriptor, and close it if no call waits for one; whether it is closed. If a call
/// waits, its lock will be on this descriptor.
pub fn release(fd: c_int) -> bool {
    let is_last = {
        let locks = &mut state_inside().locks;
        let before = locks.len();
        locks.retain(|lock| *lock != (fd, 0));
        locks.len() < before
    };
    let mut all = libc::flock {
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_pid: 0,
        l_type: libc::F_UNLCK as i16,
        l_len: 0,
    };
    // SAFETY: the lock is ours.
    unsafe { real::fcntl()(fd, libc::F_OFD_SETLK, std::ptr::from_mut(&mut all).cast::<c_void>()) };
    if is_last {
        close_own(fd);
    }
    is_last
}

/// A child closes its copies of locks within this time, or has other troubles.
const CLOSE_MS: c_int = 1000;

/// A pipe from a child to its parent. At its end the child has closed its copies of locks, so a lock that the
/// parent releases by its end is released then. `None`: there are no locks.
pub struct Gate([c_int; 2]);

impl Gate {
    /// Before `fork`.
    pub fn new(state: &State) -> Option<Gate> {
        let mut ends = [0; 2];
        // SAFETY: the ends have their places.
        let made = !state.locks.is_empty()
            && unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0;
        made.then_some(Gate(ends))
    }

    /// In the parent: wait for the child.
    pub fn wait(self) {
        let Gate([reader, writer]) = self;
        close_own(writer);
        let mut ends = libc::pollfd { fd: reader, events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one.
        unsafe { libc::poll(&mut ends, 1, CLOSE_MS) };
        close_own(reader);
    }

    /// In the child, after [`forget`].
    pub fn open(self) {
        self.0.into_iter().for_each(close_own);
    }
}

/// In a child, after `fork`: locks and waits were the parent's.
pub fn forget(state: &mut State) {
    state.locks.drain(..).for_each(|(fd, _)| close_own(fd));
    state.abandoned.clear();
    state.shells = 0;
}
