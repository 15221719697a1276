//! Containers by the program: mounts, kills, tools, wrong input.

use crate::program::{Serving, refused, run, said, skipped};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory below, a mount point beside it, and the mount.
struct Scene {
    home: tempfile::TempDir,
    mount: Option<Serving>,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

impl Scene {
    fn mounted() -> Option<Scene> {
        if !Path::new("/dev/fuse").exists() {
            skipped("containers: there is no /dev/fuse");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("below")).unwrap();
        let mut scene = Scene { home, mount: None };
        scene.mount();
        Some(scene)
    }

    fn below(&self, name: &str) -> PathBuf {
        self.home.path().join("below").join(name)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join("mnt").join(name)
    }

    fn mount(&mut self) {
        let (below, mnt) = (self.home.path().join("below"), self.home.path().join("mnt"));
        let args = ["mount", "--over", text(&below), "--transform", "container", text(&mnt)];
        self.mount = Some(Serving::start(&args));
    }

    /// Kill the mount's process, and mount again.
    fn kill(&mut self) {
        let mut mount = self.mount.take().expect("it is mounted");
        mount.signal(rustix::process::Signal::KILL);
        mount.wait();
        self.mount();
    }

    fn umount(&mut self) {
        let mut mount = self.mount.take().expect("it is mounted");
        mount.signal(rustix::process::Signal::TERM);
        assert!(mount.wait().success());
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let mnt = self.home.path().join("mnt");
        if self.mount.is_some() {
            run(&["umount", "--lazy", text(&mnt)]);
        }
    }
}

#[test]
fn a_checkpoint_is_written_through_a_mount_killed_and_looked_at_by_every_tool() {
    let Some(mut scene) = Scene::mounted() else { return };
    // Eight writers of one file, strided; one that begins when another has ended may go on with its log.
    let record = 4700;
    let write = |writer: u64| {
        let mut open = fs::OpenOptions::new();
        let file = open.read(true).write(true).create(true).truncate(false).open(scene.at("step")).unwrap();
        for turn in 0..20 {
            file.write_all_at(&vec![writer as u8 + 1; record as usize], (turn * 8 + writer) * record)
                .unwrap();
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|writer| drop(scope.spawn(move || write(writer)))));
    let whole: Vec<u8> = (0..160u64).flat_map(|turn| vec![(turn % 8) as u8 + 1; record as usize]).collect();
    assert!(fs::read(scene.at("step")).unwrap() == whole);

    // The kernel says a moment later that a file was closed.
    let step = scene.below("step");
    let is_closed = || said(&["container", "stat", text(&step)]).contains(" (0 open");
    let closed = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        is_closed()
    });
    assert!(closed, "{}", said(&["container", "stat", text(&step)]));

    // A writer whose mount is killed with the file open.
    let open = fs::File::create(scene.at("killed")).unwrap();
    open.write_all_at(b"bytes that were written", 5).unwrap();
    scene.kill();
    drop(open);
    assert_eq!(fs::read(scene.at("killed")).unwrap(), b"\0\0\0\0\0bytes that were written");
    scene.umount();

    let killed = scene.below("killed");
    assert!(said(&["container", "stat", text(&killed)]).contains("1 open"));
    assert!(said(&["container", "check", text(&step)]).contains("is whole"));
    assert!(said(&["container", "recover", text(&killed)]).contains("1 writers closed"));
    assert!(said(&["container", "ls", text(&scene.below(""))]).contains("step"));
    let map = said(&["container", "map", text(&step), "--parts", "2"]);
    assert!(map.contains("more parts"), "{map}");
    assert!(said(&["container", "flatten", text(&step)]).contains("are one file"));
    assert!(said(&["container", "compact", text(&step)]).contains("one log"));
    assert!(said(&["container", "stat", text(&step)]).contains("writers   1 "));
    let copy = scene.home.path().join("copy");
    said(&["container", "extract", text(&step), text(&copy)]);
    assert!(fs::read(&copy).unwrap() == whole);
    scene.mount();
    assert!(fs::read(scene.at("step")).unwrap() == whole);
    assert_eq!(fs::read_dir(scene.at("")).unwrap().count(), 2);
}

#[test]
fn what_is_no_container_or_is_damaged_is_refused_in_words_and_stays() {
    let Some(mut scene) = Scene::mounted() else { return };
    fs::write(scene.at("f"), b"0123456789").unwrap();
    scene.umount();
    refused(&["container", "stat", text(scene.home.path())], &["no directory above", "`.shoal`"]);
    fs::create_dir(scene.below("plain")).unwrap();
    refused(&["container", "stat", text(&scene.below("plain"))], &["plain", "not a container"]);
    refused(&["container", "extract", text(&scene.below("f")), "/"], &["cannot make /"]);
    // The data log is gone: what lay in it is gone, and this is said.
    let folder = fs::read_dir(scene.below("f")).unwrap().flatten().map(|entry| entry.path());
    let folder = folder.into_iter().find(|path| path.is_dir()).unwrap();
    let logs = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
    let data = logs.into_iter().find(|path| text(path).contains("/data.")).unwrap();
    fs::remove_file(data).unwrap();
    let checked = run(&["container", "check", text(&scene.below("f"))]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("is missing"));
    refused(&["container", "compact", text(&scene.below("nothing"))], &["cannot look at", "nothing"]);
}

#[test]
fn recovery_refuses_in_words_what_it_would_give_up_and_gives_it_up_when_asked() {
    let Some(mut scene) = Scene::mounted() else { return };
    let open = fs::File::create(scene.at("f")).unwrap();
    open.write_all_at(b"0123456789", 0).unwrap();
    open.sync_all().unwrap();
    let f = scene.below("f");
    refused(&["container", "recover", text(&f)], &["runs", "end it first"]);
    refused(&["container", "recover", text(&f), "--ended"], &["runs"]);
    scene.kill();
    drop(open);
    scene.umount();
    let folder = fs::read_dir(&f).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir());
    let logs = fs::read_dir(folder.unwrap()).unwrap().flatten().map(|entry| entry.path());
    let data = logs.into_iter().find(|path| text(path).contains("/data.")).unwrap();
    fs::OpenOptions::new().write(true).open(data).unwrap().set_len(4).unwrap();
    refused(&["container", "recover", text(&f)], &["nothing was changed", "6 bytes", "--lossy"]);
    let recovered = said(&["container", "recover", text(&f), "--lossy"]);
    assert!(recovered.contains("1 writers closed") && recovered.contains("given up"), "{recovered}");
    let checked = run(&["container", "check", text(&f)]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("given up by `recover --lossy`"));
    scene.mount();
    assert_eq!(fs::read(scene.at("f")).unwrap(), b"0123");
}

#[test]
fn a_mount_over_itself_is_refused_in_words() {
    let home = tempfile::tempdir().unwrap();
    let below = home.path().join("below");
    fs::create_dir(&below).unwrap();
    let within = below.join("mnt");
    let apart = ["one lies in the other", "elsewhere"];
    refused(&["mount", "--over", text(&below), text(&within)], &apart);
    refused(&["mount", "--over", text(&below), text(home.path())], &apart);
    let missing = home.path().join("missing");
    refused(&["mount", "--over", text(&missing), text(&home.path().join("mnt"))], &["missing"]);
    refused(&["mount", text(&home.path().join("mnt"))], &["give the address"]);
}
