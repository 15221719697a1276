//! The data engine: one path for all data.
//!
//! Contiguous I/O is a pattern of one region; eager and flow are two ways to carry the same request (design
//! §4.6). A transfer names a pattern, a packed window of it, and which share of the distribution this stream
//! holds; both sides iterate the same view. On the wire a share's bytes lie densely, in packed order;
//! [`share_of`] gives the runs with that dense position.
//!
//! Small streams are read and replaced by the handlers themselves, in the group's one batch. The store moves
//! larger data outside the handlers: a handler returns [`Stopped::Bulk`] with a [`Work`], the executor awaits
//! [`begin`], up to the request's deadline, then [`carry_out`], and continues at that operation, which finds
//! the result ([`Ctx::done`]). Such a group has changed nothing before, and a write is its last operation.
//!
//! **An executed transfer is answered once.** From its first byte on, a group is not given up: neither a
//! lock, nor a lost connection, nor a row that changed meanwhile keeps its result from the slot's kept reply.
//! Otherwise a retry would repeat it: an append would appear twice, and a write would be applied after later
//! writes of others.
//!
//! Every access shows a capability of the file, checked here ([`access`]), and the generation its client
//! knows.

mod append;
pub mod change_counts;
pub mod pools;
pub mod precreated;
pub(crate) mod reaper;
pub mod room;
mod work;

pub use append::{Peers, Turn, Turns};
pub use work::{Begun, Bulk, Done, Engine, Work, admit_with, begin, carry_out, status_of};

use crate::request::ctx::{Ctx, Stopped};
use bytes::{Bytes, BytesMut};
use precreated::Touch;
use shoal_env::mutant::{self, Mutant};
use shoal_pattern::{View, ViewRun, Window};
use shoal_proto::{Capability, Dist, Generation, Handle, Rights, Share, Status, Transfer, limits};
use shoal_store::StreamInfo;

/// A server's share of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRuns {
    /// Runs of the stream; `packed` is the position in the dense data of this share.
    pub runs: Vec<ViewRun>,
    /// Bytes of the share.
    pub len: u64,
    /// First byte after the last run, in the stream.
    pub end: u64,
}

/// The runs of one stream in a transfer.
///
/// # Errors
/// `Invalid` for a window outside its pattern, a negative offset or a share that does not exist; `FileTooBig`
/// beyond the largest file; `OverLimit` for more bytes than a message may carry, or a walk that would keep
/// the thread for long.
pub fn share_of(transfer: &Transfer) -> Result<ShareRuns, Status> {
    let Share { width, index, .. } = transfer.share;
    if usize::from(width) > limits::WIDTH_MAX || index >= width.max(1) {
        return Err(Status::Invalid);
    }
    let striping = transfer.share.striping();
    let window = Window::new(transfer.window_from, transfer.window_len);
    let view =
        View::new(&transfer.pattern, window, &striping, u32::from(index)).map_err(|_| Status::Invalid)?;
    let mut view = view.at_most(limits::TRANSFER_STEPS_MAX);
    let (mut runs, mut len, mut end) = (Vec::<ViewRun>::new(), 0_u64, 0_u64);
    for run in &mut view {
        let run_end = run.physical.checked_add(run.len).ok_or(Status::FileTooBig)?;
        if run_end > limits::FILE_BYTES_MAX {
            return Err(Status::FileTooBig);
        }
        // Strips of a file that follow each other lie side by side in its stream.
        match runs.last_mut() {
            Some(last) if last.physical + last.len == run.physical => last.len += run.len,
            _ => runs.push(ViewRun { packed: len, ..run }),
        }
        len += run.len;
        end = end.max(run_end);
        if len > limits::BULK_BYTES_MAX as u64 {
            return Err(Status::OverLimit);
        }
    }
    if view.gave_up() {
        return Err(Status::OverLimit);
    }
    Ok(ShareRuns { runs, len, end })
}

impl ShareRuns {
    /// Without the trailing runs (and parts of them) that are after `size`: they would be zeros that the
    /// client can make itself.
    pub fn trimmed(mut self, size: u64) -> ShareRuns {
        while let Some(last) = self.runs.last_mut() {
            if last.physical >= size {
                self.len -= last.len;
                self.runs.pop();
                continue;
            }
            let beyond = (last.physical + last.len).saturating_sub(size);
            last.len -= beyond;
            self.len -= beyond;
            break;
        }
        self
    }

    /// Gather the runs from a small stream's content; holes and bytes after the content are zeros. The number
    /// of copied bytes is added to `copied`.
    pub fn gather(&self, content: &Bytes, copied: &mut usize) -> Bytes {
        if let [run] = self.runs.as_slice()
            && let (from, to) = (run.physical as usize, (run.physical + run.len) as usize)
            && to <= content.len()
        {
            return content.slice(from..to);
        }
        let mut out = BytesMut::zeroed(self.len as usize);
        for run in &self.runs {
            let from = (run.physical as usize).min(content.len());
            let to = ((run.physical + run.len) as usize).min(content.len());
            let at = run.packed as usize;
            out[at..at + (to - from)].copy_from_slice(&content[from..to]);
            *copied += to - from;
        }
        out.freeze()
    }

    /// Whether a write of it leaves nothing of a stream of `size` bytes.
    pub fn covers(&self, size: u64) -> bool {
        matches!(self.runs.as_slice(), [run] if run.physical == 0 && run.len >= size)
    }

    /// Scatter data over a small stream's content. The number of copied bytes is added to `copied`.
    pub fn scatter(&self, content: &Bytes, data: &Bytes, copied: &mut usize) -> Bytes {
        if let [run] = self.runs.as_slice()
            && run.physical == 0
            && run.len as usize >= content.len()
        {
            return data.clone();
        }
        let mut out = BytesMut::with_capacity(content.len().max(self.end as usize));
        out.extend_from_slice(content);
        *copied += content.len() + self.len as usize;
        out.resize(content.len().max(self.end as usize), 0);
        for run in &self.runs {
            let (to, from) = (run.physical as usize, run.packed as usize);
            out[to..to + run.len as usize].copy_from_slice(&data[from..from + run.len as usize]);
        }
        out.freeze()
    }
}

/// The stream of an access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// It.
    pub stream: Handle,
    /// Its facts: those of an empty one for a datafile that was made ahead of need and is untouched.
    pub info: StreamInfo,
    /// The owner that such a datafile gets by this access.
    untouched_for: Option<Handle>,
}

impl Access {
    /// Before a change in this group's batch: a datafile made ahead of need is there from now on.
    pub fn touch(&self, ctx: &mut Ctx<'_>) -> Result<(), Stopped> {
        match self.touches() {
            Some(touch) => ctx.weakly(|ctx| precreated::touch(ctx, &touch)),
            None => Ok(()),
        }
    }

    /// The store's work, once a datafile made ahead of need exists.
    pub fn bulk(&self, work: Work) -> Stopped {
        match self.touches() {
            Some(touch) => Stopped::Touch(Box::new(touch)),
            None => Stopped::Bulk(Box::new(Bulk { stream: self.stream, work })),
        }
    }

    fn touches(&self) -> Option<Touch> {
        let generation = Generation(self.info.generation);
        self.untouched_for.map(|owner| Touch { datafile: self.stream, owner, generation })
    }
}

/// Check the right to a stream's data. Without a capability only the current object, opened (or made) with
/// the rights in this very group, is accessible. Tells the owner that a datafile made ahead of need and
/// untouched would get.
///
/// # Errors
/// `BadCapability`; `Stale` when the stream's file is gone.
pub fn authorize(
    ctx: &Ctx<'_>,
    stream: Handle,
    capability: Option<&Capability>,
    rights: Rights,
) -> Result<Option<Handle>, Stopped> {
    let mut untouched_for = None;
    // Executed work was allowed when it began: an append's share that is refused for a capability that has
    // expired since would be taken for a missing one.
    let is_done = ctx.done(stream).is_some();
    let allowed = match (capability, ctx.current) {
        (Some(capability), _) => {
            let owner = match ctx.owner_of(stream) {
                Err(Stopped::Status(Status::Stale)) => {
                    untouched_for = precreated::owner_by(ctx, stream, capability)?;
                    untouched_for.ok_or(Stopped::Status(Status::Stale))?
                }
                owner => owner?,
            };
            let identity = ctx.identity;
            capability.allows(&identity.key, identity.collection, owner, rights, ctx.now)
        }
        (None, Some((current, opened))) => current == stream && opened.contains(rights),
        (None, None) => false,
    };
    if allowed || is_done { Ok(untouched_for) } else { Err(Stopped::Status(Status::BadCapability)) }
}

/// The stream of an access: authorized, and of the generation that the client knows.
///
/// # Errors
/// `BadCapability`, `Stale` (gone), `StaleLayout` (another generation: fetch attributes again).
pub fn access(
    ctx: &Ctx<'_>,
    named: Handle,
    generation: Generation,
    capability: Option<&Capability>,
    rights: Rights,
) -> Result<Access, Stopped> {
    let stream = ctx.object(named)?;
    let untouched_for = authorize(ctx, stream, capability, rights)?;
    if untouched_for.is_some() {
        // Generations begin with 1: no client that knows a layout carries this one.
        if generation == Generation::default() {
            return Err(Stopped::Status(Status::StaleLayout));
        }
        return Ok(Access { stream, info: precreated::empty(generation), untouched_for });
    }
    // A file that this very group only plans, on this server or another: its data is written when it is
    // there.
    let missing = if named == Handle::CURRENT { Status::StaleLayout } else { Status::Stale };
    let info = ctx.stream(stream)?.ok_or(Stopped::Status(missing))?;
    // The current object was named in this group: its client cannot know the generation yet, and need not.
    let is_known = info.generation == generation.0 || mutant::is(Mutant::IgnoreGeneration);
    if named != Handle::CURRENT && !is_known {
        return Err(Stopped::Status(Status::StaleLayout));
    }
    Ok(Access { stream, info, untouched_for })
}

/// A file that is still stuffed holds no more than its first strip: a write that would end after it must have
/// the file unstuffed first. One whose datafiles are all elsewhere holds nothing in its own stream.
pub fn must_fit_stuffed(ctx: &Ctx<'_>, stream: Handle, share: Share, end: u64) -> Result<(), Stopped> {
    if share.width > 1 {
        return Ok(());
    }
    let Some(inode) = ctx.row::<crate::meta::rows::Inode>(&crate::meta::keys::inode(stream))? else {
        return Ok(());
    };
    let fits = match &inode.layout {
        None => end <= inode.template.stuffed_max(),
        Some(layout) => layout.datafiles.first() == Some(&stream),
    };
    if fits { Ok(()) } else { Err(Stopped::Status(Status::StaleLayout)) }
}

/// A write to the current object carries no generation and no layout: it reaches only the first strip of a
/// laid-out file, because other datafiles hold the bytes after it.
pub fn must_end_in_first_strip(ctx: &Ctx<'_>, stream: Handle, end: u64) -> Result<(), Stopped> {
    let inode = ctx.row::<crate::meta::rows::Inode>(&crate::meta::keys::inode(stream))?;
    let first_strip = match inode.and_then(|inode| inode.layout) {
        Some(layout) if layout.datafiles.len() > 1 => match layout.dist {
            Dist::SimpleStripe { strip } => strip,
            Dist::Basic | Dist::Fork | Dist::Forked { .. } => u64::MAX,
        },
        _ => u64::MAX,
    };
    if end <= first_strip { Ok(()) } else { Err(Stopped::Status(Status::StaleLayout)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_pattern::Pattern;

    fn transfer(pattern: Pattern, width: u16, index: u16) -> Transfer {
        Transfer {
            stream: Handle(1),
            generation: Generation(1),
            capability: None,
            window_from: 0,
            window_len: pattern.len(),
            pattern,
            share: Share { dist: Dist::SimpleStripe { strip: 4096 }, width, index },
        }
    }

    #[test]
    fn the_shares_of_all_servers_lie_densely_and_make_the_whole() {
        let pattern = Pattern::strided(100, 3000, 5000, 20).unwrap();
        let shares: Vec<_> = (0..3).map(|i| share_of(&transfer(pattern.clone(), 3, i)).unwrap()).collect();
        assert_eq!(shares.iter().map(|s| s.len).sum::<u64>(), pattern.len());
        for share in shares {
            let mut at = 0;
            for run in share.runs {
                assert_eq!(run.packed, at);
                at += run.len;
            }
        }
    }

    #[test]
    fn what_lies_behind_the_end_of_the_stream_is_not_sent() {
        let share = share_of(&transfer(Pattern::contiguous(0, 10_000).unwrap(), 1, 0)).unwrap();
        assert_eq!(share.clone().trimmed(2500).len, 2500);
        assert_eq!(share.clone().trimmed(0).len, 0);
        assert_eq!(share.trimmed(20_000).len, 10_000);
    }

    #[test]
    fn scattered_data_is_gathered_again() {
        let share = share_of(&transfer(Pattern::strided(10, 5, 20, 4).unwrap(), 1, 0)).unwrap();
        let data = Bytes::from((0..20).collect::<Vec<u8>>());
        let mut copied = 0;
        let content = share.scatter(&Bytes::from(vec![9; 30]), &data, &mut copied);
        assert_eq!(content.len(), 75);
        assert_eq!(copied, 30 + data.len());
        assert_eq!(share.gather(&content, &mut copied), data);
        assert_eq!(copied, 30 + 2 * data.len());
        assert_eq!(content[9], 9);
        assert_eq!(content[40], 0);
    }

    #[test]
    fn a_share_that_does_not_exist_or_is_too_large_is_refused() {
        let whole = Pattern::contiguous(0, 10).unwrap();
        assert_eq!(share_of(&transfer(whole.clone(), 3, 3)), Err(Status::Invalid));
        assert_eq!(share_of(&transfer(whole, u16::MAX, 0)), Err(Status::Invalid));
        let large = Pattern::contiguous(0, 2 * limits::BULK_BYTES_MAX as u64).unwrap();
        assert_eq!(share_of(&transfer(large, 1, 0)), Err(Status::OverLimit));
        // 2^44 records, all on server 1, in a few bytes.
        let levels = [(3 * 4096, 1 << 20), ((3 * 4096) << 20, 1 << 24)];
        let levels = levels.map(|(stride, quantity)| shoal_pattern::Level { stride, quantity }).to_vec();
        let endless = Pattern::nested(4096, 1, levels).unwrap();
        assert_eq!(share_of(&transfer(endless, 3, 0)), Err(Status::OverLimit));
        let far = Pattern::contiguous(i64::MAX - 5, 5).unwrap();
        assert!(share_of(&transfer(far, 1, 0)).is_ok());
    }
}
