//! A sealed connection whose keys are known, for tests of both ends and of attackers between them.

use crate::message::{Attach, Challenge, Hello, VERSION_OF_ENCRYPTION, VERSION_OF_SEALS};
use crate::seal::{Ends, Handshake, PrivateKey, Sealer};
use crate::{ClientId, CollectionId, FrameKind, Seal, SecretKey, ServerId, StoreId};

/// Both ends of a connection whose frames are sealed so far: the client's, and the server's. All is fixed,
/// and differs with `number`.
pub fn ends(seal: Seal, number: u8) -> [Ends; 2] {
    let version = if seal == Seal::Encrypted { VERSION_OF_ENCRYPTION } else { VERSION_OF_SEALS };
    let (client, server) = (PrivateKey::new([number; 32]), PrivateKey::new([0x21; 32]));
    let nonce = client.public();
    let hello = Hello { version_min: version, version_max: version, fs_id: [1; 16], nonce };
    let challenge = Challenge {
        version,
        nonce: server.public(),
        server: ServerId(1),
        store: StoreId(41),
        map_epoch: 6,
        proof: [4; 32],
        peer_proof: [8; 32],
        seal,
    };
    let attach = Attach {
        proof: [5; 32],
        collection: CollectionId(1),
        client: ClientId([6; 16]),
        peer: None,
        session: None,
        slots: 64,
        client_key: Some(PrivateKey::new([0x22; 32]).public()),
    };
    let key = SecretKey::new([7; 32]);
    let handshake = Handshake { hello: &hello, challenge: &challenge, attach: &attach };
    let shared = client.exchange(&challenge.nonce).expect("both are drawn keys");
    [handshake.end_of_client(&key, &shared), handshake.end_of_server(&key, &shared)]
}

/// The sample frames, as one end sends them sealed.
pub fn sealed_frames(sealer: &mut Sealer) -> Vec<Vec<u8>> {
    let seal_one = |(_, bytes): (FrameKind, Vec<u8>)| {
        let bulk_at = bytes.len() - if bytes.ends_with(b"bulk") { 4 } else { 0 };
        let (mut frame, bulk) = (bytes[..bulk_at].to_vec(), &bytes[bulk_at..]);
        sealer.seal_whole(&mut frame, 0, bulk);
        frame
    };
    super::frames().into_iter().map(seal_one).collect()
}
