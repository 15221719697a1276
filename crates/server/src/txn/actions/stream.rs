//! Actions on streams, and on a metafile's facts about them.

use super::object::{change, expected, remove_stream};
use crate::data::precreated::{self, Touch};
use crate::meta::keys;
use crate::meta::rows::{Datafile, Inode};
use crate::request::ctx::{Ctx, Stopped};
use shoal_env::WallTime;
use shoal_proto::{Attr, Generation, Handle, Kind, Layout, Status, Time};
use shoal_store::{StreamChange, StreamInfo};

fn changed<T>() -> Result<T, Stopped> {
    Err(Stopped::Status(Status::Changed))
}

fn expected_stream(ctx: &Ctx<'_>, stream: Handle) -> Result<StreamInfo, Stopped> {
    ctx.stream(stream)?.ok_or(Stopped::Status(Status::Changed))
}

pub fn validate_layout_set(ctx: &Ctx<'_>, object: Handle, expect: Generation) -> Result<(), Stopped> {
    let inode = expected(ctx, object)?;
    let info = expected_stream(ctx, object)?;
    if inode.kind != Kind::File || inode.layout.is_some() || info.generation != expect.0 {
        return changed();
    }
    Ok(())
}

/// Whether all of a file's data is elsewhere, so that the metafile's own stream only keeps the generation.
fn keeps_generation_only(object: Handle, inode: &Inode) -> bool {
    inode.layout.as_ref().is_some_and(|layout: &Layout| layout.datafiles.first() != Some(&object))
}

pub fn validate_attr_set(ctx: &Ctx<'_>, attr: &Attr, expect: Generation) -> Result<(), Stopped> {
    let inode = expected(ctx, attr.handle)?;
    let info = expected_stream(ctx, attr.handle)?;
    if inode.kind != Kind::File || info.generation != expect.0 {
        return changed();
    }
    Ok(())
}

/// Set mode, owner and times. The datafiles' generation advances by one in the same transaction; a metafile
/// that only keeps it follows here.
pub fn set_attr(ctx: &mut Ctx<'_>, attr: &Attr, expect: Generation) -> Result<(), Stopped> {
    let inode = ctx.inode(attr.handle)?;
    if keeps_generation_only(attr.handle, &inode) {
        let generation = expect.0 + 1;
        ctx.change_stream(attr.handle, StreamChange::Advance { generation })?;
    }
    change(ctx, attr.handle, |inode| {
        inode.mode = attr.mode;
        inode.uid = attr.uid;
        inode.gid = attr.gid;
        inode.atime = attr.atime;
        inode.mtime = attr.mtime;
        inode.ctime = attr.ctime;
    })
}

pub fn validate_advance(
    ctx: &Ctx<'_>,
    stream: Handle,
    owner: Handle,
    expect: Generation,
    generation: Generation,
) -> Result<(), Stopped> {
    if generation <= expect {
        return Err(Stopped::Status(Status::Invalid));
    }
    ctx.get(&keys::datafile(stream))?;
    ctx.get(&keys::inode(stream))?;
    match ctx.stream(stream)? {
        Some(info) if info.generation == expect.0 => Ok(()),
        // It takes any: as long as it is untouched, its file's generation is that of its layout.
        None if precreated::is_for(ctx, stream, owner)? => Ok(()),
        _ => changed(),
    }
}

pub fn advance(
    ctx: &mut Ctx<'_>,
    stream: Handle,
    owner: Handle,
    generation: Generation,
    size: Option<u64>,
    written_at: Option<Time>,
) -> Result<(), Stopped> {
    if ctx.stream(stream)?.is_none() {
        precreated::touch(ctx, &Touch { datafile: stream, owner, generation })?;
    }
    let info = expected_stream(ctx, stream)?;
    let generation = generation.0;
    let change = match (size, written_at) {
        (None, None) => StreamChange::Advance { generation },
        // All stays as it is, with the writes since this was planned.
        (None, Some(planned)) => StreamChange::Resize {
            generation,
            size: info.size,
            written_at: info.written_at.max(Some(WallTime(planned.0))),
        },
        (Some(size), written_at) => {
            StreamChange::Resize { generation, size, written_at: written_at.map(|time| WallTime(time.0)) }
        }
    };
    ctx.change_stream(stream, change)
}

pub fn validate_datafile_create(ctx: &Ctx<'_>, datafile: Handle) -> Result<(), Stopped> {
    if datafile.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    match ctx.get(&keys::datafile(datafile))? {
        Some(_) => changed(),
        None => Ok(()),
    }
}

pub fn create_datafile(
    ctx: &mut Ctx<'_>,
    datafile: Handle,
    owner: Handle,
    generation: Generation,
) -> Result<(), Stopped> {
    precreated::touch(ctx, &Touch { datafile, owner, generation })
}

/// Whether the datafile is there, touched or not; one of another owner is a plan's error.
pub fn validate_datafile_remove(ctx: &Ctx<'_>, datafile: Handle, owner: Handle) -> Result<bool, Stopped> {
    match ctx.row::<Datafile>(&keys::datafile(datafile))? {
        Some(row) if row.owner != owner => changed(),
        Some(_) => Ok(true),
        None => precreated::is_for(ctx, datafile, owner),
    }
}

pub fn remove_datafile(ctx: &mut Ctx<'_>, datafile: Handle, owner: Handle) -> Result<(), Stopped> {
    if !validate_datafile_remove(ctx, datafile, owner)? {
        return Ok(());
    }
    remove_stream(ctx, datafile)?;
    ctx.remove(keys::datafile(datafile))?;
    precreated::use_up(ctx, &[datafile])
}
