//! Names and small texts of a federation: metalinks, IDs, identities and lists, each with a check sum.
//!
//! ```text
//!   a metalink       shoal metalink 1␊ID BACKEND SUM␊         the object is BACKEND's objects/ID
//!   .shoal-folder    shoal folder 1␊ID SUM␊
//!   .shoal-leaving   empty
//!   backend          shoal backend 1␊ID SUM␊
//!   list.N           shoal backends N␊ID PATH␊ … sum SUM␊
//! ```
//! `SUM` is the crc32c of the text before it (in a list: of the lines before its line), as 8 hexadecimal
//! digits.

use crate::writer_id::WriterId;
use shoal_env::Env;
use shoal_proto::Name;
use shoal_vfs::{Error, Result};
use std::fmt;

/// The identity of a folder, an object with a metalink, or a backend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct LinkId([u8; 16]);

impl LinkId {
    /// The folder of the root.
    pub(super) const ROOT: LinkId = LinkId([0; 16]);

    pub(super) fn draw(env: &Env) -> LinkId {
        LinkId(WriterId::draw(env).0)
    }

    pub(super) fn parse(text: &str) -> Option<LinkId> {
        WriterId::parse(text).map(|id| LinkId(id.0))
    }

    /// The name of its folder or object.
    pub(super) fn name(self) -> Result<Name> {
        Name::new(self.to_string().as_bytes()).map_err(|status| Error::new(status, "federation"))
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", WriterId(self.0))
    }
}

/// Where an object lies that a metalink leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Target {
    /// The backend's identity.
    pub(super) backend: LinkId,
    /// Its name there.
    pub(super) id: LinkId,
}

/// Bytes of a metalink: a file of another size is none.
pub(super) const METALINK_BYTES: u64 = 92;
const METALINK: &str = "shoal metalink 1\n";
const FOLDER: &str = "shoal folder 1\n";
const BACKEND: &str = "shoal backend 1\n";
/// Bytes of a list, at most.
pub(super) const LIST_BYTES_MAX: u64 = 1 << 20;

fn constant(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a constant name is a name")
}

/// The federation's own folder at the root of each backend.
pub(crate) fn federation() -> Name {
    constant(".shoal-federation")
}

/// In a directory of the first backend: its ID.
pub(super) fn folder() -> Name {
    constant(".shoal-folder")
}

/// In a directory of the first backend: it is being removed.
pub(super) fn leaving() -> Name {
    constant(".shoal-leaving")
}

/// In the federation's folder.
pub(super) fn dirs() -> Name {
    constant("dirs")
}

/// In the federation's folder.
pub(super) fn objects() -> Name {
    constant("objects")
}

/// In the federation's folder: the backend's identity.
pub(super) fn backend() -> Name {
    constant("backend")
}

/// In the federation's folder of the first backend.
pub(super) fn list(number: usize) -> Result<Name> {
    let text = format!("list.{number}");
    Name::new(text.as_bytes()).map_err(|status| Error::new(status, "federation"))
}

fn summed(head: &str, body: &str) -> String {
    let sum = crc32c::crc32c(format!("{head}{body}").as_bytes());
    format!("{head}{body} {sum:08x}\n")
}

/// The words of a text, if it is whole.
fn read<'a>(head: &str, text: &'a [u8]) -> Option<&'a str> {
    let body = std::str::from_utf8(text).ok()?.strip_prefix(head)?.strip_suffix('\n')?;
    let (body, _) = body.rsplit_once(' ')?;
    (summed(head, body).as_bytes() == text).then_some(body)
}

pub(super) fn metalink(target: Target) -> String {
    summed(METALINK, &format!("{} {}", target.id, target.backend))
}

pub(super) fn read_metalink(text: &[u8]) -> Option<Target> {
    let (id, backend) = read(METALINK, text)?.split_once(' ')?;
    Some(Target { id: LinkId::parse(id)?, backend: LinkId::parse(backend)? })
}

pub(super) fn folder_id(id: LinkId) -> String {
    summed(FOLDER, &id.to_string())
}

pub(super) fn read_folder_id(text: &[u8]) -> Option<LinkId> {
    LinkId::parse(read(FOLDER, text)?)
}

pub(super) fn backend_id(id: LinkId) -> String {
    summed(BACKEND, &id.to_string())
}

pub(super) fn read_backend_id(text: &[u8]) -> Option<LinkId> {
    LinkId::parse(read(BACKEND, text)?)
}

/// A list of backends: each one's identity and directory.
pub(super) type List = Vec<(LinkId, String)>;

pub(super) fn list_text(number: usize, list: &List) -> String {
    let mut text = format!("shoal backends {number}\n");
    for (id, path) in list {
        text.push_str(&format!("{id} {path}\n"));
    }
    let sum = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("sum {sum:08x}\n"));
    text
}

pub(super) fn read_list(number: usize, text: &[u8]) -> Option<List> {
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    lines.next()?;
    let mut list = List::new();
    for line in lines.filter(|line| !line.starts_with("sum ")) {
        let (id, path) = line.split_once(' ')?;
        list.push((LinkId::parse(id)?, path.to_owned()));
    }
    (!list.is_empty() && list_text(number, &list).as_bytes() == text).then_some(list)
}

/// The static hash of a name: FNV-1a, its bits mixed.
pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hash = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    for _ in 0..2 {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LinkId = LinkId([7; 16]);
    const B: LinkId = LinkId([9; 16]);

    #[test]
    fn texts_are_read_as_they_were_written_and_damaged_ones_not_at_all() {
        let target = Target { backend: A, id: B };
        let link = metalink(target);
        assert_eq!(link.len() as u64, METALINK_BYTES);
        assert_eq!(read_metalink(link.as_bytes()), Some(target));
        assert_eq!(read_folder_id(folder_id(A).as_bytes()), Some(A));
        assert_eq!(read_backend_id(backend_id(B).as_bytes()), Some(B));
        assert_eq!(read_folder_id(backend_id(B).as_bytes()), None);
        let list = vec![(A, "/one and only".to_owned()), (B, "/two".to_owned())];
        let text = list_text(3, &list);
        assert_eq!(read_list(3, text.as_bytes()), Some(list));
        assert_eq!(read_list(2, text.as_bytes()), None);
        for at in 0..link.len() {
            let mut damaged = link.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(read_metalink(&damaged), None, "byte {at}");
        }
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(read_list(3, &damaged), None, "byte {at}");
        }
    }

    #[test]
    fn the_hash_of_a_name_is_the_same_for_ever() {
        // Files lie where it says: another value loses them.
        assert_eq!(hash(b"step-000100"), 0x0f9b_1cdb_82e5_5f41);
        assert_ne!(hash(b"a"), hash(b"b"));
    }
}
