//! Bytes: read, written, mapped, cut, allocated; removed while open; privileges.

use crate::{Mounted, errno, is_root};
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use shoal_client::Client;
use shoal_fuse::{MountOptions, Verb};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Larger than a strip, than one request, and not a multiple of anything.
const LARGE: usize = 3 * (1 << 20) + 12_345;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn large_files_come_back_as_written_through_the_cache_and_past_it() {
    for direct in [false, true] {
        let fs_ = Mounted::with(&MountOptions { direct, ..MountOptions::default() });
        let (path, data) = (fs_.path("large"), pattern(LARGE));
        fs::write(&path, &data).unwrap();
        assert!(fs::read(&path).unwrap() == data);
        assert_eq!(fs::metadata(&path).unwrap().len(), LARGE as u64);
        let file = read_write(&path);
        file.write_all_at(b"middle", 1 << 20).unwrap();
        file.write_all_at(b"far", 5 << 20).unwrap();
        file.sync_all().unwrap();
        let mut expected = data;
        expected[1 << 20..(1 << 20) + 6].copy_from_slice(b"middle");
        expected.resize(5 << 20, 0);
        expected.extend_from_slice(b"far");
        assert!(fs::read(&path).unwrap() == expected);
    }
}

#[test]
fn a_file_is_cut_and_grown_by_path_and_by_descriptor() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, pattern(200_000)).unwrap();
    let file = read_write(&path);
    file.set_len(100_000).unwrap();
    assert_eq!(fs::read(&path).unwrap(), pattern(100_000));
    file.set_len(150_000).unwrap();
    let mut grown = pattern(100_000);
    grown.resize(150_000, 0);
    assert_eq!(fs::read(&path).unwrap(), grown);
    // Opened for truncation: its former bytes are gone.
    fs::write(&path, b"short").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short");
}

#[test]
fn the_last_byte_of_the_largest_file_is_written_and_read() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    let file = read_write(&path);
    let last = i64::MAX as u64 - 1;
    file.write_all_at(b"z", last).unwrap();
    assert_eq!(file.metadata().unwrap().len(), last + 1);
    let mut byte = [0];
    File::open(&path).unwrap().read_exact_at(&mut byte, last).unwrap();
    assert_eq!(&byte, b"z");
    assert!(file.write_all_at(b"z", last + 1).is_err());
    file.set_len(0).unwrap();
}

#[test]
fn space_is_reserved_and_holes_are_made_or_refused() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, [1; 10_000]).unwrap();
    let file = read_write(&path);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20_000);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 90_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20_000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1000, 1000).unwrap();
    let content = fs::read(&path).unwrap();
    assert_eq!((content[999], content[1000], content[1999], content[2000]), (1, 0, 0, 1));
    let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse.unwrap_err(), rustix::io::Errno::OPNOTSUPP);
}

#[test]
fn a_file_removed_or_renamed_over_while_open_lives_until_it_is_closed() {
    let fs_ = Mounted::new();
    let (a, b) = (fs_.path("a"), fs_.path("b"));
    fs::write(&a, b"first").unwrap();
    fs::write(&b, b"second").unwrap();
    let (mut removed, mut over) = (read_write(&a), read_write(&b));
    fs::remove_file(&a).unwrap();
    fs::write(fs_.path("c"), b"third").unwrap();
    fs::rename(fs_.path("c"), &b).unwrap();

    let mut text = String::new();
    over.read_to_string(&mut text).unwrap();
    assert_eq!(text, "second");
    removed.seek(SeekFrom::End(0)).unwrap();
    removed.write_all(b" and more").unwrap();
    removed.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let stat = removed.metadata().unwrap();
    assert_eq!((stat.len(), stat.nlink(), stat.mode() & 0o777), (14, 0, 0o600));
    removed.rewind().unwrap();
    text.clear();
    removed.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first and more");
    removed.set_len(3).unwrap();
    assert_eq!(removed.metadata().unwrap().len(), 3);
    assert_eq!(fs::read(&b).unwrap(), b"third");
    assert!(!a.exists());
}

fn write_mapped(path: &Path, len: usize) {
    let file = read_write(path);
    file.set_len(len as u64).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; the file has `len` bytes and is not cut
    // meanwhile.
    let map =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, &file, 0) }.unwrap();
    // SAFETY: the mapping has `len` bytes, is ours alone, and lives until it is unmapped below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), len) };
    assert!(bytes.iter().all(|byte| *byte == 0));
    bytes.copy_from_slice(&pattern(len));
    // SAFETY: the mapping made above, whole.
    unsafe { rustix::mm::msync(map, len, MsyncFlags::SYNC) }.unwrap();
    // SAFETY: the mapping made above, whole; `bytes` is not used any more.
    unsafe { rustix::mm::munmap(map, len) }.unwrap();
}

#[test]
fn files_are_written_by_mapping_them_also_through_a_descriptor_for_appending() {
    let fs_ = Mounted::new();
    let path = fs_.path("mapped");
    // Open for appending all the time: bytes that the kernel writes back by it must not be appended.
    let appending = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    write_mapped(&path, 300_000);
    assert!(fs::read(&path).unwrap() == pattern(300_000));
    drop(appending);
    assert!(fs::read(&path).unwrap() == pattern(300_000));
}

#[test]
fn a_descriptor_that_became_one_for_appending_appends() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"12345").unwrap();
    let mut file = read_write(&path);
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::APPEND).unwrap();
    file.write_all(b"678").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"12345678");
}

#[test]
fn direct_reads_and_writes_work_beside_cached_ones() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, vec![1; 8192]).unwrap();
    let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let cached = File::open(&path).unwrap();
    let mut byte = [0];
    cached.read_exact_at(&mut byte, 4096).unwrap();
    direct.write_all_at(&[2; 4096], 4096).unwrap();
    cached.read_exact_at(&mut byte, 4096).unwrap();
    assert_eq!(byte, [2]);
}

/// Runs a shell as a user other than root.
fn as_nobody(script: &str) {
    let status = Command::new("sh").arg("-c").arg(script).uid(65534).gid(65534).status().unwrap();
    assert!(status.success(), "{script}");
}

#[test]
fn set_user_id_is_lost_by_others_writes_and_by_changes_of_owner() {
    if !is_root("write as somebody else") {
        return;
    }
    let fs_ = Mounted::with(&MountOptions { allow_other: true, ..MountOptions::default() });
    fs::set_permissions(fs_.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = fs_.path("f");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let reset = || {
        chown(&path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(), 0o6777);
    };
    fs::write(&path, b"#!/bin/sh\n").unwrap();
    let shown = path.display();

    reset();
    fs::write(&path, b"root may").unwrap();
    assert_eq!(mode(), 0o6777);
    as_nobody(&format!("echo x > {shown}"));
    assert_eq!(mode(), 0o777, "by truncation and writing");
    reset();
    as_nobody(&format!("echo x >> {shown}"));
    assert_eq!(mode(), 0o777, "by appending");
    reset();
    as_nobody(&format!("printf y | dd of={shown} conv=notrunc status=none"));
    assert_eq!(mode(), 0o777, "by writing in place");
    reset();
    chown(&path, Some(1), None).unwrap();
    assert_eq!(mode(), 0o777, "by a change of owner");
}

#[test]
fn no_write_leaves_the_old_set_user_id_mode_to_be_seen() {
    if !is_root("write as somebody else") {
        return;
    }
    // So long that the kernel asks for no attributes by itself.
    let cache = std::time::Duration::from_secs(3600);
    for direct in [false, true] {
        let options = MountOptions { allow_other: true, cache, direct, ..MountOptions::default() };
        let fs_ = Mounted::with(&options);
        fs::set_permissions(fs_.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = fs_.path("f");
        let shown = path.display();
        fs::write(&path, [b'x'; 8192]).unwrap();
        // The mode alone: a question for sizes or times too would have the kernel ask.
        let mode = || {
            let wanted = rustix::fs::StatxFlags::MODE;
            let stat =
                rustix::fs::statx(rustix::fs::CWD, &path, rustix::fs::AtFlags::empty(), wanted).unwrap();
            u32::from(stat.stx_mode) & 0o7777
        };
        for write in [
            format!("printf y >> {shown}"),
            format!("dd if=/dev/zero of={shown} bs=4096 count=1 oflag=direct conv=notrunc status=none"),
            format!("printf y | dd of={shown} conv=notrunc status=none"),
        ] {
            chown(&path, Some(65534), Some(65534)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(mode(), 0o6777);
            as_nobody(&write);
            assert_eq!(mode(), 0o777, "direct {direct}: {write}");
        }
    }
}

/// Version 2, cap_net_raw permitted.
const PERMITTED: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPABILITY: &str = "security.capability";

#[test]
fn a_capability_that_is_set_while_its_program_is_open_is_lost_by_the_next_write() {
    if !is_root("write as somebody else") {
        return;
    }
    for direct in [false, true] {
        let fs_ = Mounted::with(&MountOptions { direct, ..MountOptions::default() });
        let path = fs_.path("program");
        fs::write(&path, b"x").unwrap();
        let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
        let mut plain = read_write(&path);
        for _ in 0..2 {
            for file in [&mut appending, &mut plain] {
                xattr::set(&path, CAPABILITY, &PERMITTED).unwrap();
                assert!(xattr::get(&path, CAPABILITY).unwrap().is_some());
                file.write_all(b"y").unwrap();
                assert_eq!(xattr::get(&path, CAPABILITY).unwrap(), None);
            }
        }
    }
}

#[test]
fn a_capability_that_another_mount_set_is_lost_by_the_next_write_of_another_than_root() {
    if !is_root("write as somebody else") {
        return;
    }
    let strict =
        MountOptions { allow_other: true, cache: std::time::Duration::ZERO, ..MountOptions::default() };
    let fs_ = Mounted::with(&strict);
    fs::set_permissions(fs_.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let second = fs_.second(&strict);
    let path = fs_.path("program");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    for redirection in [">>", "<>"] {
        // Writes a byte for each line, through one open file.
        let script =
            format!("exec 3{redirection}{}; while read l; do printf y >&3; echo done; done", path.display());
        let mut writer = Command::new("sh")
            .args(["-c", &script])
            .uid(65534)
            .gid(65534)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut asked = writer.stdin.take().unwrap();
        let mut told = std::io::BufReader::new(writer.stdout.take().unwrap());
        for _ in 0..3 {
            asked.write_all(b"write\n").unwrap();
            std::io::BufRead::read_line(&mut told, &mut String::new()).unwrap();
            assert_eq!(xattr::get(&path, CAPABILITY).unwrap(), None);
            xattr::set(second.mountpoint().join("program"), CAPABILITY, &PERMITTED).unwrap();
        }
        asked.write_all(b"write\n").unwrap();
        std::io::BufRead::read_line(&mut told, &mut String::new()).unwrap();
        assert_eq!(xattr::get(&path, CAPABILITY).unwrap(), None, "{redirection}");
        drop(asked);
        assert!(writer.wait().unwrap().success());
    }
}

#[test]
fn what_is_made_belongs_to_its_maker_and_permissions_are_checked() {
    if !is_root("write as somebody else") {
        return;
    }
    let fs_ = Mounted::with(&MountOptions { allow_other: true, ..MountOptions::default() });
    fs::set_permissions(fs_.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = fs_.path("by-nobody");
    as_nobody(&format!("umask 027; echo x > {}", path.display()));
    let stat = fs::metadata(&path).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (65534, 65534, 0o640));
    fs::write(fs_.path("secret"), b"x").unwrap();
    fs::set_permissions(fs_.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    as_nobody(&format!("! cat {} 2>/dev/null", fs_.path("secret").display()));
}

#[test]
fn capabilities_of_a_program_are_lost_by_writing_past_the_cache() {
    if !is_root("give a file capabilities") {
        return;
    }
    let fs_ = Mounted::new();
    let path = fs_.path("program");
    fs::write(&path, b"x").unwrap();
    xattr::set(&path, "security.capability", &PERMITTED).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"y").unwrap();
    assert_eq!(xattr::get(&path, "security.capability").unwrap(), None);
}

#[test]
fn small_writes_ask_for_nothing_but_writes() {
    let fs_ = Mounted::new();
    let mut file = File::create(fs_.path("f")).unwrap();
    for i in 0..50 {
        // None crosses a page: the kernel sends such a write in two.
        file.write_all(&[i; 64]).unwrap();
    }
    let counts = fs_.handle.counts();
    assert_eq!(counts.of(Verb::Write), 50);
    assert!(counts.of(Verb::Getxattr) <= 2, "{:?}", counts.all());
    assert_eq!(counts.of(Verb::Setattr), 0);
}

#[test]
fn durable_writes_are_synced_through_the_cache_and_past_it() {
    let fs_ = Mounted::new();
    let syncs = || {
        let counters = fs_.handle.ask(std::time::Duration::from_secs(30), Client::counters).unwrap();
        counters.messages.get("fsync").copied().unwrap_or(0)
    };
    let path = fs_.path("log");
    File::create(&path).unwrap();
    for flags in [libc::O_DSYNC, libc::O_SYNC] {
        for append in [false, true] {
            let before = syncs();
            let mut log =
                OpenOptions::new().write(true).append(append).custom_flags(flags).open(&path).unwrap();
            log.write_all(b"line").unwrap();
            assert!(syncs() > before, "flags {flags:o}, append {append}");
        }
    }
}

#[test]
fn a_write_through_a_descriptor_for_reading_is_refused() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"x").unwrap();
    assert_eq!(File::open(&path).unwrap().write(b"y").map_err(|e| errno(&e)), Err(libc::EBADF));
}

#[test]
fn reading_leaves_the_time_of_access_and_a_file_is_all_data() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"x").unwrap();
    let file = read_write(&path);
    file.set_len(1 << 20).unwrap();
    let before = fs::metadata(&path).unwrap();
    fs::read(&path).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.atime(), before.atime_nsec()), (after.atime(), after.atime_nsec()));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4096)).unwrap(), 4096);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(4096)).unwrap(), 1 << 20);
}

#[test]
fn a_directory_is_synced_and_a_file_without_a_name_is_not_made() {
    let fs_ = Mounted::new();
    fs::create_dir(fs_.path("d")).unwrap();
    File::open(fs_.path("d")).unwrap().sync_all().unwrap();
    let nameless = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(fs_.path("d"));
    assert_eq!(nameless.map_err(|e| errno(&e)).unwrap_err(), libc::EOPNOTSUPP);
}
