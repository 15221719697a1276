//! Errors. Each names the operation, and where they are known the server, the object and the remedy.

use shoal_pattern::Pattern;
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
    /// The number that a local kernel gave, where that says more than the status.
    pub kernel: Option<i32>,
}

/// Of a call to a file system.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the client itself.
    pub fn new(status: Status, op: &'static str) -> Error {
        Error { status, server: None, op, object: None, words: String::new(), kernel: None }
    }

    /// An error of a call to the local kernel.
    pub fn of_kernel(error: &std::io::Error, op: &'static str) -> Error {
        let Some(number) = error.raw_os_error() else {
            return Error::new(Status::Io, op).because(error.to_string());
        };
        let status = Status::of_errno(number).unwrap_or(Status::Io);
        let words = if status == Status::Io { error.to_string() } else { String::new() };
        Error { kernel: Some(number), ..Error::new(status, op) }.because(words)
    }

    /// The error number a POSIX caller sees.
    pub fn errno(&self) -> i32 {
        self.kernel.unwrap_or(self.status.errno())
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

    /// In words, with a name that the caller knows in the place of the object's handle.
    pub fn named(&self, name: impl fmt::Display) -> String {
        Of(self, Some(&name)).to_string()
    }

    /// The same, with more to say.
    pub fn because(mut self, words: impl Into<String>) -> Error {
        self.words = words.into();
        self
    }
}

/// A file's offset, from a region of a pattern.
pub(crate) fn offset(signed: i64) -> Result<u64> {
    u64::try_from(signed).map_err(|_| {
        Error::new(Status::Invalid, "transfer")
            .because(format!("the pattern reaches before the file, to {signed}"))
    })
}

/// Bytes of a pattern that are read at once, at most: they are in memory.
const READ_BYTES_MAX: u64 = 1 << 32;

/// The packed length of a pattern that is to be read.
///
/// # Errors
/// `OverLimit`: it is too long.
pub fn read_len(pattern: &Pattern) -> Result<usize> {
    let len = pattern.len();
    usize::try_from(len).ok().filter(|_| len <= READ_BYTES_MAX).ok_or_else(|| {
        let words = format!("the pattern has {len} bytes, and {READ_BYTES_MAX} may be read at once");
        Error::new(Status::OverLimit, "read").because(words)
    })
}

/// A pattern and data of different lengths.
pub(crate) fn unequal(pattern: u64, data: usize) -> Error {
    let words = format!("the pattern has {pattern} bytes and the data {data}");
    Error::new(Status::Invalid, "write").because(words)
}

/// The error, of an object as it is to be called.
struct Of<'a>(&'a Error, Option<&'a dyn fmt::Display>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Of(error, object) = self;
        f.write_str(error.op)?;
        if let Some(object) = object {
            write!(f, " of {object}")?;
        }
        if let Some(server) = error.server {
            write!(f, " at server {server}")?;
        }
        write!(f, ": {}", error.status)?;
        if !error.words.is_empty() {
            write!(f, " ({})", error.words)?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.as_ref().map(|object| object as &dyn fmt::Display);
        Of(self, object).fmt(f)
    }
}

impl std::error::Error for Error {}
