//! Listing a directory.

use crate::Error;
use shoal_proto::{Entry, Handle, Status};

/// A listing of a directory.
pub struct DirStream {
    pub(crate) dir: Handle,
}

impl DirStream {
    /// The next entry; `None` at the end. With `plus`, its attributes, merged (`None` in it: it is gone meanwhile).
    pub async fn next(&mut self, plus: bool) -> Result<Option<Entry>, Error> {
        let _ = plus;
        Err(Error::new(Status::NotSupported, "readdir").of(self.dir))
    }
    /// Go on behind a place (an entry's `place`); 0 is the start.
    pub fn seek(&mut self, place: u64) {
        let _ = place;
    }
}
