//! Where the tests of this program begin: a simulated world with a store in memory, and a mount of it.

use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_objects::{MemoryStore, Objects, ObjectsOptions};
use shoal_proto::{Name, Owner, Rights};
use shoal_vfs::{Connect, RenameFlags};

pub const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
pub const BOTH: Rights = Rights::READ.union(Rights::WRITE);
pub const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };
pub const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Run it in a simulated world of this seed, with an empty store.
pub fn run(seed: u64, body: impl AsyncFnOnce(Env, MemoryStore) + 'static) {
    let world = World::new(seed, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, async move |env| body(env, MemoryStore::default()).await);
}

pub async fn mount(env: &Env, memory: &MemoryStore) -> Objects {
    ObjectsOptions::new(memory.clone(), "").connect(env.clone()).await.unwrap()
}

/// The keys with this text in them.
pub fn keys(memory: &MemoryStore, part: &str) -> Vec<String> {
    memory.objects().into_keys().filter(|key| key.contains(part)).collect()
}
