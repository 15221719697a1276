//! A collection in a temporary folder, opened and closed in several ways.

#![allow(dead_code, reason = "each test file uses its part")]

use shoal_env::{Env, WallTime, real};
use shoal_proto::{Handle, ServerId};
use shoal_store::{
    Changes, Collection, CollectionConfig, Identity, ModuleKind, StoreError, StreamChange, StreamInfo, look,
    open,
};
use std::future::Future;
use std::path::Path;

/// Small limits, so that segments roll, tables freeze and caches miss.
pub fn config(dir: &Path) -> CollectionConfig {
    let identity = Identity { fs: *b"the file system!", collection: 5, server: 2 };
    CollectionConfig {
        segment_bytes: 256 << 10,
        group_bytes_max: 64 << 10,
        table_rows_max: 200,
        row_cache_rows: 64,
        bloom_filter_bytes: 256,
        data_cache_bytes: 64 << 10,
        open_files: 4,
        reserve_bytes: 1 << 20,
        table_map_bytes: 1 << 20,
        ..CollectionConfig::new(dir, ModuleKind::Disk, identity)
    }
}

/// Run one life of a server: a store that is not closed is as after a kill.
pub fn life<T, F>(body: impl FnOnce(Env) -> F) -> T
where
    F: Future<Output = T>,
{
    real::run("store test", body)
}

/// Run one life over a folder, killed at its end.
pub fn killed<T, F>(dir: &Path, body: impl FnOnce(Collection) -> F) -> T
where
    F: Future<Output = T>,
{
    let config = config(dir);
    life(|env| async move {
        let store = open(env, config).await.unwrap_or_else(|error| panic!("{error}"));
        body(store).await
    })
}

/// The result of opening a folder.
pub fn opening(dir: &Path) -> Result<(), StoreError> {
    let config = config(dir);
    life(|env| async move { open(env, config).await.map(drop) })
}

/// A copy of a folder in its present state.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub fn handle(n: u64) -> Handle {
    Handle::new(ServerId(2), n)
}

pub fn moment(n: i64) -> WallTime {
    WallTime(n)
}

pub fn bytes(seed: u64, len: usize) -> bytes::Bytes {
    (0..len as u64).map(|i| ((i + 1).wrapping_mul(seed * 2 + 77) >> 3) as u8 | 1).collect::<Vec<u8>>().into()
}

/// One change, after its stream's row was loaded.
pub async fn change(store: &Collection, handle: Handle, change: StreamChange) -> shoal_store::Lsn {
    look(store, |view| view.stream(handle)).await.unwrap();
    let mut changes = Changes::default();
    changes.stream(handle, change);
    store.apply(changes).unwrap()
}

pub async fn put_row(store: &Collection, key: &str, value: &str) -> shoal_store::Lsn {
    let mut changes = Changes::default();
    changes.put(key.to_owned(), value.to_owned());
    store.apply(changes).unwrap()
}

pub async fn get_row(store: &Collection, key: &str) -> Option<String> {
    let value = look(store, |view| view.get(key.as_bytes())).await.unwrap().0;
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

pub async fn info(store: &Collection, handle: Handle) -> Option<StreamInfo> {
    look(store, |view| view.stream(handle)).await.unwrap().0
}

pub async fn write(store: &Collection, handle: Handle, at: u64, data: bytes::Bytes) -> StreamInfo {
    let generation = info(store, handle).await.unwrap().generation;
    let run = shoal_pattern::ViewRun { physical: at, packed: 0, len: data.len() as u64 };
    store.write(handle, generation, vec![run], data, moment(1)).await.unwrap()
}

pub async fn read(store: &Collection, handle: Handle, at: u64, len: usize) -> Vec<u8> {
    let generation = info(store, handle).await.unwrap().generation;
    let run = shoal_pattern::ViewRun { physical: at, packed: 0, len: len as u64 };
    store.read(handle, generation, vec![run], len).await.unwrap().0.to_vec()
}

/// All of a stream.
pub async fn whole(store: &Collection, handle: Handle) -> Vec<u8> {
    let size = info(store, handle).await.unwrap().size;
    read(store, handle, 0, size as usize).await
}
