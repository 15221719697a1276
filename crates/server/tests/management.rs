//! Maps, sync modes, status, rows.

mod raw;

use raw::*;
use shoal_proto::{
    Action, Answer, ClusterMap, Generation, Handle, Op, Roles, ServerId, Status, StoreId, Time,
};
use shoal_server::Settings;
use shoal_server::format::FORMAT;
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
            // What was tried again until there was no time left would be `Busy`.
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
        // What no journal can come to is not kept: the server would be refused for good.
        let Err(refused) = Raw::attach(&cluster, 0, wish(u64::MAX)).await else { panic!("it is believed") };
        assert_eq!(refused.status, Status::BadMessage, "{refused:?}");
        assert_eq!(peer.ask(vec![Op::Remember { position: u64::MAX }]).await.status, Status::BadMessage);
        assert!(Raw::attach(&cluster, 0, wish(100)).await.is_ok());
    });
}
