//! The kernel's pages of a file: kept over opens while no other mount has changed the file, and invalidated
//! after a change.

use crate::Mounted;
use shoal_fuse::{MountOptions, Verb};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);
/// Larger than a strip: over several servers.
const LARGE: usize = 300_000;

fn believing() -> MountOptions {
    MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() }
}

fn strict() -> MountOptions {
    MountOptions { cache: Duration::ZERO, ..MountOptions::default() }
}

fn reads(mounted: &Mounted) -> u64 {
    mounted.handle.counts().of(Verb::Read)
}

/// How often the kernel asks for bytes during `body`.
fn reads_in(mounted: &Mounted, body: impl FnOnce()) -> u64 {
    let before = reads(mounted);
    body();
    reads(mounted) - before
}

fn files(mounted: &Mounted, len: impl Fn(usize) -> usize) -> Vec<(PathBuf, Vec<u8>)> {
    let made = (0..30).map(|n| {
        let (path, data) = (mounted.path(&format!("f{n}")), vec![n as u8; len(n)]);
        fs::write(&path, &data).unwrap();
        (path, data)
    });
    made.collect()
}

fn overwrite(path: &Path, with: u8, len: usize) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&vec![with; len], 0).unwrap();
}

#[test]
fn a_second_epoch_over_files_asks_for_no_bytes_while_nobody_changes_them() {
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    let others = |path: &Path| two.mountpoint().join(path.file_name().unwrap());
    // Small ones, larger than an eager message, and over several servers.
    let all = files(&one, |n| [4_000, 30_000, LARGE][n % 3]);
    for (path, data) in &all {
        assert!(fs::read(others(path)).unwrap() == *data);
    }
    let before = two.counts().of(Verb::Read);
    for (path, data) in &all {
        assert!(fs::read(others(path)).unwrap() == *data);
    }
    assert_eq!(two.counts().of(Verb::Read) - before, 0, "{:?}", two.counts().all());
}

#[test]
fn an_open_sees_a_write_of_the_same_size_by_another_mount_in_every_kind_of_file() {
    let one = Mounted::with(&believing());
    let two = one.second(&believing());
    for len in [100, 4_096, 16_384, 30_000, LARGE] {
        let (here, there) = (one.path(&format!("f{len}")), two.mountpoint().join(format!("f{len}")));
        fs::write(&here, vec![0; len]).unwrap();
        for round in 1..6u8 {
            assert!(fs::read(&here).unwrap() == vec![round - 1; len], "{len} bytes, round {round}");
            assert!(fs::read(&here).unwrap() == vec![round - 1; len]);
            let mtime = fs::metadata(&there).unwrap().mtime();
            overwrite(&there, round, len);
            // The time says nothing: it is set back.
            let times = fs::FileTimes::new()
                .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(mtime).unwrap()));
            File::options().write(true).open(&there).unwrap().set_times(times).unwrap();
            assert!(fs::read(&here).unwrap() == vec![round; len], "{len} bytes, round {round}");
        }
    }
}

#[test]
fn one_byte_of_another_mount_in_any_strip_is_seen_by_the_next_open() {
    let one = Mounted::with(&believing());
    let two = one.second(&believing());
    let (here, there) = (one.path("f"), two.mountpoint().join("f"));
    let mut expected = vec![1; LARGE];
    fs::write(&here, &expected).unwrap();
    for at in [0, 70_000, 140_000, 200_000, LARGE - 1] {
        assert!(fs::read(&here).unwrap() == expected);
        OpenOptions::new().write(true).open(&there).unwrap().write_all_at(b"x", at as u64).unwrap();
        expected[at] = b'x';
        assert!(fs::read(&here).unwrap() == expected, "byte {at}");
    }
}

#[test]
fn what_changes_bytes_otherwise_than_by_writing_is_seen_by_the_next_open_too() {
    use rustix::fs::FallocateFlags;
    let one = Mounted::with(&believing());
    let two = one.second(&believing());
    for len in [8_000, 40_000, LARGE] {
        let (here, there) = (one.path(&format!("f{len}")), two.mountpoint().join(format!("f{len}")));
        fs::write(&here, vec![7; len]).unwrap();
        let mut expected = vec![7; len];
        let file = OpenOptions::new().write(true).open(&there).unwrap();
        assert!(fs::read(&here).unwrap() == expected);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 100, 5_000).unwrap();
        expected[100..5_100].fill(0);
        assert!(fs::read(&here).unwrap() == expected, "a hole of {len}");
        file.set_len(50).unwrap();
        file.set_len(len as u64).unwrap();
        expected[50..].fill(0);
        assert!(fs::read(&here).unwrap() == expected, "cut and grown of {len}");
        OpenOptions::new().append(true).open(&there).unwrap().write_all(b"more").unwrap();
        expected.extend_from_slice(b"more");
        assert!(fs::read(&here).unwrap() == expected, "appended to {len}");
    }
}

#[test]
fn own_writes_keep_the_pages_and_one_of_another_mount_between_them_does_not() {
    let one = Mounted::with(&believing());
    let two = one.second(&believing());
    for len in [5_000, 40_000] {
        let (here, there) = (one.path(&format!("f{len}")), two.mountpoint().join(format!("f{len}")));
        fs::write(&here, vec![1; len]).unwrap();
        let own = reads_in(&one, || {
            assert!(fs::read(&here).unwrap() == vec![1; len]);
            // In pieces, none of which is a whole page.
            let file = OpenOptions::new().read(true).write(true).open(&here).unwrap();
            for at in (0..len).step_by(1_000) {
                file.write_all_at(&[2; 1_000], at as u64).unwrap();
            }
            assert!(fs::read(&here).unwrap() == vec![2; len]);
        });
        // Bytes after the last whole page were never in a page of the kernel before they were read.
        assert!(own <= 2, "{own} reads of {len} bytes");
        let file = OpenOptions::new().read(true).write(true).open(&here).unwrap();
        file.write_all_at(&[3; 1_000], 0).unwrap();
        OpenOptions::new().write(true).open(&there).unwrap().write_all_at(&[4; 1_000], 2_000).unwrap();
        file.write_all_at(&[5; 1_000], 4_000).unwrap();
        let expected = [[3; 1_000], [2; 1_000], [4; 1_000], [2; 1_000], [5; 1_000]].concat();
        assert!(fs::read(&here).unwrap()[..5_000] == expected);
    }
}

#[test]
fn what_is_written_to_a_new_file_is_read_from_the_pages_that_its_writes_left() {
    let one = Mounted::new();
    // Whole pages: the kernel does not keep partial ones. The last outgrow their first strip, and times are
    // set.
    let all = files(&one, |n| [4_096, 16_384, 32_768, 5 << 16][n % 4]);
    for (path, _) in &all {
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    }
    let asked = reads_in(&one, || {
        for (path, data) in &all {
            assert!(fs::read(path).unwrap() == *data);
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn a_write_of_another_mount_is_seen_through_a_descriptor_kept_open_when_its_attributes_are_asked_for() {
    let one = Mounted::with(&strict());
    let two = one.second(&strict());
    for len in [1_000, 20_000, LARGE] {
        let (here, there) = (one.path(&format!("f{len}")), two.mountpoint().join(format!("f{len}")));
        fs::write(&here, vec![0; len]).unwrap();
        let kept = File::open(&here).unwrap();
        for round in 1..6u8 {
            let mut found = vec![9; len];
            kept.read_exact_at(&mut found, 0).unwrap();
            overwrite(&there, round, len);
            let end = Instant::now() + LONG;
            while found != vec![round; len] {
                assert!(Instant::now() < end, "{len} bytes, round {round}: {} are there", found[0]);
                kept.metadata().unwrap();
                kept.read_exact_at(&mut found, 0).unwrap();
            }
        }
    }
}

#[test]
fn own_writes_leave_the_pages_to_readers_of_a_descriptor_kept_open() {
    let one = Mounted::with(&strict());
    let path = one.path("f");
    fs::write(&path, vec![0; 32_768]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut found = vec![0; 32_768];
    file.read_exact_at(&mut found, 0).unwrap();
    let asked = reads_in(&one, || {
        for round in 0..40u8 {
            file.write_all_at(&[round; 4_096], u64::from(round % 8) * 4_096).unwrap();
            file.metadata().unwrap();
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found[usize::from(round % 8) * 4_096], round);
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn two_mounts_that_write_and_read_one_file_at_once_find_what_returned_before_each_open() {
    const LEN: usize = 12_288;
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    let paths = [one.path("f"), two.mountpoint().join("f")];
    fs::write(&paths[0], vec![0; LEN]).unwrap();
    // Each page has one writer, which counts up; a page read after an open is never older than the writes
    // that had returned before.
    let returned: [std::sync::atomic::AtomicU8; 2] = Default::default();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (path, returned) = (&paths[writer], &returned);
            scope.spawn(move || {
                for round in 1..=200u8 {
                    let file = OpenOptions::new().write(true).open(path).unwrap();
                    file.write_all_at(&[round; 4_096], writer as u64 * 8_192).unwrap();
                    returned[writer].store(round, std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
        for path in &paths {
            let returned = &returned;
            scope.spawn(move || {
                let rounds = |n: usize| returned[n].load(std::sync::atomic::Ordering::SeqCst);
                while rounds(0) < 200 || rounds(1) < 200 {
                    let least = [rounds(0), rounds(1)];
                    let found = fs::read(path).unwrap();
                    for (writer, least) in least.into_iter().enumerate() {
                        let page = &found[writer * 8_192..][..4_096];
                        assert!(page.iter().all(|byte| *byte >= least), "{path:?}: {} < {least}", page[0]);
                    }
                }
            });
        }
    });
}
