//! Messages over sockets that may carry descriptors (`SCM_RIGHTS`).
//!
//! The receiver of a virtual descriptor finds the record of its open by the descriptor, as a child does. So
//! the record must not be used for another open after this process has closed the file ([`Sharing`]). A
//! received descriptor has a number that may have been the kernel's before: it is examined anew.
//! (test: `tests/preload/passed.c`)

use super::descriptors::received;
use crate::config;
use crate::real;
use crate::record::Sharing;
use libc::{c_int, c_uint, msghdr, ssize_t};

/// All descriptors that a message brought are new.
///
/// # Safety
/// The kernel filled the message.
unsafe fn examine(message: *const msghdr) {
    // SAFETY: the headers of the parts lie within the message's control bytes, as the kernel wrote them.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while let Some(part) = head.as_ref() {
            if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = part.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let fds = libc::CMSG_DATA(head).cast::<c_int>();
                for at in 0..bytes / size_of::<c_int>() {
                    received(fds.add(at).read_unaligned());
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        Sharing::by_message();
        real::sendmsg()(socket, message, flags)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        Sharing::by_message();
        real::sendmmsg()(socket, messages, count, flags)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let done = real::recvmsg()(socket, message, flags);
        if done >= 0 && config::is_on() {
            examine(message);
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    patience: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's arguments; the kernel filled so many.
    unsafe {
        let done = real::recvmmsg()(socket, messages, count, flags, patience);
        if config::is_on() {
            (0..usize::try_from(done).unwrap_or(0)).for_each(|at| examine(&(*messages.add(at)).msg_hdr));
        }
        done
    }
}
