//! A call of a program. All requests that a mount sends for one call share one deadline, and the program
//! may interrupt the call.
//!
//! A call may consist of several operations in sequence (a lookup, then a change). Outside of a call, each
//! operation has a time limit of its own. Within [`Client::call`] they share one time limit, counted from
//! the start of the call. The core knows the call of the task that is being polled, and notes it in each
//! request. A client method that needs several operations is a call inside the program's call, so its
//! operations share one time limit too.
//!
//! **An interrupt ends a call only while it waits for a server that has not answered for a second**
//! ([`QUIET`]). The kernel passes on every signal, also those of timers and of language runtimes, and few
//! programs expect `EINTR` from `stat` or `rename`. So no interrupt is reported while servers answer. For
//! calls that wait longer, the client checks repeatedly whether they were interrupted
//! ([`Client::hear_interrupts`]). A change that was sent may still be executed.
//!
//! [`QUIET`]: crate::session::QUIET

use crate::core::{Core, Operation};
use crate::{Client, Error};
use shoal_env::Instant;
use shoal_proto::Status;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The function that tells whether a thread was interrupted.
pub(crate) type Interrupts = Rc<dyn Fn(u32) -> bool>;

/// See the module's page.
pub(crate) struct Call {
    /// The thread that made it; 0: it cannot be interrupted.
    thread: u32,
    pub(crate) deadline: Instant,
    interrupted: Cell<bool>,
}

impl Call {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.get()
    }
}

impl Client {
    /// Do `work` as one call of a program, which began now: all operations of this client in it end by one
    /// time limit. `thread`: the program's, for [`Client::hear_interrupts`]; 0 for a call that cannot be
    /// interrupted.
    pub fn call<F: Future + Unpin>(&self, thread: u32, work: F) -> impl Future<Output = F::Output> + use<F> {
        let deadline = self.core.world.now() + self.core.options.timeout;
        let call = Rc::new(Call { thread, deadline, interrupted: Cell::new(false) });
        InCall { core: self.core.clone(), call, work }
    }

    /// Do `work` as a part of what ends at `deadline`: an operation that a server does not answer by then
    /// fails with an error that names the operation and the server.
    pub fn until<F: Future + Unpin>(
        &self,
        deadline: Instant,
        work: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let thread = self.core.current_call.borrow().as_ref().map_or(0, |call| call.thread);
        let call = Rc::new(Call { thread, deadline, interrupted: Cell::new(false) });
        InCall { core: self.core.clone(), call, work }
    }

    /// The deadline of a request made now.
    pub fn deadline(&self) -> Instant {
        self.core.deadline()
    }

    /// Have calls interrupted. `is_interrupted` is asked about the threads of calls that wait for a server
    /// which has not answered for a second, several times a second; such a call's operations then fail with
    /// `Interrupted`.
    pub fn hear_interrupts(&self, is_interrupted: impl Fn(u32) -> bool + 'static) {
        *self.core.interrupts.borrow_mut() = Some(Rc::new(is_interrupted));
    }
}

pub(crate) struct InCall<F> {
    core: Rc<Core>,
    call: Rc<Call>,
    work: F,
}

impl<F: Future + Unpin> Future for InCall<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let outer = this.core.current_call.replace(Some(this.call.clone()));
        let polled = Pin::new(&mut this.work).poll(cx);
        this.core.current_call.replace(outer);
        polled
    }
}

impl Core {
    /// Do `work`, operations one after the other, as a part of what ends at `deadline`.
    pub(crate) fn until<T, F: Future<Output = T>>(
        self: &Rc<Core>,
        deadline: Instant,
        work: F,
    ) -> InCall<Pin<Box<F>>> {
        let thread = self.current_call.borrow().as_ref().map_or(0, |call| call.thread);
        self.until_by(thread, deadline, work)
    }

    /// The same for work whose caller looks itself whether it was interrupted: no look at quiet servers ends
    /// it.
    pub(crate) fn until_unheard<T, F: Future<Output = T>>(
        self: &Rc<Core>,
        deadline: Instant,
        work: F,
    ) -> InCall<Pin<Box<F>>> {
        self.until_by(0, deadline, work)
    }

    fn until_by<F: Future>(self: &Rc<Core>, thread: u32, deadline: Instant, work: F) -> InCall<Pin<Box<F>>> {
        let call = Rc::new(Call { thread, deadline, interrupted: Cell::new(false) });
        InCall { core: self.clone(), call, work: Box::pin(work) }
    }

    /// When an operation that begins now ends: by its call's deadline, if it is a part of one.
    pub(crate) fn deadline(&self) -> Instant {
        let deadline = self.world.now() + self.options.timeout;
        self.current_call.borrow().as_ref().map_or(deadline, |call| deadline.min(call.deadline))
    }

    /// Interrupt those of the given calls whose threads were interrupted.
    pub(crate) fn interrupt(&self, calls: Vec<Rc<Call>>) {
        let interrupts = self.interrupts.borrow().clone();
        let Some(is_interrupted) = interrupts else { return };
        let mut any = false;
        for call in calls {
            if call.thread != 0 && !call.is_interrupted() && is_interrupted(call.thread) {
                call.interrupted.set(true);
                any = true;
            }
        }
        if any {
            let now = self.world.now();
            self.each_session(|session| session.interrupt(now));
        }
    }

    /// Whether the thread of the call that runs at the moment was interrupted.
    pub(crate) fn was_interrupted(&self) -> bool {
        let interrupts = self.interrupts.borrow().clone();
        let thread = self.current_call.borrow().as_ref().map_or(0, |call| call.thread);
        thread != 0 && interrupts.is_some_and(|is_interrupted| is_interrupted(thread))
    }

    /// Nothing more is asked for a call that was interrupted.
    pub(crate) fn go_on(&self, o: &Operation) -> Result<(), Error> {
        match &o.call {
            Some(call) if call.is_interrupted() => Err(o.error(Status::Interrupted)),
            _ => Ok(()),
        }
    }
}
