//! Servers whose clocks are far apart.

use bytes::Bytes;
use shoal_client::{Client, Error};
use shoal_proto::{Handle, Name, Owner, Rights, ServerId, Status};
use shoal_sim::{Cluster, ClusterConfig};
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
/// More than a capability lives.
const APART: Duration = Duration::from_secs(2 * 3600);

/// Write a file that goes over both servers.
async fn write_over_all(client: &Client, name: &str) -> Result<(), Error> {
    let name = Name::new(name.as_bytes()).unwrap();
    let (_, _, file) = client.create(Handle::ROOT, &name, OWNER, true, Rights::WRITE, None).await?;
    file.write(0, Bytes::from(vec![7; 256 << 10])).await?;
    file.close().await
}

#[test]
fn servers_whose_clocks_are_further_apart_than_a_capability_lives_refuse_each_others_data() {
    let config = ClusterConfig { servers: 2, clients: 1, ..ClusterConfig::default() };
    let cluster = Cluster::new(1, &config);
    let until = cluster.world.now() + Duration::from_secs(10);
    assert!(cluster.world.run_until_true(until, || cluster.is_ready()), "{:?}", cluster.failures());
    let options = cluster.options();
    let ahead = cluster.machine_of_server(ServerId(1)).unwrap();
    let world = cluster.world.clone();
    let jump = move |way: i64| world.jump_wall(ahead, way * APART.as_nanos() as i64);
    cluster.complete_client(0, |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        write_over_all(&client, "before").await.unwrap();
        jump(1);
        let refused = write_over_all(&client, "meanwhile").await.unwrap_err();
        assert_eq!((refused.status, refused.server), (Status::BadCapability, Some(ServerId(1))), "{refused}");
        jump(-1);
        write_over_all(&client, "after").await.unwrap();
    });
}
