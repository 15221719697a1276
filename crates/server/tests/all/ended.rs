//! A transaction committed for another coordinator is remembered as long as a server may need its outcome,
//! and no longer.

use crate::raw::*;
use shoal_proto::{Action, Decision, Handle, Op, ServerId, Status, StoreId, Time, TxId, limits};
use shoal_server::rows::{Ended, RowValue};
use shoal_server::{Settings, keys};
use shoal_store::Changes;
use std::time::Duration;

fn ended_rows(cluster: &Cluster, server: usize) -> usize {
    cluster.stores[server].scan(b"e", None, usize::MAX, &Default::default()).unwrap().rows.len()
}

/// A transaction that server 1 begins.
fn begun(counter: u64) -> TxId {
    TxId(Handle::new(ServerId(1), counter).0)
}

/// A part of it: a file is touched.
fn prepare(tx: TxId, object: Handle, participants: &[u16]) -> Vec<Op> {
    let participants: Vec<ServerId> = participants.iter().map(|id| ServerId(*id)).collect();
    let actions = vec![Action::Touch { object, time: Time(77) }];
    vec![Op::Prepare { tx, actions: actions.into(), participants: participants.into() }]
}

async fn as_coordinator(cluster: &Cluster, server: u16) -> Raw {
    let wish = Wish { peer: Some(ServerId(1)), ..Wish::default() };
    Raw::attach(cluster, server, wish).await.unwrap()
}

#[test]
fn what_was_carried_out_of_a_lost_store_is_remembered_until_no_other_server_has_it_in_doubt() {
    run(|env| async move {
        let settings = Settings { lease: Duration::from_millis(300), ..Settings::default() };
        let renew = |map: &mut shoal_proto::ClusterMap| {
            map.servers.0[1].store = StoreId(5);
            map.servers.0[1].renew(StoreId(6), false).unwrap();
        };
        let mut cluster = Cluster::of(&env, 3, settings, renew).await;
        let mut zero = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut zero, 2).await;
        let mut two = cluster.client(2).await;
        let files = [
            handle_of(&zero.change(vec![create(Handle::ROOT, &name("file"))]).await),
            handle_of(&two.change(vec![create(dir, &name("file"))]).await),
        ];
        cluster.kill(1);
        let tx = begun(4711);
        for (server, file) in [(0, files[0]), (2, files[1])] {
            let mut peer = as_coordinator(&cluster, server).await;
            assert_eq!(peer.ask(prepare(tx, file, &[0, 2])).await.status, Status::Ok);
        }
        cluster.start(1).await;
        // A repair has come to one of them. (Silent sessions end: each comes anew.)
        let finish = || vec![Op::Finish { tx, decision: Decision::Commit }];
        assert_eq!(cluster.client(0).await.ask(finish()).await.status, Status::Ok);
        let asked = || cluster.shard(2).counters.snapshot().ops.get("rows").copied().unwrap_or(0);
        until(&env, || asked() > 3).await;
        assert_eq!([ended_rows(&cluster, 0), ended_rows(&cluster, 2)], [1, 0], "the other one is in doubt");
        assert_eq!(cluster.client(2).await.ask(finish()).await.status, Status::Ok);
        until(&env, || ended_rows(&cluster, 0) + ended_rows(&cluster, 2) == 0).await;
        assert_eq!([0, 2].map(|server| cluster.shard(server).book.ended()), [0, 0]);
    });
}

/// Rows that a former life has left, of transactions that server 1 knows nothing of any more.
fn left(cluster: &Cluster, count: usize) {
    let mut changes = Changes::default();
    for n in 0..count as u64 {
        changes.put(keys::ended(begun(1000 + n)), Ended { time: Time(1) }.to_row());
    }
    cluster.stores[0].apply(changes).unwrap();
}

#[test]
fn many_transactions_that_were_carried_out_are_forgotten_before_their_lease_is_over() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        cluster.kill(0);
        left(&cluster, limits::ENDED_MAX / 16);
        cluster.start(0).await;
        until(&env, || ended_rows(&cluster, 0) == 0).await;
        assert_eq!(cluster.shard(0).book.ended(), 0);
    });
}

#[test]
fn no_more_is_prepared_than_can_be_remembered_until_the_coordinator_has_answered() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        let file = handle_of(&client.change(vec![create(Handle::ROOT, &name("file"))]).await);
        cluster.kill(1);
        cluster.kill(0);
        left(&cluster, limits::ENDED_MAX);
        cluster.start(0).await;
        let mut peer = as_coordinator(&cluster, 0).await;
        assert_eq!(peer.ask(prepare(begun(1), file, &[0, 2])).await.status, Status::Busy);
        assert_eq!(
            peer.ask(prepare(begun(2), file, &[0])).await.status,
            Status::Ok,
            "it is not to be remembered"
        );
        let abort = Op::Finish { tx: begun(2), decision: Decision::Abort };
        assert_eq!(peer.ask(vec![abort]).await.status, Status::Ok);
        cluster.start(1).await;
        until(&env, || ended_rows(&cluster, 0) == 0).await;
        let mut peer = as_coordinator(&cluster, 0).await;
        assert_eq!(peer.ask(prepare(begun(3), file, &[0, 2])).await.status, Status::Ok);
    });
}
