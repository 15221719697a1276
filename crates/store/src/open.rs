//! Opening a collection.

use crate::{Collection, CollectionConfig, ModuleKind, StoreError, disk, memory, null};
use shoal_env::Env;
use shoal_proto::StoreId;

/// Open a collection, making it if `config` says so. After a crash this is also its recovery.
///
/// # Errors
///
/// [`StoreError::Refused`] when the folder is another's, of a newer version or in use; [`StoreError::Damaged`] when what
/// was durable is not there any more.
pub async fn open(env: Env, config: CollectionConfig) -> Result<Collection, StoreError> {
    match config.module {
        ModuleKind::Memory => Ok(memory::open(&env, &config, true)),
        ModuleKind::Null => Ok(null::open(&env, &config)),
        ModuleKind::Disk => disk::open(env, config).await,
    }
}

/// What the folder holds is the store `to` from now on, and was `from`. Nothing else of it is touched. Nobody may have it open;
/// it stays locked until `env` ends. Done twice it is done once.
///
/// # Errors
///
/// [`StoreError::Missing`] when the folder holds another store, or is another server's; [`StoreError::Refused`] when it is in
/// use.
pub async fn succeed(
    env: &Env,
    config: &CollectionConfig,
    from: StoreId,
    to: StoreId,
) -> Result<(), StoreError> {
    disk::succeed(env, config, from, to).await
}
