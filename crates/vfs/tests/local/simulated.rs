//! `Local` in a simulated machine: the suite, lost writes, and power cuts.

use super::{BOTH, OWNER, name};
use bytes::Bytes;
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{Connect, Local, LocalOptions, RenameFlags, Vfs, VfsFile};

fn world() -> (World, MachineId, ProcessId) {
    let world = World::new(1, Config::default());
    let machine = world.machine("machine");
    let process = world.process("process", machine);
    (world, machine, process)
}

fn options() -> LocalOptions {
    LocalOptions::new("/a/directory")
}

async fn write(vfs: &Local, text: &str, data: &'static str) -> <Local as Vfs>::File {
    let made = vfs.create(Handle::ROOT, &name(text), OWNER, false, BOTH).await;
    let file = made.unwrap().2;
    file.write(0, Bytes::from_static(data.as_bytes())).await.unwrap();
    file
}

/// The bytes of a file; `None`: it is not there.
async fn read(vfs: &Local, text: &str) -> Option<String> {
    let object = vfs.lookup(Handle::ROOT, &name(text)).await.ok()?.handle;
    let file = vfs.open(object, Rights::READ).await.unwrap();
    Some(String::from_utf8(file.read(0, 100).await.unwrap().to_vec()).unwrap())
}

#[test]
fn a_directory_of_a_simulated_machine_conforms() {
    for (inline, descriptors) in [(false, None), (true, None), (false, Some(1))] {
        let (world, _, process) = world();
        world.complete(process, move |env| async move {
            let vfs = LocalOptions { inline, descriptors, ..options() }.connect(env).await.unwrap();
            check(&vfs, Promises::ALL).await;
        });
    }
}

#[test]
fn a_lost_write_is_reported_once_to_each_open_file() {
    let (world, machine, process) = world();
    let own = world.for_plans();
    world.complete(process, move |env| async move {
        let vfs = options().connect(env).await.unwrap();
        let file = write(&vfs, "file", "x").await;
        let (again, clone) = (file.again(), file.clone());
        let other = vfs.open(file.handle(), Rights::READ).await.unwrap();
        for file in [&file, &again, &other] {
            file.fsync().await.unwrap();
        }
        own.lose_host_writes(machine);
        let later = vfs.open(file.handle(), BOTH).await.unwrap();
        for file in [&file, &again, &other] {
            let lost = file.fsync().await.unwrap_err();
            assert_eq!((lost.status, lost.object), (Status::Io, Some(file.handle())));
            file.fsync().await.unwrap();
        }
        clone.fsync().await.unwrap();
        later.fsync().await.unwrap();
        again.again().fsync().await.unwrap();
    });
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_a_crash_nothing() {
    let (world, machine, process) = world();
    world.complete(process, |env| async move {
        let vfs = options().connect(env).await.unwrap();
        write(&vfs, "synced", "kept").await.fsync().await.unwrap();
        write(&vfs, "synced", "LOST").await;
        write(&vfs, "bare", "lost").await;
        vfs.fsync_directory(Handle::ROOT).await.unwrap();
        write(&vfs, "lost", "lost").await;
        let (from, to) = (name("synced"), name("moved"));
        vfs.rename(Handle::ROOT, &from, Handle::ROOT, &to, RenameFlags::default()).await.unwrap();
    });
    let contents = |world: &World| {
        world.complete(process, |env| async move {
            let vfs = options().connect(env).await.unwrap();
            let mut found = Vec::new();
            for text in ["synced", "moved", "bare", "lost"] {
                found.push(read(&vfs, text).await);
            }
            found
        })
    };
    let text = |text: &str| Some(text.to_owned());
    world.crash(process);
    assert_eq!(contents(&world), [None, text("LOST"), text("lost"), text("lost")]);
    world.power_cut(machine);
    assert_eq!(contents(&world), [text("kept"), None, text(""), None]);
}
