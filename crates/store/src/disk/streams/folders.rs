//! Folders of streams' files on disks of their own.
//!
//! ```text
//!   DIR/                     journal, tables, and folder 0 of the files: DIR/streams
//!   DIR/stream-folders       the list: number, id and path of each other folder
//!   /disk1/…/stream-folder   the marker: the store that owns this folder, the folder's number and id
//!   /disk1/…/00 … ff         files of streams, as in DIR/streams
//! ```
//! Without other folders all files are in folder 0. With other folders, new files are spread over the other
//! folders by their handle; the files in folder 0 stay there. A stream's row names the folder of its file,
//! so a folder that is added later moves nothing: new files use it.
//!
//! **A folder of the list without its marker is refused**: its disk is not mounted, or another disk is
//! mounted there. A folder is added only while all folders of the list are there, so an empty mount point is
//! never taken for a new folder. A folder may move to another path, because it is recognized by its id. The
//! server's starts are counted in each marker and in the list, in the markers first. **A folder whose marker
//! counts fewer starts than the list is an older copy**, and is refused: its files may lack bytes that were
//! synced later.

use super::super::identity::{self, Kept};
use super::files::StreamFiles;
use crate::{CollectionConfig, StoreError};
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::Handle;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the list.
pub(crate) const LIST: &str = "stream-folders";
/// Name of a folder's marker.
const MARKER: &str = "stream-folder";
/// Its name while it is written.
const MARKER_NEW: &str = "stream-folder.new";
/// Name of a folder's lock, held by the running server.
const LOCK: &str = "lock";
/// Most folders.
pub(crate) const FOLDERS_MAX: usize = 256;
/// Longest list, and longest marker.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// A name that file systems make by themselves at their root.
const NOT_OURS: &str = "lost+found";

/// The number of a folder of streams' files; 0: the one in the store's own folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FolderNumber(pub u16);

/// A folder of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    number: FolderNumber,
    id: u64,
    /// Starts of the server that have used it.
    starts: u64,
    path: PathBuf,
}

/// The content of a folder's marker.
struct Marker {
    /// Whose it is, which number and id.
    line: String,
    starts: u64,
}

impl Listed {
    /// The first line of its marker.
    fn marker(&self, kept: &Kept) -> String {
        format!("shoal stream folder {} {:016x}{}", self.number.0, self.id, owner(kept))
    }
}

/// The end of every marker of a store.
fn owner(kept: &Kept) -> String {
    let identity = kept.identity;
    let fs = identity.fs.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(" of file system {fs}, collection {}, server {}\n", identity.collection, identity.server)
}

fn is_ours(marker: &str, kept: &Kept) -> bool {
    marker.ends_with(&owner(kept))
}

/// All folders of a store's stream files, by number: the own one first. Folders of the configuration that are
/// new are added.
///
/// # Errors
/// `DiskMissing`: a folder of the list is not there, or not mounted. `Foreign`: one belongs to another store.
/// `Refused`: one holds other things, or there are too many.
pub(crate) async fn open(
    env: &Env,
    config: &CollectionConfig,
    kept: &mut Kept,
) -> Result<Vec<PathBuf>, StoreError> {
    let own = config.dir.join(super::super::STREAMS);
    let known = read_list(env, &config.dir).await?;
    if known.is_none() && kept.has_folders {
        return Err(StoreError::Damaged(format!(
            "{} is not there: it says which stream folders the store has; bring it back from a copy",
            config.dir.join(LIST).display()
        )));
    }
    let is_new = known.is_none();
    let mut listed = known.unwrap_or_default();
    let (mut new, mut found) = (Vec::<PathBuf>::new(), Vec::<FolderNumber>::new());
    for path in &config.stream_folders {
        if new.contains(path) {
            return Err(StoreError::Refused(format!("`streams` names {} twice", path.display())));
        }
        match read_marker(env, path).await? {
            None => new.push(path.clone()),
            Some(Marker { line, .. }) => match listed.iter_mut().find(|one| one.marker(kept) == line) {
                Some(one) if found.contains(&one.number) => return Err(twice(one, path)),
                Some(one) => {
                    found.push(one.number);
                    one.path.clone_from(path);
                }
                // A start ended between the marker and the list.
                None if is_ours(&line, kept) && is_without_files(env, path).await => new.push(path.clone()),
                None => return Err(foreign(path, &line, kept)),
            },
        }
    }
    for one in &mut listed {
        lock_listed(env, one, kept, config).await?;
    }
    if !(listed.is_empty() && new.is_empty()) {
        // So that it is none of the others by another path.
        lock(env, &own).await?;
    }
    if !new.is_empty() && is_new {
        write_list(env, &config.dir, &[]).await?;
    }
    if !new.is_empty() && !kept.has_folders {
        kept.has_folders = true;
        identity::write(env, &config.dir, kept).await?;
    }
    for path in new {
        add(env, &mut listed, path, kept, config).await?;
    }
    if !listed.is_empty() {
        for one in &mut listed {
            one.starts += 1;
            write_marker(env, one, kept).await?;
        }
        write_list(env, &config.dir, &listed).await?;
    }
    Ok(std::iter::once(own).chain(listed.into_iter().map(|one| one.path)).collect())
}

/// Lock a folder of streams' files until this environment ends: it is in use once, by whatever path.
async fn lock(env: &Env, folder: &Path) -> Result<(), StoreError> {
    env.lock(folder.join(LOCK)).await.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Refused(format!(
            "{} is in use by another server, or `streams` names it by two paths: name each folder once",
            folder.display()
        )),
        _ => StoreError::io(format!("locking {}", folder.display()), &error),
    })
}

fn twice(one: &Listed, path: &Path) -> StoreError {
    StoreError::Refused(format!(
        "{} and {} are both stream folder {}: one of them is a copy; take the older one out of `streams`",
        one.path.display(),
        path.display(),
        one.number.0
    ))
}

fn foreign(path: &Path, marker: &str, kept: &Kept) -> StoreError {
    if is_ours(marker, kept) {
        return StoreError::Foreign(format!(
            "{} holds stream files of this server that its store's list does not name ({}): keep it, and name another folder in \
             `streams`",
            path.display(),
            marker.trim_end()
        ));
    }
    StoreError::Foreign(format!(
        "{} holds the stream files of another store ({}): name another folder in `streams`, or empty it",
        path.display(),
        marker.trim_end()
    ))
}

/// A folder of the list has its marker and all its parts, is the newest, and is used here alone.
async fn lock_listed(
    env: &Env,
    one: &mut Listed,
    kept: &Kept,
    config: &CollectionConfig,
) -> Result<(), StoreError> {
    let (number, path) = (one.number.0, one.path.display());
    let named = &config.stream_folders;
    if !named.is_empty() && !named.contains(&one.path) {
        return Err(StoreError::DiskMissing(format!(
            "stream folder {number}, {path}, is in none of the folders that `streams` names: its disk is not mounted, or it was \
             taken out of the configuration, though it has files of streams: mount it, or name it again"
        )));
    }
    let marker = one.marker(kept);
    let starts = one.starts;
    match read_marker(env, &one.path).await? {
        Some(found) if found.line != marker => return Err(foreign(&one.path, &found.line, kept)),
        Some(found) if found.starts < starts => {
            return Err(StoreError::Refused(format!(
                "stream folder {number}, {path}, is an older copy: it was used last at start {} of this server, and there have been \
                 {starts}; what was synced since is not in it: bring the newest one back (to go on with this one, and to give up \
                 what it lacks: write `starts {starts}` as the second line of {path}/{MARKER})",
                found.starts
            )));
        }
        Some(found) => one.starts = found.starts,
        None => {
            return Err(StoreError::DiskMissing(format!(
                "stream folder {number}, {path}, has no file `{MARKER}`: its disk is not mounted, or was lost: mount it, or bring \
                 it back from a copy (to give up the bytes of larger files that were in it: write the lines `{}` and \
                 `starts {starts}` to {path}/{MARKER}, and make the folders 00 to ff beside)",
                marker.trim_end()
            )));
        }
    }
    if let Some(missing) = StreamFiles::missing_folder(env, &one.path).await {
        return Err(super::super::open::lost_folder(&missing));
    }
    lock(env, &one.path).await
}

async fn add(
    env: &Env,
    listed: &mut Vec<Listed>,
    path: PathBuf,
    kept: &Kept,
    config: &CollectionConfig,
) -> Result<(), StoreError> {
    if listed.len() == FOLDERS_MAX {
        return Err(StoreError::Refused(format!("more than {FOLDERS_MAX} stream folders: name fewer")));
    }
    let text = path.to_str().filter(|text| !text.contains('\n'));
    let is_inside = |one: &Listed| one.path.starts_with(&path) || path.starts_with(&one.path);
    if let Some(other) = listed.iter().find(|one| is_inside(one)) {
        return Err(StoreError::Refused(format!(
            "{} and stream folder {}, {}, lie one in the other: name folders apart",
            path.display(),
            other.number.0,
            other.path.display()
        )));
    }
    if text.is_none() || path.starts_with(&config.dir) || config.dir.starts_with(&path) {
        return Err(StoreError::Refused(format!(
            "{} cannot be a stream folder: name a folder of its own, by a path in UTF-8",
            path.display()
        )));
    }
    let error = |error: io::Error| {
        let what = format!("adding the stream folder {}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => StoreError::DiskMissing(format!(
                "{what}: {} is not there: mount its disk, or make it",
                path.parent().unwrap_or(&path).display()
            )),
            _ => StoreError::io(what, &error),
        }
    };
    if let Some(parent) = path.parent() {
        env.list(parent.to_path_buf()).await.map_err(error)?;
    }
    env.create_dir(path.clone()).await.map_err(error)?;
    let entries = env.list(path.clone()).await.map_err(error)?;
    let is_known =
        |name: &str| [NOT_OURS, MARKER, MARKER_NEW, LOCK].contains(&name) || StreamFiles::is_folder(name);
    let stranger = entries.iter().find(|entry| !is_known(&entry.name));
    if let Some(entry) = stranger {
        return Err(StoreError::Refused(format!(
            "{} is not empty (it holds `{}`): name an empty folder in `streams`",
            path.display(),
            entry.name
        )));
    }
    // Another server may have the same wish: from here on it sees the lock.
    lock(env, &path).await?;
    if let Some(Marker { line, .. }) = read_marker(env, &path).await?
        && !is_ours(&line, kept)
    {
        return Err(foreign(&path, &line, kept));
    }
    // A start that ended here before may have left our folders, without a file in them.
    if !is_without_files(env, &path).await {
        return Err(StoreError::Refused(format!(
            "{} has files of streams and no marker of a store: name an empty folder in `streams`",
            path.display()
        )));
    }
    if let (Ok(there), Ok(own)) = (env.space(&path).await, env.space(&config.dir).await)
        && there.disk == own.disk
        && own.disk != 0
    {
        tracing::warn!(path = %path.display(), "a new stream folder is on the store's disk: is its own disk mounted?");
    }
    let number = FolderNumber(listed.iter().map(|one| one.number.0).max().unwrap_or(0) + 1);
    let one = Listed { number, id: env.random_u64(), starts: 0, path: path.clone() };
    StreamFiles::make_folders(env, &path).await.map_err(error)?;
    write_marker(env, &one, kept).await?;
    if let Some(parent) = path.parent() {
        env.sync_dir(parent.to_path_buf()).await.map_err(error)?;
    }
    // Its marker is durable before the list names it.
    listed.push(one);
    write_list(env, &config.dir, listed).await
}

/// No file of a stream is in it.
async fn is_without_files(env: &Env, path: &Path) -> bool {
    for folder in (0..=255).map(|byte| path.join(StreamFiles::folder_name(byte))) {
        match env.list(folder).await {
            Ok(entries) if entries.is_empty() => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return false,
        }
    }
    true
}

async fn read_text(env: &Env, path: &Path) -> Result<Option<String>, StoreError> {
    match env.read_file(path, TEXT_BYTES_MAX).await {
        Ok(bytes) => match String::from_utf8(bytes.to_vec()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(StoreError::Damaged(format!("{} is not text", path.display()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(format!("reading {}", path.display()), &error)),
    }
}

async fn read_marker(env: &Env, folder: &Path) -> Result<Option<Marker>, StoreError> {
    let text = read_text(env, &folder.join(MARKER)).await?;
    Ok(text.map(|text| {
        let mut lines = text.lines();
        let line = lines.next().unwrap_or_default();
        let starts = lines.next().and_then(|line| line.strip_prefix("starts ")?.parse().ok());
        Marker { line: format!("{line}\n"), starts: starts.unwrap_or(0) }
    }))
}

async fn write_marker(env: &Env, one: &Listed, kept: &Kept) -> Result<(), StoreError> {
    let path = one.path.join(MARKER);
    let text = format!("{}starts {}\n", one.marker(kept), one.starts);
    let written = env.replace_file(&path, Bytes::from(text)).await;
    written.map_err(|error| StoreError::io(format!("writing {}", path.display()), &error))
}

/// The list, if there is one: a line for each folder, and the CRC-32C of those lines.
async fn read_list(env: &Env, dir: &Path) -> Result<Option<Vec<Listed>>, StoreError> {
    let path = dir.join(LIST);
    let Some(text) = read_text(env, &path).await? else { return Ok(None) };
    parse_list(&text).map(Some).ok_or_else(|| {
        StoreError::Damaged(format!("{}, the list of stream folders, is damaged", path.display()))
    })
}

async fn write_list(env: &Env, dir: &Path, listed: &[Listed]) -> Result<(), StoreError> {
    let path = dir.join(LIST);
    let written = env.replace_file(&path, Bytes::from(list_text(listed))).await;
    written.map_err(|error| StoreError::io(format!("writing {}", path.display()), &error))
}

fn list_text(listed: &[Listed]) -> String {
    let line = |one: &Listed| {
        let Listed { number, id, starts, path } = one;
        format!("{} {id:016x} {starts} {}\n", number.0, path.display())
    };
    let lines: String = listed.iter().map(line).collect();
    format!("{lines}crc {:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

fn parse_list(text: &str) -> Option<Vec<Listed>> {
    let (lines, crc) = text.strip_suffix('\n')?.rsplit_once("crc ")?;
    if u32::from_str_radix(crc, 16).ok()? != crc32c::crc32c(lines.as_bytes()) {
        return None;
    }
    let parse = |(at, line): (usize, &str)| {
        let mut words = line.splitn(4, ' ');
        let number = words.next()?.parse::<u16>().ok().filter(|number| usize::from(*number) == at + 1)?;
        let id = u64::from_str_radix(words.next()?, 16).ok()?;
        let starts = words.next()?.parse().ok()?;
        Some(Listed { number: FolderNumber(number), id, starts, path: PathBuf::from(words.next()?) })
    };
    lines.lines().enumerate().map(parse).collect()
}

/// The folder of a new file: one with room for `bytes` if there is one, by the handle.
///
/// The highest of random numbers that belong to handle and folder decides: so a further folder takes its
/// share from all others, and the rest of the handles keep theirs.
pub(crate) fn choose(
    handle: Handle,
    folders: usize,
    has_room: impl Fn(FolderNumber) -> bool,
) -> FolderNumber {
    let numbers = (1..folders).filter_map(|number| u16::try_from(number).ok()).map(FolderNumber);
    let best = |of: &mut dyn Iterator<Item = FolderNumber>| of.max_by_key(|folder| weight(handle, *folder));
    let with_room = best(&mut numbers.clone().filter(|folder| has_room(*folder)));
    with_room.or_else(|| best(&mut numbers.clone())).unwrap_or_default()
}

fn weight(handle: Handle, folder: FolderNumber) -> u64 {
    let mut word = handle.0 ^ u64::from(folder.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Vec<Listed> {
        let one = |number, path: &str| Listed {
            number: FolderNumber(number),
            id: 7 * u64::from(number),
            starts: 5,
            path: PathBuf::from(path),
        };
        vec![one(1, "/disk one/a"), one(2, "/disk2")]
    }

    #[test]
    fn a_list_is_what_was_written_and_a_damaged_one_is_seen() {
        let text = list_text(&listed());
        assert_eq!(parse_list(&text), Some(listed()));
        assert_eq!(parse_list(&list_text(&[])), Some(Vec::new()));
        for at in 0..text.len() {
            assert_eq!(parse_list(&text[..at]), None, "cut at {at}");
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let other = String::from_utf8(other).unwrap();
            assert_ne!(parse_list(&other), Some(listed()), "another byte at {at}");
        }
    }

    #[test]
    fn handles_are_spread_evenly_and_a_further_folder_takes_its_share_only() {
        let of = |folders, n| choose(Handle(n), folders, |_| true);
        let mut counts = [0; 4];
        for n in 0..4000 {
            counts[usize::from(of(4, n).0)] += 1;
            let (before, after) = (of(4, n), of(5, n));
            assert!(before == after || after == FolderNumber(4), "handle {n} moved from {before:?}");
        }
        assert_eq!(counts[0], 0, "the store's own folder is left to rows and journal");
        assert!(counts[1..].iter().all(|count| (1200..1470).contains(count)), "{counts:?}");
        assert_eq!(of(1, 5), FolderNumber(0), "without others");
    }

    #[test]
    fn a_file_goes_where_there_is_room_for_it() {
        for n in 0..100 {
            assert_eq!(choose(Handle(n), 4, |folder| folder == FolderNumber(2)), FolderNumber(2));
            assert_ne!(choose(Handle(n), 4, |_| false), FolderNumber(0), "none has room: that is its error");
        }
    }
}
