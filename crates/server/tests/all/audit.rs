//! The audit log of a real server's file: each event has its line, a flood does not fill it, and a file that
//! cannot be written fails nothing but the start.

use crate::raw::*;
use crate::roles::{ADMIN_KEY, managing, status_of};
use serde_json::{Value, json};
use shoal_env::Env;
use shoal_proto::{
    ClientId, Handle, KeyLimits, MountKey, MountKeyId, Op, SecretKey, ServerId, Status, samples,
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
                until(&env, || found(&lines(&file), "managed", &known) == 1).await;
            }
            assert_eq!(found(&lines(&file), "managed", &known), 1, "{name}");
        }
        let all: BTreeSet<&str> =
            samples::ops().iter().filter(|op| op.is_management()).map(Op::name).collect();
        let noted = lines(&file);
        let managed = noted.iter().filter(|line| line["event"] == "managed");
        assert_eq!(managed.filter_map(|line| line["operation"].as_str()).collect::<BTreeSet<_>>(), all);

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
        until(&env, || found(&lines(&file), "disconnected", &is_lost) == 1).await;
        stop(&mut cluster).await;

        let noted = lines(&file);
        let fingerprint = ADMIN_KEY.fingerprint();
        assert_eq!(
            (&noted[0]["event"], &noted.last().unwrap()["event"]),
            (&json!("started"), &json!("stopped"))
        );
        assert_eq!(noted[0]["file_systems"][0]["fingerprints"]["admin"], json!(fingerprint));
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

        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
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
        let sync = Op::Setsync { metadata: "fsync".into(), data: "".into(), coalescing: "".into() };
        assert_eq!(chief.ask(vec![sync]).await.status, Status::Ok);
        stop(&mut cluster).await;
        let noted = lines(&file);
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
fn a_log_that_cannot_be_written_fails_no_operation_is_said_by_status_and_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let (file, elsewhere) = (file_in(&dir), dir.path().join("elsewhere"));
    run(|env| async move {
        let mut cluster = audited(&env, &file).await;
        let mut chief = admin(&cluster).await;
        until(&env, || found(&lines(&file), "connected", &json!({})) == 1).await;
        // Another user's link takes its place while the server runs.
        std::fs::write(&elsewhere, b"").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        let sync = |word: &str| Op::Setsync { metadata: word.into(), data: "".into(), coalescing: "".into() };
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
    let missing = at("no folder/audit.log");
    run(|env| async move {
        let mut cluster = audited(&env, &good).await;
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
        cluster.audit = Some(AuditConfig { file: good.clone(), bytes_max: BYTES_MAX });
        cluster.start(0).await;
        stop(&mut cluster).await;
        let events: Vec<Value> = lines(&good).iter().map(|line| line["event"].clone()).collect();
        assert_eq!(events.last().unwrap(), "stopped");
        assert_eq!(events.iter().filter(|event| *event == "stopped").count(), 1);
    });
}
