//! What an object is: kinds, attributes, changes of them.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::{Layout, Template};
use crate::shards::Shards;
use crate::wire::{wire_choice, wire_struct};
use crate::{ChangeCount, Generation, Handle};

/// A file's time: nanoseconds since 1970, signed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub i64);

impl Codec for Time {
    fn encode(&self, w: &mut Writer) {
        w.put_i64(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Time(r.get_i64()?))
    }
}

wire_choice! {
    /// The kind of an object.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
    pub enum Kind {
        /// A regular file's metafile.
        File = 1,
        /// A directory.
        Directory = 2,
        /// A symbolic link.
        Symlink = 3,
        /// A FIFO.
        Fifo = 4,
        /// A socket.
        Socket = 5,
        /// A character device.
        CharDevice = 6,
        /// A block device.
        BlockDevice = 7,
        /// A datafile: never in a directory.
        Datafile = 8,
    }
}

impl Kind {
    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Kind::File | Kind::Datafile => 0o100_000,
            Kind::Directory => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::CharDevice => 0o020_000,
            Kind::BlockDevice => 0o060_000,
        }
    }

    /// The kind in words.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symbolic link",
            Kind::Fifo => "FIFO",
            Kind::Socket => "socket",
            Kind::CharDevice => "character device",
            Kind::BlockDevice => "block device",
            Kind::Datafile => "datafile",
        }
    }
}

wire_struct! {
    /// Attributes as the metadata server knows them. For a file with a `layout` (unstuffed over several servers) `size`,
    /// `space` and `mtime` are only the first datafile's part: the client merges the other datafiles' facts
    /// ([`StreamFacts`]).
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Attr {
        /// The object.
        pub handle: Handle,
        /// Its kind.
        pub kind: Kind,
        /// Permission bits (`0o7777`).
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Hard links (a directory: 2 and its subdirectories).
        pub nlink: u32,
        /// Device number of a device.
        pub rdev: u64,
        /// Bytes: of the file, the link's target, or 4096 for a directory.
        pub size: u64,
        /// Bytes of space taken.
        pub space: u64,
        /// Last access: as set explicitly (reads do not change it).
        pub atime: Time,
        /// Last change of data.
        pub mtime: Time,
        /// Last change of data or attributes.
        pub ctime: Time,
        /// Birth.
        pub btime: Time,
        /// The generation to send with data requests.
        pub generation: Generation,
        /// The parent of a directory (the root: itself); elsewhere zero.
        pub parent: Handle,
        /// What a file's data is to be laid out as, or a directory's new files.
        pub template: Template,
        /// Where the data is, once unstuffed over several datafiles.
        pub layout: Option<Layout>,
        /// The shards of a directory that is split: then `nlink`, `mtime` and `ctime` are only those of the shard that was
        /// asked, and the client merges the others'.
        pub shards: Shards,
    }
}

wire_struct! {
    /// Facts of one byte stream: a stuffed metafile's or a datafile's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct StreamFacts {
        /// Its generation.
        pub generation: Generation,
        /// Its length in bytes.
        pub size: u64,
        /// Bytes of space taken.
        pub space: u64,
        /// The newest write since the generation began.
        pub written_at: Option<Time>,
        /// How far its bytes have changed: of a read, as of before its first byte.
        pub count: ChangeCount,
    }
}

wire_struct! {
    /// A stream's change count was set.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Move {
        /// What it was until then.
        pub from: ChangeCount,
        /// What it is since.
        pub to: ChangeCount,
    }
}

wire_struct! {
    /// Changes of attributes; `None` leaves as is. Sizes are changed by truncate.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct SetAttr {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Last access.
        pub atime: Option<Time>,
        /// Last change of data, explicit.
        pub mtime: Option<Time>,
        /// Last change of attributes: given only by a mount whose kernel keeps it; else the server's now.
        pub ctime: Option<Time>,
        /// Clear set-user-id and set-group-id as a write by another than root does.
        pub kill_privileges: bool,
    }
}

impl Time {
    /// Seconds and nanoseconds, as `timespec` has them.
    pub const fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(1_000_000_000), self.0.rem_euclid(1_000_000_000) as u32)
    }

    /// From seconds and nanoseconds; saturates at the years 1677 and 2262.
    pub const fn from_parts(secs: i64, nanos: u32) -> Time {
        Time(secs.saturating_mul(1_000_000_000).saturating_add(nanos as i64))
    }
}
