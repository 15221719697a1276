//! Listings of directories in which all clients make and remove names, whole or in small pieces.

use super::{End, Worker};
use crate::listing::{ListedEntry, Listing, judge};
use bytes::Bytes;
use shoal_client::Error;
use shoal_proto::{Answer, Entry, Handle, Op, Place, Shards, Status};
use std::time::Duration;

/// Bytes of entries in one message of a listing in pieces.
const PIECE_BYTES: u32 = 3_000;
/// A listing is many messages; each has its own deadline.
const STEPS_MAX: u32 = 1000;

impl Worker {
    pub(super) async fn list(&mut self) {
        let (dir, plus) = (self.directory(), self.rng.below(2) == 0);
        let in_pieces = self.rng.below(3) == 0;
        let words = format!("list {dir}");
        let called = self.now();
        let bound = self.shared.timeout * STEPS_MAX;
        let end = if in_pieces {
            self.run_within("readdir", &words, bound, self.list_pieces(&words, dir)).await
        } else {
            self.run_within("readdir", &words, bound, self.list_whole(&words, dir, plus)).await
        };
        let End::Done(entries) = end else { return };
        let plus = plus && !in_pieces;
        let listing = Listing { dir: dir.0, plus, called, returned: self.now(), entries };
        let wrong = judge(&listing, &self.shared.ledger.borrow());
        wrong.into_iter().for_each(|wrong| self.violation(&words, wrong));
    }

    async fn list_whole(&self, words: &str, dir: Handle, plus: bool) -> Result<Vec<ListedEntry>, Error> {
        let (mut stream, mut entries) = (self.client.opendir(dir), Vec::new());
        loop {
            let called = self.env.now();
            let next = stream.next(plus).await;
            self.in_time(words, called, self.shared.timeout);
            match next? {
                Some(entry) => entries.push(listed(entry)),
                None => return Ok(entries),
            }
        }
    }

    async fn list_pieces(&self, words: &str, dir: Handle) -> Result<Vec<ListedEntry>, Error> {
        let (mut after, mut listed_all) = (None::<Place>, Vec::new());
        let (mut shards, mut at) = (Shards::WHOLE, 0);
        loop {
            let called = self.env.now();
            let server = shards.servers().get(at).copied().unwrap_or(dir.server());
            let in_shard = shards.is_split();
            let op = Op::Readdir {
                dir,
                after: after.clone(),
                bytes_max: PIECE_BYTES,
                plus: false,
                data_max: 0,
                in_shard,
            };
            let answer = self.client.request(server, op, Bytes::new()).await;
            self.in_time(words, called, self.shared.timeout);
            let answer = match answer {
                // Split since it began: it continues from its place.
                Err(error) if error.status == Status::Split && !in_shard => {
                    shards = self.client.getattr(dir).await?.shards;
                    at = after.as_ref().map_or(0, |after| shards.index_of(after.hash));
                    continue;
                }
                Err(error) if error.status == Status::WrongServer && in_shard => {
                    return Err(Error { status: Status::Stale, ..error });
                }
                answer => answer?.0,
            };
            let Answer::Entries { entries, end, .. } = answer else {
                return Err(Error::new(Status::BadMessage, "readdir"));
            };
            if let Some(last) = entries.last() {
                after = Some(Place { hash: last.place, name: last.name.as_bytes().into() });
            } else if !end {
                return Err(Error::new(Status::BadMessage, "readdir"));
            }
            listed_all.extend(entries.0.into_iter().map(listed));
            at += usize::from(end);
            if end && at >= shards.servers().len().max(1) {
                return Ok(listed_all);
            }
            // Others continue meanwhile.
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

fn listed(entry: Entry) -> ListedEntry {
    ListedEntry { name: entry.name.as_bytes().to_vec(), handle: entry.handle.0, attr: entry.attr }
}
