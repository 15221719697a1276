//! Precreated datafiles, at the server that stores them.
//!
//! Another server, the *pool's server*, requests a batch ([`crate::ops::peer::batchcreate`]). Later it
//! assigns datafiles of the batch to its own files, and sends no message for that ([`crate::data::pools`]). A
//! batch is **one row**, whatever its size. The row names the pool's server, and has a bit for each datafile.
//! The bit of a datafile is set when the datafile is first used, reaped or retired. Until then a datafile has
//! no row and no stream of its own, and takes no space: it is *untouched*.
//!
//! ```text
//!   untouched ────── first touch: a data write, or an action of a transaction ─────▶ used: rows of its own
//!   (bit clear)                                                                        │ reap, repair
//!        └───────────── reap, retire: never needed ───────────▶ gone (bit set, no row) ◀┘
//! ```
//! A row whose bits are all set is no longer needed, and is removed.
//!
//! # Owner and generation
//!
//! An untouched datafile has no owner and no generation. It takes both from the **first touch**, which is a
//! write or an action of a transaction. The owner is the file that the write's capability or the action
//! names; it must be a file of the pool's server. The generation is the generation that the write or the
//! action carries. A read touches nothing: an unwritten datafile is empty, whatever the generation.
//!
//! **Because of this rule no late write is lost, and no bytes that a truncation removed come back.** Let *g*
//! be the generation at which a file's layout first contains the datafile. No request for the datafile
//! carries an older generation: the file did not have the datafile before *g*, and a pool contains no handle
//! twice. Only a transaction begins a later generation (truncate, explicit times). This transaction names
//! *all* datafiles of the layout, including the untouched ones. The transaction touches them durably before
//! its reply leaves. Until the transaction is decided, the datafiles' keys are locked and every access waits.
//! So as long as a datafile is untouched, its file's generation is *g*, and the first touch of a client can
//! only bring *g*. After the touch it is a datafile like any other: an older generation is answered
//! `StaleLayout`.
//!
//! The touch by a write is as durable as the write: it is in the same record of the journal or in an
//! earlier record. So if the data survives, the datafile survives. If a power cut loses both, the datafile
//! is untouched again. Its file's generation is then still *g*, because a later generation would have touched
//! the datafile durably. The lost write may have left a local file. The next start of the server removes that
//! file durably, before any request can touch the datafile again.
//!
//! A write that comes after the file was removed and its datafiles reaped finds the bit set (or no batch) and
//! no row. It is answered `Stale`, and creates no datafile.
//!
//! Source: PVFS small files, section III-A. There too, precreation makes only the row of an object, not its
//! local file.

use crate::meta::keys;
use crate::meta::rows::{Batch, Datafile};
use crate::request::ctx::{Ctx, Stopped};
use bytes::Bytes;
use shoal_proto::{Blob, Capability, Generation, Handle, ServerId, limits};
use shoal_store::{StreamChange, StreamInfo};

/// Handles of a batch's row: as many as a batch has datafiles at most, from a multiple of that on.
pub const BLOCK: u64 = limits::BATCH_MAX as u64;

/// A first touch, to be applied before bulk data can be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Touch {
    /// The datafile.
    pub datafile: Handle,
    /// The file it is of from now on.
    pub owner: Handle,
    /// Its first generation.
    pub generation: Generation,
}

/// The first handle of the batch that `handle` would be of.
pub fn first_of(handle: Handle) -> Handle {
    Handle::new(handle.server(), handle.counter() / BLOCK * BLOCK)
}

impl Batch {
    /// None of them named.
    pub fn new(pool: ServerId, count: u16) -> Batch {
        let used = vec![0; limits::BATCH_MAX / 8];
        Batch { pool, count: count.min(limits::BATCH_MAX as u16), used: Blob(used.into()) }
    }

    fn index(&self, handle: Handle) -> Option<usize> {
        let index = (handle.counter() % BLOCK) as usize;
        (index < usize::from(self.count)).then_some(index)
    }

    /// Whether this datafile of the batch was never named.
    pub fn has_untouched(&self, handle: Handle) -> bool {
        let bit = |index: usize| self.used.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) == 0);
        self.index(handle).is_some_and(bit)
    }

    /// It is named now.
    pub fn touch(&mut self, handle: Handle) {
        let Some(index) = self.index(handle) else { return };
        let mut used = self.used.to_vec();
        if let Some(byte) = used.get_mut(index / 8) {
            *byte |= 1 << (index % 8);
        }
        self.used = Blob(used.into());
    }

    /// Whether all were named: the row says nothing any more.
    pub fn is_used_up(&self) -> bool {
        self.used.iter().map(|byte| byte.count_ones()).sum::<u32>() >= u32::from(self.count)
    }
}

/// The server for whose pool an untouched datafile was made; `None`: it is none. Stops at a lock on the
/// datafile.
pub fn pool_of(ctx: &Ctx<'_>, datafile: Handle) -> Result<Option<ServerId>, Stopped> {
    if datafile.server() != ctx.identity.id || ctx.get(&keys::datafile(datafile))?.is_some() {
        return Ok(None);
    }
    let batch = ctx.row::<Batch>(&keys::batch(first_of(datafile)))?;
    Ok(batch.filter(|batch| batch.has_untouched(datafile)).map(|batch| batch.pool))
}

/// The owner that an access to an untouched datafile would give it: its capability's, if that may be.
pub fn owner_by(ctx: &Ctx<'_>, datafile: Handle, capability: &Capability) -> Result<Option<Handle>, Stopped> {
    let owner = capability.object;
    Ok(pool_of(ctx, datafile)?.filter(|pool| *pool == owner.server()).map(|_| owner))
}

/// Whether an untouched datafile may become one of `owner`'s.
pub fn is_for(ctx: &Ctx<'_>, datafile: Handle, owner: Handle) -> Result<bool, Stopped> {
    Ok(pool_of(ctx, datafile)?.is_some_and(|pool| pool == owner.server()))
}

/// The facts of a stream that holds nothing yet.
pub fn empty(generation: Generation) -> StreamInfo {
    StreamInfo { generation: generation.0, size: 0, space: 0, written_at: None, small: true }
}

/// The first touch: rows of its own, and an empty stream.
pub fn touch(ctx: &mut Ctx<'_>, touch: &Touch) -> Result<(), Stopped> {
    let Touch { datafile, owner, generation } = *touch;
    ctx.change_stream(datafile, StreamChange::Create { generation: generation.0 })?;
    ctx.put(keys::datafile(datafile), &Datafile { owner })?;
    use_up(ctx, &[datafile])
}

/// The bits of datafiles of this server are set; those of no batch have none.
pub fn use_up(ctx: &mut Ctx<'_>, datafiles: &[Handle]) -> Result<(), Stopped> {
    let mut present: Option<(Bytes, Batch)> = None;
    for &datafile in datafiles {
        let key = keys::batch(first_of(datafile));
        if present.as_ref().is_none_or(|(known, _)| *known != key) {
            put(ctx, present.take())?;
            present = ctx.row::<Batch>(&key)?.map(|batch| (key, batch));
        }
        if let Some((_, batch)) = &mut present {
            batch.touch(datafile);
        }
    }
    put(ctx, present)
}

fn put(ctx: &mut Ctx<'_>, batch: Option<(Bytes, Batch)>) -> Result<(), Stopped> {
    match batch {
        None => Ok(()),
        Some((key, batch)) if batch.is_used_up() => ctx.remove(key),
        Some((key, batch)) => ctx.put(key, &batch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_knows_which_of_its_datafiles_were_named_and_when_all_were() {
        let at = |counter| Handle::new(ServerId(3), counter);
        let mut batch = Batch::new(ServerId(1), 10);
        assert!(batch.has_untouched(at(2048)) && batch.has_untouched(at(2057)));
        assert!(!batch.has_untouched(at(2058)), "one that is none of them");
        batch.touch(at(2049));
        batch.touch(at(2058));
        assert!(!batch.has_untouched(at(2049)) && batch.has_untouched(at(2050)) && !batch.is_used_up());
        (2048..2058).for_each(|counter| batch.touch(at(counter)));
        assert!(batch.is_used_up());
        assert_eq!(first_of(at(2057)), at(2048));
    }
}
