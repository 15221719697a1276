//! Runs a function over a context that needs nothing but rows. If rows are not in memory, they are loaded,
//! and the function runs again from its start.
//!
//! Transactions and first touches of datafiles are executed in this way. A client's compound may wait for
//! more than rows, and keeps its state meanwhile: [`crate::request::executor`] runs it. Reads without a
//! context use [`shoal_store::look`].

use crate::request::ctx::{Ctx, Facts, Stopped};
use crate::shard::Shard;
use shoal_proto::{Time, TxId};
use shoal_store::{Loaded, StoreError, View};

/// Run `run` over a shard's rows until it misses none; `own` is the transaction whose locks do not stop it.
/// Nothing else runs between the last run and the return, so the caller may apply its changes over `loaded`.
///
/// # Errors
/// When loading fails. The inner result is that of the last run; it is never [`Stopped::Miss`].
pub async fn run_loaded<T>(
    shard: &Shard,
    own: Option<TxId>,
    loaded: &mut Loaded,
    run: impl Fn(&mut Ctx<'_>) -> Result<T, Stopped>,
) -> Result<Result<T, Stopped>, StoreError> {
    loop {
        let needs = {
            let (identity, facts) = (shard.identity(), Facts::default());
            let view = View::new(&shard.collection, loaded);
            let now = Time(shard.env.wall().0);
            let mut ctx = Ctx::new(view, shard.surroundings(&identity), &facts, now).in_transaction(own);
            match run(&mut ctx) {
                Err(Stopped::Miss) => ctx.into_needs(),
                ended => return Ok(ended),
            }
        };
        *loaded = shard.collection.load(needs, std::mem::take(loaded)).await?;
    }
}
