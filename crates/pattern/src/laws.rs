//! Checks the laws of placements and distributions byte by byte, for the tests of their implementations.
//!
//! Each check looks at a byte and its neighbours, and returns the first broken law, with the place, or
//! `None`.
//!
//! ```text
//!   broken_law ──┬─▶ broken_placement_law     run, object, holes
//!                ├─▶ the inverse              logical(locate(l)) = l
//!                └─▶ cycles and sizes         next_on, cycle, physical_size, logical_end
//! ```

use crate::{Distribution, Located, Placement};

/// The first law of [`Distribution`] that `distribution` breaks for a file of some size up to `size`, in
/// words with the place; `None` if it keeps them all. Checks every byte for every server: for small files.
pub fn broken_law(distribution: &dyn Distribution, size: u64) -> Option<String> {
    let broken = |logical| {
        broken_place(distribution, logical)
            .or_else(|| broken_inverse(distribution, logical))
            .or_else(|| {
                (0..distribution.objects()).find_map(|server| broken_next(distribution, server, logical))
            })
            .or_else(|| {
                (0..distribution.objects()).find_map(|server| broken_size(distribution, server, logical))
            })
            .map(|law| format!("at byte {logical}: {law}"))
    };
    (0..=size).find_map(broken)
}

/// The first law of [`Placement`] that `placement` breaks in the bytes `0 ..= size`, in words with the place;
/// `None` if it keeps them all. Asks for every byte: for small files.
pub fn broken_placement_law(placement: &dyn Placement, size: u64) -> Option<String> {
    (0..=size)
        .find_map(|logical| broken_place(placement, logical).map(|law| format!("at byte {logical}: {law}")))
}

/// Of `locate` and its run.
fn broken_place(placement: &dyn Placement, logical: u64) -> Option<String> {
    let found = placement.locate(logical);
    let is_place = match found {
        Located::Piece(piece) => piece.object < placement.objects() && piece.run > 0,
        Located::Hole { run } => run > 0,
    };
    if !is_place {
        return Some(format!("located at {found:?}, which is no place"));
    }
    let next = placement.locate(logical + 1);
    let goes_on = match (found, next) {
        (Located::Piece(piece), Located::Piece(next)) => {
            (next.object, next.physical) == (piece.object, piece.physical + 1)
        }
        (Located::Hole { .. }, Located::Hole { .. }) => true,
        _ => false,
    };
    let run_goes_on = next.run() >= found.run().saturating_sub(1);
    (found.run() > 1 && !(goes_on && run_goes_on))
        .then(|| format!("its run {found:?} does not go on: {next:?}"))
}

/// Of `logical` as the inverse of `locate`.
fn broken_inverse(distribution: &dyn Distribution, logical: u64) -> Option<String> {
    let Some(piece) = distribution.locate(logical).piece() else {
        return Some("located in a hole, which no distribution has".to_owned());
    };
    let back = distribution.logical(piece.object, piece.physical);
    (back != logical).then(|| format!("located at {piece:?}, where byte {back} is said to be"))
}

/// Of `next_on` and `cycle`.
fn broken_next(distribution: &dyn Distribution, server: u32, logical: u64) -> Option<String> {
    let holds = |byte| holder(distribution, byte) == Some(server);
    if let Some(next) = distribution.next_on(server, logical)
        && (next < logical || !holds(next) || (logical..next).any(holds))
    {
        return Some(format!("byte {next} is not the next on server {server}"));
    }
    let cycle = distribution.cycle(server)?;
    if !cycle.is_valid() {
        return Some(format!("server {server} has no possible cycle: {cycle:?}"));
    }
    let said = cycle.next(logical) == Some(logical);
    (said != holds(logical)).then(|| format!("server {server} has it or not, against {cycle:?}"))
}

/// Of `physical_size` and `logical_end`, for a file that ends after `logical`.
fn broken_size(distribution: &dyn Distribution, server: u32, logical: u64) -> Option<String> {
    let size = logical + 1;
    let physical = distribution.physical_size(server, size);
    let end = distribution.logical_end(server, physical);
    let piece = distribution.locate(logical).piece()?;
    let is_last = piece.object == server;
    if end > size || (is_last && end != size) {
        return Some(format!("a file of {size} bytes ends at {end} by server {server}'s {physical} bytes"));
    }
    (is_last && physical <= piece.physical)
        .then(|| format!("server {server}'s {physical} bytes do not hold byte {}", piece.physical))
}

fn holder(distribution: &dyn Distribution, logical: u64) -> Option<u32> {
    distribution.locate(logical).piece().map(|piece| piece.object)
}
