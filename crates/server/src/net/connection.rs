//! A connection: the loop that reads a whole buffer, runs every request in it, and writes all replies at
//! once.
//!
//! ```text
//!   bytes ─▶ Frames ─▶ handshake ─▶ request ─▶ executor ─▶ gate ─▶ Line ─▶ one vectored write
//! ```
//! Each connection has one task. A request that finds everything in memory needs no other task. Reading stops
//! while too many requests are under way or too many replies wait to be written, and continues as they leave.
//! A client that sends more bulk data than its credit, or bytes that are no frame, gets an error and is
//! disconnected. A connection also ends when a frame arrives that its client did not send
//! ([`shoal_proto::seal`]); the server logs a warning.

mod credit;
mod frames;
mod grants;
mod handshake;
mod line;
mod proof;

pub use credit::Credits;
pub use frames::{Frames, Scratch, Standing};
pub use grants::Grants;
pub use handshake::{Begun, Own, Refused, greet, hear, introduce, who_listens};
pub use line::{Line, PieceRoom};
pub use proof::{Admitted, MountUse};

use crate::counters::add;
use crate::file_locks::rows;
use crate::log_limit::Seldom;
use crate::net::session::{Session, Waiter};
use crate::ops;
use crate::request::executor;
use crate::shard::Shard;
use shoal_env::{Instant, Reader, Work, Writer};
use shoal_proto::message::{Give, Leave, Refusal};
use shoal_proto::{Frame, FrameKind, Request, Status, limits};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Buffers taken before other tasks have their turn.
const ROUNDS_MAX: usize = 32;
/// Bytes of replies waiting to be written, or still to be read from the store, above which nothing more is
/// read.
const OUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Warnings of one kind on seals come no more often.
pub(crate) const WARNING_EVERY: Duration = Duration::from_secs(10);

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other side closed or broke it.
    Lost,
    /// This side ended it.
    Closed,
    /// The received bytes are no frame.
    Garbage,
    /// The received frame is not the next one that the other side sent.
    Forged,
}

/// Move frames until the connection ends. `on_frame` says whether the connection continues.
pub async fn pump(
    reader: &mut Reader,
    writer: &mut Writer,
    line: &Line,
    frames: &mut Frames,
    mut on_frame: impl FnMut(Frame) -> Result<(), Ended>,
) -> Ended {
    poll_fn(|cx| {
        line.forget_waker();
        let mut rounds = 0;
        loop {
            if line.is_dead() {
                return Poll::Ready(Ended::Closed);
            }
            while may_read(line) {
                match frames.next() {
                    Ok(Some(frame)) => {
                        if let Err(ended) = on_frame(frame) {
                            return Poll::Ready(ended);
                        }
                    }
                    Ok(None) => break,
                    Err(ended) => return Poll::Ready(ended),
                }
            }
            if let Poll::Ready(Err(_)) = line.poll_flush(writer.0.as_mut(), cx) {
                return Poll::Ready(Ended::Lost);
            }
            if line.is_drained() {
                return Poll::Ready(Ended::Closed);
            }
            if !may_read(line) {
                line.register(cx);
                return Poll::Pending;
            }
            match frames.poll_fill(reader.0.as_mut(), cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(Ended::Lost),
                Poll::Pending => {
                    line.register(cx);
                    return Poll::Pending;
                }
            }
            rounds += 1;
            if rounds == ROUNDS_MAX {
                cx.waker().wake_by_ref();
                line.register(cx);
                return Poll::Pending;
            }
        }
    })
    .await
}

fn may_read(line: &Line) -> bool {
    !line.is_closing()
        && line.requests.get() < limits::REQUESTS_UNDER_WAY_MAX
        && line.out_bytes() + line.wanted_bytes.get() < OUT_BYTES_MAX
}

/// Serve an attached connection until it ends.
pub async fn serve(
    shard: &Rc<Shard>,
    session: &Rc<Session>,
    line: &Rc<Line>,
    parts: (Reader, Writer, Frames),
) {
    let (mut reader, mut writer, mut frames) = parts;
    line.session.replace(Rc::downgrade(session));
    let since = shard.env.now();
    shard.audit.connected(shard, session, line);
    let mut refusal = None;
    let ended = pump(&mut reader, &mut writer, line, &mut frames, |frame| {
        request(shard, session, line, frame).map_err(|refused| {
            refusal = Some(refused);
            Ended::Closed
        })
    })
    .await;
    if ended == Ended::Garbage {
        refusal = Some(Refused::new(Status::BadMessage, "the bytes sent are no frame of this protocol"));
    }
    if ended == Ended::Forged {
        add(&shard.counters.forged_frames, 1);
        warn_of_forgery(line, &shard.forgery_warnings, shard.env.now());
        let words = "a frame came that does not bear your seal: the traffic was changed on its way";
        refusal = Some(Refused::new(Status::BadMessage, words));
    }
    shard.audit.disconnected(shard, session, line, since, (ended, refusal.as_ref()));
    if let Some(refused) = refusal {
        add(&shard.counters.refusals, 1);
        refuse(line, &mut writer, &refused).await;
    }
    line.end();
    if session.line.borrow().as_ref().is_some_and(|present| Rc::ptr_eq(present, line)) {
        session.line.take();
    }
    rows::left(shard, session.client);
    // The other side reads to the end of the stream; an error means it is gone already.
    let _ = writer.close().await;
}

/// A sealed connection brought a frame that its other end did not send. All are counted
/// (`forged_frames`), and one in a while is logged: an attacker fills no log.
pub(crate) fn warn_of_forgery(line: &Line, warnings: &RefCell<Seldom>, now: Instant) {
    if let Some(unsaid) = warnings.borrow_mut().is_due(now) {
        tracing::warn!(
            peer = line.name,
            unsaid,
            "a frame was changed, left out, repeated or added between that peer and this server: the connection ends"
        );
    }
}

/// Take one frame of an attached connection.
fn request(shard: &Rc<Shard>, session: &Rc<Session>, line: &Rc<Line>, frame: Frame) -> Result<(), Refused> {
    let arrived = shard.env.now();
    session.heard.set(arrived);
    if frame.kind == FrameKind::Leave {
        let leave: Leave = frame.message().map_err(|error| {
            Refused::new(Status::BadMessage, format!("that a read is left cannot be decoded: {error}"))
        })?;
        line.leave(leave.request);
        return Ok(());
    }
    if frame.kind == FrameKind::Give {
        return given(line, frame);
    }
    if frame.kind != FrameKind::Request {
        return Err(Refused::new(Status::BadMessage, "only requests are expected on an attached connection"));
    }
    let request: Request = frame
        .message()
        .map_err(|error| Refused::new(Status::BadMessage, format!("a request cannot be decoded: {error}")))?;
    let bulk_bytes = frame.bulk.len();
    let under_way = line.bulk_bytes.get() + bulk_bytes;
    if under_way > limits::CREDIT_BYTES {
        return Err(Refused::new(
            Status::OverLimit,
            "more data was sent than the connection's credit allows",
        ));
    }
    if request.long_read().is_some() && !line.begin_long_read(frame.tag) {
        let words = format!("a long read has the tag {} of another one that is under way", frame.tag);
        return Err(Refused::new(Status::BadMessage, words));
    }
    shard.env.work(Work::Message, 1);
    line.bulk_bytes.set(under_way);
    line.requests.set(line.requests.get() + 1);
    let wanted_bytes = wanted(&request);
    line.wanted_bytes.set(line.wanted_bytes.get() + wanted_bytes);
    let waiter = Waiter { line: line.clone(), tag: frame.tag, bulk_bytes, wanted_bytes, arrived };
    executor::accept(shard, session, request, frame.bulk, waiter);
    Ok(())
}

/// A part of a long write came.
fn given(line: &Line, frame: Frame) -> Result<(), Refused> {
    let give: Give = frame.message().map_err(|error| {
        Refused::new(Status::BadMessage, format!("a part of a write cannot be decoded: {error}"))
    })?;
    line.given(frame.tag, give, frame.bulk).map_err(|why| {
        let Give { from, len } = give;
        let words = format!("packed bytes {from} to {} of a write: {why}", from.saturating_add(len));
        Refused::new(Status::BadMessage, words)
    })
}

/// Bytes of data a request may be answered with in the reply itself, at most.
fn wanted(request: &Request) -> usize {
    if request.long_read().is_some() {
        return limits::FLOW_CHUNK_BYTES;
    }
    let ops = request.groups.iter().flat_map(|g| g.ops.iter());
    let windows = ops.map(|op| (ops::of(op).gives_bytes)(op));
    windows.fold(0, usize::saturating_add).min(limits::BULK_BYTES_MAX)
}

/// Say why, as far as the other side still listens.
pub async fn refuse(line: &Line, writer: &mut Writer, refused: &Refused) {
    let message = Refusal { status: refused.status, words: refused.words.clone().into() };
    line.send(FrameKind::Refusal, 0, &message, &[]);
    let _ = flush(line, writer).await;
}

/// Write all that waits.
///
/// # Errors
/// When the stream is broken.
pub async fn flush(line: &Line, writer: &mut Writer) -> std::io::Result<()> {
    poll_fn(|cx| line.poll_flush(writer.0.as_mut(), cx)).await
}
