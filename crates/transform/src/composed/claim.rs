//! Claims of extents, and the writer's lock.
//!
//! A claim is a symbolic link, made exclusively. Its name says which blocks it claims
//! ([`lanes`](super::lanes)), and its target is the id of its writer. The name and the target appear
//! together. A writer holds the lock of a file of its own from before its first claim, so other processes
//! see whether it runs.
//!
//! **A claimed extent is erased before it is written.** A power cut may keep the blocks of an extent, and
//! take its claim: records of such a block would follow those of the next writer (test:
//! `records_of_a_lost_claim_do_not_come_back_in_the_block_of_the_next_writer`).

use super::lanes::{Extent, LANES};
use super::{Shared, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_proto::{Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::rc::Rc;
use std::time::Duration;

/// A removal that is under way is waited for so often, and so long each time.
const REMOVAL_PAUSES: u32 = 10;
const REMOVAL_PAUSE: Duration = Duration::from_millis(50);
/// A writer that ends waits so long for its lock to be given back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// Tries to claim an extent.
const CLAIM_TRIES: u64 = 10_000;

impl<B: Vfs> Shared<B> {
    /// Claim an extent.
    pub(super) async fn claim(self: &Rc<Self>) -> Result<Extent> {
        self.hold().await?;
        let log = &self.log;
        let (id, lane) = (log.id.get(), log.lane.get());
        let file = (u64::from_le_bytes([id.0[8], id.0[9], id.0[10], id.0[11], 0, 0, 0, 0])
            % u64::from(self.settings.files)) as u16;
        let used = self.numbers_in_use(file, lane);
        let mut number = 0;
        for tries in 0..CLAIM_TRIES {
            // The lowest that is free: numbers that a compaction gave back are used again.
            number = next_free(&used, number);
            let extent = Extent { file, lane, number };
            let name = extent.claim().filter(|_| extent.end_fits(self.settings.block));
            let Some(name) = name else {
                let words = "the physical file is as long as a file can be: `shoal composed compact`";
                return Err(Error::new(Status::NoSpace, "claim").because(words));
            };
            let target = id.to_string();
            match self.over.symlink(self.claims, &name, self.owner, target.as_bytes()).await {
                Err(error) if error.status == Status::Exists => {
                    // A reply may have been lost: then it is this writer's.
                    let found = self.over.lookup(self.claims, &name).await;
                    let is_own = match found {
                        Ok(found) => self.over.readlink(found.handle).await.is_ok_and(|by| by == target),
                        Err(_) => false,
                    };
                    if !is_own || log.own.borrow().contains_key(&extent) {
                        number += 1 + self.env.random_u64() % (tries + 1).min(64);
                        continue;
                    }
                }
                made => drop(made?),
            }
            // Before it is erased: where that fails, or is given up, it may be done later, and the extent is
            // not used.
            log.own.borrow_mut().insert(extent, id);
            self.erase_extent(extent).await?;
            log.lane.set((lane + 1).min(LANES - 1));
            let (begun, writes, claims) = log.counts.get();
            log.counts.set((begun, writes, claims + 1));
            return Ok(extent);
        }
        Err(Error::new(Status::Busy, "claim").because("others claim blocks all the time"))
    }

    /// Numbers of a lane that are claimed, as far as it is known, in order.
    fn numbers_in_use(&self, file: u16, lane: u8) -> Vec<u64> {
        let all = Extent { file, lane, number: 0 }..=Extent { file, lane, number: u64::MAX };
        let (own, known) = (self.log.own.borrow(), self.known.borrow());
        let extents = known.range(all.clone()).map(|(extent, _)| extent);
        let extents = extents.chain(own.range(all).map(|(extent, _)| extent));
        let mut used: Vec<u64> = extents.map(|extent| extent.number).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The writer has ended: its lock is given back before the file system below ends.
    pub(super) async fn give_lock_back(&self) {
        let Some(held) = self.log.held.take() else { return };
        let until = self.env.now() + GIVEN_BACK_WITHIN;
        match self.env.deadline(until, held.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("the file of an ended writer: {error}"),
            // It goes with the client's lease.
            Err(_) => tracing::debug!("the lock of an ended writer is not given back in time"),
        }
    }

    /// Hold the writer's lock. A call of this that failed, or was given up, may have left the file of its
    /// number: that number is not used again, because it is not known how far the lock of its file went.
    pub(super) async fn hold(self: &Rc<Self>) -> Result<()> {
        if self.log.is_used() {
            return Ok(());
        }
        let _turn = self.log.holding.acquire(1).await;
        if self.log.is_used() {
            return Ok(());
        }
        self.say_shared().await.map_err(|error| match error.status {
            Status::NotFound | Status::Stale => removed(),
            _ => error,
        })?;
        let claims = names_of::name(names_of::CLAIMS)?;
        let mut pauses = REMOVAL_PAUSES;
        for _ in 0..16 + REMOVAL_PAUSES {
            let name = names_of::writer(self.log.id.get())?;
            let rights = Rights::READ | Rights::WRITE;
            let made = match self.over.create(self.claims, &name, self.owner, true, rights).await {
                Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => {
                    return Err(removed());
                }
                Err(error) if error.status == Status::Exists => {
                    // If it is left, others take it away: no writer has its lock.
                    drop(self.over.unlink(self.claims, &name).await);
                    self.log.id.set(WriterId::draw(&self.env));
                    continue;
                }
                made => made,
            };
            let (attr, _, file) = made?;
            file.write(0, Bytes::from(self.words.clone().into_bytes())).await?;
            let is_locked = match file.hold_alone().await {
                Err(error) if error.status == Status::NotSupported => true,
                locked => locked?,
            };
            // A removal of the directory moves the folder away and then looks for files of writers: one of
            // the two sees the other.
            if !self.over.names(self.root).await?.contains(&claims) {
                drop(self.over.unlink(self.claims, &name).await);
                file.close().await?;
                pauses -= 1;
                if pauses == 0 {
                    return Err(removed());
                }
                self.env.sleep(REMOVAL_PAUSE).await;
                continue;
            }
            // One that buries the dead may have taken it between the two.
            let there = self.over.lookup(self.claims, &name).await;
            if is_locked && there.is_ok_and(|there| there.handle == attr.handle) {
                self.log.held.replace(Some(file));
                return Ok(());
            }
            self.log.id.set(WriterId::draw(&self.env));
        }
        Err(Error::new(Status::Busy, "open").because("another process takes each lock of this writer"))
    }
}

/// The lowest number from this one on that is not among those in use, which are in order.
fn next_free(used: &[u64], from: u64) -> u64 {
    let rest = &used[used.partition_point(|number| *number < from)..];
    from + rest.iter().zip(from..).take_while(|(used, number)| *used == number).count() as u64
}

fn removed() -> Error {
    let words = "the directory was removed, or its removal is under way";
    Error::new(Status::Stale, "claim").because(words)
}

#[cfg(test)]
mod tests {
    use super::next_free;

    #[test]
    fn the_lowest_number_that_is_free_is_found_from_any_number_on() {
        let used = [0, 1, 2, 5, 6, 9];
        let found = (0..11).map(|from| next_free(&used, from)).collect::<Vec<_>>();
        assert_eq!(found, [3, 3, 3, 3, 4, 7, 7, 7, 8, 10, 10]);
        assert_eq!(next_free(&[], 4), 4);
    }
}
