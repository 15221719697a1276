//! The handshake: Hello → Challenge → Attach → Attached.
//!
//! Both sides prove over both nonces that they have a mount key of the file system, so that no client talks
//! to an impostor and no impostor is served. A client that manages proves itself by the admin key instead. A
//! client also proves that it has the private part of the key pair that it drew at its start: a server
//! continues a session only for the key pair that began it. From `Attached` on, every frame is sealed if the
//! server requires it ([`shoal_proto::seal`]). A refusal says why, and what to do.
//!
//! **On a connection to a known server over the network, no frame that comes before the server's proof ends a
//! session, or fails a request for good.** An attacker on the wire can send such a frame. The connection then
//! counts as lost, and the client connects again until the deadline. Only the first connection of a client
//! fails at once with such a refusal.

use crate::refusal::is_refusal;
use crate::{Error, Options};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use shoal_env::{Address, Env, Reader, Stream, Writer};
use shoal_proto::message::{self, Attach, Attached, Challenge, Hello, Refusal, VERSION_OF_SEALS};
use shoal_proto::seal::{Ends, Handshake, Opener, PrivateKey, Shared, admit};
use shoal_proto::{ClientId, Frame, FrameKind, Seal, ServerId, SessionId, Status, StoreId, codec::Codec};
use std::io::{self, IoSlice};
use std::time::Duration;

/// A connection and its handshake take at most this.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Where any server will do, the next address is tried concurrently after an address has not answered for
/// this time.
const STAGGER: Duration = Duration::from_millis(500);
/// Bytes read at once during the handshake.
const READ_BYTES: usize = 4096;

/// A connection that stands.
pub(super) struct Established {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Read, and not yet taken.
    pub(super) rest: BytesMut,
    pub(super) attached: Attached,
    pub(super) version: u16,
    /// Seals and checks the frames, if the server requires that.
    pub(super) ends: Option<Ends>,
    /// Where.
    pub(super) address: Address,
}

/// Why there is no connection.
pub(super) struct Trouble {
    pub(super) status: Status,
    pub(super) words: String,
    /// The server, or its machine in its place, answered so. Otherwise there was no answer.
    pub(super) is_answer: bool,
    /// An attacker on the wire could have said it.
    is_doubtful: bool,
}

impl Trouble {
    /// Whether trying again cannot help.
    pub(super) fn is_final(&self) -> bool {
        is_refusal(self.status)
    }

    /// Said by the server or its machine.
    pub(super) fn told(status: Status, words: impl Into<String>) -> Trouble {
        Trouble { status, words: words.into(), is_answer: true, is_doubtful: false }
    }

    /// There was no answer.
    pub(super) fn unheard(words: impl Into<String>) -> Trouble {
        Trouble { is_answer: false, ..Trouble::told(Status::Unavailable, words) }
    }

    /// The connection failed. A machine without the server refuses or resets it; no answer, and no way there,
    /// say nothing of the server.
    pub(super) fn broken(error: &io::Error) -> Trouble {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof,
        };
        let kinds = [ConnectionRefused, ConnectionReset, ConnectionAborted, BrokenPipe, UnexpectedEof];
        let is_answer = kinds.contains(&error.kind());
        Trouble { is_answer, ..Trouble::unheard(error.to_string()) }
    }

    /// The same of a server that gave the map, by the same key: a stranger that listens at its address is not
    /// the server, which may have moved, and is no sign of its life. Nor is an attacker on the wire to it.
    fn of_known(self) -> Trouble {
        match self.status {
            Status::BadKey | Status::BadCollection | Status::BadMessage => Trouble::unheard(self.words),
            Status::BadVersion | Status::NoStore if self.is_doubtful => Trouble::unheard(self.words),
            _ => self,
        }
    }

    /// The same of one that has not proved yet that it is a server: it cannot say that a key was revoked, and
    /// no server says before its proof what would end a session. `is_network`: an attacker on the wire could
    /// be in its place.
    fn of_stranger(self, is_network: bool) -> Trouble {
        match self.status {
            Status::KeyRevoked => Trouble { status: Status::BadKey, ..self },
            Status::NoSession | Status::Forbidden | Status::Poisoned => {
                Trouble::unheard(format!("a refusal without a proof: {}", self.words))
            }
            _ => Trouble { is_doubtful: is_network, ..self },
        }
    }

    /// The same of a refusal without its seal. A server that cannot seal has not found the key, so only
    /// `BadKey` is believed.
    fn unproven(self) -> Trouble {
        match self.status {
            Status::BadKey => self,
            _ => Trouble::unheard(format!("a refusal without a proof: {}", self.words)),
        }
    }

    fn garbled() -> Trouble {
        Trouble::told(Status::BadMessage, "it does not speak this protocol")
    }
}

/// The client's own part of the handshake.
pub(super) struct Identity<'a> {
    pub(super) options: &'a Options,
    pub(super) client: ClientId,
    /// The client's key, the same for all its sessions.
    pub(super) key: &'a PrivateKey,
    pub(super) session: Option<SessionId>,
    /// Which server it must be, if that is known.
    pub(super) server: Option<ServerId>,
    /// From which store it must be served, as far as that is known.
    pub(super) store: StoreId,
}

/// The order in which addresses of a server are tried: first those that cost the least. A socket in a folder
/// of another machine is not there, and is passed over at once.
pub(super) fn nearest_first(addresses: &mut [Address]) {
    addresses.sort_by_key(distance);
}

/// How far it is to an address: within the process, the machine, over the network.
pub(super) fn distance(address: &Address) -> u8 {
    match address {
        Address::Local(_) => 0,
        Address::Unix(_) => 1,
        Address::Tcp(_) | Address::Host(..) => 2,
    }
}

/// Connect to the first of `addresses` that answers, and shake hands. Where any server will do, the next
/// address is tried concurrently with one that does not answer soon.
pub(super) async fn reach(
    env: &Env,
    addresses: &[Address],
    identity: &Identity<'_>,
) -> Result<(ServerId, Established), Trouble> {
    let mut failed = Failed::new(addresses);
    let patience = if identity.server.is_none() { STAGGER } else { CONNECT_MAX };
    let (mut tries, mut left) = (FuturesUnordered::new(), addresses.iter());
    loop {
        match left.next() {
            Some(address) => tries.push(try_in_time(env, address, identity)),
            None if tries.is_empty() => return Err(failed.into_trouble()),
            None => {}
        }
        let until = env.now() + if left.len() == 0 { CONNECT_MAX } else { patience };
        // The next one is tried when one has failed, or does not answer soon.
        if let Ok(Some((address, tried))) = env.deadline(until, tries.next()).await {
            match tried {
                Ok(reached) => return Ok(reached),
                Err(trouble) => failed.add(address, trouble, identity)?,
            }
        }
    }
}

/// One try of an address, as it ended within its time.
async fn try_in_time<'a>(
    env: &Env,
    address: &'a Address,
    identity: &Identity<'_>,
) -> (&'a Address, Result<(ServerId, Established), Trouble>) {
    let tried = match env.deadline(env.now() + CONNECT_MAX, try_one(env, address, identity)).await {
        Ok(Err(trouble)) if identity.server.is_some() => Err(trouble.of_known()),
        Ok(tried) => tried,
        Err(_) => Err(Trouble::unheard(format!("no answer in {CONNECT_MAX:?}"))),
    };
    (address, tried)
}

/// The addresses at which no server was reached, and why.
struct Failed {
    words: Vec<String>,
    is_answer: bool,
    has_network: bool,
}

impl Failed {
    fn new(addresses: &[Address]) -> Failed {
        let has_network = addresses.iter().any(Failed::is_network);
        Failed { words: Vec::new(), is_answer: false, has_network }
    }

    /// On another machine there is no socket file of the server, or an old one: only the network says how the
    /// server is.
    fn is_network(address: &Address) -> bool {
        matches!(address, Address::Tcp(_) | Address::Host(..))
    }

    /// One more; the error is one after which no other is to be tried.
    fn add(&mut self, address: &Address, trouble: Trouble, identity: &Identity<'_>) -> Result<(), Trouble> {
        // Where any server will do, the refusal of one whose store is missing does not decide for the others.
        let goes_on = trouble.status == Status::NoStore && identity.server.is_none();
        if (trouble.is_final() && !goes_on) || trouble.status == Status::NoSession {
            return Err(Trouble { words: format!("{address}: {}", trouble.words), ..trouble });
        }
        self.is_answer |= trouble.is_answer && (!self.has_network || Failed::is_network(address));
        self.words.push(format!("{address}: {}", trouble.words));
        Ok(())
    }

    fn into_trouble(self) -> Trouble {
        let words = match self.words.is_empty() {
            true => "no address of it is known".to_owned(),
            false => self.words.join("; "),
        };
        Trouble { is_answer: self.is_answer, ..Trouble::unheard(words) }
    }
}

/// The first connection, to any server.
pub(super) async fn first_of(
    env: &Env,
    options: &Options,
    (client, key): (ClientId, &PrivateKey),
) -> Result<(ServerId, Established), Error> {
    let identity = Identity { options, client, key, session: None, server: None, store: StoreId::NONE };
    reach(env, &options.map_from, &identity)
        .await
        .map_err(|trouble| Error::new(trouble.status, "connect").because(trouble.words))
}

/// Which server of the file system listens at an address, and from which store it is served.
///
/// # Errors
/// `Unavailable`: no process listens there. Otherwise the listener is no server of the file system; the text
/// says why.
pub(crate) async fn who_listens(
    env: &Env,
    options: &Options,
    address: &Address,
) -> Result<(ServerId, StoreId), Error> {
    let asked = async {
        let mut stream = env.connect(address).await.map_err(|e| Trouble::broken(&e))?;
        let mut rest = BytesMut::new();
        let told = challenged(env, options, address, (&mut stream, &mut rest)).await;
        // An address whose peer ends the connection has a listener.
        let somebody = |trouble: Trouble| match trouble.status {
            Status::Unavailable => Trouble { status: Status::BadMessage, ..trouble },
            _ => trouble,
        };
        told.map(|(.., challenge)| challenge).map_err(somebody)
    };
    let told = env.deadline(env.now() + CONNECT_MAX, asked).await.unwrap_or_else(|_| {
        let words = format!("no answer in {CONNECT_MAX:?}");
        Err(Trouble { status: Status::TimedOut, ..Trouble::unheard(words) })
    });
    told.map(|challenge| (challenge.server, challenge.store)).map_err(|trouble| {
        Error::new(trouble.status, "connect").because(format!("{address}: {}", trouble.words))
    })
}

async fn try_one(
    env: &Env,
    address: &Address,
    identity: &Identity<'_>,
) -> Result<(ServerId, Established), Trouble> {
    let mut stream = env.connect(address).await.map_err(|e| Trouble::broken(&e))?;
    let mut rest = BytesMut::new();
    let own_key = identity.options.admin.as_ref().unwrap_or(&identity.options.key);
    let (private, hello, challenge) =
        challenged(env, identity.options, address, (&mut stream, &mut rest)).await?;
    let Stream { mut reader, mut writer, .. } = stream;
    if identity.server.is_some_and(|server| server != challenge.server) {
        let words =
            format!("server {} listens there; does the map name the right address?", challenge.server);
        return Err(Trouble::unheard(words));
    }
    if !identity.store.agrees(challenge.store) {
        let words = format!(
            "it is served from store {}, and this client knows it by store {}; if that one was given up, mount again",
            challenge.store, identity.store
        );
        return Err(Trouble::told(Status::NoStore, words));
    }
    let mut attach = Attach {
        proof: [0; 32],
        collection: identity.options.collection,
        client: identity.client,
        peer: None,
        session: identity.session,
        slots: identity.options.slots.clamp(1, shoal_proto::limits::SLOTS_MAX),
        client_key: None,
    };
    let mut shared = None;
    if challenge.version >= VERSION_OF_SEALS {
        attach.client_key = Some(identity.key.public());
        shared = Some(exchanged(identity.key, &challenge.nonce)?);
    }
    attach.prove(own_key, &hello, &challenge, shared.as_ref());
    send(&mut writer, FrameKind::Attach, challenge.version, &attach).await?;
    let mut ends = None;
    if challenge.seal.is_on() {
        let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
        ends = Some(handshake.end_of_client(own_key, &exchanged(&private, &challenge.nonce)?));
    }
    let opener = ends.as_mut().map(|ends| &mut ends.opener);
    let attached: Attached = expect(&mut reader, &mut rest, opener, FrameKind::Attached).await?;
    let version = challenge.version;
    let address = address.clone();
    Ok((challenge.server, Established { reader, writer, rest, attached, version, ends, address }))
}

/// The exchange of a key of this side and the server's nonce.
fn exchanged(own: &PrivateKey, nonce: &[u8; 32]) -> Result<Shared, Trouble> {
    own.exchange(nonce).ok_or_else(Trouble::garbled)
}

/// Whether a connection to `address` is sealed as this side requires.
fn is_sealed_enough(options: &Options, address: &Address, seal: Seal) -> Result<(), Trouble> {
    if !address.is_tcp() || seal.is_on() {
        return Ok(());
    }
    if seal == Seal::Within {
        let words = "it took this connection for one within its machine: it was passed on to a socket there; use an address of the server itself";
        return Err(Trouble::unheard(words));
    }
    if options.admin.is_some() && !options.admin_unsealed {
        let words = "it does not seal its frames, so it proves by the mount key alone that it is a server: an administrator is not served so over the network; update the server, or put `cluster.toml` with `mac = \"off\"` beside the key if that is what the servers have";
        return Err(Trouble::told(Status::BadVersion, words));
    }
    Ok(())
}

/// Say hello; that, the private part of its nonce, and the challenge of a server that has the key.
async fn challenged(
    env: &Env,
    options: &Options,
    address: &Address,
    (stream, rest): (&mut Stream, &mut BytesMut),
) -> Result<(PrivateKey, Hello, Challenge), Trouble> {
    let Stream { reader, writer, .. } = stream;
    let private = drawn(env);
    let nonce = private.public();
    let (version_min, version_max) = message::VERSIONS;
    let hello = Hello { version_min, version_max, fs_id: options.fs_id, nonce };
    send_tagged(writer, FrameKind::Hello, version_max, options.key_id.0, &hello).await?;
    let challenge: Challenge = expect(reader, rest, None, FrameKind::Challenge)
        .await
        .map_err(|trouble| trouble.of_stranger(address.is_tcp()))?;
    if !challenge.is_proven(&options.key, &hello) {
        // So that the server's log has it: it cannot see by itself why this side ends.
        let told = Refusal { status: Status::BadKey, words: "your key is not this file system's".into() };
        let _ = send(writer, FrameKind::Refusal, version_max, &told).await;
        let words =
            "the server could not prove that it has the file system's key; is this the right key file?";
        return Err(Trouble::told(Status::BadKey, words));
    }
    if !(version_min..=version_max).contains(&challenge.version) {
        let words = format!(
            "it wants version {} of the protocol; this program speaks {version_min} to {version_max}",
            challenge.version
        );
        return Err(Trouble::told(Status::BadVersion, words));
    }
    is_sealed_enough(options, address, challenge.seal)?;
    Ok((private, hello, challenge))
}

/// A new key pair.
pub(super) fn drawn(env: &Env) -> PrivateKey {
    let mut random = [0; 32];
    env.random(&mut random);
    PrivateKey::new(random)
}

async fn send<T: Codec>(
    writer: &mut Writer,
    kind: FrameKind,
    version: u16,
    message: &T,
) -> Result<(), Trouble> {
    send_tagged(writer, kind, version, 0, message).await
}

async fn send_tagged<T: Codec>(
    writer: &mut Writer,
    kind: FrameKind,
    version: u16,
    tag: u64,
    message: &T,
) -> Result<(), Trouble> {
    let mut bytes = Vec::new();
    Frame::put(kind, version, tag, message, 0, &mut bytes);
    writer.write_all(&mut [IoSlice::new(&bytes)]).await.map_err(|error| Trouble::broken(&error))
}

/// The next frame, which must be of this kind, and sealed where there is an opener.
async fn expect<T: Codec>(
    reader: &mut Reader,
    rest: &mut BytesMut,
    mut opener: Option<&mut Opener>,
    kind: FrameKind,
) -> Result<T, Trouble> {
    loop {
        match Frame::take_any(rest) {
            Ok(Some((mut frame, sealed))) => {
                let is_sealed = sealed.is_some();
                let admitted = admit(opener.as_deref_mut(), &mut frame, sealed);
                return match (admitted, frame.kind) {
                    (Ok(()), FrameKind::Refusal) => Err(refusal(&frame)),
                    (Ok(()), found) if found == kind => frame.message().map_err(|_| Trouble::garbled()),
                    (Err(_), FrameKind::Refusal) if !is_sealed => Err(refusal(&frame).unproven()),
                    _ => Err(Trouble::garbled()),
                };
            }
            Ok(None) => {}
            Err(_) => return Err(Trouble::garbled()),
        }
        let filled = rest.len();
        rest.resize(filled + READ_BYTES, 0);
        let n = reader.read(&mut rest[filled..]).await.map_err(|error| Trouble::broken(&error))?;
        rest.truncate(filled + n);
        if n == 0 {
            let words = "it closed the connection during the handshake";
            return Err(Trouble::told(Status::Unavailable, words));
        }
    }
}

/// The error of a refusal.
pub(super) fn refusal(frame: &Frame) -> Trouble {
    match frame.message::<Refusal>() {
        Ok(Refusal { status, words }) => Trouble::told(status, words.0),
        Err(_) => Trouble::garbled(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_within_the_process_or_the_machine_is_tried_before_the_network() {
        let all = ["tcp:127.0.0.1:7000", "tcp:127.0.0.1:6000", "unix:/run/shoal", "local:a"];
        let mut addresses: Vec<Address> = all.iter().filter_map(|text| text.parse().ok()).collect();
        nearest_first(&mut addresses);
        let tried: Vec<String> = addresses.iter().map(Address::to_string).collect();
        assert_eq!(tried, ["local:a", "unix:/run/shoal", "tcp:127.0.0.1:7000", "tcp:127.0.0.1:6000"]);
    }
}
