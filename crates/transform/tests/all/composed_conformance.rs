//! Composed directories pass the suite of all file systems: over a directory, and over a simulated one.

use shoal_env::sim::{Config, World};
use shoal_env::{Env, real};
use shoal_transform::{ComposedOptions, Wishes};
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{Connect, LocalOptions, Vfs};
use std::path::PathBuf;

async fn conform(env: Env, dir: PathBuf, words: &str, many: usize) {
    let publishes_writes = words == "writes";
    let words = if publishes_writes { "" } else { words };
    let wishes = Wishes { publishes_writes, ..Wishes::parse(words).unwrap() };
    let options = ComposedOptions { over: LocalOptions::new(dir), wishes };
    let composed = options.connect(env).await.unwrap();
    // A process may have the descriptor of another one, which has the file open.
    check(&composed, Promises { many, gone: !publishes_writes, ..Promises::ALL }).await;
    composed.close().await;
}

#[test]
fn composed_directories_over_a_directory_conform() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    real::run("conformance", move |env| async move { conform(env, path, "", 300).await });
}

#[test]
fn they_conform_with_small_blocks_whole_blocks_each_write_published_and_names_of_their_own() {
    for words in ["block=16K", "writes", "block=64K,buffer=block", "block=64K,files=3,buffer=block,names=own"]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        real::run("conformance", move |env| async move { conform(env, path, words, 300).await });
    }
}

#[test]
fn they_conform_in_the_simulated_world() {
    let world = World::new(3, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, |env| conform(env, PathBuf::from("/a/directory"), "block=64K", 100));
}
