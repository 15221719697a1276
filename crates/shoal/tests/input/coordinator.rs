//! A coordinator that is killed between prepare and finish, and whose folder is lost: its transactions end
//! alike on all servers.
//!
//! A file is renamed from a directory on server 2 to a directory on server 1, which coordinates the rename;
//! the file itself is on server 3. Signals stop and continue servers, so that the rename comes to the wanted
//! state ([`Came`]) and no further. A server waits for another server for some seconds only, so a rename may
//! go past the wanted state: then the test renames the next file.

use crate::program::*;
use rustix::process::Signal;
use shoal_client::{Client, Options, RenameFlags};
use shoal_env::Env;
use shoal_proto::{Handle, Name, Owner, ServerId, Status};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// A step that the servers take at once, if they take it.
const STEP: Duration = Duration::from_secs(2);
const TRIES: usize = 20;
/// Tables of transactions: undecided, and carried out.
const UNDECIDED: &[u8] = b"t";
const ENDED: &[u8] = b"e";

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Do something as a client in this thread.
fn as_client<T>(options: Options, deed: impl AsyncFnOnce(&Client) -> T) -> T {
    shoal_env::real::run("client", |env: Env| async move {
        let client = Client::connect(env, options).await.expect("server 0 answers");
        let done = deed(&client).await;
        client.close().await;
        done
    })
}

async fn directory_on(client: &Client, server: u16) -> Handle {
    for n in 0.. {
        let attr = client.mkdir(Handle::ROOT, &name(&format!("d{server}-{n}")), OWNER).await.unwrap();
        if attr.handle.server() == ServerId(server) {
            return attr.handle;
        }
    }
    unreachable!()
}

/// How far the rename has come when its coordinator dies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Came {
    /// Server 2 has it prepared; server 3 was not reached.
    OnePrepared,
    /// Both have.
    AllPrepared,
    /// Server 3 has committed it, and server 2 does not know that.
    OneCarriedOut,
}

struct Scene {
    home: Home,
    cluster: String,
    options: Options,
    servers: Vec<Option<Serving>>,
    from: Handle,
    to: Handle,
    files: Vec<Handle>,
}

impl Scene {
    fn new() -> Scene {
        let home = Home::new();
        let (cluster, ports) = home.cluster(4);
        let address = format!("127.0.0.1:{}", ports[0]).parse().unwrap();
        let options = options(address, &home.path("cluster/key"));
        let (from, to, files) = (Handle::ROOT, Handle::ROOT, Vec::new());
        let mut scene = Scene { home, cluster, options, servers: Vec::new(), from, to, files };
        for id in 0..4 {
            scene.servers.push(None);
            scene.start(id, &[]);
        }
        (scene.from, scene.to, scene.files) = as_client(scene.options.clone(), async |client| {
            let (from, to) = (directory_on(client, 2).await, directory_on(client, 1).await);
            let far = directory_on(client, 3).await;
            let mut files = Vec::new();
            for n in 0..TRIES {
                let file = name(&format!("file{n}"));
                let data = bytes::Bytes::from(format!("bytes of {n}"));
                files.push(client.create_write(far, &file, OWNER, data, None).await.unwrap().handle);
                client.rename(far, &file, from, &file, RenameFlags::default()).await.unwrap();
            }
            (from, to, files)
        });
        scene
    }

    fn start(&mut self, id: usize, more: &[&str]) {
        let number = id.to_string();
        let args = [&["serve", "--config", &self.cluster, "--server", &number], more].concat();
        self.servers[id] = Some(Serving::start(&args));
    }

    fn signal(&self, id: usize, signal: Signal) {
        self.servers[id].as_ref().unwrap().signal(signal);
    }

    fn crash(&mut self, id: usize) {
        self.servers[id].take().unwrap().crash();
    }

    /// How many rows of a table a server has.
    fn rows(&self, id: u16, table: &[u8]) -> usize {
        as_client(self.options.clone(), async |client| {
            client.rows(ServerId(id), table, b"", 100).await.expect("it answers").0.len()
        })
    }

    /// Whether a server has a row of this table soon.
    fn has_soon(&self, id: u16, table: &[u8]) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < STEP {
            if self.rows(id, table) > 0 {
                return true;
            }
        }
        false
    }

    /// Rename one file, as far as is meant; `None`: it went further, or was given up.
    fn begin(&mut self, n: usize, came: Came) -> Option<JoinHandle<()>> {
        self.signal(3, Signal::STOP);
        let (options, from, to) = (self.options.clone(), self.from, self.to);
        let renaming = std::thread::spawn(move || {
            as_client(options, async |client| {
                let file = name(&format!("file{n}"));
                // Its end is looked at on the servers.
                let _ = client.rename(from, &file, to, &file, RenameFlags::default()).await;
            });
        });
        let mut is_there = self.has_soon(2, UNDECIDED);
        self.signal(1, Signal::STOP);
        if came != Came::OnePrepared {
            self.signal(3, Signal::CONT);
            is_there &= self.has_soon(3, UNDECIDED) && self.rows(2, UNDECIDED) > 0;
        }
        if came == Came::OneCarriedOut {
            self.signal(2, Signal::STOP);
            self.signal(1, Signal::CONT);
            is_there &= self.has_soon(3, ENDED);
        }
        if is_there {
            return Some(renaming);
        }
        (1..4).for_each(|id| self.signal(id, Signal::CONT));
        renaming.join().unwrap();
        None
    }

    /// The coordinator dies. Which file was renamed.
    fn kill_the_coordinator(&mut self, came: Came) -> (usize, JoinHandle<()>) {
        let (n, renaming) =
            (0..TRIES).find_map(|n| Some((n, self.begin(n, came)?))).expect("it comes so far");
        self.crash(1);
        // Messages that wait for a stopped server in its sockets are lost with it.
        for id in [2, 3] {
            self.crash(id);
            self.start(id, &[]);
        }
        (n, renaming)
    }

    /// It dies with its folder; another store takes its place.
    fn lose_the_coordinator(&mut self, came: Came) -> usize {
        let (n, renaming) = self.kill_the_coordinator(came);
        std::fs::rename(self.home.path("cluster/s1"), self.home.path("lost")).unwrap();
        self.start(1, &["--new-store", "1"]);
        renaming.join().unwrap();
        n
    }

    /// The folder of another server is lost with it: both stores are given up by one command.
    fn lose_two(&mut self, came: Came, other: usize) -> usize {
        let (n, renaming) = self.kill_the_coordinator(came);
        self.crash(other);
        for (id, to) in [(1, "lost"), (other, "lost too")] {
            std::fs::rename(self.home.path(&format!("cluster/s{id}")), self.home.path(to)).unwrap();
        }
        let one = ["serve", "--config", &self.cluster, "--server", "1", "--new-store", "1"];
        refused(&one, &["every server that keeps its store must run and answer"]);
        let other = other.to_string();
        self.start(1, &["--new-store", "1", "--server", &other, "--new-store", &other]);
        renaming.join().unwrap();
        n
    }

    fn fsck(&self, options: &[&str]) -> (Option<i32>, String) {
        let save = self.home.text("save");
        let output = run(&[&["fsck", &self.cluster, "--quiet", "--save", &save], options].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A repair that is killed as soon as it has ended the transaction on one server.
    fn repair_half(&self) {
        let undecided = || (self.rows(2, UNDECIDED), self.rows(3, UNDECIDED));
        let before = undecided();
        let save = self.home.text("half");
        let args = ["fsck", &self.cluster, "--quiet", "--repair", "--lost-stores", "--save", &save];
        let mut repair = shoal().args(args).stdout(std::process::Stdio::null()).spawn().unwrap();
        soon("the repair begins", || undecided() != before);
        repair.kill().unwrap();
        repair.wait().unwrap();
    }
}

fn ends_alike(came: Came) {
    let mut scene = Scene::new();
    let n = scene.lose_the_coordinator(came);
    assert!(scene.rows(2, UNDECIDED) > 0, "it is in doubt");
    let (status, found) = scene.fsck(&[]);
    let deed = if came == Came::OnePrepared { "aborts it" } else { "carries it out" };
    let foreseen = format!("--repair --lost-stores {deed}");
    assert!(status == Some(1) && found.contains(&foreseen), "{found}");
    assert!(found.contains(&scene.from.to_string()), "it names what is concerned: {found}");
    scene.repair_half();
    let (status, mended) = scene.fsck(&["--repair", "--lost-stores"]);
    assert_eq!(status, Some(0), "{mended}");
    said(&["fsck", &scene.cluster, "--quiet"]);
    assert_eq!((scene.rows(2, UNDECIDED), scene.rows(3, UNDECIDED)), (0, 0));
    as_client(scene.options.clone(), async |client| {
        let (file, handle) = (name(&format!("file{n}")), scene.files[n]);
        let old = client.lookup(scene.from, &file).await;
        // Its new name was the coordinator's, and is lost: the bytes are kept.
        let kept = client.lookup(Handle::ROOT, &name("lost+found")).await.unwrap().handle;
        let kept = client.lookup(kept, &name(&format!("#{handle}"))).await;
        let found = |looked: &Result<shoal_proto::Attr, shoal_client::Error>| match looked {
            Ok(attr) => attr.handle == handle,
            Err(error) if error.status == Status::NotFound => false,
            Err(error) => panic!("{error}"),
        };
        let expected = if came == Came::OnePrepared { (true, false) } else { (false, true) };
        assert_eq!((found(&old), found(&kept)), expected, "by its old name, and in /lost+found");
        // No lock is left: the file and directories can be changed.
        client.mkdir(Handle::ROOT, &name("moved"), OWNER).await.unwrap();
        let (moved, flags) = (name("moved"), RenameFlags::default());
        client.rename(Handle::ROOT, &moved, scene.from, &moved, flags).await.unwrap();
        client.create_write(scene.from, &name("new"), OWNER, Default::default(), None).await.unwrap();
    });
}

#[test]
fn what_a_killed_coordinator_left_prepared_on_one_server_is_aborted_when_its_folder_is_lost() {
    ends_alike(Came::OnePrepared);
}

#[test]
fn what_a_killed_coordinator_left_prepared_on_all_servers_is_carried_out_when_its_folder_is_lost() {
    ends_alike(Came::AllPrepared);
}

#[test]
fn what_a_killed_coordinator_left_carried_out_on_one_server_is_carried_out_when_its_folder_is_lost() {
    ends_alike(Came::OneCarriedOut);
}

#[test]
fn of_two_stores_that_are_lost_at_once_what_both_had_a_part_in_is_aborted_where_no_other_server_has_carried_it_out()
 {
    let mut scene = Scene::new();
    let n = scene.lose_two(Came::AllPrepared, 3);
    let (status, found) = scene.fsck(&[]);
    assert!(status == Some(1) && found.contains("--repair --lost-stores aborts it"), "{found}");
    let (status, mended) = scene.fsck(&["--repair", "--lost-stores"]);
    assert_eq!(status, Some(0), "{mended}");
    said(&["fsck", &scene.cluster, "--quiet"]);
    assert_eq!(scene.rows(2, UNDECIDED), 0);
    as_client(scene.options.clone(), async |client| {
        // The file itself was on the other lost server, and so no name is left of it.
        let gone = client.lookup(scene.from, &name(&format!("file{n}"))).await;
        assert_eq!(gone.map(|attr| attr.handle).map_err(|error| error.status), Err(Status::NotFound));
        client.mkdir(Handle::ROOT, &name("moved"), OWNER).await.unwrap();
        let (moved, flags) = (name("moved"), RenameFlags::default());
        client.rename(Handle::ROOT, &moved, scene.from, &moved, flags).await.unwrap();
    });
}
