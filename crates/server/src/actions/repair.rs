//! Actions that only repairs plan. Each expects exactly the damage it mends, so that nothing is done to what is whole.

use crate::ctx::{Ctx, Halt};
use crate::keys::{self, Table};
use shoal_proto::{Attr, Handle, Kind, ServerId, Status};

/// Tables whose rows may be removed one by one. Others are followed in memory (sessions, transactions), or are the store's.
const REMOVABLE: [Table; 6] =
    [Table::Inode, Table::Entry, Table::Xattr, Table::Datafile, Table::Orphan, Table::Reap];

fn changed() -> Result<(), Halt> {
    Err(Halt::Status(Status::Changed))
}

pub fn validate_row_remove(ctx: &Ctx<'_>, server: ServerId, key: &[u8], expect: &[u8]) -> Result<(), Halt> {
    if server != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    if !REMOVABLE.iter().any(|table| key.first() == Some(&(*table as u8))) {
        return Err(Halt::Status(Status::Invalid));
    }
    ctx.must_be_unlocked(key)?;
    if ctx.get(key)?.as_deref() == Some(expect) { Ok(()) } else { changed() }
}

pub fn validate_stream_adopt(ctx: &Ctx<'_>, attr: &Attr) -> Result<(), Halt> {
    if attr.handle.server() != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    if attr.kind != Kind::File {
        return Err(Halt::Status(Status::Invalid));
    }
    if ctx.get(&keys::inode(attr.handle))?.is_some() {
        return changed();
    }
    belongs_to_nothing(ctx, attr.handle)
}

pub fn validate_datafile_adopt(ctx: &Ctx<'_>, datafile: Handle) -> Result<(), Halt> {
    if datafile.server() != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    belongs_to_nothing(ctx, datafile)
}

/// There is a stream, and no datafile.
fn belongs_to_nothing(ctx: &Ctx<'_>, stream: Handle) -> Result<(), Halt> {
    if ctx.get(&keys::datafile(stream))?.is_some() || ctx.stream(stream)?.is_none() {
        return changed();
    }
    Ok(())
}

pub fn validate_stream_create(ctx: &Ctx<'_>, stream: Handle) -> Result<(), Halt> {
    if stream.server() != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    let owned = ctx.get(&keys::datafile(stream))?.is_some() || ctx.inode(stream)?.kind == Kind::File;
    if !owned || ctx.stream(stream)?.is_some() {
        return changed();
    }
    Ok(())
}
