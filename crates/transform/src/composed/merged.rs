//! The merged directory: the whole index in one file, so that a start reads this file and few blocks.
//!
//! ```text
//!   "shoalmrg" | crc32c u32 | version u16 | id 16 bytes | epoch u64 | applied u64 | newest u128
//!   extents    count, each: file u16, lane u8, number u64, writer (bool, 16 bytes), done u32, at u32,
//!              ended bool
//!   objects    count, each: see the code
//!   entries    count of directories, each: dir u64, count, each: name, stamp u128, object u64
//! ```
//!
//! The file is written when a writer ends. Processes that publish each write (`shoal run`) do not end a log
//! in an orderly way: they write the file at their start. It is not written while another writer runs, or if
//! few records are new. First the blocks are made durable. Then the file is written under another name and
//! renamed. For each extent it states the position up to which it covers the records. A reader scans the
//! later records in the blocks.
//!
//! The file is ignored, and the blocks are scanned, if it is damaged, has another `id` or `epoch` (the
//! number of the last compaction), or names an extent that is not claimed. So a bad file costs time, and
//! loses no byte.

use super::format::{Changed, Refused, Stamp, VERSION, kind_of};
use super::index::{Entries, Leads, Names};
use super::lanes::Extent;
use super::object::{NOWHERE, Object, Origin, Register, Stored};
use super::scan::Known;
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::Name;
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"shoalmrg";
/// Things of one kind, at most.
const COUNT_MAX: usize = 1 << 28;
/// A directory's last name: there is none, it stands without its stamp (as older programs write it), or
/// with it.
const LAST_NONE: u8 = 0;
const LAST_PLAIN: u8 = 1;
const LAST_STAMPED: u8 = 2;

/// How far each extent was read.
pub(super) type Extents = BTreeMap<Extent, Known>;

/// A merged directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merged {
    pub(super) id: [u8; 16],
    pub(super) epoch: u64,
    pub(super) extents: Extents,
    pub(super) names: Names,
}

fn put_register<T: Copy>(w: &mut Writer, register: &Register<T>, put: impl Fn(&mut Writer, T)) {
    w.put_u128(register.stamp);
    put(w, register.value);
}

fn put_object(w: &mut Writer, object: &Object) {
    w.put_bool(object.origin.is_some());
    if let Some(origin) = &object.origin {
        w.put_u128(origin.stamp);
        w.put_u8(origin.kind as u8);
        w.put_u64(origin.rdev);
        w.put_bytes(&origin.target);
    }
    for register in [&object.mode, &object.uid, &object.gid] {
        put_register(w, register, Writer::put_u32);
    }
    for register in [&object.atime, &object.mtime, &object.ctime] {
        put_register(w, register, Writer::put_i64);
    }
    w.put_count(object.xattrs.len());
    for (name, value) in &object.xattrs {
        w.put_bytes(name);
        w.put_u128(value.stamp);
        w.put_bool(value.value.is_some());
        w.put_bytes(value.value.as_deref().unwrap_or_default());
    }
    w.put_count(object.stored.len());
    for (at, stored) in &object.stored {
        w.put_varint(*at);
        w.put_varint(stored.len);
        w.put_u128(stored.stamp);
        w.put_u64(stored.place);
        w.put_u32(stored.at);
    }
    for pairs in [&object.cuts, &object.sizes] {
        w.put_count(pairs.len());
        for (stamp, size) in pairs {
            w.put_u128(*stamp);
            w.put_u64(*size);
        }
    }
    w.put_u128(object.written);
    // Of a directory that has a name, that one is the last.
    match &object.last.value {
        Some((dir, name)) if object.links.is_empty() => {
            w.put_u8(LAST_STAMPED);
            w.put_u128(object.last.stamp);
            w.put_u64(*dir);
            w.put_bytes(name.as_bytes());
        }
        _ => w.put_u8(LAST_NONE),
    }
}

fn register<T>(
    r: &mut Reader<'_>,
    get: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Register<T>, DecodeError> {
    Ok(Register { stamp: r.get_u128()?, value: get(r)? })
}

fn bytes(r: &mut Reader<'_>, most: usize) -> Result<Bytes, DecodeError> {
    Ok(Bytes::copy_from_slice(r.get_bytes(most)?))
}

fn name(r: &mut Reader<'_>) -> Result<Name, DecodeError> {
    Name::new(r.get_bytes(255)?).map_err(|_| DecodeError::Invalid("name"))
}

fn pairs(r: &mut Reader<'_>) -> Result<Vec<(Stamp, u64)>, DecodeError> {
    let count = r.get_count(COUNT_MAX, 24)?;
    (0..count).map(|_| Ok((r.get_u128()?, r.get_u64()?))).collect()
}

fn object(r: &mut Reader<'_>) -> Result<Object, DecodeError> {
    let mut object = Object::default();
    if r.get_bool()? {
        let (stamp, kind) = (r.get_u128()?, kind_of(r.get_u8()?)?);
        object.origin = Some(Origin { stamp, kind, rdev: r.get_u64()?, target: bytes(r, 4096)? });
    }
    object.mode = register(r, |r| r.get_u32())?;
    object.uid = register(r, |r| r.get_u32())?;
    object.gid = register(r, |r| r.get_u32())?;
    object.atime = register(r, |r| r.get_i64())?;
    object.mtime = register(r, |r| r.get_i64())?;
    object.ctime = register(r, |r| r.get_i64())?;
    for _ in 0..r.get_count(COUNT_MAX, 19)? {
        let (name, stamp) = (bytes(r, 255)?, r.get_u128()?);
        let is_set = r.get_bool()?;
        let value = bytes(r, 64 << 10)?;
        object.xattrs.insert(name, Register { stamp, value: is_set.then_some(value) });
    }
    let mut end = 0;
    for _ in 0..r.get_count(COUNT_MAX, 30)? {
        let (at, len) = (r.get_varint()?, r.get_varint()?);
        let stored = Stored { len, stamp: r.get_u128()?, place: r.get_u64()?, at: r.get_u32()? };
        let next = at.checked_add(len).filter(|next| at >= end && *next > at && i64::try_from(*next).is_ok());
        end = next.ok_or(DecodeError::Invalid("place of bytes"))?;
        object.stored.insert(at, stored);
    }
    (object.cuts, object.sizes) = (pairs(r)?, pairs(r)?);
    object.written = r.get_u128()?;
    let stamp = match r.get_u8()? {
        LAST_NONE => return Ok(object),
        LAST_PLAIN => 0,
        LAST_STAMPED => r.get_u128()?,
        _ => return Err(DecodeError::Invalid("last name")),
    };
    let link = (r.get_u64()?, name(r)?);
    object.named(stamp, &link);
    Ok(object)
}

impl Merged {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_raw(MAGIC);
        let sum = w.hold_u32();
        w.put_u16(VERSION);
        w.put_raw(&self.id);
        w.put_u64(self.epoch);
        w.put_u64(self.names.applied);
        w.put_u128(self.names.newest);
        w.put_count(self.extents.len());
        for (extent, known) in &self.extents {
            w.put_u16(extent.file);
            w.put_u8(extent.lane);
            w.put_u64(extent.number);
            w.put_bool(known.writer.is_some());
            w.put_raw(&known.writer.map_or([0; 16], |writer| writer.0));
            w.put_u32(known.done);
            w.put_u32(known.at);
            w.put_bool(known.ended);
        }
        w.put_count(self.names.objects.len());
        for (number, object) in &self.names.objects {
            w.put_u64(*number);
            put_object(&mut w, object);
        }
        w.put_count(self.names.dirs.len());
        for (dir, entries) in &self.names.dirs {
            w.put_u64(*dir);
            w.put_count(entries.names.len());
            for (name, leads) in &entries.names {
                w.put_bytes(name.as_bytes());
                w.put_u128(leads.stamp);
                w.put_u64(leads.object);
            }
        }
        let crc = crc32c::crc32c(&w.as_slice()[sum + 4..]);
        w.patch_u32(sum, crc);
        w.into_vec()
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none, or of a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Merged, Refused> {
        let r = &mut Reader::new(bytes);
        if &r.get_array::<8>()? != MAGIC {
            return Err(Refused::Damaged);
        }
        let (sum, rest) = (r.get_u32()?, r.get_rest());
        let r = &mut Reader::new(rest);
        let version = r.get_u16()?;
        if version > VERSION {
            return Err(Refused::Newer(version, VERSION));
        }
        if crc32c::crc32c(rest) != sum {
            return Err(Refused::Damaged);
        }
        Merged::decode_body(r).map_err(Refused::from)
    }

    fn decode_body(r: &mut Reader<'_>) -> Result<Merged, DecodeError> {
        let (id, epoch) = (r.get_array()?, r.get_u64()?);
        let mut names = Names { applied: r.get_u64()?, newest: r.get_u128()?, ..Names::default() };
        let mut extents = Extents::new();
        for _ in 0..r.get_count(COUNT_MAX, 37)? {
            let extent = Extent { file: r.get_u16()?, lane: r.get_u8()?, number: r.get_u64()? };
            let is_known = r.get_bool()?;
            let writer = WriterId(r.get_array()?);
            let known = Known {
                writer: is_known.then_some(writer),
                done: r.get_u32()?,
                at: r.get_u32()?,
                ended: r.get_bool()?,
            };
            if extent.lane >= super::lanes::LANES {
                return Err(DecodeError::Invalid("lane"));
            }
            extents.insert(extent, known);
        }
        for _ in 0..r.get_count(COUNT_MAX, 100)? {
            let number = r.get_u64()?;
            let object = object(r)?;
            names.objects.insert(number, object);
        }
        for _ in 0..r.get_count(COUNT_MAX, 9)? {
            let dir = r.get_u64()?;
            let mut entries = Entries::default();
            for _ in 0..r.get_count(COUNT_MAX, 26)? {
                let (name, stamp, object) = (name(r)?, r.get_u128()?, r.get_u64()?);
                entries.names.insert(name, Leads { stamp, object });
            }
            names.dirs.insert(dir, entries);
        }
        r.finish()?;
        names.link_all();
        Ok(Merged { id, epoch, extents, names })
    }

    /// Whether all places that it names are in blocks of so many bytes.
    pub(super) fn fits(&self, block: u32) -> bool {
        let is_in = |stored: &Stored| {
            let end = u64::from(stored.at).checked_add(stored.len);
            stored.place == NOWHERE || end.is_some_and(|end| end <= u64::from(block))
        };
        self.extents.iter().all(|(extent, known)| known.fits(*extent, block))
            && self.names.objects.values().flat_map(|object| object.stored.values()).all(is_in)
    }

    /// The least that `Changed` says of it: for fixtures.
    pub fn sample() -> Merged {
        let mut names = Names::default();
        let changed = Changed { mode: Some(0o644), ..Changed::default() };
        let record =
            super::format::Record { stamp: 5, object: 7, op: super::format::Op::Attributes(changed) };
        names.apply(&record, (0, 0));
        let extent = Extent { file: 0, lane: 1, number: 2 };
        let known = Known { writer: Some(WriterId([3; 16])), done: 1, at: 64, ended: false };
        Merged { id: [9; 16], epoch: 1, extents: BTreeMap::from([(extent, known)]), names }
    }
}
