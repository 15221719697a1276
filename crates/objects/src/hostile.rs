//! The readers of what another program can put into a store, for the fuzzer: objects of names, and keys.

use crate::BESIDE_NAME_MAX;
use crate::format::{self, AtName, Claim, ENDED_BYTES, Id, KeySpace, Named, Place};
use bytes::Bytes;
use shoal_proto::{Kind, Name, Owner, Time};

/// Read the object of a name: `None` if it cannot be read, else its bytes as they are written again. Only an
/// object of [`ENDED_BYTES`], or one with the directory that is removed, may lead to no name.
///
/// # Panics
/// A limit does not hold, or the bytes written again are read otherwise.
pub fn name(bytes: &[u8]) -> Option<Bytes> {
    match AtName::decode(bytes).ok()? {
        AtName::Ended(id, dir) => {
            let is_short = bytes.len() as u64 == ENDED_BYTES;
            assert_eq!(is_short, dir.is_none(), "a name that is removed has another length");
            let again = format::ended(id, Id::ROOT, dir.as_deref());
            assert_eq!(AtName::decode(&again), Ok(AtName::Ended(id, dir)));
            Some(again)
        }
        AtName::Named(named) => {
            assert!(named.content.len() <= BESIDE_NAME_MAX, "its content is longer than the limit");
            let again = named.encode(Id([8; 16]));
            assert!(again.len() as u64 > ENDED_BYTES, "it would be taken for a name that is removed");
            assert_eq!(AtName::decode(&again), Ok(AtName::Named(named)));
            Some(again)
        }
    }
}

/// Read a key as that of a name in a directory, of a part of a file, and of a removed file. Whether it is
/// one.
///
/// # Panics
/// The place that was read from the key has another key.
pub fn key(bytes: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(bytes) else { return false };
    let (keys, id) = (KeySpace("p/".to_owned()), Id([0xab; 16]));
    let name = keys.name_of(id, key).map(|name| keys.name(&Place { dir: id, name }));
    let part = keys.part_of(id, key).map(|at| keys.part(id, at));
    let going = key.strip_prefix(&keys.all_going()).and_then(Id::parse).map(|id| keys.going(id));
    let read: Vec<String> = [name, part, going].into_iter().flatten().collect();
    assert!(read.len() < 2 && read.iter().all(|again| again == key), "{key} is read as {read:?}");
    !read.is_empty()
}

/// Right objects of names, and right keys.
pub fn samples() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let owner = Owner { mode: 0o640, uid: 3, gid: 4 };
    let name = Name::new(b"\xff to").unwrap_or_else(|_| unreachable!("a name"));
    let place = Place { dir: Id([0xab; 16]), name };
    let plain = Named::new(Kind::File, Id([7; 16]), owner, Time(5));
    let swap = Some(Box::new(plain.clone()));
    let claim = Claim { token: Id([1; 16]), to: place.clone(), replaced: Some(Id([5; 16])), swap };
    let content = Bytes::from_static(b"content");
    let moved = Named { content, moved_from: Some(place.clone()), claim: Some(claim), ..plain.clone() };
    let link =
        Named { content: Bytes::from_static(b"/to"), ..Named::new(Kind::Symlink, place.dir, owner, Time(0)) };
    let objects = [
        plain.encode(Id([8; 16])),
        moved.encode(Id([8; 16])),
        link.encode(Id([8; 16])),
        format::ended(place.dir, Id([2; 16]), None),
        format::ended(place.dir, Id([2; 16]), Some(&Named::new(Kind::Directory, place.dir, owner, Time(0)))),
    ];
    let keys = KeySpace("p/".to_owned());
    let texts = [keys.name(&place), keys.part(place.dir, 8 << 20), keys.going(place.dir)];
    (objects.map(|object| object.to_vec()).to_vec(), texts.map(String::into_bytes).to_vec())
}
