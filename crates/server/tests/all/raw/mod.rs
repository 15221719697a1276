//! A cluster of servers in one thread, and a client that speaks frames by hand.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod held;

use bytes::{Bytes, BytesMut};
use shoal_env::{Address, Env, Reader, Writer};
use shoal_proto::message::{
    Attach, Attached, Challenge, Give, Grant, Hello, Leave, Loss, Refusal, VERSION_OF_SEALS, VERSIONS,
};
use shoal_proto::op::Owner;
use shoal_proto::seal::{Ends, Handshake, PrivateKey, admit};
use shoal_proto::{
    Answer, ClientId, ClusterMap, CollectionId, Durability, Frame, FrameKind, Group, GroupReply, Handle,
    Keys, MountKeyId, Name, Op, Reply, Request, Rights, Roles, SecretKey, ServerId, ServerInfo, SessionId,
    Slot, SlotUse, Status, StoreId, Template,
};
use shoal_server::{AuditConfig, CollectionSetup, ServerConfig, ServerHandle, Settings, serve};
use shoal_store::{Collection, CollectionConfig, Identity, ModuleKind};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub const KEY: SecretKey = SecretKey::new([7; 32]);
/// The servers' key.
pub const SERVER_KEY: SecretKey = SecretKey::new([17; 32]);

/// A server's keys: each role has its own.
pub fn keys() -> Keys {
    Keys { mount: KEY, admin: None, server: SERVER_KEY, place: SecretKey::new([27; 32]) }
}
pub const FS: [u8; 16] = *b"a test's cluster";
pub const COLLECTION: CollectionId = CollectionId(3);

/// Run a test in the real world; it fails rather than hangs.
pub fn run<F: Future<Output = ()>>(body: impl FnOnce(Env) -> F) {
    shoal_env::real::run("test", |env| async move {
        let until = env.now() + Duration::from_secs(60);
        env.deadline(until, body(env.clone())).await.expect("the test hangs");
    });
}

/// Servers over memory stores that outlive them.
pub struct Cluster {
    pub env: Env,
    pub map: ClusterMap,
    pub stores: Vec<Collection>,
    pub servers: Vec<Option<ServerHandle>>,
    pub settings: Settings,
    pub keys: Keys,
    /// The audit log of a cluster of one server.
    pub audit: Option<AuditConfig>,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    pub async fn new(env: &Env, count: u16) -> Cluster {
        Cluster::with(env, count, Settings::default()).await
    }

    pub async fn with(env: &Env, count: u16, settings: Settings) -> Cluster {
        Cluster::of(env, count, settings, |_| ()).await
    }

    /// Servers of a map that is changed before they start.
    pub async fn of(env: &Env, count: u16, settings: Settings, change: impl Fn(&mut ClusterMap)) -> Cluster {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let servers: Vec<ServerInfo> = (0..count)
            .map(|i| {
                let address = format!("local:server-{number}-{i}");
                ServerInfo::new(ServerId(i), vec![address.into()], Roles::all())
            })
            .collect();
        let mut map = ClusterMap {
            fs_id: FS,
            name: "test".into(),
            collection: COLLECTION,
            epoch: 1,
            template: Template::default(),
            switches: shoal_proto::Switches::default(),
            servers: servers.into(),
            keys: Vec::new().into(),
        };
        change(&mut map);
        let mut cluster = Cluster {
            env: env.clone(),
            map,
            stores: Vec::new(),
            servers: Vec::new(),
            settings,
            keys: keys(),
            audit: None,
        };
        for i in 0..count {
            let identity = Identity { fs: FS, collection: COLLECTION.0, server: i };
            let config = CollectionConfig::new("/nowhere", ModuleKind::Memory, identity);
            cluster.stores.push(shoal_store::open(env.clone(), config).await.unwrap());
            cluster.servers.push(None);
            cluster.start(i).await;
        }
        cluster
    }

    pub fn address(&self, server: u16) -> Address {
        self.map.servers[usize::from(server)].addresses[0].0.parse().unwrap()
    }

    pub async fn start(&mut self, server: u16) {
        self.try_start(server).await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub async fn try_start(&mut self, server: u16) -> Result<(), shoal_server::ServeError> {
        loop {
            let config = ServerConfig {
                id: ServerId(server),
                listen: vec![self.address(server)],
                collections: vec![CollectionSetup {
                    store: self.stores[usize::from(server)].clone(),
                    map: self.map.clone(),
                    keys: Some(self.keys.clone()),
                    root: Owner { mode: 0o755, uid: 0, gid: 0 },
                }],
                settings: self.settings,
                polling: Duration::ZERO,
                audit: self.audit.clone(),
            };
            match serve(self.env.clone(), config).await {
                Ok(handle) => {
                    self.servers[usize::from(server)] = Some(handle);
                    return Ok(());
                }
                // The listener of a server that was just killed goes with its task's next turn.
                Err(shoal_server::ServeError::Listen(..)) => self.env.sleep(Duration::from_millis(1)).await,
                Err(error) => return Err(error),
            }
        }
    }

    pub fn kill(&mut self, server: u16) {
        self.servers[usize::from(server)].take().unwrap().abandon();
    }

    pub fn shard(&self, server: u16) -> &shoal_server::Shard {
        &self.servers[usize::from(server)].as_ref().unwrap().shards()[0]
    }

    pub async fn client(&self, server: u16) -> Raw {
        Raw::attach(self, server, Wish::default()).await.unwrap()
    }

    /// A directory that lives on `server`, by its name in the root.
    pub async fn directory_on(&self, client: &mut Raw, server: u16) -> (Name, Handle) {
        for i in 0.. {
            let name = name(&format!("dir-{server}-{i}"));
            let made = client.change(vec![mkdir(Handle::ROOT, &name)]).await;
            let handle = handle_of(&made);
            if handle.server() == ServerId(server) {
                return (name, handle);
            }
        }
        unreachable!()
    }
}

/// How a connection introduces itself.
pub struct Wish {
    pub versions: (u16, u16),
    pub fs: [u8; 16],
    pub key: SecretKey,
    /// The id of the mount key `key`.
    pub mount: MountKeyId,
    pub collection: CollectionId,
    pub client: ClientId,
    /// The random bytes of the client's own key.
    pub secret: [u8; 32],
    pub peer: Option<ServerId>,
    /// The key by which a peer proves itself.
    pub peer_key: SecretKey,
    /// The peer's store, and how far it is durable.
    pub store: (StoreId, u64),
    pub session: Option<SessionId>,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            versions: VERSIONS,
            fs: FS,
            key: KEY,
            mount: MountKeyId::FIRST,
            collection: COLLECTION,
            client: ClientId([1; 16]),
            secret: [11; 32],
            peer: None,
            peer_key: SERVER_KEY,
            store: (StoreId::NONE, 0),
            session: None,
        }
    }
}

/// A connection.
pub struct Raw {
    reader: Reader,
    writer: Writer,
    buf: BytesMut,
    next_tag: u64,
    version: u16,
    /// Seals and checks the frames, where the server requires it.
    pub ends: Option<Ends>,
    /// All bytes that were sent.
    pub sent: Vec<u8>,
    pub attached: Attached,
    pub sequence: u64,
    /// Asked for with each request.
    pub durability: Durability,
    /// How long the server may take for each request.
    pub timeout_ms: u32,
    /// The loss that the last reply stated.
    pub loss: Loss,
}

impl Raw {
    /// A connection on which nothing was said.
    pub async fn unattached(cluster: &Cluster, server: u16) -> Raw {
        let stream = cluster.env.connect(&cluster.address(server)).await.unwrap();
        Raw {
            reader: stream.reader,
            writer: stream.writer,
            buf: BytesMut::new(),
            next_tag: 1,
            version: VERSIONS.1,
            ends: None,
            sent: Vec::new(),
            attached: Attached {
                session: SessionId(0),
                slots: 0,
                lease_ms: 0,
                credit_bytes: 0,
                eager_bytes: 0,
                map_epoch: 0,
                loss: 0,
            },
            sequence: 0,
            durability: Durability::Usual,
            timeout_ms: 20_000,
            loss: Loss::default(),
        }
    }

    pub async fn attach(cluster: &Cluster, server: u16, wish: Wish) -> Result<Raw, Refusal> {
        let mut attached = Raw::unattached(cluster, server).await;
        attached.version = wish.versions.1;
        let mut random = [0; 32];
        cluster.env.random(&mut random);
        let private = PrivateKey::new(random);
        let nonce = private.public();
        let (version_min, version_max) = wish.versions;
        let hello = Hello { version_min, version_max, fs_id: wish.fs, nonce };
        attached.put(FrameKind::Hello, wish.mount.0, &hello, Bytes::new()).await;
        let challenge: Challenge = attached.expect(FrameKind::Challenge).await?;
        assert_eq!(challenge.server, ServerId(server));
        if wish.key == KEY && wish.mount == MountKeyId::FIRST {
            assert!(challenge.is_proven(&KEY, &hello));
        }
        let mut attach = Attach {
            proof: [0; 32],
            collection: wish.collection,
            client: wish.client,
            peer: wish.peer.map(|server| shoal_proto::Peer {
                server,
                store: wish.store.0,
                position: wish.store.1,
            }),
            session: wish.session,
            slots: 64,
            client_key: None,
        };
        attached.version = challenge.version;
        let own = PrivateKey::new(wish.secret);
        let mut shared = None;
        if challenge.version >= VERSION_OF_SEALS && wish.peer.is_none() {
            attach.client_key = Some(own.public());
            shared = own.exchange(&challenge.nonce);
        }
        let key = if wish.peer.is_some() { &wish.peer_key } else { &wish.key };
        attach.prove(key, &hello, &challenge, shared.as_ref());
        attached.put(FrameKind::Attach, 0, &attach, Bytes::new()).await;
        if challenge.seal.is_on() {
            let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
            attached.ends = Some(handshake.end_of_client(key, &private.exchange(&challenge.nonce).unwrap()));
        }
        attached.attached = attached.expect(FrameKind::Attached).await?;
        Ok(attached)
    }

    pub async fn put_bytes(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        self.writer.write_all(&mut [IoSlice::new(bytes)]).await.unwrap();
    }

    async fn put<T: shoal_proto::codec::Codec>(
        &mut self,
        kind: FrameKind,
        tag: u64,
        message: &T,
        bulk: Bytes,
    ) {
        let out = self.frame_bytes(kind, tag, message, &bulk);
        self.put_bytes(&out).await;
    }

    /// The bytes of the next frame, as an honest client sends it.
    pub fn frame_bytes<T: shoal_proto::codec::Codec>(
        &mut self,
        kind: FrameKind,
        tag: u64,
        message: &T,
        bulk: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        Frame::put(kind, self.version, tag, message, bulk.len(), &mut out);
        match &mut self.ends {
            Some(ends) => ends.sealer.seal_whole(&mut out, 0, bulk),
            None => out.extend_from_slice(bulk),
        }
        out
    }

    /// Bytes that come, as they are; their frames are still to be taken.
    pub async fn some_bytes(&mut self) -> Vec<u8> {
        let mut some = vec![0; 4096];
        let n = self.reader.read(&mut some).await.unwrap();
        some.truncate(n);
        self.buf.extend_from_slice(&some);
        some
    }

    /// The next frame; `None` at the end of the stream.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some((mut frame, sealed)) = Frame::take_any(&mut self.buf).unwrap() {
                let opener = self.ends.as_mut().map(|ends| &mut ends.opener);
                let is_early = self.attached.session == SessionId(0) && frame.kind == FrameKind::Refusal;
                // A side that has the wrong key cannot seal its refusal.
                if !(is_early && sealed.is_none()) {
                    admit(opener, &mut frame, sealed).unwrap();
                }
                return Some(frame);
            }
            let mut some = [0; 4096];
            match self.reader.read(&mut some).await {
                Ok(n) if n > 0 => self.buf.extend_from_slice(&some[..n]),
                _ => return None,
            }
        }
    }

    async fn expect<T: shoal_proto::codec::Codec>(&mut self, kind: FrameKind) -> Result<T, Refusal> {
        let frame = self.frame().await.expect("the connection ended");
        if frame.kind == FrameKind::Refusal {
            return Err(frame.message().unwrap());
        }
        assert_eq!(frame.kind, kind);
        Ok(frame.message().unwrap())
    }

    /// Send a request; its tag.
    pub async fn send(&mut self, slot: Option<SlotUse>, groups: Vec<Vec<Op>>, bulk: Bytes) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let groups: Vec<Group> = groups.into_iter().map(|ops| Group { ops: ops.into() }).collect();
        let (timeout_ms, durability) = (self.timeout_ms, self.durability);
        let request = Request { slot, timeout_ms, durability, groups: groups.into() };
        self.put(FrameKind::Request, tag, &request, bulk).await;
        tag
    }

    /// The next request has the tag of the last one.
    pub fn repeat_tag(&mut self) {
        self.next_tag -= 1;
    }

    /// A long read is awaited no longer.
    pub async fn leave(&mut self, request: u64) {
        self.put(FrameKind::Leave, 0, &Leave { request }, Bytes::new()).await;
    }

    /// A part of a long write.
    pub async fn give(&mut self, tag: u64, Grant { from, len }: Grant, bulk: Bytes) {
        self.put(FrameKind::Give, tag, &Give { from, len }, bulk).await;
    }

    /// The tag of the last request.
    pub fn last_tag(&self) -> u64 {
        self.next_tag - 1
    }

    /// The next reply.
    pub async fn reply(&mut self) -> (u64, Vec<GroupReply>, Bytes) {
        let frame = self.frame().await.expect("the connection ended");
        assert_eq!(frame.kind, FrameKind::Reply, "{:?}", frame.message::<Refusal>());
        let reply: Reply = frame.message().unwrap();
        self.loss = reply.loss;
        (frame.tag, reply.groups.0, frame.bulk)
    }

    /// Ask a group of reads (or of a peer's operations).
    pub async fn ask(&mut self, ops: Vec<Op>) -> GroupReply {
        let tag = self.send(None, vec![ops], Bytes::new()).await;
        let (replied, mut groups, _) = self.reply().await;
        assert_eq!(tag, replied);
        groups.remove(0)
    }

    /// A change in slot 0, in sequence.
    pub async fn change(&mut self, ops: Vec<Op>) -> GroupReply {
        self.sequence += 1;
        let slot = slot(0, self.sequence);
        self.change_in(slot, ops).await
    }

    /// A change in a slot.
    pub async fn change_in(&mut self, slot: SlotUse, ops: Vec<Op>) -> GroupReply {
        let tag = self.send(Some(slot), vec![ops], Bytes::new()).await;
        let (replied, mut groups, _) = self.reply().await;
        assert_eq!(tag, replied);
        groups.remove(0)
    }
}

pub fn slot(slot: u16, sequence: u64) -> SlotUse {
    SlotUse { slot: Slot(slot), sequence }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub const OWNER: Owner = Owner { mode: 0o644, uid: 10, gid: 20 };

pub fn create(dir: Handle, name: &Name) -> Op {
    Op::Create {
        dir,
        name: name.clone(),
        owner: OWNER,
        exclusive: true,
        open: Rights::READ | Rights::WRITE,
        template: None,
    }
}

pub fn mkdir(dir: Handle, name: &Name) -> Op {
    Op::Mkdir { dir, name: name.clone(), owner: OWNER }
}

pub fn unlink(dir: Handle, name: &Name) -> Op {
    Op::Unlink { dir, name: name.clone(), held: Default::default() }
}

pub fn lookup(dir: Handle, name: &Name) -> Op {
    Op::Lookup { dir, path: vec![name.clone()].into() }
}

pub fn entry(dir: Handle, name: &Name) -> Op {
    Op::Entry { dir, name: name.clone() }
}

/// The handle of the object that a reply says was made or found.
#[track_caller]
pub fn handle_of(reply: &GroupReply) -> Handle {
    assert_eq!(reply.status, Status::Ok);
    match &reply.answers[0] {
        Answer::Made { attr, .. } | Answer::Attr { attr, .. } => attr.handle,
        Answer::Looked { handle, .. } => *handle,
        other => panic!("{other:?}"),
    }
}

/// Wait for something that happens by itself soon.
pub async fn until(env: &Env, what: impl Fn() -> bool) {
    while !what() {
        env.sleep(Duration::from_millis(1)).await;
    }
}
