//! A pattern in words, for logs, errors and `shoal map`: "47,008 B x 1024 every 376,064 B from 0".

use std::fmt;

use crate::branch::Knot;
use crate::nest::{Level, Shape};
use crate::pattern::{Body, Pattern};
use crate::runs::Runs;

/// A number with commas between thousands.
pub(crate) fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn write_level(f: &mut fmt::Formatter<'_>, level: &Level) -> fmt::Result {
    write!(f, " x {} every {} B", level.quantity, grouped(i128::from(level.stride)))
}

fn write_shape(f: &mut fmt::Formatter<'_>, shape: Shape<'_>) -> fmt::Result {
    write!(f, "{} B", grouped(i128::from(shape.record)))?;
    shape.levels.iter().filter(|level| level.quantity > 1).try_for_each(|level| write_level(f, level))?;
    write!(f, " from {}", grouped(i128::from(shape.offset)))
}

/// Leaves of a tree that are shown, and runs of a list.
const SHOWN: usize = 3;

fn leaves(knot: &Knot) -> usize {
    if knot.is_leaf() { 1 } else { knot.vector.iter().map(leaves).sum() }
}

/// The first leaves of a vector, each vector inside it in brackets.
fn write_vector(f: &mut fmt::Formatter<'_>, knots: &[Knot], shown: &mut usize) -> fmt::Result {
    for (place, knot) in knots.iter().enumerate() {
        if *shown == SHOWN {
            return Ok(());
        }
        f.write_str(if place == 0 { "" } else { ", " })?;
        if knot.is_leaf() {
            write_shape(f, knot.run.shape())?;
            *shown += 1;
        } else {
            f.write_str("(")?;
            write_vector(f, &knot.vector, shown)?;
            f.write_str(")")?;
            write_level(f, &knot.run.level)?;
        }
        f.write_str(if knot.is_anchored { " always" } else { "" })?;
    }
    Ok(())
}

/// The first runs of a list, and how many more there are.
fn write_runs(f: &mut fmt::Formatter<'_>, runs: &Runs) -> fmt::Result {
    for (place, run) in runs.all().iter().take(SHOWN).enumerate() {
        f.write_str(if place == 0 { "" } else { ", " })?;
        write_shape(f, run.shape())?;
    }
    match runs.all().len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, " and {more} more, {} B in all", grouped(i128::from(runs.len()))),
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        if let Some((from, len)) = self.part_of_body() {
            write!(f, "bytes {}..{} of ", grouped(i128::from(from)), grouped(i128::from(from + len)))?;
        }
        match self.body() {
            Body::Nest(nest) => write_shape(f, nest.shape()),
            Body::Runs(runs) => write_runs(f, runs),
            Body::Batched(batched) => {
                let knots = batched.knots();
                let total: usize = knots.iter().map(leaves).sum();
                let mut shown = 0;
                write_vector(f, &knots, &mut shown)?;
                match total.saturating_sub(shown) {
                    0 => Ok(()),
                    more => {
                        write!(f, " and {more} more, {} B in all", grouped(i128::from(batched.len())))
                    }
                }
            }
        }
    }
}
