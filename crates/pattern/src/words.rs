//! A pattern in words, for logs, errors and `shoal map`: "47,008 B x 1024 every 376,064 B from 0".

use std::fmt;

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

/// The first runs of a list, and how many more there are.
fn write_runs(f: &mut fmt::Formatter<'_>, runs: &Runs) -> fmt::Result {
    const SHOWN: usize = 3;
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
        }
    }
}
