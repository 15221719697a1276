//! Tests of appends whose shares are written by several servers. A late share does not overwrite bytes that
//! another client has written since, and an append whose bytes are written is not repeated. Appends,
//! truncations and explicit times take turns.

use crate::raw::held::Held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_pattern::Pattern;
use shoal_proto::{
    Answer, Dist, GroupReply, Handle, Op, Rights, ServerId, SetAttr, Share, Status, Template, Time, Transfer,
    TxId,
};
use shoal_server::keys;
use shoal_server::locks::Mode;
use shoal_store::Module as _;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const STRIP: usize = 64 << 10;

/// Two servers, the second of which holds writes on request; in virtual time.
async fn cluster(env: &Env) -> (Cluster, Rc<Held>) {
    let mut cluster = Cluster::new(env, 2).await;
    cluster.kill(1);
    let held = Rc::new(Held::new(cluster.stores[1].clone()));
    cluster.stores[1] = held.clone();
    cluster.start(1).await;
    (cluster, held)
}

fn run_simulated<F: Future<Output = ()> + 'static>(body: impl FnOnce(Env) -> F + 'static) {
    run_at(Duration::from_secs(1), 0, body);
}

/// The wall clock jumps at that moment.
fn run_at<F: Future<Output = ()> + 'static>(
    at: Duration,
    jump_s: i64,
    body: impl FnOnce(Env) -> F + 'static,
) {
    let world = World::new(5, Config::default());
    let machine = world.machine("m");
    let process = world.process("all", machine);
    world.at(world.now() + at, move |world| world.jump_wall(machine, jump_s * 1_000_000_000));
    world.complete(process, body);
}

/// A new file and the right to it.
async fn file(client: &mut Raw, at: &str) -> (Handle, Op) {
    let Op::Create { dir, name, owner, exclusive, open, .. } = create(Handle::ROOT, &name(at)) else {
        unreachable!()
    };
    let template = Some(Template { dist: Dist::SimpleStripe { strip: STRIP as u64 }, width: 0 });
    let made = client.change(vec![Op::Create { dir, name, owner, exclusive, open, template }]).await;
    let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
    (attr.handle, Op::Append { object: attr.handle, capability: *capability, len: 0, laid_out: true })
}

async fn send_append(client: &mut Raw, append: &Op, data: Bytes) {
    let Op::Append { object, capability, .. } = append.clone() else { unreachable!() };
    client.sequence += 1;
    let slot = slot(0, client.sequence);
    let op = Op::Append { object, capability, len: data.len() as u32, laid_out: true };
    client.send(Some(slot), vec![vec![op]], data).await;
}

fn offset_of(reply: &GroupReply) -> usize {
    match reply.answers.first() {
        Some(Answer::Appended { offset, .. }) => *offset as usize,
        _ => panic!("{reply:?}"),
    }
}

#[test]
fn a_share_of_an_append_that_timed_out_never_lands_on_a_later_one() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (object, append) = file(&mut client, "log").await;
        let laid = client.change(vec![Op::Unstuff { object }]).await;
        assert_eq!(laid.status, Status::Ok);

        held.stalls.set(1);
        send_append(&mut client, &append, vec![b'a'; 4 * STRIP].into()).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(replies[0].status, Status::TimedOut, "the other server does not answer");
        // The next one comes while that share is still on its way.
        send_append(&mut client, &append, vec![b'b'; 4 * STRIP].into()).await;
        env.sleep(Duration::from_secs(2)).await;
        held.release();
        let (_, replies, _) = client.reply().await;
        let at = offset_of(&replies[0]);
        env.sleep(Duration::from_secs(1)).await;

        // All of it is there, on both servers.
        for index in 0..2 {
            let datafile = datafile(&mut client, object, index).await;
            let store = &cluster.stores[usize::from(datafile.server().0)];
            let info = store.stream(datafile, &Default::default()).unwrap().unwrap().0;
            let run = shoal_pattern::ViewRun { physical: 0, packed: 0, len: info.size };
            let (bytes, _) =
                store.read(datafile, info.generation, vec![run], info.size as usize).await.unwrap();
            let first = (at / STRIP - index).div_ceil(2) * STRIP;
            assert!(bytes[first..].iter().all(|byte| *byte == b'b'), "appended at {at}, server {index}");
        }
    });
}

/// An inode that another transaction has locked until the test says otherwise.
fn lock_inode(cluster: &Cluster, server: u16, file: Handle) -> TxId {
    let tx = TxId(Handle::new(ServerId(server), 1 << 40).0);
    assert!(cluster.shard(server).locks.take(tx, &[(keys::inode(file), Mode::Exclusive)]));
    tx
}

/// The connection breaks, and the session continues with another.
async fn reconnect(env: &Env, cluster: &Cluster, server: u16, client: Raw) -> Raw {
    let wish = Wish { session: Some(client.attached.session), ..Wish::default() };
    let sequence = client.sequence;
    drop(client);
    env.sleep(Duration::from_millis(100)).await;
    let mut next = Raw::attach(cluster, server, wish).await.unwrap();
    next.sequence = sequence;
    next
}

#[test]
fn an_append_whose_bytes_are_there_is_not_done_again_though_its_file_is_locked_and_its_connection_breaks() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut client, 1).await;
        let mut client = cluster.client(1).await;
        let made = client.change(vec![create(dir, &name("log"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let append = Op::Append { object: attr.handle, capability: *capability, len: 0, laid_out: true };
        let data = Bytes::from(vec![b'a'; 20_000]);

        held.stalls.set(1);
        send_append(&mut client, &append, data.clone()).await;
        until(&env, || held.done.get() == 1).await;
        let tx = lock_inode(&cluster, 1, attr.handle);
        held.release();
        env.sleep(Duration::from_millis(100)).await;
        let mut client = reconnect(&env, &cluster, 1, client).await;
        client.sequence -= 1;
        send_append(&mut client, &append, data).await;
        env.sleep(Duration::from_millis(100)).await;
        cluster.shard(1).locks.release(tx);
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), 0);
        let info = held.stream(attr.handle, &Default::default()).unwrap().unwrap().0;
        assert_eq!(info.size, 20_000, "it is there once");
    });
}

#[test]
fn an_append_whose_bytes_are_there_is_not_done_again_though_the_journal_has_no_room_and_its_connection_breaks()
 {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut client, 1).await;
        let mut client = cluster.client(1).await;
        let made = client.change(vec![create(dir, &name("log"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let append = Op::Append { object: attr.handle, capability: *capability, len: 0, laid_out: true };
        let data = Bytes::from(vec![b'a'; 20_000]);

        held.stalls.set(1);
        send_append(&mut client, &append, data.clone()).await;
        until(&env, || held.done.get() == 1).await;
        held.is_crowded();
        held.release();
        env.sleep(Duration::from_millis(100)).await;
        assert!(held.waits_for_room.get() > 0, "the append waits for room");
        // The connection breaks.
        let wish = Wish { session: Some(client.attached.session), ..Wish::default() };
        let sequence = client.sequence;
        drop(client);
        env.sleep(Duration::from_millis(100)).await;
        held.has_room();
        let mut client = Raw::attach(&cluster, 1, wish).await.unwrap();
        client.sequence = sequence;
        client.sequence -= 1;
        send_append(&mut client, &append, data).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), 0);
        let info = held.stream(attr.handle, &Default::default()).unwrap().unwrap().0;
        assert_eq!(info.size, 20_000, "it is there once");
    });
}

#[test]
fn a_write_whose_bytes_are_there_is_not_done_again_behind_those_of_others() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (_, dir) = cluster.directory_on(&mut client, 1).await;
        let (mut client, mut other) = (cluster.client(1).await, cluster.client(1).await);
        let made = client.change(vec![create(dir, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let write = |byte: u8| {
            let transfer = Transfer {
                stream: attr.handle,
                generation: attr.generation,
                capability: *capability,
                pattern: Pattern::contiguous(0, 30_000).unwrap(),
                window_from: 0,
                window_len: 30_000,
                share: Share::WHOLE,
            };
            (vec![vec![Op::Write { transfer, len: 30_000 }]], Bytes::from(vec![byte; 30_000]))
        };
        held.stalls_behind.set(1);
        let (ops, data) = write(b'a');
        client.sequence += 1;
        client.send(Some(slot(0, client.sequence)), ops, data).await;
        until(&env, || held.done.get() == 1).await;
        let tx = lock_inode(&cluster, 1, attr.handle);
        held.release();
        env.sleep(Duration::from_millis(100)).await;
        let mut client = reconnect(&env, &cluster, 1, client).await;
        cluster.shard(1).locks.release(tx);
        let (ops, data) = write(b'b');
        other.sequence += 1;
        other.send(Some(slot(0, other.sequence)), ops, data).await;
        assert_eq!(other.reply().await.1[0].status, Status::Ok);
        // The retry of the first one is answered as done, before the other's.
        let (ops, data) = write(b'a');
        client.send(Some(slot(0, client.sequence)), ops, data).await;
        assert_eq!(client.reply().await.1[0].status, Status::Ok);
        let run = shoal_pattern::ViewRun { physical: 0, packed: 0, len: 30_000 };
        let (bytes, _) = held.read(attr.handle, attr.generation.0, vec![run], 30_000).await.unwrap();
        assert!(bytes.iter().all(|byte| *byte == b'b'), "the later write is the one that stays");
    });
}

/// A laid-out file, and an append to it that waits for server 1.
async fn stalled_append(cluster: &Cluster, held: &Held, client: &mut Raw) -> (Handle, Op) {
    let (object, append) = file(client, "log").await;
    client.change(vec![Op::Unstuff { object }]).await;
    held.stalls.set(u32::MAX);
    send_append(client, &append, vec![b'a'; 4 * STRIP].into()).await;
    let is_writing = || held.stalls.get() < u32::MAX;
    until(&cluster.env, is_writing).await;
    (object, append)
}

#[test]
fn appends_wait_for_their_turn_no_longer_than_their_deadline() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut first = cluster.client(0).await;
        let (_, append) = stalled_append(&cluster, &held, &mut first).await;
        let began = env.now();
        let mut waiting = Vec::new();
        for _ in 0..5 {
            let mut client = cluster.client(0).await;
            send_append(&mut client, &append, vec![b'b'; STRIP].into()).await;
            waiting.push(client);
        }
        for client in &mut waiting {
            let (_, replies, _) = client.reply().await;
            assert_eq!(replies[0].status, Status::TimedOut);
        }
        // The requests ask for 20 s.
        assert!(env.now().since(began) < Duration::from_secs(21), "{:?}", env.now().since(began));
    });
}

#[test]
fn a_session_goes_on_at_once_while_an_append_of_its_last_connection_waits_for_another_server() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (_, append) = stalled_append(&cluster, &held, &mut client).await;
        let began = env.now();
        let mut client = reconnect(&env, &cluster, 0, client).await;
        assert!(env.now().since(began) < Duration::from_secs(1), "{:?}", env.now().since(began));
        assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
        // Its retry is answered with its outcome.
        client.sequence -= 1;
        send_append(&mut client, &append, vec![b'a'; 4 * STRIP].into()).await;
        held.stalls.set(0);
        held.release();
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), 0);
    });
}

#[test]
fn an_append_that_failed_with_some_of_its_bytes_there_is_not_done_again_by_a_retry() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (object, append) = stalled_append(&cluster, &held, &mut client).await;
        // No client learns that it failed.
        let mut client = reconnect(&env, &cluster, 0, client).await;
        env.sleep(Duration::from_secs(60)).await;
        held.stalls.set(0);
        let datafile = datafile(&mut client, object, 0).await;
        let size = || cluster.stores[0].stream(datafile, &Default::default()).unwrap().unwrap().0.size;
        let before = size();
        assert_eq!(before, 2 * STRIP as u64, "the share of its own server is there");
        client.sequence -= 1;
        send_append(&mut client, &append, vec![b'a'; 4 * STRIP].into()).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(replies[0].status, Status::TimedOut);
        assert_eq!(size(), before);
    });
}

/// A laid-out file, an append to it of which a share is written on the other server and not answered yet, and
/// events meanwhile.
async fn append_meets(env: Env, meanwhile: impl AsyncFn(&Cluster, &mut Raw, Handle)) {
    let (cluster, held) = cluster(&env).await;
    let (mut client, mut other) = (cluster.client(0).await, cluster.client(0).await);
    let (object, append) = file(&mut client, "log").await;
    client.change(vec![Op::Unstuff { object }]).await;
    send_append(&mut client, &append, vec![b'x'; STRIP].into()).await;
    let (_, replies, _) = client.reply().await;
    assert_eq!(offset_of(&replies[0]), 0);

    held.stalls_behind.set(1);
    send_append(&mut client, &append, vec![b'a'; 20_000].into()).await;
    until(&env, || held.done.get() == 1).await;
    let release = async {
        env.sleep(Duration::from_secs(3)).await;
        held.release();
    };
    let answered = async {
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), STRIP, "it is there, and is not to be done again elsewhere");
    };
    futures_util::join!(release, answered, meanwhile(&cluster, &mut other, object));
}

#[test]
fn a_truncation_comes_before_an_append_or_behind_it_and_not_between_its_bytes_and_its_answer() {
    run_simulated(|env| {
        append_meets(env, async |cluster, other, object| {
            let size = 3 * STRIP as u64;
            let longer = other.change(vec![Op::Truncate { object, size, kill_privileges: false }]).await;
            assert_eq!(longer.status, Status::Ok);
            let datafile = datafile(other, object, 1).await;
            let info = cluster.stores[1].stream(datafile, &Default::default()).unwrap().unwrap().0;
            assert_eq!(info.size, STRIP as u64, "nothing is behind the end that it was given");
        })
    });
}

#[test]
fn explicit_times_come_before_an_append_or_behind_it() {
    run_simulated(|env| {
        append_meets(env, async |_, other, object| {
            let set = SetAttr { mtime: Some(Time(5)), ..SetAttr::default() };
            let changed = other.change(vec![Op::Setattr { object, set }]).await;
            assert_eq!(changed.status, Status::Ok);
            let Answer::Attr { attr, .. } = &changed.answers[0] else { panic!("{changed:?}") };
            assert_eq!(attr.mtime, Time(5));
        })
    });
}

#[test]
fn a_share_of_an_append_that_is_written_is_not_refused_for_a_capability_that_expired_meanwhile() {
    run_at(Duration::from_secs(2), 86_400, |env| append_meets(env, async |_, _, _| ()));
}

#[test]
fn an_append_to_a_laid_out_file_behind_what_its_own_group_changed_is_refused_and_not_waited_for() {
    run_simulated(|env| async move {
        let (cluster, _held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (object, append) = file(&mut client, "log").await;
        client.change(vec![Op::Unstuff { object }]).await;
        let Op::Append { capability, .. } = append.clone() else { unreachable!() };
        let set = Op::Setattr { object, set: SetAttr { mtime: Some(Time(5)), ..SetAttr::default() } };
        client.sequence += 1;
        let ops = vec![set, Op::Append { object, capability, len: 4, laid_out: true }];
        client.send(Some(slot(0, client.sequence)), vec![ops], Bytes::from_static(b"four")).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(replies[0].status, Status::NotSupported);
        // Nothing of it was done, and the turn is free again.
        send_append(&mut client, &append, Bytes::from_static(b"four")).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), 0);
    });
}

#[test]
fn an_append_of_a_client_that_does_not_know_that_its_file_is_laid_out_is_refused_and_nothing_is_done() {
    run_simulated(|env| async move {
        let (cluster, _held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (object, append) = file(&mut client, "log").await;
        client.change(vec![Op::Unstuff { object }]).await;
        let Op::Append { capability, .. } = append.clone() else { unreachable!() };
        client.sequence += 1;
        let blind = Op::Append { object, capability, len: 4, laid_out: false };
        client.send(Some(slot(0, client.sequence)), vec![vec![blind]], Bytes::from_static(b"four")).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(replies[0].status, Status::StaleLayout);
        send_append(&mut client, &append, Bytes::from_static(b"four")).await;
        let (_, replies, _) = client.reply().await;
        assert_eq!(offset_of(&replies[0]), 0);
    });
}

/// A datafile of a laid-out file.
async fn datafile(client: &mut Raw, object: Handle, index: usize) -> Handle {
    let reply = client.ask(vec![Op::Getattr { object }]).await;
    let Answer::Attr { attr, .. } = &reply.answers[0] else { panic!("{reply:?}") };
    attr.layout.as_ref().unwrap().datafiles[index]
}

#[test]
fn a_peers_third_connection_waits_for_what_its_first_one_began() {
    run_simulated(|env| async move {
        let (cluster, held) = cluster(&env).await;
        let mut client = cluster.client(0).await;
        let (_, handle) = cluster.directory_on(&mut client, 1).await;
        let mut on_it = cluster.client(1).await;
        let made = on_it.change(vec![create(handle, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let transfer = Transfer {
            stream: attr.handle,
            generation: attr.generation,
            capability: *capability,
            pattern: Pattern::contiguous(0, 30_000).unwrap(),
            window_from: 0,
            window_len: 30_000,
            share: Share::WHOLE,
        };
        assert!(capability.is_some_and(|c| c.rights.contains(Rights::WRITE)));
        let peer = || Raw::attach(&cluster, 1, Wish { peer: Some(ServerId(0)), ..Wish::default() });
        let mut first = peer().await.unwrap();
        held.stalls.set(1);
        let op = Op::Write { transfer, len: 30_000 };
        first.send(None, vec![vec![op]], vec![7; 30_000].into()).await;
        until(&env, || held.stalls.get() == 0).await;

        let present = || cluster.shard(1).peer_sessions.borrow()[&ServerId(0)].id;
        let before = present();
        let (attached, waited) = (Cell::new(0), Cell::new(false));
        let second = async {
            // It is given up for the third, or takes its turn before that one: it is never used concurrently
            // with it.
            let _ = peer().await;
        };
        let third = async {
            until(&env, || present() != before).await;
            let made = peer().await;
            attached.set(attached.get() + u32::from(made.is_ok()));
            assert!(waited.get(), "a write of the first connection is still under way");
        };
        let control = async {
            until(&env, || present() != before).await;
            let second = present();
            until(&env, || present() != second).await;
            env.sleep(Duration::from_secs(1)).await;
            waited.set(true);
            held.release();
        };
        futures_util::join!(second, third, control);
        assert_eq!(attached.get(), 1);
    });
}
