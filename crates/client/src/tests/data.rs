//! Tests of data over several datafiles: patterns, holes, ends of files, syncs.

use crate::fake::{FakeCluster, Hand, Lost, OWNER, name};
use crate::{Client, Error, OpenFile};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join};
use proptest::prelude::*;
use shoal_pattern::{Pattern, Region};
use shoal_proto::{Allocation, Durability, Handle, Rights, ServerId, SetAttr, Status, Time};

const STRIP: u64 = 4096;

fn open(hand: &Hand, text: &str) -> OpenFile {
    let name = name(text);
    let both = Rights::READ | Rights::WRITE;
    hand.run(hand.client.create(Handle::ROOT, &name, OWNER, false, both, None)).unwrap().2
}

fn read(hand: &Hand, file: &OpenFile, offset: u64, len: usize) -> Vec<u8> {
    hand.run(file.read(offset, len)).unwrap().to_vec()
}

fn count(hand: &Hand, op: &str) -> u64 {
    hand.client.counters().messages.get(op).copied().unwrap_or(0)
}

#[test]
fn a_truncation_lays_its_file_out_again_as_often_as_a_power_cut_takes_the_layout() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.cluster.borrow_mut().layouts_lost = 3;
    let attr = hand.run(hand.client.truncate(file.handle(), 3 * STRIP, false)).unwrap();
    let laid_out = |hand: &Hand| hand.cluster.borrow().log.iter().filter(|done| done.1 == "unstuff").count();
    assert_eq!((attr.size, laid_out(&hand)), (3 * STRIP, 4));
    let file = open(&hand, "g");
    hand.cluster.borrow_mut().layouts_lost = u32::MAX;
    let error = hand.run(hand.client.truncate(file.handle(), 3 * STRIP, false)).unwrap_err();
    assert_eq!(error.status, Status::TimedOut, "it ends: {error}");
}

#[test]
fn a_small_file_is_one_message_to_write_and_one_to_read() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let data = Bytes::from_static(b"small");
    hand.run(hand.client.create_write(Handle::ROOT, &name("f"), OWNER, data.clone(), None)).unwrap();
    assert_eq!(hand.client.counters().messages_all(), 1);
    let (attr, read) = hand.run(hand.client.read_small(Handle::ROOT, &name("f"), 900)).unwrap();
    assert_eq!((attr.size, read), (5, Some(data)));
    assert_eq!(hand.client.counters().messages_all(), 2);
    let (_, too_large) = hand.run(hand.client.read_small(Handle::ROOT, &name("f"), 4)).unwrap();
    assert_eq!(too_large, None);
}

#[test]
fn a_write_beyond_the_first_strip_lays_the_file_out_first() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 4096].into())).unwrap();
    assert!(!hand.cluster.borrow().log.iter().any(|(_, op)| *op == "unstuff"));
    hand.run(file.write(4090, vec![2; 10].into())).unwrap();
    let log = hand.cluster.borrow().log.clone();
    let unstuff = log.iter().position(|(_, op)| *op == "unstuff").unwrap();
    let writes: Vec<ServerId> =
        log[unstuff..].iter().filter(|(_, op)| *op == "write").map(|(s, _)| *s).collect();
    assert_eq!(writes.len(), 2, "one message a datafile");
    assert_eq!(read(&hand, &file, 4088, 100), [&[1, 1][..], &[2; 10]].concat());
    assert_eq!(hand.run(file.size()).unwrap(), 4100);
}

#[test]
fn holes_read_as_zeros_up_to_the_end_that_another_datafile_knows() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(5 * STRIP + 7, b"end"[..].into())).unwrap();
    assert_eq!(read(&hand, &file, 0, 10), [0; 10]);
    assert_eq!(read(&hand, &file, 3 * STRIP, 20_000), {
        let mut whole = vec![0; 2 * 4096 + 7];
        whole.extend_from_slice(b"end");
        whole
    });
    assert_eq!(read(&hand, &file, 5 * STRIP + 10, 10), b"");
    assert_eq!(read(&hand, &file, 100 * STRIP, 10), b"");
}

#[test]
fn a_read_inside_the_file_asks_only_the_datafiles_it_touches() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![3; 9 * 4096].into())).unwrap();
    let before = count(&hand, "read");
    assert_eq!(read(&hand, &file, STRIP + 10, 100), [3; 100]);
    assert_eq!(count(&hand, "read"), before + 1);
}

#[test]
fn a_layout_that_another_client_changed_is_fetched_and_the_work_goes_on() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, b"0123456789"[..].into())).unwrap();
    hand.cluster.borrow_mut().unstuff(file.handle());
    hand.run(file.write(5, b"56"[..].into())).unwrap();
    hand.cluster.borrow_mut().advance(file.handle());
    assert_eq!(read(&hand, &file, 0, 100), b"0123456789");
    assert_eq!(hand.run(file.size()).unwrap(), 10);
}

#[test]
fn a_layout_that_is_taken_back_before_its_maker_used_it_is_made_anew() {
    type Change = fn(&OpenFile) -> LocalBoxFuture<'_, Result<(), Error>>;
    let operations: [Change; 3] = [
        |file| async { file.append(vec![1; 5000].into()).await.map(drop) }.boxed_local(),
        |file| file.write(0, vec![1; 5000].into()).boxed_local(),
        |file| file.allocate(0, 5000, Allocation::Extend).boxed_local(),
    ];
    for operation in operations {
        let hand = Hand::new(FakeCluster::new(3, STRIP));
        let file = open(&hand, "f");
        let mut done = operation(&file);
        let mut is_taken_back = false;
        let layouts = || hand.cluster.borrow().log.iter().filter(|(_, op)| *op == "unstuff").count();
        let ended = loop {
            if let std::task::Poll::Ready(ended) = hand.look(std::pin::pin!(&mut done)) {
                break ended;
            }
            hand.carry();
            if layouts() == 1 && !std::mem::replace(&mut is_taken_back, true) {
                hand.cluster.borrow_mut().take_layout_back(file.handle());
            }
        };
        ended.unwrap();
        assert_eq!(layouts(), 2);
        assert_eq!(hand.run(file.size()).unwrap(), 5000);
    }
}

#[test]
fn a_capability_that_ran_out_is_renewed_once() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let file = open(&hand, "f");
    hand.cluster.borrow_mut().capability_until = Time(i64::MAX - 1);
    hand.run(file.write(0, b"x"[..].into())).unwrap();
    assert_eq!(hand.cluster.borrow().log.iter().filter(|(_, op)| *op == "open").count(), 1);
}

#[test]
fn a_file_opened_for_reading_is_not_written() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let handle = open(&hand, "f").handle();
    let file = hand.run(hand.client.open(handle, Rights::READ)).unwrap();
    let error = hand.run(file.write(0, b"x"[..].into())).unwrap_err();
    assert_eq!(error.status, Status::BadCapability);
}

#[test]
fn a_server_that_lost_its_memory_between_write_and_fsync_is_told_once() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 3 * 4096].into())).unwrap();
    hand.cluster.borrow_mut().loss[1] = 2;
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
    hand.run(file.fsync()).unwrap();
    hand.run(file.write(0, vec![1; 3 * 4096].into())).unwrap();
    hand.run(file.fsync()).unwrap();
}

#[test]
fn a_change_of_attributes_that_its_server_lost_is_told_by_the_next_fsync_of_the_object() {
    let changes = |client: &Client, object: Handle| -> Vec<LocalBoxFuture<'static, Result<(), Error>>> {
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let [a, b, c] = [0; 3].map(|_| client.clone());
        vec![
            async move { a.setattr(object, set).await.map(drop) }.boxed_local(),
            async move { b.setxattr(object, b"user.a", b"1", false, false).await }.boxed_local(),
            async move { c.removexattr(object, b"user.a").await }.boxed_local(),
        ]
    };
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let file = open(&hand, "f");
    for change in changes(&hand.client, file.handle()) {
        hand.run(change).unwrap();
        hand.cluster.borrow_mut().loss[0] += 1;
        assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
        hand.run(file.fsync()).unwrap();
    }
    // A write that was durable when it was answered cannot be lost.
    let durable = hand.client.with_durability(Durability::Durable);
    for change in changes(&durable, file.handle()) {
        hand.run(change).unwrap();
        hand.cluster.borrow_mut().loss[0] += 1;
        hand.run(file.fsync()).unwrap();
    }
    // So was the file's entry.
    assert_eq!(hand.run(hand.client.fsync_directory(Handle::ROOT)).unwrap_err().status, Status::Io);
    for change in changes(&hand.client, Handle::ROOT) {
        hand.run(change).unwrap();
        hand.run(hand.client.fsync_directory(Handle::ROOT)).unwrap();
        hand.cluster.borrow_mut().loss[0] += 1;
        hand.run(hand.client.fsync_directory(Handle::ROOT)).unwrap();
    }
    for change in changes(&hand.client, Handle::ROOT) {
        hand.run(change).unwrap();
        hand.cluster.borrow_mut().loss[0] += 1;
        assert_eq!(hand.run(hand.client.fsync_directory(Handle::ROOT)).unwrap_err().status, Status::Io);
        hand.run(hand.client.fsync_directory(Handle::ROOT)).unwrap();
    }
}

#[test]
fn an_fsync_covers_what_was_written_through_another_open_file() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    // Opened while the file is empty; the other one lays it out.
    let (file, other) = (open(&hand, "f"), open(&hand, "f"));
    hand.run(other.write(0, vec![1; 3 * 4096].into())).unwrap();
    let before = count(&hand, "fsync");
    hand.run(file.fsync()).unwrap();
    assert_eq!(count(&hand, "fsync"), before + 3, "all datafiles");
}

#[test]
fn a_loss_is_told_once_through_each_open_file_of_the_client() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let (file, other) = (open(&hand, "f"), open(&hand, "f"));
    hand.run(other.write(0, vec![1; 3 * 4096].into())).unwrap();
    hand.cluster.borrow_mut().loss[1] = 2;
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
    hand.run(file.fsync()).unwrap();
    let later = open(&hand, "f");
    hand.run(later.fsync()).unwrap();
    assert_eq!(hand.run(other.fsync()).unwrap_err().status, Status::Io);
    hand.run(other.fsync()).unwrap();
}

#[test]
fn a_loss_of_what_was_written_before_the_last_close_is_told_to_the_next_opener() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 100].into())).unwrap();
    hand.run(file.close()).unwrap();
    hand.cluster.borrow_mut().loss[0] = 2;
    let file = open(&hand, "f");
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
    hand.run(file.fsync()).unwrap();
}

#[test]
fn an_fsync_reaches_the_datafiles_that_another_client_made_and_is_one_message_otherwise() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 100].into())).unwrap();
    let before = count(&hand, "fsync");
    hand.run(file.fsync()).unwrap();
    assert_eq!(count(&hand, "fsync"), before + 1, "of a stuffed file");
    hand.cluster.borrow_mut().unstuff(file.handle());
    hand.run(file.fsync()).unwrap();
    let known = before + 1 + 2 + 3;
    assert_eq!(
        count(&hand, "fsync"),
        known,
        "refused once, where it is was asked, then all datafiles were synced"
    );
    hand.run(file.fsync()).unwrap();
    assert_eq!(count(&hand, "fsync"), known + 3);
}

#[test]
fn an_fsync_that_a_server_did_not_answer_leaves_its_writes_to_the_next_one() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let (file, other) = (open(&hand, "f"), open(&hand, "f"));
    hand.run(file.write(0, vec![1; 3 * 4096].into())).unwrap();
    hand.cluster.borrow_mut().refuse_next = vec![Status::Poisoned];
    assert_eq!(hand.run(other.fsync()).unwrap_err().status, Status::Poisoned);
    hand.cluster.borrow_mut().loss = vec![2; 3];
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
    assert_eq!(hand.run(other.fsync()).unwrap_err().status, Status::Io);
}

#[test]
fn a_durable_write_cannot_be_lost_and_no_fsync_says_so() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write_durable(0, vec![1; 100].into())).unwrap();
    hand.cluster.borrow_mut().loss[0] = 2;
    hand.run(file.fsync()).unwrap();
}

#[test]
fn appends_get_their_place_from_the_server_and_are_one_message() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    assert_eq!(hand.run(file.append(b"abc"[..].into())).unwrap(), 0);
    assert_eq!(hand.run(file.append(b"def"[..].into())).unwrap(), 3);
    let error = hand.run(file.append(vec![0; (1 << 20) + 1].into())).unwrap_err();
    assert_eq!(error.status, Status::OverLimit);
}

#[test]
fn an_append_that_outgrows_the_first_strip_lays_the_file_out() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    assert_eq!(hand.run(file.append(vec![1; 5000].into())).unwrap(), 0);
    assert!(hand.cluster.borrow().log.iter().any(|(_, op)| *op == "unstuff"));
    assert_eq!(read(&hand, &file, 0, 6000), [1; 5000]);
}

#[test]
fn a_sync_behind_an_append_over_several_servers_syncs_them_all_and_tells_of_a_loss() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 100].into())).unwrap();
    // Another client lays it out; this one is not informed.
    hand.cluster.borrow_mut().unstuff(file.handle());
    hand.run(file.append(vec![2; 2 * 4096].into())).unwrap();
    let before = count(&hand, "fsync");
    hand.run(file.fsync()).unwrap();
    assert_eq!(count(&hand, "fsync"), before + 3);
    hand.run(file.append(vec![3; 2 * 4096].into())).unwrap();
    hand.cluster.borrow_mut().loss[2] = 2;
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
    hand.run(file.fsync()).unwrap();
}

#[test]
fn a_file_laid_out_with_a_hole_in_its_first_strip_is_read_whole_by_name() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 100].into())).unwrap();
    hand.run(file.write(STRIP, b"behind"[..].into())).unwrap();
    let (attr, content) = hand.run(hand.client.read_small(Handle::ROOT, &name("f"), 1 << 20)).unwrap();
    let whole = [&[1; 100][..], &[0; STRIP as usize - 100], b"behind"].concat();
    assert_eq!((attr.size, content), (STRIP + 6, Some(whole.into())));
}

#[test]
fn a_hole_is_made_beyond_the_first_strip_of_a_file_that_another_client_laid_out() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let (file, other) = (open(&hand, "f"), open(&hand, "f"));
    hand.run(other.write(0, vec![1; 3 * 4096].into())).unwrap();
    hand.run(file.allocate(STRIP + 10, 20, Allocation::Punch)).unwrap();
    assert_eq!(read(&hand, &other, STRIP + 9, 22), [&[1][..], &[0; 20], &[1]].concat());
}

#[test]
fn reserving_space_sets_the_size_over_all_datafiles_and_a_hole_needs_no_layout() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 100].into())).unwrap();
    hand.run(file.allocate(50, 1 << 20, Allocation::Punch)).unwrap();
    hand.run(file.allocate(1 << 30, 1 << 20, Allocation::KeepSize)).unwrap();
    assert!(!hand.cluster.borrow().log.iter().any(|(_, op)| *op == "unstuff"));
    assert_eq!(read(&hand, &file, 0, 200), [&[1; 50][..], &[0; 50]].concat());
    for end in [2 * STRIP, 2 * STRIP + 1, 7 * STRIP - 1, 9 * STRIP] {
        hand.run(file.allocate(end - 10, 10, Allocation::Extend)).unwrap();
        assert_eq!(hand.run(file.size()).unwrap(), end);
    }
}

#[test]
fn attributes_are_merged_over_all_datafiles() {
    let hand =
        Hand::with(FakeCluster::new(3, STRIP), |options| options.attr_cache = std::time::Duration::ZERO);
    let file = open(&hand, "f");
    hand.run(file.write(0, vec![1; 2 * 4096].into())).unwrap();
    let attr = hand.run(hand.client.getattr(file.handle())).unwrap();
    let newest = hand.cluster.borrow().streams.values().filter_map(|stream| stream.written_at).max();
    assert_eq!((attr.size, attr.space, Some(attr.mtime)), (8192, 8192, newest));
    assert!(attr.ctime >= attr.mtime);
}

#[test]
fn a_large_write_keeps_to_the_credit_and_sends_whole_chunks() {
    let hand = Hand::new(FakeCluster::new(1, 1 << 30));
    hand.attached.borrow_mut().credit_bytes = 600 << 10;
    let file = open(&hand, "f");
    let mut writing = Box::pin(file.write(0, vec![5; 2 << 20].into()));
    assert!(hand.look(writing.as_mut()).is_pending());
    let under_way = hand.take(ServerId(0));
    let sizes: Vec<usize> = under_way.iter().map(|(.., bulk)| bulk.len()).collect();
    assert_eq!(sizes, [256 << 10, 256 << 10], "two chunks fit the credit of 600 KiB");
    let session = hand.core.attach_id(ServerId(0)).unwrap();
    for (tag, request, bulk) in under_way {
        let (reply, back) = hand.cluster.borrow_mut().execute(ServerId(0), session, &request, bulk);
        hand.reply(ServerId(0), tag, reply, back).unwrap();
    }
    hand.run(writing).unwrap();
    assert_eq!(hand.run(file.size()).unwrap(), 2 << 20);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Read(u64, usize),
    WritePattern(Pattern),
    ReadPattern(Pattern),
    Truncated(u64),
    Cut(Vec<bool>),
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let strided = (0..9000_i64, 1..300_u64, 300..5000_i64, 1..40_u64)
        .prop_map(|(offset, record, stride, count)| Pattern::strided(offset, record, stride, count).unwrap());
    let backwards = (20_000..30_000_i64, 1..200_u64, 200..1000_i64, 1..20_u64).prop_map(
        |(offset, record, stride, count)| Pattern::strided(offset, record, -stride, count).unwrap(),
    );
    let list = proptest::collection::vec((0..300_i64, 1..80_u64), 1..20).prop_map(|gaps| {
        let mut at = 0;
        let regions = gaps.into_iter().map(|(gap, len)| {
            let region = Region::new(at + gap * 40, len);
            at = region.end();
            region
        });
        Pattern::list(regions.collect()).unwrap()
    });
    prop_oneof![strided, backwards, list]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..40_000_u64, 1..20_000_usize).prop_map(|(at, len)| Step::Write(at, len)),
        (0..3000_u64, 1..2000_usize).prop_map(|(at, len)| Step::Write(at, len)),
        (0..60_000_u64, 0..30_000_usize).prop_map(|(at, len)| Step::Read(at, len)),
        patterns().prop_map(Step::WritePattern),
        patterns().prop_map(Step::ReadPattern),
        (0..50_000_u64).prop_map(Step::Truncated),
        proptest::collection::vec(any::<bool>(), 1..4).prop_map(Step::Cut),
    ]
}

/// The bytes that a pattern reads of a file: zeros beyond its end, cut after the last byte inside it.
fn read_flat(model: &[u8], pattern: &Pattern) -> Vec<u8> {
    let (mut bytes, mut end) = (Vec::new(), 0);
    for region in pattern.regions() {
        for at in region.offset..region.end() {
            let byte = model.get(at as usize);
            bytes.push(byte.copied().unwrap_or(0));
            end = if byte.is_some() { bytes.len() } else { end };
        }
    }
    bytes.truncate(end);
    bytes
}

fn write_flat(model: &mut Vec<u8>, pattern: &Pattern, data: &[u8]) {
    let mut data = data.iter();
    for region in pattern.regions() {
        for at in region.offset..region.end() {
            if model.len() <= at as usize {
                model.resize(at as usize + 1, 0);
            }
            model[at as usize] = *data.next().unwrap();
        }
    }
}

/// Set the size as another client's truncate does: a new generation everywhere.
fn truncate(hand: &Hand, file: Handle, size: u64) {
    use shoal_pattern::Distribution;
    let mut cluster = hand.cluster.borrow_mut();
    let layout = cluster.unstuff(file);
    let striping = layout.striping();
    for (index, &stream) in layout.datafiles.iter().enumerate() {
        let size = striping.physical_size(index as u32, size) as usize;
        cluster.streams.get_mut(&stream).unwrap().bytes.resize(size, 0);
    }
    cluster.advance(file);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_striped_file_is_a_flat_one_whatever_is_lost_on_the_way(
        servers in 1..5_u16,
        steps in proptest::collection::vec(steps(), 1..25),
    ) {
        let hand = Hand::new(FakeCluster::new(servers, STRIP));
        let file = open(&hand, "f");
        let mut model: Vec<u8> = Vec::new();
        let mut next = 0_u8;
        let mut fresh = |len: usize| -> Bytes {
            next = next.wrapping_add(1);
            (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(next) | 1).collect::<Vec<u8>>().into()
        };
        for step in steps {
            match step {
                Step::Write(at, len) => {
                    let data = fresh(len);
                    write_flat(&mut model, &Pattern::contiguous(at as i64, len as u64).unwrap(), &data);
                    hand.run(file.write(at, data)).unwrap();
                }
                Step::Read(at, len) => {
                    let from = (at as usize).min(model.len());
                    let end = (from + len).min(model.len());
                    prop_assert_eq!(&read(&hand, &file, at, len), &model[from..end]);
                }
                Step::WritePattern(pattern) => {
                    let data = fresh(pattern.len() as usize);
                    write_flat(&mut model, &pattern, &data);
                    hand.run(file.write_pattern(&pattern, data)).unwrap();
                }
                Step::ReadPattern(pattern) => {
                    let bytes = hand.run(file.read_pattern(&pattern)).unwrap();
                    prop_assert_eq!(&bytes[..], &read_flat(&model, &pattern)[..]);
                }
                Step::Truncated(size) => {
                    truncate(&hand, file.handle(), size);
                    model.resize(size as usize, 0);
                }
                Step::Cut(kinds) => {
                    let mut kinds = kinds.into_iter();
                    *hand.loses.borrow_mut() = Box::new(move || match kinds.next() {
                        Some(true) => Lost::Request,
                        Some(false) => Lost::Reply,
                        None => Lost::Nothing,
                    });
                }
            }
            prop_assert_eq!(hand.run(file.size()).unwrap(), model.len() as u64);
        }
    }
}

#[test]
fn a_loss_of_what_was_appended_while_a_sync_was_under_way_is_told_by_the_next_one() {
    for of_all in [false, true] {
        append_beside_a_sync(of_all);
    }
}

#[test]
fn each_of_two_durable_appends_fails_if_its_own_bytes_may_be_lost() {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let client = hand.client.with_durability(Durability::Durable);
    let both = Rights::READ | Rights::WRITE;
    let file = hand.run(client.create(Handle::ROOT, &name("f"), OWNER, true, both, None)).unwrap().2;
    hand.run(file.write(0, vec![1; 3 * 4096].into())).unwrap();
    let home = file.handle().server();
    let others: Vec<ServerId> = (0..3).map(ServerId).filter(|&server| server != home).collect();
    let append = || Box::pin(file.append(vec![2; 3 * 4096].into()));
    let (mut first, mut second) = (append(), append());
    // One asks for the loss ids of the other servers before it is sent.
    for _ in 0..4 {
        assert!(hand.look(first.as_mut()).is_pending());
        assert!(hand.look(second.as_mut()).is_pending());
        for &server in &others {
            hand.carry_to(server);
        }
    }
    let waiting = hand.take(home);
    assert_eq!(waiting.len(), 2);
    let session = hand.core.attach_id(home).unwrap();
    for (tag, request, bulk) in waiting {
        let (reply, bulk) = hand.cluster.borrow_mut().execute(home, session, &request, bulk);
        hand.reply(home, tag, reply, bulk).unwrap();
    }
    hand.cluster.borrow_mut().loss[usize::from(others[0].0)] = 2;
    let (first, second) = hand.run(join(first, second));
    assert_eq!(first.unwrap_err().status, Status::Io);
    assert_eq!(second.unwrap_err().status, Status::Io);
}

/// A sync of a file, or of all, while an append waits.
fn append_beside_a_sync(of_all: bool) {
    let hand = Hand::new(FakeCluster::new(3, STRIP));
    let (file, other) = (open(&hand, "f"), open(&hand, "f"));
    hand.run(file.write(0, vec![1; 3 * 4096].into())).unwrap();
    let home = file.handle().server();
    // The append is on its way to the metafile's server, or waits there for its turn.
    let mut append = Box::pin(file.append(vec![2; 3 * 4096].into()));
    assert!(hand.look(append.as_mut()).is_pending());
    let waiting = hand.take(home);
    assert_eq!(waiting.len(), 1);
    // Meanwhile another descriptor syncs.
    match of_all {
        true => hand.run(hand.client.sync_all()).unwrap(),
        false => hand.run(other.fsync()).unwrap(),
    }
    // Now the append is carried out, and acknowledged.
    let session = hand.core.attach_id(home).unwrap();
    for (tag, request, bulk) in waiting {
        let (reply, bulk) = hand.cluster.borrow_mut().execute(home, session, &request, bulk);
        hand.reply(home, tag, reply, bulk).unwrap();
    }
    hand.run(append).unwrap();
    // Another server than the metafile's loses its memory, and with it a part of the append.
    let lost = (0..3_u16).find(|&server| ServerId(server) != home).unwrap();
    hand.cluster.borrow_mut().loss[usize::from(lost)] = 2;
    assert_eq!(hand.run(file.fsync()).unwrap_err().status, Status::Io);
}
