//! The stream of a sealed connection as an attacker on the wire leaves it.
//!
//! The first byte chooses how much is sealed, and whether it is encrypted. The rest is the stream: **whatever it is, the receiving end
//! takes a beginning of the frames that the other end sent, and nothing else.** An input that makes it take
//! another frame would be a forgery. If the data of frames is not sealed, the data may differ, but its length
//! may not.

use crate::repair;
use crate::targets::within_room;
use bytes::BytesMut;
use shoal_proto::seal::{Seal, admit};
use shoal_proto::{Frame, limits, samples};

fn seal_of(byte: u8) -> Seal {
    [Seal::All, Seal::Head, Seal::Encrypted][usize::from(byte % 3)]
}

/// The frames that the other end sent.
fn sent(byte: u8) -> Vec<Vec<u8>> {
    let [mut client, _] = samples::ends(seal_of(byte), 0x20);
    samples::sealed_frames(&mut client.sealer)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let streams = [0, 1, 2].map(|byte| {
        let frames = sent(byte);
        let mut all: Vec<Vec<u8>> = vec![[&[byte], &frames.concat()[..]].concat()];
        all.extend((1..frames.len()).map(|n| [&[byte], &frames[..n].concat()[..]].concat()));
        all
    });
    streams.concat()
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((&byte, stream)) = bytes.split_first() else { return };
    admitted(bytes, byte);
    // With the checksums of the first frame set right, so that its seal decides.
    let is_encrypted = seal_of(byte) == Seal::Encrypted;
    admitted(&[&[byte], &repair::sealed(stream, is_encrypted)[..]].concat(), byte);
}

/// How many frames the receiving end takes.
///
/// # Panics
/// When it takes one that was not sent, or out of its turn.
pub(crate) fn admitted(bytes: &[u8], byte: u8) -> usize {
    let plain = samples::frames();
    let [_, mut server] = samples::ends(seal_of(byte), 0x20);
    let mut buf = BytesMut::from(bytes.get(1..).unwrap_or_default());
    let room = limits::BODY_BYTES_MAX + limits::BULK_BYTES_MAX;
    let mut count = 0;
    while let Ok(Some((mut frame, sealed))) = within_room(bytes, room, || Frame::take_any(&mut buf)) {
        if admit(Some(&mut server.opener), &mut frame, sealed).is_err() {
            break;
        }
        let Some((_, honest)) = plain.get(count) else { panic!("more frames were taken than were sent") };
        let honest = Frame::take(&mut BytesMut::from(&honest[..])).expect("a sample").expect("a whole one");
        let is_same = match seal_of(byte) {
            // The data may be another, and no longer or shorter.
            Seal::Head => {
                Frame { bulk: frame.bulk.clone(), ..honest.clone() } == frame
                    && honest.bulk.len() == frame.bulk.len()
            }
            _ => honest == frame,
        };
        assert!(is_same, "a frame was taken that was not sent");
        count += 1;
    }
    count
}
