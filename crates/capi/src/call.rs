//! The beginning and end of a call: its error, its deadline, its signals.
//!
//! A call that fails returns `-1`, sets `errno`, and keeps the number and the text of the error for its
//! thread. The text names the function, the objects by the names that the caller gave, and the server if a
//! server is the reason. A panic becomes `EIO`. If a signal handler calls the library while its own thread
//! is inside it, the handler's call fails with `EDEADLK`. The `SIGPIPE` of a lost connection never reaches
//! the program.
//!
//! **A thread is not cancelled inside.** `pthread_cancel` would unwind through this library: the thread is
//! cancelled at its next point of cancellation after the call. (test: `tests/calls.c`)
//!
//! **A fork in another thread.** The tables of ids are locked during `fork`, so a child finds them free.

use crate::session::{Call, Session};
use crate::table::{self, Connection};
use libc::{c_char, c_int};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call that cannot be bounded by its caller ends after so long.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes that one call moves, at most.
pub const BYTES_MAX: usize = 1 << 30;

/// Why a call failed, and of which objects.
#[derive(Clone)]
pub struct Failure {
    number: c_int,
    reason: Reason,
    of: String,
}

#[derive(Clone)]
enum Reason {
    Words(String),
    /// The file system's own error: it knows the server, and the object by its number.
    Refused(shoal_vfs::Error),
}

/// The result of a call.
pub type Res<T> = Result<T, Failure>;

impl Failure {
    /// The number.
    pub fn number(&self) -> c_int {
        self.number
    }

    /// The same, of objects by their names, unless it has names already.
    pub fn of(mut self, names: impl FnOnce() -> String) -> Failure {
        if self.of.is_empty() {
            self.of = names();
        }
        self
    }

    /// In words, of a function of the library.
    fn words(&self, function: &str) -> String {
        match (&self.reason, &self.of[..]) {
            (Reason::Words(words), "") => format!("{function}: {words}"),
            (Reason::Words(words), of) => format!("{function} of {of}: {words}"),
            (Reason::Refused(error), "") => format!("{function}: {error}"),
            (Reason::Refused(error), of) => format!("{function}: {}", error.named(of)),
        }
    }
}

impl From<shoal_vfs::Error> for Failure {
    fn from(error: shoal_vfs::Error) -> Failure {
        Failure { number: error.errno(), reason: Reason::Refused(error), of: String::new() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let number = match error.downcast_ref::<shoal_vfs::Error>() {
            Some(error) => error.errno(),
            None => error
                .downcast_ref::<std::io::Error>()
                .and_then(std::io::Error::raw_os_error)
                .unwrap_or(libc::EINVAL),
        };
        failure(number, format!("{error:#}"))
    }
}

/// A failure of the library itself.
pub fn failure(number: c_int, words: impl Into<String>) -> Failure {
    Failure { number, reason: Reason::Words(words.into()), of: String::new() }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static TIMEOUT: Cell<Option<Duration>> = const { Cell::new(None) };
    static LAST: RefCell<(c_int, CString)> = RefCell::new((0, CString::default()));
}

/// `-1`, in the types that calls return.
pub trait Failed {
    /// The value of an error.
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for i64 {
    const FAILED: i64 = -1;
}

/// Marks the thread until it is dropped, also after a panic.
struct Inside {
    signals: libc::sigset_t,
    was_pending: bool,
    cancel: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const CANCEL_DISABLE: c_int = 1;

impl Inside {
    fn new() -> Inside {
        INSIDE.set(true);
        let (mut pipe, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each set is filled before it is used.
        unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            libc::sigemptyset(old.as_mut_ptr());
            let (was_pending, mut cancel) = (is_pending(), 0);
            libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), old.as_mut_ptr());
            pthread_setcancelstate(CANCEL_DISABLE, &mut cancel);
            Inside { signals: old.assume_init(), was_pending, cancel }
        }
    }
}

fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the set is filled before it is used.
    unsafe {
        libc::sigemptyset(pending.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if !self.was_pending && is_pending() {
            let mut pipe = MaybeUninit::uninit();
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set is filled before it is used.
            unsafe {
                libc::sigemptyset(pipe.as_mut_ptr());
                libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
                libc::sigtimedwait(pipe.as_ptr(), std::ptr::null_mut(), &now);
            }
        }
        // SAFETY: mask and state are the thread's own of before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.signals, std::ptr::null_mut());
            pthread_setcancelstate(self.cancel, std::ptr::null_mut());
        }
        INSIDE.set(false);
    }
}

/// Keep number and words for the thread; `errno` stays.
pub fn note(function: &str, failure: &Failure) {
    let words = CString::new(failure.words(function).replace('\0', "?")).unwrap_or_default();
    // At a thread's end its words are gone; the number stays in `errno`.
    let _ = LAST.try_with(|last| last.replace((failure.number, words)));
}

/// Do the work of a call of this name. A success leaves `errno` as it was.
pub fn call<T: Failed>(function: &str, work: impl FnOnce() -> Res<T>) -> T {
    // SAFETY: it is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let done = if INSIDE.get() {
        Err(failure(libc::EDEADLK, "a signal's handler called while its thread was in a call"))
    } else {
        let _inside = Inside::new();
        table::hold_over_forks();
        catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(failure(libc::EIO, "the call failed by a bug of the library")))
    };
    match done {
        Ok(value) => {
            // SAFETY: it is the thread's own.
            unsafe { *libc::__errno_location() = errno };
            value
        }
        Err(failure) => {
            note(function, &failure);
            // SAFETY: it is the thread's own.
            unsafe { *libc::__errno_location() = failure.number };
            T::FAILED
        }
    }
}

/// Do `work` in the world of a connection, within the deadline.
pub fn within<T>(connection: &Arc<Connection>, work: impl FnOnce(&mut Call<'_>) -> Res<T>) -> Res<T> {
    let patience = patience(connection.timeout());
    let until = Instant::now() + patience;
    let entered =
        connection.world.enter(patience, Session::new, |inside| work(&mut Call::new(inside, until)));
    entered.unwrap_or_else(|_busy| {
        Err(failure(libc::ETIMEDOUT, "other threads' calls on this connection took the whole time"))
    })
}

/// The thread's time for each call, else this one.
pub fn patience(usual: Duration) -> Duration {
    TIMEOUT.get().unwrap_or(usual).min(LONGEST)
}

/// A call on a connection.
pub fn on<T: Failed>(
    function: &str,
    kind: table::Kind,
    id: u64,
    work: impl FnOnce(&mut Call<'_>, &Arc<Connection>) -> Res<T>,
) -> T {
    call(function, || {
        let connection = table::find(kind, id)?;
        within(&connection, |session| {
            work(session, &connection).map_err(|failure| failure.of(|| session.names()))
        })
    })
}

/// A number of milliseconds; less than 0 is none.
pub fn span(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// Set the thread's time for each call.
pub fn set_timeout(timeout: Option<Duration>) {
    TIMEOUT.set(timeout);
}

/// Number of the thread's last error.
pub fn last_number() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(0)
}

/// Words of the thread's last error; they stay until its next one.
pub fn last_words() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// A C string.
///
/// # Safety
/// `text` is null or a C string that stays for `'a`.
pub unsafe fn bytes<'a>(text: *const c_char) -> Res<&'a [u8]> {
    if text.is_null() {
        return Err(failure(libc::EFAULT, "a string is null"));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A length, checked, of a buffer.
pub fn checked<T>(buffer: *const T, len: usize) -> Res<usize> {
    if len > BYTES_MAX / size_of::<T>() {
        let words = format!("a length of {len}: one call takes {} at most", BYTES_MAX / size_of::<T>());
        return Err(failure(libc::EINVAL, words));
    }
    if buffer.is_null() && len > 0 {
        return Err(failure(libc::EFAULT, "a buffer is null"));
    }
    Ok(len)
}

/// Items that a caller passes.
///
/// # Safety
/// `items` is null, or `len` of them are there for `'a`.
pub unsafe fn slice<'a, T>(items: *const T, len: usize) -> Res<&'a [T]> {
    if checked(items, len)? == 0 {
        return Ok(&[]);
    }
    // SAFETY: as the caller promises; not null, and not too long.
    Ok(unsafe { std::slice::from_raw_parts(items, len) })
}

/// Put a value where the caller wants it.
///
/// # Safety
/// `place` is null or valid for a write.
pub unsafe fn put<T>(place: *mut T, value: T) -> Res<c_int> {
    if place.is_null() {
        return Err(failure(libc::EFAULT, "the place of the result is null"));
    }
    // SAFETY: as the caller promises.
    unsafe { place.write(value) };
    Ok(0)
}

/// Refuse a null place before anything is done.
pub fn there<T>(place: *mut T) -> Res<()> {
    if place.is_null() { Err(failure(libc::EFAULT, "the place of the result is null")) } else { Ok(()) }
}
