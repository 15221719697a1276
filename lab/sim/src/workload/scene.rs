//! The objects that are there before the clients begin, and stay.

use super::OWNER;
use crate::ledger::{Ledger, NOBODY, Object, ObjectId, Slot, Splits};
use crate::losses::{Held, Stamp};
use shoal_client::{Client, Error};
use shoal_proto::{Attr, Handle, Kind, Name, PlaceKey, Rights, Roles, Shards};

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
    /// Every server holds data.
    pub all_hold_data: bool,
}

impl Scene {
    /// Make it.
    ///
    /// # Errors
    /// When a server does not answer.
    pub async fn lay_out(client: &Client, place: PlaceKey) -> Result<(Scene, Ledger), Error> {
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
        // Whatever the modes, it stays.
        client.sync_all().await?;
        let map = client.map();
        let all_hold_data = map.with_roles(Roles::DATA).count() == map.servers.len();
        // Where there are few entries to a directory, it is split.
        let may_be_split = map.switches.split_entries < SPLIT_FAR && map.switches.compound;
        ledger.splits = may_be_split
            .then(|| Splits { key: place, shards: vec![Shards::over(map.with_roles(Roles::METADATA))] });
        ledger.now = Stamp::new(map.servers.len() as u16);
        Ok((Scene { directories, wanderers, records, logs, all_hold_data }, ledger))
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
    let name = Name::new(leaf.as_bytes()).expect("the workload's names are valid");
    let (attr, ..) = client.create(dir, &name, OWNER, true, Rights::WRITE, None).await?;
    Ok(stays(ledger, (dir.0, leaf), &attr))
}

fn stays(ledger: &mut Ledger, slot: Slot, attr: &Attr) -> ObjectId {
    let mut object = Object::new(Kind::File, attr.mode, attr.uid, attr.gid);
    object.handle = attr.handle.0;
    let object = ledger.object(object);
    let made = ledger.begin(NOBODY, "lay out", 0, Held::Disk, vec![(slot, Some(object))]);
    ledger.done(made, 1, Held::Disk);
    object
}
