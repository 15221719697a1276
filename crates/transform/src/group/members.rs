//! Members that meet at an address: processes over TCP or a Unix socket, threads in their process.
//!
//! ```text
//!   member 0       listens; writes g.JOB: its address and a secret; takes the others; removes g.JOB
//!   the others     read g.JOB; connect; send JOB, the secret, rank and size; wait for the welcome
//! ```
//!
//! The file may be read as the container that it lies in: so only those that may read the file come in. One that
//! a killed job left is replaced by member 0, and members that connect in vain read it again.
//!
//! All messages go over member 0. **Each wait has a deadline**, and member 0 reports each failure to all others:
//! so all know within two deadlines that the call has failed, and why.

use super::Group;
use super::frames::{Link, Message};
use super::payload;
use crate::container::load_whole;
use crate::writer_id::WriterId;
use bytes::Bytes;
use futures_util::future::{Either, join_all, pending, select, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use shoal_env::{Address, Elapsed, Env, Instant, Listener};
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::time::Duration;

/// Members of a group, at most: member 0 has a connection to each.
pub const MEMBERS_MAX: usize = 65_536;
/// Bytes of the name of a job, and of the file of a meeting, at most.
const JOB_BYTES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 4096;
/// A new connection says within this time whose it is.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// Before another look for member 0.
const PAUSE: Duration = Duration::from_millis(10);
/// A failure is sent to the others within this time.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Connections that have not said whose they are, at most.
const UNKNOWN_MAX: usize = 256;
const WELCOME: &[u8] = b"welcome";

/// How members meet: the same at all of them, but for the rank.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// The name of the job: letters, digits, `-` and `_`. Jobs that run at the same time have different ones.
    pub job: String,
    /// The number of this member.
    pub rank: usize,
    /// Members.
    pub size: usize,
    /// Where member 0 listens: `tcp:IP:0`, `unix:/PATH`, or `local:NAME` for threads of one process.
    pub listen: Address,
    /// How long each wait for the others may take.
    pub patience: Duration,
}

impl Meeting {
    fn name(&self) -> Result<Name> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let invalid = |words: String| Err(Error::new(Status::Invalid, "meet").because(words));
        if self.job.is_empty() || self.job.len() > JOB_BYTES_MAX || !self.job.bytes().all(is_word) {
            return invalid(format!("`{}` is no name of a job: use letters, digits, `-` and `_`", self.job));
        }
        if self.rank >= self.size || self.size > MEMBERS_MAX {
            return invalid(format!("member {} of {}: ranks are below the size", self.rank, self.size));
        }
        Name::new(format!("g.{}", self.job).as_bytes()).map_err(|status| Error::new(status, "meet"))
    }

    fn hello(&self, secret: &str, rank: usize) -> Bytes {
        format!("shoal member 1\n{} {secret} {rank} {}\n", self.job, self.size).into()
    }

    /// The rank in a hello with this secret.
    fn rank_in(&self, secret: &str, hello: &[u8]) -> Option<usize> {
        let rank = std::str::from_utf8(hello).ok()?.lines().nth(1)?.split(' ').nth(2)?.parse().ok()?;
        (self.hello(secret, rank) == hello && (1..self.size).contains(&rank)).then_some(rank)
    }
}

/// The text of the file of a meeting.
fn text(address: &Address, secret: &str) -> String {
    let body = format!("shoal group 1\n{address}\n{secret}");
    format!("{body} {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn read_text(bytes: &[u8]) -> Option<(Address, String)> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines().skip(1);
    let (address, secret) = (lines.next()?.parse().ok()?, lines.next()?.split(' ').next()?.to_owned());
    (text(&address, &secret).as_bytes() == bytes).then_some((address, secret))
}

/// See the module.
pub struct Members {
    env: Env,
    rank: usize,
    size: usize,
    patience: Duration,
    /// Of member 0: to all others, by rank; of the others: to it. Gone while a call is under way, and after one
    /// that failed.
    links: RefCell<Option<Vec<Link>>>,
}

/// The directory of a meeting, and the owner of its file.
pub(crate) struct Place<'a, V> {
    pub(crate) over: &'a V,
    pub(crate) dir: Handle,
    pub(crate) owner: Owner,
}

impl Members {
    /// Meet in a directory.
    pub(crate) async fn meet<V: Vfs>(env: &Env, at: Place<'_, V>, meeting: &Meeting) -> Result<Members> {
        let (name, until) = (meeting.name()?, env.now() + meeting.patience);
        let links = match meeting.rank {
            0 if meeting.size == 1 => Vec::new(),
            0 => wait_for_all(env, &at, &name, meeting, until).await?,
            _ => vec![join(env, &at, &name, meeting, until).await?],
        };
        let Meeting { rank, size, patience, .. } = *meeting;
        Ok(Members { env: env.clone(), rank, size, patience, links: RefCell::new(Some(links)) })
    }

    fn take(&self, op: &'static str) -> Result<Vec<Link>> {
        self.links.borrow_mut().take().ok_or_else(|| {
            let words = "a call of the group failed before, or is under way: meet again";
            Error::new(Status::Io, op).because(words)
        })
    }

    fn ended(&self, rank: usize, error: &io::Error) -> Error {
        let words = match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("member {rank} of {} ended", self.size),
            _ => format!("the connection to member {rank} of {} failed: {error}", self.size),
        };
        Error::new(Status::Io, "open").because(words)
    }

    /// Do it with all links within the deadline; after a failure there are none any more.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut [Link]) -> Result<T>) -> Result<T> {
        let mut links = self.take("group")?;
        let done = self.env.deadline(self.env.now() + self.patience, work(&mut links)).await;
        let done = done.unwrap_or_else(|Elapsed| {
            let words = match self.rank {
                0 => format!("another of {} members did not answer within {:?}", self.size, self.patience),
                _ => format!("member 0 of {} did not answer within {:?}", self.size, self.patience),
            };
            Err(Error::new(Status::TimedOut, "open").because(words))
        });
        match &done {
            Ok(_) => drop(self.links.replace(Some(links))),
            Err(error) => {
                let message = Message::Failure(payload::failure(error));
                let farewells = join_all(links.iter_mut().map(|link| link.send(&message)));
                let _ = self.env.deadline(self.env.now() + FAREWELL_MAX, farewells).await;
            }
        }
        done
    }

    async fn receive(&self, link: &mut Link) -> Result<Bytes> {
        let rank = link.rank;
        link.receive().await.map_err(|error| self.ended(rank, &error))?
    }

    async fn send(&self, link: &mut Link, bytes: Bytes) -> Result<()> {
        let rank = link.rank;
        match link.send(&Message::Bytes(bytes)).await {
            Ok(()) => Ok(()),
            // It may have said why.
            Err(error) => match link.receive().await {
                Ok(Err(said)) => Err(said),
                _ => Err(self.ended(rank, &error)),
            },
        }
    }
}

impl Group for Members {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    async fn gather(&self, bytes: Bytes) -> Result<Vec<Bytes>> {
        self.with(async |links| {
            if self.rank != 0 {
                self.send(&mut links[0], bytes).await?;
                return Ok(Vec::new());
            }
            let others = try_join_all(links.iter_mut().map(|link| self.receive(link))).await?;
            Ok([vec![bytes], others].concat())
        })
        .await
    }

    async fn broadcast(&self, bytes: Bytes) -> Result<Bytes> {
        self.with(async |links| {
            if self.rank != 0 {
                return self.receive(&mut links[0]).await;
            }
            try_join_all(links.iter_mut().map(|link| self.send(link, bytes.clone()))).await?;
            Ok(bytes)
        })
        .await
    }
}

fn of_socket(what: &str, error: &io::Error) -> Error {
    Error::new(Status::Io, "meet").because(format!("{what}: {error}"))
}

/// Member 0: listen, and take the others.
async fn wait_for_all<V: Vfs>(
    env: &Env,
    at: &Place<'_, V>,
    name: &Name,
    meeting: &Meeting,
    until: Instant,
) -> Result<Vec<Link>> {
    let mut listener = env
        .listen(&meeting.listen)
        .await
        .map_err(|error| of_socket(&format!("member 0 cannot listen at {}", meeting.listen), &error))?;
    let secret = WriterId::draw(env).to_string();
    write_file(env, at, name, &text(&listener.address(), &secret)).await?;
    let mut come = BTreeMap::new();
    let all = env.deadline(until, take_all(env, &mut listener, meeting, &secret, &mut come)).await;
    let removed = at.over.unlink(at.dir, name).await;
    if let Err(error) = removed {
        tracing::debug!("the file of a meeting stays: {error}");
    }
    all.map_err(|Elapsed| {
        let absent: Vec<String> =
            (1..meeting.size).filter(|rank| !come.contains_key(rank)).map(|rank| rank.to_string()).collect();
        let words = format!(
            "{} of {} members did not come within {:?}: {}",
            absent.len(),
            meeting.size,
            meeting.patience,
            absent.join(", ")
        );
        Error::new(Status::TimedOut, "meet").because(words)
    })?;
    let mut links: Vec<Link> = come.into_values().collect();
    let welcome = Message::Bytes(Bytes::from_static(WELCOME));
    let welcomed = try_join_all(links.iter_mut().map(|link| link.send(&welcome))).await;
    welcomed.map_err(|error| of_socket("a member ended before all had come", &error))?;
    Ok(links)
}

/// Take connections until all members have come. Others are closed.
async fn take_all(
    env: &Env,
    listener: &mut Listener,
    meeting: &Meeting,
    secret: &str,
    come: &mut BTreeMap<usize, Link>,
) {
    let mut hellos = FuturesUnordered::new();
    while come.len() + 1 < meeting.size {
        let is_full = hellos.len() >= UNKNOWN_MAX;
        let accepted = async {
            match is_full {
                true => pending().await,
                false => listener.accept().await,
            }
        };
        let event = match hellos.is_empty() {
            true => Either::Right(accepted.await),
            false => match select(hellos.next(), pin!(accepted)).await {
                Either::Left((hello, _)) => Either::Left(hello.flatten()),
                Either::Right((accepted, _)) => Either::Right(accepted),
            },
        };
        match event {
            Either::Left(Some((hello, mut link))) => {
                if let Some(rank) = meeting.rank_in(secret, &hello) {
                    link.rank = rank;
                    come.entry(rank).or_insert(link);
                }
            }
            Either::Left(None) => {}
            Either::Right(Ok(stream)) => hellos.push(hello_of(env, Link::new(0, stream))),
            // No descriptors, perhaps.
            Either::Right(Err(_)) => env.sleep(PAUSE).await,
        }
    }
}

/// The first message of a connection.
async fn hello_of(env: &Env, mut link: Link) -> Option<(Bytes, Link)> {
    let hello = env.deadline(env.now() + HELLO_MAX, link.receive()).await.ok()?.ok()?.ok()?;
    Some((hello, link))
}

/// The file of a meeting, in the place of one that another job left.
async fn write_file<V: Vfs>(env: &Env, at: &Place<'_, V>, name: &Name, text: &str) -> Result<()> {
    let aside = format!("t.{}", WriterId::draw(env));
    let aside = Name::new(aside.as_bytes()).map_err(|status| Error::new(status, "meet"))?;
    let rights = Rights::READ | Rights::WRITE;
    let (_, _, file) = at.over.create(at.dir, &aside, at.owner, true, rights).await?;
    let written = async {
        file.write(0, Bytes::from(text.to_owned())).await?;
        file.close().await?;
        at.over.rename(at.dir, &aside, at.dir, name, RenameFlags::default()).await
    };
    let written = written.await;
    if written.is_err() {
        let _ = at.over.unlink(at.dir, &aside).await;
    }
    written
}

/// Another member: find member 0, and come in.
async fn join<V: Vfs>(
    env: &Env,
    at: &Place<'_, V>,
    name: &Name,
    meeting: &Meeting,
    until: Instant,
) -> Result<Link> {
    let mut why = "it is not there".to_owned();
    let found = async {
        loop {
            match try_to_join(env, at, name, meeting).await {
                Ok(link) => return link,
                Err(error) => why = error.to_string(),
            }
            env.sleep(PAUSE).await;
        }
    };
    let found = env.deadline(until, found).await;
    found.map_err(|Elapsed| {
        let words = format!(
            "member {} of {} did not find member 0, or not all members came, within {:?}: {why}",
            meeting.rank, meeting.size, meeting.patience
        );
        Error::new(Status::TimedOut, "meet").because(words)
    })
}

async fn try_to_join<V: Vfs>(env: &Env, at: &Place<'_, V>, name: &Name, meeting: &Meeting) -> Result<Link> {
    let file = at.over.lookup(at.dir, name).await?;
    let bytes = load_whole(at.over, file.handle, file.size.min(FILE_BYTES_MAX)).await?;
    let damaged = || Error::new(Status::Io, "meet").because("the file of the meeting is damaged");
    let (address, secret) = read_text(&bytes).ok_or_else(damaged)?;
    let stream = env.connect(&address).await;
    let stream = stream.map_err(|error| of_socket(&format!("member 0 at {address}"), &error))?;
    let mut link = Link::new(0, stream);
    let failed = |error: io::Error| of_socket("member 0 closed the connection", &error);
    link.send(&Message::Bytes(meeting.hello(&secret, meeting.rank))).await.map_err(failed)?;
    match link.receive().await.map_err(failed)?? {
        welcome if welcome == WELCOME => Ok(link),
        _ => Err(payload::bad("no welcome")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(rank: usize) -> Meeting {
        let listen = Address::Local("group".to_owned());
        Meeting { job: "job-1".to_owned(), rank, size: 3, listen, patience: Duration::from_secs(5) }
    }

    #[test]
    fn only_members_that_know_the_secret_and_the_size_come_in() {
        let hello = meeting(2).hello("secret", 2);
        assert_eq!(meeting(0).rank_in("secret", &hello), Some(2));
        assert_eq!(meeting(0).rank_in("another", &hello), None);
        assert_eq!(Meeting { size: 4, ..meeting(0) }.rank_in("secret", &hello), None);
        assert_eq!(Meeting { job: "job-2".to_owned(), ..meeting(0) }.rank_in("secret", &hello), None);
        assert_eq!(meeting(0).rank_in("secret", &meeting(0).hello("secret", 3)), None);
        assert_eq!(meeting(0).rank_in("secret", b"hello"), None);
        assert!(Meeting { job: "a/b".to_owned(), ..meeting(0) }.name().is_err());
        assert!(meeting(3).name().is_err());
    }

    #[test]
    fn the_file_of_a_meeting_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let address: Address = "tcp:127.0.0.1:7".parse().unwrap();
        let written = text(&address, "1234");
        assert_eq!(read_text(written.as_bytes()), Some((address, "1234".to_owned())));
        for at in 0..written.len() {
            let mut damaged = written.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(read_text(&damaged), None, "byte {at}");
        }
    }
}
