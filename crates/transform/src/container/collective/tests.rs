//! Tests that a group of any size reads the same index as a single process.

use super::*;
use crate::ContainerOptions;
use proptest::prelude::*;
use shoal_env::{Address, Env, real};
use shoal_proto::{Name, Owner};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, VfsFile};
use std::path::Path;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
/// Bytes of a file, about.
const BYTES: u64 = 2000;

/// A step of one of the writers.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write {
        at: u64,
        len: u64,
    },
    /// Records of one stride.
    Strided {
        at: u64,
        len: u64,
        stride: u64,
        count: u64,
    },
    Truncate {
        size: u64,
    },
    /// Close, and open again before the next step.
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let (at, len) = (0..BYTES, 1..100u64);
    prop_oneof![
        4 => (at.clone(), len.clone()).prop_map(|(at, len)| Step::Write { at, len }),
        2 => (at.clone(), 1..9u64, 9..40u64, 1..30u64)
            .prop_map(|(at, len, stride, count)| Step::Strided { at, len, stride, count }),
        1 => at.prop_map(|size| Step::Truncate { size }),
        1 => Just(Step::Close),
    ]
}

fn name() -> Name {
    Name::new(b"file").unwrap()
}

async fn mount(env: &Env, dir: &Path) -> Container<AnyVfs> {
    let over = LocalOptions { inline: true, descriptors: Some(16), ..LocalOptions::new(dir) };
    ContainerOptions::new(over).connect(env.clone()).await.unwrap()
}

/// The writers do their steps in turn, each from a mount of its own.
async fn write(env: &Env, dir: &Path, writers: usize, steps: &[(usize, Step)]) {
    let owner = rustix::process::getuid().as_raw();
    let owner = Owner { mode: 0o644, uid: owner, gid: rustix::process::getgid().as_raw() };
    let mut mounts = Vec::new();
    for _ in 0..writers {
        mounts.push(mount(env, dir).await);
    }
    mounts[0].create(Handle::ROOT, &name(), owner, true, BOTH).await.unwrap();
    let mut files: Vec<Option<ContainerFile<AnyVfs>>> = (0..writers).map(|_| None).collect();
    for (number, (writer, step)) in steps.iter().enumerate() {
        let writer = writer % writers;
        if files[writer].is_none() {
            files[writer] = Some(mounts[writer].open_name(Handle::ROOT, &name(), BOTH).await.unwrap());
        }
        let byte = number as u8 | 1;
        let file = files[writer].as_ref().unwrap();
        let data = |len: u64| Bytes::from(vec![byte; len as usize]);
        match *step {
            Step::Write { at, len } => file.write(at, data(len)).await.unwrap(),
            Step::Strided { at, len, stride, count } => {
                for record in 0..count {
                    file.write(at + record * stride, data(len)).await.unwrap();
                }
            }
            Step::Truncate { size } => file.truncate(size).await.unwrap(),
            Step::Close => files[writer].take().unwrap().close().await.unwrap(),
        }
    }
    // Writers that did not close end without a word.
    std::mem::forget(files);
}

/// The index of an open file in words, and its bytes.
async fn seen(file: ContainerFile<AnyVfs>) -> (String, Bytes) {
    let seen = (file.index_in_words(), file.read(0, 1 << 16).await.unwrap());
    file.close().await.unwrap();
    seen
}

/// All members open it, each a thread with a world of its own.
fn together(dir: &Path, size: usize) -> Vec<(String, Bytes)> {
    let listen = Address::Local(dir.display().to_string());
    let patience = Duration::from_secs(60);
    let begin = |rank| {
        let meeting = Meeting { job: "job".to_owned(), rank, size, listen: listen.clone(), patience };
        let dir = dir.to_owned();
        let member = async move |env: Env| {
            let mounted = mount(&env, &dir).await;
            let object = mounted.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            let group = mounted.meet(object, &meeting).await.unwrap();
            seen(mounted.open_together(object, Rights::READ, &group).await.unwrap()).await
        };
        std::thread::spawn(move || real::run("member", member))
    };
    let members: Vec<_> = (0..size).map(begin).collect();
    members.into_iter().map(|member| member.join().unwrap()).collect()
}

fn check(writers: usize, steps: Vec<(usize, Step)>) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().to_owned();
    let (alone, bytes) = real::run("writers", async move |env| {
        write(&env, &dir, writers, &steps).await;
        let mounted = mount(&env, &dir).await;
        seen(mounted.open_name(Handle::ROOT, &name(), Rights::READ).await.unwrap()).await
    });
    for size in 1..=8 {
        for (index, read) in together(home.path(), size) {
            assert_eq!(index, alone, "{size} members");
            assert!(read == bytes, "{size} members");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_group_of_any_size_reads_the_index_that_one_process_reads_alone(
        writers in 1..7usize,
        steps in prop::collection::vec((0..7usize, step()), 1..40),
    ) {
        check(writers, steps);
    }
}

#[test]
fn an_index_of_several_rounds_is_the_same() {
    // Each of 8 members sends 2 MiB in a round, and an entry has 49 bytes.
    let entries = (ROUND_BYTES_MAX / 8 / 49 + 100) as u64;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().to_owned();
    let alone = real::run("writers", async move |env| {
        write(&env, &dir, 1, &[(0, Step::Write { at: 0, len: 1 })]).await;
        add_entries(&dir, entries);
        let mounted = mount(&env, &dir).await;
        seen(mounted.open_name(Handle::ROOT, &name(), Rights::READ).await.unwrap()).await
    });
    assert!(alone.1.len() as u64 > entries);
    for seen in together(home.path(), 8) {
        assert!(seen == alone);
    }
}

/// Append so many irregular entries, and their bytes, to the logs of the only writer.
fn add_entries(dir: &Path, entries: u64) {
    use crate::record::{Entry, Record};
    use std::io::Write as _;
    let folders = std::fs::read_dir(dir.join("file")).unwrap().map(|entry| entry.unwrap().path());
    let folder = folders.into_iter().find(|path| path.is_dir()).unwrap();
    let append = |kind: &str, bytes: &[u8]| {
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let is_it = |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(kind);
        let mut file =
            std::fs::File::options().append(true).open(files.into_iter().find(is_it).unwrap()).unwrap();
        file.write_all(bytes).unwrap();
    };
    let entry =
        |n: u64| Entry { logical: n * n % 60_000, record: 0, stride: 0, physical: n, stamp: 1 << 62 | n };
    let records: Vec<u8> = (1..entries).flat_map(|n| Record::Entry(entry(n)).encode()).collect();
    append("index.", &records);
    append("data.", &vec![7; entries as usize]);
}
