//! Reads and writes of a descriptor, by its owner: the kernel or this library.
//!
//! Another thread may give the number to the other owner during the call (`dup2`). Then the call is done
//! again, as it has met nothing: a kernel's call found the file in memory, which is empty at its position and
//! cannot be written; a call of ours found no description. A read at an offset may find the library's bytes
//! there. (test: `tests/preload/beside.c`)

use crate::guard::{Res, answer, errno};
use crate::table::{self, is_virtual};
use libc::{c_int, ssize_t};

/// Owners that a number gets during a call, at most.
const AGAIN_MAX: usize = 1000;

/// A call on a descriptor, by its owner. `is_placed`: it reads at an offset.
#[inline]
pub fn by_owner(
    fd: c_int,
    is_placed: bool,
    kernels: impl Fn() -> ssize_t,
    ours: impl Fn() -> Res<ssize_t>,
) -> ssize_t {
    let is_ours = is_virtual(fd);
    let done = if is_ours { answer(ours()) } else { kernels() };
    let may_be_wrong = match done {
        ..0 => errno() == libc::EBADF && table::changes() != 0,
        _ => !is_ours && (done == 0 || is_placed) && is_virtual(fd),
    };
    if may_be_wrong { by_owner_again(fd, done, &kernels, &ours) } else { done }
}

/// After a call that may have met the wrong owner: until none is given the number meanwhile.
#[cold]
fn by_owner_again(
    fd: c_int,
    mut done: ssize_t,
    kernels: &dyn Fn() -> ssize_t,
    ours: &dyn Fn() -> Res<ssize_t>,
) -> ssize_t {
    for _ in 0..AGAIN_MAX {
        let before = table::changes();
        let is_ours = is_virtual(fd);
        done = if is_ours { answer(ours()) } else { kernels() };
        let is_met = if done < 0 { errno() != libc::EBADF } else { is_ours || !is_virtual(fd) };
        if is_met || table::changes() == before {
            break;
        }
    }
    done
}
