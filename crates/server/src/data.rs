//! The data engine: one path for all data.
//!
//! Contiguous I/O is a pattern of one region; eager and flow are two ways to carry the same request. A
//! transfer names a pattern, a window of it (a range of its packed bytes), and the share of the distribution
//! that this stream holds. Client and server iterate the same view. On the wire a share's bytes lie densely,
//! in packed order ([`StreamPart`]).
//!
//! ```text
//!   requests in hand          order                  blocks, pack               the store
//!   part ── burst of runs ─┐  (stream, offset) ──▶   cached, or read once ◀──── read
//!   part ── burst of runs ─┼▶ C-SCAN, locks          cut for every reader
//!   part ── burst of runs ─┘  wait to fill gaps ─▶   merged of all writers ──▶ write(2), then replies
//! ```
//! Requests of many clients that want the same blocks are served together: [`hand`] keeps them and drives
//! the sweep, [`order`] says which blocks come next and locks them, `steps` reads and writes them, with
//! the cache of [`blocks`] and the merging of [`pack`]. Source: Galley (Nieuwejaar and Kotz, 1996), section
//! 4, whose servers order all blocks of all requests in hand, and disk-directed I/O (Kotz, 1994).
//!
//! Small streams are read and replaced by the handlers themselves, in the group's one batch. The store moves
//! larger data outside the handlers. A handler returns [`Stopped::Bulk`] with a [`Work`]. The executor awaits
//! [`begin`], until the request's deadline at most, and then [`carry_out`]. Then the handler runs again and
//! finds the result ([`Ctx::done`]). Before this work the group has changed nothing, and an operation that
//! writes in this way is the last one of its group.
//!
//! **When the first byte of a write or an append is written, its group is no longer given up.** A lock, a
//! lost connection or a changed row does not stop it, and its result becomes the slot's kept reply. Otherwise
//! a retry would repeat it: an append would appear twice, and a write would be applied after later writes of
//! other clients. Only a long write ends with its connection: it counts as not begun, and the retry writes
//! all of it.
//!
//! Every access shows a capability of the file, checked here ([`access`]), and the generation that its client
//! knows. Only an access to the object that the same group has opened or made needs neither. An append states
//! no generation, because the server chooses its place.

mod append;
pub mod blocks;
mod burst;
pub mod change_counts;
pub mod extent;
mod gathered;
pub mod hand;
mod long_part;
pub mod order;
pub mod pack;
mod part;
pub mod pools;
pub mod precreated;
pub(crate) mod reaper;
pub mod room;
mod steps;
mod work;

pub use append::{Peers, Turn, Turns};
pub use hand::Sweep;
pub(crate) use hand::give_way;
pub use long_part::{LongPart, PieceStep, PieceWalk};
pub use part::StreamPart;
pub use work::{Begun, Bulk, Done, Engine, Work, admit_with, begin, carry_out, status_of, write_piece};

use crate::request::ctx::{Ctx, Stopped};
use precreated::Touch;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Capability, Dist, Generation, Handle, Rights, Share, Status};
use shoal_store::StreamInfo;

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
            capability.allows(&identity.keys.signing(ctx.key), identity.collection, owner, rights, ctx.now)
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
            Dist::SimpleStripe { strip } | Dist::Container { strip } | Dist::Composed { strip } => strip,
            Dist::Basic | Dist::Fork | Dist::Forked { .. } => u64::MAX,
        },
        _ => u64::MAX,
    };
    if end <= first_strip { Ok(()) } else { Err(Stopped::Status(Status::StaleLayout)) }
}
