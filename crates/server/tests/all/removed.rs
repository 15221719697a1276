//! Files that lose their last name while other clients have them open. The server keeps such a file for a
//! while, and then as long as these clients report that they have it open. When space is short, it removes
//! the oldest first.

use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::{
    Answer, Attr, ClientId, Handle, Held, Kind, Op, Rights, ServerId, Share, Status, Transfer,
};
use shoal_server::{Settings, keys};
use shoal_store::{CollectionConfig, Identity, ModuleKind};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(900);

fn settings() -> Settings {
    Settings { lease: LEASE, ..Settings::default() }
}

async fn one_server(env: &Env) -> Cluster {
    Cluster::with(env, 1, settings()).await
}

async fn client(cluster: &Cluster, server: u16, id: u8) -> Raw {
    let wish = Wish { client: ClientId([id; 16]), ..Wish::default() };
    Raw::attach(cluster, server, wish).await.unwrap()
}

async fn made(client: &mut Raw, text: &str) -> Handle {
    handle_of(&client.change(vec![create(Handle::ROOT, &name(text))]).await)
}

async fn status_of(client: &mut Raw, object: Handle) -> Status {
    client.ask(vec![Op::Getattr { object }]).await.status
}

async fn holding(client: &mut Raw, objects: &[Handle]) -> Vec<Handle> {
    let held = client.change(vec![Op::Hold { objects: objects.to_vec().into() }]).await;
    match &held.answers[..] {
        [Answer::Holding { removed }] => removed.0.clone(),
        _ => panic!("{held:?}"),
    }
}

fn is_gone(cluster: &Cluster, key: Bytes) -> impl Fn() -> bool + use<> {
    let store = cluster.stores[0].clone();
    move || matches!(store.lookup(&key, &Default::default()), shoal_store::Lookup::Absent(_))
}

#[test]
fn a_file_that_only_its_remover_opened_goes_at_once_and_so_does_one_whose_open_is_long_ago() {
    run(|env| async move {
        let cluster = one_server(&env).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let own = made(&mut one, "own").await;
        one.change(vec![unlink(Handle::ROOT, &name("own"))]).await;
        assert_eq!(status_of(&mut one, own).await, Status::Stale);
        let old = made(&mut other, "old").await;
        env.sleep(LEASE / 3).await;
        one.change(vec![unlink(Handle::ROOT, &name("old"))]).await;
        assert_eq!(status_of(&mut other, old).await, Status::Stale);
        assert!(is_gone(&cluster, keys::inode(old))());
    });
}

#[test]
fn a_file_that_another_client_may_have_open_stays_for_a_lease_and_is_opened_by_nobody() {
    run(|env| async move {
        let cluster = one_server(&env).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let file = made(&mut other, "file").await;
        one.change(vec![unlink(Handle::ROOT, &name("file"))]).await;
        let found = other.ask(vec![Op::Getattr { object: file }]).await;
        assert!(
            matches!(&found.answers[..], [Answer::Attr { attr: Attr { nlink: 0, .. }, .. }]),
            "{found:?}"
        );
        let open = |object| vec![Op::Open { object, rights: Rights::READ }];
        for client in [&mut one, &mut other] {
            assert_eq!(client.ask(open(file)).await.status, Status::Stale, "it was gone before");
        }
        assert_eq!(one.ask(vec![lookup(Handle::ROOT, &name("file"))]).await.status, Status::NotFound);
        let linked = Op::Link { object: file, dir: Handle::ROOT, name: name("again") };
        assert_eq!(one.change(vec![linked]).await.status, Status::NotFound);
        // Keeping their sessions alive is not holding the file.
        for _ in 0..20 {
            env.sleep(LEASE / 10).await;
            one.ask(vec![Op::Ping {}]).await;
            other.ask(vec![Op::Ping {}]).await;
        }
        assert_eq!(status_of(&mut other, file).await, Status::Stale);
        until(&env, is_gone(&cluster, keys::orphan(file, ClientId::ANYONE))).await;
        assert_eq!(cluster.shard(0).lingering().0, 0);
    });
}

#[test]
fn a_client_that_says_in_time_that_it_has_a_removed_file_open_has_it_until_it_releases_it() {
    run(|env| async move {
        let cluster = one_server(&env).await;
        let mut clients =
            [client(&cluster, 0, 1).await, client(&cluster, 0, 2).await, client(&cluster, 0, 3).await];
        let file = made(&mut clients[0], "file").await;
        for client in &mut clients[1..] {
            client.ask(vec![Op::Open { object: file, rights: Rights::READ }]).await;
        }
        // By the remover itself too.
        let held = Held { handles: vec![file].into(), any: false };
        clients[2].change(vec![Op::Unlink { dir: Handle::ROOT, name: name("file"), held }]).await;
        assert_eq!(holding(&mut clients[0], &[file]).await, [file]);
        assert_eq!(holding(&mut clients[0], &[file]).await, [file], "and again");
        for _ in 0..20 {
            env.sleep(LEASE / 10).await;
            for client in &mut clients {
                client.ask(vec![Op::Ping {}]).await;
            }
        }
        assert_eq!(status_of(&mut clients[0], file).await, Status::Ok);
        assert!(holding(&mut clients[1], &[file]).await.is_empty(), "too late");
        clients[2].change(vec![Op::Release { object: file }]).await;
        assert_eq!(status_of(&mut clients[0], file).await, Status::Ok);
        clients[1].change(vec![Op::Release { object: file }]).await;
        assert_eq!(status_of(&mut clients[0], file).await, Status::Ok, "it was not the other's to release");
        clients[0].change(vec![Op::Release { object: file }]).await;
        assert_eq!(status_of(&mut clients[0], file).await, Status::Stale);
    });
}

#[test]
fn what_is_kept_and_who_holds_it_outlives_a_restart_and_ends_with_the_lease_of_its_client() {
    run(|env| async move {
        let mut cluster = one_server(&env).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let (held, left) = (made(&mut other, "held").await, made(&mut other, "left").await);
        for text in ["held", "left"] {
            one.change(vec![unlink(Handle::ROOT, &name(text))]).await;
        }
        assert_eq!(holding(&mut other, &[held]).await, [held]);
        assert_eq!(cluster.shard(0).lingering().0, 2);
        cluster.kill(0);
        cluster.start(0).await;
        assert_eq!(cluster.shard(0).lingering().0, 2);
        let wish = |client: &Raw, id: u8| Wish {
            session: Some(client.attached.session),
            client: ClientId([id; 16]),
            ..Wish::default()
        };
        let mut other = Raw::attach(&cluster, 0, wish(&other, 2)).await.unwrap();
        assert_eq!(status_of(&mut other, left).await, Status::Ok);
        for _ in 0..20 {
            env.sleep(LEASE / 10).await;
            other.ask(vec![Op::Ping {}]).await;
        }
        assert_eq!(status_of(&mut other, left).await, Status::Stale);
        assert_eq!(status_of(&mut other, held).await, Status::Ok);
        drop(other);
        until(&env, is_gone(&cluster, keys::inode(held))).await;
    });
}

#[test]
fn after_a_restart_any_file_may_be_open_until_its_clients_have_said_what_is() {
    run(|env| async move {
        let mut cluster = one_server(&env).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let file = made(&mut other, "file").await;
        cluster.kill(0);
        cluster.start(0).await;
        let wish = |client: &Raw, id: u8| Wish {
            session: Some(client.attached.session),
            client: ClientId([id; 16]),
            ..Wish::default()
        };
        let sequences = (one.sequence, other.sequence);
        one = Raw::attach(&cluster, 0, wish(&one, 1)).await.unwrap();
        other = Raw::attach(&cluster, 0, wish(&other, 2)).await.unwrap();
        (one.sequence, other.sequence) = sequences;
        one.change(vec![unlink(Handle::ROOT, &name("file"))]).await;
        assert_eq!(status_of(&mut other, file).await, Status::Ok);
        assert_eq!(holding(&mut other, &[file]).await, [file]);
    });
}

#[test]
fn a_file_whose_inode_is_on_another_server_than_its_name_is_kept_too() {
    run(|env| async move {
        let cluster = Cluster::with(&env, 2, settings()).await;
        let (mut here, mut there) = (client(&cluster, 0, 1).await, client(&cluster, 1, 2).await);
        let (_, dir) = cluster.directory_on(&mut here, 1).await;
        let file = handle_of(&there.change(vec![create(dir, &name("file"))]).await);
        assert_eq!(file.server(), ServerId(1));
        // Its only name moves to server 0: the inode stays.
        let held = Held::default();
        let moved = Op::Rename {
            from_dir: dir,
            from_name: name("file"),
            to_dir: Handle::ROOT,
            to_name: name("moved"),
            no_replace: false,
            exchange: false,
            held,
        };
        assert_eq!(here.change(vec![moved]).await.status, Status::Ok);
        // `there` and `here` are two clients: the one that opened it, and the one that removes it.
        assert_eq!(here.change(vec![unlink(Handle::ROOT, &name("moved"))]).await.status, Status::Ok);
        assert_eq!(status_of(&mut there, file).await, Status::Ok);
        assert_eq!(holding(&mut there, &[file]).await, [file]);
        there.change(vec![Op::Release { object: file }]).await;
        until(&env, || cluster.shard(1).lingering().0 == 0).await;
        // It is kept longer than the lease of a client that was silent meanwhile.
        let mut later = client(&cluster, 1, 2).await;
        assert_eq!(status_of(&mut later, file).await, Status::Stale);
    });
}

#[test]
fn a_creation_of_a_name_that_leads_to_another_server_says_where_it_is_to_be_opened() {
    run(|env| async move {
        let cluster = Cluster::with(&env, 2, settings()).await;
        let (mut here, mut there) = (client(&cluster, 0, 1).await, client(&cluster, 1, 2).await);
        let (_, dir) = cluster.directory_on(&mut here, 1).await;
        let file = handle_of(&there.change(vec![create(dir, &name("file"))]).await);
        let linked = Op::Link { object: file, dir: Handle::ROOT, name: name("linked") };
        assert_eq!(here.change(vec![linked]).await.status, Status::Ok);
        let Op::Create { owner, open, template, .. } = create(dir, &name("file")) else { panic!() };
        let (dir, name) = (Handle::ROOT, name("linked"));
        let found =
            here.change(vec![Op::Create { dir, name, owner, exclusive: false, open, template }]).await;
        match &found.answers.0[..] {
            [Answer::Looked { handle, kind: Kind::File, .. }] => assert_eq!(*handle, file),
            // Its own server would not know that it is open.
            other => panic!("opened elsewhere: {other:?}"),
        }
    });
}

/// Bytes of a file, and how many files the server has room for.
const LEN: usize = 60_000;
const FILES: usize = 10;

#[test]
fn the_oldest_of_what_is_kept_gives_way_before_a_write_is_refused_and_all_of_it_counts_as_free() {
    run(|env| async move {
        let mut cluster = Cluster::with(&env, 1, Settings::default()).await;
        cluster.kill(0);
        let identity = Identity { fs: FS, collection: COLLECTION.0, server: 0 };
        let memory_bytes_max = (LEN * (FILES + 2)) as u64;
        let config = CollectionConfig {
            memory_bytes_max,
            ..CollectionConfig::new("/nowhere", ModuleKind::Memory, identity)
        };
        cluster.stores[0] = shoal_store::open(env.clone(), config).await.unwrap();
        cluster.start(0).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let mut files = Vec::new();
        for at in 0..FILES {
            files.push(written(&mut other, &format!("old{at}")).await.unwrap());
        }
        let available = async |client: &mut Raw| match client.ask(vec![Op::Statfs {}]).await.answers[..] {
            [Answer::Space { available, .. }] => available,
            _ => panic!("no space in the answer"),
        };
        let before = available(&mut one).await;
        for at in 0..FILES {
            one.change(vec![unlink(Handle::ROOT, &name(&format!("old{at}")))]).await;
        }
        assert_eq!(cluster.shard(0).lingering(), (FILES, (FILES * LEN) as u64));
        // But for the rows that say so.
        assert!(available(&mut one).await >= before + (FILES * LEN) as u64 - 20_000);
        for at in 0..FILES {
            written(&mut one, &format!("new{at}")).await.unwrap();
            // The oldest go first, and no more than there has to be space for.
            let mut there = Vec::new();
            for file in &files {
                there.push(status_of(&mut other, *file).await == Status::Ok);
            }
            assert!(there.is_sorted(), "{there:?}");
        }
        // A full disk stays full, and reports it.
        let refused = async {
            loop {
                if let Err(status) = written(&mut one, "last").await {
                    return status;
                }
                one.change(vec![create(Handle::ROOT, &name("more"))]).await;
            }
        };
        assert_eq!(refused.await, Status::NoSpace);
    });
}

/// A new file of [`LEN`] bytes, or another [`LEN`] bytes of one more.
async fn written(client: &mut Raw, text: &str) -> Result<Handle, Status> {
    let unique = name(&format!("{text}-{}", client.sequence));
    let to_make = if text == "last" { unique } else { name(text) };
    let made = client.change(vec![create(Handle::ROOT, &to_make)]).await;
    let Some(Answer::Made { attr, capability, .. }) = made.answers.first() else { return Err(made.status) };
    let transfer = Transfer {
        stream: attr.handle,
        generation: attr.generation,
        capability: *capability,
        pattern: Pattern::contiguous(0, LEN as u64).unwrap(),
        window_from: 0,
        window_len: LEN as u64,
        share: Share::WHOLE,
    };
    client.sequence += 1;
    let slot = slot(0, client.sequence);
    client
        .send(Some(slot), vec![vec![Op::Write { transfer, len: LEN as u32 }]], Bytes::from(vec![7; LEN]))
        .await;
    let (_, replies, _) = client.reply().await;
    match replies[0].status {
        Status::Ok => Ok(attr.handle),
        status => Err(status),
    }
}

#[test]
fn what_a_client_holds_is_not_counted_as_freed() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let (mut one, mut other) = (client(&cluster, 0, 1).await, client(&cluster, 0, 2).await);
        let wish = Wish { peer: Some(ServerId(9)), ..Wish::default() };
        let mut peer = Raw::attach(&cluster, 0, wish).await.unwrap();
        let mut freed = async || match &peer.ask(vec![Op::Yield { bytes: u64::MAX }]).await.answers[..] {
            [Answer::Yielded { bytes }] => *bytes,
            answers => panic!("{answers:?}"),
        };
        let held = made(&mut other, "held").await;
        one.change(vec![unlink(Handle::ROOT, &name("held"))]).await;
        assert_eq!(holding(&mut other, &[held]).await, [held]);
        assert_eq!(freed().await, 0, "it is still there");
        assert_eq!(status_of(&mut other, held).await, Status::Ok);
        let open = made(&mut other, "open").await;
        one.change(vec![unlink(Handle::ROOT, &name("open"))]).await;
        assert!(freed().await > 0);
        assert_eq!(status_of(&mut other, open).await, Status::Stale);
    });
}
