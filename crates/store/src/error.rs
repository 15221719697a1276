//! Errors of the store.

use std::io;

/// An error of the persistency layer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No space left for this; removals still work.
    #[error(
        "no space left: {available} bytes free, {asked} requested, {reserve} kept for removals and recovery"
    )]
    NoSpace {
        /// Bytes free now, by the file system.
        available: u64,
        /// Bytes requested.
        asked: u64,
        /// Bytes in reserve.
        reserve: u64,
    },
    /// A sync or write failed once: changes in memory can no longer be trusted to reach the disk, so
    /// nothing more is accepted until the server is started again (the kernel may drop dirty pages after a
    /// failed sync).
    #[error("the store stopped after a failed write: {0}; start the server again once the disk works")]
    Poisoned(String),
    /// The stream has another generation than the request.
    #[error("the layout of this stream changed (it is of generation {current})")]
    Stale {
        /// The generation now.
        current: u64,
    },
    /// No such stream.
    #[error("no such stream")]
    NoStream,
    /// Damage found on disk: never skipped.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The folder is another's, or of a newer version, or in use.
    #[error("{0}")]
    Refused(String),
    /// The folder does not hold the store that it must hold: it is empty, or holds another one. It was not
    /// touched.
    #[error("{0}")]
    Missing(String),
    /// A further disk of the store is not mounted, or a folder of streams on it is lost. The store itself is
    /// there.
    #[error("{0}")]
    DiskMissing(String),
    /// The folder holds a store of another server, file system or collection: folders were exchanged, or the
    /// cluster file names a wrong one. It was not touched.
    #[error("{0}")]
    Foreign(String),
    /// An error of the local file system.
    #[error("{context}: {kind}")]
    Io {
        /// The operation and its object.
        context: String,
        /// The kind of error, in words.
        kind: String,
        /// The error number, if there is one.
        errno: Option<i32>,
    },
}

impl StoreError {
    /// An I/O error with its operation.
    pub fn io(context: impl Into<String>, error: &io::Error) -> StoreError {
        StoreError::Io { context: context.into(), kind: error.to_string(), errno: error.raw_os_error() }
    }

    /// A request that no state of the store could fulfil (`EINVAL`).
    pub(crate) fn invalid(context: impl Into<String>) -> StoreError {
        StoreError::Io { context: context.into(), kind: "invalid argument".into(), errno: Some(22) }
    }

    /// A content or batch beyond the limits (`EFBIG`).
    pub(crate) fn too_large(bytes: usize) -> StoreError {
        let context = format!("{bytes} bytes in one change");
        StoreError::Io { context, kind: "too large".into(), errno: Some(27) }
    }
}
