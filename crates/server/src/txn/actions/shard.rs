//! Actions on the shards of directories ([`crate::meta::dir_split`]): their creation, and changes that are
//! the same on all shards.

use super::object;
use crate::meta::keys;
use crate::meta::rows::{Dirent, Inode, RowValue};
use crate::request::ctx::{Ctx, Stopped};
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Attr, Handle, Kind, Name, ServerId, SetAttr, ShardEntry, Shards, Status, Template, Time};

/// Rows looked at by one scan.
const SCAN_ROWS: usize = 1024;

fn changed<T>() -> Result<T, Stopped> {
    Err(Stopped::Status(Status::Changed))
}

/// An action must be on the server that it names.
pub fn is_here(ctx: &Ctx<'_>, shard: ServerId) -> Result<(), Stopped> {
    if shard == ctx.identity.id { Ok(()) } else { Err(Stopped::Status(Status::WrongServer)) }
}

/// A directory, or the shard of one, that a plan takes for granted.
pub fn expected_directory(ctx: &Ctx<'_>, dir: Handle) -> Result<Inode, Stopped> {
    ctx.directory(dir).map_err(|halt| match halt {
        Stopped::Status(Status::Stale | Status::WrongServer | Status::NotDirectory) => {
            Stopped::Status(Status::Changed)
        }
        other => other,
    })
}

/// All entries of a directory on this server: place, name, and the object that it leads to. Those of this
/// group's own changes are not among them.
pub fn entries(ctx: &Ctx<'_>, dir: Handle) -> Result<Vec<(u64, Name, Dirent)>, Stopped> {
    let prefix = keys::entries(dir);
    let (mut all, mut after): (_, Option<Bytes>) = (Vec::new(), None);
    loop {
        let scan = ctx.scan(&prefix, after.as_deref(), SCAN_ROWS)?;
        for (key, row) in &scan.rows {
            let entry = keys::parse_entry(key).and_then(|(_, place, name)| {
                Some((place, Name::new(name).ok()?, Dirent::from_row(row).ok()?))
            });
            let Some(entry) = entry else {
                tracing::error!(?key, "an entry's row cannot be decoded");
                return Err(Stopped::Status(Status::Io));
            };
            all.push(entry);
        }
        match scan.resume {
            Some(resume) => after = Some(resume),
            None => return Ok(all),
        }
    }
}

fn index_of(shards: &Shards, server: ServerId) -> Option<usize> {
    shards.servers().iter().position(|&shard| shard == server)
}

pub fn validate_create(
    ctx: &Ctx<'_>,
    shard: ServerId,
    attr: &Attr,
    entries: &[ShardEntry],
) -> Result<(), Stopped> {
    is_here(ctx, shard)?;
    let own = index_of(&attr.shards, shard);
    let place = |entry: &ShardEntry| ctx.identity.place_of(entry.name.as_bytes());
    let belongs = |entry: &ShardEntry| Some(attr.shards.index_of(place(entry))) == own;
    if attr.kind != Kind::Directory || own.is_none() || !entries.iter().all(belongs) {
        return Err(Stopped::Status(Status::Invalid));
    }
    match ctx.get(&keys::inode(attr.handle))? {
        Some(_) => changed(),
        None => Ok(()),
    }
}

/// The shard, with its entries: requests redirected here wait for the lock until then.
pub fn create(ctx: &mut Ctx<'_>, attr: &Attr, entries: &[ShardEntry]) -> Result<(), Stopped> {
    let subdirs = entries.iter().filter(|entry| entry.kind == Kind::Directory).count() as u32;
    let inode =
        Inode { entries: entries.len() as u32, nlink: 2 + subdirs, ..crate::meta::inode::of_attr(attr) };
    ctx.put(keys::inode(attr.handle), &inode)?;
    for ShardEntry { name, handle, kind } in entries {
        let row = Dirent { handle: *handle, kind: *kind };
        ctx.put(ctx.entry_key(attr.handle, name), &row)?;
    }
    Ok(())
}

pub fn validate_keep(ctx: &Ctx<'_>, shard: ServerId, dir: Handle, shards: &Shards) -> Result<(), Stopped> {
    is_here(ctx, shard)?;
    if dir.server() != shard || index_of(shards, shard).is_none() {
        return Err(Stopped::Status(Status::Invalid));
    }
    ctx.must_be_unlocked(&keys::inode(dir))?;
    if expected_directory(ctx, dir)?.shards.is_split() { changed() } else { Ok(()) }
}

/// The entries of other ranges are gone from here, in the batch of the decision.
pub fn keep(ctx: &mut Ctx<'_>, dir: Handle, shards: &Shards) -> Result<(), Stopped> {
    let own = index_of(shards, ctx.identity.id);
    let mut inode = ctx.directory(dir)?;
    (inode.entries, inode.nlink) = (0, 2);
    for (place, name, entry) in entries(ctx, dir)? {
        if Some(shards.index_of(place)) == own {
            inode.entries += 1;
            inode.nlink += u32::from(entry.kind == Kind::Directory);
        } else if !stays(shards, place) {
            ctx.remove(keys::entry(dir, place, name.as_bytes()))?;
        }
    }
    inode.shards = shards.clone();
    ctx.put(keys::inode(dir), &inode)
}

/// The mutant's: entries of the last range stay where they are.
pub fn stays(shards: &Shards, place: u64) -> bool {
    mutant::is(Mutant::KeepShard) && shards.index_of(place) + 1 == shards.servers().len()
}

pub fn validate_set(ctx: &Ctx<'_>, shard: ServerId, dir: Handle) -> Result<(), Stopped> {
    is_here(ctx, shard)?;
    if expected_directory(ctx, dir)?.shards.is_split() { Ok(()) } else { changed() }
}

/// Attributes that were set are alike on all shards; the others stay each shard's own.
pub fn set(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    set: &SetAttr,
    template: Option<Template>,
    time: Time,
) -> Result<(), Stopped> {
    object::change_directory(ctx, dir, |inode| {
        crate::meta::inode::set(inode, set, time);
        inode.template = template.unwrap_or(inode.template);
    })
}

pub fn validate_count(ctx: &Ctx<'_>, shard: ServerId, dir: Handle, expect: Time) -> Result<(), Stopped> {
    is_here(ctx, shard)?;
    let inode = expected_directory(ctx, dir)?;
    ctx.must_be_unlocked(&keys::inode(dir))?;
    if inode.ctime == expect { Ok(()) } else { changed() }
}
