//! Which clients may connect, and the errors that the others receive.

use crate::raw::*;
use shoal_proto::message::VERSIONS;
use shoal_proto::op::Owner;
use shoal_proto::{Answer, CollectionId, Handle, Op, SecretKey, ServerId, SessionId, Status};
use shoal_server::{CollectionSetup, ServeError, ServerConfig, Settings, serve};
use std::time::Duration;

#[test]
fn an_attached_client_pings_and_sees_the_root() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(vec![Op::Ping {}]).await.answers.0, vec![Answer::Done {}]);
        let root = client.ask(vec![Op::Getattr { object: Handle::ROOT }]).await;
        assert_eq!(handle_of(&root), Handle::ROOT);
        assert_eq!(cluster.shard(0).counters.snapshot().ops["ping"], 1);
    });
}

#[test]
fn a_wrong_key_version_file_system_or_collection_is_refused_with_words() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let refused = async |wish| Raw::attach(&cluster, 0, wish).await.err().expect("refused");
        let wrong = Wish { key: SecretKey::new([1; 32]), ..Wish::default() };
        let refusal = refused(wrong).await;
        assert_eq!(refusal.status, Status::BadKey);
        assert!(refusal.words.0.contains("key file"), "{}", refusal.words);
        let later = (VERSIONS.1 + 1, VERSIONS.1 + 3);
        let refusal = refused(Wish { versions: later, ..Wish::default() }).await;
        assert_eq!(refusal.status, Status::BadVersion);
        assert!(refusal.words.0.contains(&format!("{} to {}", VERSIONS.0, VERSIONS.1)), "{}", refusal.words);
        let refusal = refused(Wish { fs: [0; 16], ..Wish::default() }).await;
        assert_eq!(refusal.status, Status::BadCollection);
        let refusal = refused(Wish { collection: CollectionId(99), ..Wish::default() }).await;
        assert_eq!(refusal.status, Status::BadCollection);
        let refusal = refused(Wish { session: Some(SessionId(5)), ..Wish::default() }).await;
        assert_eq!(refusal.status, Status::NoSession);
        // None of them did harm.
        cluster.client(0).await.ask(vec![Op::Ping {}]).await;
    });
}

#[test]
fn a_session_of_another_client_is_not_given() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let client = cluster.client(0).await;
        let thief = Wish {
            client: shoal_proto::ClientId([2; 16]),
            session: Some(client.attached.session),
            ..Wish::default()
        };
        assert_eq!(Raw::attach(&cluster, 0, thief).await.err().unwrap().status, Status::NoSession);
    });
}

#[test]
fn garbage_is_answered_by_a_refusal_and_the_end() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        client.put_bytes(&[0x55; 100]).await;
        let frame = client.frame().await.unwrap();
        let refusal: shoal_proto::message::Refusal = frame.message().unwrap();
        assert_eq!(refusal.status, Status::BadMessage);
        assert!(client.frame().await.is_none());
    });
}

#[test]
fn a_peers_operations_are_forbidden_to_clients() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(vec![Op::Draw { count: 1 }]).await.status, Status::Forbidden);
        let mut peer =
            Raw::attach(&cluster, 0, Wish { peer: Some(ServerId(1)), ..Wish::default() }).await.unwrap();
        let drawn = peer.ask(vec![Op::Draw { count: 3 }]).await;
        let Answer::Handles { handles } = &drawn.answers[0] else { panic!() };
        assert_eq!(handles.len(), 3);
        assert!(handles[0] < handles[1] && handles[1] < handles[2]);
    });
}

#[test]
fn a_server_without_a_key_listens_on_loopback_only() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let config = ServerConfig {
            id: ServerId(0),
            listen: vec!["tcp:0.0.0.0:0".parse().unwrap()],
            collections: vec![CollectionSetup {
                store: cluster.stores[0].clone(),
                map: cluster.map.clone(),
                keys: None,
                root: Owner { mode: 0o755, uid: 0, gid: 0 },
            }],
            settings: Default::default(),
            polling: Duration::ZERO,
            audit: None,
        };
        assert!(matches!(serve(env.clone(), config).await, Err(ServeError::NeedsKey(_))));
    });
}

#[test]
fn more_data_than_the_credit_ends_the_connection() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        // They wait for a lock, so none gives its credit back.
        let mut peer =
            Raw::attach(&cluster, 0, Wish { peer: Some(ServerId(1)), ..Wish::default() }).await.unwrap();
        let tx = shoal_proto::TxId(Handle::new(ServerId(1), 77).0);
        let lock = shoal_proto::Action::Touch { object: Handle::ROOT, time: Default::default() };
        let prepare = Op::Prepare { tx, actions: vec![lock].into(), participants: vec![ServerId(0)].into() };
        assert_eq!(peer.ask(vec![prepare]).await.status, Status::Ok);
        let bulk = bytes::Bytes::from(vec![0; 1 << 20]);
        for i in 0..3 {
            let read = vec![vec![Op::Getattr { object: Handle::ROOT }]];
            client.send(Some(slot(i, 1)), read, bulk.clone()).await;
        }
        let refusal: shoal_proto::message::Refusal = client.frame().await.unwrap().message().unwrap();
        assert_eq!(refusal.status, Status::OverLimit);
    });
}

#[test]
fn the_limit_of_connections_is_answered_with_words_until_one_goes() {
    run(|env| async move {
        let settings = Settings { connections_max: 4, ..Settings::default() };
        let cluster = Cluster::with(&env, 1, settings).await;
        let mut stay = Vec::new();
        for _ in 0..4 {
            stay.push(cluster.client(0).await);
        }
        let refusal = Raw::attach(&cluster, 0, Wish::default()).await.err().expect("refused");
        assert_eq!(refusal.status, Status::OverLimit);
        for word in ["4 connections at once", "come again later", "ulimit -n"] {
            assert!(refusal.words.0.contains(word), "{}", refusal.words);
        }
        stay.pop();
        while Raw::attach(&cluster, 0, Wish::default()).await.is_err() {
            env.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn connections_that_say_nothing_make_way_for_who_comes() {
    run(|env| async move {
        let settings = Settings { connections_max: 8, ..Settings::default() };
        let cluster = Cluster::with(&env, 1, settings).await;
        let mut silent = Vec::new();
        for _ in 0..50 {
            silent.push(env.connect(&cluster.address(0)).await.unwrap());
        }
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
    });
}
