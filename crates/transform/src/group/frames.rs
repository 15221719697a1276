//! Messages between the members of a group (processes that open files together).
//!
//! ```text
//!   kind u8 | len u64 | crc32c u32 of the bytes | bytes        kind 0: bytes; 1: the call failed, with words
//! ```
//!
//! The reader gives the number of bytes that it accepts, so a connection of an unknown program costs a
//! known amount. After a message that was sent only in part, the receiver could not find the beginning of
//! the next message. So the link then sends no further message.

use super::payload;
use bytes::{Bytes, BytesMut};
use shoal_env::Stream;
use shoal_proto::Status;
use shoal_vfs::{Error, Result};
use std::io::{self, IoSlice};

/// Bytes of a message, at most.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 20;
const HEAD: usize = 13;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes that are read in vain while the other member reads a failure, at most.
const DRAIN_BYTES_MAX: usize = 64 << 20;

/// A message of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Bytes(Bytes),
    Failure(Bytes),
}

/// A message over the limit: found by its sender, so that the error names the cause.
pub(super) fn check_len(len: usize) -> Result<()> {
    if len <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let words =
        format!("a message to the other members has {len} bytes, and at most {MESSAGE_BYTES_MAX} are sent");
    Err(Error::new(Status::OverLimit, "group").because(words))
}

fn head(kind: u8, bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = kind;
    head[1..9].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    head[9..].copy_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    head
}

/// A connection to another member.
pub(super) struct MemberLink {
    pub(super) rank: usize,
    stream: Stream,
    unread: BytesMut,
    /// A message was begun and not ended.
    is_torn: bool,
}

impl MemberLink {
    pub(super) fn new(rank: usize, stream: Stream) -> MemberLink {
        MemberLink { rank, stream, unread: BytesMut::new(), is_torn: false }
    }

    pub(super) async fn send(&mut self, said: &Said) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "an earlier message was sent in part"));
        }
        let (kind, bytes) = match said {
            Said::Bytes(bytes) => (0, bytes),
            Said::Failure(bytes) => (1, bytes),
        };
        let head = head(kind, bytes);
        self.is_torn = true;
        self.stream.writer.write_all(&mut [IoSlice::new(&head), IoSlice::new(bytes)]).await?;
        self.is_torn = false;
        Ok(())
    }

    /// The next message, of at most `limit` bytes; an error in words is one of the other member.
    pub(super) async fn receive(&mut self, limit: usize) -> io::Result<Result<Bytes>> {
        self.fill(HEAD).await?;
        let head = self.unread.split_to(HEAD).freeze();
        let number = |at: usize, len: usize| {
            head[at..at + len].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (kind, len, sum) = (head[0], number(1, 8), number(9, 4));
        let limit = if kind == 1 { limit.max(payload::FAILURE_BYTES_MAX) } else { limit };
        if kind > 1 || len > limit as u64 {
            return Ok(Err(payload::bad("an unknown kind, or too long")));
        }
        self.fill(len as usize).await?;
        let bytes = self.unread.split_to(len as usize).freeze();
        if u64::from(crc32c::crc32c(&bytes)) != sum {
            return Ok(Err(payload::bad("a wrong check sum")));
        }
        Ok(if kind == 1 { Err(payload::read_failure(&bytes)) } else { Ok(bytes) })
    }

    async fn fill(&mut self, len: usize) -> io::Result<()> {
        while self.unread.len() < len {
            let max = READ_BYTES.min(len - self.unread.len());
            if self.stream.reader.read_append(&mut self.unread, max).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Send a failure, and wait until the other member has closed: if this side closed with unread bytes, the
    /// other member might not receive the failure.
    pub(super) async fn farewell(&mut self, failure: &Said) {
        let sent = async {
            self.send(failure).await?;
            self.stream.writer.close().await?;
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX {
                self.unread.clear();
                match self.stream.reader.read_append(&mut self.unread, READ_BYTES).await? {
                    0 => break,
                    read => drained += read,
                }
            }
            Ok::<_, io::Error>(())
        };
        let _ = sent.await;
    }
}
