//! The rename lock: while a move of a directory is in doubt, others continue, and none of them can form a
//! loop with it.

use crate::raw::held::Held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::{Action, Answer, Decision, Handle, Kind, Op, ServerId, Status, TxId};
use shoal_server::Settings;
use shoal_store::{MetadataSync, Module, SyncModes};
use std::rc::Rc;
use std::time::Duration;

const COORDINATOR: ServerId = ServerId(1);

fn rename(from: (Handle, &str), to: (Handle, &str)) -> Vec<Op> {
    vec![Op::Rename {
        from_dir: from.0,
        from_name: name(from.1),
        to_dir: to.0,
        to_name: name(to.1),
        no_replace: false,
        exchange: false,
        held: Default::default(),
    }]
}

/// Three servers, of which the one in the middle dies and is played by the test: `/a` … `/d` and `/a/x` on
/// the last.
struct Scene {
    cluster: Cluster,
    /// To the last server.
    client: Raw,
    dirs: Vec<(String, Handle)>,
    x: Handle,
    /// The dead coordinator's connections to the other servers.
    zero: Raw,
    two: Raw,
    tx: TxId,
}

/// A directory below another one, made on a server that is meant.
async fn directory_on(cluster: &Cluster, dir: Handle, server: u16) -> (String, Handle) {
    let mut client = cluster.client(dir.server().0).await;
    for i in 0.. {
        let text = format!("d{i}");
        let made = client.change(vec![mkdir(dir, &name(&text))]).await;
        if made.status == Status::Ok && handle_of(&made).server() == ServerId(server) {
            return (text, handle_of(&made));
        }
    }
    unreachable!()
}

impl Scene {
    async fn new(env: &Env) -> Scene {
        let settings = Settings { doubt: Duration::from_millis(5), ..Settings::default() };
        let mut cluster = Cluster::with(env, 3, settings).await;
        let mut dirs = Vec::new();
        for _ in 0..4 {
            dirs.push(directory_on(&cluster, Handle::ROOT, 2).await);
        }
        let (_, x) = directory_on(&cluster, dirs[0].1, 2).await;
        cluster.kill(COORDINATOR.0);
        let peer = || Wish { peer: Some(COORDINATOR), ..Wish::default() };
        let zero = Raw::attach(&cluster, 0, peer()).await.unwrap();
        let two = Raw::attach(&cluster, 2, peer()).await.unwrap();
        let client = cluster.client(2).await;
        let tx = TxId(Handle::new(COORDINATOR, 1 << 30).0);
        Scene { cluster, client, dirs, x, zero, two, tx }
    }

    async fn lock(&mut self) -> Status {
        let lock = Op::Prepare {
            tx: self.tx,
            actions: vec![Action::RenameLock {}].into(),
            participants: vec![].into(),
        };
        self.zero.ask(vec![lock]).await.status
    }

    /// The lock's server votes for the move of `/a` into `/b`.
    async fn vote(&mut self) -> Status {
        let (text, a) = self.dirs[0].clone();
        let remove = Action::EntryRemove {
            shard: ServerId(0),
            dir: Handle::ROOT,
            name: name(&text),
            expect: a,
            subdirs: -1,
            time: Default::default(),
        };
        let op = self.prepare(vec![Action::RenameLock {}, remove]);
        self.zero.ask(vec![op]).await.status
    }

    /// The other one prepares it.
    async fn prepare_the_other(&mut self) -> Status {
        let (a, b) = (self.dirs[0].1, self.dirs[1].1);
        let time = Default::default();
        let put = Action::EntryPut {
            shard: ServerId(2),
            dir: b,
            name: name("a"),
            handle: a,
            kind: Kind::Directory,
            expect: None,
            subdirs: 1,
            time,
        };
        let parent = Action::Reparent { dir: a, expect: Handle::ROOT, parent: b, time };
        let op = self.prepare(vec![put, parent]);
        self.two.ask(vec![op]).await.status
    }

    fn prepare(&self, actions: Vec<Action>) -> Op {
        let participants = vec![ServerId(0), ServerId(2)].into();
        Op::Prepare { tx: self.tx, actions: actions.into(), participants }
    }

    async fn finish(&mut self, decision: Decision) {
        for peer in [&mut self.zero, &mut self.two] {
            let finish = Op::Finish { tx: self.tx, decision };
            assert_eq!(peer.ask(vec![finish]).await.status, Status::Ok);
        }
    }

    /// A move that has nothing to do with the one in doubt: `/c` into `/d`, or back.
    async fn unrelated(&mut self, there: bool) -> Status {
        let (c, d) = (self.dirs[2].0.clone(), self.dirs[3].1);
        let (root, inner) = ((Handle::ROOT, c.as_str()), (d, "c"));
        match there {
            true => self.client.change(rename(root, inner)).await.status,
            // The server of the target is asked.
            false => self.cluster.client(0).await.change(rename(inner, root)).await.status,
        }
    }

    /// A move that would make a loop with the one in doubt: `/b` into `/a/x`.
    fn crossing(&self) -> Vec<Op> {
        rename((Handle::ROOT, &self.dirs[1].0), (self.x, "b"))
    }

    /// Every directory's way leads to the root.
    async fn is_a_tree(&mut self) {
        let all: Vec<Handle> = self.dirs.iter().map(|(_, dir)| *dir).chain([self.x]).collect();
        for dir in all {
            let (mut at, mut steps) = (dir, 0);
            while at != Handle::ROOT {
                let answered = self.client.ask(vec![Op::Getattr { object: at }]).await;
                let [Answer::Attr { attr, .. }] = &answered.answers[..] else {
                    panic!("{dir}: {answered:?}")
                };
                at = attr.parent;
                steps += 1;
                assert!(steps < 10, "{dir} hangs on itself");
            }
        }
    }
}

#[test]
fn other_directories_move_while_a_move_is_in_doubt_and_none_forms_a_loop_with_it() {
    for decision in [Decision::Commit, Decision::Abort] {
        run(|env| async move {
            let mut scene = Scene::new(&env).await;
            assert_eq!(scene.lock().await, Status::Ok);
            assert_eq!(scene.prepare_the_other().await, Status::Ok);
            assert_eq!(scene.vote().await, Status::Ok);
            assert_eq!(scene.unrelated(true).await, Status::Ok);
            // A lock that was passed on stays so over a start of the lock's server.
            scene.cluster.kill(0);
            scene.cluster.start(0).await;
            let peer = Wish { peer: Some(COORDINATOR), ..Wish::default() };
            scene.zero = Raw::attach(&scene.cluster, 0, peer).await.unwrap();
            assert_eq!(scene.unrelated(false).await, Status::Ok);
            scene.client.timeout_ms = 300;
            let crossing = scene.crossing();
            assert_eq!(scene.client.change(crossing.clone()).await.status, Status::Busy);
            assert_eq!(scene.unrelated(true).await, Status::Ok);
            // One that waits for the outcome is decided by it.
            scene.client.timeout_ms = 20_000;
            scene.client.send(Some(slot(7, 1)), vec![crossing], Bytes::new()).await;
            until(&env, || scene.cluster.shard(2).counters.snapshot().lock_waits > 1).await;
            scene.finish(decision).await;
            let (_, replies, _) = scene.client.reply().await;
            let expected = if decision == Decision::Commit { Status::Invalid } else { Status::Ok };
            assert_eq!(replies[0].status, expected);
            scene.is_a_tree().await;
            until(&env, || [0, 2].iter().all(|s| scene.cluster.shard(*s).locks.is_empty())).await;
        });
    }
}

#[test]
fn the_rename_lock_alone_is_taken_back_from_a_coordinator_that_does_not_answer_and_is_not_voted_for_later() {
    run(|env| async move {
        let mut scene = Scene::new(&env).await;
        assert_eq!(scene.lock().await, Status::Ok);
        assert_eq!(scene.prepare_the_other().await, Status::Ok);
        // Its walk is worth nothing any more: others move meanwhile.
        assert_eq!(scene.unrelated(true).await, Status::Ok);
        assert_eq!(scene.vote().await, Status::Changed);
        assert_eq!(scene.cluster.shard(0).book.counts().2, 0, "nothing is left of the vote");
        assert_eq!(scene.unrelated(false).await, Status::Ok);
        scene.finish(Decision::Abort).await;
        let crossing = scene.crossing();
        assert_eq!(scene.client.change(crossing).await.status, Status::Ok);
        scene.is_a_tree().await;
    });
}

#[test]
fn the_rename_lock_is_passed_on_only_when_all_others_have_prepared() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 4).await;
        let (_, to) = directory_on(&cluster, Handle::ROOT, 1).await;
        let (text, moved) = directory_on(&cluster, Handle::ROOT, 2).await;
        // A transaction of server 3 has locked the directory to be moved. Server 3 itself is gone: a
        // connection of its own would take the place of this one.
        cluster.kill(3);
        let tx = TxId(Handle::new(ServerId(3), 1 << 30).0);
        let touch = Action::Touch { object: moved, time: Default::default() };
        let peer = Wish { peer: Some(ServerId(3)), ..Wish::default() };
        let mut third = Raw::attach(&cluster, 2, peer).await.unwrap();
        let participants = vec![ServerId(2)].into();
        let prepare = Op::Prepare { tx, actions: vec![touch].into(), participants };
        assert_eq!(third.ask(vec![prepare]).await.status, Status::Ok);
        let aborts = || cluster.shard(1).counters.snapshot().aborts;
        let (before, prepared) = (aborts(), cluster.shard(0).counters.snapshot().prepared);
        let mut client = cluster.client(1).await;
        let moving = rename((Handle::ROOT, &text), (to, "moved"));
        client.send(Some(slot(0, 1)), vec![moving], Bytes::new()).await;
        until(&env, || aborts() >= before + 5).await;
        // Each time the lock was taken, and never voted for.
        let prepared = cluster.shard(0).counters.snapshot().prepared - prepared;
        assert!(prepared <= aborts() - before + 1, "{prepared} for {} tries", aborts() - before);
        assert_eq!(third.ask(vec![Op::Finish { tx, decision: Decision::Abort }]).await.status, Status::Ok);
        assert_eq!(client.reply().await.1[0].status, Status::Ok);
    });
}

#[test]
fn the_walk_of_a_move_waits_until_what_it_reads_is_durable_in_every_mode() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        let (_, above) = directory_on(&cluster, Handle::ROOT, 1).await;
        let (_, to) = directory_on(&cluster, above, 0).await;
        let (text, _) = directory_on(&cluster, Handle::ROOT, 0).await;
        cluster.kill(1);
        let held = Rc::new(Held::new(cluster.stores[1].clone()));
        cluster.stores[1] = held.clone();
        cluster.start(1).await;
        let modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
        held.set_sync_modes(modes).await.unwrap();
        let (mut zero, mut one) = (cluster.client(0).await, cluster.client(1).await);
        assert_eq!(one.ask(vec![Op::Sync {}]).await.status, Status::Ok);
        held.hold();
        one.send(Some(slot(0, 1)), vec![vec![mkdir_beside(above)]], Bytes::new()).await;
        until(&env, || cluster.shard(1).gate.len() == 1).await;
        held.write();
        assert_eq!(one.reply().await.1[0].status, Status::Ok, "it is written");
        // All that is moved lies on server 0; only the way to the root leads over server 1.
        zero.send(Some(slot(0, 1)), vec![rename((Handle::ROOT, &text), (to, "moved"))], Bytes::new()).await;
        until(&env, || cluster.shard(1).gate.len() == 1).await;
        held.sync();
        assert_eq!(zero.reply().await.1[0].status, Status::Ok);
    });
}

/// A change of a directory's own row.
fn mkdir_beside(dir: Handle) -> Op {
    create(dir, &name("beside"))
}
