//! The kinds of problems.

use super::tables::{NamedEntry, ToReap, Wrong};
use shoal_proto::{Handle, Kind, ServerId, Time, TxId};
use std::fmt;

/// One problem, with its evidence: two looks that find the same evidence found the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the sentence of a variant names its fields")]
pub enum Problem {
    /// A row that cannot be decoded, or is on a server it does not belong to.
    RowWrong(Wrong),
    /// There is no root directory.
    RootMissing,
    /// An entry of a directory that is not there.
    DirectoryMissing(Handle),
    /// An entry leads to nothing.
    EntryDangling(NamedEntry),
    /// An entry says another kind than its object is.
    EntryKindWrong(NamedEntry, Kind),
    /// A directory has a second name.
    DirectoryNamedTwice(NamedEntry),
    /// A directory's parent is not the directory of its entry.
    ParentWrong { dir: Handle, says: Handle, entry_in: Handle },
    /// An object without any name, that no client holds open.
    Nameless { object: Handle, kind: Kind, nlink: u32, parent: Handle },
    /// Directories that hold each other and hang on nothing.
    Loop(NamedEntry),
    /// Links are counted wrongly.
    LinksWrong { object: Handle, says: u32, counted: u32 },
    /// An orphan's row without its object.
    OrphanGone(Handle),
    /// An orphan's row of an object that has names.
    OrphanNamed(Handle),
    /// A row that has an object removed in its time, without the orphan's row that it belongs to.
    LingeringAlone { object: Handle, since: Time },
    /// An orphan that is kept for any clients that have it open, and has no time.
    LingeringUntimed(Handle),
    /// A datafile that no file lists.
    DatafileUnowned { datafile: Handle, owner: Handle },
    /// A file lists a datafile that is not there.
    DatafileMissing { object: Handle, datafile: Handle, generation: u64 },
    /// A file lists a datafile of another file.
    DatafileOfAnother { object: Handle, datafile: Handle, owner: Handle },
    /// A file or datafile without a stream.
    StreamMissing { stream: Handle },
    /// A stream of a file, or of a datafile of it, whose bytes were in a local file that is not there.
    FileLost { object: Handle, stream: Handle, path: Option<String> },
    /// A stream that belongs to nothing.
    StreamUnowned { stream: Handle },
    /// A stream's generation is older than those of the other streams of its file.
    GenerationBehind { object: Handle, stream: Handle, generation: u64, newest: u64 },
    /// A datafile is to be removed, but its file lists it.
    ReapOfLiving(ToReap),
    /// A pool holds a datafile that is used up, or a file's.
    PooledUsed { server: ServerId, datafile: Handle },
    /// A datafile made ahead of need that is in no pool, and no file's.
    PrecreatedUnowned { datafile: Handle, pool: ServerId },
    /// A datafile that is used, and yet its batch says that it never was.
    BatchBehind { datafile: Handle, pool: ServerId },
    /// A transaction without a server to decide it.
    Undecided { server: ServerId, tx: TxId, objects: Vec<Handle> },
    /// Extended attributes of an object that is not there.
    XattrsUnowned(Handle),
    /// An entry on a server that does not hold its place; `to` does.
    EntryMisplaced { entry: NamedEntry, to: ServerId },
    /// A directory says that it has a shard on a server, which has none.
    ShardMissing { dir: Handle, server: ServerId },
    /// A shard of a directory that does not have it.
    ShardUnowned { dir: Handle, server: ServerId },
    /// A directory, or a shard of one, counts other links and entries than are there; `changed`: its last
    /// change.
    CountsWrong { dir: Handle, server: ServerId, says: (u32, u32), counted: (u32, u32), changed: Time },
    /// A forked file without one of its subfiles; a path that leads to the file.
    SubfileMissing { file: Handle, subfile: u16, path: Option<String> },
    /// An entry of a forked file that is none of its subfiles.
    SubfileStrange(NamedEntry),
}

impl Problem {
    /// One word for it, in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Problem::RowWrong(_) => "row_wrong",
            Problem::RootMissing => "root_missing",
            Problem::DirectoryMissing(_) => "directory_missing",
            Problem::EntryDangling(_) => "entry_dangling",
            Problem::EntryKindWrong(..) => "entry_kind_wrong",
            Problem::DirectoryNamedTwice(_) => "directory_named_twice",
            Problem::ParentWrong { .. } => "parent_wrong",
            Problem::Nameless { .. } => "nameless",
            Problem::Loop(_) => "loop",
            Problem::LinksWrong { .. } => "links_wrong",
            Problem::OrphanGone(_) => "orphan_gone",
            Problem::OrphanNamed(_) => "orphan_named",
            Problem::LingeringAlone { .. } => "lingering_alone",
            Problem::LingeringUntimed(_) => "lingering_untimed",
            Problem::DatafileUnowned { .. } => "datafile_unowned",
            Problem::DatafileMissing { .. } => "datafile_missing",
            Problem::DatafileOfAnother { .. } => "datafile_of_another",
            Problem::StreamMissing { .. } => "stream_missing",
            Problem::FileLost { .. } => "file_lost",
            Problem::StreamUnowned { .. } => "stream_unowned",
            Problem::GenerationBehind { .. } => "generation_behind",
            Problem::ReapOfLiving(_) => "reap_of_living",
            Problem::PooledUsed { .. } => "pooled_used",
            Problem::PrecreatedUnowned { .. } => "precreated_unowned",
            Problem::BatchBehind { .. } => "batch_behind",
            Problem::Undecided { .. } => "undecided",
            Problem::XattrsUnowned(_) => "xattrs_unowned",
            Problem::EntryMisplaced { .. } => "entry_misplaced",
            Problem::ShardMissing { .. } => "shard_missing",
            Problem::ShardUnowned { .. } => "shard_unowned",
            Problem::CountsWrong { .. } => "counts_wrong",
            Problem::SubfileMissing { .. } => "subfile_missing",
            Problem::SubfileStrange(_) => "subfile_strange",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::RowWrong(Wrong { server, key, why }) => {
                write!(f, "server {server}: the row `{}` is wrong: {why}", key.escape_ascii())
            }
            Problem::RootMissing => f.write_str("the root directory is not there"),
            Problem::DirectoryMissing(dir) => write!(f, "directory {dir} has entries but is not there"),
            Problem::EntryDangling(e) => {
                write!(f, "`{}` in directory {} leads to {}, which is not there", e.name, e.dir, e.handle)
            }
            Problem::EntryKindWrong(e, kind) => write!(
                f,
                "`{}` in directory {} says that {} is a {}, but it is a {}",
                e.name,
                e.dir,
                e.handle,
                e.kind.word(),
                kind.word()
            ),
            Problem::DirectoryNamedTwice(e) => {
                write!(f, "directory {} has a second name, `{}` in directory {}", e.handle, e.name, e.dir)
            }
            Problem::ParentWrong { dir, says, entry_in } => {
                write!(f, "directory {dir} says its parent is {says}, but its name is in {entry_in}")
            }
            Problem::Nameless { object, kind, nlink, .. } => {
                write!(f, "{} {object} has no name (it says {nlink} links)", kind.word())
            }
            Problem::Loop(e) => {
                write!(f, "directory {} hangs on nothing but itself, by `{}` in {}", e.handle, e.name, e.dir)
            }
            Problem::LinksWrong { object, says, counted } => {
                write!(f, "object {object} says {says} links, counted are {counted}")
            }
            Problem::OrphanGone(object) => write!(f, "orphan {object} is held open but not there"),
            Problem::OrphanNamed(object) => {
                write!(f, "object {object} has names, yet stands among the orphans")
            }
            Problem::LingeringAlone { object, .. } => {
                write!(f, "object {object} is to be freed in its time, and is no removed file")
            }
            Problem::LingeringUntimed(object) => {
                write!(
                    f,
                    "removed file {object} is kept for those that have it open, and has no time to be freed"
                )
            }
            Problem::DatafileUnowned { datafile, owner } => {
                write!(f, "datafile {datafile} belongs to {owner}, which does not list it")
            }
            Problem::DatafileMissing { object, datafile, .. } => {
                write!(f, "file {object} lists datafile {datafile}, which is not there")
            }
            Problem::DatafileOfAnother { object, datafile, owner } => {
                write!(f, "file {object} lists datafile {datafile}, which belongs to {owner}")
            }
            Problem::StreamMissing { stream } => write!(f, "{stream} has no stream: its data is not there"),
            Problem::FileLost { object, stream, path } => {
                let path = path.as_ref().map_or(String::new(), |path| format!(" (`{path}`)"));
                write!(
                    f,
                    "bytes of file {object}{path} are lost: the local file of its stream {stream} is not there"
                )
            }
            Problem::StreamUnowned { stream } => {
                write!(f, "stream {stream} belongs to nothing; it takes space")
            }
            Problem::GenerationBehind { object, stream, generation, newest } => write!(
                f,
                "stream {stream} of file {object} is of generation {generation}, the newest is {newest}"
            ),
            Problem::ReapOfLiving(reap) => write!(
                f,
                "server {} will remove datafile {}, but its file {} is there and lists it",
                reap.by, reap.datafile, reap.owner
            ),
            Problem::PooledUsed { server, datafile } => write!(
                f,
                "the pool of server {server} holds datafile {datafile}, which is used up or a file's"
            ),
            Problem::PrecreatedUnowned { datafile, pool } => write!(
                f,
                "datafile {datafile} was made for the pool of server {pool}, and is neither in it nor a file's"
            ),
            Problem::BatchBehind { datafile, .. } => {
                write!(f, "datafile {datafile} is used, but its batch says that it never was")
            }
            Problem::Undecided { server, tx, objects } => {
                let coordinator = tx.coordinator();
                write!(
                    f,
                    "transaction {tx} waits on server {server} for a decision of server {coordinator}"
                )?;
                match objects.iter().map(Handle::to_string).collect::<Vec<_>>() {
                    none if none.is_empty() => Ok(()),
                    some => write!(f, "; it concerns {}", some.join(", ")),
                }
            }
            Problem::XattrsUnowned(object) => {
                write!(f, "extended attributes of {object}, which is not there")
            }
            Problem::EntryMisplaced { entry, to } => write!(
                f,
                "`{}` in directory {} is on server {}, but its place is on server {to}",
                entry.name, entry.dir, entry.at
            ),
            Problem::ShardMissing { dir, server } => {
                write!(f, "directory {dir} has a shard on server {server}, which is not there")
            }
            Problem::ShardUnowned { dir, server } => {
                write!(f, "server {server} has a shard of directory {dir}, which does not have it")
            }
            Problem::CountsWrong { dir, server, says, counted, .. } => write!(
                f,
                "directory {dir} says {} links and {} entries on server {server}, counted are {} and {}",
                says.0, says.1, counted.0, counted.1
            ),
            Problem::SubfileMissing { file, subfile, path } => {
                let path = path.as_ref().map_or(String::new(), |path| format!(" (`{path}`)"));
                write!(f, "forked file {file}{path} has no subfile {subfile}")
            }
            Problem::SubfileStrange(e) => {
                write!(
                    f,
                    "`{}` in forked file {} is none of its subfiles; it leads to {}",
                    e.name, e.dir, e.handle
                )
            }
        }
    }
}
