//! The task that writes groups, the only one that touches taken segments; and the task that syncs them.
//!
//! A group with a strong change in mode *at reply*, or one that a push asks for, is written with `O_DIRECT|O_DSYNC` and is
//! durable when the write returns. Others (data writes alone, and everything in the weaker modes) go to the page cache, and
//! the next push syncs the segments written since. A group that must be durable behind buffered ones goes the same way, so
//! that one sync covers all of them.
//!
//! While a sync runs, groups go on to the page cache beside it; in mode *at reply* those that must be durable gather
//! meanwhile, and go to the disk at once behind it. Which operations share a sync is the [policy's](super::coalesce).

use super::super::Shared;
use super::group::{BLOCK, HEADER, Header};
use super::{Group, segments::State};
use crate::{MetadataSync, StoreError};
use futures_util::future::select;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{AlignedBuf, File, Instant, point};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

pub(crate) async fn run(shared: Rc<Shared>) {
    // Since when the next group waits for company.
    let mut waits_since = None;
    loop {
        let woken = shared.work.wait();
        if shared.health().is_err() {
            return;
        }
        let worked = match step(&shared, waits_since) {
            Step::Write(group) => {
                waits_since = None;
                write(&shared, group).await
            }
            Step::Gather(span) => {
                let since = *waits_since.get_or_insert_with(|| shared.env.now());
                select(pin!(woken), shared.env.pause_until(since + span)).await;
                Ok(())
            }
            Step::Wait => {
                woken.await;
                Ok(())
            }
        };
        if let Err(error) = worked {
            shared.poison(&error);
        }
    }
}

enum Step {
    Write(Box<Group>),
    /// More may come: until so long after the group began to wait.
    Gather(Duration),
    Wait,
}

/// The task that syncs what was written to the page cache, when somebody needs it durable.
pub(crate) async fn syncs(shared: Rc<Shared>) {
    loop {
        let woken = shared.syncs.wait();
        if shared.health().is_err() {
            return;
        }
        if !sync_is_due(&shared) {
            woken.await;
            continue;
        }
        shared.journal.borrow_mut().syncing = true;
        let synced = sync(&shared).await;
        shared.journal.borrow_mut().syncing = false;
        match synced {
            Ok(()) => shared.progressed(),
            Err(error) => shared.poison(&error),
        }
        shared.work.wake_all();
    }
}

fn sync_is_due(shared: &Shared) -> bool {
    let journal = shared.journal.borrow();
    journal.push > journal.durable && !journal.unsynced.is_empty()
}

fn step(shared: &Rc<Shared>, waits_since: Option<Instant>) -> Step {
    if shared.journal.borrow().due() {
        // What waits without haste goes along.
        shared.flush_weak();
    }
    let at_reply = shared.modes.get().metadata == MetadataSync::AtReply;
    let mut journal = shared.journal.borrow_mut();
    if !journal.due() || (at_reply && journal.waits_for_sync()) {
        return Step::Wait;
    }
    let may_wait = journal.wait_for_company().filter(|_| at_reply);
    match may_wait {
        Some(span) if waits_since.is_none_or(|since| shared.env.now() < since + span) => Step::Gather(span),
        _ => journal.take_group().map_or(Step::Wait, |group| Step::Write(Box::new(group))),
    }
}

async fn write(shared: &Rc<Shared>, group: Box<Group>) -> Result<(), StoreError> {
    let group = *group;
    ready(shared, group.segment).await?;
    let Some(files) = shared.journal.borrow().segments.get(group.segment).map(|s| s.files.clone()) else {
        return Err(StoreError::Damaged(format!("segment {} is not there", group.segment)));
    };
    let Served { durable, behind } = serve(shared, &group);
    let operations = u64::from(group.operations);
    let at_once = durable && shared.journal.borrow().unsynced.is_empty();
    let opened = if at_once && !mutant::is(Mutant::DropJournalSync) {
        files.direct(&shared.env).await
    } else {
        files.plain(&shared.env).await
    };
    let context = || format!("writing the journal, {}", files.path.display());
    let file = opened.map_err(|error| StoreError::io(context(), &error))?;
    let (segment, offset, last) = (group.segment, group.offset, group.last);
    if group.strong {
        shared.journal.borrow_mut().company.taken(group.operations);
    }
    let buf = finish(shared, group);
    let bytes = buf.len() as u64;
    shared.journal.borrow_mut().in_flight = buf.len();
    shared.env.point(point::JOURNAL_WRITES, 0);
    let began = shared.env.now();
    if offset == 0 {
        shared.env.point(point::ROTATION_BEGINS, segment);
    }
    let (buf, done) = write_whole(&file, offset, buf).await;
    done.map_err(|error| StoreError::io(context(), &error))?;
    shared.env.point(point::JOURNAL_WROTE, 0);
    if offset == 0 {
        shared.env.point(point::ROTATION_DONE, segment);
    }
    {
        let mut journal = shared.journal.borrow_mut();
        journal.give_back(buf);
        journal.written = last;
        journal.groups_written += 1;
        journal.bytes_written += bytes;
        journal.in_flight = 0;
        if std::mem::take(&mut journal.crowded) {
            shared.room.wake_all();
        }
        if at_once {
            journal.syncs += 1;
            journal.durable = last;
            journal.completed(operations);
            journal.company.wrote(shared.env.now() - began);
        } else {
            journal.unsynced.insert(segment, last);
            journal.unsynced_operations += operations;
            if durable || behind {
                journal.push = journal.push.max(last);
            }
        }
    }
    // Not only if it was to be durable when its write began: who asked since waits for its sync, and however many groups
    // are due behind it, that sync begins now.
    if sync_is_due(shared) {
        shared.syncs.wake_all();
    }
    shared.progressed();
    Ok(())
}

/// What the policy says of a group that is taken to be written.
struct Served {
    /// It is to be durable.
    durable: bool,
    /// It is to be durable soon, and nobody waits for that.
    behind: bool,
}

fn serve(shared: &Shared, group: &Group) -> Served {
    let at_reply = shared.modes.get().metadata == MetadataSync::AtReply;
    let mut journal = shared.journal.borrow_mut();
    let syncs = group.strong && journal.queues.serve(group.operations);
    let asked = journal.push >= group.first;
    Served {
        durable: asked || (at_reply && syncs),
        behind: !at_reply && syncs && journal.queues.syncs_behind(),
    }
}

/// The header last: the durable LSN it states is the one known now.
fn finish(shared: &Shared, group: Group) -> AlignedBuf {
    let mut journal = shared.journal.borrow_mut();
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
async fn ready(shared: &Rc<Shared>, number: u64) -> Result<(), StoreError> {
    loop {
        let moved = shared.room.wait();
        let state = shared.journal.borrow().segments.get(number).map(|segment| segment.state);
        if state != Some(State::Unprepared) {
            return Ok(());
        }
        shared.chores.wake_all();
        shared.health()?;
        moved.await;
    }
}

/// One sync for all that is written by now.
async fn sync(shared: &Rc<Shared>) -> Result<(), StoreError> {
    let (covered, operations, segments) = {
        let mut journal = shared.journal.borrow_mut();
        let operations = std::mem::take(&mut journal.unsynced_operations);
        journal.queues.synced();
        (journal.written, operations, journal.unsynced.keys().copied().collect::<Vec<u64>>())
    };
    shared.env.point(point::JOURNAL_SYNCS, 0);
    for number in segments {
        let files = shared.journal.borrow().segments.get(number).map(|segment| segment.files.clone());
        if let Some(files) = files {
            let synced = async { files.plain(&shared.env).await?.sync().await }.await;
            synced.map_err(|error| StoreError::io(format!("syncing {}", files.path.display()), &error))?;
        }
        shared.journal.borrow_mut().syncs += 1;
    }
    shared.env.point(point::JOURNAL_SYNCED, 0);
    let mut journal = shared.journal.borrow_mut();
    // What was written meanwhile may be covered or not.
    journal.unsynced.retain(|_, last| *last > covered);
    journal.durable = journal.durable.max(covered);
    journal.completed(operations);
    Ok(())
}
