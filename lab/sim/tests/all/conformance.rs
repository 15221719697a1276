//! Runs the conformance suite of all file systems over a simulated ShoalFS, and over containers and composed
//! directories on it.

use shoal_client::Client;
use shoal_sim::{Cluster, ClusterConfig};
use shoal_transform::{Composed, Container, Wishes};
use shoal_vfs::conformance::{Promises, check};
use std::time::Duration;

/// A cluster that serves.
fn cluster(servers: u16) -> Cluster {
    let config = ClusterConfig { servers, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(u64::from(servers), &config);
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    cluster
}

fn conforms(servers: u16) {
    let cluster = cluster(servers);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        check(&client, Promises::ALL).await;
    });
}

#[test]
fn a_file_system_of_one_server_conforms() {
    conforms(1);
}

#[test]
fn a_file_system_of_four_servers_conforms() {
    conforms(4);
}

#[test]
fn containers_over_four_servers_conform() {
    let cluster = cluster(4);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let container = Container::new(env, client);
        check(&container, Promises { links: false, counted_directories: false, many: 600, ..Promises::ALL })
            .await;
    });
}

#[test]
fn composed_directories_over_four_servers_conform() {
    let cluster = cluster(4);
    let options = cluster.options();
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let composed = Composed::open(env, client, &Wishes::default()).await.unwrap();
        check(&composed, Promises { many: 200, ..Promises::ALL }).await;
    });
}
