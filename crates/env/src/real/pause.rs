//! Waits of less than a millisecond, which is the resolution of the runtime's own timers.
//!
//! A wait is a timer of the kernel (`timerfd`) among the runtime's other descriptors. Timers are kept for
//! the next waits, so a wait costs two system calls: to set the timer, and to read it when it has passed.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Timers kept for the next waits.
const SPARE_TIMERS: usize = 4;

/// An environment's timers.
#[derive(Clone, Default)]
pub(super) struct Timers {
    spare: Rc<RefCell<Vec<AsyncFd<OwnedFd>>>>,
}

impl Timers {
    /// Wait for a span.
    ///
    /// # Errors
    /// When the kernel gives no timer: there are too many open files.
    pub(super) async fn wait(&self, span: Duration) -> io::Result<()> {
        let timer = Lent { timers: self.clone(), timer: Some(self.take()?) };
        let Some(fd) = &timer.timer else { return Ok(()) };
        // A timer set to 0 would never pass.
        let span = span.max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let set = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(fd.get_ref(), TimerfdTimerFlags::empty(), &set)?;
        let mut expirations = [0; 8];
        // An expiry left by an earlier wait is not this one's: then there is nothing to read.
        fd.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut expirations)?)).await?;
        Ok(())
    }

    /// Keep no timers.
    pub(super) fn end(&self) {
        self.spare.borrow_mut().clear();
    }

    fn take(&self) -> io::Result<AsyncFd<OwnedFd>> {
        if let Some(timer) = self.spare.borrow_mut().pop() {
            return Ok(timer);
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` returns the same descriptor for as long as it lives, which is as long as it
        // is registered.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
            .map_err(|error| error.into_parts().1)
    }
}

/// A timer in use: returned when its wait ends, also if the wait is cancelled.
struct Lent {
    timers: Timers,
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.timers.spare.borrow_mut();
        if spare.len() < SPARE_TIMERS {
            spare.extend(self.timer.take());
        }
    }
}
