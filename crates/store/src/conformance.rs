//! The conformance suite of all store modules. The tests of each module run it.
//!
//! [`check`] opens a fresh collection for each check. A check panics if the promise in its name is broken;
//! the functions here are meant for tests alone.

mod rows;
mod small;
mod streams;

use crate::{Ask, Changes, Collection, StoreError, StreamChange, StreamInfo, look};
use bytes::Bytes;
use shoal_env::WallTime;
use shoal_pattern::ViewRun;
use shoal_proto::{Handle, ServerId};
use std::future::Future;

/// Promises of the module under test beyond the rows.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Reads return the written bytes (`false`: zeros of the right length, module `null`).
    pub bytes: bool,
}

/// Run the whole suite. `open` returns a new, empty collection each time, named by its argument.
///
/// # Panics
///
/// When a promise is broken.
pub async fn check<F>(promises: Promises, open: impl Fn(&'static str) -> F)
where
    F: Future<Output = Result<Collection, StoreError>>,
{
    macro_rules! run {
        ($($group:ident :: $name:ident),* $(,)?) => {
            $({
                let name = concat!(stringify!($group), "-", stringify!($name));
                let store = open(name).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                $group::$name(&Subject { store: store.clone(), promises }).await;
                store.close().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            })*
        };
    }
    run!(
        rows::a_batch_is_visible_at_once_and_in_order,
        rows::a_scan_gives_rows_in_order_and_resumes_by_key,
        rows::a_scan_merges_removals_and_checkpoints,
        rows::what_was_checkpointed_is_found_again,
        rows::what_the_rows_of_a_scan_lead_to_is_loaded_with_them,
        rows::a_view_depends_on_what_is_not_durable,
        rows::everything_becomes_durable_when_asked,
        rows::an_impossible_batch_changes_nothing,
        small::a_small_content_is_what_was_put,
        small::contents_of_many_sizes_are_found_after_a_checkpoint,
        small::a_small_stream_is_cut_and_grows_with_zeros,
        small::later_changes_of_one_batch_see_earlier_ones,
        small::an_advance_forgets_the_time_of_the_newest_write,
        small::a_removed_stream_is_gone,
        streams::bulk_writes_and_reads_agree,
        streams::a_stale_generation_is_refused,
        streams::a_small_stream_outgrows_its_home,
        streams::a_put_replaces_a_large_stream,
        streams::records_behind_the_bytes_of_a_stream_that_grew_are_zeros,
        streams::a_cut_large_stream_grows_with_zeros,
        streams::appends_follow_each_other,
        streams::an_append_that_would_end_beyond_its_bound_is_refused_wherever_the_end_is_by_then,
        streams::a_punched_range_reads_as_zeros,
        streams::allocation_grows_only_when_asked,
        streams::runs_are_scattered_and_gathered,
        streams::concurrent_writers_of_disjoint_ranges_all_land,
        streams::a_wild_run_is_an_error,
        streams::many_random_operations_agree_with_a_plain_buffer,
    );
}

/// One collection under test, with shortcuts for the checks.
struct Subject {
    store: Collection,
    promises: Promises,
}

/// A moment in the checks.
fn moment(n: i64) -> WallTime {
    WallTime(1_700_000_000_000_000_000 + n)
}

/// A handle of the checks.
fn handle(n: u64) -> Handle {
    Handle::new(ServerId(1), n)
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: u64, len: usize) -> Bytes {
    let byte = |i: usize| {
        let mixed = (i as u64 + 1).wrapping_mul(seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15));
        (mixed >> 32) as u8 | 1
    };
    (0..len).map(byte).collect::<Vec<u8>>().into()
}

fn ok<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

impl Subject {
    async fn apply(&self, changes: Changes) -> crate::Lsn {
        ok(self.try_apply(changes).await)
    }

    /// Apply as a server does: load the streams' rows, admit, apply over the loaded rows.
    async fn try_apply(&self, changes: Changes) -> Result<crate::Lsn, StoreError> {
        let admission = self
            .store
            .admit(Ask { journal_bytes: 64 << 10, stream_bytes: 0, stream: None, frees: false })
            .await?;
        for (handle, _) in &changes.streams {
            look(&self.store, |view| view.stream(*handle)).await?;
        }
        let lsn = self.store.apply(changes);
        drop(admission);
        lsn
    }

    async fn change(&self, handle: Handle, change: StreamChange) {
        let mut changes = Changes::default();
        changes.stream(handle, change);
        self.apply(changes).await;
    }

    async fn create(&self, n: u64) -> Handle {
        self.change(handle(n), StreamChange::Create { generation: 1 }).await;
        handle(n)
    }

    async fn info(&self, handle: Handle) -> Option<StreamInfo> {
        ok(look(&self.store, |view| view.stream(handle)).await).0
    }

    async fn get(&self, key: &[u8]) -> Option<Bytes> {
        ok(look(&self.store, |view| view.get(key)).await).0
    }

    /// All rows of a prefix, read `limit` at a time.
    async fn scan(&self, prefix: &[u8], limit: usize) -> Vec<(Bytes, Bytes)> {
        let mut all = Vec::new();
        let mut after: Option<Bytes> = None;
        loop {
            let (scan, _) = ok(look(&self.store, |view| view.scan(prefix, after.as_deref(), limit)).await);
            assert!(scan.rows.len() <= limit, "a scan keeps to its limit");
            all.extend(scan.rows);
            let Some(resume) = scan.resume else { return all };
            assert!(after.as_ref().is_none_or(|after| *after < resume), "a scan moves on");
            after = Some(resume);
        }
    }

    /// The small content, filled up with zeros to the stream's size.
    async fn content(&self, handle: Handle) -> Vec<u8> {
        let (content, size) = ok(look(&self.store, |view| {
            let content = view.small_content(handle)?;
            Ok((content, view.stream(handle)?.map_or(0, |info| info.size)))
        })
        .await)
        .0;
        let mut content = content.to_vec();
        content.resize(size as usize, 0);
        content
    }

    async fn read(&self, handle: Handle, at: u64, len: usize) -> Vec<u8> {
        let generation = self.info(handle).await.map_or(0, |info| info.generation);
        let run = ViewRun { physical: at, packed: 0, len: len as u64 };
        ok(self.store.read(handle, generation, vec![run], len).await).0.to_vec()
    }

    async fn write(&self, handle: Handle, at: u64, data: Bytes, when: i64) -> StreamInfo {
        let generation = self.info(handle).await.map_or(0, |info| info.generation);
        let run = ViewRun { physical: at, packed: 0, len: data.len() as u64 };
        ok(self.store.write(handle, generation, vec![run], data, moment(when)).await)
    }

    /// The bytes read are the expected ones (zeros of the same length if bytes are not kept).
    fn same(&self, got: &[u8], expected: &[u8]) {
        assert_eq!(got.len(), expected.len(), "the length of what is read");
        if self.promises.bytes {
            let differ = got.iter().zip(expected).position(|(a, b)| a != b);
            assert_eq!(differ, None, "the first byte that differs");
        } else {
            assert!(got.iter().all(|byte| *byte == 0), "bytes that are not kept read as zeros");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CollectionConfig, Identity, ModuleKind, open};

    fn config(module: ModuleKind) -> CollectionConfig {
        CollectionConfig::new("/nowhere", module, Identity::default())
    }

    #[test]
    fn module_memory_conforms() {
        shoal_env::real::run("memory", |env| async move {
            check(Promises { bytes: true }, |_| open(env.clone(), config(ModuleKind::Memory))).await;
        });
    }

    #[test]
    fn module_null_conforms_without_its_bytes() {
        shoal_env::real::run("null", |env| async move {
            check(Promises { bytes: false }, |_| open(env.clone(), config(ModuleKind::Null))).await;
        });
    }
}
