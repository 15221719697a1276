//! Two mounts of one file system.

use crate::{Mounted, names_in};
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

/// Nothing is cached: each sees the other's changes at once.
fn strict() -> MountOptions {
    MountOptions { cache: Duration::ZERO, ..MountOptions::default() }
}

#[test]
fn strict_mounts_see_each_others_names_attributes_and_bytes_at_once() {
    let one = Mounted::with(&strict());
    let two = one.second(&strict());
    let (here, there) = (one.path("f"), two.mountpoint().join("f"));
    for round in 0..20u8 {
        assert!(!there.exists());
        fs::write(&here, vec![round; 1000 + usize::from(round)]).unwrap();
        assert_eq!(fs::metadata(&there).unwrap().len(), 1000 + u64::from(round));
        fs::write(&there, vec![round + 1; 500]).unwrap();
        assert_eq!(fs::read(&here).unwrap(), vec![round + 1; 500]);
        fs::rename(&there, two.mountpoint().join("g")).unwrap();
        assert_eq!(names_in(&one.path("")), ["g"]);
        fs::remove_file(one.path("g")).unwrap();
    }
}

#[test]
fn appends_through_two_mounts_lose_nothing() {
    const LINES: usize = 60;
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    let paths = [one.path("log"), two.mountpoint().join("log")];
    fs::write(&paths[0], b"").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &paths[writer % 2];
            scope.spawn(move || {
                let mut log = OpenOptions::new().append(true).open(path).unwrap();
                for line in 0..LINES {
                    let text = format!("{writer} {line} {}\n", "x".repeat(line * 37 % 3000));
                    assert_eq!(log.write(text.as_bytes()).unwrap(), text.len());
                }
            });
        }
    });
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let mut next = [0; 4];
        for line in text.lines() {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let (writer, line) = (number(), number());
            assert_eq!(line, next[writer], "lines of writer {writer}");
            assert_eq!(words.next().unwrap().len(), line * 37 % 3000);
            next[writer] += 1;
        }
        assert_eq!(next, [LINES; 4]);
    }
}

#[test]
fn an_append_that_went_elsewhere_leaves_no_wrong_pages_behind() {
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    let (here, there) = (one.path("log"), two.mountpoint().join("log"));
    fs::write(&here, b"aaaa").unwrap();
    let cached = File::open(&here).unwrap();
    let mut log = OpenOptions::new().append(true).open(&here).unwrap();
    let mut buffer = [0; 4];
    cached.read_exact_at(&mut buffer, 0).unwrap();
    OpenOptions::new().append(true).open(&there).unwrap().write_all(b"bbbb").unwrap();
    log.write_all(b"cccc").unwrap();
    let mut all = [0; 12];
    cached.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"aaaabbbbcccc");
}

#[test]
fn what_was_there_is_seen_gone_and_what_was_not_is_seen_new_by_an_open() {
    // The kernel of the second mount caches names for an hour.
    let one = Mounted::new();
    let two = one.second(&MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() });
    let (here, there) = (one.path("f"), two.mountpoint().join("f"));
    assert!(!there.exists());
    fs::write(&here, b"new").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"new");
    fs::remove_file(&here).unwrap();
    fs::write(&here, b"another").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"another");
    fs::remove_file(&here).unwrap();
    assert!(File::open(&there).is_err());
}

#[test]
fn an_open_sees_every_write_that_returned_before_it_whatever_size_was_believed() {
    let believing = MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() };
    let one = Mounted::with(&believing);
    let two = one.second(&believing);
    let (here, there) = (one.path("f"), two.mountpoint().join("f"));
    fs::write(&here, b"").unwrap();
    // Within the first strip, and over several servers.
    for len in [10, 1000, 300_000, 310_000, 20] {
        let believed = fs::metadata(&there).unwrap().len();
        fs::write(&here, vec![len as u8; len]).unwrap();
        assert!(
            fs::read(&there).unwrap() == vec![len as u8; len],
            "{believed} bytes were believed, {len} are there"
        );
        OpenOptions::new().write(true).open(&there).unwrap().write_all_at(&[1; 7], len as u64).unwrap();
        assert_eq!(fs::read(&here).unwrap().len(), len + 7);
    }
}

#[test]
fn creations_of_one_name_through_two_mounts_have_one_winner() {
    let one = Mounted::new();
    let two = one.second(&MountOptions::default());
    for round in 0..20 {
        let paths = [one.path(&format!("{round}")), two.mountpoint().join(format!("{round}"))];
        let made = std::thread::scope(|scope| {
            let make = |path| scope.spawn(move || File::create_new(path).is_ok());
            let tries = paths.each_ref().map(make);
            tries.into_iter().map(|made| made.join().unwrap()).filter(|made| *made).count()
        });
        assert_eq!(made, 1);
        // Without O_EXCL both get the same file.
        let paths = [one.path(&format!("s{round}")), two.mountpoint().join(format!("s{round}"))];
        std::thread::scope(|scope| {
            for path in &paths {
                scope.spawn(move || {
                    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(b"x").unwrap();
                });
            }
        });
        assert_eq!(fs::read(&paths[0]).unwrap(), b"xx");
    }
}

#[test]
fn writers_of_different_bytes_do_not_disturb_each_other() {
    const RECORD: usize = 777;
    const RECORDS: usize = 200;
    let direct = MountOptions { direct: true, ..MountOptions::default() };
    let one = Mounted::with(&direct);
    let two = one.second(&direct);
    let paths = [one.path("f"), two.mountpoint().join("f")];
    fs::write(&paths[0], b"").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &paths[writer % 2];
            scope.spawn(move || {
                let file = OpenOptions::new().write(true).open(path).unwrap();
                for record in (writer..RECORDS).step_by(4) {
                    file.write_all_at(&[record as u8; RECORD], (record * RECORD) as u64).unwrap();
                }
            });
        }
    });
    let expected: Vec<u8> = (0..RECORDS).flat_map(|record| [record as u8; RECORD]).collect();
    for path in &paths {
        assert!(fs::read(path).unwrap() == expected);
    }
}

#[test]
fn a_file_that_another_client_removes_or_replaces_can_be_used_by_those_that_have_it_open() {
    let options = MountOptions { direct: true, ..strict() };
    let one = Mounted::with(&options);
    let two = one.second(&options);
    let there = two.mountpoint().join("f");
    for replaces in [false, true] {
        fs::write(one.path("f"), b"x").unwrap();
        let held = OpenOptions::new().read(true).write(true).open(&there).unwrap();
        if replaces {
            fs::write(one.path("new"), b"another").unwrap();
            fs::rename(one.path("new"), one.path("f")).unwrap();
            assert_eq!(fs::read(&there).unwrap(), b"another");
        } else {
            fs::remove_file(one.path("f")).unwrap();
            assert!(!there.exists());
        }
        let found = held.metadata().unwrap();
        assert_eq!((found.len(), found.nlink()), (1, 0));
        held.write_all_at(b"yz", 1).unwrap();
        held.sync_all().unwrap();
        let mut read = [0; 3];
        held.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"xyz");
    }
}

/// How often a file is replaced, and how many of its readers there are in each mount.
const REPLACED: u16 = 300;
const READERS: usize = 2;

/// Opens, stats and reads a file, over and over, until it is to end; each time it is a whole content, and
/// none that was replaced before the open began.
fn look_on(path: &Path, ended: &AtomicBool, published: &AtomicU16) -> usize {
    let mut looks = 0;
    while !ended.load(Ordering::Relaxed) {
        let oldest = published.load(Ordering::SeqCst);
        let file = File::open(path).unwrap_or_else(|error| panic!("open after {looks} looks: {error}"));
        let len = file.metadata().unwrap_or_else(|error| panic!("fstat after {looks} looks: {error}")).len();
        let mut read = vec![0; 100];
        let got =
            file.read_at(&mut read, 0).unwrap_or_else(|error| panic!("read after {looks} looks: {error}"));
        assert_eq!((len, got), (50, 50), "after {looks} looks");
        assert!(read[..50].chunks(2).all(|number| *number == read[..2]), "after {looks} looks");
        let number = u16::from_le_bytes([read[0], read[1]]);
        assert!(
            number >= oldest,
            "content {number}, and {oldest} was there before the open, after {looks} looks"
        );
        let stat = fs::metadata(path).unwrap_or_else(|error| panic!("stat after {looks} looks: {error}"));
        assert_eq!(stat.len(), 50);
        looks += 1;
    }
    looks
}

fn replaced_under_readers(options: &MountOptions) {
    let one = Mounted::with(options);
    let two = one.second(options);
    let (ended, published) = (AtomicBool::new(false), AtomicU16::new(0));
    let replace = |round: u16| {
        fs::write(one.path("new"), round.to_le_bytes().repeat(25)).unwrap();
        fs::rename(one.path("new"), one.path("f")).unwrap();
        published.store(round, Ordering::SeqCst);
    };
    replace(0);
    let paths = [one.path("f"), two.mountpoint().join("f")];
    std::thread::scope(|scope| {
        let (ended, published) = (&ended, &published);
        let readers: Vec<_> = (0..READERS)
            .flat_map(|_| &paths)
            .map(|path| scope.spawn(move || look_on(path, ended, published)))
            .collect();
        let replacing =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (1..REPLACED).for_each(replace)));
        ended.store(true, Ordering::Relaxed);
        let looks: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        replacing.unwrap();
        assert!(looks > 20, "{looks} looks show nothing");
    });
}

#[test]
fn a_file_that_is_replaced_all_the_time_is_opened_and_read_through_its_own_mount_and_another() {
    replaced_under_readers(&MountOptions::default());
}

#[test]
fn a_file_that_is_replaced_all_the_time_is_opened_and_read_in_strict_mounts_too() {
    replaced_under_readers(&strict());
}

#[test]
fn a_directory_shows_own_changes_at_once_and_the_others_after_the_time_of_belief() {
    let one = Mounted::new();
    let two = one.second(&strict());
    let (here, there) = (one.path("d"), two.mountpoint().join("d"));
    fs::create_dir(&here).unwrap();
    let same = || {
        let (own, asked) = (fs::metadata(&here).unwrap(), fs::metadata(&there).unwrap());
        let facts = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec(), m.ctime_nsec(), m.nlink(), m.mode());
        assert_eq!(facts(&own), facts(&asked));
    };
    for n in 0..5 {
        File::create_new(here.join(format!("f{n}"))).unwrap();
        same();
        fs::create_dir(here.join(format!("d{n}"))).unwrap();
        same();
        fs::hard_link(here.join(format!("f{n}")), here.join("link")).unwrap();
        same();
        fs::remove_file(here.join("link")).unwrap();
        same();
        fs::set_permissions(&here, fs::Permissions::from_mode(0o700 + n)).unwrap();
        same();
        fs::remove_file(here.join(format!("f{n}"))).unwrap();
        same();
        fs::remove_dir(here.join(format!("d{n}"))).unwrap();
        same();
    }
    File::create_new(here.join("f")).unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o711)).unwrap();
    std::thread::sleep(MountOptions::default().cache);
    same();
}

#[test]
fn a_moved_directory_shows_its_new_time_of_change_at_once() {
    let one = Mounted::new();
    let two = one.second(&strict());
    fs::create_dir(one.path("d")).unwrap();
    File::create_new(one.path("d/f")).unwrap();
    fs::rename(one.path("d"), one.path("e")).unwrap();
    let (own, asked) =
        (fs::metadata(one.path("e")).unwrap(), fs::metadata(two.mountpoint().join("e")).unwrap());
    assert_eq!((own.ctime(), own.ctime_nsec()), (asked.ctime(), asked.ctime_nsec()));
}

#[test]
fn a_directory_in_which_files_are_made_and_removed_is_not_asked_about() {
    let one = Mounted::with(&MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() });
    fs::create_dir(one.path("d")).unwrap();
    let asked = || {
        let counters = one.handle.ask(Duration::from_secs(10), Client::counters).unwrap();
        counters.messages.get("getattr").copied().unwrap_or(0)
    };
    File::create_new(one.path("d/first")).unwrap();
    let before = asked();
    for n in 0..10 {
        File::create_new(one.path(&format!("d/{n}"))).unwrap();
        fs::metadata(one.path("d")).unwrap();
    }
    for n in 0..10 {
        fs::remove_file(one.path(&format!("d/{n}"))).unwrap();
        fs::metadata(one.path("d")).unwrap();
    }
    assert_eq!(asked(), before);
}

/// A shared mapping of one page of a file.
struct Page(*mut std::ffi::c_void);

const PAGE: usize = 4096;

impl Page {
    fn of(path: &std::path::Path) -> Page {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file has a page and is not cut.
        Page(unsafe { mmap(std::ptr::null_mut(), PAGE, prot, MapFlags::SHARED, &file, 0) }.unwrap())
    }

    fn first(&self) -> u8 {
        // SAFETY: the mapping lives, and is written by this thread alone.
        unsafe { self.0.cast::<u8>().read_volatile() }
    }

    fn store(&self, byte: u8) {
        // SAFETY: as above.
        unsafe { self.0.cast::<u8>().write_volatile(byte) };
    }

    fn sync(&self) {
        // SAFETY: the mapping made in `of`, whole.
        unsafe { rustix::mm::msync(self.0, PAGE, rustix::mm::MsyncFlags::SYNC) }.unwrap();
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, whole, no longer in use.
        let _ = unsafe { rustix::mm::munmap(self.0, PAGE) };
    }
}

#[test]
fn mappings_see_each_others_stores_in_one_mount_and_not_in_two() {
    let one = Mounted::with(&strict());
    let two = one.second(&strict());
    fs::write(one.path("f"), [b'a'; PAGE]).unwrap();
    let (here, beside, there) =
        (Page::of(&one.path("f")), Page::of(&one.path("f")), Page::of(&two.mountpoint().join("f")));
    assert_eq!([here.first(), beside.first(), there.first()], [b'a'; 3]);
    here.store(b'b');
    assert_eq!(beside.first(), b'b', "one kernel's page");
    here.sync();
    assert_eq!(there.first(), b'a', "the other's is not asked for again");
    drop(there);
    assert_eq!(Page::of(&two.mountpoint().join("f")).first(), b'b', "it is when the file is opened");
}

#[test]
fn inotify_tells_of_what_was_done_through_the_same_mount() {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    let one = Mounted::with(&strict());
    let two = one.second(&strict());
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, one.path("."), WatchFlags::CREATE).unwrap();
    let told = || {
        let mut buf = [std::mem::MaybeUninit::uninit(); 1024];
        let mut reader = inotify::Reader::new(&watch, &mut buf);
        reader.next().ok().and_then(|event| Some(event.file_name()?.to_str().ok()?.to_owned()))
    };
    fs::write(two.mountpoint().join("there"), b"x").unwrap();
    assert!(one.path("there").exists());
    assert_eq!(told(), None);
    fs::write(one.path("here"), b"x").unwrap();
    assert_eq!(told().as_deref(), Some("here"));
}

/// Two mounts whose kernels believe names for nearly a second, and the same name in both.
fn believing() -> (Mounted, MountHandle<Client>, PathBuf, PathBuf) {
    let options = MountOptions { cache: Duration::from_millis(900), ..MountOptions::default() };
    let one = Mounted::with(&options);
    let two = one.second(&options);
    let (here, there) = (one.path("f"), two.mountpoint().join("f"));
    fs::write(&here, b"first").unwrap();
    assert_eq!(fs::metadata(&there).unwrap().len(), 5);
    (one, two, here, there)
}

/// Write another file, and rename it to this name.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn a_refused_open_that_found_nothing_does_not_have_a_later_open_get_what_was_gone_before_it_began() {
    let (_one, _two, here, there) = believing();
    // The open is refused, looks again, finds nothing.
    fs::remove_file(&here).unwrap();
    assert!(File::open(&there).is_err());
    // Made anew, and only looked at.
    fs::write(&here, b"old").unwrap();
    assert_eq!(fs::metadata(&there).unwrap().len(), 3);
    // The file that was looked at is gone before the next open begins.
    replace(&here, b"newer");
    assert_eq!(fs::read(&there).unwrap(), b"newer");
}

#[test]
fn a_refused_open_that_found_nothing_does_not_have_a_later_open_miss_what_was_written_before_it_began() {
    let (_one, _two, here, there) = believing();
    fs::remove_file(&here).unwrap();
    assert!(File::open(&there).is_err());
    fs::write(&here, b"old").unwrap();
    assert_eq!(fs::metadata(&there).unwrap().len(), 3);
    OpenOptions::new().append(true).open(&here).unwrap().write_all(b"er and longer").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"older and longer");
}

#[test]
fn a_replaced_file_that_a_mount_has_open_is_not_opened_again_there_by_the_name_that_it_had() {
    let (_one, _two, here, there) = believing();
    let held = File::open(&there).unwrap();
    for content in [&b"second"[..], b"third"] {
        assert!(fs::metadata(&there).is_ok());
        replace(&here, content);
        assert_eq!(fs::read(&there).unwrap(), content);
    }
    // Without a path it is.
    let mut again = String::new();
    let by_number = format!("/proc/self/fd/{}", held.as_raw_fd());
    File::open(by_number).unwrap().read_to_string(&mut again).unwrap();
    assert_eq!(again, "first");
}
