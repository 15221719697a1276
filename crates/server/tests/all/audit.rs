//! Tests of a server's audit log in a real file. Each event has its line, and a flood of events does not fill
//! the log. If the file cannot be written, no operation fails; if it cannot be opened, the server does not
//! start.

use crate::raw::*;
use crate::roles::{ADMIN_KEY, managing, status_of};
use serde_json::{Value, json};
use shoal_env::Env;
use shoal_proto::{
    ClientId, CollectionId, Handle, KeyLimits, MountKey, MountKeyId, Op, Roles, SecretKey, ServerId, Status,
    samples,
};
use shoal_server::{AuditConfig, ServeError};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

const BYTES_MAX: u64 = 1 << 20;

/// A server with an admin key and an audit log.
async fn audited(env: &Env, file: &Path) -> Cluster {
    let mut cluster = Cluster::new(env, 1).await;
    cluster.kill(0);
    cluster.keys.admin = Some(ADMIN_KEY);
    cluster.audit = Some(AuditConfig { file: file.to_owned(), bytes_max: BYTES_MAX });
    cluster.start(0).await;
    cluster
}

async fn admin(cluster: &Cluster) -> Raw {
    let wish = Wish { key: ADMIN_KEY, client: ClientId([99; 16]), ..Wish::default() };
    Raw::attach(cluster, 0, wish).await.unwrap()
}

async fn stop(cluster: &mut Cluster) {
    cluster.servers[0].take().unwrap().stop().await.unwrap();
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    // The last one may be half written at this moment.
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The file of connections beside that of administrators.
fn connections(file: &Path) -> PathBuf {
    file.with_extension("log.connections")
}

/// The lines of both.
fn all(file: &Path) -> Vec<Value> {
    [lines(file), lines(&connections(file))].concat()
}

fn sync(word: &str) -> Op {
    Op::Setsync { metadata: word.into(), data: "".into(), coalescing: "".into() }
}

/// Lines of an event whose fields have these values.
fn found(lines: &[Value], event: &str, fields: &Value) -> usize {
    let fields = fields.as_object().unwrap();
    let is_it = |line: &&Value| line["event"] == event && fields.iter().all(|(name, v)| line[name] == *v);
    lines.iter().filter(is_it).count()
}

fn file_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("audit.log")
}

#[test]
fn connections_refusals_and_every_operation_that_manages_have_lines_with_who_and_what() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        for op in managing(&cluster) {
            let (name, looks) = (op.name(), matches!(op, Op::Rows { .. } | Op::Checkfiles { .. }));
            let status = status_of(&mut chief, op).await;
            // The reply waited for its line.
            let known = json!({
                "operation": name, "role": "admin", "key": "admin", "result": format!("{status:?}"),
                "client": "63".repeat(16), "file_system": "test", "server": 0,
            });
            if looks {
                until(&env, || found(&all(&file), "managed", &known) == 1).await;
            }
            let noted = if looks { lines(&connections(&file)) } else { lines(&file) };
            assert_eq!(found(&noted, "managed", &known), 1, "{name}");
        }
        let names: BTreeSet<&str> =
            samples::ops().iter().filter(|op| op.is_management()).map(Op::name).collect();
        let noted = all(&file);
        let managed = noted.iter().filter(|line| line["event"] == "managed");
        assert_eq!(managed.filter_map(|line| line["operation"].as_str()).collect::<BTreeSet<_>>(), names);

        // A key that is added, used, revoked and used again.
        let lab =
            MountKey { id: MountKeyId(7), name: "lab".into(), limits: KeyLimits::READ_ONLY, revoked: false };
        let revoked = MountKey { revoked: true, ..lab.clone() };
        assert_eq!(chief.ask(vec![Op::Setkey { key: lab.clone() }]).await.status, Status::Ok);
        let holder = || Wish {
            key: cluster.keys.named(&FS, lab.id),
            mount: lab.id,
            client: ClientId([5; 16]),
            ..Wish::default()
        };
        let mut reader = Raw::attach(&cluster, 0, holder()).await.unwrap();
        assert_eq!(reader.change(vec![mkdir(Handle::ROOT, &name("d"))]).await.status, Status::ReadOnly);
        assert_eq!(chief.ask(vec![Op::Setkey { key: revoked }]).await.status, Status::Ok);
        let again = Raw::attach(&cluster, 0, holder()).await.err().unwrap();
        assert_eq!(again.status, Status::KeyRevoked);
        let sessions = || cluster.shard(0).sessions.len();
        let before = sessions();
        until(&env, || sessions() < before).await;

        // A mount key manages nothing; other keys are no keys.
        let mut user = cluster.client(0).await;
        assert_eq!(status_of(&mut user, managing(&cluster).remove(0)).await, Status::Forbidden);
        let wrong = Wish { key: SecretKey::new([1; 32]), ..Wish::default() };
        assert!(Raw::attach(&cluster, 0, wrong).await.is_err());
        let liar = Wish { peer: Some(ServerId(2)), peer_key: KEY, ..Wish::default() };
        assert!(Raw::attach(&cluster, 0, liar).await.is_err());
        let session = user.attached.session;
        drop(user);
        let is_lost = json!({ "key": "first", "reason": "lost" });
        until(&env, || found(&all(&file), "disconnected", &is_lost) == 1).await;
        stop(&mut cluster).await;

        let noted = lines(&file);
        assert!(noted.iter().all(|line| line["role"].is_null() || line["role"] == "admin"), "{noted:#?}");
        let fingerprint = ADMIN_KEY.fingerprint();
        assert_eq!(
            (&noted[0]["event"], &noted.last().unwrap()["event"]),
            (&json!("started"), &json!("stopped"))
        );
        assert_eq!(noted[0]["file_systems"][0]["fingerprints"]["admin"], json!(fingerprint));
        let noted = all(&file);
        for (event, fields) in [
            ("connected", json!({ "role": "admin", "key": "admin", "manages": null })),
            ("connected", json!({ "role": "mount", "key": "first", "client": "01".repeat(16) })),
            ("connected", json!({ "role": "mount", "key": "lab", "read_only": true })),
            ("session_began", json!({ "key": "lab" })),
            ("session_ended", json!({ "key": "lab", "reason": "KeyRevoked" })),
            ("disconnected", json!({ "key": "lab", "reason": "KeyRevoked" })),
            ("refused", json!({ "key": "lab", "operation": "mkdir", "reason": "ReadOnly", "role": "mount" })),
            ("refused", json!({ "key": "first", "operation": "addserver", "reason": "Forbidden" })),
            ("refused", json!({ "key": "lab", "role": "mount", "reason": "KeyRevoked", "operation": null })),
            (
                "refused",
                json!({ "claimed_key": "first", "claimed_role": "client", "reason": "BadKey", "key": null }),
            ),
            ("refused", json!({ "claimed_key": "server", "claimed_role": "server", "reason": "BadKey" })),
            ("managed", json!({ "operation": "setkey", "result": "Ok", "role": "admin" })),
        ] {
            assert!(found(&noted, event, &fields) > 0, "{event} {fields}: {noted:#?}");
        }
        let added = noted.iter().find(|line| line["object"]["key"] == "lab").unwrap();
        assert_eq!(added["object"]["read_only"], true);
        for line in &noted {
            let time = line["time"].as_str().unwrap();
            assert!(time.len() == 27 && time.ends_with('Z') && line["server"] == 0, "{line}");
        }

        for file in [&file, &connections(&file)] {
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let text = [&file, &connections(&file)].map(|file| std::fs::read_to_string(file).unwrap()).concat();
        let keys = [KEY, SERVER_KEY, ADMIN_KEY, cluster.keys.place.clone(), cluster.keys.named(&FS, lab.id)];
        for secret in keys.iter().map(SecretKey::to_hex).chain([session.to_string()]) {
            assert!(!text.contains(&secret), "a secret is in the log");
        }
    });
}

#[test]
fn a_flood_of_refusals_and_an_endless_fsck_leave_room_for_an_administrators_change() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        let rows = || Op::Rows { prefix: b"c"[..].into(), after: b""[..].into(), limit: 1 };
        for _ in 0..300 {
            let wrong = Wish { key: SecretKey::new([1; 32]), ..Wish::default() };
            assert!(Raw::attach(&cluster, 0, wrong).await.is_err());
            assert_eq!(chief.ask(vec![rows()]).await.status, Status::Ok);
        }
        assert_eq!(chief.ask(vec![sync("fsync")]).await.status, Status::Ok);
        stop(&mut cluster).await;
        let noted = all(&file);
        assert_eq!(found(&noted, "managed", &json!({ "operation": "setsync", "result": "Ok" })), 1);
        for (event, of, fields) in [
            ("refused", "refusals", json!({ "reason": "BadKey" })),
            ("managed", "reads", json!({ "operation": "rows" })),
        ] {
            let written = found(&noted, event, &fields);
            assert!((16..150).contains(&written), "{event}: {written}");
            let left_out = noted.iter().filter(|line| line["event"] == "left_out" && line["of"] == of);
            let left_out: u64 = left_out.filter_map(|line| line["count"].as_u64()).sum();
            assert_eq!(written as u64 + left_out, 300, "{event}");
        }
    });
}

#[test]
fn connections_and_refusals_beyond_all_bounds_leave_the_line_of_an_administrators_change_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    let bytes_max = 8 << 10;
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        stop(&mut cluster).await;
        let file = file.with_file_name("small.log");
        cluster.audit = Some(AuditConfig { file: file.clone(), bytes_max });
        cluster.start(0).await;
        let mut chief = admin(&cluster).await;
        assert_eq!(chief.ask(vec![sync("fsync")]).await.status, Status::Ok);
        for _ in 0..100 {
            let wrong = Wish { key: SecretKey::new([1; 32]), ..Wish::default() };
            assert!(Raw::attach(&cluster, 0, wrong).await.is_err());
            drop(cluster.client(0).await);
        }
        stop(&mut cluster).await;
        let former = connections(&file).with_extension("connections.1");
        let kept = [connections(&file), former].map(|file| std::fs::metadata(file).unwrap().len());
        let written: usize = lines(&connections(&file)).len();
        assert!(kept.iter().all(|len| *len <= bytes_max) && written < 100, "{kept:?}, {written}");
        let noted = lines(&file);
        assert_eq!(found(&noted, "managed", &json!({ "operation": "setsync", "result": "Ok" })), 1);
        assert_eq!(
            (&noted[0]["event"], &noted.last().unwrap()["event"]),
            (&json!("started"), &json!("stopped"))
        );
    });
}

#[test]
fn a_holder_of_the_servers_key_that_manages_or_sends_another_map_has_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let wish = Wish { peer: Some(ServerId(2)), client: ClientId([9; 16]), ..Wish::default() };
        let mut thief = Raw::attach(&cluster, 0, wish).await.unwrap();
        let key =
            MountKey { id: MountKeyId(7), name: "back".into(), limits: KeyLimits::default(), revoked: false };
        assert_eq!(thief.ask(vec![Op::Setkey { key }]).await.status, Status::Ok);
        let by = json!({ "role": "server", "peer_server": 2, "operation": "setkey", "result": "Ok" });
        assert_eq!(found(&lines(&file), "managed", &by), 1, "the reply waited for it");
        let mut map = shoal_proto::ClusterMap::clone(&cluster.shard(0).identity().map);
        let known = Op::Setmap { map: map.clone() };
        assert_eq!(thief.ask(vec![known]).await.status, Status::Ok);
        let door =
            MountKey { id: MountKeyId(8), name: "door".into(), limits: KeyLimits::default(), revoked: false };
        map.set_key(&door).unwrap();
        assert_eq!(thief.ask(vec![Op::Setmap { map: map.clone() }]).await.status, Status::Ok);
        stop(&mut cluster).await;
        let noted = lines(&file);
        let object = json!({
            "epoch": map.epoch, "before": map.epoch - 1, "keys": [{ "key": "door", "revoked": false }],
        });
        assert_eq!(
            found(&noted, "map_taken", &json!({ "peer_server": 2, "object": object })),
            1,
            "{noted:#?}"
        );
        let taken: Vec<&Value> = noted.iter().filter(|line| line["event"] == "map_taken").collect();
        assert!(taken.len() == 1 && taken[0]["peer"].is_string(), "a known map has no line: {taken:?}");
    });
}

#[test]
fn a_change_that_is_sent_again_and_answered_by_the_kept_reply_has_a_line_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        let added = || Op::Addserver { addresses: vec!["local:nowhere".into()].into(), roles: Roles::all() };
        for _ in 0..2 {
            let reply = chief.change_in(slot(0, 1), vec![added()]).await;
            assert_eq!(reply.status, Status::Ok);
        }
        let of = |again| json!({ "operation": "addserver", "result": "Ok", "key": "admin", "again": again });
        let noted = lines(&file);
        assert_eq!(found(&noted, "managed", &of(json!(null))), 1, "{noted:#?}");
        assert_eq!(found(&noted, "managed", &of(json!(true))), 1, "{noted:#?}");
        stop(&mut cluster).await;
    });
}

#[test]
fn a_connection_that_is_refused_after_its_proof_is_noted_by_the_key_that_it_proved() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        for key in [KEY, ADMIN_KEY] {
            let wish = Wish { key, collection: CollectionId(9), ..Wish::default() };
            let refused = Raw::attach(&cluster, 0, wish).await.err().unwrap();
            assert_eq!(refused.status, Status::BadCollection);
        }
        stop(&mut cluster).await;
        let noted = lines(&connections(&file));
        for (role, key) in [("mount", "first"), ("admin", "admin")] {
            let fields = json!({
                "reason": "BadCollection", "role": role, "key": key, "client": "01".repeat(16),
                "claimed_key": null, "claimed_role": null,
            });
            assert_eq!(found(&noted, "refused", &fields), 1, "{noted:#?}");
        }
    });
}

#[test]
fn a_file_of_connections_that_cannot_be_written_is_said_by_status_and_holds_up_no_administrators_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        // In one step: the log's writer makes a file that is not there.
        symlink(file.with_file_name("elsewhere"), file.with_file_name("link")).unwrap();
        std::fs::rename(file.with_file_name("link"), connections(&file)).unwrap();
        drop(cluster.client(0).await);
        until(&env, || cluster.shard(0).audit.status()["problem"].is_string()).await;
        let status = cluster.shard(0).audit.status();
        let problem = status["problem"].as_str().unwrap();
        assert!(problem.contains("audit.log.connections") && problem.contains("symbolic link"), "{problem}");
        assert_eq!(chief.ask(vec![sync("fsync")]).await.status, Status::Ok);
        assert_eq!(found(&lines(&file), "managed", &json!({ "operation": "setsync" })), 1);
        std::fs::remove_file(connections(&file)).unwrap();
        stop(&mut cluster).await;
        assert!(found(&lines(&connections(&file)), "connected", &json!({ "key": "first" })) > 0);
    });
}

#[test]
fn two_servers_do_not_write_one_audit_log() {
    let dir = tempfile::tempdir().unwrap();
    let file = file_in(&dir);
    run(|env| async move {
        let mut first = audited(&env, &file).await;
        let before = std::fs::read(&file).unwrap();
        let mut second = Cluster::new(&env, 1).await;
        second.kill(0);
        second.audit = first.audit.clone();
        match second.try_start(0).await {
            Err(ServeError::Audit(path, error)) => {
                assert!(path == file && error.to_string().contains("another server writes it"), "{error}");
            }
            other => panic!("{:?}", other.err()),
        }
        assert!(std::fs::read(&file).unwrap().starts_with(&before));
        stop(&mut first).await;
        assert_eq!(found(&lines(&file), "started", &json!({})), 1);
    });
}

#[test]
fn a_log_that_cannot_be_written_fails_no_operation_is_said_by_status_and_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (file, elsewhere) = (file_in(&dir), dir.path().join("elsewhere"));
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        until(&env, || found(&lines(&file), "connected", &json!({ "role": "admin" })) == 1).await;
        // Another user's link takes its place while the server runs.
        std::fs::write(&elsewhere, b"").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(chief.ask(vec![sync("fsync")]).await.status, Status::Ok);
        let status = cluster.shard(0).audit.status();
        let problem = status["problem"].as_str().expect("it is said");
        assert!(problem.contains("a symbolic link is in its place"), "{problem}");
        assert_eq!(status["waiting"], 1);
        // The next reply does not wait for it longer than its limit.
        let begin = env.now();
        assert_eq!(chief.ask(vec![sync("reply")]).await.status, Status::Ok);
        assert!(env.now().since(begin) < std::time::Duration::from_secs(5));
        std::fs::remove_file(&file).unwrap();
        until(&env, || cluster.shard(0).audit.status()["problem"].is_null()).await;
        stop(&mut cluster).await;
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"", "no link is followed");
        let noted = lines(&file);
        assert_eq!(found(&noted, "managed", &json!({ "operation": "setsync" })), 2);
        assert_eq!(noted.last().unwrap()["event"], "stopped");
    });
}

#[test]
fn a_server_whose_audit_log_cannot_be_opened_does_not_begin_and_begins_without_one_or_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (good, link, open, foreign) = (file_in(&dir), at("link"), at("open"), at("foreign"));
    symlink(at("elsewhere"), &link).unwrap();
    for (path, mode) in [(&open, 0o644), (&foreign, 0o600)] {
        std::fs::write(path, b"something else").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let (missing, good_once_more) = (at("no folder/audit.log"), good.clone());
    run(|env| async move {
        let mut cluster = audited(&env, &good).await;
        until(&env, || found(&lines(&good), "started", &json!({})) == 1).await;
        // A kill: no line says that it stopped.
        cluster.kill(0);
        for (bad, words) in
            [(&link, "symbolic link"), (&open, "644"), (&foreign, "no audit log"), (&missing, "No such file")]
        {
            cluster.audit = Some(AuditConfig { file: bad.clone(), bytes_max: BYTES_MAX });
            match cluster.try_start(0).await {
                Err(ServeError::Audit(path, error)) => {
                    assert!(path == *bad && error.to_string().contains(words), "{error}");
                }
                other => panic!("{:?}", other.err()),
            }
        }
        assert!(!link.with_file_name("elsewhere").exists());
        assert_eq!(std::fs::read(&foreign).unwrap(), b"something else");
    });
    // The process has ended, and so has its lock.
    run(|env| async move {
        let good = good_once_more;
        let mut cluster = audited(&env, &good).await;
        stop(&mut cluster).await;
        let events: Vec<Value> = lines(&good).iter().map(|line| line["event"].clone()).collect();
        assert_eq!(events.last().unwrap(), "stopped");
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        assert_eq!((count("started"), count("stopped")), (2, 1), "{events:?}");
    });
}
