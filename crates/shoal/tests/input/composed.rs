//! Composed directories by the program: two mounts, a kill, tools, wrong input.

use crate::program::{Serving, refused, run, said, skipped};
use std::fs;
use std::path::{Path, PathBuf};

/// A directory below, and mounts of it.
struct Scene {
    home: tempfile::TempDir,
    mounts: Vec<Option<Serving>>,
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

impl Scene {
    fn new(words: &str, mounts: usize) -> Option<Scene> {
        if !Path::new("/dev/fuse").exists() {
            skipped("composed: there is no /dev/fuse");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("below")).unwrap();
        let mut scene = Scene { home, mounts: Vec::new() };
        for n in 0..mounts {
            scene.mounts.push(None);
            scene.mount(n, words);
        }
        Some(scene)
    }

    fn mount(&mut self, n: usize, words: &str) {
        let (below, mnt) = (self.below(), self.at(n, ""));
        let layout = format!("composed{words}");
        let args = ["mount", "--over", text(&below), "--transform", &layout, text(&mnt)];
        self.mounts[n] = Some(Serving::start(&args));
    }

    fn below(&self) -> PathBuf {
        self.home.path().join("below")
    }

    fn at(&self, n: usize, name: &str) -> PathBuf {
        self.home.path().join(format!("mnt{n}")).join(name)
    }

    fn end(&mut self, n: usize, signal: rustix::process::Signal) -> bool {
        let mut mount = self.mounts[n].take().expect("it is mounted");
        mount.signal(signal);
        mount.wait().success()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for n in 0..self.mounts.len() {
            run(&["umount", "--lazy", text(&self.at(n, ""))]);
        }
    }
}

#[test]
fn files_of_two_mounts_are_seen_by_both_outlive_a_kill_and_become_plain_files_again() {
    let Some(mut scene) = Scene::new("", 2) else { return };
    for n in 0..2 {
        fs::create_dir(scene.at(n, &format!("rank{n}"))).unwrap();
        for file in 0..50 {
            fs::write(scene.at(n, &format!("rank{n}/{file}")), vec![file as u8 + 1; 3000]).unwrap();
        }
    }
    // A lock file by its name.
    let exclusive = |n| fs::File::create_new(scene.at(n, "lock")).is_ok();
    assert_eq!((exclusive(0), exclusive(1)), (true, false));
    for n in 0..2 {
        assert_eq!(fs::read(scene.at(n, "rank0/7")).unwrap(), vec![8; 3000]);
        assert_eq!(fs::read_dir(scene.at(n, "rank1")).unwrap().count(), 50);
    }
    fs::write(scene.at(0, "last"), "closed right before the kill").unwrap();
    scene.end(0, rustix::process::Signal::KILL);
    assert!(scene.end(1, rustix::process::Signal::TERM));

    let below = scene.below();
    assert!(said(&["composed", "ls", text(&below), "rank0"]).lines().count() == 50);
    assert!(said(&["composed", "ls", text(&below), "-r", "--json"]).lines().count() == 104);
    assert!(said(&["composed", "check", text(&below)]).contains("is whole"));
    let map = said(&["composed", "map", text(&below), "--blocks", "1"]);
    assert!(map.contains("102 files, 3 directories") && map.contains("more"), "{map}");
    let plain = scene.home.path().join("plain");
    assert!(said(&["composed", "extract", text(&below), text(&plain)]).contains("102 files"));
    assert_eq!(fs::read_to_string(plain.join("last")).unwrap(), "closed right before the kill");
    assert_eq!(fs::read(plain.join("rank1/49")).unwrap(), vec![50; 3000]);
    assert!(said(&["composed", "compact", text(&below)]).contains("given back"));
    assert!(said(&["composed", "check", text(&below)]).contains("is whole"));

    let packed = scene.home.path().join("packed");
    fs::create_dir(&packed).unwrap();
    let words =
        ["composed", "pack", text(&plain), text(&packed), "--settings", "block=64K,files=2", "--json"];
    assert!(said(&words).contains("\"files\": 102"));
    assert!(packed.join("blocks.1").exists());
    let again = scene.home.path().join("again");
    said(&["composed", "extract", text(&packed), text(&again), "--path", "rank0"]);
    assert_eq!(fs::read(again.join("0")).unwrap(), vec![1; 3000]);
}

#[test]
fn wrong_words_and_places_of_composed_directories_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let (below, mnt) = (home.path().join("below"), home.path().join("mnt"));
    fs::create_dir(&below).unwrap();
    for (words, says) in [
        ("composed,block=3M", "a power of two, 16K to 64M"),
        ("composed,stripes=4", "block, files, buffer and names"),
        ("container,block=1M", "`container` has `backends=DIR2:DIR3`"),
        ("striped", "`container` and `composed`"),
    ] {
        refused(&["mount", "--over", text(&below), "--transform", words, text(&mnt)], &[says]);
    }
    refused(&["composed", "ls", text(&below)], &["not a composed directory"]);
    assert_eq!(fs::read_dir(&below).unwrap().count(), 0, "it is not made one by a look");
    fs::write(below.join("mine"), "mine").unwrap();
    let empty = ["`mine`", "begin with an empty directory"];
    refused(&["mount", "--over", text(&below), "--transform", "composed", text(&mnt)], &empty);
    refused(&["composed", "pack", text(home.path()), text(&below)], &empty);
    let checked = run(&["composed", "check", text(&home.path().join("missing"))]);
    assert_eq!(checked.status.code(), Some(2));
}

#[test]
fn an_extract_or_pack_that_is_refused_names_the_cause_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("cm")).unwrap();
    let missing = at("nope");
    refused(&["composed", "pack", text(&missing), text(&at("cm"))], &["cannot read", text(&missing)]);
    assert_eq!(fs::read_dir(at("cm")).unwrap().count(), 0, "it is not made a composed one");
    refused(&["composed", "extract", text(&at("cm")), text(&at("plain"))], &["not a composed directory"]);
    assert!(!at("plain").exists());
    fs::create_dir(at("source")).unwrap();
    fs::write(at("source").join("file"), "bytes").unwrap();
    said(&["composed", "pack", text(&at("source")), text(&at("cm"))]);
    for path in ["file", "missing"] {
        refused(
            &["composed", "extract", text(&at("cm")), text(&at("plain")), "--path", path],
            &["cannot extract"],
        );
        assert!(!at("plain").exists(), "{path}");
    }
    assert!(said(&["composed", "extract", text(&at("cm")), text(&at("plain"))]).contains("1 file"));
    assert!(said(&["composed", "extract", text(&at("cm")), text(&at("plain"))]).contains("1 skipped"));
}

#[test]
fn a_pack_that_was_killed_is_completed_by_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for dir in ["source", "cm"] {
        fs::create_dir(at(dir)).unwrap();
    }
    let content = |n: usize| vec![n as u8 + 1; if n.is_multiple_of(10) { 3 << 20 } else { 20_000 }];
    for n in 0..200 {
        fs::write(at("source").join(n.to_string()), content(n)).unwrap();
    }
    let words = ["composed", "pack", text(&at("source")), text(&at("cm"))].map(str::to_owned);
    let blocks = at("cm").join("blocks.0");
    let mut child = crate::program::shoal().args(&words).spawn().unwrap();
    while fs::metadata(&blocks).map_or(0, |blocks| blocks.len()) < 20 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "it is killed while it works");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let listed = said(&["composed", "ls", text(&at("cm")), "--json"]);
    let whole = listed.lines().filter(|line| !line.contains(".shoal-copy.")).count();
    assert!((1..200).contains(&whole), "{whole}");
    let again = said(&words.each_ref().map(String::as_str));
    assert!(again.contains("skipped"), "{again}");
    said(&["composed", "extract", text(&at("cm")), text(&at("plain"))]);
    assert_eq!(fs::read_dir(at("plain")).unwrap().count(), 200);
    for n in 0..200 {
        assert_eq!(fs::read(at("plain").join(n.to_string())).unwrap(), content(n), "{n}");
    }
}
