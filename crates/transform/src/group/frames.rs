//! Messages between members.
//!
//! ```text
//!   kind u8 | len u64 | crc32c u32 of the bytes | bytes        kind 0: bytes; 1: the call failed, with words
//! ```

use super::payload;
use bytes::{Bytes, BytesMut};
use shoal_env::Stream;
use shoal_vfs::Result;
use std::io::{self, IoSlice};

/// Bytes of a message, at most.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;
const HEAD: usize = 13;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    Bytes(Bytes),
    Failure(Bytes),
}

fn head(kind: u8, bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = kind;
    head[1..9].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    head[9..].copy_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    head
}

/// A connection to another member.
pub(super) struct Link {
    pub(super) rank: usize,
    stream: Stream,
    unread: BytesMut,
}

impl Link {
    pub(super) fn new(rank: usize, stream: Stream) -> Link {
        Link { rank, stream, unread: BytesMut::new() }
    }

    pub(super) async fn send(&mut self, message: &Message) -> io::Result<()> {
        let (kind, bytes) = match message {
            Message::Bytes(bytes) => (0, bytes),
            Message::Failure(bytes) => (1, bytes),
        };
        let head = head(kind, bytes);
        self.stream.writer.write_all(&mut [IoSlice::new(&head), IoSlice::new(bytes)]).await
    }

    /// The next message; an error in words is one of the other member.
    pub(super) async fn receive(&mut self) -> io::Result<Result<Bytes>> {
        self.fill(HEAD).await?;
        let head = self.unread.split_to(HEAD).freeze();
        let number = |at: usize, len: usize| {
            head[at..at + len].iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (kind, len, sum) = (head[0], number(1, 8), number(9, 4));
        if kind > 1 || len > MESSAGE_BYTES_MAX {
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
            if self.stream.reader.read_append(&mut self.unread, READ_BYTES).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}
