//! An open directory: a stream of entries that can continue from any of them.
//!
//! The kernel requests the entries after an offset, which is the cookie that the underlying directory
//! returned with the entry before. A listing in order continues from the entries read ahead; any other
//! offset drops these entries and seeks.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use rustix::io::Result;

/// Bytes of entries read ahead.
const READ_AHEAD: usize = 32 * 1024;

/// One entry.
pub(super) struct Entry {
    pub(super) ino: u64,
    pub(super) kind: FileType,
    pub(super) name: OsString,
    /// The offset after it.
    pub(super) next: u64,
}

/// An open directory.
pub(super) struct Stream {
    fd: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
    ahead: VecDeque<Entry>,
    /// The offset of the first entry of `ahead`, or of the next one to be read if that is empty.
    at: u64,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Stream {
        Stream { fd, buffer: vec![MaybeUninit::uninit(); READ_AHEAD], ahead: VecDeque::new(), at: 0 }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Goes to an offset.
    pub(super) fn go_to(&mut self, offset: u64) -> Result<()> {
        if offset == self.at {
            return Ok(());
        }
        self.ahead.clear();
        seek(&self.fd, SeekFrom::Start(offset))?;
        self.at = offset;
        Ok(())
    }

    /// The next entry, which stays the next until [`Stream::pass`].
    pub(super) fn peek(&mut self) -> Result<Option<&Entry>> {
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        Ok(self.ahead.front())
    }

    /// Goes past the entry that was peeked at.
    pub(super) fn pass(&mut self) {
        if let Some(entry) = self.ahead.pop_front() {
            self.at = entry.next;
        }
    }

    fn read_ahead(&mut self) -> Result<()> {
        let mut raw = RawDir::new(&self.fd, &mut self.buffer);
        while let Some(entry) = raw.next() {
            let entry = entry?;
            self.ahead.push_back(Entry {
                ino: entry.ino(),
                kind: entry.file_type(),
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                next: entry.next_entry_cookie(),
            });
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// Whether a name means the directory itself or the one above it.
pub(super) fn is_dot(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}
