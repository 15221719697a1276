//! Tests of torn ends and of damage, byte by byte, on journals that a store wrote.

use super::*;
use crate::disk::journal::group;
use crate::{Changes, CollectionConfig, Identity, ModuleKind, open, settle};
use std::path::PathBuf;

const SEGMENT: u64 = 64 << 10;

fn config(dir: &Path) -> CollectionConfig {
    CollectionConfig {
        segment_bytes: SEGMENT,
        reserve_bytes: 0,
        ..CollectionConfig::new(dir, ModuleKind::Disk, Identity::default())
    }
}

/// One life of a store: one group for each row; killed.
fn write_groups(dir: &Path, keys: std::ops::Range<u32>) {
    let config = config(dir);
    shoal_env::real::run("journal", |env| async move {
        let store = open(env, config).await.unwrap();
        for n in keys {
            let mut changes = Changes::default();
            changes.put(format!("D{n:03}"), "value");
            store.apply(changes).unwrap();
            settle(&store).await.unwrap();
        }
    });
}

fn replay(dir: &Path, checkpoint: u64) -> Result<Replayed, StoreError> {
    let dir = dir.to_owned();
    shoal_env::real::run("replay", |env| async move {
        Reader::open(&env, &dir, SEGMENT).await?.replay(Lsn(checkpoint)).await
    })
}

/// The segment with groups, and the places of its groups: (offset, bytes in use).
fn groups(journal: &Path) -> (PathBuf, Vec<(usize, usize)>) {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(journal).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap();
        let mut at = 0;
        let mut places = Vec::new();
        while let Some(Found::Header(header)) = content.get(at..).map(Header::find) {
            places.push((at, HEADER + header.body_len as usize));
            at += header.group_len();
        }
        found.push((path, places));
    }
    found.into_iter().max_by_key(|(_, places)| places.len()).unwrap()
}

#[test]
fn a_torn_tail_is_cut_at_whatever_byte_it_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..6);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    let content = std::fs::read(&path).unwrap();
    let (at, len) = places[5];
    for torn in 0..len {
        let mut cut = content.clone();
        cut[at + torn..].fill(0);
        std::fs::write(&path, &cut).unwrap();
        let replayed = replay(&journal, 0).unwrap();
        // A record's last byte may be zero anyway: then nothing was torn.
        let expected = if cut == content { 6 } else { 5 };
        assert_eq!((replayed.last, replayed.rows.len() as u64), (Lsn(expected), expected), "torn at {torn}");
    }
}

#[test]
fn a_flipped_bit_below_a_stated_durable_lsn_is_damage_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..6);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    let content = std::fs::read(&path).unwrap();
    let (at, len) = places[2];
    for byte in 0..len {
        let mut flipped = content.clone();
        flipped[at + byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &flipped).unwrap();
        match replay(&journal, 0) {
            Err(StoreError::Damaged(what)) => {
                assert!(what.contains(&format!("at offset {at}: the record with LSN 3")), "{what}");
                assert!(what.contains(path.to_str().unwrap()), "{what}");
            }
            Err(StoreError::Refused(_)) => panic!("byte {byte}: damage is not a newer version"),
            other => panic!("byte {byte}: {:?}", other.map(|replayed| replayed.last)),
        }
        // Already checkpointed: still damage, the groups after it are needed.
        assert!(
            matches!(replay(&journal, 3), Err(StoreError::Damaged(_))),
            "byte {byte}, after a checkpoint"
        );
    }
}

#[test]
fn nothing_is_written_behind_a_cut_and_the_next_restart_finds_its_way() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..6);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    let mut content = std::fs::read(&path).unwrap();
    // Groups 5 and 6 were in the page cache and only 6 reached the disk; both state no more than 4 durable.
    let (at, len) = places[4];
    content[at..at + len].fill(0);
    let (last_at, _) = places[5];
    let Found::Header(header) = Header::find(&content[last_at..]) else { panic!("a header") };
    Header { durable: 4, ..header }.encode(&mut content[last_at..last_at + HEADER]);
    std::fs::write(&path, &content).unwrap();
    assert_eq!(replay(&journal, 0).unwrap().last, Lsn(4));
    for life in 0..4 {
        write_groups(dir.path(), 100 + life * 10..103 + life * 10);
        let behind = std::fs::read(&path).unwrap();
        if life == 0 {
            assert!(behind == content, "the cut segment is unchanged");
        }
    }
    let config = config(dir.path());
    shoal_env::real::run("journal", |env| async move {
        let store = open(env, config).await.unwrap();
        let (scan, _) = crate::look(&store, |view| view.scan(b"D", None, 1000)).await.unwrap();
        let keys: Vec<_> =
            scan.rows.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect();
        let old = (0..4).map(|n| format!("D{n:03}"));
        let new = (0..4).flat_map(|life| (0..3).map(move |n| format!("D{:03}", 100 + life * 10 + n)));
        assert_eq!(keys, old.chain(new).collect::<Vec<_>>());
    });
}

#[test]
fn a_group_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..2);
    let journal = dir.path().join("journal");
    let (path, _) = groups(&journal);
    let mut content = std::fs::read(&path).unwrap();
    content[8..12].copy_from_slice(&(group::VERSION + 1).to_le_bytes());
    let crc = crc32c::crc32c(&content[..76]);
    content[76..80].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &content).unwrap();
    let refused = replay(&journal, 0).map(|replayed| replayed.last).unwrap_err();
    assert!(matches!(refused, StoreError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("is of format version 2, this program knows versions up to 1"));
}

#[test]
fn a_segment_that_lost_its_first_group_is_damage_too() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..10);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    assert_eq!(places.len(), 10);
    let content = std::fs::read(&path).unwrap();
    for byte in [0, 20, HEADER - 1, HEADER + 3] {
        let mut flipped = content.clone();
        flipped[byte] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        let damaged = replay(&journal, 0).map(|replayed| replayed.last);
        assert!(matches!(damaged, Err(StoreError::Damaged(_))), "byte {byte}: {damaged:?}");
    }
}

#[test]
fn no_generation_comes_again_of_which_only_a_later_group_reached_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..1);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    let mut content = std::fs::read(&path).unwrap();
    let (at, len) = places[0];
    let Found::Header(header) = Header::find(&content[at..]) else { panic!("a header") };
    // The segment was reused: its first group was in the page cache alone, its second reached the disk.
    let behind = 2 * BLOCK;
    content.copy_within(at..at + len, behind);
    let (generation, sequence) = (header.generation + 1, header.sequence + 2);
    let later = Header { generation, sequence, first: 3, last: 3, durable: 1, ..header };
    later.encode(&mut content[behind..behind + HEADER]);
    std::fs::write(&path, &content).unwrap();
    let next = shoal_env::real::run("replay", |env| async move {
        let mut reader = Reader::open(&env, &journal, SEGMENT).await.unwrap();
        let replayed = reader.replay(Lsn(0)).await.unwrap();
        assert_eq!(replayed.last, Lsn(1));
        reader.segments(&Live::default(), Lsn(0), &replayed).unwrap().take().1
    });
    assert!(next > generation, "generation {next} is on the disk already");
}

#[test]
fn a_segment_that_was_cut_short_and_lost_its_first_group_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    write_groups(dir.path(), 0..6);
    let journal = dir.path().join("journal");
    let (path, places) = groups(&journal);
    let mut content = std::fs::read(&path).unwrap();
    content.truncate(content.len() / 2);
    content[places[0].0] ^= 1;
    std::fs::write(&path, &content).unwrap();
    for _ in 0..2 {
        let damaged = replay(&journal, 0).map(|replayed| replayed.last).unwrap_err().to_string();
        let at = format!("there is one at offset {}", places[1].0);
        assert!(damaged.contains(path.to_str().unwrap()) && damaged.contains(&at), "{damaged}");
    }
    assert!(std::fs::read(&path).unwrap() == content, "nothing is removed");
    // An interrupted preparation left only zeros: the file is removed when the start has refused nothing.
    content.fill(0);
    std::fs::write(&path, &content).unwrap();
    replay(&journal, 0).unwrap();
    assert!(path.exists());
    write_groups(dir.path(), 6..7);
    assert_eq!(std::fs::metadata(&path).map_or(SEGMENT, |file| file.len()), SEGMENT);
}
