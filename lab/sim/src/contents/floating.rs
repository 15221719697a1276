//! Decides whether bytes that were read can come from appends whose place is not known.
//!
//! An append without an answer may be at any place, in pieces that begin where strips do, and only once. Its
//! words are its own, so from some length on a piece is not there by chance.

use std::ops::Range;

/// So many bytes of an append without a place are not there by chance.
pub(super) const BEGINNING: usize = 8;
/// The same of what is left of one between two borders.
pub(super) const REST: usize = 3;

/// How many first bytes two have in common.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Whether the bytes are a piece of one, and after it the beginnings of others, each at most once. `begun`:
/// the bytes before them were not read.
pub(super) fn are_pieces(all: &[Vec<u8>], bytes: &[u8], begun: bool) -> bool {
    let mut left: Vec<usize> = (0..all.len()).collect();
    (0..all.len()).any(|first| {
        left.retain(|act| *act != first);
        let own = &all[first];
        let is_one = (0..own.len()).any(|at| {
            let len = common(&own[at..], bytes);
            let is_piece = len >= BEGINNING || len > 0 && (at == 0 || begun);
            is_piece && borders(len).any(|end| others_begin(all, &mut left, &bytes[end..]))
        });
        left.push(first);
        is_one
    })
}

/// Whether the rest are beginnings of those that are left, each at most once.
pub(super) fn others_begin(all: &[Vec<u8>], left: &mut Vec<usize>, rest: &[u8]) -> bool {
    rest.is_empty()
        || (0..left.len()).any(|index| {
            let act = left.swap_remove(index);
            let len = common(&all[act], rest);
            let begins = len == rest.len() || len == all[act].len() || len >= BEGINNING;
            let is_one = len > 0 && begins && borders(len).any(|end| others_begin(all, left, &rest[end..]));
            left.push(act);
            let last = left.len() - 1;
            left.swap(index, last);
            is_one
        })
}

/// Whether the bytes are the last ones of one, and after them the beginnings of others, each at most once.
pub(super) fn are_end_and_beginnings(all: &[Vec<u8>], bytes: &[u8]) -> bool {
    let mut left: Vec<usize> = (0..all.len()).collect();
    (0..all.len()).any(|first| {
        left.retain(|act| *act != first);
        let own = &all[first];
        let ends = (1..=own.len().min(bytes.len())).filter(|len| own.ends_with(&bytes[..*len]));
        let is_one = ends.into_iter().any(|len| others_begin(all, &mut left, &bytes[len..]));
        left.push(first);
        is_one
    })
}

/// Whether the run of the content is this one's bytes at a place that a longer piece of it, elsewhere in the
/// content, shows to be its own.
pub(super) fn shows_its_place(own: &[u8], content: &[u8], run: &Range<usize>) -> bool {
    let is_shown = |skipped: usize, begins: usize| {
        let pairs = own[skipped..].iter().zip(&content[begins..]);
        let mut in_a_row = 0;
        pairs.into_iter().any(|(one, other)| {
            in_a_row = if one == other { in_a_row + 1 } else { 0 };
            in_a_row == BEGINNING
        })
    };
    // The run is at `at` of its bytes; those before the content were not read.
    (0..(own.len() + 1).saturating_sub(run.len())).any(|at| {
        own[at..].starts_with(&content[run.clone()])
            && is_shown(at.saturating_sub(run.start), run.start.saturating_sub(at))
    })
}

/// Whether the bytes are some of those that are left, whole, one after the other.
pub(super) fn are_whole(all: &[Vec<u8>], left: &mut Vec<usize>, bytes: &[u8]) -> bool {
    bytes.is_empty()
        || (0..left.len()).any(|index| {
            let act = left.swap_remove(index);
            let rest = bytes.strip_prefix(&all[act][..]).filter(|rest| rest.len() < bytes.len());
            let is_one = rest.is_some_and(|rest| are_whole(all, left, rest));
            left.push(act);
            let last = left.len() - 1;
            left.swap(index, last);
            is_one
        })
}

/// The possible ends of one that has so many bytes in common with the present ones: by chance the next one's
/// first bytes equal the next bytes of this one.
pub(super) fn borders(len: usize) -> impl Iterator<Item = usize> {
    (len.saturating_sub(2).max(1)..=len).rev()
}
