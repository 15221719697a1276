//! The common part of create, mknod, symlink and mkdir: a new object with its first name.
//!
//! Objects other than directories are usually on the server of their entry, so this server makes them by a
//! direct change of its own rows. A file is made unstuffed if the switch `stuffing` is off, or if its server
//! holds only metadata. Then the pools ([`crate::data::pools`]) supply its datafiles on other servers, a
//! datafile on this server is new, and the file's own stream only keeps the generation.
//!
//! A transaction over several servers makes the other objects: a directory on another server; a file whose
//! metafile is on another server (`placement = spread`); and, if the switch `precreate` is off, an unstuffed
//! file. The transaction also makes the datafiles of an unstuffed file.

use crate::data::pools;
use crate::data::precreated::{self, Touch};
use crate::meta::inode::attr_of;
use crate::meta::rows::{Dirent, Inode};
use crate::meta::{keys, placement};
use crate::ops::forks;
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Attr, Dist, Generation, Handle, Kind, Layout, Name, Rights, Status, limits};
use shoal_store::{StreamChange, StreamInfo};

/// Journal bytes of the pool rows that a new file changes: one row for each pool that supplies a datafile.
pub const POOL_ROWS_BYTES: u64 = 128 * limits::WIDTH_MAX as u64;

/// The generation with which files begin.
pub const FIRST_GENERATION: u64 = 1;

/// The directory `dir`, if `name` is free in it and an object of this kind may be made in it.
///
/// # Errors
/// `NotDirectory`, `Stale`; `Exists`; `NotPermitted` in a forked file.
pub fn free_in(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, kind: Kind) -> Result<Inode, Stopped> {
    match looked_up(ctx, dir, name)? {
        (_, Some(_)) => Err(Stopped::Status(Status::Exists)),
        (parent, None) => forks::may_make(&parent, kind).map(|()| parent),
    }
}

/// A directory of this server, and the object that `name` leads to in it. If the entry must be loaded first,
/// the stream row that a new file needs is loaded in the same step.
pub fn looked_up(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<(Inode, Option<Dirent>), Stopped> {
    let (parent, found) = (ctx.directory_of(dir, name), ctx.entry(dir, name));
    if found == Err(Stopped::Miss)
        && let Ok(handle) = ctx.draw(ctx.identity.id)
    {
        let _ = ctx.stream(handle);
    }
    Ok((parent?, found?))
}

/// Make an object other than a directory, on the server of its entry; a file that is no fork, on the server
/// that the switch `placement` selects. It becomes the current object, opened with `rights`.
///
/// # Errors
/// `NoSpace` for a file when no server holds data.
pub fn colocated(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    mut inode: Inode,
    rights: Rights,
) -> Result<Attr, Stopped> {
    let is_file = inode.kind == Kind::File;
    let is_placed = is_file && inode.template.dist != Dist::Fork;
    let server =
        if is_placed { placement::metafile_server(ctx.identity, dir, name) } else { ctx.identity.id };
    let handle = ctx.draw(server)?;
    ctx.current = Some((handle, rights));
    let is_own = server == ctx.identity.id;
    if is_file && !placement::stuffs(ctx.identity, server) {
        // The pools are for files of this server.
        let source = if is_own && ctx.identity.precreates() { Source::Pools } else { Source::Plan };
        inode.layout = Some(layout(ctx, handle, &inode, source)?);
        if source == Source::Plan {
            return planned(ctx, dir, name, handle, &inode);
        }
    }
    if !is_own {
        return planned(ctx, dir, name, handle, &inode);
    }
    direct(ctx, dir, name, handle, &inode)?;
    ctx.attr(handle)
}

/// Make a directory, on the next server of the rotation. It becomes the current object.
pub fn directory(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, inode: &Inode) -> Result<Attr, Stopped> {
    let server = ctx.turn_of_directory();
    let handle = ctx.draw(server)?;
    ctx.current = Some((handle, Rights::empty()));
    if server != ctx.identity.id {
        return planned(ctx, dir, name, handle, inode);
    }
    direct(ctx, dir, name, handle, inode)?;
    ctx.attr(handle)
}

fn direct(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, handle: Handle, inode: &Inode) -> Result<(), Stopped> {
    let (now, kind) = (ctx.now, inode.kind);
    object(ctx, handle, inode)?;
    ctx.put(ctx.entry_key(dir, name), &Dirent { handle, kind })?;
    actions::directory_changed(ctx, dir, 1, subdirs(kind), now)
}

/// Make an object here, without a name.
pub fn object(ctx: &mut Ctx<'_>, handle: Handle, inode: &Inode) -> Result<(), Stopped> {
    if inode.kind == Kind::File {
        ctx.change_stream(handle, StreamChange::Create { generation: FIRST_GENERATION })?;
    }
    let datafiles = inode.layout.iter().flat_map(|layout| layout.datafiles.iter());
    for &datafile in datafiles.filter(|datafile| datafile.server() == ctx.identity.id) {
        // A new datafile on this server is in no batch, so it gets its rows here.
        let (owner, generation) = (handle, Generation(FIRST_GENERATION));
        precreated::touch(ctx, &Touch { datafile, owner, generation })?;
    }
    ctx.put(keys::inode(handle), inode)
}

fn planned(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    handle: Handle,
    inode: &Inode,
) -> Result<Attr, Stopped> {
    let stream = (inode.kind == Kind::File).then_some(StreamInfo {
        generation: FIRST_GENERATION,
        size: 0,
        space: 0,
        written_at: None,
        small: true,
    });
    let (time, kind) = (ctx.now, inode.kind);
    let attr = attr_of(handle, inode, stream);
    let name = name.clone();
    let mut plan = vec![
        Action::EntryPut {
            shard: ctx.identity.id,
            dir,
            name,
            handle,
            kind,
            expect: None,
            subdirs: subdirs(kind),
            time,
        },
        Action::ObjectCreate { attr: attr.clone() },
    ];
    let datafiles = inode.layout.iter().flat_map(|layout| layout.datafiles.iter());
    plan.extend(datafiles.map(|&datafile| Action::DatafileCreate {
        datafile,
        owner: handle,
        generation: Generation(FIRST_GENERATION),
    }));
    actions::carry_out(ctx, plan)?;
    Ok(attr)
}

/// Where new datafiles come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// They are precreated.
    Pools,
    /// A transaction makes them.
    Plan,
}

/// A layout over precreated datafiles.
pub fn ready_layout(ctx: &mut Ctx<'_>, file: Handle, inode: &Inode) -> Result<Layout, Stopped> {
    layout(ctx, file, inode, Source::Pools)
}

/// A layout over new datafiles, none of them the metafile's own stream.
fn layout(ctx: &mut Ctx<'_>, file: Handle, inode: &Inode, source: Source) -> Result<Layout, Stopped> {
    let servers = placement::datafile_servers(ctx.identity, file, &inode.template);
    if servers.is_empty() {
        return Err(Stopped::Status(Status::NoSpace));
    }
    let me = ctx.identity.id;
    let datafile = |server| match source {
        Source::Pools if server != me => pools::take(ctx, server),
        _ => ctx.draw(server),
    };
    let datafiles: Vec<Handle> = servers.into_iter().map(datafile).collect::<Result<_, _>>()?;
    let generation = Generation(FIRST_GENERATION);
    Ok(Layout { dist: inode.template.dist, datafiles: datafiles.into(), generation })
}

/// The number that an object of this kind adds to its directory's count of subdirectories.
pub fn subdirs(kind: Kind) -> i32 {
    i32::from(kind == Kind::Directory)
}
