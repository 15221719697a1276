//! The objects that are there before the clients begin, and stay.

use super::forks::Forked;
use super::{OWNER, name};
use crate::ledger::{DrawnSplits, KnownObject, Ledger, NOBODY, ObjectId, Slot};
use crate::losses::{Held, Stamp};
use shoal_client::{Client, Error, ForkedFile};
use shoal_proto::{Attr, Handle, PlaceKey, Rights, Roles, Shards};

/// Directories all clients share; the last one is crowded.
const DIRECTORIES: usize = 5;
/// Directories that are moved about, into each other too.
pub(super) const WANDERERS: usize = 5;
/// Files all clients write to anywhere, and files all clients append to.
const RECORDS: usize = 2;
const LOGS: usize = 2;
/// Names of the crowded directory; long ones, so that a listing takes several messages.
const CROWD: usize = 300;
/// No directory gets so many entries in a run.
const SPLIT_FAR: u32 = 4_096;

/// See the module.
pub(crate) struct Scene {
    /// Directories all clients share; they stay.
    pub directories: Vec<Handle>,
    /// Directories that are moved about.
    pub wanderers: Vec<Handle>,
    /// Files that all write to.
    pub records: Vec<ObjectId>,
    /// Files that all append to, and none writes or truncates.
    pub logs: Vec<ObjectId>,
    /// Forked files, and forks in them that all write to and that all append to; none: the run has none.
    pub forked: Vec<Forked>,
    fork_records: Vec<ObjectId>,
    fork_logs: Vec<ObjectId>,
    /// Every server holds data.
    pub all_hold_data: bool,
}

impl Scene {
    /// Make it.
    ///
    /// # Errors
    /// When a server does not answer.
    pub async fn lay_out(
        client: &Client,
        place: PlaceKey,
        has_forks: bool,
    ) -> Result<(Scene, Ledger), Error> {
        let (mut directories, mut wanderers) = (Vec::new(), Vec::new());
        for index in 0..DIRECTORIES {
            let path = format!("/{}", directory_name(index));
            directories.push(client.mkdir_at(path.as_bytes(), OWNER).await?.handle);
        }
        for index in 0..WANDERERS {
            wanderers.push(client.mkdir_at(format!("/wander{index}").as_bytes(), OWNER).await?.handle);
        }
        let mut ledger = Ledger::default();
        let (mut records, mut logs) = (Vec::new(), Vec::new());
        for (count, word, made) in [(RECORDS, "records", &mut records), (LOGS, "log", &mut logs)] {
            for index in 0..count {
                let (dir, leaf) = (directories[index % DIRECTORIES], format!("{word}{index}"));
                made.push(make(client, &mut ledger, dir, leaf).await?);
            }
        }
        let crowd = directories[DIRECTORIES - 1];
        for index in 0..CROWD {
            make(client, &mut ledger, crowd, format!("{index:0>200}")).await?;
        }
        let forked = match has_forks {
            true => lay_out_forked(client, &mut ledger, &directories).await?,
            false => Vec::new(),
        };
        let (mut fork_records, mut fork_logs) = (Vec::new(), Vec::new());
        for file in &forked {
            fork_records.push(make_fork(client, &mut ledger, file, "records").await?);
            fork_logs.push(make_fork(client, &mut ledger, file, "log").await?);
        }
        // Whatever the modes, it stays.
        client.sync_all().await?;
        let map = client.map();
        let all_hold_data = map.with_roles(Roles::DATA).count() == map.servers.len();
        // Where there are few entries to a directory, it is split.
        let may_be_split = map.switches.split_entries < SPLIT_FAR && map.switches.compound;
        ledger.splits = may_be_split
            .then(|| DrawnSplits { key: place, shards: vec![Shards::over(map.with_roles(Roles::METADATA))] });
        ledger.now = Stamp::new(map.servers.len() as u16);
        let scene =
            Scene { directories, wanderers, records, logs, forked, fork_records, fork_logs, all_hold_data };
        Ok((scene, ledger))
    }

    /// Files, or forks, that all write to.
    pub fn records_of(&self, is_of_forks: bool) -> Vec<ObjectId> {
        if is_of_forks { self.fork_records.clone() } else { self.records.clone() }
    }

    /// Files, or forks, that all append to.
    pub fn logs_of(&self, is_of_forks: bool) -> Vec<ObjectId> {
        if is_of_forks { self.fork_logs.clone() } else { self.logs.clone() }
    }

    /// Whether all write or append to a file.
    pub fn is_shared(&self, object: ObjectId) -> bool {
        let all = [&self.records, &self.logs, &self.fork_records, &self.fork_logs];
        all.iter().any(|some| some.contains(&object))
    }

    /// The name of a shared directory, under the root.
    pub fn directory_name(&self, index: usize) -> String {
        directory_name(index)
    }
}

fn directory_name(index: usize) -> String {
    format!("dir{index}")
}

async fn make(client: &Client, ledger: &mut Ledger, dir: Handle, leaf: String) -> Result<ObjectId, Error> {
    let (attr, ..) = client.create(dir, &name(&leaf), OWNER, true, Rights::WRITE, None).await?;
    let object = stays(ledger, (dir.0, leaf), &attr);
    let map = client.map();
    let strip = map.template.stuffed_max();
    let holds_data = map.with_roles(Roles::DATA).any(|holder| holder == attr.handle.server());
    let stuffed = if map.switches.stuffing && holds_data { strip } else { 0 };
    ledger.objects[object].contents.made(attr.handle.server().0, stuffed, strip);
    Ok(object)
}

/// Forked files that stay: one on all servers in turn, and one with both its subfiles on one server.
async fn lay_out_forked(client: &Client, ledger: &mut Ledger, dirs: &[Handle]) -> Result<Vec<Forked>, Error> {
    let one = client.map().with_roles(Roles::METADATA | Roles::DATA).take(1).collect();
    let mut all = Vec::new();
    for (index, (subfiles, servers)) in [(5, Vec::new()), (2, one)].into_iter().enumerate() {
        let (dir, leaf) = (dirs[index % dirs.len()], format!("forked{index}"));
        let file = ForkedFile { subfiles, servers, replace: false };
        let attr = client.mkforked(dir, &name(&leaf), OWNER, &file).await?;
        let slot = (dir.0, leaf);
        let mut forked = Forked { object: stays(ledger, slot.clone(), &attr), slot, subfiles: Vec::new() };
        for index in 0..subfiles {
            let leaf = index.to_string();
            let subfile = client.lookup(attr.handle, &name(&leaf)).await?;
            stays(ledger, (attr.handle.0, leaf), &subfile);
            ledger.unsplit.insert(subfile.handle.0);
            forked.subfiles.push(subfile.handle);
        }
        all.push(forked);
    }
    Ok(all)
}

/// A fork that stays, in a subfile of its own of a forked file.
async fn make_fork(
    client: &Client,
    ledger: &mut Ledger,
    file: &Forked,
    leaf: &str,
) -> Result<ObjectId, Error> {
    let dir = file.subfiles[leaf.len() % file.subfiles.len()];
    let object = make(client, ledger, dir, leaf.to_owned()).await?;
    ledger.objects[object].contents.made(dir.server().0, u64::MAX, u64::MAX);
    Ok(object)
}

fn stays(ledger: &mut Ledger, slot: Slot, attr: &Attr) -> ObjectId {
    let mut object = KnownObject::new(attr.kind, attr.mode, attr.uid, attr.gid);
    object.handle = attr.handle.0;
    let object = ledger.object(object);
    let made = ledger.begin(NOBODY, "lay out", 0, Held::Disk, vec![(slot, Some(object))]);
    ledger.done(made, 1, Held::Disk);
    object
}
