//! Sends on sockets. **A lost connection is an error and no signal**: a client runs in foreign programs, and
//! a `SIGPIPE` would end them. So the calls `write` and `writev` are never used on a socket.

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Parts of one call; the kernel takes no more.
const PARTS_MAX: usize = 1024;

/// Send some of the parts, in order; how many bytes.
pub(super) fn send(socket: impl AsFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let parts = &parts[..parts.len().min(PARTS_MAX)];
    Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// Whether the call is to be made again: there was no room, or a signal came first.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;
    use std::os::unix::net::UnixStream;

    /// Whether the signal waits for this thread, which blocks it.
    fn is_pipe_pending() -> bool {
        let (mut pipe, mut pending) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each set is filled before it is used.
        unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), std::ptr::null_mut());
            libc::sigpending(pending.as_mut_ptr());
            libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
        }
    }

    #[test]
    fn a_lost_connection_is_an_error_and_no_signal() {
        assert!(!is_pipe_pending());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let sent = send(&ours, &[IoSlice::new(b"to nowhere")]);
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(!is_pipe_pending(), "it would end a program that does not expect it");
    }

    #[test]
    fn more_parts_than_one_call_takes_are_sent_in_order_by_several() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bytes: Vec<u8> = (0..3000_u32).map(|at| at as u8).collect();
        let mut parts: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        let mut rest = &mut parts[..];
        while !rest.is_empty() {
            let sent = send(&ours, rest).unwrap();
            IoSlice::advance_slices(&mut rest, sent);
        }
        drop(ours);
        let mut found = Vec::new();
        io::Read::read_to_end(&mut theirs, &mut found).unwrap();
        assert_eq!(found, bytes);
    }
}
