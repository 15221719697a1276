//! Errors that say which server, which operation, which object, and what to do.

use shoal_proto::{Handle, ServerId, Status};
use std::fmt;

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The status, mapped to `errno` by [`Error::errno`].
    pub status: Status,
    /// The server that said so, or did not answer.
    pub server: Option<ServerId>,
    /// The operation.
    pub op: &'static str,
    /// The object it was asked of.
    pub object: Option<Handle>,
    /// Details: the reason, the remedy. May be empty.
    pub words: String,
}

impl Error {
    /// An error of the client itself.
    pub fn new(status: Status, op: &'static str) -> Error {
        Error { status, server: None, op, object: None, words: String::new() }
    }

    /// The error number a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        self.status.errno()
    }

    /// Whether a server did not answer, or cannot be reached, which may pass.
    pub fn is_silence(&self) -> bool {
        matches!(self.status, Status::TimedOut | Status::Silent | Status::Unavailable)
    }

    /// The same, of an object.
    pub fn of(mut self, object: Handle) -> Error {
        self.object = Some(object);
        self
    }

    /// The same, from a server.
    pub fn from(mut self, server: ServerId) -> Error {
        self.server = Some(server);
        self
    }

    /// The same, with more to say.
    pub fn because(mut self, words: impl Into<String>) -> Error {
        self.words = words.into();
        self
    }
}

/// Whether a server that says this will say it again.
pub(crate) fn is_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::BadKey
            | Status::BadVersion
            | Status::BadCollection
            | Status::Forbidden
            | Status::Poisoned
            | Status::NoStore
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op)?;
        if let Some(object) = self.object {
            write!(f, " of {object}")?;
        }
        if let Some(server) = self.server {
            write!(f, " at server {server}")?;
        }
        write!(f, ": {}", self.status)?;
        if !self.words.is_empty() {
            write!(f, " ({})", self.words)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
