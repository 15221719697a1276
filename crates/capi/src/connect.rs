//! The calls `shoal_connect` and `shoal_close`, the calls that set timeouts, and the calls that return the
//! thread's last error.

use crate::call::{self, Res, call, failure, there, within};
use crate::table::{self, Connection, Kind};
use anyhow::Context as _;
use libc::{c_char, c_int};
use shoal_config::address::CommandTarget;
use shoal_world::{Over, Shown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time for each call, unless set.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A connection (`shoal_fs`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileSystemId {
    /// See [`crate::table`].
    pub id: u64,
}

fn shown(text: &str, key: Option<&Path>) -> anyhow::Result<Over> {
    if !text.starts_with("shoal://") {
        return Over::parse(text, key);
    }
    let place = CommandTarget::find(text, key)?;
    anyhow::ensure!(place.address.path == "/", "connect to the whole file system, without a path");
    place.open_key()?;
    let root = PathBuf::from("/");
    let shown = Shown::Shoal { address: place.address.to_string(), key: place.key };
    Ok(Over { dir: root.clone(), given: root, shown })
}

fn text(bytes: &[u8]) -> Res<&str> {
    std::str::from_utf8(bytes).context("the text is not UTF-8").map_err(Into::into)
}

/// Connect.
///
/// # Safety
/// `where_` and `key` are null or C strings; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_connect(
    where_: *const c_char,
    key: *const c_char,
    out: *mut FileSystemId,
) -> c_int {
    call("shoal_connect", || {
        there(out)?;
        // SAFETY: as the caller promises.
        let address = text(unsafe { call::bytes(where_) }?)?;
        let key = match key.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(Path::new(text(unsafe { call::bytes(key) }?)?)),
        };
        let over = shown(address, key)?;
        let connection = Arc::new(Connection::new(TIMEOUT));
        within(&connection, |session| session.plant(&over))?;
        let id = table::add(Kind::FileSystem, &connection)?;
        // SAFETY: as the caller promises.
        unsafe { call::put(out, FileSystemId { id }) }
    })
}

/// Close a connection, and all that is open on it.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_close(fs: FileSystemId) -> c_int {
    call("shoal_close", || {
        let connection = table::find(Kind::FileSystem, fs.id)?;
        // With the turn: a close that met its deadline before can be repeated.
        within(&connection, |session| {
            if !table::remove(fs.id) {
                return Err(failure(libc::EBADF, "another thread closed it"));
            }
            session.end().map(|()| 0)
        })
    })
}

/// Make all that was written through this connection durable.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_sync(fs: FileSystemId) -> c_int {
    call::on("shoal_sync", Kind::FileSystem, fs.id, |session, _| {
        session.on(|tree| tree.sync_all())?;
        Ok(0)
    })
}

/// Time for each call on this connection.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_set_timeout(fs: FileSystemId, milliseconds: i64) -> c_int {
    call("shoal_set_timeout", || {
        if milliseconds < 0 {
            return Err(failure(libc::EINVAL, "a timeout is 0 or more milliseconds"));
        }
        table::find(Kind::FileSystem, fs.id)?.set_timeout(milliseconds);
        Ok(0)
    })
}

/// Time for each call of this thread; less than 0: that of the connection.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_set_thread_timeout(milliseconds: i64) {
    call::set_timeout(call::span(milliseconds));
}

/// Number of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_error_number() -> c_int {
    call::last_number()
}

/// Words of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_error_words() -> *const c_char {
    call::last_words()
}

crate::version::since_1_0! {
    shoal_connect, shoal_close, shoal_sync, shoal_set_timeout, shoal_set_thread_timeout,
    shoal_error_number, shoal_error_words,
}
