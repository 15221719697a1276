//! The format of a collection's rows: which build can read them.
//!
//! ```text
//!   c "format"   u32, little-endian     written in a new folder's first batch, and to raise an older format
//! ```
//! The store's own versions (`docs/reference/DISK.md`) describe the layout of bytes on the disk; they say
//! nothing about the meaning of the server's rows. **So this row is read before any other is decoded.** A
//! folder with an older format, from [`FORMAT_MIN`] on, is accepted, and raised to [`FORMAT`]. A folder with
//! any other format, or with none although it has contents, was made by another build. It is refused and left
//! unchanged: decoding it would give garbage, or false damage.
//!
//! Every change of the meaning of a key or a value increases [`FORMAT`]. This includes values inside a row's
//! value: the map, its switches, the actions of transactions. A test in this file compares the bytes.

use crate::meta::keys;
use crate::shard::Shard;
use bytes::Bytes;
use shoal_store::{Changes, StoreError, look};
use std::rc::Rc;

/// The format that this build writes. Format 3 adds forked files, format 4 mount keys in the map, format 5
/// the keys of clients to their sessions, format 6 layouts of directories that clients follow; all else is as
/// in format 2.
pub const FORMAT: u32 = 6;
/// The oldest format that this build reads. A folder of it is raised to [`FORMAT`] before anything else is
/// written, so that an older build does not meet what it cannot read.
pub const FORMAT_MIN: u32 = 2;

/// Its key.
fn key() -> Bytes {
    keys::config("format")
}

/// The row, for the batch that begins a collection.
pub fn put(changes: &mut Changes) {
    changes.put(key(), Bytes::copy_from_slice(&FORMAT.to_le_bytes()));
}

/// Raise a folder of an older format that this build reads.
///
/// # Errors
/// When the store fails.
pub async fn raise(shard: &Rc<Shard>, changes: &mut Changes) -> Result<(), StoreError> {
    let key = key();
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await?;
    if row.is_some_and(|row| row[..] != FORMAT.to_le_bytes()) {
        put(changes);
    }
    Ok(())
}

/// Compare the format of the rows with the format of this build.
///
/// # Errors
/// `Refused` for another format, and for rows that say none.
pub async fn check(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let key = key();
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await?;
    let found = match row {
        Some(row) => match <[u8; 4]>::try_from(&row[..]) {
            Ok(bytes) if (FORMAT_MIN..=FORMAT).contains(&u32::from_le_bytes(bytes)) => return Ok(()),
            Ok(bytes) => format!("are of format {}", u32::from_le_bytes(bytes)),
            Err(_) => return Err(StoreError::Damaged("the row of the format of the rows".into())),
        },
        // The map and the reserved handles are there before anything else.
        None => {
            let (map, handles) = (keys::config("map"), keys::config("handles"));
            let is_there = |row: Option<Bytes>| row.is_some();
            let (map, _) = look(&shard.collection, |view| view.get(&map).map(is_there)).await?;
            let (handles, _) = look(&shard.collection, |view| view.get(&handles).map(is_there)).await?;
            if !map && !handles {
                return Ok(());
            }
            "say no format, so they are of a build before format 1".to_owned()
        }
    };
    Err(StoreError::Refused(format!(
        "its rows {found}, and this program reads format {FORMAT}, and older ones from {FORMAT_MIN} on: serve it with the program that made it and copy the data \
         out, or begin anew in an empty folder"
    )))
}

#[cfg(test)]
mod tests {
    use crate::meta::keys;
    use crate::meta::rows::{
        Batch, Datafile, Dirent, Ended, Grant, Inode, Kept, Lingering, Linked, New, Orphan, Pool, Range,
        Reap, RowValue as _, Session, Tx, TxState, Unnamed, Void,
    };
    use bytes::Bytes;
    use shoal_proto::codec::Codec as _;
    use shoal_proto::message::Loss;
    use shoal_proto::{
        Action, ClientId, Dist, Handle, Kind, ServerId, SessionId, Slot, Template, Time, TxId, limits,
        samples,
    };

    /// Keys and values of every table, with all that may be in them.
    fn rows() -> Vec<(Bytes, Bytes)> {
        let (one, other) = (Handle::new(ServerId(1), 77), Handle::new(ServerId(2), 1024));
        let (client, place, server) = (ClientId([9; 16]), 5, ServerId(2));
        let range = Range { first: other, count: 7 };
        let layout = Some(samples::layout());
        let inode = Inode {
            layout,
            target: Some(b"/there"[..].into()),
            xattr_bytes: 3,
            entries: 4,
            shards: samples::shards(),
            ..crate::meta::inode::of_attr(&samples::attr())
        };
        let strip = limits::STRIP_BYTES_MIN;
        let followed = [Dist::Container { strip }, Dist::Composed { strip }].map(|dist| {
            let template = Template { dist, width: 3 };
            Inode { kind: Kind::Directory, template, ..crate::meta::inode::of_attr(&samples::attr()) }
        });
        let kept = Kept { sequence: 3, reply: b"reply"[..].into(), loss: Some(Loss { kept: 4, start: 5 }) };
        let pool = Pool { ranges: vec![range.clone()].into(), ..Pool::new(6) };
        // The removal of a forked file is always its coordinator's own action, and in no row.
        let is_own = |action: &Action| matches!(action, Action::ForkedRemove { .. });
        let actions = samples::actions().into_iter().filter(|action| !is_own(action)).collect();
        let prepared = Tx { state: TxState::Prepared { actions, participants: vec![server] } };
        let committed = Tx { state: TxState::Committed { unfinished: vec![server] } };
        let session = Session { client, peer: Some(server), slots: 9, client_key: Some([8; 32]).into() };
        let new = New { client, place: one, name: Some(samples::name("new")) };
        vec![
            (keys::inode(one), inode.to_row()),
            (keys::inode(one), followed[0].to_row()),
            (keys::inode(one), followed[1].to_row()),
            (keys::entry(one, place, b"name"), Dirent { handle: other, kind: Kind::Fifo }.to_row()),
            (keys::xattr(one, b"user.name"), Bytes::from_static(b"value")),
            (keys::datafile(other), Datafile { owner: one }.to_row()),
            (keys::session(SessionId(8)), session.to_row()),
            (keys::kept(SessionId(8), Slot(1), 2), kept.to_row()),
            (keys::orphan(one, client), Orphan { since: Time(5) }.to_row()),
            (keys::lingering(Time(5), one), Lingering { bytes: 4096 }.to_row()),
            (keys::reap(server, other), Reap { owner: one }.to_row()),
            (keys::new(one), new.to_row()),
            (keys::unnamed(one, other), Unnamed { client }.to_row()),
            (keys::void(one), Void { client }.to_row()),
            (keys::linked(one), Linked { time: Time(11) }.to_row()),
            (keys::tx(TxId(12)), prepared.to_row()),
            (keys::tx(TxId(13)), committed.to_row()),
            (keys::ended(TxId(14)), Ended { time: Time(15) }.to_row()),
            (keys::pool(server), pool.to_row()),
            (keys::grant(server), Grant { pool: 6, sequence: 1, range }.to_row()),
            (keys::batch(other), Batch::new(server, 7).to_row()),
            (keys::config("map"), samples::map().to_bytes().into()),
            (keys::config("served"), samples::map().servers[0].addresses.to_bytes().into()),
            (keys::config("handles"), Bytes::copy_from_slice(&1024_u64.to_le_bytes())),
        ]
    }

    /// If this changes, folders of older builds are not read any more: then `FORMAT` goes up, and stands here
    /// with the new sum.
    #[test]
    fn the_rows_of_a_format_are_written_as_they_always_were() {
        let mut all = Vec::new();
        for (key, value) in rows() {
            for bytes in [key, value] {
                all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                all.extend_from_slice(&bytes);
            }
        }
        let sum = blake3::hash(&all).to_hex();
        assert_eq!(
            (super::FORMAT, &sum[..16]),
            (6, "efa454ea0404ae72"),
            "rows are written otherwise: another `FORMAT`"
        );
    }
}
