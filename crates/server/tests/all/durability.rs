//! No message leaves before the changes that it depends on are as durable as the sync mode says.

use crate::raw::held::Held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::{
    Action, Answer, Blob, Capability, ClientId, ClusterMap, Decision, Durability, Generation, Handle, Kind,
    Op, Rights, ServerId, SetAttr, Share, Status, Time, Transfer, TxId,
};
use shoal_server::Settings;
use shoal_store::{DataSync, Lsn, MetadataSync, Module, SyncModes};
use std::rc::Rc;
use std::time::Duration;

struct Scene {
    cluster: Cluster,
    held: Rc<Held>,
    client: Raw,
}

impl Scene {
    async fn new(env: &Env, metadata: MetadataSync, data: DataSync) -> Scene {
        Scene::of(env, metadata, data, "ours").await
    }

    async fn of(env: &Env, metadata: MetadataSync, data: DataSync, switches: &str) -> Scene {
        let with = |map: &mut ClusterMap| map.switches = switches.parse().unwrap();
        let mut cluster = Cluster::of(env, 1, Settings::default(), with).await;
        cluster.kill(0);
        let held = Rc::new(Held::new(cluster.stores[0].clone()));
        cluster.stores[0] = held.clone();
        cluster.start(0).await;
        held.set_sync_modes(SyncModes { metadata, data, ..SyncModes::default() }).await.unwrap();
        let client = cluster.client(0).await;
        Scene { cluster, held, client }
    }

    async fn gated(&self, count: usize) {
        let shard = self.cluster.shard(0);
        until(&self.cluster.env, || shard.gate.len() == count).await;
    }

    async fn send_create(&mut self, sequence: u64, text: &str) {
        let ops = vec![create(Handle::ROOT, &name(text))];
        self.client.send(Some(slot(0, sequence)), vec![ops], Bytes::new()).await;
    }

    /// A client of another id.
    async fn other(&self) -> Raw {
        let wish = Wish { client: ClientId([2; 16]), ..Wish::default() };
        Raw::attach(&self.cluster, 0, wish).await.unwrap()
    }

    async fn status(&mut self) -> Status {
        self.client.reply().await.1[0].status
    }
}

#[test]
fn a_change_is_answered_when_it_is_durable_and_so_is_who_saw_it() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        scene.held.hold();
        scene.send_create(1, "file").await;
        scene.gated(1).await;
        let mut other = scene.cluster.client(0).await;
        other.send(None, vec![vec![lookup(Handle::ROOT, &name("file"))]], Bytes::new()).await;
        scene.gated(2).await;
        other.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(other.reply().await.1[0].answers.0, vec![Answer::Done {}], "it depends on nothing");
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 2);
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);
        assert_eq!(other.reply().await.1[0].status, Status::Ok);
    });
}

#[test]
fn an_error_that_an_undurable_change_causes_waits_too() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        scene.held.hold();
        scene.send_create(1, "file").await;
        scene.send_create(2, "file").await;
        scene.gated(2).await;
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);
        assert_eq!(scene.status().await, Status::Exists);
    });
}

/// Every change of attributes alone.
fn changes_of_attributes(object: Handle) -> Vec<(&'static str, Op)> {
    let setattr = |set: SetAttr| Op::Setattr { object, set };
    let xattr = || Blob(Bytes::from_static(b"user.a"));
    let value = Blob(Bytes::from_static(b"value"));
    vec![
        ("chmod", chmod(object, 0o600)),
        ("chown", setattr(SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() })),
        ("utimens", setattr(SetAttr { atime: Some(Time(5)), mtime: Some(Time(6)), ..SetAttr::default() })),
        ("setxattr", Op::Setxattr { object, name: xattr(), value, create: true, replace: false }),
        ("removexattr", Op::Removexattr { object, name: xattr() }),
    ]
}

fn chmod(object: Handle, mode: u32) -> Op {
    Op::Setattr { object, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

#[test]
fn a_change_of_attributes_is_answered_when_it_is_written_and_who_reads_it_waits_until_it_is_durable() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
        let object = handle_of(&made);
        for (n, (what, op)) in changes_of_attributes(object).into_iter().enumerate() {
            scene.held.hold();
            scene.held.wanted.set(Lsn(0));
            scene.client.send(Some(slot(0, 2 + n as u64)), vec![vec![op]], Bytes::new()).await;
            scene.gated(1).await;
            assert_eq!(scene.held.wanted.get(), Lsn(0), "nobody needs it durable yet: {what}");
            scene.held.write();
            assert_eq!(scene.status().await, Status::Ok, "{what}");
            let changed = scene.held.applied();
            let mut other = scene.other().await;
            let xattr = Op::Getxattr { object, name: Blob(Bytes::from_static(b"user.a")) };
            let readdir = Op::Readdir {
                dir: Handle::ROOT,
                after: None,
                bytes_max: 4096,
                plus: true,
                data_max: 0,
                in_shard: false,
            };
            let open = Op::Open { object, rights: Rights::READ };
            let reads = [
                Op::Getattr { object },
                lookup(Handle::ROOT, &name("file")),
                readdir,
                open,
                Op::Listxattr { object },
            ];
            let mut waiting = 0;
            for read in reads.into_iter().chain(what.contains("xattr").then_some(xattr)) {
                scene.client.send(None, vec![vec![read.clone()]], Bytes::new()).await;
                other.send(None, vec![vec![read]], Bytes::new()).await;
                waiting += 2;
                scene.gated(waiting).await;
            }
            assert_eq!(scene.held.wanted.get(), changed, "it is asked for: {what}");
            scene.held.write();
            env.sleep(Duration::from_millis(1)).await;
            scene.gated(waiting).await;
            scene.held.sync();
            for _ in 0..waiting / 2 {
                let is_gone = |status| what == "removexattr" && status == Status::NoAttribute;
                for status in [scene.status().await, other.reply().await.1[0].status] {
                    assert!(status == Status::Ok || is_gone(status), "{what}: {status:?}");
                }
            }
        }
    });
}

#[test]
fn further_changes_of_attributes_by_its_maker_do_not_wait_until_one_is_durable_and_those_of_others_do() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
        let object = handle_of(&made);
        scene.held.hold();
        for (n, (what, op)) in changes_of_attributes(object).into_iter().enumerate() {
            scene.client.send(Some(slot(0, 2 + n as u64)), vec![vec![op]], Bytes::new()).await;
            scene.gated(1).await;
            scene.held.write();
            assert_eq!(scene.status().await, Status::Ok, "{what}");
        }
        let mut other = scene.other().await;
        other.send(Some(slot(0, 1)), vec![vec![chmod(object, 0o640)]], Bytes::new()).await;
        scene.gated(1).await;
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        scene.gated(1).await;
        // The first client's next one shows the other one's change.
        scene.client.send(Some(slot(0, 7)), vec![vec![chmod(object, 0o600)]], Bytes::new()).await;
        scene.gated(2).await;
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        scene.gated(2).await;
        scene.held.sync();
        assert_eq!((scene.status().await, other.reply().await.1[0].status), (Status::Ok, Status::Ok));
    });
}

#[test]
fn a_change_of_attributes_waits_for_what_else_it_saw_and_for_what_else_its_group_did() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("old"))]).await;
        let old = handle_of(&made);
        let truncate = Op::Truncate { object: old, size: 5, kill_privileges: false };
        let taken = Op::Setxattr {
            object: old,
            name: Blob(Bytes::from_static(b"user.a")),
            value: Blob(Bytes::new()),
            create: true,
            replace: false,
        };
        let groups = [
            ("a new file's", vec![create(Handle::ROOT, &name("new")), chmod(Handle::CURRENT, 0o600)]),
            ("with a size", vec![chmod(old, 0o600), truncate]),
            ("read", vec![Op::Getattr { object: old }, chmod(old, 0o640)]),
            ("made", vec![taken.clone()]),
            ("an error that a change of its own causes", vec![taken]),
        ];
        for (n, (what, ops)) in groups.into_iter().enumerate() {
            if what == "read" {
                scene.held.hold();
                let ops = vec![chmod(old, 0o604)];
                scene.client.send(Some(slot(0, 2)), vec![ops], Bytes::new()).await;
                scene.gated(1).await;
                scene.held.write();
                assert_eq!(scene.status().await, Status::Ok);
            } else if what != "an error that a change of its own causes" {
                scene.held.hold();
            }
            scene.client.send(Some(slot(1, 1 + n as u64)), vec![ops], Bytes::new()).await;
            scene.gated(1).await;
            scene.held.write();
            env.sleep(Duration::from_millis(1)).await;
            if what == "made" {
                assert_eq!(scene.status().await, Status::Ok);
                continue;
            }
            scene.gated(1).await;
            scene.held.sync();
            let expected = if what.starts_with("an error") { Status::Exists } else { Status::Ok };
            assert_eq!(scene.status().await, expected, "{what}");
        }
        // A file that another client made a moment ago.
        scene.held.hold();
        scene.send_create(3, "theirs").await;
        let mut other = scene.other().await;
        let ops = vec![lookup(Handle::ROOT, &name("theirs")), chmod(Handle::CURRENT, 0o600)];
        other.send(Some(slot(0, 1)), vec![ops], Bytes::new()).await;
        scene.gated(2).await;
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        scene.gated(2).await;
        scene.held.sync();
        assert_eq!((scene.status().await, other.reply().await.1[0].status), (Status::Ok, Status::Ok));
    });
}

#[test]
fn a_change_of_attributes_is_as_durable_as_its_request_and_the_modes_ask() {
    run(|env| async move {
        let modes = [MetadataSync::AtReply, MetadataSync::AtFsync, MetadataSync::Never];
        for metadata in modes {
            for durability in
                [Durability::Usual, Durability::Durable, Durability::Written, Durability::Unheld]
            {
                let what = format!("{metadata:?}, {durability:?}");
                let mut scene = Scene::new(&env, metadata, DataSync::AtFsync).await;
                let made =
                    scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
                scene.client.durability = durability;
                scene.held.hold();
                let ops = vec![chmod(handle_of(&made), 0o600)];
                scene.client.send(Some(slot(0, 2)), vec![ops], Bytes::new()).await;
                let at_once = match durability {
                    Durability::Usual => metadata == MetadataSync::Never,
                    Durability::Unheld => true,
                    Durability::Durable | Durability::Written => false,
                };
                if !at_once {
                    scene.gated(1).await;
                    scene.held.write();
                }
                if durability == Durability::Durable {
                    env.sleep(Duration::from_millis(1)).await;
                    scene.gated(1).await;
                    let is_asked = scene.held.pushes.get() > 0 || scene.held.wanted.get() > Lsn(0);
                    assert!(is_asked, "{what}");
                    scene.held.sync();
                }
                assert_eq!(scene.status().await, Status::Ok, "{what}");
                assert_eq!(scene.client.loss.start != 0, at_once, "a kill takes it: {what}");
            }
        }
    });
}

#[test]
fn the_kept_answer_of_a_change_of_attributes_waits_for_what_the_first_one_waited_for() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtReply).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
        let ops = vec![chmod(handle_of(&made), 0o600)];
        scene.held.hold();
        scene.client.send(Some(slot(0, 2)), vec![ops.clone()], Bytes::new()).await;
        scene.gated(1).await;
        let wish = Wish { session: Some(scene.client.attached.session), ..Wish::default() };
        let mut again = Raw::attach(&scene.cluster, 0, wish).await.unwrap();
        let asked = again.send(Some(slot(0, 2)), vec![ops], Bytes::new()).await;
        again.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(again.reply().await.0, again.last_tag(), "it is not written yet");
        scene.held.write();
        let (tag, replies, _) = again.reply().await;
        assert_eq!((tag, replies[0].status), (asked, Status::Ok));
        assert_eq!(scene.cluster.shard(0).counters.snapshot().kept, 1);
    });
}

#[test]
fn a_prepare_that_saw_a_change_of_attributes_waits_until_that_is_durable() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
        let handle = handle_of(&made);
        let peer = Wish { peer: Some(ServerId(1)), ..Wish::default() };
        let mut peer = Raw::attach(&scene.cluster, 0, peer).await.unwrap();
        scene.held.hold();
        scene.client.send(Some(slot(0, 2)), vec![vec![chmod(handle, 0o600)]], Bytes::new()).await;
        scene.gated(1).await;
        scene.held.write();
        assert_eq!(scene.status().await, Status::Ok);
        let pushes = scene.held.pushes.get();
        let tx = TxId(Handle::new(ServerId(1), 1000).0);
        let attr = Op::Getattr { object: handle };
        let action = Action::EntryPut {
            shard: Handle::ROOT.server(),
            dir: Handle::ROOT,
            name: name("new"),
            handle,
            kind: Kind::File,
            expect: None,
            subdirs: 0,
            time: Default::default(),
        };
        let prepare =
            Op::Prepare { tx, actions: vec![action].into(), participants: vec![ServerId(0)].into() };
        for op in [attr, prepare] {
            peer.send(None, vec![vec![op]], Bytes::new()).await;
        }
        scene.gated(1).await;
        until(&env, || scene.held.pushes.get() > pushes).await;
        scene.held.write();
        peer.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(peer.reply().await.0, peer.last_tag(), "neither the fact nor the vote has left");
        scene.held.sync();
        for _ in 0..2 {
            assert_eq!(peer.reply().await.1[0].status, Status::Ok);
        }
    });
}

#[test]
fn in_mode_at_fsync_a_change_is_answered_when_it_is_written() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtFsync, DataSync::AtFsync).await;
        scene.held.hold();
        scene.send_create(1, "file").await;
        scene.gated(1).await;
        scene.held.write();
        assert_eq!(scene.status().await, Status::Ok);
    });
}

#[test]
fn the_steps_of_a_change_over_several_servers_are_durable_in_every_mode() {
    run(|env| async move {
        for metadata in [MetadataSync::AtFsync, MetadataSync::Never] {
            let mut scene = Scene::of(&env, metadata, DataSync::AtFsync, "baseline").await;
            scene.held.hold();
            let ops = vec![Op::Createdata { owner: Handle::new(ServerId(0), 99) }];
            scene.client.send(Some(slot(0, 1)), vec![ops], Bytes::new()).await;
            scene.gated(1).await;
            scene.held.write();
            env.sleep(Duration::from_millis(1)).await;
            assert_eq!(scene.cluster.shard(0).gate.len(), 1, "{metadata:?}");
            assert!(scene.held.pushes.get() > 0, "it asks for that: {metadata:?}");
            scene.held.sync();
            assert_eq!(scene.status().await, Status::Ok);
        }
    });
}

#[test]
fn in_mode_never_nobody_waits() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::Never, DataSync::AtFsync).await;
        scene.held.hold();
        scene.send_create(1, "file").await;
        assert_eq!(scene.status().await, Status::Ok);
    });
}

/// The loss that the last reply states, under every pair of modes and for every durability that a request may
/// ask for: whether a kill of the server alone is included.
#[test]
fn a_reply_says_when_a_kill_of_its_server_would_take_what_was_done_and_an_fsync_finds_that_one_did() {
    run(|env| async move {
        use Durability::{Durable, Unheld, Usual, Written};
        use MetadataSync::Never;
        let modes = [
            (MetadataSync::AtReply, DataSync::AtFsync),
            (MetadataSync::AtFsync, DataSync::AtFsync),
            (Never, DataSync::AtFsync),
            (Never, DataSync::AtReply),
        ];
        for (metadata, data) in modes {
            let mut scene = Scene::new(&env, metadata, data).await;
            for durability in [Usual, Unheld, Written, Durable] {
                let what = format!("{metadata:?}, {data:?}, {durability:?}");
                scene.client.durability = durability;
                let takes = match durability {
                    Usual => metadata == Never,
                    Unheld => true,
                    Written | Durable => false,
                };
                let text = name(&format!("{durability:?}"));
                let made = scene.client.change(vec![create(Handle::ROOT, &text)]).await;
                assert_eq!(scene.client.loss.start != 0, takes, "a creation: {what}");
                let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
                let (stream, generation) = (attr.handle, attr.generation);
                for len in [1, 20_000] {
                    let transfer = Transfer {
                        stream,
                        generation,
                        capability: *capability,
                        pattern: Pattern::contiguous(0, len).unwrap(),
                        window_from: 0,
                        window_len: len,
                        share: Share::WHOLE,
                    };
                    let ops = vec![Op::Write { transfer, len: len as u32 }];
                    scene.client.sequence += 1;
                    let slot = slot(0, scene.client.sequence);
                    scene.client.send(Some(slot), vec![ops], vec![7; len as usize].into()).await;
                    assert_eq!(scene.status().await, Status::Ok);
                    // Data that is durable at reply is so with all records before it.
                    let takes = takes && !(durability == Usual && data == DataSync::AtReply);
                    assert_eq!(scene.client.loss.start != 0, takes, "{len} bytes: {what}");
                    let written = scene.client.loss;
                    let sync = vec![Op::Fsync { stream, generation: Generation(0) }];
                    assert_eq!(scene.client.ask(sync).await.status, Status::Ok);
                    assert!(scene.client.loss.start != 0, "an fsync says it: {what}");
                    assert!(!written.is_lost(scene.client.loss), "{what}");
                }
            }
        }
    });
}

/// Under every pair of modes, and for every durability that a request may ask for: whether the reply names a
/// loss id.
#[test]
fn a_reply_names_what_would_be_lost_unless_all_that_was_done_is_durable_when_it_leaves() {
    run(|env| async move {
        use Durability::{Durable, Unheld, Usual, Written};
        let pairs = [MetadataSync::AtReply, MetadataSync::AtFsync, MetadataSync::Never];
        let pairs = pairs.map(|metadata| [DataSync::AtReply, DataSync::AtFsync].map(|data| (metadata, data)));
        for (metadata, data) in pairs.into_iter().flatten() {
            let mut scene = Scene::new(&env, metadata, data).await;
            let made = scene.client.change(vec![create(Handle::ROOT, &name("file"))]).await;
            let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
            let (stream, generation, capability) = (attr.handle, attr.generation, *capability);
            scene.held.keeps.set(true);
            for durability in [Usual, Unheld, Written, Durable] {
                scene.client.durability = durability;
                let transfer = Transfer {
                    stream,
                    generation,
                    capability,
                    pattern: Pattern::contiguous(0, 9).unwrap(),
                    window_from: 0,
                    window_len: 9,
                    share: Share::WHOLE,
                };
                let truncate = Op::Truncate { object: stream, size: 5, kill_privileges: false };
                let is_durable = |at_reply| durability == Durable || (durability == Usual && at_reply);
                let changes = [
                    (truncate, Bytes::new(), is_durable(metadata == MetadataSync::AtReply)),
                    (
                        Op::Write { transfer, len: 9 },
                        vec![7; 9].into(),
                        is_durable(data == DataSync::AtReply),
                    ),
                ];
                for (op, bulk, is_durable) in changes {
                    let what = format!("{}: {metadata:?}, {data:?}, {durability:?}", op.name());
                    scene.held.hold();
                    scene.client.sequence += 1;
                    let slot = slot(0, scene.client.sequence);
                    scene.client.send(Some(slot), vec![vec![op]], bulk).await;
                    env.sleep(Duration::from_millis(1)).await;
                    scene.held.write();
                    env.sleep(Duration::from_millis(1)).await;
                    match is_durable {
                        true => {
                            assert_eq!(scene.cluster.shard(0).gate.len(), 1, "{what}");
                            scene.held.sync();
                        }
                        false => assert_eq!(scene.cluster.shard(0).gate.len(), 0, "{what}"),
                    }
                    assert_eq!(scene.status().await, Status::Ok, "{what}");
                    assert_eq!(scene.client.loss.is_nothing(), is_durable, "{what}: {:?}", scene.client.loss);
                    scene.held.sync();
                }
                for asks in [Op::Fsync { stream, generation: Generation(0) }, Op::Sync {}] {
                    assert_eq!(scene.client.ask(vec![asks.clone()]).await.status, Status::Ok);
                    let loss = scene.client.loss;
                    assert!(loss.kept != 0 && loss.start != 0, "{asks:?} is compared with all: {loss:?}");
                }
            }
        }
    });
}

#[test]
fn an_fsync_in_mode_never_finds_that_a_kill_took_what_was_written_and_in_the_others_that_none_did() {
    run(|env| async move {
        for metadata in [MetadataSync::Never, MetadataSync::AtFsync, MetadataSync::AtReply] {
            let mut scene = Scene::new(&env, metadata, DataSync::AtFsync).await;
            let made = scene.client.change(vec![create(Handle::ROOT, &name("file"))]).await;
            let (stream, written) = (handle_of(&made), scene.client.loss);
            scene.cluster.kill(0);
            scene.cluster.start(0).await;
            let mut client = scene.cluster.client(0).await;
            client.ask(vec![Op::Fsync { stream, generation: Generation(0) }]).await;
            assert_eq!(written.is_lost(client.loss), metadata == MetadataSync::Never, "{metadata:?}");
        }
    });
}

#[test]
fn data_is_durable_at_reply_where_its_mode_says_so_whatever_the_mode_of_metadata() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::Never, DataSync::AtReply).await;
        let pushes = scene.held.pushes.get();
        send_write(&mut scene).await;
        assert!(scene.held.pushes.get() > pushes, "the journal is asked for it");
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 1);
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);
    });
}

/// A write of one byte to a new file.
async fn send_write(scene: &mut Scene) -> Transfer {
    let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
    let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!() };
    let capability: Option<Capability> = *capability;
    let transfer = Transfer {
        stream: attr.handle,
        generation: Generation(attr.generation.0),
        capability,
        pattern: Pattern::contiguous(0, 1).unwrap(),
        window_from: 0,
        window_len: 1,
        share: Share::WHOLE,
    };
    scene.held.hold();
    let ops = vec![Op::Write { transfer: transfer.clone(), len: 1 }];
    scene.client.send(Some(slot(0, 2)), vec![ops], Bytes::from_static(b"x")).await;
    scene.gated(1).await;
    transfer
}

#[test]
fn a_small_write_is_answered_when_written_or_durable_as_the_data_mode_says() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        send_write(&mut scene).await;
        scene.held.write();
        assert_eq!(scene.status().await, Status::Ok);
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtReply).await;
        let pushes = scene.held.pushes.get();
        send_write(&mut scene).await;
        assert!(
            scene.held.pushes.get() > pushes,
            "the journal makes data alone durable only when it is asked to"
        );
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 1);
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);
    });
}

#[test]
fn a_request_may_ask_for_more_durability_than_the_modes_give() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtFsync, DataSync::AtFsync).await;
        scene.client.durability = Durability::Durable;
        scene.held.hold();
        let pushes = scene.held.pushes.get();
        scene.send_create(1, "file").await;
        scene.gated(1).await;
        assert!(scene.held.pushes.get() > pushes, "the journal is asked, as nobody else would ask it");
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 1);
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);

        let mut scene = Scene::new(&env, MetadataSync::AtFsync, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![create(Handle::ROOT, &name("file"))]).await;
        let handle = handle_of(&made);
        scene.client.durability = Durability::Durable;
        scene.held.hold();
        let pushes = scene.held.pushes.get();
        scene.client.send(Some(slot(0, 2)), vec![vec![chmod(handle, 0o600)]], Bytes::new()).await;
        scene.gated(1).await;
        assert!(scene.held.pushes.get() > pushes, "no strong change that follows has it synced in this mode");
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 1, "attributes too");
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);

        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        scene.client.durability = Durability::Durable;
        send_write(&mut scene).await;
        scene.held.write();
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(scene.cluster.shard(0).gate.len(), 1, "data too");
        scene.held.sync();
        assert_eq!(scene.status().await, Status::Ok);
    });
}

#[test]
fn a_request_may_ask_for_less_durability_and_others_see_it_when_it_is_durable_all_the_same() {
    run(|env| async move {
        for (durability, written_first) in [(Durability::Written, true), (Durability::Unheld, false)] {
            let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
            scene.client.durability = durability;
            scene.held.hold();
            scene.send_create(1, "file").await;
            if written_first {
                scene.gated(1).await;
                scene.held.write();
            }
            assert_eq!(scene.status().await, Status::Ok);
            let mut other = scene.cluster.client(0).await;
            other.send(None, vec![vec![lookup(Handle::ROOT, &name("file"))]], Bytes::new()).await;
            scene.gated(1).await;
            scene.held.sync();
            assert_eq!(other.reply().await.1[0].status, Status::Ok);
        }
    });
}

#[test]
fn the_kept_answer_of_a_durable_write_waits_until_the_write_is_durable() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtReply).await;
        let transfer = send_write(&mut scene).await;
        // Its client lost the connection, and asks again on another.
        let wish = Wish { session: Some(scene.client.attached.session), ..Wish::default() };
        let mut again = Raw::attach(&scene.cluster, 0, wish).await.unwrap();
        let ops = vec![Op::Write { transfer, len: 1 }];
        again.send(Some(slot(0, 2)), vec![ops], Bytes::from_static(b"x")).await;
        scene.held.write();
        env.sleep(Duration::from_millis(5)).await;
        again.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(again.reply().await.0, again.last_tag(), "a power cut could still take the byte");
        scene.held.sync();
        assert_eq!(again.reply().await.1[0].status, Status::Ok);
    });
}

#[test]
fn the_kept_answer_of_a_write_names_what_would_be_lost_only_where_its_bytes_may_be() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        scene.held.keeps.set(true);
        let made = scene.client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let len = 20_000;
        let transfer = Transfer {
            stream: attr.handle,
            generation: attr.generation,
            capability: *capability,
            pattern: Pattern::contiguous(0, len).unwrap(),
            window_from: 0,
            window_len: len,
            share: Share::WHOLE,
        };
        for durability in [Durability::Written, Durability::Durable] {
            scene.client.durability = durability;
            scene.client.sequence += 1;
            let slot = slot(0, scene.client.sequence);
            for time in ["first", "kept"] {
                let ops = vec![Op::Write { transfer: transfer.clone(), len: len as u32 }];
                scene.client.send(Some(slot), vec![ops], vec![7; len as usize].into()).await;
                assert_eq!(scene.status().await, Status::Ok);
                let loss = scene.client.loss;
                assert_eq!(
                    loss.is_nothing(),
                    durability == Durability::Durable,
                    "{time} {durability:?}: {loss:?}"
                );
            }
        }
    });
}

#[test]
fn a_final_refusal_of_a_prepare_waits_for_what_it_saw() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        let made = scene.client.change_in(slot(0, 1), vec![mkdir(Handle::ROOT, &name("dir"))]).await;
        let dir = handle_of(&made);
        let peer = Wish { peer: Some(ServerId(1)), ..Wish::default() };
        let mut peer = Raw::attach(&scene.cluster, 0, peer).await.unwrap();
        scene.held.hold();
        let ops = vec![create(dir, &name("file"))];
        scene.client.send(Some(slot(0, 2)), vec![ops], Bytes::new()).await;
        scene.gated(1).await;
        let tx = TxId(Handle::new(ServerId(1), 1000).0);
        let prepare = Op::Prepare {
            tx,
            actions: vec![Action::DirectoryRemove { shard: dir.server(), dir, split: false }].into(),
            participants: vec![ServerId(0)].into(),
        };
        let asked = peer.send(None, vec![vec![prepare]], Bytes::new()).await;
        env.sleep(Duration::from_millis(5)).await;
        peer.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(
            peer.reply().await.0,
            peer.last_tag(),
            "the entry that is in the way could still be taken back"
        );
        scene.held.sync();
        let (tag, replies, _) = peer.reply().await;
        assert_eq!((tag, replies[0].status), (asked, Status::NotEmpty));
    });
}

#[test]
fn what_waits_when_the_store_is_poisoned_is_told_so() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        scene.held.hold();
        scene.send_create(1, "file").await;
        scene.gated(1).await;
        scene.held.poison();
        assert_eq!(scene.status().await, Status::Poisoned);
    });
}

#[test]
fn prepares_and_finishes_are_durable_in_every_mode() {
    run(|env| async move {
        let scene = Scene::new(&env, MetadataSync::Never, DataSync::AtFsync).await;
        let peer = Wish { peer: Some(ServerId(1)), ..Wish::default() };
        let mut peer = Raw::attach(&scene.cluster, 0, peer).await.unwrap();
        let tx = TxId(Handle::new(ServerId(1), 1000).0);
        let action = Action::EntryPut {
            shard: Handle::ROOT.server(),
            dir: Handle::ROOT,
            name: name("file"),
            handle: Handle::new(ServerId(1), 1001),
            kind: Kind::File,
            expect: None,
            subdirs: 0,
            time: Default::default(),
        };
        for op in [
            Op::Prepare { tx, actions: vec![action].into(), participants: vec![ServerId(0)].into() },
            Op::Finish { tx, decision: Decision::Commit },
        ] {
            scene.held.hold();
            let pushes = scene.held.pushes.get();
            peer.send(None, vec![vec![op]], Bytes::new()).await;
            until(&env, || scene.held.pushes.get() > pushes).await;
            peer.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
            assert_eq!(peer.reply().await.0, peer.last_tag(), "the ping overtakes");
            scene.held.sync();
            assert_eq!(peer.reply().await.1[0].status, Status::Ok);
        }
    });
}

#[test]
fn a_retry_attaches_to_the_transaction_that_its_lost_connection_began() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        cluster.kill(1);
        let held = Rc::new(Held::new(cluster.stores[1].clone()));
        cluster.stores[1] = held.clone();
        cluster.start(1).await;
        let mut client = cluster.client(0).await;
        // Directories go now to one server, now to the other: until one waits for server 1's journal.
        held.hold();
        let ops = |n: u64| vec![mkdir(Handle::ROOT, &name(&format!("d{n}")))];
        let mut n = 0;
        loop {
            n += 1;
            let prepares = cluster.shard(0).counters.snapshot().prepares;
            client.send(Some(slot(0, n)), vec![ops(n)], Bytes::new()).await;
            let env = &env;
            let began =
                async { until(env, || cluster.shard(0).counters.snapshot().prepares > prepares).await };
            let replied = Box::pin(client.reply());
            match futures_util::future::select(Box::pin(began), replied).await {
                futures_util::future::Either::Left(_) => break,
                futures_util::future::Either::Right(((_, replies, _), _)) => {
                    assert_eq!(replies[0].status, Status::Ok);
                }
            }
        }
        let wish = Wish { session: Some(client.attached.session), ..Wish::default() };
        let mut new = Raw::attach(&cluster, 0, wish).await.unwrap();
        new.send(Some(slot(0, n)), vec![ops(n)], Bytes::new()).await;
        new.send(None, vec![vec![Op::Ping {}]], Bytes::new()).await;
        assert_eq!(new.reply().await.0, 2, "the retry waits with the transaction");
        held.sync();
        let replies = new.reply().await.1;
        assert_eq!(handle_of(&replies[0]).server(), ServerId(1));
        assert_eq!(cluster.shard(0).counters.snapshot().commits, 1);
    });
}

#[test]
fn closing_a_file_makes_nothing_durable() {
    run(|env| async move {
        let mut scene = Scene::new(&env, MetadataSync::AtReply, DataSync::AtFsync).await;
        send_write(&mut scene).await;
        scene.held.write();
        assert_eq!(scene.status().await, Status::Ok);
        let (pushes, durable) = (scene.held.pushes.get(), scene.held.durable());
        assert!(durable < scene.held.applied());
        let looked = scene.client.ask(vec![lookup(Handle::ROOT, &name("file"))]).await;
        let object = handle_of(&looked);
        // All that a close may ask; a file with a name asks nothing.
        let closed = scene.client.change_in(slot(0, 3), vec![Op::Release { object }]).await;
        assert_eq!(closed.status, Status::Ok);
        env.sleep(Duration::from_millis(50)).await;
        assert_eq!((scene.held.pushes.get(), scene.held.durable()), (pushes, durable));
    });
}

#[test]
fn a_sync_of_what_is_gone_says_so() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, .. } = &made.answers[0] else { panic!("{made:?}") };
        let (stream, generation) = (attr.handle, attr.generation);
        assert_ne!(generation, Generation(0), "a client knows the generation of each file");
        let sync = |stream, generation| vec![Op::Fsync { stream, generation }];
        assert_eq!(client.ask(sync(stream, generation)).await.status, Status::Ok);
        assert_eq!(client.ask(sync(Handle::ROOT, Generation(0))).await.status, Status::Ok);
        let held = shoal_proto::Held::default();
        let unlink = Op::Unlink { dir: Handle::ROOT, name: name("file"), held };
        assert_eq!(client.change(vec![unlink]).await.status, Status::Ok);
        assert_eq!(client.ask(sync(stream, generation)).await.status, Status::Stale);
    });
}
