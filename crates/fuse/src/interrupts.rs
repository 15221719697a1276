//! Finds out whether a thread that waits for the mount was interrupted.
//!
//! The kernel reports interrupts by `FUSE_INTERRUPT`. This request does not reach our code: fuser 0.18
//! itself answers it with `ENOSYS` (`request.rs`), and then the kernel sends no further interrupt on that
//! mount (`fc->no_interrupt`). A second reader besides fuser's could not take the interrupts, because all
//! readers of a mount share one queue, with interrupts first. A socket between the kernel and fuser could
//! take the interrupts out, but would cost each request a copy and a wake-up of a thread. The trait
//! `Filesystem` of fuser has no method for interrupts.
//!
//! The information of an interrupt is in `/proc` as well, and for longer: the signals that are pending for
//! the thread and not blocked by it. They are checked only while a thread waits for a server that does not
//! answer, so they cost nothing else. The call ends with the reply `EINTR`, for which the kernel needs no
//! `FUSE_INTERRUPT`.
//!
//! **A signal to a process, not to a thread, interrupts all its threads that wait in this way**, because
//! the kernel does not report the thread that it has chosen. A program that the mount does not see in its
//! `/proc` is not interrupted. Such a program runs in a PID namespace that is neither the mount's own nor a
//! descendant of it.

/// Whether a signal is pending for a thread that waits.
pub(crate) fn is_interrupted(thread: u32) -> bool {
    // It cannot end while it waits; a missing thread is not visible from here.
    std::fs::read_to_string(format!("/proc/{thread}/status")).is_ok_and(|status| has_signal(&status))
}

/// Whether `/proc/TID/status` (proc(5)) tells of a pending signal that is not blocked.
fn has_signal(status: &str) -> bool {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_signal_interrupts_a_thread_that_does_not_block_it() {
        let status = |own: &str, shared: &str, blocked: &str| {
            format!(
                "Name:\tx\nSigQ:\t0/1\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\tffff\n"
            )
        };
        let none = "0000000000000000";
        assert!(!has_signal(&status(none, none, none)));
        assert!(has_signal(&status("0000000000000100", none, none)), "SIGKILL");
        assert!(has_signal(&status(none, "0000000000000002", none)), "SIGINT to the process");
        assert!(!has_signal(&status(none, "0000000000000002", "0000000000000002")));
        assert!(has_signal(&status("8000000000000000", "0000000000000002", "0000000000000002")));
        assert!(!has_signal("nonsense"));
    }

    #[test]
    fn a_thread_without_signals_is_not_interrupted_and_one_that_is_not_there_is_not_either() {
        assert!(!is_interrupted(std::process::id()));
        assert!(!is_interrupted(0));
    }
}
