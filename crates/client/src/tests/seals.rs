//! Tests of connections with an attacker between a client and its server.
//!
//! The client rejects changed, repeated and unsealed replies, and repeats the call on a new connection. It
//! refuses a handshake whose seals were removed. It believes only two kinds of refusals without a seal:
//! `BadKey`, and refusals that come from its own machine.

use super::links::{with_server, with_server_at};
use crate::Options;
use crate::fake::{Fault, KEY, OWNER, name};
use bytes::Bytes;
use shoal_proto::message::{Challenge, Hello, Refusal, VERSION_OF_SEALS, VERSIONS};
use shoal_proto::seal::SEAL_BYTES;
use shoal_proto::{Frame, FrameKind, Handle, Rights, Seal, ServerId, Status};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(1);

/// Right checksums for a changed frame.
fn with_checksums(mut frame: Vec<u8>) -> Vec<u8> {
    let body_len = u32::from_le_bytes(frame[16..20].try_into().unwrap()) as usize;
    let is_encrypted = frame[5] == 2;
    let body = if is_encrypted { 0 } else { crc32c::crc32c(&frame[32..32 + body_len]) };
    frame[24..28].copy_from_slice(&body.to_le_bytes());
    let head = crc32c::crc32c(&frame[..28]);
    frame[28..32].copy_from_slice(&head.to_le_bytes());
    frame
}

#[test]
fn files_are_written_and_read_over_a_sealed_connection() {
    let all = [("seals-head", Seal::Head), ("seals-all", Seal::All), ("seals-encrypted", Seal::Encrypted)];
    for (at, seal) in all {
        with_server(at, vec![Fault::Seals(seal)], LONG, |client, _, _| async move {
            let client = client.unwrap();
            let both = Rights::READ | Rights::WRITE;
            let (.., file) = client.create(Handle::ROOT, &name("f"), OWNER, true, both, None).await.unwrap();
            let data: Bytes = (0..900_000_u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>().into();
            file.write(0, data.clone()).await.unwrap();
            assert_eq!(file.read(0, 2_000_000).await.unwrap(), data);
            assert_eq!(client.counters().reconnects, 0);
            client.close().await;
        });
    }
}

#[test]
fn a_reply_that_a_middle_man_changed_is_not_taken_and_the_call_ends_well_on_the_next_connection() {
    type Change = fn(Vec<u8>, &[Vec<u8>]) -> Vec<u8>;
    let changes: [(&'static str, Change); 6] = [
        ("seals-tag", |mut reply, _| {
            reply[8] ^= 1;
            with_checksums(reply)
        }),
        ("seals-body", |mut reply, _| {
            reply[32] ^= 1;
            with_checksums(reply)
        }),
        ("seals-seal", |mut reply, _| {
            *reply.last_mut().unwrap() ^= 1;
            reply
        }),
        ("seals-repeated", |reply, sent| [sent[sent.len() - 2].clone(), reply].concat()),
        ("seals-stripped", |mut reply, _| {
            reply.truncate(reply.len() - SEAL_BYTES);
            reply[5] = 0;
            with_checksums(reply)
        }),
        ("seals-refused", |_, _| {
            let mut bytes = Vec::new();
            let refusal = Refusal { status: Status::KeyRevoked, words: "a lie".into() };
            Frame::put(FrameKind::Refusal, VERSIONS.1, 0, &refusal, 0, &mut bytes);
            bytes
        }),
    ];
    let both = [Seal::All, Seal::Encrypted];
    for ((at, change), seal) in changes.into_iter().flat_map(|change| both.map(|seal| (change, seal))) {
        // The map, and then the reply to the change.
        let script = vec![Fault::Seals(seal), Fault::Serve(1), Fault::Changed(change)];
        with_server(at, script, LONG, |client, cluster, _| async move {
            let client = client.unwrap();
            client.mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_or_else(|e| panic!("{at}: {e:?}"));
            assert_eq!(client.counters().reconnects, 1, "{at}");
            let made = cluster.borrow().log.iter().filter(|(_, op)| *op == "mkdir").count();
            assert_eq!(made, 1, "{at}");
            client.ping(ServerId(0)).await.unwrap();
            client.close().await;
        });
    }
}

#[test]
fn a_middle_man_who_takes_the_seals_out_of_the_handshake_is_found() {
    type Changes = (fn(&mut Hello), fn(&mut Challenge));
    let changes: [(&'static str, Changes); 4] = [
        ("seals-off", (|_| (), |challenge| challenge.seal = Seal::Off)),
        ("seals-less", (|_| (), |challenge| challenge.seal = Seal::Head)),
        ("seals-nonce", (|hello| hello.nonce[0] ^= 1, |_| ())),
        (
            "seals-older",
            (
                |hello| hello.version_max = VERSION_OF_SEALS - 1,
                |challenge| challenge.version = VERSION_OF_SEALS - 1,
            ),
        ),
    ];
    for (at, (first, second)) in changes {
        let script = vec![Fault::Seals(Seal::All), Fault::Downgraded(first, second)];
        let error =
            with_server(at, script, SHORT, |client, _, _| async move { client.err().expect("it fails") });
        assert_eq!(error.status, Status::BadKey, "{at}: {error:?}");
    }
}

#[test]
fn a_refusal_without_a_seal_is_believed_in_nothing_but_that_the_key_is_wrong() {
    for (at, status, seen) in [
        ("seals-bare-revoked", Status::KeyRevoked, Status::Unavailable),
        ("seals-bare-forbidden", Status::Forbidden, Status::Unavailable),
        ("seals-bare-session", Status::NoSession, Status::Unavailable),
        ("seals-bare-key", Status::BadKey, Status::BadKey),
    ] {
        let script = vec![Fault::Seals(Seal::All), Fault::RefuseBare(status)];
        let error =
            with_server(at, script, SHORT, |client, _, _| async move { client.err().expect("it fails") });
        assert_eq!(error.status, seen, "{at}: {error:?}");
    }
    // With its seal it is the server's word.
    let script =
        vec![Fault::Seals(Seal::All), Fault::Refuse(Status::KeyRevoked, "this key was revoked: lab")];
    let error =
        with_server("seals-refusal", script, SHORT, |client, _, _| async move { client.err().unwrap() });
    assert_eq!(error.status, Status::KeyRevoked, "{error:?}");
}

/// A port of the system's choice, over which an attacker on the wire may be.
const TCP: &str = "tcp:127.0.0.1:0";

#[test]
fn no_answer_before_the_servers_proof_ends_a_session_or_fails_a_change_that_was_sent() {
    let statuses = [
        Status::NoSession,
        Status::Forbidden,
        Status::Poisoned,
        Status::NoStore,
        Status::BadVersion,
        Status::BadCollection,
        Status::KeyRevoked,
        Status::BadKey,
    ];
    let faults = statuses.into_iter().map(Fault::RefuseHello).chain([Fault::ChallengeBare]);
    for seal in [Seal::Off, Seal::All] {
        for fault in faults.clone() {
            // The map, and then the change, of which the reply is lost.
            let script = vec![Fault::Seals(seal), Fault::Serve(1), Fault::CutBehind, fault.clone()];
            with_server_at(
                TCP,
                script,
                |_| (),
                |client, cluster, _| async move {
                    let client = client.unwrap();
                    let made = client.mkdir(Handle::ROOT, &name("d"), OWNER).await;
                    made.unwrap_or_else(|error| panic!("{seal:?} {fault:?}: {error:?}"));
                    let made = cluster.borrow().log.iter().filter(|(_, op)| *op == "mkdir").count();
                    assert_eq!(made, 1, "the session goes on, so the reply was kept: {seal:?} {fault:?}");
                    assert_eq!(client.counters().reconnects, 1, "{seal:?} {fault:?}");
                    client.close().await;
                },
            );
        }
    }
}

#[test]
fn a_server_that_refuses_without_a_proof_is_waited_for_over_the_network_and_believed_within_the_machine() {
    let script = |refusals: usize| {
        let mut script = vec![Fault::Serve(1), Fault::CutBefore];
        script.extend((0..refusals).map(|_| Fault::RefuseHello(Status::NoStore)));
        script
    };
    let short = |options: &mut Options| options.timeout = SHORT;
    let error = with_server_at(TCP, script(1000), short, |client, _, _| async move {
        client.unwrap().mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_err()
    });
    assert_eq!(error.status, Status::TimedOut, "{error:?}");
    assert!(error.to_string().contains("a lie"), "the reason is there at the deadline: {error}");
    let error = with_server("seals-near", script(1), LONG, |client, _, _| async move {
        client.unwrap().mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_err()
    });
    assert_eq!(error.status, Status::NoStore, "{error:?}");
}

#[test]
fn a_connection_that_was_passed_on_to_a_socket_of_the_servers_machine_is_not_used() {
    let through = |at: &str, seal: Seal| {
        let short = |options: &mut Options| options.timeout = SHORT;
        with_server_at(at, vec![Fault::Seals(seal)], short, |client, _, _| async move {
            client.map(drop).map_err(|error| (error.status, error.to_string()))
        })
    };
    let (status, words) = through(TCP, Seal::Within).unwrap_err();
    assert_eq!(status, Status::Unavailable);
    assert!(words.contains("passed on to a socket"), "{words}");
    through("local:seals-within", Seal::Within).unwrap();
    through(TCP, Seal::Off).unwrap();
}

#[test]
fn an_administrator_is_served_over_the_network_by_sealed_connections_alone_unless_the_servers_have_none() {
    let through = |at: &str, fault: Fault, unsealed: bool| {
        let change = |options: &mut Options| {
            options.timeout = SHORT;
            (options.admin, options.admin_unsealed) = (Some(KEY), unsealed);
        };
        with_server_at(at, vec![fault], change, |client, _, _| async move {
            client.map(drop).map_err(|error| (error.status, error.to_string()))
        })
    };
    let (status, words) = through(TCP, Fault::Seals(Seal::Off), false).unwrap_err();
    assert_eq!(status, Status::BadVersion);
    for word in ["administrator", "update the server", "mac = \"off\""] {
        assert!(words.contains(word), "{words}");
    }
    for seal in [Seal::Head, Seal::All] {
        through(TCP, Fault::Seals(seal), false).unwrap();
    }
    through(TCP, Fault::Seals(Seal::Off), true).unwrap();
    through("local:seals-admin", Fault::Seals(Seal::Within), false).unwrap();
}
