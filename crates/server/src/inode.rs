//! From rows and streams to attributes.

use crate::rows::Inode;
use bytes::Bytes;
use shoal_env::WallTime;
use shoal_proto::{Attr, Generation, Handle, Kind, StreamFacts, Time};
use shoal_store::{StreamChange, StreamInfo};

/// Size reported for a directory, in bytes.
pub const DIRECTORY_SIZE: u64 = 4096;

/// Attributes of an object, as the wire has them: a newer write of the stream wins over the row's times.
pub fn attr_of(handle: Handle, inode: &Inode, stream: Option<StreamInfo>) -> Attr {
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
        generation: Generation(stream.map_or(0, |s| s.generation)),
        parent: inode.parent,
        template: inode.template,
        layout: inode.layout.clone(),
    }
}

/// Permission bits as a write by another than root leaves them: set-user-id gone, set-group-id gone where the group may
/// execute.
pub fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

/// A stream's facts, as the wire has them.
pub fn facts_of(info: &StreamInfo) -> StreamFacts {
    StreamFacts {
        generation: Generation(info.generation),
        size: info.size,
        space: info.space,
        written_at: info.written_at.map(|WallTime(t)| Time(t)),
    }
}

/// What a stream will be after a change: the context's overlay shows it to the rest of the group.
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
