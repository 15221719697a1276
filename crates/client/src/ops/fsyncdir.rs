//! Make a directory durable.
//!
//! A directory's entries and attributes, and the objects that were made with its entries, lie on its own
//! server; for a split directory, on the servers of all its shards. So all these servers sync. First the
//! client sends the request to the directory's own server and to all other servers of shards that it knows,
//! at once. Then it sends the request to the further servers that the directory's own server has named.
//!
//! As with a file ([`crate::transfer::fsync`]) the answers show whether a server lost this client's changes
//! of the directory: its entries and its attributes.

use super::attr_among;
use crate::core::{Core, Operation};
use crate::{Client, Error};
use futures_util::future::{join, join_all};
use shoal_env::mutant::{self, Mutant};
use shoal_proto::message::Loss;
use shoal_proto::{Generation, Handle, Op, ServerId, Shards, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl Client {
    /// Make a directory durable: its entries, its attributes, and the objects that were made in it. Data of
    /// files needs fsyncs of their own.
    ///
    /// # Errors
    /// `Stale`: the directory is gone; `Io`: a change of its entries or attributes by this client may be
    /// lost, said once; when a server does not answer.
    pub async fn fsync_directory(&self, dir: Handle) -> Result<(), Error> {
        let o = self.core.begin("fsyncdir", Some(dir));
        let before = self.core.inodes.borrow().directory_before(dir);
        let synced = self.fsync_all(&o, dir).await?;
        match self.core.inodes.borrow_mut().directory_synced(dir, &before, &synced) {
            true => Err(lost(&o)),
            false => Ok(()),
        }
    }

    async fn fsync_all(&self, o: &Operation, dir: Handle) -> Result<BTreeMap<ServerId, Loss>, Error> {
        let core = &self.core;
        let known = core.split.borrow_mut().of(dir);
        let known: BTreeSet<ServerId> = known.iter().flat_map(|shards| shards.servers()).copied().collect();
        let guessed = core.fsync_shards(o, dir, &known);
        let (home, guessed) = join(core.fsync_home(o, dir), guessed).await;
        let (home, loss) = home?;
        // Where the guess was right its failures count; a directory splits once.
        let mut synced = guessed?;
        let named: BTreeSet<ServerId> = home.servers().iter().copied().collect();
        synced.extend(core.fsync_shards(o, dir, &named.difference(&known).copied().collect()).await?);
        synced.insert(dir.server(), loss);
        Ok(synced)
    }
}

impl Core {
    /// Sync the directory's own server; returns the shards, and the loss.
    async fn fsync_home(self: &Rc<Core>, o: &Operation, dir: Handle) -> Result<(Shards, Loss), Error> {
        if !self.switches().compound {
            // A message has one operation, and no directory is split.
            let told = self.ask(o, dir.server(), vec![fsync_of(dir)]).await?;
            return Ok((Shards::WHOLE, told.loss));
        }
        let ops = vec![Op::Getattr { object: dir }, fsync_of(dir)];
        let told = self.ask(o, dir.server(), ops).await?;
        let attr = attr_among(&told.answers).filter(|attr| attr.handle == dir);
        let attr = attr.ok_or_else(|| o.error(Status::BadMessage).from(dir.server()))?;
        self.split.borrow_mut().learn(dir, &attr.shards, None);
        Ok((attr.shards, told.loss))
    }

    /// Sync the shards on other servers than the directory's own.
    async fn fsync_shards(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        servers: &BTreeSet<ServerId>,
    ) -> Result<BTreeMap<ServerId, Loss>, Error> {
        if mutant::is(Mutant::HomeShardOnly) {
            return Ok(BTreeMap::new());
        }
        let others = servers.iter().filter(|&&server| server != dir.server());
        let synced = join_all(others.map(|&server| self.ask(o, server, vec![fsync_of(dir)]))).await;
        synced.into_iter().map(|told| told.map(|told| (told.server, told.loss))).collect()
    }
}

/// A directory has no generation to compare.
fn fsync_of(dir: Handle) -> Op {
    Op::Fsync { stream: dir, generation: Generation(0) }
}

fn lost(o: &Operation) -> Error {
    o.error(Status::Io).because(
        "a server lost its memory since this directory was changed; some of the changes may be gone, look and make them again",
    )
}
