//! Clients end, and then the servers restart. Other clients must not wait for the ended clients: neither for
//! locks, nor when they make files in composed directories.

use super::followed::{BOTH, COMPOSED, DIR, FILE, laid, name, names, read, with_clients, write};
use super::followed_ends::polled;
use bytes::Bytes;
use shoal_client::{Client, Options};
use shoal_env::Env;
use shoal_proto::{Handle, Name, Status};
use shoal_sim::{Cluster, ClusterConfig};
use shoal_transform::Followed;
use shoal_vfs::{Error, LockCall, LockKind, LockOwner, LockRange, Vfs, VfsFile};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

const SERVERS: u16 = 2;
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(40);
/// Others do not wait for longer than this.
const SOON: Duration = Duration::from_secs(5);

fn ready(cluster: &Cluster) {
    let until = cluster.world.now() + BEGIN_MAX;
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
}

fn restart(cluster: &Cluster) {
    (0..SERVERS).for_each(|server| cluster.restart_server(server));
    ready(cluster);
}

fn cluster() -> Cluster {
    let config = ClusterConfig { servers: SERVERS, clients: 2, ..ClusterConfig::default() };
    let cluster = Cluster::new(7, &config);
    ready(&cluster);
    cluster
}

fn whole(wait: bool) -> LockCall {
    LockCall { owner: LockOwner(3), range: LockRange::ALL, kind: LockKind::Exclusive, wait, pid: 1 }
}

/// How a client gives its locks back, and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Unlocks,
    Closes,
    Drops,
}

/// Files on all servers, each locked.
async fn four_locked(client: &Client) -> Vec<shoal_client::OpenFile> {
    let mut files = Vec::new();
    for number in 0..4 {
        let dir = name(&format!("dir-{number}"));
        let dir = Vfs::mkdir(client, Handle::ROOT, &dir, DIR).await.unwrap().handle;
        let (.., file) = Vfs::create(client, dir, &name("file"), FILE, true, BOTH).await.unwrap();
        assert!(file.lock(&whole(true)).await.unwrap());
        files.push(file);
    }
    files
}

/// Lock files, and end.
async fn locks_and_ends(env: Env, options: Options, ends: Ends) {
    let client = Client::connect(env.clone(), options).await.unwrap();
    let files = four_locked(&client).await;
    for file in files {
        match ends {
            Ends::Unlocks => file.unlock(LockOwner(3), LockRange::ALL).await.unwrap(),
            Ends::Closes => VfsFile::close(file).await.unwrap(),
            Ends::Drops => drop(file),
        }
    }
    Vfs::close(&client).await;
    drop(client);
    // The process goes on for a moment.
    env.sleep(Duration::from_millis(100)).await;
}

#[test]
fn the_locks_of_others_do_not_wait_after_a_restart_for_a_client_that_had_ended() {
    for ends in [Ends::Unlocks, Ends::Closes, Ends::Drops] {
        let cluster = cluster();
        let options = cluster.options();
        cluster.complete_client(0, move |env| locks_and_ends(env, options, ends));
        cluster.world.run_for(Duration::from_secs(3));
        restart(&cluster);
        let options = cluster.options();
        let took = cluster.complete_client(1, move |env| async move {
            let client = Client::connect(env.clone(), options).await.unwrap();
            let begun = env.now();
            for number in 0..4 {
                let dir = Vfs::lookup(&client, Handle::ROOT, &name(&format!("dir-{number}"))).await.unwrap();
                let file = Vfs::open_name(&client, dir.handle, &name("file"), BOTH).await.unwrap();
                assert!(file.lock(&whole(true)).await.unwrap());
            }
            env.now().since(begun)
        });
        assert!(took < SOON, "{ends:?}: {took:?}");
    }
}

#[test]
fn creations_in_a_composed_directory_do_not_wait_after_a_restart_for_a_client_that_had_ended() {
    let cluster = cluster();
    let options = cluster.options();
    let dir = cluster.complete_client(0, move |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let dir = laid(&client, "laid", COMPOSED).await.handle;
        let followed = Followed::new(env.clone(), client);
        followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        write(&followed, dir, "one", b"one").await;
        followed.close().await;
        env.sleep(Duration::from_millis(100)).await;
        dir
    });
    cluster.world.run_for(Duration::from_secs(3));
    restart(&cluster);
    let options = cluster.options();
    let took = cluster.complete_client(1, move |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let followed = Followed::new(env.clone(), client);
        followed.lookup(Handle::ROOT, &name("laid")).await.unwrap();
        let begun = env.now();
        write(&followed, dir, "other", b"other").await;
        let took = env.now().since(begun);
        assert_eq!(names(&followed, dir).await, ["one", "other"]);
        took
    });
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_creation_in_a_composed_directory_succeeds_after_one_that_failed_while_locks_were_waited_for() {
    let cluster = cluster();
    let (options, is_cut_off) = (cluster.options(), Rc::new(Cell::new(false)));
    let (locked, cut_off) = (Rc::new(Cell::new(false)), is_cut_off.clone());
    let has_locked = locked.clone();
    cluster.start_client(0, move |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        laid(&client, "laid", COMPOSED).await;
        let _held = four_locked(&client).await;
        has_locked.set(true);
        while !cut_off.get() {
            env.sleep(Duration::from_millis(100)).await;
        }
    });
    let world = &cluster.world;
    assert!(world.run_until_true(world.now() + BEGIN_MAX, || locked.get()));
    // It says nothing more, and is not known to have ended.
    for server in 0..SERVERS {
        let server = cluster.machine_of_server(shoal_proto::ServerId(server)).unwrap();
        world.partition(cluster.client_machine(0), server, true);
    }
    restart(&cluster);
    let options = Options { timeout: Duration::from_secs(10), ..cluster.options() };
    let failed = cluster.complete_client(1, move |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let followed = Followed::new(env.clone(), client);
        let dir = followed.lookup(Handle::ROOT, &name("laid")).await.unwrap().handle;
        let mut failed = 0;
        for number in 0.. {
            let file = name(&format!("file-{number}"));
            match followed.create(dir, &file, FILE, true, BOTH).await {
                Ok((.., file)) => {
                    file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
                    file.close().await.unwrap();
                    assert_eq!(read(&followed, dir, &format!("file-{number}")).await, "bytes");
                    break;
                }
                Err(error) => {
                    assert!(matches!(error.status, Status::TimedOut | Status::Unavailable), "{error}");
                    failed += 1;
                    assert!(failed < 20, "creations fail for longer than a lease");
                }
            }
        }
        failed
    });
    is_cut_off.set(true);
    assert!(failed > 1, "{failed}");
}

#[test]
fn creations_that_are_given_up_at_any_step_keep_no_name_and_do_not_keep_others_from_being_made() {
    for is_file in [true, false] {
        with_clients(2, 2, async move |env, clients| gives_up(env, clients, is_file).await);
    }
}

/// Make a file or a directory.
async fn makes<V: Vfs>(vfs: &V, dir: Handle, given: &Name, is_file: bool) -> Result<(), Error> {
    match is_file {
        true => vfs.create(dir, given, FILE, true, BOTH).await?.2.close().await,
        false => vfs.mkdir(dir, given, DIR).await.map(drop),
    }
}

async fn gives_up(env: Env, clients: Vec<Client>, is_file: bool) {
    for step in 0.. {
        let text = format!("laid-{step}");
        let dir = laid(&clients[0], &text, COMPOSED).await.handle;
        let followed = Followed::new(env.clone(), clients[0].clone());
        followed.lookup(Handle::ROOT, &name(&text)).await.unwrap();
        let given = name("given-up");
        let made = {
            let mut creation = pin!(makes(&followed, dir, &given, is_file));
            polled(&mut creation, step).await
        };
        if let Some(made) = made {
            made.unwrap();
            assert!(step > 20, "{step} steps");
            break;
        }
        write(&followed, dir, "next", b"bytes").await;
        // Requests that no call waits for take back the steps that were done.
        env.sleep(Duration::from_millis(200)).await;
        let other = Followed::new(env.clone(), clients[1].clone());
        other.lookup(Handle::ROOT, &name(&text)).await.unwrap();
        match makes(&other, dir, &given, is_file).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.status, Status::Exists, "step {step}: {error}");
                let there = other.lookup(dir, &given).await;
                assert!(there.is_ok(), "step {step}: its name is kept, and leads nowhere");
            }
        }
        assert_eq!(names(&followed, dir).await, ["given-up", "next"], "step {step}");
    }
}
