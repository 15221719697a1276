//! Keys and the objects of names, as they are written and read; damaged ones.

use super::*;

fn named() -> Named {
    let owner = Owner { mode: 0o640, uid: 3, gid: 4 };
    let plain = Named::new(Kind::File, Id([7; 16]), owner, Time(-5));
    let place = Place { dir: Id([9; 16]), name: Name::new(b"\xff to").unwrap() };
    let claim = Claim {
        token: Id([1; 16]),
        to: place,
        replaced: Some(Id([5; 16])),
        swap: Some(Box::new(plain.clone())),
    };
    let moved_from = Some(claim.to.clone());
    Named { content: Bytes::from_static(b"content"), moved_from, claim: Some(claim), ..plain }
}

#[test]
fn a_name_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
    let bytes = named().encode(Id([8; 16]));
    assert_eq!(AtName::decode(&bytes), Ok(AtName::Named(Box::new(named()))));
    let least = Named::new(Kind::File, Id::ROOT, Owner { mode: 0, uid: 0, gid: 0 }, Time(0));
    assert!(least.encode(Id([8; 16])).len() as u64 > ENDED_BYTES);
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1;
        assert!(AtName::decode(&damaged).is_err(), "byte {at}");
        assert!(AtName::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
    let (id, token) = (Id([1; 16]), Id([2; 16]));
    assert_eq!(AtName::decode(&ended(id, token, None)), Ok(AtName::Ended(id, None)));
    let dir = Named { kind: Kind::Directory, id, ..least };
    let bytes = ended(id, token, Some(&dir));
    assert_eq!(AtName::decode(&bytes), Ok(AtName::Ended(id, Some(Box::new(dir.clone())))));
    for wrong in [Named { kind: Kind::File, ..dir.clone() }, Named { id: token, ..dir }] {
        assert!(AtName::decode(&ended(id, token, Some(&wrong))).is_err(), "{wrong:?}");
    }
    for most in ENDED_BYTES as usize + 1..bytes.len() {
        assert!(AtName::decode(&bytes[..most]).is_err(), "{most} bytes");
    }
}

#[test]
fn a_newer_format_is_named_with_the_remedy() {
    let mut bytes = named().encode(Id([8; 16])).to_vec();
    bytes[8] = 2;
    let refused = AtName::decode(&bytes).unwrap_err();
    assert_eq!(refused, Unreadable::Newer(2));
    assert!(refused.to_string().contains("use the version"), "{refused}");
}

#[test]
fn each_name_has_one_key_and_other_keys_are_none() {
    let (keys, dir) = (KeySpace("a/b/".to_owned()), Id([2; 16]));
    for bytes in [&b"plain.name"[..], b"\xff\x00!"[..1].as_ref(), b"!41", b"...", &[b'n'; 255], b"a b%=c"] {
        let name = Name::new(bytes).unwrap();
        let key = keys.name(&Place { dir, name: name.clone() });
        assert!(key.is_ascii() && !key.contains(' '), "{key}");
        assert_eq!(keys.name_of(dir, &key), Some(name.clone()));
        let place = Place { dir, name };
        assert_eq!(keys.place_in(&keys.text_of(&place)), Some(place));
    }
    let of = |text: &str| keys.name_of(dir, &format!("{}{text}", keys.directory(dir)));
    for other in ["!4", "!zz", "!61", "a/b", "ä", ""] {
        assert_eq!(of(other), None, "{other}");
        assert_eq!(keys.place_in(&format!("n/{dir}/{other}")), None, "{other}");
    }
    let file = Id([3; 16]);
    assert_eq!(keys.part_of(file, &keys.part(file, 1 << 40)), Some(1 << 40));
    assert_eq!(keys.part_of(file, &format!("{}+1", keys.parts(file))), None);
    assert_eq!(Id::parse(&file.to_string()), Some(file));
    assert_eq!(Id::parse(&"G".repeat(32)), None);
}

proptest::proptest! {
    /// The check sum is made right, so that the fields are reached.
    #[test]
    fn no_bytes_of_a_store_make_the_reader_panic(
        changes in proptest::collection::vec((0..400usize, proptest::prelude::any::<u8>()), 1..8),
        len in 0..400usize,
    ) {
        let mut bytes = named().encode(Id([8; 16])).to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(len.max(HEAD_BYTES));
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[HEAD_BYTES..]);
        bytes[10..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        if let Ok(AtName::Named(named)) = AtName::decode(&bytes) {
            assert!(named.content.len() <= crate::BESIDE_NAME_MAX);
            assert_eq!(AtName::decode(&named.encode(Id([8; 16]))), Ok(AtName::Named(named)));
        }
    }
}
