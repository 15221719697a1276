//! Audit logs of real servers: the lines of the program's own commands, a log file that cannot be made or
//! written, and a full disk.

use crate::program::*;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// The lines of connections, and then those of what administrators did.
fn lines(file: &Path) -> Vec<Value> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".connections");
    [lines_of(Path::new(&beside)), lines_of(file)].concat()
}

fn lines_of(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[track_caller]
fn has(lines: &[Value], event: &str, fields: &Value) {
    let fields = fields.as_object().unwrap();
    let is_it = |line: &Value| line["event"] == event && fields.iter().all(|(name, v)| line[name] == *v);
    assert!(lines.iter().any(is_it), "{event} {fields:?}: {lines:#?}");
}

/// `audit = FILE` for the first server.
fn audit(home: &Home, file: &str) {
    let path = home.path("cluster/cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let folder = "folder = \"s0\"";
    std::fs::write(&path, text.replacen(folder, &format!("{folder}\naudit = \"{file}\""), 1)).unwrap();
}

#[test]
fn commands_of_users_and_administrators_and_keys_that_are_none_have_lines_in_each_servers_log() {
    let home = Home::new();
    let cluster = home.text("cluster");
    let ports = free_ports(2);
    let named: Vec<String> =
        ports.iter().enumerate().map(|(id, port)| format!("tcp:127.0.0.1:{port}=s{id}")).collect();
    said(&["init", &cluster, "--server", &named[0], "--server", &named[1], "--audit", "audit.log"]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    let root = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    std::fs::create_dir(home.path("user")).unwrap();
    let (first, user, lab) = (home.text("cluster/key"), home.text("user/key"), home.text("user/key.lab"));
    std::fs::copy(&first, &user).unwrap();
    let content = home.file("content", b"here");
    said(&["cp", "--quiet", &content, &format!("{root}/one"), "--key", &user]);
    said(&["key", "add", "lab", &cluster, "--out", &lab]);
    said(&["ls", &root, "--key", &lab]);
    said(&["key", "revoke", "lab", &cluster]);
    refused(&["ls", &root, "--key", &lab], &["this key was revoked: lab"]);
    said(&["sync", &root, "--metadata", "fsync", "--key", &first]);
    refused(&["sync", &root, "--metadata", "reply", "--key", &user], &["key.admin"]);
    let wrong = home.text("user/wrong");
    let text = std::fs::read_to_string(&user).unwrap();
    let (before, after) = text.split_once("key = \"").unwrap();
    std::fs::write(&wrong, format!("{before}key = \"{}{}", "0".repeat(64), &after[64..])).unwrap();
    std::fs::set_permissions(&wrong, std::fs::Permissions::from_mode(0o600)).unwrap();
    refused(&["ls", &root, "--key", &wrong], &["is this the right key file?"]);
    serving.stop();

    let noted = [lines(&home.path("cluster/s0/audit.log")), lines(&home.path("cluster/s1/audit.log"))];
    for (id, noted) in noted.iter().enumerate() {
        assert!(noted.iter().all(|line| line["server"] == id), "each names its server");
        has(noted, "started", &json!({}));
        has(noted, "connected", &json!({ "role": "mount", "key": "first", "file_system": "demo" }));
        has(noted, "connected", &json!({ "role": "server", "peer_server": 1 - id }));
        has(noted, "managed", &json!({ "operation": "setsync", "role": "admin", "result": "Ok" }));
        assert_eq!(noted.last().unwrap()["event"], "stopped");
    }
    let all = noted.concat();
    has(&all, "managed", &json!({ "operation": "setkey", "key": "admin", "result": "Ok" }));
    has(&all, "connected", &json!({ "role": "mount", "key": "lab" }));
    has(&all, "refused", &json!({ "role": "mount", "key": "lab", "reason": "KeyRevoked" }));
    has(
        &all,
        "refused",
        &json!({ "role": "mount", "key": "first", "operation": "setsync", "reason": "Forbidden" }),
    );
    // The client sees first that the server has another key.
    has(&all, "refused", &json!({ "reason": "RefusedByPeer", "claimed_reason": "BadKey", "role": null }));
    assert!(all.iter().filter(|line| line["event"] == "refused").all(|line| line["peer"].is_string()));
}

#[test]
fn a_server_that_is_to_have_an_audit_log_does_not_begin_where_that_cannot_be() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    let serve = ["serve", "--config", &cluster];
    std::fs::create_dir(home.path("logs")).unwrap();
    audit(&home, &home.text("logs/audit.log"));
    let log = home.path("logs/audit.log");
    let remedy = ["logs/audit.log", "the server is to have an audit log", "name another file"];
    let is_refused = |words: &str| refused(&serve, &[&remedy[..], &[words]].concat());

    symlink(home.path("elsewhere"), &log).unwrap();
    is_refused("a symbolic link is in its place");
    assert!(!home.path("elsewhere").exists());
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    is_refused("Is a directory");
    std::fs::remove_dir(&log).unwrap();
    std::fs::write(&log, b"a user's file").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o600)).unwrap();
    is_refused("it is no audit log");
    assert_eq!(std::fs::read(&log).unwrap(), b"a user's file");
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o666)).unwrap();
    is_refused("others may read or change it: its mode is 666");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&log, Some(65_534), None).unwrap();
        is_refused("it belongs to user 65534");
    } else {
        std::fs::remove_file(&log).unwrap();
        std::fs::set_permissions(home.path("logs"), std::fs::Permissions::from_mode(0o500)).unwrap();
        is_refused("Permission denied");
        std::fs::set_permissions(home.path("logs"), std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::remove_dir_all(home.path("logs")).unwrap();
    is_refused("No such file or directory");
    std::fs::create_dir(home.path("logs")).unwrap();
    Serving::start(&serve).stop();
    has(&lines(&log), "stopped", &json!({}));
}

#[test]
fn an_audit_log_in_a_folder_that_cannot_be_written_is_named_at_the_start() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    let logs = home.path("logs");
    audit(&home, &home.text("logs/audit.log"));
    let words = ["logs/audit.log", "let this user write there"];
    if rustix::process::geteuid().is_root() {
        let Some(mounted) = Mounted::new(&["-t", "tmpfs", "-o", "ro,size=64k", "none"], &logs) else {
            return;
        };
        refused(&["serve", "--config", &cluster], &[&words[..], &["Read-only file system"]].concat());
        drop(mounted);
    } else {
        std::fs::create_dir(&logs).unwrap();
        std::fs::set_permissions(&logs, std::fs::Permissions::from_mode(0o500)).unwrap();
        refused(&["serve", "--config", &cluster], &[&words[..], &["Permission denied"]].concat());
    }
}

#[test]
fn an_audit_log_on_a_full_disk_fails_no_operation_is_named_by_status_and_is_written_when_there_is_room() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let logs = home.path("logs");
    let Some(_mounted) = Mounted::new(&["-t", "tmpfs", "-o", "size=64k", "none"], &logs) else { return };
    audit(&home, &home.text("logs/audit.log"));
    let ballast = logs.join("ballast");
    let fill = || {
        let mut file = std::fs::File::create(&ballast).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    };
    fill();
    // It begins on a full disk, too.
    let serving = Serving::start(&["serve", "--config", &cluster]);
    let (root, key) = (format!("shoal://127.0.0.1:{}/demo", ports[0]), home.text("cluster/key"));
    said(&["sync", &root, "--metadata", "fsync", "--key", &key]);
    said(&["cp", "--quiet", &home.file("content", b"here"), &format!("{root}/one"), "--key", &key]);
    let shown = run(&["status", &root, "--key", &key]);
    let words = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(!shown.status.success(), "{words}");
    for word in ["NOT WELL: server 0: the audit log", "logs/audit.log", "No space left", "make room"] {
        assert!(words.contains(word), "`{word}` is missing: {words}");
    }
    std::fs::remove_file(&ballast).unwrap();
    soon("the log is written", || run(&["status", &root, "--key", &key]).status.success());
    let told = serving.stop();
    assert!(told.contains("NOT WELL: server 0: the audit log"), "{told}");
    let noted = lines_of(&logs.join("audit.log"));
    has(&noted, "managed", &json!({ "operation": "setsync", "result": "Ok" }));
    assert_eq!((&noted[0]["event"], &noted.last().unwrap()["event"]), (&json!("started"), &json!("stopped")));
}

#[test]
fn up_gives_all_its_servers_an_audit_log_and_new_ones_too() {
    let home = Home::new();
    let data = home.text("data");
    for bad in ["/tmp/audit.log", "a/b", "..", "demo"] {
        refused(&["up", &data, "--servers", "1", "--audit", bad], &["--audit", bad, "give a name"]);
        assert!(!home.path("data/server-0").exists());
    }
    Serving::start(&["up", &data, "--servers", "1", "--audit", "audit.log"]).stop();
    refused(
        &["up", &data, "--audit", "other.log"],
        &["server 0 has the audit log audit.log", "leave --audit out"],
    );
    Serving::start(&["up", &data, "--servers", "2"]).stop();
    for (id, starts) in [(0, 2), (1, 1)] {
        let noted = lines(&home.path(&format!("data/server-{id}/audit.log")));
        assert_eq!(noted.iter().filter(|line| line["event"] == "started").count(), starts, "server {id}");
    }
}

#[test]
fn servers_that_up_adds_have_the_audit_log_of_the_first_if_that_is_a_name_and_not_a_path() {
    let home = Home::new();
    let data = home.text("data");
    let up = ["up", &data, "--audit", "audit.log", "--servers"];
    Serving::start(&[&up[..], &["1"]].concat()).stop();
    let (config, log) = (home.path("data/cluster.toml"), home.text("elsewhere.log"));
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&config).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&config, text.replacen(from, to, 1)).unwrap();
    };
    let here = "audit = \"audit.log\"";
    change(here, &format!("{here}\naudit_bytes_max = \"1M\""));
    Serving::start(&["up", &data, "--servers", "2"]).stop();
    let text = std::fs::read_to_string(&config).unwrap();
    assert_eq!((text.matches(here).count(), text.matches("audit_bytes_max").count()), (2, 2), "{text}");
    change(here, &format!("audit = \"{log}\""));
    Serving::start(&["up", &data, "--servers", "3"]).stop();
    let text = std::fs::read_to_string(&config).unwrap();
    assert_eq!((text.matches(here).count(), text.matches(&log).count()), (1, 1), "{text}");
}
