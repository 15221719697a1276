//! The calls that list directories: `shoal_opendir`, `shoal_readdir`, `shoal_closedir`.

use crate::call::{bytes, failure, on, there};
use crate::connect::FileSystemId;
use crate::names::kind_bits;
use crate::table::{self, Kind};
use libc::{c_char, c_int};

/// A listing (`shoal_dir`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ListingId {
    /// See [`crate::table`].
    pub id: u64,
}

/// An entry (`shoal_entry`).
#[repr(C)]
pub struct CEntry {
    object: u64,
    mode: u32,
    name_len: u32,
    name: [u8; 256],
}

/// List a directory.
///
/// # Safety
/// `path` is null or a C string; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_opendir(fs: FileSystemId, path: *const c_char, out: *mut ListingId) -> c_int {
    on("shoal_opendir", Kind::FileSystem, fs.id, |session, connection| {
        there(out)?;
        // SAFETY: as the caller promises.
        let path = unsafe { bytes(path) }?;
        let found = session.object(path, true)?;
        if found.attr.kind != shoal_proto::Kind::Directory {
            return Err(failure(libc::ENOTDIR, "it is no directory"));
        }
        let listing = session.tree()?.opendir(found.attr.handle);
        let id = table::add(Kind::Listing, connection)?;
        session.keep_listing(id, listing, path)?;
        // SAFETY: as the caller promises.
        unsafe { out.write(ListingId { id }) };
        Ok(0)
    })
}

/// The next entry: 1, or 0 at the end.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_readdir(dir: ListingId, out: *mut CEntry) -> c_int {
    on("shoal_readdir", Kind::Listing, dir.id, |session, _| {
        there(out)?;
        let Some(entry) = session.next(dir.id)? else { return Ok(0) };
        let bytes = entry.name.as_bytes();
        let mut name = [0; 256];
        let len = bytes.len().min(255);
        name[..len].copy_from_slice(&bytes[..len]);
        let mode = kind_bits(entry.kind);
        // SAFETY: as the caller promises.
        unsafe { out.write(CEntry { object: entry.handle.0, mode, name_len: len as u32, name }) };
        Ok(1)
    })
}

/// End a listing.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_closedir(dir: ListingId) -> c_int {
    on("shoal_closedir", Kind::Listing, dir.id, |session, _| session.drop_listing(dir.id).map(|()| 0))
}

crate::version::since_1_0! {
    shoal_opendir, shoal_readdir, shoal_closedir,
}
