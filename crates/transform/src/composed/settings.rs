//! The settings of a composed directory, fixed when it is made.

use super::format::{BLOCK_MAX, BLOCK_MIN, FILES_MAX, Refused, seal, unseal};
use shoal_pattern::codec::Writer;

const SETTINGS_MAGIC: &[u8; 8] = b"shoalcmp";
/// The newest version: `changes` has a number for each set of names and objects, and each writer of the
/// machine changes those of its records. In version 1 it has one number.
pub(super) const NEWEST: u16 = 2;
/// Numbers of `changes`.
pub(super) const NUMBERS: u16 = 4096;

/// The settings that a directory was made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The version of the directory.
    pub version: u16,
    /// The directory's own bits.
    pub id: [u8; 16],
    /// Bytes of a block.
    pub block: u32,
    /// Physical files.
    pub files: u16,
}

impl Settings {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_raw(SETTINGS_MAGIC);
        let sum = w.hold_u32();
        w.put_u16(self.version);
        w.put_raw(&self.id);
        w.put_u32(self.block);
        w.put_u16(self.files);
        seal(w, sum)
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none, or of a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Settings, Refused> {
        let (version, mut r) = unseal(bytes, SETTINGS_MAGIC, NEWEST)?;
        let settings = Settings { version, id: r.get_array()?, block: r.get_u32()?, files: r.get_u16()? };
        r.finish()?;
        let fits = settings.block.is_power_of_two()
            && (BLOCK_MIN..=BLOCK_MAX).contains(&settings.block)
            && (1..=FILES_MAX).contains(&settings.files);
        if fits { Ok(settings) } else { Err(Refused::Damaged) }
    }

    /// Numbers that its `changes` has.
    pub(super) fn numbers(&self) -> u16 {
        if self.version == 1 { 1 } else { NUMBERS }
    }

    /// The directory's bits in short, as they stand in each block.
    pub fn short_id(&self) -> u64 {
        let mut short = [0; 8];
        short.copy_from_slice(&self.id[..8]);
        u64::from_le_bytes(short)
    }
}
