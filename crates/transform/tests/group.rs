//! Groups: threads and processes that open one container together.

use bytes::Bytes;
use shoal_env::{Address, Env, real};
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_transform::container::tools;
use shoal_transform::group::{Group, Meeting};
use shoal_transform::{Container, ContainerOptions};
use shoal_vfs::{Connect, Error, Local, LocalOptions, Result, Vfs, VfsFile};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a record; writers are interleaved.
const RECORD: u64 = 8;
const RECORDS: u64 = 4;

fn owner() -> Owner {
    Owner { mode: 0o644, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

fn name() -> Name {
    Name::new(b"file").unwrap()
}

async fn mount(env: &Env, dir: &Path) -> Container<Local> {
    let over = LocalOptions { inline: true, ..LocalOptions::new(dir) };
    ContainerOptions { over }.connect(env.clone()).await.unwrap()
}

fn byte_of(writer: u64, record: u64) -> u8 {
    (writer * 31 + record * 7) as u8 | 1
}

/// A file of so many writers.
fn write(dir: &Path, writers: u64) {
    let dir = dir.to_owned();
    real::run("writers", move |env| async move {
        let mounted = mount(&env, &dir).await;
        let (_, _, first) = mounted.create(Handle::ROOT, &name(), owner(), true, BOTH).await.unwrap();
        let mut files = vec![first];
        for _ in 1..writers {
            files.push(mounted.open_name(Handle::ROOT, &name(), BOTH).await.unwrap());
        }
        for (writer, file) in files.iter().enumerate() {
            for record in 0..RECORDS {
                let at = (record * writers + writer as u64) * RECORD;
                let data = vec![byte_of(writer as u64, record); RECORD as usize];
                file.write(at, Bytes::from(data)).await.unwrap();
            }
        }
        // Nothing is closed: so nothing is flattened.
        std::mem::forget(files);
    });
}

fn wanted(writers: u64) -> Vec<u8> {
    let bytes = |at: u64| byte_of(at / RECORD % writers, at / RECORD / writers);
    (0..writers * RECORDS * RECORD).map(bytes).collect()
}

fn meeting(listen: &str, rank: usize, size: usize, patience: Duration) -> Meeting {
    let listen: Address = listen.parse().unwrap();
    Meeting { job: "job".to_owned(), rank, size, listen, patience }
}

/// What one member reads, and how many index logs it opened.
async fn read_together(env: &Env, dir: &Path, meeting: &Meeting) -> Result<(Vec<u8>, u64)> {
    let mounted = mount(env, dir).await;
    let object = mounted.lookup(Handle::ROOT, &name()).await?.handle;
    let group = mounted.meet(object, meeting).await?;
    let before = mounted.index_opens();
    let file = mounted.open_together(object, Rights::READ, &group).await?;
    let opened = mounted.index_opens() - before;
    let bytes = file.read(0, 1 << 20).await?;
    file.close().await?;
    Ok((bytes.to_vec(), opened))
}

/// All members, each a thread with a world of its own: index logs that they opened together.
fn by_threads(dir: &Path, address: &str, size: usize, wanted: &[u8]) -> u64 {
    let members: Vec<_> = (0..size)
        .map(|rank| {
            let (dir, meeting) = (dir.to_owned(), meeting(address, rank, size, PATIENCE));
            std::thread::spawn(move || {
                real::run("member", move |env| async move { read_together(&env, &dir, &meeting).await })
            })
        })
        .collect();
    let read = members.into_iter().map(|member| member.join().unwrap().unwrap());
    read.map(|(bytes, opened)| {
        assert!(bytes == wanted);
        opened
    })
    .sum()
}

#[test]
fn of_64_writers_64_readers_open_4096_index_logs_alone_64_together_and_one_that_is_flattened() {
    const N: u64 = 64;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), N);
    let all = wanted(N);
    let (path, expected) = (dir.path().to_owned(), all.clone());
    let alone: u64 = real::run("alone", move |env| async move {
        let mut opened = 0;
        for _ in 0..N {
            let mounted = mount(&env, &path).await;
            let object = mounted.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            let before = mounted.index_opens();
            let file = mounted.open(object, Rights::READ).await.unwrap();
            opened += mounted.index_opens() - before;
            assert!(file.read(0, 1 << 20).await.unwrap() == expected);
            file.close().await.unwrap();
        }
        opened
    });
    assert_eq!(alone, N * N);
    assert_eq!(by_threads(dir.path(), "local:group-1", N as usize, &all), N);
    let path = dir.path().to_owned();
    real::run("flatten", move |env| async move {
        let mounted = mount(&env, &path).await;
        let object = mounted.lookup(Handle::ROOT, &name()).await.unwrap().handle;
        // The writers of this process have ended, as far as anybody can know.
        let allowed = tools::Allowed { lossy: false, ended: true };
        tools::recover(&mounted, object, allowed).await.unwrap();
        assert_eq!(tools::flatten(&mounted, object).await.unwrap(), N as usize);
    });
    assert_eq!(
        by_threads(dir.path(), "local:group-2", N as usize, &all),
        1,
        "one opens it, and sends it to all"
    );
}

/// A process of a group, if this is one: see the tests below.
#[test]
fn a_member_of_a_group_of_processes() {
    let Ok(words) = std::env::var("SHOAL_GROUP_MEMBER") else { return };
    let words: Vec<&str> = words.split(' ').collect();
    let [dir, listen, rank, size, patience_ms, role] = words[..] else { panic!("{words:?}") };
    let (dir, rank) = (dir.to_owned(), rank.parse::<usize>().unwrap());
    let patience = Duration::from_millis(patience_ms.parse().unwrap());
    let meeting = meeting(listen, rank, size.parse().unwrap(), patience);
    let (path, dies) = (Path::new(&dir).to_owned(), role == "dies");
    let said = real::run("member", move |env| async move {
        if dies {
            let mounted = mount(&env, &path).await;
            let object = mounted.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            let group = mounted.meet(object, &meeting).await.unwrap();
            assert_eq!(group.rank(), meeting.rank);
            // In the middle of the open: without a word.
            std::process::exit(0);
        }
        read_together(&env, &path, &meeting).await
    });
    let text = match said {
        Ok((bytes, opened)) => format!("read {} {opened}", crc32c::crc32c(&bytes)),
        Err(error) => format!("failed {error}"),
    };
    std::fs::write(Path::new(&dir).join(format!("../said-{rank}")), text).unwrap();
}

fn begin(dir: &Path, listen: &str, rank: usize, size: usize, patience: Duration, role: &str) -> Child {
    let words = format!("{} {listen} {rank} {size} {} {role}", dir.display(), patience.as_millis());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_member_of_a_group_of_processes"]).env("SHOAL_GROUP_MEMBER", words);
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// What all members but one said.
fn said(home: &Path, size: usize, without: Option<usize>) -> Vec<String> {
    let ranks = (0..size).filter(|rank| Some(*rank) != without);
    ranks.map(|rank| std::fs::read_to_string(home.join(format!("said-{rank}"))).unwrap()).collect()
}

#[test]
fn sixteen_processes_read_the_same_bytes_and_open_each_index_log_once() {
    const SIZE: usize = 16;
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    write(&dir, 24);
    let socket = format!("unix:{}", home.path().join("socket").display());
    for listen in ["tcp:127.0.0.1:0", &socket] {
        let members: Vec<Child> =
            (0..SIZE).map(|rank| begin(&dir, listen, rank, SIZE, PATIENCE, "reads")).collect();
        for mut member in members {
            assert!(member.wait().unwrap().success());
        }
        let expected = format!("read {} ", crc32c::crc32c(&wanted(24)));
        let opened = said(home.path(), SIZE, None).iter().map(|words| {
            let opened = words.strip_prefix(&expected).unwrap_or_else(|| panic!("{words}"));
            opened.parse::<u64>().unwrap()
        });
        assert_eq!(opened.sum::<u64>(), 24);
        let left = std::fs::read_dir(dir.join("file")).unwrap();
        let is_left = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().to_string_lossy().starts_with("g.")
        };
        assert!(!left.map(is_left).any(|is_left| is_left), "the meeting's file is removed");
    }
}

#[test]
fn a_member_that_dies_in_a_collective_open_ends_it_for_all_with_words() {
    const SIZE: usize = 8;
    for dying in [0, 5] {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        write(&dir, 4);
        let begun = Instant::now();
        let members: Vec<Child> = (0..SIZE)
            .map(|rank| {
                let role = if rank == dying { "dies" } else { "reads" };
                begin(&dir, "tcp:127.0.0.1:0", rank, SIZE, PATIENCE, role)
            })
            .collect();
        for mut member in members {
            assert!(member.wait().unwrap().success());
        }
        assert!(begun.elapsed() < PATIENCE, "an end is seen at once");
        for words in said(home.path(), SIZE, Some(dying)) {
            let named = format!("member {dying} of {SIZE}");
            assert!(words.starts_with("failed") && words.contains(&named), "{words}");
        }
    }
}

#[test]
fn members_that_do_not_come_are_named_when_the_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 2);
    let path = dir.path().to_owned();
    let error: Error = real::run("alone", move |env| async move {
        let meeting = meeting("local:group-3", 0, 3, Duration::from_millis(300));
        read_together(&env, &path, &meeting).await.unwrap_err()
    });
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.words.contains("2 of 3 members did not come") && error.words.contains("1, 2"), "{error}");
}
