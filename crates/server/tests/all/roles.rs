//! Programs that hold a mount key and lie. The key lets a client in; it signs no capability, proves no
//! server, and manages nothing if the file system has an admin key.

use crate::raw::*;
use shoal_pattern::Pattern;
use shoal_proto::op::{Owner, Transfer};
use shoal_proto::{
    Answer, Capability, Decision, Handle, Op, Rights, Roles, SecretKey, ServerId, Share, Status, Time, TxId,
    samples,
};
use std::collections::BTreeSet;

/// Far in the future.
const NEVER: Time = Time(i64::MAX);

#[test]
fn a_capability_that_a_client_signed_by_the_mount_key_opens_nothing() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut owner = cluster.client(0).await;
        let secret = Op::Create {
            dir: Handle::ROOT,
            name: name("secret"),
            owner: Owner { mode: 0o600, uid: 0, gid: 0 },
            exclusive: true,
            open: Rights::WRITE,
            template: None,
        };
        let made = owner.change(vec![secret]).await;
        let Answer::Made { attr, capability: given, .. } = &made.answers[0] else { panic!("{made:?}") };
        let read = |capability| {
            let transfer = Transfer {
                stream: attr.handle,
                generation: attr.generation,
                capability,
                pattern: Pattern::contiguous(0, 1).unwrap(),
                window_from: 0,
                window_len: 1,
                share: Share::WHOLE,
            };
            Op::Read { transfer }
        };
        let mut thief =
            Raw::attach(&cluster, 0, Wish { client: shoal_proto::ClientId([66; 16]), ..Wish::default() })
                .await
                .unwrap();
        let own_making =
            |key: &SecretKey| Capability::sign(key, COLLECTION, attr.handle, Rights::READ, NEVER);
        for forged in [Some(own_making(&KEY)), *given, None] {
            assert_eq!(thief.ask(vec![read(forged)]).await.status, Status::BadCapability, "{forged:?}");
        }
        // The check sees a right one.
        assert_eq!(thief.ask(vec![read(Some(own_making(&SERVER_KEY)))]).await.status, Status::Ok);
    });
}

#[test]
fn a_client_that_says_it_is_a_server_and_proves_it_by_the_mount_key_is_refused() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let says = |peer_key| Wish { peer: Some(ServerId(2)), peer_key, ..Wish::default() };
        let refused = Raw::attach(&cluster, 0, says(KEY)).await.err().expect("it holds the mount key only");
        assert_eq!(refused.status, Status::BadKey);
        assert!(refused.words.0.contains("key.server"), "{}", refused.words);
        let refused = Raw::attach(&cluster, 0, Wish { key: SERVER_KEY, ..Wish::default() }).await.err();
        assert_eq!(refused.expect("a server is no client").status, Status::BadKey);
        let mut server = Raw::attach(&cluster, 0, says(SERVER_KEY)).await.unwrap();
        assert_eq!(server.ask(vec![Op::Draw { count: 1 }]).await.status, Status::Ok);
    });
}

/// The administrators' key.
pub const ADMIN_KEY: SecretKey = SecretKey::new([37; 32]);

/// Every management operation, with contents that change nothing.
pub fn managing(cluster: &Cluster) -> Vec<Op> {
    let words = || "no such mode".into();
    vec![
        Op::Addserver { addresses: Vec::new().into(), roles: Roles::all() },
        Op::Moveserver { server: ServerId(9), addresses: Vec::new().into(), moved: 1 },
        Op::Setkey { key: samples::mount_key(0, "no name of the first key") },
        Op::Rows { prefix: b"c"[..].into(), after: b""[..].into(), limit: 1 },
        Op::Checkfiles { streams: Vec::new().into() },
        Op::Repair { actions: Vec::new().into() },
        Op::Setsync { metadata: words(), data: words(), coalescing: words() },
        Op::Renew { servers: Vec::new().into(), map: cluster.map.clone() },
    ]
}

pub async fn status_of(client: &mut Raw, op: Op) -> Status {
    match op.changes() {
        true => client.change(vec![op]).await.status,
        false => client.ask(vec![op]).await.status,
    }
}

/// A cluster with an admin key.
async fn with_admin_key(env: &shoal_env::Env) -> Cluster {
    let mut cluster = Cluster::new(env, 1).await;
    cluster.kill(0);
    cluster.keys.admin = Some(ADMIN_KEY);
    cluster.start(0).await;
    cluster
}

#[test]
fn a_mount_key_is_refused_every_operation_that_manages_and_the_admin_key_none() {
    run(|env| async move {
        let cluster = with_admin_key(&env).await;
        let all = samples::ops().into_iter().filter(Op::is_management);
        let tried: BTreeSet<&str> = managing(&cluster).iter().map(Op::name).collect();
        assert_eq!(tried, all.map(|op| op.name()).collect::<BTreeSet<_>>(), "each is tried here");
        let mut user = cluster.client(0).await;
        let mut admin = Raw::attach(&cluster, 0, Wish { key: ADMIN_KEY, ..Wish::default() }).await.unwrap();
        for op in managing(&cluster) {
            let name = op.name();
            assert_eq!(status_of(&mut user, op.clone()).await, Status::Forbidden, "{name}");
            assert_ne!(status_of(&mut admin, op).await, Status::Forbidden, "{name}");
        }
        // A decision of fsck in the place of a coordinator that is gone.
        let tx = TxId(7 << 48 | 1);
        let finish = || Op::Finish { tx, decision: Decision::Abort };
        assert_eq!(status_of(&mut user, finish()).await, Status::Forbidden);
        // Both are clients all the same.
        for client in [&mut user, &mut admin] {
            assert_eq!(client.ask(vec![Op::Getattr { object: Handle::ROOT }]).await.status, Status::Ok);
            assert_eq!(client.ask(vec![Op::Draw { count: 1 }]).await.status, Status::Forbidden);
        }
    });
}

#[test]
fn a_session_that_an_administrator_began_manages_nothing_by_a_connection_with_the_mount_key() {
    run(|env| async move {
        let cluster = with_admin_key(&env).await;
        let admin = Raw::attach(&cluster, 0, Wish { key: ADMIN_KEY, ..Wish::default() }).await.unwrap();
        let session = Some(admin.attached.session);
        let mut user = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        let rows = || Op::Rows { prefix: b"c"[..].into(), after: b""[..].into(), limit: 1 };
        assert_eq!(user.ask(vec![rows()]).await.status, Status::Forbidden);
    });
}

#[test]
fn a_file_system_without_an_admin_key_is_managed_by_the_mount_key() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        for op in managing(&cluster) {
            let name = op.name();
            assert_ne!(status_of(&mut client, op).await, Status::Forbidden, "{name}");
        }
        let stranger = Raw::attach(&cluster, 0, Wish { key: ADMIN_KEY, ..Wish::default() }).await;
        assert_eq!(stranger.err().expect("no such key").status, Status::BadKey);
    });
}
