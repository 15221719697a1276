//! Changes at once: they share syncs and system calls.

use crate::cluster::Cluster;
use crate::cost::Meter;
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_client::Client;
use shoal_env::real;
use shoal_proto::Name;
use shoal_proto::op::Owner;
use shoal_store::ModuleKind;

/// Changes at once, and how often.
const AT_ONCE: usize = 16;
const TURNS: usize = 8;

#[test]
fn changes_at_once_share_their_syncs_and_system_calls() {
    let cluster = Cluster::start(1, ModuleKind::Disk);
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), cluster.client()).await.unwrap();
        let root = client.walk(b"/", true).await.unwrap().handle;
        let meter = Meter { env: &env, cluster: &cluster, client };
        let changes = async {
            for turn in 0..TURNS {
                let creates = (0..AT_ONCE).map(|n| async move {
                    let name = Name::new(format!("f{turn}-{n}").as_bytes()).unwrap();
                    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
                    let data = Bytes::from(vec![7; 8 << 10]);
                    client.create_write(root, &name, owner, data, None).await.unwrap();
                });
                join_all(creates).await;
            }
        };
        let cost = meter.cost("create, write 8 KiB, close: 16 at once", AT_ONCE * TURNS, changes).await;
        println!("{}", cost.row());
        assert_eq!(cost.messages, 1.0, "{cost:#?}");
        // 16 requests of 8 KiB are three buffers: they share syncs, however the machine runs them.
        assert!(cost.syncs <= 0.5 && cost.groups <= 0.5, "{cost:#?}");
        assert!(cost.socket_calls < 4.0, "{cost:#?}");
        client.close().await;
    });
}
