//! Seals: the proof of each frame that follows the handshake (decision 0029).
//!
//! ```text
//!   client                                     server
//!   Hello(nonce: a public key C)    ─────▶
//!              ◀─────   Challenge(nonce: a public key S, seal, proofs over all of both messages)
//!   Attach(client's key K, proof over all three, and over K·S)   ─────▶
//!              ◀═════   Attached                        from here on every frame, each way, is sealed
//!
//!   ┌──────┬── ─ ──┬── ─ ──┬──────────┐
//!   │ head │ body  │ bulk  │ 16 bytes │   BLAKE3 keyed, over head ‖ body ‖ bulk ‖ sequence
//!   └──────┴── ─ ──┴── ─ ──┴──────────┘
//!
//!   ┌──────┬══ ═ ══┬══ ═ ══┬──────────┐   Seal::Encrypted: body and bulk by AES-256-GCM, its tag is the seal;
//!   │ head │ body  │ bulk  │ 16 bytes │   the head is the additional data, the sequence the nonce
//!   └──────┴══ ═ ══┴══ ═ ══┴──────────┘
//! ```
//! **Each end of a sealed connection accepts only frames that the other end sent, in their order.** With
//! [`Seal::Head`] the bulk data is not sealed, and an attacker can change it. With [`Seal::Encrypted`] a
//! listener sees heads alone: kinds, tags and lengths. Each direction has its own key, so no frame can be
//! sent back to its sender. The sequence is counted on both ends and not sent, so a frame
//! that is left out, repeated or exchanged is found. Both keys are derived from the key that the connection
//! proved, from all three messages, and from an X25519 exchange of the nonces. So no other connection has the
//! same keys, and a listener that holds the same mount key cannot compute them.
//!
//! **Invariant: a nonce is the public part of a key pair that was drawn for one connection** (test:
//! `a_frame_of_another_connection_and_a_whole_recorded_connection_are_refused`, for servers). A side of an
//! older version uses the nonce as random bytes, so no message had to change.
//!
//! A client draws one more key pair when it begins ([`Attach::client_key`]). It proves with each attachment
//! that it has the private part, by the exchange with the server's nonce. A server continues a session only
//! for the client key that began it; the private part is never sent.
//!
//! The MAC is BLAKE3 with a key: it needs no nonce that must never be repeated. The decision has its measured
//! cost. Encrypted frames have such a nonce, the sequence: no two frames have the same key and nonce, because
//! both keys are of one connection, and the sequence only grows. After [`FRAMES_OF_A_KEY`] frames each
//! direction goes on with a hash of its key, so that little is encrypted by one key (decision 0035).
//!
//! Sources: RFC 7748 (X25519); O'Connor, Aumasson, Neves, Wilcox-O'Hearn, *BLAKE3* (2020); NIST SP 800-38D
//! (GCM).

use crate::codec::{Codec, DecodeError};
use crate::frame::Sealed;
use crate::message::{Attach, Challenge, Hello};
use crate::wire::wire_choice;
use crate::{Frame, SecretKey, frame};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

/// Bytes of a frame's seal.
pub const SEAL_BYTES: usize = 16;

/// Frames that are encrypted by one key: 64 GiB, 2^32 blocks of the cipher, at most.
pub const FRAMES_OF_A_KEY: u64 = 1 << 15;

wire_choice! {
    /// How much of each frame that follows the handshake is sealed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub enum Seal {
        /// Nothing: frames have no seal.
        #[default]
        Off = 0,
        /// Head and body. Bulk data can be changed on its way and is taken.
        Head = 1,
        /// All.
        All = 2,
        /// Nothing, because the server accepted the connection within its machine. A side that connected over
        /// the network refuses it: an attacker has passed its messages on to a socket of that machine.
        Within = 3,
        /// All, and body and bulk are encrypted.
        Encrypted = 4,
    }
}

impl Seal {
    /// Whether frames have a seal.
    pub const fn is_on(self) -> bool {
        matches!(self, Seal::Head | Seal::All | Seal::Encrypted)
    }

    /// Whether it seals all that `other` seals, and encrypts what `other` encrypts.
    pub fn covers(self, other: Seal) -> bool {
        let depth = |seal| match seal {
            Seal::Off | Seal::Within => 0,
            Seal::Head => 1,
            Seal::All => 2,
            Seal::Encrypted => 3,
        };
        depth(self) >= depth(other)
    }
}

/// The private part of an X25519 key pair.
#[derive(Clone)]
pub struct PrivateKey(StaticSecret);

/// The result of an exchange: both sides have it, and no listener. Its bytes are overwritten when it is
/// dropped.
pub struct Shared(Zeroizing<[u8; 32]>);

impl PrivateKey {
    /// A key of 32 random bytes.
    pub fn new(random: [u8; 32]) -> PrivateKey {
        PrivateKey(StaticSecret::from(random))
    }

    /// The public part.
    pub fn public(&self) -> [u8; 32] {
        PublicKey::from(&self.0).to_bytes()
    }

    /// The exchange with the other side's public part. `None`: that is one of the few which give the same
    /// result with every private key.
    pub fn exchange(&self, public: &[u8; 32]) -> Option<Shared> {
        let shared = self.0.diffie_hellman(&PublicKey::from(*public));
        shared.was_contributory().then(|| Shared(Zeroizing::new(shared.to_bytes())))
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl Shared {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// One end of a sealed connection.
pub struct Ends {
    /// Seals the frames that are sent.
    pub sealer: Sealer,
    /// Checks the frames that come.
    pub opener: Opener,
}

/// The three messages of a handshake.
#[derive(Clone, Copy)]
pub struct Handshake<'a> {
    /// The first.
    pub hello: &'a Hello,
    /// The second, which says how much is sealed.
    pub challenge: &'a Challenge,
    /// The third.
    pub attach: &'a Attach,
}

impl Handshake<'_> {
    /// The end of the side that connected. `key` is the key by which it proved itself, and `shared` the
    /// exchange of both nonces.
    pub fn end_of_client(&self, key: &SecretKey, shared: &Shared) -> Ends {
        let [client, server] = self.keys(key, shared);
        let seal = self.challenge.seal;
        Ends { sealer: Sealer(Chain::new(client, seal)), opener: Opener(Chain::new(server, seal)) }
    }

    /// The end of the server that it connected to.
    pub fn end_of_server(&self, key: &SecretKey, shared: &Shared) -> Ends {
        let [client, server] = self.keys(key, shared);
        let seal = self.challenge.seal;
        Ends { sealer: Sealer(Chain::new(server, seal)), opener: Opener(Chain::new(client, seal)) }
    }

    /// Keys of the frames that the client sends, and of those that the server sends.
    fn keys(&self, key: &SecretKey, shared: &Shared) -> [Zeroizing<[u8; 32]>; 2] {
        let (hello, challenge) = (self.hello.to_bytes(), self.challenge.to_bytes());
        let attach = self.attach.to_bytes();
        ["frames of a client", "frames of a server"]
            .map(|purpose| Zeroizing::new(key.mac(purpose, &[&shared.0[..], &hello, &challenge, &attach])))
    }
}

/// A key, and the number of the next frame under it. The key is overwritten when the connection ends; the
/// cipher's form of it is not.
struct Chain {
    key: Zeroizing<[u8; 32]>,
    seal: Seal,
    sequence: u64,
    /// Of the key, where frames are encrypted.
    cipher: Option<LessSafeKey>,
}

impl Chain {
    fn new(key: Zeroizing<[u8; 32]>, seal: Seal) -> Chain {
        let cipher = (seal == Seal::Encrypted).then(|| cipher(&key));
        Chain { key, seal, sequence: 0, cipher }
    }

    /// The MAC of the next frame.
    fn mac<'a>(
        &mut self,
        head_and_body: &[u8],
        bulk: impl IntoIterator<Item = &'a [u8]>,
    ) -> [u8; SEAL_BYTES] {
        debug_assert!(self.cipher.is_none(), "an encrypted frame has the cipher's tag");
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(head_and_body);
        if self.seal == Seal::All {
            for part in bulk {
                hasher.update(part);
            }
        }
        // The head has the lengths. So this is the last part of nothing else, and the large parts before it
        // are hashed whole.
        hasher.update(&self.sequence.to_le_bytes());
        self.sequence += 1;
        let mut seal = [0; SEAL_BYTES];
        hasher.finalize_xof().fill(&mut seal);
        seal
    }

    /// Cipher and nonce of the next frame, where frames are encrypted.
    fn next_cipher(&mut self) -> Option<(&LessSafeKey, Nonce)> {
        let used = self.cipher.as_mut()?;
        if self.sequence > 0 && self.sequence.is_multiple_of(FRAMES_OF_A_KEY) {
            let key = SecretKey::new(*self.key).mac("the next key", &[]);
            self.key = Zeroizing::new(key);
            *used = cipher(&self.key);
        }
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.sequence.to_le_bytes());
        self.sequence += 1;
        Some((used, Nonce::assume_unique_for_key(nonce)))
    }
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the cipher's keys have 32 bytes"))
}

/// The bytes that are still to be sent after a frame's head and body.
pub enum FrameEnd {
    /// Its bulk data.
    Bulk,
    /// Its bulk data, then its seal.
    BulkAndSeal([u8; SEAL_BYTES]),
    /// None: the frame is encrypted, with its bulk data and its seal.
    Nothing,
}

impl FrameEnd {
    /// Whether bulk data is to be sent.
    pub fn has_bulk(&self) -> bool {
        !matches!(self, FrameEnd::Nothing)
    }

    /// The seal to be sent at last, or no bytes.
    pub fn seal(&self) -> &[u8] {
        match self {
            FrameEnd::BulkAndSeal(seal) => seal,
            FrameEnd::Bulk | FrameEnd::Nothing => &[],
        }
    }
}

/// Seals the frames of one direction, in the order in which they are sent.
pub struct Sealer(Chain);

impl Sealer {
    /// Whether frames are encrypted.
    pub fn encrypts(&self) -> bool {
        self.0.cipher.is_some()
    }

    /// Seal the last frame in `out`, which begins at `start`, as [`Frame::put`](crate::Frame::put) wrote it.
    /// Bulk data is copied only where it is encrypted.
    pub fn seal<'a>(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        bulk: impl IntoIterator<Item = &'a [u8]>,
    ) -> FrameEnd {
        let Some((cipher, nonce)) = self.0.next_cipher() else {
            frame::mark_sealed(&mut out[start..]);
            return FrameEnd::BulkAndSeal(self.0.mac(&out[start..], bulk));
        };
        frame::mark_encrypted(&mut out[start..]);
        if let Some(whole) = frame::whole_bytes(&out[start..]) {
            out.reserve(start + whole - out.len());
        }
        bulk.into_iter().for_each(|part| out.extend_from_slice(part));
        let (head, secret) = out[start..].split_at_mut(frame::HEAD_BYTES);
        let tag = cipher.seal_in_place_separate_tag(nonce, Aad::from(&*head), secret);
        out.extend_from_slice(tag.expect("a frame is shorter than the cipher's limit of 64 GiB").as_ref());
        FrameEnd::Nothing
    }

    /// The same of a frame with its bulk data, as one run of bytes.
    pub fn seal_whole(&mut self, out: &mut Vec<u8>, start: usize, bulk: &[u8]) {
        let end = self.seal(out, start, [bulk]);
        if end.has_bulk() {
            out.extend_from_slice(bulk);
        }
        out.extend_from_slice(end.seal());
    }
}

/// Checks the frames of one direction, in the order in which they come.
pub struct Opener(Chain);

impl Opener {
    /// Whether the other end sent this frame, as the next one. An encrypted frame gets its body and its bulk
    /// data.
    fn opens(&mut self, frame: &mut Frame, sealed: Sealed) -> bool {
        match (sealed, self.0.next_cipher()) {
            (Sealed::Mac { bytes, bulk_at, seal }, None) => {
                let (head_and_body, bulk) = bytes.split_at(bulk_at);
                SecretKey::equal(&self.0.mac(head_and_body, [bulk]), &seal)
            }
            (Sealed::Encrypted { mut bytes, bulk_at }, Some((cipher, nonce))) => {
                let (head, secret) = bytes.split_at_mut(frame::HEAD_BYTES);
                let Ok(plain) = cipher.open_in_place(nonce, Aad::from(&*head), secret) else { return false };
                let end = frame::HEAD_BYTES + plain.len();
                let bytes = bytes.freeze();
                (frame.body, frame.bulk) =
                    (bytes.slice(frame::HEAD_BYTES..bulk_at), bytes.slice(bulk_at..end));
                true
            }
            _ => false,
        }
    }
}

/// Whether a frame that came is one that the connection takes: sealed and the next one where `opener` is,
/// without a seal where none is. An encrypted frame is whole only after that.
///
/// # Errors
/// When it is not; the connection is then of no further use.
pub fn admit(
    opener: Option<&mut Opener>,
    frame: &mut Frame,
    sealed: Option<Sealed>,
) -> Result<(), DecodeError> {
    match (opener, sealed) {
        (None, None) => Ok(()),
        (Some(opener), Some(sealed)) => match opener.opens(frame, sealed) {
            true => Ok(()),
            false => Err(DecodeError::Invalid("seal of a frame")),
        },
        (Some(_), None) => Err(DecodeError::Invalid("frame without a seal")),
        (None, Some(_)) => Err(DecodeError::Invalid("frame with a seal")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, samples};
    use bytes::BytesMut;

    fn hex(text: &str) -> [u8; 32] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    }

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The last bytes of the sample with bulk data, sent after those before it by a side of that version.
    fn end_of_known(sealer: &mut Sealer, version: u16, count: usize) -> String {
        let mut bytes = Vec::new();
        for (_, mut frame) in samples::frames().into_iter().take(WITH_BULK + 1) {
            frame[6..8].copy_from_slice(&version.to_le_bytes());
            let bulk = frame.split_off(frame.len() - if frame.ends_with(b"bulk") { 4 } else { 0 });
            bytes.clear();
            bytes.append(&mut frame);
            sealer.seal_whole(&mut bytes, 0, &bulk);
        }
        text(&bytes[bytes.len() - count..])
    }

    /// How many frames of a stream an end takes, until one is not the next one.
    fn taken(opener: &mut Opener, stream: &[u8]) -> usize {
        let (mut buf, mut count) = (BytesMut::from(stream), 0);
        while let Ok(Some((mut frame, sealed))) = Frame::take_any(&mut buf) {
            if admit(Some(&mut *opener), &mut frame, sealed).is_err() {
                break;
            }
            count += 1;
        }
        count
    }

    /// The frames of a client, and how many of them its server takes after they were changed on their way.
    fn after(seal: Seal, change: impl FnOnce(&mut Vec<Vec<u8>>)) -> usize {
        let [mut client, mut server] = samples::ends(seal, 0x20);
        let mut frames = samples::sealed_frames(&mut client.sealer);
        change(&mut frames);
        taken(&mut server.opener, &frames.concat())
    }

    /// A flipped bit, with checksums that are right again unless it is one of theirs.
    fn flip(frame: &mut [u8], at: usize) {
        frame[at] ^= 1 << (at % 8);
        if (24..32).contains(&at) {
            return;
        }
        let body_len = u32::from_le_bytes(frame[16..20].try_into().unwrap()) as usize;
        let body = frame.get(32..32 + body_len).filter(|_| frame[5] != 2).map_or(0, crc32c::crc32c);
        frame[24..28].copy_from_slice(&body.to_le_bytes());
        let head = crc32c::crc32c(&frame[..28]);
        frame[28..32].copy_from_slice(&head.to_le_bytes());
    }

    /// Of the sample frames, one with bulk data.
    const WITH_BULK: usize = 4;

    #[test]
    fn the_exchange_is_that_of_rfc_7748_and_a_public_key_that_gives_nothing_is_refused() {
        let alice = PrivateKey::new(hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
        let bob = PrivateKey::new(hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"));
        assert_eq!(text(&alice.public()), "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        assert_eq!(text(&bob.public()), "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        for (own, other) in [(&alice, &bob), (&bob, &alice)] {
            let shared = own.exchange(&other.public()).unwrap();
            assert_eq!(
                text(shared.as_bytes()),
                "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
            );
        }
        let mut one = [0; 32];
        one[0] = 1;
        assert!(alice.exchange(&[0; 32]).is_none() && alice.exchange(&one).is_none());
    }

    #[test]
    fn the_seals_of_a_known_handshake_are_as_they_always_were() {
        let [mut client, mut server] = samples::ends(Seal::All, 0x20);
        assert_eq!(end_of_known(&mut client.sealer, 7, SEAL_BYTES), "43d49cebdfc3ada5336ccf8cab0c380d");
        assert_eq!(end_of_known(&mut server.sealer, 7, SEAL_BYTES), "766a01b9106747b5a07d796f5e86633f");
        let [mut client, mut server] = samples::ends(Seal::Encrypted, 0x20);
        let known = end_of_known(&mut client.sealer, 8, 4 + SEAL_BYTES);
        assert_eq!(known, "5a71fea69856c14e1540657337b73abee9e58232");
        let known = end_of_known(&mut server.sealer, 8, 4 + SEAL_BYTES);
        assert_eq!(known, "ac769de0120275695d9391c347798e1b76838853");
    }

    #[test]
    fn what_each_end_sends_the_other_takes_and_only_so_far_as_it_is_whole() {
        for seal in [Seal::Head, Seal::All, Seal::Encrypted] {
            let [mut client, mut server] = samples::ends(seal, 0x20);
            let frames = samples::sealed_frames(&mut client.sealer);
            assert_eq!(taken(&mut server.opener, &frames.concat()), frames.len());
            let frames = samples::sealed_frames(&mut server.sealer);
            let stream = frames.concat();
            assert_eq!(taken(&mut client.opener, &stream[..stream.len() - 1]), frames.len() - 1);
        }
    }

    #[test]
    fn an_encrypted_frame_is_what_it_was_and_shows_its_head_alone() {
        let [mut client, mut server] = samples::ends(Seal::Encrypted, 0x20);
        let frames = samples::sealed_frames(&mut client.sealer);
        for (bytes, (_, plain)) in frames.iter().zip(samples::frames()) {
            let (mut frame, sealed) = Frame::take_any(&mut BytesMut::from(&bytes[..])).unwrap().unwrap();
            assert!(frame.body.is_empty() && frame.bulk.is_empty());
            admit(Some(&mut server.opener), &mut frame, sealed).unwrap();
            assert_eq!(frame, Frame::take(&mut BytesMut::from(&plain[..])).unwrap().unwrap());
            // Neither the bytes nor a checksum of them.
            assert_eq!(bytes.len(), plain.len() + SEAL_BYTES);
            assert_eq!(bytes[24..28], [0; 4]);
            let secret = &bytes[32..bytes.len() - SEAL_BYTES];
            assert!(secret.len() < 8 || secret != &plain[32..]);
        }
        // Encrypted again, the same frame is another: its number is part of it.
        assert_ne!(samples::sealed_frames(&mut client.sealer)[WITH_BULK][32..], frames[WITH_BULK][32..]);
    }

    #[test]
    fn after_so_many_frames_both_ends_go_on_with_the_next_key() {
        let [mut client, mut server] = samples::ends(Seal::Encrypted, 0x20);
        let first = *client.sealer.0.key;
        let sent = |client: &mut Ends| {
            let mut bytes = samples::frames()[0].1.clone();
            bytes[6..8].copy_from_slice(&8_u16.to_le_bytes());
            client.sealer.seal_whole(&mut bytes, 0, &[]);
            bytes
        };
        for _ in 0..FRAMES_OF_A_KEY {
            assert_eq!(taken(&mut server.opener, &sent(&mut client)), 1);
        }
        assert_eq!(*client.sealer.0.key, first);
        let next = sent(&mut client);
        // Of a client of another version of this program, too.
        assert_eq!(text(&next[next.len() - 20..]), "90efe0922fdd161e71ead9658052b2092e6b9ccf");
        assert_eq!(taken(&mut server.opener, &next), 1);
        assert_ne!(*client.sealer.0.key, first);
        assert_eq!(*client.sealer.0.key, *server.opener.0.key);
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        for seal in [Seal::All, Seal::Encrypted] {
            let [mut client, _] = samples::ends(seal, 0x20);
            let len = samples::sealed_frames(&mut client.sealer)[WITH_BULK].len();
            for at in 0..len {
                assert_eq!(after(seal, |frames| flip(&mut frames[WITH_BULK], at)), WITH_BULK, "{at}");
            }
        }
    }

    #[test]
    fn where_heads_are_sealed_a_changed_bulk_is_taken_and_a_changed_head_or_body_is_not() {
        let all = samples::frames().len();
        let [mut client, _] = samples::ends(Seal::Head, 0x20);
        let len = samples::sealed_frames(&mut client.sealer)[WITH_BULK].len();
        for at in 0..len {
            let is_bulk = (len - SEAL_BYTES - 4..len - SEAL_BYTES).contains(&at);
            let found = after(Seal::Head, |frames| flip(&mut frames[WITH_BULK], at));
            assert_eq!(found, if is_bulk { all } else { WITH_BULK }, "{at}");
        }
    }

    #[test]
    fn a_frame_that_is_left_out_repeated_exchanged_or_without_its_seal_is_found() {
        for seal in [Seal::All, Seal::Encrypted] {
            assert_eq!(after(seal, |frames| drop(frames.remove(2))), 2);
            assert_eq!(after(seal, |frames| frames.insert(3, frames[2].clone())), 3);
            assert_eq!(after(seal, |frames| frames.swap(2, 3)), 2);
            // The head says that it has none.
            assert_eq!(after(seal, |frames| frames[2] = samples::frames()[2].1.clone()), 2);
            // It says that it has the other one.
            let other = if seal == Seal::All { 2 } else { 1 };
            let change = |frame: &mut [u8]| {
                frame[5] = other;
                flip(frame, 33);
                flip(frame, 33);
            };
            assert_eq!(after(seal, |frames| change(&mut frames[2])), 2);
        }
    }

    #[test]
    fn a_frame_of_the_other_direction_or_of_another_connection_is_found() {
        for seal in [Seal::All, Seal::Encrypted] {
            let [mut client, mut server] = samples::ends(seal, 0x20);
            let own = samples::sealed_frames(&mut client.sealer);
            assert_eq!(taken(&mut client.opener, &own[0]), 0, "it is reflected");
            let [mut other, _] = samples::ends(seal, 0x30);
            assert_eq!(taken(&mut server.opener, &samples::sealed_frames(&mut other.sealer)[0]), 0);
            // The same keys of both sides, and another extent of the seals.
            let [mut head, _] = samples::ends(Seal::Head, 0x20);
            assert_eq!(taken(&mut server.opener, &samples::sealed_frames(&mut head.sealer)[0]), 0);
        }
    }

    #[test]
    fn a_seal_covers_what_it_and_less_of_it_seals() {
        let all = [Seal::Off, Seal::Within, Seal::Head, Seal::All, Seal::Encrypted];
        let depth = |seal| all.iter().position(|one| *one == seal).unwrap_or(0).max(1);
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            assert_eq!(one.covers(other), depth(one) >= depth(other), "{one:?} {other:?}");
            assert_eq!(one.is_on(), depth(one) > 1, "{one:?}");
        }
    }

    #[test]
    fn a_connection_without_seals_takes_no_frame_with_one() {
        for seal in [Seal::All, Seal::Encrypted] {
            let [mut client, _] = samples::ends(seal, 0x20);
            let frame = samples::sealed_frames(&mut client.sealer).swap_remove(0);
            let (mut taken, sealed) = Frame::take_any(&mut BytesMut::from(&frame[..])).unwrap().unwrap();
            assert!(admit(None, &mut taken, sealed).is_err());
            assert!(Frame::take(&mut BytesMut::from(&frame[..])).is_err());
        }
    }
}
