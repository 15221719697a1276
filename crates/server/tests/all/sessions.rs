//! Every change exactly once: slots, kept replies, new connections, restarts.

use crate::raw::*;
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_proto::{Action, ClientId, Decision, Handle, Op, ServerId, Status, TxId, limits};
use shoal_server::Settings;
use std::collections::BTreeSet;
use std::time::Duration;

fn again(client: &Raw) -> Wish {
    Wish { session: Some(client.attached.session), ..Wish::default() }
}

#[test]
fn a_retry_is_answered_from_the_kept_reply_and_not_executed() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let ops = vec![create(Handle::ROOT, &name("file"))];
        let first = client.change_in(slot(0, 1), ops.clone()).await;
        assert_eq!(first.status, Status::Ok);
        assert_eq!(client.change_in(slot(0, 1), ops.clone()).await, first);
        // On another connection of the session too.
        let mut client = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        assert_eq!(client.change_in(slot(0, 1), ops.clone()).await, first);
        // A new sequence is a new change.
        assert_eq!(client.change_in(slot(0, 2), ops).await.status, Status::Exists);
        assert_eq!(cluster.shard(0).counters.snapshot().kept, 2);
    });
}

#[test]
fn a_retry_after_a_restart_is_answered_from_the_kept_reply() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let ops = vec![create(Handle::ROOT, &name("file"))];
        let first = client.change_in(slot(3, 1), ops.clone()).await;
        cluster.kill(0);
        cluster.start(0).await;
        let mut client = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        assert_eq!(client.change_in(slot(3, 1), ops.clone()).await, first);
        assert_eq!(client.change_in(slot(3, 2), ops.clone()).await.status, Status::Exists);
        // A failed change leaves no row: after a restart the next sequences still follow.
        cluster.kill(0);
        cluster.start(0).await;
        let mut client = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        assert_eq!(client.change_in(slot(3, 3), ops.clone()).await.status, Status::Exists);
        assert_eq!(client.change_in(slot(3, 1), ops).await.status, Status::BadSequence);
    });
}

#[test]
fn handles_are_never_given_twice_over_a_restart() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let before = handle_of(&client.change(vec![create(Handle::ROOT, &name("a"))]).await);
        cluster.kill(0);
        cluster.start(0).await;
        let mut client = cluster.client(0).await;
        let after = handle_of(&client.change(vec![create(Handle::ROOT, &name("b"))]).await);
        assert!(after > before);
    });
}

#[test]
fn a_slot_out_of_sequence_is_refused() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let ops = |n: &str| vec![create(Handle::ROOT, &name(n))];
        assert_eq!(client.change_in(slot(0, 2), ops("a")).await.status, Status::BadSequence);
        assert_eq!(client.change_in(slot(0, 0), ops("a")).await.status, Status::BadSequence);
        assert_eq!(client.change_in(slot(64, 1), ops("a")).await.status, Status::BadSequence);
        assert_eq!(client.change_in(slot(0, 1), ops("a")).await.status, Status::Ok);
        assert_eq!(client.change_in(slot(0, 3), ops("b")).await.status, Status::BadSequence);
        assert_eq!(client.change_in(slot(1, 1), ops("b")).await.status, Status::Ok);
        // A change without a slot is none.
        assert_eq!(client.ask(ops("c")).await.status, Status::BadMessage);
    });
}

#[test]
fn a_slot_is_used_more_often_than_32_bits_count() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let edge = u64::from(u32::MAX);
        let ops = |n: &str| vec![create(Handle::ROOT, &name(n))];
        client.change_in(slot(0, 1), ops("first")).await;
        // After a start the next use of a slot may be any later one.
        cluster.kill(0);
        cluster.start(0).await;
        let mut client = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        assert_eq!(client.change_in(slot(0, edge), ops("a")).await.status, Status::Ok);
        let beyond = client.change_in(slot(0, edge + 1), ops("b")).await;
        assert_eq!(beyond.status, Status::Ok);
        assert_eq!(client.change_in(slot(0, 0), ops("c")).await.status, Status::BadSequence);
        // The kept reply of the one is not taken for that of the other, neither at once nor after a start.
        assert_eq!(client.change_in(slot(0, edge + 1), ops("b")).await, beyond);
        cluster.kill(0);
        cluster.start(0).await;
        let mut client = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        assert_eq!(client.change_in(slot(0, edge + 1), ops("b")).await, beyond);
        assert_eq!(client.change_in(slot(0, edge), ops("b")).await.status, Status::BadSequence);
        assert_eq!(client.change_in(slot(0, edge + 2), ops("c")).await.status, Status::Ok);
    });
}

#[test]
fn a_client_has_a_bounded_number_of_sessions_and_can_always_begin_one_more_in_place_of_a_lost_one() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let sessions = || cluster.shard(0).sessions.of_client(Wish::default().client).len();
        let mut used = Vec::new();
        for i in 0..limits::CLIENT_SESSIONS_MAX {
            let mut client = cluster.client(0).await;
            let made = client.change(vec![create(Handle::ROOT, &name(&format!("f{i}")))]).await;
            assert_eq!(made.status, Status::Ok);
            used.push(client);
        }
        // All are connected.
        let refused = Raw::attach(&cluster, 0, Wish::default()).await.err().expect("it is one too many");
        assert_eq!(refused.status, Status::OverLimit);
        assert!(refused.words.0.contains("close some"), "{}", refused.words.0);
        let other = Wish { client: ClientId([2; 16]), ..Wish::default() };
        let mut others = Raw::attach(&cluster, 0, other).await.unwrap();
        // The third loses its connection: its place is taken, and no other's.
        let lost = used.remove(2);
        let id = lost.attached.session;
        drop(lost);
        let is_lost = || !cluster.shard(0).sessions.get(id).is_some_and(|s| s.is_connected());
        until(&env, is_lost).await;
        let next = cluster.client(0).await;
        assert!(used.iter().all(|client| client.attached.session != next.attached.session));
        assert_eq!(sessions(), limits::CLIENT_SESSIONS_MAX);
        let gone = Raw::attach(&cluster, 0, Wish { session: Some(id), ..Wish::default() }).await;
        assert_eq!(gone.err().map(|refused| refused.status), Some(Status::NoSession));
        for client in &mut used {
            assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
        }
        assert_eq!(others.change(vec![create(Handle::ROOT, &name("others"))]).await.status, Status::Ok);
    });
}

#[test]
fn many_connections_of_one_client_at_once_begin_no_more_sessions_than_it_may_have() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let all = (0..3 * limits::CLIENT_SESSIONS_MAX).map(|_| Raw::attach(&cluster, 0, Wish::default()));
        let (attached, refused): (Vec<_>, Vec<_>) = join_all(all).await.into_iter().partition(Result::is_ok);
        assert_eq!(attached.len(), limits::CLIENT_SESSIONS_MAX);
        assert!(refused.into_iter().all(|end| end.err().is_some_and(|end| end.status == Status::OverLimit)));
        let sessions = cluster.shard(0).sessions.of_client(Wish::default().client);
        assert_eq!(sessions.len(), limits::CLIENT_SESSIONS_MAX);
        let ids: BTreeSet<_> = attached.iter().flatten().map(|client| client.attached.session).collect();
        assert_eq!(ids.len(), limits::CLIENT_SESSIONS_MAX);
    });
}

#[test]
fn handshakes_whose_answer_is_lost_leave_one_session() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut first = None;
        for _ in 0..40 {
            let client = cluster.client(0).await;
            let id = client.attached.session;
            assert_eq!(*first.get_or_insert(id), id, "what its client never used is given again");
            drop(client);
            until(&env, || !cluster.shard(0).sessions.get(id).is_some_and(|s| s.is_connected())).await;
        }
        assert_eq!(cluster.shard(0).sessions.len(), 1);
    });
}

#[test]
fn groups_fail_each_alone_and_a_retry_runs_only_those_not_done() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let groups = || ["a", "b", "a", "c"].map(|n| vec![create(Handle::ROOT, &name(n))]).to_vec();
        client.send(Some(slot(0, 1)), groups(), Bytes::new()).await;
        let (_, first, _) = client.reply().await;
        let statuses: Vec<Status> = first.iter().map(|g| g.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Ok, Status::Exists, Status::Ok]);
        client.send(Some(slot(0, 1)), groups(), Bytes::new()).await;
        let (_, second, _) = client.reply().await;
        assert_eq!(second, first);
        assert_eq!(cluster.shard(0).counters.snapshot().kept, 3);
        // The rows of a longer compound do not outlive the next one.
        client.change_in(slot(0, 2), vec![unlink(Handle::ROOT, &name("c"))]).await;
        let rows =
            client.ask(vec![Op::Rows { prefix: b"k"[..].into(), after: b""[..].into(), limit: 100 }]).await;
        let shoal_proto::Answer::Rows { rows, end: true } = &rows.answers[0] else { panic!() };
        assert_eq!(rows.len(), 1);
    });
}

/// Hold an entry of the root by a transaction whose coordinator is this test.
async fn lock_entry(peer: &mut Raw, text: &str) -> TxId {
    let tx = TxId(Handle::new(ServerId(1), 1000).0);
    let action = Action::EntryPut {
        shard: Handle::ROOT.server(),
        dir: Handle::ROOT,
        name: name(text),
        handle: Handle::new(ServerId(1), 1001),
        kind: shoal_proto::Kind::File,
        expect: None,
        subdirs: 0,
        time: Default::default(),
    };
    assert_eq!(
        peer.ask(vec![Op::Prepare {
            tx,
            actions: vec![action].into(),
            participants: vec![ServerId(0)].into()
        }])
        .await
        .status,
        Status::Ok
    );
    tx
}

async fn peer_of(cluster: &Cluster) -> Raw {
    Raw::attach(cluster, 0, Wish { peer: Some(ServerId(1)), ..Wish::default() }).await.unwrap()
}

#[test]
fn a_new_connection_discards_what_waits_on_the_old_one() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let mut peer = peer_of(&cluster).await;
        let tx = lock_entry(&mut peer, "file").await;
        let ops = vec![create(Handle::ROOT, &name("file"))];
        client.send(Some(slot(0, 1)), vec![ops.clone()], Bytes::new()).await;
        until(&env, || cluster.shard(0).counters.snapshot().lock_waits == 1).await;
        let mut new = Raw::attach(&cluster, 0, again(&client)).await.unwrap();
        let finish = Op::Finish { tx, decision: Decision::Abort };
        assert_eq!(peer.ask(vec![finish]).await.status, Status::Ok);
        // The old one ended, and its create was never done.
        assert!(client.frame().await.is_none());
        let found = new.ask(vec![lookup(Handle::ROOT, &name("file"))]).await;
        assert_eq!(found.status, Status::NotFound);
        // Its retry is.
        assert_eq!(new.change_in(slot(0, 1), ops).await.status, Status::Ok);
    });
}

#[test]
fn a_retry_of_what_is_under_way_joins_it() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let mut peer = peer_of(&cluster).await;
        let tx = lock_entry(&mut peer, "file").await;
        let ops = vec![create(Handle::ROOT, &name("file"))];
        let first = client.send(Some(slot(0, 1)), vec![ops.clone()], Bytes::new()).await;
        let second = client.send(Some(slot(0, 1)), vec![ops.clone()], Bytes::new()).await;
        client.send(Some(slot(0, 2)), vec![ops], Bytes::new()).await;
        let (_, early, _) = client.reply().await;
        assert_eq!(early[0].status, Status::BadSequence);
        peer.ask(vec![Op::Finish { tx, decision: Decision::Abort }]).await;
        let (a, one, _) = client.reply().await;
        let (b, two, _) = client.reply().await;
        assert_eq!((a, b), (first, second));
        assert_eq!(one[0].status, Status::Ok);
        assert_eq!(one, two);
    });
}

#[test]
fn a_silent_session_ends_with_its_kept_replies_and_orphans() {
    run(|env| async move {
        let settings = Settings { lease: Duration::from_millis(400), ..Settings::default() };
        let cluster = Cluster::with(&env, 1, settings).await;
        let mut client = cluster.client(0).await;
        let file = handle_of(&client.change(vec![create(Handle::ROOT, &name("file"))]).await);
        let held = shoal_proto::Held { handles: vec![file].into(), any: false };
        let removed = client.change(vec![Op::Unlink { dir: Handle::ROOT, name: name("file"), held }]).await;
        assert!(matches!(removed.answers[0], shoal_proto::Answer::Removed { orphaned: true, .. }));
        assert_eq!(client.ask(vec![Op::Getattr { object: file }]).await.status, Status::Ok);
        // The server says why it ends the connection.
        let refusal: shoal_proto::message::Refusal = client.frame().await.unwrap().message().unwrap();
        assert_eq!(refusal.status, Status::NoSession);
        let session = client.attached.session;
        let wish = Wish { session: Some(session), ..Wish::default() };
        assert_eq!(Raw::attach(&cluster, 0, wish).await.err().unwrap().status, Status::NoSession);
        let gone = |key: Bytes| {
            let store = cluster.stores[0].clone();
            move || matches!(store.lookup(&key, &Default::default()), shoal_store::Lookup::Absent(_))
        };
        until(&env, gone(shoal_server::keys::orphan_of(file))).await;
        until(&env, gone(shoal_server::keys::inode(file))).await;
        until(&env, gone(shoal_server::keys::session(session))).await;
        until(&env, gone(shoal_server::keys::kept(session, shoal_proto::Slot(0), 0))).await;
    });
}

#[test]
fn a_clean_stop_answers_what_is_under_way_and_closes() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        client.send(Some(slot(0, 1)), vec![vec![create(Handle::ROOT, &name("file"))]], Bytes::new()).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(replies[0].status, Status::Ok);
        cluster.servers[0].take().unwrap().stop().await.unwrap();
        assert!(client.frame().await.is_none());
        cluster.start(0).await;
        let found = cluster.client(0).await.ask(vec![lookup(Handle::ROOT, &name("file"))]).await;
        assert_eq!(found.status, Status::Ok);
    });
}
