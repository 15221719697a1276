//! Thread-local variables at the end of a thread, and of a program.
//!
//! The runtime and the standard library keep some of their state in such variables, and in keys. The C
//! library destroys a thread's variables first; after that it calls the destructors of keys, in four rounds,
//! or, at `exit`, flushes streams. All of these, and destructors of the program's own variables, call this
//! library. So this library's variables and keys stay until the last round, which an `exit` does not reach.
//! They are never destroyed on the first thread, and on no thread that ends after the first one: it may be
//! the last one, and then an `exit` follows. (test: `tests/preload/beside.c`)
//!
//! ```text
//!   end of a thread:  variables ── keys: round 1, 2, 3, 4 ── gone
//!                                                       └─ ours
//!   exit by a thread: variables ── handlers ── streams ── gone
//! ```

use crate::real;
use libc::{c_int, c_void, pthread_key_t};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Rounds of the destructors of keys (`PTHREAD_DESTRUCTOR_ITERATIONS`).
const ROUNDS: u32 = 4;
/// No key.
const NONE: u32 = u32::MAX;

unsafe extern "C" {
    // The linker's marks of this library's first byte and of the one after its last.
    static __ehdr_start: c_void;
    static _end: c_void;
    // The C library's `pthread_key_create`. A look-up of that name could ask an allocator for memory, which
    // makes a key when it begins.
    fn __pthread_key_create(key: *mut pthread_key_t, destructor: *mut c_void) -> c_int;
}

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Keys of this library, and their destructors. It has one.
static KEYS: [(AtomicU32, AtomicPtr<c_void>); KEYS_MAX] =
    [const { (AtomicU32::new(NONE), AtomicPtr::new(ptr::null_mut())) }; KEYS_MAX];
const KEYS_MAX: usize = 4;
static KEYS_MADE: AtomicUsize = AtomicUsize::new(0);

/// The variables of a thread that are to be destroyed, the last one first.
struct Variables {
    rounds: u32,
    all: Vec<(Destructor, *mut c_void)>,
    /// Values of our keys: the C library clears them in the first round, after this library's first key.
    values: [*mut c_void; KEYS_MAX],
}

impl Variables {
    fn pop(&mut self) -> Option<(Destructor, *mut c_void)> {
        self.all.pop()
    }
}

/// Its value: [`Variables`]; on the first thread [`FIRST`].
static KEY: AtomicU32 = AtomicU32::new(NONE);
static FIRST: u8 = 0;
/// The first thread has ended, and the process goes on.
static FIRST_IS_OVER: AtomicBool = AtomicBool::new(false);

/// At the start of a process, on its first thread.
pub fn begin() {
    let mut key: pthread_key_t = 0;
    // SAFETY: the key has a place, and the value stays.
    unsafe {
        if libc::pthread_key_create(&mut key, Some(end)) == 0 {
            libc::pthread_setspecific(key, (&raw const FIRST).cast());
            KEY.store(key, Ordering::Release);
        }
    }
}

/// Whether this is the first thread of a process, or of a child that it forked.
fn is_first() -> bool {
    // SAFETY: the calls have no conditions.
    unsafe { libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) }
}

/// A round of the destructors of keys.
unsafe extern "C" fn end(value: *mut c_void) {
    if is_first() {
        FIRST_IS_OVER.store(true, Ordering::SeqCst);
    }
    if FIRST_IS_OVER.load(Ordering::SeqCst) {
        return;
    }
    let (key, variables) = (KEY.load(Ordering::Acquire), value.cast::<Variables>());
    // SAFETY: the value is of this thread alone. A destructor may add one: nothing is borrowed meanwhile.
    unsafe {
        libc::pthread_setspecific(key, value);
        (*variables).rounds += 1;
        for ((key, _), kept) in KEYS.iter().zip(&mut (*variables).values) {
            let key = key.load(Ordering::Acquire);
            let value = if key == NONE { ptr::null_mut() } else { libc::pthread_getspecific(key) };
            *kept = if value.is_null() { *kept } else { value };
        }
        if (*variables).rounds < ROUNDS {
            return;
        }
        while let Some((destructor, of)) = Variables::pop(&mut *variables) {
            destructor(of);
        }
        for ((key, destructor), value) in KEYS.iter().zip((*variables).values) {
            end_key(key.load(Ordering::Acquire), destructor.load(Ordering::Acquire), value);
        }
        libc::pthread_setspecific(key, ptr::null());
        drop(Box::from_raw(variables));
    }
}

/// All rounds of the destructor of one of our keys.
unsafe fn end_key(key: u32, destructor: *mut c_void, mut value: *mut c_void) {
    // SAFETY: the key was made with this destructor, if it has a value.
    unsafe {
        for _ in 0..ROUNDS {
            if value.is_null() {
                return;
            }
            libc::pthread_setspecific(key, ptr::null());
            std::mem::transmute::<*mut c_void, Destructor>(destructor)(value);
            value = libc::pthread_getspecific(key);
        }
    }
}

/// This thread's variables; null where they are never destroyed.
fn variables() -> *mut Variables {
    let key = KEY.load(Ordering::Acquire);
    if key == NONE {
        return ptr::null_mut();
    }
    // SAFETY: the value is of this thread alone.
    unsafe {
        let known = libc::pthread_getspecific(key);
        if is_first() {
            if known.is_null() {
                // The only thread of a child.
                libc::pthread_setspecific(key, (&raw const FIRST).cast());
            }
            return ptr::null_mut();
        }
        if !known.is_null() {
            return known.cast();
        }
        let new = Box::into_raw(Box::new(Variables {
            rounds: 0,
            all: Vec::new(),
            values: [ptr::null_mut(); KEYS_MAX],
        }));
        if libc::pthread_setspecific(key, new.cast()) != 0 {
            drop(Box::from_raw(new));
            return ptr::null_mut();
        }
        new
    }
}

/// A thread of this library begins, whose key is destroyed at its end.
pub fn begin_own() {
    variables();
}

fn is_own(at: *const c_void) -> bool {
    (&raw const __ehdr_start..&raw const _end).contains(&at)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: *mut c_void,
    of: *mut c_void,
    library: *mut c_void,
) -> c_int {
    if !is_own(library) {
        // SAFETY: the caller's arguments.
        return unsafe { real::__cxa_thread_atexit_impl()(destructor, of, library) };
    }
    // SAFETY: the caller passes a destructor, and the list is of this thread alone.
    unsafe {
        if let Some(variables) = variables().as_mut() {
            variables.all.push((std::mem::transmute::<*mut c_void, Destructor>(destructor), of));
        }
    }
    0
}

/// A key of this library has no destructor for the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_create(key: *mut pthread_key_t, destructor: *mut c_void) -> c_int {
    let is_kept = is_own(destructor) && !ptr::eq(destructor, end as *const c_void);
    let at = if is_kept { KEYS_MADE.fetch_add(1, Ordering::SeqCst) } else { KEYS_MAX };
    let Some((kept, kept_destructor)) = KEYS.get(at) else {
        // SAFETY: the caller's arguments.
        return unsafe { __pthread_key_create(key, destructor) };
    };
    // SAFETY: the caller's place for the key.
    unsafe {
        let done = __pthread_key_create(key, ptr::null_mut());
        if done == 0 {
            kept_destructor.store(destructor, Ordering::Release);
            kept.store(key.read(), Ordering::Release);
        }
        done
    }
}
