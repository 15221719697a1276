//! The suite of all file systems, over an object store in memory: the file system over the store itself, and
//! containers over it.
//!
//! Not promised, and left out here: hard links, extended attributes, directories that count their
//! subdirectories. Files of the suite fit in memory before they are published; larger ones grow at their end
//! only (`tests/files.rs`).

use shoal_env::real;
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, ObjectsOptions};
use shoal_transform::ContainerOptions;
use shoal_vfs::Connect;
use shoal_vfs::conformance::{Promises, check};

const PROMISES: Promises =
    Promises { xattrs: false, counted_directories: false, links: false, many: 1200, ..Promises::ALL };

#[test]
fn a_file_system_over_an_object_store_conforms() {
    real::run("conformance", async |env| {
        let objects = ObjectsOptions::new(MemoryStore::default(), "a/prefix").connect(env).await.unwrap();
        check(&objects, PROMISES).await;
    });
}

#[test]
fn containers_over_an_object_store_conform() {
    real::run("conformance", async |env| {
        let over = ObjectsOptions::new(MemoryStore::default(), "");
        let containers = ContainerOptions::new(over).connect(env).await.unwrap();
        check(&containers, Promises { many: 300, ..PROMISES }).await;
    });
}

#[test]
fn containers_conform_while_the_store_fails_requests_and_loses_answers() {
    let world = shoal_env::sim::World::new(7, shoal_env::sim::Config::default());
    let machine = world.machine("machine");
    let process = world.process("process", machine);
    world.complete(process, async |env| {
        let memory = MemoryStore::default();
        memory.conduct(Conduct { fails_each: 11, loses_each: 13, ..Conduct::default() });
        let over = ObjectsOptions::new(memory, "");
        let containers = ContainerOptions::new(over).connect(env).await.unwrap();
        check(&containers, Promises { many: 30, ..PROMISES }).await;
    });
}
