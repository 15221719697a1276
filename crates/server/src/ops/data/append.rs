//! append: write at the present end of the file. `data/append.rs` carries out appends to files over several
//! servers.

use crate::data::{self, Bulk, Work};
use crate::ops::facts::Cost;
use crate::ops::{Alters, OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use shoal_env::WallTime;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Answer, Capability, Handle, Rights, Status, limits};
use shoal_store::{Changes, StreamChange};

/// The facts of `append`: a change of data whose cost is 0. It takes `len` bytes of bulk data, and asks for
/// journal space for a whole small stream.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Data,
    // The whole content of a small stream goes along, however little of it is written.
    journal_bytes: |_| Changes::SMALL_MAX as u64,
    takes_bytes: when!(Append { len, .. } => *len as usize),
    cost: |_, _| Cost::of(0),
    ..OpFacts::new(handler!(|ctx| Append { object, capability, len, laid_out } => {
        run(ctx, *object, capability.as_ref(), *len, *laid_out)
    }))
};

/// Append `len` bytes of the request's bulk data.
///
/// A small append to a small file is in the group's one batch, and is done once. **Any other may be done
/// twice over a kill of the server** (`docs/reference/SEMANTICS.md`, §4): its bytes are in a file before the
/// record with its answer is in the journal. A record of their place before they are written would not be
/// enough: other appends that come between the restart and the retry must go after it, so the start would
/// have to lengthen every file by the places in such records, on all servers of a laid-out one; and each
/// large append would wait for one more write. Nothing is ever lost or overwritten without it.
///
/// A client that takes the file for stuffed does not know the servers whose loss ids cover its bytes, so it
/// could not report a loss between the append and its sync. It is refused, and looks first.
///
/// # Errors
/// `StaleLayout` for a stuffed file that would outgrow its first strip: unstuff it first; for a laid-out one
/// that the client takes for stuffed: look at it first.
pub fn run(
    ctx: &mut Ctx<'_>,
    object: Handle,
    capability: Option<&Capability>,
    len: u32,
    laid_out: bool,
) -> Result<Answer, Stopped> {
    let data = ctx.take_bulk(len as usize)?;
    let file = ctx.object(object)?;
    if let Some(done) = ctx.done(file) {
        if mutant::is(Mutant::AppendAgain) {
            ctx.inode(file)?;
        }
        let done = done?;
        return Ok(Answer::Appended { offset: done.offset, size: done.info.size });
    }
    data::authorize(ctx, file, capability, Rights::WRITE)?;
    let inode = ctx.inode(file)?;
    if inode.layout.is_some() && !laid_out {
        return Err(Stopped::Status(Status::StaleLayout));
    }
    if inode.layout.is_some() && !ctx.is_unchanged() {
        // It is done before its group has ended, and would wait for a turn that its own group may have.
        return Err(Stopped::Status(Status::NotSupported));
    }
    let end_max = inode.template.stuffed_max().min(limits::FILE_BYTES_MAX);
    let Some(info) = ctx.stream(file)? else {
        // On a server without the data role the metafile has no stream of its own.
        let layout = inode.layout.map(Box::new).ok_or(Stopped::Status(Status::Stale))?;
        return Err(bulk(
            file,
            Work::Append { generation: layout.generation.0, layout: Some(layout), end_max, data },
        ));
    };
    if let Some(layout) = inode.layout {
        let layout = Some(Box::new(layout));
        return Err(bulk(file, Work::Append { layout, generation: info.generation, end_max, data }));
    }
    let end = info.size.checked_add(u64::from(len)).filter(|&end| end <= limits::FILE_BYTES_MAX);
    let end = end.ok_or(Stopped::Status(Status::FileTooBig))?;
    if end > end_max {
        return Err(Stopped::Status(Status::StaleLayout));
    }
    if info.small && end <= Changes::SMALL_MAX as u64 {
        let mut content = bytes::BytesMut::from(ctx.small_content(file)?.as_ref());
        content.resize(info.size as usize, 0);
        content.extend_from_slice(&data);
        ctx.copied += content.len();
        let written_at = WallTime(ctx.now.0);
        ctx.write_stream(file, StreamChange::Put { content: content.freeze(), size: end, written_at })?;
        return Ok(Answer::Appended { offset: info.size, size: end });
    }
    if !ctx.is_unchanged() {
        return Err(Stopped::Status(Status::NotSupported));
    }
    Err(bulk(file, Work::Append { layout: None, generation: info.generation, end_max, data }))
}

fn bulk(stream: Handle, work: Work) -> Stopped {
    Stopped::Bulk(Box::new(Bulk { stream, work }))
}
