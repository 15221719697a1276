//! Transfers of data: a pattern is divided among the datafiles that it touches, and all their servers get
//! requests at once.
//!
//! ```text
//!   read    View per datafile ── one request; its answer up to 256 KiB is one message, a longer one is pieces
//!   write   View per datafile ─┬─ all bytes within the eager limit: one message
//!                              ├─ within the connection's credit: windows of 256 KiB, all of them at once
//!                              └─ else one request; its server grants parts of 256 KiB, which the client sends
//! ```
//! A request carries a slice of the pattern, and the datafile's share in the layout. Client and server
//! iterate the same view, and the data has its bytes in the view's order. A write to overlapping records is
//! sent one message after the other. The first server of a transfer is drawn at random, so that not all
//! clients begin at the same server.
//!
//! With `eager = off` every transfer begins with a *rendezvous*: a request for the stream's facts, whose
//! answer shows that the server is ready. The data follows the answer.
//!
//! A stuffed file is one stream on the metafile's server. **A write that ends beyond its first strip unstuffs
//! it first.**

mod allocate;
mod append;
mod dropcache;
mod fsync;
mod in_order;
mod paired;
mod read;
mod write;

pub(crate) use write::gather;

use crate::core::{Core, Operation};
use crate::file::{Opened, Shape};
use crate::{Error, OpenFile};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use shoal_pattern::{Pattern, View, ViewError, Window, share_len, split};
use shoal_proto::op::Answer;
use shoal_proto::{Capability, Generation, Handle, Op, ServerId, Share, Status, Striping, Transfer, limits};
use std::rc::Rc;

/// A transfer of the first bytes of a stuffed file.
pub(crate) fn whole(
    stream: Handle,
    generation: Generation,
    capability: Option<Capability>,
    len: u64,
) -> Transfer {
    // Larger than the largest file it could not be sent either.
    let len = len.min(limits::FILE_BYTES_MAX);
    let pattern = Pattern::contiguous(0, len).unwrap_or_default();
    Transfer { stream, generation, capability, pattern, window_from: 0, window_len: len, share: Share::WHOLE }
}

/// A transfer of one region to the current object, which is stuffed or whose first strip holds the region:
/// the server refuses all others.
pub(crate) fn piece(offset: u64, len: u64) -> Transfer {
    let from = i64::try_from(offset).unwrap_or(i64::MAX);
    let pattern = Pattern::contiguous(from, len).unwrap_or_default();
    let window_len = pattern.len();
    let (stream, generation) = (Handle::CURRENT, Generation(0));
    Transfer {
        stream,
        generation,
        capability: None,
        pattern,
        window_from: 0,
        window_len,
        share: Share::WHOLE,
    }
}

/// A transfer under way: its pieces and their servers.
#[derive(Clone, Copy)]
struct Plan<'a> {
    core: &'a Rc<Core>,
    o: &'a Operation,
    pattern: &'a Pattern,
    window: Window,
    striping: Striping,
    datafiles: &'a [Handle],
    generation: Generation,
    capability: Option<Capability>,
}

impl<'a> Plan<'a> {
    fn new(
        opened: &'a Opened,
        o: &'a Operation,
        shape: &'a Shape,
        pattern: &'a Pattern,
        window: Window,
    ) -> Plan<'a> {
        let (striping, datafiles) = match &shape.layout {
            Some(layout) => (layout.striping(), layout.datafiles.as_slice()),
            None => (Share::WHOLE.striping(), std::slice::from_ref(&opened.handle)),
        };
        let (generation, capability) = (shape.generation, opened.capability());
        Plan { core: &opened.client.core, o, pattern, window, striping, datafiles, generation, capability }
    }

    fn view(&self, index: u32, window: Window) -> Result<View<'_>, Error> {
        View::new(self.pattern, window, &self.striping, index).map_err(|error| self.unfit(&error))
    }

    fn unfit(&self, error: &ViewError) -> Error {
        self.o.error(Status::Invalid).because(error.to_string())
    }

    /// The datafiles that hold something of it, in the order to begin with them.
    fn touched(&self) -> Result<Vec<u32>, Error> {
        let width = self.striping.width;
        let mut touched = Vec::new();
        match self.neighbours() {
            Some((first, count)) => {
                touched.extend((0..count).map(|step| ((first + step) % u64::from(width)) as u32))
            }
            None => {
                for index in 0..width {
                    if !self.view(index, self.window)?.is_empty() {
                        touched.push(index);
                    }
                }
            }
        }
        if touched.len() > 1 {
            let turn = self.core.world.random_u64() % touched.len() as u64;
            touched.rotate_left(turn as usize);
        }
        Ok(touched)
    }

    /// Of one region: the datafile of its first byte, and how many datafiles it touches.
    fn neighbours(&self) -> Option<(u64, u64)> {
        let region = self.pattern.slice(self.window.from, self.window.len).as_region()?;
        let offset = u64::try_from(region.offset).ok()?;
        let first = self.striping.place_of(offset);
        let beyond = region.len.saturating_sub(first.run);
        let more = match self.striping.dist {
            _ if beyond == 0 => 0,
            shoal_proto::Dist::SimpleStripe { strip } => beyond.div_ceil(strip),
            // No file has one of the others over several datafiles.
            _ => 0,
        };
        Some((u64::from(first.object), (1 + more).min(u64::from(self.striping.width))))
    }

    fn datafile(&self, index: u32) -> Result<Handle, Error> {
        let datafile = self.datafiles.get(index as usize).copied();
        datafile.ok_or_else(|| self.o.error(Status::BadMessage).because("a layout without datafiles"))
    }

    fn transfer(&self, index: u32, stream: Handle, window: Window) -> Transfer {
        let pattern = self.pattern.slice(window.from, window.len);
        let share =
            Share { dist: self.striping.dist, width: self.striping.width as u16, index: index as u16 };
        let (generation, capability) = (self.generation, self.capability);
        Transfer { stream, generation, capability, pattern, window_from: 0, window_len: window.len, share }
    }

    /// Bytes that the datafile of `index` has of it.
    fn share_bytes(&self, index: u32) -> Result<u64, Error> {
        // By arithmetic where it can be: a walk takes as long as the share has runs.
        let counted = share_len(self.pattern, self.window, &self.striping, index);
        match counted.map_err(|error| self.unfit(&error))? {
            Some(bytes) => Ok(bytes),
            None => Ok(self.view(index, self.window)?.len()),
        }
    }

    /// Bytes of one message of a share of so many bytes.
    fn message_bytes(&self, share: u64, server: ServerId) -> u64 {
        let eager = self.core.eager_bytes(server) as u64;
        if share <= eager { eager.max(1) } else { limits::FLOW_CHUNK_BYTES as u64 }
    }

    /// Do `send` for every message of every touched datafile, as many at once as a flow may have, or `pull`
    /// once where there are more. All end before this returns, also after an error: nothing is under way
    /// after it.
    ///
    /// **Of a pattern whose records overlap a message is sent after the one before was answered**: each byte
    /// is that of the last record that has it.
    async fn each<T>(
        &self,
        send: impl AsyncFn(u32, Handle, Window) -> Result<T, Error>,
        pull: impl AsyncFn(u32, Handle) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let (send, pull) = (&send, &pull);
        let is_long = self.window.len > limits::FLOW_CHUNK_BYTES as u64;
        let in_turn = is_long && self.pattern.slice(self.window.from, self.window.len).may_overlap();
        let at_once = if in_turn { 1 } else { limits::FLOW_CHUNKS_MAX };
        let messages = async |index: u32| -> Result<Vec<Result<T, Error>>, Error> {
            let stream = self.datafile(index)?;
            let share = self.share_bytes(index)?;
            if share > self.core.options.unasked_bytes && !in_turn {
                self.core.rendezvous(self.o, stream).await?;
                return Ok(vec![pull(index, stream).await]);
            }
            let bytes = self.message_bytes(share, stream.server());
            let windows = split(self.pattern, self.window, &self.striping, index, bytes);
            let mut windows = windows.map_err(|error| self.unfit(&error))?;
            let (first, second) = (windows.next(), windows.next());
            if first.is_some() {
                self.core.rendezvous(self.o, stream).await?;
            }
            match (first, second) {
                (None, _) => Ok(Vec::new()),
                (Some(only), None) => Ok(vec![send(index, stream, only).await]),
                (first, second) => {
                    let all = first.into_iter().chain(second).chain(windows);
                    let sent = stream::iter(all.map(|window| send(index, stream, window)));
                    Ok(sent.buffer_unordered(at_once).collect().await)
                }
            }
        };
        self.all_of(messages).await
    }

    /// Do `send` once for every touched datafile, all at once: its whole share is one request.
    async fn each_whole<T>(
        &self,
        send: impl AsyncFn(u32, Handle) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let send = &send;
        self.all_of(async |index: u32| -> Result<Vec<Result<T, Error>>, Error> {
            let stream = self.datafile(index)?;
            self.core.rendezvous(self.o, stream).await?;
            Ok(vec![send(index, stream).await])
        })
        .await
    }

    /// Do `flow` for every touched datafile, all at once, to the end of each.
    async fn all_of<T>(
        &self,
        flow: impl AsyncFn(u32) -> Result<Vec<Result<T, Error>>, Error>,
    ) -> Result<Vec<T>, Error> {
        let (touched, flow) = (self.touched()?, &flow);
        let flows = match touched.as_slice() {
            &[only] => vec![flow(only).await],
            all => join_all(all.iter().map(|&index| flow(index))).await,
        };
        let mut done = Vec::new();
        let mut failed: Option<Error> = None;
        for flow in flows {
            let results = flow.unwrap_or_else(|error| vec![Err(error)]);
            for result in results {
                match result {
                    Ok(value) => done.push(value),
                    Err(error) if failed.as_ref().is_none_or(|first| weight(&error) < weight(first)) => {
                        failed = Some(error);
                    }
                    Err(_) => {}
                }
            }
        }
        failed.map_or(Ok(done), Err)
    }
}

/// Of several errors, one that a retry can fix comes first.
fn weight(error: &Error) -> u8 {
    match error.status {
        Status::StaleLayout => 0,
        Status::BadCapability => 1,
        _ => 2,
    }
}

impl Core {
    /// Where no data may come unannounced: ask the stream's server whether it can take, or give, some.
    async fn rendezvous(self: &Rc<Core>, o: &Operation, stream: Handle) -> Result<(), Error> {
        if self.switches().eager_bytes == 0 {
            self.streamstat(o, stream).await?;
        }
        Ok(())
    }
}

impl Opened {
    /// A shape in which a write may end at `end`: a file that would outgrow its first strip is laid out.
    async fn room_to(&self, o: &Operation, shape: Shape, end: u64) -> Result<Shape, Error> {
        if shape.layout.is_some() || end <= shape.template.stuffed_max() {
            return Ok(shape);
        }
        self.laid_out(o).await
    }

    /// Lay the file out; the shape that it has then.
    async fn laid_out(&self, o: &Operation) -> Result<Shape, Error> {
        let (core, server) = (&self.client.core, self.handle.server());
        let told = core.ask(o, server, vec![Op::Unstuff { object: self.handle }]).await?;
        match told.answers.into_iter().next() {
            Some(Answer::Laid { layout }) if !layout.datafiles.is_empty() => {
                self.inode.laid(layout);
                self.touched();
                Ok(self.shape())
            }
            _ => Err(o.error(Status::BadMessage).from(server).because("no layout in its answer")),
        }
    }
}

/// The range of a pattern, checked against what a file can be; `None`: it is empty.
fn bounds(o: &Operation, pattern: &Pattern) -> Result<Option<(u64, u64)>, Error> {
    let Some((from, end)) = pattern.bounds() else { return Ok(None) };
    match (u64::try_from(from), u64::try_from(end)) {
        (Ok(from), Ok(end)) => Ok(Some((from, end))),
        _ => Err(o.error(Status::Invalid).because("it reaches before the start of the file")),
    }
}

/// One region as a pattern.
fn contiguous(o: &Operation, offset: u64, len: u64) -> Result<Pattern, Error> {
    let from = i64::try_from(offset).map_err(|_| o.error(Status::FileTooBig))?;
    Pattern::contiguous(from, len).map_err(|_| o.error(Status::FileTooBig))
}

impl OpenFile {
    /// The size now.
    ///
    /// # Errors
    /// When a server does not answer.
    pub async fn size(&self) -> Result<u64, Error> {
        let core = &self.0.client.core;
        let o = core.begin("getattr", Some(self.0.handle));
        Ok(core.getattr_anew(&o, self.0.handle).await?.size)
    }
}
