//! Module `null`: the analysis stub of J. Kunkel, *Performance Analysis of the PVFS2 Persistency Layer*.
//! Metadata is as in [`memory`](crate::memory); the bytes of streams are acknowledged and not kept. Sizes
//! and times are correct, reads return zeros. With this module the time of the storage is almost zero. So
//! a measured rate is the upper bound that the layers above the store allow.

use crate::{Collection, CollectionConfig};
use shoal_env::Env;

pub(crate) fn open(env: &Env, config: &CollectionConfig) -> Collection {
    crate::memory::open(env, config, false)
}
