//! Patterns of an open file, against a vector of bytes.

use super::{Ground, bytes_of};
use crate::{Vfs, VfsFile};
use bytes::Bytes;
use shoal_pattern::{Level, Pattern, Region};
use shoal_proto::Status;

fn patterns() -> Vec<Pattern> {
    let level = |stride, quantity| Level { stride, quantity };
    let nested = |offset, record, levels| Pattern::nested(offset, record, levels).expect("a pattern");
    let list = |regions: &[(i64, u64)]| {
        let regions = regions.iter().map(|(offset, len)| Region::new(*offset, *len)).collect();
        Pattern::list(regions).expect("a pattern")
    };
    vec![
        Pattern::contiguous(100, 5000).expect("a pattern"),
        Pattern::strided(7, 3, 11, 500).expect("a pattern"),
        Pattern::strided(90_000, 64, -128, 300).expect("a pattern"),
        nested(1000, 8, vec![level(4096, 20), level(64, 7)]),
        nested(50, 1, vec![level(3, 5), level(70_000, 3)]),
        list(&[(200_000, 10), (3, 70), (150_000, 1), (73, 4)]),
        list(&[]),
    ]
}

pub(super) async fn patterns_agree_with_single_bytes<V: Vfs>(ground: &Ground<'_, V>) {
    let (attr, file) = ground.file("file").await;
    let mut model: Vec<u8> = Vec::new();
    for (n, pattern) in patterns().iter().enumerate() {
        let data = bytes_of(pattern.len() as usize, n as u64);
        ground.ok(file.write_pattern(pattern, data.clone()).await);
        put(&mut model, pattern, &data);
        assert_eq!(ground.attr(attr.handle).await.size, model.len() as u64, "pattern {n}");
        for (m, other) in patterns().iter().enumerate() {
            let read = ground.ok(file.read_pattern(other).await);
            let wanted = get(&model, other);
            assert_eq!(read.len(), wanted.len(), "pattern {m} after {n}");
            assert!(!ground.promises.bytes || read == wanted, "pattern {m} after {n}");
        }
    }
    let beyond = Pattern::strided(model.len() as i64 - 5, 10, 1 << 20, 3).expect("a pattern");
    let read = ground.ok(file.read_pattern(&beyond).await);
    assert!(!ground.promises.bytes || read == get(&model, &beyond), "zeros after the end");
}

pub(super) async fn the_later_byte_of_an_overlap_stays<V: Vfs>(ground: &Ground<'_, V>) {
    let (_, file) = ground.file("file").await;
    let pattern = Pattern::strided(0, 10, 4, 50).expect("a pattern");
    let data = bytes_of(pattern.len() as usize, 5);
    ground.ok(file.write_pattern(&pattern, data.clone()).await);
    let mut model = Vec::new();
    put(&mut model, &pattern, &data);
    let read = ground.ok(file.read(0, model.len() + 1).await);
    assert_eq!(read.len(), model.len());
    assert!(!ground.promises.bytes || read == model);
}

pub(super) async fn a_pattern_before_the_file_or_of_another_length_is_refused<V: Vfs>(
    ground: &Ground<'_, V>,
) {
    let (attr, file) = ground.file("file").await;
    let before = Pattern::strided(10, 4, -8, 3).expect("a pattern");
    ground.fails(file.read_pattern(&before).await, Status::Invalid);
    ground.fails(file.write_pattern(&before, bytes_of(12, 1)).await, Status::Invalid);
    let whole = Pattern::contiguous(0, 10).expect("a pattern");
    ground.fails(file.write_pattern(&whole, Bytes::from_static(b"nine byte")).await, Status::Invalid);
    assert_eq!(ground.attr(attr.handle).await.size, 0);
}

pub(super) async fn more_bytes_than_are_read_at_once_are_refused<V: Vfs>(ground: &Ground<'_, V>) {
    let (_, file) = ground.file("file").await;
    let long = Pattern::strided(0, 1 << 30, 1 << 31, 1 << 20).expect("a pattern");
    ground.fails(file.read_pattern(&long).await, Status::OverLimit);
}

fn places(pattern: &Pattern) -> impl Iterator<Item = usize> {
    pattern.regions().flat_map(|region| (0..region.len).map(move |n| region.offset as usize + n as usize))
}

fn put(model: &mut Vec<u8>, pattern: &Pattern, data: &[u8]) {
    for (at, byte) in places(pattern).zip(data) {
        model.resize(model.len().max(at + 1), 0);
        model[at] = *byte;
    }
}

fn get(model: &[u8], pattern: &Pattern) -> Vec<u8> {
    places(pattern).map(|at| model.get(at).copied().unwrap_or(0)).collect()
}
