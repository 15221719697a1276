//! Attributes of a container.
//!
//! Mode, owner and times come from the inode of the access record (a file in the container; its text is
//! never read). If the directory changed later, its ctime counts. Size and space come from the index if the
//! file is in use in this process, otherwise from the *droppings*: empty files whose names state the size
//! that a closed writer left. If a writer is open, or ended without a dropping, size and space come from the
//! logs.
//!
//! **A user that may not use a file sees it as a file all the same.** The access record lies in a directory
//! that such a user may not search. So the directory of a file that is closed to some users, and is written
//! by its owner alone, has the sticky bit, which no other directory of this mode has. (There the bit changes
//! nothing: only the owner may change entries.) Without a right to the record the attributes are those that
//! can be known ([`from_outside`]). A file that its group may write, and an older version's, is shown to
//! those users as a directory. (test: `a_file_that_a_user_may_not_use_is_listed_as_a_file`)

use super::{Shared, load, names};
use shoal_proto::{Attr, Handle, Kind, Owner, SetAttr, Status};
use shoal_vfs::{Result, Vfs};
use std::rc::Rc;

/// The mode of a folder of a file with this mode: each user that may use the file may use its folders.
pub(super) fn folder_mode(mode: u32) -> u32 {
    let class = |shift: u32| {
        let bits = mode >> shift & 0o7;
        let write = if bits & 2 != 0 { 0o3 } else { 0 };
        let read = if bits & 4 != 0 { 0o5 } else { 0 };
        (write | read) << shift
    };
    0o700 | class(3) | class(0)
}

const STICKY: u32 = 0o1000;

/// The mode of the directory of a file with this mode, with the mark of one that is closed to some users.
pub(super) fn directory_mode(mode: u32) -> u32 {
    let folder = folder_mode(mode);
    let is_closed = folder & 0o070 == 0 || folder & 0o007 == 0;
    if is_closed && folder & 0o022 == 0 { folder | STICKY } else { folder }
}

/// Whether a directory that this user may not search is marked as that of a file.
pub(super) fn is_marked(directory: &Attr) -> bool {
    directory.mode & STICKY != 0 && directory.mode & 0o022 == 0
}

/// The attributes of a container whose access record this user may not look at: owner and times of its
/// directory, and the mode that this one was made for. The owner's part of that mode is taken for `rw`, size
/// and space for 0.
fn from_outside(dir: &Attr) -> Attr {
    let mode = 0o600 | dir.mode & 0o044;
    let parent = Handle::default();
    Attr { kind: Kind::File, mode, nlink: 1, size: 0, space: 0, parent, ..dir.clone() }
}

/// The owner and mode for new logs of a container.
pub(super) async fn owner_of<B: Vfs>(over: &B, object: Handle) -> Result<Owner> {
    let record = over.lookup(object, &names::record()).await?;
    Ok(Owner { mode: (record.mode & 0o666) | 0o600, uid: record.uid, gid: record.gid })
}

/// Attributes of an object below that is no container. A directory's links do not count its subdirectories
/// here, as its files are directories too.
pub(super) fn seen(mut attr: Attr) -> Attr {
    if attr.kind == Kind::Directory {
        attr.nlink = attr.nlink.min(1);
    }
    attr
}

/// Attributes of the container in a directory.
///
/// The access record is the first name that a deletion takes: it is looked up last, so that what was found
/// before was whole. `Stale`: the container is being deleted.
pub(super) async fn of<B: Vfs>(shared: &Rc<Shared<B>>, dir: &Attr) -> Result<Attr> {
    let object = dir.handle;
    let state = shared.state_in_use(object);
    let found = match &state {
        Some(state) => Ok((state.size(), state.index.borrow().stored())),
        None => facts_of(shared, object).await,
    };
    let record = match shared.record_of(object).await {
        Err(error) if error.status == Status::AccessDenied && state.is_none() => {
            return Ok(from_outside(dir));
        }
        record => record?,
    };
    // A rename, and a write, change the directory.
    let ctime = record.ctime.max(dir.ctime);
    let mut attr = Attr { handle: object, kind: Kind::File, nlink: 1, ctime, ..record };
    (attr.size, attr.space) = found?;
    if let Some(state) = state {
        if let Some(written) = state.wrote_at() {
            attr.mtime = written;
            attr.ctime = attr.ctime.max(written);
        }
        if state.is_removed.get() {
            attr.nlink = 0;
        }
    }
    Ok(attr)
}

/// The size and space of a container that is not in use here.
async fn facts_of<B: Vfs>(shared: &Rc<Shared<B>>, object: Handle) -> Result<(u64, u64)> {
    let contents = load::contents(shared, object).await?;
    if let Some(facts) = contents.facts(shared.env.boot_id()) {
        return Ok(facts);
    }
    let logs = load::all(shared, object).await;
    match logs.and_then(|(_, logs)| load::index(object, &logs)) {
        Ok(index) => Ok((index.size(), index.stored())),
        // A damaged file is listed, and can be removed; its open says what is wrong.
        Err(error) if matches!(error.status, Status::Io | Status::OverLimit) && error.kernel.is_none() => {
            tracing::warn!("{error}");
            Ok(contents.facts_at_least())
        }
        Err(error) => Err(error),
    }
}

/// Change attributes of a container.
pub(super) async fn set<B: Vfs>(shared: &Rc<Shared<B>>, dir: &Attr, set: SetAttr) -> Result<Attr> {
    let object = dir.handle;
    let record = shared.record_of(object).await?;
    let sets_time = set.mtime.is_some();
    if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
        // Those below are to see no more of its bytes than its users.
        let mode = set.mode.map(directory_mode);
        let folder = SetAttr { mode, uid: set.uid, gid: set.gid, ..SetAttr::default() };
        shared.over.setattr(object, folder).await?;
    }
    let state = shared.state_in_use(object);
    // Not between the time of a last write and its publication.
    let _turn = match &state {
        Some(state) => Some(state.times.acquire(1).await),
        None => None,
    };
    shared.over.setattr(record.handle, set).await?;
    if sets_time && let Some(state) = &state {
        state.times_were_set();
    }
    of(shared, dir).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_may_use_a_file_may_use_its_folders() {
        assert_eq!(folder_mode(0o644), 0o755);
        assert_eq!(folder_mode(0o600), 0o700);
        assert_eq!(folder_mode(0o666), 0o777);
    }

    #[test]
    fn the_directory_of_a_file_that_is_closed_to_some_and_written_by_its_owner_alone_is_marked() {
        for (file, directory) in [(0o600, 0o1700), (0o640, 0o1750), (0o604, 0o1705)] {
            assert_eq!(directory_mode(file), directory, "{file:o}");
        }
        for open in [0o644, 0o666, 0o660, 0o622] {
            assert_eq!(directory_mode(open), folder_mode(open), "{open:o}");
        }
    }
}
