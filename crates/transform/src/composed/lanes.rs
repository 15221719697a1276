//! Extents of blocks, and the names of their claims. A *claim* is an entry of a folder by which a writer
//! reserves an extent.
//!
//! The blocks of a physical file are divided over seven *lanes*, for extents of 1, 2, 4, … 64 blocks:
//!
//! ```text
//!   blocks   0 … 63   64 … 127  128 … 191      384 … 447   448 … 511   …     a round: 448 blocks
//!   lane     0        1         2          …   6           0
//!   extents  64 of 1  32 of 2   16 of 4        1 of 64     64 of 1
//! ```
//!
//! So an extent is a physical file, a lane and a number in the lane, and its blocks follow from these. **Two
//! claims that could overlap have the same name**: `FILE.LANE.NUMBER`. Only the exclusive creation of that
//! name prevents an overlap. The numbers go on up to the largest size of a file.

use super::format::{BLOCK_BITS, FILES_MAX};
use shoal_proto::Name;

/// Lanes.
pub const LANES: u8 = 7;
/// Blocks of each lane in a round.
const LANE_BLOCKS: u64 = 64;
/// Blocks of a round.
const ROUND: u64 = LANE_BLOCKS * LANES as u64;

/// An extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Extent {
    /// The physical file.
    pub file: u16,
    /// Its lane: it has 2 to the power of this blocks.
    pub lane: u8,
    /// Its number in the lane.
    pub number: u64,
}

impl Extent {
    /// Blocks.
    pub const fn blocks(self) -> u32 {
        1 << self.lane
    }

    /// The number of its first block in the file.
    pub const fn first(self) -> u64 {
        let in_round = LANE_BLOCKS >> self.lane;
        let (round, at) = (self.number / in_round, self.number % in_round);
        round * ROUND + self.lane as u64 * LANE_BLOCKS + (at << self.lane)
    }

    /// The place of one of its blocks.
    pub const fn place(self, block: u32) -> u64 {
        (self.file as u64) << BLOCK_BITS | (self.first() + block as u64)
    }

    /// The extent of a block, and the block's number in it.
    pub const fn of_place(place: u64) -> (Extent, u32) {
        let (file, block) = split(place);
        let (round, rest) = (block / ROUND, block % ROUND);
        let (lane, at) = ((rest / LANE_BLOCKS) as u8, rest % LANE_BLOCKS);
        let number = round * (LANE_BLOCKS >> lane) + (at >> lane);
        (Extent { file, lane, number }, (at & ((1 << lane) - 1)) as u32)
    }

    /// The name of its claim.
    pub fn name(self) -> String {
        format!("{}.{}.{}", self.file, self.lane, self.number)
    }

    /// From a claim's name, if its blocks of so many bytes fit into one of so many files.
    pub fn parse(name: &[u8], files: u16, block: u32) -> Option<Extent> {
        let text = std::str::from_utf8(name).ok()?;
        let mut parts = text.split('.');
        let (file, lane, number) = (parts.next()?, parts.next()?, parts.next()?);
        let extent =
            Extent { file: file.parse().ok()?, lane: lane.parse().ok()?, number: number.parse().ok()? };
        let fits =
            extent.file < files.min(FILES_MAX) && extent.lane < LANES && extent.number < 1 << BLOCK_BITS;
        (fits && extent.name() == text && extent.end_fits(block)).then_some(extent)
    }

    /// Whether all its bytes have offsets of a file.
    pub fn end_fits(self, block: u32) -> bool {
        let end = self.first() + u64::from(self.blocks());
        end < 1 << BLOCK_BITS
            && end.checked_mul(u64::from(block)).is_some_and(|end| i64::try_from(end).is_ok())
    }

    /// The name of its claim, as a name.
    pub fn claim(self) -> Option<Name> {
        Name::new(self.name().as_bytes()).ok()
    }
}

/// A place's physical file, and the block's number there.
pub const fn split(place: u64) -> (u16, u64) {
    ((place >> BLOCK_BITS) as u16, place & ((1 << BLOCK_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn extents_with_different_names_have_no_block_in_common() {
        let mut blocks = BTreeSet::new();
        for lane in 0..LANES {
            for number in 0..3 * (64 >> lane) {
                let extent = Extent { file: 3, lane, number };
                for block in 0..extent.blocks() {
                    let place = extent.place(block);
                    assert!(blocks.insert(place), "{extent:?}");
                    assert_eq!(Extent::of_place(place), (extent, block));
                }
                assert_eq!(Extent::parse(extent.name().as_bytes(), 4, 1 << 20), Some(extent));
            }
        }
        assert_eq!(blocks.len() as u64, 3 * ROUND);
    }

    #[test]
    fn a_claim_beyond_what_a_file_can_be_is_none() {
        for name in ["0.0.281474976710656", "0.6.1099511627775", "9.0.0", "0.7.0", "0.0.01", "0.0", "x"] {
            assert_eq!(Extent::parse(name.as_bytes(), 4, 1 << 20), None, "{name}");
        }
    }
}
