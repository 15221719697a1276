//! Watches for servers that do not answer, and ends the waits of their callers.
//!
//! **A server is silent if a whole time limit passed without a sign of life from it.** Then all reads fail
//! at once, and so do all other requests that were not sent yet. New requests are refused without being
//! sent, so none of them is executed. A time in which no request waits does not count. Signs of life are an
//! answer, a handshake, and a refused connection (the server is not running, or starts). A connection
//! attempt that fails in another way is no sign of life.
//!
//! ```text
//!              a request waits, and for a time limit no sign of life
//!   answers ───────────────────────────────────────────────▶ silent: its link connects again, once a second
//!      ▲                                                        │
//!      └──────── an answer, a handshake, a refusal ─────────────┘
//! ```

use super::{EARLY_PART, Pending, Session, Waiter};
use crate::Error;
use crate::call::Call;
use shoal_env::Instant;
use shoal_proto::Status;
use std::rc::Rc;
use std::time::Duration;

/// After a server has not answered for this time, the client checks whether the waiting callers were
/// interrupted.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// How often it is looked at from then on.
const GLANCE: Duration = Duration::from_millis(200);

/// The time that a request had: the time limit, or what its call's own deadline left of it, in milliseconds.
fn within(asked: Option<Duration>, timeout: Duration) -> Duration {
    let asked = asked.filter(|asked| *asked + timeout / EARLY_PART < timeout);
    asked.map_or(timeout, |asked| Duration::from_millis(asked.as_millis() as u64))
}

impl Session {
    /// Whether the server let a whole time limit pass without a sign of life.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// A sign of life came.
    pub(super) fn answers(&mut self) {
        self.unanswered_since = None;
        self.given_up = None;
        self.silent = false;
    }

    /// The server's machine reports that the server does not serve at the moment: callers wait for it.
    pub(crate) fn not_serving(&mut self, now: Instant) {
        self.refused_at = Some(now);
        self.given_up = None;
        self.silent = false;
    }

    /// Check the waiting callers. Callers whose deadline has passed are answered. If the server has become
    /// silent, so are all callers whose requests have no effect left. Calls that the server did not answer
    /// for a second are put into `quiet`. Returns when to check next.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        timeout: Duration,
        quiet: &mut Vec<Rc<Call>>,
    ) -> Option<Instant> {
        if self.pending.0.is_empty() {
            return None;
        }
        let since = *self.unanswered_since.get_or_insert(now);
        self.silent |= since.max(self.refused_at.unwrap_or(since)) + timeout <= now;
        let late = self.pending.tags(|pending| pending.has_caller() && pending.deadline <= now);
        for tag in late {
            let asked = self.pending.get(tag).map(|pending| pending.deadline.since(pending.asked_at));
            let error = Error::new(Status::TimedOut, "").because(self.silence(within(asked, timeout)));
            self.give_up(tag, error, now);
        }
        if self.silent {
            for tag in self.pending.tags(|pending| pending.has_caller() && pending.leaves_nothing()) {
                self.give_up(tag, self.silent_error(""), now);
            }
        }
        let waiting = || self.pending.0.iter().filter(|pending| pending.has_caller());
        let first = waiting().map(|pending| pending.deadline).min()?;
        let is_quiet = since + QUIET <= now;
        let asked_long_ago = |pending: &&Pending| is_quiet && pending.asked_at + QUIET <= now;
        let calls = waiting().filter(asked_long_ago).filter_map(|pending| pending.call.clone());
        let before = quiet.len();
        quiet.extend(calls);
        let pause = if quiet.len() > before { GLANCE } else { QUIET };
        Some(first.min(now + pause))
    }

    /// End the requests of calls that were interrupted.
    pub(crate) fn interrupt(&mut self, now: Instant) {
        let is_interrupted =
            |pending: &Pending| pending.call.as_ref().is_some_and(|call| call.is_interrupted());
        for tag in self.pending.tags(|pending| pending.has_caller() && is_interrupted(pending)) {
            let words = "the program was interrupted while the server did not answer";
            self.give_up(tag, Error::new(Status::Interrupted, "").because(words), now);
        }
    }

    /// Answer a caller that its request was given up.
    fn give_up(&mut self, tag: u64, error: Error, now: Instant) {
        let Some(pending) = self.pending.get_mut(tag) else { return };
        let error = Error { op: pending.op, ..error.from(self.server) };
        if let Waiter::Caller(waiter) = std::mem::replace(&mut pending.waiter, Waiter::Nobody) {
            waiter.send(Err(error));
        }
        self.abandon(tag, now);
    }

    /// Why a silent server is not asked.
    pub(crate) fn silent_error(&self, op: &'static str) -> Error {
        let trouble = if self.trouble.is_empty() { "no answer" } else { &self.trouble };
        let words = format!("{trouble}; it is tried once a second");
        Error::new(Status::Silent, op).from(self.server).because(words)
    }

    /// Why there was no answer.
    fn silence(&self, timeout: Duration) -> String {
        match self.trouble.as_str() {
            "" => format!("no answer within {timeout:?}; is the server overloaded or cut off?"),
            trouble => format!("not reached within {timeout:?}: {trouble}; is the server running?"),
        }
    }
}
