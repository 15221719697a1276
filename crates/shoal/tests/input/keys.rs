//! The key commands on real servers: `key split`, `rotate`, `add` and `revoke`.
//!
//! After these commands all files have the names and contents that they had before. Commands that manage need
//! the administrators' key. Servers refuse a revoked key within ten seconds, and hold a key to its limits
//! (`read_only`, `squash_root`).

use crate::program::*;
use futures_util::future::join;
use serde_json::json;
use shoal_client::{Client, Error};
use shoal_env::{Env, real};
use shoal_proto::mount_keys::NOBODY;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights, SetAttr, Status, Template};
use shoal_vfs::RenameFlags;
use std::cell::Cell;
use std::time::{Duration, Instant};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Every server refuses a revoked key within this time.
const REVOKED_WITHIN: Duration = Duration::from_secs(10);

/// The cluster as it was made before keys had roles: no servers' key file, and no word of one.
fn one_key(home: &Home) {
    let path = home.path("cluster/cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("server_key")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    for own in ["key.server", "key.admin"] {
        std::fs::remove_file(home.path("cluster").join(own)).unwrap();
    }
}

#[test]
fn keys_are_separated_and_replaced_and_no_name_moves() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    one_key(&home);
    let key = home.text("cluster/key");
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let serve = || Serving::start(&["serve", "--config", &cluster]);
    let files: Vec<String> = (0..20).map(|i| format!("{dir}/file-{i}")).collect();
    let all_are_found = |key: &str| {
        files.iter().for_each(|file| assert_eq!(said(&["cat", file, "--key", key]), "here", "{file}"));
    };

    let serving = serve();
    files.iter().for_each(|file| {
        said(&["cp", "--quiet", &home.file("content", b"here"), file, "--key", &key]);
    });
    assert!(said(&["key", "list", &cluster]).contains("one key has all roles"));
    refused(&["key", "split", &cluster], &["a server listens", "stop all servers"]);
    serving.stop();
    refused(&["key", "rotate", &cluster], &["cannot be replaced", "shoal key split"]);
    said(&["key", "split", &cluster]);
    refused(&["key", "split", &cluster], &["keys of their own already"]);
    assert!(!said(&["key", "list", &cluster]).contains("all roles"));
    let serving = serve();
    all_are_found(&key);
    serving.stop();

    let former = home.text("former");
    std::fs::copy(&key, &former).unwrap();
    said(&["key", "rotate", &cluster]);
    said(&["key", "rotate", &cluster, "--server"]);
    for kept in ["cluster/key.former", "cluster/key.server.former"] {
        assert!(home.path(kept).is_file(), "{kept}");
    }
    let serving = serve();
    all_are_found(&key);
    refused(&["ls", &dir, "--key", &former], &["is this the right key file?"]);
    serving.stop();
}

#[test]
fn a_server_without_the_servers_key_file_does_not_begin_and_says_where_to_copy_it_from() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    std::fs::remove_file(home.path("cluster/key.server")).unwrap();
    refused(&["serve", "--config", &cluster], &["key.server", "copy them here"]);
    assert!(!home.path("cluster/s0/demo").exists(), "nothing was made");
}

#[test]
fn commands_that_manage_need_the_administrators_key_and_find_it_beside_the_key() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let server = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    // A user's machine has the key alone.
    std::fs::create_dir(home.path("user")).unwrap();
    let (own, user) = (home.text("cluster/key"), home.text("user/key"));
    std::fs::copy(&own, &user).unwrap();
    let admin = home.path("user/key.admin");
    let managing = [vec!["sync", &server, "--metadata", "fsync"], vec!["fsck", &server, "--quiet"]];
    let with_key = |args: &[&str], key: &str| [args, &["--key", key]].concat().join(" ");
    let serving = Serving::start(&["serve", "--config", &cluster]);
    for command in &managing {
        let all = with_key(command, &user);
        let args: Vec<&str> = all.split(' ').collect();
        refused(&args, &["administrators' key", "key.admin", "mode 0600"]);
    }
    said(&["sync", &server, "--key", &user]);
    said(&["ls", &server, "--key", &user]);
    assert!(said(&["ping", &server, "--json", "--key", &user]).contains("\"owns_root\": true"));
    let try_all = |key: &str| {
        for command in &managing {
            let all = with_key(command, key);
            said(&all.split(' ').collect::<Vec<_>>());
        }
    };
    std::fs::copy(home.path("cluster/key.admin"), &admin).unwrap();
    try_all(&user);
    try_all(&own);
    serving.stop();

    // The former key manages no longer.
    let former = std::fs::read(&admin).unwrap();
    said(&["key", "rotate", &cluster, "--admin"]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    assert_eq!(std::fs::read(home.path("cluster/key.admin.former")).unwrap(), former);
    refused(&["fsck", &server, "--quiet", "--key", &user], &["key.admin"]);
    try_all(&own);
    serving.stop();

    // A file system whose mount key manages (made before there was an admin key) goes on so until the split.
    let path = home.path("cluster/key.server");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("admin")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    for file in [&admin, &home.path("cluster/key.admin")] {
        std::fs::remove_file(file).unwrap();
    }
    assert!(said(&["key", "list", &cluster]).contains("the mount key manages too"));
    let serving = Serving::start(&["serve", "--config", &cluster]);
    try_all(&user);
    serving.stop();
    said(&["key", "split", &cluster]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    refused(&["fsck", &server, "--quiet", "--key", &user], &["key.admin"]);
    try_all(&own);
    serving.stop();
}

#[test]
fn a_key_with_a_name_is_added_beside_the_first_and_revoked_while_servers_run_and_stays_so() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let (first, lab) = (home.text("cluster/key"), home.text("cluster/key.lab"));
    let reader = home.text("reader.key");
    let serving = Serving::start(&["serve", "--config", &cluster]);
    let content = home.file("content", b"here");
    let cp = |to: &str, key: &str| {
        said(&["cp", "--quiet", &content, &format!("{dir}/{to}"), "--key", key]);
    };
    let cat = |name: &str, key: &str| said(&["cat", &format!("{dir}/{name}"), "--key", key]);
    cp("one", &first);
    assert!(said(&["key", "add", "lab", &cluster]).contains("key.lab"));
    said(&["key", "add", "reader", &cluster, "--read-only", "--out", &reader]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&lab).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // Names, once more and wrong ones: nothing is written.
    let before = listing(&home.path("cluster"));
    let out = home.text("out");
    refused(
        &["key", "add", "lab", &cluster, "--out", &out],
        &["a mount key `lab` already", "revoke it first"],
    );
    refused(&["key", "add", "lab", &cluster], &["key.lab exists already", "--out"]);
    let whole = "n".repeat(256);
    for bad in ["", whole.as_str(), "a/b", "a\nb", "..", "first", "server", "admin"] {
        refused(&["key", "add", bad, &cluster, "--out", &out], &["cannot be a key's name"]);
    }
    refused(&["key", "revoke", "nobody", &cluster], &["no mount key `nobody`", "there is first"]);
    refused(&["key", "export", "nobody", &cluster], &["no mount key `nobody`"]);
    assert_untouched(&keys_of(before), &keys_of(listing(&home.path("cluster"))));
    assert!(!home.path("out").exists());

    // Each is let in; the reader changes nothing, also by a file that keeps its limit to itself.
    cp("two", &lab);
    assert_eq!(cat("two", &first), "here");
    assert_eq!(cat("two", &reader), "here");
    let frank = home.text("frank.key");
    let text = std::fs::read_to_string(&reader).unwrap().replace("read_only = true\n", "");
    std::fs::copy(&reader, &frank).unwrap();
    std::fs::write(&frank, text).unwrap();
    for key in [&reader, &frank] {
        let three = format!("{dir}/three");
        refused(&["cp", "--quiet", &content, &three, "--key", key], &["read-only file system"]);
    }
    let listed = said(&["key", "list", &cluster]);
    let shown = said(&["status", &dir, "--key", &first]);
    for (name, mark) in [("lab", ""), ("reader", "read-only")] {
        let line = listed.lines().find(|line| line.contains(name)).expect("it is listed");
        assert!(line.contains(mark) && !line.contains("REVOKED"), "{listed}");
        assert!(shown.contains(name), "{shown}");
    }
    said(&["key", "export", "lab", &cluster, "--out", &out]);
    assert_eq!(std::fs::read(&out).unwrap(), std::fs::read(&lab).unwrap());

    assert!(said(&["key", "revoke", "lab", &cluster]).contains("`lab` is revoked"));
    said(&["key", "revoke", "lab", &cluster]);
    let is_revoked = || {
        refused(&["cat", &format!("{dir}/two"), "--key", &lab], &["this key was revoked: lab"]);
        assert_eq!(cat("two", &reader), "here");
        assert_eq!(cat("two", &first), "here");
        let listed = said(&["key", "list", &cluster]);
        assert!(listed.lines().any(|line| line.contains("lab") && line.contains("REVOKED")), "{listed}");
    };
    is_revoked();
    refused(&["key", "export", "lab", &cluster, "--out", &home.text("again")], &["no mount key `lab`"]);
    serving.stop();
    let serving = Serving::start(&["serve", "--config", &cluster]);
    is_revoked();

    // All of them: an administrator lets the next one in.
    said(&["key", "revoke", "reader", &cluster]);
    assert!(said(&["key", "revoke", "first", &cluster]).contains("no mount key lets a client in any more"));
    refused(&["cat", &format!("{dir}/two"), "--key", &first], &["revoked: first"]);
    let next = home.text("next.key");
    said(&["key", "add", "lab", &cluster, "--out", &next]);
    assert_eq!(cat("two", &next), "here");
    serving.stop();
}

/// The files of keys in a listing: servers write the others.
fn keys_of(files: Vec<(std::path::PathBuf, Vec<u8>)>) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let is_key = |path: &std::path::Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("key"))
    };
    files.into_iter().filter(|(path, _)| is_key(path)).collect()
}

#[test]
fn a_key_with_a_name_that_was_never_added_or_is_no_key_is_refused_in_words() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    let text = std::fs::read_to_string(home.path("cluster/key")).unwrap();
    let own = home.text("own.key");
    std::fs::copy(home.path("cluster/key"), &own).unwrap();
    let lines = text.split_once("[[").unwrap();
    for (id, words) in
        [("00000000000000aa", "is this the right key file?"), ("aa", "is not 16 hexadecimal digits")]
    {
        std::fs::write(&own, format!("{}id = \"{id}\"\n[[{}", lines.0, lines.1)).unwrap();
        refused(&["ls", &dir, "--key", &own], &[words]);
    }
    // As made for a cluster of one key, every client could make each.
    serving.stop();
    one_key(&home);
    refused(&["key", "add", "lab", &cluster], &["one key has all roles", "shoal key split"]);
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// The answers of servers to the holder of a read-only key that tries to change a file and its directory.
async fn changes_of(reader: &Client, file: Handle) -> Vec<Result<(), Error>> {
    let (root, other) = (Handle::ROOT, name("other"));
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    vec![
        reader.mkdir(root, &other, OWNER).await.map(drop),
        reader.create(root, &other, OWNER, true, Rights::WRITE, None).await.map(drop),
        reader.symlink(root, &other, OWNER, b"one").await.map(drop),
        reader.link(file, root, &other).await.map(drop),
        reader.rename(root, &name("one"), root, &other, RenameFlags::default()).await.map(drop),
        reader.unlink(root, &name("one")).await.map(drop),
        reader.setattr(file, set).await.map(drop),
        reader.truncate(file, 0, false).await.map(drop),
        reader.setlayout(root, Template::default()).await,
        reader.open(file, Rights::WRITE).await.map(drop),
    ]
}

/// Reads until that is refused, and when.
async fn reads_until_refused(env: &Env, client: &Client, file: Handle) -> (Error, Instant) {
    let open = client.open(file, Rights::READ).await.unwrap();
    loop {
        if let Err(error) = open.read(0, 1 << 20).await {
            return (error, Instant::now());
        }
        env.sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_client_with_a_revoked_key_is_refused_within_ten_seconds_while_others_go_on_and_readers_only_read() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let server = format!("127.0.0.1:{}", ports[1]).parse().unwrap();
    let serving = Serving::start(&["serve", "--config", &cluster]);
    // A user's machine has these keys alone.
    std::fs::create_dir(home.path("user")).unwrap();
    let of = |name: &str| home.text(&format!("user/{name}.key"));
    for (name, more) in [("lab", None), ("backup", None), ("reader", Some("--read-only"))] {
        let out = of(name);
        let args = ["key", "add", name, &cluster, "--out", &out];
        said(&args.into_iter().chain(more).collect::<Vec<_>>());
    }
    let options = |name: &str| options(server, std::path::Path::new(&of(name)));
    real::run("clients", |env| async move {
        let connect = async |name: &str| Client::connect(env.clone(), options(name)).await;
        let (lab, backup, reader) = (connect("lab").await, connect("backup").await, connect("reader").await);
        let (lab, backup, reader) = (lab.unwrap(), backup.unwrap(), reader.unwrap());
        // It lies on both servers.
        let made = lab.create(Handle::ROOT, &name("one"), OWNER, true, Rights::WRITE, None).await.unwrap();
        let file = made.0.handle;
        made.2.write(0, vec![7; 1 << 20].into()).await.unwrap();
        made.2.close().await.unwrap();

        let open = reader.open(file, Rights::READ).await.unwrap();
        assert_eq!(open.read(0, 1 << 20).await.unwrap().len(), 1 << 20);
        let before = reader.getattr(file).await.unwrap();
        for (at, change) in changes_of(&reader, file).await.into_iter().enumerate() {
            assert_eq!(change.map_err(|error| error.status), Err(Status::ReadOnly), "change {at}");
        }
        assert_eq!(backup.getattr(file).await.unwrap(), before);

        let (is_over, done) = (Cell::new(false), Cell::new(0));
        let works = async {
            for at in 0.. {
                let own = name(&format!("of-backup-{at}"));
                let data = vec![1; 100].into();
                backup.create_write(Handle::ROOT, &own, OWNER, data, None).await.unwrap();
                backup.unlink(Handle::ROOT, &own).await.unwrap();
                done.set(done.get() + 1);
                if is_over.get() {
                    return;
                }
            }
        };
        let ends = async {
            let revokes = std::thread::spawn(move || {
                let begin = Instant::now();
                said(&["key", "revoke", "lab", &cluster]);
                begin
            });
            let (error, refused) = reads_until_refused(&env, &lab, file).await;
            let begin = revokes.join().unwrap();
            assert!(refused.saturating_duration_since(begin) < REVOKED_WITHIN);
            assert_eq!(error.status, Status::KeyRevoked, "{error}");
            assert!(error.to_string().contains("this key was revoked: lab"), "{error}");
            // Once more, by a client that begins now; others go on, each change of them is done.
            let again = connect("lab").await.err().expect("it is refused");
            assert_eq!(again.status, Status::KeyRevoked, "{again}");
            let before = done.get();
            while done.get() < before + 10 {
                env.sleep(Duration::from_millis(5)).await;
            }
            is_over.set(true);
        };
        join(works, ends).await;
        assert_eq!(open.read(0, 1 << 20).await.unwrap().len(), 1 << 20);
        open.close().await.unwrap();
        for client in [lab, backup, reader] {
            client.close().await;
        }
    });
    serving.stop();
}

/// Standard output of a command as JSON, and whether it succeeded.
fn as_json(args: &[&str]) -> (serde_json::Value, bool) {
    let output = run(&[args, &["--json"]].concat());
    let words = String::from_utf8_lossy(&output.stderr);
    (serde_json::from_slice(&output.stdout).expect(&words), output.status.success())
}

#[test]
fn a_server_that_is_away_when_a_key_is_revoked_is_named_and_refuses_it_when_it_is_back() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let one = |id: &str| Serving::start(&["serve", "--config", &cluster, "--server", id]);
    let servers = [one("0"), one("1")];
    // No administrators' key is beside it.
    std::fs::create_dir(home.path("user")).unwrap();
    let lab = home.text("user/key.lab");
    let (added, is_done) = as_json(&["key", "add", "lab", &cluster, "--read-only", "--out", &lab]);
    assert!(is_done && added["unreachable"] == json!([]), "{added}");
    assert_eq!(added["wrote"], lab);
    let ping = |port: u16| run(&["ping", &format!("shoal://127.0.0.1:{port}/demo"), "--key", &lab]);
    soon("both let it in", || ports.iter().all(|port| ping(*port).status.success()));
    let [first, second] = servers;
    second.stop();

    let (revoked, is_done) = as_json(&["key", "revoke", "lab", &cluster]);
    assert!(!is_done, "a server does not know of it: {revoked}");
    assert_eq!((&revoked["informed"], &revoked["unreachable"]), (&json!([0]), &json!([1])));
    assert_eq!(revoked["left"], json!(["first"]));
    let second = one("1");
    let begin = Instant::now();
    let words = format!("127.0.0.1:{}: this key was revoked: lab", ports[1]);
    soon("it refuses the key", || String::from_utf8_lossy(&ping(ports[1]).stderr).contains(&words));
    assert!(begin.elapsed() < REVOKED_WITHIN, "{:?}", begin.elapsed());
    let (again, is_done) = as_json(&["key", "revoke", "lab", &cluster]);
    assert!(is_done && again["unreachable"] == json!([]), "{again}");
    let (listed, _) = as_json(&["key", "list", &cluster]);
    let key = &listed["mount_keys"][0];
    assert_eq!((&key["name"], &key["id"]), (&json!("lab"), &added["id"]));
    assert!(key["revoked"] == true && key["read_only"] == true && listed["servers_answer"] == true);
    first.stop();
    second.stop();
}

#[test]
fn root_on_a_mount_with_a_squash_root_key_is_nobody_to_servers() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    if !std::path::Path::new("/dev/fuse").exists() || !is_root() {
        return skipped("a mount with a squash-root key: it needs /dev/fuse and root");
    }
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let mut serving = Serving::start(&["serve", "--config", &cluster]);
    assert!(said(&["key", "add", "guests", &cluster, "--squash-root"]).contains("key.guests"));
    assert!(said(&["key", "list", &cluster]).contains("squash-root"));
    let (mnt, key) = (home.text("mnt"), home.text("cluster/key.guests"));
    let mut mount = Serving::start(&["mount", &dir, &mnt, "--key", &key]);
    let (file, sub) = (home.path("mnt/file"), home.path("mnt/dir"));
    std::fs::write(&file, b"here").unwrap();
    std::fs::create_dir(&sub).unwrap();
    for made in [&file, &sub] {
        let meta = std::fs::metadata(made).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (NOBODY, NOBODY), "{}", made.display());
    }
    let mode = |bits| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(bits));
    let trusted = || {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "trusted.a", b"v", flags).map_err(std::io::Error::from)
    };
    for refused in [chown(&file, Some(0), None), chown(&file, None, Some(5)), mode(0o4755), trusted()] {
        let errno = refused.err().and_then(|error| error.raw_os_error());
        assert_eq!(errno, Some(rustix::io::Errno::PERM.raw_os_error()));
    }
    mode(0o755).unwrap();
    std::fs::write(&file, b"there").unwrap();
    let meta = std::fs::metadata(&file).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777, meta.len()), (NOBODY, 0o755, 5));
    for one in [&mut mount, &mut serving] {
        one.signal(rustix::process::Signal::TERM);
        one.wait();
    }
}

#[test]
fn a_mount_whose_key_is_revoked_fails_every_call_with_that_error_within_ten_seconds() {
    if !std::path::Path::new("/dev/fuse").exists() {
        return skipped("a mount with a key that is revoked: there is no /dev/fuse");
    }
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let mut serving = Serving::start(&["serve", "--config", &cluster]);
    said(&["key", "add", "lab", &cluster]);
    let (mnt, lab) = (home.text("mnt"), home.text("cluster/key.lab"));
    let mut mount = Serving::start(&["mount", &dir, &mnt, "--key", &lab]);
    let file = home.path("mnt/file");
    std::fs::write(&file, b"here").unwrap();
    let held = std::fs::File::open(&file).unwrap();
    said(&["key", "revoke", "lab", &cluster]);
    let begin = std::time::Instant::now();
    let is_refused = |done: std::io::Result<()>| {
        done.err().and_then(|error| error.raw_os_error())
            == Some(rustix::io::Errno::KEYREVOKED.raw_os_error())
    };
    let look = || std::fs::metadata(&file).map(drop);
    soon("the mount says that its key was revoked", || is_refused(look()));
    let make = || std::fs::create_dir(home.path("mnt/made"));
    soon("a change is refused so too", || is_refused(make()));
    let read = || std::os::unix::fs::FileExt::read_at(&held, &mut [0; 4], 0).map(drop);
    soon("and a read of an open file", || is_refused(read()));
    assert!(begin.elapsed() < std::time::Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(held);
    mount.signal(rustix::process::Signal::TERM);
    mount.wait();
    serving.signal(rustix::process::Signal::TERM);
    serving.wait();
}
