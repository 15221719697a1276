//! The modules that keep nothing.

use crate::common;
use crate::common::{bytes, change, get_row, handle, info, life, moment, put_row};
use shoal_store::{CollectionConfig, ModuleKind, StreamChange, open};

#[test]
fn the_modules_memory_and_null_keep_nothing() {
    for module in [ModuleKind::Memory, ModuleKind::Null] {
        let dir = tempfile::tempdir().unwrap();
        let config = CollectionConfig { module, ..common::config(dir.path()) };
        let given = config.clone();
        life(|env| async move {
            let store = open(env, given).await.unwrap();
            put_row(&store, "Dname", "value").await;
            change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
            let put = StreamChange::Put { content: bytes(1, 100), size: 100, written_at: moment(1) };
            change(&store, handle(1), put).await;
            assert_eq!(get_row(&store, "Dname").await.as_deref(), Some("value"));
            store.fsync(handle(1)).await.unwrap();
            store.close().await.unwrap();
        });
        life(|env| async move {
            let store = open(env, config).await.unwrap();
            assert_eq!(get_row(&store, "Dname").await, None);
            assert_eq!(info(&store, handle(1)).await, None);
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{module:?} wrote into the folder");
    }
}
