//! Datafiles made ahead of need: laying a file out asks no other server, no datafile is given twice, and no
//! late write comes back.

use crate::raw::held::Held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_pattern::Pattern;
use shoal_proto::{
    Answer, Capability, ClientId, Generation, Group, GroupReply, Handle, Layout, Op, Roles, ServerId,
    SetAttr, Share, Status, Time, Transfer, limits,
};
use shoal_server::executor::{Asker, Compound, Wait, drive};
use shoal_server::pools::Sizes;
use shoal_server::rows::{Batch, Pool, Reap, RowValue};
use shoal_server::{Settings, keys, precreated};
use shoal_store::{Changes, MetadataSync, Module, SyncModes, look};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Of the pools of servers that say nothing else.
const SIZES: Sizes = Sizes::DEFAULT;

fn run_simulated<F: Future<Output = ()> + 'static>(body: impl FnOnce(Env) -> F + 'static) {
    let world = World::new(5, Config::default());
    let machine = world.machine("m");
    let process = world.process("all", machine);
    world.complete(process, body);
}

fn level(cluster: &Cluster, server: u16, peer: u16) -> u64 {
    cluster.shard(server).pools.levels().get(&ServerId(peer)).copied().unwrap_or(0)
}

/// All pools are full.
async fn filled(cluster: &Cluster) {
    let count = cluster.servers.len() as u16;
    let holds_data = |peer: u16| cluster.map.servers[usize::from(peer)].roles.contains(Roles::DATA);
    let is_full = |server: u16, peer: u16| {
        server == peer || !holds_data(peer) || level(cluster, server, peer) >= SIZES.low
    };
    until(&cluster.env, || (0..count).all(|server| (0..count).all(|peer| is_full(server, peer)))).await;
}

async fn pool(cluster: &Cluster, server: u16, peer: u16) -> Pool {
    let key = keys::pool(ServerId(peer));
    let row = look(&cluster.stores[usize::from(server)], |view| view.get(&key)).await.unwrap().0;
    Pool::from_row(&row.unwrap()).unwrap()
}

/// The batch of a datafile, as its server knows it.
async fn batch(cluster: &Cluster, datafile: Handle) -> Option<Batch> {
    let key = keys::batch(precreated::first_of(datafile));
    let store = &cluster.stores[usize::from(datafile.server().0)];
    look(store, |view| view.get(&key)).await.unwrap().0.map(|row| Batch::from_row(&row).unwrap())
}

async fn is_touched(cluster: &Cluster, datafile: Handle) -> bool {
    let store = &cluster.stores[usize::from(datafile.server().0)];
    look(store, |view| view.stream(datafile)).await.unwrap().0.is_some()
}

/// A file that is laid out.
struct Wide {
    handle: Handle,
    capability: Option<Capability>,
    layout: Layout,
}

fn laid(reply: &GroupReply) -> Layout {
    match reply.answers.first() {
        Some(Answer::Laid { layout }) => layout.clone(),
        _ => panic!("{reply:?}"),
    }
}

async fn wide(client: &mut Raw, at: &str) -> Wide {
    let made = client.change(vec![create(Handle::ROOT, &name(at))]).await;
    let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
    let layout = laid(&client.change(vec![Op::Unstuff { object: attr.handle }]).await);
    Wide { handle: attr.handle, capability: *capability, layout }
}

impl Wide {
    /// Its datafile on a server.
    fn on(&self, server: u16) -> Handle {
        *self.layout.datafiles.iter().find(|datafile| datafile.server() == ServerId(server)).unwrap()
    }

    fn transfer(&self, server: u16, len: usize) -> Transfer {
        Transfer {
            stream: self.on(server),
            generation: self.layout.generation,
            capability: self.capability,
            pattern: Pattern::contiguous(0, len as u64).unwrap(),
            window_from: 0,
            window_len: len as u64,
            share: Share::WHOLE,
        }
    }

    /// Write to its datafile on a server, through a client of that server.
    async fn write(&self, client: &mut Raw, server: u16, len: usize) -> Status {
        client.sequence += 1;
        let op = Op::Write { transfer: self.transfer(server, len), len: len as u32 };
        client.send(Some(slot(0, client.sequence)), vec![vec![op]], Bytes::from(vec![7; len])).await;
        client.reply().await.1[0].status
    }

    async fn read(&self, client: &mut Raw, server: u16, len: usize) -> (Status, Bytes) {
        let op = Op::Read { transfer: self.transfer(server, len) };
        client.send(None, vec![vec![op]], Bytes::new()).await;
        let (_, replies, bulk) = client.reply().await;
        (replies[0].status, bulk)
    }
}

#[test]
fn laying_a_file_out_is_one_local_transaction_and_asks_nobody() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 3).await;
        let mut zero = cluster.client(0).await;
        let made = zero.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let object = handle_of(&made);
        filled(&cluster).await;
        // The work that the start began has ended.
        env.sleep(Duration::from_millis(50)).await;
        let before = cluster.shard(0).counters.snapshot();
        let layout = laid(&zero.change(vec![Op::Unstuff { object }]).await);
        let after = cluster.shard(0).counters.snapshot();
        assert_eq!(layout.datafiles.len(), 3);
        assert_eq!((after.peer_messages, after.commits), (before.peer_messages, before.commits));
        assert_eq!((after.pool_taken - before.pool_taken, after.pool_waits), (2, before.pool_waits));
        // Again: the same.
        assert_eq!(laid(&zero.change(vec![Op::Unstuff { object }]).await), layout);
        for &datafile in &layout.datafiles[1..] {
            assert!(!is_touched(&cluster, datafile).await, "it takes no space before it is needed");
        }
    });
}

#[test]
fn a_file_made_where_no_data_is_held_is_laid_out_by_one_local_transaction() {
    run(|env| async move {
        let roles = |map: &mut shoal_proto::ClusterMap| {
            map.servers[0].roles = Roles::METADATA;
            map.servers[1].roles = Roles::DATA;
            map.servers[2].roles = Roles::DATA;
        };
        let cluster = Cluster::of(&env, 3, Settings::default(), roles).await;
        until(&env, || (1..3).all(|peer| level(&cluster, 0, peer) >= SIZES.low)).await;
        assert_eq!(level(&cluster, 1, 2), 0, "one that holds no metadata needs no pool");
        env.sleep(Duration::from_millis(50)).await;
        let before = cluster.shard(0).counters.snapshot();
        let mut zero = cluster.client(0).await;
        let made = zero.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let after = cluster.shard(0).counters.snapshot();
        assert_eq!((after.peer_messages, after.commits), (before.peer_messages, before.commits));
        let layout = attr.layout.clone().unwrap();
        let file = Wide { handle: attr.handle, capability: *capability, layout };
        let mut two = cluster.client(2).await;
        assert_eq!(file.read(&mut two, 2, 100).await, (Status::Ok, Bytes::new()), "nothing was written");
        assert_eq!(file.write(&mut two, 2, 100).await, Status::Ok);
        assert_eq!(file.read(&mut two, 2, 100).await, (Status::Ok, Bytes::from(vec![7; 100])));
        // A small file is no single message there: its data goes where the layout says.
        let (at, whole) = (name("small"), Pattern::contiguous(0, 5).unwrap());
        let transfer = Transfer {
            stream: Handle::CURRENT,
            generation: Generation(0),
            capability: None,
            pattern: whole,
            window_from: 0,
            window_len: 5,
            share: Share::WHOLE,
        };
        zero.sequence += 1;
        let ops = vec![create(Handle::ROOT, &at), Op::Write { transfer, len: 5 }];
        zero.send(Some(slot(0, zero.sequence)), vec![ops], Bytes::from_static(b"bytes")).await;
        assert_eq!(zero.reply().await.1[0].status, Status::StaleLayout);
        assert_eq!(zero.ask(vec![lookup(Handle::ROOT, &at)]).await.status, Status::NotFound);
    });
}

#[test]
fn with_the_switch_off_datafiles_are_made_by_a_transaction() {
    run(|env| async move {
        let off = |map: &mut shoal_proto::ClusterMap| map.switches.precreate = false;
        let cluster = Cluster::of(&env, 2, Settings::default(), off).await;
        let mut zero = cluster.client(0).await;
        let file = wide(&mut zero, "file").await;
        assert!(is_touched(&cluster, file.on(1)).await);
        let counts = cluster.shard(0).counters.snapshot();
        assert_eq!((counts.commits, counts.pool_taken, level(&cluster, 0, 1)), (1, 0, 0));
    });
}

#[test]
fn the_same_batch_asked_for_again_is_the_same_datafiles_and_a_restart_knows_it() {
    run(|env| async move {
        let off = |map: &mut shoal_proto::ClusterMap| map.switches.precreate = false;
        let mut cluster = Cluster::of(&env, 2, Settings::default(), off).await;
        let peer = || Wish { peer: Some(ServerId(1)), ..Wish::default() };
        let ask = |pool, sequence| vec![Op::Batchcreate { pool, sequence, count: 1000 }];
        let mut one = Raw::attach(&cluster, 0, peer()).await.unwrap();
        let first = one.ask(ask(7, 1)).await;
        assert!(matches!(first.answers.0[..], [Answer::Batch { count: 1000, .. }]), "{first:?}");
        assert_eq!(one.ask(ask(7, 1)).await, first);
        let second = one.ask(ask(7, 2)).await;
        assert_ne!(second, first);
        cluster.kill(0);
        cluster.start(0).await;
        let mut one = Raw::attach(&cluster, 0, peer()).await.unwrap();
        assert_eq!(one.ask(ask(7, 2)).await, second);
        assert_eq!(one.ask(ask(7, 1)).await.status, Status::Conflict);
        // A pool that was lost and began anew gets none of those.
        let other = one.ask(ask(8, 2)).await;
        assert!(other != first && other != second && other.status == Status::Ok);
        assert_eq!(
            one.ask(vec![Op::Batchcreate { pool: 8, sequence: 3, count: 1025 }]).await.status,
            Status::OverLimit
        );
        let mut client = cluster.client(0).await;
        assert_eq!(client.ask(ask(7, 3)).await.status, Status::Forbidden);
    });
}

#[test]
fn a_pool_outlives_its_server_and_nothing_in_it_is_given_twice() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        filled(&cluster).await;
        let mut given = BTreeSet::new();
        let mut files = Vec::new();
        for round in 0..4 {
            let mut zero = cluster.client(0).await;
            for n in 0..10 {
                let file = wide(&mut zero, &format!("f{round}-{n}")).await;
                assert!(given.insert(file.on(1)), "given twice: {}", file.on(1));
                files.push(file);
            }
            let before = pool(&cluster, 0, 1).await;
            cluster.kill(0);
            cluster.start(0).await;
            let after = pool(&cluster, 0, 1).await;
            let retired = cluster.shard(0).counters.snapshot().pool_retired;
            assert!(retired > 0 && retired <= SIZES.lent, "{retired} of a loan");
            assert!(before.id == after.id && after.level() + retired >= before.level());
        }
        // Retired datafiles are used up on their own server, and those of files are not.
        until(&env, || cluster.stores[0].scan(b"r", None, 10, &Default::default()).unwrap().rows.is_empty())
            .await;
        let first = files[0].on(1);
        let used = batch(&cluster, first).await.unwrap();
        let end = pool(&cluster, 0, 1).await.ranges[0].first.counter();
        for counter in precreated::first_of(first).counter()..end {
            let datafile = Handle::new(ServerId(1), counter);
            assert_eq!(used.has_untouched(datafile), given.contains(&datafile), "{datafile}");
        }
    });
}

#[test]
fn what_was_given_before_its_record_was_durable_is_not_given_again() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        filled(&cluster).await;
        let mut zero = cluster.client(0).await;
        let never = Op::Setsync { metadata: "never".into(), data: "".into(), coalescing: "".into() };
        assert_eq!(zero.ask(vec![never]).await.status, Status::Ok);
        assert_eq!(cluster.stores[0].sync_modes().metadata, MetadataSync::Never);
        let before = pool(&cluster, 0, 1).await;
        let file = wide(&mut zero, "file").await;
        let mut one = cluster.client(1).await;
        assert_eq!(file.write(&mut one, 1, 10).await, Status::Ok);
        cluster.kill(0);
        // The record of the file's layout was lost, and with it the pool's row.
        let mut lost = shoal_store::Changes::default();
        lost.put(keys::pool(ServerId(1)), before.to_row());
        lost.remove(keys::inode(file.handle));
        cluster.stores[0].apply(lost).unwrap();
        cluster.start(0).await;
        let mut zero = cluster.client(0).await;
        let other = wide(&mut zero, "other").await;
        assert_ne!(other.on(1), file.on(1));
        // On its own server, the bytes written to it belong to no file: they are removed.
        while is_touched(&cluster, file.on(1)).await {
            env.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(file.write(&mut one, 1, 10).await, Status::Stale);
        assert_eq!(other.write(&mut one, 1, 10).await, Status::Ok);
    });
}

#[test]
fn a_late_write_to_a_removed_file_makes_nothing() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let (mut zero, mut one) = (cluster.client(0).await, cluster.client(1).await);
        for (at, len, is_written) in
            [("a", 10, false), ("b", 10, true), ("c", 100_000, false), ("d", 100_000, true)]
        {
            let file = wide(&mut zero, at).await;
            if is_written {
                assert_eq!(file.write(&mut one, 1, len).await, Status::Ok);
            }
            assert_eq!(zero.change(vec![unlink(Handle::ROOT, &name(at))]).await.status, Status::Ok);
            while batch(&cluster, file.on(1)).await.is_some_and(|batch| batch.has_untouched(file.on(1)))
                || is_touched(&cluster, file.on(1)).await
            {
                env.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(file.write(&mut one, 1, len).await, Status::Stale);
            assert_eq!(file.read(&mut one, 1, len).await.0, Status::Stale);
            assert!(!is_touched(&cluster, file.on(1)).await, "{at}");
        }
    });
}

#[test]
fn the_first_touch_gives_owner_and_generation_and_no_older_generation_comes_after_it() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let (mut zero, mut one) = (cluster.client(0).await, cluster.client(1).await);
        let (small, large) = (10, 100_000);
        let (_, dir) = cluster.directory_on(&mut zero, 1).await;
        for (at, len) in [("small", small), ("large", large)] {
            let file = wide(&mut zero, at).await;
            // A file of another server cannot have it.
            let made = one.change(vec![create(dir, &name(at))]).await;
            let Answer::Made { capability, .. } = &made.answers[0] else { panic!("{made:?}") };
            let thief = Wide { capability: *capability, layout: file.layout.clone(), ..file };
            assert_eq!(thief.write(&mut one, 1, len).await, Status::Stale);
            assert_eq!(file.write(&mut one, 1, len).await, Status::Ok);
            // Nor another file of the same server, now.
            let other = wide(&mut zero, &format!("{at}-other")).await;
            let thief = Wide { layout: file.layout.clone(), ..other };
            assert_eq!(thief.write(&mut one, 1, len).await, Status::BadCapability);
        }
        // Datafiles that a truncate or explicit times touch are of their generation: an earlier write comes
        // too late.
        let truncate = |object| Op::Truncate { object, size: 0, kill_privileges: false };
        let times =
            |object| Op::Setattr { object, set: SetAttr { mtime: Some(Time(5)), ..SetAttr::default() } };
        for (at, op) in [("truncated", truncate as fn(Handle) -> Op), ("dated", times)] {
            let file = wide(&mut zero, at).await;
            assert_eq!(zero.change(vec![op(file.handle)]).await.status, Status::Ok);
            assert_eq!(file.write(&mut one, 1, small).await, Status::StaleLayout);
            assert_eq!(file.write(&mut one, 1, large).await, Status::StaleLayout);
            let Answer::Facts { facts, .. } =
                one.ask(vec![Op::Streamstat { stream: file.on(1) }]).await.answers[0]
            else {
                panic!()
            };
            assert_eq!((facts.generation, facts.size), (Generation(file.layout.generation.0 + 1), 0));
        }
    });
}

#[test]
fn who_finds_a_pool_empty_waits_for_it_and_hears_at_last_why_it_is_not_filled() {
    run_simulated(|env| async move {
        let mut cluster = Cluster::new(&env, 3).await;
        filled(&cluster).await;
        cluster.kill(1);
        let mut zero = cluster.client(0).await;
        let template = Some(shoal_proto::Template { width: 2, ..Default::default() });
        let mut failed = None;
        for n in 0..2000 {
            let Op::Create { dir, name, owner, exclusive, open, .. } =
                create(Handle::ROOT, &name(&format!("f{n}")))
            else {
                unreachable!()
            };
            let made = zero.change(vec![Op::Create { dir, name, owner, exclusive, open, template }]).await;
            let object = handle_of(&made);
            let reply = zero.change(vec![Op::Unstuff { object }]).await;
            if reply.status != Status::Ok {
                failed = Some((n, object, reply.status));
                break;
            }
        }
        let (n, object, status) = failed.unwrap();
        assert!(
            n as u64 >= SIZES.low && matches!(status, Status::Unavailable | Status::TimedOut),
            "{n}: {status}"
        );
        assert!(level(&cluster, 0, 2) > 0, "the other server's pool goes on");
        // It is back.
        cluster.start(1).await;
        assert_eq!(laid(&zero.change(vec![Op::Unstuff { object }]).await).datafiles.len(), 2);
        assert!(cluster.shard(0).counters.snapshot().pool_waits >= 2);
    });
}

#[test]
fn a_server_that_is_added_gets_a_pool() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        filled(&cluster).await;
        // It is there before the map contains it.
        let (mut larger, mut old) = (cluster.map.clone(), cluster.map.clone());
        let address = format!("local:later-{}", larger.servers[0].addresses[0].0.replace("local:", ""));
        larger.servers.0.push(shoal_proto::ServerInfo::new(
            ServerId(2),
            vec![address.clone().into()],
            Roles::all(),
        ));
        larger.epoch = 2;
        std::mem::swap(&mut cluster.map, &mut larger);
        let identity = shoal_store::Identity { fs: FS, collection: COLLECTION.0, server: 2 };
        let config =
            shoal_store::CollectionConfig::new("/nowhere", shoal_store::ModuleKind::Memory, identity);
        cluster.stores.push(shoal_store::open(env.clone(), config).await.unwrap());
        cluster.servers.push(None);
        cluster.start(2).await;
        std::mem::swap(&mut cluster.map, &mut old);
        let mut zero = cluster.client(0).await;
        let add = Op::Addserver { addresses: vec![address.into()].into(), roles: Roles::all() };
        assert_eq!(zero.change(vec![add]).await.status, Status::Ok);
        until(&env, || level(&cluster, 0, 2) >= SIZES.low && level(&cluster, 1, 2) >= SIZES.low).await;
        assert_eq!(wide(&mut zero, "file").await.layout.datafiles.len(), 3);
    });
}

#[test]
fn thousands_of_removals_are_few_messages() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 2).await;
        let mut zero = cluster.client(0).await;
        const FILES: usize = 2000;
        for n in 0..FILES {
            wide(&mut zero, &format!("f{n}")).await;
        }
        cluster.kill(1);
        for n in 0..FILES {
            assert_eq!(
                zero.change(vec![unlink(Handle::ROOT, &name(&format!("f{n}")))]).await.status,
                Status::Ok
            );
        }
        let before = cluster.shard(0).counters.snapshot();
        cluster.start(1).await;
        until(&env, || cluster.shard(0).counters.snapshot().reaped - before.reaped >= FILES as u64 - 100)
            .await;
        let counts = cluster.shard(0).counters.snapshot();
        assert!(
            counts.reap_messages - before.reap_messages <= 4,
            "{}",
            counts.reap_messages - before.reap_messages
        );
        assert!(counts.pool_refills >= 2);
    });
}

#[test]
fn a_group_that_takes_more_than_is_lent_has_the_rest_lent_and_nobody_stands_still() {
    run_simulated(|env| async move {
        let pools = Sizes { lent: 4, ..SIZES };
        let cluster = Cluster::with(&env, 2, Settings { pools, ..Settings::default() }).await;
        filled(&cluster).await;
        let mut zero = cluster.client(0).await;
        let lent = async || {
            let pool = pool(&cluster, 0, 1).await;
            pool.lent - pool.taken
        };
        for (from, count) in [(0, 3), (10, 8)] {
            // Two are left, too many for the next to be lent.
            while lent().await != 2 {
                wide(&mut zero, &format!("before-{from}-{}", pool(&cluster, 0, 1).await.taken)).await;
                env.sleep(Duration::from_millis(50)).await;
            }
            let mut objects = Vec::new();
            for n in from..from + count {
                objects
                    .push(handle_of(&zero.change(vec![create(Handle::ROOT, &name(&format!("f{n}")))]).await));
            }
            let ops = objects.iter().map(|&object| Op::Unstuff { object }).collect();
            let laid = zero.change(ops).await;
            assert_eq!((laid.status, laid.answers.len()), (Status::Ok, count));
        }
        assert_eq!(zero.ask(vec![Op::Ping {}]).await.status, Status::Ok);
    });
}

#[test]
fn a_pool_filled_between_the_look_and_the_wait_is_not_waited_for() {
    run_simulated(|env| async move {
        let pools = Sizes { batch: 2, low: 1, lent: 2 };
        let mut cluster = Cluster::with(&env, 2, Settings { pools, ..Settings::default() }).await;
        let is_filled = async |cluster: &Cluster, upto: u64| {
            while level(cluster, 0, 1) < 2 || pool(cluster, 0, 1).await.lent < upto {
                env.sleep(Duration::from_millis(10)).await;
            }
            // It is durable, and the pool's task at rest.
            env.sleep(Duration::from_millis(100)).await;
        };
        is_filled(&cluster, 2).await;
        cluster.kill(1);
        let mut zero = cluster.client(0).await;
        for text in ["a", "b"] {
            wide(&mut zero, text).await;
        }
        let object = handle_of(&zero.change(vec![create(Handle::ROOT, &name("c"))]).await);
        // A request that finds the pool empty.
        let shard = cluster.servers[0].as_ref().unwrap().shards()[0].clone();
        let asker = Asker::own(ClientId([1; 16]));
        let groups = vec![Group { ops: vec![Op::Unstuff { object }].into() }];
        let deadline = env.now() + Duration::from_secs(600);
        let mut compound = Compound::new(&shard, asker, groups, Bytes::new(), deadline);
        let Some(wait @ Wait::Pool(..)) = compound.go() else { panic!("the pool is not empty") };
        // It is filled before the wait begins, and nothing more happens.
        cluster.start(1).await;
        is_filled(&cluster, 4).await;
        let driven = env.deadline(env.now() + Duration::from_secs(5), drive(compound, wait)).await;
        assert!(driven.is_ok(), "it stands still");
        let attr = zero.ask(vec![Op::Getattr { object }]).await;
        let [Answer::Attr { attr, .. }] = attr.answers.0.as_slice() else { panic!("{attr:?}") };
        assert_eq!(attr.layout.as_ref().map(|layout| layout.datafiles.len()), Some(2));
    });
}

#[test]
fn what_is_to_be_reaped_goes_however_much_waits_for_a_server_that_is_away() {
    run_simulated(|env| async move {
        let mut cluster = Cluster::new(&env, 3).await;
        cluster.kill(1);
        cluster.kill(0);
        let row = |server: u16, n: u64| {
            let (datafile, owner) =
                (Handle::new(ServerId(server), (1 << 40) + n), Handle::new(ServerId(0), 1 << 40));
            (keys::reap(ServerId(server), datafile), Some(Reap { owner }.to_row()))
        };
        let other = row(2, 0).0;
        for page in 0..5 * limits::HANDLES_MAX as u64 / 64 {
            let rows = (0..64).map(|n| row(1, page * 64 + n)).chain([row(2, page)]).collect();
            cluster.stores[0].apply(Changes { rows, ..Changes::default() }).unwrap();
        }
        cluster.start(0).await;
        let begun = env.now();
        let store = cluster.stores[0].clone();
        let prefix = &other[..3];
        while !look(&store, |view| view.scan(prefix, None, 1)).await.unwrap().0.rows.is_empty() {
            env.sleep(Duration::from_millis(10)).await;
        }
        let took = env.now().since(begun);
        assert!(took < Duration::from_secs(15), "{took:?}");
    });
}

/// Datafiles lent at once, in the test of loans.
const LENT: u64 = 4;

/// In the weaker modes others see a layout, and write by it, before its record is durable: after a power cut
/// the loan alone says that its datafiles are not in the pool any more.
#[test]
fn no_datafile_is_taken_whose_loan_is_not_durable() {
    run(|env| async move {
        let settings = Settings { pools: Sizes { lent: LENT, ..SIZES }, ..Settings::default() };
        let mut cluster = Cluster::of(&env, 2, settings, |_| {}).await;
        cluster.kill(0);
        let held = Rc::new(Held::new(cluster.stores[0].clone()));
        cluster.stores[0] = held.clone();
        cluster.start(0).await;
        let modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
        held.set_sync_modes(modes).await.unwrap();
        filled(&cluster).await;
        let mut client = cluster.client(0).await;
        let mut files = Vec::new();
        for number in 0..3 * LENT {
            let made = client.change(vec![create(Handle::ROOT, &name(&number.to_string()))]).await;
            files.push(handle_of(&made));
        }
        let before = level(&cluster, 0, 1);
        held.hold();
        for (number, &object) in files.iter().enumerate() {
            client
                .send(Some(slot(1 + number as u16, 1)), vec![vec![Op::Unstuff { object }]], Bytes::new())
                .await;
        }
        let taken = || before - level(&cluster, 0, 1);
        until(&env, || taken() > 0).await;
        // Written datafiles that are not durable are not lent either.
        for _ in 0..5 {
            env.sleep(Duration::from_millis(10)).await;
            held.write();
        }
        assert!(taken() <= LENT, "{} taken of {LENT} that were lent durably", taken());
        held.sync();
        until(&env, || {
            held.sync();
            taken() == 3 * LENT
        })
        .await;
    });
}
