//! The same servers over the store that is the product: what was acknowledged is there after a crash.

mod raw;

use raw::*;
use shoal_env::Env;
use shoal_proto::{Handle, Op, SessionId, Status};
use shoal_store::{CollectionConfig, Identity, ModuleKind};
use std::path::Path;

async fn start(env: &Env, dir: &Path) -> Cluster {
    let mut cluster = Cluster::new(env, 1).await;
    cluster.kill(0);
    let identity = Identity { fs: FS, collection: COLLECTION.0, server: 0 };
    let config = CollectionConfig {
        segment_bytes: 1 << 20,
        reserve_bytes: 1 << 20,
        ..CollectionConfig::new(dir, ModuleKind::Disk, identity)
    };
    cluster.stores[0] = shoal_store::open(env.clone(), config).await.unwrap();
    cluster.start(0).await;
    cluster
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash_and_so_is_its_kept_reply() {
    let dir = tempfile::tempdir().unwrap();
    let (path, again) = (dir.path().to_owned(), dir.path().to_owned());
    let (send, receive) = std::sync::mpsc::channel();
    run(|env| async move {
        let cluster = start(&env, &path).await;
        let mut client = cluster.client(0).await;
        for i in 0..50 {
            let made = client.change(vec![create(Handle::ROOT, &name(&format!("f{i}")))]).await;
            assert_eq!(made.status, Status::Ok);
        }
        let last = client.change(vec![unlink(Handle::ROOT, &name("f0"))]).await;
        send.send((client.attached.session, client.sequence, last)).unwrap();
        // The run ends here: no clean stop.
    });
    let (session, sequence, last): (SessionId, u32, _) = receive.recv().unwrap();
    run(|env| async move {
        let mut cluster = start(&env, &again).await;
        let wish = Wish { session: Some(session), ..Wish::default() };
        let mut client = Raw::attach(&cluster, 0, wish).await.unwrap();
        let retried = client.change_in(slot(0, sequence), vec![unlink(Handle::ROOT, &name("f0"))]).await;
        assert_eq!(retried, last);
        assert_eq!(client.ask(vec![lookup(Handle::ROOT, &name("f0"))]).await.status, Status::NotFound);
        for i in 1..50 {
            let found = client.ask(vec![lookup(Handle::ROOT, &name(&format!("f{i}")))]).await;
            assert_eq!(found.status, Status::Ok);
        }
        assert_eq!(client.ask(vec![Op::Sync {}]).await.status, Status::Ok);
        cluster.servers[0].take().unwrap().stop().await.unwrap();
    });
}
