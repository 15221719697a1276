//! The key that lets a client in signs nothing, and makes no server: two programs that hold it and lie.

mod raw;

use raw::*;
use shoal_pattern::Pattern;
use shoal_proto::op::{Owner, Transfer};
use shoal_proto::{Answer, Capability, Handle, Op, Rights, SecretKey, ServerId, Share, Status, Time};

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
