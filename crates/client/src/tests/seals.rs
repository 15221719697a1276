//! An attacker between a client and its server: the client believes nothing that the attacker changed or
//! added, and continues.

use super::links::with_server;
use crate::fake::{Fault, OWNER, name};
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
    let body = crc32c::crc32c(&frame[32..32 + body_len]);
    frame[24..28].copy_from_slice(&body.to_le_bytes());
    let head = crc32c::crc32c(&frame[..28]);
    frame[28..32].copy_from_slice(&head.to_le_bytes());
    frame
}

#[test]
fn files_are_written_and_read_over_a_sealed_connection() {
    for (at, seal) in [("seals-head", Seal::Head), ("seals-all", Seal::All)] {
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
    for (at, change) in changes {
        // The map, and then the reply to the change.
        let script = vec![Fault::Seals(Seal::All), Fault::Serve(1), Fault::Changed(change)];
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
                |challenge| challenge.version = VERSIONS.1 - 1,
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
