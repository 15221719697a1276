//! The task that writes groups to the journal, and the task that syncs segments. A *group* is one write:
//! the records of operations that are made durable together. Only these two tasks use the segments that are
//! being written.
//!
//! A *push* is a request to make records durable now. A group must be durable if a push covers it, or if it
//! has a strong change in mode *at reply* and the [policy](super::coalesce) does not postpone its sync. It is
//! then written with `O_DIRECT|O_DSYNC`, and is durable when the write returns. Other groups (data writes
//! alone, postponed groups, and all groups in the weaker modes) go to the page cache, and the next push syncs
//! the segments written since. If unsynced groups are in the page cache, a group that must be durable goes
//! there too, so that one sync covers all of them.
//!
//! While a sync runs, groups still go to the page cache. In mode *at reply* groups that must be durable wait
//! for the end of that sync, and are written at once after it.

use super::super::CollectionState;
use super::group::{BLOCK, HEADER, Header};
use super::{Group, segments::State};
use crate::{MetadataSync, StoreError};
use futures_util::future::select;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{AlignedBuf, File, Instant, crash_point};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

pub(crate) async fn run(collection: Rc<CollectionState>) {
    // Since when the next group waits for more operations.
    let mut waits_since = None;
    loop {
        let woken = collection.work.wait();
        if collection.health().is_err() {
            return;
        }
        let worked = match step(&collection, waits_since) {
            Step::Write(group) => {
                waits_since = None;
                write(&collection, group).await
            }
            Step::Gather(span) => {
                let since = *waits_since.get_or_insert_with(|| collection.env.now());
                select(pin!(woken), collection.env.pause_until(since + span)).await;
                Ok(())
            }
            Step::Wait => {
                woken.await;
                Ok(())
            }
        };
        if let Err(error) = worked {
            collection.poison(&error);
        }
    }
}

enum Step {
    Write(Box<Group>),
    /// More operations may come: wait so long from the start of the group's wait.
    Gather(Duration),
    Wait,
}

/// The task that syncs the page cache, when a task needs it durable.
pub(crate) async fn syncs(collection: Rc<CollectionState>) {
    loop {
        let woken = collection.syncs.wait();
        if collection.health().is_err() {
            return;
        }
        if !sync_is_due(&collection) {
            woken.await;
            continue;
        }
        collection.journal.borrow_mut().syncing = true;
        let synced = sync(&collection).await;
        collection.journal.borrow_mut().syncing = false;
        match synced {
            Ok(()) => collection.progressed(),
            Err(error) => collection.poison(&error),
        }
        collection.work.wake_all();
    }
}

fn sync_is_due(collection: &CollectionState) -> bool {
    let journal = collection.journal.borrow();
    journal.push > journal.durable && !journal.unsynced.is_empty()
}

fn step(collection: &Rc<CollectionState>, waits_since: Option<Instant>) -> Step {
    if collection.journal.borrow().due() {
        // Weak changes ride along.
        collection.flush_weak();
    }
    let at_reply = collection.modes.get().metadata == MetadataSync::AtReply;
    let mut journal = collection.journal.borrow_mut();
    if !journal.due() || (at_reply && journal.waits_for_sync()) {
        return Step::Wait;
    }
    let may_wait = journal.delay().filter(|_| at_reply);
    match may_wait {
        Some(span) if waits_since.is_none_or(|since| collection.env.now() < since + span) => {
            Step::Gather(span)
        }
        _ => journal.take_group().map_or(Step::Wait, |group| Step::Write(Box::new(group))),
    }
}

async fn write(collection: &Rc<CollectionState>, group: Box<Group>) -> Result<(), StoreError> {
    let group = *group;
    ready(collection, group.segment).await?;
    let Some(files) = collection.journal.borrow().segments.get(group.segment).map(|s| s.files.clone()) else {
        return Err(StoreError::Damaged(format!("segment {} is not there", group.segment)));
    };
    let Served { durable, soon } = serve(collection, &group);
    let operations = u64::from(group.operations);
    let at_once = durable && collection.journal.borrow().unsynced.is_empty();
    let opened = if at_once && !mutant::is(Mutant::DropJournalSync) {
        files.direct(&collection.env).await
    } else {
        files.plain(&collection.env).await
    };
    let context = || format!("writing the journal, {}", files.path.display());
    let file = opened.map_err(|error| StoreError::io(context(), &error))?;
    let (segment, offset, last) = (group.segment, group.offset, group.last);
    if group.strong {
        collection.journal.borrow_mut().delay.taken(group.operations);
    }
    let buf = finish(collection, group);
    let bytes = buf.len() as u64;
    collection.journal.borrow_mut().in_flight = buf.len();
    collection.env.crash_point(crash_point::JOURNAL_WRITES, 0);
    let began = collection.env.now();
    if offset == 0 {
        collection.env.crash_point(crash_point::ROTATION_BEGINS, segment);
    }
    let (buf, done) = write_whole(&file, offset, buf).await;
    done.map_err(|error| StoreError::io(context(), &error))?;
    collection.env.crash_point(crash_point::JOURNAL_WROTE, 0);
    if offset == 0 {
        collection.env.crash_point(crash_point::ROTATION_DONE, segment);
    }
    {
        let mut journal = collection.journal.borrow_mut();
        journal.give_back(buf);
        journal.written = last;
        journal.groups_written += 1;
        journal.bytes_written += bytes;
        journal.in_flight = 0;
        if std::mem::take(&mut journal.crowded) {
            collection.room.wake_all();
        }
        if at_once {
            journal.syncs += 1;
            journal.durable = last;
            journal.completed(operations);
            journal.delay.wrote(collection.env.now() - began);
        } else {
            journal.unsynced.insert(segment, last);
            journal.unsynced_operations += operations;
            if durable || soon {
                journal.push = journal.push.max(last);
            }
        }
    }
    // Checked again, not only if the group was to be durable when its write began: a task may have
    // requested it since and waits for its sync. That sync begins now, also if further groups are due after
    // it.
    if sync_is_due(collection) {
        collection.syncs.wake_all();
    }
    collection.progressed();
    Ok(())
}

/// The policy's decision on a group that is taken to be written.
struct Served {
    /// It must be durable.
    durable: bool,
    /// It becomes durable soon, and no task waits for that.
    soon: bool,
}

fn serve(collection: &CollectionState, group: &Group) -> Served {
    let at_reply = collection.modes.get().metadata == MetadataSync::AtReply;
    let mut journal = collection.journal.borrow_mut();
    let syncs = group.strong && journal.queues.serve(group.operations);
    let asked = journal.push >= group.first;
    Served {
        durable: asked || (at_reply && syncs),
        soon: !at_reply && syncs && journal.queues.syncs_after_reply(),
    }
}

/// The header last: the durable LSN it states is the one known now.
fn finish(collection: &CollectionState, group: Group) -> AlignedBuf {
    let mut journal = collection.journal.borrow_mut();
    debug_assert_eq!(
        group.first.0,
        journal.written.0 + 1,
        "LSNs have no gaps, and groups are written in order"
    );
    debug_assert!(group.first <= group.last && group.last <= journal.applied);
    debug_assert!(journal.durable <= journal.written);
    let header = Header {
        body_len: (group.len - HEADER) as u32,
        segment: group.segment,
        generation: group.generation,
        sequence: journal.sequence,
        first: group.first.0,
        last: group.last.0,
        durable: journal.durable.0,
        body_crc: group.crc,
    };
    journal.sequence += 1;
    // A small group needs no more than a usual one has.
    let mut buf = group.buf.into_whole(|| journal.spare());
    header.encode(&mut buf[..HEADER]);
    let end = group.len.next_multiple_of(BLOCK);
    buf[group.len..end].fill(0);
    buf.set_len(end);
    buf
}

async fn write_whole(file: &File, offset: u64, buf: AlignedBuf) -> (AlignedBuf, io::Result<()>) {
    file.write_aligned(offset, buf).await
}

/// Wait until the segment's file is prepared.
async fn ready(collection: &Rc<CollectionState>, number: u64) -> Result<(), StoreError> {
    loop {
        let moved = collection.room.wait();
        let state = collection.journal.borrow().segments.get(number).map(|segment| segment.state);
        if state != Some(State::Unprepared) {
            return Ok(());
        }
        collection.segment_work.wake_all();
        collection.health()?;
        moved.await;
    }
}

/// One sync for everything written by now.
async fn sync(collection: &Rc<CollectionState>) -> Result<(), StoreError> {
    let (covered, operations, segments) = {
        let mut journal = collection.journal.borrow_mut();
        let operations = std::mem::take(&mut journal.unsynced_operations);
        journal.queues.synced();
        (journal.written, operations, journal.unsynced.keys().copied().collect::<Vec<u64>>())
    };
    collection.env.crash_point(crash_point::JOURNAL_SYNCS, 0);
    for number in segments {
        let files = collection.journal.borrow().segments.get(number).map(|segment| segment.files.clone());
        if let Some(files) = files {
            let synced = async { files.plain(&collection.env).await?.sync().await }.await;
            synced.map_err(|error| StoreError::io(format!("syncing {}", files.path.display()), &error))?;
        }
        collection.journal.borrow_mut().syncs += 1;
    }
    collection.env.crash_point(crash_point::JOURNAL_SYNCED, 0);
    let mut journal = collection.journal.borrow_mut();
    // Groups written meanwhile may be covered or not.
    journal.unsynced.retain(|_, last| *last > covered);
    journal.durable = journal.durable.max(covered);
    journal.completed(operations);
    Ok(())
}
