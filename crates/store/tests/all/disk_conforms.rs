//! Module `disk` on a real folder, in every mode, held to the conformance suite.

use crate::common;
use shoal_store::conformance::{Promises, check};
use shoal_store::{CollectionConfig, DataSync, MetadataSync, SyncModes, open};

fn conforms(modes: SyncModes, adjust: impl Fn(CollectionConfig) -> CollectionConfig) {
    let dir = tempfile::tempdir().unwrap();
    common::life(|env| async move {
        check(Promises { bytes: true }, |name| {
            let config = CollectionConfig { sync_modes: modes, ..common::config(&dir.path().join(name)) };
            open(env.clone(), adjust(config))
        })
        .await;
    });
}

#[test]
fn module_disk_conforms_when_metadata_is_durable_at_the_reply() {
    conforms(SyncModes::default(), |config| config);
}

#[test]
fn module_disk_conforms_when_metadata_is_durable_at_fsync() {
    let modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
    conforms(modes, |config| config);
}

#[test]
fn module_disk_conforms_when_data_is_durable_at_the_reply() {
    let modes = SyncModes { metadata: MetadataSync::Never, data: DataSync::AtReply, ..SyncModes::default() };
    conforms(modes, |config| config);
}

#[test]
fn module_disk_conforms_with_its_default_limits_and_with_the_least() {
    conforms(SyncModes::default(), |config| CollectionConfig {
        segment_bytes: CollectionConfig::SEGMENT_BYTES_MIN * 2,
        group_bytes_max: 4096,
        table_rows_max: 10,
        row_cache_rows: 1,
        data_cache_bytes: 0,
        open_files: 1,
        ..config
    });
}
