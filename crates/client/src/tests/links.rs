//! The driver's connections, against a fake server that listens at a socket within the process.

use crate::fake::{COLLECTION, FS_ID, FakeCluster, Fault, KEY, OWNER, name, serve};
use crate::{Client, Error, Options};
use bytes::Bytes;
use shoal_env::sim::{Config, World};
use shoal_env::{Address, Env};
use shoal_proto::{Handle, Rights, ServerId, Status};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Run `body` with a client of a fake server at `local:at`, whose faults are by script.
pub(super) fn with_server<T, F: Future<Output = T>>(
    at: &'static str,
    script: Vec<Fault>,
    timeout: Duration,
    body: impl FnOnce(Result<Client, Error>, Rc<RefCell<FakeCluster>>, Env) -> F,
) -> T {
    with_server_at(&format!("local:{at}"), script, |options| options.timeout = timeout, body)
}

/// The same of a server that listens there, with other options of the client.
pub(super) fn with_server_at<T, F: Future<Output = T>>(
    at: &str,
    script: Vec<Fault>,
    change: impl FnOnce(&mut Options),
    body: impl FnOnce(Result<Client, Error>, Rc<RefCell<FakeCluster>>, Env) -> F,
) -> T {
    shoal_env::real::run("links", |env: Env| async move {
        let listener = env.listen(&at.parse().unwrap()).await.unwrap();
        let address = listener.address();
        let mut cluster = FakeCluster::new(1, 1 << 20);
        cluster.map.servers[0].addresses = vec![address.to_string().as_str().into()].into();
        let cluster = Rc::new(RefCell::new(cluster));
        let server = serve(env.clone(), listener, ServerId(0), cluster.clone(), script);
        let task = env.spawn("fake server", server);
        let mut options = Options::new(vec![address], KEY, FS_ID, COLLECTION);
        change(&mut options);
        let client = Client::connect(env.clone(), options).await;
        let value = body(client, cluster, env).await;
        task.cancel();
        value
    })
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn files_are_written_and_read_over_a_connection() {
    with_server("links-plain", vec![], LONG, |client, _, _| async move {
        let client = client.unwrap();
        let both = Rights::READ | Rights::WRITE;
        let (.., file) = client.create(Handle::ROOT, &name("f"), OWNER, true, both, None).await.unwrap();
        let data: Bytes = (0..900_000_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>().into();
        file.write(0, data.clone()).await.unwrap();
        assert_eq!(file.read(0, 2_000_000).await.unwrap(), data);
        file.fsync().await.unwrap();
        file.close().await.unwrap();
        client.close().await;
        assert_eq!(client.ping(ServerId(0)).await.unwrap_err().status, Status::Unavailable);
    });
}

#[test]
fn a_refused_handshake_says_why() {
    let script = vec![Fault::Refuse(Status::BadKey, "your key is not this file system's")];
    let error =
        with_server("links-refused", script, LONG, |client, _, _| async move { client.err().unwrap() });
    assert_eq!(error.status, Status::BadKey);
    assert!(error.to_string().contains("your key is not this file system's"), "{error}");
}

#[test]
fn a_server_without_the_key_is_not_talked_to() {
    let error = with_server("links-impostor", vec![Fault::Impostor], LONG, |client, _, _| async move {
        client.err().unwrap()
    });
    assert_eq!(error.status, Status::BadKey);
}

#[test]
fn a_connection_cut_behind_a_change_loses_and_doubles_nothing() {
    // The map, the create and one append are served; then the connection is cut after, before, and after an
    // append.
    let script = vec![Fault::Serve(3), Fault::CutBehind, Fault::CutBefore, Fault::CutBehind];
    with_server("links-cut", script, LONG, |client, _, _| async move {
        let client = client.unwrap();
        let both = Rights::READ | Rights::WRITE;
        let (.., file) = client.create(Handle::ROOT, &name("f"), OWNER, true, both, None).await.unwrap();
        for n in 0..6 {
            let at = file.append(Bytes::from(vec![b'a' + n; 3])).await.unwrap();
            assert_eq!(at, u64::from(n) * 3);
        }
        assert_eq!(&file.read(0, 100).await.unwrap()[..], b"aaabbbcccdddeeefff");
        assert_eq!(client.counters().reconnects, 3);
    });
}

#[test]
fn a_forgotten_session_fails_its_change_and_the_next_one_is_served() {
    let script = vec![
        Fault::Serve(2),
        Fault::CutBehind,
        Fault::Refuse(Status::NoSession, "the session is not known here"),
    ];
    with_server("links-forgotten", script, LONG, |client, cluster, _| async move {
        let client = client.unwrap();
        client.mkdir(Handle::ROOT, &name("a"), OWNER).await.unwrap();
        let error = client.mkdir(Handle::ROOT, &name("b"), OWNER).await.unwrap_err();
        assert_eq!(error.status, Status::NoSession);
        client.mkdir(Handle::ROOT, &name("c"), OWNER).await.unwrap();
        assert_eq!(cluster.borrow().names.len(), 3);
    });
}

#[test]
fn a_silent_server_ends_at_the_deadline_and_a_server_that_is_not_there_says_so() {
    let short = Duration::from_millis(300);
    with_server("links-silent", vec![Fault::Serve(1), Fault::Silence], short, |client, _, _| async move {
        let error = client.unwrap().ping(ServerId(0)).await.unwrap_err();
        assert_eq!((error.status, error.server), (Status::TimedOut, Some(ServerId(0))));
    });
    let error = shoal_env::real::run("links-nobody", |env: Env| async move {
        let nobody = Address::Local("links-nobody-listens".to_owned());
        Client::connect(env, Options::new(vec![nobody], KEY, FS_ID, COLLECTION)).await.err().unwrap()
    });
    assert_eq!(error.status, Status::Unavailable);
    assert!(error.to_string().contains("local:links-nobody-listens"), "{error}");
}

#[test]
fn many_requests_at_once_go_in_one_write() {
    with_server("links-many", vec![], LONG, |client, _, env| async move {
        let client = client.unwrap();
        let before = env.counters().snapshot();
        let all = (0..200).map(|_| client.ping(ServerId(0)));
        for pong in futures_util::future::join_all(all).await {
            pong.unwrap();
        }
        assert_eq!(client.counters().messages["ping"], 200);
        // The fake server, in the same world, writes each of its 200 replies by itself.
        let written = env.counters().snapshot().since(&before).socket_writes;
        assert_eq!(written, 201);
    });
}

#[test]
fn addresses_are_tried_in_order_and_near_ones_first() {
    shoal_env::real::run("links-addresses", |env: Env| async move {
        let near = Address::Local("links-addresses".to_owned());
        let listener = env.listen(&near).await.unwrap();
        let mut cluster = FakeCluster::new(1, 1 << 20);
        let nobody = Address::Local("links-addresses-nobody".to_owned());
        let unreachable = "unix:/nonexistent/socket".parse().unwrap();
        cluster.map.servers[0].addresses = vec![near.to_string().as_str().into()].into();
        let cluster = Rc::new(RefCell::new(cluster));
        let task = env.spawn("fake server", serve(env.clone(), listener, ServerId(0), cluster, vec![]));
        let options = Options::new(vec![unreachable, nobody, near], KEY, FS_ID, COLLECTION);
        let client = Client::connect(env, options).await.unwrap();
        client.ping(ServerId(0)).await.unwrap();
        task.cancel();
    });
}

/// A simulated world with a fake server on one machine, and a client on another.
fn in_a_world<F: Future<Output = ()> + 'static>(
    timeout: Duration,
    script: Vec<Fault>,
    plan: impl FnOnce(&World, shoal_env::sim::MachineId, shoal_env::sim::MachineId),
    body: impl FnOnce(Client, Env, Rc<RefCell<FakeCluster>>) -> F + 'static,
) {
    let world = World::new(7, Config::default());
    let (here, there) = (world.machine("here"), world.machine("there"));
    let (user, server) = (world.process("user", here), world.process("server", there));
    let address = Address::Local("fake".to_owned());
    let mut cluster = FakeCluster::new(1, 1 << 20);
    cluster.map.servers[0].addresses = vec![address.to_string().as_str().into()].into();
    let cluster = Rc::new(RefCell::new(cluster));
    let (at, own) = (address.clone(), cluster.clone());
    world.start(server, move |env: Env| async move {
        let listener = env.listen(&at).await.unwrap();
        serve(env, listener, ServerId(0), own, script).await;
    });
    plan(&world, here, there);
    let done = Rc::new(Cell::new(false));
    let told = done.clone();
    world.start(user, move |env: Env| async move {
        env.sleep(Duration::from_millis(1)).await;
        let mut options = Options::new(vec![address], KEY, FS_ID, COLLECTION);
        options.timeout = timeout;
        let client = Client::connect(env.clone(), options).await.unwrap();
        body(client, env, cluster).await;
        told.set(true);
    });
    world.run_for(Duration::from_secs(3600));
    assert!(done.get(), "the client came to its end");
}

#[test]
fn an_idle_client_keeps_its_session_by_saying_something_within_each_lease() {
    in_a_world(
        LONG,
        vec![],
        |_, _, _| {},
        |client, env, cluster| async move {
            client.ping(ServerId(0)).await.unwrap();
            env.sleep(Duration::from_secs(600)).await;
            // The lease is 30 s.
            let pings = cluster.borrow().log.iter().filter(|(_, op)| *op == "ping").count();
            assert!((20..=80).contains(&pings), "{pings}");
            assert_eq!(client.counters().reconnects, 0);
        },
    );
}

#[test]
fn a_partition_ends_operations_at_their_deadline_and_when_it_heals_all_goes_on() {
    let second = |n: u64| shoal_env::Instant(n * 1_000_000_000);
    in_a_world(
        Duration::from_secs(5),
        vec![],
        move |world, here, there| {
            world.at(second(10), move |world| world.partition(here, there, true));
            world.at(second(40), move |world| world.partition(here, there, false));
        },
        move |client, env, cluster| async move {
            client.mkdir(Handle::ROOT, &name("before"), OWNER).await.unwrap();
            env.sleep_until(second(11)).await;
            let cut = name("cut");
            let error = client.mkdir(Handle::ROOT, &cut, OWNER).await.unwrap_err();
            assert_eq!(error.status, Status::TimedOut);
            assert!(env.now().since(second(16)) < Duration::from_millis(1));
            env.sleep_until(second(41)).await;
            client.mkdir(Handle::ROOT, &name("after"), OWNER).await.unwrap();
            assert_eq!(cluster.borrow().names.len(), 3, "what was under way was done once, too");
        },
    );
}

#[test]
fn a_connection_that_died_without_a_word_is_left_and_the_change_is_done_once_on_the_next() {
    let script = vec![Fault::Serve(2), Fault::Deaf];
    in_a_world(
        LONG,
        script,
        |_, _, _| {},
        |client, _, cluster| async move {
            client.mkdir(Handle::ROOT, &name("a"), OWNER).await.unwrap();
            client.mkdir(Handle::ROOT, &name("b"), OWNER).await.unwrap();
            assert_eq!(cluster.borrow().log.iter().filter(|(_, op)| *op == "mkdir").count(), 2);
            assert_eq!(client.counters().reconnects, 1);
        },
    );
}
