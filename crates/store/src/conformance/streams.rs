//! Checks of the bulk operations on streams.

use super::{Subject, handle, moment, ok, pattern};
use crate::{StoreError, StreamChange};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_pattern::ViewRun;

pub(super) async fn bulk_writes_and_reads_agree(subject: &Subject) {
    let h = subject.create(1).await;
    let info = subject.write(h, 0, pattern(1, 300_000), 5).await;
    assert_eq!((info.size, info.written_at), (300_000, Some(moment(5))));
    subject.same(&subject.read(h, 0, 300_000).await, &pattern(1, 300_000));
    subject.write(h, 1 << 33, pattern(2, 10), 6).await;
    let size = subject.info(h).await.map(|info| info.size);
    assert_eq!(size, Some((1 << 33) + 10));
    let mut expected = vec![0; 30];
    expected[10..20].copy_from_slice(&pattern(2, 10));
    subject.same(&subject.read(h, (1 << 33) - 10, 30).await, &expected);
    ok(subject.store.fsync(h).await);
    ok(subject.store.checkpoint().await);
    subject.same(&subject.read(h, 299_990, 20).await[..10], &pattern(1, 300_000)[299_990..]);
}

pub(super) async fn a_stale_generation_is_refused(subject: &Subject) {
    let h = subject.create(1).await;
    subject.write(h, 0, pattern(1, 50_000), 1).await;
    subject.change(h, StreamChange::Advance { generation: 2 }).await;
    let run = ViewRun { physical: 0, packed: 0, len: 10 };
    let stale = |answer: Result<(), StoreError>| {
        assert!(matches!(answer, Err(StoreError::Stale { current: 2 })), "{answer:?}");
    };
    let store = &subject.store;
    stale(store.read(h, 1, vec![run], 10).await.map(|_| ()));
    stale(store.write(h, 1, vec![run], pattern(9, 10), moment(2)).await.map(|_| ()));
    stale(store.append(h, 1, u64::MAX, pattern(9, 10), moment(2)).await.map(|_| ()));
    stale(store.allocate(h, 1, 0, 10, true, moment(2)).await.map(|_| ()));
    stale(store.punch(h, 1, 0, 10, moment(2)).await.map(|_| ()));
    subject.same(&subject.read(h, 0, 50_000).await, &pattern(1, 50_000));
    let answer = store.fsync(handle(99)).await;
    assert!(matches!(answer, Err(StoreError::NoStream)), "{answer:?}");
}

pub(super) async fn a_small_stream_outgrows_its_home(subject: &Subject) {
    let h = subject.create(1).await;
    let whole = pattern(7, 40_000);
    for part in [0..1000, 1000..9000, 9000..16_000, 16_000..17_000, 17_000..40_000] {
        subject.write(h, part.start as u64, whole.slice(part.clone()), 1).await;
        subject.same(&subject.read(h, 0, part.end).await, &whole[..part.end]);
        let small = subject.info(h).await.map(|info| info.small);
        assert_eq!(small, Some(part.end <= crate::Changes::SMALL_MAX), "at {part:?}");
    }
}

pub(super) async fn a_put_replaces_a_large_stream(subject: &Subject) {
    let h = subject.create(1).await;
    subject.write(h, 0, pattern(1, 100_000), 1).await;
    let put = StreamChange::Put { content: pattern(2, 3000), size: 3000, written_at: moment(2) };
    subject.change(h, put).await;
    subject.same(&subject.read(h, 0, 3000).await, &pattern(2, 3000));
    assert_eq!(subject.info(h).await.map(|info| info.size), Some(3000));
    // And it grows again: no old bytes are visible.
    subject.write(h, 50_000, pattern(3, 10), 3).await;
    subject.same(&subject.read(h, 3000, 47_000).await, &vec![0; 47_000]);
    subject.same(&subject.read(h, 0, 3000).await, &pattern(2, 3000));
    subject.same(&subject.read(h, 50_000, 10).await, &pattern(3, 10));
}

pub(super) async fn records_behind_the_bytes_of_a_stream_that_grew_are_zeros(subject: &Subject) {
    let h = subject.create(1).await;
    subject.write(h, 0, pattern(1, 30_000), 1).await;
    subject.change(h, StreamChange::Resize { generation: 2, size: 90_000, written_at: None }).await;
    let record = |index: u64| ViewRun { physical: 29_000 + 5_000 * index, packed: 2_000 * index, len: 2_000 };
    let runs: Vec<ViewRun> = (0..4).map(record).collect();
    let (data, _) = ok(subject.store.read(h, 2, runs, 8_000).await);
    let mut expected = pattern(1, 30_000)[29_000..].to_vec();
    expected.resize(8_000, 0);
    subject.same(&data, &expected);
}

pub(super) async fn a_cut_large_stream_grows_with_zeros(subject: &Subject) {
    let h = subject.create(1).await;
    subject.write(h, 0, pattern(1, 100_000), 1).await;
    let resize = |generation, size| StreamChange::Resize { generation, size, written_at: None };
    subject.change(h, resize(2, 50_001)).await;
    subject.change(h, resize(3, 90_000)).await;
    let mut expected = pattern(1, 50_001).to_vec();
    expected.resize(90_000, 0);
    subject.same(&subject.read(h, 0, 90_000).await, &expected);
    subject.change(h, resize(4, 0)).await;
    subject.change(h, resize(5, 60_000)).await;
    subject.write(h, 70_000, pattern(5, 5), 2).await;
    let mut expected = vec![0; 70_005];
    expected[70_000..].copy_from_slice(&pattern(5, 5));
    subject.same(&subject.read(h, 0, 70_005).await, &expected);
    // After the end there is nothing but zeros.
    subject.same(&subject.read(h, 70_000, 10).await[5..], &[0; 5]);
}

pub(super) async fn appends_follow_each_other(subject: &Subject) {
    let h = subject.create(1).await;
    let parts: Vec<Bytes> = (0..40).map(|n| pattern(n, 100 + 37 * n as usize)).collect();
    let answers =
        join_all(parts.iter().map(|part| subject.store.append(h, 1, u64::MAX, part.clone(), moment(1))))
            .await;
    let mut whole = vec![0; parts.iter().map(Bytes::len).sum()];
    let mut places: Vec<(u64, usize)> = Vec::new();
    for (answer, part) in answers.into_iter().zip(&parts) {
        let (at, _) = ok(answer);
        whole[at as usize..at as usize + part.len()].copy_from_slice(part);
        places.push((at, part.len()));
    }
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 as u64 == pair[1].0), "no gap, no overlap");
    subject.same(&subject.read(h, 0, whole.len()).await, &whole);
    assert_eq!(subject.info(h).await.map(|info| info.size), Some(whole.len() as u64));
}

pub(super) async fn an_append_that_would_end_beyond_its_bound_is_refused_wherever_the_end_is_by_then(
    subject: &Subject,
) {
    for (n, len) in [(1, 1000_usize), (2, 60_000)] {
        let h = subject.create(n).await;
        let end_max = 2 * len as u64;
        // Each fits when it is requested.
        let appends = (0..5).map(|part| subject.store.append(h, 1, end_max, pattern(part, len), moment(1)));
        let answers = join_all(appends).await;
        let refused =
            answers.iter().filter(|one| matches!(one, Err(StoreError::Stale { current: 1 }))).count();
        assert_eq!((answers.iter().filter(|one| one.is_ok()).count(), refused), (2, 3), "{answers:?}");
        assert_eq!(subject.info(h).await.map(|info| info.size), Some(end_max));
    }
}

pub(super) async fn a_punched_range_reads_as_zeros(subject: &Subject) {
    for (n, len) in [(1_u64, 1000_usize), (2, 10_000), (3, 100_000)] {
        let h = subject.create(n).await;
        subject.write(h, 0, pattern(n, len), 1).await;
        ok(subject.store.punch(h, 1, 100, len as u64 - 300, moment(2)).await);
        let info = ok(subject.store.punch(h, 1, len as u64 - 10, 1 << 40, moment(3)).await);
        assert_eq!((info.size, info.written_at), (len as u64, Some(moment(3))));
        let mut expected = pattern(n, len).to_vec();
        expected[100..len - 200].fill(0);
        expected[len - 10..].fill(0);
        subject.same(&subject.read(h, 0, len).await, &expected);
    }
}

pub(super) async fn allocation_grows_only_when_asked(subject: &Subject) {
    let h = subject.create(1).await;
    subject.write(h, 0, pattern(1, 500), 1).await;
    let info = ok(subject.store.allocate(h, 1, 0, 4096, false, moment(2)).await);
    assert_eq!(info.size, 500);
    let info = ok(subject.store.allocate(h, 1, 1000, 200_000, true, moment(2)).await);
    assert_eq!(info.size, 201_000);
    let info = ok(subject.store.allocate(h, 1, 300_000, 100_000, false, moment(2)).await);
    assert_eq!(info.size, 201_000);
    let mut expected = pattern(1, 500).to_vec();
    expected.resize(201_000, 0);
    subject.same(&subject.read(h, 0, 201_000).await, &expected);
}

pub(super) async fn runs_are_scattered_and_gathered(subject: &Subject) {
    for (n, stride) in [(1, 30), (2, 5000)] {
        let h = subject.create(n).await;
        let data = pattern(n, 800);
        let runs: Vec<ViewRun> =
            (0..100).map(|i| ViewRun { physical: (99 - i) * stride, packed: i * 8, len: 8 }).collect();
        let end = 99 * stride + 8;
        let info = ok(subject.store.write(h, 1, runs.clone(), data.clone(), moment(1)).await);
        assert_eq!(info.size, end);
        let (back, _) = ok(subject.store.read(h, 1, runs, 800).await);
        subject.same(&back, &data);
        let mut expected = vec![0; end as usize];
        for i in 0..100 {
            let at = ((99 - i) * stride) as usize;
            expected[at..at + 8].copy_from_slice(&data[i as usize * 8..i as usize * 8 + 8]);
        }
        subject.same(&subject.read(h, 0, end as usize).await, &expected);
    }
}

pub(super) async fn concurrent_writers_of_disjoint_ranges_all_land(subject: &Subject) {
    let h = subject.create(1).await;
    let part = |n: u64| pattern(n, 3000);
    join_all((0..30).rev().map(|n| subject.write(h, n * 3000, part(n), 1))).await;
    let expected: Vec<u8> = (0..30).flat_map(part).collect();
    subject.same(&subject.read(h, 0, 90_000).await, &expected);
    assert_eq!(subject.info(h).await.map(|info| info.size), Some(90_000));
}

pub(super) async fn a_wild_run_is_an_error(subject: &Subject) {
    let h = subject.create(1).await;
    let wild = [
        ViewRun { physical: 0, packed: 5, len: 10 },
        ViewRun { physical: 0, packed: u64::MAX, len: 10 },
        ViewRun { physical: u64::MAX - 3, packed: 0, len: 10 },
    ];
    for run in wild {
        assert!(subject.store.read(h, 1, vec![run], 10).await.is_err(), "{run:?}");
        assert!(subject.store.write(h, 1, vec![run], pattern(1, 10), moment(1)).await.is_err(), "{run:?}");
    }
    assert_eq!(subject.info(h).await.map(|info| info.size), Some(0));
}

pub(super) async fn many_random_operations_agree_with_a_plain_buffer(subject: &Subject) {
    let h = subject.create(1).await;
    let mut model: Vec<u8> = Vec::new();
    let mut generation = 1;
    let mut seed = 12345_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for step in 0..400 {
        // Sizes around the homes' limits come up often.
        let span = [2_500, 20_000, 60_000][random(3) as usize];
        let (at, len) = (random(span), random(span / 2) + 1);
        match random(9) {
            0..=3 => {
                let data = pattern(step, len as usize);
                subject.write(h, at, data.clone(), step as i64).await;
                model.resize(model.len().max((at + len) as usize), 0);
                model[at as usize..(at + len) as usize].copy_from_slice(&data);
            }
            4 => {
                let data = pattern(step, len as usize);
                let (offset, _) =
                    ok(subject.store.append(h, generation, u64::MAX, data.clone(), moment(1)).await);
                assert_eq!(offset, model.len() as u64);
                model.extend_from_slice(&data);
            }
            5 => {
                generation += 1;
                subject.change(h, StreamChange::Resize { generation, size: at, written_at: None }).await;
                model.resize(at as usize, 0);
            }
            6 => {
                let content = pattern(step, (len as usize).min(crate::Changes::SMALL_MAX));
                let size = content.len() as u64;
                let put = StreamChange::Put { content: content.clone(), size, written_at: moment(1) };
                subject.change(h, put).await;
                model = content.to_vec();
            }
            7 => {
                ok(subject.store.punch(h, generation, at, len, moment(1)).await);
                let end = model.len().min((at + len) as usize);
                model[end.min(at as usize)..end].fill(0);
            }
            _ => ok(subject.store.checkpoint().await),
        }
        let size = subject.info(h).await.map(|info| info.size);
        assert_eq!(size, Some(model.len() as u64), "step {step}");
        subject.same(&subject.read(h, 0, model.len()).await, &model);
    }
}
