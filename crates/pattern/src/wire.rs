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
//!   5 batched      a vector: varint nodes, in order: { u8 kind, varint quantity and zigzag stride if repeated,
//!                               the leaf or the vector }
//!                  kind  bit 0  a vector follows, else a leaf: zigzag offset - end of the leaf before,
//!                               varint record
//!                        bit 1  the turns of the vectors around do not move it
//!                        bit 2  it is repeated; else it is there once
//!   window         varint from, varint length, in the body's packed bytes
//! ```
//!
//! A stride of a million records is a dozen bytes. The parts of a list outside its slice are not sent. A list
//! that is longer than [`limits::REQUEST_REGIONS_MAX`] is first cut into several requests
//! ([`Pattern::requests`]). Decoding uses the same checked constructors as any pattern and ends in the same
//! normal form.

use crate::branch::{self, Branch, Knot, Limb};
use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::nest::{Level, Nest};
use crate::pattern::{Body, Pattern, PatternError};
use crate::runs::Run;
use crate::{Region, Window, limits};

const CONTIGUOUS: u8 = 1;
const NESTED: u8 = 2;
const LIST: u8 = 3;
const RUNS: u8 = 4;
const BATCHED: u8 = 5;
const KIND: u8 = 0x0f;
const WINDOWED: u8 = 0x40;
const JOINED: u8 = 0x80;

const VECTOR: u8 = 1;
const ANCHORED: u8 = 2;
const REPEATED: u8 = 4;

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
            PatternError::TooManyRegions { regions, limit: most } => {
                limit("a pattern's regions", regions, most)
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
                debug_assert!(
                    runs.len() <= limits::REQUEST_REGIONS_MAX,
                    "{} regions in one request",
                    runs.len()
                );
                let kind = if is_plain(runs) { LIST } else { RUNS };
                writer.put_u8(kind | joined | window_bit(windowed));
                put_runs(writer, runs, kind);
                put_window(writer, windowed);
            }
            Body::Batched(batched) => {
                let windowed = self.part_of_body();
                writer.put_u8(BATCHED | joined | window_bit(windowed));
                put_vector(writer, &batched.knots(), &mut 0);
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
            BATCHED => {
                let mut nodes = limits::REQUEST_REGIONS_MAX;
                let vector = get_vector(reader, 0, &mut nodes, &mut 0)?;
                let knots = branch::normal(&vector)?;
                drop(vector);
                Self::of_knots(&knots)?
            }
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
    let count = reader.get_count(limits::REQUEST_REGIONS_MAX, 2)?;
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
    let count = reader.get_count(limits::REQUEST_REGIONS_MAX, 3)?;
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

fn put_vector(writer: &mut Writer, knots: &[Knot], before: &mut i64) {
    writer.put_varint(knots.len() as u64);
    for knot in knots {
        let repeated = !knot.run.is_plain();
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let kind = bit(!knot.is_leaf(), VECTOR) | bit(knot.is_anchored, ANCHORED) | bit(repeated, REPEATED);
        writer.put_u8(kind);
        if repeated {
            writer.put_varint(knot.run.level.quantity);
            writer.put_zigzag(knot.run.level.stride);
        }
        if knot.is_leaf() {
            writer.put_zigzag(knot.run.offset.wrapping_sub(*before));
            writer.put_varint(knot.run.record);
            *before = knot.run.region(0).end();
        } else {
            put_vector(writer, &knot.vector, before);
        }
    }
}

/// A vector inside `depth` others; `nodes` are left to the whole tree.
fn get_vector(
    reader: &mut Reader<'_>,
    depth: usize,
    nodes: &mut usize,
    before: &mut i64,
) -> Result<Vec<Branch>, DecodeError> {
    if depth > limits::BATCH_DEPTH_MAX {
        return Err(PatternError::TooDeep { levels: depth }.into());
    }
    let count = reader.get_varint()?;
    let taken = usize::try_from(count).ok().filter(|count| *count <= *nodes);
    let count = taken.ok_or(DecodeError::Limit {
        what: "a pattern's nodes",
        value: count,
        limit: limits::REQUEST_REGIONS_MAX as u64,
    })?;
    // The smallest node is a kind and an empty vector.
    if count > reader.remaining() / 2 {
        return Err(DecodeError::Truncated);
    }
    *nodes -= count;
    let mut vector = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = reader.get_u8()?;
        if kind & !(VECTOR | ANCHORED | REPEATED) != 0 {
            return Err(DecodeError::Invalid("pattern: kind of a node"));
        }
        let (quantity, stride) =
            if kind & REPEATED == 0 { (1, 0) } else { (reader.get_varint()?, reader.get_zigzag()?) };
        let (offset, limb) = if kind & VECTOR == 0 {
            let offset = before.wrapping_add(reader.get_zigzag()?);
            let record = reader.get_varint()?;
            *before = Region::new(offset, record).end();
            (offset, Limb::Bytes(record))
        } else {
            (0, Limb::Vector(get_vector(reader, depth + 1, nodes, before)?))
        };
        let is_absolute = kind & ANCHORED != 0;
        vector.push(Branch { offset, is_absolute, stride, quantity, limb });
    }
    Ok(vector)
}
