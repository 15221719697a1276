//! Tests that plant every kind of damage in the stores of a running file system. The check must find each
//! damage under the right name, and the repair must leave all undamaged data unchanged.

use super::aside::Aside;
use super::mend::{Offer, Site, mend};
use super::report::Report;
use super::rounds::{Checker, Mending};
use super::tables::{InodeFields, Stream, Wrong};
use super::{Problem, Tables};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use indicatif::ProgressBar;
use shoal_client::{Client, ForkedFile, Options};
use shoal_env::Env;
use shoal_proto::{
    Action, ClientId, ClusterMap, CollectionId, Dist, Handle, Kind, Name, Owner, Rights, Roles, SecretKey,
    ServerId, ServerInfo, Template, Time, TxId,
};
use shoal_server::rows::{
    Batch, Datafile, Dirent, Inode, Lingering, Orphan, Pool, Range, Reap, RowValue as _, Tx, TxState,
};
use shoal_server::{CollectionSetup, ServerConfig, ServerHandle, Settings, keys, precreated, serve};
use shoal_store::{Changes, Collection, CollectionConfig, Identity, ModuleKind, StreamChange, look};

use std::collections::BTreeMap;
use std::time::Duration;

const KEY: SecretKey = SecretKey::new([7; 32]);
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const STRIP: u64 = 64 << 10;
const WIDE: usize = 300_000;
/// Entries with which a directory is split.
const SPLIT: usize = 24;
const PAUSES: [Duration; 2] = [Duration::from_millis(30); 2];

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A handle that no server has given.
fn nobody(server: u16) -> Handle {
    Handle::new(ServerId(server), (1 << 46) + 5)
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i % 251) as u8).collect::<Vec<u8>>().into()
}

/// Two servers in this thread, and their contents.
struct Scene {
    env: Env,
    map: ClusterMap,
    stores: Vec<Collection>,
    servers: Vec<Option<ServerHandle>>,
    client: Client,
    handles: BTreeMap<&'static str, Handle>,
}

impl Scene {
    async fn new(env: &Env, number: usize) -> Scene {
        let info = |id: u16| {
            let address = format!("local:fsck-{number}-{id}");
            ServerInfo::new(ServerId(id), vec![address.into()], Roles::all())
        };
        let map = ClusterMap {
            fs_id: [5; 16],
            name: "checked".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template { dist: Dist::SimpleStripe { strip: STRIP }, width: 0 },
            switches: shoal_proto::Switches { split_entries: SPLIT as u32, ..Default::default() },
            servers: (0..2).map(info).collect::<Vec<_>>().into(),
            keys: Vec::new().into(),
        };
        let (mut stores, mut servers) = (Vec::new(), Vec::new());
        for id in 0..2 {
            let identity = Identity { fs: map.fs_id, collection: 1, server: id };
            let config = CollectionConfig::new("/nowhere", ModuleKind::Memory, identity);
            stores.push(shoal_store::open(env.clone(), config).await.unwrap());
            servers.push(Some(start(env, &map, &stores, id).await));
        }
        let addresses = map.servers.iter().map(|info| info.addresses[0].0.parse().unwrap()).collect();
        let mut options = Options::new(addresses, KEY, map.fs_id, map.collection);
        (options.name_cache, options.attr_cache) = (Duration::ZERO, Duration::ZERO);
        let client = Client::connect(env.clone(), options).await.unwrap();
        let handles = BTreeMap::new();
        let mut scene = Scene { env: env.clone(), map, stores, servers, client, handles };
        scene.fill().await;
        scene
    }

    /// `/dir/small`, with a second name `/again`; `/dir/wide` over both servers; `/dir/inner/deep`;
    /// `/a/b/file`; `/split` with files, on both servers.
    async fn fill(&mut self) {
        let client = self.client.clone();
        let root = Handle::ROOT;
        let dir = client.mkdir(root, &name("dir"), OWNER).await.unwrap().handle;
        let inner = client.mkdir(dir, &name("inner"), OWNER).await.unwrap().handle;
        let a = client.mkdir(root, &name("a"), OWNER).await.unwrap().handle;
        let b = client.mkdir(a, &name("b"), OWNER).await.unwrap().handle;
        let put = async |dir, at: &str, data: &'static [u8]| {
            client.create_write(dir, &name(at), OWNER, Bytes::from_static(data), None).await.unwrap().handle
        };
        let small = put(dir, "small", b"small bytes").await;
        let deep = put(inner, "deep", b"deep bytes").await;
        let file = put(b, "file", b"bytes in a loop").await;
        client.link(small, root, &name("again")).await.unwrap();
        client.setxattr(small, b"user.color", b"blue", false, false).await.unwrap();
        let (wide, _, open) =
            client.create(dir, &name("wide"), OWNER, true, Rights::WRITE, None).await.unwrap();
        open.write(0, pattern(WIDE)).await.unwrap();
        open.close().await.unwrap();
        let split = client.mkdir(root, &name("split"), OWNER).await.unwrap().handle;
        for n in 0..SPLIT {
            put(split, &format!("f{n}"), b"bytes in a shard").await;
        }
        while !client.getattr(split).await.unwrap().shards.is_split() {
            self.env.sleep(Duration::from_millis(1)).await;
        }
        self.handles.insert("split", split);
        let layout = client.getattr(wide.handle).await.unwrap().layout.unwrap();
        let part = *layout.datafiles.iter().find(|datafile| **datafile != wide.handle).unwrap();
        self.handles.extend([("dir", dir), ("inner", inner), ("a", a), ("b", b), ("small", small)]);
        self.handles.extend([("deep", deep), ("file", file), ("wide", wide.handle), ("part", part)]);
    }

    fn at(&self, what: &str) -> Handle {
        self.handles[what]
    }

    /// Change rows and streams of the server of `of`, past everything.
    async fn plant(&self, of: Handle, changes: Changes) {
        let store = &self.stores[usize::from(of.server().0)];
        for (handle, _) in &changes.streams {
            look(store, |view| view.stream(*handle)).await.unwrap();
        }
        store.apply(changes).unwrap();
    }

    async fn row(&self, of: Handle, key: Bytes, value: Option<Bytes>) {
        self.plant(of, Changes { rows: vec![(key, value)], ..Changes::default() }).await;
    }

    async fn stream(&self, of: Handle, changes: Vec<StreamChange>) {
        let streams = changes.into_iter().map(|change| (of, change)).collect();
        self.plant(of, Changes { streams, ..Changes::default() }).await;
    }

    async fn inode(&self, of: Handle, change: impl FnOnce(&mut Inode)) {
        let (store, key) = (&self.stores[usize::from(of.server().0)], keys::inode(of));
        let row = look(store, |view| view.get(&key)).await.unwrap().0.unwrap();
        let mut inode = Inode::from_row(&row).unwrap();
        change(&mut inode);
        self.row(of, key, Some(inode.to_row())).await;
    }

    async fn get(&self, server: ServerId, key: &[u8]) -> Option<Bytes> {
        look(&self.stores[usize::from(server.0)], |view| view.get(key)).await.unwrap().0
    }

    async fn rows_of(&self, server: ServerId, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        let store = &self.stores[usize::from(server.0)];
        look(store, |view| view.scan(prefix, None, 1000)).await.unwrap().0.rows
    }

    fn entry_key(&self, dir: Handle, at: &str) -> Bytes {
        let shard = &self.servers[usize::from(dir.server().0)].as_ref().unwrap().shards()[0];
        keys::entry(dir, shard.identity().place_of(at.as_bytes()), at.as_bytes())
    }

    async fn entry(&self, dir: Handle, at: &str, to: Option<(Handle, Kind)>) {
        let row = to.map(|(handle, kind)| Dirent { handle, kind }.to_row());
        self.row(dir, self.entry_key(dir, at), row).await;
    }

    /// A stream without a file.
    async fn lost_bytes(&self, stream: Handle, data: &'static [u8]) {
        let (content, size) = (Bytes::from_static(data), data.len() as u64);
        let written_at = self.env.wall();
        let put = StreamChange::Put { content, size, written_at };
        self.stream(stream, vec![StreamChange::Create { generation: 1 }, put]).await;
    }

    async fn restart(&mut self, server: u16) {
        self.servers[usize::from(server)].take().unwrap().abandon();
        let started = start(&self.env, &self.map, &self.stores, server).await;
        self.servers[usize::from(server)] = Some(started);
    }

    /// The bytes of all files, by their paths.
    async fn files(&self) -> BTreeMap<String, Bytes> {
        let (mut found, mut todo) = (BTreeMap::new(), vec![(Handle::ROOT, String::new())]);
        while let Some((dir, path)) = todo.pop() {
            let mut entries = self.client.opendir(dir);
            while let Some(entry) = entries.next(true).await.unwrap() {
                let path = format!("{path}/{}", entry.name);
                if entry.kind == Kind::Directory {
                    todo.push((entry.handle, path));
                    continue;
                }
                let file = self.client.open_at(path.as_bytes(), Rights::READ).await.unwrap();
                found.insert(path, file.read(0, 2 * WIDE).await.unwrap());
            }
        }
        found
    }
}

async fn start(env: &Env, map: &ClusterMap, stores: &[Collection], server: u16) -> ServerHandle {
    loop {
        let config = ServerConfig {
            id: ServerId(server),
            listen: vec![map.servers[usize::from(server)].addresses[0].0.parse().unwrap()],
            collections: vec![CollectionSetup {
                store: stores[usize::from(server)].clone(),
                map: map.clone(),
                keys: Some(KEY.into()),
                root: OWNER,
            }],
            settings: Settings::default(),
            polling: Duration::ZERO,
            audit: None,
        };
        match serve(env.clone(), config).await {
            Ok(handle) => return handle,
            // The listener of one that was just stopped goes with its task's next turn.
            Err(shoal_server::ServeError::Listen(..)) => env.sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The expectation of a case.
#[derive(Default)]
struct Planted {
    /// Among the words of the problem.
    says: String,
    /// Among the words of its repair.
    notes: &'static str,
    /// Files whose bytes or names were planted damage.
    gone: Vec<&'static str>,
    /// Bytes that some file has afterwards.
    kept: Vec<Bytes>,
    /// Bytes that occur among the rows that were moved aside, in hex.
    aside: Vec<Bytes>,
}

type Plant = for<'a> fn(&'a mut Scene) -> LocalBoxFuture<'a, Planted>;

/// The variants and their cases, once: a variant without a case does not compile.
macro_rules! cases {
    ($($variant:ident => |$scene:ident| $plant:block),* $(,)?) => {
        fn variant(problem: &Problem) -> &'static str {
            match problem {
                $(Problem::$variant { .. } => stringify!($variant),)*
                // Left as it is, and found by a test of `check`.
                Problem::SubfileStrange(_) => "Subfile",
                // These stores have no files: a test of the program has disks.
                Problem::FileLost { .. } => "FileLost",
            }
        }

        fn cases() -> Vec<(&'static str, Plant)> {
            vec![$((stringify!($variant), |$scene| Box::pin(async move { $plant }))),*]
        }
    };
}

cases! {
    RowWrong => |scene| {
        let small = scene.at("small");
        scene.row(small, keys::inode(small), Some(Bytes::from_static(b"no inode"))).await;
        let aside = vec![keys::inode(small), Bytes::from_static(b"no inode")];
        // Its bytes are a file again, under all its names.
        Planted { says: "is wrong".into(), aside, ..Planted::default() }
    },
    RootMissing => |scene| {
        scene.row(Handle::ROOT, keys::inode(Handle::ROOT), None).await;
        Planted { says: "the root directory is not there".into(), notes: "yours, 0755", ..Planted::default() }
    },
    DirectoryMissing => |scene| {
        let inner = scene.at("inner");
        scene.row(inner, keys::inode(inner), None).await;
        Planted { says: format!("directory {inner} has entries"), notes: "root's, 0700", ..Planted::default() }
    },
    EntryDangling => |scene| {
        let deep = scene.at("deep");
        scene.row(deep, keys::inode(deep), None).await;
        scene.stream(deep, vec![StreamChange::Remove]).await;
        Planted { says: format!("`deep` in directory {}", scene.at("inner")), gone: vec!["/dir/inner/deep"], ..Planted::default() }
    },
    EntryKindWrong => |scene| {
        let (dir, small) = (scene.at("dir"), scene.at("small"));
        scene.entry(dir, "small", Some((small, Kind::Fifo))).await;
        Planted { says: "but it is a".into(), ..Planted::default() }
    },
    DirectoryNamedTwice => |scene| {
        let (b, inner) = (scene.at("b"), scene.at("inner"));
        scene.entry(b, "second", Some((inner, Kind::Directory))).await;
        Planted { says: "`second`".into(), ..Planted::default() }
    },
    ParentWrong => |scene| {
        let inner = scene.at("inner");
        scene.inode(inner, |inode| inode.parent = nobody(1)).await;
        Planted { says: format!("says its parent is {}", nobody(1)), ..Planted::default() }
    },
    Nameless => |scene| {
        scene.entry(scene.at("inner"), "deep", None).await;
        let kept = vec![Bytes::from_static(b"deep bytes")];
        Planted { says: "has no name".into(), notes: "/lost+found", gone: vec!["/dir/inner/deep"], kept, ..Planted::default() }
    },
    SubfileMissing => |scene| {
        let (client, forked) = (scene.client.clone(), ForkedFile { subfiles: 3, ..ForkedFile::default() });
        let file = client.mkforked(Handle::ROOT, &name("forked"), OWNER, &forked).await.unwrap().handle;
        let subfile = client.lookup(file, &name("1")).await.unwrap().handle;
        let bytes = Bytes::from_static(b"bytes of a fork");
        client.create_write(subfile, &name("keys"), OWNER, bytes.clone(), None).await.unwrap();
        scene.entry(file, "1", None).await;
        Planted { says: "(`/forked`) has no subfile 1".into(), notes: "in its place again", kept: vec![bytes], ..Planted::default() }
    },
    Loop => |scene| {
        let (a, b) = (scene.at("a"), scene.at("b"));
        scene.entry(Handle::ROOT, "a", None).await;
        scene.entry(b, "a", Some((a, Kind::Directory))).await;
        scene.inode(a, |inode| inode.parent = b).await;
        let kept = vec![Bytes::from_static(b"bytes in a loop")];
        Planted { says: "hangs on nothing but itself".into(), gone: vec!["/a/b/file"], kept, ..Planted::default() }
    },
    LinksWrong => |scene| {
        scene.inode(scene.at("small"), |inode| inode.nlink = 9).await;
        Planted { says: "says 9 links, counted are 2".into(), ..Planted::default() }
    },
    OrphanGone => |scene| {
        let row = Orphan { since: Time(1) }.to_row();
        scene.row(nobody(1), keys::orphan(nobody(1), ClientId([3; 16])), Some(row)).await;
        Planted { says: "is held open but not there".into(), aside: vec![keys::orphan(nobody(1), ClientId([3; 16]))], ..Planted::default() }
    },
    OrphanNamed => |scene| {
        let (small, row) = (scene.at("small"), Orphan { since: Time(1) }.to_row());
        scene.row(small, keys::orphan(small, ClientId([3; 16])), Some(row)).await;
        Planted { says: "stands among the orphans".into(), aside: vec![keys::orphan(small, ClientId([3; 16]))], ..Planted::default() }
    },
    LingeringAlone => |scene| {
        let (small, row) = (scene.at("small"), Lingering { bytes: 5 }.to_row());
        let key = keys::lingering(Time(1), small);
        scene.row(small, key.clone(), Some(row)).await;
        Planted { says: "is to be freed in its time".into(), aside: vec![key], ..Planted::default() }
    },
    LingeringUntimed => |scene| {
        let (small, key) = (scene.at("small"), keys::orphan(scene.at("small"), ClientId::ANYONE));
        scene.entry(scene.at("dir"), "small", None).await;
        scene.entry(Handle::ROOT, "again", None).await;
        scene.inode(small, |inode| inode.nlink = 0).await;
        scene.row(small, key.clone(), Some(Orphan { since: Time(1) }.to_row())).await;
        let gone = vec!["/dir/small", "/again"];
        Planted { says: "has no time to be freed".into(), gone, aside: vec![key], ..Planted::default() }
    },
    DatafileUnowned => |scene| {
        let (datafile, owner) = (nobody(1), nobody(0));
        scene.lost_bytes(datafile, b"a part of a file").await;
        scene.row(datafile, keys::datafile(datafile), Some(Datafile { owner }.to_row())).await;
        let kept = vec![Bytes::from_static(b"a part of a file")];
        Planted { says: "which does not list it".into(), kept, aside: vec![keys::datafile(datafile)], ..Planted::default() }
    },
    DatafileMissing => |scene| {
        let part = scene.at("part");
        scene.row(part, keys::datafile(part), None).await;
        Planted { says: format!("lists datafile {part}, which is not there"), ..Planted::default() }
    },
    DatafileOfAnother => |scene| {
        let (part, owner) = (scene.at("part"), scene.at("small"));
        scene.row(part, keys::datafile(part), Some(Datafile { owner }.to_row())).await;
        Planted { says: format!("which belongs to {owner}"), aside: vec![keys::datafile(part)], ..Planted::default() }
    },
    StreamMissing => |scene| {
        scene.stream(scene.at("deep"), vec![StreamChange::Remove]).await;
        Planted { says: "its data is not there".into(), notes: "it is empty now", gone: vec!["/dir/inner/deep"], ..Planted::default() }
    },
    StreamUnowned => |scene| {
        scene.lost_bytes(nobody(1), b"bytes of nobody").await;
        let kept = vec![Bytes::from_static(b"bytes of nobody")];
        Planted { says: "belongs to nothing".into(), notes: "root's, 0600", kept, ..Planted::default() }
    },
    GenerationBehind => |scene| {
        let wide = scene.at("wide");
        scene.stream(wide, vec![StreamChange::Advance { generation: 900 }]).await;
        Planted { says: "the newest is 900".into(), ..Planted::default() }
    },
    ReapOfLiving => |scene| {
        let (wide, part) = (scene.at("wide"), scene.at("part"));
        let key = keys::reap(part.server(), part);
        scene.row(wide, key.clone(), Some(Reap { owner: wide }.to_row())).await;
        // Its server looks for objects to reap when it starts.
        scene.restart(wide.server().0).await;
        Planted { says: "is there and lists it".into(), aside: vec![key], ..Planted::default() }
    },
    PooledUsed => |scene| {
        let wide = scene.at("wide");
        let (server, peer) = (wide.server(), scene.at("part").server());
        let key = keys::pool(peer);
        while scene.get(server, &key).await.is_none_or(|row| Pool::from_row(&row).unwrap().lent == 0) {
            scene.env.sleep(Duration::from_millis(1)).await;
        }
        let mut pool = Pool::from_row(&scene.get(server, &key).await.unwrap()).unwrap();
        pool.ranges.insert(0, Range { first: scene.at("part"), count: 1 });
        scene.row(wide, key.clone(), Some(pool.to_row())).await;
        Planted { says: format!("holds datafile {}", scene.at("part")), aside: vec![key], ..Planted::default() }
    },
    PrecreatedUnowned => |scene| {
        let first = Handle::new(ServerId(1), precreated::BLOCK << 20);
        scene.row(first, keys::batch(first), Some(Batch::new(ServerId(0), 3).to_row())).await;
        Planted { says: "is neither in it nor a file's".into(), ..Planted::default() }
    },
    BatchBehind => |scene| {
        let part = scene.at("part");
        let key = keys::batch(precreated::first_of(part));
        let mut batch = Batch::from_row(&scene.get(part.server(), &key).await.unwrap()).unwrap();
        let mut used = batch.used.to_vec();
        used.iter_mut().for_each(|byte| *byte = 0);
        batch.used = used.as_slice().into();
        scene.row(part, key, Some(batch.to_row())).await;
        Planted { says: format!("datafile {part} is used, but its batch"), ..Planted::default() }
    },
    Undecided => |scene| {
        let small = scene.at("small");
        let tx = TxId(Handle::new(ServerId(9), 5).0);
        let actions = vec![Action::Touch { object: small, time: Time(1) }];
        let state = TxState::Prepared { actions, participants: vec![small.server()] };
        scene.row(small, keys::tx(tx), Some(Tx { state }.to_row())).await;
        scene.restart(small.server().0).await;
        Planted { says: "for a decision of server 9".into(), notes: "aborted", ..Planted::default() }
    },
    XattrsUnowned => |scene| {
        let key = keys::xattr(nobody(0), b"user.color");
        scene.row(nobody(0), key.clone(), Some(Bytes::from_static(b"green"))).await;
        let aside = vec![key, Bytes::from_static(b"green")];
        Planted { says: "extended attributes of".into(), aside, ..Planted::default() }
    },
    EntryMisplaced => |scene| {
        let (split, here, there) = (scene.at("split"), ServerId(0), ServerId(1));
        let (key, row) = scene.rows_of(here, &keys::entries(split)).await.remove(0);
        scene.row(Handle::new(here, 1), key.clone(), None).await;
        scene.row(Handle::new(there, 1), key.clone(), Some(row)).await;
        Planted { says: "is on server 1, but its place is on server 0".into(), aside: vec![key], ..Planted::default() }
    },
    ShardMissing => |scene| {
        let split = scene.at("split");
        let other = ServerId(1 - split.server().0);
        scene.row(Handle::new(other, 1), keys::inode(split), None).await;
        Planted { says: format!("has a shard on server {other}, which is not there"), notes: "made again", ..Planted::default() }
    },
    ShardUnowned => |scene| {
        let (dir, split) = (scene.at("dir"), scene.at("split"));
        let other = ServerId(1 - dir.server().0);
        let row = scene.get(split.server(), &keys::inode(split)).await.unwrap();
        let shard = Inode { entries: 0, nlink: 2, ..Inode::from_row(&row).unwrap() };
        scene.row(Handle::new(other, 1), keys::inode(dir), Some(shard.to_row())).await;
        Planted { says: format!("server {other} has a shard of directory {dir}"), aside: vec![keys::inode(dir)], ..Planted::default() }
    },
    CountsWrong => |scene| {
        let split = scene.at("split");
        let (other, key) = (ServerId(1 - split.server().0), keys::inode(split));
        let shard = Inode::from_row(&scene.get(other, &key).await.unwrap()).unwrap();
        let wrong = Inode { entries: 99, ..shard };
        scene.row(Handle::new(other, 1), key, Some(wrong.to_row())).await;
        Planted { says: "and 99 entries on server".into(), ..Planted::default() }
    },
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn check(env: Env, number: usize, (wanted, plant): (&'static str, Plant)) {
    let mut scene = Scene::new(&env, number).await;
    let before = scene.files().await;
    let planted = plant(&mut scene).await;

    let folder = tempfile::tempdir().unwrap();
    let mut aside = Aside::new(folder.path().join("rows"));
    let (client, bar) = (scene.client.clone(), ProgressBar::hidden());
    let checker = Checker { env: &env, client: &client, bar: &bar, pauses: &PAUSES };
    let found = checker.find().await.unwrap();
    let problem = found.problems.iter().find(|problem| variant(problem) == wanted);
    let problem = problem.unwrap_or_else(|| panic!("{wanted} is not among {:?}", found.problems));
    assert!(problem.to_string().contains(&planted.says), "{wanted}: {problem}");
    assert_eq!(scene_word(wanted), problem.word());

    let mut mended = BTreeMap::new();
    let left = checker.repair(&found, &mut aside, &mut mended).await.unwrap();
    let report = Report { name: "checked", client: &client, found: &found, mended: &mended, left: &left };
    let json = report.json(&aside);
    assert_eq!(json["clean"], true, "{wanted}: {json:#}");
    let told =
        json["problems"].as_array().unwrap().iter().find(|p| p["words"] == problem.to_string()).unwrap();
    assert_eq!((&told["problem"], &told["mended"]), (&problem.word().into(), &true.into()));
    assert!(told["mending"].as_str().unwrap().contains(planted.notes), "{wanted}: {told:#}");
    let again = checker.find().await.unwrap();
    assert!(again.problems.is_empty(), "{wanted}: {:?}", again.problems);

    let after = scene.files().await;
    for (path, bytes) in before.iter().filter(|(path, _)| !planted.gone.contains(&path.as_str())) {
        assert!(after.get(path) == Some(bytes), "{wanted}: {path} is not as it was");
    }
    for bytes in &planted.kept {
        assert!(
            after.values().any(|file| file == bytes),
            "{wanted}: {bytes:?} is in none of {:?}",
            after.keys()
        );
    }
    let rows = aside.path().map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
    assert!(planted.aside.iter().all(|bytes| rows.contains(&hex(bytes))), "{wanted}: {rows}");
    client.close().await;
}

/// The word in JSON: the variant's, in small letters with underscores.
fn scene_word(variant: &str) -> String {
    let mut word = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

#[test]
fn every_kind_of_damage_is_found_and_mended_and_nothing_undamaged_is_touched() {
    for (number, case) in cases().into_iter().enumerate() {
        shoal_env::real::run("test", |env| async move {
            let until = env.now() + Duration::from_secs(60);
            let wanted = case.0;
            let checked = env.deadline(until, check(env.clone(), number, case)).await;
            checked.unwrap_or_else(|_| panic!("{wanted}: the check hangs"));
        });
    }
}

#[test]
fn subfiles_that_were_removed_are_made_anew_and_none_that_may_be_lost_with_a_store() {
    shoal_env::real::run("test", |env| async move {
        let scene = Scene::new(&env, 1000).await;
        let (client, root) = (scene.client.clone(), Handle::ROOT);
        let owner = Owner { mode: 0o711, uid: 7, gid: 8 };
        let forked = ForkedFile { subfiles: 6, ..ForkedFile::default() };
        let file = client.mkforked(root, &name("forked"), owner, &forked).await.unwrap().handle;
        let subfile = async |number: u16| client.lookup(file, &name(&number.to_string())).await.unwrap();
        let zero = subfile(0).await.handle;
        client.create_write(zero, &name("keys"), OWNER, Bytes::from_static(b"bytes"), None).await.unwrap();
        // Two neighbours, of which each server had one.
        let before = [subfile(1).await, subfile(4).await];
        assert_ne!(before[0].handle.server(), before[1].handle.server());
        for number in ["1", "4"] {
            client.rmdir(file, &name(number)).await.unwrap();
        }

        let folder = tempfile::tempdir().unwrap();
        let mut aside = Aside::new(folder.path().join("rows"));
        let bar = ProgressBar::hidden();
        let checker = Checker { env: &env, client: &client, bar: &bar, pauses: &PAUSES };
        let found = checker.find().await.unwrap();
        let missing =
            [1, 4].map(|subfile| Problem::SubfileMissing { file, subfile, path: Some("/forked".into()) });
        assert_eq!(found.problems, missing.clone().into());
        // A store was given up, or a row is damaged, or a nameless subfile of the file is left, or forks of a
        // directory that is gone: then they may be lost.
        let of_lost = Site { renewed: [(ServerId(1), 1 << 40)].into(), ..site() };
        let (mut damaged, mut headless, mut nameless) =
            (found.tables.clone(), found.tables.clone(), found.tables.clone());
        damaged.wrong.insert(Wrong { server: ServerId(1), key: b"u1234".to_vec(), why: "cut".into() });
        headless.entries.iter_mut().find(|entry| entry.dir == zero).unwrap().dir = nobody(1);
        for _ in 0..2 {
            let other = nameless.objects[&zero].clone();
            nameless.objects.insert(nobody(nameless.objects.len() as u16 % 2), other);
        }
        for problem in &missing {
            assert!(matches!(mend(problem, &found.tables, &site()), Offer::Mend(..)));
            assert!(matches!(mend(problem, &found.tables, &of_lost), Offer::Leave(_)));
            for tables in [&damaged, &headless, &nameless] {
                assert!(matches!(mend(problem, tables, &site()), Offer::Leave(_)));
            }
        }

        let mut mended = BTreeMap::new();
        let left = checker.repair(&found, &mut aside, &mut mended).await.unwrap();
        assert!(left.is_empty(), "{left:?} {mended:?}");
        assert!(checker.find().await.unwrap().problems.is_empty());
        for (problem, before) in missing.iter().zip(&before) {
            let words = format!("it is made anew on server {}", before.handle.server());
            let Mending::Mended(Some(note)) = &mended[problem] else { panic!("{mended:?}") };
            assert!(note.ends_with(&words), "{note}");
        }
        for (number, before) in [1, 4].into_iter().zip(before) {
            let anew = subfile(number).await;
            assert_eq!((anew.template, anew.parent), (before.template, file));
            assert_eq!((anew.mode, anew.uid, anew.gid), (0o711, 7, 8));
            assert_eq!(anew.handle.server(), before.handle.server(), "in turn with the others");
            client.mknod(anew.handle, &name("fork"), OWNER, Kind::File, 0).await.unwrap();
        }
        assert_eq!(client.getattr(file).await.unwrap().nlink, 8);
        client.lookup(zero, &name("keys")).await.unwrap();
        let lost_and_found = client.lookup(root, &name("lost+found")).await.unwrap().handle;
        assert!(client.opendir(lost_and_found).next(false).await.unwrap().is_none());
        client.close().await;
    });
}

fn site() -> Site {
    Site {
        lost_and_found: Handle::ROOT,
        template: Template::default(),
        owner: OWNER,
        servers: [ServerId(0), ServerId(1)].into(),
        renewed: Default::default(),
        now: Time(1),
    }
}

fn row_wrong(key: &[u8]) -> Problem {
    Problem::RowWrong(Wrong { server: ServerId(1), key: key.to_vec(), why: "cut short".into() })
}

/// A server removes such a row if a repair asks for it.
#[test]
fn a_damaged_row_of_a_removed_name_is_set_aside() {
    let offer = mend(&row_wrong(b"u1234"), &Tables::default(), &site());
    assert!(matches!(offer, Offer::Mend(..)), "{offer:?}");
}

#[test]
fn where_two_things_may_be_right_nothing_is_done_and_it_is_said_what_to_do() {
    let (one, other, datafile) = (nobody(0), nobody(1), Handle::new(ServerId(1), 9));
    let file = |datafiles| {
        let (kind, parent) = (Kind::File, Handle(0));
        InodeFields { kind, nlink: 1, parent, datafiles, shard: None }
    };
    let mut tables = Tables::default();
    tables.objects.insert(one, file(Some(vec![datafile])));
    tables.objects.insert(other, file(Some(vec![datafile])));
    tables.datafiles.insert(datafile, other);
    tables.streams.insert(datafile, Stream { generation: 1, size: 5 });
    for (problem, advice) in [
        (Problem::DatafileOfAnother { object: one, datafile, owner: other }, "copy both files away"),
        (Problem::DirectoryMissing(one), "copy it elsewhere"),
        (
            Problem::Undecided {
                server: ServerId(0),
                tx: TxId(Handle::new(ServerId(1), 5).0),
                objects: vec![one],
            },
            "look at that server's log",
        ),
        (row_wrong(b"S1234567"), "copy that file away before the server is started again"),
        (row_wrong(b"t12345678"), "take its folder from a copy"),
    ] {
        match mend(&problem, &tables, &site()) {
            Offer::Leave(words) => assert!(words.contains(advice), "{problem}: {words}"),
            offer => panic!("{problem}: {offer:?}"),
        }
    }
}
