//! The state after a crash, in each sync mode, of a file that was made and written, and never synced.
//!
//! The replies are those that a server's gate would send; the crash comes at many moments, before, between
//! and after them.

use crate::common;
use crate::common::{bytes, get_row, handle, info, moment, whole};
use shoal_env::sim::{Config, World};
use shoal_store::{
    Changes, Collection, CollectionConfig, DataSync, Lsn, MetadataSync, StreamChange, Strength, SyncModes,
    look, open,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const LEN: usize = 8_000;

/// The remaining state of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    Empty,
    Whole,
}

fn config(modes: SyncModes) -> CollectionConfig {
    CollectionConfig { sync_modes: modes, ..common::config(Path::new("/data/file")) }
}

async fn until(store: &Collection, is: impl Fn() -> bool) {
    while !is() {
        store.progress().wait().await;
    }
}

async fn replied(store: &Collection, lsn: Lsn, durable: bool, written: bool) {
    if durable {
        store.push_durable();
        until(store, || store.durable() >= lsn).await;
    } else if written {
        store.push_written();
        until(store, || store.written() >= lsn).await;
    }
}

/// Make the file and write it, in one group of a request or in two.
async fn work(store: Collection, modes: SyncModes, one_group: bool, answered: Rc<Cell<usize>>) {
    let metadata = (modes.metadata == MetadataSync::AtReply, modes.metadata == MetadataSync::AtFsync);
    let data = (modes.data == DataSync::AtReply, modes.metadata != MetadataSync::Never);
    let put = StreamChange::Put { content: bytes(1, LEN), size: LEN as u64, written_at: moment(1) };
    let mut made = Changes::default();
    made.put("Dfile", "1");
    made.stream(handle(1), StreamChange::Create { generation: 1 });
    if one_group {
        made.stream(handle(1), put);
        let lsn = store.apply(made).unwrap();
        replied(&store, lsn, metadata.0, metadata.1).await;
        answered.set(2);
        return std::future::pending().await;
    }
    let lsn = store.apply(made).unwrap();
    replied(&store, lsn, metadata.0, metadata.1).await;
    answered.set(1);
    look(&store, |view| view.stream(handle(1))).await.unwrap();
    let mut written = Changes { strength: Strength::Weak, ..Changes::default() };
    written.stream(handle(1), put);
    let lsn = store.apply(written).unwrap();
    replied(&store, lsn, data.0, data.1).await;
    answered.set(2);
    std::future::pending().await
}

/// The remaining states, by the number of replies, over many moments of the crash.
fn left(modes: SyncModes, one_group: bool, power_cut: bool) -> BTreeSet<(usize, Left)> {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("server", machine);
        world.complete(process, |env| async move {
            open(env, config(modes)).await.unwrap().close().await.unwrap();
        });
        let answered = Rc::new(Cell::new(0));
        let (own, began) = (answered.clone(), Rc::new(Cell::new(false)));
        let begins = began.clone();
        world.start(process, |env| async move {
            let store = open(env, config(modes)).await.unwrap();
            begins.set(true);
            work(store, modes, one_group, own).await;
        });
        // At the very moment of the last reply first: in mode *never* the group may be written microseconds
        // later.
        let until = world.now() + Duration::from_secs(10);
        assert!(world.run_until_true(until, || began.get()));
        match seed {
            0 => assert!(world.run_until_true(until, || answered.get() == 2)),
            _ => drop(world.run_for(Duration::from_micros(seed * 20))),
        }
        match power_cut {
            true => world.power_cut(machine),
            false => world.crash(process),
        }
        let found = Rc::new(Cell::new(Left::Nothing));
        let finds = found.clone();
        world.complete(process, |env| async move {
            let store = open(env, config(modes)).await.unwrap();
            let entry = get_row(&store, "Dfile").await.is_some();
            assert_eq!(
                entry,
                info(&store, handle(1)).await.is_some(),
                "the entry and the file are one change"
            );
            if entry {
                let content = whole(&store, handle(1)).await;
                let is_whole = content[..] == bytes(1, LEN)[..];
                assert!(content.is_empty() || is_whole, "{} bytes that were never all of it", content.len());
                finds.set(if is_whole { Left::Whole } else { Left::Empty });
            }
        });
        seen.insert((answered.get(), found.get()));
    }
    seen
}

fn modes(metadata: MetadataSync, data: DataSync) -> SyncModes {
    SyncModes { metadata, data, ..SyncModes::default() }
}

/// Those seen after so many replies.
fn after(seen: &BTreeSet<(usize, Left)>, replies: usize) -> Vec<Left> {
    seen.iter().filter(|(n, _)| *n == replies).map(|(_, left)| *left).collect()
}

#[test]
fn metadata_at_reply_a_power_cut_leaves_the_file_and_takes_what_was_written_or_not() {
    let seen = left(modes(MetadataSync::AtReply, DataSync::AtFsync), false, true);
    assert!(after(&seen, 1).iter().all(|left| *left != Left::Nothing), "{seen:?}");
    assert_eq!(after(&seen, 2), [Left::Empty, Left::Whole], "both happen");
}

#[test]
fn data_at_reply_a_power_cut_takes_nothing_that_was_answered() {
    let seen = left(modes(MetadataSync::AtReply, DataSync::AtReply), false, true);
    assert!(after(&seen, 1).iter().all(|left| *left != Left::Nothing), "{seen:?}");
    assert_eq!(after(&seen, 2), [Left::Whole]);
}

#[test]
fn metadata_at_fsync_a_power_cut_leaves_the_file_or_not() {
    let seen = left(modes(MetadataSync::AtFsync, DataSync::AtFsync), false, true);
    assert!(after(&seen, 2).contains(&Left::Nothing), "{seen:?}");
    assert!(after(&seen, 2).contains(&Left::Whole), "{seen:?}");
}

#[test]
fn a_file_made_and_written_in_one_group_is_there_whole_or_not_at_all() {
    for metadata in [MetadataSync::AtReply, MetadataSync::AtFsync, MetadataSync::Never] {
        let seen = left(modes(metadata, DataSync::AtFsync), true, true);
        assert!(seen.iter().all(|(_, left)| *left != Left::Empty), "{metadata:?}: {seen:?}");
        if metadata == MetadataSync::AtReply {
            assert_eq!(
                after(&seen, 2),
                [Left::Whole],
                "its data is durable at reply, whatever the data mode"
            );
        }
    }
}

#[test]
fn a_kill_of_the_server_takes_nothing_that_was_answered_but_in_mode_never() {
    for metadata in [MetadataSync::AtReply, MetadataSync::AtFsync] {
        let seen = left(modes(metadata, DataSync::AtFsync), false, false);
        assert!(after(&seen, 1).iter().all(|left| *left != Left::Nothing), "{metadata:?}: {seen:?}");
        assert_eq!(after(&seen, 2), [Left::Whole], "{metadata:?}");
    }
    let seen = left(modes(MetadataSync::Never, DataSync::AtFsync), false, false);
    assert!(after(&seen, 2).contains(&Left::Nothing), "the last moments are lost: {seen:?}");
}
