//! readdir: return entries of a directory, if requested with attributes and with the contents of small
//! files.
//!
//! Entries come in the order of (keyed hash of the name, name), which never changes. So a listing that
//! continues after an entry returns every remaining entry once, whatever is made or removed meanwhile.
//! Attributes come for the objects of this server that can be read at once; the client asks for the others.
//! Contents come for files that are completely on this server, from the journal or from memory, never by a
//! large read.
//!
//! Clients that know the shards of a split directory list them one after the other; other clients are
//! redirected.

use crate::meta::inode::attr_of;
use crate::meta::keys;
use crate::meta::rows::{Dirent, RowValue};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use bytes::Bytes;
use shoal_proto::{Answer, Attr, Entry, Handle, Kind, Name, Place, ServerId, Status, limits};
use shoal_store::Follow;
use std::sync::Arc;

/// The facts of `readdir`: a handler. The contents of small files ride in the answer, not in bulk data.
pub const FACTS: OpFacts =
    OpFacts::new(handler!(|ctx| Readdir { dir, after, bytes_max, plus, data_max, in_shard } => {
        let (bytes_max, plus, data_max, in_shard) = (*bytes_max, *plus, *data_max, *in_shard);
        run(ctx, *dir, after.as_ref(), Wanted { bytes_max, plus, data_max, in_shard })
    }));

/// Bytes of an entry without its name, about (never less).
const ENTRY_BYTES: usize = 32;
/// Bytes attributes take, about (never less): with a layout come eight for each datafile.
const ATTR_BYTES: usize = 144;
/// Entries looked at in one scan.
const SCAN_ENTRIES_MAX: usize = 4096;

/// The requested parts of each entry.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Bytes of entries and contents at most.
    pub bytes_max: u32,
    /// With attributes.
    pub plus: bool,
    /// With contents of so many bytes at most.
    pub data_max: u32,
    /// Of this server's shard, as the asker knows.
    pub in_shard: bool,
}

/// List after `after`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, after: Option<&Place>, wanted: Wanted) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let inode = ctx.directory(dir)?;
    if inode.shards.is_split() && !wanted.in_shard {
        // A client that does not know the split would take the end of this server's shard for the end.
        return Err(Stopped::Split(Box::new((dir, inode.shards))));
    }
    let bytes_max = (wanted.bytes_max as usize).min(limits::READDIR_BYTES_MAX);
    let entry_bytes = ENTRY_BYTES + if wanted.plus { ATTR_BYTES } else { 0 };
    let follow = wanted.plus.then(|| to_attributes(ctx.identity.id));
    let (mut entries, mut end) = listed(ctx, dir, after, bytes_max, entry_bytes, follow)?;
    let mut contents = Vec::new();
    if wanted.plus {
        add_attributes(ctx, &mut entries)?;
        let data_max = u64::from(wanted.data_max.min(limits::EAGER_BYTES_MAX as u32));
        end &= cut(&mut entries, bytes_max, |entry| small_bytes(entry, data_max).unwrap_or(0));
        if data_max > 0 {
            contents = add_contents(ctx, &entries, data_max)?;
        }
    }
    Ok(Answer::Entries { entries: entries.into(), end, contents: contents.into() })
}

/// Entries of about `bytes_max` bytes, at least one if there is any; and whether they are the last.
fn listed(
    ctx: &Ctx<'_>,
    dir: Handle,
    after: Option<&Place>,
    bytes_max: usize,
    entry_bytes: usize,
    follow: Option<Follow>,
) -> Result<(Vec<Entry>, bool), Stopped> {
    let prefix = keys::entries(dir);
    let mut from: Option<Bytes> = after.map(|place| match place.name.len() {
        0 => keys::entries_behind(dir, place.hash),
        _ => keys::entry(dir, place.hash, &place.name),
    });
    let mut entries = Vec::new();
    let mut bytes = 0;
    loop {
        // One more than needed shows whether there is more.
        let wanted = (bytes_max.saturating_sub(bytes) / entry_bytes).min(SCAN_ENTRIES_MAX) + 1;
        let scan = match &follow {
            Some(follow) => ctx.scan_following(&prefix, from.as_deref(), wanted, follow)?,
            None => ctx.scan(&prefix, from.as_deref(), wanted)?,
        };
        entries.reserve(scan.rows.len());
        for (key, row) in scan.rows {
            let entry = entry_of(ctx, key, &row)?;
            bytes += entry_bytes + entry.name.as_bytes().len();
            let is_full = bytes > bytes_max || entries.len() == limits::READDIR_ENTRIES_MAX;
            if is_full && !entries.is_empty() {
                return Ok((entries, false));
            }
            entries.push(entry);
        }
        match scan.resume {
            Some(resume) => from = Some(resume),
            None => return Ok((entries, true)),
        }
    }
}

/// The inodes and streams on this server of entries whose attributes are wanted.
fn to_attributes(own: ServerId) -> Follow {
    Follow(Arc::new(move |_, row, leads| {
        // A damaged row is reported when it is listed.
        let Ok(Dirent { handle, kind }) = Dirent::from_row(row) else { return };
        if handle.server() == own {
            leads.keys.push(keys::inode(handle));
            leads.streams.extend((kind == Kind::File).then_some(handle));
        }
    }))
}

/// An entry as listed. One that a transaction is about to change is waited for: its client may know the
/// outcome already.
fn entry_of(ctx: &Ctx<'_>, key: Bytes, row: &Bytes) -> Result<Entry, Stopped> {
    ctx.must_be_unlocked(&key)?;
    let damaged = |key: &Bytes, what: &str| {
        tracing::error!(?key, what, "an entry's row cannot be decoded");
        Stopped::Status(Status::Io)
    };
    let (_, place, name) = keys::parse_entry(&key).ok_or_else(|| damaged(&key, "key"))?;
    let Dirent { handle, kind } = Dirent::from_row(row).map_err(|_| damaged(&key, "value"))?;
    // The name is the key's end, in the key's own buffer.
    let name = Name::over(key.slice_ref(name)).map_err(|_| damaged(&key, "name"))?;
    Ok(Entry { name, handle, kind, place, attr: None })
}

/// Attributes of this server's objects. All rows are requested before the first miss is reported, so that one
/// load brings them; and in the order of their keys, in which neighbours are found together, not in that of
/// the names' hashes.
fn add_attributes(ctx: &Ctx<'_>, entries: &mut [Entry]) -> Result<(), Stopped> {
    let mut own: Vec<&mut Entry> =
        entries.iter_mut().filter(|entry| entry.handle.server() == ctx.identity.id).collect();
    own.sort_unstable_by_key(|entry| entry.handle);
    let stream = |entry: &&mut Entry| match entry.kind {
        Kind::File => ctx.stream(entry.handle),
        _ => Ok(None),
    };
    let streams: Vec<_> = own.iter().map(stream).collect();
    let mut has_missed = false;
    for (entry, stream) in own.into_iter().zip(streams) {
        match (ctx.inode_once(entry.handle), stream) {
            (Err(Stopped::Miss), _) | (_, Err(Stopped::Miss)) => has_missed = true,
            // Being changed, or removed since: the client will ask, and wait or learn of it.
            (Err(Stopped::Locked(_) | Stopped::Status(Status::Stale)), _) => {}
            (Err(other), _) | (_, Err(other)) => return Err(other),
            (Ok(inode), Ok(stream)) => entry.attr = Some(attr_of(entry.handle, &inode, stream)),
        }
    }
    if has_missed { Err(Stopped::Miss) } else { Ok(()) }
}

/// Bytes of a file's contents, if its attributes came along, all of it is on this server, and it is small
/// enough.
fn small_bytes(entry: &Entry, data_max: u64) -> Option<usize> {
    let attr = entry.attr.as_ref().filter(|attr| attr.kind == Kind::File && attr.layout.is_none())?;
    (attr.size <= data_max).then_some(attr.size as usize)
}

/// Put the contents of small files into the reply, and say how long each is, as if each were opened and read
/// here. All are requested before the first miss is reported.
fn add_contents(ctx: &mut Ctx<'_>, entries: &[Entry], data_max: u64) -> Result<Vec<Option<u32>>, Stopped> {
    let (mut lens, mut data, mut has_missed) = (Vec::with_capacity(entries.len()), Vec::new(), false);
    for entry in entries {
        let content = match small_bytes(entry, data_max) {
            None => None,
            Some(0) => Some(Bytes::new()),
            Some(bytes) => match content_of(ctx, entry.handle, bytes) {
                Err(Stopped::Miss) => {
                    has_missed = true;
                    None
                }
                other => other?,
            },
        };
        lens.push(content.as_ref().map(|content| content.len() as u32));
        data.extend(content);
    }
    if has_missed {
        return Err(Stopped::Miss);
    }
    ctx.bulk_out.append(&mut data);
    Ok(lens)
}

/// All of a small file, with the zeros at its end; `None`: it is kept as a large one.
fn content_of(ctx: &mut Ctx<'_>, file: Handle, bytes: usize) -> Result<Option<Bytes>, Stopped> {
    if !ctx.stream(file)?.is_some_and(|info| info.small) {
        return Ok(None);
    }
    let content = ctx.small_content(file)?;
    if content.len() >= bytes {
        return Ok(Some(content.slice(..bytes)));
    }
    let mut whole = content.to_vec();
    whole.resize(bytes, 0);
    ctx.copied += bytes;
    Ok(Some(whole.into()))
}

/// Cut entries beyond the bytes now that layouts and contents are known; `true`: none were.
fn cut(entries: &mut Vec<Entry>, bytes_max: usize, content: impl Fn(&Entry) -> usize) -> bool {
    let mut bytes = 0;
    let fits = entries.iter().position(|entry| {
        bytes += ENTRY_BYTES + entry.name.as_bytes().len() + entry.attr.as_ref().map_or(0, attr_bytes);
        bytes += content(entry);
        bytes > bytes_max
    });
    match fits {
        Some(at) if at.max(1) < entries.len() => {
            entries.truncate(at.max(1));
            false
        }
        _ => true,
    }
}

fn attr_bytes(attr: &Attr) -> usize {
    ATTR_BYTES + attr.layout.as_ref().map_or(0, |layout| 32 + 8 * layout.datafiles.len())
}
