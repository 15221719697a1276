//! Names of hosts.
//!
//! The C library's resolver blocks its caller, for minutes if name servers do not answer. So each lookup
//! has a thread, which is never joined: an environment ends without it. **A name is looked up once at a
//! time in the process**: concurrent callers get the same result, so a caller that retries does not
//! accumulate threads. Nothing is cached: the next lookup queries again.
//!
//! **A forked child has lookups of its own**: the parent's threads are not there, and one of them may have
//! had the lock.

use futures_channel::oneshot;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most names looked up at once.
const UNDER_WAY_MAX: usize = 32;
/// Most addresses of one host that are used.
const ADDRESSES_MAX: usize = 8;

type Found = Result<Vec<IpAddr>, String>;
type UnderWay = BTreeMap<String, Vec<oneshot::Sender<Found>>>;

/// The lookups of one process.
struct Lookups {
    process: u32,
    under_way: Mutex<UnderWay>,
}

/// Those of this process, or of the one that forked it.
static LOOKUPS: AtomicPtr<Lookups> = AtomicPtr::new(ptr::null_mut());

/// Nothing panics under the lock, so a poisoned one guards a sound state.
fn under_way() -> MutexGuard<'static, UnderWay> {
    let process = std::process::id();
    let mut known = LOOKUPS.load(Ordering::Acquire);
    let lookups = loop {
        // SAFETY: each value that is stored here stays for ever.
        match unsafe { known.as_ref() } {
            Some(lookups) if lookups.process == process => break lookups,
            _ => {}
        }
        let own = Box::into_raw(Box::new(Lookups { process, under_way: Mutex::default() }));
        match LOOKUPS.compare_exchange(known, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above; the parent's are leaked, as another thread's lock cannot be given back.
            Ok(_) => break unsafe { &*own },
            Err(others) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(own) });
                known = others;
            }
        }
    };
    lookups.under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The addresses of a host.
pub(super) fn resolve(host: &str) -> impl Future<Output = io::Result<Vec<IpAddr>>> + use<> {
    resolve_by(host, look_up)
}

fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if !found.contains(&address.ip()) {
            found.push(address.ip());
        }
    }
    found.truncate(ADDRESSES_MAX);
    Ok(found)
}

fn resolve_by(
    host: &str,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
) -> impl Future<Output = io::Result<Vec<IpAddr>>> + use<> {
    let (send, receive) = oneshot::channel();
    let begun = begin(host, send, look_up);
    let host = host.to_owned();
    async move {
        begun?;
        let found = receive.await.unwrap_or_else(|_| Err("its lookup ended without a result".to_owned()));
        found.map_err(|why| {
            io::Error::new(io::ErrorKind::NotFound, format!("cannot find the host {host}: {why}"))
        })
    }
}

fn begin(
    host: &str,
    send: oneshot::Sender<Found>,
    look_up: fn(&str) -> io::Result<Vec<IpAddr>>,
) -> io::Result<()> {
    let mut all = under_way();
    if let Some(waiting) = all.get_mut(host) {
        waiting.retain(|waiting| !waiting.is_canceled());
        waiting.push(send);
        return Ok(());
    }
    if all.len() >= UNDER_WAY_MAX {
        return Err(io::Error::other(format!("{UNDER_WAY_MAX} names are being looked up, none is answered")));
    }
    let own = host.to_owned();
    let work = move || {
        super::descriptors::begin_own_thread();
        let found = look_up(&own).map_err(|error| error.to_string());
        for waiting in under_way().remove(&own).into_iter().flatten() {
            // The caller may have given up.
            let _ = waiting.send(found.clone());
        }
    };
    std::thread::Builder::new().name("resolve".to_owned()).spawn(work)?;
    all.insert(host.to_owned(), vec![send]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn wait_for<T>(future: impl Future<Output = T>) -> T {
        crate::real::run("test", |_| future)
    }

    #[test]
    fn a_name_is_looked_up_once_for_all_who_ask_meanwhile_and_anew_later() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        static BOTH_ASKED: Mutex<()> = Mutex::new(());
        fn counted(_: &str) -> io::Result<Vec<IpAddr>> {
            drop(BOTH_ASKED.lock());
            let count = LOOKUPS.fetch_add(1, Ordering::SeqCst) as u8;
            Ok(vec![IpAddr::from([10, 0, 0, count])])
        }
        let held = BOTH_ASKED.lock().unwrap();
        let both = join(resolve_by("once.example", counted), resolve_by("once.example", counted));
        drop(held);
        let (one, two) = wait_for(both);
        assert_eq!(one.unwrap(), two.unwrap());
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
        let later = wait_for(resolve_by("once.example", counted)).unwrap();
        assert_eq!(later, [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn a_child_that_is_forked_during_a_lookup_finds_the_name_by_itself() {
        const NAME: &str = "forked.example";
        static PARENTS: Mutex<()> = Mutex::new(());
        fn waits(_: &str) -> io::Result<Vec<IpAddr>> {
            drop(PARENTS.lock());
            Ok(vec![IpAddr::from([10, 0, 0, 1])])
        }
        fn finds(_: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![IpAddr::from([10, 0, 0, 2])])
        }
        let held = PARENTS.lock().unwrap();
        let own = resolve_by(NAME, waits);
        // SAFETY: the child looks up a name, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the call has no conditions.
            unsafe { libc::alarm(10) };
            let found = wait_for(resolve_by(NAME, finds)).ok();
            let is_own = found == Some(vec![IpAddr::from([10, 0, 0, 2])]);
            // SAFETY: the same.
            unsafe { libc::_exit(i32::from(!is_own)) };
        }
        drop(held);
        let mut status = -1;
        // SAFETY: the status has a place.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child found the name");
        assert_eq!(wait_for(own).unwrap(), [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn a_name_that_cannot_be_found_is_an_error_that_names_it() {
        fn fails(_: &str) -> io::Result<Vec<IpAddr>> {
            Err(io::Error::other("no such name"))
        }
        let error = wait_for(resolve_by("nowhere.example", fails)).unwrap_err();
        assert_eq!(error.to_string(), "cannot find the host nowhere.example: no such name");
    }
}
