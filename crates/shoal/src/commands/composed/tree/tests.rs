//! Copies of trees of more objects than a file system keeps, seen under way, and repeated after a kill.

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

/// Sizes and bytes of a file, by its name's number.
fn content(n: usize) -> Vec<u8> {
    // Small ones, a long one, an empty one, zeros.
    match n % 12 {
        3 => vec![n as u8 + 1; 50_000],
        5 => Vec::new(),
        7 => vec![0; 3000],
        _ => vec![n as u8 + 1; 1800],
    }
}

fn fill(source: &Path, files: usize) {
    fs::create_dir_all(source.join("d")).unwrap();
    for n in 0..files {
        fs::write(source.join(format!("d/{n}")), content(n)).unwrap();
    }
    std::os::unix::fs::symlink("to somewhere", source.join("link")).unwrap();
}

async fn small_blocks(env: &shoal_env::Env, dir: &Path) -> Composed<AnyVfs> {
    fs::create_dir_all(dir).unwrap();
    let wishes = Wishes { buffers_blocks: true, block: Some(16 << 10), ..Wishes::default() };
    ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await.unwrap()
}

/// Each name of `d` in it is that of a whole file. How many there are.
async fn are_whole<V: Vfs>(vfs: &V) -> usize {
    let Ok(d) = vfs.walk_path(b"d", true).await else { return 0 };
    let (mut listing, mut count) = (vfs.opendir(d.handle, Duration::from_secs(1)), 0);
    while let Some(listed) = listing.next(true).await.unwrap() {
        let name = listed.entry.name;
        let Some(attr) = listed.entry.attr.filter(|_| !is_left_over(&name)) else { continue };
        let n: usize = name.to_string().parse().unwrap();
        assert_eq!(attr.size, content(n).len() as u64, "{name}");
        count += 1;
    }
    count
}

/// Run `copying` step by step, and `look` after each step.
async fn in_steps<T>(
    env: &shoal_env::Env,
    copying: impl Future<Output = T>,
    mut look: impl AsyncFnMut(),
) -> T {
    let mut copying = std::pin::pin!(copying);
    loop {
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(copying.as_mut().poll(cx))).await;
        look().await;
        match polled {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => env.sleep(Duration::from_micros(50)).await,
        }
    }
}

#[test]
fn no_other_process_finds_a_file_of_a_copy_in_part() {
    const FILES: usize = 48;
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_owned();
    real::run("copies", async move |env| {
        fill(&path.join("source"), FILES);
        fs::create_dir(path.join("target")).unwrap();
        let bar = ProgressBar::hidden();
        let from = LocalOptions::new(path.join("source")).connect(env.clone()).await.unwrap();
        let to = small_blocks(&env, &path.join("below")).await;
        let other = small_blocks(&env, &path.join("below")).await;
        let mut partial = 0;
        let packing = copy(&from, Handle::ROOT, &to, Handle::ROOT, &bar);
        let look = async || {
            other.refreshed().await.unwrap();
            let count = are_whole(&other).await;
            partial += usize::from((1..FILES).contains(&count));
        };
        in_steps(&env, packing, look).await.unwrap();
        assert!(partial > 0, "the copy was seen under way");
        let plain = LocalOptions::new(path.join("target")).connect(env.clone()).await.unwrap();
        let see = LocalOptions::new(path.join("target")).connect(env.clone()).await.unwrap();
        let extracting = copy(&to, Handle::ROOT, &plain, Handle::ROOT, &bar);
        in_steps(&env, extracting, async || _ = are_whole(&see).await).await.unwrap();
        assert_eq!((are_whole(&see).await, are_whole(&to).await), (FILES, FILES));
        to.close().await;
        other.close().await;
    });
}

#[test]
fn a_copy_that_was_killed_is_completed_and_what_is_equal_is_not_copied_again() {
    const FILES: usize = 24;
    let home = tempfile::tempdir().unwrap();
    let (source, below, target) =
        (home.path().join("source"), home.path().join("below"), home.path().join("target"));
    fill(&source, FILES);
    let (packed, extracted) = there_and_back(&source, &below, &target);
    assert_eq!((packed.files, packed.skipped, packed.failed), (FILES as u64, 0, 0));
    assert_eq!((extracted.files, extracted.skipped, extracted.failed), (FILES as u64, 0, 0));
    // As a kill leaves them: a file in part, one that is missing, and one that was made aside.
    let part = |dir: &Path| {
        let aside = aside(&Name::new(b"4").unwrap()).unwrap().to_string();
        fs::write(dir.join("3"), "half").unwrap();
        fs::remove_file(dir.join("4")).unwrap();
        fs::write(dir.join(aside), "some").unwrap();
        fs::set_permissions(dir.join("6"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    part(&target.join("d"));
    let changed = source.join("d/8");
    fs::write(&changed, "new bytes").unwrap();
    let (packed, extracted) = there_and_back(&source, &below, &target);
    // All but one are equal, and the link.
    assert_eq!((packed.files, packed.skipped, packed.failed), (1, FILES as u64, 0));
    assert_eq!((extracted.files, extracted.skipped, extracted.failed), (3, FILES as u64 - 2, 0));
    for n in 0..FILES {
        let wanted = if n == 8 { b"new bytes".to_vec() } else { content(n) };
        let (from, to) = (source.join(format!("d/{n}")), target.join(format!("d/{n}")));
        assert_eq!(fs::read(&to).unwrap(), wanted, "{n}");
        let (from, to) = (fs::metadata(from).unwrap(), fs::metadata(to).unwrap());
        assert_eq!(from.modified().unwrap(), to.modified().unwrap());
        assert_eq!(from.permissions(), to.permissions());
    }
    assert_eq!(fs::read_dir(target.join("d")).unwrap().count(), FILES, "nothing is left aside");
    // A directory in a file's place, and a file in a directory's, are named.
    fs::remove_file(target.join("d/9")).unwrap();
    fs::create_dir(target.join("d/9")).unwrap();
    let (packed, extracted) = there_and_back(&source, &below, &target);
    assert_eq!((packed.files, packed.failed), (0, 0));
    assert_eq!((extracted.files, extracted.failed), (0, 1));
}
