//! Checks of small streams, which are written and read with their metadata.

use super::{Subject, handle, moment, ok, pattern};
use crate::{Changes, StreamChange, look};

fn put(seed: u64, len: usize, when: i64) -> StreamChange {
    StreamChange::Put { content: pattern(seed, len), size: len as u64, written_at: moment(when) }
}

pub(super) async fn a_small_content_is_what_was_put(subject: &Subject) {
    let h = subject.create(1).await;
    let info = subject.info(h).await.expect("it was made");
    assert!(info.small && info.size == 0 && info.generation == 1 && info.written_at.is_none());
    for (n, len) in [0, 1, 1900, 1901, 8192, Changes::SMALL_MAX, 10].into_iter().enumerate() {
        subject.change(h, put(n as u64, len, n as i64)).await;
        let info = subject.info(h).await.expect("it is there");
        assert_eq!((info.size, info.written_at), (len as u64, Some(moment(n as i64))));
        assert!(info.small);
        subject.same(&subject.content(h).await, &pattern(n as u64, len));
        subject.same(&subject.read(h, 0, len).await, &pattern(n as u64, len));
    }
    let content = pattern(3, 5);
    subject.change(h, StreamChange::Put { content, size: 300, written_at: moment(9) }).await;
    let mut expected = pattern(3, 5).to_vec();
    expected.resize(300, 0);
    subject.same(&subject.content(h).await, &expected);
}

pub(super) async fn contents_of_many_sizes_are_found_after_a_checkpoint(subject: &Subject) {
    for n in 0..60 {
        let h = subject.create(n).await;
        subject.change(h, put(n, n as usize * 270, 1)).await;
    }
    ok(subject.store.checkpoint().await);
    for n in 0..60 {
        subject.same(&subject.content(handle(n)).await, &pattern(n, n as usize * 270));
        subject.same(&subject.read(handle(n), 10, 100).await, &{
            let mut all = pattern(n, n as usize * 270).to_vec();
            all.resize(all.len().max(110), 0);
            all[10..110].to_vec()
        });
    }
}

pub(super) async fn a_small_stream_is_cut_and_grows_with_zeros(subject: &Subject) {
    for (n, len) in [(1, 1000_usize), (2, 9000)] {
        let h = subject.create(n).await;
        subject.change(h, put(n, len, 1)).await;
        let resize =
            |generation, size| StreamChange::Resize { generation, size, written_at: Some(moment(2)) };
        subject.change(h, resize(2, 500)).await;
        subject.change(h, resize(3, len as u64)).await;
        let mut expected = pattern(n, 500).to_vec();
        expected.resize(len, 0);
        subject.same(&subject.content(h).await, &expected);
        subject.same(&subject.read(h, 0, len).await, &expected);
        ok(subject.store.checkpoint().await);
        subject.same(&subject.content(h).await, &expected);
        assert_eq!(subject.info(h).await.map(|info| (info.generation, info.size)), Some((3, len as u64)));
    }
}

pub(super) async fn later_changes_of_one_batch_see_earlier_ones(subject: &Subject) {
    let h = handle(4);
    let mut changes = Changes::default();
    changes.stream(h, StreamChange::Create { generation: 5 });
    changes.stream(h, put(1, 6000, 1));
    changes.stream(h, StreamChange::Resize { generation: 6, size: 4000, written_at: None });
    changes.stream(handle(5), StreamChange::Create { generation: 1 });
    changes.stream(handle(5), StreamChange::Remove);
    subject.apply(changes).await;
    subject.same(&subject.content(h).await, &pattern(1, 4000));
    let info = subject.info(h).await.expect("it is there");
    assert_eq!((info.generation, info.written_at), (6, None));
    assert_eq!(subject.info(handle(5)).await, None);
}

pub(super) async fn an_advance_forgets_the_time_of_the_newest_write(subject: &Subject) {
    let h = subject.create(1).await;
    subject.change(h, put(1, 100, 50)).await;
    subject.change(h, StreamChange::Advance { generation: 2 }).await;
    let info = subject.info(h).await.expect("it is there");
    assert_eq!((info.generation, info.size, info.written_at), (2, 100, None));
    let info = subject.write(h, 0, pattern(2, 10), 3).await;
    assert_eq!(info.written_at, Some(moment(3)));
    let info = subject.write(h, 0, pattern(2, 10), 2).await;
    assert_eq!(info.written_at, Some(moment(3)), "the newest write counts, not the last");
}

pub(super) async fn a_removed_stream_is_gone(subject: &Subject) {
    for (n, len) in [(1_u64, 10_usize), (2, 9000), (3, 100_000)] {
        let h = subject.create(n).await;
        subject.write(h, 0, pattern(n, len), 1).await;
        subject.change(h, StreamChange::Remove).await;
        assert_eq!(subject.info(h).await, None);
        let answer = subject.store.read(h, 1, Vec::new(), 0).await;
        assert!(matches!(answer, Err(crate::StoreError::NoStream)), "{answer:?}");
        let content = look(&subject.store, |view| view.stream(h)).await;
        assert_eq!(ok(content).0, None);
    }
}
