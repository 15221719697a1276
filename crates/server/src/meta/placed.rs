//! The row that shows by which *place key* the names of a collection are placed. The place key is one of the
//! file system's keys ([`shoal_proto::Keys`]).
//!
//! ```text
//!   c "placed"   8 bytes of a hash that is keyed with the place key
//! ```
//! The row is written with the map, or by the first start that finds none.
//!
//! The key of an entry's row has a hash of its name that is keyed with the place key
//! ([`crate::shard::Identity::place_of`]). A server with a different key would list all names, find none of
//! them by a lookup, and make a second entry with the name of an existing entry. **So such a start is
//! refused, before anything is written.** The row shows whether two keys are equal, and nothing else of
//! them.

use crate::meta::keys;
use crate::shard::Shard;
use bytes::Bytes;
use shoal_proto::SecretKey;
use shoal_store::{Changes, StoreError, look};
use std::rc::Rc;

/// Its key.
fn key() -> Bytes {
    keys::config("placed")
}

/// The row's value for a file system and its key.
fn mark(secret: &SecretKey, fs_id: &[u8; 16]) -> Bytes {
    Bytes::copy_from_slice(&secret.mac("which key places names", &[fs_id])[..8])
}

fn present(shard: &Shard) -> Bytes {
    let identity = shard.identity();
    mark(&identity.keys.place, &identity.map.fs_id)
}

async fn kept(shard: &Shard) -> Result<Option<Bytes>, StoreError> {
    let key = key();
    Ok(look(&shard.collection, |view| view.get(&key)).await?.0)
}

/// Compare the key of the names with the server's key.
///
/// # Errors
/// `Refused` for another key.
pub async fn check(shard: &Rc<Shard>) -> Result<(), StoreError> {
    match kept(shard).await? {
        Some(kept) if kept != present(shard) => Err(StoreError::Refused(
            "its names are placed by another key than this one, and would not be found: restore the key files that this file \
             system was made with (`key.server` beside `key`, if it had one; with new ones, make a new file system and copy the data)"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// Keep which key it is, where no row says so.
pub async fn keep(shard: &Shard, changes: &mut Changes) -> Result<(), StoreError> {
    if kept(shard).await?.is_none() {
        changes.put(key(), present(shard));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_key_is_as_it_always_was_and_another_for_another_key_or_file_system() {
        let (one, other) = (SecretKey::new([7; 32]), SecretKey::new([8; 32]));
        let first = mark(&one, &[1; 16]);
        assert_eq!(first[..], [88, 133, 152, 177, 120, 162, 201, 196]);
        assert!(first != mark(&other, &[1; 16]) && first != mark(&one, &[2; 16]));
    }
}
