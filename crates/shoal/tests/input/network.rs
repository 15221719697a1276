//! Servers that are not there, do not answer, or cannot listen.

use crate::program::*;
use rustix::io::Errno;
use rustix::process::Signal;
use shoal_client::{Client, Options};
use shoal_env::real;
use shoal_proto::{Handle, Name, Owner, ServerId, Status};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Two servers, each a process of its own.
fn two(home: &Home) -> (String, Vec<u16>, [Serving; 2]) {
    let (cluster, ports) = home.cluster(2);
    let servers = ["0", "1"].map(|id| Serving::start(&["serve", "--config", &cluster, "--server", id]));
    (cluster, ports, servers)
}

/// Two directories, the first on server 0, the second on server 1, with a file in each; made through a mount.
fn directories(at: &Path) -> [std::path::PathBuf; 2] {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = [None, None];
    for i in 0.. {
        let dir = at.join(format!("dir-{i}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("file"), b"content").unwrap();
        // A handle's upper 16 bits are its server's.
        let server = (dir.metadata().unwrap().ino() >> 48) as usize;
        found[server].get_or_insert(dir);
        if let [Some(first), Some(second)] = &found {
            return [first.clone(), second.clone()];
        }
        assert!(i < 100, "new directories go to both servers");
    }
    unreachable!()
}

#[test]
fn a_taken_port_is_named_with_its_remedy_and_the_data_waits_for_it() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "2"]);
    let (server, root) = (up.server(), up.root());
    let file = home.file("f", b"kept");
    said(&["cp", &file, &format!("{root}/f"), "--key", &home.text("data/key"), "--quiet"]);
    up.stop();
    let other = TcpListener::bind(server).unwrap();
    let port = server.port();
    let before = std::fs::read(home.path("data/cluster.toml")).unwrap();
    refused(&["up", &data], &[&format!("port {port} is in use"), &format!("ss -ltnp 'sport = :{port}'")]);
    assert_eq!(std::fs::read(home.path("data/cluster.toml")).unwrap(), before);
    drop(other);
    let up = Serving::start(&["up", &data]);
    assert_eq!(up.root(), root);
    assert_eq!(said(&["cat", &format!("{root}/f"), "--key", &home.text("data/key")]), "kept");
    up.stop();
}

#[test]
fn an_address_of_another_machine_is_named() {
    let home = Home::new();
    let cluster = home.text("cluster");
    // TEST-NET-1: no machine's address.
    said(&["init", &cluster, "--server", "tcp:192.0.2.1:7441=s0"]);
    refused(
        &["serve", "--config", &cluster],
        &["cannot listen at tcp:192.0.2.1:7441", "not an address of this machine"],
    );
}

#[test]
fn a_file_system_whose_servers_are_down_is_not_mounted_and_the_words_say_where_it_was_looked_for() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let mnt = home.text("mnt");
    let begin = Instant::now();
    for args in
        [vec!["mount", &cluster, &mnt], vec!["mount", &cluster, &mnt, "--background"], vec!["ls", &cluster]]
    {
        let told = refused(&args, &[&ports[0].to_string(), &ports[1].to_string(), "refused"]);
        assert!(told.contains("is it served"), "the remedy: {told}");
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "nobody waits for what is refused");
}

#[test]
fn with_one_server_down_the_rest_is_used_and_what_is_on_it_comes_back_with_it() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let (cluster, _, [first, second]) = two(&home);
    let mnt = home.path("mnt");
    let mount = Serving::start(&["mount", &cluster, mnt.to_str().unwrap()]);
    let [here, there] = directories(&mnt).map(|dir| dir.file_name().unwrap().to_owned());
    mount.stop();
    second.stop();

    // It is down when the file system is mounted.
    let options = ["mount", &cluster, mnt.to_str().unwrap(), "--timeout", "1", "--attr-timeout", "0"];
    let mount = Serving::start(&options);
    assert_eq!(std::fs::read(mnt.join(&here).join("file")).unwrap(), b"content");
    std::fs::write(mnt.join(&here).join("new"), b"new").unwrap();
    let error = std::fs::read(mnt.join(&there).join("file")).expect_err("its server is down");
    assert!(
        matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::TIMEDOUT)),
        "it is an error of the server: {error}"
    );
    let told = mount.told();
    assert!(
        told.contains("server 1") && told.contains("refused"),
        "the words are in the mount's log: {told}"
    );
    let second = Serving::start(&["serve", "--config", &cluster, "--server", "1"]);
    soon("what is on it is there again", || std::fs::read(mnt.join(&there).join("file")).is_ok());
    assert_eq!(std::fs::read(mnt.join(&there).join("file")).unwrap(), b"content");
    assert_eq!(std::fs::read(mnt.join(&here).join("new")).unwrap(), b"new");
    mount.stop();
    said(&["fsck", &cluster, "--quiet"]);
    second.stop();
    first.stop();
}

/// How long a client waits in these tests, and the limit for any wait, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(2);
const ENDED: Duration = Duration::from_secs(30);

#[test]
fn what_a_hanging_server_is_asked_ends_at_its_deadline_in_words_and_goes_on_when_it_does() {
    let home = Home::new();
    let (cluster, ports, [first, second]) = two(&home);
    let server = format!("127.0.0.1:{}", ports[0]).parse().unwrap();
    let options = Options {
        timeout: PATIENCE,
        name_cache: Duration::ZERO,
        attr_cache: Duration::ZERO,
        ..options(server, &home.path("cluster/key"))
    };
    let second = &second;
    real::run("client", |env| async move {
        let client = Client::connect(env.clone(), options.clone()).await.unwrap();
        let mut dirs = Vec::new();
        for i in 0..100 {
            dirs.push(client.mkdir(Handle::ROOT, &name(&format!("dir-{i}")), OWNER).await.unwrap().handle);
            if dirs.iter().any(|dir| dir.server() == ServerId(0))
                && dirs.iter().any(|dir| dir.server() == ServerId(1))
            {
                break;
            }
        }
        let on = |id: u16| *dirs.iter().find(|dir| dir.server() == ServerId(id)).unwrap();
        let (here, there) = (on(0), on(1));
        let file = client.create_write(there, &name("kept"), OWNER, b"kept"[..].into(), None).await.unwrap();

        second.signal(Signal::STOP);
        let begin = env.now();
        // The first waits its time out; from then on the server counts as silent, and is not asked.
        for (op, status, error) in [
            ("getattr", Status::TimedOut, client.getattr(file.handle).await.map(drop)),
            ("mkdir", Status::Silent, client.mkdir(there, &name("new"), OWNER).await.map(drop)),
            ("unlink", Status::Silent, client.unlink(there, &name("kept")).await.map(drop)),
        ] {
            let error = error.expect_err("nobody answers");
            let words = error.to_string();
            assert_eq!(error.status, status, "{words}");
            assert_eq!((error.server, error.op), (Some(ServerId(1)), op), "{words}");
            assert!(error.object.is_some() && words.contains("at server 1"), "{words}");
        }
        assert!(env.now().since(begin) < ENDED, "each ends at its deadline");
        // The other server is not kept from its work.
        client.create_write(here, &name("new"), OWNER, b"new"[..].into(), None).await.unwrap();
        // A new client gets the name of the server that does not answer.
        let late = Client::connect(env.clone(), options).await.unwrap();
        let error = late.getattr(there).await.expect_err("nobody answers");
        assert!(error.to_string().contains("at server 1"), "{error}");
        late.close().await;

        second.signal(Signal::CONT);
        let begin = env.now();
        while client.getattr(there).await.is_err() {
            assert!(env.now().since(begin) < HANGS, "it goes on");
        }
        // An operation with an unknown end was done or not, once and whole: it can be repeated.
        for made in [
            client.mkdir(there, &name("new"), OWNER).await.map(drop),
            client.unlink(there, &name("kept")).await.map(drop),
        ] {
            assert!(matches!(
                made.map_err(|error| error.status),
                Ok(()) | Err(Status::Exists | Status::NotFound)
            ));
        }
        assert_eq!(client.lookup(there, &name("kept")).await.unwrap_err().status, Status::NotFound);
        client.lookup(there, &name("new")).await.unwrap();
        client.close().await;
    });
    said(&["fsck", &cluster, "--quiet"]);
    first.stop();
}

#[test]
fn a_mount_is_not_held_up_by_a_hanging_server_beyond_its_time() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let (cluster, _, [first, second]) = two(&home);
    let mnt = home.path("mnt");
    let mount =
        Serving::start(&["mount", &cluster, mnt.to_str().unwrap(), "--timeout", "2", "--attr-timeout", "0"]);
    let [here, there] = directories(&mnt);
    let mut open = std::fs::File::options().append(true).open(there.join("file")).unwrap();
    second.signal(Signal::STOP);
    let begin = Instant::now();
    let error = std::fs::write(there.join("new"), b"new").expect_err("nobody answers");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::TIMEDOUT), "{error}");
    let error = open.write_all(b" and more").expect_err("nobody answers");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::TIMEDOUT), "{error}");
    assert!(begin.elapsed() < ENDED, "each ends at its deadline");
    assert_eq!(std::fs::read(here.join("file")).unwrap(), b"content");
    let told = mount.told();
    assert!(told.contains("at server 1"), "the words are in the mount's log: {told}");
    second.signal(Signal::CONT);
    soon("it goes on", || std::fs::write(there.join("new"), b"new").is_ok());
    assert_eq!(std::fs::read(there.join("new")).unwrap(), b"new");
    let content = std::fs::read(there.join("file")).unwrap();
    assert!(content == b"content" || content == b"content and more", "all of it or nothing");
    drop(open);
    mount.stop();
    said(&["fsck", &cluster, "--quiet"]);
    second.stop();
    first.stop();
}
