//! Lookups that are answered from a listing made ahead of them.

use super::Mounted;
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions, Verb};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

/// Files in the directory.
const FILES: usize = 300;
/// Looked up by name until the rest is known.
const ASKED: usize = 100;

/// A file system with a directory of files, and a second mount of it whose kernel has nothing of them cached
/// yet.
struct Walked {
    second: MountHandle<Client>,
    mounted: Mounted,
}

impl Walked {
    fn with(options: &MountOptions) -> Walked {
        let mounted = Mounted::new();
        fs::create_dir(mounted.path("d")).unwrap();
        for n in 0..FILES {
            File::create_new(mounted.path(&format!("d/f{n}"))).unwrap().write_all(&[7; 10]).unwrap();
        }
        Walked { second: mounted.second(options), mounted }
    }

    /// All unknown names are cached for an hour.
    fn new() -> Walked {
        Walked::with(&MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() })
    }

    fn here(&self, name: &str) -> PathBuf {
        self.second.mountpoint().join("d").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.mounted.path("d").join(name)
    }

    fn file(&self, n: usize) -> PathBuf {
        self.here(&format!("f{n}"))
    }

    /// Messages that the second mount sent for lookups.
    fn lookups(&self) -> u64 {
        let counters = self.second.ask(Duration::from_secs(10), Client::counters).expect("the mount answers");
        *counters.messages.get("lookup").unwrap_or(&0)
    }

    /// Stat files by name until lookups cost no messages; those from `ASKED` on are not touched.
    fn walk(&self) {
        for n in 0..ASKED {
            let before = self.lookups();
            assert_eq!(fs::metadata(self.file(n)).unwrap().len(), 10);
            if n > 20 && self.lookups() == before {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{ASKED} lookups, and the directory was not listed");
    }
}

#[test]
fn a_directory_walked_by_names_is_listed_and_most_lookups_cost_no_message() {
    let walked = Walked::new();
    walked.walk();
    let (before, asked) = (walked.lookups(), walked.second.counts().of(Verb::Lookup));
    for n in ASKED..FILES {
        assert_eq!(fs::metadata(walked.file(n)).unwrap().len(), 10);
    }
    assert_eq!(walked.lookups(), before);
    let asked = walked.second.counts().of(Verb::Lookup) - asked;
    assert!(asked >= (FILES - ASKED) as u64, "the kernel asked for each: {asked}");
}

#[test]
fn a_strict_mount_and_one_that_is_told_so_list_nothing_ahead() {
    let strict = MountOptions { cache: Duration::ZERO, ..MountOptions::default() };
    let plain =
        MountOptions { stat_ahead: false, cache: Duration::from_secs(3600), ..MountOptions::default() };
    for options in [strict, plain] {
        let walked = Walked::with(&options);
        let before = walked.lookups();
        (0..ASKED).for_each(|n| assert_eq!(fs::metadata(walked.file(n)).unwrap().len(), 10));
        assert!(walked.lookups() - before >= ASKED as u64);
    }
}

#[test]
fn what_this_mount_changed_since_the_listing_is_seen_at_once() {
    let walked = Walked::new();
    // Two names of each of these: one is changed, then the other looked up for the first time.
    for n in 200..206 {
        fs::hard_link(walked.there(&format!("f{n}")), walked.there(&format!("g{n}"))).unwrap();
    }
    walked.walk();
    let [written, cut, chmodded, unlinked, renamed, linked] = [200, 201, 202, 203, 204, 205];
    let g = |n: usize| walked.here(&format!("g{n}"));
    OpenOptions::new().append(true).open(walked.file(written)).unwrap().write_all(&[1; 5]).unwrap();
    assert_eq!(fs::metadata(g(written)).unwrap().len(), 15);
    OpenOptions::new().write(true).open(walked.file(cut)).unwrap().set_len(3).unwrap();
    assert_eq!(fs::metadata(g(cut)).unwrap().len(), 3);
    fs::set_permissions(walked.file(chmodded), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(g(chmodded)).unwrap().mode() & 0o777, 0o600);
    fs::remove_file(walked.file(unlinked)).unwrap();
    assert_eq!(fs::metadata(g(unlinked)).unwrap().nlink(), 1);
    assert!(!walked.file(unlinked).exists());
    fs::rename(walked.file(renamed), walked.file(210)).unwrap();
    assert_eq!(fs::metadata(walked.file(210)).unwrap().ino(), fs::metadata(g(renamed)).unwrap().ino());
    assert!(!walked.file(renamed).exists());
    fs::hard_link(walked.file(linked), walked.here("h")).unwrap();
    assert_eq!(fs::metadata(g(linked)).unwrap().nlink(), 3);
    // A name that was listed, taken away here, and made anew by another.
    fs::remove_file(walked.file(220)).unwrap();
    symlink("elsewhere", walked.there("f220")).unwrap();
    assert!(fs::symlink_metadata(walked.file(220)).unwrap().is_symlink());
}

#[test]
fn what_an_open_saw_is_not_taken_back_by_a_lookup_that_a_listing_answers() {
    let walked = Walked::new();
    fs::hard_link(walked.there("f200"), walked.there("g200")).unwrap();
    walked.walk();
    OpenOptions::new().append(true).open(walked.there("f200")).unwrap().write_all(&[1; 10]).unwrap();
    let mut open = File::open(walked.file(200)).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 20);
    assert_eq!(fs::metadata(walked.here("g200")).unwrap().len(), 20);
    let mut read = Vec::new();
    open.read_to_end(&mut read).unwrap();
    assert_eq!(read.len(), 20);
}

#[test]
fn a_listed_file_that_another_mount_removed_or_made_anew_is_opened_as_it_is() {
    let walked = Walked::new();
    walked.walk();
    for n in 200..210 {
        fs::remove_file(walked.there(&format!("f{n}"))).unwrap();
    }
    for n in 205..210 {
        fs::write(walked.there(&format!("f{n}")), b"another").unwrap();
    }
    for n in 200..205 {
        let error = File::open(walked.file(n)).expect_err("it is gone");
        assert_eq!(super::errno(&error), libc::ENOENT);
    }
    for n in 205..210 {
        assert_eq!(fs::read(walked.file(n)).unwrap(), b"another");
    }
}

#[test]
fn an_entry_listed_ahead_is_believed_no_longer_than_one_that_was_looked_up() {
    const CACHE: Duration = Duration::from_millis(1500);
    let walked = Walked::with(&MountOptions { cache: CACHE, ..MountOptions::default() });
    walked.walk();
    fs::remove_file(walked.there("f250")).unwrap();
    std::thread::sleep(CACHE.mul_f64(0.6));
    // Whether the listing is still valid or not, from here on nothing of it is in a second.
    let _ = fs::metadata(walked.file(250));
    std::thread::sleep(CACHE.mul_f64(0.5));
    assert!(!walked.file(250).exists());
}

#[test]
fn a_file_that_is_listed_ahead_and_replaced_is_opened() {
    let walked = Walked::new();
    let name = format!("f{}", FILES - 1);
    let replace = |content: &[u8]| {
        fs::write(walked.there("new"), content).unwrap();
        fs::rename(walked.there("new"), walked.there(&name)).unwrap();
    };
    // The kernel caches the name of a file that is gone, and the listing has one that is gone, too.
    assert_eq!(fs::metadata(walked.here(&name)).unwrap().len(), 10);
    replace(b"second");
    walked.walk();
    (ASKED..FILES - 1).for_each(|n| assert!(walked.file(n).exists()));
    replace(b"third");
    assert_eq!(fs::read(walked.here(&name)).unwrap(), b"third");
}
