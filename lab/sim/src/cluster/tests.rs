//! Servers of a simulated cluster: the record of their starts, failures and disks.

use super::*;
use shoal_env::sim::Link;
use shoal_proto::{Handle, Name, Rights, Status};
use std::rc::Rc;

#[test]
fn servers_with_each_others_folders_do_not_serve_and_serve_again_with_their_own() {
    let cluster = Cluster::new(1, &ClusterConfig { servers: 2, clients: 1, ..ClusterConfig::default() });
    let world = &cluster.world;
    let begins = || world.run_until_true(world.now() + Duration::from_secs(30), || cluster.is_ready());
    assert!(begins());
    let owner = shoal_proto::Owner { mode: 0o755, uid: 0, gid: 0 };
    let (options, dir) = (cluster.options(), Name::new(b"dir").unwrap());
    let made = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await.unwrap();
        client.mkdir(Handle::ROOT, &dir, owner).await.unwrap().handle
    });
    let exchange = || {
        let both = [cluster.server(0), cluster.server(1)];
        for server in both {
            server.keep_stopped();
            world.crash(server.process);
        }
        both[0].exchange_folders(both[1], world);
        both.iter().for_each(|server| server.start(world));
    };
    exchange();
    world.run_for(Duration::from_secs(30));
    assert!((0..2).all(|id| !cluster.server(id).plan.serving.get()), "none serves");
    exchange();
    assert!(begins());
    assert_eq!(cluster.failures(), [""; 0]);
    let options = cluster.options();
    let found = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await.unwrap();
        client.lookup(Handle::ROOT, &Name::new(b"dir").unwrap()).await.unwrap().handle
    });
    assert_eq!(found, made);
}

/// An append is written; its answer is lost, and so are its bytes, by a power cut; the answer that was
/// kept comes to the retry. No client may then get the answer that an fsync covered the bytes.
#[test]
fn bytes_lost_behind_a_kept_answer_are_told_by_the_next_fsync() {
    let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 2, ..ClusterConfig::default() });
    let world = cluster.world.clone();
    assert!(world.run_until_true(world.now() + Duration::from_secs(30), || cluster.is_ready()));
    let (server, near) = (cluster.server(0).clone(), cluster.client_machine(0));
    let latency_ns = 50_000_000;
    let options = cluster.options();
    // A client whose changes make the journal durable.
    cluster.start_client(1, |env| async move {
        let client = connect(&env, options).await.unwrap();
        for count in 0..100 {
            env.sleep(Duration::from_millis(2)).await;
            drop(client.mkdir_at(format!("/{count}").as_bytes(), ROOT).await);
        }
    });
    let options = cluster.options();
    let synced = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await.unwrap();
        let name = Name::new(b"log").unwrap();
        let content = vec![1; 4096].into();
        let made = client.create_write(Handle::ROOT, &name, ROOT, content, None).await.unwrap();
        let file = client.open(made.handle, Rights::READ | Rights::WRITE).await.unwrap();
        file.fsync().await.unwrap();
        world.set_link(server.machine, near, Link { latency_ns, ..Link::default() });
        let written = world.now() + Duration::from_millis(70);
        world.at(written, move |world| {
            world.half_open(near, server.machine, world.now() + Duration::from_secs(1));
            world.power_cut(server.machine);
            server.start(world);
        });
        let appended = file.append(vec![2; 16_384].into()).await;
        (appended.map(drop), file.fsync().await, file.fsync().await)
    });
    assert!(synced.0.is_ok(), "the kept answer says that it was done: {:?}", synced.0);
    assert_eq!(synced.1.map_err(|error| error.status), Err(Status::Io), "its bytes are lost");
    assert!(synced.2.is_ok(), "it is told once");
}

/// The process that gave up holds its folder to its end, as a real one does.
#[test]
fn a_server_whose_start_met_a_failing_sync_is_started_again_as_a_new_process() {
    let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() });
    let (world, server) = (&cluster.world, cluster.server(0));
    let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
    assert!(serves());
    for step in 0..60 {
        world.crash(server.process);
        server.start(world);
        world.run_for(Duration::from_micros(100 * step));
        world.fail_syncs(server.machine, 1);
        assert!(serves(), "{step}: {:?}", cluster.failures());
        assert!(cluster.failures().is_empty(), "{step}: {:?}", cluster.failures());
    }
}

/// A row that a server with a failed disk cannot read or keep proves nothing about its peer.
#[test]
fn a_server_starts_beside_one_whose_disk_failed() {
    let cluster = Cluster::new(1, &ClusterConfig { servers: 3, clients: 1, ..ClusterConfig::default() });
    let (world, failing) = (&cluster.world, cluster.server(2));
    let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
    assert!(serves());
    world.fail_syncs(failing.machine, u64::MAX);
    let options = cluster.options();
    let refused = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await.unwrap();
        let mut refused = 0;
        for count in 0..9 {
            let made = client.mkdir_at(format!("/{count}").as_bytes(), ROOT).await;
            refused += u32::from(made.is_err());
        }
        refused
    });
    assert!(refused > 0, "its disk has not failed");
    // The remembered position of a peer is due again.
    world.run_for(Duration::from_secs(61));
    for id in [0, 1] {
        world.crash(cluster.server(id).process);
        cluster.server(id).start(world);
        assert!(serves(), "server {id}: {:?}", cluster.failures());
    }
    assert!(cluster.failures().is_empty(), "{:?}", cluster.failures());
}

/// Stops of a server that syncs fail in: with each of its starts, where the server had not begun to
/// serve; how many were such.
fn starts_that_fail(then: impl Fn(&World, &Server)) -> usize {
    let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() });
    let (world, server) = (&cluster.world, cluster.server(0));
    let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
    assert!(serves());
    let mut met = 0;
    for step in 0..60 {
        world.crash(server.process);
        server.start(world);
        let (failed, plan) = (Rc::new(Cell::new(false)), server.plan.clone());
        let tell = failed.clone();
        world.on_failed_sync(server.machine, move || tell.set(!plan.serving.get()));
        world.run_for(Duration::from_micros(100 * step));
        world.fail_syncs(server.machine, 1);
        let until = world.now() + Duration::from_millis(100);
        world.run_until_true(until, || server.plan.gave_up.get());
        if failed.get() && server.plan.gave_up.get() {
            met += 1;
            then(world, server);
        }
        world.fail_syncs(server.machine, 0);
        if !world.is_alive(server.process) && !server.plan.gave_up.get() {
            server.start(world);
        }
        assert!(serves(), "{step}: {:?}", cluster.failures());
    }
    met
}

#[test]
fn a_sync_that_failed_in_a_start_is_not_told_with_the_end_of_a_later_life() {
    let met = starts_that_fail(|world, server| {
        let serves = || server.plan.serving.get();
        assert!(world.run_until_true(world.now() + Duration::from_secs(10), serves));
        assert_eq!(world.take_failed_syncs(server.machine), 0);
    });
    assert!(met > 0);
}

#[test]
fn a_server_that_gave_up_and_is_then_stopped_stays_so_until_it_is_started() {
    let met = starts_that_fail(|world, server| {
        server.keep_stopped();
        world.run_for(Duration::from_secs(2));
        assert!(!world.is_alive(server.process));
    });
    assert!(met > 0);
}
