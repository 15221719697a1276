//! Containers by the program: mounts, kills, tools, wrong input.

use crate::program::{Serving, refused, run, said, shoal, skipped};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::ContainerOptions;
use shoal_vfs::{Connect as _, LocalOptions, Vfs as _, VfsFile as _};
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

/// Containers in a directory, without a mount: each path, of a name or of two, with these bytes.
fn made(dir: &Path, files: &[(&'static str, usize)]) {
    let (options, files) = (ContainerOptions::new(LocalOptions::new(dir)), files.to_vec());
    shoal_env::real::run("made", async |env| {
        let vfs = options.connect(env).await.unwrap();
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let owner = |mode| Owner { mode, uid: rustix::process::getuid().as_raw(), gid: 0 };
        for (path, bytes) in files {
            let (mut dir, mut file) = (Handle::ROOT, path);
            if let Some((above, below)) = path.split_once('/') {
                dir = vfs.mkdir(dir, &name(above), owner(0o755)).await.unwrap().handle;
                file = below;
            }
            let rights = Rights::READ | Rights::WRITE;
            let (_, _, file) = vfs.create(dir, &name(file), owner(0o644), true, rights).await.unwrap();
            file.write(0, vec![7; bytes].into()).await.unwrap();
            file.close().await.unwrap();
        }
        vfs.close().await;
    });
}

/// The only data log of a container.
fn data_of(container: &Path) -> PathBuf {
    let folders = fs::read_dir(container).unwrap().flatten().map(|entry| entry.path());
    let folder = folders.into_iter().find(|path| path.is_dir()).unwrap();
    let logs = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    logs.into_iter().find(|path| text(path).contains("/data.")).unwrap()
}

#[test]
fn a_check_of_a_directory_looks_into_all_containers_below_and_lists_what_killed_programs_left() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    made(dir, &[("whole", 1000), ("runs/torn", 2000)]);
    fs::write(dir.join("plain"), b"no container").unwrap();
    let checked = said(&["container", "check", text(dir)]);
    assert!(checked.contains("2 containers in") && checked.contains("1 plain files"), "{checked}");

    // A removed file of a program that ended or runs elsewhere.
    let gone = format!(".shoal/gone.{}", "1".repeat(32));
    fs::create_dir_all(dir.join(&gone).join("h.3")).unwrap();
    fs::write(dir.join(&gone).join(format!("h.3/data.{}", "2".repeat(32))), [0; 500]).unwrap();
    let checked = said(&["container", "check", text(dir)]);
    assert!(checked.contains(&format!("left over: {gone}: a removed file, 500 bytes")), "{checked}");

    let data = data_of(&dir.join("runs/torn"));
    fs::OpenOptions::new().write(true).open(data).unwrap().set_len(10).unwrap();
    for path in [dir, &dir.join("runs")] {
        let checked = run(&["container", "check", text(path)]);
        assert_eq!(checked.status.code(), Some(1));
        let words = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(words.contains(text(&dir.join("runs/torn"))) && !words.contains("are whole"), "{words}");
    }
    let checked = run(&["container", "check", "--json", text(dir)]);
    assert_eq!(checked.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert!(value["damage"][0].as_str().unwrap().contains("runs/torn: data."), "{value}");
    assert_eq!((&value["containers"], &value["plain"]), (&2.into(), &1.into()));
}

#[test]
fn an_extracted_file_has_its_name_when_it_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let (dir, to) = (home.path().join("below"), home.path().join("to"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&to).unwrap();
    made(&dir, &[("f", 1 << 20)]);
    let (from, file) = (dir.join("f"), to.join("f"));
    // No file may become so long: as on a full disk.
    let program = shoal().get_program().to_owned();
    let limited = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 8; trap '' XFSZ; exec \"$@\"", "-"])
        .arg(program)
        .args(["container", "extract", text(&from), text(&file)])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&limited.stderr).into_owned();
    assert!(!limited.status.success() && words.contains("cannot write"), "{words}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "nothing is left");

    // A container that cannot be read.
    let data = data_of(&from);
    fs::rename(&data, home.path().join("aside")).unwrap();
    refused(&["container", "extract", text(&from), text(&file)], &["writer"]);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "nothing is left");
    fs::rename(home.path().join("aside"), &data).unwrap();

    said(&["container", "extract", text(&from), text(&file)]);
    assert!(fs::read(&file).unwrap() == vec![7; 1 << 20]);
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    fs::write(&file, b"mine").unwrap();
    refused(&["container", "extract", text(&from), text(&file)], &["exists already", "remove it"]);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}
