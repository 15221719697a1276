//! Actions on objects: their creation, their links, their removal.

use crate::meta::keys;
use crate::meta::rows::{Datafile, Inode, Lingering, Orphan, Reap};
use crate::request::ctx::{Ctx, Stopped};
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Attr, ClientId, Dist, Handle, Kind, Status, Time, limits};
use shoal_store::StreamChange;
use std::collections::BTreeSet;

/// Rows looked at by one scan.
const SCAN_ROWS: usize = 1024;

/// An object that a plan takes for granted: gone means that the plan is old.
pub fn expected(ctx: &Ctx<'_>, object: Handle) -> Result<Inode, Stopped> {
    ctx.inode(object).map_err(|halt| match halt {
        Stopped::Status(Status::Stale) => Stopped::Status(Status::Changed),
        other => other,
    })
}

/// Change an object's row.
pub fn change(ctx: &mut Ctx<'_>, object: Handle, change: impl FnOnce(&mut Inode)) -> Result<(), Stopped> {
    let mut inode = ctx.inode(object)?;
    change(&mut inode);
    ctx.put(keys::inode(object), &inode)
}

/// Change the row of a directory: this server's own, or its shard of another's.
pub fn change_directory(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    change: impl FnOnce(&mut Inode),
) -> Result<(), Stopped> {
    let mut inode = ctx.directory(dir)?;
    change(&mut inode);
    ctx.put(keys::inode(dir), &inode)
}

/// Set the times and counts of a directory in which `entries` were made or removed, and among them so many
/// subdirectories.
pub fn directory_changed(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    entries: i32,
    subdirs: i32,
    time: Time,
) -> Result<(), Stopped> {
    let (mut count, mut is_whole) = (0, false);
    change_directory(ctx, dir, |inode| {
        inode.entries = inode.entries.saturating_add_signed(entries);
        inode.nlink = inode.nlink.saturating_add_signed(subdirs);
        inode.mtime = time;
        inode.ctime = time;
        (count, is_whole) = (inode.entries, !inode.shards.is_split() && !inode.template.dist.is_of_forks());
    })?;
    if entries > 0 && is_whole && ctx.identity.splits_at().is_some_and(|at| count >= at) {
        ctx.wants_split(dir);
    }
    Ok(())
}

pub fn validate_create(ctx: &Ctx<'_>, attr: &Attr) -> Result<(), Stopped> {
    if attr.handle.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    if matches!(attr.kind, Kind::Symlink | Kind::Datafile) {
        return Err(Stopped::Status(Status::Invalid));
    }
    match ctx.get(&keys::inode(attr.handle))? {
        Some(_) => Err(Stopped::Status(Status::Changed)),
        None => Ok(()),
    }
}

pub fn create(ctx: &mut Ctx<'_>, attr: &Attr) -> Result<(), Stopped> {
    if attr.kind == Kind::File {
        ctx.change_stream(attr.handle, StreamChange::Create { generation: attr.generation.0 })?;
    }
    ctx.put(keys::inode(attr.handle), &crate::meta::inode::of_attr(attr))
}

pub fn validate_reparent(ctx: &Ctx<'_>, dir: Handle, expect: Handle) -> Result<(), Stopped> {
    let inode = expected(ctx, dir)?;
    if inode.kind != Kind::Directory || inode.parent != expect {
        return Err(Stopped::Status(Status::Changed));
    }
    Ok(())
}

pub fn validate_directory_remove(ctx: &Ctx<'_>, dir: Handle, split: bool) -> Result<(), Stopped> {
    let inode = super::shard::expected_directory(ctx, dir)?;
    if inode.shards.is_split() != split {
        return Err(Stopped::Status(Status::Changed));
    }
    ctx.must_be_unlocked(&keys::inode(dir))?;
    match is_empty(ctx, dir)? {
        true => Ok(()),
        // A subfile is a part of its file.
        false if inode.template.dist == Dist::Fork => Err(Stopped::Status(Status::NotPermitted)),
        false => Err(Stopped::Status(Status::NotEmpty)),
    }
}

/// Whether a directory has no entry. Removed entries not yet cleared from the tables cost the scan turns, no
/// more.
fn is_empty(ctx: &Ctx<'_>, dir: Handle) -> Result<bool, Stopped> {
    let prefix = keys::entries(dir);
    if ctx.own_under(&prefix).any(|(_, put)| put) {
        return Ok(false);
    }
    let mut after: Option<Bytes> = None;
    loop {
        let scan = ctx.scan(&prefix, after.as_deref(), 1)?;
        for (key, _) in &scan.rows {
            // One that this group removed is gone.
            if ctx.get(key)?.is_some() {
                return Ok(false);
            }
        }
        match scan.resume {
            Some(resume) => after = Some(resume),
            None => return Ok(true),
        }
    }
}

pub fn validate_links(ctx: &Ctx<'_>, object: Handle, delta: i32) -> Result<(), Stopped> {
    let inode = expected(ctx, object)?;
    let links = inode.nlink.checked_add_signed(delta);
    let possible = inode.nlink > 0 && links.is_some_and(|links| links <= limits::LINKS_MAX);
    if inode.kind == Kind::Directory || !possible {
        return Err(Stopped::Status(Status::Changed));
    }
    Ok(())
}

/// Change the count of links. `asker`: the client that asks for it, and whether it says that it has the
/// object open.
pub fn links(
    ctx: &mut Ctx<'_>,
    object: Handle,
    delta: i32,
    time: Time,
    asker: (ClientId, bool),
) -> Result<(), Stopped> {
    let mut inode = ctx.inode(object)?;
    let nlink = inode.nlink.saturating_add_signed(delta);
    if nlink == 0 {
        let (client, held) = asker;
        let elsewhere = inode.kind == Kind::File && ctx.may_be_open_elsewhere(object, client);
        let is_forgotten = inode.template.dist == Dist::Fork && mutant::is(Mutant::ForkFreedWhileOpen);
        if is_forgotten || !held && !elsewhere {
            return remove_object(ctx, object, &inode);
        }
        if held {
            ctx.put(keys::orphan(object, client), &Orphan { since: time })?;
        }
        if elsewhere {
            let bytes = space(ctx, object, &inode)?;
            ctx.put(keys::orphan(object, ClientId::ANYONE), &Orphan { since: time })?;
            ctx.put(keys::lingering(time, object), &Lingering { bytes })?;
        }
    }
    inode.nlink = nlink;
    inode.ctime = time;
    ctx.put(keys::inode(object), &inode)
}

/// Bytes that a file takes, as far as its own server knows: the others of its servers hold about as much as
/// this one.
fn space(ctx: &Ctx<'_>, object: Handle, inode: &Inode) -> Result<u64, Stopped> {
    let own = ctx.stream(object)?.map_or(0, |info| info.size.max(info.space));
    let width = inode.layout.as_ref().map_or(1, |layout| layout.datafiles.len());
    Ok(own.saturating_mul(width as u64))
}

/// Remove an object and all it has: extended attributes, streams, the row of an orphan (its inode has no link
/// then); datafiles of other servers are entered for reaping.
pub fn remove_object(ctx: &mut Ctx<'_>, object: Handle, inode: &Inode) -> Result<(), Stopped> {
    remove_xattrs(ctx, object, inode)?;
    if inode.kind == Kind::File {
        remove_stream(ctx, object)?;
        let datafiles = inode.layout.iter().flat_map(|layout| layout.datafiles.iter());
        for &datafile in datafiles.filter(|&&datafile| datafile != object) {
            remove_datafile(ctx, object, datafile)?;
        }
    }
    if inode.nlink == 0 {
        forget_orphan(ctx, object)?;
    }
    super::stepwise::forget(ctx, object)?;
    ctx.remove(keys::inode(object))
}

fn remove_datafile(ctx: &mut Ctx<'_>, owner: Handle, datafile: Handle) -> Result<(), Stopped> {
    if datafile.server() != ctx.identity.id {
        return ctx.put(keys::reap(datafile.server(), datafile), &Reap { owner });
    }
    let key = keys::datafile(datafile);
    if ctx.row::<Datafile>(&key)?.is_some_and(|row| row.owner == owner) {
        remove_stream(ctx, datafile)?;
        ctx.remove(key)?;
    }
    Ok(())
}

/// An orphan is kept for this client no longer.
pub fn forget_orphan_for(ctx: &mut Ctx<'_>, object: Handle, client: ClientId) -> Result<(), Stopped> {
    let key = keys::orphan(object, client);
    let Some(row) = ctx.row::<Orphan>(&key)? else { return Ok(()) };
    if client == ClientId::ANYONE {
        ctx.remove(keys::lingering(row.since, object))?;
    }
    ctx.remove(key)
}

/// Whether an object without a name is kept for any client.
pub fn is_orphan(ctx: &Ctx<'_>, object: Handle) -> Result<bool, Stopped> {
    Ok(!orphan_keys(ctx, object)?.is_empty())
}

fn forget_orphan(ctx: &mut Ctx<'_>, object: Handle) -> Result<(), Stopped> {
    for key in orphan_keys(ctx, object)? {
        if let Some((_, client)) = keys::parse_orphan(&key) {
            forget_orphan_for(ctx, object, client)?;
        }
    }
    Ok(())
}

fn orphan_keys(ctx: &Ctx<'_>, object: Handle) -> Result<BTreeSet<Bytes>, Stopped> {
    keys_under(ctx, &keys::orphan_of(object))
}

/// Remove a stream, if it is there.
pub fn remove_stream(ctx: &mut Ctx<'_>, stream: Handle) -> Result<(), Stopped> {
    match ctx.stream(stream)? {
        Some(_) => ctx.change_stream(stream, StreamChange::Remove),
        None => Ok(()),
    }
}

pub fn remove_xattrs(ctx: &mut Ctx<'_>, object: Handle, inode: &Inode) -> Result<(), Stopped> {
    if inode.xattr_bytes == 0 {
        return Ok(());
    }
    for key in xattr_keys(ctx, object)? {
        ctx.remove(key)?;
    }
    Ok(())
}

/// Keys of an object's extended attributes, those of this group's changes too.
pub fn xattr_keys(ctx: &Ctx<'_>, object: Handle) -> Result<BTreeSet<Bytes>, Stopped> {
    keys_under(ctx, &keys::xattrs(object))
}

/// Keys with this prefix, those of this group's changes too.
fn keys_under(ctx: &Ctx<'_>, prefix: &Bytes) -> Result<BTreeSet<Bytes>, Stopped> {
    let mut found = BTreeSet::new();
    let mut after: Option<Bytes> = None;
    loop {
        let scan = ctx.scan(prefix, after.as_deref(), SCAN_ROWS)?;
        found.extend(scan.rows.into_iter().map(|(key, _)| key));
        match scan.resume {
            Some(resume) => after = Some(resume),
            None => break,
        }
    }
    for (key, put) in ctx.own_under(prefix) {
        if put {
            found.insert(key.clone());
        } else {
            found.remove(key);
        }
    }
    Ok(found)
}
