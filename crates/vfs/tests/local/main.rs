//! `Local` over real directories.

mod conforms;
mod descriptors;
mod others;
mod refused;
mod simulated;
#[path = "../../../../tests/skipped.rs"]
mod skipped;

use shoal_env::{Env, real};
use shoal_proto::{Name, Owner, Rights};
use shoal_vfs::{Connect, Local, LocalOptions};

const OWNER: Owner = Owner { mode: 0o640, uid: 0, gid: 0 };
const DIR_OWNER: Owner = Owner { mode: 0o750, uid: 0, gid: 0 };
const BOTH: Rights = Rights::READ.union(Rights::WRITE);

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A body over a directory, in a world of its own.
fn run<F: Future<Output = ()>>(options: LocalOptions, body: impl FnOnce(Local, Env) -> F) {
    real::run("local", |env| async move {
        let vfs = options.connect(env.clone()).await.unwrap();
        body(vfs, env).await;
    });
}
