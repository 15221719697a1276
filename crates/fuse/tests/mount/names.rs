//! Names, kinds, attributes, listings, extended attributes.

use crate::{Mounted, errno, is_root, names_in};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), i32> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags).map_err(|errno| errno.raw_os_error())
}

#[test]
fn kinds_and_attributes_are_what_was_asked_for() {
    let fs_ = Mounted::new();
    let (dir, file, link) = (fs_.path("d"), fs_.path("d/f"), fs_.path("d/l"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, b"hello").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("f", &link).unwrap();
    fs::hard_link(&file, fs_.path("d/again")).unwrap();
    let fifo = fs_.path("d/p");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();

    let stat = fs::metadata(&file).unwrap();
    assert_eq!((stat.len(), stat.mode() & 0o7777, stat.nlink()), (5, 0o640, 2));
    assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
    assert!(stat.blocks() > 0);
    assert_eq!(fs::metadata(fs_.path("d/again")).unwrap().ino(), stat.ino());
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("f"));
    assert_eq!(fs::read(&link).unwrap(), b"hello");
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(fs_.path("")).unwrap().ino(), 1);
    assert_eq!(names_in(&dir), ["again", "f", "l", "p"]);
    assert_eq!(fs::remove_dir(&dir).map_err(|e| errno(&e)), Err(libc::ENOTEMPTY));
    if is_root("make a device") {
        let device = rustix::fs::makedev(8, 70_000);
        let path = fs_.path("dev");
        rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::from_raw_mode(0o600), device).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().rdev(), device);
    }
}

#[test]
fn times_are_set_left_and_set_to_now() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"x").unwrap();
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let set = |atime, mtime| {
        let times = Timestamps { last_access: atime, last_modification: mtime };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let stat = fs::metadata(&path).unwrap();
        ((stat.atime(), stat.atime_nsec()), (stat.mtime(), stat.mtime_nsec()))
    };
    assert_eq!(set(time(1000, 7), time(-2, 999_999_999)), ((1000, 7), (-2, 999_999_999)));
    assert_eq!(set(time(0, UTIME_OMIT), time(5, 0)), ((1000, 7), (5, 0)));
    let (atime, mtime) = set(time(0, UTIME_NOW), time(0, UTIME_OMIT));
    assert!(atime.0 > 1_600_000_000);
    assert_eq!(mtime, (5, 0));
    fs::write(&path, b"y").unwrap();
    assert!(fs::metadata(&path).unwrap().mtime() > 1_600_000_000);
}

#[test]
fn renames_replace_refuse_and_exchange_as_their_flags_say() {
    let fs_ = Mounted::new();
    let (a, b) = (fs_.path("a"), fs_.path("b"));
    fs::write(&a, b"a").unwrap();
    fs::write(&b, b"b").unwrap();
    assert_eq!(rename(&a, &b, RenameFlags::NOREPLACE), Err(libc::EEXIST));
    rename(&a, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    assert_eq!(rename(&a, &b, RenameFlags::WHITEOUT), Err(libc::EINVAL));
    rename(&a, &b, RenameFlags::empty()).unwrap();
    assert_eq!((names_in(&fs_.path("")), fs::read(&b).unwrap()), (vec!["b".to_owned()], b"b".to_vec()));
    fs::create_dir_all(fs_.path("x/y")).unwrap();
    assert_eq!(rename(&fs_.path("x"), &fs_.path("x/y/z"), RenameFlags::empty()), Err(libc::EINVAL));
}

#[test]
fn names_too_long_and_missing_are_refused_with_their_numbers() {
    let fs_ = Mounted::new();
    let long = fs_.path(&"n".repeat(256));
    assert_eq!(fs::write(&long, b"").map_err(|e| errno(&e)), Err(libc::ENAMETOOLONG));
    fs::write(fs_.path(&"n".repeat(255)), b"").unwrap();
    assert_eq!(fs::read(fs_.path("none")).map_err(|e| errno(&e)), Err(libc::ENOENT));
    fs::write(fs_.path("none"), b"").unwrap();
    assert!(fs::read(fs_.path("none")).is_ok());
    assert_eq!(fs::create_dir(fs_.path("none/x")).map_err(|e| errno(&e)), Err(libc::ENOTDIR));
}

#[test]
fn a_large_directory_is_listed_whole_and_survives_its_emptying_while_listed() {
    let fs_ = Mounted::new();
    let dir = fs_.path("d");
    fs::create_dir(&dir).unwrap();
    let expected: Vec<String> = (0..600).map(|i| format!("{i:04}-{}", "n".repeat(i % 60))).collect();
    for name in &expected {
        fs::write(dir.join(name), name).unwrap();
    }
    assert_eq!(names_in(&dir), expected);
    // As `rm -rf` does: remove while the listing continues.
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().len(), entry.file_name().len() as u64);
        fs::remove_file(entry.path()).unwrap();
    }
    assert!(names_in(&dir).is_empty());
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_listing_goes_on_from_any_place_and_begins_anew_when_rewound() {
    let fs_ = Mounted::new();
    let dir = fs_.path("d");
    fs::create_dir(&dir).unwrap();
    for i in 0..50 {
        fs::write(dir.join(format!("{i}")), b"").unwrap();
    }
    let mut listing = rustix::fs::Dir::read_from(fs::File::open(&dir).unwrap()).unwrap();
    let all: Vec<(Vec<u8>, i64)> = std::iter::from_fn(|| listing.read())
        .map(|entry| entry.map(|e| (e.file_name().to_bytes().to_vec(), e.offset())).unwrap())
        .collect();
    assert_eq!(all.len(), 52);
    assert_eq!((&all[0].0[..], &all[1].0[..]), (&b"."[..], &b".."[..]));
    for at in [0, 1, 2, 17, 51] {
        listing.seek(all[at].1).unwrap();
        let rest: Vec<Vec<u8>> = std::iter::from_fn(|| listing.read())
            .map(|entry| entry.unwrap().file_name().to_bytes().to_vec())
            .collect();
        let expected: Vec<Vec<u8>> = all[at + 1..].iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(rest, expected, "behind entry {at}");
    }
    fs::write(dir.join("new"), b"").unwrap();
    listing.rewind();
    assert_eq!(std::iter::from_fn(|| listing.read()).count(), 53);
}

#[test]
fn extended_attributes_are_kept_listed_and_refused_by_the_rules() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"x").unwrap();
    assert_eq!(xattr::get(&path, "user.a").unwrap(), None);
    assert_eq!(xattr::list(&path).unwrap().count(), 0);
    assert_eq!(xattr::get(&path, "security.capability").unwrap(), None);
    xattr::set(&path, "user.a", b"value").unwrap();
    xattr::set(&path, "user.empty", b"").unwrap();
    assert_eq!(xattr::get(&path, "user.a").unwrap().unwrap(), b"value");
    assert_eq!(xattr::get(&path, "user.empty").unwrap().unwrap(), b"");
    let mut names: Vec<_> = xattr::list(&path).unwrap().collect();
    names.sort();
    assert_eq!(names, ["user.a", "user.empty"]);
    let mut small = [0u8; 2];
    let short = rustix::fs::getxattr(&path, "user.a", &mut small);
    assert_eq!(short.unwrap_err(), rustix::io::Errno::RANGE);
    let flags = rustix::fs::XattrFlags::CREATE;
    assert_eq!(rustix::fs::setxattr(&path, "user.a", b"", flags).unwrap_err(), rustix::io::Errno::EXIST);
    let flags = rustix::fs::XattrFlags::REPLACE;
    assert_eq!(rustix::fs::setxattr(&path, "user.b", b"", flags).unwrap_err(), rustix::io::Errno::NODATA);
    xattr::remove(&path, "user.a").unwrap();
    assert_eq!(xattr::get(&path, "user.a").unwrap(), None);
    // Version 2: rw- for the owner, r-- for the group, --- for others.
    let nobody = [0xff, 0xff, 0xff, 0xff];
    let entries = [[1, 0, 6, 0], nobody, [4, 0, 4, 0], nobody, [0x20, 0, 0, 0], nobody];
    let acl = [vec![2, 0, 0, 0], entries.concat()].concat();
    let acl = xattr::set(&path, "system.posix_acl_access", &acl).map_err(|e| errno(&e));
    assert_eq!(acl, Err(libc::EOPNOTSUPP));
    if is_root("set a trusted attribute") {
        xattr::set(&path, "trusted.t", b"1").unwrap();
        assert_eq!(xattr::get(&path, "trusted.t").unwrap().unwrap(), b"1");
    }
}
