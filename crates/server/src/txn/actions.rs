//! Actions of transactions: the locks, the validity and the changes of each.
//!
//! The functions [`locks`], [`validate`] and [`apply`] serve operations on one server and on several servers.
//! If an operation needs this server alone, [`apply`] runs at once, in the operation's own run: nothing else
//! runs between validation and change, so no lock is needed. If an operation needs several servers, each
//! server validates and locks at *prepare*, and applies at *finish*.
//!
//! **Invariant: actions validated under their locks can be applied.** Exclusive locks are taken on an entry
//! that is changed, and on an object whose own facts are changed or that is removed. A directory that gets or
//! loses an entry is locked shared: the changes of its count and times commute, but it must not be removed
//! meanwhile (test: `overlapping_transactions_leave_a_tree_with_right_counts`).
//!
//! Within one transaction actions apply in the order in which they were planned. Each expects the state from
//! before the transaction. So `AttrSet` and `LayoutSet` must be planned before the `StreamAdvance` that
//! changes the generation they expect. An `EntryRemove` of a directory's last entry does not make the
//! directory empty for a `DirectoryRemove` in the same plan.

mod forked;
mod object;
mod repair;
mod shard;
mod stepwise;
mod stream;

pub use object::{directory_changed, forget_orphan_for, is_orphan, remove_object, xattr_keys};
pub use repair::is_removable;
pub use shard::{entries, stays};
pub use stepwise::{create_datafile, part_object, reap_datafile};

use crate::data::precreated;
use crate::meta::keys;
use crate::meta::rows::{Datafile, Dirent};
use crate::request::ctx::{Ctx, Stopped};
use crate::request::locks::Mode;
use crate::shard::Identity;
use bytes::Bytes;
use shoal_proto::{Action, Handle, Many, Name, ServerId, Status};
use shoal_store::StreamChange;

/// The server that holds the collection's one rename lock.
pub const RENAME_LOCK_SERVER: ServerId = ServerId(0);

/// The keys an action locks on its server.
pub fn locks(identity: &Identity, action: &Action) -> Vec<(Bytes, Mode)> {
    let exclusive = |key: Bytes| vec![(key, Mode::Exclusive)];
    match action {
        Action::EntryPut { dir, name, .. } | Action::EntryRemove { dir, name, .. } => vec![
            (keys::entry_lock(*dir, identity.place_of(name.as_bytes()), name), Mode::Exclusive),
            (keys::inode(*dir), Mode::Shared),
        ],
        Action::ObjectCreate { attr } | Action::AttrSet { attr, .. } => exclusive(keys::inode(attr.handle)),
        Action::DirectoryRemove { dir, .. }
        | Action::Reparent { dir, .. }
        | Action::ShardKeep { dir, .. }
        | Action::ShardSet { dir, .. }
        | Action::ShardCount { dir, .. } => exclusive(keys::inode(*dir)),
        Action::ForkedRemove { file, .. } => exclusive(keys::inode(*file)),
        // No request reads the shard before it is there.
        Action::ShardCreate { attr, .. } | Action::ForkedCreate { attr, .. } => {
            exclusive(keys::inode(attr.handle))
        }
        Action::Links { object, .. }
        | Action::Touch { object, .. }
        | Action::LayoutSet { object, .. }
        | Action::ObjectRemove { object }
        | Action::LinksSet { object, .. } => exclusive(keys::inode(*object)),
        // A stream is a metafile's own or a datafile's; every access reads one of these rows.
        Action::StreamAdvance { stream, .. } => {
            vec![(keys::inode(*stream), Mode::Exclusive), (keys::datafile(*stream), Mode::Exclusive)]
        }
        Action::StreamCreate { stream, .. } => {
            vec![(keys::inode(*stream), Mode::Exclusive), (keys::datafile(*stream), Mode::Exclusive)]
        }
        Action::StreamAdopt { attr } => {
            let keys = [keys::inode(attr.handle), keys::datafile(attr.handle)];
            keys.map(|key| (key, Mode::Exclusive)).into()
        }
        Action::DatafileCreate { datafile, .. }
        | Action::DatafileRemove { datafile, .. }
        | Action::DatafileAdopt { datafile, .. } => exclusive(keys::datafile(*datafile)),
        Action::RowRemove { key, .. } => exclusive(key.0.clone()),
        Action::Retire { first, .. } => exclusive(keys::batch(precreated::first_of(*first))),
        Action::RenameLock {} => exclusive(keys::rename_lock()),
    }
}

/// Validate an action against the present state (prepare), changing nothing.
///
/// # Errors
/// `Changed` if the plan's facts are old. `NotEmpty` for the removal of a directory with entries: an answer,
/// not a reason to plan again. `WrongServer` or `Invalid` for what no plan should hold.
pub fn validate(ctx: &Ctx<'_>, action: &Action) -> Result<(), Stopped> {
    match action {
        Action::EntryPut { shard, dir, name, expect, .. } => {
            shard::is_here(ctx, *shard)?;
            entry_expected(ctx, *dir, name, *expect)
        }
        Action::EntryRemove { shard, dir, name, expect, .. } => {
            shard::is_here(ctx, *shard)?;
            entry_expected(ctx, *dir, name, Some(*expect))
        }
        Action::ObjectCreate { attr } => object::validate_create(ctx, attr),
        Action::DirectoryRemove { shard, dir, split } => {
            shard::is_here(ctx, *shard)?;
            object::validate_directory_remove(ctx, *dir, *split)
        }
        Action::Links { object, delta, .. } => object::validate_links(ctx, *object, *delta),
        Action::Touch { object, .. } => object::expected(ctx, *object).map(drop),
        Action::Reparent { dir, expect, .. } => object::validate_reparent(ctx, *dir, *expect),
        Action::RenameLock {} => validate_rename_lock(ctx),
        Action::ObjectRemove { object } | Action::LinksSet { object, .. } => {
            object::expected(ctx, *object)?;
            ctx.must_be_unlocked(&keys::inode(*object))
        }
        Action::LayoutSet { object, expect, .. } => stream::validate_layout_set(ctx, *object, *expect),
        Action::AttrSet { attr, expect } => stream::validate_attr_set(ctx, attr, *expect),
        Action::StreamAdvance { stream, owner, expect, generation, .. } => {
            stream::validate_advance(ctx, *stream, *owner, *expect, *generation)
        }
        Action::DatafileCreate { datafile, .. } => stream::validate_datafile_create(ctx, *datafile),
        Action::DatafileRemove { datafile, owner } => {
            stream::validate_datafile_remove(ctx, *datafile, *owner).map(drop)
        }
        Action::RowRemove { server, key, expect } => repair::validate_row_remove(ctx, *server, key, expect),
        Action::StreamAdopt { attr } => repair::validate_stream_adopt(ctx, attr),
        Action::StreamCreate { stream, .. } => repair::validate_stream_create(ctx, *stream),
        Action::DatafileAdopt { datafile, .. } => repair::validate_datafile_adopt(ctx, *datafile),
        Action::Retire { pool, first, count } => repair::validate_retire(ctx, *pool, *first, *count),
        Action::ShardCreate { shard, attr, entries } => shard::validate_create(ctx, *shard, attr, entries),
        Action::ForkedCreate { attr, .. } => object::validate_create(ctx, attr),
        Action::ForkedRemove { file, subfiles } => forked::validate_remove(ctx, *file, subfiles),
        Action::ShardKeep { shard, dir, shards } => shard::validate_keep(ctx, *shard, *dir, shards),
        Action::ShardSet { shard, dir, .. } => shard::validate_set(ctx, *shard, *dir),
        Action::ShardCount { shard, dir, expect, .. } => shard::validate_count(ctx, *shard, *dir, *expect),
    }
}

/// Validate and carry out an action.
///
/// # Errors
/// Those of [`validate`]; never any but [`Stopped::Miss`] for actions validated under their locks.
pub fn apply(ctx: &mut Ctx<'_>, action: &Action) -> Result<(), Stopped> {
    validate(ctx, action)?;
    match action {
        Action::EntryPut { dir, name, handle, kind, expect, subdirs, time, .. } => {
            let row = Dirent { handle: *handle, kind: *kind };
            ctx.put(ctx.entry_key(*dir, name), &row)?;
            directory_changed(ctx, *dir, i32::from(expect.is_none()), *subdirs, *time)
        }
        Action::EntryRemove { dir, name, subdirs, time, .. } => {
            ctx.remove(ctx.entry_key(*dir, name))?;
            directory_changed(ctx, *dir, -1, *subdirs, *time)
        }
        Action::ObjectCreate { attr } => object::create(ctx, attr),
        Action::DirectoryRemove { dir, .. } => {
            let inode = ctx.directory(*dir)?;
            remove_object(ctx, *dir, &inode)
        }
        Action::Links { object, delta, time, client, held } => {
            stepwise::is_named(ctx, *object)?;
            if *delta > 0 {
                stepwise::is_linked(ctx, *object, *time)?;
            }
            object::links(ctx, *object, *delta, *time, (*client, *held))
        }
        Action::Touch { object, time } => {
            stepwise::is_named(ctx, *object)?;
            object::change(ctx, *object, |inode| inode.ctime = *time)
        }
        Action::Reparent { dir, parent, time, .. } => object::change(ctx, *dir, |inode| {
            inode.parent = *parent;
            inode.ctime = *time;
        }),
        Action::RenameLock {} => Ok(()),
        Action::ObjectRemove { object } => {
            let inode = ctx.inode(*object)?;
            remove_object(ctx, *object, &inode)
        }
        Action::LinksSet { object, nlink } => object::change(ctx, *object, |inode| inode.nlink = *nlink),
        Action::LayoutSet { object, layout, time, .. } => object::change(ctx, *object, |inode| {
            inode.layout = Some(layout.clone());
            inode.ctime = inode.ctime.max(*time);
        }),
        Action::AttrSet { attr, expect } => stream::set_attr(ctx, attr, *expect),
        Action::StreamAdvance { stream, owner, generation, size, written_at, .. } => {
            stream::advance(ctx, *stream, *owner, *generation, *size, *written_at)
        }
        Action::DatafileCreate { datafile, owner, generation } => {
            stream::create_datafile(ctx, *datafile, *owner, *generation)
        }
        Action::DatafileRemove { datafile, owner } => stream::remove_datafile(ctx, *datafile, *owner),
        Action::RowRemove { key, .. } => ctx.remove(key.0.clone()),
        Action::StreamAdopt { attr } => ctx.put(keys::inode(attr.handle), &crate::meta::inode::of_attr(attr)),
        Action::StreamCreate { stream, generation } => {
            ctx.change_stream(*stream, StreamChange::Create { generation: generation.0 })
        }
        Action::DatafileAdopt { datafile, owner } => {
            ctx.put(keys::datafile(*datafile), &Datafile { owner: *owner })
        }
        Action::Retire { first, count, .. } => {
            let all: Vec<Handle> = (0..u64::from(*count)).map(|step| Handle(first.0 + step)).collect();
            precreated::use_up(ctx, &all)
        }
        Action::ShardCreate { attr, entries, .. } => shard::create(ctx, attr, entries),
        Action::ForkedCreate { attr, entries } => shard::create(ctx, attr, entries),
        Action::ForkedRemove { file, .. } => forked::remove(ctx, *file),
        Action::ShardKeep { dir, shards, .. } => shard::keep(ctx, *dir, shards),
        Action::ShardSet { dir, set, template, time, .. } => shard::set(ctx, *dir, set, *template, *time),
        Action::ShardCount { dir, nlink, entries, .. } => object::change_directory(ctx, *dir, |inode| {
            (inode.nlink, inode.entries) = (*nlink, *entries);
        }),
    }
}

/// Bytes of the journal that actions may take beyond a few rows each: the entries of a shard.
pub fn journal_bytes(actions: &[Action]) -> u64 {
    let of = |action: &Action| match action {
        // Once in the row of the prepared transaction, or each in its own row.
        Action::ShardCreate { entries: Many(entries), .. }
        | Action::ForkedCreate { entries: Many(entries), .. } => {
            entries.iter().map(|entry| 64 + entry.bytes() as u64).sum()
        }
        _ => 0,
    };
    actions.iter().map(of).sum()
}

/// An entry as a planned one expects it. A directory that is gone is a change too: the next plan will give
/// the answer.
fn entry_expected(ctx: &Ctx<'_>, dir: Handle, name: &Name, expect: Option<Handle>) -> Result<(), Stopped> {
    let inode = shard::expected_directory(ctx, dir)?;
    let found = ctx.entry(dir, name)?.map(|entry| entry.handle);
    if !ctx.holds(&inode, name) || found != expect {
        return Err(Stopped::Status(Status::Changed));
    }
    Ok(())
}

fn validate_rename_lock(ctx: &Ctx<'_>) -> Result<(), Stopped> {
    if ctx.identity.id != RENAME_LOCK_SERVER {
        return Err(Stopped::Status(Status::WrongServer));
    }
    // A transaction takes it when it is prepared, and may have passed it on before it is carried out.
    if ctx.is_in_transaction() { Ok(()) } else { ctx.must_be_unlocked(&keys::rename_lock()) }
}

/// The server an action runs on: that of the object it concerns.
pub fn server_of(action: &Action) -> ServerId {
    match action {
        Action::EntryPut { shard, .. }
        | Action::EntryRemove { shard, .. }
        | Action::DirectoryRemove { shard, .. }
        | Action::ShardCreate { shard, .. }
        | Action::ShardKeep { shard, .. }
        | Action::ShardSet { shard, .. }
        | Action::ShardCount { shard, .. } => *shard,
        Action::Reparent { dir, .. } => dir.server(),
        Action::ForkedRemove { file, .. } => file.server(),
        Action::ObjectCreate { attr } | Action::AttrSet { attr, .. } | Action::ForkedCreate { attr, .. } => {
            attr.handle.server()
        }
        Action::Links { object, .. }
        | Action::Touch { object, .. }
        | Action::LayoutSet { object, .. }
        | Action::ObjectRemove { object }
        | Action::LinksSet { object, .. } => object.server(),
        Action::StreamAdvance { stream, .. } | Action::StreamCreate { stream, .. } => stream.server(),
        Action::StreamAdopt { attr } => attr.handle.server(),
        Action::DatafileCreate { datafile, .. }
        | Action::DatafileRemove { datafile, .. }
        | Action::DatafileAdopt { datafile, .. } => datafile.server(),
        Action::RowRemove { server, .. } => *server,
        Action::Retire { first, .. } => first.server(),
        Action::RenameLock {} => RENAME_LOCK_SERVER,
    }
}

/// Carry a whole plan out: at once where all of it is on this server (the rest of the group sees it), else as
/// one transaction over servers ([`plan`]).
pub fn carry_out(ctx: &mut Ctx<'_>, actions: Vec<Action>) -> Result<(), Stopped> {
    let me = ctx.identity.id;
    if !ctx.is_distributed() && actions.iter().all(|action| server_of(action) == me) {
        return actions.iter().try_for_each(|action| apply(ctx, action));
    }
    plan(ctx, actions)
}

/// Plan a transaction, after a look at this server's own part of it, so that an impossible one is not begun.
pub fn plan(ctx: &mut Ctx<'_>, actions: Vec<Action>) -> Result<(), Stopped> {
    let me = ctx.identity.id;
    actions.iter().filter(|action| server_of(action) == me).try_for_each(|action| validate(ctx, action))?;
    for action in actions {
        ctx.act(server_of(&action), action);
    }
    Ok(())
}
