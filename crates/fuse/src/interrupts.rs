//! Whether a thread that waits for the mount was interrupted.
//!
//! The kernel reports interrupts by `FUSE_INTERRUPT`, which does not reach this code: fuser 0.18 answers it
//! `ENOSYS` itself (`request.rs`), whereupon the kernel sends no other on that mount (`fc->no_interrupt`).
//! All readers of a mount share one queue, in which interrupts come first, so no second reader in addition to
//! fuser's could take them; a socket between the kernel and fuser that leaves them out would cost each
//! request a copy and a thread's wake-up. Fuser lacks a method of `Filesystem` for it.
//!
//! The information of an interrupt is in `/proc` as well, and for longer: signals that are pending for the
//! thread and that it does not block. It is looked at only while a thread waits for a server that does not
//! answer, so it costs nothing else. A call is ended by its answer, `EINTR`, which needs no interrupt.
//!
//! **A signal to a process, not to a thread, interrupts all its threads that wait so**: the kernel does not
//! report which of them it has chosen. A program that the mount does not see in its `/proc` (of another PID
//! namespace, which is no child of its own) is not interrupted.

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
