//! Frames: how messages lie on a stream.
//!
//! ```text
//!  0        4     5     6       8            16         20         24         28        32
//!  ┌────────┬─────┬─────┬───────┬────────────┬──────────┬──────────┬──────────┬─────────┬── ─ ──┬── ─ ──┐
//!  │ "SHOL" │kind │seal │version│ tag (u64)  │ body len │ bulk len │ body crc │head crc │ body  │ bulk  │
//!  └────────┴─────┴─────┴───────┴────────────┴──────────┴──────────┴──────────┴─────────┴── ─ ──┴── ─ ──┘
//! ```
//! The tag pairs a reply with its request. Head and body carry CRC-32C; bulk data is covered by the
//! transport's checksum and is never copied into the body, so it goes from socket to disk in the buffer it
//! came in. Lengths are checked before anything is allocated.
//!
//! If the byte `seal` is 1, the 16 bytes of the frame's seal follow the bulk ([`crate::seal`]). If it is 2,
//! body and bulk are also encrypted, and the body's checksum is 0: one over the plain body would show some of
//! it. Else the byte is 0. **A checksum finds damage, and no forgery**: only a seal does.

use crate::codec::{Codec, DecodeError, Writer};
use crate::limits;
use crate::seal::SEAL_BYTES;
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"SHOL";
/// Where a head says whether its frame is sealed.
const SEALED_AT: usize = 5;
const SEALED: u8 = 1;
const ENCRYPTED: u8 = 2;

/// Kind of a frame's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// [`Hello`](crate::message::Hello), client to server.
    Hello = 1,
    /// [`Challenge`](crate::message::Challenge), server to client.
    Challenge = 2,
    /// [`Attach`](crate::message::Attach), client to server.
    Attach = 3,
    /// [`Attached`](crate::message::Attached), server to client.
    Attached = 4,
    /// [`Request`](crate::message::Request), client to server.
    Request = 5,
    /// [`Reply`](crate::message::Reply), server to client.
    Reply = 6,
    /// [`Refusal`](crate::message::Refusal), then the connection ends.
    Refusal = 7,
    /// [`Piece`](crate::message::Piece), server to client.
    Piece = 8,
    /// [`Leave`](crate::message::Leave), client to server.
    Leave = 9,
    /// [`Grant`](crate::message::Grant), server to client.
    Grant = 10,
    /// [`Give`](crate::message::Give), client to server.
    Give = 11,
}

impl FrameKind {
    fn from_code(code: u8) -> Result<FrameKind, DecodeError> {
        Ok(match code {
            1 => FrameKind::Hello,
            2 => FrameKind::Challenge,
            3 => FrameKind::Attach,
            4 => FrameKind::Attached,
            5 => FrameKind::Request,
            6 => FrameKind::Reply,
            7 => FrameKind::Refusal,
            8 => FrameKind::Piece,
            9 => FrameKind::Leave,
            10 => FrameKind::Grant,
            11 => FrameKind::Give,
            _ => return Err(DecodeError::Invalid("frame kind")),
        })
    }
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the body.
    pub kind: FrameKind,
    /// Version of the protocol of the body.
    pub version: u16,
    /// Pairs replies with requests.
    pub tag: u64,
    /// The encoded message.
    pub body: Bytes,
    /// The bulk data.
    pub bulk: Bytes,
}

/// The seal of a received frame, and the bytes that it is over.
#[derive(Clone, Debug)]
pub enum Sealed {
    /// It has a MAC.
    Mac {
        /// Head, body and bulk.
        bytes: Bytes,
        /// Where the bulk begins.
        bulk_at: usize,
        /// The MAC.
        seal: [u8; SEAL_BYTES],
    },
    /// It is encrypted, and so the frame has no body yet, and no bulk.
    Encrypted {
        /// Head, body, bulk and the cipher's tag.
        bytes: BytesMut,
        /// Where the bulk begins.
        bulk_at: usize,
    },
}

/// Say in its head that a frame is sealed; `frame` begins with the head.
pub(crate) fn mark_sealed(frame: &mut [u8]) {
    frame[SEALED_AT] = SEALED;
    sum_head(frame);
}

/// The same of one that is encrypted: its head has no checksum of the body.
pub(crate) fn mark_encrypted(frame: &mut [u8]) {
    frame[SEALED_AT] = ENCRYPTED;
    frame[24..28].fill(0);
    sum_head(frame);
}

fn sum_head(frame: &mut [u8]) {
    let crc = crc32c::crc32c(&frame[..28]);
    frame[28..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Bytes of the whole frame that `bytes` begin, as its head says, unchecked; `None`: the head is incomplete.
pub fn whole_bytes(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<HEAD_BYTES>()?;
    let (body, bulk) = lengths(head);
    Some(HEAD_BYTES + body as usize + bulk as usize + seal_bytes(head))
}

/// Lengths of body and bulk, unchecked.
fn lengths(head: &[u8; HEAD_BYTES]) -> (u32, u32) {
    let at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    (at(16), at(20))
}

fn seal_bytes(head: &[u8; HEAD_BYTES]) -> usize {
    if head[SEALED_AT] == 0 { 0 } else { SEAL_BYTES }
}

impl Frame {
    /// The message of a frame.
    pub fn message<T: Codec>(&self) -> Result<T, DecodeError> {
        T::from_bytes(&self.body)
    }

    /// Takes one whole frame without a seal from the front of `buf`; `None`: the frame is incomplete (and
    /// `buf` has room reserved for it).
    ///
    /// # Errors
    /// When the bytes are no frame, or it is sealed; the connection is then of no further use.
    pub fn take(buf: &mut BytesMut) -> Result<Option<Frame>, DecodeError> {
        match Frame::take_any(buf)? {
            Some((frame, None)) => Ok(Some(frame)),
            Some((_, Some(_))) => Err(DecodeError::Invalid("frame with a seal")),
            None => Ok(None),
        }
    }

    /// The same of a frame that may be sealed. The caller checks the seal ([`crate::seal::admit`]) before it
    /// looks at the frame; one that is encrypted gets its body and bulk there.
    ///
    /// # Errors
    /// When the bytes are no frame; the connection is then of no further use.
    pub fn take_any(buf: &mut BytesMut) -> Result<Option<(Frame, Option<Sealed>)>, DecodeError> {
        let Some(head) = buf.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..4] != MAGIC || head[SEALED_AT] > ENCRYPTED || u32_at(28) != crc32c::crc32c(&head[..28]) {
            return Err(DecodeError::Invalid("frame head"));
        }
        let kind = FrameKind::from_code(head[4])?;
        let version = u16::from_le_bytes([head[6], head[7]]);
        let tag = u64::from_le_bytes([
            head[8], head[9], head[10], head[11], head[12], head[13], head[14], head[15],
        ]);
        let (body_len, bulk_len) = lengths(head);
        let body_len = within("frame body", body_len, limits::BODY_BYTES_MAX)?;
        let bulk_len = within("frame bulk", bulk_len, limits::BULK_BYTES_MAX)?;
        let (body_crc, seal_len) = (u32_at(24), seal_bytes(head));
        let total = HEAD_BYTES + body_len + bulk_len + seal_len;
        if buf.len() < total {
            buf.reserve(total - buf.len());
            return Ok(None);
        }
        let (bulk_at, is_encrypted) = (HEAD_BYTES + body_len, head[SEALED_AT] == ENCRYPTED);
        let bytes = buf.split_to(total);
        if is_encrypted {
            let frame = Frame { kind, version, tag, body: Bytes::new(), bulk: Bytes::new() };
            return Ok(Some((frame, Some(Sealed::Encrypted { bytes, bulk_at }))));
        }
        let mut frame = bytes.freeze();
        let seal = frame.split_off(total - seal_len);
        let sealed =
            seal.first_chunk().map(|seal| Sealed::Mac { bytes: frame.clone(), bulk_at, seal: *seal });
        frame.advance(HEAD_BYTES);
        let body = frame.split_to(body_len);
        if crc32c::crc32c(&body) != body_crc {
            return Err(DecodeError::Invalid("frame body's checksum"));
        }
        Ok(Some((Frame { kind, version, tag, body, bulk: frame }, sealed)))
    }

    /// Appends the frame's head and body to `out`; the caller sends `bulk_len` bytes of bulk after them.
    pub fn put<T: Codec>(
        kind: FrameKind,
        version: u16,
        tag: u64,
        message: &T,
        bulk_len: usize,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.resize(start + HEAD_BYTES, 0);
        let mut writer = Writer::from_vec(std::mem::take(out));
        message.encode(&mut writer);
        *out = writer.into_vec();
        let (head, body) = out[start..].split_at_mut(HEAD_BYTES);
        head[..4].copy_from_slice(&MAGIC);
        head[4] = kind as u8;
        head[6..8].copy_from_slice(&version.to_le_bytes());
        head[8..16].copy_from_slice(&tag.to_le_bytes());
        head[16..20].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[20..24].copy_from_slice(&(bulk_len as u32).to_le_bytes());
        head[24..28].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let crc = crc32c::crc32c(&head[..28]);
        head[28..32].copy_from_slice(&crc.to_le_bytes());
    }
}

fn within(what: &'static str, value: u32, limit: usize) -> Result<usize, DecodeError> {
    let value = value as usize;
    if value > limit {
        return Err(DecodeError::Limit { what, value: value as u64, limit: limit as u64 });
    }
    Ok(value)
}
