//! The keys, and the objects of names. Numbers are little endian.
//!
//! ```text
//!   "shoalnam" | version u16 | crc32c u32 of the rest | nonce 16 | kind u8 | id 16 | mode u32 |
//!     uid u32 | gid u32 | atime i64 | mtime i64 | ctime i64 | btime i64 | rdev u64 | has parts u8 |
//!     mtime is of length u64 | content (varint length) | moved from: 0, or 1 and a place |
//!     claim: 0, or 1 and then: token 16 | place | 0, or 1 and the id of the file that is replaced |
//!     0, or 1 and the object that is swapped (varint length)
//!
//!   place: directory id 16 | name (varint length)
//!
//!   "shoalend" | id 16 | token 16       40 bytes: a name that is being removed, and its object;
//!     of a directory, that follows
//! ```
//!
//! **The nonce is drawn for each put of an object.** A store's version of an object is a sum of its bytes: so
//! two objects of a name never have one version, also where a name says again what it said before. Otherwise
//! a put that a store does late would meet its condition once more.
//!
//! In a key a byte of a name other than `A-Z a-z 0-9 . _ -` is `!` and two hexadecimal digits. An id is 32
//! such digits, and an offset 16: so keys of parts are in the order of their offsets.
//!
//! **Most names are known by their length**: only an object of [`ENDED_BYTES`] or less is got by a listing of
//! names. It is a leftover, the marker of a folder, or damage. (A leftover of a directory is longer.)

use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Kind, Name, Owner, Time};
use std::fmt;

const MAGIC: &[u8; 8] = b"shoalnam";
const ENDED: &[u8; 8] = b"shoalend";
const VERSION: u16 = 1;
/// Magic, version and check sum.
const HEAD_BYTES: usize = 14;
/// Bytes of the object of a name that is being removed; of a directory, without that.
pub(crate) const ENDED_BYTES: u64 = 40;
/// Bytes of an object of a name, at most: with one that is swapped.
pub(crate) const NAMED_BYTES_MAX: usize = 1 << 16;

/// The identity of an object, drawn at random and never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Id(pub(crate) [u8; 16]);

impl Id {
    /// The root's.
    pub(crate) const ROOT: Id = Id([0; 16]);

    pub(crate) fn draw(env: &Env) -> Id {
        let mut id = [0; 16];
        env.random(&mut id);
        Id(id)
    }

    pub(crate) fn parse(text: &str) -> Option<Id> {
        let is_own =
            text.len() == 32 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
        is_own.then(|| u128::from_str_radix(text, 16).ok())?.map(|number| Id(number.to_be_bytes()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) dir: Id,
    pub(crate) name: Name,
}

impl Place {
    fn encode(&self, w: &mut Writer) {
        w.put_raw(&self.dir.0);
        w.put_bytes(self.name.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Place, Unreadable> {
        let dir = Id(r.get_array()?);
        let name = Name::new(r.get_bytes(255)?).map_err(|_| Unreadable::Damaged("a name in it is none"))?;
        Ok(Place { dir, name })
    }
}

/// The keys below a prefix, which is empty or ends with `/`.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace(pub(crate) String);

impl KeySpace {
    pub(crate) fn root(&self) -> String {
        format!("{}root", self.0)
    }

    pub(crate) fn directory(&self, dir: Id) -> String {
        format!("{}n/{dir}/", self.0)
    }

    pub(crate) fn name(&self, place: &Place) -> String {
        let mut key = self.directory(place.dir);
        for byte in place.name.as_bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' => key.push(*byte as char),
                other => key.push_str(&format!("!{other:02x}")),
            }
        }
        key
    }

    /// The name in a key of a directory; `None`: it is not one of this file system's.
    pub(crate) fn name_of(&self, dir: Id, key: &str) -> Option<Name> {
        let text = key.strip_prefix(&self.directory(dir))?;
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            if *first != b'!' {
                bytes.push(*first);
                rest = after;
                continue;
            }
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        }
        let name = Name::new(&bytes).ok()?;
        // The one key that this name has.
        (self.name(&Place { dir, name: name.clone() }) == key).then_some(name)
    }

    pub(crate) fn parts(&self, file: Id) -> String {
        format!("{}d/{file}/", self.0)
    }

    pub(crate) fn part(&self, file: Id, at: u64) -> String {
        format!("{}d/{file}/{at:016x}", self.0)
    }

    pub(crate) fn part_of(&self, file: Id, key: &str) -> Option<u64> {
        let text = key.strip_prefix(&self.parts(file))?;
        let at = u64::from_str_radix(text, 16).ok()?;
        (self.part(file, at) == key).then_some(at)
    }

    /// The newest name of a directory that was moved.
    pub(crate) fn moved(&self, dir: Id) -> String {
        format!("{}m/{dir}", self.0)
    }

    pub(crate) fn all_moved(&self) -> String {
        format!("{}m/", self.0)
    }

    /// A place as a text: its key without the prefix.
    pub(crate) fn text_of(&self, place: &Place) -> String {
        self.name(place)[self.0.len()..].to_owned()
    }

    /// The place in such a text.
    pub(crate) fn place_in(&self, text: &str) -> Option<Place> {
        let (dir, _) = text.strip_prefix("n/")?.split_once('/')?;
        let dir = Id::parse(dir)?;
        let name = self.name_of(dir, &format!("{}{text}", self.0))?;
        Some(Place { dir, name })
    }

    /// Objects by which a store is tried.
    pub(crate) fn all_trials(&self) -> String {
        format!("{}t/", self.0)
    }

    pub(crate) fn trial(&self, id: Id) -> String {
        format!("{}t/{id}", self.0)
    }

    /// All names, and all parts.
    pub(crate) fn all_names(&self) -> String {
        format!("{}n/", self.0)
    }

    pub(crate) fn all_parts(&self) -> String {
        format!("{}d/", self.0)
    }

    pub(crate) fn all_going(&self) -> String {
        format!("{}g/", self.0)
    }

    pub(crate) fn going(&self, file: Id) -> String {
        format!("{}g/{file}", self.0)
    }
}

/// A move under way, in the object of the old name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) token: Id,
    pub(crate) to: Place,
    /// The file that loses its name.
    pub(crate) replaced: Option<Id>,
    /// The object that gets the old name (an exchange).
    pub(crate) swap: Option<Box<Named>>,
}

/// The object of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) kind: Kind,
    pub(crate) id: Id,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    pub(crate) rdev: u64,
    /// Bytes after the content may lie in parts.
    pub(crate) has_parts: bool,
    /// The length of the file when `mtime` was set; at another length the last part's time counts.
    pub(crate) mtime_of: u64,
    /// The first bytes of a file, or a link's target.
    pub(crate) content: Bytes,
    /// Its name before this one: a claim may be left there.
    pub(crate) moved_from: Option<Place>,
    pub(crate) claim: Option<Claim>,
}

/// The object of a key below `n/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AtName {
    Named(Box<Named>),
    /// It is being removed; the object that it led to, and of a directory all of it.
    Ended(Id, Option<Box<Named>>),
}

impl Named {
    pub(crate) fn new(kind: Kind, id: Id, owner: Owner, now: Time) -> Named {
        let Owner { mode, uid, gid } = owner;
        Named {
            kind,
            id,
            mode: mode & 0o7777,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            rdev: 0,
            has_parts: false,
            mtime_of: 0,
            content: Bytes::new(),
            moved_from: None,
            claim: None,
        }
    }

    /// The object, for one put.
    pub(crate) fn encode(&self, nonce: Id) -> Bytes {
        let mut w = Writer::new();
        w.put_raw(MAGIC);
        w.put_u16(VERSION);
        let sum = w.hold_u32();
        w.put_raw(&nonce.0);
        w.put_u8(self.kind as u8);
        w.put_raw(&self.id.0);
        for number in [self.mode, self.uid, self.gid] {
            w.put_u32(number);
        }
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            w.put_i64(time.0);
        }
        w.put_u64(self.rdev);
        w.put_bool(self.has_parts);
        w.put_u64(self.mtime_of);
        w.put_bytes(&self.content);
        w.put_bool(self.moved_from.is_some());
        self.moved_from.iter().for_each(|place| place.encode(&mut w));
        w.put_bool(self.claim.is_some());
        if let Some(Claim { token, to, replaced, swap }) = &self.claim {
            w.put_raw(&token.0);
            to.encode(&mut w);
            w.put_bool(replaced.is_some());
            replaced.iter().for_each(|id| w.put_raw(&id.0));
            w.put_bool(swap.is_some());
            if let Some(swap) = swap {
                w.put_bytes(&swap.encode(Id::ROOT));
            }
        }
        let value = crc32c::crc32c(&w.as_slice()[HEAD_BYTES..]);
        w.patch_u32(sum, value);
        w.into_vec().into()
    }

    fn decode(bytes: &[u8], may_have_claim: bool) -> Result<Named, Unreadable> {
        let r = &mut Reader::new(bytes);
        if r.get_array::<8>()? != *MAGIC {
            return Err(Unreadable::Damaged("it does not begin as a name of this file system"));
        }
        let version = r.get_u16()?;
        if version != VERSION {
            return Err(Unreadable::Newer(version));
        }
        if r.get_u32()? != crc32c::crc32c(&bytes[HEAD_BYTES..]) {
            return Err(Unreadable::Damaged("its check sum is wrong"));
        }
        let _nonce = r.get_array::<16>()?;
        let kind = kind_of(r.get_u8()?).ok_or(Unreadable::Damaged("its kind is none"))?;
        let id = Id(r.get_array()?);
        let (mode, uid, gid) = (r.get_u32()?, r.get_u32()?, r.get_u32()?);
        let mut time = || r.get_i64().map(Time);
        let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
        let (rdev, has_parts, mtime_of) = (r.get_u64()?, r.get_bool()?, r.get_u64()?);
        let content = Bytes::copy_from_slice(r.get_bytes(crate::BESIDE_NAME_MAX)?);
        let moved_from = if r.get_bool()? { Some(Place::decode(r)?) } else { None };
        let has_claim = r.get_bool()?;
        if has_claim && !may_have_claim {
            return Err(Unreadable::Damaged("a claim in a claim"));
        }
        let claim = has_claim.then(|| Claim::decode(r)).transpose()?;
        r.finish()?;
        Ok(Named {
            kind,
            id,
            mode,
            uid,
            gid,
            atime,
            mtime,
            ctime,
            btime,
            rdev,
            has_parts,
            mtime_of,
            content,
            moved_from,
            claim,
        })
    }
}

impl Claim {
    fn decode(r: &mut Reader<'_>) -> Result<Claim, Unreadable> {
        let (token, to) = (Id(r.get_array()?), Place::decode(r)?);
        let replaced = if r.get_bool()? { Some(Id(r.get_array()?)) } else { None };
        let swap = match r.get_bool()? {
            true => Some(Box::new(Named::decode(r.get_bytes(NAMED_BYTES_MAX)?, false)?)),
            false => None,
        };
        Ok(Claim { token, to, replaced, swap })
    }
}

impl AtName {
    pub(crate) fn decode(bytes: &[u8]) -> Result<AtName, Unreadable> {
        if bytes.len() as u64 >= ENDED_BYTES && bytes.starts_with(ENDED) {
            let (head, rest) = bytes.split_at(ENDED_BYTES as usize);
            let id = Id(Reader::new(&head[ENDED.len()..]).get_array()?);
            if rest.is_empty() {
                return Ok(AtName::Ended(id, None));
            }
            let dir = Named::decode(rest, false)?;
            return match dir.kind == Kind::Directory && dir.id == id {
                true => Ok(AtName::Ended(id, Some(Box::new(dir)))),
                false => Err(Unreadable::Damaged("the directory in it is another")),
            };
        }
        Named::decode(bytes, true).map(|named| AtName::Named(Box::new(named)))
    }
}

/// The object of a name that is being removed. Of a directory it has the object that was there: so another
/// process can take the removal back.
pub(crate) fn ended(object: Id, token: Id, dir: Option<&Named>) -> Bytes {
    let dir = dir.map(|dir| dir.encode(Id::ROOT)).unwrap_or_default();
    [&ENDED[..], &object.0[..], &token.0[..], &dir[..]].concat().into()
}

/// Why the object of a name cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unreadable {
    Damaged(&'static str),
    Newer(u16),
}

impl From<DecodeError> for Unreadable {
    fn from(_: DecodeError) -> Unreadable {
        Unreadable::Damaged("its fields are damaged")
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Damaged(words) => write!(f, "damaged: {words}; restore a version of it"),
            Unreadable::Newer(version) => write!(
                f,
                "of format {version}, and this program reads {VERSION}: use the version of ShoalFS that wrote it"
            ),
        }
    }
}

fn kind_of(code: u8) -> Option<Kind> {
    let kinds = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];
    kinds.into_iter().find(|kind| *kind as u8 == code)
}

#[cfg(test)]
mod tests;
