//! One table of statuses, mapped once to `errno`.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use std::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, errno $errno:literal, $words:literal;)*) => {
        /// The result of an operation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Status { $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// All statuses.
            pub const ALL: &'static [Status] = &[$(Status::$name,)*];

            /// The error number a POSIX caller sees (Linux numbers); 0 for `Ok`.
            pub const fn errno(self) -> i32 {
                match self { $(Status::$name => $errno,)* }
            }

            /// In words.
            pub const fn words(self) -> &'static str {
                match self { $(Status::$name => $words,)* }
            }

            /// The first status that a POSIX caller sees as this error number.
            pub fn of_errno(errno: i32) -> Option<Status> {
                Status::ALL.iter().copied().find(|status| *status != Status::Ok && status.errno() == errno)
            }

            fn from_code(code: u16) -> Option<Status> {
                match code { $($code => Some(Status::$name),)* _ => None }
            }
        }
    };
}

statuses! {
    /// Done.
    Ok = 0, errno 0, "done";

    // Statuses known to POSIX callers.
    /// No such entry.
    NotFound = 1, errno 2, "no such file or directory";
    /// The entry exists.
    Exists = 2, errno 17, "exists already";
    /// A directory is needed.
    NotDirectory = 3, errno 20, "not a directory";
    /// A directory is not allowed.
    IsDirectory = 4, errno 21, "is a directory";
    /// The directory has entries.
    NotEmpty = 5, errno 39, "directory not empty";
    /// Not allowed to any user, or only to the owner.
    NotPermitted = 6, errno 1, "operation not permitted";
    /// The mode forbids it.
    AccessDenied = 7, errno 13, "permission denied";
    /// An argument makes no sense.
    Invalid = 8, errno 22, "invalid argument";
    /// A name is over 255 bytes or a path over 4095.
    NameTooLong = 9, errno 36, "name too long";
    /// No space left; removals still work.
    NoSpace = 10, errno 28, "no space left on the file system";
    /// Too many hard links.
    TooManyLinks = 11, errno 31, "too many links";
    /// Too many symbolic links.
    Loop = 12, errno 40, "too many levels of symbolic links";
    /// No such extended attribute.
    NoAttribute = 13, errno 61, "no such extended attribute";
    /// The buffer is too small for the value.
    OutOfRange = 14, errno 34, "result too large for the buffer";
    /// The value is too large.
    TooBig = 15, errno 7, "value too large";
    /// Beyond the largest file.
    FileTooBig = 16, errno 27, "file too large";
    /// Not offered.
    NotSupported = 17, errno 95, "operation not supported";
    /// The object is gone.
    Stale = 18, errno 116, "the object is gone";
    /// The disk failed or returned wrong data.
    Io = 19, errno 5, "input/output error on the server";
    /// Read only.
    ReadOnly = 20, errno 30, "read-only file system";
    /// The entry may not leave its subfile, or enter one; the path leads out of the file system.
    CrossDevice = 21, errno 18, "not within one file system, or one subfile of a forked file";

    // Statuses between clients and servers.
    /// The file's layout changed: fetch it and try again.
    StaleLayout = 40, errno 116, "the file's layout changed";
    /// A transaction's lock blocks the operation: back off and try again.
    Busy = 41, errno 16, "busy with another operation on the same object";
    /// The session is not known (expired, or the server lost it): nothing was executed.
    NoSession = 42, errno 5, "the session has expired on the server; its outcome is unknown";
    /// The slot's sequence is not the next one nor the last one.
    BadSequence = 43, errno 71, "out of sequence in a session's slot";
    /// The group before it failed, so this one was not run.
    NotRun = 44, errno 125, "not run, as an operation before it failed";
    /// The transaction's facts changed under the coordinator: plan it again.
    Changed = 45, errno 11, "changed meanwhile";
    /// The server is not ready to serve it; try again later.
    Unavailable = 46, errno 11, "the server is not ready";
    /// The deadline passed.
    TimedOut = 47, errno 110, "the deadline passed";
    /// The server does not hold the object or role.
    WrongServer = 48, errno 71, "another server holds this";
    /// The last component led to an entry of another kind than expected by the transaction.
    Conflict = 49, errno 71, "conflict";
    /// The directory is split, and another server holds the shard: the answer after it names the shards.
    Split = 50, errno 71, "another shard of the directory holds this";

    /// A signal ended the wait for a server. Only clients return this.
    Interrupted = 51, errno 4, "interrupted while a server did not answer";
    /// The server did not answer within a whole time limit, so no request was sent. Only clients return
    /// this.
    Silent = 52, errno 110, "not sent, as the server is silent";

    /// The wait for a lock would close a circle of waits.
    Deadlock = 53, errno 35, "the wait for this lock would never end";
    /// The client has as many locks as it may have, or a lock that it claims is not its own any more.
    NoLocks = 54, errno 37, "no more locks";

    // Refusals.
    /// The key does not match.
    BadKey = 60, errno 13, "the key does not match the file system's";
    /// No common protocol version.
    BadVersion = 61, errno 93, "no common protocol version";
    /// The server serves no such file system.
    BadCollection = 62, errno 2, "the server does not serve this file system";
    /// The capability is missing, forged, expired, of another object, or lacks the right.
    BadCapability = 63, errno 13, "no valid capability for this access";
    /// The message does not follow the protocol.
    BadMessage = 64, errno 71, "malformed message";
    /// A limit of the protocol was passed.
    OverLimit = 65, errno 7, "over a limit of the protocol";
    /// The store stopped after a failed sync.
    Poisoned = 66, errno 5, "the server's store stopped after a failed write";
    /// The server's store is missing: its folder is empty, another's, or an older copy, or its store was
    /// given up.
    NoStore = 68, errno 5, "the server's store is missing";
    /// The store of the server that connects is not the known one, or an older copy of it.
    OtherStore = 69, errno 5, "another store of this server is known";
    /// The key was let in once, and is not any more.
    KeyRevoked = 70, errno 128, "the key was revoked";
    /// Only a peer or an administrator may send this.
    Forbidden = 67, errno 1, "not allowed on this connection";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl std::error::Error for Status {}

impl Codec for Status {
    fn encode(&self, w: &mut Writer) {
        w.put_u16(*self as u16);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Status::from_code(r.get_u16()?).ok_or(DecodeError::Invalid("status"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_wire_and_only_ok_has_no_errno() {
        for &status in Status::ALL {
            let mut w = Writer::new();
            status.encode(&mut w);
            assert_eq!(Status::decode(&mut Reader::new(w.as_slice())), Ok(status));
            assert_eq!(status.errno() == 0, status == Status::Ok);
        }
    }
}
