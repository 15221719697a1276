//! Bytes of contents that live in each segment of the journal.
//!
//! Kept beside the rows: a checkpoint sees the old and the new row of each stream and moves the counts by the difference;
//! replay does the same for the rows after it. A segment is known by its number and generation, so a count never speaks of
//! what was overwritten.
//!
//! Stored as pairs of 16 + 8 bytes: segment u64, generation u64, live bytes u64, little-endian.

use crate::StoreError;
use crate::stream_row::{Home, STREAM_PREFIX, StreamRow};
use bytes::Bytes;
use std::collections::BTreeMap;

/// (segment, generation)
pub(crate) type Place = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live(pub BTreeMap<Place, i64>);

impl Live {
    /// A row was replaced: `old` does not live any more, `new` does.
    pub fn replace(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), StoreError> {
        if key.first() != Some(&STREAM_PREFIX) {
            return Ok(());
        }
        for (row, sign) in [(old, -1), (new, 1)] {
            if let Some((place, len)) = row.map(home).transpose()?.flatten() {
                let count = self.0.entry(place).or_default();
                let moved = count.checked_add(sign * i64::from(len));
                *count = moved.ok_or_else(|| damaged("beyond what can be counted"))?;
                if *count == 0 {
                    self.0.remove(&place);
                }
            }
        }
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let words = self
            .0
            .iter()
            .flat_map(|((segment, generation), count)| [*segment, *generation, count.cast_unsigned()]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    pub fn decode(bytes: Option<&[u8]>) -> Result<Live, StoreError> {
        let bytes = bytes.unwrap_or_default();
        let (entries, []) = bytes.as_chunks::<24>() else {
            return Err(damaged("cut"));
        };
        let word = |entry: &[u8; 24], i: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&entry[i * 8..i * 8 + 8]);
            u64::from_le_bytes(word)
        };
        let count = |e| i64::try_from(word(e, 2)).map_err(|_| damaged("beyond what can be counted"));
        entries.iter().map(|e| Ok(((word(e, 0), word(e, 1)), count(e)?))).collect::<Result<_, _>>().map(Live)
    }
}

fn damaged(how: &str) -> StoreError {
    StoreError::Damaged(format!("the table of live bytes of segments is {how}"))
}

/// Where a stream's row says its content lies in the log, and how many bytes of it.
fn home(row: &[u8]) -> Result<Option<(Place, u32)>, StoreError> {
    Ok(match StreamRow::decode(&Bytes::copy_from_slice(row))?.home {
        Home::Log { segment, generation, len, .. } => Some(((segment, generation), len)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_cannot_be_are_damage_and_not_an_overflow() {
        let table = |count: u64| [7, 9, count].into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        assert!(matches!(Live::decode(Some(&table(u64::MAX))), Err(StoreError::Damaged(_))));
        assert!(matches!(Live::decode(Some(&table(1 << 63))), Err(StoreError::Damaged(_))));
        let mut live = Live::decode(Some(&table(i64::MAX as u64))).unwrap();
        let home = Home::Log { segment: 7, generation: 9, offset: 4096, len: 1, crc: 0 };
        let row = StreamRow { home, ..StreamRow::empty(1) }.encode();
        let key = crate::stream_row::stream_key(shoal_proto::Handle(1));
        assert!(matches!(live.replace(&key, None, Some(&row)), Err(StoreError::Damaged(_))));
        live.replace(&key, Some(&row), None).unwrap();
        assert_eq!(live.0[&(7, 9)], i64::MAX - 1);
    }
}
