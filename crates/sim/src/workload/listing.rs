//! Listings of directories in which all clients make and remove names, whole or in small pieces.

use super::{End, Worker};
use crate::listing::{Listed, Listing, judge};
use bytes::Bytes;
use shoal_client::Error;
use shoal_proto::{Answer, Entry, Handle, Op, Place, Status};
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

    async fn list_whole(&self, words: &str, dir: Handle, plus: bool) -> Result<Vec<Listed>, Error> {
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

    async fn list_pieces(&self, words: &str, dir: Handle) -> Result<Vec<Listed>, Error> {
        let (mut after, mut listed_all) = (None, Vec::new());
        loop {
            let called = self.env.now();
            let op = Op::Readdir { dir, after: after.take(), bytes_max: PIECE_BYTES, plus: false };
            let answer = self.client.request(dir.server(), op, Bytes::new()).await;
            self.in_time(words, called, self.shared.timeout);
            let Answer::Entries { entries, end } = answer?.0 else {
                return Err(Error::new(Status::BadMessage, "readdir"));
            };
            after = entries.last().map(|last| Place { hash: last.place, name: last.name.as_bytes().into() });
            listed_all.extend(entries.0.into_iter().map(listed));
            if end || after.is_none() {
                return Ok(listed_all);
            }
            // Others go on meanwhile.
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

fn listed(entry: Entry) -> Listed {
    Listed { name: entry.name.as_bytes().to_vec(), handle: entry.handle.0, attr: entry.attr }
}
