//! Runs a call of Galley until it ends, or until its deadline.

use super::{GRACE, Gfs, NEXT_FILE, NEXT_FORK};
use crate::call::{Failure, Res, failure};
use shoal_client::Client;
use shoal_galley::{Errno, Galley, NextIds};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Gfs {
    /// Drive a call of Galley to its end, or to the deadline. A request that a server does not answer fails
    /// at the deadline, and names its server; a call that waits for another reason is dropped a moment later.
    pub(super) fn drive<T>(
        &self,
        until: Instant,
        work: impl AsyncFnOnce(&Galley<Client>) -> shoal_galley::Result<T>,
    ) -> Res<T> {
        let galley = self.galley()?;
        let env = self.runtime.env();
        let end = env.now() + until.saturating_duration_since(Instant::now());
        self.driven(until, work)?.map_err(|code| failed(&galley, code, galley.is_late() && env.now() >= end))
    }

    /// The same, with the code of Galley as the operation ended with it.
    pub(super) fn driven<T>(
        &self,
        until: Instant,
        work: impl AsyncFnOnce(&Galley<Client>) -> shoal_galley::Result<T>,
    ) -> Res<shoal_galley::Result<T>> {
        let galley = self.galley()?;
        let env = self.runtime.env();
        let end = env.now() + until.saturating_duration_since(Instant::now());
        let done = self.runtime.block_on(async {
            let work = pin!(work(&galley));
            env.deadline(end + GRACE, galley.vfs().until(end, work)).await.ok()
        });
        let NextIds { file, fork } = galley.next_ids();
        NEXT_FILE.fetch_max(file, Ordering::Relaxed);
        NEXT_FORK.fetch_max(fork, Ordering::Relaxed);
        let late = || failure(libc::ETIMEDOUT, "the call's deadline has passed");
        done.ok_or_else(late)
    }
}

/// A call of Galley failed, `is_late`: at its deadline.
pub(super) fn failed(galley: &Galley<Client>, code: Errno, is_late: bool) -> Failure {
    let words = galley.gfs_errno().filter(|(last, _)| *last == code).map(|(_, words)| words);
    let number = if is_late && code == Errno::Io { libc::ETIMEDOUT } else { code.number() };
    failure(number, words.unwrap_or_else(|| code.word().to_owned()))
}
