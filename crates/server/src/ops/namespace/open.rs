//! open: check that an object exists, and return a capability for its data.

use crate::meta::keys;
use crate::meta::rows::Orphan;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Attr, Capability, Handle, Kind, Rights, Status};

/// The facts of `open`: a handler that only reads. All other facts have their defaults.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Open { object, rights } => {
    run(ctx, *object, *rights)
}));

/// Open. The object becomes current.
///
/// # Errors
/// `Stale` for an object that is gone, or that only another client still holds; `IsDirectory` for writing a
/// directory.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, rights: Rights) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let attr = ctx.attr(object)?;
    if attr.nlink == 0 && !is_own_orphan(ctx, object)? {
        return Err(Stopped::Status(Status::Stale));
    }
    if attr.kind == Kind::Directory && rights.contains(Rights::WRITE) {
        return Err(Stopped::Status(Status::IsDirectory));
    }
    opened(ctx, attr, rights)
}

/// The answer for an object that was found: only a file has data to be opened.
pub fn opened(ctx: &mut Ctx<'_>, attr: Attr, rights: Rights) -> Result<Answer, Stopped> {
    let rights = if attr.kind == Kind::File { rights } else { Rights::empty() };
    if attr.kind == Kind::File {
        ctx.opened(attr.handle);
    }
    ctx.current = Some((attr.handle, rights));
    let capability = capability(ctx, attr.handle, rights);
    let count = ctx.count_in(&attr);
    Ok(Answer::Made { attr, capability, created: false, count })
}

/// A capability for a file, if any right is requested.
pub fn capability(ctx: &Ctx<'_>, file: Handle, rights: Rights) -> Option<Capability> {
    let identity = ctx.identity;
    let expires_at = identity.capability_expiry(ctx.now);
    (!rights.is_empty()).then(|| {
        let key = identity.keys.signing(ctx.key);
        Capability::sign(&key, identity.collection, file, rights, expires_at)
    })
}

/// Whether an object without a name is kept for the client that asks.
pub fn is_own_orphan(ctx: &Ctx<'_>, object: Handle) -> Result<bool, Stopped> {
    Ok(ctx.row::<Orphan>(&keys::orphan(object, ctx.client))?.is_some())
}
