//! Writes that fail: alone in a process, as a limit of the process makes them fail.

use bytes::Bytes;
use shoal_env::{Env, real};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::{Container, ContainerOptions};
use shoal_vfs::{Connect, Local, LocalOptions, Vfs, VfsFile};
use std::path::Path;

type Mounted = Container<Local>;
const BOTH: Rights = Rights::READ.union(Rights::WRITE);
fn owner() -> Owner {
    Owner { mode: 0o644, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}
fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}
async fn mount(env: &Env, dir: &Path) -> Mounted {
    ContainerOptions { over: LocalOptions::new(dir) }.connect(env.clone()).await.unwrap()
}
fn run<T: Send + 'static>(body: impl AsyncFnOnce(Env, &Path) -> T + Send + 'static) -> T {
    let dir = tempfile::tempdir().unwrap();
    real::run("test", move |env| async move { body(env, dir.path()).await })
}
#[test]
fn an_append_that_fails_leaves_no_hole() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.append(Bytes::from(vec![1; 600 << 10])).await.unwrap();
        ignore_the_signal_of_the_limit();
        let old = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        rustix::process::setrlimit(
            rustix::process::Resource::Fsize,
            rustix::process::Rlimit { current: Some(600 << 10), maximum: old.maximum },
        )
        .unwrap();
        let failed = file.append(Bytes::from(vec![2; 500 << 10])).await;
        rustix::process::setrlimit(rustix::process::Resource::Fsize, old).unwrap();
        assert!(failed.is_err());
        let at = file.append(Bytes::from_static(b"next")).await.unwrap();
        assert_eq!(at, 600 << 10, "{failed:?}");
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
