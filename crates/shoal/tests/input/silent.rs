//! Commands while one server does not answer: they show and do the part of the other servers, and name the
//! silent server.

use crate::program::*;
use rustix::process::Signal;
use shoal_client::{Client, Options};
use shoal_proto::{Handle, Name, Rights, ServerId, Status};
use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

/// Two servers with directories, files in one strip and files over both; the second can be made silent.
struct Site {
    home: Home,
    cluster: String,
    root: String,
    first: Serving,
    second: Serving,
    /// The names at the root, with the server of their inodes.
    names: BTreeMap<String, u64>,
}

const SECOND: u64 = 1;
/// Seconds that commands wait: longer than a busy server that answers takes, and shorter than the client's
/// own limit.
const LIMIT: &str = "5";
/// The one file that has bytes on both servers.
const STRIPED: &str = "striped";

impl Site {
    fn new() -> Site {
        let home = Home::new();
        let (cluster, ports) = home.cluster(2);
        let [first, second] =
            ["0", "1"].map(|id| Serving::start(&["serve", "--config", &cluster, "--server", id]));
        let root = format!("shoal://127.0.0.1:{},127.0.0.1:{}/demo", ports[0], ports[1]);
        let tree = home.path("tree");
        for i in 0..8 {
            std::fs::create_dir_all(tree.join(format!("dir-{i}"))).unwrap();
            std::fs::write(tree.join(format!("dir-{i}/inside")), "content").unwrap();
            std::fs::write(tree.join(format!("file-{i}")), "content").unwrap();
        }
        std::fs::write(tree.join(STRIPED), vec![7; 3 << 20]).unwrap();
        std::os::unix::fs::symlink("file-0", tree.join("link")).unwrap();
        let mut site = Site { home, cluster, root: root.clone(), first, second, names: BTreeMap::new() };
        let key = site.key();
        for entry in std::fs::read_dir(&tree).unwrap() {
            let path = entry.unwrap().path();
            said(&["cp", "-r", "--quiet", path.to_str().unwrap(), &format!("{root}/"), "--key", &key]);
        }
        for value in json_lines(&site.ran(&["ls", "--plus", "--json", &site.cluster])) {
            // A handle's upper 16 bits are its server's.
            let server = value["inode"].as_u64().unwrap() >> 48;
            site.names.insert(value["name"].as_str().unwrap().to_owned(), server);
        }
        assert!(site.names.values().any(|server| *server == SECOND), "{:?}", site.names);
        assert_eq!(site.names[STRIPED], 0);
        site
    }

    fn key(&self) -> String {
        self.home.text("cluster/key")
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    fn ran(&self, args: &[&str]) -> Output {
        run(args)
    }

    fn first_address(&self) -> std::net::SocketAddr {
        self.root.split([',', '/']).nth(2).unwrap().parse().unwrap()
    }

    fn silence(&self) {
        self.second.signal(Signal::STOP);
    }

    fn stop(self) {
        self.second.signal(Signal::CONT);
        self.first.stop();
        self.second.stop();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn ls_lists_all_names_with_what_is_known_and_names_the_servers_that_do_not_answer() {
    let site = Site::new();
    let columns = |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let long = ["ls", "-l", &site.cluster, "--timeout", LIMIT];
    let before = text(&site.ran(&long).stdout);
    site.silence();
    let listed = site.ran(&long);
    let (now, told) = (text(&listed.stdout), text(&listed.stderr));
    assert_eq!(listed.status.code(), Some(1), "{told}");
    let far = site.names.values().filter(|server| **server == SECOND).count();
    let unknown = format!("what only it knows of {} names is unknown", far + 1);
    for words in ["server 1 does not answer", &unknown, "`shoal status`"] {
        assert!(told.contains(words), "`{words}` is missing: {told}");
    }
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!((now.lines().count(), before.lines().count()), (site.names.len(), site.names.len()));
    for (before, now) in before.lines().zip(now.lines()) {
        let (all, known) = (columns(before), columns(now));
        let name = known[6].as_str();
        assert_eq!(name, all[6]);
        match (name, site.names[name]) {
            (STRIPED, _) => {
                assert_eq!(known[..6], [&all[0], &all[1], &all[2], &all[3], "?", "?"], "{now}");
            }
            (_, SECOND) => assert_eq!(known[..6], ["d?????????", "?", "?", "?", "?", "?"], "{now}"),
            _ => assert_eq!(now, before),
        }
    }
    // The names alone are all there without it.
    let names = site.ran(&["ls", &site.cluster]);
    assert!(names.status.success());
    assert!(text(&names.stdout).lines().eq(site.names.keys()));
    let json = site.ran(&["ls", "--plus", "--json", &site.cluster, "--timeout", LIMIT]);
    assert_eq!(json.status.code(), Some(1));
    for value in json_lines(&json) {
        let name = value["name"].as_str().unwrap();
        let is_far = site.names[name] == SECOND;
        assert_eq!((value["size"].is_null(), value["mode"].is_null()), (is_far || name == STRIPED, is_far));
    }
    site.stop();
}

#[test]
fn each_command_that_reads_or_copies_waits_for_a_silent_server_as_long_as_it_is_allowed() {
    let site = Site::new();
    // By the file, whose bytes are on both servers, and by the directory, whose inode is on the second.
    let (dir, _) = site.names.iter().find(|(_, server)| **server == SECOND).unwrap();
    let file = site.at(STRIPED);
    let (key, there) = (site.key(), site.home.text("there"));
    site.silence();
    for args in [
        vec!["ls", &file],
        vec!["cat", &file],
        vec!["stat", &file],
        vec!["map", &file],
        vec!["cp", "--quiet", &file, &there],
        vec!["cp", "--quiet", "-r", &site.at(dir), &there],
        vec!["sync", &site.cluster],
    ] {
        let begun = Instant::now();
        let own = [args.as_slice(), &["--timeout", "2", "--key", &key]].concat();
        let done = run(&own);
        let told = text(&done.stderr);
        assert!(!done.status.success(), "{own:?}");
        assert!(told.contains("server 1"), "{own:?}: {told}");
        assert!(begun.elapsed() < shoal_client::TIMEOUT, "{own:?} takes {:?}", begun.elapsed());
    }
    for (wrong, words) in [("0", "not in 1..=86400"), ("soon", "invalid digit")] {
        assert!(text(&run(&["stat", &file, "--timeout", wrong]).stderr).contains(words));
    }
    for command in ["ls", "cp", "cat", "stat", "map", "sync", "mount", "up"] {
        let help = said(&[command, "--help"]);
        let words = "Seconds after which an operation that no server answers fails [default: 30]";
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("--timeout <S>") && help.contains(words), "{command}: {help}");
    }
    site.stop();
}

#[test]
fn sync_is_done_by_the_servers_that_answer_and_names_the_others() {
    let site = Site::new();
    let mnt = site.home.text("mnt");
    let mount = is_root().then(|| Serving::start(&["mount", &site.cluster, &mnt, "--timeout", LIMIT]));
    let synced = |server: usize| {
        let told = site.ran(&["status", &site.cluster, "--json"]);
        let status = &json_lines(&told)[0]["servers"][server];
        status["operations"]["sync"].as_u64().unwrap_or(0)
    };
    site.silence();
    let before = synced(0);
    let words =
        ["not everything is durable", "server 1 does not answer", "server 0 has done it", "run this again"];
    refused(&["sync", &site.cluster, "--timeout", LIMIT], &words);
    assert_eq!(synced(0), before + 1);
    if mount.is_some() {
        refused(&["sync", &mnt, "--timeout", LIMIT], &words);
    }
    let json = site.ran(&["sync", &site.cluster, "--timeout", LIMIT, "--json"]);
    let value = &json_lines(&json)[0];
    assert_eq!((&value["durable"], &value["done"]), (&false.into(), &serde_json::json!([0])));
    assert_eq!((&value["failed"][0]["server"], json.status.code()), (&1.into(), Some(1)));
    // New modes, too; the cluster file says what all servers have.
    let file = || std::fs::read_to_string(site.home.path("cluster/cluster.toml")).unwrap();
    let old = file();
    let modes = ["sync", &site.cluster, "--data", "reply", "--timeout", LIMIT];
    refused(
        &modes,
        &["not all servers have the new modes", "server 1 does not answer", "server 0 has done it"],
    );
    assert_eq!(file(), old);
    site.second.signal(Signal::CONT);
    said(&modes);
    assert_ne!(file(), old);
    assert_eq!(said(&["sync", &site.cluster]), "everything is durable\n");
    if let Some(mount) = mount {
        said(&["sync", &mnt]);
        mount.stop();
    }
    site.stop();
}

#[test]
fn ping_asks_the_servers_that_this_machine_knows_where_the_given_one_does_not_answer() {
    let site = Site::new();
    let second = site.root.split([',', '/']).nth(3).unwrap().to_owned();
    let given = format!("shoal://{second}/demo");
    let (key, alone) = (site.key(), site.home.text("alone"));
    std::fs::copy(&key, &alone).unwrap();
    let mnt = site.home.text("mnt");
    let mount = is_root().then(|| Serving::start(&["mount", &given, &mnt, "--key", &alone]));
    site.silence();
    let not_answering = |key: &str| {
        let expected = format!("no server answers at the given address tcp:{second}");
        let mut done = site.ran(&["ping", &given, "--key", "/nowhere"]);
        // A mount writes its note in the background.
        soon("another server is known", || {
            done = site.ran(&["ping", &given, "--key", key]);
            !done.stdout.is_empty()
        });
        let told = text(&done.stdout);
        for words in ["DEGRADED: server 1 does not answer", &expected] {
            assert!(told.contains(words), "`{words}` is missing: {told} {}", text(&done.stderr));
        }
        assert_eq!(done.status.code(), Some(1));
    };
    // By the cluster file beside the key.
    not_answering(&key);
    if let Some(mount) = mount {
        not_answering(&alone);
        mount.stop();
    }
    let words = ["no other of this file system is known here", "give several", "cluster file", &second];
    refused(&["ping", &given, "--key", &alone], &words);
    site.stop();
}

#[test]
fn a_client_opens_a_file_that_has_bytes_on_a_silent_server_and_reads_what_lies_elsewhere() {
    const LIMIT: Duration = Duration::from_secs(5);
    const STRIP: usize = 1 << 20;
    let site = Site::new();
    let server = site.first_address();
    let options = Options { timeout: LIMIT, ..options(server, &site.home.path("cluster/key")) };
    site.silence();
    shoal_env::real::run("client", |env| async move {
        let client = Client::connect(env.clone(), options).await.unwrap();
        let name = Name::new(STRIPED.as_bytes()).unwrap();
        let begin = env.now();
        let file = client.open_name(Handle::ROOT, &name, Rights::READ).await.unwrap();
        for strip in [0, 2] {
            assert_eq!(file.read((strip * STRIP) as u64, STRIP).await.unwrap(), vec![7; STRIP]);
        }
        assert!(env.now().since(begin) < LIMIT, "nothing waits for the silent server");
        // Its own bytes: the first read waits for the limit, and the next ones not at all.
        for status in [Status::TimedOut, Status::Silent] {
            let error = file.read(STRIP as u64, STRIP).await.unwrap_err();
            let words = error.to_string();
            assert_eq!((error.status, error.server), (status, Some(ServerId(1))), "{words}");
            assert!(words.contains("at server 1") && error.object.is_some(), "{words}");
        }
        assert!(env.now().since(begin) < 2 * LIMIT + Duration::from_secs(10), "one limit is waited for");
        assert_eq!(file.read(0, 100).await.unwrap(), vec![7; 100]);
        client.close().await;
    });
    site.stop();
}
