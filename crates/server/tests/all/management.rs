//! Tests of the operations that manage: changes of the map, sync modes, status, rows.

use crate::raw::*;
use shoal_proto::{
    Action, Answer, ClusterMap, Generation, Handle, Op, Roles, ServerId, Status, StoreId, Time,
};
use shoal_server::Settings;
use shoal_server::format::{FORMAT, FORMAT_MIN};
use shoal_store::{Changes, look};

#[test]
fn a_server_added_is_in_every_servers_map_and_stays_there() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let addresses: Vec<shoal_proto::Text> = vec!["local:another".into()];
        let add = || vec![Op::Addserver { addresses: addresses.clone().into(), roles: Roles::all() }];
        let added = zero.change(add()).await;
        let Answer::Map { map } = &added.answers[0] else { panic!("{added:?}") };
        assert_eq!((map.epoch, map.servers.len()), (2, 3));
        assert_eq!(map.servers[2].id, ServerId(2));
        assert_eq!(zero.change(add()).await.status, Status::Exists);
        until(&env, || cluster.shard(1).identity().map.epoch == 2).await;
        let mut one = cluster.client(1).await;
        assert_eq!(one.change(add()).await.status, Status::WrongServer);
        cluster.kill(1);
        cluster.start(1).await;
        let told = cluster.client(1).await.ask(vec![Op::Map {}]).await;
        assert_eq!(told.answers.0, vec![Answer::Map { map: map.clone() }]);
    });
}

/// A server is at another address from now on.
fn moves(server: u16, to: &str, moved: u32) -> Vec<Op> {
    vec![Op::Moveserver { server: ServerId(server), addresses: vec![to.into()].into(), moved }]
}

fn address_of(cluster: &Cluster, on: u16, server: u16) -> String {
    cluster.shard(on).identity().map.servers[usize::from(server)].addresses[0].0.clone()
}

#[test]
fn a_server_that_moved_is_where_it_went_in_every_map_also_of_one_that_was_away_and_of_its_own() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 4).await;
        let to = format!("{}-moved", cluster.map.servers[0].addresses[0].0);
        // The root's server has gone, and one that is to be informed is away.
        cluster.kill(0);
        cluster.kill(2);
        let mut one = cluster.client(1).await;
        let told = one.ask(moves(0, &to, 1)).await;
        let Answer::Map { map } = &told.answers[0] else { panic!("{told:?}") };
        assert_eq!((map.epoch, map.servers[0].addresses[0].0.as_str()), (2, to.as_str()));
        assert_eq!(one.ask(moves(0, &to, 1)).await.answers, told.answers, "it is asked again");
        until(&env, || address_of(&cluster, 3, 0) == to).await;
        // With the map of before, as its cluster file still has it.
        cluster.start(2).await;
        until(&env, || address_of(&cluster, 2, 0) == to).await;
        // It begins where it went, and the others find it there.
        cluster.map.servers.0[0].addresses = vec![to.as_str().into()].into();
        cluster.map.servers.0[0].moved = 1;
        cluster.start(0).await;
        until(&env, || (0..4).all(|on| address_of(&cluster, on, 0) == to)).await;
        let mut zero = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut zero, 1).await;
        let mut one = cluster.client(1).await;
        for n in 0..8 {
            // One of them lies on each server.
            let made = one.change(vec![mkdir(dir, &name(&format!("d{n}")))]).await;
            assert_eq!(made.status, Status::Ok);
        }
        // The servers' state outlives them, without the file.
        cluster.map.servers.0[0].moved = 0;
        for id in [1, 3] {
            cluster.kill(id);
            cluster.start(id).await;
            assert_eq!(address_of(&cluster, id, 0), to);
        }
    });
}

#[test]
fn a_server_that_begins_where_its_file_says_it_went_tells_the_others() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 3).await;
        let to = format!("{}-moved", cluster.map.servers[1].addresses[0].0);
        cluster.kill(1);
        cluster.map.servers.0[1].addresses = vec![to.as_str().into()].into();
        cluster.map.servers.0[1].moved = 1;
        cluster.start(1).await;
        until(&env, || (0..3).all(|on| address_of(&cluster, on, 1) == to)).await;
    });
}

#[test]
fn of_two_moves_at_once_one_counts_on_all_servers_and_a_server_never_goes_where_another_one_is() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 3).await;
        let (mut zero, mut one) = (cluster.client(0).await, cluster.client(1).await);
        let first = zero.ask(moves(2, "local:a", 1)).await.status;
        let second = one.ask(moves(2, "local:b", 1)).await.status;
        assert!(
            first == Status::Ok && (second == Status::Ok || second == Status::Conflict),
            "{first} {second}"
        );
        until(&env, || (0..3).all(|on| address_of(&cluster, on, 2) == "local:b" || second != Status::Ok))
            .await;
        let there = address_of(&cluster, 0, 2);
        until(&env, || (0..3).all(|on| address_of(&cluster, on, 2) == there)).await;
        assert_eq!(zero.ask(moves(2, "local:0", 1)).await.status, Status::Conflict, "a later one is known");
        assert_eq!(zero.ask(moves(0, &there, 1)).await.status, Status::Exists);
        assert_eq!(zero.ask(moves(3, "local:c", 1)).await.status, Status::Invalid);
        assert_eq!(zero.ask(moves(2, "10.0.0.300:1", 3)).await.status, Status::Invalid);
    });
}

#[test]
fn status_is_json_and_sync_modes_change() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let set =
            |m: &str, c: &str| Op::Setsync { metadata: m.into(), data: "".into(), coalescing: c.into() };
        assert_eq!(client.ask(vec![set("never", "")]).await.status, Status::Ok);
        assert_eq!(client.ask(vec![set("sometimes", "")]).await.status, Status::Invalid);
        assert_eq!(client.ask(vec![set("", "watermark:1:8")]).await.status, Status::Ok);
        assert_eq!(client.ask(vec![set("", "watermark:0:8")]).await.status, Status::Invalid);
        let reply = client.ask(vec![Op::Status {}]).await;
        let Answer::Json { json } = &reply.answers[0] else { panic!() };
        let status: serde_json::Value = serde_json::from_slice(json).unwrap();
        assert_eq!(status["sync"]["metadata"], "never");
        assert_eq!(status["sync"]["data"], "fsync");
        assert_eq!(status["sync"]["coalescing"], "watermark:1:8");
        assert_eq!(status["operations"]["create"], 1);
        assert_eq!(status["sessions"], 1);
        assert_eq!(client.ask(vec![Op::Sync {}]).await.answers.0, vec![Answer::Synced {}]);
        assert!(matches!(client.ask(vec![Op::Statfs {}]).await.answers[0], Answer::Space { .. }));
    });
}

#[test]
fn a_repair_that_expects_what_is_not_so_any_more_ends_at_once() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let (shard, server) = (ServerId(0), ServerId(0));
        let count = Action::ShardCount { shard, dir: Handle::ROOT, expect: Time(5), nlink: 2, entries: 0 };
        let (key, expect) = (shoal_server::keys::orphan_of(Handle::ROOT).to_vec(), b"not there".to_vec());
        let remove =
            Action::RowRemove { server, key: key.as_slice().into(), expect: expect.as_slice().into() };
        for action in [count, remove] {
            let told = client.change(vec![Op::Repair { actions: vec![action].into() }]).await;
            // A request retried until its deadline would be `Busy`.
            assert_eq!(told.status, Status::Changed);
        }
    });
}

#[test]
fn rows_are_listed_in_pages() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        for i in 0..5 {
            client.change(vec![create(Handle::ROOT, &name(&format!("f{i}")))]).await;
        }
        let (mut after, mut seen) = (Vec::new(), 0);
        loop {
            let op = Op::Rows { prefix: b"d"[..].into(), after: after.as_slice().into(), limit: 2 };
            let reply = client.ask(vec![op]).await;
            let Answer::Rows { rows, end } = &reply.answers[0] else { panic!() };
            seen += rows.len();
            if *end {
                break;
            }
            after = rows.last().unwrap().key.0.to_vec();
        }
        assert_eq!(seen, 5);
    });
}

#[test]
fn a_new_folder_says_the_format_of_its_rows_and_one_that_says_another_or_none_is_refused() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let key = shoal_server::keys::config("format");
        let store = cluster.stores[0].clone();
        let (row, _) = look(&store, |view| view.get(&key)).await.unwrap();
        assert_eq!(row.as_deref(), Some(&FORMAT.to_le_bytes()[..]));
        // One of an older format that is read is raised.
        cluster.kill(0);
        let older = bytes::Bytes::copy_from_slice(&FORMAT_MIN.to_le_bytes());
        store.apply(Changes { rows: vec![(key.clone(), Some(older))], ..Changes::default() }).unwrap();
        cluster.start(0).await;
        let (raised, _) = look(&store, |view| view.get(&key)).await.unwrap();
        assert_eq!(raised, row);
        for (there, word) in [
            (Some((FORMAT + 1).to_le_bytes().to_vec()), format!("are of format {}", FORMAT + 1)),
            (Some(b"nonsense".to_vec()), "the row of the format".to_owned()),
            (None, "say no format".to_owned()),
        ] {
            cluster.kill(0);
            let value = there.map(bytes::Bytes::from);
            store.apply(Changes { rows: vec![(key.clone(), value)], ..Changes::default() }).unwrap();
            let before = store.applied();
            let refused = cluster.try_start(0).await.expect_err("it is not served");
            let words = refused.to_string();
            assert!(words.contains(&word), "{words}");
            assert_eq!(store.applied(), before, "nothing was changed");
            store.apply(Changes { rows: vec![(key.clone(), row.clone())], ..Changes::default() }).unwrap();
            cluster.start(0).await;
        }
        assert!(cluster.client(0).await.ask(vec![Op::Map {}]).await.status == Status::Ok);
    });
}

#[test]
fn an_fsync_by_a_generation_that_is_no_more_is_refused_and_so_is_one_of_a_file_that_is_gone() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, .. } = &made.answers[0] else { panic!("{made:?}") };
        let (stream, known) = (attr.handle, attr.generation);
        let fsync = |generation| vec![Op::Fsync { stream, generation }];
        assert_eq!(client.ask(fsync(known)).await.status, Status::Ok);
        // Another client lays it out.
        let laid = cluster.client(0).await.change(vec![Op::Unstuff { object: stream }]).await;
        let Answer::Laid { layout } = &laid.answers[0] else { panic!("{laid:?}") };
        assert_eq!(client.ask(fsync(known)).await.status, Status::StaleLayout);
        assert_eq!(client.ask(fsync(layout.generation)).await.status, Status::Ok);
        assert_eq!(client.ask(fsync(Generation(0))).await.status, Status::Ok, "not compared");
        let unlink = Op::Unlink { dir: Handle::ROOT, name: name("file"), held: shoal_proto::Held::default() };
        assert_eq!(client.change(vec![unlink]).await.status, Status::Ok);
        assert_eq!(client.ask(fsync(layout.generation)).await.status, Status::Stale);
    });
}

/// A position that waited for a connection is below what that connection's handshake said.
#[test]
fn a_position_that_arrives_late_is_old_news_and_a_handshake_that_says_less_is_refused() {
    run(|env| async move {
        let store = StoreId(7);
        let with = |map: &mut ClusterMap| map.servers.0[1].store = store;
        let mut cluster = Cluster::of(&env, 2, Settings::default(), with).await;
        cluster.kill(1);
        let wish = |position| Wish { peer: Some(ServerId(1)), store: (store, position), ..Wish::default() };
        let mut peer = Raw::attach(&cluster, 0, wish(100)).await.unwrap();
        assert_eq!(peer.ask(vec![Op::Remember { position: 50 }]).await.status, Status::Ok);
        let Err(refused) = Raw::attach(&cluster, 0, wish(99)).await else { panic!("an older copy is met") };
        assert_eq!(refused.status, Status::OtherStore, "{refused:?}");
        // A position that no journal can reach is not kept: the server would be refused for good.
        let Err(refused) = Raw::attach(&cluster, 0, wish(u64::MAX)).await else { panic!("it is believed") };
        assert_eq!(refused.status, Status::BadMessage, "{refused:?}");
        assert_eq!(peer.ask(vec![Op::Remember { position: u64::MAX }]).await.status, Status::BadMessage);
        assert!(Raw::attach(&cluster, 0, wish(100)).await.is_ok());
    });
}

#[test]
fn two_changes_of_servers_that_did_not_hear_each_other_meet_also_with_one_epoch() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 3).await;
        cluster.kill(2);
        cluster.kill(0);
        let mut one = cluster.client(1).await;
        assert_eq!(one.ask(moves(2, "local:two", 1)).await.status, Status::Ok);
        cluster.kill(1);
        cluster.start(0).await;
        let mut zero = cluster.client(0).await;
        assert_eq!(zero.ask(moves(1, "local:one", 1)).await.status, Status::Ok);
        let epoch = |cluster: &Cluster, on: u16| cluster.shard(on).identity().map.epoch;
        let first = epoch(&cluster, 0);
        assert_eq!(first, cluster.map.epoch + 1);
        // Neither passes its change on any more.
        cluster.kill(0);
        cluster.map.servers.0[1].addresses = vec!["local:one".into()].into();
        cluster.start(1).await;
        assert_eq!(epoch(&cluster, 1), first);
        cluster.start(0).await;
        until(&env, || (0..2).all(|on| address_of(&cluster, on, 1) == "local:one")).await;
        until(&env, || (0..2).all(|on| address_of(&cluster, on, 2) == "local:two")).await;
        until(&env, || epoch(&cluster, 0) == epoch(&cluster, 1)).await;
        assert!(epoch(&cluster, 0) > first, "clients hear of it");
    });
}
