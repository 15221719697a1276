//! An attacker on sealed connections: no frame that it changes, adds, repeats or passes on from elsewhere is
//! executed, and the connection ends.

use crate::raw::*;
use shoal_proto::message::{
    Group, Leave, Refusal, Request, VERSION_OF_ENCRYPTION, VERSION_OF_SEALS, VERSIONS,
};
use shoal_proto::seal::SEAL_BYTES;
use shoal_proto::{ClientId, Frame, FrameKind, Handle, Op, Seal, ServerId, SessionId, Status, limits};
use shoal_server::{AuditConfig, Settings};
use std::time::Duration;

fn sealed(seal: Seal) -> Settings {
    Settings { seal_within: seal, ..Settings::default() }
}

/// Finds the byte of a frame in which a bit is flipped.
type Place = fn(&[u8]) -> usize;

/// A change of slot 0, to be sent as these bytes: the directory `text` is made.
fn making(client: &mut Raw, text: &str) -> Vec<u8> {
    client.sequence += 1;
    let groups = vec![Group { ops: vec![mkdir(Handle::ROOT, &name(text))].into() }];
    let request = Request {
        slot: Some(slot(0, client.sequence)),
        timeout_ms: 20_000,
        durability: client.durability,
        groups: groups.into(),
    };
    client.frame_bytes(FrameKind::Request, 100 + client.sequence, &request, b"some data")
}

/// A flipped bit, with checksums that are right again.
fn flipped(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    frame[at] ^= 1;
    with_checksums(frame)
}

fn with_checksums(mut frame: Vec<u8>) -> Vec<u8> {
    let body_len = u32::from_le_bytes(frame[16..20].try_into().unwrap()) as usize;
    let is_encrypted = frame[5] == 2;
    let body = if is_encrypted { 0 } else { crc32c::crc32c(&frame[32..32 + body_len]) };
    frame[24..28].copy_from_slice(&body.to_le_bytes());
    let head = crc32c::crc32c(&frame[..28]);
    frame[28..32].copy_from_slice(&head.to_le_bytes());
    frame
}

/// The statuses of the refusal with which a connection ends, after so many replies.
async fn end_of(client: &mut Raw) -> (usize, Option<Status>) {
    let (mut replies, mut status) = (0, None);
    while let Some(frame) = client.frame().await {
        match frame.kind {
            FrameKind::Reply => replies += 1,
            FrameKind::Refusal => status = Some(frame.message::<Refusal>().unwrap().status),
            kind => panic!("{kind:?}"),
        }
    }
    (replies, status)
}

async fn is_there(cluster: &Cluster, text: &str) -> bool {
    let mut client = cluster.client(0).await;
    client.ask(vec![lookup(Handle::ROOT, &name(text))]).await.status == Status::Ok
}

fn forged(cluster: &Cluster) -> u64 {
    cluster.shard(0).counters.snapshot().forged_frames
}

#[test]
fn a_sealed_connection_serves_all_that_another_does_with_seals_on_heads_on_all_and_encrypted() {
    run(|env| async move {
        for seal in [Seal::Head, Seal::All, Seal::Encrypted] {
            let cluster = Cluster::with(&env, 2, sealed(seal)).await;
            let mut client = cluster.client(0).await;
            assert!(client.ends.is_some());
            // Over both servers, which seal what they say to each other.
            for server in 0..2 {
                cluster.directory_on(&mut client, server).await;
            }
            assert_eq!(cluster.shard(0).peers.is_sealed(ServerId(1)), Some(true));
            let file = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
            assert_eq!(file.status, Status::Ok);
            client.leave(77).await;
            assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
            let peer = Wish { peer: Some(ServerId(1)), ..Wish::default() };
            let mut peer = Raw::attach(&cluster, 0, peer).await.unwrap();
            assert!(peer.ends.is_some());
            assert_eq!(peer.ask(vec![Op::Draw { count: 1 }]).await.status, Status::Ok);
            assert_eq!(forged(&cluster), 0);
        }
    });
}

#[test]
fn no_changed_frame_is_executed_and_its_connection_ends() {
    run(|env| async move {
        for seal in [Seal::All, Seal::Encrypted] {
            let cluster = Cluster::with(&env, 1, sealed(seal)).await;
            // In the head the tag and the kind, in the body a byte of the name, the bulk, and the seal.
            let places: [(&str, Place); 5] = [
                ("kind", |_| 4),
                ("tag", |_| 8),
                ("body", |frame| frame.windows(7).position(|part| part == b"flipped").unwrap_or(40)),
                ("bulk", |frame| frame.len() - SEAL_BYTES - 3),
                ("seal", |frame| frame.len() - 1),
            ];
            for (ended, (what, place)) in places.into_iter().enumerate() {
                let mut client = cluster.client(0).await;
                let first = making(&mut client, &format!("before-{what}"));
                let second = making(&mut client, "flipped");
                let at = place(&second);
                let third = making(&mut client, "after");
                client.put_bytes(&[first, flipped(second, at), third].concat()).await;
                let (replies, status) = end_of(&mut client).await;
                assert!(replies <= 1, "{what}");
                assert_eq!(status, Some(Status::BadMessage), "{what}");
                assert_eq!(forged(&cluster) as usize, ended + 1, "{what}");
                assert!(is_there(&cluster, &format!("before-{what}")).await, "{what}");
                for text in ["flipped", "after", "glipped"] {
                    assert!(!is_there(&cluster, text).await, "{what}: {text}");
                }
            }
        }
    });
}

#[test]
fn a_frame_left_out_repeated_exchanged_reflected_or_stripped_of_its_seal_ends_the_connection() {
    run(|env| async move {
        for seal in [Seal::All, Seal::Encrypted] {
            let cluster = Cluster::with(&env, 1, sealed(seal)).await;
            type Change = fn(Vec<Vec<u8>>, Vec<u8>) -> Vec<Vec<u8>>;
            let changes: [(&str, Change); 6] = [
                ("left out", |mut frames, _| {
                    frames.remove(1);
                    frames
                }),
                ("repeated", |frames, _| vec![frames[0].clone(), frames[0].clone(), frames[2].clone()]),
                ("exchanged", |frames, _| vec![frames[0].clone(), frames[2].clone(), frames[1].clone()]),
                ("reflected", |frames, own| vec![frames[0].clone(), own, frames[1].clone()]),
                ("stripped", |frames, _| {
                    let mut bare = frames[1].clone();
                    bare.truncate(bare.len() - SEAL_BYTES);
                    bare[5] = 0;
                    vec![frames[0].clone(), with_checksums(bare), frames[2].clone()]
                }),
                ("added", |frames, _| {
                    let mut bytes = Vec::new();
                    Frame::put(FrameKind::Leave, VERSIONS.1, 0, &Leave { request: 5 }, 0, &mut bytes);
                    vec![frames[0].clone(), bytes, frames[1].clone()]
                }),
            ];
            for (number, (what, change)) in changes.into_iter().enumerate() {
                let mut client = cluster.client(0).await;
                // The bytes of a reply of this server on this connection.
                let ping = Request {
                    slot: None,
                    timeout_ms: 1000,
                    durability: client.durability,
                    groups: vec![Group { ops: vec![Op::Ping {}].into() }].into(),
                };
                let bytes = client.frame_bytes(FrameKind::Request, 1, &ping, &[]);
                client.put_bytes(&bytes).await;
                let reply = client.some_bytes().await;
                let texts = [1, 2, 3].map(|n| format!("{number}-{n}"));
                let frames = texts.iter().map(|text| making(&mut client, text)).collect();
                client.put_bytes(&change(frames, reply).concat()).await;
                let (replies, status) = end_of(&mut client).await;
                assert!(replies <= 2, "{what}: one is of the ping");
                assert_eq!(status, Some(Status::BadMessage), "{what}");
                assert_eq!(forged(&cluster), number as u64 + 1, "{what}");
                assert!(is_there(&cluster, &texts[0]).await, "{what}");
                for text in &texts[1..] {
                    assert!(!is_there(&cluster, text).await, "{what}");
                }
            }
        }
    });
}

#[test]
fn a_frame_of_another_connection_and_a_whole_recorded_connection_are_refused() {
    run(|env| async move {
        let cluster = Cluster::with(&env, 1, sealed(Seal::All)).await;
        let mut one = cluster.client(0).await;
        let other = Wish { client: ClientId([2; 16]), ..Wish::default() };
        let mut other = Raw::attach(&cluster, 0, other).await.unwrap();
        let relayed = making(&mut one, "relayed");
        other.put_bytes(&relayed).await;
        assert_eq!(end_of(&mut other).await, (0, Some(Status::BadMessage)));
        assert!(!is_there(&cluster, "relayed").await);
        // The recorded connection makes a directory, and ends; the directory is removed.
        let first = one.sent.clone();
        one.put_bytes(&relayed).await;
        let (_, made, _) = one.reply().await;
        assert_eq!(made[0].status, Status::Ok);
        let rmdir = Op::Rmdir { dir: Handle::ROOT, name: name("relayed") };
        assert_eq!(one.change_in(slot(1, 1), vec![rmdir]).await.status, Status::Ok);
        assert!(!is_there(&cluster, "relayed").await);
        for recorded in [first, one.sent.clone()] {
            let mut again = Raw::unattached(&cluster, 0).await;
            again.put_bytes(&recorded).await;
            let challenge = again.frame().await.unwrap();
            assert_eq!(challenge.kind, FrameKind::Challenge);
            let refusal: Refusal = again.frame().await.unwrap().message().unwrap();
            assert_eq!(refusal.status, Status::BadKey, "{}", refusal.words);
            assert!(again.frame().await.is_none());
        }
        assert!(!is_there(&cluster, "relayed").await);
    });
}

#[test]
fn a_stream_that_is_cut_in_a_frame_executes_nothing_of_it_and_the_session_goes_on() {
    run(|env| async move {
        let cluster = Cluster::with(&env, 1, sealed(Seal::All)).await;
        let mut client = cluster.client(0).await;
        let whole = making(&mut client, "cut");
        client.put_bytes(&whole[..whole.len() - 1]).await;
        let session = Some(client.attached.session);
        drop(client);
        assert!(!is_there(&cluster, "cut").await);
        let mut again = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        let bytes = making(&mut again, "cut");
        again.put_bytes(&bytes).await;
        let (_, made, _) = again.reply().await;
        assert_eq!(made[0].status, Status::Ok);
    });
}

/// This is what the setting gives away.
#[test]
fn where_heads_alone_are_sealed_changed_data_is_taken_and_all_else_is_not() {
    run(|env| async move {
        let cluster = Cluster::with(&env, 1, sealed(Seal::Head)).await;
        let mut client = cluster.client(0).await;
        let bytes = making(&mut client, "flipped-data");
        let at = bytes.len() - SEAL_BYTES - 3;
        client.put_bytes(&flipped(bytes, at)).await;
        let (_, made, _) = client.reply().await;
        assert_eq!(made[0].status, Status::Ok);
        let bytes = making(&mut client, "flipped");
        let at = bytes.windows(7).position(|part| part == b"flipped").unwrap();
        client.put_bytes(&flipped(bytes, at)).await;
        assert_eq!(end_of(&mut client).await, (0, Some(Status::BadMessage)));
        assert!(!is_there(&cluster, "flipped").await && !is_there(&cluster, "glipped").await);
        assert_eq!(forged(&cluster), 1);
    });
}

#[test]
fn a_side_that_cannot_seal_is_refused_where_seals_are_demanded_and_served_elsewhere() {
    run(|env| async move {
        let of = |highest| Wish { versions: (VERSIONS.0, highest), ..Wish::default() };
        let older = || of(VERSION_OF_SEALS - 1);
        for (seal, highest, demanded) in [
            (Seal::Head, VERSION_OF_SEALS - 1, "sealed connections"),
            (Seal::Encrypted, VERSION_OF_ENCRYPTION - 1, "encrypted connections"),
        ] {
            let cluster = Cluster::with(&env, 1, sealed(seal)).await;
            let refusal = Raw::attach(&cluster, 0, of(highest)).await.err().expect("refused");
            assert_eq!(refusal.status, Status::BadVersion);
            for word in [demanded, "`mac`", "update the older side"] {
                assert!(refusal.words.0.contains(word), "{}", refusal.words);
            }
            assert!(Raw::attach(&cluster, 0, of(highest + 1)).await.is_ok());
        }
        let cluster = Cluster::new(&env, 1).await;
        let mut client = Raw::attach(&cluster, 0, older()).await.unwrap();
        assert!(client.ends.is_none());
        assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
    });
}

#[test]
fn a_session_is_continued_only_by_the_key_of_the_client_that_began_it_also_after_a_restart() {
    run(|env| async move {
        for seal in [Seal::Off, Seal::All] {
            let mut cluster = Cluster::with(&env, 1, sealed(seal)).await;
            let mut client = cluster.client(0).await;
            assert_eq!(client.change(vec![mkdir(Handle::ROOT, &name("d"))]).await.status, Status::Ok);
            let session = Some(client.attached.session);
            for restarts in [false, true] {
                if restarts {
                    drop(client);
                    cluster.kill(0);
                    cluster.start(0).await;
                }
                // It knows the mount key, the client's id and the session's.
                let thief = Wish { session, secret: [12; 32], ..Wish::default() };
                let refusal = Raw::attach(&cluster, 0, thief).await.err().expect("refused");
                assert_eq!(refusal.status, Status::NoSession, "{}", refusal.words);
                assert!(refusal.words.0.contains("another client's"), "{}", refusal.words);
                if seal == Seal::Off {
                    let versions = (VERSIONS.0, VERSION_OF_SEALS - 1);
                    let older = Wish { session, versions, ..Wish::default() };
                    let refusal = Raw::attach(&cluster, 0, older).await.err().expect("refused");
                    assert_eq!(refusal.status, Status::NoSession, "{}", refusal.words);
                }
                client = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
                assert_eq!(Some(client.attached.session), session);
                let again = client.change_in(slot(0, 1), vec![mkdir(Handle::ROOT, &name("d"))]).await;
                assert_eq!(again.status, Status::Ok, "the reply was kept");
            }
        }
    });
}

/// Its client's connection is gone, as the server sees it.
async fn is_left(cluster: &Cluster, session: SessionId) {
    while cluster.shard(0).sessions.get(session).expect("it goes on").is_connected() {
        cluster.env.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_session_of_an_older_version_is_of_the_first_client_key_that_continues_it_also_after_a_restart() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let versions = (VERSIONS.0, VERSION_OF_SEALS - 1);
        let older = |session| Wish { session, versions, ..Wish::default() };
        let mut client = Raw::attach(&cluster, 0, older(None)).await.unwrap();
        assert_eq!(client.change(vec![mkdir(Handle::ROOT, &name("d"))]).await.status, Status::Ok);
        let session = Some(client.attached.session);
        // Its server is updated later than its client.
        drop(Raw::attach(&cluster, 0, older(session)).await.unwrap());
        for restarts in [false, true] {
            if restarts {
                cluster.kill(0);
                cluster.start(0).await;
            } else {
                let own = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
                assert_eq!(Some(own.attached.session), session);
            }
            let thief = Wish { session, secret: [12; 32], ..Wish::default() };
            for other in [thief, older(session)] {
                let refusal = Raw::attach(&cluster, 0, other).await.err().expect("refused");
                assert_eq!(refusal.status, Status::NoSession, "restarts: {restarts}: {}", refusal.words);
            }
        }
        let mut own = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        let again = own.change_in(slot(0, 1), vec![mkdir(Handle::ROOT, &name("d"))]).await;
        assert_eq!(again.status, Status::Ok, "the reply was kept");
    });
}

#[test]
fn the_holder_of_a_mount_key_that_states_a_clients_id_pushes_none_of_its_sessions_out() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        assert_eq!(client.change(vec![mkdir(Handle::ROOT, &name("d"))]).await.status, Status::Ok);
        let session = client.attached.session;
        drop(client);
        is_left(&cluster, session).await;
        let thief = || Wish { secret: [12; 32], ..Wish::default() };
        let mut thieves = Vec::new();
        for _ in 0..limits::CLIENT_SESSIONS_MAX {
            thieves.push(Raw::attach(&cluster, 0, thief()).await.unwrap());
        }
        let refusal = Raw::attach(&cluster, 0, thief()).await.err().expect("refused");
        assert_eq!(refusal.status, Status::OverLimit, "its own are bounded");
        let session = Some(session);
        let mut client = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        let again = client.change_in(slot(0, 1), vec![mkdir(Handle::ROOT, &name("d"))]).await;
        assert_eq!(again.status, Status::Ok, "the reply was kept");
    });
}

#[test]
fn a_server_makes_no_connection_that_is_sealed_less_than_its_setting_demands() {
    run(|env| async move {
        for (own, other, is_made) in [
            (Seal::All, Seal::Off, false),
            (Seal::All, Seal::Head, false),
            (Seal::Head, Seal::All, true),
            (Seal::Encrypted, Seal::All, false),
            (Seal::All, Seal::Encrypted, true),
            (Seal::Off, Seal::Off, true),
        ] {
            let mut cluster = Cluster::with(&env, 2, sealed(other)).await;
            cluster.kill(0);
            cluster.settings = sealed(own);
            cluster.start(0).await;
            let until = env.now() + Duration::from_secs(20);
            let met = cluster.shard(0).peers.introduce(ServerId(1), until, until).await;
            match (met, is_made) {
                (Ok(()), true) => {}
                (Err((status, words)), false) => {
                    assert_eq!(status, Status::BadVersion, "{own:?} {other:?}: {words}");
                    assert!(words.contains("`mac`"), "{words}");
                }
                (met, _) => panic!("{own:?} {other:?}: {met:?}"),
            }
        }
        // Control: peers within one machine are not sealed unless the setting says so.
        let cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        cluster.directory_on(&mut client, 1).await;
        assert_eq!(cluster.shard(0).peers.is_sealed(ServerId(1)), Some(false));
    });
}

#[test]
fn a_frame_with_a_seal_on_a_connection_without_is_garbage_and_no_forgery() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        for mark in [1, 2] {
            let mut client = cluster.client(0).await;
            let mut bytes = making(&mut client, "sealed");
            bytes[5] = mark;
            bytes.extend([0; SEAL_BYTES]);
            client.put_bytes(&with_checksums(bytes)).await;
            assert_eq!(end_of(&mut client).await, (0, Some(Status::BadMessage)));
            assert_eq!(forged(&cluster), 0, "no attacker did that");
            assert!(!is_there(&cluster, "sealed").await);
        }
    });
}

#[test]
fn a_connection_that_ends_with_a_changed_frame_has_a_line_in_the_audit_log_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    run(|env| async move {
        let mut cluster = Cluster::with(&env, 1, sealed(Seal::All)).await;
        cluster.kill(0);
        cluster.audit = Some(AuditConfig { file: file.clone(), bytes_max: 1 << 20 });
        cluster.start(0).await;
        let mut client = cluster.client(0).await;
        let bytes = making(&mut client, "flipped");
        client.put_bytes(&flipped(bytes, 8)).await;
        assert_eq!(end_of(&mut client).await, (0, Some(Status::BadMessage)));
        // One that its own side closes is not said to be attacked.
        drop(cluster.client(0).await);
        cluster.servers[0].take().unwrap().stop().await.unwrap();
        let text = std::fs::read_to_string(file.with_extension("log.connections")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let ended: Vec<_> = lines.filter(|line| line["event"] == "disconnected").collect();
        let forged: Vec<_> = ended.iter().filter(|line| line["reason"] == "Forged").collect();
        assert_eq!(forged.len(), 1, "{text}");
        assert_eq!(forged[0]["key"], "first", "{text}");
        assert!(forged[0]["words"].as_str().unwrap().contains("changed on its way"), "{text}");
    });
}
