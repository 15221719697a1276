//! The number of live bytes in each segment of the journal: bytes of contents that belong to a stream.
//!
//! The counts are kept beside the rows. A checkpoint sees the old and the new row of each stream, and changes
//! the counts by the difference; replay does the same for the rows after the checkpoint. A segment is
//! identified by its number and generation, so a count never refers to overwritten contents.
//!
//! **One row for each segment**, so that a part of a checkpoint writes only the rows of the segments whose
//! counts it moves: at 1 TB of small files all rows together are 1 MiB.
//!
//! ```text
//! key    "\0live", segment u64, generation u64, big-endian    value   live bytes u64, little-endian, never 0
//! ```

use super::LIVE_PREFIX;
use crate::StoreError;
use crate::stream_row::{Home, STREAM_PREFIX, StreamRow};
use bytes::Bytes;
use std::collections::BTreeMap;

/// (segment, generation)
pub(crate) type Place = (u64, u64);

/// Counts of live bytes, or their differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live(pub BTreeMap<Place, i64>);

/// A row, and its new value; `None`: it is removed.
pub(crate) type MovedRow = (LiveKey, Option<[u8; 8]>);

/// The key of a segment's row.
pub(crate) type LiveKey = [u8; LIVE_PREFIX.len() + 16];

impl Live {
    /// A row was replaced: `old` does not live any more, `new` does.
    pub fn replace(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<(), StoreError> {
        if key.first() != Some(&STREAM_PREFIX) {
            return Ok(());
        }
        for (row, sign) in [(old, -1), (new, 1)] {
            if let Some((place, len)) = row.map(home).transpose()?.flatten() {
                self.add(place, sign * i64::from(len))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, place: Place, bytes: i64) -> Result<(), StoreError> {
        let count = self.0.entry(place).or_default();
        *count = count.checked_add(bytes).ok_or_else(|| damaged("out of range"))?;
        if *count == 0 {
            self.0.remove(&place);
        }
        Ok(())
    }

    /// Add a row of the table to the counts.
    ///
    /// # Errors
    /// `Damaged` when the row is invalid.
    pub fn add_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.add(place_of(key)?, count_of(value)?)
    }

    /// The new rows after these moves; `row` returns the table's rows. `None` for those that are removed.
    ///
    /// # Errors
    /// Errors of `row`; `Damaged` for a count below 0.
    pub fn moved<V: AsRef<[u8]>, E: From<StoreError>>(
        &self,
        mut row: impl FnMut(&LiveKey) -> Result<Option<V>, E>,
    ) -> Result<Vec<MovedRow>, E> {
        let mut rows = Vec::with_capacity(self.0.len());
        for (&place, &moved) in &self.0 {
            let key = key_of(place);
            let before = row(&key)?.map_or(Ok(0), |value| count_of(value.as_ref()))?;
            let after = before.checked_add(moved).filter(|after| *after >= 0);
            let after = after.ok_or_else(|| damaged("out of range"))?;
            rows.push((key, (after > 0).then(|| after.to_le_bytes())));
        }
        Ok(rows)
    }
}

fn key_of((segment, generation): Place) -> LiveKey {
    let mut key = [0; LIVE_PREFIX.len() + 16];
    let (prefix, numbers) = key.split_at_mut(LIVE_PREFIX.len());
    prefix.copy_from_slice(LIVE_PREFIX);
    numbers[..8].copy_from_slice(&segment.to_be_bytes());
    numbers[8..].copy_from_slice(&generation.to_be_bytes());
    key
}

/// The row of a segment in which so many bytes live.
pub(crate) fn live_row(place: Place, bytes: u64) -> (Bytes, Bytes) {
    debug_assert_ne!(bytes, 0, "a segment without live bytes has no row");
    (Bytes::copy_from_slice(&key_of(place)), Bytes::copy_from_slice(&bytes.to_le_bytes()))
}

fn place_of(key: &[u8]) -> Result<Place, StoreError> {
    let numbers = key.strip_prefix(LIVE_PREFIX).and_then(|numbers| <[u8; 16]>::try_from(numbers).ok());
    let both = u128::from_be_bytes(numbers.ok_or_else(|| damaged("of an invalid key"))?);
    Ok(((both >> 64) as u64, both as u64))
}

fn count_of(value: &[u8]) -> Result<i64, StoreError> {
    let count = value.try_into().ok().map(i64::from_le_bytes).filter(|count| *count > 0);
    count.ok_or_else(|| damaged("out of range"))
}

fn damaged(how: &str) -> StoreError {
    StoreError::Damaged(format!("a count of the live bytes of a segment is {how}"))
}

/// The place of a stream's content in the log by its row, and the bytes of it.
fn home(row: &[u8]) -> Result<Option<(Place, u32)>, StoreError> {
    Ok(match StreamRow::decode(&Bytes::copy_from_slice(row))?.home {
        Home::Log { segment, generation, len, .. } => Some(((segment, generation), len)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(place: Place, len: u32) -> Bytes {
        let home = Home::Log { segment: place.0, generation: place.1, offset: 4096, len, crc: 0 };
        StreamRow { home, ..StreamRow::empty(1) }.encode()
    }

    fn key() -> Bytes {
        Bytes::copy_from_slice(&crate::stream_row::stream_key(shoal_proto::Handle(1)))
    }

    #[test]
    fn counts_that_cannot_be_are_damage_and_not_an_overflow() {
        let read = |count: i64| Live::default().add_row(&key_of((7, 9)), &count.to_le_bytes());
        for count in [0, -1, i64::MIN] {
            assert!(matches!(read(count), Err(StoreError::Damaged(_))), "{count}");
        }
        assert!(matches!(Live::default().add_row(&key_of((7, 9)), &[1; 9]), Err(StoreError::Damaged(_))));
        assert!(matches!(Live::default().add_row(b"\0live", &[1; 8]), Err(StoreError::Damaged(_))));
        let mut live = Live::default();
        live.add_row(&key_of((7, 9)), &i64::MAX.to_le_bytes()).unwrap();
        let row = row((7, 9), 1);
        assert!(matches!(live.replace(&key(), None, Some(&row)), Err(StoreError::Damaged(_))));
        live.replace(&key(), Some(&row), None).unwrap();
        assert_eq!(live.0[&(7, 9)], i64::MAX - 1);
    }

    #[test]
    fn a_part_of_a_checkpoint_moves_the_rows_of_its_segments_and_asks_for_no_others() {
        let mut table: BTreeMap<LiveKey, Vec<u8>> =
            (0..32_768).map(|n| (key_of((n, n)), (1_u64 << 20).to_le_bytes().to_vec())).collect();
        let mut moves = Live::default();
        moves.replace(&key(), Some(&row((5, 5), 1 << 20)), Some(&row((40_000, 1), 8192))).unwrap();
        moves.replace(&key(), Some(&row((6, 6), 100)), None).unwrap();
        moves.replace(&key(), Some(&row((7, 7), 100)), Some(&row((7, 7), 100))).unwrap();
        let mut asked = 0;
        let rows = moves.moved(|key| {
            asked += 1;
            Ok::<_, StoreError>(table.get(key).cloned())
        });
        let rows = rows.unwrap();
        let expected = [
            (key_of((5, 5)), None),
            (key_of((6, 6)), Some(((1_u64 << 20) - 100).to_le_bytes())),
            (key_of((40_000, 1)), Some(8192_u64.to_le_bytes())),
        ];
        assert_eq!((asked, &rows[..]), (3, &expected[..]));
        for (key, value) in rows {
            match value {
                Some(value) => drop(table.insert(key, value.to_vec())),
                None => drop(table.remove(&key)),
            }
        }
        let mut again = Live::default();
        table.iter().for_each(|(key, value)| again.add_row(key, value).unwrap());
        assert_eq!((again.0.len(), again.0[&(40_000, 1)]), (32_768, 8192));
        // No more can be removed than there was.
        let none = |_: &LiveKey| Ok::<Option<Vec<u8>>, StoreError>(None);
        assert!(matches!(moves.moved(none), Err(StoreError::Damaged(_))));
    }
}
