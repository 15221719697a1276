//! Cases that must hold in both worlds: `tests/all/real.rs` and `tests/all/sim.rs` run each.

use bytes::{Bytes, BytesMut};
use shoal_env::{Address, AlignedBuf, DiskSpace, Env, OpenOptions, Reader, Stream, local};
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The addresses and the folder of a case.
pub struct Place {
    pub address: Address,
    pub root: PathBuf,
}

/// Pass the names of all cases to a macro.
macro_rules! all {
    ($with:ident) => {
        $with! {
            streams_echo_many_small_messages,
            a_big_transfer_arrives_whole_and_in_order,
            read_bytes_are_appended_to_the_buffer_and_never_exceed_the_limit,
            the_end_of_a_stream_is_read_after_its_last_byte,
            one_direction_may_end_while_the_other_goes_on,
            a_dropped_peer_breaks_writing,
            connecting_where_nobody_listens_is_refused,
            what_was_not_accepted_is_reset_with_its_listener,
            an_address_is_taken_until_its_listener_is_dropped,
            a_deadline_ends_a_wait_and_lets_a_quick_answer_through,
            tasks_run_side_by_side_and_can_be_cancelled,
            a_pause_lasts_as_long_as_it_should_and_may_be_given_up,
            offloaded_work_gives_its_value,
            files_keep_what_was_written,
            pieces_are_written_one_after_the_other,
            reads_end_at_the_end_of_the_file,
            opening_respects_create_and_exclusive,
            truncate_extends_with_zeros_and_cuts,
            allocation_and_holes_leave_contents_as_they_should_be,
            aligned_writes_give_their_buffer_back,
            directories_list_sorted_rename_and_remove,
            a_file_is_replaced_whole,
            a_removed_file_lives_until_its_last_handle_is_dropped,
            a_lock_is_held_once,
            space_and_counters_tell_what_happened,
            random_numbers_differ,
        }
    };
}
pub(crate) use all;

/// Bytes that differ by place, so that a shift or swap is seen.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed) ^ (i >> 8)) as u8).collect()
}

pub async fn read_to_end(reader: &mut Reader) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut buf = vec![0; 64 << 10];
    loop {
        let n = reader.read(&mut buf).await?;
        if n == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buf[..n]);
    }
}

pub async fn read_exact(reader: &mut Reader, buf: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < buf.len() {
        let n = reader.read(&mut buf[at..]).await?;
        if n == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        at += n;
    }
    Ok(())
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    stream.writer.write_all(&mut [IoSlice::new(bytes)]).await
}

async fn pair(env: &Env, place: &Place) -> (Stream, Stream) {
    let mut listener = env.listen(&place.address).await.unwrap();
    let address = listener.address();
    let (near, far) = futures_util::join!(env.connect(&address), listener.accept());
    (near.unwrap(), far.unwrap())
}

pub async fn streams_echo_many_small_messages(env: Env, place: Place) {
    let (mut near, mut far) = pair(&env, &place).await;
    env.spawn("echo", async move {
        let mut buf = [0; 256];
        while let Ok(n @ 1..) = far.reader.read(&mut buf).await {
            far.writer
                .write_all(&mut [IoSlice::new(&buf[..n / 2]), IoSlice::new(&buf[n / 2..n])])
                .await
                .unwrap();
        }
    });
    for round in 0..200 {
        let message = pattern(1 + round % 90, round);
        send(&mut near, &message).await.unwrap();
        let mut back = vec![0; message.len()];
        read_exact(&mut near.reader, &mut back).await.unwrap();
        assert_eq!(back, message);
    }
}

pub async fn a_big_transfer_arrives_whole_and_in_order(env: Env, place: Place) {
    let (mut near, mut far) = pair(&env, &place).await;
    let sent = pattern(5 << 20, 1);
    let copy = sent.clone();
    env.spawn("send", async move {
        let mut pieces: Vec<IoSlice<'_>> = copy.chunks(70_001).map(IoSlice::new).collect();
        near.writer.write_all(&mut pieces).await.unwrap();
        near.writer.close().await.unwrap();
        // The other half stays until the peer is done.
        assert_eq!(near.reader.read(&mut [0; 1]).await.unwrap(), 0);
    });
    assert!(read_to_end(&mut far.reader).await.unwrap() == sent);
}

pub async fn read_bytes_are_appended_to_the_buffer_and_never_exceed_the_limit(env: Env, place: Place) {
    let (mut near, mut far) = pair(&env, &place).await;
    let sent = pattern(3 << 20, 2);
    let copy = sent.clone();
    env.spawn("send", async move {
        for piece in copy.chunks(40_009) {
            send(&mut near, piece).await.unwrap();
        }
    });
    let mut got = BytesMut::from(&b"before"[..]);
    for max in (0..).map(|round| 1 + round * 7919 % 90_000) {
        let before = got.len();
        let n = far.reader.read_append(&mut got, max).await.unwrap();
        assert!(n <= max && got.len() == before + n);
        if n == 0 {
            break;
        }
    }
    assert!(got[..6] == *b"before" && got[6..] == sent);
}

pub async fn the_end_of_a_stream_is_read_after_its_last_byte(env: Env, place: Place) {
    let (mut near, mut far) = pair(&env, &place).await;
    send(&mut near, b"last words").await.unwrap();
    drop(near);
    assert_eq!(read_to_end(&mut far.reader).await.unwrap(), b"last words");
    assert_eq!(far.reader.read(&mut [0; 4]).await.unwrap(), 0, "the end stays the end");
}

pub async fn one_direction_may_end_while_the_other_goes_on(env: Env, place: Place) {
    let (mut near, mut far) = pair(&env, &place).await;
    near.writer.close().await.unwrap();
    near.writer.close().await.unwrap();
    assert_eq!(far.reader.read(&mut [0; 4]).await.unwrap(), 0);
    send(&mut far, b"still here").await.unwrap();
    let mut buf = [0; 10];
    read_exact(&mut near.reader, &mut buf).await.unwrap();
    assert_eq!(&buf, b"still here");
    assert!(send(&mut near, b"too late").await.is_err(), "closed is closed");
}

pub async fn a_dropped_peer_breaks_writing(env: Env, place: Place) {
    let (mut near, far) = pair(&env, &place).await;
    drop(far);
    let error = loop {
        if let Err(error) = send(&mut near, &[1; 1000]).await {
            break error;
        }
        env.sleep(Duration::from_millis(1)).await;
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}

pub async fn connecting_where_nobody_listens_is_refused(env: Env, place: Place) {
    let listener = env.listen(&place.address).await.unwrap();
    let address = listener.address();
    drop(listener);
    let error = env.connect(&address).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

pub async fn what_was_not_accepted_is_reset_with_its_listener(env: Env, place: Place) {
    let listener = env.listen(&place.address).await.unwrap();
    let mut stream = env.connect(&listener.address()).await.unwrap();
    drop(listener);
    let error = stream.reader.read(&mut [0; 4]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub async fn an_address_is_taken_until_its_listener_is_dropped(env: Env, place: Place) {
    let listener = env.listen(&place.address).await.unwrap();
    let address = listener.address();
    let error = env.listen(&address).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(listener);
    assert_eq!(env.listen(&address).await.unwrap().address(), address);
}

pub async fn a_deadline_ends_a_wait_and_lets_a_quick_answer_through(env: Env, place: Place) {
    let (mut near, _far) = pair(&env, &place).await;
    let begun = env.now();
    let until = begun + Duration::from_millis(5);
    assert!(env.deadline(until, near.reader.read(&mut [0; 4])).await.is_err());
    assert!(env.now() >= until);
    assert_eq!(env.deadline(env.now(), async { 7 }).await, Ok(7));
}

pub async fn a_pause_lasts_as_long_as_it_should_and_may_be_given_up(env: Env, _: Place) {
    for micros in [0, 1, 300, 300] {
        let until = env.now() + Duration::from_micros(micros);
        env.pause_until(until).await;
        assert!(env.now() >= until);
        // A cancelled wait leaves nothing for the next.
        let long = env.pause_until(env.now() + Duration::from_secs(60));
        assert!(env.deadline(env.now() + Duration::from_millis(1), long).await.is_err());
    }
    let many = (0..9).map(|n| env.pause_until(env.now() + Duration::from_micros(n * 20)));
    futures_util::future::join_all(many).await;
}

pub async fn tasks_run_side_by_side_and_can_be_cancelled(env: Env, _place: Place) {
    struct OnDrop(Rc<Cell<u32>>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let mine = OnDrop(dropped.clone());
    let task = env.spawn("waits for ever", async move {
        std::future::pending::<()>().await;
        drop(mine);
    });
    let semaphore = local::Semaphore::new(1);
    let held = semaphore.acquire(1).await;
    let (theirs, done) = (semaphore.clone(), Rc::new(Cell::new(false)));
    let says = done.clone();
    env.spawn("waits its turn", async move {
        drop(theirs.acquire(1).await);
        says.set(true);
    });
    env.sleep(Duration::from_millis(1)).await;
    assert!(!done.get());
    drop(held);
    task.cancel();
    env.sleep(Duration::from_millis(1)).await;
    assert!(done.get());
    assert_eq!(dropped.get(), 1);
    task.cancel();
}

pub async fn offloaded_work_gives_its_value(env: Env, _place: Place) {
    assert_eq!(env.offload(|| 6 * 7).await.unwrap(), 42);
    let failed = env.offload(|| if true { panic!("off the thread") } else { 1 }).await;
    assert!(failed.is_err(), "a panic is an error, not a hang");
    assert_eq!(env.offload(|| 1).await.unwrap(), 1);
}

fn create() -> OpenOptions {
    OpenOptions { create: true, ..OpenOptions::default() }
}

pub async fn files_keep_what_was_written(env: Env, place: Place) {
    let path = place.root.join("file");
    let content = pattern(300_000, 5);
    let file = env.open(&path, create()).await.unwrap();
    file.write_at(0, vec![content.clone().into()]).await.unwrap();
    file.sync().await.unwrap();
    file.write_at(1000, vec![Bytes::from_static(b"over")]).await.unwrap();
    drop(file);
    let file = env.open(&path, OpenOptions::default()).await.unwrap();
    let read = file.read_at(0, 1 << 20).await.unwrap();
    assert_eq!(read.len(), content.len());
    assert_eq!(&read[1000..1004], b"over");
    assert!(read[..1000] == content[..1000] && read[1004..] == content[1004..]);
    assert_eq!(&file.read_at(70_000, 10).await.unwrap()[..], &content[70_000..70_010]);
    assert!(file.space().await.unwrap() >= 300_000);
}

pub async fn pieces_are_written_one_after_the_other(env: Env, place: Place) {
    let file = env.open(place.root.join("pieces"), create()).await.unwrap();
    let pieces: Vec<Bytes> = (0..3000usize).map(|i| Bytes::from(pattern(i % 5, i))).collect();
    file.write_at(17, pieces.clone()).await.unwrap();
    let read = file.read_at(0, 1 << 20).await.unwrap();
    assert_eq!(&read[..17], &[0; 17]);
    assert!(read[17..] == pieces.concat());
    file.write_at(3, vec![]).await.unwrap();
    assert_eq!(file.len().await.unwrap(), read.len() as u64);
}

pub async fn reads_end_at_the_end_of_the_file(env: Env, place: Place) {
    let file = env.open(place.root.join("short"), create()).await.unwrap();
    assert!(file.read_at(0, 10).await.unwrap().is_empty());
    file.write_at(0, vec![Bytes::from_static(b"12345")]).await.unwrap();
    assert_eq!(&file.read_at(3, 10).await.unwrap()[..], b"45");
    assert!(file.read_at(5, 10).await.unwrap().is_empty());
    assert!(file.read_at(1 << 40, 10).await.unwrap().is_empty());
    assert!(file.read_at(0, 0).await.unwrap().is_empty());
}

pub async fn opening_respects_create_and_exclusive(env: Env, place: Place) {
    let path = place.root.join("new");
    let missing = env.open(&path, OpenOptions::default()).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let nowhere = env.open(place.root.join("no/such/dir"), create()).await.err().unwrap();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    let exclusive = OpenOptions { exclusive: true, ..create() };
    env.open(&path, exclusive).await.unwrap();
    let taken = env.open(&path, exclusive).await.err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
    env.open(&path, create()).await.unwrap();
}

pub async fn truncate_extends_with_zeros_and_cuts(env: Env, place: Place) {
    let file = env.open(place.root.join("cut"), create()).await.unwrap();
    file.write_at(0, vec![pattern(10_000, 2).into()]).await.unwrap();
    file.truncate(100).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 100);
    file.truncate(20_000).await.unwrap();
    let read = file.read_at(0, 30_000).await.unwrap();
    assert_eq!(read.len(), 20_000);
    assert!(read[..100] == pattern(10_000, 2)[..100]);
    assert!(read[100..].iter().all(|byte| *byte == 0), "what was cut does not come back");
}

pub async fn allocation_and_holes_leave_contents_as_they_should_be(env: Env, place: Place) {
    let file = env.open(place.root.join("holes"), create()).await.unwrap();
    file.write_at(0, vec![vec![9; 100_000].into()]).await.unwrap();
    file.allocate(50_000, 100_000, false).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 100_000, "the length stays unless asked to grow");
    file.allocate(50_000, 100_000, true).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 150_000);
    file.punch(4096, 8192).await.unwrap();
    assert_eq!(file.len().await.unwrap(), 150_000);
    let read = file.read_at(0, 200_000).await.unwrap();
    assert!(read[..4096].iter().all(|byte| *byte == 9));
    assert!(read[4096..12_288].iter().all(|byte| *byte == 0));
    assert!(read[12_288..100_000].iter().all(|byte| *byte == 9));
    assert!(read[100_000..].iter().all(|byte| *byte == 0));
}

pub async fn aligned_writes_give_their_buffer_back(env: Env, place: Place) {
    let options = OpenOptions { direct: true, dsync: true, ..create() };
    let file = env.open(place.root.join("journal"), options).await.unwrap();
    let before = env.counters().snapshot();
    let mut buf = AlignedBuf::zeroed(AlignedBuf::ALIGN * 2);
    for round in 0..3u8 {
        buf.fill(round + 1);
        let (back, done) = file.write_aligned(u64::from(round) * 8192, buf).await;
        done.unwrap();
        buf = back;
    }
    assert_eq!(env.counters().snapshot().since(&before).syncs, 3);
    let read = file.read_at(8190, 8200).await.unwrap();
    assert_eq!((read.len(), read[0], read[1], read[2], read[8199]), (8200, 1, 1, 2, 3));
    let (_, unaligned) = file.write_aligned(100, buf).await;
    assert_eq!(unaligned.unwrap_err().kind(), ErrorKind::InvalidInput);
    let pieces = vec![Bytes::from(vec![8; 4000]), Bytes::from(vec![9; 96])];
    file.write_at(4096, pieces).await.unwrap();
    assert_eq!(&file.read_at(8094, 4).await.unwrap()[..], [8, 8, 9, 9]);
}

pub async fn directories_list_sorted_rename_and_remove(env: Env, place: Place) {
    let dir = place.root.join("a/b");
    env.create_dir(&dir).await.unwrap();
    env.create_dir(&dir).await.unwrap();
    for name in ["zebra", "ant", "mole"] {
        let file = env.open(dir.join(name), create()).await.unwrap();
        file.write_at(0, vec![Bytes::from_static(b"abc")]).await.unwrap();
    }
    env.create_dir(dir.join("nest")).await.unwrap();
    let names = |entries: Vec<shoal_env::DirEntry>| entries.into_iter().map(|e| e.name).collect::<Vec<_>>();
    let entries = env.list(&dir).await.unwrap();
    assert_eq!((entries[0].len, entries[0].is_dir, entries[2].is_dir), (3, false, true));
    assert_eq!(names(entries), ["ant", "mole", "nest", "zebra"]);
    env.rename(dir.join("zebra"), dir.join("ant")).await.unwrap();
    env.remove(dir.join("mole")).await.unwrap();
    env.sync_dir(&dir).await.unwrap();
    assert_eq!(names(env.list(&dir).await.unwrap()), ["ant", "nest"]);
    let gone = env.remove(dir.join("mole")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let gone = env.rename(dir.join("mole"), dir.join("x")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(env.list(dir.join("none")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub async fn a_file_is_replaced_whole(env: Env, place: Place) {
    let path = place.root.join("config.toml");
    for content in ["a long first content", "short"] {
        env.replace_file(&path, Bytes::from_static(content.as_bytes())).await.unwrap();
        assert_eq!(env.read_file(&path, 100).await.unwrap(), content);
    }
    assert!(env.read_file(&path, 3).await.is_err(), "longer than expected is an error");
    let left: Vec<_> =
        env.list(&place.root).await.unwrap().into_iter().filter(|e| e.name.contains("new")).collect();
    assert!(left.is_empty());
}

pub async fn a_removed_file_lives_until_its_last_handle_is_dropped(env: Env, place: Place) {
    let path = place.root.join("going");
    let file = env.open(&path, create()).await.unwrap();
    file.write_at(0, vec![Bytes::from_static(b"here")]).await.unwrap();
    env.remove(&path).await.unwrap();
    assert_eq!(&file.read_at(0, 10).await.unwrap()[..], b"here");
    let other = env.open(&path, OpenOptions { exclusive: true, ..create() }).await.unwrap();
    assert_eq!(other.len().await.unwrap(), 0);
}

pub async fn a_lock_is_held_once(env: Env, place: Place) {
    env.lock(place.root.join("lock")).await.unwrap();
    let held = env.lock(place.root.join("lock")).await.unwrap_err();
    assert_eq!(held.kind(), ErrorKind::WouldBlock);
    env.lock(place.root.join("another")).await.unwrap();
}

pub async fn space_and_counters_tell_what_happened(env: Env, place: Place) {
    let DiskSpace { total, available, disk } = env.space(&place.root).await.unwrap();
    assert!(total >= available && available > 0);
    assert_ne!(disk, 0);
    env.create_dir(place.root.join("beside")).await.unwrap();
    assert_eq!(env.space(place.root.join("beside")).await.unwrap().disk, disk, "one disk");
    let before = env.counters().snapshot();
    let file = env.open(place.root.join("counted"), create()).await.unwrap();
    file.write_at(0, vec![vec![1; 1000].into()]).await.unwrap();
    let inline = env.counters().snapshot().since(&before);
    file.write_at(1000, vec![vec![2; 1 << 20].into()]).await.unwrap();
    file.read_at(0, 600).await.unwrap();
    file.sync().await.unwrap();
    env.offload(|| ()).await.unwrap();
    let (mut near, mut far) = pair(&env, &place).await;
    send(&mut near, &[1; 64]).await.unwrap();
    far.reader.read(&mut [0; 100]).await.unwrap();
    let seen = env.counters().snapshot().since(&before);
    assert_eq!((inline.file_writes, inline.file_write_bytes), (1, 1000));
    assert_eq!((seen.file_writes, seen.file_write_bytes), (2, 1000 + (1 << 20)));
    assert_eq!(
        (inline.file_writes_inline, seen.file_writes_inline),
        (1, 1),
        "a long one is another thread's"
    );
    assert_eq!((seen.file_reads, seen.file_read_bytes), (1, 600));
    assert_eq!((seen.syncs, seen.file_calls, seen.offloads), (1, 1, 1));
    assert_eq!((seen.socket_writes, seen.socket_write_bytes), (1, 64));
    assert_eq!((seen.socket_reads, seen.socket_read_bytes), (1, 64));
}

pub async fn random_numbers_differ(env: Env, _place: Place) {
    assert_ne!(env.random_u64(), env.random_u64());
    assert!(env.wall().0 > 0);
    let begun = env.now();
    env.sleep(Duration::from_millis(1)).await;
    assert!(env.now() >= begun + Duration::from_millis(1));
    env.sleep_until(begun).await;
}
