//! Checks of rows: order, scans, dependencies, durability.

use super::{Subject, handle, ok};
use crate::{Changes, Follow, StoreError, StreamChange, Strength, look, settle};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

fn key(n: u32) -> Bytes {
    format!("Dkey-{n:06}").into_bytes().into()
}

pub(super) async fn a_batch_is_visible_at_once_and_in_order(subject: &Subject) {
    let mut changes = Changes::default();
    changes.put("Da", "1");
    changes.put("Db", "1");
    changes.put("Da", "2");
    changes.remove("Db");
    let before = subject.store.applied();
    let lsn = subject.apply(changes).await;
    assert!(lsn > before);
    assert_eq!(subject.store.applied(), lsn);
    assert_eq!(subject.get(b"Da").await.as_deref(), Some(b"2".as_slice()), "a later change of a key wins");
    assert_eq!(subject.get(b"Db").await, None);
    assert_eq!(ok(subject.store.apply(Changes::default())), lsn, "an empty batch is nothing");
}

pub(super) async fn a_scan_gives_rows_in_order_and_resumes_by_key(subject: &Subject) {
    let mut changes = Changes::default();
    for n in (0..100).rev() {
        changes.put(key(n), n.to_string());
    }
    changes.put("Dkez", "after the prefix");
    changes.put("Dkex", "before the prefix");
    subject.apply(changes).await;
    for limit in [1, 7, 100, 1000] {
        let rows = subject.scan(b"Dkey-", limit).await;
        assert_eq!(rows.len(), 100);
        assert!(rows.iter().zip(0..).all(|((k, v), n)| *k == key(n) && *v == n.to_string()));
    }
    assert_eq!(subject.scan(b"Dnone", 10).await, []);
}

pub(super) async fn a_scan_merges_removals_and_checkpoints(subject: &Subject) {
    let mut model = BTreeMap::new();
    for round in 0_u32..6 {
        let mut changes = Changes::default();
        for n in (round..300).step_by(round as usize + 1) {
            if (n + round) % 3 == 0 {
                changes.remove(key(n));
                model.remove(&key(n));
            } else {
                let value = Bytes::from(format!("{round}-{n}"));
                changes.put(key(n), value.clone());
                model.insert(key(n), value);
            }
        }
        subject.apply(changes).await;
        let expected: Vec<_> = model.clone().into_iter().collect();
        for limit in [3, 64, 1000] {
            assert_eq!(subject.scan(b"Dkey-", limit).await, expected, "round {round}, {limit} at a time");
        }
        if round % 2 == 0 {
            ok(subject.store.checkpoint().await);
            assert_eq!(subject.scan(b"Dkey-", 50).await, expected, "round {round}, after a checkpoint");
        }
    }
    let mut changes = Changes::default();
    for key in model.keys() {
        changes.remove(key.clone());
    }
    subject.apply(changes).await;
    assert_eq!(subject.scan(b"Dkey-", 16).await, []);
}

pub(super) async fn what_was_checkpointed_is_found_again(subject: &Subject) {
    let mut changes = Changes::default();
    changes.put("Dold", "old");
    changes.put("Dgone", "gone");
    subject.apply(changes).await;
    ok(subject.store.checkpoint().await);
    let mut changes = Changes::default();
    changes.put("Dold", "new");
    changes.remove("Dgone");
    subject.apply(changes).await;
    assert_eq!(subject.get(b"Dold").await.as_deref(), Some(b"new".as_slice()));
    ok(subject.store.checkpoint().await);
    assert_eq!(subject.get(b"Dold").await.as_deref(), Some(b"new".as_slice()));
    assert_eq!(subject.get(b"Dgone").await, None);
    assert_eq!(subject.get(b"Dnever").await, None);
}

pub(super) async fn what_the_rows_of_a_scan_lead_to_is_loaded_with_them(subject: &Subject) {
    let lead = |n: u32| Bytes::from(format!("L{n}"));
    let mut changes = Changes::default();
    for n in 0..10 {
        changes.put(key(n), lead(n));
        // Every second one is absent.
        if n % 2 == 0 {
            changes.put(lead(n), "led to");
        }
        changes.stream(handle(u64::from(n)), StreamChange::Create { generation: 1 });
    }
    subject.apply(changes).await;
    // So many that no table in memory keeps the first.
    for n in 100..105 {
        ok(subject.store.checkpoint().await);
        let mut changes = Changes::default();
        changes.put(key(n), lead(n));
        subject.apply(changes).await;
    }
    let follow = Follow(Arc::new(|_, value, leads| {
        leads.keys.push(Bytes::copy_from_slice(value));
        let number = std::str::from_utf8(&value[1..]).ok().and_then(|digits| digits.parse().ok());
        leads.streams.extend(number.map(handle));
    }));
    let runs = Cell::new(0);
    let (found, _) = ok(look(&subject.store, |view| {
        runs.set(runs.get() + 1);
        let scan = view.scan_following(&key(0)[..1], None, 5, Some(&follow))?;
        let led = scan.rows.iter().map(|(_, value)| view.get(value)).collect::<Result<Vec<_>, _>>()?;
        let streams = (0..5).map(|n| view.stream(handle(n))).collect::<Result<Vec<_>, _>>()?;
        Ok((scan.rows.len(), led, streams))
    })
    .await);
    assert!(runs.get() <= 2, "one load brings all, not {} runs", runs.get());
    let (rows, led, streams) = found;
    assert_eq!(rows, 5);
    for (n, value) in led.into_iter().enumerate() {
        assert_eq!(value.is_some(), n % 2 == 0, "row {n}");
    }
    assert!(streams.iter().all(Option::is_some));
}

pub(super) async fn a_view_depends_on_what_is_not_durable(subject: &Subject) {
    let mut changes = Changes::default();
    changes.put("Da", "1");
    changes.put("Db", "1");
    let strong = subject.apply(changes).await;
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    changes.put("Da", "2");
    let weak = subject.apply(changes).await;
    assert!(weak > strong);
    let (_, depends) = ok(look(&subject.store, |view| view.get(b"Da")).await);
    assert!(depends <= strong, "a weak change is not waited for");
    let mut changes = Changes::default();
    changes.remove("Db");
    let removal = subject.apply(changes).await;
    let (_, depends) = ok(look(&subject.store, |view| view.get(b"Db")).await);
    assert!(depends == removal || subject.store.durable() >= removal, "an absence is a dependency too");
    let (_, depends) = ok(look(&subject.store, |view| view.scan(b"D", None, 10)).await);
    assert!(depends == removal || subject.store.durable() >= removal, "also in a scan");
}

pub(super) async fn everything_becomes_durable_when_asked(subject: &Subject) {
    let mut last = subject.store.applied();
    for n in 0..50 {
        let mut changes = Changes::default();
        changes.put(key(n), "v");
        last = subject.apply(changes).await;
    }
    ok(settle(&subject.store).await);
    assert!(subject.store.durable() >= last);
    assert!(subject.store.written() >= subject.store.durable());
    ok(subject.store.health());
}

pub(super) async fn an_impossible_batch_changes_nothing(subject: &Subject) {
    let mut changes = Changes::default();
    changes.put("Da", "1");
    changes.stream(handle(7), StreamChange::Create { generation: 1 });
    changes.stream(handle(8), StreamChange::Advance { generation: 2 });
    let answer = subject.try_apply(changes).await;
    assert!(matches!(answer, Err(StoreError::NoStream)), "{answer:?}");
    let mut changes = Changes::default();
    changes.put("Da", "1");
    changes.stream(handle(9), StreamChange::Create { generation: 1 });
    let content = Bytes::from(vec![1; Changes::SMALL_MAX + 1]);
    let size = content.len() as u64;
    changes.stream(handle(9), StreamChange::Put { content, size, written_at: super::moment(1) });
    assert!(subject.try_apply(changes).await.is_err(), "a content beyond the eager limit");
    assert_eq!(subject.get(b"Da").await, None);
    assert_eq!(subject.info(handle(7)).await, None);
    assert_eq!(subject.info(handle(9)).await, None);
}
