//! The handshake: both sides identify themselves before anything else.
//!
//! ```text
//!   client                                     server
//!   Hello(versions, fs, nonce)      ─────▶     version? file system?    (its tag: the mount key's id)
//!              ◀─────   Challenge(version, nonce, store, map epoch, seal, proofs by the mount and the servers' key)
//!   Attach(proof, collection, client, session) ─────▶  key? collection? session: old connection discarded
//!              ◀═════   Attached(session, slots, lease, credit)                            (sealed, and all that follows)
//! ```
//! Each proof is a keyed hash over all that both sides said, so no proof can be replayed, reflected or used
//! for other words. **A client proves itself by a mount key or the admin key, a server by the servers' key**:
//! a client cannot pass for a server. A server proves itself to a client by the client's mount key, and to a
//! server by the servers' key ([`super::proof`]). Until it has attached, a connection may send small frames
//! only, for a bounded time. A refusal gives the error and the remedy.
//!
//! **On a sealed connection, a refusal after the proof is sealed, too** ([`shoal_proto::seal`]). A server
//! that connects to a peer, and has checked the peer's proof, believes one refusal without a seal: that its
//! own key is wrong (`BadKey`), because a peer that does not find the key cannot seal. It takes any other
//! refusal without a seal for a lost connection. The keys: decisions 0025, 0028 and 0029 (`docs/decisions`).

use super::proof::{Proof, client_of_key, is_let_in};
use super::{Frames, Line, Standing, flush};
use crate::audit::Stated;
use crate::counters::add;
use crate::membership::stores;
use crate::meta::keys;
use crate::meta::rows;
use crate::meta::rows::RowValue;
use crate::net::session::Session;
use crate::shard::{Identity, Settings, Shard, apply_own};
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Env, Reader, Writer};
use shoal_proto::codec::Codec;
use shoal_proto::message::{
    Attach, Attached, Challenge, Hello, Refusal, VERSION_OF_ENCRYPTION, VERSION_OF_NAMED_KEYS,
    VERSION_OF_SEALS, VERSIONS,
};
use shoal_proto::seal::{Handshake, PrivateKey, Shared};
use shoal_proto::{
    ClientId, Frame, FrameKind, MountKey, MountKeyId, Peer, Seal, ServerId, SessionId, Status, StoreId,
    limits,
};
use shoal_store::Changes;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

/// Largest body of a frame before the connection has attached.
const BODY_BYTES_MAX: usize = 8192;

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub status: Status,
    /// For people.
    pub words: String,
    /// For the audit log: what the other side said of itself.
    pub stated: Option<Box<Stated>>,
    /// The other side refuses; status and words are its own.
    pub is_theirs: bool,
}

impl Refused {
    /// A refusal.
    pub fn new(status: Status, words: impl Into<String>) -> Refused {
        Refused { status, words: words.into(), stated: None, is_theirs: false }
    }

    fn of(self, stated: &Stated) -> Refused {
        Refused { stated: Some(Box::new(stated.clone())), ..self }
    }

    /// The refusal of a key that was revoked.
    pub fn revoked(key: &MountKey) -> Refused {
        let words = format!(
            "this key was revoked: {} (an administrator makes another with `shoal key add`)",
            key.name
        );
        Refused::new(Status::KeyRevoked, words)
    }

    /// The same of one that may not judge this server's store.
    fn without_say(self) -> Refused {
        match self.status {
            Status::OtherStore => Refused::new(Status::NoStore, self.words),
            _ => self,
        }
    }

    /// The same without its seal. A side that cannot seal has not found the key, so only `BadKey` is
    /// believed.
    fn unproven(self) -> Refused {
        match self.status {
            Status::BadKey => self,
            _ => Refused {
                status: Status::Unavailable,
                words: format!("a refusal without a proof: {}", self.words),
                ..self
            },
        }
    }

    fn lost() -> Refused {
        Refused::new(Status::Unavailable, "the connection ended during the handshake")
    }
}

/// A connection that has attached.
pub struct Greeting {
    /// To which shard.
    pub shard: Rc<Shard>,
    /// Its session.
    pub session: Rc<Session>,
    /// The connection.
    pub line: Rc<Line>,
}

/// How much of the frames of a connection this server wants sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    seal: Seal,
    /// A side that cannot seal so much is refused.
    is_demanded: bool,
    is_network: bool,
}

impl Settings {
    /// The same of a connection over the network, or within the machine.
    pub fn wanted(&self, is_network: bool) -> Wanted {
        let seal = match (is_network, self.seal_within) {
            (true, _) => self.seal.unwrap_or(Seal::All),
            (false, Seal::Off) => Seal::Within,
            (false, seal) => seal,
        };
        let is_demanded = seal.is_on() && !(is_network && self.seal.is_none());
        Wanted { seal, is_demanded: is_demanded && !mutant::is(Mutant::OlderUnsealed), is_network }
    }
}

impl Wanted {
    /// The lowest version of the other side that is not refused.
    fn version_min(self) -> u16 {
        match self.seal {
            _ if !self.is_demanded => VERSIONS.0,
            Seal::Encrypted => VERSION_OF_ENCRYPTION,
            _ => VERSION_OF_SEALS,
        }
    }

    /// Whether a connection that this server made is sealed enough.
    fn admits(self, offered: Seal) -> Result<(), Refused> {
        if self.is_network && offered == Seal::Within {
            let words =
                "it took this connection for one within its machine: it was passed on to a socket there";
            return Err(Refused::new(Status::Unavailable, words));
        }
        if self.is_demanded && !offered.covers(self.seal) {
            let words = "its frames are sealed less than `mac` in this server's cluster file says: write the same `mac` on all servers, and update older ones";
            return Err(Refused::new(Status::BadVersion, words));
        }
        Ok(())
    }
}

/// The connection that a handshake has made so far: a refusal goes out over it, with its seal.
pub type Begun = RefCell<Option<Rc<Line>>>;

/// The server's side of a connection from `name`, which came over the network or from within the machine.
///
/// # Errors
/// Why it is refused; the caller sends it to the client, over the line in `begun`.
pub async fn greet(
    shards: &[Rc<Shard>],
    (name, is_network): (&str, bool),
    (reader, writer, frames): (&mut Reader, &mut Writer, &mut Frames),
    begun: &Begun,
) -> Result<Greeting, Refused> {
    let (tag, hello): (u64, Hello) = expect_tagged(reader, frames, FrameKind::Hello).await?;
    let version = hello.version_max.min(VERSIONS.1);
    let mount = if version < VERSION_OF_NAMED_KEYS { MountKeyId::FIRST } else { MountKeyId(tag) };
    if version < hello.version_min.max(VERSIONS.0) {
        let words = format!(
            "this server speaks versions {} to {} of the protocol, you speak {} to {}: update the older side",
            VERSIONS.0, VERSIONS.1, hello.version_min, hello.version_max
        );
        return Err(Refused::new(Status::BadVersion, words));
    }
    let shard = shards.iter().find(|s| s.identity().map.fs_id == hello.fs_id).ok_or_else(|| {
        Refused::new(
            Status::BadCollection,
            "this server serves no file system of that id: is the address right?",
        )
    })?;
    shard.is_set_aside()?;
    let identity = shard.identity();
    if version < VERSION_OF_NAMED_KEYS && !identity.map.keys.is_empty() {
        let words = format!(
            "this file system has mount keys with names, which version {version} of the protocol does not know: update the older side"
        );
        return Err(Refused::new(Status::BadVersion, words));
    }
    let wanted = shard.settings.wanted(is_network);
    if version < wanted.version_min() {
        let words = match wanted.seal {
            Seal::Encrypted => format!(
                "this server takes encrypted connections alone (`mac` in its cluster file), which version {version} of the protocol does not know: update the older side"
            ),
            _ => format!(
                "this server takes sealed connections alone (`mac` in its cluster file), which version {version} of the protocol does not know: update the older side"
            ),
        };
        return Err(Refused::new(Status::BadVersion, words));
    }
    let private = drawn(&shard.env);
    let line = Line::new(name.to_owned(), version);
    begun.replace(Some(line.clone()));
    let mut challenge = Challenge {
        version,
        nonce: private.public(),
        server: identity.id,
        store: shard.store(),
        map_epoch: identity.map.epoch,
        proof: [0; 32],
        peer_proof: [0; 32],
        seal: if version < VERSION_OF_SEALS { Seal::Off } else { wanted.seal },
    };
    let key = identity.keys.named(&identity.map.fs_id, mount);
    challenge.prove(&key, &identity.keys.server, &hello);
    line.send(FrameKind::Challenge, 0, &challenge, &[]);
    flush(&line, writer).await.map_err(|_| Refused::lost())?;
    let mut attach: Attach = expect(reader, frames, FrameKind::Attach).await?;
    let shared = attach.exchange(version, &private).map_err(|status| {
        Refused::new(status, "a client of version 7 has a key of its own, and no other side has")
    })?;
    let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
    let proof = Proof { handshake, shared, mount };
    let unknown = |refused: Refused| refused.of(&Stated::of(&identity, mount, &attach));
    let (role, key) = proof.key(&identity).map_err(unknown)?;
    if challenge.seal.is_on() {
        let ends = handshake.end_of_server(&key, &exchanged(&private, &hello.nonce)?);
        line.seal_with(ends.sealer, shard.env.counters());
        frames.open_with(ends.opener);
    }
    let admitted = proof.admits(&identity, role).map_err(unknown)?;
    line.admitted.set(admitted);
    let stated = attach.client;
    if let Some(key) = admitted.mount {
        attach.client = client_of_key(&identity.keys.server, key.id, stated);
    }
    let own = Stated::proved(&identity, admitted, &attach);
    if attach.collection != identity.collection {
        let words = format!("this server holds collection {} of the file system", identity.collection);
        return Err(Refused::new(Status::BadCollection, words).of(&own));
    }
    let session = attach_session(shard, &attach, &line).await.map_err(|refused| refused.of(&own))?;
    session.stated.set(stated);
    shard.is_set_aside().map_err(|refused| refused.of(&own))?;
    // It may have been revoked while the session was looked for.
    if let Some(key) = admitted.mount {
        is_let_in(&shard.identity(), key.id).map_err(|refused| refused.of(&own))?;
    }
    let attached = Attached {
        session: session.id,
        slots: session.slots,
        lease_ms: u32::try_from(shard.settings.lease.as_millis()).unwrap_or(u32::MAX),
        credit_bytes: limits::CREDIT_BYTES as u32,
        eager_bytes: limits::EAGER_BYTES_MAX as u32,
        map_epoch: shard.identity().map.epoch,
        loss: shard.loss_kept(),
    };
    line.send(FrameKind::Attached, 0, &attached, &[]);
    Ok(Greeting { shard: shard.clone(), session, line })
}

/// The first frame of a connection that is to be refused, whatever it is.
pub async fn hear(reader: &mut Reader, frames: &mut Frames) {
    // Bytes that are no frame are refused as well.
    let _ = next(reader, frames).await;
}

/// The session of a connection: a peer's (kept in memory only), a new one, or the one it had, from which
/// everything not yet executed is discarded first.
async fn attach_session(shard: &Rc<Shard>, attach: &Attach, line: &Rc<Line>) -> Result<Rc<Session>, Refused> {
    let now = shard.env.now();
    if let Some(peer) = attach.peer {
        let is_its_own = stores::meet(shard, peer).await;
        is_its_own.map_err(|unmet| Refused::new(unmet.status, unmet.words))?;
        let peer = peer.server;
        if !shard.peers.claims().has_accepted(peer) {
            shard.met.wake_all();
        }
        let id = SessionId(shard.env.random_u64() | 1);
        let session = Session::new(id, attach.client, Some(peer), 0, true, now);
        let former = shard.peer_sessions.borrow().get(&peer).cloned();
        let session = Rc::new(match &former {
            Some(former) => session.succeeding(former),
            None => session,
        });
        shard.peer_sessions.borrow_mut().insert(peer, session.clone());
        if let Some(former) = former {
            former.discard().await;
        }
        if !shard.peer_sessions.borrow().get(&peer).is_some_and(|newest| Rc::ptr_eq(newest, &session)) {
            let words = "another connection of this server was made while this one waited for its turn";
            return Err(Refused::new(Status::NoSession, words));
        }
        session.line.replace(Some(line.clone()));
        return Ok(session);
    }
    if attach.client == ClientId::ANYONE {
        return Err(Refused::new(Status::BadMessage, "a client's id is not all zeros: draw another"));
    }
    shard.clients_admitted().await;
    shard.is_set_aside()?;
    let Some(id) = attach.session else {
        return begin_session(shard, attach, line).await;
    };
    let session = shard.sessions.get(id).filter(|s| s.client == attach.client).ok_or_else(|| {
        Refused::new(Status::NoSession, "the session is not known here: it expired, or the server lost it")
    })?;
    let is_another = session.client_key.get().is_some_and(|key| attach.client_key != Some(key));
    if is_another && !mutant::is(Mutant::SessionWithoutSecret) {
        let words = "the session is another client's: it is continued by the key of the client that began it";
        return Err(Refused::new(Status::NoSession, words));
    }
    take_key(&session, line)?;
    session.heard.set(now);
    take_client_key(shard, &session, attach.client_key).await?;
    let turn = session.turn.acquire(1).await;
    session.discard().await;
    session.find_sequences(&shard.collection).await.map_err(|error| {
        Refused::new(Status::Io, format!("the session's kept replies cannot be read: {error}"))
    })?;
    session.line.replace(Some(line.clone()));
    session.heard.set(shard.env.now());
    drop(turn);
    add(&shard.counters.sessions_resumed, 1);
    Ok(session)
}

/// A session is of the mount key that was proved first on it: the holder of another key does not go on with
/// it.
fn take_key(session: &Session, line: &Line) -> Result<(), Refused> {
    let Some(key) = line.admitted.get().mount else { return Ok(()) };
    if session.key.get().is_some_and(|known| known != key.id) {
        return Err(Refused::new(Status::NoSession, "the session was begun with another key"));
    }
    session.key.set(Some(key.id));
    Ok(())
}

/// A session that was begun in an older version has no client's key. It is of the first one that continues
/// it, as one that was begun with that key.
async fn take_client_key(
    shard: &Rc<Shard>,
    session: &Session,
    client_key: Option<[u8; 32]>,
) -> Result<(), Refused> {
    if client_key.is_none() || session.client_key.get().is_some() {
        return Ok(());
    }
    // Set before anything is awaited: of several keys at once one takes it.
    session.client_key.set(client_key);
    let kept = keep_session(shard, session).await;
    kept.inspect_err(|_| session.client_key.set(None))
}

/// Keep the row of a session. Its durability is not awaited: all changes of this session come later in the
/// journal, so if one is kept, this row is kept too.
async fn keep_session(shard: &Rc<Shard>, session: &Session) -> Result<(), Refused> {
    let mut changes = Changes::default();
    let client_key = session.client_key.get().into();
    let row = rows::Session { client: session.client, peer: None, slots: session.slots, client_key };
    changes.put(keys::session(session.id), row.to_row());
    apply_own(&shard.collection, changes)
        .await
        .map(drop)
        .map_err(|error| Refused::new(crate::data::status_of(error), "the session could not be kept"))
}

/// Begin a session, or return one again whose first reply its client never received.
async fn begin_session(shard: &Rc<Shard>, attach: &Attach, line: &Rc<Line>) -> Result<Rc<Session>, Refused> {
    let slots = attach.slots.clamp(1, limits::SLOTS_MAX);
    // The client's id is no secret: another holder of the mount key that states it has no part in these.
    let mut own = shard.sessions.of_client(attach.client);
    own.retain(|session| session.client_key.get() == attach.client_key);
    let key = line.admitted.get().mount.map(|key| key.id);
    let is_own = |s: &Session| s.key.get() == key;
    let is_free = |s: &&Rc<Session>| s.is_unused() && !s.is_connected() && s.slots == slots && is_own(s);
    if let Some(session) = own.iter().find(is_free) {
        session.line.replace(Some(line.clone()));
        session.heard.set(shard.env.now());
        return Ok(session.clone());
    }
    if own.len() >= limits::CLIENT_SESSIONS_MAX {
        make_room(shard, &own)?;
    }
    let id = std::iter::repeat_with(|| SessionId(shard.env.random_u64()))
        .find(|id| id.0 != 0 && shard.sessions.get(*id).is_none())
        .unwrap_or_default();
    // Counted before anything is awaited: many connections of one client at once get no more sessions.
    let session = Session::new(id, attach.client, None, slots, true, shard.env.now());
    let session = Rc::new(session.of_key(attach.client_key));
    session.key.set(key);
    session.line.replace(Some(line.clone()));
    shard.sessions.add(session.clone());
    keep_session(shard, &session).await.inspect_err(|_| shard.sessions.remove(id))?;
    add(&shard.counters.sessions_begun, 1);
    shard.audit.session_began(shard, line, attach.client);
    Ok(session)
}

/// End the oldest of a client's sessions that has no connection: the client begins another, so it has given
/// that one up.
fn make_room(shard: &Rc<Shard>, own: &[Rc<Session>]) -> Result<(), Refused> {
    let Some(oldest) = own.iter().find(|session| !session.is_connected() && !session.is_running()) else {
        let words = format!(
            "this client has {} sessions on this server, each with a connection: close some of them",
            own.len()
        );
        return Err(Refused::new(Status::OverLimit, words));
    };
    shard.sessions.remove(oldest.id);
    let (own, oldest) = (shard.clone(), oldest.clone());
    shard.tasks.spawn(
        &shard.env,
        "session",
        async move { crate::net::lease::end_session(&own, &oldest).await },
    );
    Ok(())
}

/// A server's own data for a peer.
pub struct Own {
    /// Its sessions' client.
    pub client: ClientId,
    /// Its store.
    pub peer: Peer,
    /// It serves; else it begins.
    pub serves: bool,
}

/// A peer's side: introduce this server to another, over a connection that is to be sealed as `wanted`.
///
/// The connection, the epoch of the other's map, and the version of the protocol that both speak.
///
/// `OtherStore` is the verdict of a peer that may judge. One with an older map may not: it does not know
/// which stores were given up since; that this server's store was given up (`Forbidden`) counts always. Where
/// this server finds the peer's store wrong as well, with the same map, the server that begins gives way.
///
/// # Errors
/// Why not, in words.
pub async fn introduce(
    env: &Env,
    identity: &Identity,
    own: Own,
    server: ServerId,
    (name, wanted): (&str, Wanted),
    parts: (&mut Reader, &mut Writer, &mut Frames),
) -> Result<(Rc<Line>, u32, u16), Refused> {
    let (reader, writer, frames) = parts;
    let line = Line::new(name.to_owned(), VERSIONS.1);
    let (private, hello, challenge) =
        challenged(env, identity, &line, (&mut *reader, &mut *writer, &mut *frames)).await?;
    wanted.admits(challenge.seal)?;
    if challenge.server != server {
        let words = format!("it is server {}, not {server}", challenge.server);
        return Err(Refused::new(Status::WrongServer, words));
    }
    // Its verdict counts all the same: it may be this server that has an older copy.
    let fits = stores::check(identity, Peer { server, store: challenge.store, position: 0 })
        .map_err(|unmet| Refused::new(Status::NoStore, unmet.words));
    let mut attach = Attach {
        proof: [0; 32],
        collection: identity.collection,
        client: own.client,
        peer: Some(own.peer),
        session: None,
        slots: 0,
        client_key: None,
    };
    attach.prove(&identity.keys.server, &hello, &challenge, None);
    line.send(FrameKind::Attach, 0, &attach, &[]);
    if challenge.seal.is_on() {
        let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
        let shared = exchanged(&private, &challenge.nonce)?;
        let ends = handshake.end_of_client(&identity.keys.server, &shared);
        line.seal_with(ends.sealer, env.counters());
        frames.open_with(ends.opener);
    }
    flush(&line, writer).await.map_err(|_| Refused::lost())?;
    let attached: Result<Attached, Refused> = expect(reader, frames, FrameKind::Attached).await;
    let epoch = identity.map.epoch;
    match (attached, fits) {
        (Ok(attached), fits) => fits.map(|()| (line, attached.map_epoch, challenge.version)),
        // A store that was given up stays so, whatever the peer does not know else.
        (Err(refused), _) if refused.status == Status::Forbidden => {
            Err(Refused::new(Status::OtherStore, refused.words))
        }
        (Err(refused), _) if refused.status != Status::OtherStore => Err(refused),
        (Err(refused), _) if challenge.map_epoch < epoch => Err(refused.without_say()),
        (Err(refused), Err(_)) if challenge.map_epoch == epoch && own.serves => Err(refused.without_say()),
        (Err(refused), _) => Err(refused),
    }
}

/// Which server of this file system listens there, and from which store it is served.
///
/// # Errors
/// Why it is none, in words.
pub async fn who_listens(
    env: &Env,
    identity: &Identity,
    name: &str,
    parts: (&mut Reader, &mut Writer, &mut Frames),
) -> Result<(ServerId, StoreId), Refused> {
    let line = Line::new(name.to_owned(), VERSIONS.1);
    let (.., challenge) = challenged(env, identity, &line, parts).await?;
    Ok((challenge.server, challenge.store))
}

/// A key pair for one connection.
fn drawn(env: &Env) -> PrivateKey {
    let mut random = [0; 32];
    env.random(&mut random);
    PrivateKey::new(random)
}

/// The exchange of both nonces.
fn exchanged(own: &PrivateKey, nonce: &[u8; 32]) -> Result<Shared, Refused> {
    let words = "the nonce of the other side is no public key";
    own.exchange(nonce).ok_or_else(|| Refused::new(Status::BadMessage, words))
}

/// Say hello; that, the private part of its nonce, and the challenge of one that has the servers' key.
async fn challenged(
    env: &Env,
    identity: &Identity,
    line: &Rc<Line>,
    (reader, writer, frames): (&mut Reader, &mut Writer, &mut Frames),
) -> Result<(PrivateKey, Hello, Challenge), Refused> {
    let private = drawn(env);
    let nonce = private.public();
    let hello = Hello { version_min: VERSIONS.0, version_max: VERSIONS.1, fs_id: identity.map.fs_id, nonce };
    line.send(FrameKind::Hello, 0, &hello, &[]);
    flush(line, writer).await.map_err(|_| Refused::lost())?;
    // The other side has not proven yet that it is a server: its data is ignored.
    let challenge: Challenge =
        expect(reader, frames, FrameKind::Challenge).await.map_err(Refused::without_say)?;
    if !challenge.is_proven_to_peer(&identity.keys.server, &hello) {
        let words =
            "it has not the servers' key of this file system (`key.server`, or `key` if that is missing)";
        // So that its log has it too: only one of the two sides has the wrong key.
        let told = Refusal {
            status: Status::BadKey,
            words: "your servers' key is not this file system's: copy `key.server`, beside `key`".into(),
        };
        line.send(FrameKind::Refusal, 0, &told, &[]);
        let _ = flush(line, writer).await;
        return Err(Refused::new(Status::BadKey, words));
    }
    if !(VERSIONS.0..=VERSIONS.1).contains(&challenge.version) {
        return Err(Refused::new(Status::BadVersion, "it speaks no version that this server speaks"));
    }
    Ok((private, hello, challenge))
}

/// The next frame, which must be of this kind.
async fn expect<T: Codec>(reader: &mut Reader, frames: &mut Frames, kind: FrameKind) -> Result<T, Refused> {
    expect_tagged(reader, frames, kind).await.map(|(_, message)| message)
}

/// The same, and its tag.
async fn expect_tagged<T: Codec>(
    reader: &mut Reader,
    frames: &mut Frames,
    kind: FrameKind,
) -> Result<(u64, T), Refused> {
    let (frame, standing) = next(reader, frames).await?;
    let garbled = |_| Refused::new(Status::BadMessage, "the bytes sent are no message of this protocol");
    if frame.kind == FrameKind::Refusal {
        let refusal: Refusal = frame.message().map_err(garbled)?;
        let refused = Refused { is_theirs: true, ..Refused::new(refusal.status, refusal.words.0) };
        return Err(if standing == Standing::Proven { refused } else { refused.unproven() });
    }
    if frame.kind != kind {
        let words = format!("{kind:?} was expected in the handshake, {:?} came", frame.kind);
        return Err(Refused::new(Status::BadMessage, words));
    }
    Ok((frame.tag, frame.message().map_err(garbled)?))
}

async fn next(reader: &mut Reader, frames: &mut Frames) -> Result<(Frame, Standing), Refused> {
    let garbage = || Refused::new(Status::BadMessage, "the bytes sent are no frame of this protocol");
    loop {
        if let Some((body, bulk)) = frames.lengths()
            && (body > BODY_BYTES_MAX || bulk > 0)
        {
            return Err(garbage());
        }
        if let Some(frame) = frames.next_of_handshake().map_err(|_| garbage())? {
            return Ok(frame);
        }
        let filled = poll_fn(|cx| frames.poll_fill(reader.0.as_mut(), cx)).await;
        if !filled.unwrap_or(false) {
            return Err(Refused::lost());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_over_the_network_are_sealed_unless_the_cluster_file_says_other_and_those_within_are_not() {
        let wanted = |seal, is_network| Settings { seal, ..Settings::default() }.wanted(is_network);
        let as_said = |seal, is_demanded, is_network| Wanted { seal, is_demanded, is_network };
        assert_eq!(wanted(None, true), as_said(Seal::All, false, true));
        assert_eq!(wanted(Some(Seal::Encrypted), true), as_said(Seal::Encrypted, true, true));
        assert_eq!(wanted(Some(Seal::All), true), as_said(Seal::All, true, true));
        assert_eq!(wanted(Some(Seal::Head), true), as_said(Seal::Head, true, true));
        assert_eq!(wanted(Some(Seal::Off), true), as_said(Seal::Off, false, true));
        for seal in [None, Some(Seal::All), Some(Seal::Off)] {
            assert_eq!(wanted(seal, false), as_said(Seal::Within, false, false));
        }
    }

    #[test]
    fn a_server_that_connects_takes_no_fewer_seals_than_its_own_setting_demands() {
        let admitted = |seal, is_network| {
            let wanted = Settings { seal, ..Settings::default() }.wanted(is_network);
            let all = [Seal::Off, Seal::Head, Seal::All, Seal::Encrypted, Seal::Within];
            all.into_iter().filter(|offered| wanted.admits(*offered).is_ok()).collect::<Vec<_>>()
        };
        let unbound = [Seal::Off, Seal::Head, Seal::All, Seal::Encrypted];
        // Without the setting a peer of an older version is served, as its clients are.
        assert_eq!(admitted(None, true), unbound);
        assert_eq!(admitted(Some(Seal::Off), true), unbound);
        assert_eq!(admitted(Some(Seal::Head), true), [Seal::Head, Seal::All, Seal::Encrypted]);
        assert_eq!(admitted(Some(Seal::All), true), [Seal::All, Seal::Encrypted]);
        assert_eq!(admitted(Some(Seal::Encrypted), true), [Seal::Encrypted]);
        assert_eq!(admitted(Some(Seal::All), false).len(), 5, "no attacker on the wire is there");
        let within = Settings { seal_within: Seal::All, ..Settings::default() }.wanted(false);
        let refused = within.admits(Seal::Within).unwrap_err();
        assert_eq!(refused.status, Status::BadVersion);
        assert!(refused.words.contains("`mac`"), "{}", refused.words);
    }
}
