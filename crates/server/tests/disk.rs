//! The same servers over the store that is the product: what was acknowledged is there after a crash.

mod raw;

use bytes::Bytes;
use raw::*;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::{Answer, Handle, Op, SessionId, Share, Status, Transfer};
use shoal_store::{CollectionConfig, DataSync, Identity, ModuleKind, SyncModes};
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
    let (session, sequence, last): (SessionId, u64, _) = receive.recv().unwrap();
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

#[test]
fn a_small_write_alone_is_answered_in_mode_at_reply() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    run(|env| async move {
        let cluster = start(&env, &path).await;
        let modes = SyncModes { data: DataSync::AtReply, ..SyncModes::default() };
        cluster.stores[0].set_sync_modes(modes).await.unwrap();
        let mut client = cluster.client(0).await;
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!() };
        let transfer = Transfer {
            stream: attr.handle,
            generation: attr.generation,
            capability: *capability,
            pattern: Pattern::contiguous(0, 1).unwrap(),
            window_from: 0,
            window_len: 1,
            share: Share::WHOLE,
        };
        let ops = vec![Op::Write { transfer, len: 1 }];
        client.send(Some(slot(0, 2)), vec![ops], Bytes::from_static(b"x")).await;
        let until = env.now() + std::time::Duration::from_secs(5);
        let reply = env.deadline(until, client.reply()).await.expect("nothing else has to happen for it");
        assert_eq!(reply.1[0].status, Status::Ok);
    });
}
