//! Containers over a directory, against a plain file: byte for byte, whatever is opened, written, cut, moved
//! and removed, by several processes.

use crate::scene::{BOTH, find, mount, name, run};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use shoal_pattern::{Level, Pattern, Region};
use shoal_proto::{Allocation, Handle, Kind, Owner, Rights, SetAttr, Status, Time};
use shoal_transform::container::tools;
use shoal_transform::{Container, ContainerFile};
use shoal_vfs::{AnyVfs, Listing, RenameFlags, Vfs, VfsFile};
use std::collections::BTreeMap;
use std::time::Duration;

type Mounted = Container<AnyVfs>;
type File = ContainerFile<AnyVfs>;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

fn owner() -> Owner {
    Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw(), ..OWNER }
}

#[derive(Clone, Debug)]
enum Step {
    Open { process: usize, file: usize },
    Close { which: usize },
    Write { which: usize, at: u64, len: usize, count: u64, stride: i64 },
    WritePattern { which: usize, pattern: Pattern },
    ReadPattern { which: usize, pattern: Pattern },
    Append { which: usize, len: usize },
    Truncate { process: usize, file: usize, size: u64 },
    Read { which: usize, at: u64, len: usize },
    Unlink { process: usize, file: usize },
    Rename { process: usize, from: usize, to: usize },
}

/// Strided, nested and irregular patterns; some overlap themselves or begin before the file.
fn pattern() -> impl Strategy<Value = Pattern> {
    let strided = (0..300i64, 1..20u64, -60..60i64, 1..12u64)
        .prop_map(|(at, len, stride, count)| Pattern::strided(at, len, stride, count).unwrap());
    let level = |stride: std::ops::Range<i64>| {
        (stride, 1..5u64).prop_map(|(stride, quantity)| Level { stride, quantity })
    };
    let nested = (0..200i64, 1..6u64, level(-20..20), level(-70..70))
        .prop_map(|(at, len, inner, outer)| Pattern::nested(at, len, vec![inner, outer]).unwrap());
    let regions = proptest::collection::vec((0..400i64, 0..30u64), 0..9);
    let list = regions.prop_map(|regions| {
        Pattern::list(regions.into_iter().map(|(at, len)| Region::new(at, len)).collect()).unwrap()
    });
    prop_oneof![strided, nested, list]
}

fn step() -> impl Strategy<Value = Step> {
    let (process, file, which) = (0..3usize, 0..3usize, 0..6usize);
    prop_oneof![
        4 => (process.clone(), file.clone()).prop_map(|(process, file)| Step::Open { process, file }),
        3 => which.clone().prop_map(|which| Step::Close { which }),
        6 => (which.clone(), 0..300u64, 1..40usize, 1..12u64, -60..60i64)
            .prop_map(|(which, at, len, count, stride)| Step::Write { which, at, len, count, stride }),
        4 => (which.clone(), pattern()).prop_map(|(which, pattern)| Step::WritePattern { which, pattern }),
        3 => (which.clone(), pattern()).prop_map(|(which, pattern)| Step::ReadPattern { which, pattern }),
        2 => (which.clone(), 1..50usize).prop_map(|(which, len)| Step::Append { which, len }),
        1 => (process.clone(), file.clone(), 0..500u64)
            .prop_map(|(process, file, size)| Step::Truncate { process, file, size }),
        3 => (which, 0..400u64, 1..300usize).prop_map(|(which, at, len)| Step::Read { which, at, len }),
        1 => (process.clone(), file.clone()).prop_map(|(process, file)| Step::Unlink { process, file }),
        1 => (process, file.clone(), file).prop_map(|(process, from, to)| Step::Rename { process, from, to }),
    ]
}

/// A file as a plain one would be, and the process that has it open: one at a time, so that what each sees is
/// certain.
#[derive(Default)]
struct Plain {
    bytes: Vec<u8>,
}

struct Open {
    process: usize,
    plain: usize,
    file: File,
}

struct World {
    mounts: Vec<Mounted>,
    plains: Vec<Plain>,
    names: BTreeMap<usize, usize>,
    opens: Vec<Open>,
    fill: u8,
}

impl World {
    async fn step(&mut self, step: &Step) {
        match *step {
            Step::WritePattern { which, ref pattern } => self.write_pattern(which, pattern).await,
            Step::ReadPattern { which, ref pattern } => self.read_pattern(which, pattern).await,
            Step::Open { process, file } => self.open(process, file).await,
            Step::Close { which } => {
                if which < self.opens.len() {
                    self.opens.remove(which).file.close().await.unwrap();
                }
            }
            Step::Write { which, at, len, count, stride } => {
                for turn in 0..count as i64 {
                    if let Ok(at) = u64::try_from(at as i64 + turn * stride) {
                        self.write(which, at, len).await;
                    }
                }
            }
            Step::Append { which, len } => self.append(which, len).await,
            Step::Truncate { process, file, size } => self.truncate(process, file, size).await,
            Step::Read { which, at, len } => self.read(which, at, len).await,
            // The logs of a file that another process has open go with its name: SEMANTICS says so.
            Step::Unlink { process, file } if self.is_busy(process, file) => {}
            Step::Rename { process, to, .. } if self.is_busy(process, to) => {}
            Step::Unlink { process, file } => {
                let removed = self.mounts[process].unlink(Handle::ROOT, &name(&file.to_string())).await;
                match self.names.remove(&file) {
                    Some(_) => removed.unwrap(),
                    None => assert_eq!(removed.unwrap_err().status, Status::NotFound),
                }
            }
            Step::Rename { process, from, to } => {
                let (old, new) = (name(&from.to_string()), name(&to.to_string()));
                let flags = RenameFlags::default();
                let moved = self.mounts[process].rename(Handle::ROOT, &old, Handle::ROOT, &new, flags).await;
                match self.names.get(&from).copied() {
                    Some(plain) => {
                        moved.unwrap();
                        self.names.remove(&from);
                        self.names.insert(to, plain);
                    }
                    None => assert_eq!(moved.unwrap_err().status, Status::NotFound),
                }
            }
        }
    }

    /// Whether another process has a file open: then its view is promised only at its next open.
    fn is_elsewhere(&self, process: usize, plain: usize) -> bool {
        self.opens.iter().any(|open| open.plain == plain && open.process != process)
    }

    fn is_busy(&self, process: usize, file: usize) -> bool {
        self.names.get(&file).is_some_and(|plain| self.is_elsewhere(process, *plain))
    }

    async fn open(&mut self, process: usize, file: usize) {
        if self.opens.len() >= 6
            || self.names.get(&file).is_some_and(|plain| self.is_elsewhere(process, *plain))
        {
            return;
        }
        let called = name(&file.to_string());
        let created = self.mounts[process].create(Handle::ROOT, &called, owner(), false, BOTH);
        let (attr, is_new, opened) = created.await.unwrap();
        assert_eq!(is_new, !self.names.contains_key(&file));
        let plain = *self.names.entry(file).or_insert_with(|| {
            self.plains.push(Plain::default());
            self.plains.len() - 1
        });
        assert_eq!(attr.size, self.plains[plain].bytes.len() as u64);
        self.opens.push(Open { process, plain, file: opened });
    }

    fn bytes(&mut self, len: usize) -> Bytes {
        self.fill = self.fill % 250 + 1;
        Bytes::from(vec![self.fill; len])
    }

    async fn write(&mut self, which: usize, at: u64, len: usize) {
        let bytes = self.bytes(len);
        let Some(open) = self.opens.get(which) else { return };
        open.file.write(at, bytes.clone()).await.unwrap();
        let plain = &mut self.plains[open.plain].bytes;
        let end = at as usize + len;
        plain.resize(plain.len().max(end), 0);
        plain[at as usize..end].copy_from_slice(&bytes);
    }

    async fn write_pattern(&mut self, which: usize, pattern: &Pattern) {
        let data: Vec<u8> = (0..pattern.len()).map(|at| self.fill.wrapping_add(at as u8)).collect();
        self.fill = self.fill % 250 + 1;
        let Some(open) = self.opens.get(which) else { return };
        let written = open.file.write_pattern(pattern, data.clone().into()).await;
        let Some((first, end)) = pattern.bounds() else { return written.unwrap() };
        if first < 0 {
            return assert_eq!(written.unwrap_err().status, Status::Invalid);
        }
        written.unwrap();
        let plain = &mut self.plains[open.plain].bytes;
        plain.resize(plain.len().max(end as usize), 0);
        let mut data = &data[..];
        for region in pattern.regions() {
            let (now, rest) = data.split_at(region.len as usize);
            plain[region.offset as usize..][..now.len()].copy_from_slice(now);
            data = rest;
        }
    }

    async fn read_pattern(&self, which: usize, pattern: &Pattern) {
        let Some(open) = self.opens.get(which) else { return };
        let read = open.file.read_pattern_sized(pattern).await;
        let Some((first, end)) = pattern.bounds() else { return assert_eq!(read.unwrap().1, 0) };
        if first < 0 {
            return assert_eq!(read.unwrap_err().status, Status::Invalid);
        }
        let (read, reached) = read.unwrap();
        let plain = &self.plains[open.plain].bytes;
        assert_eq!(reached, (plain.len() as u64).min(end as u64));
        let wanted: Vec<u8> = pattern
            .regions()
            .flat_map(|region| (0..region.len).map(move |at| region.offset as usize + at as usize))
            .map(|at| plain.get(at).copied().unwrap_or(0))
            .collect();
        assert_eq!(read, wanted);
    }

    async fn append(&mut self, which: usize, len: usize) {
        let bytes = self.bytes(len);
        let Some(open) = self.opens.get(which) else { return };
        let plain = &mut self.plains[open.plain].bytes;
        assert_eq!(open.file.append(bytes.clone()).await.unwrap(), plain.len() as u64);
        plain.extend_from_slice(&bytes);
    }

    async fn truncate(&mut self, process: usize, file: usize, size: u64) {
        let Some(&plain) = self.names.get(&file) else { return };
        if self.is_elsewhere(process, plain) {
            return;
        }
        let mount = &self.mounts[process];
        let object = mount.lookup(Handle::ROOT, &name(&file.to_string())).await.unwrap().handle;
        let attr = mount.truncate(object, size, false).await.unwrap();
        assert_eq!(attr.size, size);
        self.plains[plain].bytes.resize(size as usize, 0);
    }

    async fn read(&self, which: usize, at: u64, len: usize) {
        let Some(open) = self.opens.get(which) else { return };
        let read = open.file.read(at, len).await.unwrap();
        let plain = &self.plains[open.plain].bytes;
        let from = (at as usize).min(plain.len());
        assert_eq!(read[..], plain[from..(from + len).min(plain.len())]);
    }

    /// Each file, as each process sees it.
    async fn check(&mut self) {
        for open in self.opens.drain(..) {
            open.file.close().await.unwrap();
        }
        for (file, plain) in &self.names {
            for mount in &self.mounts {
                let attr = mount.lookup(Handle::ROOT, &name(&file.to_string())).await.unwrap();
                let plain = &self.plains[*plain].bytes;
                assert_eq!((attr.kind, attr.size), (Kind::File, plain.len() as u64));
                let opened = mount.open(attr.handle, Rights::READ).await.unwrap();
                assert_eq!(opened.read(0, 10_000).await.unwrap()[..], plain[..]);
                opened.close().await.unwrap();
            }
        }
        let mut listing = self.mounts[0].opendir(Handle::ROOT, Duration::from_secs(1));
        let mut listed = 0;
        while let Some(entry) = listing.next(true).await.unwrap() {
            assert_eq!(entry.entry.attr.unwrap().kind, Kind::File);
            listed += 1;
        }
        assert_eq!(listed, self.names.len());
    }
}

#[test]
fn a_container_is_byte_for_byte_what_a_plain_file_is_for_each_of_several_processes() {
    let cases = std::env::var("SHOAL_TRANSFORM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let tried = TestRunner::new(config).run(&proptest::collection::vec(step(), 1..40), |steps| {
        run(async move |env, dir| {
            let mut mounts = Vec::new();
            for _ in 0..3 {
                mounts.push(mount(&env, dir).await);
            }
            let (plains, names, opens) = (Vec::new(), BTreeMap::new(), Vec::new());
            let mut world = World { mounts, plains, names, opens, fill: 0 };
            for step in &steps {
                world.step(step).await;
            }
            world.check().await;
            for mount in world.mounts {
                mount.close().await;
            }
        });
        Ok(())
    });
    match tried {
        Err(TestError::Fail(why, steps)) => panic!("{why}\n{steps:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
}

#[test]
fn bytes_outlive_a_process_that_never_closes() {
    run(async |env, dir| {
        let killed = mount(&env, dir).await;
        let (_, _, file) = killed.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        for turn in 0..100u64 {
            file.write(turn * 1000, Bytes::from(vec![turn as u8; 10])).await.unwrap();
        }
        // Nothing is closed: the other process sees it as it would after a kill.
        let other = mount(&env, dir).await;
        let seen = other.lookup(Handle::ROOT, &name("f")).await.unwrap();
        assert_eq!(seen.size, 99_010);
        let opened = other.open(seen.handle, Rights::READ).await.unwrap();
        for turn in 0..100u64 {
            assert_eq!(opened.read(turn * 1000, 10).await.unwrap()[..], [turn as u8; 10]);
        }
        std::mem::forget(file);
    });
}

#[test]
fn a_truncation_cuts_what_it_found_and_no_byte_that_another_writes_later() {
    run(async |env, dir| {
        let (one, two) = (mount(&env, dir).await, mount(&env, dir).await);
        let (_, _, first) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        first.write(0, Bytes::from_static(&[1; 100])).await.unwrap();
        let there = find(&two, "f").await;
        let second = two.open(there, BOTH).await.unwrap();
        second.write(100, Bytes::from_static(&[2; 100])).await.unwrap();
        two.truncate(there, 0, false).await.unwrap();
        // The first process does not know of it, and its clock may be late.
        first.write(50, Bytes::from_static(&[3; 10])).await.unwrap();
        first.close().await.unwrap();
        second.close().await.unwrap();
        let seen = mount(&env, dir).await;
        let file = seen.open(find(&seen, "f").await, Rights::READ).await.unwrap();
        let mut expected = vec![0; 50];
        expected.extend([3; 10]);
        assert_eq!(file.read(0, 1000).await.unwrap()[..], expected[..]);
    });
}

#[test]
fn modes_and_times_are_kept_and_hard_links_refused() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        assert_eq!((attr.mode, attr.kind, attr.nlink), (0o644, Kind::File, 1));
        file.write(0, Bytes::from_static(b"text")).await.unwrap();
        let set = SetAttr { mode: Some(0), mtime: Some(Time(5_000_000_000)), ..SetAttr::default() };
        one.setattr(attr.handle, set).await.unwrap();
        file.close().await.unwrap();
        let other = mount(&env, dir).await;
        let seen = other.lookup(Handle::ROOT, &name("f")).await;
        assert_eq!(seen.map(|attr| (attr.mode, attr.mtime)), Ok((0, Time(5_000_000_000))));
        let refused = one.link(attr.handle, Handle::ROOT, &name("g")).await.unwrap_err();
        assert_eq!(refused.status, Status::NotPermitted);
    });
}

#[test]
fn ten_thousand_appends_by_opens_of_one_process_leave_one_log() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.close().await.unwrap();
        for turn in 0..200u64 {
            let file = one.open(attr.handle, Rights::WRITE).await.unwrap();
            assert_eq!(file.append(Bytes::from_static(b"line\n")).await.unwrap(), turn * 5);
            file.close().await.unwrap();
        }
        assert_eq!(one.getattr(attr.handle).await.unwrap().size, 1000);
        let logs = std::fs::read_dir(dir.join("f")).unwrap().flatten();
        assert!(logs.count() <= 4);
    });
}

#[test]
fn an_open_sees_all_that_returned_before_it_while_writers_close() {
    run(async |env, dir| {
        let (one, two) = (mount(&env, dir).await, mount(&env, dir).await);
        let (attr, _, first) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        first.write(0, Bytes::from_static(&[7; 10])).await.unwrap();
        first.close().await.unwrap();
        for turn in 1..150u64 {
            let file = one.open(attr.handle, Rights::WRITE).await.unwrap();
            file.write(turn * 10, Bytes::from_static(&[7; 10])).await.unwrap();
            let read = async {
                let there = find(&two, "f").await;
                let seen = two.open(there, Rights::READ).await.unwrap();
                let len = seen.read(0, 100_000).await.unwrap().len() as u64;
                seen.close().await.unwrap();
                len
            };
            let again = async {
                let seen = one.open(attr.handle, Rights::READ).await.unwrap();
                let len = seen.read(0, 100_000).await.unwrap().len() as u64;
                seen.close().await.unwrap();
                len
            };
            let (closed, there, here) = futures_util::join!(file.close(), read, again);
            closed.unwrap();
            assert_eq!((there, here), (turn * 10 + 10, turn * 10 + 10));
        }
    });
}

/// Begin writes of 8 MiB until one is given up. On a busy machine a thread may end one before this one looks.
fn give_up_a_write(file: &File, at: u64) {
    let given_up = || file.write(at, Bytes::from(vec![7; 8 << 20])).now_or_never().is_none();
    assert!((0..100).any(|_| given_up()));
}

#[test]
fn a_write_that_is_given_up_does_not_move_the_bytes_of_later_ones() {
    // One that begins an entry, and one whose entry is in the log.
    for at in [100, 10] {
        run(async move |env, dir| {
            let one = mount(&env, dir).await;
            let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
            file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
            give_up_a_write(&file, at);
            env.sleep(Duration::from_millis(50)).await;
            file.write(10, Bytes::from_static(b"next bytes")).await.unwrap();
            for mount in [one.clone(), mount(&env, dir).await] {
                let opened = mount.open(find(&mount, "f").await, Rights::READ).await.unwrap();
                assert_eq!(opened.read(0, 20).await.unwrap()[..], *b"0123456789next bytes");
            }
        });
    }
}

#[test]
fn a_truncation_cuts_what_a_write_that_was_given_up_left() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        for size in [0, 10] {
            file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
            give_up_a_write(&file, 10);
            env.sleep(Duration::from_millis(50)).await;
            assert_eq!(one.truncate(attr.handle, size, false).await.unwrap().size, size);
            let two = mount(&env, dir).await;
            assert_eq!(two.lookup(Handle::ROOT, &name("f")).await.unwrap().size, size);
            let opened = two.open(find(&two, "f").await, Rights::READ).await.unwrap();
            assert_eq!(opened.read(0, 100).await.unwrap()[..], b"0123456789"[..size as usize]);
        }
        file.close().await.unwrap();
        one.close().await;
        let two = mount(&env, dir).await;
        assert_eq!(tools::check(&two, find(&two, "f").await).await.unwrap(), Vec::<String>::new());
    });
}

#[test]
fn an_allocation_cuts_nothing_that_is_written_meanwhile() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let long = file.write(0, Bytes::from(vec![7; 8 << 20]));
        let (written, allocated) = join(long, file.allocate(0, 4096, Allocation::Extend)).await;
        written.and(allocated).unwrap();
        assert_eq!(file.read(4096, 9 << 20).await.unwrap(), vec![7; (8 << 20) - 4096]);
        // A process does not see what another one wrote since it opened the file.
        let (_, _, own) = one.create(Handle::ROOT, &name("g"), owner(), true, BOTH).await.unwrap();
        let two = mount(&env, dir).await;
        let other = two.open(find(&two, "g").await, BOTH).await.unwrap();
        other.write(0, Bytes::from(vec![7; 1000])).await.unwrap();
        own.allocate(0, 500, Allocation::Extend).await.unwrap();
        own.allocate(500, 1000, Allocation::Extend).await.unwrap();
        let there = mount(&env, dir).await;
        let opened = there.open(find(&there, "g").await, Rights::READ).await.unwrap();
        assert_eq!(opened.read(0, 2000).await.unwrap()[..], [vec![7; 1000], vec![0; 500]].concat());
    });
}

#[test]
fn a_read_of_more_pieces_than_are_gathered_at_once_has_each_at_its_place() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let other = file.again();
        // Each second byte is of another log.
        let records = 35_000u64;
        for (file, at) in [(&file, 0), (&other, 1)] {
            let data: Bytes = (0..records).map(|n| ((2 * n + at) % 251) as u8).collect();
            let pattern = Pattern::strided(at as i64, 1, 2, records).unwrap();
            file.write_pattern(&pattern, data).await.unwrap();
        }
        let all: Vec<u8> = (0..2 * records).map(|n| (n % 251) as u8).collect();
        assert!(file.read(0, all.len()).await.unwrap() == all, "other bytes");
        let backwards = Pattern::strided(2 * records as i64 - 1, 1, -1, 2 * records).unwrap();
        let reversed: Vec<u8> = all.into_iter().rev().collect();
        assert!(file.read_pattern(&backwards).await.unwrap() == reversed, "other bytes backwards");
    });
}

#[test]
fn records_up_to_the_last_offset_are_read_by_another_process() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let regions = [(850, 100), (450, 100), (50, 50)].map(|(back, len)| Region::new(i64::MAX - back, len));
        let pattern = Pattern::list(regions.to_vec()).unwrap();
        let data: Vec<u8> = (0..250).collect();
        file.write_pattern(&pattern, data.clone().into()).await.unwrap();
        file.write(0, Bytes::from_static(b"first")).await.unwrap();
        let two = mount(&env, dir).await;
        let opened = two.open(find(&two, "f").await, Rights::READ).await.unwrap();
        let (read, reached) = opened.read_pattern_sized(&pattern).await.unwrap();
        assert_eq!((&read[..], reached), (&data[..], i64::MAX as u64));
        assert_eq!(opened.read(0, 9).await.unwrap()[..], *b"first\0\0\0\0");
    });
}

#[test]
fn a_patterned_write_without_bytes_makes_no_log() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let names = || std::fs::read_dir(dir.join("f")).unwrap().count();
        let before = names();
        file.write_pattern(&Pattern::list(Vec::new()).unwrap(), Bytes::new()).await.unwrap();
        let short = file.write_pattern(&Pattern::contiguous(0, 5).unwrap(), Bytes::new()).await;
        assert_eq!(short.unwrap_err().status, Status::Invalid);
        assert_eq!(names(), before);
        file.write(0, Bytes::from_static(b"x")).await.unwrap();
        assert!(names() > before);
    });
}
