//! The decoders of composed directories.

use crate::repair;
use crate::targets::within_room;
use shoal_proto::{Kind, Name};
use shoal_transform::WriterId;
use shoal_transform::composed::format::{
    Bind, Changed, HEADER_BYTES, Header, Made, Op, Record, Records, Settings, stamp,
};
use shoal_transform::composed::index::Names;
use shoal_transform::composed::lanes::Extent;
use shoal_transform::composed::merged::Merged;

const BLOCK: u32 = 64 << 10;

pub(crate) fn settings(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repair::composed(bytes, b"shoalcmp", usize::MAX)] {
        if let Ok(settings) = within_room(&bytes, 0, || Settings::decode(&bytes)) {
            assert_eq!(Settings::decode(&settings.encode()), Ok(settings));
        }
    }
}

pub(crate) fn settings_seeds() -> Vec<Vec<u8>> {
    vec![Settings { version: 1, id: [7; 16], block: BLOCK, files: 2 }.encode()]
}

/// A block is read into an index, which then answers for what it found.
pub(crate) fn block(bytes: &[u8]) {
    let header = repair::composed(bytes, b"shoalblk", HEADER_BYTES);
    for bytes in [bytes.to_vec(), repair::records(&header, HEADER_BYTES)] {
        if let Ok(header) = within_room(&bytes, 0, || Header::decode(&bytes)) {
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        // A record of a name and an object takes some room in the index.
        within_room(&bytes, bytes.len() * 64, || {
            let mut names = Names::default();
            for (record, begins) in Records::new(&bytes, HEADER_BYTES) {
                names.apply(&record, (Extent { file: 0, lane: 0, number: 0 }.place(0), begins as u32));
                if !matches!(record.op, Op::Data { .. }) {
                    let again = record.encode(&[]);
                    assert_eq!(Records::new(&again, 0).next().map(|(again, _)| again), Some(record));
                }
            }
            names.bring_back();
        });
    }
}

pub(crate) fn block_seeds() -> Vec<Vec<u8>> {
    let name = |text: &[u8]| Name::new(text).unwrap_or_else(|_| unreachable!("a name"));
    let header = Header { writer: WriterId([3; 16]), sequence: 1, previous: 5, place: 9, directory: 11 };
    let made = Made {
        kind: Kind::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        rdev: 0,
        dir: 1,
        name: name(b"file"),
        target: Default::default(),
    };
    let changed = Changed { mode: Some(0o600), mtime: Some(-5), ..Changed::default() };
    let bind = Bind { dir: 1, name: name(b"other"), object: 70 };
    let ops = [
        Op::Create(made),
        Op::Data { offset: 10, len: 5 },
        Op::Hole { offset: 12, len: 1 },
        Op::Size(13),
        Op::Attributes(changed),
        Op::Xattr((&b"user.x"[..]).into(), Some((&b"value"[..]).into())),
        Op::Bind(vec![bind]),
        Op::Next(10),
        Op::End,
    ];
    let mut bytes = header.encode();
    for (n, op) in ops.into_iter().enumerate() {
        let data: &[u8] = if matches!(op, Op::Data { .. }) { b"bytes" } else { b"" };
        bytes.extend(Record { stamp: stamp(n as u64 + 1, 3), object: 70, op }.encode(data));
    }
    vec![bytes]
}

pub(crate) fn merged(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repair::composed(bytes, b"shoalmrg", usize::MAX)] {
        if let Ok(merged) = within_room(&bytes, bytes.len() * 64, || Merged::decode(&bytes)) {
            let again = Merged::decode(&merged.encode());
            assert!(
                again.is_ok_and(|again| again == merged),
                "it is read otherwise after it was written again"
            );
        }
    }
}

pub(crate) fn merged_seeds() -> Vec<Vec<u8>> {
    vec![Merged::sample().encode()]
}

pub(crate) fn claim(bytes: &[u8]) {
    let extent = within_room(bytes, 0, || Extent::parse(bytes, 4, BLOCK));
    if let Some(extent) = extent {
        assert_eq!(extent.name().as_bytes(), bytes);
        for block in [0, extent.blocks() - 1] {
            assert_eq!(Extent::of_place(extent.place(block)), (extent, block));
        }
        let end = (extent.first() + u64::from(extent.blocks())) * u64::from(BLOCK);
        assert!(i64::try_from(end).is_ok(), "its bytes have offsets of a file");
    }
}

pub(crate) fn claim_seeds() -> Vec<Vec<u8>> {
    let names: [&[u8]; 4] = [b"0.0.0", b"3.6.17", b"1.2.4096", b"0.0.1099511627"];
    names.map(<[u8]>::to_vec).to_vec()
}

/// Whether a seed is a right input.
#[cfg(test)]
pub(crate) fn is_right(name: &str, bytes: &[u8]) -> bool {
    match name {
        "composed_settings" => Settings::decode(bytes).is_ok(),
        "composed_block" => Header::decode(bytes).is_ok() && Records::new(bytes, HEADER_BYTES).count() == 9,
        "composed_merged" => Merged::decode(bytes).is_ok(),
        _ => Extent::parse(bytes, 4, BLOCK).is_some(),
    }
}
