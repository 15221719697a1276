//! The meeting of the members of a group. Processes connect over TCP or a Unix socket, threads within their
//! process.
//!
//! ```text
//!   member 0           listens; writes its address and a secret to g.JOB; accepts the members; removes g.JOB
//!   each other member  reads g.JOB; connects
//!                      -> JOB rank size, 16 random bytes                          at most 256 bytes
//!                      <- 16 random bytes; a keyed hash: proves that member 0 knows the secret
//!                      -> a keyed hash: proves that the member knows the secret
//!                      <- accepted, at once
//!                      <- ready? when all members have connected         -> here
//!                      <- welcome, when all members have answered "here"
//! ```
//!
//! Only the user of the job may read `g.JOB`: members trust each other's index records, and a foreign
//! program in the group could send false records. The secret itself is not sent: each side proves by a keyed
//! hash that it knows the secret, and the other side compares the hash in constant time. Later messages are
//! neither encrypted nor signed: they are not protected against a network that forges packets.
//!
//! Member 0 replaces a file that a killed job left; members that cannot connect read the file again. If a
//! member connects twice, its last connection counts, because the first may be dead. If a connection is dead
//! when all have come, member 0 waits for that member again. **Each wait has a deadline.**

use super::frames::{MemberLink, Said};
use super::payload;
use crate::container::load_whole;
use bytes::Bytes;
use futures_util::future::{Either, join_all, pending, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use shoal_env::{Address, Env, Listener, Stream};
use shoal_proto::{Handle, Name, Owner, Rights, SecretKey, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::time::Duration;

/// Members of a group, at most: member 0 has a connection to each.
pub const MEMBERS_MAX: usize = 65_536;
/// Bytes of the name of a job, of the file of a meeting, and of a member's first message, at most.
pub(super) const JOB_BYTES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 4096;
const HELLO_BYTES_MAX: usize = 256;
const HASH_BYTES: usize = 32;
const DRAWN_BYTES: usize = 16;
/// A new connection proves within this time whose it is.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// One attempt to join takes at most this time, until it is accepted.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Before another attempt, from the first one to later ones.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// A failure is sent to the others within this time.
pub(super) const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Connections that have not proved whose they are, at most.
const UNKNOWN_MAX: usize = 256;
/// Ranks that an error names, at most.
const NAMED_MAX: usize = 16;
const ACCEPTED: &[u8] = b"accepted";
const READY: &[u8] = b"ready?";
const HERE: &[u8] = b"here";
const WELCOME: &[u8] = b"welcome";

/// How members meet: the same at all of them, but for the rank.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// The name of its file.
    pub(super) fn name(&self) -> Result<Name> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let invalid = |words: String| Err(Error::new(Status::Invalid, "meet").because(words));
        if self.job.is_empty() || self.job.len() > JOB_BYTES_MAX || !self.job.bytes().all(is_word) {
            return invalid(format!("`{}` is no name of a job: use letters, digits, `-` and `_`", self.job));
        }
        if self.rank >= self.size || self.size > MEMBERS_MAX {
            return invalid(format!(
                "member {} of {}: ranks are below the size, and that is at most {MEMBERS_MAX}",
                self.rank, self.size
            ));
        }
        Name::new(format!("g.{}", self.job).as_bytes()).map_err(|status| Error::new(status, "meet"))
    }

    fn hello(&self, drawn: [u8; DRAWN_BYTES]) -> Bytes {
        let text = format!("shoal member 1 {} {} {}\n", self.job, self.rank, self.size);
        [text.as_bytes(), &drawn].concat().into()
    }
}

/// The content of a hello: the job, the rank and the size.
fn read_hello(hello: &[u8]) -> Option<(&str, usize, usize)> {
    let (text, _) = hello.split_at_checked(hello.len().checked_sub(DRAWN_BYTES)?)?;
    let line = std::str::from_utf8(text).ok()?.strip_suffix('\n')?.strip_prefix("shoal member 1 ")?;
    let mut words = line.split(' ');
    let read = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(read)
}

/// The two hashes that prove the knowledge of a secret, of one conversation.
struct Proofs {
    of_first: [u8; HASH_BYTES],
    of_other: [u8; HASH_BYTES],
}

impl Proofs {
    fn of(secret: &SecretKey, hello: &[u8], drawn: &[u8]) -> Proofs {
        let mac = |purpose: &str| secret.mac(purpose, &[hello, drawn]);
        Proofs { of_first: mac("shoal group: member 0"), of_other: mac("shoal group: another member") }
    }
}

fn drawn<const N: usize>(env: &Env) -> [u8; N] {
    let mut bytes = [0; N];
    env.random(&mut bytes);
    bytes
}

/// The text of the file of a meeting.
fn text(address: &Address, secret: &SecretKey) -> String {
    let body = format!("shoal group 1\n{address}\n{}", secret.to_hex());
    format!("{body} {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn read_text(bytes: &[u8]) -> Option<(Address, SecretKey)> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines().skip(1);
    let (address, secret) = (lines.next()?.parse().ok()?, lines.next()?.split(' ').next()?);
    let secret = SecretKey::from_hex(secret).ok()?;
    (text(&address, &secret).as_bytes() == bytes).then_some((address, secret))
}

/// The directory of a meeting, and the owner of its file.
pub(crate) struct MeetingPlace<'a, V> {
    pub(crate) over: &'a V,
    pub(crate) dir: Handle,
    pub(crate) owner: Owner,
}

impl<V: Vfs> MeetingPlace<'_, V> {
    /// Write the file, in the place of one that another job left.
    async fn write(&self, env: &Env, name: &Name, text: &str) -> Result<()> {
        let aside = format!("t.{}", crate::WriterId::draw(env));
        let aside = Name::new(aside.as_bytes()).map_err(|status| Error::new(status, "meet"))?;
        let rights = Rights::READ | Rights::WRITE;
        // Its members trust each other with the index, so it is for one user alone, as a job is one user's.
        let owner = Owner { mode: 0o600, ..self.owner };
        let (_, _, file) = self.over.create(self.dir, &aside, owner, true, rights).await?;
        let written = async {
            file.write(0, Bytes::from(text.to_owned())).await?;
            file.close().await?;
            self.over.rename(self.dir, &aside, self.dir, name, RenameFlags::default()).await
        };
        let written = written.await;
        if written.is_err() {
            let _ = self.over.unlink(self.dir, &aside).await;
        }
        written
    }

    async fn read(&self, name: &Name) -> Result<Vec<u8>> {
        let file = self.over.lookup(self.dir, name).await?;
        load_whole(self.over, file.handle, file.size.min(FILE_BYTES_MAX)).await
    }

    /// Remove the file, unless it is another job's already.
    async fn remove(&self, name: &Name, text: &str) {
        let removed = async {
            if self.read(name).await? == text.as_bytes() {
                self.over.unlink(self.dir, name).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = removed.await {
            tracing::debug!("the file of a meeting stays: {error}");
        }
    }
}

fn of_socket(place: &str, error: &io::Error) -> Error {
    Error::new(Status::Io, "meet").because(format!("{place}: {error}"))
}

fn timed_out(words: String) -> Error {
    Error::new(Status::TimedOut, "meet").because(words)
}

/// Member 0: listen, and take the others.
pub(super) async fn wait_for_all<V: Vfs>(
    env: &Env,
    at: &MeetingPlace<'_, V>,
    meeting: &Meeting,
) -> Result<Vec<MemberLink>> {
    let (name, until) = (meeting.name()?, env.now() + meeting.patience);
    let listened = env.deadline(until, env.listen(&meeting.listen)).await;
    let listened = listened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let cannot = format!("member 0 cannot listen at {}", meeting.listen);
    let mut listener = listened.map_err(|error| of_socket(&cannot, &error))?;
    let secret = SecretKey::new(drawn(env));
    let text = text(&listener.address(), &secret);
    let written = env.deadline(until, at.write(env, &name, &text)).await;
    written
        .unwrap_or_else(|_| Err(timed_out("the file of the meeting could not be written in time".into())))?;
    let mut come = BTreeMap::new();
    let all = async {
        loop {
            take_all(env, &mut listener, meeting, &secret, &mut come).await;
            if are_here(env, &mut come).await {
                return;
            }
        }
    };
    let all = env.deadline(until, all).await;
    let _ = env.deadline(env.now() + ATTEMPT_MAX, at.remove(&name, &text)).await;
    if all.is_err() {
        let error = absent(meeting, &come);
        farewell_all(env, come.values_mut(), &error).await;
        return Err(error);
    }
    let mut links: Vec<MemberLink> = come.into_values().collect();
    welcome_all(env, meeting, &mut links).await?;
    Ok(links)
}

fn absent(meeting: &Meeting, come: &BTreeMap<usize, MemberLink>) -> Error {
    let absent = (1..meeting.size).filter(|rank| !come.contains_key(rank));
    let (count, named) = (absent.clone().count(), absent.take(NAMED_MAX));
    let named: Vec<String> = named.map(|rank| rank.to_string()).collect();
    let more = if count > NAMED_MAX { ", …" } else { "" };
    let (size, patience) = (meeting.size, meeting.patience);
    timed_out(format!(
        "{count} of {size} members did not come within {patience:?}: {}{more}",
        named.join(", ")
    ))
}

/// Send a failure to others, as far as they read it.
pub(super) async fn farewell_all(env: &Env, links: impl Iterator<Item = &mut MemberLink>, error: &Error) {
    let failure = Said::Failure(payload::failure(error));
    let farewells = join_all(links.map(|link| link.farewell(&failure)));
    let _ = env.deadline(env.now() + FAREWELL_MAX, farewells).await;
}

/// Whether all that have come are still there. Others are waited for again.
async fn are_here(env: &Env, come: &mut BTreeMap<usize, MemberLink>) -> bool {
    let until = env.now() + HELLO_MAX;
    let ready = Said::Bytes(Bytes::from_static(READY));
    let asked = join_all(come.values_mut().map(async |link| {
        let is_here = async {
            link.send(&ready).await?;
            link.receive(HERE.len()).await
        };
        match env.deadline(until, is_here).await {
            Ok(Ok(Ok(here))) if here == HERE => None,
            _ => Some(link.rank),
        }
    }));
    let gone: Vec<usize> = asked.await.into_iter().flatten().collect();
    gone.iter().for_each(|rank| drop(come.remove(rank)));
    gone.is_empty()
}

async fn welcome_all(env: &Env, meeting: &Meeting, links: &mut [MemberLink]) -> Result<()> {
    let welcome = Said::Bytes(Bytes::from_static(WELCOME));
    let until = env.now() + ATTEMPT_MAX;
    let sent =
        join_all(links.iter_mut().map(async |link| match env.deadline(until, link.send(&welcome)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(link.rank),
        }));
    let Err(rank) = sent.await.into_iter().collect::<std::result::Result<(), _>>() else { return Ok(()) };
    let words = format!("member {rank} of {} ended before all had come", meeting.size);
    let error = Error::new(Status::Io, "meet").because(words);
    farewell_all(env, links.iter_mut(), &error).await;
    Err(error)
}

/// Take connections until all members have come. Others are closed.
async fn take_all(
    env: &Env,
    listener: &mut Listener,
    meeting: &Meeting,
    secret: &SecretKey,
    come: &mut BTreeMap<usize, MemberLink>,
) {
    let mut greeted = FuturesUnordered::new();
    while come.len() + 1 < meeting.size {
        let is_full = greeted.len() >= UNKNOWN_MAX;
        let accepted = async {
            match is_full {
                true => pending().await,
                false => listener.accept().await,
            }
        };
        let event = match greeted.is_empty() {
            true => Either::Right(accepted.await),
            false => match select(greeted.next(), pin!(accepted)).await {
                Either::Left((link, _)) => Either::Left(link.flatten()),
                Either::Right((accepted, _)) => Either::Right(accepted),
            },
        };
        match event {
            Either::Left(link) => come.extend(link.map(|link: MemberLink| (link.rank, link))),
            Either::Right(Ok(stream)) => greeted.push(greet(env, meeting, secret, stream)),
            // No descriptors, perhaps.
            Either::Right(Err(_)) => env.sleep(PAUSES.0).await,
        }
    }
}

/// The handshake of a new connection, within a deadline. `None`: it is no member's.
async fn greet(env: &Env, meeting: &Meeting, secret: &SecretKey, stream: Stream) -> Option<MemberLink> {
    let mut link = MemberLink::new(0, stream);
    let until = env.now() + HELLO_MAX;
    let known = env.deadline(until, is_member(env, meeting, secret, &mut link)).await.ok()?;
    known.inspect_err(|error| tracing::debug!("a connection is not a member's: {error}")).ok()?;
    Some(link)
}

async fn is_member(env: &Env, meeting: &Meeting, secret: &SecretKey, link: &mut MemberLink) -> Result<()> {
    let failed = |error: io::Error| of_socket("a new connection", &error);
    let hello = link.receive(HELLO_BYTES_MAX).await.map_err(failed)??;
    let (job, rank, size) = read_hello(&hello).ok_or_else(|| payload::bad("no hello"))?;
    let own: [u8; DRAWN_BYTES] = drawn(env);
    let proofs = Proofs::of(secret, &hello, &own);
    let answer = [&own[..], &proofs.of_first].concat();
    link.send(&Said::Bytes(answer.into())).await.map_err(failed)?;
    let proof = link.receive(HASH_BYTES).await.map_err(failed)??;
    if !SecretKey::equal(&proof, &proofs.of_other) {
        return Err(payload::bad("no proof of the secret"));
    }
    if job != meeting.job || size != meeting.size || !(1..size).contains(&rank) {
        let words = format!(
            "member {rank} of {size} of job `{job}` came to a group of {} of job `{}`: give all the same job and size, \
             and each its own rank",
            meeting.size, meeting.job
        );
        let error = Error::new(Status::Invalid, "meet").because(words);
        link.farewell(&Said::Failure(payload::failure(&error))).await;
        return Err(error);
    }
    link.rank = rank;
    link.send(&Said::Bytes(Bytes::from_static(ACCEPTED))).await.map_err(failed)
}

/// The end of an attempt to join, where another one makes no sense.
enum Joined {
    Accepted(MemberLink),
    Refused(Error),
}

/// Another member: find member 0, and come in.
pub(super) async fn join<V: Vfs>(
    env: &Env,
    at: &MeetingPlace<'_, V>,
    meeting: &Meeting,
) -> Result<MemberLink> {
    let (name, until) = (meeting.name()?, env.now() + meeting.patience);
    let (mut why, mut pause) = ("no attempt was made".to_owned(), PAUSES.0);
    while env.now() < until {
        let attempt_until = until.min(env.now() + ATTEMPT_MAX);
        let attempt = env.deadline(attempt_until, try_to_join(env, at, &name, meeting)).await;
        match attempt.unwrap_or_else(|_| Err(timed_out("it did not answer in time".into()))) {
            Ok(Joined::Refused(error)) => return Err(error),
            Ok(Joined::Accepted(mut link)) => match welcomed(env, meeting, &mut link).await {
                Ok(welcome) => return welcome.map(|()| link),
                Err(error) => why = error.to_string(),
            },
            Err(error) => why = error.to_string(),
        }
        env.sleep_until(until.min(env.now() + pause)).await;
        pause = (2 * pause).min(PAUSES.1);
    }
    let Meeting { rank, size, patience, .. } = meeting;
    Err(timed_out(format!("member {rank} of {size} did not find member 0 within {patience:?}: {why}")))
}

async fn try_to_join<V: Vfs>(
    env: &Env,
    at: &MeetingPlace<'_, V>,
    name: &Name,
    meeting: &Meeting,
) -> Result<Joined> {
    let damaged = || Error::new(Status::Io, "meet").because("the file of the meeting is damaged");
    let (address, secret) = read_text(&at.read(name).await?).ok_or_else(damaged)?;
    let stream = env.connect(&address).await;
    let stream = stream.map_err(|error| of_socket(&format!("member 0 at {address}"), &error))?;
    let mut link = MemberLink::new(0, stream);
    let failed = |error: io::Error| of_socket("member 0 closed the connection", &error);
    let hello = meeting.hello(drawn(env));
    link.send(&Said::Bytes(hello.clone())).await.map_err(failed)?;
    let answer = link.receive(DRAWN_BYTES + HASH_BYTES).await.map_err(failed)??;
    let (its, proof) =
        answer.split_at_checked(DRAWN_BYTES).ok_or_else(|| payload::bad("no answer to a hello"))?;
    let proofs = Proofs::of(&secret, &hello, its);
    if !SecretKey::equal(proof, &proofs.of_first) {
        return Err(payload::bad("no proof of the secret"));
    }
    link.send(&Said::Bytes(proofs.of_other.to_vec().into())).await.map_err(failed)?;
    match link.receive(ACCEPTED.len()).await.map_err(failed)? {
        Ok(accepted) if accepted == ACCEPTED => Ok(Joined::Accepted(link)),
        Ok(_) => Err(payload::bad("no answer to a proof")),
        // It knows the secret: its words are believed.
        Err(refused) => Ok(Joined::Refused(refused)),
    }
}

/// Wait until all have come, as long as member 0 waits; it may have begun later. The outer error: member 0 is
/// gone, and another one may come.
async fn welcomed(env: &Env, meeting: &Meeting, link: &mut MemberLink) -> Result<Result<()>> {
    let until = env.now() + meeting.patience + FAREWELL_MAX;
    let failed = |error: io::Error| of_socket("member 0 ended before all had come", &error);
    loop {
        let received = env.deadline(until, link.receive(WELCOME.len())).await;
        let received = received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match received.map_err(failed)? {
            Ok(ready) if ready == READY => {
                link.send(&Said::Bytes(Bytes::from_static(HERE))).await.map_err(failed)?;
            }
            Ok(welcome) if welcome == WELCOME => return Ok(Ok(())),
            Ok(_) => return Ok(Err(payload::bad("no welcome"))),
            Err(error) => return Ok(Err(error)),
        }
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
    fn a_hello_is_read_as_it_was_written_and_is_short() {
        let hello = meeting(2).hello([7; DRAWN_BYTES]);
        assert_eq!(read_hello(&hello), Some(("job-1", 2, 3)));
        for end in 0..hello.len() {
            assert_eq!(read_hello(&hello[..end]), None, "{end} bytes");
        }
        let longest =
            Meeting { job: "j".repeat(JOB_BYTES_MAX), size: MEMBERS_MAX, ..meeting(MEMBERS_MAX - 1) };
        assert!(longest.name().is_ok() && longest.hello([7; DRAWN_BYTES]).len() <= HELLO_BYTES_MAX);
        assert!(Meeting { job: "a/b".to_owned(), ..meeting(0) }.name().is_err());
        assert!(meeting(3).name().is_err());
    }

    #[test]
    fn a_proof_is_of_one_secret_one_conversation_and_one_side() {
        let (one, other) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        let proofs = Proofs::of(&one, b"hello", b"drawn");
        assert_ne!(proofs.of_first, proofs.of_other);
        for differs in [
            Proofs::of(&other, b"hello", b"drawn"),
            Proofs::of(&one, b"hallo", b"drawn"),
            Proofs::of(&one, b"hello", b"drown"),
        ] {
            assert!(!SecretKey::equal(&differs.of_first, &proofs.of_first));
            assert!(!SecretKey::equal(&differs.of_other, &proofs.of_other));
        }
    }

    #[test]
    fn the_file_of_a_meeting_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let address: Address = "tcp:127.0.0.1:7".parse().unwrap();
        let written = text(&address, &SecretKey::new([9; 32]));
        let (read, secret) = read_text(written.as_bytes()).unwrap();
        assert_eq!((read, secret.to_hex()), (address, SecretKey::new([9; 32]).to_hex()));
        for at in 0..written.len() {
            let mut damaged = written.clone().into_bytes();
            damaged[at] ^= 1;
            assert!(read_text(&damaged).is_none(), "byte {at}");
        }
    }
}
