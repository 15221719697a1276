//! Directories with the layouts `container` and `composed` by the program: `layout set`, two mounts, a kill,
//! the tools, wrong input.

use crate::program::{Home, Serving, refused, run, said, skipped, soon};
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of two servers, and two mounts of it.
struct Scene {
    home: Home,
    up: Option<Serving>,
    mounts: Vec<Option<Serving>>,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

impl Scene {
    fn mounted() -> Option<Scene> {
        if !Path::new("/dev/fuse").exists() {
            skipped("followed layouts: there is no /dev/fuse");
            return None;
        }
        let home = Home::new();
        let up = Serving::start(&["up", &home.text("data"), "--servers", "2"]);
        let mut scene = Scene { home, up: Some(up), mounts: vec![None, None] };
        for number in 0..2 {
            scene.mount(number, &[]);
        }
        Some(scene)
    }

    fn address(&self) -> String {
        self.up.as_ref().expect("it serves").root()
    }

    fn at(&self, number: usize, path: &str) -> PathBuf {
        self.home.path(&format!("mnt{number}")).join(path)
    }

    fn mount(&mut self, number: usize, options: &[&str]) {
        let (address, key, at) = (self.address(), self.home.text("data/key"), self.at(number, ""));
        let mut args = vec!["mount", &address[..], text(&at), "--key", &key[..]];
        args.extend(options);
        let mount = Serving::start(&args);
        self.mounts[number] = Some(mount);
    }

    fn umount(&mut self, number: usize) {
        self.mounts[number].take().expect("it is mounted").stop();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for number in 0..self.mounts.len() {
            if self.mounts[number].is_some() {
                run(&["umount", "--lazy", text(&self.at(number, ""))]);
            }
        }
        self.mounts.clear();
        self.up.take();
    }
}

/// A command of the host that must succeed.
#[track_caller]
fn does(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().expect("the host has it");
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {words}");
}

/// The commands that show where bytes lie, of a file and of a directory in it.
fn shows(scene: &Scene, layout: &str) {
    let (root, file, dir) = (scene.at(0, "laid"), scene.at(0, "laid/in"), scene.at(0, "laid/sub"));
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&said(&[args, &["--json"]].concat())).unwrap()
    };
    // By the mount, and by the address of the file system.
    let key = scene.home.text("data/key");
    let address = format!("{}/laid/in", scene.address());
    let whole = json(&["stat", text(&root)]);
    for args in [&["stat", text(&file)][..], &["stat", &address, "--key", &key]] {
        let words = said(args);
        for (at, _) in words.match_indices("server ") {
            let number: String = words[at + 7..].chars().take_while(char::is_ascii_digit).collect();
            assert!(matches!(&number[..], "0" | "1"), "there are two servers: {words}");
        }
        let is =
            if layout == "container" { "a container, whose logs" } else { "composed in blocks of one file" };
        assert!(words.contains(is) && words.contains("size       5"), "{words}");
        assert!(!words.contains("stuffed") && !words.contains("handle"), "{words}");
        let value = json(args);
        assert_eq!((&value["size"], &value["kind"]), (&5.into(), &"file".into()));
        assert_eq!(value["inode"], fs::metadata(&file).unwrap().ino());
        assert_eq!(value["handle"], serde_json::Value::Null);
        assert_eq!(value["layout"]["distribution"], layout);
        assert_eq!(value["layout"]["directory"], whole["handle"]);
        let (own, shared) = (&value["layout"]["below"], &value["layout"]["blocks"]);
        assert_eq!((own.is_string(), shared.is_string()), (layout == "container", layout == "composed"));
        let get = [&["layout", "get"], &args[1..]].concat();
        assert!(said(&get).contains(is), "{}", said(&get));
        let value = json(&get);
        assert_eq!((&value["distribution"], &value["kind"]), (&layout.into(), &"file".into()));
        let map = [&["map"], &args[1..]].concat();
        refused(&map, &["--raw", &format!("shoal {layout} map")]);
    }
    let words = said(&["stat", text(&dir)]);
    assert!(words.contains("its files are") && words.contains("directory"), "{words}");
    assert!(said(&["layout", "get", text(&dir)]).contains("its files are"));
    let missing = scene.at(0, "laid/missing");
    for command in [&["stat"][..], &["layout", "get"], &["map"]] {
        refused(&[command, &[text(&missing)]].concat(), &["missing"]);
    }
    // An object of the layout is no file of its users.
    let own = scene.at(0, if layout == "container" { "laid/.shoal" } else { "laid/blocks.0" });
    refused(&["stat", text(&own)], &["cannot stat"]);
}

fn follows(layout: &str) {
    let Some(mut scene) = Scene::mounted() else { return };
    let (one, other) = (scene.at(0, "laid"), scene.at(1, "laid"));
    fs::create_dir(&one).unwrap();
    fs::write(one.join("early"), b"early").unwrap();
    refused(&["layout", "set", text(&one), layout], &["has entries", "is empty"]);
    refused(&["layout", "set", text(&one.join("early")), layout], &["is empty"]);
    refused(&["layout", "set", text(&scene.at(0, "")), layout], &["root"]);
    let lost = scene.at(0, "lost+found");
    for _ in 0..2 {
        refused(&["layout", "set", text(&lost), layout], &["/lost+found", "another directory"]);
        assert_eq!(fs::create_dir_all(&lost).map_err(|error| error.kind()), Ok(()));
    }
    fs::remove_dir(&lost).unwrap();
    fs::remove_file(one.join("early")).unwrap();
    refused(&["layout", "set", text(&one), layout, "--distribution", "basic"], &["leave out --distribution"]);
    refused(&["layout", "set", text(&one), layout, "--subfiles", "2"], &["are for `forked`"]);
    assert!(said(&["layout", "set", text(&one), layout]).contains("its files are"));
    assert!(said(&["layout", "get", text(&one)]).contains("its files are"));
    let json: serde_json::Value =
        serde_json::from_str(&said(&["layout", "get", text(&one), "--json"])).unwrap();
    assert_eq!(json["distribution"], layout);
    refused(&["layout", "set", text(&one), "--strip", "4M"], &["fixed", "another directory"]);
    // No plain object is made among those of the layout.
    let further = one.join("further");
    refused(&["layout", "set", text(&further), "container"], &["lies in", "another directory"]);
    refused(
        &["layout", "set", text(&further), "forked", "--subfiles", "2"],
        &["lies in", "another directory"],
    );
    refused(&["layout", "set", text(&one), "forked", "--subfiles", "2"], &["no forked file"]);

    // Two mounts, which kept the directory's attributes for a moment.
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(one.join("one"), b"by the first mount").unwrap();
    fs::write(other.join("other"), b"by the second mount").unwrap();
    for dir in [&one, &other] {
        soon("the closed files are seen", || {
            fs::read(dir.join("one")).is_ok_and(|read| read == b"by the first mount")
                && fs::read(dir.join("other")).is_ok_and(|read| read == b"by the second mount")
        });
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["one", "other"]);
    }
    let value = Command::new("getfattr")
        .args(["--only-values", "-n", "user.shoal.layout", text(&one)])
        .output()
        .map(|done| done.stdout);
    if let Ok(value) = value.as_ref().map(|value| String::from_utf8_lossy(value)) {
        assert_eq!(value, layout);
    }

    // Names within, and none across.
    fs::create_dir_all(one.join("sub/deep")).unwrap();
    fs::rename(one.join("one"), one.join("sub/deep/moved")).unwrap();
    let crossed = fs::rename(one.join("sub/deep/moved"), scene.at(0, "out")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()));
    fs::write(scene.at(0, "plain"), b"plain").unwrap();
    let crossed = fs::rename(scene.at(0, "plain"), one.join("in")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()));
    // `mv` copies then.
    does("mv", &[text(&scene.at(0, "plain")), text(&one.join("in"))]);
    assert_eq!(fs::read(one.join("in")).unwrap(), b"plain");

    shows(&scene, layout);

    // A tree in, and out again, by a program of the host and by the native client.
    let tree = scene.home.path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..20u8 {
        fs::write(tree.join(format!("a/b/{number}")), vec![number; 1000 * usize::from(number)]).unwrap();
    }
    std::os::unix::fs::symlink("b/3", tree.join("a/link")).unwrap();
    does("cp", &["-a", text(&tree), text(&one.join("copy"))]);
    does("diff", &["-r", text(&tree), text(&one.join("copy"))]);
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(inode(&one.join("copy/a/b/1")), inode(&one.join("copy/a/b/2")));
    let out = scene.home.text("out");
    let (key, address) = (scene.home.text("data/key"), scene.address());
    let from = format!("{address}/laid/copy");
    said(&["cp", "-r", "--quiet", "--key", &key, &from, &out]);
    does("diff", &["-r", text(&tree), &out]);
    let to = format!("{address}/laid/native");
    said(&["cp", "-r", "--quiet", "--key", &key, text(&tree), &to]);
    soon("the copy is seen", || fs::read_dir(other.join("native/a/b")).is_ok_and(|dir| dir.count() == 20));
    does("diff", &["-r", text(&tree), text(&other.join("native"))]);
    let cat = said(&["cat", "--key", &key, &format!("{address}/laid/in")]);
    assert_eq!(cat, "plain");
    refused(&["cat", "--key", &key, &format!("{address}/laid")], &["is a directory", "shoal ls"]);
    let (missing, mnt) = (format!("{address}/laid/missing"), scene.home.text("mnt"));
    refused(&["cat", "--key", &key, &missing], &["laid/missing"]);
    fs::create_dir(&mnt).unwrap();
    refused(&["mount", "--over", text(&tree), &mnt, "--raw"], &["is for a ShoalFS", "leave it out"]);
    fs::remove_dir(&mnt).unwrap();

    // Bytes for which `write` returned outlive their mount in containers, closed files in a composed one.
    let killed = fs::File::create(one.join("killed")).unwrap();
    killed.write_all_at(b"bytes that were written", 5).unwrap();
    if layout == "composed" {
        drop(killed);
    } else {
        std::mem::forget(killed);
    }
    scene.mounts[0].take().unwrap().crash();
    run(&["umount", "--lazy", text(&scene.at(0, ""))]);
    soon("the killed mount's bytes are seen", || {
        fs::read(other.join("killed")).is_ok_and(|read| read == b"\0\0\0\0\0bytes that were written")
    });
    scene.mount(0, &[]);

    // Raw, the tools see it by path.
    let raw = tempfile::tempdir().unwrap();
    let mut args = vec!["mount", &address[..], text(raw.path()), "--key", &key[..]];
    args.push("--raw");
    let raw_mount = Serving::start(&args);
    match layout {
        "container" => {
            let file = raw.path().join("laid/in");
            assert!(said(&["container", "check", text(&file)]).contains("is whole"));
            let copy = scene.home.text("extracted");
            said(&["container", "extract", text(&file), &copy]);
            assert_eq!(fs::read(copy).unwrap(), b"plain");
        }
        _ => {
            let found = said(&["composed", "ls", text(&raw.path().join("laid"))]);
            assert!(found.contains("in") && found.contains("copy"), "{found}");
            let checked = run(&["composed", "check", text(&raw.path().join("laid"))]);
            assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
        }
    }
    raw_mount.stop();

    // All of it is removed, and then the directory.
    let busy = fs::remove_dir(scene.at(0, "laid")).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(rustix::io::Errno::NOTEMPTY.raw_os_error()));
    if layout == "container" {
        does("rm", &["-r", text(&scene.at(0, "laid"))]);
        soon("the directory is gone", || !other.exists());
    } else {
        // The killed mount's lock ends with its lease.
        for entry in fs::read_dir(scene.at(0, "laid")).unwrap() {
            does("rm", &["-r", text(&entry.unwrap().path())]);
        }
        soon("the directory is removed", || fs::remove_dir(scene.at(0, "laid")).is_ok());
    }
    scene.umount(0);
    scene.umount(1);
    assert_eq!(said(&["ls", "--key", &key, &address]), "");
    let checked = run(&["fsck", &address, "--key", &key]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_directory_of_containers_is_followed_by_mounts_copies_and_tools() {
    follows("container");
}

#[test]
fn a_composed_directory_is_followed_by_mounts_copies_and_tools() {
    follows("composed");
}

#[test]
fn a_file_that_is_closed_in_a_composed_directory_is_seen_also_of_a_mount_with_locks_of_its_own() {
    let Some(mut scene) = Scene::mounted() else { return };
    scene.umount(0);
    scene.mount(0, &["--local-locks"]);
    // The mount's first closes are of files that report nothing.
    fs::write(scene.at(0, "plain"), b"plain").unwrap();
    let (one, other) = (scene.at(0, "laid"), scene.at(1, "laid"));
    said(&["layout", "set", text(&one), "composed"]);
    soon("the other mount has the directory", || other.exists());
    for number in 0..40 {
        let name = format!("file-{number}");
        fs::write(one.join(&name), name.as_bytes()).unwrap();
        assert_eq!(fs::read(other.join(&name)).unwrap(), name.as_bytes());
    }
}
