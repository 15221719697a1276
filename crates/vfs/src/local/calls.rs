//! Calls of the host. A thread of a pool makes them, with a deadline (with the option `inline` the thread of
//! the event loop, without one). Their errors name the object.

use super::way::Way;
use super::{Local, LocalOptions};
use crate::{Error, Result};
use shoal_env::{Env, HostFiles, HostNode};
use shoal_proto::{Handle, Status};
use std::io;
use std::sync::Arc;

/// Run a call of the host. The outer error is that no answer came.
pub(super) async fn run<T: Send + 'static>(
    env: &Env,
    host: &Arc<dyn HostFiles>,
    options: &LocalOptions,
    op: &'static str,
    work: impl FnOnce(&dyn HostFiles) -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>> {
    if options.inline {
        return Ok(work(&**host));
    }
    let host = host.clone();
    let answer = env.deadline(env.now() + options.timeout, env.offload(move || work(&*host)));
    match answer.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(lost)) => Err(Error::new(Status::Io, op).because(lost.to_string())),
        Err(_) => {
            let words = format!("{} does not answer", options.dir.display());
            Err(Error::new(Status::TimedOut, op).because(words))
        }
    }
}

/// The object is gone, or cannot be found again.
pub(super) fn stale() -> io::Error {
    io::Error::from_raw_os_error(Status::Stale.errno())
}

/// The result of a call in a directory: a name that is not there, in a directory that is gone, means the
/// directory.
pub(super) fn in_directory<T>(host: &dyn HostFiles, dir: &HostNode, done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| {
        let is_absent = error.raw_os_error() == Some(Status::NotFound.errno());
        let is_gone = is_absent && host.facts(dir).is_ok_and(|facts| facts.nlink == 0);
        if is_gone { stale() } else { error }
    })
}

impl Local {
    /// A call about an object that is held already.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        op: &'static str,
        object: Handle,
        work: impl FnOnce(&dyn HostFiles) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let state = &*self.0;
        self.check_open(op)?;
        let answer = run(&state.env, &state.host, &state.options, op, work).await;
        answer.map_err(|error| error.of(object))?.map_err(|error| Error::of_kernel(&error, op).of(object))
    }

    /// A call about an object.
    pub(super) async fn at<T: Send + 'static>(
        &self,
        op: &'static str,
        object: Handle,
        work: impl FnOnce(&dyn HostFiles, &HostNode) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let way = self.way(op, object)?;
        let walk = move |host: &dyn HostFiles| {
            let (node, found) = way.walk(host)?;
            Ok((found, work(host, &node)))
        };
        let (found, done) = self.run(op, object, walk).await?;
        self.nodes().found(found);
        done.map_err(|error| Error::of_kernel(&error, op).of(object))
    }

    /// A call about two objects; an error names the first.
    pub(super) async fn at_both<T: Send + 'static>(
        &self,
        op: &'static str,
        (one, other): (Handle, Handle),
        work: impl FnOnce(&dyn HostFiles, &HostNode, &HostNode) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let way = self.way(op, other)?;
        let work = move |host: &dyn HostFiles, one: &HostNode| {
            let (other, found) = way.walk(host)?;
            Ok((found, work(host, one, &other)))
        };
        let (found, done) = self.at(op, one, work).await?;
        self.nodes().found(found);
        done.map_err(|error| Error::of_kernel(&error, op).of(one))
    }

    fn way(&self, op: &'static str, object: Handle) -> Result<Way> {
        self.check_open(op)?;
        self.nodes().way(object).ok_or_else(|| Error::new(Status::Stale, op).of(object))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed.get()
    }

    fn check_open(&self, op: &'static str) -> Result<()> {
        match self.is_closed() {
            true => Err(Error::new(Status::Unavailable, op).because("the file system was closed")),
            false => Ok(()),
        }
    }

    /// Refuse a change of a file system that is for reading only.
    pub(super) fn check_writable(&self, op: &'static str, object: Handle) -> Result<()> {
        match self.0.options.read_only {
            true => Err(Error::new(Status::ReadOnly, op).of(object)),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_env::real;
    use std::time::Duration;

    #[test]
    fn a_host_that_does_not_answer_is_an_error_that_names_the_directory_and_other_calls_go_on() {
        real::run("calls", |env| async move {
            let host = env.host().expect("a real host");
            let timeout = Duration::from_millis(20);
            let options = LocalOptions { timeout, ..LocalOptions::new("/some/where") };
            let (release, wait) = std::sync::mpsc::channel::<()>();
            let hangs = move |_: &dyn HostFiles| Ok(wait.recv().is_ok());
            let error = run(&env, &host, &options, "test", hangs).await.expect_err("no answer");
            // The call still hangs.
            let other = run(&env, &host, &LocalOptions::new("/else"), "test", |_| Ok(7)).await;
            assert!(other.is_ok_and(|answer| answer.is_ok_and(|seven| seven == 7)));
            drop(release);
            assert_eq!(error.status, Status::TimedOut);
            assert!(error.to_string().contains("/some/where does not answer"), "{error}");
        });
    }
}
