//! Module `null`: the thesis's analysis stub. Metadata as in [`memory`](crate::memory); the bytes of
//! streams are acknowledged and not kept: sizes and times are true, reads return zeros. The upper bound of
//! every other layer.

use crate::{Collection, CollectionConfig};
use shoal_env::Env;

pub(crate) fn open(env: &Env, config: &CollectionConfig) -> Collection {
    crate::memory::open(env, config, false)
}
