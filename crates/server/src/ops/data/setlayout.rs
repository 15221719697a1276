//! setlayout: set how the new files of a directory, or a file that is still empty, will be laid out.

use crate::meta::keys;
use crate::meta::rows::Inode;
use crate::ops::namespace::setattr::set_shards;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle, Kind, SetAttr, Status, Template, limits};

/// The facts of `setlayout`: a handler that changes one object, so its cost is the default of 1.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Setlayout { object, template } => {
    run(ctx, *object, *template)
}));

/// Set the template.
///
/// # Errors
/// `Invalid` for an object that is neither a directory nor a file, or a width over the limit; `Exists` for a
/// file that has data: a layout is chosen before the first byte; `NotPermitted` for a forked file and all in
/// it, and for a directory with a layout that clients follow: that one is fixed. Such a layout is one of
/// directories other than the root, and `NotEmpty` says that one has entries.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, template: Template) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let mut inode = ctx.inode(object)?;
    if usize::from(template.width) > limits::WIDTH_MAX || template.dist.is_of_forks() {
        return Err(Stopped::Status(Status::Invalid));
    }
    if inode.template.dist.is_of_forks() || inode.template.dist.is_followed() {
        return Err(Stopped::Status(Status::NotPermitted));
    }
    if template.dist.is_followed() {
        may_follow(object, &inode)?;
    }
    match inode.kind {
        Kind::Directory if inode.shards.is_split() => {
            set_shards(ctx, object, &inode.shards, &SetAttr::default(), Some(template))?;
            return Ok(Answer::Done {});
        }
        Kind::Directory => {}
        Kind::File => {
            let empty = ctx.stream(object)?.is_some_and(|stream| stream.size == 0);
            if inode.layout.is_some() || !empty {
                return Err(Stopped::Status(Status::Exists));
            }
        }
        _ => return Err(Stopped::Status(Status::Invalid)),
    }
    inode.template = template;
    inode.ctime = ctx.now;
    ctx.put(keys::inode(object), &inode)?;
    Ok(Answer::Done {})
}

/// Whether a directory may get a layout that clients follow: a client that knows an entry of it would go on
/// using that entry as it was.
fn may_follow(object: Handle, inode: &Inode) -> Result<(), Stopped> {
    match inode.kind {
        Kind::Directory if object == Handle::ROOT => Err(Stopped::Status(Status::Invalid)),
        Kind::Directory if inode.entries > 0 || inode.shards.is_split() => {
            Err(Stopped::Status(Status::NotEmpty))
        }
        Kind::Directory => Ok(()),
        _ => Err(Stopped::Status(Status::NotDirectory)),
    }
}
