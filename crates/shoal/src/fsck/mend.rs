//! How a problem is mended: by actions, each on one server, each of which says what it expects, so that nothing is done to
//! what changed meanwhile. What loses nothing is preferred: objects without a name get one in `/lost+found`. Mending goes
//! in rounds: what one repair uncovers (a count of links, say) is the next round's.

use super::Problem;
use super::tables::{Entry, Tables};
use shoal_proto::{Action, Attr, Generation, Handle, Kind, Name, Template, Time};

/// What repairs know of the file system.
pub struct Site {
    /// Where objects without a name go.
    pub lost_and_found: Handle,
    /// Of directories that are made again.
    pub template: Template,
    /// The time of what is changed.
    pub now: Time,
}

/// The actions that mend a problem, in order; each is a transaction of its own. `None`: nothing that is offered mends it
/// without a risk.
pub fn mend(problem: &Problem, tables: &Tables, site: &Site) -> Option<Vec<Action>> {
    let time = site.now;
    let remove = |e: &Entry| Action::EntryRemove {
        dir: e.dir,
        name: e.name.clone(),
        expect: e.handle,
        subdirs: 0,
        time,
    };
    match problem {
        Problem::DirectoryMissing(dir) => Some(vec![Action::ObjectCreate { attr: directory(*dir, site) }]),
        // The directory is made again first; then this one is looked at.
        Problem::EntryDangling(e)
            if tables.objects.contains_key(&e.dir) && !is_missing_directory(e.handle, tables) =>
        {
            Some(vec![remove(e)])
        }
        Problem::EntryDangling(_) => Some(Vec::new()),
        Problem::EntryKindWrong(e, kind) => Some(vec![Action::EntryPut {
            dir: e.dir,
            name: e.name.clone(),
            handle: e.handle,
            kind: *kind,
            expect: Some(e.handle),
            subdirs: 0,
            time,
        }]),
        Problem::DirectoryNamedTwice(e) | Problem::Loop(e) => Some(vec![remove(e)]),
        Problem::ParentWrong { dir, says, entry_in } => {
            Some(vec![Action::Reparent { dir: *dir, expect: *says, parent: *entry_in, time }])
        }
        Problem::Nameless { object, nlink: 0, .. } => Some(vec![Action::ObjectRemove { object: *object }]),
        Problem::Nameless { object, kind, parent, .. } => Some(keep(*object, *kind, *parent, site)),
        Problem::LinksWrong { object, counted, .. } => {
            Some(vec![Action::LinksSet { object: *object, nlink: *counted }])
        }
        Problem::DatafileUnowned { datafile, owner } => {
            Some(vec![Action::DatafileRemove { datafile: *datafile, owner: *owner }])
        }
        // What it held is lost: the file has a hole there.
        Problem::DatafileMissing { object, datafile, generation }
            if !tables.streams.contains_key(datafile) =>
        {
            Some(vec![create(*datafile, *object, *generation)])
        }
        Problem::StreamMissing { stream } => {
            let owner = *tables.datafiles.get(stream)?;
            let generation = tables.streams.get(&owner).copied().unwrap_or(0);
            Some(vec![
                Action::DatafileRemove { datafile: *stream, owner },
                create(*stream, owner, generation),
            ])
        }
        Problem::GenerationBehind { stream, generation, newest, .. } => Some(vec![Action::StreamAdvance {
            stream: *stream,
            expect: Generation(*generation),
            generation: Generation(*newest),
            size: None,
            written_at: None,
        }]),
        Problem::RowWrong(_)
        | Problem::RootMissing
        | Problem::OrphanGone(_)
        | Problem::OrphanNamed(_)
        | Problem::DatafileMissing { .. }
        | Problem::DatafileOfAnother { .. }
        | Problem::StreamUnowned { .. }
        | Problem::ReapOfLiving(_)
        | Problem::Undecided { .. }
        | Problem::XattrsUnowned(_) => None,
    }
}

/// The server that carries an action out.
pub fn server_of(action: &Action) -> shoal_proto::ServerId {
    shoal_server::actions::server_of(action)
}

fn is_missing_directory(handle: Handle, tables: &Tables) -> bool {
    tables.entries.iter().any(|e| e.dir == handle)
}

fn create(datafile: Handle, owner: Handle, generation: u64) -> Action {
    Action::DatafileCreate { datafile, owner, generation: Generation(generation) }
}

/// A name in `/lost+found`.
fn keep(object: Handle, kind: Kind, parent: Handle, site: &Site) -> Vec<Action> {
    let dir = site.lost_and_found;
    let name = format!("#{object}");
    let Ok(name) = Name::new(name.as_bytes()) else { return Vec::new() };
    let mut actions = Vec::new();
    if kind == Kind::Directory && parent != dir {
        actions.push(Action::Reparent { dir: object, expect: parent, parent: dir, time: site.now });
    }
    actions.push(Action::EntryPut {
        dir,
        name,
        handle: object,
        kind,
        expect: None,
        subdirs: 0,
        time: site.now,
    });
    actions
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
    }
}
