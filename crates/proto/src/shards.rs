//! Directories that split (decision 0009): the shards of a large directory, one on each metadata server.
//!
//! ```text
//!   place of a name:  0 ──────────────┬──────────────┬──────────────┬────────────── 2^63
//!   shard                   0         │      1       │      2       │      3
//!   its server          servers[0]      servers[1]     servers[2]     servers[3]
//! ```
//! Names have a *place* in their directory: a keyed hash of 63 bits that orders the entries. The places are
//! divided into ranges of equal size, one for each shard. So a walk over the shards in order lists the
//! directory in its order, and a listing begun before the split continues after it. **A directory splits once
//! and stays split**: its shards never change.
//!
//! **The first redirect gives the key of the hash to clients.** The key has one purpose: users without a
//! connection cannot choose many names with the same place. A client may know the key, because it has
//! proved that it holds a key of the file system. The key gives no other right.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::wire::{Name, wire_struct};
use crate::{Handle, Kind, ServerId, limits};
use std::fmt;

/// Bits of a place.
const PLACE_BITS: u32 = 63;

/// The key of the hash that places names in directories.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PlaceKey([u8; 32]);

impl fmt::Debug for PlaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceKey(…)")
    }
}

impl PlaceKey {
    /// A key from its bytes.
    pub const fn new(bytes: [u8; 32]) -> PlaceKey {
        PlaceKey(bytes)
    }

    /// For other hashes that must be unpredictable.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The place of a name in its directory: a 63-bit keyed hash, never 0 (listings begin after 0).
    pub fn place_of(&self, name: &[u8]) -> u64 {
        let hash = blake3::keyed_hash(&self.0, name);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        (u64::from_le_bytes(first) >> 1).max(1)
    }
}

impl Codec for PlaceKey {
    fn encode(&self, w: &mut Writer) {
        w.put_raw(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PlaceKey(r.get_array()?))
    }
}

/// The servers of a directory's shards, in the order of their ranges. None: the directory is whole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shards(Vec<ServerId>);

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Shards {
    /// A directory that is not split.
    pub const WHOLE: Shards = Shards(Vec::new());

    /// One shard on each of these servers, at most [`limits::SERVERS_MAX`]; one server is a whole directory.
    pub fn over(servers: impl IntoIterator<Item = ServerId>) -> Shards {
        let servers: Vec<ServerId> = servers.into_iter().take(limits::SERVERS_MAX).collect();
        if servers.len() > 1 { Shards(servers) } else { Shards::WHOLE }
    }

    /// Whether there are any.
    pub fn is_split(&self) -> bool {
        !self.0.is_empty()
    }

    /// The servers, in the order of their ranges.
    pub fn servers(&self) -> &[ServerId] {
        &self.0
    }

    /// Which shard holds a place; 0 in a whole directory.
    pub fn index_of(&self, place: u64) -> usize {
        let count = self.0.len().max(1);
        let scaled = (u128::from(place) * count as u128) >> PLACE_BITS;
        usize::try_from(scaled).unwrap_or(usize::MAX).min(count - 1)
    }

    /// The server of the shard that holds a place; `None` in a whole directory.
    pub fn server_of(&self, place: u64) -> Option<ServerId> {
        self.0.get(self.index_of(place)).copied()
    }
}

impl Codec for Shards {
    fn encode(&self, w: &mut Writer) {
        w.put_u16(self.0.len() as u16);
        self.0.iter().for_each(|server| server.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::from(r.get_u16()?);
        if count == 1 || count > limits::SERVERS_MAX {
            return Err(DecodeError::Invalid("shards"));
        }
        // Allocate no more than the input can hold.
        let mut servers = Vec::with_capacity(count.min(r.remaining() / 2));
        for _ in 0..count {
            servers.push(ServerId::decode(r)?);
        }
        Ok(Shards(servers))
    }
}

wire_struct! {
    /// An entry that moves to its shard.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ShardEntry {
        /// Its name.
        pub name: Name,
        /// The object it leads to.
        pub handle: Handle,
        /// The object's kind.
        pub kind: Kind,
    }
}

impl ShardEntry {
    /// Most bytes of its encoding.
    pub fn bytes(&self) -> usize {
        self.name.as_bytes().len() + 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_are_equal_in_order_and_cover_all_places() {
        for count in [2_u16, 3, 4, 7, 1024] {
            let shards = Shards::over((0..count).map(ServerId));
            assert_eq!(shards.index_of(1), 0);
            assert_eq!(shards.index_of((1 << 63) - 1), usize::from(count) - 1);
            let step = (1_u64 << 63) / u64::from(count);
            for index in 0..u64::from(count) {
                assert_eq!(shards.index_of(index * step + step / 2), index as usize);
            }
        }
        assert_eq!(Shards::WHOLE.server_of(5), None);
        assert_eq!(Shards::over([ServerId(3)]), Shards::WHOLE, "one server is no split");
    }

    #[test]
    fn names_spread_evenly_over_the_shards() {
        let (key, shards) = (PlaceKey::new([9; 32]), Shards::over((0..4).map(ServerId)));
        let mut counts = [0_u32; 4];
        for n in 0..8000 {
            counts[shards.index_of(key.place_of(format!("file.{n}").as_bytes()))] += 1;
        }
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_is_no_list_of_shards_is_refused() {
        for shards in [Shards::WHOLE, Shards::over([ServerId(2), ServerId(0)])] {
            assert_eq!(Shards::decode(&mut Reader::new(&shards.to_bytes())).unwrap(), shards);
        }
        assert!(Shards::decode(&mut Reader::new(&[1, 0, 0, 0])).is_err(), "a single one");
        assert!(Shards::decode(&mut Reader::new(&[2, 0, 0, 0])).is_err(), "cut short");
        assert!(Shards::decode(&mut Reader::new(&[255, 255])).is_err(), "too many");
    }
}
