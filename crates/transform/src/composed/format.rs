//! The bytes of a composed directory: settings, block headers, records.
//!
//! ```text
//!   settings   "shoalcmp" | crc32c u32 | version u16 | id 16 bytes | block u32 | files u16
//!   header     "shoalblk" | crc32c u32 | version u16 | 0 u16 | writer 16 bytes | sequence u64
//!              | previous u64 | place u64 | directory u64                               64 bytes
//!   record     crc32c u32 | len u32 | kind u8 | clock u64 | tie u64 | object u64 | rest of the body
//!   data       offset u64, bytes          hole  offset u64, len u64        size   size u64
//!   create     kind u8, mode u32, uid u32, gid u32, device u64, dir u64, name, target
//!   attributes bits u8, then the attributes whose bits are set
//!   xattr      name, bool, value          bind  [dir u64, name, object u64]
//!   next       place u64                  end
//! ```
//!
//! All numbers are little endian. A check sum covers all bytes after itself, up to the end of its header or
//! record. A *place* is a block: its physical file in the upper bits, and its number in that file in the
//! lower 40. `previous` is the place of the writer's previous block plus 1, or 0. A *stamp* orders all
//! changes: the `clock`, and at equal clocks the `tie`, which is the first 8 bytes of the writer's id.
//!
//! **A record whose check sum or form is wrong ends its block.** Bytes of zero are bytes that were not
//! written yet.

use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Kind, Name};

pub use super::settings::Settings;

/// The version of the format.
pub const VERSION: u16 = 1;
/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a record before the rest of its body.
pub const RECORD_HEAD: usize = 9 + 24;
/// Bytes of a data record before its data.
pub const DATA_HEAD: usize = RECORD_HEAD + 8;
/// Bytes at a block's end that only `next` or `end` may take.
pub const RESERVE: usize = RECORD_HEAD + 8;
/// The smallest and the largest block.
pub const BLOCK_MIN: u32 = 16 << 10;
/// See [`BLOCK_MIN`].
pub const BLOCK_MAX: u32 = 64 << 20;
/// Physical files, at most.
pub const FILES_MAX: u16 = 1024;
/// Bits of a block's number in its file.
pub const BLOCK_BITS: u32 = 40;
/// Names that one record binds, at most.
const BINDS_MAX: usize = 8;
/// The longest target of a link, and the longest name of an extended attribute and its value.
const TARGET_MAX: usize = 4096;
const XATTR_NAME_MAX: usize = 255;
const XATTR_VALUE_MAX: usize = 64 << 10;

const BLOCK_MAGIC: &[u8; 8] = b"shoalblk";

/// The order of all changes: the hybrid clock above, the writer's first bits below.
pub type Stamp = u128;

/// A stamp.
pub const fn stamp(clock: u64, tie: u64) -> Stamp {
    (clock as u128) << 64 | tie as u128
}

/// The clock of a stamp.
pub const fn clock_of(stamp: Stamp) -> u64 {
    (stamp >> 64) as u64
}

/// Why bytes are no settings, header or record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// A later program made them.
    #[error("format {0} is newer than this program, which reads format {1}: use a newer shoal")]
    Newer(u16, u16),
    /// They are something else, or damaged.
    #[error("the bytes are damaged, or not of a composed directory")]
    Damaged,
}

impl From<DecodeError> for Refused {
    fn from(_: DecodeError) -> Refused {
        Refused::Damaged
    }
}

/// Seal bytes whose sum stands at 8.
pub(super) fn seal(mut w: Writer, sum: usize) -> Vec<u8> {
    let crc = crc32c::crc32c(&w.as_slice()[sum + 4..]);
    w.patch_u32(sum, crc);
    w.into_vec()
}

/// Open sealed bytes: the version comes first after the sum. A newer version is said before the sum is held
/// against the rest.
pub(super) fn unseal<'a>(
    bytes: &'a [u8],
    magic: &[u8; 8],
    newest: u16,
) -> Result<(u16, Reader<'a>), Refused> {
    let r = &mut Reader::new(bytes);
    if &r.get_array::<8>()? != magic {
        return Err(Refused::Damaged);
    }
    let (sum, rest) = (r.get_u32()?, r.get_rest());
    let mut r = Reader::new(rest);
    let version = r.get_u16()?;
    if version > newest {
        return Err(Refused::Newer(version, newest));
    }
    if version == 0 || crc32c::crc32c(rest) != sum {
        return Err(Refused::Damaged);
    }
    Ok((version, r))
}

/// The head of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose block it is.
    pub writer: WriterId,
    /// Its number among that writer's.
    pub sequence: u64,
    /// The place of that writer's block before, and 1; 0: it is the first.
    pub previous: u64,
    /// Its own place.
    pub place: u64,
    /// The directory's bits in short.
    pub directory: u64,
}

impl Header {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_raw(BLOCK_MAGIC);
        let sum = w.hold_u32();
        w.put_u16(VERSION);
        w.put_u16(0);
        w.put_raw(&self.writer.0);
        w.put_u64(self.sequence);
        w.put_u64(self.previous);
        w.put_u64(self.place);
        w.put_u64(self.directory);
        seal(w, sum)
    }

    /// From the first bytes of a block.
    ///
    /// # Errors
    /// They are no header, or one of a newer format.
    pub fn decode(block: &[u8]) -> Result<Header, Refused> {
        let (_, mut r) = unseal(block.get(..HEADER_BYTES).ok_or(Refused::Damaged)?, BLOCK_MAGIC, VERSION)?;
        r.get_u16()?;
        let header = Header {
            writer: WriterId(r.get_array()?),
            sequence: r.get_u64()?,
            previous: r.get_u64()?,
            place: r.get_u64()?,
            directory: r.get_u64()?,
        };
        r.finish()?;
        Ok(header)
    }
}

/// Changed attributes; `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changed {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access, in nanoseconds.
    pub atime: Option<i64>,
    /// Last change of data.
    pub mtime: Option<i64>,
    /// Last change of attributes.
    pub ctime: Option<i64>,
}

/// A name, and the object that it leads to from now on; 0: to none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The directory.
    pub dir: u64,
    /// The name there.
    pub name: Name,
    /// The object, or 0.
    pub object: u64,
}

/// A new object and its first name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The device that it is.
    pub rdev: u64,
    /// The directory.
    pub dir: u64,
    /// The name there.
    pub name: Name,
    /// The target of a link.
    pub target: Bytes,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Bytes of a file: so many, at this offset. They follow the head of the record.
    Data {
        /// Where in the file.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Zeros of a file.
    Hole {
        /// Where in the file.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// A new object.
    Create(Made),
    /// A new size.
    Size(u64),
    /// New attributes.
    Attributes(Changed),
    /// An extended attribute; `None`: removed.
    Xattr(Bytes, Option<Bytes>),
    /// Names.
    Bind(Vec<Bind>),
    /// The block ends; the writer's next one is there.
    Next(u64),
    /// The writer has ended.
    End,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// When.
    pub stamp: Stamp,
    /// Of which object; 0 where the record names its objects itself.
    pub object: u64,
    /// The change.
    pub op: Op,
}

impl Op {
    fn number(&self) -> u8 {
        match self {
            Op::Data { .. } => 1,
            Op::Hole { .. } => 2,
            Op::Create(_) => 3,
            Op::Size(_) => 4,
            Op::Attributes(_) => 5,
            Op::Xattr(..) => 6,
            Op::Bind(_) => 7,
            Op::Next(_) => 8,
            Op::End => 9,
        }
    }
}

impl Record {
    /// The record's bytes, with `data` for a data record.
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let mut w = Writer::with_capacity(DATA_HEAD + data.len() + 64);
        let (sum, len) = (w.hold_u32(), w.hold_u32());
        w.put_u8(self.op.number());
        w.put_u64(clock_of(self.stamp));
        w.put_u64(self.stamp as u64);
        w.put_u64(self.object);
        match &self.op {
            Op::Data { offset, .. } => {
                w.put_u64(*offset);
                w.put_raw(data);
            }
            Op::Hole { offset, len } => {
                w.put_u64(*offset);
                w.put_u64(*len);
            }
            Op::Create(made) => {
                w.put_u8(made.kind as u8);
                w.put_u32(made.mode);
                w.put_u32(made.uid);
                w.put_u32(made.gid);
                w.put_u64(made.rdev);
                w.put_u64(made.dir);
                w.put_bytes(made.name.as_bytes());
                w.put_bytes(&made.target);
            }
            Op::Size(size) => w.put_u64(*size),
            Op::Attributes(changed) => put_changed(&mut w, changed),
            Op::Xattr(name, value) => {
                w.put_bytes(name);
                w.put_bool(value.is_some());
                w.put_bytes(value.as_deref().unwrap_or_default());
            }
            Op::Bind(binds) => {
                w.put_count(binds.len());
                for bind in binds {
                    w.put_u64(bind.dir);
                    w.put_bytes(bind.name.as_bytes());
                    w.put_u64(bind.object);
                }
            }
            Op::Next(place) => w.put_u64(*place),
            Op::End => {}
        }
        let body = w.len() - 9;
        w.patch_u32(len, body as u32);
        seal(w, sum)
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Record, DecodeError> {
        let r = &mut Reader::new(body);
        let stamp = stamp(r.get_u64()?, r.get_u64()?);
        let object = r.get_u64()?;
        let op = match kind {
            1 => {
                let offset = r.get_u64()?;
                Op::Data { offset, len: r.get_rest().len() as u64 }
            }
            2 => Op::Hole { offset: r.get_u64()?, len: r.get_u64()? },
            3 => Op::Create(Made {
                kind: kind_of(r.get_u8()?)?,
                mode: r.get_u32()?,
                uid: r.get_u32()?,
                gid: r.get_u32()?,
                rdev: r.get_u64()?,
                dir: r.get_u64()?,
                name: name(r)?,
                target: Bytes::copy_from_slice(r.get_bytes(TARGET_MAX)?),
            }),
            4 => Op::Size(r.get_u64()?),
            5 => Op::Attributes(changed(r)?),
            6 => {
                let name = Bytes::copy_from_slice(r.get_bytes(XATTR_NAME_MAX)?);
                let is_set = r.get_bool()?;
                let value = Bytes::copy_from_slice(r.get_bytes(XATTR_VALUE_MAX)?);
                Op::Xattr(name, is_set.then_some(value))
            }
            7 => {
                let count = r.get_count(BINDS_MAX, 17)?;
                let mut binds = Vec::with_capacity(count);
                for _ in 0..count {
                    binds.push(Bind { dir: r.get_u64()?, name: name(r)?, object: r.get_u64()? });
                }
                Op::Bind(binds)
            }
            8 => Op::Next(r.get_u64()?),
            9 => Op::End,
            _ => return Err(DecodeError::Invalid("kind of a record")),
        };
        r.finish()?;
        if let Op::Data { offset, len } | Op::Hole { offset, len } = op
            && offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err())
        {
            return Err(DecodeError::Invalid("place of bytes"));
        }
        Ok(Record { stamp, object, op })
    }
}

fn name(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    Name::new(r.get_bytes(255)?).map_err(|_| DecodeError::Invalid("name"))
}

/// A kind from its number.
pub(super) fn kind_of(number: u8) -> Result<Kind, DecodeError> {
    let kinds = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];
    kinds.into_iter().find(|kind| *kind as u8 == number).ok_or(DecodeError::Invalid("kind of an object"))
}

fn put_changed(w: &mut Writer, changed: &Changed) {
    let words = [changed.mode, changed.uid, changed.gid];
    let times = [changed.atime, changed.mtime, changed.ctime];
    let set = words.iter().map(Option::is_some).chain(times.iter().map(Option::is_some));
    w.put_u8(set.enumerate().fold(0, |bits, (n, set)| bits | u8::from(set) << n));
    words.iter().flatten().for_each(|word| w.put_u32(*word));
    times.iter().flatten().for_each(|time| w.put_i64(*time));
}

fn changed(r: &mut Reader<'_>) -> Result<Changed, DecodeError> {
    let bits = r.get_u8()?;
    if bits >= 1 << 6 {
        return Err(DecodeError::Invalid("bits of attributes"));
    }
    let has = |n: u8| bits & 1 << n != 0;
    Ok(Changed {
        mode: has(0).then(|| r.get_u32()).transpose()?,
        uid: has(1).then(|| r.get_u32()).transpose()?,
        gid: has(2).then(|| r.get_u32()).transpose()?,
        atime: has(3).then(|| r.get_i64()).transpose()?,
        mtime: has(4).then(|| r.get_i64()).transpose()?,
        ctime: has(5).then(|| r.get_i64()).transpose()?,
    })
}

/// The whole records of a part of a block, each with the position where it begins.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// From a position on, which is the start of a record.
    pub fn new(bytes: &'a [u8], at: usize) -> Records<'a> {
        Records { bytes, at: at.min(bytes.len()) }
    }

    /// After the last whole record.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether bytes follow that are no record, and not all zero.
    pub fn is_torn(&self) -> bool {
        self.bytes[self.at..].iter().any(|byte| *byte != 0)
    }
}

impl Iterator for Records<'_> {
    type Item = (Record, usize);

    fn next(&mut self) -> Option<(Record, usize)> {
        let rest = &self.bytes[self.at..];
        let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (sum, len) = (word(0)?, word(4)? as usize);
        let frame = rest.get(4..9usize.checked_add(len)?)?;
        if len < RECORD_HEAD - 9 || crc32c::crc32c(frame) != sum {
            return None;
        }
        let record = Record::decode(frame[4], &frame[5..]).ok()?;
        let begins = self.at;
        self.at += 9 + len;
        Some((record, begins))
    }
}
