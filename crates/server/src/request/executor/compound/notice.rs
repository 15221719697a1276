//! Starts background work of the shard: the work that the rows of an applied batch require.

use crate::data::pools;
use crate::meta::keys;
use crate::shard::Shard;
use bytes::Bytes;
use shoal_proto::Answer;
use shoal_store::Changes;
use std::rc::Rc;

/// The facts of an applied batch that the shard needs.
pub(super) struct Notice {
    reaps: bool,
    /// The pools' rows.
    pub(super) pools: Vec<(Bytes, Option<Bytes>)>,
    map: Option<shoal_proto::ClusterMap>,
}

impl Notice {
    pub(super) fn of(changes: &Changes, answers: &[Answer]) -> Notice {
        let is_reap = |(key, value): &(Bytes, Option<Bytes>)| {
            value.is_some() && key.first() == Some(&(keys::Table::Reap as u8))
        };
        let map_row = keys::config("map");
        let changed = changes.rows.iter().any(|(key, _)| *key == map_row);
        let map_of = |answer: &Answer| match answer {
            Answer::Map { map } => Some(map.clone()),
            _ => None,
        };
        let map = if changed { answers.iter().rev().find_map(map_of) } else { None };
        let pools = changes.rows.iter().filter(|(key, _)| pools::is_pool(key)).cloned().collect();
        Notice { reaps: changes.rows.iter().any(is_reap), pools, map }
    }

    pub(super) fn give(self, shard: &Rc<Shard>) {
        if self.reaps {
            shard.reap_rows.wake_all();
        }
        if !self.pools.is_empty() {
            shard.pools.taken(&shard.counters, &self.pools);
        }
        if let Some(map) = self.map {
            shard.adopt_map(map);
            crate::membership::maps::push_to_all(shard);
        }
        if shard.handles.is_low() {
            shard.grow_handles();
        }
    }
}
