//! allocate: reserve space, make a hole, or zero a range of one stream.

use crate::data::{self, Work};
use crate::ops::facts::Cost;
use crate::ops::{Alters, OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Allocation, Answer, Capability, Generation, Handle, Rights, Share, Status, limits};

/// The facts of `allocate`: a change of data, and of no objects, so its cost is 0. A full disk refuses it,
/// except if it makes a hole.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Data,
    frees: when!(Allocate { mode, .. } => *mode == Allocation::Punch),
    cost: |_, _| Cost::of(0),
    ..OpFacts::new(handler!(|ctx| Allocate { stream, generation, capability, from, len, mode } => {
        run(ctx, *stream, *generation, capability.as_ref(), *from, *len, *mode)
    }))
};

/// Reserve, punch or zero `from..from+len` of the stream.
pub fn run(
    ctx: &mut Ctx<'_>,
    stream: Handle,
    generation: Generation,
    capability: Option<&Capability>,
    from: u64,
    len: u64,
    mode: Allocation,
) -> Result<Answer, Stopped> {
    if let Some(done) = ctx.done(ctx.object(stream)?) {
        return Ok(done?.answer());
    }
    let access = data::access(ctx, stream, generation, capability, Rights::WRITE)?;
    let (stream, info) = (access.stream, access.info);
    if len == 0 {
        return Err(Stopped::Status(Status::Invalid));
    }
    let end = from.checked_add(len).filter(|&end| end <= limits::FILE_BYTES_MAX);
    let end = end.ok_or(Stopped::Status(Status::FileTooBig))?;
    if matches!(mode, Allocation::Extend | Allocation::Zero) {
        data::must_fit_stuffed(ctx, stream, Share::WHOLE, end)?;
    }
    if !ctx.is_unchanged() {
        return Err(Stopped::Status(Status::NotSupported));
    }
    let work = Work::Allocate { generation: info.generation, from, len, mode };
    Err(access.bulk(work))
}
