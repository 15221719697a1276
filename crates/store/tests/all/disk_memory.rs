//! The configuration bounds a store's memory under any load. The tests compare counted bytes, not times.

use crate::common;
use crate::common::{bytes, handle, killed, moment};
use shoal_env::sim::{Config, Disk, World};
use shoal_store::{Ask, Changes, CollectionConfig, StreamChange, look, open};
use std::path::Path;

#[test]
fn however_fast_changes_come_what_is_kept_in_memory_stays_within_the_limits() {
    let world = World::new(3, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    // Far slower than the incoming changes.
    world.set_disk(machine, Disk { write_bytes_per_s: 4 << 20, ..Disk::default() });
    world.complete(process, |env| async move {
        let config = CollectionConfig {
            segment_bytes: 1 << 20,
            table_bytes_max: 256 << 10,
            table_rows_max: 10_000,
            row_cache_rows: 100_000,
            row_cache_bytes: 128 << 10,
            data_cache_bytes: 128 << 10,
            queue_bytes_max: 256 << 10,
            ..common::config(Path::new("/data/memory"))
        };
        // Active, two frozen, two checkpointed; a table takes one batch more than its limit, and a filter
        // of two bytes a row.
        let filter_max = (2 * config.table_rows_max).next_power_of_two();
        let tables_max = 5 * (config.table_bytes_max + 8_192 + filter_max);
        let rows_max = (tables_max + config.row_cache_bytes + config.bloom_filter_bytes) as u64;
        let contents_max = (config.data_cache_bytes + config.queue_bytes_max + 64 * 1024) as u64;
        let queue_max = (config.queue_bytes_max + 64 * 1024) as u64;
        let store = open(env, config).await.unwrap();
        for n in 0..1_500_u64 {
            let ask = Ask { journal_bytes: 20_000, ..Ask::default() };
            let _admission = store.admit(ask).await.unwrap();
            let mut changes = Changes::default();
            changes.put(format!("Drow-{n}"), vec![7; 2_000]);
            changes.stream(handle(n), StreamChange::Create { generation: 1 });
            let content = bytes(n, 8_192);
            changes.stream(handle(n), StreamChange::Put { content, size: 8_192, written_at: moment(1) });
            store.apply(changes).unwrap();
            if n % 7 == 0 && n > 500 {
                let key = format!("Drow-{}", n * 31 % (n - 400));
                look(&store, |view| view.get(key.as_bytes())).await.unwrap();
            }
            let counts = store.counters();
            assert!(counts.row_bytes <= rows_max, "{} of rows", counts.row_bytes);
            assert!(counts.content_bytes <= contents_max, "{} of contents", counts.content_bytes);
            assert!(counts.queue_bytes <= queue_max, "{} to be written", counts.queue_bytes);
        }
        assert!(store.counters().checkpoints > 5 && store.counters().loads > 10, "all of it took part");
    });
}

#[test]
fn what_the_journal_had_at_the_start_is_counted_as_memory() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        let mut changes = Changes::default();
        (0..100).for_each(|n| changes.put(format!("Drow-{n}"), vec![7; 1_000]));
        let last = store.apply(changes).unwrap();
        store.push_durable();
        while store.durable() < last {
            store.progress().wait().await;
        }
    });
    killed(dir.path(), |store| async move {
        let there = store.counters().row_bytes;
        assert!((100_000..250_000).contains(&there), "{there} of 100 rows of 1,000 bytes");
    });
}
