//! The decoders of files over an object store.

use crate::repair;
use crate::targets::within_room;
use shoal_objects::hostile;

pub(crate) fn name(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), repair::object_name(bytes)] {
        let _ = within_room(&bytes, 0, || hostile::name(&bytes));
    }
}

pub(crate) fn name_seeds() -> Vec<Vec<u8>> {
    hostile::samples().0
}

pub(crate) fn key(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::key(bytes));
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    hostile::samples().1
}

/// Whether a seed is a right input.
#[cfg(test)]
pub(crate) fn is_right(name: &str, bytes: &[u8]) -> bool {
    if name == "object_name" { hostile::name(bytes).is_some() } else { hostile::key(bytes) }
}
