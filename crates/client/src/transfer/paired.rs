//! Transfers between a pattern of a file and a pattern of memory: bytes go straight to their places.
//!
//! From Galley: each transfer has a stride in the file and one in memory, so a gather or scatter needs no
//! buffer in between. In a read, each run of bytes from a server is copied to its regions of memory. In a
//! write, bytes are sent from the caller's memory without a copy if they lie in few or in large pieces
//! (`write.rs` has the limits).

use super::Plan;
use super::read::Fetched;
use super::read::Holes;
use crate::core::Operation;
use crate::{Error, OpenFile};
use bytes::Bytes;
use shoal_pattern::{Pairing, Pattern};
use shoal_proto::Status;
use std::cell::RefCell;
use std::ops::Range;

/// Memory that is written from.
pub(super) struct Source<'a> {
    pub(super) data: &'a Bytes,
    /// Where its packed bytes lie; `None`: densely.
    pub(super) memory: Option<&'a Pattern>,
}

impl<'a> Source<'a> {
    /// Dense bytes.
    pub(super) fn packed(data: &'a Bytes) -> Source<'a> {
        Source { data, memory: None }
    }
}

/// The places of packed bytes, in order.
pub(super) fn places(memory: Option<&Pattern>, packed: u64, len: u64, mut of: impl FnMut(Range<usize>)) {
    match memory {
        None => of(packed as usize..(packed + len) as usize),
        Some(memory) => memory.iter_window(packed, len).for_each(|region| {
            let from = region.offset as usize;
            of(from..from + region.len as usize);
        }),
    }
}

/// The memory's side lies inside the memory.
fn check(o: &Operation, memory: &Pattern, len: usize) -> Result<(), Error> {
    let Some((from, end)) = memory.bounds() else { return Ok(()) };
    if from >= 0 && u64::try_from(end).is_ok_and(|end| end <= len as u64) {
        return Ok(());
    }
    let words = format!("the memory's pattern reaches from {from} to {end}, outside of {len} bytes");
    Err(o.error(Status::Invalid).because(words))
}

impl OpenFile {
    /// Read the file's side of a pairing straight to its memory's side in `memory`. Gives how many packed
    /// bytes there were: those after the last byte inside the file are left out, and their memory is left as
    /// it is; holes before it are zeros. Where regions of memory overlap, any of their bytes may stay.
    ///
    /// # Errors
    /// As [`OpenFile::read_pattern`]; `Invalid`: the memory's side reaches outside of `memory`.
    pub async fn read_paired(&self, pairing: &Pairing<'_>, memory: &mut [u8]) -> Result<u64, Error> {
        let o = self.0.client.core.begin("read", Some(self.0.handle));
        check(&o, pairing.memory(), memory.len())?;
        let to = Some(pairing.memory());
        let memory = RefCell::new(memory);
        let place = async |plan: &Plan<'_>, fetched: &[Fetched], len: u64| {
            let mut memory = memory.borrow_mut();
            let got: u64 = fetched.iter().map(Fetched::len).sum();
            if got < len {
                // Holes are not sent.
                places(to, 0, len, |range| memory[range].fill(0));
            }
            for part in fetched {
                for (packed, own) in part.ranges(plan)? {
                    let mut own = &own[..own.len().min(len.saturating_sub(packed) as usize)];
                    places(to, packed, own.len() as u64, |range| {
                        let (now, rest) = own.split_at(range.len());
                        memory[range].copy_from_slice(now);
                        own = rest;
                    });
                }
            }
            plan.core.copied(len as usize);
            Ok(len)
        };
        Ok(self.0.read_to(&o, pairing.file(), Holes::AsMet, place).await?.0)
    }

    /// Write the file's side of a pairing from its memory's side in `memory`.
    ///
    /// # Errors
    /// As [`OpenFile::write_pattern`]; `Invalid`: the memory's side reaches outside of `memory`.
    pub async fn write_paired(&self, pairing: &Pairing<'_>, memory: &Bytes) -> Result<(), Error> {
        let o = self.0.client.begin("write", Some(self.0.handle));
        check(&o, pairing.memory(), memory.len())?;
        let source = Source { data: memory, memory: Some(pairing.memory()) };
        self.0.write_from(&o, pairing.file(), &source).await
    }
}
