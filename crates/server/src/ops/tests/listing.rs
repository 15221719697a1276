//! Tests of listings of directories.

use super::cluster::{ALL, Cluster, name};
use shoal_proto::codec::{Codec, Writer};
use shoal_proto::{Answer, Entry, Handle, Kind, Op, Place, Roles, ServerId, Status};
use std::collections::BTreeSet;

const ROOT: Handle = Handle::ROOT;
const HERE: ServerId = ServerId(0);

fn page(
    cluster: &Cluster,
    after: Option<&Entry>,
    bytes_max: u32,
    plus: bool,
) -> Result<(Vec<Entry>, bool), Status> {
    let after = after.map(|e| Place { hash: e.place, name: e.name.as_bytes().into() });
    match cluster.op(HERE, Op::Readdir { dir: ROOT, after, bytes_max, plus, data_max: 0, in_shard: false })? {
        Answer::Entries { entries, end, .. } => Ok((entries.0, end)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_directory_is_at_its_end_at_once() {
    let cluster = Cluster::new(&[ALL]);
    assert_eq!(page(&cluster, None, 4096, false), Ok((vec![], true)));
}

#[test]
fn pages_of_any_size_make_the_whole_listing_and_the_last_says_so() {
    let cluster = Cluster::new(&[ALL]);
    let names: BTreeSet<String> = (0..40).map(|n| format!("file{n}")).collect();
    names.iter().for_each(|file| drop(cluster.create(ROOT, file).unwrap()));
    for (bytes_max, plus) in [(0, false), (100, true), (500, false), (900, true), (100_000, true)] {
        let (mut seen, mut last, mut pages) = (Vec::new(), None, 0);
        loop {
            let (entries, end) = page(&cluster, last.as_ref(), bytes_max, plus).unwrap();
            assert!(end || !entries.is_empty());
            assert!(entries.iter().all(|e| e.attr.is_some() == plus));
            pages += 1;
            last = entries.last().cloned().or(last);
            seen.extend(entries);
            if end {
                break;
            }
        }
        let places: Vec<u64> = seen.iter().map(|e| e.place).collect();
        assert!(places.is_sorted());
        assert_eq!(seen.len(), names.len());
        let found: BTreeSet<String> = seen.iter().map(|e| e.name.to_string()).collect();
        assert_eq!(found, names);
        assert_eq!(pages == 1, bytes_max == 100_000);
    }
}

#[test]
fn a_page_is_cut_exactly_at_the_end() {
    let cluster = Cluster::new(&[ALL]);
    for n in 0..3 {
        cluster.create(ROOT, &format!("f{n}")).unwrap();
    }
    let exactly = 3 * (32 + 2);
    assert!(page(&cluster, None, exactly, false).unwrap().1);
    let (entries, end) = page(&cluster, None, exactly - 1, false).unwrap();
    assert_eq!((entries.len(), end), (2, false));
}

#[test]
fn a_listing_keeps_its_place_while_names_come_and_go() {
    let cluster = Cluster::new(&[ALL]);
    (0..30).for_each(|n| drop(cluster.create(ROOT, &format!("stays{n}")).unwrap()));
    let (mut seen, mut last) = (Vec::new(), None);
    for round in 0.. {
        let (entries, end) = page(&cluster, last.as_ref(), 150, false).unwrap();
        if round > 0 {
            cluster.unlink(ROOT, &format!("comes{}", round - 1)).unwrap();
        }
        cluster.create(ROOT, &format!("comes{round}")).unwrap();
        last = entries.last().cloned().or(last);
        seen.extend(entries.into_iter().map(|e| e.name.to_string()).filter(|n| n.starts_with("stays")));
        if end {
            break;
        }
    }
    assert_eq!(seen.len(), 30);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 30);
}

#[test]
fn behind_a_hash_alone_the_listing_goes_on_with_the_next() {
    let cluster = Cluster::new(&[ALL]);
    (0..5).for_each(|n| drop(cluster.create(ROOT, &format!("f{n}")).unwrap()));
    let (all, _) = page(&cluster, None, 4096, false).unwrap();
    let after = Some(Place { hash: all[1].place, name: Default::default() });
    let rest = cluster.op(
        HERE,
        Op::Readdir { dir: ROOT, after, bytes_max: 4096, plus: false, data_max: 0, in_shard: false },
    );
    assert_eq!(
        rest,
        Ok(Answer::Entries { entries: all[2..].to_vec().into(), end: true, contents: vec![].into() })
    );
}

#[test]
fn attributes_of_a_whole_page_come_with_two_loads() {
    let cluster = Cluster::new(&[ALL, ALL]);
    (0..50).for_each(|n| drop(cluster.create(ROOT, &format!("f{n}")).unwrap()));
    let (there, _) = cluster.mkdir_on(1, ROOT);
    let (entries, _) = page(&cluster, None, 100_000, true).unwrap();
    // The directory; its entries; all attributes.
    assert_eq!(cluster.loads.get(), 3);
    assert_eq!(entries.len(), 51);
    for entry in entries {
        assert_eq!(entry.attr.is_none(), entry.name == name(&there), "only this server's are known here");
    }
}

#[test]
fn only_directories_are_listed() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "f").unwrap().handle;
    let op =
        Op::Readdir { dir: file, after: None, bytes_max: 100, plus: false, data_max: 0, in_shard: false };
    assert_eq!(cluster.op(HERE, op), Err(Status::NotDirectory));
    let dir = cluster.mkdir(ROOT, "d").unwrap().handle;
    let kinds: Vec<Kind> = cluster.list(ROOT).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [Kind::Directory, Kind::File]);
    cluster.rmdir(ROOT, "d").unwrap();
    let op = Op::Readdir { dir, after: None, bytes_max: 100, plus: false, data_max: 0, in_shard: false };
    assert_eq!(cluster.op(HERE, op), Err(Status::Stale));
}

#[test]
fn an_answer_is_not_larger_than_was_asked_for() {
    let cluster = Cluster::new(&[Roles::METADATA, Roles::DATA, Roles::DATA, Roles::DATA]);
    (0..20).for_each(|n| drop(cluster.create(ROOT, &format!("{n:0>100}")).unwrap()));
    for (bytes_max, plus) in [(300, false), (700, true), (2000, true), (2500, false)] {
        let (entries, end) = page(&cluster, None, bytes_max, plus).unwrap();
        assert!(!end && !entries.is_empty());
        let mut w = Writer::new();
        entries.iter().for_each(|entry| entry.encode(&mut w));
        assert!(w.into_vec().len() <= bytes_max as usize);
    }
}

#[test]
fn contents_of_small_files_come_with_their_entries() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let files = [("a", &b"one"[..]), ("b", b""), ("c", b"more than five")];
    for (file, data) in files {
        let handle = cluster.create(ROOT, file).unwrap().handle;
        cluster.write(handle, data);
    }
    let (there, _) = cluster.mkdir_on(1, ROOT);
    let op =
        Op::Readdir { dir: ROOT, after: None, bytes_max: 100_000, plus: true, data_max: 5, in_shard: false };
    let Ok(Answer::Entries { entries, contents, end: true }) = cluster.op(HERE, op) else { panic!() };
    for (entry, content) in entries.0.iter().zip(&contents.0) {
        let wanted = match entry.name.to_string().as_str() {
            "a" => Some(3),
            "b" => Some(0),
            other => {
                assert!(other == "c" || other == there);
                None
            }
        };
        assert_eq!(*content, wanted, "{}", entry.name);
    }
    // Counted to the size of the answer, and none where none were requested.
    let op =
        Op::Readdir { dir: ROOT, after: None, bytes_max: 400, plus: true, data_max: 16_384, in_shard: false };
    let Ok(Answer::Entries { entries, end: false, .. }) = cluster.op(HERE, op) else { panic!() };
    assert!(entries.0.len() < 3);
    let op =
        Op::Readdir { dir: ROOT, after: None, bytes_max: 100_000, plus: true, data_max: 0, in_shard: false };
    assert!(matches!(cluster.op(HERE, op), Ok(Answer::Entries { contents, .. }) if contents.0.is_empty()));
}
