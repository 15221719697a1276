//! The judgement at the end of a run. It compares all acknowledged changes with the present state, as a
//! fresh client without caches sees it.

use crate::bounds;
use crate::check::{self, Tree};
use crate::contents::Read;
use crate::facts::Look;
use crate::ledger::{ObjectId, Slot};
use crate::losses::{Held, Stamp};
use crate::register::{self, Event, Seen, Verdict};
use crate::workload::Shared;
use shoal_client::{Client, Error};
use shoal_env::Env;
use shoal_proto::{Handle, Kind, Rights, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The findings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    pub violations: Vec<String>,
    /// Histories of contended names and attributes that were judged, and those that passed a bound.
    pub registers: u64,
    pub registers_skipped: u64,
    /// Objects, and parts of them, by server.
    pub held_by: BTreeMap<u16, u64>,
}

/// Compare everything with the present state, when all is at rest.
///
/// # Errors
/// When a server does not answer.
pub(crate) async fn judge(
    env: &Env,
    client: &Client,
    servers: u16,
    shared: &Shared,
) -> Result<Judged, Error> {
    let tree = check::walk(client).await?;
    let mut judged = Judged { violations: tree.violations.clone(), ..Judged::default() };
    judged.violations.extend(check::leftovers(client, servers, &tree).await?);
    judged.violations.extend(check::forked(&tree, &shared.unmade.borrow()));
    judged.violations.extend(bounds::judge(client, servers).await?);
    let held = tree.objects.values().flat_map(|attr| {
        let parts = attr.layout.iter().flat_map(|layout| layout.datafiles.iter());
        std::iter::once(attr.handle.server()).chain(parts.map(|part| part.server()))
    });
    held.for_each(|server| *judged.held_by.entry(server.0).or_default() += 1);
    names(shared, &tree, &mut judged);
    objects(env, client, shared, &tree, &mut judged).await;
    registers(env, shared, &tree, &mut judged);
    values(env, client, shared, &mut judged).await?;
    Ok(judged)
}

fn names(shared: &Shared, tree: &Tree, judged: &mut Judged) {
    let found = |slot: &Slot| tree.entries.get(&(slot.0, slot.1.clone().into_bytes())).copied();
    judged.violations.extend(shared.ledger.borrow().judge(found));
    for (owner, object) in shared.removed.borrow().iter() {
        let is_removed = shared.ledger.borrow().links(*object) == Some(0);
        let object = shared.ledger.borrow().objects[*object].handle;
        if is_removed && tree.objects.contains_key(&object) {
            judged
                .violations
                .push(format!("client {owner}: {object:#x}: expected it removed, found it at the end"));
        }
    }
    for (which, object) in shared.scene.wanderers.iter().enumerate() {
        if !tree.objects.contains_key(&object.0) {
            judged.violations.push(format!("the wandering directory {which} ({object}) is nowhere"));
        }
    }
}

/// Every object that has a name for certain: bytes, attributes, target.
async fn objects(env: &Env, client: &Client, shared: &Shared, tree: &Tree, judged: &mut Judged) {
    let live: BTreeMap<ObjectId, Slot> =
        shared.ledger.borrow().all_live().into_iter().map(|(slot, object)| (object, slot)).collect();
    for (object, slot) in live {
        let handle = shared.ledger.borrow().objects[object].handle;
        if !tree.objects.contains_key(&handle) {
            // The name's own sentence reports that.
            continue;
        }
        let judgement = match attributes(env, shared, tree, object, handle) {
            Ok(()) => content(env, client, shared, object, Handle(handle)).await,
            wrong => wrong,
        };
        if let Err(wrong) = judgement {
            judged.violations.push(format!("{slot:?}, {handle:#x} at the end: {wrong}"));
        }
    }
}

fn attributes(env: &Env, shared: &Shared, tree: &Tree, object: ObjectId, handle: u64) -> Result<(), String> {
    let (mut ledger, now, stamp) = (shared.ledger.borrow_mut(), env.now().0, shared.now());
    ledger.facts(object, false);
    let (object, attr) = (&mut ledger.objects[object], &tree.objects[&handle]);
    if object.kind == Kind::File {
        object.contents.learn(attr);
        let read = reading(now, &stamp, 0, &[]);
        object.contents.judge_size(attr.size, &read)?;
    }
    object.facts.judge(object.kind, attr, Look::LAST, |since| object.contents.touched_since(since))
}

fn reading<'a>(at: u64, now: &'a Stamp, len: u64, content: &'a [u8]) -> Read<'a> {
    Read { client: u16::MAX, called: at, returned: at + 1, now, from: 0, len, content }
}

async fn content(
    env: &Env,
    client: &Client,
    shared: &Shared,
    object: ObjectId,
    handle: Handle,
) -> Result<(), String> {
    let (kind, len, target) = {
        let object = &shared.ledger.borrow().objects[object];
        (object.kind, object.contents.reach() + 100_000, object.target.clone())
    };
    let told = |error: Error| error.to_string();
    match kind {
        Kind::File => {
            let file = client.open(handle, Rights::READ).await.map_err(told)?;
            let content = file.read(0, len as usize).await.map_err(told)?;
            file.close().await.map_err(told)?;
            let contents = &shared.ledger.borrow().objects[object].contents;
            contents.judge(&reading(env.now().0, &shared.now(), len, &content))?;
            contents.judge_once(&content)?;
        }
        Kind::Symlink => {
            let found = client.readlink(handle).await.map_err(told)?;
            if found != target {
                let (found, target) = (found.len(), target.len());
                return Err(format!("expected a target of {target} bytes, found another of {found}"));
            }
            return Ok(());
        }
        Kind::Directory => {}
        _ => return Ok(()),
    }
    if shared.scene.records.contains(&object) {
        // Its extended attributes are contended.
        return Ok(());
    }
    xattrs(client, shared, object, handle).await
}

async fn xattrs(client: &Client, shared: &Shared, object: ObjectId, handle: Handle) -> Result<(), String> {
    let names = client.listxattr(handle).await.map_err(|error| error.to_string())?;
    let names: Vec<Vec<u8>> = names.into_iter().map(|name| name.0.to_vec()).collect();
    shared.ledger.borrow().objects[object].facts.judge_xattr_names(&names)?;
    for name in names {
        let value = client.getxattr(handle, &name).await.map_err(|error| error.to_string())?;
        let words = format!("attribute {}", String::from_utf8_lossy(&name));
        let facts = &mut shared.ledger.borrow_mut().objects[object].facts;
        facts.xattr(&name).judge(&words, &Some(value.to_vec()), Look::LAST)?;
    }
    Ok(())
}

fn registers(env: &Env, shared: &Shared, tree: &Tree, judged: &mut Judged) {
    for (slot, history) in shared.registers.take() {
        let found = tree.entries.get(&(slot.0, slot.1.clone().into_bytes()));
        let servers = shared.ledger.borrow().servers_of(&slot);
        let faults = shared.faults_of(&servers, &history, Held::Disk);
        history_of(env, (&slot, &faults, false), history, found.copied(), judged);
    }
}

async fn values(env: &Env, client: &Client, shared: &Shared, judged: &mut Judged) -> Result<(), Error> {
    for (slot, history) in shared.values.take() {
        let found = match client.getxattr(Handle(slot.0), slot.1.as_bytes()).await {
            Ok(found) => Some(found.as_ref().try_into().map_or(0, u64::from_le_bytes)),
            Err(error) if error.status == Status::NoAttribute => None,
            Err(error) => return Err(error),
        };
        // Where metadata is durable at reply, a change of attributes is not, but it is once it is seen.
        let keep_seen = shared.held_between(0, env.now().0) == Held::Disk;
        let faults = shared.faults_of(&[Handle(slot.0).server().0], &history, Held::Kernel);
        history_of(env, (&slot, &faults, keep_seen), history, found, judged);
    }
    Ok(())
}

/// A register's history, and its value at the end.
fn history_of(
    env: &Env,
    (slot, faults, keep_seen): (&Slot, &[u64], bool),
    mut history: Vec<Event>,
    found: Option<u64>,
    judged: &mut Judged,
) {
    let (seen, now) = (found.map_or(Seen::Missing, Seen::Found), env.now().0);
    history.push(Event { client: u16::MAX, asked: "the end", called: now, returned: now + 1, seen });
    match register::judge_over(&history, faults, keep_seen) {
        Verdict::Linearizable => judged.registers += 1,
        Verdict::TooLong => judged.registers_skipped += 1,
        Verdict::Impossible(window) => {
            judged.registers += 1;
            let told = told(&history, &window);
            judged.violations.push(format!(
                "{} in {}: expected one order that all agree with, found none after: {told}",
                slot.1,
                Handle(slot.0)
            ));
        }
    }
}

/// The window, and the last events before it.
fn told(history: &[Event], window: &[Event]) -> String {
    let begin = window.iter().map(|event| event.called).min().unwrap_or(0);
    let mut events: BTreeSet<(u64, u16, usize)> = BTreeSet::new();
    events.extend(history.iter().enumerate().map(|(index, event)| (event.called, event.client, index)));
    let before = events.iter().filter(|event| event.0 < begin).count();
    let words = |&(_, _, index): &(u64, u16, usize)| {
        let Event { client, asked, called, returned, seen } = history[index];
        format!("{called}–{returned} ns client {client} {asked} {seen:x?}")
    };
    let until = window.iter().map(|event| event.returned).max().unwrap_or(0);
    let near = events.iter().skip(before.saturating_sub(12)).filter(|event| event.0 <= until);
    near.map(words).collect::<Vec<_>>().join("; ")
}
