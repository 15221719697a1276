//! Requests with deadlines and repeats, and their errors.
//!
//! A request has [`TRY_MAX`] for an answer. One that got no answer, or may succeed later, is repeated after
//! a pause that doubles, until the call's deadline and not beyond. One with many bytes has twice the time of
//! the try before, up to what they need at [`RATE_MIN`]: so a connection that stalls costs the first, short
//! try, and a slow line has the later ones. Names, and so leases, depend on small requests only.
//!
//! Large puts wait for room on the line ([`UNDER_WAY_MAX`]). The deadline counts from the moment in which a
//! put has room; one that waits gives up when no other large put was answered for as long.
//!
//! **A conditional put whose answer was lost may have been done.** Its repeat is refused then; so after a
//! repeat a refusal is compared with the object that is there. Two processes never put the same bytes for two
//! purposes: a new object has an id that was drawn, and a claim has a token.

use crate::store::{Keys, ObjectBytes, Refusal, Reply, Store, Tag, When};
use bytes::Bytes;
use shoal_env::local::{Permit, Semaphore};
use shoal_env::{Env, Instant};
use shoal_proto::Status;
use shoal_vfs::{Error, Result};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Time for the answer to one small request.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(10);
/// Bytes of a second at which a larger one must go, at least. A request with fewer is small.
const RATE_MIN: u64 = 128 << 10;
/// Bytes of puts under way at the same time.
const UNDER_WAY_MAX: u64 = 16 << 20;
/// The first pause before a repeat, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Requests so far, repeats included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Puts.
    pub puts: u64,
    /// Gets.
    pub gets: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Removals.
    pub deletes: u64,
    /// Bytes put.
    pub bytes_put: u64,
    /// Bytes got.
    pub bytes_got: u64,
}

/// Time for the answer to one request with so many bytes, at most.
pub(crate) fn try_time(bytes: u64) -> Duration {
    TRY_MAX + Duration::from_secs(bytes / RATE_MIN)
}

/// The result of a conditional put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    Done(Tag),
    /// The condition does not hold.
    Refused,
}

/// See the module.
pub(crate) struct Calls {
    env: Env,
    store: Rc<dyn Store>,
    timeout: Duration,
    read_only: bool,
    counts: Cell<Requests>,
    /// So that many large puts do not share a slow line so thinly that none ends in time.
    room: Semaphore,
    /// When a put that had room was answered.
    moved_on: Cell<Option<Instant>>,
}

impl Calls {
    pub(crate) fn new(env: Env, store: Rc<dyn Store>, timeout: Duration, read_only: bool) -> Calls {
        let room = Semaphore::new(UNDER_WAY_MAX);
        Calls { env, store, timeout, read_only, counts: Cell::default(), room, moved_on: Cell::new(None) }
    }

    pub(crate) fn counts(&self) -> Requests {
        self.counts.get()
    }

    pub(crate) fn called(&self) -> String {
        self.store.called()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.env.now() + self.timeout
    }

    fn count(&self, add: impl FnOnce(&mut Requests)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }

    /// An error of a request for a key.
    pub(crate) fn error(&self, op: &'static str, key: &str, why: &Refusal) -> Error {
        let object = format!("{}/{key}", self.store.called());
        let (status, words) = match why {
            Refusal::Absent => (Status::Io, format!("{object} is missing: restore a version of it")),
            Refusal::Condition => (Status::Busy, format!("others change {object} all the time: try again")),
            Refusal::NoBucket => (
                Status::Io,
                format!("{} does not exist: make the bucket, or name another", self.store.called()),
            ),
            Refusal::Denied(words) => (
                Status::NotPermitted,
                format!(
                    "{object} is refused: {words}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user that may \
                     list the bucket, and get, put and delete objects"
                ),
            ),
            Refusal::NotOffered(words) => (
                Status::Io,
                format!("{object}: {words}; use a store with conditional puts (If-None-Match and If-Match)"),
            ),
            Refusal::Passing(words) => (
                Status::TimedOut,
                match self.store.endpoint() {
                    Some(at) => format!("{object}: {words}; is the store at {at} up?"),
                    None => format!("{object}: {words}; is the store at AWS_ENDPOINT_URL up?"),
                },
            ),
            Refusal::Other(words) => (Status::Io, format!("{object}: {words}")),
        };
        Error::new(status, op).because(words)
    }

    /// The store answers that a bucket, in which an object was to be made, is not there.
    fn nowhere(&self, op: &'static str, key: &str) -> Error {
        let at = self.store.endpoint().unwrap_or_else(|| "AWS_ENDPOINT_URL".to_owned());
        let words = format!(
            "{}/{key} cannot be made: the store at {at} answers that there is no such place; make the bucket, or \
             name another, and set AWS_ENDPOINT_URL to the address of a store",
            self.store.called()
        );
        Error::new(Status::Io, op).because(words)
    }

    /// Make a request with so many bytes until it is answered, or the deadline has passed. Whether it was
    /// repeated.
    async fn repeat<T>(
        &self,
        deadline: Instant,
        bytes: u64,
        request: impl Fn() -> Reply<T>,
    ) -> (std::result::Result<T, Refusal>, bool) {
        let (mut pause, mut tries, begun, wall) = (PAUSE_MIN, 0u32, self.env.now(), self.env.wall());
        loop {
            tries += 1;
            let most = try_time(bytes).min(TRY_MAX * (1 << (tries - 1).min(10)));
            let now = self.env.now();
            let until = deadline.min(now + most);
            let why = match self.env.deadline(until, request()).await {
                Ok(Err(Refusal::Passing(words))) => words,
                Ok(done) => return (done, tries > 1),
                Err(_) => format!("no answer in {} s", (until - now).as_secs()),
            };
            // Two processes that failed together do not repeat together.
            let jitter = self.env.random_u64() % (pause.as_micros() as u64 / 2).max(1);
            let next = self.env.now() + pause + Duration::from_micros(jitter);
            let is_over = next >= deadline || {
                self.env.sleep_until(next).await;
                // The clock of deadlines stands still while the machine is suspended.
                u128::from(self.env.wall().0.abs_diff(wall.0)) >= (deadline - begun).as_nanos()
            };
            if is_over {
                let seconds = (self.env.now() - begun).as_secs();
                let why = format!("{why} (tried {tries} times in {seconds} s)");
                return (Err(Refusal::Passing(why)), tries > 1);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn may_change(&self, op: &'static str) -> Result<()> {
        match self.read_only {
            true => Err(Error::new(Status::ReadOnly, op)),
            false => Ok(()),
        }
    }

    /// Put an object if a condition holds.
    pub(crate) async fn put(&self, op: &'static str, key: &str, data: Bytes, when: When) -> Result<Put> {
        self.put_until(op, key, data, when, self.deadline()).await
    }

    /// The same of a put that was made before, and whose result is not known.
    pub(crate) async fn put_again(
        &self,
        op: &'static str,
        key: &str,
        data: Bytes,
        when: When,
    ) -> Result<Put> {
        self.put_tried(op, key, data, when, self.deadline(), true).await
    }

    /// The same by one request, which is not repeated; `None`: it got no answer, and may have been done.
    pub(crate) async fn put_once(
        &self,
        op: &'static str,
        key: &str,
        data: Bytes,
        when: When,
    ) -> Result<Option<Put>> {
        self.may_change(op)?;
        let len = data.len() as u64;
        self.count(|counts| (counts.puts, counts.bytes_put) = (counts.puts + 1, counts.bytes_put + len));
        match self.env.deadline(self.env.now() + TRY_MAX, self.store.put(key, data, when.clone())).await {
            Ok(Ok(tag)) => Ok(Some(Put::Done(tag))),
            Ok(Err(Refusal::Condition)) => Ok(Some(Put::Refused)),
            Ok(Err(Refusal::Absent)) if when == When::Absent => Err(self.nowhere(op, key)),
            Ok(Err(Refusal::Absent)) => Ok(Some(Put::Refused)),
            Ok(Err(Refusal::Passing(_))) | Err(_) => Ok(None),
            Ok(Err(why)) => Err(self.error(op, key, &why)),
        }
    }

    /// A request got no answer in time.
    pub(crate) fn silent(&self, op: &'static str, key: &str) -> Error {
        self.error(op, key, &Refusal::Passing("no answer".to_owned()))
    }

    /// The same, and not after a moment.
    pub(crate) async fn put_until(
        &self,
        op: &'static str,
        key: &str,
        data: Bytes,
        when: When,
        deadline: Instant,
    ) -> Result<Put> {
        self.put_tried(op, key, data, when, deadline, false).await
    }

    /// Wait until a large put may begin, as long as others go on.
    async fn room_for(&self, op: &'static str, key: &str, len: u64, most: Duration) -> Result<Permit> {
        let (asked, mut room) = (self.env.now(), pin!(self.room.acquire(len.min(UNDER_WAY_MAX))));
        loop {
            let since = self.moved_on.get().map_or(asked, |at| at.max(asked));
            if let Ok(room) = self.env.deadline(since + most, room.as_mut()).await {
                return Ok(room);
            }
            if self.moved_on.get().is_none_or(|at| at <= since) {
                let words = "other puts took the time: the line to the store is slow, or the store is away";
                return Err(self.error(op, key, &Refusal::Passing(words.to_owned())));
            }
        }
    }

    async fn put_tried(
        &self,
        op: &'static str,
        key: &str,
        data: Bytes,
        when: When,
        mut deadline: Instant,
        was_tried: bool,
    ) -> Result<Put> {
        self.may_change(op)?;
        let len = data.len() as u64;
        let request = || {
            self.count(|counts| (counts.puts, counts.bytes_put) = (counts.puts + 1, counts.bytes_put + len));
            self.store.put(key, data.clone(), when.clone())
        };
        let mut room = None;
        if len > RATE_MIN {
            let asked = self.env.now();
            let most = deadline - asked;
            room = Some(self.room_for(op, key, len, most).await?);
            // The wait is the line's, and not this put's.
            deadline = deadline + (self.env.now() - asked);
        }
        let (put, is_repeated) = self.repeat(deadline, len, request).await;
        if room.take().is_some() && put.is_ok() {
            self.moved_on.set(Some(self.env.now()));
        }
        match (put, is_repeated || was_tried) {
            (Ok(tag), _) => Ok(Put::Done(tag)),
            (Err(Refusal::Condition), false) => Ok(Put::Refused),
            (Err(Refusal::Condition), true) => match self.get(op, key, len + 1).await? {
                Some(found) if found.data == data => Ok(Put::Done(found.tag)),
                _ => Ok(Put::Refused),
            },
            (Err(Refusal::Absent), _) if when == When::Absent => Err(self.nowhere(op, key)),
            // A put on the condition of a version, of an object that is gone.
            (Err(Refusal::Absent), _) => Ok(Put::Refused),
            (Err(why), _) => Err(self.error(op, key, &why)),
        }
    }

    /// An object; of a longer one the first `most` bytes: another program may have put it.
    pub(crate) async fn get(&self, op: &'static str, key: &str, most: u64) -> Result<Option<ObjectBytes>> {
        self.get_range(op, key, 0..most).await
    }

    /// Some bytes of an object.
    pub(crate) async fn get_range(
        &self,
        op: &'static str,
        key: &str,
        range: Range<u64>,
    ) -> Result<Option<ObjectBytes>> {
        let request = || {
            self.count(|counts| counts.gets += 1);
            self.store.get(key, range.clone())
        };
        match self.repeat(self.deadline(), range.end - range.start, request).await.0 {
            Ok(found) => {
                self.count(|counts| counts.bytes_got += found.data.len() as u64);
                Ok(Some(found))
            }
            Err(Refusal::Absent) => Ok(None),
            Err(why) => Err(self.error(op, key, &why)),
        }
    }

    /// A page of a listing.
    pub(crate) async fn list(
        &self,
        op: &'static str,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Keys> {
        let request = || {
            self.count(|counts| counts.lists += 1);
            self.store.list(prefix, after, most)
        };
        let keys =
            self.repeat(self.deadline(), 0, request).await.0.map_err(|why| self.error(op, prefix, &why))?;
        // A next page begins after this one's last key: so a listing has an end.
        let mut last = after;
        for meta in &keys.found {
            let is_next = last.is_none_or(|last| *meta.key > *last) && meta.key.starts_with(prefix);
            if !is_next {
                let words =
                    format!("the store lists {} out of order; use one that sorts its listings", meta.key);
                return Err(self.error(op, prefix, &Refusal::Other(words)));
            }
            last = Some(&meta.key);
        }
        if keys.has_more && keys.found.is_empty() {
            let words = "the store lists nothing, and says that there is more; use another store".to_owned();
            return Err(self.error(op, prefix, &Refusal::Other(words)));
        }
        Ok(keys)
    }

    /// Refuse a further try of a call that other processes made repeat all the time since `begun`.
    pub(crate) fn may_repeat(
        &self,
        op: &'static str,
        key: &str,
        begun: Instant,
        most: Duration,
    ) -> Result<()> {
        match self.env.now() < begun + most + self.timeout {
            true => Ok(()),
            false => Err(self.error(op, key, &Refusal::Condition)),
        }
    }

    /// Remove an object; one that is gone is no error. A store without removals may answer that there is no
    /// such thing, too: so this is looked at.
    pub(crate) async fn delete(&self, op: &'static str, key: &str) -> Result<()> {
        self.may_change(op)?;
        let request = || {
            self.count(|counts| counts.deletes += 1);
            self.store.delete(key)
        };
        match self.repeat(self.deadline(), 0, request).await.0 {
            Ok(()) => Ok(()),
            Err(Refusal::Absent) if self.get(op, key, 1).await?.is_none() => Ok(()),
            Err(Refusal::Absent) => {
                let words = "the store answers that it is not there, and does not remove it; use a store with removals";
                Err(self.error(op, key, &Refusal::Other(words.to_owned())))
            }
            Err(why) => Err(self.error(op, key, &why)),
        }
    }

    /// Remove the object of a name by one request, which is not repeated: once the object is gone another
    /// process may make the name anew, and a repeat would take that.
    pub(crate) async fn delete_once(&self, op: &'static str, key: &str, deadline: Instant) -> Result<()> {
        self.may_change(op)?;
        self.count(|counts| counts.deletes += 1);
        let until = deadline.min(self.env.now() + TRY_MAX);
        match self.env.deadline(until, self.store.delete(key)).await {
            Ok(Ok(()) | Err(Refusal::Absent)) => Ok(()),
            Ok(Err(why)) => Err(self.error(op, key, &why)),
            Err(_) => Err(self.silent(op, key)),
        }
    }
}
