//! Events that an operator meets within a month, apart from moves: keys that are wrong, folders that others
//! can look into, logs that grow, mounts that a stop signal takes away.

use crate::program::*;
use rustix::process::Signal;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn folders_of_servers_are_theirs_alone_and_one_that_everybody_could_look_into_is_narrowed() {
    let home = Home::new();
    let data = home.text("data");
    // Whatever the umask is.
    let up = Serving::start(&["up", &data, "--servers", "2"]);
    up.stop();
    let (store, journal) = (home.path("data/server-1/demo"), home.path("data/server-1/demo/journal"));
    for folder in [&home.path("data"), &home.path("data/server-1"), &store, &journal] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    let (cluster, _) = home.cluster(1);
    Serving::start(&["serve", "--config", &cluster]).stop();
    assert_eq!((mode(&home.path("cluster/s0")), mode(&home.path("cluster/s0/demo"))), (0o700, 0o700));
    // As an older version made it; and as an operator chose.
    let set = |mode| std::fs::set_permissions(&store, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o755);
    let told = Serving::start(&["up", &data]).stop();
    assert!(told.contains("everybody could look into") && told.contains("755"), "{told}");
    assert_eq!(mode(&store), 0o700);
    set(0o750);
    let told = Serving::start(&["up", &data]).stop();
    assert!(!told.contains("look into") && mode(&store) == 0o750, "{told}");
}

#[test]
fn a_failed_authentication_is_a_warning_with_the_peers_address_and_many_are_few_warnings() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    let text = std::fs::read_to_string(home.path("cluster/key")).unwrap();
    let key: toml::Table = toml::from_str(&text).unwrap();
    let other = home.path("other");
    std::fs::write(&other, text.replace(key["key"].as_str().unwrap(), &"5a".repeat(32))).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let root = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let begin = Instant::now();
    for _ in 0..20 {
        refused(&["ls", &root, "--key", other.to_str().unwrap()], &["key"]);
    }
    let warnings = || -> Vec<String> {
        let told = serving.told();
        told.lines().filter(|line| line.contains("authentication failed")).map(str::to_owned).collect()
    };
    soon("the server warns", || !warnings().is_empty());
    let (told, most) = (warnings(), begin.elapsed().as_secs() / 10 + 1);
    assert!(told[0].contains("WARN") && told[0].contains("tcp:127.0.0.1:"), "{told:?}");
    assert!(told.len() as u64 <= most, "{told:?}");
    said(&["ls", &root, "--key", &home.text("cluster/key")]);
    serving.stop();
}

#[test]
fn servers_with_another_key_than_their_names_are_placed_by_are_refused_and_begin_with_the_first_again() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "2"]);
    let (file, key) = (format!("{}/file", up.root().trim_end_matches('/')), home.text("data/key"));
    said(&["cp", "--quiet", &home.file("file", b"here"), &file, "--key", &key]);
    up.stop();
    let places = home.text("data/key.server");
    let first = std::fs::read_to_string(&places).unwrap();
    let secret = first.parse::<toml::Table>().unwrap()["place"].as_str().unwrap().to_owned();
    std::fs::write(&places, first.replace(&secret, &"5a".repeat(32))).unwrap();
    // Each start writes the tables' lock file, and spare segments of the journal, which hold no record.
    let contents = || {
        let is_segment = |path: &Path| path.extension().is_some_and(|ending| ending == "seg");
        let mut found = listing(&home.path("data/server-0/demo"));
        found.retain(|(path, _)| !path.ends_with("lock.mdb") && !is_segment(path));
        found
    };
    let before = contents();
    for args in [vec!["up", &data], vec!["serve", "--config", &data, "--server", "0"]] {
        refused(&args, &["server-0/demo", "another key", "restore the key files"]);
    }
    assert_untouched(&before, &contents());
    std::fs::write(&places, first).unwrap();
    let up = Serving::start(&["up", &data]);
    assert_eq!(said(&["cat", &file, "--key", &key]), "here");
    up.stop();
}

#[test]
fn the_log_of_a_mount_in_the_background_is_on_disk_is_named_and_stays_small() {
    if !is_root() {
        return;
    }
    const BYTES: u64 = 20_000;
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data]);
    let (mnt, state) = (home.text("mnt"), home.text("state"));
    std::fs::create_dir(&mnt).unwrap();
    let mut command = shoal();
    command.args(["mount", &up.root(), &mnt, "--key", &home.text("data/key"), "--background", "--json"]);
    command.env("XDG_STATE_HOME", &state).env("SHOAL_LOG", "debug");
    let done = command.env("SHOAL_LOG_BYTES", BYTES.to_string()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let told: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let log = Path::new(told["messages"].as_str().unwrap()).to_owned();
    assert!(log.starts_with(home.path("state/shoal")), "{}", log.display());
    assert_eq!((mode(&log), mode(log.parent().unwrap())), (0o600, 0o700));
    let former = log.with_extension("log.1");
    // A message each, about a requested object that is not there.
    let missing = home.path("mnt/missing");
    let look = || assert!(!missing.exists());
    soon("it has been set aside", || {
        (0..50).for_each(|_| look());
        former.exists()
    });
    (0..500).for_each(|_| look());
    let len = |path: &Path| std::fs::metadata(path).unwrap().len();
    // The additional length of one message.
    assert!(len(&log) < BYTES + 4096 && len(&former) < BYTES + 4096);
    assert_eq!(std::fs::read_dir(log.parent().unwrap()).unwrap().count(), 2);
    said(&["umount", &mnt]);
    up.stop();
    // Nothing to mount: the error names the log, and its contents.
    let failed = mount_of_nobody(&home, &state, &mnt);
    assert!(failed.contains("refused") && failed.contains(log.to_str().unwrap()), "{failed}");
}

fn mount_of_nobody(home: &Home, state: &str, mnt: &str) -> String {
    let mut command = shoal();
    let port = free_ports(1)[0];
    let root = format!("shoal://127.0.0.1:{port}/demo");
    command.args(["mount", &root, mnt, "--key", &home.text("data/key"), "--background"]);
    let done = command.env("XDG_STATE_HOME", state).output().unwrap();
    assert!(!done.status.success());
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn a_stop_signal_takes_a_mount_away_from_its_users_and_names_what_covers_one() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let up = Serving::start(&["up", &home.text("data")]);
    let (mnt, root, key) = (home.text("mnt"), up.root(), home.text("data/key"));
    let mount = || Serving::start(&["mount", &root, &mnt, "--key", &key]);
    std::fs::create_dir(&mnt).unwrap();
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap().matches(&mnt).count();
    // In use.
    let serving = mount();
    let mut open = std::fs::File::create(home.path("mnt/file")).unwrap();
    let told = serving.stop();
    assert!(told.contains(&mnt) && told.contains("it is taken away from its users"), "{told}");
    assert!(open.write_all(b"more").is_err());
    assert_eq!(mounts(), 0);
    // Covered: the process ends, and leaves a dead mount where it cannot reach it.
    let mut serving = mount();
    let Some(cover) = Mounted::new(&["-t", "tmpfs", "tmpfs"], &home.path("mnt")) else { return };
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(1));
    let told = serving.told();
    for words in ["cannot unmount", "tmpfs (tmpfs) is mounted over it", "unmount that first"] {
        assert!(told.contains(words), "`{words}` is missing: {told}");
    }
    drop(cover);
    assert_eq!(mounts(), 1);
    assert_eq!(std::fs::read_dir(&mnt).unwrap_err().raw_os_error(), Some(107), "ENOTCONN");
    let serving = mount();
    assert_eq!(std::fs::read(home.path("mnt/file")).unwrap(), b"");
    serving.stop();
    assert_eq!(mounts(), 0);
    up.stop();
}
