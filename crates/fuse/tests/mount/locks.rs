//! Locks of two mounts of one file system.

use crate::{Mounted, errno};
use rustix::fs::{FlockOperation, fcntl_lock};
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const EXCLUSIVE: FlockOperation = FlockOperation::NonBlockingLockExclusive;
const SHARED: FlockOperation = FlockOperation::NonBlockingLockShared;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// One file, open in two mounts.
fn two_mounts() -> (Mounted, MountHandle<Client>, File, File) {
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    fs::write(one.path("f"), [0; 8]).unwrap();
    let (here, there) = (open(&one.path("f")), open(&two.mountpoint().join("f")));
    (one, two, here, there)
}

#[test]
fn a_lock_of_a_file_holds_over_two_mounts_and_among_the_programs_of_one() {
    let (one, _two, here, there) = two_mounts();
    let same = open(&one.path("f"));
    here.try_lock().unwrap();
    assert!(same.try_lock().is_err() && there.try_lock().is_err() && there.try_lock_shared().is_err());
    here.unlock().unwrap();
    there.try_lock_shared().unwrap();
    here.try_lock_shared().unwrap();
    assert!(same.try_lock().is_err());
    drop(there);
    // The kernel sends the release of an open file after the close has returned.
    let begun = Instant::now();
    while here.try_lock().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "a close did not give its lock back");
    }
}

#[test]
fn a_record_lock_holds_over_two_mounts_and_goes_with_any_close_by_its_process() {
    let (one, _two, here, there) = two_mounts();
    fcntl_lock(&here, EXCLUSIVE).unwrap();
    let refused = fcntl_lock(&there, SHARED).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EAGAIN);
    drop(open(&one.path("f")));
    fcntl_lock(&there, EXCLUSIVE).unwrap();
    assert!(fcntl_lock(&here, SHARED).is_err());
    drop(there);
    fcntl_lock(&here, SHARED).unwrap();
}

#[test]
fn a_lock_that_another_mount_waits_for_is_granted_when_it_is_given_back() {
    let (_one, _two, here, there) = two_mounts();
    here.lock().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            there.lock().unwrap();
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished());
        let before = Instant::now();
        here.unlock().unwrap();
        assert!(waits.join().unwrap() >= before);
    });
    assert!(here.try_lock().is_err());
}

/// As ROMIO does for non-contiguous writes.
#[test]
fn a_range_that_two_mounts_read_change_and_write_back_under_a_lock_keeps_the_bytes_of_both() {
    let (one, _two, here, there) = two_mounts();
    std::thread::scope(|scope| {
        for (file, own) in [(&here, 1_u8), (&there, 2)] {
            scope.spawn(move || {
                for round in 1..=50 {
                    let mut range = [0; 8];
                    file.lock().unwrap();
                    file.read_exact_at(&mut range, 0).unwrap();
                    range.iter_mut().skip(usize::from(own) - 1).step_by(2).for_each(|byte| *byte = round);
                    file.write_all_at(&range, 0).unwrap();
                    file.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(one.path("f")).unwrap(), [50; 8]);
}

#[test]
fn what_grew_under_a_lock_is_seen_under_the_next_one_through_a_file_that_was_open() {
    let (_one, _two, here, there) = two_mounts();
    for round in 1..=20_usize {
        let (writer, reader) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        writer.lock().unwrap();
        writer.write_all_at(&vec![round as u8; round * 1000], 0).unwrap();
        writer.unlock().unwrap();
        reader.lock_shared().unwrap();
        assert_eq!(reader.metadata().unwrap().len(), (round * 1000) as u64);
        let mut read = vec![0; round * 1000];
        reader.read_exact_at(&mut read, 0).unwrap();
        assert!(read.iter().all(|byte| *byte == round as u8), "round {round}");
        reader.unlock().unwrap();
    }
}

#[test]
fn what_a_mapping_holds_is_written_before_its_lock_is_given_back() {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    const LEN: usize = 4096;
    let (one, _two, here, there) = two_mounts();
    here.set_len(LEN as u64).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of a file that keeps its length; it stays until the end of the process.
    let map = unsafe { mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, &here, 0) }.unwrap();
    for round in 1..=20_u8 {
        here.lock().unwrap();
        // SAFETY: the mapping is writable, and no other thread uses it.
        unsafe { map.cast::<u8>().write_volatile(round) };
        here.unlock().unwrap();
        let mut byte = [0];
        there.lock_shared().unwrap();
        there.read_exact_at(&mut byte, 0).unwrap();
        there.unlock().unwrap();
        assert_eq!(byte, [round]);
        there.lock().unwrap();
        there.write_all_at(&[round + 100], 0).unwrap();
        there.unlock().unwrap();
        here.lock_shared().unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { map.cast::<u8>().read_volatile() }, round + 100);
        here.unlock().unwrap();
    }
    drop(one);
}

#[test]
fn with_local_locks_a_lock_holds_within_one_mount_only_and_costs_nothing() {
    let options = MountOptions { local_locks: true, ..MountOptions::default() };
    let one = Mounted::with(&options);
    let two = one.second(&options);
    fs::write(one.path("f"), b"x").unwrap();
    let before = messages(&one);
    let (held, same) = (open(&one.path("f")), open(&one.path("f")));
    held.try_lock().unwrap();
    assert!(same.try_lock().is_err());
    open(&two.mountpoint().join("f")).try_lock().unwrap();
    fcntl_lock(&same, EXCLUSIVE).unwrap();
    assert_eq!(since(&before, &one), BTreeMap::new());
}

/// Of locks.
fn messages(mounted: &Mounted) -> BTreeMap<&'static str, u64> {
    let mut all = mounted.handle.ask(Duration::from_secs(10), Client::counters).unwrap().messages;
    all.retain(|name, _| ["lock", "unlock", "getlk", "reclaim", "unwait"].contains(name));
    all
}

fn since(before: &BTreeMap<&'static str, u64>, mounted: &Mounted) -> BTreeMap<&'static str, u64> {
    let mut all = messages(mounted);
    all.iter_mut().for_each(|(name, n)| *n -= before.get(name).unwrap_or(&0));
    all.retain(|_, n| *n > 0);
    all
}

#[test]
fn an_uncontended_lock_and_its_end_are_two_messages_and_where_nothing_locks_there_is_none() {
    const N: u64 = 20;
    let one = Mounted::new();
    let before = messages(&one);
    for n in 0..N {
        fs::write(one.path(&format!("f{n}")), b"x").unwrap();
        fs::read(one.path(&format!("f{n}"))).unwrap();
    }
    assert_eq!(since(&before, &one), BTreeMap::new());
    let file = open(&one.path("f0"));
    for _ in 0..N {
        file.lock().unwrap();
        file.unlock().unwrap();
    }
    assert_eq!(since(&before, &one), BTreeMap::from([("lock", N), ("unlock", N)]));
    // A file without a lock has none to give back.
    drop(file);
    fs::read(one.path("f1")).unwrap();
    assert_eq!(since(&before, &one), BTreeMap::from([("lock", N), ("unlock", N)]));
    let file = open(&one.path("f2"));
    file.lock().unwrap();
    drop(file);
    fs::remove_file(one.path("f2")).unwrap();
    let begun = Instant::now();
    while since(&before, &one) != BTreeMap::from([("lock", N + 1), ("unlock", N + 1)]) {
        assert!(begun.elapsed() < Duration::from_secs(10), "the close gave nothing back");
    }
}

#[test]
fn a_lock_of_a_removed_file_that_is_open_is_one_like_any_other() {
    let (one, _two, here, _there) = two_mounts();
    fs::remove_file(one.path("f")).unwrap();
    here.try_lock().unwrap();
    here.unlock().unwrap();
    let refused = fs::File::open(one.path("f")).unwrap_err();
    assert_eq!(errno(&refused), libc::ENOENT);
}
