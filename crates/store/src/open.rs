//! Opens a collection with the module that its configuration names.

use crate::{Collection, CollectionConfig, ModuleKind, StoreError, disk, memory, null};
use shoal_env::Env;
use shoal_proto::StoreId;

/// Open a collection, making it if `config` says so. After a crash this is also its recovery.
///
/// # Errors
///
/// [`StoreError::Refused`] when the folder is another's, of a newer version or in use;
/// [`StoreError::Damaged`] when durable records are missing.
pub async fn open(env: Env, config: CollectionConfig) -> Result<Collection, StoreError> {
    match config.module {
        ModuleKind::Memory => Ok(memory::open(&env, &config, true)),
        ModuleKind::Null => Ok(null::open(&env, &config)),
        ModuleKind::Disk => disk::open(env, config).await,
    }
}

/// Change the identity of the folder's store from `from` to `to`. Nothing else of it is touched. It must
/// not be open; it stays locked until `env` ends. Repeating it has no effect.
///
/// # Errors
///
/// [`StoreError::Missing`] when the folder holds another store; [`StoreError::Foreign`] when it is another
/// server's; [`StoreError::Refused`] when it is in use.
pub async fn succeed(
    env: &Env,
    config: &CollectionConfig,
    from: StoreId,
    to: StoreId,
) -> Result<(), StoreError> {
    disk::succeed(env, config, from, to).await
}
