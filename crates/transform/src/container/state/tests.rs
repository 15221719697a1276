//! Tests of writes whose answer does not come: the bytes that they bring late go to no place of another
//! write, and a truncation cuts them. Tests of limits, with lower ones.

mod late;

use crate::container::{Container, ContainerFile, tools};
use crate::limits::RecordLimits;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};
use late::Late;
use shoal_env::{Env, real};
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Attr, Handle, Name, Owner, Rights, Status};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, Vfs, VfsFile};
use std::path::Path;
use std::time::Duration;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
/// Bytes of a record that says how much is durable.
const NAMED_BYTES: usize = 17;
/// Bytes of a record that says how long the file is.
const END_BYTES: usize = 25;

type File = ContainerFile<Late>;

fn owner() -> Owner {
    Owner { mode: 0o644, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

fn name() -> Name {
    Name::new(b"f").unwrap()
}

async fn local(env: &Env, dir: &Path) -> AnyVfs {
    AnyVfs::of(LocalOptions::new(dir).connect(env.clone()).await.unwrap())
}

/// Run it with a directory, and a new container in it over a file system that holds writes.
fn run(body: impl AsyncFnOnce(&Env, &Path, &Late, &Container<Late>, File) + Send + 'static) {
    let dir = tempfile::tempdir().unwrap();
    real::run("test", move |env| async move {
        let late = Late::new(&env, local(&env, dir.path()).await);
        let one = Container::new(env.clone(), late.clone());
        let (_, _, file) = one.create(Handle::ROOT, &name(), owner(), true, BOTH).await.unwrap();
        let within = env.now() + Duration::from_secs(60);
        env.deadline(within, body(&env, dir.path(), &late, &one, file)).await.expect("it ends");
    });
}

/// Size and first bytes, as a process finds them that comes now.
async fn found(env: &Env, dir: &Path) -> (u64, Bytes) {
    let two = Container::new(env.clone(), local(env, dir).await);
    let attr: Attr = two.lookup(Handle::ROOT, &name()).await.unwrap();
    let opened = two.open(attr.handle, Rights::READ).await.unwrap();
    (attr.size, opened.read(0, 50).await.unwrap())
}

/// Do a write, or another call, while the lower writes of these lengths get no answer.
async fn times_out<T>(
    late: &Late,
    lengths: fn(usize) -> bool,
    call: impl Future<Output = shoal_vfs::Result<T>>,
) {
    late.hold(lengths);
    let (done, ()) = join(call, async {
        late.arrived().await;
        late.time_out()
    })
    .await;
    assert_eq!(done.map(drop).unwrap_err().status, Status::TimedOut);
}

fn names(dir: &Path, prefix: &str) -> usize {
    let entries = std::fs::read_dir(dir.join("f")).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
}

const LONG: usize = 4 << 20;

fn is_long(len: usize) -> bool {
    len == LONG
}

#[test]
fn a_truncation_to_the_size_that_is_known_cuts_what_a_write_brings_late() {
    run(async |env, dir, late, one, file| {
        times_out(late, is_long, file.write(0, vec![7; LONG].into())).await;
        one.truncate(file.handle(), 0, false).await.unwrap();
        late.land().await;
        assert_eq!(found(env, dir).await, (0, Bytes::new()));
        // Also one that makes the file longer.
        file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
        times_out(late, is_long, file.write(100, vec![7; LONG].into())).await;
        file.truncate(20).await.unwrap();
        late.land().await;
        let bytes = [&b"0123456789"[..], &[0; 10]].concat();
        assert_eq!(found(env, dir).await, (20, bytes.into()));
    });
}

#[test]
fn a_truncation_cuts_what_a_write_brings_late_after_its_writer_was_released() {
    for is_closed in [false, true] {
        run(async move |env, dir, late, one, file| {
            let object = file.handle();
            times_out(late, is_long, file.write(0, vec![7; LONG].into())).await;
            match is_closed {
                true => file.close().await.unwrap(),
                false => file.write(0, Bytes::from_static(b"more")).await.unwrap(),
            }
            one.truncate(object, 0, false).await.unwrap();
            late.land().await;
            assert_eq!(found(env, dir).await, (0, Bytes::new()));
        });
    }
}

#[test]
fn a_truncation_cuts_a_size_that_an_allocation_brings_late() {
    run(async |env, dir, late, one, file| {
        file.write(0, Bytes::from_static(b"first")).await.unwrap();
        times_out(late, |len| len == END_BYTES, file.allocate(0, 1000, Allocation::Extend)).await;
        file.write(0, Bytes::from_static(b"other")).await.unwrap();
        one.truncate(file.handle(), 0, false).await.unwrap();
        late.land().await;
        assert_eq!(found(env, dir).await, (0, Bytes::new()));
    });
}

/// An fsync holds the writer's turn until its record times out. `call` begins meanwhile.
async fn beside_a_sync<T>(env: &Env, late: &Late, file: &File, call: impl Future<Output = T>) -> T {
    late.hold(|len| len == NAMED_BYTES);
    let called = async {
        late.arrived().await;
        let end = async {
            env.sleep(Duration::from_millis(100)).await;
            late.time_out();
        };
        join(call, end).await.0
    };
    let (synced, called) = join(file.fsync(), called).await;
    assert_eq!(synced.unwrap_err().status, Status::TimedOut);
    called
}

#[test]
fn an_allocation_that_waited_for_a_sync_that_times_out_goes_to_another_log() {
    run(async |env, dir, late, _, file| {
        file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
        let sized = file.allocate(0, 1000, Allocation::Extend);
        beside_a_sync(env, late, &file, sized).await.unwrap();
        late.land().await;
        assert_eq!(found(env, dir).await.0, 1000);
    });
}

#[test]
fn a_truncation_that_waited_for_a_sync_that_times_out_goes_to_another_log() {
    run(async |env, dir, late, _, file| {
        file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
        beside_a_sync(env, late, &file, file.truncate(3)).await.unwrap();
        late.land().await;
        assert_eq!(found(env, dir).await, (3, Bytes::from_static(b"012")));
    });
}

#[test]
fn a_close_that_waited_for_a_sync_that_times_out_leaves_a_log_that_nothing_is_appended_to() {
    run(async |env, dir, late, one, file| {
        file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
        let (object, other) = (file.handle(), file.again());
        beside_a_sync(env, late, &other, file.close()).await.unwrap();
        assert_eq!(names(dir, "d."), 0);
        let next = one.open(object, BOTH).await.unwrap();
        next.write(5, Bytes::from_static(b"next")).await.unwrap();
        late.land().await;
        assert_eq!(found(env, dir).await.1[..], *b"01234next9");
        assert_eq!(names(dir, "w."), 2);
    });
}

#[test]
fn an_append_that_is_given_up_while_it_waits_leaves_no_hole() {
    run(async |_, _, late, _, file| {
        file.append(Bytes::from_static(b"0123456789")).await.unwrap();
        late.hold(|len| len == NAMED_BYTES);
        let appended = async {
            late.arrived().await;
            assert!(file.append(Bytes::from_static(b"given up")).now_or_never().is_none());
            late.let_go();
        };
        join(file.fsync(), appended).await.0.unwrap();
        assert_eq!(file.append(Bytes::from_static(b"next")).await, Ok(10));
    });
}

#[test]
fn a_close_that_is_given_up_ends_in_the_background() {
    for is_removed in [false, true] {
        run(async move |_, dir, _, one, file| {
            file.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
            let object = file.handle();
            let turn = file.state().writers.borrow()[0].turn.try_acquire(1).unwrap();
            let closing = file.close();
            assert!(one.0.env.deadline(one.0.env.now() + Duration::from_millis(50), closing).await.is_err());
            if is_removed {
                one.unlink(Handle::ROOT, &name()).await.unwrap();
            }
            drop(turn);
            one.0.removals_ended().await;
            assert!(one.0.state_in_use(object).is_none());
            match is_removed {
                true => assert_eq!(std::fs::read_dir(dir.join(".shoal")).unwrap().count(), 0),
                false => {
                    assert_eq!(names(dir, "d."), 1);
                    tools::compact(one, Handle::ROOT, &name()).await.unwrap();
                }
            }
        });
    }
}

#[test]
fn appends_that_wait_for_one_without_an_answer_end_by_one_time_limit() {
    run(async |env, _, late, one, file| {
        let object = file.handle();
        let other = one.open(object, BOTH).await.unwrap();
        file.append(Bytes::from_static(b"0123456789")).await.unwrap();
        late.hold(is_long);
        late.limit(Duration::from_millis(100));
        let mut first = Box::pin(file.append(vec![7; LONG].into()));
        assert!(first.as_mut().now_or_never().is_none());
        late.arrived().await;
        let begun = env.now();
        let waiting = (0..10).map(|n| if n % 2 == 0 { &file } else { &other });
        let ended = join_all(waiting.map(|file| file.append(Bytes::from_static(b"x")))).await;
        for ended in ended {
            assert_eq!(ended.unwrap_err().status, Status::TimedOut);
        }
        assert!(env.now() - begun < Duration::from_secs(5));
        // Once it is answered appends go on.
        late.let_go();
        assert_eq!(first.await, Ok(10));
        assert_eq!(other.append(Bytes::from_static(b"x")).await, Ok(10 + LONG as u64));
    });
}

/// Keep no more records one by one than this, and fold no more parts.
fn limit_records(one: &Container<Late>, written_singly: u64, folded: usize) {
    one.0.record_limits.set(RecordLimits { written_singly, folded });
}

/// Write `records` of these sizes and distances, and begin another entry after them.
async fn write_strided(
    file: &File,
    at: u64,
    record: u64,
    stride: u64,
    records: u64,
) -> shoal_vfs::Result<()> {
    let pattern = Pattern::strided(at as i64, record, stride as i64, records).unwrap();
    file.write_pattern(&pattern, vec![7; (record * records) as usize].into()).await
}

#[test]
fn records_of_a_run_that_no_family_takes_count_to_the_limit_while_it_grows() {
    run(async |env, dir, _, one, file| {
        limit_records(one, 1000, 1000);
        for family in 0..64 {
            write_strided(&file, family << 20, 1, 2 + family, 20).await.unwrap();
        }
        // Of the last family as many are written as a program likes.
        for more in 0..10 {
            write_strided(&file, (63 << 20) + (20 + more * 500) * 65, 1, 65, 500).await.unwrap();
        }
        let mut written = 0;
        let refused = loop {
            match write_strided(&file, (1 << 30) + written * 100, 1, 100, 50).await {
                Ok(()) => written += 50,
                Err(error) => break error,
            }
            assert!(written < 5000, "no write is refused");
        };
        assert_eq!(refused.status, Status::OverLimit);
        assert!(written.abs_diff(1000) <= 100, "{written}");
        assert_eq!(found(env, dir).await.0, (1 << 30) + (written - 1) * 100 + 1);
    });
}

#[test]
fn a_file_that_takes_no_more_irregular_records_is_compacted_and_takes_them_again() {
    run(async |env, dir, _, one, file| {
        limit_records(one, 200, 50);
        // Each second one touches one before it, and none continues the entry before.
        let place = |n: u64| if n.is_multiple_of(2) { n * n * 100 } else { (n - 1) * (n - 1) * 100 + 10 };
        let order = |n: u64| n / 20 * 20 + n % 20 / 2 + n % 2 * 10;
        let mut written = 0;
        let refused = loop {
            match file.write(place(order(written)), vec![7; 10].into()).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((refused.status, written), (Status::OverLimit, 201));
        assert!(refused.words.contains("compact"), "{refused}");
        let before = found(env, dir).await;
        file.close().await.unwrap();
        limit_records(one, 80, 50);
        tools::compact(one, Handle::ROOT, &name()).await.unwrap();
        assert_eq!(found(env, dir).await, before);
        limit_records(one, 200, 50);
        let object = one.lookup(Handle::ROOT, &name()).await.unwrap().handle;
        let compacted = one.open(object, BOTH).await.unwrap();
        compacted.write(1 << 30, Bytes::from_static(b"more")).await.unwrap();
    });
}
