//! The names of the files that a composed directory keeps in the file system below it.
//!
//! ```text
//!   .shoal-composed          the settings: its presence makes the directory a composed one
//!   blocks.0 … blocks.M-1    the physical files
//!   claims/ FILE.LANE.NUMBER a claim: a symbolic link to its writer's ID, made exclusively
//!           w.ID             a writer that has not ended; it holds a lock on it
//!           r.N              extents that compaction N freed: their records do not count any more
//!           shared           a writer reaches the file system below over a network
//!   names/  DIR.NAME         a name that is being made: a symbolic link to ID.OBJECT, or a link of t.ID.N
//!           t.ID.N           a file of a writer whose links are markers, of 66 bytes: ID.OBJECT.CHECKSUM
//!   t.claims                 the folder of claims while the directory is removed ([`dissolve`])
//!   merged                   the merged directory
//!   changes                  numbers that a process changes when it has published
//! ```
//!
//! [`dissolve`]: super::dissolve

use crate::writer_id::WriterId;
use shoal_proto::{Name, Status};
use shoal_vfs::{Error, Result};

/// The settings.
pub(super) const SETTINGS: &str = ".shoal-composed";
/// The folder of claims.
pub(super) const CLAIMS: &str = "claims";
/// The folder of claims while a removal of the directory decides.
pub(super) const LEAVING: &str = "t.claims";
/// The folder of names that are being made.
pub(super) const MARKS: &str = "names";
/// The merged directory.
pub(super) const MERGED: &str = "merged";

/// The names of files whose links are markers begin so. No marker's name does: it begins with a number.
const TOKENS: &str = "t.";
/// The names of lists of compactions begin so.
pub(super) const RETIRED: &str = "r.";
/// The names of physical files begin so.
pub(super) const BLOCKS: &str = "blocks.";
/// In the folder of claims: a writer of another machine, or over another file system.
pub(super) const SHARED: &str = "shared";
/// Word of changes.
pub(super) const CHANGES: &str = "changes";

/// A name that is made here.
pub(super) fn name(text: &str) -> Result<Name> {
    Name::new(text.as_bytes()).map_err(|status| Error::new(status, "open"))
}

/// A writer's file.
pub(super) fn writer(id: WriterId) -> Result<Name> {
    name(&format!("w.{id}"))
}

/// A physical file.
pub(super) fn blocks(file: u16) -> Result<Name> {
    name(&format!("blocks.{file}"))
}

/// The list of a compaction, by its number.
pub(super) fn retired(epoch: u64) -> Result<Name> {
    name(&format!("{RETIRED}{epoch}"))
}

/// The number of a compaction, from the name of its list.
pub(super) fn epoch(text: &str) -> Option<u64> {
    let number = text.strip_prefix(RETIRED)?;
    number.parse().ok().filter(|epoch: &u64| epoch.to_string() == number)
}

/// The marker of a name: the name itself where it fits, else its hash.
pub(super) fn mark(dir: u64, of: &Name) -> Result<Name> {
    let mut text = format!("{dir:016x}.").into_bytes();
    text.extend_from_slice(of.as_bytes());
    if text.len() > 250 {
        let sum = |seed: u32| crc32c::crc32c_append(seed, of.as_bytes());
        text = format!("{dir:016x}.~{:08x}{:08x}{:08x}", sum(1), sum(77), sum(0xdead)).into_bytes();
        text.extend_from_slice(&of.as_bytes()[..180]);
    }
    Name::new(&text).map_err(|_| Error::new(Status::NameTooLong, "create"))
}

/// A file of a writer whose links are markers.
pub(super) fn token(id: WriterId, number: u64) -> Result<Name> {
    name(&format!("{TOKENS}{id}.{number}"))
}

/// The writer of such a file.
pub(super) fn token_of(name: &Name) -> Option<WriterId> {
    let text = std::str::from_utf8(name.as_bytes()).ok()?.strip_prefix(TOKENS)?;
    WriterId::parse(text.split_once('.')?.0)
}

/// The bytes of a marker that is a link.
pub(super) fn token_bytes(id: WriterId, object: u64, mark: &Name) -> Vec<u8> {
    let mut bytes = format!("{id}.{object:016x}.").into_bytes();
    let sum = |seed: u32| crc32c::crc32c_append(crc32c::crc32c_append(seed, &bytes), mark.as_bytes());
    let sum = format!("{:08x}{:08x}", sum(1), sum(77));
    bytes.extend(sum.bytes());
    bytes
}

/// Whether bytes are those of a marker that is a link, of whatever name.
pub(super) fn is_token(bytes: &[u8]) -> bool {
    let known = bytes.len().checked_sub(17).and_then(|len| bytes.get(..len)).and_then(marked);
    known.is_some_and(|(writer, object)| bytes.starts_with(format!("{writer}.{object:016x}.").as_bytes()))
}

/// The writer and the object of a marker that is a link; `None`: its bytes are of another name.
pub(super) fn token_marked(bytes: &[u8], mark: &Name) -> Option<(WriterId, u64)> {
    let (writer, object) = marked(bytes.get(..bytes.len().checked_sub(17)?)?)?;
    (token_bytes(writer, object, mark) == bytes).then_some((writer, object))
}

/// The writer and the object of a marker's target.
pub(super) fn marked(target: &[u8]) -> Option<(WriterId, u64)> {
    let (writer, object) = std::str::from_utf8(target).ok()?.split_once('.')?;
    Some((WriterId::parse(writer)?, u64::from_str_radix(object, 16).ok()?))
}
