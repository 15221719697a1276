//! Cuts the received bytes of a connection into frames. Small frames are read into one buffer that all
//! connections share, so an idle connection holds no buffer. The rest of a large frame is read directly into
//! the frame's memory.
//!
//! On a sealed connection the seal of each frame is checked here (decision 0029). A frame without a seal
//! leaves here only during the handshake: if it is a refusal, marked as unproven.

use super::Ended;
use bytes::BytesMut;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Counters, ReaderImpl};
use shoal_proto::frame::{HEAD_BYTES, whole_bytes};
use shoal_proto::seal::{Opener, SEAL_BYTES, admit};
use shoal_proto::{Frame, FrameKind, limits};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// A frame that lacks more than this is read into its place.
const LARGE_BYTES: usize = 16 * 1024;
/// The longest frame.
const FRAME_BYTES_MAX: usize = HEAD_BYTES + limits::BODY_BYTES_MAX + limits::BULK_BYTES_MAX + SEAL_BYTES;

/// The buffer of all connections of a server.
#[derive(Clone)]
pub struct Scratch {
    bytes: Rc<RefCell<Vec<u8>>>,
    counters: Arc<Counters>,
}

impl Scratch {
    /// The buffer of an environment, where copies out of it are counted.
    pub fn new(counters: &Arc<Counters>) -> Scratch {
        Scratch { bytes: Rc::new(RefCell::new(vec![0; READ_BYTES])), counters: counters.clone() }
    }

    fn copied(&self, bytes: usize) {
        Counters::add(&self.counters.copied_bytes, bytes as u64);
    }
}

/// The incoming side of a connection.
pub struct Frames {
    scratch: Scratch,
    buf: BytesMut,
    /// Bytes that lack of a large frame at the front: nothing else is read before them.
    missing: usize,
    /// Checks the seals, once the connection is sealed.
    opener: Option<Opener>,
}

/// Whether a frame has the seal that its connection requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has, or none is required.
    Proven,
    /// It has none. During the handshake that may be the refusal of a side that has not the key.
    Unproven,
}

impl Frames {
    /// An empty one.
    pub fn new(scratch: Scratch) -> Frames {
        Frames { scratch, buf: BytesMut::new(), missing: 0, opener: None }
    }

    /// From the next frame on each must have its seal.
    pub fn open_with(&mut self, opener: Opener) {
        self.opener = Some(opener);
    }

    /// Read the available bytes of the stream, up to a buffer. `Ok(false)`: the stream has ended.
    pub fn poll_fill(&mut self, reader: &mut dyn ReaderImpl, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.missing > 0 {
            let n = ready!(reader.poll_read_append(cx, &mut self.buf, self.missing))?;
            self.missing -= n;
            return Poll::Ready(Ok(n > 0));
        }
        let mut scratch = self.scratch.bytes.borrow_mut();
        let n = ready!(reader.poll_read(cx, &mut scratch))?;
        if self.buf.is_empty() {
            // Room for all of a large frame at once: the received part need not move again.
            let whole = whole_bytes(&scratch[..n]).unwrap_or(0);
            self.buf.reserve(whole.min(FRAME_BYTES_MAX).max(n));
        }
        self.buf.extend_from_slice(&scratch[..n]);
        self.scratch.copied(n);
        Poll::Ready(Ok(n > 0))
    }

    /// The next whole frame, if it is there.
    ///
    /// # Errors
    /// When the bytes are no frame (`Garbage`), or one that the other side did not send (`Forged`).
    pub fn next(&mut self) -> Result<Option<Frame>, Ended> {
        match self.take()? {
            Some((_, Standing::Unproven)) => Err(Ended::Forged),
            taken => Ok(taken.map(|(frame, _)| frame)),
        }
    }

    /// The same during the handshake, where a refusal may come without a seal: it is not proven then.
    ///
    /// # Errors
    /// As [`Frames::next`].
    pub fn next_of_handshake(&mut self) -> Result<Option<(Frame, Standing)>, Ended> {
        match self.take()? {
            Some((frame, Standing::Unproven)) if frame.kind != FrameKind::Refusal => Err(Ended::Forged),
            taken => Ok(taken),
        }
    }

    fn take(&mut self) -> Result<Option<(Frame, Standing)>, Ended> {
        if self.missing > 0 {
            return Ok(None);
        }
        let room = self.buf.capacity();
        if let Some((mut frame, sealed)) = Frame::take_any(&mut self.buf).map_err(|_| Ended::Garbage)? {
            if self.buf.is_empty() {
                self.buf = BytesMut::new();
            }
            let is_sealed = sealed.is_some();
            let admitted = admit(self.opener.as_mut(), &mut frame, sealed);
            if admitted.is_ok() || mutant::is(Mutant::SealNotChecked) {
                return Ok(Some((frame, Standing::Proven)));
            }
            return match is_sealed {
                false => Ok(Some((frame, Standing::Unproven))),
                true if self.opener.is_some() => Err(Ended::Forged),
                // The other side itself sends what this connection does not have.
                true => Err(Ended::Garbage),
            };
        }
        if self.buf.capacity() != room {
            // The received part moved to a place with room for the whole frame.
            self.scratch.copied(self.buf.len());
        }
        // The head was checked by `take_any`, so its lengths are within their limits.
        let whole = whole_bytes(&self.buf).unwrap_or(0);
        let missing = whole.saturating_sub(self.buf.len());
        self.missing = if missing > LARGE_BYTES { missing } else { 0 };
        Ok(None)
    }

    /// Lengths of body and bulk in the frame at the front, unchecked.
    pub fn lengths(&self) -> Option<(usize, usize)> {
        lengths(&self.buf)
    }
}

fn lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.first_chunk::<HEAD_BYTES>()?;
    let at = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize;
    Some((at(16), at(20)))
}
