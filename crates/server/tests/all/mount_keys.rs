//! Mount keys with names: each key opens sessions of its own until it is revoked, on every server, and a
//! read-only key changes nothing.

use crate::raw::*;
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::message::{Refusal, VERSION_OF_NAMED_KEYS, VERSIONS};
use shoal_proto::mount_keys::NOBODY;
use shoal_proto::op::{Owner, Transfer};
use shoal_proto::{
    Answer, Blob, Capability, ClientId, ClusterMap, FrameKind, Handle, KeyLimits, Keys, Kind, LockKind,
    LockOwner, LockRange, MountKey, MountKeyId, Op, Rights, SecretKey, SetAttr, Share, Status, limits,
    samples,
};
use shoal_server::Settings;
use std::collections::BTreeSet;
use std::time::Duration;

const ADMIN_KEY: SecretKey = SecretKey::new([37; 32]);
/// Every server refuses a revoked key within this time.
const REVOKED_WITHIN: Duration = Duration::from_secs(10);
const LAB: u64 = 7;
const OTHER: u64 = 8;

fn key(id: u64, name: &str, limits: KeyLimits) -> MountKey {
    MountKey { id: MountKeyId(id), name: name.into(), limits, revoked: false }
}

fn revoked(key: MountKey) -> MountKey {
    MountKey { revoked: true, ..key }
}

fn lab() -> MountKey {
    key(LAB, "lab", KeyLimits::default())
}

/// Of a client that holds the key of an id.
fn holder(cluster: &Cluster, id: u64, client: u8) -> Wish {
    let key = cluster.keys.named(&FS, MountKeyId(id));
    Wish { key, mount: MountKeyId(id), client: ClientId([client; 16]), ..Wish::default() }
}

async fn with_admin_key(env: &shoal_env::Env, count: u16) -> Cluster {
    with_admin_key_and(env, count, |_| ()).await
}

/// The same, of a map that is changed before they start.
async fn with_admin_key_and(env: &shoal_env::Env, count: u16, change: impl Fn(&mut ClusterMap)) -> Cluster {
    let mut cluster = Cluster::of(env, count, Settings::default(), change).await;
    cluster.keys.admin = Some(ADMIN_KEY);
    for server in 0..count {
        cluster.kill(server);
    }
    for server in 0..count {
        cluster.start(server).await;
    }
    cluster
}

/// The status of a change of the keys that this server is asked for.
async fn set(cluster: &Cluster, server: u16, key: MountKey) -> Status {
    let wish = Wish { key: ADMIN_KEY, client: ClientId([99; 16]), ..Wish::default() };
    let mut admin = Raw::attach(cluster, server, wish).await.unwrap();
    admin.ask(vec![Op::Setkey { key }]).await.status
}

async fn refused(cluster: &Cluster, server: u16, wish: Wish) -> Refusal {
    Raw::attach(cluster, server, wish).await.err().expect("it is refused")
}

fn knows(cluster: &Cluster, server: u16, key: &MountKey) -> bool {
    cluster.shard(server).identity().map.mount_key(key.id) == Some(key)
}

async fn all_know(cluster: &Cluster, key: &MountKey) {
    for server in 0..cluster.servers.len() as u16 {
        until(&cluster.env, || knows(cluster, server, key)).await;
    }
}

fn transfer(stream: Handle, generation: shoal_proto::Generation, capability: Option<Capability>) -> Transfer {
    Transfer {
        stream,
        generation,
        capability,
        pattern: Pattern::contiguous(0, 1).unwrap(),
        window_from: 0,
        window_len: 1,
        share: Share::WHOLE,
    }
}

#[test]
fn a_key_that_is_added_opens_sessions_on_every_server_beside_the_first_also_after_a_restart() {
    run(|env| async move {
        let mut cluster = with_admin_key(&env, 2).await;
        let unknown = refused(&cluster, 1, holder(&cluster, LAB, 2)).await;
        assert_eq!(unknown.status, Status::BadKey);
        assert!(unknown.words.0.contains("unknown key 0000000000000007"), "{}", unknown.words);
        assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        all_know(&cluster, &lab()).await;
        for again in [false, true] {
            if again {
                for server in 0..2 {
                    cluster.kill(server);
                }
                for server in 0..2 {
                    cluster.start(server).await;
                }
            }
            for server in 0..2 {
                let mut one = Raw::attach(&cluster, server, holder(&cluster, LAB, 2)).await.unwrap();
                let mut first = cluster.client(server).await;
                for client in [&mut one, &mut first] {
                    assert_eq!(client.ask(vec![Op::Statfs {}]).await.status, Status::Ok);
                }
                // Another key under its name, and its key under another name.
                let liar = Wish { key: KEY, ..holder(&cluster, LAB, 3) };
                assert_eq!(refused(&cluster, server, liar).await.status, Status::BadKey);
                let liar = Wish { mount: MountKeyId::FIRST, ..holder(&cluster, LAB, 3) };
                assert_eq!(refused(&cluster, server, liar).await.status, Status::BadKey);
            }
        }
    });
}

#[test]
fn a_key_that_one_server_revokes_ends_its_sessions_on_all_and_opens_none_also_after_a_restart() {
    run(|env| async move {
        let mut cluster = with_admin_key(&env, 3).await;
        let (lab, other) = (lab(), key(OTHER, "other", KeyLimits::default()));
        assert_eq!(set(&cluster, 0, lab.clone()).await, Status::Ok);
        assert_eq!(set(&cluster, 0, other.clone()).await, Status::Ok);
        all_know(&cluster, &lab).await;
        all_know(&cluster, &other).await;
        let mut stays = Raw::attach(&cluster, 1, holder(&cluster, OTHER, 3)).await.unwrap();
        let mut ends = Raw::attach(&cluster, 1, holder(&cluster, LAB, 2)).await.unwrap();
        assert_eq!(ends.ask(vec![Op::Ping {}]).await.status, Status::Ok);
        // One server is away meanwhile.
        cluster.kill(2);
        let begin = env.now();
        assert_eq!(set(&cluster, 0, revoked(lab.clone())).await, Status::Ok);
        let frame = ends.frame().await.expect("a refusal comes before the end");
        assert_eq!(frame.kind, FrameKind::Refusal);
        let refusal: Refusal = frame.message().unwrap();
        assert_eq!(refusal.status, Status::KeyRevoked);
        assert!(refusal.words.0.contains("this key was revoked: lab"), "{}", refusal.words);
        assert!(ends.frame().await.is_none(), "the connection ends");
        let sessions = || cluster.shard(1).sessions.of_client(ClientId([2; 16])).len();
        until(&env, || sessions() == 0).await;
        assert!(env.now().since(begin) < REVOKED_WITHIN);
        assert_eq!(stays.ask(vec![Op::Ping {}]).await.status, Status::Ok);
        cluster.start(2).await;
        all_know(&cluster, &revoked(lab.clone())).await;
        for server in 0..3 {
            cluster.kill(server);
        }
        for server in 0..3 {
            cluster.start(server).await;
        }
        for server in 0..3 {
            let refusal = refused(&cluster, server, holder(&cluster, LAB, 2)).await;
            assert_eq!(refusal.status, Status::KeyRevoked, "server {server}");
            // Only its holder learns that.
            let stranger = Wish { key: SecretKey::new([66; 32]), ..holder(&cluster, LAB, 2) };
            assert_eq!(refused(&cluster, server, stranger).await.status, Status::BadKey);
            assert!(Raw::attach(&cluster, server, holder(&cluster, OTHER, 3)).await.is_ok());
        }
        assert_eq!(set(&cluster, 1, lab).await, Status::Conflict, "it never comes back");
    });
}

#[test]
fn the_locks_of_a_revoked_key_are_free_for_others() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        let mut first = cluster.client(0).await;
        let object = handle_of(&first.change(vec![create(Handle::ROOT, &name("file"))]).await);
        let lock = |wait| Op::Lock {
            object,
            owner: LockOwner(1),
            range: LockRange { first: 0, last: u64::MAX },
            kind: LockKind::Exclusive,
            pid: 1,
            call: 1,
            wait,
            wait_ms: 15_000,
        };
        let mut ends = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        assert_eq!(ends.ask(vec![lock(false)]).await.status, Status::Ok);
        assert_eq!(set(&cluster, 0, revoked(lab())).await, Status::Ok);
        let begin = env.now();
        let locked = first.ask(vec![lock(true)]).await;
        let granted = Answer::Locked { state: shoal_proto::LockState::Granted };
        assert_eq!(locked.answers.0, vec![granted], "{locked:?}");
        assert!(env.now().since(begin) < REVOKED_WITHIN);
    });
}

#[test]
fn a_capability_opens_nothing_on_a_connection_with_another_key() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 2).await;
        for one in [lab(), key(OTHER, "other", KeyLimits::default())] {
            assert_eq!(set(&cluster, 0, one.clone()).await, Status::Ok);
            all_know(&cluster, &one).await;
        }
        let mut owner = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let made = owner.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let read =
            |capability| vec![Op::Read { transfer: transfer(attr.handle, attr.generation, capability) }];
        let mut again = Raw::attach(&cluster, 0, holder(&cluster, LAB, 4)).await.unwrap();
        assert_eq!(again.ask(read(*capability)).await.status, Status::Ok, "the key decides, not the client");
        let mut other = Raw::attach(&cluster, 0, holder(&cluster, OTHER, 3)).await.unwrap();
        let mut first = cluster.client(0).await;
        for thief in [&mut other, &mut first] {
            assert_eq!(thief.ask(read(*capability)).await.status, Status::BadCapability);
        }
        let opened = first.ask(vec![Op::Open { object: attr.handle, rights: Rights::READ }]).await;
        let Answer::Made { capability: of_first, .. } = &opened.answers[0] else { panic!("{opened:?}") };
        assert_eq!(first.ask(read(*of_first)).await.status, Status::Ok);
        assert_eq!(other.ask(read(*of_first)).await.status, Status::BadCapability);
    });
}

#[test]
fn a_session_is_not_gone_on_with_by_the_holder_of_another_key() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        let begun = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let session = Some(begun.attached.session);
        let thief = Wish { session, client: ClientId([2; 16]), ..Wish::default() };
        assert_eq!(refused(&cluster, 0, thief).await.status, Status::NoSession);
        drop(begun);
        let again = Wish { session, ..holder(&cluster, LAB, 2) };
        assert!(Raw::attach(&cluster, 0, again).await.is_ok());
    });
}

#[test]
fn a_holder_of_another_key_that_states_a_clients_id_has_none_of_its_locks() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        let readers = key(LAB, "lab", KeyLimits::READ_ONLY);
        assert_eq!(set(&cluster, 0, readers).await, Status::Ok);
        let mut first = cluster.client(0).await;
        let object = handle_of(&first.change(vec![create(Handle::ROOT, &name("file"))]).await);
        let (owner, range, kind) = (LockOwner(5), LockRange::ALL, LockKind::Exclusive);
        let lock = Op::Lock { object, owner, range, kind, pid: 1, call: 2, wait: false, wait_ms: 0 };
        assert_eq!(first.ask(vec![lock]).await.status, Status::Ok);
        // With the id of the client that has the lock, and the owner of the lock.
        let stated = Wish::default().client.0[0];
        let mut liar = Raw::attach(&cluster, 0, holder(&cluster, LAB, stated)).await.unwrap();
        assert_eq!(liar.ask(vec![Op::Unlock { object, owner, range }]).await.status, Status::Ok);
        let held = liar.ask(vec![Op::Getlk { object, owner: LockOwner(9), range, kind }]).await;
        assert!(matches!(held.answers.0[..], [Answer::Holder { holder: Some(_) }]), "{held:?}");
        // It knows its own locks by the id that it states.
        let shared = Op::Lock {
            object,
            owner,
            range,
            kind: LockKind::Shared,
            pid: 1,
            call: 3,
            wait: false,
            wait_ms: 0,
        };
        assert_eq!(first.ask(vec![Op::Unlock { object, owner, range }]).await.status, Status::Ok);
        assert_eq!(liar.ask(vec![shared]).await.status, Status::Ok);
        let held = liar.ask(vec![Op::Getlk { object, owner: LockOwner(9), range, kind }]).await;
        let Answer::Holder { holder: Some(own) } = &held.answers.0[0] else { panic!("{held:?}") };
        assert_eq!(own.client, Wish::default().client);
    });
}

#[test]
fn a_second_key_of_a_name_and_hostile_names_are_refused_and_a_repeated_request_is_not() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 2).await;
        for _ in 0..2 {
            assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        }
        all_know(&cluster, &lab()).await;
        let namesake = key(OTHER, "lab", KeyLimits::default());
        assert_eq!(set(&cluster, 1, namesake.clone()).await, Status::Exists);
        let epoch = cluster.shard(0).identity().map.epoch;
        let whole = "n".repeat(256);
        for bad in ["", whole.as_str(), "a/b", "a\nb", "..", "first", "na me", "\0"] {
            let wrong = key(OTHER, bad, KeyLimits::default());
            assert_eq!(set(&cluster, 0, wrong).await, Status::Invalid, "{bad:?}");
        }
        assert_eq!(cluster.shard(0).identity().map.epoch, epoch);
        for _ in 0..2 {
            assert_eq!(set(&cluster, 0, revoked(lab())).await, Status::Ok);
        }
        all_know(&cluster, &revoked(lab())).await;
        assert_eq!(set(&cluster, 1, namesake).await, Status::Ok, "the name is free again");
    });
}

#[test]
fn the_last_key_and_the_first_one_can_be_revoked_and_the_admin_key_lets_its_holder_in_all_the_same() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 2).await;
        let first =
            revoked(MountKey { id: MountKeyId::FIRST, ..key(0, MountKey::FIRST_NAME, KeyLimits::default()) });
        let mut user = cluster.client(1).await;
        assert_eq!(set(&cluster, 0, first.clone()).await, Status::Ok);
        all_know(&cluster, &first).await;
        let frame = user.frame().await.expect("a refusal comes before the end");
        assert_eq!(frame.message::<Refusal>().unwrap().status, Status::KeyRevoked);
        assert_eq!(refused(&cluster, 0, Wish::default()).await.status, Status::KeyRevoked);
        // Servers go on together, and an administrator lets the next user in.
        assert_eq!(set(&cluster, 1, lab()).await, Status::Ok);
        all_know(&cluster, &lab()).await;
        let mut next = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let (_, directory) = cluster.directory_on(&mut next, 1).await;
        assert_eq!(directory.server(), shoal_proto::ServerId(1));
    });
}

#[test]
fn keys_with_names_are_not_added_where_one_key_has_all_roles_nor_the_first_revoked_without_an_admin_key() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let first = revoked(key(0, MountKey::FIRST_NAME, KeyLimits::default()));
        assert_eq!(client.ask(vec![Op::Setkey { key: first }]).await.status, Status::NotSupported);
        assert_eq!(client.ask(vec![Op::Setkey { key: lab() }]).await.status, Status::Ok);
        // A key with a name manages nothing, also where the first one does.
        let mut named = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let other = key(OTHER, "other", KeyLimits::default());
        assert_eq!(named.ask(vec![Op::Setkey { key: other }]).await.status, Status::Forbidden);
        cluster.kill(0);
        cluster.keys = Keys { place: cluster.keys.place.clone(), ..Keys::one(KEY) };
        cluster.start(0).await;
        let mut client = cluster.client(0).await;
        let more = key(OTHER, "more", KeyLimits::default());
        assert_eq!(client.ask(vec![Op::Setkey { key: more }]).await.status, Status::NotSupported);
    });
}

#[test]
fn a_program_that_knows_no_keys_with_names_is_served_until_there_is_one() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        let old = || Wish { versions: (VERSIONS.0, VERSION_OF_NAMED_KEYS - 1), ..Wish::default() };
        // The tag of its first frame was never read.
        let tagged = Wish { mount: MountKeyId(1), ..old() };
        let mut client = Raw::attach(&cluster, 0, tagged).await.unwrap();
        assert_eq!(client.ask(vec![Op::Map {}]).await.status, Status::Ok);
        assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        let refusal = refused(&cluster, 0, old()).await;
        assert_eq!(refusal.status, Status::BadVersion);
        assert!(refusal.words.0.contains("mount keys with names"), "{}", refusal.words);
    });
}

/// Operations that the holder of a read-only key may send. A new operation that is neither refused nor
/// listed fails the test.
const FOR_READERS: &[&str] = &[
    "lookup",
    "getattr",
    "readlink",
    "readdir",
    "getxattr",
    "listxattr",
    "release",
    "hold",
    "statfs",
    "unlock",
    "getlk",
    "unwait",
    "read",
    "fsync",
    "streamstat",
    "dropcache",
    "entry",
    "ping",
    "map",
    "status",
    "sync",
];

/// The form of an operation that keeps others out or opens for writing, if it has such a form.
fn as_of_a_writer(op: Op) -> Op {
    let kind = LockKind::Exclusive;
    match op {
        Op::Open { object, .. } => Op::Open { object, rights: Rights::WRITE },
        Op::Lock { object, owner, range, pid, call, .. } => {
            Op::Lock { object, owner, range, kind, pid, call, wait: false, wait_ms: 0 }
        }
        Op::Reclaim { mut claims, last } => {
            claims.iter_mut().for_each(|claim| claim.kind = kind);
            Op::Reclaim { claims, last }
        }
        op => op,
    }
}

#[test]
fn a_read_only_key_is_refused_every_operation_that_changes_anything() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        assert_eq!(set(&cluster, 0, key(LAB, "lab", KeyLimits::READ_ONLY)).await, Status::Ok);
        let mut reader = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let before = cluster.stores[0].applied();
        let mut admitted = BTreeSet::new();
        for op in samples::ops() {
            let name = op.name();
            let is_others = op.is_peers() || op.is_management();
            let op = as_of_a_writer(op);
            let status = match op.changes() {
                true => reader.change(vec![op]).await.status,
                false => reader.ask(vec![op]).await.status,
            };
            match is_others {
                true => assert_eq!(status, Status::Forbidden, "{name}"),
                false if status == Status::ReadOnly => {}
                false => assert!(admitted.insert(name)),
            }
        }
        assert_eq!(admitted, FOR_READERS.iter().copied().collect());
        assert_eq!(cluster.stores[0].applied(), before, "nothing was changed");
    });
}

#[test]
fn a_server_that_was_away_refuses_a_revoked_key_soon_after_it_is_back() {
    run(|env| async move {
        let mut cluster = with_admin_key(&env, 3).await;
        assert_eq!(set(&cluster, 0, lab()).await, Status::Ok);
        all_know(&cluster, &lab()).await;
        // Its session and its lock outlive the server's restart.
        let mut first = cluster.client(2).await;
        let (_, home) = cluster.directory_on(&mut cluster.client(0).await, 2).await;
        let object = handle_of(&first.change(vec![create(home, &name("file"))]).await);
        let mut ends = Raw::attach(&cluster, 2, holder(&cluster, LAB, 2)).await.unwrap();
        let session = Some(ends.attached.session);
        assert_eq!(ends.ask(vec![Op::Open { object, rights: Rights::READ }]).await.status, Status::Ok);
        cluster.kill(2);
        assert_eq!(set(&cluster, 1, revoked(lab())).await, Status::Ok);
        cluster.start(2).await;
        let begin = env.now();
        loop {
            let wishes = [holder(&cluster, LAB, 3), Wish { session, ..holder(&cluster, LAB, 2) }];
            let mut answers = Vec::new();
            for wish in wishes {
                answers.push(Raw::attach(&cluster, 2, wish).await.err().map(|refusal| refusal.status));
            }
            if answers.iter().all(|answer| *answer == Some(Status::KeyRevoked)) {
                break;
            }
            assert!(env.now().since(begin) < REVOKED_WITHIN, "{answers:?}");
            env.sleep(Duration::from_millis(10)).await;
        }
        until(&env, || {
            let sessions = cluster.shard(2).sessions.all();
            sessions.iter().all(|session| session.key.get() != Some(MountKeyId(LAB)))
        })
        .await;
        assert!(env.now().since(begin) < REVOKED_WITHIN);
    });
}

#[test]
fn as_many_keys_as_may_be_reach_every_server_and_outlive_restarts_and_one_more_is_refused() {
    run(|env| async move {
        let long = |id: u64| {
            let name = format!("{id:0width$}", width = limits::KEY_NAME_BYTES_MAX);
            key(id, &name, KeyLimits::default())
        };
        let last = limits::MOUNT_KEYS_MAX as u64 - 1;
        let all = |map: &mut ClusterMap| map.keys = (1..last).map(long).collect::<Vec<_>>().into();
        let mut cluster = with_admin_key_and(&env, 2, all).await;
        let newest = long(last);
        assert_eq!(set(&cluster, 0, newest.clone()).await, Status::Ok);
        assert_eq!(set(&cluster, 0, long(last + 1)).await, Status::OverLimit);
        all_know(&cluster, &newest).await;
        for server in 0..2 {
            cluster.kill(server);
        }
        for server in 0..2 {
            cluster.start(server).await;
            let mut client = Raw::attach(&cluster, server, holder(&cluster, last, 2)).await.unwrap();
            for op in [Op::Map {}, Op::Status {}] {
                assert_eq!(client.ask(vec![op]).await.status, Status::Ok);
            }
        }
        // A full list is no reason to let one in.
        assert_eq!(set(&cluster, 1, revoked(newest.clone())).await, Status::Ok);
        all_know(&cluster, &revoked(newest)).await;
    });
}

#[test]
fn a_read_only_key_reads_and_is_given_no_right_to_write_in_any_way() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        assert_eq!(set(&cluster, 0, key(LAB, "lab", KeyLimits::READ_ONLY)).await, Status::Ok);
        let mut owner = cluster.client(0).await;
        let made = owner.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability: of_owner, .. } = made.answers[0].clone() else { panic!() };
        let mut reader = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let object = attr.handle;
        let opened = reader.ask(vec![Op::Open { object, rights: Rights::READ }]).await;
        let Answer::Made { capability: Some(capability), .. } = &opened.answers[0] else {
            panic!("{opened:?}")
        };
        assert_eq!(capability.rights, Rights::READ);
        let read = transfer(object, attr.generation, Some(*capability));
        assert_eq!(reader.ask(vec![Op::Read { transfer: read }]).await.status, Status::Ok);
        for rights in [Rights::WRITE, Rights::READ | Rights::WRITE] {
            assert_eq!(reader.ask(vec![Op::Open { object, rights }]).await.status, Status::ReadOnly);
        }
        // A capability that another client lent, and one group that opens and writes.
        let write =
            |capability| Op::Write { transfer: transfer(object, attr.generation, capability), len: 1 };
        let open = Op::Open { object, rights: Rights::READ };
        for group in [vec![write(of_owner)], vec![open, write(None)]] {
            reader.sequence += 1;
            let slot = slot(0, reader.sequence);
            reader.send(Some(slot), vec![group], Bytes::from_static(b"x")).await;
            assert_eq!(reader.reply().await.1[0].status, Status::ReadOnly);
        }
    });
}

#[test]
fn a_squashed_root_makes_objects_of_nobody_and_changes_no_owner_set_id_bit_device_or_trusted_attribute() {
    run(|env| async move {
        let cluster = with_admin_key(&env, 1).await;
        assert_eq!(set(&cluster, 0, key(LAB, "lab", KeyLimits::SQUASH_ROOT)).await, Status::Ok);
        let mut owner = cluster.client(0).await;
        let mut guest = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
        let attr_of = |reply: &shoal_proto::GroupReply| match &reply.answers[0] {
            Answer::Made { attr, .. } | Answer::Attr { attr, .. } => attr.clone(),
            other => panic!("{other:?}"),
        };
        let root = |mode| Owner { mode, uid: 0, gid: 0 };
        let mkdir = |at: &str, mode| Op::Mkdir { dir: Handle::ROOT, name: name(at), owner: root(mode) };
        let made = attr_of(&guest.change(vec![mkdir("made", 0o755)]).await);
        assert_eq!((made.uid, made.gid), (NOBODY, NOBODY));
        let of_owner = attr_of(&owner.change(vec![mkdir("of-owner", 0o755)]).await);
        assert_eq!((of_owner.uid, of_owner.gid), (0, 0));
        let object = of_owner.handle;
        let set_of = |set| Op::Setattr { object, set };
        let mode = |mode| set_of(SetAttr { mode: Some(mode), ..SetAttr::default() });
        assert_eq!(owner.change(vec![mode(0o2755)]).await.status, Status::Ok);
        let before = cluster.stores[0].applied();
        let mknod =
            |kind| Op::Mknod { dir: Handle::ROOT, name: name("node"), owner: root(0o600), kind, rdev: 7 };
        let xattr = |name: &'static [u8]| Op::Setxattr {
            object,
            name: Blob(Bytes::from_static(name)),
            value: Blob(Bytes::from_static(b"v")),
            create: false,
            replace: false,
        };
        let remove = |name: &'static [u8]| Op::Removexattr { object, name: Blob(Bytes::from_static(name)) };
        for op in [
            set_of(SetAttr { uid: Some(0), ..SetAttr::default() }),
            set_of(SetAttr { gid: Some(5), ..SetAttr::default() }),
            mode(0o4755),
            mode(0o6755),
            create_for(root(0o4755), "set-id"),
            mknod(Kind::CharDevice),
            mknod(Kind::BlockDevice),
            xattr(b"trusted.a"),
            xattr(b"security.capability"),
            remove(b"trusted.a"),
            remove(b"security.selinux"),
        ] {
            let words = format!("{op:?}");
            assert_eq!(guest.change(vec![op]).await.status, Status::NotPermitted, "{words}");
        }
        assert_eq!(cluster.stores[0].applied(), before, "nothing was changed");
        // All else is done, and the bits that are there stay.
        assert_eq!(attr_of(&guest.change(vec![mode(0o2700)]).await).mode & 0o7777, 0o2700);
        for op in [mknod(Kind::Fifo), xattr(b"user.a"), remove(b"user.a"), mode(0o700)] {
            let words = format!("{op:?}");
            assert_eq!(guest.change(vec![op]).await.status, Status::Ok, "{words}");
        }
        assert_eq!(guest.change(vec![remove(b"security.capability")]).await.status, Status::NoAttribute);
        // The holder of a key without this limit does all of it.
        assert_eq!(attr_of(&owner.change(vec![mode(0o4755)]).await).mode & 0o7777, 0o4755);
        let given = SetAttr { uid: Some(NOBODY), ..SetAttr::default() };
        assert_eq!(attr_of(&owner.change(vec![set_of(given)]).await).uid, NOBODY);
        assert_eq!(owner.change(vec![xattr(b"trusted.a")]).await.status, Status::Ok);
    });
}

#[test]
fn whatever_operation_makes_an_object_a_squashed_root_makes_it_for_nobody() {
    // An operation that is added with an owner of its object is to be tried here.
    let all = samples::ops().into_iter().filter(|op| format!("{op:?}").contains("Owner {"));
    let makers: BTreeSet<&str> = all.map(|op| op.name()).collect();
    assert_eq!(makers, ["create", "createmeta", "mkdir", "mkforked", "mknod", "symlink"].into());
    run(|env| async move {
        let guests = key(LAB, "guests", KeyLimits::SQUASH_ROOT);
        let (dir, owner) = (Handle::ROOT, Owner { mode: 0o644, uid: 0, gid: 0 });
        for is_compound in [true, false] {
            let change = |map: &mut ClusterMap| {
                map.switches.compound = is_compound;
                map.keys = vec![guests.clone()].into();
            };
            let cluster = with_admin_key_and(&env, 1, change).await;
            let mut guest = Raw::attach(&cluster, 0, holder(&cluster, LAB, 2)).await.unwrap();
            let template = shoal_proto::Template::default();
            let step = Op::Createmeta { dir, name: name("step"), owner, open: Rights::READ, template };
            let ops = match is_compound {
                true => vec![
                    create_for(owner, "file"),
                    Op::Mkdir { dir, name: name("dir"), owner },
                    Op::Mkforked {
                        dir,
                        name: name("forked"),
                        owner,
                        subfiles: 2,
                        servers: Vec::new().into(),
                        replace: false,
                    },
                    Op::Mknod { dir, name: name("fifo"), owner, kind: Kind::Fifo, rdev: 0 },
                    Op::Symlink { dir, name: name("link"), owner, target: Blob(Bytes::from_static(b"file")) },
                ],
                false => vec![step],
            };
            for op in ops {
                let words = op.name();
                let reply = guest.change(vec![op]).await;
                let Some(Answer::Made { attr, .. } | Answer::Attr { attr, .. }) = reply.answers.first()
                else {
                    panic!("{words}: {reply:?}")
                };
                assert_eq!((attr.uid, attr.gid), (NOBODY, NOBODY), "{words}");
            }
        }
    });
}

fn create_for(owner: Owner, at: &str) -> Op {
    let (dir, open, template) = (Handle::ROOT, Rights::READ, None);
    Op::Create { dir, name: name(at), owner, exclusive: true, open, template }
}
