//! Opening a collection.

use crate::{Collection, CollectionConfig, ModuleKind, StoreError, disk, memory, null};
use shoal_env::Env;

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
