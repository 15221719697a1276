//! The way from a C call into the library's *world* (its event loop with its clock, sockets and files) and
//! back.
//!
//! - **Errors**: a call returns `-1` and sets `errno`; a call that succeeds leaves `errno` as it was.
//! - **Signals are blocked while a thread is in our world.** A handler must not find our lock taken
//!   by its own thread. The signals arrive at the return. A call on a virtual descriptor takes memory from
//!   the program's allocator: it is not safe in a handler that interrupts the allocator, nor is a jump out.
//!   A fault (`SIGSEGV`, `SIGBUS`) in our world ends the process, although the program has a handler.
//! - **Cancellation** is off meanwhile, for the same reason.
//! - **A child that is made past the C library's `fork`** (a raw system call) forgets the parent's state at
//!   its first call, as the child of our `fork` does: the kernel clears a word of ours in each child.
//! - **A panic is `EIO`**, and a line on standard error. It never unwinds into the program.
//! - **Our own calls go to the C library.** The standard library and the runtime call the same symbols; a
//!   call of a thread that is in our world ([`is_inside`]) is passed on to the C library.

use crate::session::{Call, Session};
use libc::c_int;
use shoal_world::{Inside, World};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

/// A result with an error number.
pub type Res<T> = Result<T, c_int>;

/// Another thread's calls may take so long, together, before a call gives up. A close gives up its turn, and
/// not its descriptor.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The one world of this process.
pub static WORLD: World<Session> = World::new();

thread_local! {
    /// Whether this thread is in our world. Without a destructor, so it is there until the thread is gone.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const CANCEL_DISABLE: c_int = 1;

/// Whether this thread is in our world.
pub fn is_inside() -> bool {
    INSIDE.with(Cell::get)
}

/// The beginning of a thread of our own: all its calls go to the C library, and the descriptors that it makes
/// get numbers that are ours. It shares the program's table of descriptors: another thread wakes it by a
/// write to one of its descriptors, whose number must mean the same in both.
pub fn own_thread() {
    INSIDE.with(|inside| inside.set(true));
    crate::calls::threads::begin_own();
}

/// The thread's error number.
pub fn errno() -> c_int {
    // SAFETY: it is the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Set the thread's error number.
pub fn set_errno(number: c_int) {
    // SAFETY: it is the thread's own.
    unsafe { *libc::__errno_location() = number }
}

/// Numbers that C calls return; `-1` is an error.
pub trait Failed {
    /// The value of an error.
    const FAILED: Self;
}

impl Failed for i32 {
    const FAILED: i32 = -1;
}
impl Failed for i64 {
    const FAILED: i64 = -1;
}
impl Failed for isize {
    const FAILED: isize = -1;
}
impl<T> Failed for *mut T {
    const FAILED: *mut T = std::ptr::null_mut();
}

/// The value of a C call.
pub fn answer<T: Failed>(done: Res<T>) -> T {
    done.unwrap_or_else(|number| {
        set_errno(number);
        T::FAILED
    })
}

/// Signals held back, and this thread marked, until it is dropped.
pub struct Held {
    signals: libc::sigset_t,
    cancel: c_int,
    errno: c_int,
}

impl Held {
    /// Begin.
    pub fn new() -> Held {
        let (mut all, mut signals) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let (mut cancel, errno) = (0, errno());
        // SAFETY: the sets are filled before they are used.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            // The kernel ends a process that has a fault while its signal is blocked.
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
            pthread_setcancelstate(CANCEL_DISABLE, &mut cancel);
        }
        INSIDE.with(|inside| inside.set(true));
        // SAFETY: `pthread_sigmask` has filled it.
        Held { signals: unsafe { signals.assume_init() }, cancel, errno }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
        set_errno(self.errno);
        // SAFETY: the mask is the thread's own of before.
        unsafe {
            pthread_setcancelstate(self.cancel, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.signals, std::ptr::null_mut());
        }
    }
}

impl Held {
    /// The signals that were blocked before.
    pub fn signals(&self) -> &libc::sigset_t {
        &self.signals
    }
}

/// This thread is not cancelled until it is dropped.
pub struct Uncancelled(c_int);

impl Uncancelled {
    /// Begin.
    pub fn new() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the state has a place.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state is the thread's own of before.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}

/// A word that is 1 in the process that has the state, and 0 in a child (`MADV_WIPEONFORK`).
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
const PAGE: usize = 4096;

/// The state is this process's.
pub fn own_process() {
    let known = MARK.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: the page stays mapped.
        return unsafe { &*known }.store(1, Ordering::Release);
    }
    let none: *mut libc::c_void = ptr::null_mut();
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which stays; without the advice, or the page, raw forks are not noticed.
    unsafe {
        let at = libc::syscall(libc::SYS_mmap, none, PAGE, prot, flags, -1, 0_i64);
        if at == -1 || libc::syscall(libc::SYS_madvise, at, PAGE, libc::MADV_WIPEONFORK) != 0 {
            return;
        }
        let page = at as *mut AtomicU32;
        (*page).store(1, Ordering::Relaxed);
        MARK.store(page, Ordering::Release);
    }
}

/// In a child that our `fork` did not make: forget the parent's state.
fn notice_child() {
    let mark = MARK.load(Ordering::Acquire);
    // SAFETY: the page stays mapped.
    let is_child = match unsafe { mark.as_ref() } {
        Some(mark) => mark.load(Ordering::Acquire) == 0 && mark.swap(1, Ordering::AcqRel) == 0,
        None => return own_process(),
    };
    if is_child {
        // SAFETY: a child has one thread, which is here and not in our world.
        unsafe { WORLD.forget() };
        crate::table::forget();
        crate::session::forget_closes();
    }
}

/// Do `work` in our world.
pub fn call<T>(work: impl FnOnce(&mut Call<'_>) -> Res<T>) -> Res<T> {
    if is_inside() {
        // A call of our own, which no virtual descriptor or path may take.
        return Err(libc::EDEADLK);
    }
    notice_child();
    let _held = Held::new();
    let work = |inside: Inside<'_, Session>| {
        let mut session = Call(inside);
        session.take_abandoned();
        work(&mut session)
    };
    let done = catch_unwind(AssertUnwindSafe(|| WORLD.enter(PATIENCE, Session::new, work)));
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(_busy)) => Err(libc::ETIMEDOUT),
        Err(_panic) => {
            say("a call failed by a bug of the library; its caller sees EIO");
            Err(libc::EIO)
        }
    }
}

/// Say, where the user wants to know, that a call is declined, and why.
pub fn decline(call: &str, why: &str) {
    if crate::config::get().is_some_and(|config| config.is_logged) {
        say(&format!("{call} is declined: {why}"));
    }
}

/// A line on standard error, past the C library's buffers.
pub fn say(words: &str) {
    let line = format!("shoal: {words}\n");
    // SAFETY: the bytes are there. A standard error that is virtual refuses it.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}
