//! Chooses the repair of a problem. A repair consists of steps, each on one server. Each step states the
//! rows that it expects, so a repair never touches rows that changed meanwhile.
//!
//! **No step loses written bytes.** Objects without a name get a name in `/lost+found`; only an object whose
//! last name was removed by its user is removed. Streams without a file become files there. Rows that cannot
//! be right are moved aside into a file before they are removed ([`super::aside`]). If a repair has to
//! invent a value (an owner, a mode), it reports that. If two states could be right, it changes nothing and
//! reports what the user can do.
//!
//! Repairs go in rounds: a problem that one repair uncovers (a count of links, say) is repaired in the next
//! round.

use super::tables::{NamedEntry, Shard, Tables, Wrong};
use super::{Problem, subfiles, undecided};
use shoal_proto::{
    Action, Attr, ClientId, ClusterMap, Decision, Dist, Generation, Handle, Kind, Name, Owner, ServerId,
    Template, Time, TxId,
};
use shoal_server::keys::{self, Table};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The facts of the file system that repairs need.
pub struct Site {
    /// Where objects without a name go.
    pub lost_and_found: Handle,
    /// Of directories that are made again.
    pub template: Template,
    /// The owner of a root directory that is made again.
    pub owner: Owner,
    /// All servers.
    pub servers: BTreeSet<ServerId>,
    /// Those of which a store was given up, and from where on the handles of their present store are.
    pub renewed: BTreeMap<ServerId, u64>,
    /// The time given to changed objects.
    pub now: Time,
}

impl Site {
    /// The values of the map.
    pub fn of(map: &ClusterMap, owner: Owner, now: Time) -> Site {
        let renewed = map.servers.iter().filter(|info| info.handles_from() > 0);
        Site {
            lost_and_found: Handle::ROOT,
            template: map.template,
            owner,
            servers: map.servers.iter().map(|server| server.id).collect(),
            renewed: renewed.map(|info| (info.id, info.handles_from())).collect(),
            now,
        }
    }

    /// Whether a transaction was begun by a store of its coordinator that was given up.
    pub fn is_of_lost_store(&self, tx: TxId) -> bool {
        self.renewed.get(&tx.coordinator()).is_some_and(|first| Handle(tx.0).counter() < *first)
    }
}

/// One step of a repair.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A transaction of its own.
    Act(Action),
    /// Moves a row aside.
    Aside {
        /// The server that has the row.
        server: ServerId,
        /// The row's key.
        key: Vec<u8>,
        /// All rows whose keys begin with these bytes.
        all: bool,
    },
    /// Makes a subfile of a forked file anew.
    Subfile(subfiles::NewSubfile),
    /// Ends a transaction whose coordinator is no server of the file system any more.
    Finish {
        /// The participant.
        server: ServerId,
        /// The transaction.
        tx: TxId,
        /// How it ends.
        decision: Decision,
    },
}

/// The repair that is offered for a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// The steps, in order, and the values that they make up or lose, in words.
    Mend(Vec<Step>, Option<Cow<'static, str>>),
    /// Another problem's repair comes first.
    Later,
    /// Nothing: either of two states may be right. The text says what the user can do.
    Leave(&'static str),
}

/// An owner, a mode and times in place of lost ones.
const MADE_ANEW: &str = "its owner, mode and times are not known: root's, 0700";
const FILE_MADE_ANEW: &str = "its owner, mode, times and attributes are not known: root's, 0600";
const PART_MADE_ANEW: &str = "it is one part of a file that lay over several servers; how they fit together is not known: \
                              each is a file of its own in /lost+found, root's, 0600";
const ROOT_MADE_ANEW: &str = "its owner, mode and times are not known: yours, 0755";

/// The repair of a problem.
pub fn mend(problem: &Problem, tables: &Tables, site: &Site) -> Offer {
    let time = site.now;
    match problem {
        Problem::RowWrong(wrong) => row_wrong(wrong),
        Problem::RootMissing => root(tables, site),
        Problem::DirectoryMissing(Handle::ROOT) => Offer::Later,
        Problem::DirectoryMissing(dir) if tables.objects.contains_key(dir) => Offer::Leave(
            "it is no directory and yet has entries, and which of both is right is not known: copy it elsewhere, remove \
             it, and check again",
        ),
        Problem::DirectoryMissing(dir) if shard_of(*dir, tables).is_some() => {
            made_of_shard(*dir, tables, site)
        }
        Problem::DirectoryMissing(dir) => {
            let create = Action::ObjectCreate { attr: directory(*dir, site) };
            Offer::Mend(vec![Step::Act(create)], Some(MADE_ANEW.into()))
        }
        Problem::EntryDangling(e) => dangling(e, tables, time),
        Problem::EntryKindWrong(e, kind) => act(Action::EntryPut {
            shard: e.at,
            dir: e.dir,
            name: e.name.clone(),
            handle: e.handle,
            kind: *kind,
            expect: Some(e.handle),
            subdirs: 0,
            time,
        }),
        Problem::DirectoryNamedTwice(e) | Problem::Loop(e) => act(remove(e, time)),
        Problem::ParentWrong { dir, says, entry_in } => {
            act(Action::Reparent { dir: *dir, expect: *says, parent: *entry_in, time })
        }
        // Its last name was removed, by its user.
        Problem::Nameless { object, nlink: 0, .. } => act(Action::ObjectRemove { object: *object }),
        Problem::Nameless { object, parent, .. } if subfiles::is_lone(*object, *parent, tables) => {
            Offer::Later
        }
        Problem::Nameless { object, kind, parent, .. } => keep(*object, *kind, *parent, site),
        Problem::LinksWrong { object, counted, .. } => {
            act(Action::LinksSet { object: *object, nlink: *counted })
        }
        Problem::OrphanGone(object) | Problem::OrphanNamed(object) => {
            let key = keys::orphan_of(*object).to_vec();
            Offer::Mend(vec![Step::Aside { server: object.server(), key, all: true }], None)
        }
        Problem::LingeringAlone { object, since } => {
            aside(object.server(), keys::lingering(*since, *object).to_vec())
        }
        // With it goes the reason to keep the file, unless a client holds it.
        Problem::LingeringUntimed(object) => {
            aside(object.server(), keys::orphan(*object, ClientId::ANYONE).to_vec())
        }
        Problem::DatafileUnowned { datafile, owner } => unowned_datafile(*datafile, *owner, tables),
        Problem::DatafileMissing { object, datafile, generation } => {
            if tables.streams.contains_key(datafile) {
                return act(Action::DatafileAdopt { datafile: *datafile, owner: *object });
            }
            let generation = Generation(*generation);
            let create = Action::DatafileCreate { datafile: *datafile, owner: *object, generation };
            Offer::Mend(
                vec![Step::Act(create)],
                Some("its bytes are not there: the file has a hole there now".into()),
            )
        }
        Problem::DatafileOfAnother { object, datafile, owner } if lists(*owner, *datafile, tables) => {
            let _ = object;
            Offer::Leave(
                "two files list it, and it can be only one's: copy both files away, remove both, and check again",
            )
        }
        Problem::DatafileOfAnother { object, datafile, .. } => Offer::Mend(
            vec![
                Step::Aside {
                    server: datafile.server(),
                    key: keys::datafile(*datafile).to_vec(),
                    all: false,
                },
                Step::Act(Action::DatafileAdopt { datafile: *datafile, owner: *object }),
            ],
            None,
        ),
        Problem::StreamMissing { stream } => {
            let create = Action::StreamCreate { stream: *stream, generation: newest(*stream, tables) };
            Offer::Mend(vec![Step::Act(create)], Some("its bytes are not there: it is empty now".into()))
        }
        // With a datafile go its row and its stream; it comes back empty, of the same generation.
        Problem::FileLost { object, stream, .. } if tables.datafiles.contains_key(stream) => {
            let generation = Generation(tables.streams.get(stream).map_or(0, |stream| stream.generation));
            let remove = Action::DatafileRemove { datafile: *stream, owner: *object };
            let create = Action::DatafileCreate { datafile: *stream, owner: *object, generation };
            let words = "its bytes are not there: the file has a hole there now";
            Offer::Mend(vec![Step::Act(remove), Step::Act(create)], Some(words.into()))
        }
        Problem::FileLost { .. } => Offer::Leave(
            "its first bytes are not there, and reading them fails: bring the file back from a copy, or remove it and write it again",
        ),
        Problem::StreamUnowned { stream } => unowned_stream(*stream, tables, site),
        Problem::GenerationBehind { object, stream, generation, newest } => act(Action::StreamAdvance {
            stream: *stream,
            owner: *object,
            expect: Generation(*generation),
            generation: Generation(*newest),
            size: None,
            written_at: None,
        }),
        Problem::ReapOfLiving(reap) => {
            aside(reap.by, keys::reap(reap.datafile.server(), reap.datafile).to_vec())
        }
        // The server begins a pool anew; the other datafiles of this one are for the next round.
        Problem::PooledUsed { server, datafile } => aside(*server, keys::pool(datafile.server()).to_vec()),
        Problem::PrecreatedUnowned { datafile, pool } | Problem::BatchBehind { datafile, pool } => {
            act(Action::Retire { pool: *pool, first: *datafile, count: 1 })
        }
        Problem::Undecided { server, tx, .. } => undecided::end(*server, *tx, tables, site),
        Problem::EntryMisplaced { entry, to } => misplaced(entry, *to, tables, time),
        Problem::ShardMissing { dir, server } => shard_missing(*dir, *server, tables),
        Problem::ShardUnowned { dir, server } => {
            if tables.entries.iter().any(|entry| entry.dir == *dir && entry.at == *server) {
                return Offer::Later;
            }
            aside(*server, keys::inode(*dir).to_vec())
        }
        Problem::SubfileMissing { file, subfile, .. } => subfiles::missing(*file, *subfile, tables, site),
        Problem::SubfileStrange(_) => {
            Offer::Leave("move nothing into it: copy the object elsewhere, and remove the file")
        }
        Problem::CountsWrong { dir, server, counted, changed, .. } => act(Action::ShardCount {
            shard: *server,
            dir: *dir,
            expect: *changed,
            nlink: counted.0,
            entries: counted.1,
        }),
        Problem::XattrsUnowned(object) => Offer::Mend(
            vec![Step::Aside { server: object.server(), key: keys::xattrs(*object).to_vec(), all: true }],
            None,
        ),
    }
}

fn act(action: Action) -> Offer {
    Offer::Mend(vec![Step::Act(action)], None)
}

fn aside(server: ServerId, key: Vec<u8>) -> Offer {
    Offer::Mend(vec![Step::Aside { server, key, all: false }], None)
}

/// The server that carries an action out.
pub fn server_of(action: &Action) -> ServerId {
    shoal_server::actions::server_of(action)
}

fn row_wrong(wrong: &Wrong) -> Offer {
    if shoal_server::actions::is_removable(&wrong.key) {
        return aside(wrong.server, wrong.key.clone());
    }
    let table = wrong.key.first().copied().unwrap_or_default();
    if table == Table::Ended as u8 {
        return Offer::Leave(
            "the row of a transaction that was carried out: it matters only should its coordinator's store be lost; take it from \
             a copy of the folder",
        );
    }
    if table == Table::Tx as u8 {
        return Offer::Leave(
            "a transaction's row: the server would not start with it; take its folder from a copy",
        );
    }
    Offer::Leave(
        "a row of the store's own, about a stream's bytes. A large file's are in `streams/` of that server's folder, named \
         by the handle in hex: copy that file away before the server is started again",
    )
}

fn root(tables: &Tables, site: &Site) -> Offer {
    let mut steps = Vec::new();
    if tables.objects.contains_key(&Handle::ROOT) {
        let (server, key) = (Handle::ROOT.server(), keys::inode(Handle::ROOT).to_vec());
        steps.push(Step::Aside { server, key, all: false });
    }
    let Owner { uid, gid, .. } = site.owner;
    let attr = Attr { mode: 0o755, uid, gid, parent: Handle::ROOT, ..directory(Handle::ROOT, site) };
    steps.push(Step::Act(Action::ObjectCreate { attr }));
    Offer::Mend(steps, Some(ROOT_MADE_ANEW.into()))
}

fn remove(e: &NamedEntry, time: Time) -> Action {
    Action::EntryRemove { shard: e.at, dir: e.dir, name: e.name.clone(), expect: e.handle, subdirs: 0, time }
}

fn dangling(e: &NamedEntry, tables: &Tables, time: Time) -> Offer {
    let will_be_made = tables.entries.iter().any(|other| other.dir == e.handle)
        || (e.kind == Kind::File
            && tables.streams.contains_key(&e.handle)
            && is_whole_file(e.handle, tables));
    if !tables.objects.contains_key(&e.dir) || will_be_made {
        return Offer::Later;
    }
    act(remove(e, time))
}

/// A shard of a directory on another server than its own, if there is one.
fn shard_of(dir: Handle, tables: &Tables) -> Option<&Shard> {
    let (from, to) = ((dir, ServerId(0)), (dir, ServerId(u16::MAX)));
    tables.shards.range(from..=to).map(|(_, shard)| shard).next()
}

/// A directory whose own row is lost has its attributes on its shards; its parent is repaired in the next
/// round.
fn made_of_shard(dir: Handle, tables: &Tables, site: &Site) -> Offer {
    let Some(shard) = shard_of(dir, tables) else { return Offer::Later };
    let attr = Attr { parent: site.lost_and_found, ..shard.attr.clone() };
    let (shard, entries) = (dir.server(), Vec::new().into());
    let create = Action::ShardCreate { shard, attr, entries };
    Offer::Mend(vec![Step::Act(create)], Some("made again with the attributes that its shards have".into()))
}

/// An entry goes to where its place is. If the same name is there, that one is the directory's, and this is
/// moved aside.
fn misplaced(e: &NamedEntry, to: ServerId, tables: &Tables, time: Time) -> Offer {
    let is_there = to == e.dir.server() || tables.shards.contains_key(&(e.dir, to));
    if !is_there {
        return Offer::Later;
    }
    let key = keys::entry(e.dir, e.place, e.name.as_bytes()).to_vec();
    let gone = Step::Aside { server: e.at, key, all: false };
    let is_taken = |other: &NamedEntry| other.dir == e.dir && other.at == to && other.name == e.name;
    if tables.entries.iter().any(is_taken) {
        return Offer::Mend(vec![gone], None);
    }
    let put = Action::EntryPut {
        shard: to,
        dir: e.dir,
        name: e.name.clone(),
        handle: e.handle,
        kind: e.kind,
        expect: None,
        subdirs: i32::from(e.kind == Kind::Directory),
        time,
    };
    Offer::Mend(vec![Step::Act(put), gone], None)
}

/// A shard is made again, with the attributes that its directory has. Entries that are still there are its
/// own again; objects that lost their names are for a later round.
fn shard_missing(dir: Handle, server: ServerId, tables: &Tables) -> Offer {
    let Some(home) = tables.objects.get(&dir).and_then(|object| object.shard.as_ref()) else {
        return Offer::Later;
    };
    let attr = Attr { parent: Handle::default(), ..home.attr.clone() };
    let create = Action::ShardCreate { shard: server, attr, entries: Vec::new().into() };
    Offer::Mend(vec![Step::Act(create)], Some("made again with the attributes that its directory has".into()))
}

/// Whether a stream without a file was all of one: neither a datafile, nor one of which there are others.
fn is_whole_file(stream: Handle, tables: &Tables) -> bool {
    !tables.datafiles.contains_key(&stream) && !tables.datafiles.values().any(|owner| *owner == stream)
}

fn lists(object: Handle, datafile: Handle, tables: &Tables) -> bool {
    let datafiles = tables.objects.get(&object).and_then(|object| object.datafiles.as_ref());
    datafiles.is_some_and(|datafiles| datafiles.contains(&datafile))
}

fn is_listed(datafile: Handle, tables: &Tables) -> bool {
    tables.objects.keys().any(|object| lists(*object, datafile, tables))
}

fn unowned_datafile(datafile: Handle, owner: Handle, tables: &Tables) -> Offer {
    if is_listed(datafile, tables) {
        return Offer::Later;
    }
    if tables.streams.get(&datafile).is_none_or(|stream| stream.size == 0) {
        return act(Action::DatafileRemove { datafile, owner });
    }
    // Its bytes then belong to no file, and become one.
    aside(datafile.server(), keys::datafile(datafile).to_vec())
}

fn unowned_stream(stream: Handle, tables: &Tables, site: &Site) -> Offer {
    if is_listed(stream, tables) {
        return Offer::Later;
    }
    let Some(row) = tables.streams.get(&stream) else { return Offer::Later };
    let whole = is_whole_file(stream, tables);
    let names = tables.entries.iter().filter(|e| e.handle == stream && e.kind == Kind::File && whole).count();
    // Without a name and without a byte it is nothing: it goes in the next round.
    let nlink = match names {
        0 => u32::from(row.size > 0),
        names => u32::try_from(names).unwrap_or(u32::MAX),
    };
    let attr = Attr {
        kind: Kind::File,
        mode: 0o600,
        nlink,
        size: row.size,
        generation: Generation(row.generation),
        parent: Handle(0),
        // All in one stream, however long it is.
        template: Template { dist: Dist::Basic, width: 1 },
        ..directory(stream, site)
    };
    let note = if whole { FILE_MADE_ANEW } else { PART_MADE_ANEW };
    Offer::Mend(vec![Step::Act(Action::StreamAdopt { attr })], Some(note.into()))
}

/// The newest generation among the streams of the file that one belongs to.
fn newest(stream: Handle, tables: &Tables) -> Generation {
    let owner = tables.datafiles.get(&stream).copied().unwrap_or(stream);
    let datafiles = tables.objects.get(&owner).and_then(|object| object.datafiles.as_ref());
    let all = datafiles.into_iter().flatten().chain([&owner]);
    let generations = all.filter_map(|stream| tables.streams.get(stream)).map(|stream| stream.generation);
    Generation(generations.max().unwrap_or(1))
}

/// A name in `/lost+found`.
fn keep(object: Handle, kind: Kind, parent: Handle, site: &Site) -> Offer {
    let dir = site.lost_and_found;
    let name = format!("#{object}");
    let Ok(name) = Name::new(name.as_bytes()) else { return Offer::Later };
    let mut steps = Vec::new();
    if kind == Kind::Directory && parent != dir {
        let reparent = Action::Reparent { dir: object, expect: parent, parent: dir, time: site.now };
        steps.push(Step::Act(reparent));
    }
    steps.push(Step::Act(Action::EntryPut {
        shard: dir.server(),
        dir,
        name,
        handle: object,
        kind,
        expect: None,
        subdirs: 0,
        time: site.now,
    }));
    Offer::Mend(steps, Some("in /lost+found now".into()))
}

/// A directory made again, for its entries' sake.
fn directory(handle: Handle, site: &Site) -> Attr {
    Attr {
        handle,
        kind: Kind::Directory,
        mode: 0o700,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size: 0,
        space: 0,
        atime: site.now,
        mtime: site.now,
        ctime: site.now,
        btime: site.now,
        generation: Generation(0),
        parent: site.lost_and_found,
        template: site.template,
        layout: None,
        shards: shoal_proto::Shards::WHOLE,
    }
}
