//! A file is written under another name and renamed over an existing name: readers always find the old file
//! or the new one.

use crate::scene::{BOTH, mount, name, owner, run};
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::{Handle, Kind, Rights, Status};
use shoal_transform::Container;
use shoal_vfs::{AnyVfs, Error, Listing, RenameFlags, Vfs, VfsFile};
use std::cell::Cell;
use std::time::Duration;

type Mounted = Container<AnyVfs>;
const ROUNDS: u64 = 700;

async fn replace(mount: &Mounted, round: u64) -> Result<(), Error> {
    let aside = name(&format!("aside{}", round % 2));
    let (_, _, file) = mount.create(Handle::ROOT, &aside, owner(), true, BOTH).await?;
    file.write(0, Bytes::from(vec![round as u8; 100])).await?;
    file.close().await?;
    mount.rename(Handle::ROOT, &aside, Handle::ROOT, &name("f"), RenameFlags::default()).await
}

/// A look-up and an open, as a kernel does it: from the name again where the object is stale.
async fn look(mount: &Mounted, turn: u64) -> Result<(), String> {
    for _ in 0..50 {
        let attr = mount.lookup(Handle::ROOT, &name("f")).await.map_err(|error| format!("stat: {error}"))?;
        if attr.kind != Kind::File || attr.size != 100 {
            return Err(format!("turn {turn}: stat: {:?} of {} bytes", attr.kind, attr.size));
        }
        let rights = if turn.is_multiple_of(5) { BOTH } else { Rights::READ };
        match mount.getattr(attr.handle).await {
            Err(error) if error.status == Status::Stale => continue,
            attr if attr.as_ref().is_ok_and(|attr| attr.kind == Kind::File) => {}
            attr => return Err(format!("turn {turn}: fstat: {attr:?}")),
        }
        match mount.open(attr.handle, rights).await {
            Ok(file) => return file.close().await.map_err(|error| format!("close: {error}")),
            Err(error) if error.status == Status::Stale => {}
            Err(error) => return Err(format!("turn {turn}: open: {error}")),
        }
    }
    Err(format!("turn {turn}: stale 50 times"))
}

async fn list(mount: &Mounted) -> Result<(), String> {
    let mut listing = mount.opendir(Handle::ROOT, Duration::from_secs(1));
    while let Some(listed) = listing.next(true).await.map_err(|error| format!("list: {error}"))? {
        if listed.entry.kind != Kind::File {
            return Err(format!("list: {:?} is a {:?}", listed.entry.name, listed.entry.kind));
        }
    }
    Ok(())
}

async fn readers_never_miss(env: &Env, writer: Mounted, readers: Vec<Mounted>) {
    replace(&writer, 0).await.unwrap();
    let is_done = Cell::new(false);
    let write = async {
        for round in 1..=ROUNDS {
            replace(&writer, round).await.unwrap();
        }
        is_done.set(true);
    };
    let read = readers.iter().map(async |mount| {
        let mut turn = 0;
        while !is_done.get() {
            look(mount, turn).await?;
            if turn.is_multiple_of(7) {
                list(mount).await?;
            }
            turn += 1;
        }
        Ok::<u64, String>(turn)
    });
    let ((), seen) = futures_util::join!(write, futures_util::future::join_all(read));
    for turns in seen {
        assert!(turns.unwrap() > 10);
    }
    env.sleep(Duration::from_millis(1)).await;
}

#[test]
fn a_name_that_another_mount_replaces_is_always_a_file() {
    run(async |env, dir| {
        let readers = vec![mount(&env, dir).await, mount(&env, dir).await];
        readers_never_miss(&env, mount(&env, dir).await, readers).await;
    });
}

#[test]
fn a_name_that_is_replaced_in_one_mount_is_always_a_file() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        readers_never_miss(&env, one.clone(), vec![one.clone(), one]).await;
    });
}
