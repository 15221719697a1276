//! Stores that were given up: the behaviour of their successors and of the other servers.

use crate::raw::*;
use shoal_proto::{Answer, ClusterMap, Decision, Handle, Op, ServerId, Status, StoreId, TxId, limits};
use shoal_server::rows::{Pool, RowValue};
use shoal_server::{Settings, keys};
use std::time::Duration;

/// The map in which server 1 has a new store.
fn renewed(map: &ClusterMap) -> ClusterMap {
    let mut map = map.clone();
    map.servers.0[1].store = StoreId(5);
    map.servers.0[1].renew(StoreId(6), false).unwrap();
    map.epoch += 1;
    map
}

#[test]
fn a_new_store_names_nothing_of_the_lost_one_and_aborts_nothing_of_it() {
    run(|env| async move {
        let renew = |map: &mut ClusterMap| *map = renewed(map);
        let cluster = Cluster::of(&env, 2, Settings::default(), renew).await;
        // No server of the map, so that no connection of one takes this one's place.
        let wish = Wish { peer: Some(ServerId(9)), ..Wish::default() };
        let mut peer = Raw::attach(&cluster, 1, wish).await.unwrap();
        let drawn = peer.ask(vec![Op::Draw { count: 3 }]).await;
        let Answer::Handles { handles } = &drawn.answers[0] else { panic!("{drawn:?}") };
        assert!(handles.iter().all(|handle| handle.counter() >= limits::STORE_HANDLES), "{handles:?}");
        let mut outcome = async |counter: u64| {
            let tx = TxId(Handle::new(ServerId(1), counter).0);
            peer.ask(vec![Op::Outcome { tx }]).await.answers.0
        };
        assert_eq!(outcome(4711).await, [Answer::Decided { decision: None }], "of the lost store");
        let own = outcome(limits::STORE_HANDLES + 4711).await;
        assert_eq!(own, [Answer::Decided { decision: Some(Decision::Abort) }]);
    });
}

#[test]
fn a_server_retires_what_its_pool_holds_of_a_store_that_is_given_up() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        let key = keys::pool(ServerId(1));
        let mut pool = async || {
            loop {
                let op = Op::Rows {
                    prefix: shoal_proto::Blob(key.clone()),
                    after: shoal_proto::Blob(Default::default()),
                    limit: 1,
                };
                let told = client.ask(vec![op]).await;
                let Answer::Rows { rows, .. } = &told.answers[0] else { panic!("{told:?}") };
                let pool = rows.first().map(|row| Pool::from_row(&row.value).unwrap());
                match pool.filter(|pool| pool.level() > 0) {
                    Some(pool) => return pool,
                    None => env.sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let before = pool().await;
        let map = renewed(&cluster.map);
        let renew = |servers: Vec<ServerId>| vec![Op::Renew { servers: servers.into(), map: map.clone() }];
        let mut operator = cluster.client(0).await;
        assert_eq!(operator.ask(renew(vec![ServerId(0)])).await.status, Status::Conflict, "its own store");
        // A map that is not taken retires nothing.
        let mut short = map.clone();
        short.servers.0.swap(0, 1);
        let untaken = Op::Renew { servers: vec![ServerId(1)].into(), map: short };
        assert_eq!(operator.ask(vec![untaken]).await.status, Status::Conflict);
        assert_eq!(pool().await.id, before.id);
        for _ in 0..2 {
            assert_eq!(operator.ask(renew(vec![ServerId(1)])).await.status, Status::Ok);
        }
        assert_eq!(cluster.shard(0).identity().map.servers[1].retired.0, [StoreId(5)]);
        // The pool begins anew, and nothing of the old one is in it.
        let after = pool().await;
        assert_ne!(after.id, before.id);
        let old = before.ranges.iter().map(|range| range.first).max().unwrap();
        assert!(after.ranges.iter().all(|range| range.first > old), "{before:?} {after:?}");
        // One store takes the place of another, whatever epoch a map has that says otherwise.
        let mut second = cluster.map.clone();
        second.servers.0[1].store = StoreId(5);
        second.servers.0[1].renew(StoreId(7), false).unwrap();
        second.epoch += 9;
        let mut former = cluster.map.clone();
        former.servers.0[1].store = StoreId(5);
        for map in [second, former] {
            let refused = Op::Renew { servers: vec![ServerId(1)].into(), map };
            assert_eq!(operator.ask(vec![refused]).await.status, Status::Conflict);
        }
        let present = cluster.shard(0).identity().map.clone();
        assert_eq!((present.servers[1].store, present.epoch), (StoreId(6), map.epoch));
    });
}

/// The datafiles of server 1 in the pool of server 0.
async fn pool_of_one(client: &mut Raw) -> Option<Pool> {
    let key = keys::pool(ServerId(1));
    let op =
        Op::Rows { prefix: shoal_proto::Blob(key), after: shoal_proto::Blob(Default::default()), limit: 1 };
    let told = client.ask(vec![op]).await;
    let Answer::Rows { rows, .. } = &told.answers[0] else { panic!("{told:?}") };
    rows.first().map(|row| Pool::from_row(&row.value).unwrap()).filter(|pool| pool.level() > 0)
}

#[test]
fn a_store_given_up_is_retired_by_whichever_way_the_map_comes() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        let before = loop {
            match pool_of_one(&mut client).await {
                Some(pool) => break pool,
                None => env.sleep(Duration::from_millis(5)).await,
            }
        };
        // Another server reports it before the operator's command comes to this one.
        let map = renewed(&cluster.map);
        cluster.servers[0].as_ref().unwrap().set_map(map.clone()).await.unwrap();
        let after = loop {
            match pool_of_one(&mut client).await {
                Some(pool) => break pool,
                None => env.sleep(Duration::from_millis(5)).await,
            }
        };
        assert_ne!(after.id, before.id);
        let renew = Op::Renew { servers: vec![ServerId(1)].into(), map };
        let mut operator = cluster.client(0).await;
        assert_eq!(operator.ask(vec![renew]).await.status, Status::Ok);
        assert_eq!(pool_of_one(&mut client).await.map(|pool| pool.id), Some(after.id), "once");
    });
}

#[test]
fn a_move_brings_no_store_back_and_a_new_store_no_address() {
    run(|env| async move {
        for renewed_first in [false, true] {
            let cluster = Cluster::new(&env, 2).await;
            let renewed = renewed(&cluster.map);
            let mut moved = cluster.map.clone();
            let to = vec![shoal_proto::Text::from("local:elsewhere")].into();
            moved.servers.0[1].store = StoreId(5);
            for count in 1..4 {
                moved.servers.0[1].moved = count;
                moved.epoch += 1;
            }
            moved.servers.0[1].addresses = to;
            let set_map = async |map: &ClusterMap| {
                cluster.servers[0].as_ref().unwrap().set_map(map.clone()).await.unwrap();
            };
            let renew = Op::Renew { servers: vec![ServerId(1)].into(), map: renewed };
            let mut operator = cluster.client(0).await;
            if renewed_first {
                assert_eq!(operator.ask(vec![renew]).await.status, Status::Ok);
                set_map(&moved).await;
            } else {
                set_map(&moved).await;
                assert_eq!(operator.ask(vec![renew]).await.status, Status::Ok, "its map is not the newest");
            }
            let map = cluster.shard(0).identity().map.clone();
            let info = &map.servers[1];
            assert_eq!((info.store, &info.retired.0), (StoreId(6), &vec![StoreId(5)]));
            assert_eq!((info.addresses[0].0.as_str(), info.moved), ("local:elsewhere", 3));
            assert!(map.epoch > moved.epoch);
            let wish = Wish { peer: Some(ServerId(1)), store: (StoreId(5), 9), ..Wish::default() };
            let Err(refused) = Raw::attach(&cluster, 0, wish).await else { panic!("it came back") };
            assert_eq!(refused.status, Status::Forbidden, "counts whatever its map's epoch is");
        }
    });
}
