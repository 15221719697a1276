//! Calls of a thread whose variables are gone.
//!
//! At the end of a thread, and at `exit`, a program's destructors may call a world. The runtime keeps its
//! state in variables of a thread, and these are destroyed by then. So such a call is driven by a thread that
//! is started for it, and its caller waits for that thread.
//! (test: `a_call_of_a_thread_whose_variables_are_gone_is_done`)

use super::descriptors::begin_own_thread;
use std::panic::resume_unwind;
use tokio::runtime::Handle;

/// Whether the runtime's variables of this thread are gone.
pub(super) fn is_ended() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// A value that another thread uses while its own thread waits.
struct Lent<T>(T);

// SAFETY: one thread uses it at a time. Worlds keep nothing in variables of a thread.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Do `work` on another thread.
pub(super) fn elsewhere<T>(work: impl FnOnce() -> T) -> T {
    let work = Lent(work);
    let done = std::thread::scope(|scope| {
        let work = move || {
            begin_own_thread();
            Lent(work.take()())
        };
        scope.spawn(work).join()
    });
    done.map_or_else(|panic| resume_unwind(panic), Lent::take)
}
