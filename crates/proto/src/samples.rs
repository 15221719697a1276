//! One value of every message, for tests, fixtures and fuzzing corpora. The tests count the variants, so
//! they find a new variant that is missing here.

mod sealed;

pub use sealed::{ends, sealed_frames};

use crate::message::{Attach, Attached, Challenge, Hello, Refusal};
use crate::*;
use bytes::Bytes;
use shoal_pattern::Pattern;

/// A name.
pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("samples use valid names")
}

/// An object.
pub fn attr() -> Attr {
    Attr {
        handle: Handle::new(ServerId(3), 77),
        kind: Kind::File,
        mode: 0o640,
        uid: 1000,
        gid: 100,
        nlink: 2,
        rdev: 0,
        size: 12_345,
        space: 16_384,
        atime: Time(-1),
        mtime: Time(1),
        ctime: Time(2),
        btime: Time(3),
        generation: Generation(4),
        parent: Handle(0),
        template: Template::default(),
        layout: Some(layout()),
        shards: shards(),
    }
}

/// Shards on two servers.
pub fn shards() -> Shards {
    Shards::over([ServerId(0), ServerId(1)])
}

/// A layout over three servers.
pub fn layout() -> Layout {
    let datafiles: Vec<Handle> = (0..3).map(|server| Handle::new(ServerId(server), 9)).collect();
    Layout {
        dist: Dist::SimpleStripe { strip: 65_536 },
        datafiles: datafiles.into(),
        generation: Generation(5),
    }
}

/// A capability.
pub fn capability() -> Capability {
    Capability::sign(&SecretKey::new([7; 32]), CollectionId(1), Handle(77), Rights::READ, Time(99))
}

/// A lock in another's way.
pub fn lock_holder() -> LockHolder {
    let range = LockRange { first: 10, last: u64::MAX };
    LockHolder { client: ClientId([3; 16]), owner: LockOwner(9), range, kind: LockKind::Exclusive, pid: 77 }
}

/// A strided transfer.
pub fn transfer() -> Transfer {
    let pattern = Pattern::strided(10, 8, 4096, 100).expect("a small pattern");
    Transfer {
        stream: Handle::CURRENT,
        generation: Generation(1),
        capability: Some(capability()),
        window_from: 16,
        window_len: 400,
        pattern,
        share: Share { dist: Dist::SimpleStripe { strip: 4096 }, width: 3, index: 1 },
    }
}

/// The map of a cluster of two.
pub fn map() -> ClusterMap {
    let server = |id: u16| ServerInfo {
        store: StoreId(u64::from(id) + 40),
        retired: vec![StoreId(39)].into(),
        moved: u32::from(id),
        ..ServerInfo::new(
            ServerId(id),
            vec![Text(format!("tcp:127.0.0.1:{}", 7441 + id))],
            Roles::METADATA | Roles::DATA,
        )
    };
    ClusterMap {
        fs_id: [1; 16],
        name: "demo".into(),
        collection: CollectionId(1),
        epoch: 2,
        template: Template::default(),
        switches: Switches::default(),
        servers: vec![server(0), server(1)].into(),
        keys: vec![mount_key(7, "lab"), MountKey { revoked: true, ..mount_key(8, "former") }].into(),
    }
}

/// A mount key that is let in.
pub fn mount_key(id: u64, name: &str) -> MountKey {
    MountKey { id: MountKeyId(id), name: name.into(), limits: KeyLimits::READ_ONLY, revoked: false }
}

fn blob<const N: usize>(bytes: &'static [u8]) -> Blob<N> {
    Blob(Bytes::from_static(bytes))
}

/// Every operation.
pub fn ops() -> Vec<Op> {
    let LockHolder { owner: locker, range, kind, .. } = lock_holder();
    let (dir, object, stream) = (Handle::ROOT, Handle(77), Handle(78));
    let owner = Owner { mode: 0o755, uid: 1, gid: 2 };
    let held = Held { handles: vec![object].into(), any: false };
    let generation = Generation(3);
    let tx = TxId(5);
    vec![
        Op::Lookup { dir, path: vec![name("usr"), name("include")].into() },
        Op::Getattr { object },
        Op::Setattr {
            object,
            set: SetAttr { mode: Some(0o600), mtime: Some(Time(4)), ..SetAttr::default() },
        },
        Op::Create {
            dir,
            name: name("f"),
            owner,
            exclusive: true,
            open: Rights::READ | Rights::WRITE,
            template: Some(Template { dist: Dist::Basic, width: 1 }),
        },
        Op::Mknod { dir, name: name("p"), owner, kind: Kind::Fifo, rdev: 7 },
        Op::Symlink { dir, name: name("l"), owner, target: blob(b"../x") },
        Op::Mkdir { dir, name: name("d"), owner },
        Op::Unlink { dir, name: name("f"), held: held.clone() },
        Op::Rmdir { dir, name: name("d") },
        Op::Rename {
            from_dir: dir,
            from_name: name("a"),
            to_dir: dir,
            to_name: name("b"),
            no_replace: true,
            exchange: false,
            held,
        },
        Op::Link { object, dir, name: name("h") },
        Op::Readlink { object },
        Op::Readdir {
            dir,
            after: Some(Place { hash: 9, name: blob(b"x") }),
            bytes_max: 4096,
            plus: true,
            data_max: 512,
            in_shard: true,
        },
        Op::Getxattr { object, name: blob(b"user.a") },
        Op::Setxattr { object, name: blob(b"user.a"), value: blob(b"v"), create: true, replace: false },
        Op::Listxattr { object },
        Op::Removexattr { object, name: blob(b"user.a") },
        Op::Open { object, rights: Rights::READ },
        Op::Release { object },
        Op::Hold { objects: vec![object].into() },
        Op::Lock { object, owner: locker, range, kind, pid: 77, call: 5, wait: true, wait_ms: 20_000 },
        Op::Unlock { object, owner: locker, range },
        Op::Getlk { object, owner: locker, range, kind },
        Op::Reclaim {
            claims: vec![LockClaim { object, owner: locker, range, kind, pid: 77 }].into(),
            last: true,
        },
        Op::Unwait { object, owner: locker, range, kind, call: 5 },
        Op::Fence { object },
        Op::Statfs {},
        Op::Setlayout { object, template: Template::default() },
        Op::Read { transfer: transfer() },
        Op::Write { transfer: transfer(), len: 400 },
        Op::Append { object, capability: None, len: 3, laid_out: true },
        Op::Truncate { object, size: 1 << 40, kill_privileges: true },
        Op::Allocate { stream, generation, capability: None, from: 0, len: 10, mode: Allocation::Punch },
        Op::Fsync { stream, generation: Generation(3) },
        Op::Streamstat { stream },
        Op::Dropcache { stream },
        Op::Unstuff { object },
        Op::Createmeta {
            dir,
            name: name("f"),
            owner,
            open: Rights::WRITE,
            template: Template { dist: Dist::Basic, width: 1 },
        },
        Op::Createdata { owner: object },
        Op::Laydata { object, datafiles: vec![stream].into() },
        Op::Crdirent { dir, name: name("f"), object, kind: Kind::File },
        Op::Rmdirent { dir, name: name("f") },
        Op::Removemeta { object, held: true },
        Op::Removedata { owner: object, datafile: stream },
        Op::Settle { object, ticket: Handle(6), held: true },
        Op::Vouchentry { dir, name: name("f"), object, client: ClientId([3; 16]), refuse: true },
        Op::Vouchdata { owner: object, datafile: stream, refuse: false },
        Op::Discard { object },
        Op::Split { dir, entries: 4096 },
        Op::Draw { count: 64 },
        Op::Entry { dir, name: name("f") },
        Op::Prepare {
            tx,
            actions: first_actions().into(),
            participants: vec![ServerId(1), ServerId(2)].into(),
        },
        Op::Finish { tx, decision: Decision::Commit },
        Op::Outcome { tx },
        Op::Reap { dead: vec![op::Dead { datafile: stream, owner: object }].into() },
        Op::Batchcreate { pool: 7, sequence: 3, count: 1024 },
        Op::Ping {},
        Op::Map {},
        Op::Setmap { map: map() },
        Op::Moveserver {
            server: crate::ServerId(1),
            addresses: vec!["tcp:node7:7441".into()].into(),
            moved: 2,
        },
        Op::Setkey { key: mount_key(9, "backup") },
        Op::Addserver { addresses: vec!["tcp:127.0.0.1:1".into()].into(), roles: Roles::DATA },
        Op::Status {},
        Op::Rows { prefix: blob(b"a"), after: blob(b""), limit: 100 },
        Op::Repair { actions: first_actions().into() },
        Op::Setsync { metadata: "reply".into(), data: "fsync".into(), coalescing: "watermark:1:8".into() },
        Op::Sync {},
        Op::Checkfiles { streams: vec![stream, object].into() },
        Op::Renew { servers: vec![ServerId(1)].into(), map: map() },
        Op::Yield { bytes: 1 << 20 },
        Op::Remember { position: 900 },
        Op::Mkforked {
            dir,
            name: name("d"),
            owner,
            subfiles: 4,
            servers: vec![ServerId(1), ServerId(0)].into(),
            replace: true,
        },
        Op::Rmforked { dir, name: name("d"), object },
    ]
}

/// Every action.
pub fn actions() -> Vec<Action> {
    let (object, generation) = (Handle(77), Generation(2));
    let mut all = first_actions();
    all.extend([
        Action::RowRemove { server: ServerId(1), key: blob(b"x"), expect: blob(b"value") },
        Action::StreamAdopt { attr: attr() },
        Action::StreamCreate { stream: object, generation },
        Action::DatafileAdopt { datafile: Handle(5), owner: object },
        Action::Retire { pool: ServerId(1), first: Handle(1024), count: 2 },
        Action::ShardCreate {
            shard: ServerId(1),
            attr: attr(),
            entries: vec![ShardEntry { name: name("f"), handle: object, kind: Kind::File }].into(),
        },
        Action::ShardKeep { shard: ServerId(0), dir: Handle::ROOT, shards: shards() },
        Action::ShardSet {
            shard: ServerId(1),
            dir: Handle::ROOT,
            set: SetAttr { mode: Some(0o700), ..SetAttr::default() },
            template: Some(Template::default()),
            time: Time(8),
        },
        Action::ShardCount { shard: ServerId(1), dir: Handle::ROOT, expect: Time(8), nlink: 3, entries: 7 },
        Action::ForkedCreate {
            attr: Attr { kind: Kind::Directory, template: Template { dist: Dist::Fork, width: 1 }, ..attr() },
            entries: vec![ShardEntry { name: name("0"), handle: object, kind: Kind::Directory }].into(),
        },
        Action::ForkedRemove { file: Handle(78), subfiles: vec![object].into() },
    ]);
    all
}

/// Those of the frames' fixtures. Later additions do not change the fixtures: a server that does not know
/// them refuses them.
fn first_actions() -> Vec<Action> {
    let (dir, object, time) = (Handle::ROOT, Handle(77), Time(8));
    let (expect, generation) = (Generation(1), Generation(2));
    vec![
        Action::EntryPut {
            shard: ServerId(0),
            dir,
            name: name("f"),
            handle: object,
            kind: Kind::File,
            expect: None,
            subdirs: 0,
            time,
        },
        Action::EntryRemove { shard: ServerId(0), dir, name: name("f"), expect: object, subdirs: -1, time },
        Action::ObjectCreate { attr: attr() },
        Action::DatafileCreate { datafile: Handle(5), owner: object, generation },
        Action::DirectoryRemove { shard: ServerId(1), dir, split: true },
        Action::Links { object, delta: -1, time, client: ClientId([3; 16]), held: true },
        Action::Touch { object, time },
        Action::Reparent { dir, expect: dir, parent: object, time },
        Action::RenameLock {},
        Action::LayoutSet { object, expect, layout: layout(), time },
        Action::StreamAdvance {
            stream: object,
            owner: object,
            expect,
            generation,
            size: Some(4),
            written_at: Some(time),
        },
        Action::AttrSet { attr: attr(), expect },
        Action::ObjectRemove { object },
        Action::LinksSet { object, nlink: 2 },
        Action::DatafileRemove { datafile: Handle(5), owner: object },
    ]
}

/// Every answer.
pub fn answers() -> Vec<Answer> {
    let count = ChangeCount(6);
    let facts =
        StreamFacts { generation: Generation(2), size: 10, space: 512, written_at: Some(Time(3)), count };
    let moves =
        vec![Move { from: ChangeCount(4), to: ChangeCount(5) }, Move { from: ChangeCount(5), to: count }];
    let entry =
        Entry { name: name("f"), handle: Handle(77), kind: Kind::File, place: 1 << 62, attr: Some(attr()) };
    vec![
        Answer::Done {},
        Answer::Looked { resolved: 2, handle: Handle(77), kind: Kind::File, attr: Some(attr()) },
        Answer::Attr { attr: attr(), count },
        Answer::Made { attr: attr(), capability: Some(capability()), created: true, count },
        Answer::Bytes { bytes: blob(b"target") },
        Answer::Entries { entries: vec![entry.clone()].into(), end: true, contents: vec![Some(7)].into() },
        Answer::Removed { handle: Handle(77), kind: Kind::File, orphaned: false },
        Answer::Data { len: 10, facts },
        Answer::Sent { upto: 400, facts },
        Answer::Facts { facts, moves: moves.into() },
        Answer::Appended { offset: 5, size: 10 },
        Answer::Synced {},
        Answer::Laid { layout: layout() },
        Answer::Locked { state: LockState::Queued },
        Answer::Holder { holder: Some(lock_holder()) },
        Answer::Claimed { refused: vec![3].into() },
        Answer::Space { total: 100, available: 50, objects: 3, disk: 7 },
        Answer::Handles { handles: vec![Handle(1), Handle(2)].into() },
        Answer::Fact { entry: Some(entry) },
        Answer::Decided { decision: Some(Decision::Abort) },
        Answer::Map { map: map() },
        Answer::Json { json: blob(b"{}") },
        Answer::Unnamed { handle: Handle(77), kind: Kind::File, ticket: Handle(6) },
        Answer::Holding { removed: vec![Handle(6)].into() },
        Answer::Yielded { bytes: 77 },
        Answer::Parted { datafiles: vec![Handle(5)].into(), orphaned: false, linked: true },
        Answer::Vouched { vouched: Vouched::NotYet },
        Answer::Rows { rows: vec![op::Row { key: blob(b"k"), value: blob(b"v") }].into(), end: false },
        Answer::Batch { first: Handle(1024), count: 1024 },
        Answer::Split { dir: Handle::ROOT, shards: shards(), key: PlaceKey::new([4; 32]) },
    ]
}

/// A piece of a long read.
pub fn piece() -> message::Piece {
    let facts = StreamFacts {
        generation: Generation(2),
        size: 10,
        space: 512,
        written_at: Some(Time(3)),
        count: ChangeCount(8),
    };
    message::Piece { from: 16, len: 400, facts }
}

/// A request of every operation, one group each.
pub fn request() -> Request {
    let groups: Vec<Group> = ops().into_iter().map(|op| Group { ops: vec![op].into() }).collect();
    Request {
        slot: Some(SlotUse { slot: Slot(3), sequence: 9 }),
        timeout_ms: 30_000,
        durability: Durability::Durable,
        groups: groups.into(),
    }
}

/// A reply of every answer.
pub fn reply() -> Reply {
    let group = |answer| GroupReply { status: Status::Ok, answers: vec![answer].into() };
    let mut groups: Vec<GroupReply> = answers().into_iter().map(group).collect();
    groups.push(GroupReply { status: Status::NotFound, answers: Vec::new().into() });
    Reply { loss: message::Loss { kept: 42, start: 43 }, map_epoch: 2, groups: groups.into() }
}

/// One frame of every kind, as bytes with a little bulk data after requests and replies.
pub fn frames() -> Vec<(FrameKind, Vec<u8>)> {
    let version = message::VERSIONS.1;
    let frame = |kind, put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        (kind, out)
    };
    let hello = Hello { version_min: version, version_max: version, fs_id: [1; 16], nonce: [2; 32] };
    let challenge = Challenge {
        version,
        nonce: [3; 32],
        server: ServerId(1),
        store: StoreId(41),
        map_epoch: 6,
        proof: [4; 32],
        peer_proof: [8; 32],
        seal: Seal::All,
    };
    let attach = Attach {
        proof: [5; 32],
        collection: CollectionId(1),
        client: ClientId([6; 16]),
        peer: Some(message::Peer { server: ServerId(1), store: StoreId(41), position: 900 }),
        session: Some(SessionId(7)),
        slots: 64,
        client_key: Some([9; 32]),
    };
    let attached = Attached {
        session: SessionId(7),
        slots: 64,
        lease_ms: 60_000,
        credit_bytes: limits::CREDIT_BYTES as u32,
        eager_bytes: limits::EAGER_BYTES_MAX as u32,
        map_epoch: 2,
        loss: 42,
    };
    let refusal = Refusal { status: Status::BadKey, words: "the key does not match".into() };
    vec![
        frame(FrameKind::Hello, &|out| Frame::put(FrameKind::Hello, version, 0, &hello, 0, out)),
        frame(FrameKind::Challenge, &|out| Frame::put(FrameKind::Challenge, version, 0, &challenge, 0, out)),
        frame(FrameKind::Attach, &|out| Frame::put(FrameKind::Attach, version, 0, &attach, 0, out)),
        frame(FrameKind::Attached, &|out| Frame::put(FrameKind::Attached, version, 0, &attached, 0, out)),
        frame(FrameKind::Request, &|out| {
            Frame::put(FrameKind::Request, version, 1, &request(), 4, out);
            out.extend_from_slice(b"bulk");
        }),
        frame(FrameKind::Reply, &|out| {
            Frame::put(FrameKind::Reply, version, 1, &reply(), 4, out);
            out.extend_from_slice(b"bulk");
        }),
        frame(FrameKind::Refusal, &|out| Frame::put(FrameKind::Refusal, version, 0, &refusal, 0, out)),
        frame(FrameKind::Piece, &|out| {
            Frame::put(FrameKind::Piece, version, 1, &piece(), 4, out);
            out.extend_from_slice(b"bulk");
        }),
        frame(FrameKind::Leave, &|out| {
            Frame::put(FrameKind::Leave, version, 0, &message::Leave { request: 1 }, 0, out)
        }),
        frame(FrameKind::Grant, &|out| {
            Frame::put(FrameKind::Grant, version, 1, &message::Grant { from: 16, len: 400 }, 0, out)
        }),
        frame(FrameKind::Give, &|out| {
            Frame::put(FrameKind::Give, version, 1, &message::Give { from: 16, len: 400 }, 4, out);
            out.extend_from_slice(b"bulk");
        }),
    ]
}
