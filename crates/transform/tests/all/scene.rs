//! Where the tests of this program begin: a directory of their own on this machine, and mounts of it.

use shoal_env::{Env, real};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::{Composed, ComposedOptions, Container, ContainerOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, RenameFlags, Result, Vfs};
use std::path::Path;

pub const BOTH: Rights = Rights::READ.union(Rights::WRITE);
pub const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };

/// This process's user, and a file's usual mode.
pub fn owner() -> Owner {
    Owner { mode: 0o644, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Run it with a directory, which is removed after it.
pub fn run<T: Send + 'static>(body: impl AsyncFnOnce(Env, &Path) -> T + Send + 'static) -> T {
    let dir = tempfile::tempdir().unwrap();
    real::run("test", move |env| async move { body(env, dir.path()).await })
}

/// Containers over the directory.
pub async fn mount(env: &Env, dir: &Path) -> Container<AnyVfs> {
    ContainerOptions::new(LocalOptions::new(dir)).connect(env.clone()).await.unwrap()
}

/// A composed directory, with the options of these words.
pub async fn compose(env: &Env, dir: &Path, words: &str) -> Result<Composed<AnyVfs>> {
    let wishes = Wishes::parse(words).unwrap();
    ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await
}

/// The object of a name at the root, as a mount that has not seen it finds it.
pub async fn find(mount: &impl Vfs, text: &str) -> Handle {
    mount.lookup(Handle::ROOT, &name(text)).await.unwrap().handle
}

/// A small generator: a seed repeats its run.
pub struct Draw(pub u64);

impl Draw {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
