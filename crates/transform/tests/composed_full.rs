//! Writes of blocks that fail. The test has a process of its own, because a limit of the process makes the
//! writes fail.

use bytes::Bytes;
use shoal_env::{Env, real};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::composed::tools;
use shoal_transform::{Composed, ComposedOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, Vfs, VfsFile};
use std::path::Path;

type Mounted = Composed<AnyVfs>;
const BOTH: Rights = Rights::READ.union(Rights::WRITE);
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const ROOT: Handle = Handle::ROOT;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

async fn mount(env: &Env, dir: &Path, words: &str) -> shoal_vfs::Result<Mounted> {
    let wishes = Wishes::parse(words).unwrap();
    ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await
}

fn run<T: Send + 'static>(body: impl AsyncFnOnce(Env, &Path) -> T + Send + 'static) -> T {
    let dir = tempfile::tempdir().unwrap();
    real::run("test", move |env| async move { body(env, dir.path()).await })
}

async fn put(vfs: &Mounted, text: &str, data: &[u8]) {
    let (_, _, file) = vfs.create(ROOT, &name(text), OWNER, true, BOTH).await.unwrap();
    file.write(0, Bytes::copy_from_slice(data)).await.unwrap();
    file.close().await.unwrap();
}

async fn get(vfs: &Mounted, text: &str) -> Option<Vec<u8>> {
    let file = vfs.open_name(ROOT, &name(text), Rights::READ).await.ok()?;
    Some(file.read(0, 1 << 24).await.unwrap().to_vec())
}

#[test]
fn a_failed_write_of_a_block_loses_nothing_that_was_acknowledged() {
    run(async |env, dir| {
        let vfs = mount(&env, dir, "block=64K").await.unwrap();
        put(&vfs, "before", &[1; 20_000]).await;
        let old = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        ignore_the_signal_of_the_limit();
        let limit = |current| rustix::process::Rlimit { current, maximum: old.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit(Some(30_000))).unwrap();
        let (_, _, file) = vfs.create(ROOT, &name("during"), OWNER, true, BOTH).await.unwrap();
        let mut failed = file.write(0, Bytes::from(vec![2; 100_000])).await.is_err();
        failed |= file.close().await.is_err();
        assert!(failed);
        // A file that is only read has no part in it.
        let read = vfs.open_name(ROOT, &name("before"), Rights::READ).await.unwrap();
        assert_eq!(read.read(0, 1 << 24).await.unwrap(), vec![1; 20_000]);
        read.flush().await.unwrap();
        read.close().await.unwrap();
        let reader = mount(&env, dir, "").await.unwrap();
        assert_eq!(get(&reader, "before").await.unwrap(), vec![1; 20_000]);
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit(old.current)).unwrap();
        put(&vfs, "after", &[3; 200_000]).await;
        assert_eq!(get(&vfs, "before").await.unwrap(), vec![1; 20_000]);
        assert_eq!(get(&reader, "after").await.unwrap(), vec![3; 200_000]);
        assert_eq!(tools::check(&reader, |_, _| {}).await.unwrap(), Vec::<String>::new());
    });
}

/// Then a write beyond the limit is an error.
fn ignore_the_signal_of_the_limit() {
    const SIGXFSZ: i32 = 25;
    const SIG_IGN: usize = 1;
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    // SAFETY: it is C's `signal`, with a signal's number and the constant that ignores it.
    unsafe {
        signal(SIGXFSZ, SIG_IGN);
    }
}
