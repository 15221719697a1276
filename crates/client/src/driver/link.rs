//! The task that talks to one server: it keeps one connection, and makes it again when it is lost.
//!
//! A connection has five parts, which run concurrently:
//!
//! - one writes the requests of the session, and closes the connection when the client is closed;
//! - one reads the replies;
//! - one sends pings: to keep the lease, and to ask whether a server still lives that does not answer;
//! - one ends the connection when a nearer address is known, or when the server is silent;
//! - one claims the locks that this client had before, then reports the files that stay open.

use super::handshake::{Established, Identity, Trouble, nearest_first, reach, refusal};
use crate::core::Core;
use crate::session::Outgoing;
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::{Either, LocalBoxFuture, select};
use futures_util::stream::FuturesUnordered;
use shoal_env::local::Notify;
use shoal_env::{Address, Env, Reader, Writer};
use shoal_proto::message::Reply;
use shoal_proto::seal::{Opener, PrivateKey, admit};
use shoal_proto::{Frame, FrameKind, ServerId, ServerInfo, Status, StoreId, limits};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The first pause before connecting again, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Bytes read at once: at first, and when replies fill that. The latter has room for a whole reply of a flow.
const READ_BYTES: (usize, usize) = (16 << 10, (4 << 10) + limits::FLOW_CHUNK_BYTES);

/// A connection on which something is under way is silent for at most so long before it is asked whether it
/// lives.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// Turns of that question in a client's time limit, at least.
const TURNS_A_LIMIT: u32 = 4;
const TURN_MIN: Duration = Duration::from_millis(10);
/// Between two tries to reach a silent server; each is given the usual time.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// A pause before connecting again is at most this part of a lease: held files must not be lost by waiting.
const PAUSES_A_LEASE: u32 = 8;

/// Checks of the open files per lease: two within the sixth of a lease for which a server counts an open.
const LOOKS_A_LEASE: u32 = 12;
/// Between two tries to claim locks on one connection.
const CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// The client's last requests are given so long to leave, when it is closed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often per lease each file that stays open is reported to the server.
const TOLD_A_LEASE: u32 = 3;

/// The server is elsewhere by now.
struct Moved;

/// See the module's page.
pub(super) struct Link {
    pub(super) env: Env,
    pub(super) core: Rc<Core>,
    pub(super) server: ServerId,
    /// The client's key.
    pub(super) key: Rc<PrivateKey>,
    pub(super) wake: Notify,
    /// The order to leave its connection: for a better one, or because nothing arrives on it.
    pub(super) leave: Notify,
    /// How long the server lets a session be silent; zero: not known yet.
    pub(super) lease: Cell<Duration>,
}

impl Link {
    /// Until the client is closed.
    pub(super) async fn run(self, mut established: Option<Established>) {
        let mut failures = 0_u32;
        loop {
            if established.is_none() && !self.wanted().await {
                return;
            }
            let known = self.known();
            let reached = match established.take() {
                Some(established) => Ok(Ok(established)),
                None => self.unless_moved(&known, self.connect(&known, failures)).await,
            };
            let mut moved = match reached {
                Ok(Ok(established)) => {
                    if self.converse(established).await {
                        failures = 0;
                    }
                    false
                }
                Ok(Err(trouble)) => {
                    self.note(&trouble);
                    self.core.ask_others_for_map(self.server);
                    false
                }
                Err(Moved) => true,
            };
            if self.core.is_closed() {
                return;
            }
            if !moved && failures > 0 {
                let pause = self.env.sleep(self.pause(failures));
                moved = self.unless_moved(&known, pause).await.is_err();
            }
            failures = if moved { 0 } else { failures.saturating_add(1) };
        }
    }

    /// Wait until a connection is wanted; false: the client is closed.
    async fn wanted(&self) -> bool {
        loop {
            let wake = self.wake.wait();
            if self.core.is_closed() {
                return false;
            }
            if self.core.is_wanted(self.server) {
                return true;
            }
            wake.await;
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        let share = self.lease.get() / PAUSES_A_LEASE;
        let longest = if share.is_zero() { BACKOFF.1 } else { share.clamp(BACKOFF.0, BACKOFF.1) };
        let full = BACKOFF.0.saturating_mul(1 << (failures - 1).min(16)).min(longest);
        let nanos = u64::try_from(full.as_nanos()).unwrap_or(u64::MAX).max(2);
        Duration::from_nanos(nanos / 2 + self.env.random_u64() % nanos)
    }

    fn note(&self, trouble: &Trouble) {
        match trouble.status {
            Status::NoSession => self.core.session_lost(self.server),
            status if trouble.is_final() => self.core.refused(self.server, status, &trouble.words),
            _ if trouble.is_answer => self.core.not_serving(self.server, &trouble.words),
            _ => self.core.lost(self.server, &trouble.words),
        }
    }

    /// Where the map has the server.
    fn known(&self) -> Vec<Address> {
        let map = self.core.map();
        let of = |info: &ServerInfo| info.addresses.iter().filter_map(|text| text.0.parse().ok()).collect();
        map.server(self.server).map(of).unwrap_or_default()
    }

    /// Await `future`, unless the map has the server elsewhere before.
    async fn unless_moved<T>(&self, known: &[Address], future: impl Future<Output = T>) -> Result<T, Moved> {
        let moved = async {
            loop {
                let changed = self.core.map.changed.wait();
                if self.known() != known {
                    return;
                }
                changed.await;
            }
        };
        match select(pin!(future), pin!(moved)).await {
            Either::Left((value, _)) => Ok(value),
            Either::Right(_) => Err(Moved),
        }
    }

    /// The addresses that the client was given at its start and that are no server's address in the map. The
    /// server may be reachable there when it is not reachable elsewhere, as a host that changed its address
    /// and kept its name.
    fn strange(&self) -> Vec<Address> {
        let map = self.core.map();
        let known: BTreeSet<&str> =
            map.servers.iter().flat_map(|info| info.addresses.iter().map(|at| at.0.as_str())).collect();
        let told = self.core.options.map_from.iter();
        told.filter(|address| !known.contains(address.to_string().as_str())).cloned().collect()
    }

    /// Connect. To a silent server one more attempt begins every second, concurrently with those that are not
    /// answered yet: a single attempt would wait for a packet that was lost with the server's machine.
    async fn connect(&self, known: &[Address], failures: u32) -> Result<Established, Trouble> {
        let (mut tries, mut begun) = (FuturesUnordered::new(), failures);
        loop {
            if self.core.is_closed() {
                return Err(Trouble::unheard("the client is closed"));
            }
            let is_silent = self.core.is_silent(self.server);
            if tries.is_empty() || is_silent {
                tries.push(self.try_to_connect(known, begun));
                begun = begun.saturating_add(1);
            }
            if is_silent {
                // It may have moved from a machine that is dead.
                self.core.ask_others_for_map(self.server);
            }
            match self.env.deadline(self.env.now() + PROBE_EVERY, tries.next()).await {
                Ok(Some(Err(trouble))) if !trouble.is_answer && !tries.is_empty() => {}
                Ok(Some(reached)) => return reached,
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// One try; `before`: tries that failed.
    async fn try_to_connect(&self, known: &[Address], before: u32) -> Result<Established, Trouble> {
        let map = self.core.map();
        let strange = if before % 2 == 1 || known.is_empty() { self.strange() } else { Vec::new() };
        let is_strange = !strange.is_empty();
        let mut addresses = if is_strange { strange } else { known.to_vec() };
        nearest_first(&mut addresses);
        let identity = Identity {
            options: &self.core.options,
            client: self.core.id,
            key: &self.key,
            session: self.core.attach_id(self.server),
            server: Some(self.server),
            store: map.server(self.server).map_or(StoreId::NONE, |info| info.store),
        };
        let reached = reach(&self.env, &addresses, &identity).await;
        reached.map(|(_, established)| established).map_err(|trouble| match trouble.status {
            // A refusal where the map does not have the server is no sign of its life.
            Status::Unavailable if is_strange => Trouble::unheard(trouble.words),
            _ => trouble,
        })
    }

    /// Read and write until the connection ends; whether it was of use.
    async fn converse(&self, established: Established) -> bool {
        let Established { mut reader, mut writer, rest, attached, version, ends, .. } = established;
        let (sealer, opener) = ends.map(|ends| (ends.sealer, ends.opener)).unzip();
        self.core.attached(self.server, &attached, version, sealer);
        let heard = Cell::new(0);
        let lease = Duration::from_millis(u64::from(attached.lease_ms));
        self.lease.set(lease);
        // Each is polled when it is woken itself, not with the others: a reply concerns only the reader.
        let parts: [LocalBoxFuture<'_, Trouble>; 5] = [
            Box::pin(self.read(&mut reader, (rest, opener), &heard)),
            Box::pin(self.write(&mut writer)),
            Box::pin(self.keep(lease, &heard)),
            Box::pin(self.leaving()),
            Box::pin(self.say_what_is_open(lease)),
        ];
        let mut parts: FuturesUnordered<_> = parts.into_iter().collect();
        let Some(ended) = parts.next().await else { return false };
        // First the state, then the consequence of the end for it.
        match ended.is_answer {
            true => self.core.not_serving(self.server, &ended.words),
            false => self.core.lost(self.server, &ended.words),
        }
        if ended.status != Status::Unavailable {
            self.note(&ended);
        }
        heard.get() > 0
    }

    /// Claim the locks that this client had on the connection before. Then report to the server, several
    /// times a lease, which of its files are open here for more than a moment.
    async fn say_what_is_open(&self, lease: Duration) -> Trouble {
        self.core.held.borrow_mut().tell_anew(self.server);
        while !self.core.claim_locks(self.server).await {
            self.env.sleep(CLAIM_PAUSE).await;
        }
        if lease.is_zero() {
            std::future::pending::<()>().await;
        }
        loop {
            self.core.say_what_is_open(self.server, lease / TOLD_A_LEASE).await;
            self.env.sleep(lease / LOOKS_A_LEASE).await;
        }
    }

    async fn leaving(&self) -> Trouble {
        self.leave.wait().await;
        match self.core.is_silent(self.server) {
            true => Trouble::unheard(format!("no answer within {:?}", self.core.options.timeout)),
            false => Trouble::unheard("a nearer address is tried"),
        }
    }

    async fn read(
        &self,
        reader: &mut Reader,
        (mut buf, mut opener): (BytesMut, Option<Opener>),
        heard: &Cell<u64>,
    ) -> Trouble {
        let broken = |words: String| Trouble::told(Status::Unavailable, words);
        let mut chunk = READ_BYTES.0;
        loop {
            loop {
                let room_before = buf.capacity();
                let (mut frame, sealed) = match Frame::take_any(&mut buf) {
                    Ok(Some(taken)) => taken,
                    Ok(None) => {
                        self.core.copied(if buf.capacity() == room_before { 0 } else { buf.len() });
                        break;
                    }
                    Err(error) => return broken(format!("garbage on the connection: {error}")),
                };
                if let Err(error) = admit(opener.as_mut(), &mut frame, sealed) {
                    return broken(format!("the traffic was changed on its way from the server: {error}"));
                }
                if frame.kind == FrameKind::Refusal {
                    return refusal(&frame);
                }
                if frame.kind == FrameKind::Piece {
                    let Ok(piece) = frame.message() else { return broken("a garbled piece".to_owned()) };
                    heard.set(heard.get() + 1);
                    if let Err(words) = self.core.brought(self.server, frame.tag, piece, frame.bulk) {
                        return broken(words);
                    }
                    continue;
                }
                if frame.kind == FrameKind::Grant {
                    let Ok(grant) = frame.message() else { return broken("a garbled grant".to_owned()) };
                    heard.set(heard.get() + 1);
                    if let Err(words) = self.core.granted(self.server, frame.tag, grant) {
                        return broken(words);
                    }
                    continue;
                }
                let reply: Reply = match frame.message() {
                    Ok(reply) if frame.kind == FrameKind::Reply => reply,
                    _ => return broken("a message that is no reply".to_owned()),
                };
                heard.set(heard.get() + 1);
                if let Err(words) = self.core.replied(self.server, frame.tag, reply, frame.bulk) {
                    return broken(words);
                }
            }
            // A frame that has begun has its room reserved: only the missing part of a large one is read into
            // it, so that no bytes are moved.
            let filled = buf.len();
            let reserved = buf.capacity() - filled;
            let is_large = filled.max(reserved) >= READ_BYTES.0 && reserved > 0;
            let room = if is_large { reserved.min(READ_BYTES.1) } else { chunk };
            if buf.capacity() < filled + room {
                self.core.copied(filled);
            }
            let n = match reader.read_append(&mut buf, room).await {
                Ok(0) => return broken("the server closed the connection".to_owned()),
                Ok(n) => n,
                Err(error) => return Trouble::broken(&error),
            };
            chunk = if n == room { READ_BYTES.1 } else { READ_BYTES.0 };
        }
    }

    async fn write(&self, writer: &mut Writer) -> Trouble {
        let mut out = Outgoing::default();
        loop {
            let wake = self.wake.wait();
            if self.core.is_closed() {
                // The other side learns it from the end of the stream, with this or without.
                let until = self.env.now() + LAST_WORDS;
                let _ = self.env.deadline(until, self.end(writer, &mut out)).await;
                return Trouble::unheard("the client is closed");
            }
            if !self.core.take(self.server, &mut out) {
                wake.await;
                continue;
            }
            let written = match out.bulks.as_slice() {
                [] => writer.write_all(&mut [IoSlice::new(&out.bytes)]).await,
                _ => writer.write_all(&mut out.slices()).await,
            };
            if let Err(error) = written {
                return Trouble::broken(&error);
            }
        }
    }

    /// The client is closed: write what no caller waits for, as locks that were given back, and close.
    async fn end(&self, writer: &mut Writer, out: &mut Outgoing) {
        while self.core.take(self.server, out) {
            if writer.write_all(&mut out.slices()).await.is_err() {
                return;
            }
        }
        drop(writer.close().await);
    }

    /// Keep the session (something is said at least three times a lease), and watch the connection: when
    /// something is under way and nothing comes for a turn, a ping is sent, and where nothing comes for two
    /// usual turns the other side is gone without a word. A turn is a part of the time limit: a server that
    /// works on one request for long answers a ping meanwhile, and is not taken for silent.
    async fn keep(&self, lease: Duration, heard: &Cell<u64>) -> Trouble {
        let share = lease / 3;
        let usual = if share.is_zero() { QUIET_MAX } else { share.min(QUIET_MAX) };
        let turn = usual.min((self.core.options.timeout / TURNS_A_LIMIT).max(TURN_MIN));
        let (mut batches, mut idle, mut heard_before, mut quiet) =
            (0, Duration::ZERO, heard.get(), Duration::ZERO);
        loop {
            self.env.sleep(turn).await;
            let Some(now_batches) = self.core.batches(self.server) else { continue };
            let is_quiet = heard.get() == heard_before && self.core.is_under_way(self.server);
            heard_before = heard.get();
            quiet = if is_quiet { quiet + turn } else { Duration::ZERO };
            if quiet > turn && quiet >= 2 * usual {
                return Trouble::unheard(format!("it answered nothing for {quiet:?}"));
            }
            idle = if now_batches == batches { idle + turn } else { Duration::ZERO };
            batches = now_batches;
            let asks = is_quiet && quiet == turn;
            if asks || (!share.is_zero() && idle + turn > share) {
                self.core.ping_unasked(self.server);
                idle = Duration::ZERO;
                batches += 1;
            }
        }
    }
}
