//! rows: return the rows of the store after a key, for fsck.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::op::Row;
use shoal_proto::{Answer, Blob, Status};

/// The facts of `rows`: a handler that only reads. The audit log keeps only some of many such requests.
pub const FACTS: OpFacts = OpFacts {
    only_looks: true,
    ..OpFacts::new(handler!(|ctx| Rows { prefix, after, limit } => {
        run(ctx, prefix, after, *limit)
    }))
};

/// Rows of one answer, at most.
const ROWS_MAX: usize = 4096;
/// Bytes of one answer's rows: a listing of them fits into a frame.
const BYTES_MAX: usize = 256 * 1024;

/// Rows whose keys begin with `prefix`, after `after` (empty: from the first).
///
/// # Errors
/// `Invalid`: `after` is no key of the prefix. `NotSupported`: see [`Ctx::must_know_rows`].
pub fn run(ctx: &Ctx<'_>, prefix: &[u8], after: &[u8], limit: u32) -> Result<Answer, Stopped> {
    ctx.must_know_rows()?;
    if !after.is_empty() && !after.starts_with(prefix) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let after = (!after.is_empty()).then_some(after);
    let limit = usize::try_from(limit).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
    let mut scan = ctx.scan(prefix, after, limit)?;
    // Where much was removed a scan may stop before its first row; an answer without rows has no place to
    // continue from.
    while scan.rows.is_empty()
        && let Some(resume) = scan.resume.take()
    {
        scan = ctx.scan(prefix, Some(&resume[..]), limit)?;
    }
    let mut end = scan.resume.is_none();
    let (mut rows, mut bytes) = (Vec::with_capacity(scan.rows.len()), 0);
    for (key, value) in scan.rows {
        bytes += key.len() + value.len() + 16;
        if bytes > BYTES_MAX && !rows.is_empty() {
            end = false;
            break;
        }
        rows.push(Row { key: Blob(key), value: Blob(value) });
    }
    Ok(Answer::Rows { rows: rows.into(), end })
}
