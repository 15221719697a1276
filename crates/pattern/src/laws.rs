//! The laws of a distribution, checked byte by byte; for the tests of its implementations.

use crate::Distribution;

/// The first law of [`Distribution`] that `distribution` breaks for a file of some size up to `size`, in
/// words with the place; `None` if it keeps them all. Checks every byte for every server: for small files.
pub fn broken_law(distribution: &dyn Distribution, size: u64) -> Option<String> {
    let broken = |logical| {
        broken_place(distribution, logical)
            .or_else(|| {
                (0..distribution.servers()).find_map(|server| broken_next(distribution, server, logical))
            })
            .or_else(|| {
                (0..distribution.servers()).find_map(|server| broken_size(distribution, server, logical))
            })
            .map(|law| format!("at byte {logical}: {law}"))
    };
    (0..=size).find_map(broken)
}

/// Of `locate`, its run, and `logical` as its inverse.
fn broken_place(distribution: &dyn Distribution, logical: u64) -> Option<String> {
    let piece = distribution.locate(logical);
    if piece.server >= distribution.servers() || piece.run == 0 {
        return Some(format!("located at {piece:?}, which is no place"));
    }
    let back = distribution.logical(piece.server, piece.physical);
    if back != logical {
        return Some(format!("located at {piece:?}, where byte {back} is said to be"));
    }
    let next = distribution.locate(logical + 1);
    let goes_on = (next.server, next.physical) == (piece.server, piece.physical + 1);
    let run_goes_on = next.run >= piece.run.saturating_sub(1);
    (piece.run > 1 && !(goes_on && run_goes_on))
        .then(|| format!("its run {piece:?} does not go on: {next:?}"))
}

/// Of `next_on` and `cycle`.
fn broken_next(distribution: &dyn Distribution, server: u32, logical: u64) -> Option<String> {
    let holds = |byte| distribution.locate(byte).server == server;
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
    let piece = distribution.locate(logical);
    let is_last = piece.server == server;
    if end > size || (is_last && end != size) {
        return Some(format!("a file of {size} bytes ends at {end} by server {server}'s {physical} bytes"));
    }
    (is_last && physical <= piece.physical)
        .then(|| format!("server {server}'s {physical} bytes do not hold byte {}", piece.physical))
}
