//! A pattern on the wire and in the journal.
//!
//! ```text
//!   u8 form    bits 0-3  the form of the body   bit 6  a window follows the body
//!                                              bit 7  regions that touch are one
//!   1 contiguous   zigzag offset, varint length
//!   2 nested       zigzag offset, varint record, u8 levels, innermost first:
//!                               { zigzag stride, varint quantity }
//!   3 list         u32 count, { zigzag offset - end of the region before, varint length }
//!   4 runs         u32 count, { zigzag offset - offset of the run before, varint record, varint quantity,
//!                               zigzag stride if quantity > 1 }
//!   5              reserved for batched trees
//!   window         varint from, varint length, in the body's packed bytes
//! ```
//!
//! A stride of a million records is a dozen bytes. The parts of a list outside its slice are not sent.
//! Decoding uses the same checked constructors as any pattern and ends in the same normal form.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::nest::{Level, Nest};
use crate::pattern::{Body, Pattern, PatternError};
use crate::runs::Run;
use crate::{Region, Window, limits};

const CONTIGUOUS: u8 = 1;
const NESTED: u8 = 2;
const LIST: u8 = 3;
const RUNS: u8 = 4;
const KIND: u8 = 0x0f;
const WINDOWED: u8 = 0x40;
const JOINED: u8 = 0x80;

impl From<PatternError> for DecodeError {
    fn from(error: PatternError) -> Self {
        let limit =
            |what, value: usize, limit: usize| Self::Limit { what, value: value as u64, limit: limit as u64 };
        match error {
            PatternError::OutOfRange => Self::Invalid("pattern: a region is out of range"),
            PatternError::TooLong => Self::Invalid("pattern: too many bytes"),
            PatternError::TooDeep { levels } => {
                limit("a pattern's levels", levels, limits::NESTING_DEPTH_MAX)
            }
            PatternError::TooManyRegions { regions } => {
                limit("a pattern's regions", regions, limits::LIST_REGIONS_MAX)
            }
        }
    }
}

impl Codec for Pattern {
    fn encode(&self, writer: &mut Writer) {
        let joined = if self.joined() { JOINED } else { 0 };
        match self.body() {
            Body::Nest(nest) => {
                let windowed = self.part_of_body();
                let kind = if nest.levels.is_empty() { CONTIGUOUS } else { NESTED };
                writer.put_u8(kind | joined | window_bit(windowed));
                put_nest(writer, nest);
                put_window(writer, windowed);
            }
            Body::Runs(runs) => {
                let (runs, from) = runs.touched(self.from(), self.len());
                let total: u64 = runs.iter().map(Run::len).sum();
                let windowed = (self.len() < total).then_some((from, self.len()));
                let kind = if is_plain(runs) { LIST } else { RUNS };
                writer.put_u8(kind | joined | window_bit(windowed));
                put_runs(writer, runs, kind);
                put_window(writer, windowed);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let form = reader.get_u8()?;
        if form & !(KIND | WINDOWED | JOINED) != 0 {
            return Err(DecodeError::Invalid("pattern"));
        }
        let body = match form & KIND {
            CONTIGUOUS => Self::contiguous(reader.get_zigzag()?, reader.get_varint()?)?,
            NESTED => get_nested(reader)?,
            LIST => Self::list(get_regions(reader)?)?,
            RUNS => Self::of_runs(get_runs(reader)?)?,
            _ => return Err(DecodeError::Invalid("pattern")),
        };
        let window =
            if form & WINDOWED != 0 { Some((reader.get_varint()?, reader.get_varint()?)) } else { None };
        let pattern = match window {
            None => body,
            Some((from, len)) if from.checked_add(len).is_some_and(|end| end <= body.len()) => {
                body.narrow(from, len)
            }
            Some(_) => return Err(DecodeError::Invalid("window of a pattern")),
        };
        // Coalesced again, not trusted: a hostile pattern could otherwise make joining take for ever.
        Ok(if form & JOINED != 0 { pattern.coalesce() } else { pattern })
    }
}

/// Two varints: where it begins, and its length.
impl Codec for Window {
    fn encode(&self, writer: &mut Writer) {
        put_window(writer, Some((self.from, self.len)));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { from: reader.get_varint()?, len: reader.get_varint()? })
    }
}

fn window_bit(window: Option<(u64, u64)>) -> u8 {
    if window.is_some() { WINDOWED } else { 0 }
}

fn put_window(writer: &mut Writer, window: Option<(u64, u64)>) {
    if let Some((from, len)) = window {
        writer.put_varint(from);
        writer.put_varint(len);
    }
}

fn put_nest(writer: &mut Writer, nest: &Nest) {
    writer.put_zigzag(nest.offset);
    writer.put_varint(nest.record);
    if nest.levels.is_empty() {
        return;
    }
    writer.put_u8(nest.levels.len() as u8);
    for level in &nest.levels {
        writer.put_zigzag(level.stride);
        writer.put_varint(level.quantity);
    }
}

fn get_nested(reader: &mut Reader<'_>) -> Result<Pattern, DecodeError> {
    let (offset, record) = (reader.get_zigzag()?, reader.get_varint()?);
    let depth = usize::from(reader.get_u8()?);
    if depth > limits::NESTING_DEPTH_MAX {
        return Err(PatternError::TooDeep { levels: depth }.into());
    }
    let mut levels = Vec::with_capacity(depth);
    for _ in 0..depth {
        levels.push(Level { stride: reader.get_zigzag()?, quantity: reader.get_varint()? });
    }
    Ok(Pattern::nested(offset, record, levels)?)
}

fn is_plain(runs: &[Run]) -> bool {
    runs.iter().all(Run::is_plain)
}

fn put_runs(writer: &mut Writer, runs: &[Run], kind: u8) {
    writer.put_count(runs.len());
    let mut before = 0_i64;
    for run in runs {
        writer.put_zigzag(run.offset.wrapping_sub(before));
        writer.put_varint(run.record);
        if kind == LIST {
            before = run.region(0).end();
            continue;
        }
        before = run.offset;
        writer.put_varint(run.level.quantity);
        if run.level.quantity > 1 {
            writer.put_zigzag(run.level.stride);
        }
    }
}

fn get_regions(reader: &mut Reader<'_>) -> Result<Vec<Region>, DecodeError> {
    let count = reader.get_count(limits::LIST_REGIONS_MAX, 2)?;
    let mut regions = Vec::with_capacity(count);
    let mut before = 0_i64;
    for _ in 0..count {
        let region = Region::new(before.wrapping_add(reader.get_zigzag()?), reader.get_varint()?);
        before = region.end();
        regions.push(region);
    }
    Ok(regions)
}

fn get_runs(reader: &mut Reader<'_>) -> Result<Vec<Run>, DecodeError> {
    let count = reader.get_count(limits::LIST_REGIONS_MAX, 3)?;
    let mut runs = Vec::with_capacity(count);
    let mut before = 0_i64;
    for _ in 0..count {
        let offset = before.wrapping_add(reader.get_zigzag()?);
        let (record, quantity) = (reader.get_varint()?, reader.get_varint()?);
        let stride = if quantity > 1 { reader.get_zigzag()? } else { 0 };
        before = offset;
        runs.push(Run { offset, record, level: Level { stride, quantity } });
    }
    Ok(runs)
}
