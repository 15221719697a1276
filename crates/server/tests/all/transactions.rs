//! Operations over several servers: all or nothing, seen by all clients at once, whatever fails in between.

use crate::raw::*;
use bytes::Bytes;
use shoal_proto::{Action, Answer, Attr, Decision, Handle, Kind, Op, ServerId, Status, TxId};
use shoal_server::rows::{Inode, RowValue, Tx, TxState};
use shoal_server::{Settings, keys};
use shoal_store::Changes;
use std::time::Duration;

fn quick() -> Settings {
    Settings { doubt: Duration::from_millis(5), ..Settings::default() }
}

fn rename(from: (Handle, &str), to: (Handle, &str)) -> Op {
    Op::Rename {
        from_dir: from.0,
        from_name: name(from.1),
        to_dir: to.0,
        to_name: name(to.1),
        no_replace: false,
        exchange: false,
        held: Default::default(),
    }
}

fn transaction_rows(cluster: &Cluster) -> usize {
    let scan = |s: &shoal_store::Collection| s.scan(b"t", None, 100, &Default::default()).unwrap().rows.len();
    cluster.stores.iter().map(scan).sum()
}

#[test]
fn a_directory_is_made_on_another_server_and_used_at_once() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let mut one = cluster.client(1).await;
        let (dir_name, dir) = cluster.directory_on(&mut zero, 1).await;
        let found = zero.ask(vec![lookup(Handle::ROOT, &dir_name)]).await;
        assert_eq!(handle_of(&found), dir);
        let file = one.change(vec![create(dir, &name("file"))]).await;
        assert_eq!(handle_of(&file).server(), ServerId(1));
        let root = zero.ask(vec![Op::Getattr { object: Handle::ROOT }]).await;
        let Answer::Attr { attr, .. } = &root.answers[0] else { panic!() };
        assert!(attr.nlink >= 3);
        let counts = cluster.shard(0).counters.snapshot();
        assert!(counts.commits >= 1 && counts.aborts == 0);
        until(&env, || transaction_rows(&cluster) == 0).await;
        until(&env, || cluster.shard(1).locks.is_empty()).await;
        assert!(cluster.shard(0).locks.is_empty());
    });
}

#[test]
fn a_directory_on_another_server_is_removed_only_when_empty() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let (mut zero, mut one) = (cluster.client(0).await, cluster.client(1).await);
        let (dir_name, dir) = cluster.directory_on(&mut zero, 1).await;
        one.change(vec![create(dir, &name("file"))]).await;
        let rmdir = || vec![Op::Rmdir { dir: Handle::ROOT, name: dir_name.clone() }];
        assert_eq!(zero.change(rmdir()).await.status, Status::NotEmpty);
        assert_eq!(one.change(vec![unlink(dir, &name("file"))]).await.status, Status::Ok);
        assert_eq!(zero.change(rmdir()).await.status, Status::Ok);
        assert_eq!(zero.ask(vec![lookup(Handle::ROOT, &dir_name)]).await.status, Status::NotFound);
        assert_eq!(one.ask(vec![Op::Getattr { object: dir }]).await.status, Status::Stale);
        until(&env, || transaction_rows(&cluster) == 0).await;
    });
}

#[test]
fn files_and_directories_move_between_servers() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 3).await;
        let (mut zero, mut one, mut two) =
            (cluster.client(0).await, cluster.client(1).await, cluster.client(2).await);
        let (_, a) = cluster.directory_on(&mut zero, 1).await;
        let (_, b) = cluster.directory_on(&mut zero, 2).await;
        let file = handle_of(&one.change(vec![create(a, &name("file"))]).await);
        assert_eq!(two.change(vec![rename((a, "file"), (b, "moved"))]).await.status, Status::Ok);
        assert_eq!(one.ask(vec![lookup(a, &name("file"))]).await.status, Status::NotFound);
        assert_eq!(handle_of(&two.ask(vec![lookup(b, &name("moved"))]).await), file);
        // A directory: under the rename lock.
        let sub = handle_of(&one.change(vec![mkdir(a, &name("sub"))]).await);
        assert_eq!(two.change(vec![rename((a, "sub"), (b, "sub"))]).await.status, Status::Ok);
        assert_eq!(handle_of(&two.ask(vec![lookup(b, &name("sub"))]).await), sub);
        until(&env, || transaction_rows(&cluster) == 0).await;
        for server in 0..3 {
            assert!(cluster.shard(server).locks.is_empty(), "server {server}");
        }
    });
}

#[test]
fn no_directory_is_moved_into_itself_over_servers() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let (outer_name, outer) = cluster.directory_on(&mut zero, 1).await;
        let mut one = cluster.client(1).await;
        let inner = handle_of(&one.change(vec![mkdir(outer, &name("inner"))]).await);
        let mut at = cluster.client(inner.server().0).await;
        let outer_text = outer_name.to_string();
        let looped = at.change(vec![rename((Handle::ROOT, &outer_text), (inner, "loop"))]).await;
        assert_eq!(looped.status, Status::Invalid);
        until(&env, || (0..2).all(|s| cluster.shard(s).locks.is_empty())).await;
    });
}

#[test]
fn directories_made_one_after_the_other_lie_evenly_over_the_servers() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 3).await;
        let mut zero = cluster.client(0).await;
        let mut on = [0; 3];
        for n in 0..12 {
            let made = zero.change(vec![mkdir(Handle::ROOT, &name(&format!("d{n}")))]).await;
            on[usize::from(handle_of(&made).server().0)] += 1;
        }
        assert_eq!(on, [4; 3]);
    });
}

#[test]
fn a_retried_mkdir_over_servers_is_one_mkdir() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let ops = |n: u64| vec![mkdir(Handle::ROOT, &name(&format!("d{n}")))];
        for n in 1..6 {
            let first = zero.change_in(slot(0, n), ops(n)).await;
            assert_eq!(first.status, Status::Ok);
            assert_eq!(zero.change_in(slot(0, n), ops(n)).await, first);
        }
        let session = zero.attached.session;
        let last = zero.change_in(slot(0, 6), ops(6)).await;
        cluster.kill(0);
        cluster.start(0).await;
        let wish = Wish { session: Some(session), ..Wish::default() };
        let mut zero = Raw::attach(&cluster, 0, wish).await.unwrap();
        assert_eq!(zero.change_in(slot(0, 6), ops(6)).await, last);
    });
}

/// A transaction of server 1 prepared on server 0: an entry of the root.
fn put_entry(tx: u64, text: &str, target: Handle) -> (TxId, Op) {
    let tx = TxId(Handle::new(ServerId(1), tx).0);
    let action = Action::EntryPut {
        shard: Handle::ROOT.server(),
        dir: Handle::ROOT,
        name: name(text),
        handle: target,
        kind: Kind::Directory,
        expect: None,
        subdirs: 1,
        time: Default::default(),
    };
    (tx, Op::Prepare { tx, actions: vec![action].into(), participants: vec![ServerId(0)].into() })
}

async fn as_peer(cluster: &Cluster, peer: u16) -> Raw {
    Raw::attach(cluster, 0, Wish { peer: Some(ServerId(peer)), ..Wish::default() }).await.unwrap()
}

#[test]
fn what_was_prepared_survives_a_restart_and_is_finished_by_its_coordinator() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let target = Handle::new(ServerId(1), 5);
        let (tx, prepare) = put_entry(4, "dir", target);
        let mut peer = as_peer(&cluster, 1).await;
        assert_eq!(peer.ask(vec![prepare.clone()]).await.status, Status::Ok);
        assert_eq!(peer.ask(vec![prepare]).await.status, Status::Ok, "it may be asked twice");
        cluster.kill(0);
        cluster.start(0).await;
        // Still locked: another transaction meets it, an ordinary operation waits.
        let mut peer = as_peer(&cluster, 1).await;
        let (_, other) = put_entry(6, "dir", target);
        assert_eq!(peer.ask(vec![other]).await.status, Status::Busy);
        let mut client = cluster.client(0).await;
        let tag = client.send(None, vec![vec![lookup(Handle::ROOT, &name("dir"))]], Bytes::new()).await;
        until(&env, || cluster.shard(0).counters.snapshot().lock_waits == 1).await;
        let finish = Op::Finish { tx, decision: Decision::Commit };
        assert_eq!(peer.ask(vec![finish.clone()]).await.status, Status::Ok);
        assert_eq!(peer.ask(vec![finish]).await.status, Status::Ok, "it may be asked twice");
        let (answered, replies, _) = client.reply().await;
        assert_eq!(answered, tag);
        assert_eq!(handle_of(&replies[0]), target);
        assert_eq!(transaction_rows(&cluster), 0);
    });
}

#[test]
fn a_participant_in_doubt_asks_and_hears_of_the_abort() {
    run(|env| async move {
        let mut cluster = Cluster::with(&env, 2, quick()).await;
        // Its coordinator, server 1, knows nothing of it: so it was aborted.
        let (_, prepare) = put_entry(4, "dir", Handle::new(ServerId(1), 5));
        // The real one fills its pools: its connection must not come after, and replace, that of the test
        // that speaks for it.
        until(&env, || cluster.shard(0).peer_sessions.borrow().contains_key(&ServerId(1))).await;
        let mut peer = as_peer(&cluster, 1).await;
        assert_eq!(peer.ask(vec![prepare.clone()]).await.status, Status::Ok);
        until(&env, || transaction_rows(&cluster) == 0).await;
        assert!(cluster.shard(0).locks.is_empty());
        // The same after a restart of the participant.
        assert_eq!(peer.ask(vec![prepare]).await.status, Status::Ok);
        cluster.kill(0);
        cluster.start(0).await;
        until(&env, || transaction_rows(&cluster) == 0).await;
        let found = cluster.client(0).await.ask(vec![lookup(Handle::ROOT, &name("dir"))]).await;
        assert_eq!(found.status, Status::NotFound);
    });
}

#[test]
fn a_committed_transaction_is_finished_after_a_crash_of_its_coordinator() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        // Server 0 prepares a transaction on server 1, decides, and dies before it can report that.
        let (tx, object) = (TxId(Handle::new(ServerId(0), 60_000).0), Handle::new(ServerId(1), 60_000));
        let root = cluster.client(0).await.ask(vec![Op::Getattr { object: Handle::ROOT }]).await;
        let Answer::Attr { attr, .. } = &root.answers[0] else { panic!() };
        let attr = Attr { handle: object, ..attr.clone() };
        let mut coordinator =
            Raw::attach(&cluster, 1, Wish { peer: Some(ServerId(0)), ..Wish::default() }).await.unwrap();
        let prepare = Op::Prepare {
            tx,
            actions: vec![Action::ObjectCreate { attr }].into(),
            participants: vec![ServerId(0)].into(),
        };
        assert_eq!(coordinator.ask(vec![prepare]).await.status, Status::Ok);
        cluster.kill(0);
        let row = Tx { state: TxState::Committed { unfinished: vec![ServerId(1)] } };
        let mut decision = Changes::default();
        decision.put(keys::tx(tx), row.to_row());
        cluster.stores[0].apply(decision).unwrap();
        cluster.start(0).await;
        let mut one = cluster.client(1).await;
        assert_eq!(handle_of(&one.ask(vec![Op::Getattr { object }]).await), object);
        until(&env, || transaction_rows(&cluster) == 0).await;
    });
}

#[test]
fn only_the_coordinator_prepares_and_finishes() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let (tx, prepare) = put_entry(4, "dir", Handle::new(ServerId(1), 5));
        let mut other = as_peer(&cluster, 2).await;
        assert_eq!(other.ask(vec![prepare]).await.status, Status::Forbidden);
        let finish = Op::Finish { tx, decision: Decision::Commit };
        assert_eq!(other.ask(vec![finish]).await.status, Status::Forbidden);
    });
}

#[test]
fn a_transaction_that_meets_a_lock_backs_off_and_succeeds_when_it_is_gone() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut zero, 1).await;
        let mut one = cluster.client(1).await;
        one.change(vec![create(dir, &name("file"))]).await;
        // A transaction of a third server holds the entry that the rename wants to put into the root.
        let tx = TxId(Handle::new(ServerId(2), 4).0);
        let action = Action::EntryPut {
            shard: dir.server(),
            dir,
            name: name("file2"),
            handle: Handle::new(ServerId(2), 5),
            kind: Kind::File,
            expect: None,
            subdirs: 0,
            time: Default::default(),
        };
        let mut third =
            Raw::attach(&cluster, 1, Wish { peer: Some(ServerId(2)), ..Wish::default() }).await.unwrap();
        let remove = Action::EntryRemove {
            shard: dir.server(),
            dir,
            name: name("file"),
            expect: handle_of(&one.ask(vec![lookup(dir, &name("file"))]).await),
            subdirs: 0,
            time: Default::default(),
        };
        let prepare =
            Op::Prepare { tx, actions: vec![action, remove].into(), participants: vec![ServerId(0)].into() };
        assert_eq!(third.ask(vec![prepare]).await.status, Status::Ok);
        zero.send(Some(slot(9, 1)), vec![vec![rename((dir, "file"), (Handle::ROOT, "file"))]], Bytes::new())
            .await;
        until(&env, || cluster.shard(1).counters.snapshot().lock_waits > 0).await;
        third.ask(vec![Op::Finish { tx, decision: Decision::Abort }]).await;
        let (_, replies, _) = zero.reply().await;
        assert_eq!(replies[0].status, Status::Ok);
        assert_eq!(zero.ask(vec![lookup(Handle::ROOT, &name("file"))]).await.status, Status::Ok);
    });
}

#[test]
fn many_renames_at_once_between_two_servers_all_end_and_lose_nothing() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut zero, 1).await;
        let mut one = cluster.client(1).await;
        for i in 0..16 {
            let status =
                one.change_in(slot(20 + i, 1), vec![create(dir, &name(&format!("f{i}")))]).await.status;
            assert_eq!(status, Status::Ok);
        }
        // Two by two they move to one name of the root: the second replaces the first.
        for i in 0..16_u16 {
            let ops = vec![vec![rename((dir, &format!("f{i}")), (Handle::ROOT, &format!("g{}", i / 2)))]];
            zero.send(Some(slot(20 + i, 1)), ops, Bytes::new()).await;
        }
        for _ in 0..16 {
            let (_, replies, _) = zero.reply().await;
            assert_eq!(replies[0].status, Status::Ok);
        }
        for i in 0..8 {
            let found = zero.ask(vec![lookup(Handle::ROOT, &name(&format!("g{i}")))]).await;
            assert_eq!(found.status, Status::Ok);
        }
        until(&env, || transaction_rows(&cluster) == 0).await;
        assert!((0..2).all(|s| cluster.shard(s).locks.is_empty()));
        // Eight were replaced and are gone, eight are left, in addition to the root and the directories.
        let is_file = |(_, row): &(Bytes, Bytes)| Inode::from_row(row).unwrap().kind == Kind::File;
        let files = |s: &shoal_store::Collection| {
            s.scan(b"a", None, 1000, &Default::default()).unwrap().rows.iter().filter(|r| is_file(r)).count()
        };
        assert_eq!(cluster.stores.iter().map(files).sum::<usize>(), 8);
    });
}

#[test]
fn the_datafiles_of_a_removed_file_are_reaped_on_their_servers() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 3).await;
        let mut zero = cluster.client(0).await;
        let file = handle_of(&zero.change(vec![create(Handle::ROOT, &name("file"))]).await);
        let laid = zero.change(vec![Op::Unstuff { object: file }]).await;
        let Answer::Laid { layout } = &laid.answers[0] else { panic!("{laid:?}") };
        let datafiles: Vec<Handle> = layout.datafiles.iter().copied().filter(|d| *d != file).collect();
        assert_eq!(datafiles.len(), 2);
        let stream = |cluster: &Cluster, datafile: Handle| {
            let store = &cluster.stores[usize::from(datafile.server().0)];
            store.stream(datafile, &Default::default()).unwrap()
        };
        let longer = Op::Truncate { object: file, size: 1 << 30, kill_privileges: false };
        assert_eq!(zero.change(vec![longer]).await.status, Status::Ok);
        assert!(datafiles.iter().all(|d| stream(&cluster, *d).is_some()));
        // One of the servers is away when the file is removed, and is informed when it is back.
        cluster.kill(2);
        assert_eq!(zero.change(vec![unlink(Handle::ROOT, &name("file"))]).await.status, Status::Ok);
        until(&env, || datafiles.iter().any(|d| stream(&cluster, *d).is_none())).await;
        cluster.start(2).await;
        until(&env, || datafiles.iter().all(|d| stream(&cluster, *d).is_none())).await;
        let reaps = || cluster.stores[0].scan(b"r", None, 10, &Default::default()).unwrap().rows.len();
        until(&env, || reaps() == 0).await;
    });
}

fn ended_rows(cluster: &Cluster, server: usize) -> usize {
    cluster.stores[server].scan(b"e", None, 100, &Default::default()).unwrap().rows.len()
}

#[test]
fn a_participant_remembers_what_it_carried_out_beside_others_until_its_coordinator_has_forgotten_it() {
    run(|env| async move {
        let settings = Settings { lease: Duration::from_millis(900), ..Settings::default() };
        let mut cluster = Cluster::with(&env, 3, settings).await;
        let mut zero = cluster.client(0).await;
        let (_, one) = cluster.directory_on(&mut zero, 1).await;
        let (_, two) = cluster.directory_on(&mut zero, 2).await;
        let (mut first, mut second) = (cluster.client(1).await, cluster.client(2).await);
        // Its inode is on server 2, its name on server 1.
        second.change(vec![create(two, &name("file"))]).await;
        assert_eq!(first.change(vec![rename((two, "file"), (one, "file"))]).await.status, Status::Ok);
        assert_eq!(
            [1, 2].map(|server| ended_rows(&cluster, server)),
            [0, 0],
            "one participant beside the coordinator"
        );
        assert_eq!(zero.change(vec![rename((one, "file"), (Handle::ROOT, "file"))]).await.status, Status::Ok);
        until(&env, || [1, 2].map(|server| ended_rows(&cluster, server)) == [1, 1]).await;
        until(&env, || transaction_rows(&cluster) == 0).await;
        // Also over a restart of one of them.
        cluster.kill(2);
        cluster.start(2).await;
        assert_eq!(ended_rows(&cluster, 2), 1);
        until(&env, || [1, 2].map(|server| ended_rows(&cluster, server)) == [0, 0]).await;
    });
}

#[test]
fn a_repair_ends_what_a_lost_store_began_and_nothing_of_its_successor() {
    run(|env| async move {
        let renew = |map: &mut shoal_proto::ClusterMap| {
            map.servers.0[1].store = shoal_proto::StoreId(5);
            map.servers.0[1].renew(shoal_proto::StoreId(6), false).unwrap();
        };
        let mut cluster = Cluster::of(&env, 2, Settings::default(), renew).await;
        let mut client = cluster.client(0).await;
        let file = handle_of(&client.change(vec![create(Handle::ROOT, &name("file"))]).await);
        cluster.kill(1);
        let wish = Wish { peer: Some(ServerId(1)), ..Wish::default() };
        let mut peer = Raw::attach(&cluster, 0, wish).await.unwrap();
        let lost = TxId(Handle::new(ServerId(1), 4711).0);
        let own = TxId(Handle::new(ServerId(1), shoal_proto::limits::STORE_HANDLES + 4711).0);
        let prepare = |tx| {
            let actions = vec![Action::Touch { object: file, time: shoal_proto::Time(77) }];
            vec![Op::Prepare { tx, actions: actions.into(), participants: vec![ServerId(0)].into() }]
        };
        let ctime = async |client: &mut Raw| match &client
            .ask(vec![Op::Getattr { object: file }])
            .await
            .answers[..]
        {
            [Answer::Attr { attr, .. }] => attr.ctime,
            _ => panic!("no attributes"),
        };
        let finish = |tx, decision| vec![Op::Finish { tx, decision }];
        // Aborted.
        assert_eq!(peer.ask(prepare(lost)).await.status, Status::Ok);
        assert_eq!(client.ask(finish(lost, Decision::Abort)).await.status, Status::Ok);
        assert_ne!(ctime(&mut client).await, shoal_proto::Time(77));
        // Carried out; again, that is done.
        assert_eq!(peer.ask(prepare(lost)).await.status, Status::Ok);
        for _ in 0..2 {
            assert_eq!(client.ask(finish(lost, Decision::Commit)).await.status, Status::Ok);
        }
        assert_eq!(ctime(&mut client).await, shoal_proto::Time(77));
        assert!(cluster.shard(0).locks.is_empty());
        // Its successor decides by itself.
        assert_eq!(peer.ask(prepare(own)).await.status, Status::Ok);
        for decision in [Decision::Commit, Decision::Abort] {
            assert_eq!(client.ask(finish(own, decision)).await.status, Status::Forbidden);
        }
    });
}
