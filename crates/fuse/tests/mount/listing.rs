//! Listings as the kernel is given them, without a kernel.

use super::cluster::Cluster;
use shoal_client::Client;
use shoal_env::{Env, real};
use shoal_fuse::MountOptions;
use shoal_fuse::fs::{AtOnce, Caller, Errno, Fs};
use shoal_proto::{Attr, Handle};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const FILE: u32 = libc::S_IFREG | 0o644;
/// Nothing is too old to be valid.
const CACHE: Duration = Duration::from_secs(3600);

async fn state(env: Env, options: shoal_client::Options) -> Fs<Client> {
    let client = Client::connect(env.clone(), options).await.unwrap();
    let forgets_nothing =
        Rc::new(|_, _| -> futures_util::future::LocalBoxFuture<'static, ()> { Box::pin(async {}) });
    let believing = MountOptions { cache: CACHE, ..MountOptions::default() };
    Fs::new(env, client, &believing, forgets_nothing, Arc::new(AtOnce::new(CACHE)))
}

/// So many entries after `offset`, with their cache time, and the offset after them.
async fn list(
    fs: &Fs<Client>,
    fh: u64,
    mut offset: u64,
    count: usize,
) -> (BTreeMap<String, (Attr, Duration)>, u64) {
    let mut listed = BTreeMap::new();
    let given = fs.readdir(fh, offset, true, |entry, believed| {
        if listed.len() == count {
            return true;
        }
        offset = entry.offset;
        if let Some((attr, _)) = &entry.attr {
            listed.insert(String::from_utf8(entry.name.to_vec()).unwrap(), (attr.clone(), believed));
        }
        false
    });
    given.await.unwrap();
    (listed, offset)
}

/// With so long names some hundred entries are a batch.
fn name(n: usize) -> String {
    format!("{n:03}{}", "-".repeat(240))
}

#[test]
fn what_changed_through_a_mount_since_an_entry_was_asked_for_is_not_believed_from_a_listing() {
    let cluster = Cluster::start(1);
    let options = cluster.client();
    real::run("client", |env| async move {
        let fs = state(env, options).await;
        let dir = fs.mkdir(ROOT, Handle::ROOT, b"dir", 0o755).await.unwrap().handle;
        let other = fs.mkdir(ROOT, Handle::ROOT, b"other", 0o755).await.unwrap().handle;
        let names: Vec<String> = (0..700).map(name).collect();
        for (n, name) in names.iter().enumerate() {
            let name = name.as_bytes();
            match n % 6 {
                4 => drop(fs.mkdir(ROOT, dir, name, 0o755).await.unwrap()),
                kind => {
                    let file = fs.mknod(ROOT, dir, name, FILE, 0).await.unwrap().handle;
                    match kind {
                        2 => drop(fs.mknod(ROOT, other, name, FILE, 0).await.unwrap()),
                        3 => drop(fs.link(file, other, name).await.unwrap()),
                        _ => {}
                    }
                }
            }
        }
        let fh = fs.opendir(dir).await.unwrap();
        let (before, offset) = list(&fs, fh, 0, 300).await;
        assert!(before.values().all(|(_, believed)| !believed.is_zero()));
        for (n, name) in names.iter().enumerate().filter(|(_, name)| !before.contains_key(*name)) {
            let name = name.as_bytes();
            match n % 6 {
                0 => fs.unlink(7, dir, name).await.unwrap(),
                1 => fs.rename((dir, name), (other, name), 0).await.unwrap(),
                2 => fs.rename((other, name), (dir, name), 0).await.unwrap(),
                3 => fs.unlink(7, other, name).await.unwrap(),
                4 => fs.rmdir(7, dir, name).await.unwrap(),
                _ => {}
            }
        }
        let (behind, _) = list(&fs, fh, offset, usize::MAX).await;
        let mut given = [0; 6];
        for (n, name) in names.iter().enumerate() {
            let Some((attr, believed)) = behind.get(name) else { continue };
            given[n % 6] += 1;
            let left = fs.lookup(0, dir, name.as_bytes()).await;
            match n % 6 {
                0 | 1 | 4 => assert_eq!((left.unwrap_err(), *believed), (Errno::NOENT, Duration::ZERO)),
                2 => assert!(believed.is_zero() || left.unwrap().0.handle == attr.handle),
                3 => assert_eq!((attr.nlink, left.unwrap().0.nlink), (1, 1)),
                _ => assert!(!believed.is_zero(), "nothing was changed there"),
            }
        }
        assert!(given[1..4].iter().all(|given| *given > 0), "some were asked for before: {given:?}");
        fs.releasedir(fh).unwrap();
        fs.end(Duration::ZERO).await;
    });
}
