//! Clients that create and remove step by step (`compound = off`), and the outcome of their steps when they
//! are gone.

use crate::raw;
use crate::raw::{Cluster, OWNER, Raw, create, handle_of, lookup, name, run, until};
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::{Answer, ClientId, GroupReply, Handle, Kind, Name, Op, Rights, ServerId, Status, Template};
use shoal_server::rows::{RowValue, Unnamed};
use shoal_server::{Settings, keys};
use shoal_store::Changes;
use std::time::Duration;

/// Long enough that a client which is only slow, on a busy machine, is not taken for one that is gone.
const LEASE: Duration = Duration::from_millis(400);

async fn apart(env: &Env, words: &str) -> Cluster {
    let settings = Settings { lease: LEASE, ..Settings::default() };
    Cluster::of(env, 2, settings, |map| map.switches = words.parse().unwrap()).await
}

fn createmeta(dir: Handle, name: &Name) -> Op {
    let (owner, open, template) = (OWNER, Rights::WRITE, Template::default());
    Op::Createmeta { dir, name: name.clone(), owner, open, template }
}

fn crdirent(dir: Handle, name: &Name, object: Handle) -> Op {
    Op::Crdirent { dir, name: name.clone(), object, kind: Kind::File }
}

fn datafile_of(reply: &GroupReply) -> Handle {
    match reply.answers.0.as_slice() {
        [Answer::Handles { handles }] => handles[0],
        other => panic!("{:?} {other:?}", reply.status),
    }
}

fn is_gone(cluster: &Cluster, server: u16, key: Bytes) -> impl Fn() -> bool {
    let store = cluster.stores[usize::from(server)].clone();
    move || matches!(store.lookup(&key, &Default::default()), shoal_store::Lookup::Absent(_))
}

/// Wait for something that a server does by itself, and keep a session alive meanwhile.
async fn until_while_alive(env: &Env, client: &mut Raw, what: impl Fn() -> bool) {
    while !what() {
        assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
        env.sleep(LEASE / 10).await;
    }
}

/// A file, step by step: metafile and one datafile on server 1, the entry in the root.
async fn made(there: &mut Raw, here: &mut Raw, name: &Name) -> (Handle, Handle) {
    let file = handle_of(&there.change(vec![createmeta(Handle::ROOT, name)]).await);
    let datafile = datafile_of(&there.change(vec![Op::Createdata { owner: file }]).await);
    let laid = Op::Laydata { object: file, datafiles: vec![datafile].into() };
    assert_eq!(there.change(vec![laid]).await.status, Status::Ok);
    assert_eq!(here.change(vec![crdirent(Handle::ROOT, name, file)]).await.status, Status::Ok);
    (file, datafile)
}

#[test]
fn what_was_made_and_entered_stays_when_its_client_is_gone() {
    run(|env| async move {
        let cluster = apart(&env, "baseline").await;
        let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
        let (file, datafile) = made(&mut there, &mut here, &name("file")).await;
        drop((here, there));
        until(&env, is_gone(&cluster, 1, keys::new(file))).await;
        until(&env, is_gone(&cluster, 1, keys::new(datafile))).await;
        let found = cluster.client(0).await.ask(vec![lookup(Handle::ROOT, &name("file"))]).await;
        assert_eq!(handle_of(&found), file);
        assert!(!is_gone(&cluster, 1, keys::inode(file))());
        assert!(!is_gone(&cluster, 1, keys::datafile(datafile))());
    });
}

#[test]
fn what_was_made_and_not_entered_goes_with_its_session() {
    run(|env| async move {
        let cluster = apart(&env, "baseline").await;
        let mut client = cluster.client(1).await;
        let bare = handle_of(&client.change(vec![createmeta(Handle::ROOT, &name("bare"))]).await);
        let unlaid = datafile_of(&client.change(vec![Op::Createdata { owner: bare }]).await);
        let file = handle_of(&client.change(vec![createmeta(Handle::ROOT, &name("file"))]).await);
        let laid = datafile_of(&client.change(vec![Op::Createdata { owner: file }]).await);
        let lay = Op::Laydata { object: file, datafiles: vec![laid].into() };
        assert_eq!(client.change(vec![lay]).await.status, Status::Ok);
        let absent = cluster.client(0).await.ask(vec![lookup(Handle::ROOT, &name("file"))]).await;
        assert_eq!(absent.status, Status::NotFound);
        drop(client);
        for object in [bare, file] {
            until(&env, is_gone(&cluster, 1, keys::inode(object))).await;
            until(&env, is_gone(&cluster, 1, keys::new(object))).await;
        }
        for datafile in [unlaid, laid] {
            until(&env, is_gone(&cluster, 1, keys::datafile(datafile))).await;
            until(&env, is_gone(&cluster, 1, keys::new(datafile))).await;
        }
    });
}

#[test]
fn what_was_taken_back_is_not_entered_any_more() {
    run(|env| async move {
        let cluster = apart(&env, "paper").await;
        let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
        let file = handle_of(&there.change(vec![createmeta(Handle::ROOT, &name("late"))]).await);
        // Silent there, alive here: the metafile is taken back, and its late entry refused.
        until_while_alive(&env, &mut here, is_gone(&cluster, 1, keys::inode(file))).await;
        let late = here.change(vec![crdirent(Handle::ROOT, &name("late"), file)]).await;
        assert_eq!(late.status, Status::Stale);
        drop(here);
        until(&env, is_gone(&cluster, 0, keys::void(file))).await;
    });
}

#[test]
fn a_link_whose_name_was_taken_counts_once_whoever_ends_it() {
    run(|env| async move {
        let cluster = apart(&env, "paper").await;
        let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
        let file = handle_of(&there.change(vec![createmeta(Handle::ROOT, &name("a"))]).await);
        assert_eq!(here.change(vec![crdirent(Handle::ROOT, &name("a"), file)]).await.status, Status::Ok);
        let link = Op::Link { object: file, dir: Handle::ROOT, name: name("b") };
        assert_eq!(here.change(vec![link]).await.status, Status::Ok);
        let taken = here.change(vec![Op::Rmdirent { dir: Handle::ROOT, name: name("a") }]).await;
        let [Answer::Unnamed { handle, ticket, .. }] = *taken.answers.0 else { panic!("{taken:?}") };
        assert_eq!(handle, file);
        // It has another name: its server does nothing to it, and the link is settled here, however often it
        // is asked.
        let part = there.change(vec![Op::Removemeta { object: file, held: false }]).await;
        assert!(matches!(*part.answers.0, [Answer::Parted { linked: true, .. }]), "{part:?}");
        for _ in 0..2 {
            let settled = here.change(vec![Op::Settle { object: file, ticket, held: false }]).await;
            assert_eq!(settled.status, Status::Ok);
        }
        let nlink = |reply: &GroupReply| match &reply.answers[0] {
            Answer::Attr { attr, .. } => attr.nlink,
            other => panic!("{other:?}"),
        };
        assert_eq!(nlink(&there.ask(vec![Op::Getattr { object: file }]).await), 1);
        // The last name is taken, and no client removes the file: its servers do.
        let taken = here.change(vec![Op::Rmdirent { dir: Handle::ROOT, name: name("b") }]).await;
        let [Answer::Unnamed { ticket, .. }] = *taken.answers.0 else { panic!("{taken:?}") };
        drop((here, there));
        until(&env, is_gone(&cluster, 1, keys::inode(file))).await;
        until(&env, is_gone(&cluster, 0, keys::unnamed(file, ticket))).await;
    });
}

#[test]
fn a_removed_file_leaves_its_datafile_to_the_client_and_without_it_to_the_servers() {
    run(|env| async move {
        let cluster = apart(&env, "paper").await;
        let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
        for (text, by_client) in [("a", true), ("b", false)] {
            let file = handle_of(&there.change(vec![createmeta(Handle::ROOT, &name(text))]).await);
            assert_eq!(here.change(vec![crdirent(Handle::ROOT, &name(text), file)]).await.status, Status::Ok);
            let taken = here.change(vec![Op::Rmdirent { dir: Handle::ROOT, name: name(text) }]).await;
            assert_eq!(taken.status, Status::Ok);
            let part = there.change(vec![Op::Removemeta { object: file, held: false }]).await;
            let [Answer::Parted { datafiles, linked: false, .. }] = part.answers.0.as_slice() else {
                panic!("{part:?}")
            };
            assert_eq!(datafiles.as_slice(), [file], "its own stream");
            assert!(!is_gone(&cluster, 1, keys::datafile(file))());
            if by_client {
                let remove = Op::Removedata { owner: file, datafile: file };
                assert_eq!(there.change(vec![remove]).await.status, Status::Ok);
                assert!(is_gone(&cluster, 1, keys::datafile(file))());
                assert!(is_gone(&cluster, 1, keys::new(file))());
            } else {
                until_while_alive(&env, &mut here, is_gone(&cluster, 1, keys::datafile(file))).await;
            }
        }
    });
}

#[test]
fn steps_and_questions_are_refused_to_whom_they_are_not_for() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let (object, ticket) = (Handle(77), Handle(78));
        for step in [
            createmeta(Handle::ROOT, &name("f")),
            Op::Createdata { owner: object },
            Op::Laydata { object, datafiles: vec![ticket].into() },
            crdirent(Handle::ROOT, &name("f"), object),
            Op::Rmdirent { dir: Handle::ROOT, name: name("f") },
            Op::Removemeta { object, held: false },
            Op::Removedata { owner: object, datafile: ticket },
            Op::Settle { object, ticket, held: false },
        ] {
            assert_eq!(client.change(vec![step]).await.status, Status::NotSupported);
        }
        let refuse = Op::Vouchdata { owner: object, datafile: ticket, refuse: true };
        assert_eq!(client.ask(vec![refuse]).await.status, Status::Forbidden);
        assert_eq!(client.change(vec![Op::Discard { object }]).await.status, Status::Forbidden);

        // Where steps are taken, a message is one of them.
        let cluster = apart(&env, "paper").await;
        let mut client = cluster.client(0).await;
        let two = vec![create(Handle::ROOT, &name("f")), Op::Getattr { object: Handle::ROOT }];
        assert_eq!(client.change(two).await.status, Status::NotSupported);
        let foreign = raw::Wish { client: ClientId([2; 16]), ..raw::Wish::default() };
        let mut other = Raw::attach(&cluster, 0, foreign).await.unwrap();
        let file = handle_of(&client.change(vec![createmeta(Handle::ROOT, &name("f"))]).await);
        let lay = Op::Laydata { object: file, datafiles: vec![ticket].into() };
        assert_eq!(other.change(vec![lay]).await.status, Status::Stale, "another client's");
    });
}

#[test]
fn sessions_end_in_time_however_much_is_to_be_asked_of_a_server_that_is_away() {
    let world = World::new(5, Config::default());
    let machine = world.machine("m");
    let process = world.process("all", machine);
    world.complete(process, |env| async move {
        let mut cluster = apart(&env, "paper").await;
        let mut there = cluster.client(1).await;
        for n in 0..1000 {
            handle_of(&there.change(vec![createmeta(Handle::ROOT, &name(&format!("f{n}")))]).await);
        }
        // Names of files of server 0 that were taken away here, and links that are to be counted there.
        for n in 0..300 {
            let (object, ticket) =
                (Handle::new(ServerId(0), (1 << 40) + n), Handle::new(ServerId(1), (1 << 40) + n));
            let row = (keys::unnamed(object, ticket), Some(Unnamed { client: ClientId([1; 16]) }.to_row()));
            cluster.stores[1].apply(Changes { rows: vec![row], ..Changes::default() }).unwrap();
        }
        drop(there);
        cluster.kill(0);
        let ended = || cluster.shard(1).counters.sessions_ended.get();
        until(&env, || ended() == 1).await;
        // From now on server 0 is asked for the outcome of the files.
        drop(cluster.client(1).await);
        let begun = env.now();
        until(&env, || ended() == 2).await;
        let took = env.now().since(begun);
        assert!(took < Duration::from_secs(15), "{took:?}");
    });
}
