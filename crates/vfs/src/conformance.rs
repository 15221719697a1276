//! The conformance suite of all file systems. The tests of each file system run it.
//!
//! [`check`] gives each check a fresh directory. A check panics if the promise in its name is broken; the
//! functions here are meant for tests alone.

mod attributes;
mod data;
mod entries;
mod listings;
mod names;
mod patterns;
mod renames;
mod xattrs;

use crate::{Result, Vfs};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Name, Owner, Rights, Status};
use std::fmt::Debug;

/// Promises that some file systems, or their users, do not have.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Extended attributes of users.
    pub xattrs: bool,
    /// Owners can be set, and are the callers'.
    pub owners: bool,
    /// A directory counts its subdirectories as links.
    pub counted_directories: bool,
    /// Bytes written are read again.
    pub bytes: bool,
    /// Hard links.
    pub links: bool,
    /// A file without a name that nothing has open cannot be opened any more.
    pub gone: bool,
    /// Entries of a large directory: more than a batch of the file system has.
    pub many: usize,
}

impl Promises {
    /// All of them.
    pub const ALL: Promises = Promises {
        xattrs: true,
        owners: true,
        counted_directories: true,
        bytes: true,
        links: true,
        gone: true,
        many: 3000,
    };
}

/// Run the whole suite in new directories of the root.
///
/// # Panics
///
/// When a promise is broken.
pub async fn check<V: Vfs>(vfs: &V, promises: Promises) {
    macro_rules! run {
        ($($group:ident :: $name:ident),* $(,)?) => {
            $({
                let name = concat!(stringify!($group), " ", stringify!($name));
                $group::$name(&Ground::new(vfs, promises, name).await).await;
            })*
        };
    }
    run!(
        entries::a_name_leads_to_the_object_that_was_made,
        entries::a_name_that_leads_nowhere_is_not_found,
        entries::names_are_bytes,
        entries::an_exclusive_creation_needs_a_new_name,
        entries::a_creation_opens_the_file_that_is_there,
        entries::removals_take_the_kind_that_they_are_for,
        entries::a_removed_directory_is_stale,
        entries::many_files_are_made_and_read_whole_each_with_its_own_result,
        names::links_share_one_object,
        names::a_link_needs_a_file_and_a_new_name,
        names::a_symbolic_link_keeps_its_target,
        names::a_path_follows_links_and_no_circle,
        names::a_path_that_must_stay_inside_does_not_leave_by_the_root,
        names::directories_count_their_subdirectories,
        names::a_new_object_has_its_owner_and_mode,
        attributes::changes_of_attributes_are_returned_and_stay,
        attributes::times_are_kept_to_the_nanosecond,
        attributes::a_size_cuts_and_grows_with_zeros,
        attributes::privileges_are_cleared_where_it_is_asked_for,
        attributes::a_write_moves_the_time_of_the_data,
        attributes::only_files_have_a_size_to_set,
        data::bytes_are_read_as_written_and_short_only_at_the_end,
        data::holes_are_zeros,
        data::a_file_is_used_only_as_it_was_opened,
        data::appends_are_whole_and_each_at_its_place,
        data::a_removed_file_stays_while_it_is_open,
        data::clones_and_further_opens_keep_a_file_open,
        data::allocation_keeps_contents,
        data::durable_writes_and_syncs_succeed,
        data::only_files_are_opened,
        patterns::patterns_agree_with_single_bytes,
        patterns::the_later_byte_of_an_overlap_stays,
        patterns::a_pattern_before_the_file_or_of_another_length_is_refused,
        patterns::more_bytes_than_are_read_at_once_are_refused,
        renames::a_rename_moves_the_object,
        renames::a_rename_replaces_its_target,
        renames::a_rename_without_replacement_is_refused,
        renames::an_exchange_swaps_two_entries,
        renames::a_rename_fits_its_target,
        renames::two_names_of_one_object_stay,
        renames::a_moved_directory_has_another_parent,
        listings::every_entry_comes_once_with_its_attributes,
        listings::an_empty_directory_has_no_entries,
        listings::a_listing_goes_on_over_changes,
        listings::a_listing_continues_after_a_place,
        listings::only_directories_are_listed,
        xattrs::values_are_kept,
        xattrs::a_set_fits_the_present_value,
        xattrs::directories_have_attributes_too,
    );
    vfs.sync_all().await.expect("everything becomes durable");
    let space = vfs.statfs().await.expect("its space");
    assert!(space.total > 0 && space.available <= space.total, "{space:?}");
}

/// Bits of a new file and of a new directory.
const OWNER: Owner = Owner { mode: 0o640, uid: 0, gid: 0 };
const DIR_OWNER: Owner = Owner { mode: 0o750, uid: 0, gid: 0 };
const BOTH: Rights = Rights::READ.union(Rights::WRITE);

/// A check's own directory.
struct Ground<'a, V: Vfs> {
    vfs: &'a V,
    promises: Promises,
    dir: Handle,
    title: &'static str,
}

/// A name.
fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// Bytes that depend on a number.
fn bytes_of(len: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // No byte looks like a hole.
        (state >> 33) as u8 | 1
    };
    (0..len).map(|_| byte()).collect()
}

impl<'a, V: Vfs> Ground<'a, V> {
    async fn new(vfs: &'a V, promises: Promises, title: &'static str) -> Ground<'a, V> {
        let made = vfs.mkdir(Handle::ROOT, &name(title), DIR_OWNER).await;
        let attr = made.unwrap_or_else(|error| panic!("{title}: {error}"));
        Ground { vfs, promises, dir: attr.handle, title }
    }

    /// The value of a call that must succeed.
    fn ok<T>(&self, done: Result<T>) -> T {
        done.unwrap_or_else(|error| panic!("{}: {error}", self.title))
    }

    /// A call must fail so.
    fn fails<T: Debug>(&self, done: Result<T>, status: Status) {
        match done {
            Err(error) if error.status == status => {}
            done => panic!("{}: {done:?} instead of {status:?}", self.title),
        }
    }

    /// A new open file.
    async fn file(&self, text: &str) -> (Attr, V::File) {
        let made = self.vfs.create(self.dir, &name(text), OWNER, true, BOTH).await;
        let (attr, is_new, file) = self.ok(made);
        assert!(is_new, "{}: {text} is new", self.title);
        (attr, file)
    }

    /// A new directory.
    async fn directory(&self, text: &str) -> Attr {
        self.ok(self.vfs.mkdir(self.dir, &name(text), DIR_OWNER).await)
    }

    /// The object of a name.
    async fn look(&self, text: &str) -> Attr {
        self.ok(self.vfs.lookup(self.dir, &name(text)).await)
    }

    /// A name leads nowhere.
    async fn is_absent(&self, dir: Handle, text: &str) {
        self.fails(self.vfs.lookup(dir, &name(text)).await, Status::NotFound);
    }

    async fn attr(&self, object: Handle) -> Attr {
        self.ok(self.vfs.getattr(object).await)
    }
}
