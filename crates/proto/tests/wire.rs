//! The wire: decoding inverts encoding, hostile input is refused, and versions stay as they are.

use bytes::BytesMut;
use proptest::prelude::*;
use shoal_proto::codec::Codec;
use shoal_proto::message::{Attach, Attached, Challenge, Hello, Refusal};
use shoal_proto::{Action, Answer, Dist, Durability, Frame, Op, Reply, Request, Template, samples};
use std::collections::BTreeSet;

fn survives<T: Codec + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = value.to_bytes();
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
    for cut in 0..bytes.len() {
        assert!(T::from_bytes(&bytes[..cut]).is_err(), "{value:?} cut at {cut}");
    }
}

#[test]
fn every_message_survives_the_wire_and_none_is_read_from_a_part_of_itself() {
    samples::ops().iter().for_each(survives);
    samples::answers().iter().for_each(survives);
    samples::actions().iter().for_each(survives);
    let strip = 4096;
    let striped = [Dist::SimpleStripe { strip }, Dist::Container { strip }, Dist::Composed { strip }];
    for dist in [Dist::Basic, Dist::Fork, Dist::Forked { subfiles: 512 }].into_iter().chain(striped) {
        survives(&Template { dist, width: 3 });
    }
    for strip in [0, u64::MAX] {
        for dist in [Dist::SimpleStripe { strip }, Dist::Container { strip }, Dist::Composed { strip }] {
            assert!(Dist::from_bytes(&dist.to_bytes()).is_err(), "{dist:?} is over the limit");
        }
    }
    for subfiles in [0, 513, u16::MAX] {
        let bytes = Dist::Forked { subfiles }.to_bytes();
        assert!(Dist::from_bytes(&bytes).is_err(), "{subfiles} subfiles are over the limit");
    }
    survives(&samples::request());
    survives(&samples::reply());
}

#[test]
fn the_samples_hold_every_variant_and_every_name_is_used_once() {
    let names = |all: Vec<&'static str>| all.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(names(samples::ops().iter().map(Op::name).collect()), names(Op::NAMES.to_vec()));
    assert_eq!(names(samples::answers().iter().map(Answer::name).collect()), names(Answer::NAMES.to_vec()));
    assert_eq!(names(samples::actions().iter().map(Action::name).collect()), names(Action::NAMES.to_vec()));
    assert!(samples::ops().iter().all(|op| Op::NAMES[op.position()] == op.name()));
    assert_eq!(names(Op::NAMES.to_vec()).len(), Op::NAMES.len());
}

#[test]
fn frames_are_taken_whole_however_they_arrive() {
    let frames = samples::frames();
    let stream: Vec<u8> = frames.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    for step in [1, 7, 1000, stream.len()] {
        let (mut buf, mut kinds) = (BytesMut::new(), Vec::new());
        for piece in stream.chunks(step) {
            buf.extend_from_slice(piece);
            while let Some(frame) = Frame::take(&mut buf).unwrap() {
                kinds.push(frame.kind);
            }
        }
        assert!(buf.is_empty());
        assert_eq!(kinds, frames.iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
    }
}

#[test]
fn a_flipped_bit_of_head_or_body_is_always_found() {
    for (_, bytes) in samples::frames() {
        let covered = bytes.len() - if bytes.ends_with(b"bulk") { 4 } else { 0 };
        for at in 0..covered {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            // A length beyond the input waits for more bytes (and then fails its checksum); any other
            // damage is refused now.
            let taken = Frame::take(&mut BytesMut::from(damaged.as_slice()));
            assert!(!matches!(taken, Ok(Some(_))), "a flip at {at} went unseen");
        }
    }
}

#[test]
fn lengths_over_the_limits_are_refused_before_anything_is_reserved() {
    let (_, bytes) = samples::frames().swap_remove(4);
    for at in [16, 20] {
        let mut hostile = bytes.clone();
        hostile[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32c::crc32c(&hostile[..28]);
        hostile[28..32].copy_from_slice(&crc.to_le_bytes());
        let mut buf = BytesMut::from(hostile.as_slice());
        assert!(Frame::take(&mut buf).is_err());
        assert!(buf.capacity() < 1 << 20);
    }
}

/// A fixture of each kind of frame, of a version.
fn fixture(version: u16, kind: shoal_proto::FrameKind) -> String {
    let name = format!("v{version}-{kind:?}.bin").to_lowercase();
    format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_frames_of_older_versions_are_still_read_and_their_messages_written_so() {
    for (version, (kind, _)) in
        [4, 5, 6, 7].into_iter().flat_map(|v| samples::frames().into_iter().map(move |f| (v, f)))
    {
        let bytes = std::fs::read(fixture(version, kind)).expect("the fixtures are part of the source");
        let frame = Frame::take(&mut BytesMut::from(bytes.as_slice())).unwrap().expect("a whole frame");
        assert_eq!(frame.kind, kind);
        // A map is among the answers: it is written as before, too.
        let again = match kind {
            shoal_proto::FrameKind::Request => frame.message::<Request>().map(|it| it.to_bytes()),
            shoal_proto::FrameKind::Reply => frame.message::<Reply>().map(|it| it.to_bytes()),
            shoal_proto::FrameKind::Challenge => frame.message::<Challenge>().map(|it| it.to_bytes()),
            shoal_proto::FrameKind::Attach => frame.message::<Attach>().map(|it| it.to_bytes()),
            _ => continue,
        };
        assert!(again.expect("messages of an older version") == frame.body, "{kind:?} of version {version}");
    }
}

/// Version 8 as it was first written: if this changes, old servers and clients no longer understand new
/// ones, and the version must change too.
#[test]
fn version_8_is_written_as_it_always_was() {
    for (kind, bytes) in samples::frames() {
        let path = fixture(8, kind);
        if std::env::var_os("SHOAL_WRITE_FIXTURES").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let fixture = std::fs::read(&path).expect("the fixtures are part of the source");
        assert_eq!(bytes, fixture, "{kind:?} is written otherwise than in version 8 ({path})");
    }
}

#[test]
fn the_fullest_compound_of_the_smallest_operations_is_read_and_so_is_its_reply() {
    use shoal_proto::{Group, GroupReply, Status, limits};
    let group = Group { ops: vec![Op::Ping {}; limits::GROUP_OPS_MAX].into() };
    let request = Request {
        slot: None,
        timeout_ms: 1,
        durability: Durability::Usual,
        groups: vec![group; limits::GROUPS_MAX].into(),
    };
    survives_whole(&request);
    let answers = vec![Answer::Done {}; limits::GROUP_OPS_MAX].into();
    let group = GroupReply { status: Status::Ok, answers };
    survives_whole(&Reply {
        loss: Default::default(),
        map_epoch: 0,
        groups: vec![group; limits::GROUPS_MAX].into(),
    });
}

fn survives_whole<T: Codec + PartialEq + std::fmt::Debug>(value: &T) {
    assert_eq!(T::from_bytes(&value.to_bytes()).as_ref(), Ok(value));
}

#[test]
fn a_message_of_a_million_one_byte_actions_is_refused() {
    use shoal_proto::{Group, TxId, limits};
    let locks = vec![Action::RenameLock {}; limits::ACTIONS_MAX];
    let prepare = Op::Prepare { tx: TxId(1), actions: locks.into(), participants: vec![].into() };
    let group = Group { ops: vec![prepare; limits::GROUP_OPS_MAX].into() };
    let request = Request {
        slot: None,
        timeout_ms: 1,
        durability: Durability::Usual,
        groups: vec![group; limits::GROUPS_MAX].into(),
    };
    assert!(Request::from_bytes(&request.to_bytes()).is_err());
}

fn read_anything(bytes: &[u8]) {
    let _ = Request::from_bytes(bytes);
    let _ = Reply::from_bytes(bytes);
    let _ = Hello::from_bytes(bytes);
    let _ = Challenge::from_bytes(bytes);
    let _ = Attach::from_bytes(bytes);
    let _ = Attached::from_bytes(bytes);
    let _ = Refusal::from_bytes(bytes);
    let _ = Frame::take(&mut BytesMut::from(bytes));
    let _ = Frame::take_any(&mut BytesMut::from(bytes));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_refused_but_never_end_the_program(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        read_anything(&bytes);
    }

    #[test]
    fn what_a_damaged_request_still_says_is_said_the_same_when_written_again(
        at in any::<prop::sample::Index>(), value in any::<u8>(), what in 0..2_u8,
    ) {
        let mut bytes = if what == 0 { samples::request().to_bytes() } else { samples::reply().to_bytes() };
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(request) = Request::from_bytes(&bytes) {
            prop_assert_eq!(Request::from_bytes(&request.to_bytes()), Ok(request));
        }
        if let Ok(reply) = Reply::from_bytes(&bytes) {
            prop_assert_eq!(Reply::from_bytes(&reply.to_bytes()), Ok(reply));
        }
    }
}

#[test]
fn striping_keeps_the_laws_of_distributions() {
    use shoal_proto::{Dist, Striping};
    for width in 1..=5 {
        for strip in [1, 7, 16] {
            let striping = Striping { dist: Dist::SimpleStripe { strip }, width };
            assert_eq!(shoal_pattern::broken_law(&striping, 3 * 5 * strip + 3), None);
        }
        assert_eq!(shoal_pattern::broken_law(&Striping { dist: Dist::Basic, width: 1 }, 300), None);
    }
}

#[test]
fn files_below_a_layout_that_clients_follow_are_striped_and_directories_have_it_too() {
    use shoal_proto::Kind;
    let strip = 65_536;
    for dist in [Dist::Container { strip }, Dist::Composed { strip }] {
        let template = Template { dist, width: 3 };
        assert_eq!(template.inherited_by(Kind::Directory), template);
        let striped = Template { dist: Dist::SimpleStripe { strip }, width: 3 };
        assert_eq!(template.inherited_by(Kind::File), striped);
    }
    let fork = Template { dist: Dist::Fork, width: 1 };
    assert_eq!(fork.inherited_by(Kind::File), fork);
}
