use super::*;
use shoal_env::real;
use shoal_transform::{Composed, ComposedOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect as _, LocalOptions};
use std::fs;
use std::path::{Path, PathBuf};

const DIRS: u32 = 20;
const FILES_EACH: u32 = 10;
/// Objects that each file system keeps beside those in use: fewer than a tree has.
const IDLE: usize = 40;

fn local(dir: impl Into<PathBuf>) -> LocalOptions {
    LocalOptions { inline: true, idle: Some(IDLE), descriptors: Some(8), ..LocalOptions::new(dir) }
}

async fn composed(env: &shoal_env::Env, dir: &Path) -> Composed<AnyVfs> {
    fs::create_dir_all(dir).unwrap();
    let wishes = Wishes { buffers_blocks: true, ..Wishes::default() };
    ComposedOptions { over: local(dir), wishes }.connect(env.clone()).await.unwrap()
}

/// Pack a tree, and extract it, each with the small tables of [`local`].
fn there_and_back(source: &Path, below: &Path, target: &Path) -> (Copied, Copied) {
    fs::create_dir_all(target).unwrap();
    let (source, below, target) = (source.to_owned(), below.to_owned(), target.to_owned());
    real::run("copies", async move |env| {
        let bar = ProgressBar::hidden();
        let from = local(source).connect(env.clone()).await.unwrap();
        let to = composed(&env, &below).await;
        let packed = copy(&from, Handle::ROOT, &to, Handle::ROOT, &bar).await.unwrap();
        let plain = local(target).connect(env.clone()).await.unwrap();
        let extracted = copy(&to, Handle::ROOT, &plain, Handle::ROOT, &bar).await.unwrap();
        to.close().await;
        (packed, extracted)
    })
}

#[test]
fn a_tree_of_more_objects_than_a_file_system_keeps_is_packed_and_extracted_whole() {
    let home = tempfile::tempdir().unwrap();
    let (source, target) = (home.path().join("source"), home.path().join("target"));
    for dir in 0..DIRS {
        fs::create_dir_all(source.join(format!("d{dir}/inner"))).unwrap();
        for file in 0..FILES_EACH {
            fs::write(source.join(format!("d{dir}/inner/{file}")), format!("{dir} {file}")).unwrap();
        }
    }
    let (packed, extracted) = there_and_back(&source, &home.path().join("below"), &target);
    for copied in [packed, extracted] {
        assert_eq!((copied.failed, copied.files), (0, u64::from(DIRS * FILES_EACH)));
        assert_eq!(copied.directories, u64::from(2 * DIRS));
    }
    for (dir, file) in (0..DIRS).flat_map(|dir| (0..FILES_EACH).map(move |file| (dir, file))) {
        let found = fs::read_to_string(target.join(format!("d{dir}/inner/{file}"))).unwrap();
        assert_eq!(found, format!("{dir} {file}"));
    }
}
