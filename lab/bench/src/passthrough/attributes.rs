//! Attributes between the system's form and FUSE's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, UTIME_NOW, UTIME_OMIT};

use super::inodes::Key;

pub(super) fn key(stat: &Stat) -> Key {
    Key { dev: stat.st_dev, ino: stat.st_ino }
}

pub(super) fn attributes(id: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: encode_device(stat.st_rdev),
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as System;
    match kind {
        System::Directory => FileType::Directory,
        System::Symlink => FileType::Symlink,
        System::Fifo => FileType::NamedPipe,
        System::Socket => FileType::Socket,
        System::CharacterDevice => FileType::CharDevice,
        System::BlockDevice => FileType::BlockDevice,
        System::RegularFile | System::Unknown => FileType::RegularFile,
    }
}

/// A device's number as FUSE carries it: 12 bits of major among 20 of minor.
fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

pub(super) fn decode_device(device: u32) -> u64 {
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    rustix::fs::makedev(major, minor)
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds))).unwrap_or(UNIX_EPOCH)
}

/// A time to be set; none is left as it is.
pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => specific(time),
    }
}

fn specific(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
        Err(before) => {
            // Nanoseconds count forwards from a whole second that lies before.
            let before = before.duration();
            let part = before.subsec_nanos();
            let (seconds, nanoseconds) = if part == 0 { (0, 0) } else { (1, 1_000_000_000 - part) };
            Timespec { tv_sec: -(before.as_secs() as i64) - seconds, tv_nsec: nanoseconds.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_the_epoch_survive_the_way_through() {
        for (seconds, nanoseconds) in [(0, 0), (1_700_000_000, 5), (-1, 0), (-2, 999_999_999)] {
            let there = specific(time(seconds, nanoseconds));
            assert_eq!((there.tv_sec, there.tv_nsec as u64), (seconds, nanoseconds));
        }
    }

    #[test]
    fn device_numbers_survive_the_way_through() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(decode_device(encode_device(device)), device);
        }
    }
}
