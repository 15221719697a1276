//! Makes attributes from rows and streams, and the initial state of a new object.
//!
//! A file's streams keep its generation and the time of its newest write. Datafile 0 is the metafile's own
//! stream where the metafile's server holds data. **A metafile on a server that holds metadata only still has
//! an (always empty) stream of its own: it keeps the generation**, and
//! [`Action::AttrSet`](shoal_proto::Action::AttrSet) advances it together with the datafiles elsewhere. So
//! the generation to send with data requests is in the attributes wherever a file lies.

use crate::meta::rows::Inode;
use crate::request::ctx::Ctx;
use bytes::Bytes;
use shoal_env::WallTime;
use shoal_proto::{
    Attr, ChangeCount, Generation, Handle, Kind, Layout, Owner, SetAttr, Shards, Status, StreamFacts,
    Template, Time,
};
use shoal_store::{StreamChange, StreamInfo};

/// Size reported for a directory, in bytes.
pub const DIRECTORY_SIZE: u64 = 4096;

/// Set-group-id, in a mode.
const SET_GROUP_ID: u32 = 0o2000;
/// Bits of a mode that are kept.
const MODE_BITS: u32 = 0o7777;
/// Bits of a mode that mkdir takes: set-group-id comes from the directory alone.
const MKDIR_BITS: u32 = 0o1777;

/// A new object in a directory: its owner's, but of the directory's group where that has set-group-id, which
/// a directory inherits too. A file or directory also inherits the template. The limits of the client's key
/// decide whose it may be.
///
/// # Errors
/// `NotPermitted`: as [`shoal_proto::KeyLimits::maker`].
pub fn made_in(
    ctx: &Ctx<'_>,
    dir: Handle,
    parent: &Inode,
    kind: Kind,
    owner: &Owner,
) -> Result<Inode, Status> {
    let (owner, now) = (ctx.limits.maker(kind, owner)?, ctx.now);
    let is_directory = kind == Kind::Directory;
    let inherited = parent.mode & SET_GROUP_ID;
    Ok(Inode {
        kind,
        mode: if is_directory { owner.mode & MKDIR_BITS | inherited } else { owner.mode & MODE_BITS },
        uid: owner.uid,
        gid: if inherited != 0 { parent.gid } else { owner.gid },
        nlink: if is_directory { 2 } else { 1 },
        rdev: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: if is_directory { dir } else { Handle::default() },
        template: parent.template.inherited_by(kind),
        layout: None,
        target: None,
        xattr_bytes: 0,
        entries: 0,
        shards: Shards::WHOLE,
    })
}

/// The root directory of a new file system: its own parent.
pub fn root(owner: &Owner, template: Template, now: Time) -> Inode {
    Inode {
        kind: Kind::Directory,
        mode: owner.mode & MODE_BITS,
        uid: owner.uid,
        gid: owner.gid,
        nlink: 2,
        rdev: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent: Handle::ROOT,
        template,
        layout: None,
        target: None,
        xattr_bytes: 0,
        entries: 0,
        shards: Shards::WHOLE,
    }
}

/// The inode of attributes that came over the wire: an object made by a transaction.
pub fn of_attr(attr: &Attr) -> Inode {
    Inode {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
        parent: attr.parent,
        template: attr.template,
        layout: attr.layout.clone(),
        target: None,
        xattr_bytes: 0,
        entries: 0,
        shards: attr.shards.clone(),
    }
}

/// Attributes of an object, as the wire has them: a newer write of the stream wins over the row's times.
pub fn attr_of(handle: Handle, inode: &Inode, stream: Option<StreamInfo>) -> Attr {
    let generation = Generation(stream.map_or(0, |s| s.generation));
    let written = stream.and_then(|s| s.written_at).map(|t| Time(t.0));
    let size = match inode.kind {
        Kind::Directory => DIRECTORY_SIZE,
        Kind::Symlink => inode.target.as_ref().map_or(0, |target| target.len() as u64),
        _ => stream.map_or(0, |s| s.size),
    };
    Attr {
        handle,
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        rdev: inode.rdev,
        size,
        space: stream.map_or(0, |s| s.space),
        atime: inode.atime,
        mtime: written.unwrap_or(inode.mtime),
        ctime: written.map_or(inode.ctime, |w| w.max(inode.ctime)),
        btime: inode.btime,
        generation,
        parent: inode.parent,
        template: inode.template,
        layout: inode.layout.clone().map(|layout| Layout { generation, ..layout }),
        shards: inode.shards.clone(),
    }
}

/// Change attributes as `set` says; the time of change is `now` if it says none.
pub fn set(inode: &mut Inode, set: &SetAttr, now: Time) {
    let has_new_owner = set.uid.is_some() || set.gid.is_some();
    if let Some(mode) = set.mode {
        inode.mode = mode & MODE_BITS;
    } else if inode.kind == Kind::File && (has_new_owner || set.kill_privileges) {
        inode.mode = without_privileges(inode.mode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    inode.atime = set.atime.unwrap_or(inode.atime);
    inode.mtime = set.mtime.unwrap_or(inode.mtime);
    inode.ctime = set.ctime.unwrap_or(now);
}

/// Permission bits as a write by another than root leaves them: set-user-id gone, set-group-id gone where the
/// group may execute.
pub fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

/// A stream's facts, as the wire has them.
pub fn facts_of(info: &StreamInfo, count: ChangeCount) -> StreamFacts {
    StreamFacts {
        generation: Generation(info.generation),
        size: info.size,
        space: info.space,
        written_at: info.written_at.map(|WallTime(t)| Time(t)),
        count,
    }
}

/// The state of a stream after a change: the context's overlay shows it to the rest of the group.
pub fn stream_after(
    info: Option<StreamInfo>,
    content: &Bytes,
    change: &StreamChange,
) -> Option<(StreamInfo, Bytes)> {
    let empty = StreamInfo { generation: 0, size: 0, space: 0, written_at: None, small: true };
    let info = info.unwrap_or(empty);
    let kept = |size: u64| content.slice(..content.len().min(usize::try_from(size).unwrap_or(usize::MAX)));
    match change {
        StreamChange::Create { generation } => {
            Some((StreamInfo { generation: *generation, ..empty }, Bytes::new()))
        }
        StreamChange::Put { content, size, written_at } => {
            let space = content.len() as u64;
            Some((StreamInfo { size: *size, space, written_at: Some(*written_at), ..info }, content.clone()))
        }
        StreamChange::Resize { generation, size, written_at } => {
            let next = StreamInfo { generation: *generation, size: *size, written_at: *written_at, ..info };
            Some((next, kept(*size)))
        }
        StreamChange::Advance { generation } => {
            Some((StreamInfo { generation: *generation, written_at: None, ..info }, content.clone()))
        }
        StreamChange::Remove => None,
    }
}
