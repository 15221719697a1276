//! Data folders that are gone, empty, another server's, or older than acknowledged changes: a new folder is
//! never taken for a lost one.

use crate::program::*;
use shoal_client::Client;
use shoal_proto::{Answer, Op, ServerId};
use shoal_server::stores;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of a tree over several servers: small ones in several directories, and a large one over all servers.
struct Tree {
    home: Home,
    root: String,
}

const DIRS: usize = 6;
const LARGE: usize = 3 << 20;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Tree {
    /// Written through `shoal up` with so many servers, which is killed then.
    fn new(servers: &str) -> Tree {
        let home = Home::new();
        let data = home.text("data");
        let up = Serving::start(&["up", &data, "--servers", servers, "--strip", "64k"]);
        let root = up.root();
        for dir in 0..DIRS {
            std::fs::create_dir_all(home.path(&format!("tree/d{dir}"))).unwrap();
            for file in 0..4 {
                home.file(&format!("tree/d{dir}/f{file}"), format!("{dir} {file}").as_bytes());
            }
        }
        let large: Vec<u8> = (0..LARGE).map(byte).collect();
        home.file("tree/large", &large);
        let tree = Tree { home, root };
        said(&["cp", "-r", &tree.home.text("tree"), &tree.at("tree"), "--key", &tree.key(), "--quiet"]);
        up.crash();
        tree
    }

    /// A server that holds neither the root nor the directory of all others: its data is lost, and that
    /// alone.
    fn server_without_the_top(&self) -> usize {
        let up = Serving::start(&["up", &self.data()]);
        let told = said(&["stat", &self.at("tree"), "--key", &self.key(), "--json"]);
        up.stop();
        // `"handle": "SERVER.COUNTER"`
        let handle = told.split("\"handle\"").nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap();
        if handle.starts_with("2.") { 1 } else { 2 }
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.root.trim_end_matches('/'))
    }

    fn key(&self) -> String {
        self.home.text("data/key")
    }

    fn data(&self) -> String {
        self.home.text("data")
    }

    fn folder(&self, server: usize) -> PathBuf {
        self.home.path(&format!("data/server-{server}/demo"))
    }

    #[track_caller]
    fn is_whole(&self) {
        for dir in 0..DIRS {
            for file in 0..4 {
                let path = self.at(&format!("tree/d{dir}/f{file}"));
                assert_eq!(said(&["cat", &path, "--key", &self.key()]), format!("{dir} {file}"));
            }
        }
        let copy = self.home.path("copy");
        let copied = copy.to_str().unwrap();
        said(&["cp", &self.at("tree/large"), copied, "--key", &self.key(), "--quiet"]);
        let large = std::fs::read(&copy).unwrap();
        assert!(large.len() == LARGE && large.iter().enumerate().all(|(at, b)| *b == byte(at)));
        said(&["fsck", &self.data(), "--quiet"]);
    }
}

fn remove(folder: &Path) {
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_server_whose_folder_is_gone_or_empty_does_not_serve() {
    let tree = Tree::new("1");
    let (data, folder) = (tree.data(), tree.folder(0));
    let away = tree.home.path("away");
    std::fs::rename(&folder, &away).unwrap();
    let remedy = ["the store of server 0", "file system `demo` is missing", "mount the disk", "from a copy"];
    let with = |words: &[&'static str]| [&remedy[..], words].concat();
    refused(&["up", &data], &with(&["server-0/demo is not there"]));
    refused(&["serve", "--config", &data], &with(&["server-0/demo is not there"]));
    assert!(!folder.exists(), "nothing is made in its place");
    // An empty one, one as `mkfs` makes it, and one with something else in it.
    for (held, words) in [("", "is empty"), ("lost+found", "is empty"), ("photos", "holds `photos`")] {
        std::fs::create_dir_all(folder.join(held)).unwrap();
        let before = listing(&folder);
        refused(&["up", &data], &with(&[words]));
        refused(&["serve", "--config", &data], &with(&[words]));
        assert_untouched(&before, &listing(&folder));
        remove(&folder);
    }
    std::fs::rename(&away, &folder).unwrap();
    let up = Serving::start(&["up", &data]);
    tree.is_whole();
    up.stop();
}

#[test]
fn the_other_servers_serve_on_where_the_store_of_one_is_missing() {
    let tree = Tree::new("3");
    let (data, folder, away) = (tree.data(), tree.folder(2), tree.home.path("away"));
    std::fs::rename(&folder, &away).unwrap();
    let up = Serving::start(&["up", &data]);
    let told = up.told();
    for words in
        ["DEGRADED: server 2", "the store of server 2", "server-2/demo is not there", "mount the disk"]
    {
        assert!(told.contains(words), "`{words}` is missing: {told}");
    }
    for command in ["status", "ping"] {
        let output = run(&[command, &data]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {told}");
        for words in ["DEGRADED: server 2", "the store of server 2", "server-2/demo is not there"] {
            assert!(told.contains(words), "`{words}` is missing: {command}: {told}");
        }
    }
    let mnt = tree.home.path("mnt");
    std::fs::create_dir(&mnt).unwrap();
    let mount = Serving::start(&["mount", &tree.root, mnt.to_str().unwrap(), "--key", &tree.key()]);
    let begin = std::time::Instant::now();
    while !mount.told().contains("DEGRADED: server 2") {
        assert!(begin.elapsed() < HANGS, "the mount says: {}", mount.told());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    mount.stop();
    // Objects on the others are there; an operation that needs the missing one is an error at once, and not
    // an empty file.
    let made = tree.home.file("made", b"meanwhile");
    let list = run(&["ls", &tree.at("tree"), "--key", &tree.key()]);
    let large = run(&["cat", &tree.at("tree/large"), "--key", &tree.key()]);
    assert!(!large.status.success(), "a part of it is missing");
    assert!(list.status.success() || !list.stderr.is_empty());
    let _ = run(&["cp", &made, &tree.at("made"), "--key", &tree.key(), "--quiet"]);
    up.stop();
    assert!(!folder.exists());
    std::fs::rename(&away, &folder).unwrap();
    let up = Serving::start(&["up", &data]);
    assert!(!up.told().contains("DEGRADED"), "{}", up.told());
    tree.is_whole();
    said(&["status", &data]);
    up.stop();
}

#[test]
fn without_the_root_server_the_others_serve_on_and_nothing_is_mounted() {
    let tree = Tree::new("2");
    let (data, folder, away) = (tree.data(), tree.folder(0), tree.home.path("away"));
    std::fs::rename(&folder, &away).unwrap();
    let mnt = tree.home.path("mnt");
    std::fs::create_dir(&mnt).unwrap();
    let up = Serving::start(&["up", &data, "--mount", mnt.to_str().unwrap()]);
    let told = up.told();
    assert!(told.contains("DEGRADED: server 0") && told.contains("is not mounted"), "{told}");
    let status = run(&["status", &data]);
    assert_eq!(status.status.code(), Some(1));
    let list = run(&["ls", &tree.root, "--key", &tree.key()]);
    assert!(!list.status.success(), "an empty root is not shown: {list:?}");
    up.stop();
    std::fs::rename(&away, &folder).unwrap();
    let up = Serving::start(&["up", &data]);
    tree.is_whole();
    up.stop();
}

#[test]
fn folders_of_two_servers_that_are_exchanged_are_refused() {
    let tree = Tree::new("2");
    let (data, one, two) = (tree.data(), tree.folder(0), tree.folder(1));
    let exchange = || {
        let between = tree.home.path("between");
        std::fs::rename(&one, &between).unwrap();
        std::fs::rename(&two, &one).unwrap();
        std::fs::rename(&between, &two).unwrap();
    };
    exchange();
    for args in [vec!["up", &data], vec!["serve", "--config", &data]] {
        let said = refused(
            &args,
            &["server-0/demo/collection is of server 1, not 0", "put each server's folder back"],
        );
        assert!(!said.contains("--new-store") && !said.contains("--accept-older"), "{said}");
    }
    exchange();
    let up = Serving::start(&["up", &data]);
    tree.is_whole();
    up.stop();
}

#[test]
fn an_emptied_record_of_a_store_is_refused() {
    let tree = Tree::new("1");
    let (data, path) = (tree.data(), tree.home.path("data/store-0.toml"));
    let kept = std::fs::read(&path).unwrap();
    for cut in ["", "# server 0: which store it is served from"] {
        std::fs::write(&path, cut).unwrap();
        refused(&["up", &data], &["store-0.toml names no store", "restore it from a copy, or remove it"]);
        assert_eq!(std::fs::read(&path).unwrap(), cut.as_bytes());
    }
    std::fs::write(&path, kept).unwrap();
    let up = Serving::start(&["up", &data]);
    tree.is_whole();
    up.stop();
}

impl Tree {
    /// Every name leads to its own bytes, or to an error. How many of them are whole.
    #[track_caller]
    fn nothing_is_foreign(&self) -> usize {
        self.read_all(|at, read| read == byte(at))
    }

    /// The same, and `may_be` accepts each byte that is read of the large file.
    #[track_caller]
    fn read_all(&self, may_be: impl Fn(usize, u8) -> bool) -> usize {
        let mut whole = 0;
        for dir in 0..DIRS {
            for file in 0..4 {
                let path = self.at(&format!("tree/d{dir}/f{file}"));
                let read = run(&["cat", &path, "--key", &self.key()]);
                if read.status.success() {
                    assert_eq!(String::from_utf8_lossy(&read.stdout), format!("{dir} {file}"));
                    whole += 1;
                }
            }
        }
        let large = run(&["cat", &self.at("tree/large"), "--key", &self.key()]);
        assert!(
            large.stdout.iter().enumerate().all(|(at, b)| may_be(at, *b)),
            "the large file has bytes of something else"
        );
        whole
    }
}

#[test]
fn a_new_store_gives_up_what_was_lost_and_nothing_else() {
    let tree = Tree::new("3");
    let lost = tree.server_without_the_top();
    let (data, folder, away) = (tree.data(), tree.folder(lost), tree.home.path("away"));
    let (id, degraded) = (lost.to_string(), format!("DEGRADED: server {lost}"));
    refused(&["up", &data, "--new-store", &id], &["holds a store", "move that one away first"]);
    refused(&["up", &data, "--new-store", "9"], &["server 9 is not among those"]);
    std::fs::rename(&folder, &away).unwrap();
    let up = Serving::start(&["up", &data, "--new-store", &id]);
    assert!(!up.told().contains("DEGRADED"), "{}", up.told());
    said(&["status", &data]);
    let whole = tree.nothing_is_foreign();
    assert!((1..DIRS * 4).contains(&whole), "{whole} files are whole");
    // New files and directories take new datafiles on all servers: no old name leads to one of them.
    for dir in 0..DIRS {
        let at = tree.at(&format!("new{dir}"));
        said(&["cp", "-r", &tree.home.text("tree"), &at, "--key", &tree.key(), "--quiet"]);
        let copy = tree.home.text(&format!("copy{dir}"));
        said(&["cp", &format!("{at}/large"), &copy, "--key", &tree.key(), "--quiet"]);
        assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(tree.home.path("tree/large")).unwrap());
    }
    assert_eq!(tree.nothing_is_foreign(), whole);
    // The damage has one cause, and is repaired only when that is said.
    let fsck = |options: &[&str]| {
        let save = tree.home.text("save");
        let output = run(&[&["fsck", &data, "--quiet", "--save", &save], options].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, found) = fsck(&[]);
    assert!(
        status == Some(1) && found.contains(&format!("a store of server {lost} was given up")),
        "{found}"
    );
    assert!(!found.contains("repaired:"), "{found}");
    let (status, left) = fsck(&["--repair"]);
    assert!(status == Some(1) && left.contains("nothing was repaired: --lost-stores"), "{left}");
    assert_eq!(fsck(&[]), (Some(1), found));
    let (status, mended) = fsck(&["--repair", "--lost-stores"]);
    assert_eq!(status, Some(0), "{mended}");
    said(&["fsck", &data, "--quiet"]);
    // The lost part of the large file is a hole now.
    assert_eq!(tree.read_all(|at, read| read == byte(at) || read == 0), whole);
    up.crash();
    // It is a store like any other now; the one that was given up is refused, also if it comes back.
    Serving::start(&["up", &data]).stop();
    std::fs::rename(&folder, tree.home.path("new")).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    let up = Serving::start(&["up", &data]);
    assert!(up.told().contains(&degraded), "{}", up.told());
    up.stop();
    // Nor is a record that was lost a reason to take it: the other servers know.
    std::fs::remove_file(tree.home.path(&format!("data/store-{lost}.toml"))).unwrap();
    let others =
        Serving::start(&["serve", "--config", &data, "--server", "0", "--server", &(3 - lost).to_string()]);
    let words = ["was given up for good", &format!("the store of server {lost}")];
    refused(&["serve", "--config", &data, "--server", &id], &words);
    others.stop();
}

#[test]
fn a_root_server_without_others_begins_anew_only_when_it_is_told_to() {
    let tree = Tree::new("1");
    let (data, folder) = (tree.data(), tree.folder(0));
    remove(&folder);
    refused(&["up", &data], &["server-0/demo is not there", "--new-store 0"]);
    for _ in 0..2 {
        let up = Serving::start(&["up", &data, "--new-store", "0"]);
        assert_eq!(said(&["ls", &tree.root, "--key", &tree.key()]), "");
        said(&["fsck", &data, "--quiet"]);
        up.stop();
        refused(&["up", &data, "--new-store", "0"], &["holds a store"]);
        remove(&folder);
    }
    refused(&["up", &data], &["server-0/demo is not there"]);
}

#[test]
fn a_store_is_given_up_only_while_all_other_servers_run() {
    let home = Home::new();
    let (cluster, _) = home.cluster(3);
    Serving::start(&["serve", "--config", &cluster]).stop();
    remove(&home.path("cluster/s1"));
    let zero = Serving::start(&["serve", "--config", &cluster, "--server", "0"]);
    let anew = ["serve", "--config", &cluster, "--server", "1", "--new-store", "1"];
    refused(&anew, &["every server that keeps its store must run and answer"]);
    let two = Serving::start(&["serve", "--config", &cluster, "--server", "2"]);
    let one = Serving::start(&anew);
    said(&["ping", &cluster]);
    for serving in [zero, one, two] {
        serving.stop();
    }
    let all = Serving::start(&["serve", "--config", &cluster]);
    said(&["ping", &cluster]);
    all.stop();
}

/// Wait until the server at this port knows the stores of all others: from then on it refuses any other
/// store.
fn until_stores_are_known(port: u16, key: &Path) {
    let options = options(SocketAddr::from(([127, 0, 0, 1], port)), key);
    shoal_env::real::run("client", |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let until = env.now() + HANGS;
        loop {
            let (answer, _) = client.request(ServerId(0), Op::Map {}, bytes::Bytes::new()).await.unwrap();
            let Answer::Map { map } = answer else { panic!("its answer is no map: {answer:?}") };
            if map.servers.iter().all(|info| info.store.is_known()) {
                break;
            }
            assert!(env.now() < until, "server 0 never learns the others' stores: {map:?}");
            env.sleep(Duration::from_millis(20)).await;
        }
        client.close().await;
    });
}

#[test]
fn a_store_that_another_one_replaced_is_refused_by_the_other_servers() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let both = Serving::start(&["serve", "--config", &cluster]);
    until_stores_are_known(ports[0], &home.path("cluster/key"));
    both.stop();
    // An operator begins server 1 anew on another machine, which has no record of the first store.
    std::fs::rename(home.path("cluster/s1"), home.path("away")).unwrap();
    std::fs::remove_file(home.path("cluster/store-1.toml")).unwrap();
    let first = Serving::start(&["serve", "--config", &cluster, "--server", "0"]);
    let known = ["server 1 has store", "the store of server 1", "mount the disk"];
    refused(&["serve", "--config", &cluster, "--server", "1"], &known);
    first.stop();
}

/// The folder of a server as it is now, to be put back later.
fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

#[test]
fn an_older_copy_of_a_folder_is_refused_by_the_record_and_by_the_other_servers() {
    let tree = Tree::new("2");
    let (data, folder, old) = (tree.data(), tree.folder(1), tree.home.path("old"));
    copy(&folder, &old);
    let up = Serving::start(&["up", &data]);
    for at in ["one", "two"] {
        said(&["cp", "-r", &tree.home.text("tree"), &tree.at(at), "--key", &tree.key(), "--quiet"]);
    }
    let remembered = tree.remembered_by_the_first(1);
    up.stop();
    // One more start, after which the other server remembers a later position.
    let up = Serving::start(&["up", &data]);
    said(&["cp", "-r", &tree.home.text("tree"), &tree.at("three"), "--key", &tree.key(), "--quiet"]);
    let begin = Instant::now();
    while tree.remembered_by_the_first(1) <= remembered {
        assert!(begin.elapsed() < HANGS, "server 0 remembers no more of server 1");
        std::thread::sleep(Duration::from_millis(20));
    }
    up.stop();
    remove(&folder);
    copy(&old, &folder);
    let words = ["older copy", "the store of server 1", "from a copy"];
    refused(&["serve", "--config", &data, "--server", "1"], &words);
    std::fs::remove_file(tree.home.path("data/store-1.toml")).unwrap();
    let other = Serving::start(&["serve", "--config", &data, "--server", "0"]);
    refused(&["serve", "--config", &data, "--server", "1"], &words);
    other.stop();
}

/// The contents of a record of the stores.
fn record(tree: &Tree, server: usize) -> toml::Table {
    let text = std::fs::read_to_string(tree.home.path(&format!("data/store-{server}.toml"))).unwrap();
    toml::from_str(&text).unwrap()
}

impl Tree {
    /// How far server 0 remembers that the store of another one was durable.
    fn remembered_by_the_first(&self, server: u16) -> Option<u64> {
        let port = self.root.rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok());
        let key = stores::key_of(ServerId(server));
        with_map(port.expect("a port"), &self.home.path("data/key"), async |client, _| {
            let (rows, _) = client.rows(ServerId(0), &key, b"", 1).await.expect("it answers");
            rows.first().and_then(|row| stores::remembered(&row.value)).map(|(_, position)| position)
        })
    }

    /// Copies of the tree, each read again.
    fn add(&self, name: &str, count: usize) {
        for copy in 0..count {
            let at = self.at(&format!("{name}{copy}"));
            said(&["cp", "-r", &self.home.text("tree"), &at, "--key", &self.key(), "--quiet"]);
        }
        self.has(name, count);
    }

    /// They are there, with their own bytes.
    #[track_caller]
    fn has(&self, name: &str, count: usize) {
        for copy in 0..count {
            let (at, to) =
                (self.at(&format!("{name}{copy}")), self.home.path(&format!("{name}{copy}-again")));
            said(&["cp", "-r", &at, to.to_str().unwrap(), "--key", &self.key(), "--quiet"]);
            let (read, written) = (listing(&to), listing(&self.home.path("tree")));
            assert_untouched(&written, &read);
            remove(&to);
        }
    }

    /// Of a copy of the tree that was made after the folder was copied, each byte that is read is its own, or
    /// a hole.
    #[track_caller]
    fn has_nothing_foreign(&self, name: &str, count: usize) {
        for copy in 0..count {
            let read = |path: &str| {
                let at = self.at(&format!("{name}{copy}/{path}"));
                run(&["cat", &at, "--key", &self.key()]).stdout
            };
            let is_own = |found: &[u8], own: &dyn Fn(usize) -> u8| {
                found.iter().enumerate().all(|(at, b)| *b == own(at) || *b == 0)
            };
            assert!(is_own(&read("large"), &byte), "{name}{copy}/large");
            for dir in 0..DIRS {
                for file in 0..4 {
                    let text = format!("{dir} {file}").into_bytes();
                    let own = |at: usize| text.get(at).copied().unwrap_or(1);
                    assert!(is_own(&read(&format!("d{dir}/f{file}")), &own), "{name}{copy}/d{dir}/f{file}");
                }
            }
        }
    }

    /// A tree on three servers, the folder of one of them as it was, and the writes since that copy.
    fn with_older_copy() -> (Tree, usize, PathBuf) {
        let tree = Tree::new("3");
        let server = tree.server_without_the_top();
        let old = tree.home.path("old");
        copy(&tree.folder(server), &old);
        let up = Serving::start(&["up", &tree.data()]);
        tree.add("late", 4);
        up.stop();
        (tree, server, old)
    }
}

#[test]
fn an_older_copy_that_is_accepted_shares_nothing_with_what_was_written_since() {
    let (tree, server, old) = Tree::with_older_copy();
    let (data, folder, away, id) =
        (tree.data(), tree.folder(server), tree.home.path("away"), server.to_string());
    // The folder of now is no older copy, and stays as it is.
    refused(&["up", &data, "--accept-older", &id], &["is not an older copy", "without --accept-older"]);
    refused(&["up", &data, "--accept-older", &id, "--new-store", &id], &["give one of them"]);
    refused(&["up", &data, "--accept-older", "9"], &["server 9 is not among those"]);
    std::fs::rename(&folder, &away).unwrap();
    refused(&["up", &data, "--accept-older", &id], &["is no older copy", "is not there"]);
    copy(&old, &folder);
    let up = Serving::start(&["up", &data]);
    assert!(up.told().contains("older copy") && up.told().contains("--accept-older"), "{}", up.told());
    up.stop();
    let up = Serving::start(&["up", &data, "--accept-older", &id]);
    assert!(!up.told().contains("DEGRADED"), "{}", up.told());
    said(&["status", &data]);
    // The data at the time of the copy is there.
    assert_eq!(tree.read_all(|at, read| read == byte(at)), DIRS * 4);
    tree.has_nothing_foreign("late", 4);
    tree.add("new", 6);
    tree.has_nothing_foreign("late", 4);
    tree.has("new", 6);
    let fsck = |options: &[&str]| {
        let save = tree.home.text("save");
        let output = run(&[&["fsck", &data, "--quiet", "--save", &save], options].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, found) = fsck(&[]);
    assert!(
        status == Some(1) && found.contains(&format!("a store of server {server} was given up")),
        "{found}"
    );
    let (status, left) = fsck(&["--repair"]);
    assert!(status == Some(1) && left.contains("nothing was repaired: --lost-stores"), "{left}");
    let (status, mended) = fsck(&["--repair", "--lost-stores"]);
    assert_eq!(status, Some(0), "{mended}");
    said(&["fsck", &data, "--quiet"]);
    tree.has("new", 6);
    tree.add("after", 2);
    tree.has_nothing_foreign("late", 4);
    assert_eq!(tree.read_all(|at, read| read == byte(at)), DIRS * 4);
    said(&["fsck", &data, "--quiet"]);
    up.stop();
    // It is accepted once, and is a store like any other then; the one that was given up is refused, also if
    // it comes back.
    refused(&["up", &data, "--accept-older", &id], &["is not an older copy"]);
    Serving::start(&["up", &data]).stop();
    remove(&folder);
    for given_up in [&old, &away] {
        copy(given_up, &folder);
        refused(&["up", &data, "--accept-older", &id], &["was given up for good"]);
        let up = Serving::start(&["up", &data]);
        assert!(up.told().contains(&format!("DEGRADED: server {server}")), "{}", up.told());
        up.stop();
        remove(&folder);
    }
}

#[test]
fn a_mount_hears_once_that_an_older_copy_was_accepted() {
    let tree = Tree::new("3");
    let server = tree.server_without_the_top();
    let (data, folder, old) = (tree.data(), tree.folder(server), tree.home.path("old"));
    copy(&folder, &old);
    let up = Serving::start(&["up", &data]);
    let mnt = tree.home.path("mnt");
    std::fs::create_dir(&mnt).unwrap();
    let mount = Serving::start(&["mount", &tree.root, mnt.to_str().unwrap(), "--key", &tree.key()]);
    tree.add("late", 2);
    let large = mnt.join("tree/large");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&large).unwrap();
    let all: Vec<u8> = (0..LARGE).map(byte).collect();
    // The same bytes: the lost ones are there in the copy.
    std::os::unix::fs::FileExt::write_all_at(&file, &all, 0).unwrap();
    up.crash();
    remove(&folder);
    copy(&old, &folder);
    let up = Serving::start(&["up", &data, "--accept-older", &server.to_string()]);
    // The mount learns the new map from the other servers.
    soon("the mount reads through the new store", || std::fs::read(&large).is_ok_and(|read| read == all));
    let synced = file.sync_all();
    assert_eq!(synced.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "once");
    file.sync_all().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &all, 0).unwrap();
    file.sync_all().unwrap();
    std::fs::write(mnt.join("new"), b"new").unwrap();
    assert_eq!(std::fs::read(mnt.join("new")).unwrap(), b"new");
    drop(file);
    mount.stop();
    up.stop();
}

#[test]
fn an_older_copy_is_accepted_only_while_all_others_run_and_served_as_the_new_store_from_then_on() {
    let (tree, server, old) = Tree::with_older_copy();
    let (data, folder, id) = (tree.data(), tree.folder(server), server.to_string());
    let others: Vec<String> =
        (0..3).filter(|other| *other != server).map(|other| other.to_string()).collect();
    let before = record(&tree, server);
    let restore = || {
        remove(&folder);
        copy(&old, &folder);
    };
    restore();
    let accept = ["serve", "--config", &data, "--server", &id, "--accept-older", &id];
    let serve = ["serve", "--config", &data, "--server", &id];
    // While one of the others does not run nothing is changed.
    let one = Serving::start(&["serve", "--config", &data, "--server", &others[0]]);
    refused(&accept, &["every server that keeps its store must run and answer"]);
    let two = Serving::start(&["serve", "--config", &data, "--server", &others[1]]);
    refused(&serve, &["older copy", &format!("--accept-older {server}")]);
    Serving::start(&accept).stop();
    let after = record(&tree, server);
    let store = |record: &toml::Table| record.clone()["store"][0]["store"].as_str().unwrap().to_owned();
    let (lost, successor) = (store(&before), store(&after));
    assert_ne!(lost, successor);
    let three = Serving::start(&serve);
    assert_eq!(store(&record(&tree, server)), successor);
    assert!(record(&tree, server)["store"][0].get("copy_of").is_none());
    assert_eq!(tree.read_all(|at, read| read == byte(at)), DIRS * 4);
    tree.add("new", 3);
    tree.has_nothing_foreign("late", 4);
    for serving in [one, two, three] {
        serving.stop();
    }
}

#[test]
fn a_copy_of_another_server_or_file_system_is_not_accepted() {
    let (one, other) = (Tree::new("2"), Tree::new("2"));
    let (data, folder) = (one.data(), one.folder(1));
    let zero = one.folder(0);
    let accept = ["up", &data, "--accept-older", "1"];
    remove(&folder);
    copy(&zero, &folder);
    refused(&accept, &["is no older copy", "is of server 0, not 1"]);
    remove(&folder);
    copy(&other.folder(1), &folder);
    refused(&accept, &["is no older copy", "is of file system"]);
    remove(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    refused(&accept, &["is no older copy", "is empty"]);
    // A store of this server that was never known.
    remove(&folder);
    let kept = one.home.path("kept.toml");
    std::fs::rename(one.home.path("data/store-1.toml"), &kept).unwrap();
    let alone = Serving::start(&["serve", "--config", &data, "--server", "1"]);
    alone.stop();
    std::fs::rename(&kept, one.home.path("data/store-1.toml")).unwrap();
    refused(&accept, &["server 1 has store", "holds a copy of store"]);
}

#[test]
fn an_older_copy_of_the_only_server_is_accepted() {
    let tree = Tree::new("1");
    let (data, folder, old) = (tree.data(), tree.folder(0), tree.home.path("old"));
    copy(&folder, &old);
    let up = Serving::start(&["up", &data]);
    tree.add("late", 2);
    up.stop();
    for _ in 0..2 {
        remove(&folder);
        copy(&old, &folder);
        refused(&["up", &data], &["older copy", "--accept-older 0"]);
        let up = Serving::start(&["up", &data, "--accept-older", "0"]);
        tree.is_whole();
        let names = said(&["ls", &tree.root, "--key", &tree.key()]);
        assert!(names.contains("tree") && !names.contains("late"), "{names}");
        up.stop();
        remove(&old);
        copy(&folder, &old);
        let up = Serving::start(&["up", &data]);
        tree.add("late", 2);
        up.stop();
    }
}

impl Tree {
    /// A tree on two servers. The folder of server 1 and this machine's record are both of a backup; only
    /// server 0 knows the changes acknowledged since.
    fn with_restored_machine() -> Tree {
        let tree = Tree::new("2");
        let (data, folder, old) = (tree.data(), tree.folder(1), tree.home.path("old"));
        let (record, kept) = (tree.home.path("data/store-1.toml"), tree.home.path("kept.toml"));
        Serving::start(&["up", &data]).stop();
        copy(&folder, &old);
        std::fs::copy(&record, &kept).unwrap();
        let up = Serving::start(&["up", &data]);
        for copy in 0..6 {
            let at = tree.at(&format!("late{copy}"));
            said(&["cp", "-r", &tree.home.text("tree/d0"), &at, "--key", &tree.key(), "--quiet"]);
        }
        up.stop();
        // Server 0 receives its position.
        let zero = Serving::start(&["serve", "--config", &data, "--server", "0"]);
        Serving::start(&["serve", "--config", &data, "--server", "1"]).stop();
        zero.stop();
        remove(&folder);
        copy(&old, &folder);
        std::fs::copy(&kept, &record).unwrap();
        tree
    }
}

#[test]
fn an_older_copy_is_refused_however_often_its_server_is_started() {
    let tree = Tree::with_restored_machine();
    let data = tree.data();
    let zero = Serving::start(&["serve", "--config", &data, "--server", "0"]);
    for _ in 0..100 {
        refused(&["serve", "--config", &data, "--server", "1"], &["older copy", "the store of server 1"]);
    }
    zero.stop();
}

#[test]
fn an_older_copy_whose_server_starts_before_the_others_is_refused_when_they_are_there() {
    let tree = Tree::with_restored_machine();
    let data = tree.data();
    let one = Serving::start(&["serve", "--config", &data, "--server", "1"]);
    // It serves alone: its own writes do not make its copy any younger.
    let zero = Serving::start(&["serve", "--config", &data, "--server", "0"]);
    let begin = std::time::Instant::now();
    let words = ["DEGRADED: server 1", "the store of server 1", "older copy", "--accept-older 1"];
    while !words.iter().all(|word| one.told().contains(word)) {
        assert!(begin.elapsed() < HANGS, "it serves on: {}", one.told());
        std::thread::sleep(Duration::from_millis(20));
    }
    for command in ["status", "ping"] {
        let output = run(&[command, &data]);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {told}");
        assert!(words.iter().all(|word| told.contains(word)), "{command}: {told}");
    }
    one.stop();
    refused(&["serve", "--config", &data, "--server", "1"], &words[1..]);
    zero.stop();
}

#[test]
fn a_server_that_the_others_refuse_says_so_to_clients() {
    let tree = Tree::with_restored_machine();
    let data = tree.data();
    let up = Serving::start(&["up", &data]);
    let output = run(&["status", &data]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("DEGRADED: server 1") && told.contains("older copy"), "{told}");
    assert!(!run(&["ping", &data]).status.success());
    up.stop();
}

/// The map as server 0 has it, and a client's work with it.
fn with_map<T: 'static>(
    port: u16,
    key: &Path,
    work: impl AsyncFnOnce(&Client, shoal_proto::ClusterMap) -> T,
) -> T {
    let options = options(SocketAddr::from(([127, 0, 0, 1], port)), key);
    shoal_env::real::run("client", |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let (answer, _) = client.request(ServerId(0), Op::Map {}, bytes::Bytes::new()).await.unwrap();
        let Answer::Map { map } = answer else { panic!("its answer is no map: {answer:?}") };
        let done = work(&client, map).await;
        client.close().await;
        done
    })
}

#[test]
fn of_two_file_systems_of_a_server_only_the_missing_store_is_given_up() {
    for lost in ["one", "two"] {
        let home = Home::new();
        let (cluster, ports) = (home.text("c"), free_ports(2));
        let servers: Vec<String> =
            ports.iter().enumerate().map(|(id, port)| format!("tcp:127.0.0.1:{port}=s{id}")).collect();
        said(&["init", &cluster, "--server", &servers[0], "--server", &servers[1], "--name", "one"]);
        said(&["init", &cluster, "--collection", "--name", "two"]);
        let (file, key) = (home.file("f", b"kept"), home.text("c/key"));
        let kept = if lost == "one" { "two" } else { "one" };
        let at = |name: &str| format!("shoal://127.0.0.1:{}/{name}/f", ports[0]);
        let both = Serving::start(&["serve", "--config", &cluster]);
        said(&["cp", &file, &at(kept), "--key", &key, "--quiet"]);
        both.stop();
        remove(&home.path(&format!("c/s1/{lost}")));
        let identity = std::fs::read(home.path(&format!("c/s1/{kept}/collection"))).unwrap();
        let wrong = format!("1/{kept}");
        refused(&["serve", "--config", &cluster, "--new-store", &wrong], &["holds a store"]);
        refused(&["serve", "--config", &cluster, "--new-store", "1/none"], &["no file system `none`"]);
        let up = Serving::start(&["serve", "--config", &cluster, "--new-store", "1"]);
        assert!(!up.told().contains("DEGRADED"), "{}", up.told());
        assert_eq!(said(&["cat", &at(kept), "--key", &key]), "kept");
        up.stop();
        assert_eq!(std::fs::read(home.path(&format!("c/s1/{kept}/collection"))).unwrap(), identity);
        remove(&home.path(&format!("c/s1/{lost}")));
        let named = format!("1/{lost}");
        Serving::start(&["serve", "--config", &cluster, "--new-store", &named]).stop();
        Serving::start(&["serve", "--config", &cluster]).stop();
    }
}

#[test]
fn a_new_store_that_was_interrupted_is_completed_by_the_same_command() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(3);
    let all = Serving::start(&["serve", "--config", &cluster]);
    let key = home.path("cluster/key");
    until_stores_are_known(ports[0], &key);
    all.stop();
    remove(&home.path("cluster/s1"));
    let others = Serving::start(&["serve", "--config", &cluster, "--server", "0", "--server", "2"]);
    // Server 0 has taken the map, and the command was killed then.
    let store = with_map(ports[0], &key, async |client, mut map| {
        map.servers.0[1].renew(shoal_proto::StoreId(77), false).unwrap();
        map.epoch += 1;
        client.renew(ServerId(0), &[ServerId(1)], &map).await.unwrap();
        map.servers[1].store
    });
    refused(&["serve", "--config", &cluster, "--server", "1"], &["the store of server 1", "--new-store 1"]);
    let one = Serving::start(&["serve", "--config", &cluster, "--server", "1", "--new-store", "1"]);
    said(&["ping", &cluster]);
    let info = with_map(ports[0], &key, async |_, map| map.servers[1].clone());
    assert_eq!((info.store, info.retired.len()), (store, 1), "{info:?}");
    one.stop();
    others.stop();
    Serving::start(&["serve", "--config", &cluster]).stop();
}

#[test]
fn stores_that_are_lost_on_two_machines_are_given_up_by_a_command_on_each() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(3);
    let all = Serving::start(&["serve", "--config", &cluster]);
    let key = home.path("cluster/key");
    until_stores_are_known(ports[0], &key);
    all.stop();
    // The machine of server 2.
    let other = home.text("other");
    copy(Path::new(&cluster), Path::new(&other));
    let zero = Serving::start(&["serve", "--config", &cluster, "--server", "0"]);
    remove(&home.path("cluster/s1"));
    let record = std::fs::read(home.path("cluster/store-2.toml")).unwrap();
    let anew = ["serve", "--config", &cluster, "--server", "1", "--new-store", "1", "--new-store", "2"];
    refused(&anew, &["s2/", "holds a store"]);
    remove(&home.path("cluster/s2"));
    let two = Serving::start(&["serve", "--config", &other, "--server", "2"]);
    refused(&anew, &["server 2 serves its store"]);
    two.stop();
    remove(&home.path("other/s2"));
    let one = Serving::start(&anew);
    assert_eq!(std::fs::read(home.path("cluster/store-2.toml")).unwrap(), record);
    let two = Serving::start(&["serve", "--config", &other, "--server", "2", "--new-store", "2"]);
    said(&["ping", &cluster]);
    let map = with_map(ports[0], &key, async |_, map| map);
    assert!(map.servers.iter().skip(1).all(|info| info.retired.len() == 1), "{map:?}");
    for serving in [zero, one, two] {
        serving.stop();
    }
}
