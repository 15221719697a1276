//! Tests of servers over the product's disk store: acknowledged changes are there after a crash, and an older
//! copy of a store is refused, or accepted without its promises.

use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::{
    Answer, Blob, ClusterMap, Handle, Op, ServerId, SessionId, Share, Status, StoreId, Transfer, limits,
};
use shoal_server::rows::{Grant, Pool, RowValue};
use shoal_server::{Settings, keys, stores};
use shoal_store::{CollectionConfig, DataSync, Identity, ModuleKind, SyncModes};
use std::path::Path;
use std::time::Duration;

fn config(dir: &Path) -> CollectionConfig {
    let identity = Identity { fs: FS, collection: COLLECTION.0, server: 0 };
    CollectionConfig {
        segment_bytes: 1 << 20,
        reserve_bytes: 1 << 20,
        ..CollectionConfig::new(dir, ModuleKind::Disk, identity)
    }
}

async fn start(env: &Env, dir: &Path) -> Cluster {
    start_of(env, dir, 1, |_| ()).await
}

/// The first of `servers` over the store in `dir`, with a map that is changed before.
async fn start_of(env: &Env, dir: &Path, servers: u16, change: impl Fn(&mut ClusterMap)) -> Cluster {
    let mut cluster = Cluster::of(env, servers, Settings::default(), change).await;
    cluster.kill(0);
    cluster.stores[0] = shoal_store::open(env.clone(), config(dir)).await.unwrap();
    cluster.start(0).await;
    cluster
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_so_is_its_kept_reply() {
    let dir = tempfile::tempdir().unwrap();
    let (path, again) = (dir.path().to_owned(), dir.path().to_owned());
    let (send, receive) = std::sync::mpsc::channel();
    run(|env| async move {
        let cluster = start(&env, &path).await;
        let mut client = cluster.client(0).await;
        for i in 0..50 {
            let made = client.change(vec![create(Handle::ROOT, &name(&format!("f{i}")))]).await;
            assert_eq!(made.status, Status::Ok);
        }
        let last = client.change(vec![unlink(Handle::ROOT, &name("f0"))]).await;
        send.send((client.attached.session, client.sequence, last)).unwrap();
        // The run ends here: no clean stop.
    });
    let (session, sequence, last): (SessionId, u64, _) = receive.recv().unwrap();
    run(|env| async move {
        let mut cluster = start(&env, &again).await;
        let wish = Wish { session: Some(session), ..Wish::default() };
        let mut client = Raw::attach(&cluster, 0, wish).await.unwrap();
        let retried = client.change_in(slot(0, sequence), vec![unlink(Handle::ROOT, &name("f0"))]).await;
        assert_eq!(retried, last);
        assert_eq!(client.ask(vec![lookup(Handle::ROOT, &name("f0"))]).await.status, Status::NotFound);
        for i in 1..50 {
            let found = client.ask(vec![lookup(Handle::ROOT, &name(&format!("f{i}")))]).await;
            assert_eq!(found.status, Status::Ok);
        }
        assert_eq!(client.ask(vec![Op::Sync {}]).await.status, Status::Ok);
        cluster.servers[0].take().unwrap().stop().await.unwrap();
    });
}

#[test]
fn a_small_write_alone_is_answered_in_mode_at_reply() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    run(|env| async move {
        let cluster = start(&env, &path).await;
        let modes = SyncModes { data: DataSync::AtReply, ..SyncModes::default() };
        cluster.stores[0].set_sync_modes(modes).await.unwrap();
        let mut client = cluster.client(0).await;
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!() };
        let transfer = Transfer {
            stream: attr.handle,
            generation: attr.generation,
            capability: *capability,
            pattern: Pattern::contiguous(0, 1).unwrap(),
            window_from: 0,
            window_len: 1,
            share: Share::WHOLE,
        };
        let ops = vec![Op::Write { transfer, len: 1 }];
        client.send(Some(slot(0, 2)), vec![ops], Bytes::from_static(b"x")).await;
        let until = env.now() + std::time::Duration::from_secs(5);
        let reply = env.deadline(until, client.reply()).await.expect("nothing else has to happen for it");
        assert_eq!(reply.1[0].status, Status::Ok);
    });
}

/// The row of a key, once there is one.
async fn row(env: &Env, client: &mut Raw, key: &Bytes) -> Bytes {
    loop {
        let op = Op::Rows { prefix: Blob(key.clone()), after: Blob(Bytes::new()), limit: 1 };
        let told = client.ask(vec![op]).await;
        let Answer::Rows { rows, .. } = &told.answers[0] else { panic!("{told:?}") };
        match rows.first() {
            Some(row) => return row.value.0.clone(),
            None => env.sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

/// The promises of a store to others.
#[derive(Clone, Debug)]
struct Promises {
    session: SessionId,
    pool: u64,
    grant: u64,
    loss: u64,
}

async fn promises(env: &Env, client: &mut Raw) -> Promises {
    let pool = Pool::from_row(&row(env, client, &keys::pool(ServerId(1))).await).unwrap();
    let grant = Grant::from_row(&row(env, client, &keys::grant(ServerId(1))).await).unwrap();
    let (session, loss) = (client.attached.session, client.attached.loss);
    Promises { session, pool: pool.id, grant: grant.range.first.counter(), loss }
}

#[test]
fn a_fellow_that_was_away_at_the_beginning_knows_the_store_within_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    run(|env| async move {
        let mut cluster = Cluster::of(&env, 2, Settings::default(), |_| ()).await;
        cluster.kill(0);
        cluster.kill(1);
        cluster.stores[0] = shoal_store::open(env.clone(), config(&path)).await.unwrap();
        cluster.start(0).await;
        cluster.start(1).await;
        let own = cluster.stores[0].store_id();
        // Without a second try it is informed after a minute, which is longer than a test may take.
        while cluster.shard(1).identity().map.servers[0].store != own {
            env.sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_position_that_a_peer_says_while_a_server_begins_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    run(|env| async move {
        let store = StoreId(7);
        let with = |map: &mut ClusterMap| map.servers.0[1].store = store;
        let mut cluster = Cluster::of(&env, 2, Settings::default(), with).await;
        cluster.kill(0);
        cluster.kill(1);
        cluster.stores[0] = shoal_store::open(env.clone(), config(&path)).await.unwrap();
        let (map, settings) = (cluster.map.clone(), cluster.settings);
        let at = Cluster {
            env: env.clone(),
            map,
            stores: Vec::new(),
            servers: Vec::new(),
            settings,
            keys: keys(),
            audit: None,
        };
        let peer = |position| Wish { peer: Some(ServerId(1)), store: (store, position), ..Wish::default() };
        // The server waits for its fellow, which does not listen, and answers meanwhile.
        let speaks = async {
            while env.connect(&at.address(0)).await.is_err() {
                env.sleep(Duration::from_millis(1)).await;
            }
            drop(Raw::attach(&at, 0, peer(50)).await.unwrap());
            env.now()
        };
        let begins = async {
            cluster.start(0).await;
            env.now()
        };
        let (spoke, began) = futures_util::join!(speaks, begins);
        assert!(spoke < began, "it spoke while the server began");
        let Err(refused) = Raw::attach(&at, 0, peer(49)).await else { panic!("an older copy is met") };
        assert_eq!(refused.status, Status::OtherStore, "{refused:?}");
        let kept = row(&env, &mut cluster.client(0).await, &stores::key_of(ServerId(1))).await;
        assert_eq!(stores::remembered(&kept), Some((store, 50)));
    });
}

/// A supervisor restarts a server repeatedly.
#[test]
fn an_older_copy_that_its_record_refuses_comes_no_further_by_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = None;
    for start in 0..3 {
        let config = config(dir.path());
        let position = shoal_env::real::run("test", |env| async move {
            let store = shoal_store::open(env, config).await.unwrap();
            let known = store.opened_at().0.max(first.unwrap_or_default()) + 1;
            let refused = stores::refused_by_record(&store, ServerId(0), known).await.unwrap();
            let position = refused.unwrap_or_else(|| panic!("start {start} serves"));
            let accepted = stores::refused_by_record(&store, ServerId(0), position).await.unwrap();
            assert_eq!(accepted, None, "the record knows no more than that");
            store.close().await.unwrap();
            position
        });
        assert_eq!(*first.get_or_insert(position), position, "start {start}");
    }
}

#[test]
fn an_older_copy_that_is_accepted_keeps_its_objects_and_none_of_its_promises() {
    let dir = tempfile::tempdir().unwrap();
    let path = || dir.path().to_owned();
    let (send, receive) = std::sync::mpsc::channel();
    let (at, first) = (path(), send.clone());
    run(|env| async move {
        let cluster = start_of(&env, &at, 2, |_| ()).await;
        let mut client = cluster.client(0).await;
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let promises = promises(&env, &mut client).await;
        first.send((cluster.stores[0].store_id(), handle_of(&made), promises)).unwrap();
    });
    let (lost, file, before) = receive.recv().unwrap();
    let successor = StoreId(lost.0 ^ 0xff00);
    let at = path();
    run(|env| async move {
        let strange = shoal_store::succeed(&env, &config(&at), StoreId(lost.0 ^ 0xf), successor).await;
        assert!(matches!(strange, Err(shoal_store::StoreError::Missing(_))), "{strange:?}");
    });
    for _ in 0..2 {
        let at = path();
        run(|env| async move { shoal_store::succeed(&env, &config(&at), lost, successor).await.unwrap() });
    }
    let renew = move |map: &mut ClusterMap| {
        map.servers.0[0].store = lost;
        map.servers.0[0].renew(successor, true).unwrap();
        map.epoch += 1;
    };
    // Without a map that names the successor it is a foreign one.
    let at = path();
    run(|env| async move {
        let mut cluster = Cluster::of(&env, 2, Settings::default(), |_| ()).await;
        cluster.kill(0);
        cluster.stores[0] = shoal_store::open(env.clone(), config(&at)).await.unwrap();
        let refused = cluster.try_start(0).await.unwrap_err().to_string();
        assert!(refused.contains("mount the disk that holds"), "{refused}");
    });
    let at = path();
    run(|env| async move {
        let cluster = start_of(&env, &at, 2, renew).await;
        let wish = Wish { session: Some(before.session), ..Wish::default() };
        let refused = Raw::attach(&cluster, 0, wish).await.err().map(|refusal| refusal.status);
        assert_eq!(refused, Some(Status::NoSession));
        let mut client = cluster.client(0).await;
        assert_eq!(handle_of(&client.ask(vec![lookup(Handle::ROOT, &name("file"))]).await), file);
        let made = handle_of(&client.change(vec![create(Handle::ROOT, &name("new"))]).await);
        assert!(made.counter() >= limits::STORE_HANDLES, "{made}");
        let after = promises(&env, &mut client).await;
        assert!(after.pool != before.pool && after.loss != before.loss, "{before:?} {after:?}");
        assert!(after.grant >= limits::STORE_HANDLES, "{after:?}");
        let op =
            Op::Rows { prefix: Blob(keys::session(before.session)), after: Blob(Bytes::new()), limit: 1 };
        let told = client.ask(vec![op]).await;
        assert!(matches!(&told.answers[0], Answer::Rows { rows, .. } if rows.is_empty()), "{told:?}");
        send.send((successor, file, after)).unwrap();
    });
    let (_, _, after) = receive.recv().unwrap();
    let at = path();
    run(|env| async move {
        // The successor keeps its promises.
        let cluster = start_of(&env, &at, 2, renew).await;
        let wish = Wish { session: Some(after.session), ..Wish::default() };
        let mut client = Raw::attach(&cluster, 0, wish).await.unwrap();
        let again = promises(&env, &mut client).await;
        assert_eq!((again.pool, again.loss), (after.pool, after.loss));
    });
}
