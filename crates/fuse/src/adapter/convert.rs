//! Attributes, times and device numbers between ShoalFS's form and FUSE's.

use crate::fs::When;
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use shoal_proto::{Attr, Handle, Kind, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The size that `st_blksize` advises programs to read and write at once, in bytes. Every write is a message
/// to a server, so programs that fill a buffer of this size first (all of C's standard output does) write
/// faster than by pages.
const BLOCK_ADVISED: u32 = 64 * 1024;
/// The unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// An inode's number is its object's handle; the root's is 1 on both sides.
pub(super) fn handle(ino: INodeNo) -> Handle {
    Handle(ino.0)
}

/// See [`handle`].
pub(super) fn ino(handle: Handle) -> INodeNo {
    INodeNo(handle.0)
}

/// A kind as FUSE knows it. A datafile is in no directory; seen anyway, it is a file.
pub(super) fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File | Kind::Datafile => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn attributes(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: ino(attr.handle),
        size: attr.size,
        blocks: blocks(attr),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: kind(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device_to_kernel(attr.rdev),
        blksize: BLOCK_ADVISED,
        flags: 0,
    }
}

/// **A file with bytes has a block**: programs that archive (GNU tar) take one without for a hole from end to
/// end, and do not read it.
fn blocks(attr: &Attr) -> u64 {
    let blocks = attr.space.div_ceil(BLOCK);
    match attr.kind {
        Kind::File if attr.size > 0 => blocks.max(1),
        _ => blocks,
    }
}

/// All that is known of `.` and `..` in a listing; the kernel takes no more from it.
pub(super) fn dot_attributes(handle: Handle) -> FileAttr {
    FileAttr {
        ino: ino(handle),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_ADVISED,
        flags: 0,
    }
}

/// For an entry whose attributes are not known. The kernel lists the entry and takes no attributes from it:
/// with a size that no file can have they are not valid (`fuse_direntplus_link`, since Linux 5.5). A program
/// that wants them has the kernel look the name up. An entry without a node (`nodeid` 0) would say the same,
/// but fuser has one field for that and for the inode number, and there are programs for which an entry
/// without an inode number is not there.
pub(super) fn no_attributes(handle: Handle, kind_of: Kind) -> FileAttr {
    FileAttr { size: u64::MAX, kind: kind(kind_of), nlink: 1, ..dot_attributes(handle) }
}

/// A device's number as `makedev(3)` gives it, as FUSE carries it: 12 bits of major among 20 of minor.
fn device_to_kernel(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// See [`device_to_kernel`].
pub(super) fn device_from_kernel(device: u32) -> u64 {
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    rustix::fs::makedev(major, minor)
}

fn system_time(time: Time) -> SystemTime {
    let (seconds, nanoseconds) = time.parts();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let exact = base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())));
    exact.unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel; beyond what 64 bits of nanoseconds hold (the years 1677 and 2262) the last that
/// they do.
///
/// Nanoseconds count forwards from a second, also from one before 1970. fuser 0.18 counts those backwards
/// when it decodes (not when it encodes): put right here.
pub(super) fn time_from_kernel(time: SystemTime) -> Time {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds), before.subsec_nanos())
        }
    };
    Time::from_parts(seconds, nanoseconds)
}

pub(super) fn when(when: TimeOrNow) -> When {
    match when {
        TimeOrNow::Now => When::Now,
        TimeOrNow::SpecificTime(at) => When::At(time_from_kernel(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::samples;

    fn attr(kind: Kind, size: u64, space: u64) -> Attr {
        Attr { handle: Handle(9), kind, mode: 0o4755, nlink: 3, size, space, ..samples::attr() }
    }

    #[test]
    fn times_go_to_the_kernel_as_they_are() {
        let half = Duration::from_millis(500);
        assert_eq!(system_time(Time(5)), UNIX_EPOCH + Duration::from_nanos(5));
        assert_eq!(system_time(Time(-1_500_000_000)), UNIX_EPOCH - Duration::from_secs(1) - half);
        assert_eq!(system_time(Time(i64::MIN)), UNIX_EPOCH - Duration::from_nanos(1 << 63));
    }

    #[test]
    fn times_from_the_kernel_are_put_right_and_kept_within_what_is_kept() {
        // Fuser's form of -2 seconds and 999,999,999 nanoseconds.
        let decoded = UNIX_EPOCH - Duration::new(2, 999_999_999);
        assert_eq!(time_from_kernel(decoded), Time(-1_000_000_001));
        assert_eq!(time_from_kernel(UNIX_EPOCH + Duration::new(2, 7)), Time(2_000_000_007));
        assert_eq!(time_from_kernel(UNIX_EPOCH + Duration::from_secs(1 << 40)), Time(i64::MAX));
        assert_eq!(time_from_kernel(UNIX_EPOCH - Duration::from_secs(1 << 40)), Time(i64::MIN));
    }

    #[test]
    fn device_numbers_survive_the_way_through() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (4095, 0xf_ffff)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(device_from_kernel(device_to_kernel(device)), device);
        }
    }

    #[test]
    fn no_file_with_bytes_looks_like_one_hole() {
        assert_eq!(blocks(&attr(Kind::File, 10, 0)), 1);
        assert_eq!(blocks(&attr(Kind::File, 0, 0)), 0);
        assert_eq!(blocks(&attr(Kind::File, 1000, 513)), 2);
        assert_eq!(blocks(&attr(Kind::Symlink, 10, 0)), 0);
    }

    #[test]
    fn a_mode_is_split_into_kind_and_bits() {
        let converted = attributes(&attr(Kind::File, 1, 1));
        assert_eq!((converted.perm, converted.kind), (0o4755, FileType::RegularFile));
        assert_eq!(handle(ino(Handle::ROOT)), Handle(1));
    }
}
