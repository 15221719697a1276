//! The wire's unit: a compound. The messages of the handshake are here too.
//!
//! A request holds groups of operations, run in order on one server. **Each group is one atomic transaction
//! with a status of its own**: an `Exists` of one group does not undo the others. If a group changes
//! something, the request has a slot, and the group's reply is kept in the journal record of its change until
//! the slot's next sequence. So a retry runs only the groups that were not done.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::op::{Answer, Op, Transfer};
use crate::seal::{PrivateKey, Shared};
use crate::wire::{Many, Text, wire_struct};
use crate::{CollectionId, Durability, Seal, SecretKey, SessionId, Slot, Status, StreamFacts, limits};

wire_struct! {
    /// Operations that succeed or fail together. The first that fails ends the group.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Group {
        /// The operations, in order.
        pub ops: Many<Op, { limits::GROUP_OPS_MAX }>,
    }
}

wire_struct! {
    /// Identifies a change of a session: the slot, and a sequence that grows by one with each use of the
    /// slot (from 1).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct SlotUse {
        /// The slot.
        pub slot: Slot,
        /// Its sequence. 64 bits: a slot that is used a million times a second lasts 500,000 years.
        pub sequence: u64,
    }
}

wire_struct! {
    /// A compound.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Request {
        /// The slot, if any group changes something.
        pub slot: Option<SlotUse>,
        /// Milliseconds the client will wait: the server gives up after them.
        pub timeout_ms: u32,
        /// Durability of the changes when the reply leaves.
        pub durability: Durability,
        /// The groups, in order.
        pub groups: Many<Group, { limits::GROUPS_MAX }>,
    }
}

wire_struct! {
    /// The reply to one group: its status, and the answers of the operations that succeeded, in order.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct GroupReply {
        /// `Ok`, or the error of the operation after the last answer. A failed group changed nothing.
        pub status: Status,
        /// Answers.
        pub answers: Many<Answer, { limits::GROUP_OPS_MAX }>,
    }
}

wire_struct! {
    /// Loss ids: everything under one id would be lost together.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Loss {
        /// A hash of the kernel's boot id and of how often the store was poisoned. If it differs later, all
        /// that was not durable is lost. 0 in the reply to changes that are all durable. Every other reply
        /// has it.
        pub kept: u64,
        /// The start of the server, if a kill of the server alone would lose the changes as well (metadata
        /// *never*, or a request without durability); 0 if it would not. The reply to an fsync always has
        /// it.
        pub start: u64,
    }
}

impl Loss {
    /// Whether the changes are lost, when the server now says `now`. A field that is 0 on one side proves
    /// nothing.
    pub fn is_lost(self, now: Loss) -> bool {
        let differ = |was: u64, is: u64| was != 0 && is != 0 && was != is;
        differ(self.kept, now.kept) || differ(self.start, now.start)
    }

    /// Whether none of the changes can be lost.
    pub fn is_nothing(self) -> bool {
        self == Loss::default()
    }

    /// Loss ids of these changes and of `later`, which were made since and found nothing lost.
    #[must_use]
    pub fn and(self, later: Loss) -> Loss {
        let of = |was: u64, is: u64| if is == 0 { was } else { is };
        Loss { kept: of(self.kept, later.kept), start: of(self.start, later.start) }
    }
}

wire_struct! {
    /// The reply to a compound.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Reply {
        /// Loss ids: if the reply to a write and the reply to its fsync differ in them, the write may be
        /// lost, and fsync returns `EIO`.
        pub loss: Loss,
        /// Epoch of the server's map. If it is higher than the client's, the client fetches the map.
        pub map_epoch: u32,
        /// One for each group, in order.
        pub groups: Many<GroupReply, { limits::GROUPS_MAX }>,
    }
}

wire_struct! {
    /// A piece of a long read: what the stream has of packed bytes `from .. from + len` of the transfer's
    /// pattern is the frame's bulk, densely. Bytes of the share that are left out at its end are after the
    /// stream's end. The frame's tag is the request's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Piece {
        /// The first packed byte.
        pub from: u64,
        /// Packed bytes, those of other servers included.
        pub len: u64,
        /// Facts of the stream when the request was looked at, before the first byte was read.
        pub facts: StreamFacts,
    }
}

wire_struct! {
    /// The client awaits a long read no longer: no further piece of it is sent, and its reply comes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Leave {
        /// The tag of the request.
        pub request: u64,
    }
}

wire_struct! {
    /// The server has room for a part of a long write: the client sends it, as a [`Give`]. The frame's tag is
    /// the request's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Grant {
        /// The first packed byte.
        pub from: u64,
        /// Packed bytes, those of other servers included.
        pub len: u64,
    }
}

wire_struct! {
    /// A part of a long write, as it was granted: what the stream has of packed bytes `from .. from + len` of
    /// the transfer's pattern is the frame's bulk, densely. The frame's tag is the request's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Give {
        /// The first packed byte.
        pub from: u64,
        /// Packed bytes, those of other servers included.
        pub len: u64,
    }
}

impl Request {
    /// The transfer of a long write: a request of nothing but one `write`, without data, of a window that has
    /// bytes. Its data is pulled by grants.
    pub fn long_write(&self) -> Option<&Transfer> {
        match self.groups.as_slice() {
            [group] => match group.ops.as_slice() {
                [Op::Write { transfer, len: 0 }] if transfer.window_len > 0 => Some(transfer),
                _ => None,
            },
            _ => None,
        }
    }

    /// The transfer of a long read: a request of nothing but one `read`, of more packed bytes than a chunk.
    /// If the share is longer than a chunk, too, it is answered by pieces.
    pub fn long_read(&self) -> Option<&Transfer> {
        let ([group], None) = (self.groups.as_slice(), self.slot) else { return None };
        match group.ops.as_slice() {
            [Op::Read { transfer }] if transfer.window_len > limits::FLOW_CHUNK_BYTES as u64 => {
                Some(transfer)
            }
            _ => None,
        }
    }
}

wire_struct! {
    /// The first message: the file system and the protocol versions of the side that connects.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Hello {
        /// Lowest and highest version of the protocol it speaks.
        pub version_min: u16,
        /// See `version_min`.
        pub version_max: u16,
        /// The file system it wants.
        pub fs_id: [u8; 16],
        /// Random, for this connection; from version 7 on the public part of a key pair
        /// ([`crate::seal`]).
        pub nonce: [u8; 32],
    }
}

/// The server's answer: the version, and a challenge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// The version both will speak.
    pub version: u16,
    /// As that of [`Hello`].
    pub nonce: [u8; 32],
    /// The server's id.
    pub server: crate::ServerId,
    /// The store that it serves from.
    pub store: crate::StoreId,
    /// Epoch of its map. A server with an older map does not know the stores given up since.
    pub map_epoch: u32,
    /// The server's proof to a client, by the mount key: no client talks to an impostor.
    pub proof: [u8; 32],
    /// Its proof to a peer, by the servers' key, which no client has.
    pub peer_proof: [u8; 32],
    /// How much of the frames that follow the handshake is sealed. Encoded from version 7 on; before that
    /// nothing is.
    pub seal: Seal,
}

impl Codec for Challenge {
    fn encode(&self, w: &mut Writer) {
        w.put_u16(self.version);
        self.nonce.encode(w);
        self.server.encode(w);
        self.store.encode(w);
        w.put_u32(self.map_epoch);
        self.proof.encode(w);
        self.peer_proof.encode(w);
        if self.version >= VERSION_OF_SEALS {
            self.seal.encode(w);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.get_u16()?;
        Ok(Challenge {
            version,
            nonce: r.get()?,
            server: r.get()?,
            store: r.get()?,
            map_epoch: r.get_u32()?,
            proof: r.get()?,
            peer_proof: r.get()?,
            seal: if version >= VERSION_OF_SEALS { r.get()? } else { Seal::Off },
        })
    }
}

wire_struct! {
    /// The identity of a server that connects to its peer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Peer {
        /// Its id.
        pub server: crate::ServerId,
        /// The store that it serves from.
        pub store: crate::StoreId,
        /// Its journal is durable up to this position.
        pub position: u64,
    }
}

/// The proof of the side that connects that it has the key of its role, and the session and collection it
/// attaches to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attach {
    /// A client's is by the mount key, a server's (`peer`) by the servers' key.
    pub proof: [u8; 32],
    /// The collection.
    pub collection: CollectionId,
    /// The client, the same over all its sessions.
    pub client: crate::tx::ClientId,
    /// The identity, if a server connects to its peer.
    pub peer: Option<Peer>,
    /// The session to continue; `None`: a new one.
    pub session: Option<SessionId>,
    /// Slots requested.
    pub slots: u16,
    /// The public part of the key pair that the client drew when it began. The proof is also by its private
    /// part. Clients of version 7 have one; no peer has, and nothing is encoded for `None`.
    pub client_key: Option<[u8; 32]>,
}

impl Codec for Attach {
    fn encode(&self, w: &mut Writer) {
        self.proof.encode(w);
        self.collection.encode(w);
        self.client.encode(w);
        self.peer.encode(w);
        self.session.encode(w);
        w.put_u16(self.slots);
        if let Some(key) = &self.client_key {
            key.encode(w);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Attach {
            proof: r.get()?,
            collection: r.get()?,
            client: r.get()?,
            peer: r.get()?,
            session: r.get()?,
            slots: r.get_u16()?,
            client_key: if r.is_empty() { None } else { Some(r.get()?) },
        })
    }
}

wire_struct! {
    /// Attached: the session.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Attached {
        /// The session.
        pub session: SessionId,
        /// Slots granted.
        pub slots: u16,
        /// Milliseconds without a message after which the session ends (and its orphans are removed).
        pub lease_ms: u32,
        /// Bytes of data that may be under way on this connection at once.
        pub credit_bytes: u32,
        /// Most bytes of data in a request or reply itself.
        pub eager_bytes: u32,
        /// Epoch of the server's map.
        pub map_epoch: u32,
        /// See [`Loss::kept`].
        pub loss: u64,
    }
}

wire_struct! {
    /// The connection is refused, or ended with a reason.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Refusal {
        /// Why.
        pub status: Status,
        /// For people: the object and the remedy.
        pub words: Text,
    }
}

/// The lowest version that knows mount keys with names: one that does not cannot read a map that has some.
pub const VERSION_OF_NAMED_KEYS: u16 = 5;

/// The lowest version that has `dropcache` and `checkfiles`.
pub const VERSION_OF_CACHES_AND_FILES: u16 = 6;

/// The lowest version that has `rmforked`.
pub const VERSION_OF_WHOLE_REMOVALS: u16 = 6;

/// The lowest version that knows layouts that clients follow: containers and composed directories.
pub const VERSION_OF_FOLLOWED_LAYOUTS: u16 = 7;

/// The lowest version whose frames can be sealed, and whose clients have a key of their own.
pub const VERSION_OF_SEALS: u16 = 7;

/// The lowest version whose frames can be encrypted.
pub const VERSION_OF_ENCRYPTION: u16 = 8;

/// The lowest and highest version of the protocol of this program.
///
/// - version 2: a server names its store; a slot's sequence has 64 bits; an fsync carries the generation that
///   its client knows.
/// - version 3: an append says whether its client knows the file's layout; servers prove themselves by a key
///   of their own; forked files; locks of files.
/// - version 4: a long read is one request, answered by pieces; the data of a long write is pulled by grants.
/// - version 5: a map may list mount keys; the tag of a [`Hello`] is the id of the key by which both sides
///   prove themselves.
/// - version 6: a client can have a stream's caches dropped, its file looked for, and a forked file removed
///   with its subfiles in one transaction.
/// - version 7: frames after the handshake can be sealed; a session is continued by the key of its client; a
///   directory can have a layout that its clients follow.
/// - version 8: frames after the handshake can be encrypted.
pub const VERSIONS: (u16, u16) = (4, 8);

/// Each proof covers both nonces and all fields of both messages, so no proof can be replayed, reflected or
/// used for other words.
impl Challenge {
    /// Prove it with the mount key that the client named, and with the servers' key.
    pub fn prove(&mut self, mount: &SecretKey, server: &SecretKey, hello: &Hello) {
        (self.proof, self.peer_proof) = self.proofs(mount, server, hello);
    }

    /// Whether a server made it that has this mount key: for clients.
    pub fn is_proven(&self, mount: &SecretKey, hello: &Hello) -> bool {
        SecretKey::equal(&self.proof, &self.proofs(mount, mount, hello).0)
    }

    /// Whether a server made it that has this servers' key: for peers.
    pub fn is_proven_to_peer(&self, server: &SecretKey, hello: &Hello) -> bool {
        SecretKey::equal(&self.peer_proof, &self.proofs(server, server, hello).1)
    }

    fn proofs(&self, mount: &SecretKey, server: &SecretKey, hello: &Hello) -> ([u8; 32], [u8; 32]) {
        let said = Challenge { proof: [0; 32], peer_proof: [0; 32], ..self.clone() };
        let parts: &[&[u8]] = &[&hello.to_bytes(), &said.to_bytes()];
        (mount.mac("challenge to a client", parts), server.mac("challenge to a server", parts))
    }
}

/// `shared` is the exchange of the client's key and the server's nonce; `None` if the message has no client's
/// key. A server has it from [`Attach::exchange`].
impl Attach {
    /// Prove it with the key of its role.
    pub fn prove(&mut self, key: &SecretKey, hello: &Hello, challenge: &Challenge, shared: Option<&Shared>) {
        self.proof = self.proof_by(key, hello, challenge, shared);
    }

    /// Whether it was made with this key, as the answer to this challenge.
    pub fn is_proven(
        &self,
        key: &SecretKey,
        hello: &Hello,
        challenge: &Challenge,
        shared: Option<&Shared>,
    ) -> bool {
        SecretKey::equal(&self.proof, &self.proof_by(key, hello, challenge, shared))
    }

    /// The exchange of its client's key with the private part of the server's nonce.
    ///
    /// # Errors
    /// `BadMessage`: a client of this version has a key, which no older one nor a peer has; or the key is
    /// none that a client draws.
    pub fn exchange(&self, version: u16, nonce: &PrivateKey) -> Result<Option<Shared>, Status> {
        let has_one = version >= VERSION_OF_SEALS && self.peer.is_none();
        match &self.client_key {
            None if !has_one => Ok(None),
            Some(key) if has_one => nonce.exchange(key).map(Some).ok_or(Status::BadMessage),
            _ => Err(Status::BadMessage),
        }
    }

    fn proof_by(
        &self,
        key: &SecretKey,
        hello: &Hello,
        challenge: &Challenge,
        shared: Option<&Shared>,
    ) -> [u8; 32] {
        let said = Attach { proof: [0; 32], ..self.clone() };
        let messages = [hello.to_bytes(), challenge.to_bytes(), said.to_bytes()];
        let parts: Vec<&[u8]> =
            messages.iter().map(Vec::as_slice).chain(shared.map(|it| &it.as_bytes()[..])).collect();
        key.mac("attach", &parts)
    }
}
