//! Servers that move: the address of a server changes while the file system runs, or while no server does;
//! and changes that are no moves.

use crate::program::*;
use shoal_client::Client;
use shoal_env::real;
use shoal_proto::{Handle, Name, Owner, ServerId};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Servers of a cluster file, each a process of its own.
struct Machines {
    home: Home,
    cluster: String,
    servers: BTreeMap<u16, Serving>,
}

impl Machines {
    fn new(count: u16) -> Machines {
        let mut machines = Machines::stopped(count);
        (0..count).for_each(|id| machines.start(id));
        machines
    }

    fn stopped(count: u16) -> Machines {
        let home = Home::new();
        let (cluster, _) = home.cluster(usize::from(count));
        Machines { home, cluster, servers: BTreeMap::new() }
    }

    /// Two of which the second also listens at a socket of its machine, as `shoal up` has it; that socket,
    /// and its other address.
    fn with_a_socket() -> (Machines, PathBuf, String) {
        let mut machines = Machines::stopped(2);
        let (socket, from) = (machines.home.path("socket"), machines.written(1).0);
        machines.by_hand(|text| {
            text.replace(&format!("\"{from}\""), &format!("\"unix:{}\", \"{from}\"", socket.display()))
        });
        (0..2).for_each(|id| machines.start(id));
        (machines, socket, from)
    }

    fn by_hand(&self, change: impl Fn(String) -> String) {
        let text = std::fs::read_to_string(self.file()).unwrap();
        std::fs::write(self.file(), change(text)).unwrap();
    }

    /// A copy of the second server's folder, with the cluster file as it is now.
    fn copy_second(&self) -> String {
        let copy = self.copy_file("copy");
        let (whole, copied) = (self.home.text("cluster/s1"), self.home.text("copied"));
        let file = self.home.path("copy/cluster.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(&whole, &copied)).unwrap();
        let status = std::process::Command::new("cp").args(["-a", &whole, &copied]).status().unwrap();
        assert!(status.success());
        copy
    }

    fn start(&mut self, id: u16) {
        let serving = Serving::start(&["serve", "--config", &self.cluster, "--server", &id.to_string()]);
        self.servers.insert(id, serving);
    }

    fn stop(&mut self, id: u16) {
        self.servers.remove(&id).expect("it runs").stop();
    }

    fn file(&self) -> PathBuf {
        self.home.path("cluster/cluster.toml")
    }

    /// The entry of a server in the cluster file: where it listens, and how often it moved.
    fn written(&self, id: usize) -> (String, i64) {
        let file: toml::Table = toml::from_str(&std::fs::read_to_string(self.file()).unwrap()).unwrap();
        let server = &file["server"][id];
        let moved = server.get("moved").map_or(0, |moved| moved.as_integer().unwrap());
        (server["listen"][0].as_str().unwrap().to_owned(), moved)
    }

    /// Another folder with the cluster file as it is now, its servers' data in the same places, and this
    /// machine's record of them.
    fn copy_file(&self, to: &str) -> String {
        let text = std::fs::read_to_string(self.file()).unwrap();
        let data = self.home.text("cluster");
        let text = text.replace("folder = \"", &format!("folder = \"{data}/"));
        std::fs::create_dir(self.home.path(to)).unwrap();
        std::fs::write(self.home.path(to).join("cluster.toml"), text).unwrap();
        for entry in std::fs::read_dir(&data).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.file_name().unwrap() != "cluster.toml" {
                std::fs::copy(&path, self.home.path(to).join(path.file_name().unwrap())).unwrap();
            }
        }
        self.home.text(to)
    }

    /// All servers agree, and each is where the cluster file has it.
    #[track_caller]
    fn all_agree(&self) {
        soon("all servers agree", || run(&["ping", &self.cluster]).status.success());
        let told: serde_json::Value =
            serde_json::from_str(&said(&["ping", &self.cluster, "--json"])).unwrap();
        for (id, server) in told["servers"].as_array().unwrap().iter().enumerate() {
            assert_eq!(server["addresses"][0], self.written(id).0.as_str(), "{told}");
        }
    }
}

fn new_address() -> String {
    format!("tcp:127.0.0.1:{}", free_ports(1)[0])
}

/// A directory with a file on each server, made through a mount.
fn directories(at: &Path, servers: u16) -> BTreeMap<u16, PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = BTreeMap::new();
    for i in 0..100 {
        let dir = at.join(format!("dir-{i}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("file"), b"content").unwrap();
        // A handle's upper 16 bits are its server's.
        found.entry((dir.metadata().unwrap().ino() >> 48) as u16).or_insert(dir);
        if found.len() == usize::from(servers) {
            return found;
        }
    }
    panic!("new directories go to all servers: {found:?}");
}

#[test]
fn servers_move_while_a_mount_uses_them_and_the_mount_follows() {
    if !is_root() {
        return;
    }
    let mut machines = Machines::new(3);
    let cluster = machines.cluster.clone();
    let mnt = machines.home.path("mnt");
    let mount = Serving::start(&["mount", &cluster, mnt.to_str().unwrap(), "--attr-timeout", "0"]);
    let dirs = directories(&mnt, 3);
    let works = |what: &str| {
        for (id, dir) in &dirs {
            assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"content", "{what}: server {id}");
            std::fs::write(dir.join(what), what).unwrap();
        }
    };
    // The command first, while it runs; then it goes there.
    let to = new_address();
    let told = said(&["move-server", &cluster, "1", &to]);
    assert!(told.contains("written by all servers") && told.contains("--server 1"), "{told}");
    assert_eq!(machines.written(1), (to, 1));
    works("told");
    machines.stop(1);
    machines.start(1);
    works("there");
    // It has gone first. A second server is away, and still has the cluster file of before when it is back.
    let old = machines.copy_file("old");
    machines.stop(2);
    machines.stop(1);
    let told = said(&["move-server", &cluster, "1", &new_address(), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["moved"], &told["file_systems"][0]["told"]), (&2.into(), &serde_json::json!([0])));
    machines.start(1);
    let second = Serving::start(&["serve", "--config", &old, "--server", "2"]);
    machines.servers.insert(2, second);
    works("back");
    machines.all_agree();
    // The server of the root has gone, and only the file has its new address.
    machines.stop(0);
    let told = said(&["move-server", &cluster, "0", &new_address(), "--json"]);
    assert!(told.contains("\"told\":[1,2]"), "{told}");
    machines.start(0);
    works("root");
    machines.all_agree();
    // By the path on the mount other commands find it, too, though all servers are elsewhere than when it was
    // mounted.
    said(&["move-server", &cluster, "2", &new_address()]);
    machines.stop(2);
    machines.start(2);
    works("all");
    soon("the mount's note follows", || run(&["ls", mnt.to_str().unwrap()]).status.success());
    mount.stop();
    said(&["fsck", &cluster, "--quiet"]);
}

#[test]
fn all_servers_move_while_none_runs_and_hear_of_it_from_the_file() {
    let mut machines = Machines::new(2);
    let cluster = machines.cluster.clone();
    machines.stop(0);
    machines.stop(1);
    let words = ["no server of shoal://", "name the cluster file"];
    let root = format!("shoal://{}/demo", machines.written(0).0.trim_start_matches("tcp:"));
    refused(
        &["move-server", &root, "0", &new_address(), "--key", &machines.home.text("cluster/key")],
        &words,
    );
    for id in ["0", "1"] {
        let told = said(&["move-server", &cluster, id, &new_address()]);
        assert!(told.contains("no server answers"), "{told}");
    }
    assert_eq!((machines.written(0).1, machines.written(1).1), (1, 1));
    machines.start(0);
    machines.start(1);
    machines.all_agree();
    for _ in 0..2 {
        // Elsewhere once more, and back: by name too.
        let to = new_address().replace("127.0.0.1", "localhost");
        said(&["move-server", &cluster, "1", &to]);
        machines.stop(1);
        machines.start(1);
        machines.all_agree();
        assert_eq!(machines.written(1).0, to);
    }
}

#[test]
fn a_cluster_file_of_another_name_is_changed_in_place() {
    let home = Home::new();
    home.cluster(1);
    let (file, to) = (home.path("cluster/mine.toml"), new_address());
    std::fs::rename(home.path("cluster/cluster.toml"), &file).unwrap();
    said(&["move-server", file.to_str().unwrap(), "0", &to]);
    assert!(std::fs::read_to_string(&file).unwrap().contains(&to));
    assert!(!home.path("cluster/cluster.toml").exists());
    Serving::start(&["serve", "--config", file.to_str().unwrap()]).stop();
}

#[test]
fn a_move_that_was_interrupted_is_completed_by_the_same_command() {
    let mut machines = Machines::new(2);
    let (cluster, to) = (machines.cluster.clone(), new_address());
    let epoch = || {
        // The server that moves is where it is to go only later.
        let told: serde_json::Value =
            serde_json::from_slice(&run(&["ping", &cluster, "--json"]).stdout).unwrap();
        told["epoch"].as_u64().unwrap()
    };
    let before = std::fs::read(machines.file()).unwrap();
    said(&["move-server", &cluster, "1", &to]);
    let (after, moved) = (std::fs::read(machines.file()).unwrap(), epoch());
    // It ended before the file was written; it is given once more when all is done.
    for file in [&before, &after] {
        std::fs::write(machines.file(), file).unwrap();
        said(&["move-server", &cluster, "1", &to]);
        assert_eq!(std::fs::read(machines.file()).unwrap(), after);
        assert_eq!(epoch(), moved, "nothing is moved twice");
    }
    machines.stop(1);
    machines.start(1);
    machines.all_agree();
    // Two at once, from two copies of the file, to two addresses: one of them counts, and a command whose
    // change does not count fails.
    let other = machines.copy_file("other");
    let both = [(&cluster, new_address()), (&other, new_address())];
    let running: Vec<_> = both
        .iter()
        .map(|(file, to)| {
            let mut command = shoal();
            command.args(["move-server", file, "1", to]).spawn().unwrap()
        })
        .collect();
    let done: Vec<bool> = running.into_iter().map(|mut child| child.wait().unwrap().success()).collect();
    assert!(done.contains(&true), "one at least counts");
    // Again, to an address of the operator's choice: then it is there.
    said(&["move-server", &cluster, "1", &both[0].1]);
    machines.stop(1);
    machines.start(1);
    machines.all_agree();
}

#[test]
fn a_server_begins_elsewhere_only_after_it_was_moved_and_not_while_it_runs_where_it_was() {
    let mut machines = Machines::new(2);
    let cluster = machines.cluster.clone();
    let (from, to) = (machines.written(1).0, new_address());
    machines.stop(1);
    machines.by_hand(|text| text.replace(&from, &to));
    let serve = ["serve", "--config", &cluster, "--server", "1"];
    refused(&serve, &["clients and servers know server 1", &from, &to, "`shoal move-server`"]);
    machines.by_hand(|text| text.replace(&to, &from));
    machines.servers.insert(1, Serving::start(&serve));
    // It runs where it was, and a copy of its folder would begin where it moves to.
    let old = std::fs::read(machines.file()).unwrap();
    said(&["move-server", &cluster, "1", &to]);
    let copy = machines.copy_second();
    refused(
        &["serve", "--config", &copy, "--server", "1"],
        &["server 1", "still runs at", &from, "stop it there"],
    );
    machines.stop(1);
    // An older file leads it back to where it is no more.
    let new = std::fs::read(machines.file()).unwrap();
    std::fs::write(machines.file(), old).unwrap();
    refused(&serve, &["know server 1", &to, "this cluster file is older", "newest one"]);
    std::fs::write(machines.file(), new).unwrap();
    machines.start(1);
    machines.all_agree();
}

#[test]
fn a_socket_of_its_machine_leads_no_server_to_where_its_clients_do_not_know_it() {
    let (mut machines, socket, from) = Machines::with_a_socket();
    let cluster = machines.cluster.clone();
    let serve = ["serve", "--config", &cluster, "--server", "1"];
    // Another port, written by hand.
    let to = new_address();
    machines.stop(1);
    machines.by_hand(|text| text.replace(&from, &to));
    refused(&serve, &["clients and servers know server 1", &from, &to, "`shoal move-server`"]);
    machines.by_hand(|text| text.replace(&to, &from));
    machines.start(1);
    // The file of before it moved.
    let old = std::fs::read(machines.file()).unwrap();
    said(&["move-server", &cluster, "1", &to]);
    machines.stop(1);
    let new = std::fs::read(machines.file()).unwrap();
    std::fs::write(machines.file(), &old).unwrap();
    let older = ["know server 1", &to, &from, "this cluster file is older", "newest one"];
    refused(&serve, &older);
    // It went to another machine, where the socket is another one.
    std::fs::write(machines.file(), &new).unwrap();
    let copy = machines.copy_second();
    machines.servers.insert(1, Serving::start(&["serve", "--config", &copy, "--server", "1"]));
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(machines.file(), &old).unwrap();
    refused(&serve, &older);
    std::fs::write(machines.file(), &new).unwrap();
    machines.all_agree();
}

#[test]
fn an_older_cluster_file_is_refused_though_one_of_its_addresses_is_still_the_servers() {
    let mut machines = Machines::new(2);
    let cluster = machines.cluster.clone();
    let (from, to) = (machines.written(1).0, new_address());
    let old = std::fs::read(machines.file()).unwrap();
    said(&["move-server", &cluster, "1", &from, &to]);
    machines.stop(1);
    let new = std::fs::read(machines.file()).unwrap();
    std::fs::write(machines.file(), old).unwrap();
    refused(
        &["serve", "--config", &cluster, "--server", "1"],
        &["know server 1", &to, "this cluster file is older"],
    );
    std::fs::write(machines.file(), new).unwrap();
    machines.start(1);
    machines.all_agree();
}

#[test]
fn an_older_cluster_file_is_refused_though_its_server_was_moved_while_none_ran() {
    let mut machines = Machines::new(2);
    let cluster = machines.cluster.clone();
    let (from, to) = (machines.written(1).0, new_address());
    let old = machines.copy_file("old");
    machines.stop(0);
    machines.stop(1);
    // Only the file has it: neither server was asked.
    said(&["move-server", &cluster, "1", &to]);
    machines.start(0);
    let serve = ["serve", "--config", &old, "--server", "1"];
    let older = ["know server 1", &from, &to, "this cluster file is older", "newest one"];
    refused(&serve, &older);
    // A copy of its folder runs where it went.
    let copy = machines.copy_second();
    machines.servers.insert(1, Serving::start(&["serve", "--config", &copy, "--server", "1"]));
    refused(&serve, &["server 1"]);
    machines.stop(1);
    refused(&serve, &["server 1"]);
    machines.servers.insert(1, Serving::start(&["serve", "--config", &copy, "--server", "1"]));
    machines.all_agree();
}

#[test]
fn a_server_that_moves_on_does_not_begin_while_a_copy_runs_where_it_was_to_go_before() {
    let (mut machines, socket, _) = Machines::with_a_socket();
    let cluster = machines.cluster.clone();
    let (to, next) = (new_address(), new_address());
    said(&["move-server", &cluster, "1", &to]);
    machines.stop(1);
    let copy = machines.copy_second();
    machines.servers.insert(1, Serving::start(&["serve", "--config", &copy, "--server", "1"]));
    std::fs::remove_file(&socket).unwrap();
    // The folder it was copied from was never served there, but its map has that address.
    said(&["move-server", &cluster, "1", &next]);
    let serve = ["serve", "--config", &cluster, "--server", "1"];
    refused(&serve, &["server 1", "still runs at", &to, &next, "stop it there"]);
}

#[test]
fn a_new_address_that_is_none_or_anothers_is_refused_and_nothing_changes() {
    let machines = Machines::new(2);
    let others = Machines::new(1);
    let cluster = machines.cluster.clone();
    let before = std::fs::read(machines.file()).unwrap();
    // Something that answers, and is no server.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stranger = format!("tcp:{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").map(|()| stream)
            });
        }
    });
    let own = machines.written(0).0;
    for (id, to, words) in [
        ("1", own.as_str(), &["two servers listen at"][..]),
        (
            "1",
            &others.written(0).0,
            &["server 1 cannot be at", "no file system of that id", "nothing was changed"],
        ),
        ("1", &stranger, &["server 1 cannot be at", "another process listens there", "nothing was changed"]),
        ("7", "tcp:127.0.0.1:1", &["no server 7", "0 to 1"]),
        ("1", "tcp:10.0.0.300:7441", &["is not an address", "tcp:HOST:PORT"]),
        ("1", "tcp:0.0.0.0:7441", &["leads nowhere"]),
        ("1", "tcp:node7:0", &["clients must know the port"]),
        ("1", "local:a", &["leads no other process"]),
    ] {
        refused(&["move-server", &cluster, id, to], words);
    }
    refused(&["move-server", &machines.home.text("nowhere"), "1", "tcp:127.0.0.1:1"], &["nowhere"]);
    assert_eq!(std::fs::read(machines.file()).unwrap(), before);
    machines.all_agree();
}

#[test]
fn a_client_that_only_talks_to_the_server_that_moves_hears_of_it_from_the_others_or_from_itself() {
    // With two servers, the moving one has gone before any is informed; with one, it is informed while it
    // runs.
    for count in [2_u16, 1] {
        let mut machines = Machines::new(count);
        let cluster = machines.cluster.clone();
        let server = machines.written(0).0.trim_start_matches("tcp:").parse().unwrap();
        let options = options(server, &machines.home.path("cluster/key"));
        let to = new_address();
        real::run("client", |env| async move {
            let client = Client::connect(env.clone(), options).await.unwrap();
            let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
            client.mkdir(Handle::ROOT, &Name::new(b"before".as_slice()).unwrap(), owner).await.unwrap();
            if count == 2 {
                machines.stop(0);
            }
            said(&["move-server", &cluster, "0", &to]);
            if count == 1 {
                while client.map().servers[0].addresses[0].0 != to {
                    client.ping(ServerId(0)).await.unwrap();
                    env.sleep(std::time::Duration::from_millis(1)).await;
                }
                machines.stop(0);
            }
            machines.start(0);
            client.mkdir(Handle::ROOT, &Name::new(b"after".as_slice()).unwrap(), owner).await.unwrap();
            assert_eq!(client.map().servers[0].addresses[0].0, to);
            client.close().await;
        });
    }
}

#[test]
fn a_new_address_whose_name_does_not_resolve_here_is_written_with_a_warning() {
    let machines = Machines::new(1);
    let cluster = machines.cluster.clone();
    let warned = |args: &[&str]| {
        let done = run(&[&["move-server", &cluster, "0"], args].concat());
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{told}");
        (told, String::from_utf8_lossy(&done.stdout).into_owned())
    };
    // This name never leads anywhere (RFC 6761).
    let nowhere = "tcp:node9.invalid:7441";
    let (told, _) = warned(&[nowhere]);
    for words in ["WARNING", "`node9.invalid`", nowhere, "does not resolve", "run this command again"] {
        assert!(told.contains(words), "`{words}` is missing: {told}");
    }
    assert_eq!(machines.written(0), (nowhere.to_owned(), 1));
    let (_, json) = warned(&[nowhere, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unresolved"], serde_json::json!([nowhere]));
    for right in ["tcp:localhost:7441".to_owned(), new_address()] {
        let (told, _) = warned(&[&right]);
        assert!(!told.contains("WARNING"), "{told}");
    }
}
