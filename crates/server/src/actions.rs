//! Actions of transactions: what each locks, when it is valid, what it changes.
//!
//! The same three functions serve both ways. Where all of an operation is on this server, [`apply`] runs at once, in the
//! operation's own run: validation and change are one turn, so no lock is needed. Where several servers are concerned,
//! each validates ([`validate`]) and locks ([`locks`]) at *prepare* and applies at *finish*.
//!
//! **Invariant: what was validated under its locks applies.** The locks make it so: an entry that is changed, an object
//! that is changed alone or goes away, are locked exclusively; a directory that gets or loses an entry is locked shared,
//! for its count and times are changes that commute, but it must not be removed meanwhile.
//!
//! Within one transaction actions apply in the order they were planned. An expectation is of the state before: so
//! `AttrSet` and `LayoutSet` come before the `StreamAdvance` that changes the generation they expect, and an
//! `EntryRemove` of a directory's last entry is no reason for a `DirectoryRemove` in the same plan.

mod object;
mod repair;
mod stream;

pub use object::{remove_object, xattr_keys};

use crate::ctx::{Ctx, Halt};
use crate::keys;
use crate::locks::Mode;
use crate::rows::{Datafile, Dirent};
use crate::shard::Identity;
use bytes::Bytes;
use shoal_proto::{Action, Handle, Kind, Name, ServerId, Status, Time};
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
        Action::DirectoryRemove { dir } | Action::Reparent { dir, .. } => exclusive(keys::inode(*dir)),
        Action::Links { object, .. }
        | Action::Touch { object, .. }
        | Action::LayoutSet { object, .. }
        | Action::ObjectRemove { object }
        | Action::LinksSet { object, .. } => exclusive(keys::inode(*object)),
        // A stream is a metafile's own or a datafile's; whoever accesses it looks at one of these rows.
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
        Action::RenameLock {} => exclusive(keys::rename_lock()),
    }
}

/// Validate an action against the present state (prepare), changing nothing.
///
/// # Errors
/// `Changed` if the plan's facts are old. `NotEmpty` for the removal of a directory with entries: an answer, not a reason
/// to plan again. `WrongServer` or `Invalid` for what no plan should hold.
pub fn validate(ctx: &Ctx<'_>, action: &Action) -> Result<(), Halt> {
    match action {
        Action::EntryPut { dir, name, expect, .. } => entry_expected(ctx, *dir, name, *expect),
        Action::EntryRemove { dir, name, expect, .. } => entry_expected(ctx, *dir, name, Some(*expect)),
        Action::ObjectCreate { attr } => object::validate_create(ctx, attr),
        Action::DirectoryRemove { dir } => object::validate_directory_remove(ctx, *dir),
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
        Action::StreamAdvance { stream, expect, generation, .. } => {
            stream::validate_advance(ctx, *stream, *expect, *generation)
        }
        Action::DatafileCreate { datafile, .. } => stream::validate_datafile_create(ctx, *datafile),
        Action::DatafileRemove { datafile, owner } => {
            stream::validate_datafile_remove(ctx, *datafile, *owner).map(drop)
        }
        Action::RowRemove { server, key, expect } => repair::validate_row_remove(ctx, *server, key, expect),
        Action::StreamAdopt { attr } => repair::validate_stream_adopt(ctx, attr),
        Action::StreamCreate { stream, .. } => repair::validate_stream_create(ctx, *stream),
        Action::DatafileAdopt { datafile, .. } => repair::validate_datafile_adopt(ctx, *datafile),
    }
}

/// Validate and carry out an action.
///
/// # Errors
/// Those of [`validate`]; never any but [`Halt::Miss`] for what was validated under its locks.
pub fn apply(ctx: &mut Ctx<'_>, action: &Action) -> Result<(), Halt> {
    validate(ctx, action)?;
    match action {
        Action::EntryPut { dir, name, handle, kind, subdirs, time, .. } => {
            let row = Dirent { handle: *handle, kind: *kind };
            ctx.put(ctx.entry_key(*dir, name), &row)?;
            object::directory_changed(ctx, *dir, *subdirs, *time)
        }
        Action::EntryRemove { dir, name, subdirs, time, .. } => {
            ctx.remove(ctx.entry_key(*dir, name))?;
            object::directory_changed(ctx, *dir, *subdirs, *time)
        }
        Action::ObjectCreate { attr } => object::create(ctx, attr),
        Action::DirectoryRemove { dir } => {
            let inode = ctx.directory(*dir)?;
            remove_object(ctx, *dir, &inode)
        }
        Action::Links { object, delta, time, keep_for } => {
            object::links(ctx, *object, *delta, *time, *keep_for)
        }
        Action::Touch { object, time } => object::change(ctx, *object, |inode| inode.ctime = *time),
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
        Action::StreamAdvance { stream, generation, size, written_at, .. } => {
            stream::advance(ctx, *stream, *generation, *size, *written_at)
        }
        Action::DatafileCreate { datafile, owner, generation } => {
            stream::create_datafile(ctx, *datafile, *owner, *generation)
        }
        Action::DatafileRemove { datafile, owner } => stream::remove_datafile(ctx, *datafile, *owner),
        Action::RowRemove { key, .. } => ctx.remove(key.0.clone()),
        Action::StreamAdopt { attr } => ctx.put(keys::inode(attr.handle), &crate::inode::of_attr(attr)),
        Action::StreamCreate { stream, generation } => {
            ctx.change_stream(*stream, StreamChange::Create { generation: generation.0 })
        }
        Action::DatafileAdopt { datafile, owner } => {
            ctx.put(keys::datafile(*datafile), &Datafile { owner: *owner })
        }
    }
}

/// An entry as a planned one expects it. A directory that is gone is a change too: the next plan will say what to answer.
fn entry_expected(ctx: &Ctx<'_>, dir: Handle, name: &Name, expect: Option<Handle>) -> Result<(), Halt> {
    let inode = object::expected(ctx, dir)?;
    let found = ctx.entry(dir, name)?.map(|entry| entry.handle);
    if inode.kind != Kind::Directory || found != expect {
        return Err(Halt::Status(Status::Changed));
    }
    Ok(())
}

fn validate_rename_lock(ctx: &Ctx<'_>) -> Result<(), Halt> {
    if ctx.identity.id != RENAME_LOCK_SERVER {
        return Err(Halt::Status(Status::WrongServer));
    }
    ctx.must_be_unlocked(&keys::rename_lock())
}

/// The server an action runs on: that of the object it concerns.
pub fn server_of(action: &Action) -> ServerId {
    match action {
        Action::EntryPut { dir, .. }
        | Action::EntryRemove { dir, .. }
        | Action::DirectoryRemove { dir }
        | Action::Reparent { dir, .. } => dir.server(),
        Action::ObjectCreate { attr } | Action::AttrSet { attr, .. } => attr.handle.server(),
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
        Action::RenameLock {} => RENAME_LOCK_SERVER,
    }
}

/// Carry a whole plan out: at once where all of it is on this server (the rest of the group sees it), else as one
/// transaction over servers ([`plan`]).
pub fn carry_out(ctx: &mut Ctx<'_>, actions: Vec<Action>) -> Result<(), Halt> {
    let me = ctx.identity.id;
    if !ctx.is_distributed() && actions.iter().all(|action| server_of(action) == me) {
        return actions.iter().try_for_each(|action| apply(ctx, action));
    }
    plan(ctx, actions)
}

/// Plan a transaction, after a look at this server's own part of it, so that what cannot be is not begun.
pub fn plan(ctx: &mut Ctx<'_>, actions: Vec<Action>) -> Result<(), Halt> {
    let me = ctx.identity.id;
    actions.iter().filter(|action| server_of(action) == me).try_for_each(|action| validate(ctx, action))?;
    for action in actions {
        ctx.act(server_of(&action), action);
    }
    Ok(())
}

/// Set the times of a directory in which a direct change made or removed an entry.
pub fn directory_changed(ctx: &mut Ctx<'_>, dir: Handle, subdirs: i32, time: Time) -> Result<(), Halt> {
    object::directory_changed(ctx, dir, subdirs, time)
}
