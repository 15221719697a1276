//! Actions that only repairs plan. Each expects exactly the damage that it repairs, so that undamaged rows
//! are left alone.

use crate::data::precreated;
use crate::meta::keys::{self, Table};
use crate::meta::rows::Batch;
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Attr, Handle, Kind, ServerId, Status};

/// Tables whose rows may be removed one by one. Others are followed in memory (sessions, transactions), or
/// are the store's.
const REMOVABLE: [Table; 11] = [
    Table::Inode,
    Table::Entry,
    Table::Xattr,
    Table::Datafile,
    Table::Orphan,
    Table::Lingering,
    Table::Reap,
    Table::Pool,
    Table::Grant,
    Table::Batch,
    Table::Unnamed,
];

/// Whether a repair may remove the row of this key.
pub fn is_removable(key: &[u8]) -> bool {
    REMOVABLE.iter().any(|table| key.first() == Some(&(*table as u8)))
}

fn changed() -> Result<(), Stopped> {
    Err(Stopped::Status(Status::Changed))
}

pub fn validate_row_remove(
    ctx: &Ctx<'_>,
    server: ServerId,
    key: &[u8],
    expect: &[u8],
) -> Result<(), Stopped> {
    if server != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    if !is_removable(key) {
        return Err(Stopped::Status(Status::Invalid));
    }
    ctx.must_be_unlocked(key)?;
    if let Some((dir, ..)) = keys::parse_entry(key) {
        // A split that is under way moves it.
        ctx.get(&keys::inode(dir))?;
    }
    if ctx.get(key)?.as_deref() == Some(expect) { Ok(()) } else { changed() }
}

pub fn validate_stream_adopt(ctx: &Ctx<'_>, attr: &Attr) -> Result<(), Stopped> {
    if attr.handle.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    if attr.kind != Kind::File {
        return Err(Stopped::Status(Status::Invalid));
    }
    if ctx.get(&keys::inode(attr.handle))?.is_some() {
        return changed();
    }
    belongs_to_nothing(ctx, attr.handle)
}

pub fn validate_datafile_adopt(ctx: &Ctx<'_>, datafile: Handle) -> Result<(), Stopped> {
    if datafile.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    belongs_to_nothing(ctx, datafile)
}

/// There is a stream, and no datafile.
fn belongs_to_nothing(ctx: &Ctx<'_>, stream: Handle) -> Result<(), Stopped> {
    if ctx.get(&keys::datafile(stream))?.is_some() || ctx.stream(stream)?.is_none() {
        return changed();
    }
    Ok(())
}

/// All of them are of one batch, made for that pool.
pub fn validate_retire(ctx: &Ctx<'_>, pool: ServerId, first: Handle, count: u16) -> Result<(), Stopped> {
    if first.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    let key = keys::batch(precreated::first_of(first));
    let is_of = |batch: &Batch| {
        let end = first.counter() % precreated::BLOCK + u64::from(count);
        batch.pool == pool && count > 0 && end <= u64::from(batch.count)
    };
    if ctx.row::<Batch>(&key)?.is_some_and(|batch| is_of(&batch)) { Ok(()) } else { changed() }
}

pub fn validate_stream_create(ctx: &Ctx<'_>, stream: Handle) -> Result<(), Stopped> {
    if stream.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    let owned = ctx.get(&keys::datafile(stream))?.is_some() || ctx.inode(stream)?.kind == Kind::File;
    if !owned || ctx.stream(stream)?.is_some() {
        return changed();
    }
    Ok(())
}
