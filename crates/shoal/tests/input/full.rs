//! A disk that is full, for real: ext4 on a loop device. Acknowledged changes stay, changes without room are
//! refused, removals work, and when there is room again all continues.

use crate::program::*;
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// An ext4 of so many MiB; nothing (and the reason said) where there are no loop devices.
fn disk(home: &Home, mib: u64) -> Option<Mounted> {
    if !is_root() {
        return None;
    }
    let image = home.text("image");
    File::create(&image).unwrap().set_len(mib << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", &image]).output();
    match made {
        Ok(output) if output.status.success() => {}
        other => {
            skipped(&format!("no ext4 can be made: {other:?}"));
            return None;
        }
    }
    Mounted::new(&["-o", "loop", &image], &home.path("disk"))
}

/// Another program fills the disk to the last block.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut file = File::create(&path).unwrap();
    for block in [1 << 20, 4096] {
        let zeros = vec![0; block];
        while file.write_all(&zeros).is_ok() {}
    }
    file.sync_all().unwrap_or_default();
    path
}

fn is_full<T>(done: &std::io::Result<T>) -> bool {
    done.as_ref().err().and_then(Errno::from_io_error) == Some(Errno::NOSPC)
}

#[test]
fn a_disk_that_is_too_small_is_named_with_the_remedy_and_larger_it_is_used() {
    let home = Home::new();
    let Some(disk) = disk(&home, 16) else { return };
    let data = disk.0.join("data");
    let data = data.to_str().unwrap();
    for _ in 0..2 {
        refused(&["up", data, "--servers", "1"], &["data/server-0", "No space left", "free some space"]);
    }
    // The same folder, moved to where there is room.
    let moved = home.text("moved");
    let done = Command::new("cp").args(["-a", data, &moved]).status().unwrap();
    assert!(done.success());
    let up = Serving::start(&["up", &moved]);
    let file = home.file("f", b"content");
    let (root, key) = (up.root(), home.text("moved/key"));
    said(&["cp", &file, &format!("{root}/f"), "--key", &key, "--quiet"]);
    assert_eq!(said(&["cat", &format!("{root}/f"), "--key", &key]), "content");
    up.stop();
}

#[test]
fn a_disk_with_too_little_room_is_named_at_the_start_and_by_status_and_the_least_useful_one_is_used() {
    // The space that ext4 takes for itself is not part of a store's need.
    for (mib, is_enough) in [(200, false), (330, true)] {
        let home = Home::new();
        let Some(disk) = disk(&home, mib) else { return };
        let (data, mnt) = (disk.0.join("data").to_str().unwrap().to_owned(), home.path("mnt"));
        let up = Serving::start(&["up", &data, "--servers", "1", "--mount", mnt.to_str().unwrap()]);
        let told = up.told();
        let status = run(&["status", &data]);
        let words = String::from_utf8(status.stdout).unwrap();
        if is_enough {
            std::fs::create_dir(mnt.join("dir")).unwrap();
            assert!(status.status.success() && words.contains("healthy"), "{words}");
            assert!(!told.contains("NOT WELL") && !words.contains("NOT WELL"), "{told}{words}");
        } else {
            // The journal takes its spare room in the background: then nothing is left for a change.
            let end = Instant::now() + Duration::from_secs(30);
            for n in 0.. {
                let made = std::fs::create_dir(mnt.join(format!("dir{n}")));
                if is_full(&made) {
                    break;
                }
                made.unwrap();
                assert!(Instant::now() < end, "{n} directories were made on a disk that is too small");
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(!status.status.success() && !words.contains("healthy"), "{words}");
            for told in [&told, &words] {
                let disk = format!("MiB free on the disk of {data}/server-0/demo, ");
                for word in ["NOT WELL: server 0: ", &disk, "a store needs 288 MiB", "larger disk"] {
                    assert!(told.contains(word), "`{word}` is missing: {told}");
                }
            }
            let json = run(&["status", "--json", &data]);
            let said: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
            assert!(!json.status.success() && said["well"] == false, "{said}");
            assert_eq!(said["short_of_room"], serde_json::json!([0]));
            let short = said["servers"][0]["room"]["short"].as_str().unwrap();
            assert!(
                words.contains("NOT WELL: server 0: ") && short.contains("a store needs 288 MiB"),
                "{short}"
            );
        }
        up.stop();
    }
}

/// Files that were written and synced, with their contents.
fn acknowledged(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    std::fs::create_dir(dir).unwrap();
    let mut files = Vec::new();
    for (i, len) in [0, 100, 5_000, 16_000, 300_000, 2_000_000].into_iter().cycle().take(60).enumerate() {
        let (path, content) = (dir.join(format!("file-{i}")), vec![i as u8; len]);
        let mut file = File::create(&path).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        files.push((path, content));
    }
    files
}

#[track_caller]
fn are_there(files: &[(PathBuf, Vec<u8>)]) {
    for (path, content) in files {
        assert!(std::fs::read(path).unwrap() == *content, "{}", path.display());
    }
}

#[test]
fn a_full_disk_refuses_what_has_no_room_and_loses_nothing() {
    let home = Home::new();
    let Some(disk) = disk(&home, 384) else { return };
    let (data, mnt) = (disk.0.join("data"), home.path("mnt"));
    let up = ["up", data.to_str().unwrap(), "--servers", "1", "--mount", mnt.to_str().unwrap()];
    let serving = Serving::start(&up);
    let mut files = acknowledged(&mnt.join("kept"));
    let open = File::options().write(true).open(&files[5].0).unwrap();
    let ballast = fill(&disk.0);

    // The store asks how much there is from time to time; then it knows.
    std::fs::create_dir(mnt.join("more")).unwrap_or_default();
    let mut made = 0;
    soon("creations are refused", || {
        made += 1;
        is_full(&std::fs::write(mnt.join(format!("more-{made}")), b"more"))
    });
    // With their number, each kind of change that needs room.
    let big = vec![7; 8 << 20];
    assert!(is_full(&std::fs::create_dir(mnt.join("dir"))));
    assert!(is_full(&std::fs::hard_link(&files[1].0, mnt.join("link"))));
    assert!(is_full(&open.write_all_at(&big, 4_000_000)), "a large write");
    assert!(is_full(
        &rustix::fs::fallocate(&open, rustix::fs::FallocateFlags::empty(), 0, 1 << 40).map_err(Into::into)
    ));
    are_there(&files);
    let told = String::from_utf8(run(&["status", data.to_str().unwrap()]).stdout).unwrap();
    assert!(told.contains("NOT WELL: server 0: ") && told.contains("remove files"), "{told}");
    // Removals work, and so do the other operations that free space.
    for (path, _) in files.drain(40..) {
        let removed = std::fs::remove_file(&path);
        assert!(removed.is_ok(), "{}: {removed:?}: {}", path.display(), serving.told());
    }
    File::options().write(true).open(&files[10].0).unwrap().set_len(10).unwrap();
    files[10].1.truncate(10);
    are_there(&files);
    // It stops cleanly though no checkpoint can be written, and starts again on the full disk.
    drop(open);
    let told = serving.stop();
    assert!(!told.contains("poisoned"), "{told}");
    let serving = Serving::start(&up);
    are_there(&files);
    assert!(is_full(&std::fs::create_dir(mnt.join("dir"))));
    std::fs::remove_file(files.pop().unwrap().0).unwrap();
    // Killed there, it has everything too.
    let mount = Mounted(mnt.clone());
    serving.crash();
    drop(mount);
    let serving = Serving::start(&up);
    are_there(&files);

    std::fs::remove_file(ballast).unwrap();
    soon("there is room again", || std::fs::create_dir(mnt.join("dir")).is_ok());
    std::fs::write(mnt.join("dir/big"), &big).unwrap();
    assert!(std::fs::read(mnt.join("dir/big")).unwrap() == big);
    are_there(&files);
    said(&["fsck", data.to_str().unwrap(), "--quiet"]);
    serving.stop();
    let serving = Serving::start(&up);
    are_there(&files);
    assert!(std::fs::read(mnt.join("dir/big")).unwrap() == big);
    serving.stop();
}

#[test]
fn a_file_with_holes_is_copied_with_its_holes_to_a_file_system_and_back() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "2"]);
    let (key, there) = (home.text("data/key"), format!("{}/sparse", up.root()));
    // Bytes at the start, across a block's border, and none at the end.
    const SIZE: u64 = 1 << 30;
    let pieces = [(0, 1_u8), (SIZE / 2 - 3, 2), (SIZE / 2 + (70 << 10), 3)];
    let sparse = File::create(home.path("sparse")).unwrap();
    sparse.set_len(SIZE).unwrap();
    for (at, byte) in pieces {
        sparse.write_all_at(&[byte; 6], at).unwrap();
    }
    said(&["cp", "--quiet", &home.text("sparse"), &there, "--key", &key]);
    let shown: serde_json::Value =
        serde_json::from_str(&said(&["stat", "--json", &there, "--key", &key])).unwrap();
    assert_eq!(shown["size"], SIZE, "{shown}");
    assert!(shown["space"].as_u64().unwrap() <= 4 << 20, "{shown}");
    // A file that is written over loses its old bytes.
    std::fs::write(home.path("back"), vec![9; 1 << 20]).unwrap();
    said(&["cp", "--quiet", &there, &home.text("back"), "--key", &key]);
    let back = File::open(home.path("back")).unwrap();
    assert_eq!(back.metadata().unwrap().len(), SIZE);
    assert!(back.metadata().unwrap().blocks() * 512 <= 4 << 20, "{:?}", back.metadata());
    for (at, byte) in pieces {
        let mut block = [9; 8];
        back.read_exact_at(&mut block, at).unwrap();
        assert_eq!(block, [byte, byte, byte, byte, byte, byte, 0, 0], "{at}");
    }
    let mut block = [9; 4096];
    back.read_exact_at(&mut block, 300_000).unwrap();
    assert_eq!(block, [0; 4096]);
    up.stop();
}
