//! What create, mknod, symlink and mkdir share: a new object with its first name.
//!
//! All but directories are colocated with their directory, so their making is a direct change of this server's rows. The
//! exceptions are plans: a directory whose turn is another server's, and a file on a server that holds metadata only,
//! whose datafiles are made elsewhere in the same transaction (its own stream only keeps the generation).

use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::inode::attr_of;
use crate::rows::{Dirent, Inode};
use crate::{keys, placement};
use shoal_proto::{Action, Attr, Generation, Handle, Kind, Layout, Name, Rights, Status};
use shoal_store::{StreamChange, StreamInfo};

/// The generation with which files begin.
const FIRST_GENERATION: u64 = 1;

/// A directory of this server in which `name` is free.
///
/// # Errors
/// `NotDirectory`, `Stale`; `Exists`.
pub fn free_in(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Inode, Halt> {
    match looked_up(ctx, dir, name)? {
        (_, Some(_)) => Err(Halt::Status(Status::Exists)),
        (parent, None) => Ok(parent),
    }
}

/// A directory of this server, and what `name` leads to in it. If anything must be loaded for that, what a new file needs
/// is loaded with it.
pub fn looked_up(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<(Inode, Option<Dirent>), Halt> {
    let (parent, found) = (ctx.directory(dir), ctx.entry(dir, name));
    if found == Err(Halt::Miss)
        && let Ok(handle) = ctx.draw(ctx.identity.id)
    {
        let _ = ctx.stream(handle);
    }
    Ok((parent?, found?))
}

/// Make an object that lives beside its entry. It becomes the current object, opened with `rights`.
///
/// # Errors
/// `NoSpace` for a file when no server holds data.
pub fn colocated(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    mut inode: Inode,
    rights: Rights,
) -> Result<Attr, Halt> {
    let handle = ctx.draw(ctx.identity.id)?;
    ctx.current = Some((handle, rights));
    if inode.kind == Kind::File && !placement::holds_data(ctx.identity) {
        inode.layout = Some(drawn_layout(ctx, handle, &inode)?);
        return planned(ctx, dir, name, handle, &inode);
    }
    direct(ctx, dir, name, handle, &inode)?;
    ctx.attr(handle)
}

/// Make a directory, on the server whose turn it is. It becomes the current object.
pub fn directory(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, inode: &Inode) -> Result<Attr, Halt> {
    let server = placement::directory_server(ctx.identity, dir, name);
    let handle = ctx.draw(server)?;
    ctx.current = Some((handle, Rights::empty()));
    if server != ctx.identity.id {
        return planned(ctx, dir, name, handle, inode);
    }
    direct(ctx, dir, name, handle, inode)?;
    ctx.attr(handle)
}

fn direct(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, handle: Handle, inode: &Inode) -> Result<(), Halt> {
    let (now, kind) = (ctx.now, inode.kind);
    if kind == Kind::File {
        ctx.change_stream(handle, StreamChange::Create { generation: FIRST_GENERATION })?;
    }
    ctx.put(keys::inode(handle), inode)?;
    ctx.put(ctx.entry_key(dir, name), &Dirent { handle, kind })?;
    actions::directory_changed(ctx, dir, subdirs(kind), now)
}

fn planned(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, handle: Handle, inode: &Inode) -> Result<Attr, Halt> {
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
        Action::EntryPut { dir, name, handle, kind, expect: None, subdirs: subdirs(kind), time },
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

/// A layout over new datafiles, none of them here.
fn drawn_layout(ctx: &mut Ctx<'_>, file: Handle, inode: &Inode) -> Result<Layout, Halt> {
    let servers = placement::datafile_servers(ctx.identity, file, &inode.template);
    if servers.is_empty() {
        return Err(Halt::Status(Status::NoSpace));
    }
    let datafiles: Vec<Handle> =
        servers.into_iter().map(|server| ctx.draw(server)).collect::<Result<_, _>>()?;
    let generation = Generation(FIRST_GENERATION);
    Ok(Layout { dist: inode.template.dist, datafiles: datafiles.into(), generation })
}

/// What an object of this kind adds to its directory's count of subdirectories.
pub fn subdirs(kind: Kind) -> i32 {
    i32::from(kind == Kind::Directory)
}
