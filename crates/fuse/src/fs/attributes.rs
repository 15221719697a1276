//! Requests and changes of attributes.
//!
//! A write, a truncation or a change of owner must clear the bits set-user-id and set-group-id. The kernel
//! could clear them, with two disadvantages. It would request `security.capability` before each write. It
//! would not clear the bits for files that bypass its page cache. So the mount declares that it clears these
//! bits itself (`FUSE_HANDLE_KILLPRIV_V2`). The kernel then requests the clearing with four kinds of
//! requests:
//!
//! - a truncation by a user other than root: the server clears in the same operation;
//! - a change of owner or group: the server clears in the same operation;
//! - a write by a user other than root: each such write requests the clearing, whether the bits are set or
//!   not (see [`data`](super::data));
//! - a change of attributes without any new value: the kernel sends it before it allocates or writes, if it
//!   knows that the file has such bits. It also sends it for `chown(-1, -1)`.

use super::attempts::Refused;
use super::{Caller, Errno, Fs, Result};
use shoal_proto::{Attr, Handle, Kind, SetAttr, Time};
use shoal_vfs::Vfs;

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// This moment, by this machine's clock.
    Now,
    /// That one.
    At(Time),
}

/// The attributes to set of an object; `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<When>,
    /// Last change of data.
    pub mtime: Option<When>,
    /// Last change of attributes, where the kernel keeps it.
    pub ctime: Option<Time>,
}

impl Change {
    /// All but the size, at the moment `now`. A size that is set sets mtime to now by itself.
    fn but_size(&self, now: Time) -> SetAttr {
        let time = |when: When| match when {
            When::Now => now,
            When::At(time) => time,
        };
        let mtime = self.mtime.filter(|when| self.size.is_none() || *when != When::Now);
        SetAttr {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            atime: self.atime.map(time),
            mtime: mtime.map(time),
            ctime: self.ctime,
            kill_privileges: self.uid.is_some() || self.gid.is_some() || *self == Change::default(),
        }
    }
}

impl<V: Vfs> Fs<V> {
    /// Attributes of an object, also of one that is removed but open, or was removed through this mount.
    pub async fn getattr(&self, object: Handle) -> Result<Attr> {
        match self.getattr_of_server(object).await {
            Err(Errno::STALE) => self.at_once.gone.get(object).ok_or(Errno::STALE),
            asked => asked,
        }
    }

    /// The same, without removed objects.
    pub(super) async fn getattr_of_server(&self, object: Handle) -> Result<Attr> {
        let attr = self.heard(object, self.vfs.getattr(object).await)?;
        // Without a name it is there only for those that have it open: a path leads elsewhere by now.
        if attr.nlink == 0 && !self.vfs.has_open(object) {
            self.changed(object);
            return Err(Errno::STALE);
        }
        Ok(self.saw(attr))
    }

    /// The same, asked by this thread.
    pub async fn getattr_of(&self, thread: u32, object: Handle) -> Result<Attr> {
        let asked = self.getattr(object).await;
        if !matches!(asked, Err(Errno::STALE)) {
            return asked;
        }
        match self.attempts.attr(thread, object, self.now()) {
            Some(attr) => Ok(attr),
            None => {
                self.refused(thread, Refused::Look, object);
                asked
            }
        }
    }

    /// Change attributes, all of them or (an error on the way) only the size.
    pub async fn setattr(&self, caller: Caller, object: Handle, change: Change) -> Result<Attr> {
        let mut attr = None;
        if let Some(size) = change.size {
            let truncated = self.vfs.truncate(object, size, caller.uid != 0).await;
            // An error may follow a cut that was made.
            self.changed(object);
            self.vfs.spoil_pages(object);
            attr = Some(truncated?);
        }
        let set = change.but_size(Time(self.env.wall().0));
        let attr = match attr {
            Some(attr) if set == SetAttr::default() => attr,
            _ => {
                let asked = set.clone();
                let set = self.vfs.setattr(object, set).await;
                if !set.as_ref().is_ok_and(|attr| attr.kind != Kind::Directory) {
                    self.directory_changed(object);
                }
                self.changed(object);
                match (set.map_err(Errno::from), self.at_once.gone.set(object, &asked)) {
                    (Err(Errno::STALE), Some(gone)) => return Ok(gone),
                    (set, _) => set?,
                }
            }
        };
        Ok(self.saw(attr))
    }

    /// Clear set-user-id and set-group-id, as a write by another than root does, if they are set. Whether
    /// they were: the kernel is to ask for the mode that this leaves.
    pub(super) async fn kill_privileges(&self, object: Handle) -> Result<bool> {
        let known = self.known().privileged(object, self.now());
        let privileged = match known {
            Some(privileged) => privileged,
            None => self.getattr(object).await?.mode & 0o6000 != 0,
        };
        if privileged {
            let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
            let cleared = self.vfs.setattr(object, set).await;
            self.changed(object);
            self.saw(cleared?);
        }
        if known.is_none() || privileged {
            // The kernel did not receive the attributes seen here.
            self.known().unsure_of_size(object);
        }
        Ok(privileged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000);

    #[test]
    fn a_truncation_alone_needs_no_second_message() {
        let truncated = Change { size: Some(0), mtime: Some(When::Now), ..Change::default() };
        assert_eq!(truncated.but_size(NOW), SetAttr::default());
        let dated = Change { size: Some(0), mtime: Some(When::At(Time(5))), ..Change::default() };
        assert_eq!(dated.but_size(NOW).mtime, Some(Time(5)));
    }

    #[test]
    fn a_change_of_owner_and_a_change_of_nothing_clear_privileges_and_others_do_not() {
        assert!(Change { uid: Some(1), ..Change::default() }.but_size(NOW).kill_privileges);
        assert!(Change { gid: Some(1), ..Change::default() }.but_size(NOW).kill_privileges);
        assert!(Change::default().but_size(NOW).kill_privileges);
        assert!(!Change { mode: Some(0o4755), ..Change::default() }.but_size(NOW).kill_privileges);
        assert!(!Change { atime: Some(When::Now), ..Change::default() }.but_size(NOW).kill_privileges);
    }

    #[test]
    fn times_now_are_this_moment_and_others_their_own() {
        let change = Change { atime: Some(When::Now), mtime: Some(When::At(Time(-7))), ..Change::default() };
        let set = change.but_size(NOW);
        assert_eq!((set.atime, set.mtime, set.mode), (Some(NOW), Some(Time(-7)), None));
    }
}
