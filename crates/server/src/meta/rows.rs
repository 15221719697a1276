//! Types of the values of the collection's rows ([`keys`](crate::meta::keys) lists the tables). Each value of
//! these types begins with a version byte, so that a later format can read an older row.

use bytes::Bytes;
use shoal_proto::codec::{Codec, DecodeError, Reader, Writer};
use shoal_proto::message::Loss;
use shoal_proto::{
    Action, Blob, ClientId, Handle, Kind, Layout, Many, Name, ServerId, Shards, Template, Time, TxId, limits,
};

/// Version of all rows written.
const VERSION: u8 = 1;

/// A row's value: encoded after its version.
pub trait RowValue: Codec {
    /// As bytes.
    fn to_row(&self) -> Bytes {
        let mut w = Writer::with_capacity(128);
        w.put_u8(VERSION);
        self.encode(&mut w);
        w.into_vec().into()
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are of a later version or damaged.
    fn from_row(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.get_u8()? != VERSION {
            return Err(DecodeError::Invalid("row version"));
        }
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        impl Codec for $name {
            fn encode(&self, w: &mut Writer) { $(Codec::encode(&self.$field, w);)* }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($name { $($field: Codec::decode(r)?,)* })
            }
        }
        impl RowValue for $name {}
    )*};
}

/// The public part of a client's key; none: the session was begun before clients had one. It is the last
/// field of its row, and nothing is encoded for none, as before format 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientKey(pub Option<[u8; 32]>);

impl From<Option<[u8; 32]>> for ClientKey {
    fn from(key: Option<[u8; 32]>) -> ClientKey {
        ClientKey(key)
    }
}

impl Codec for ClientKey {
    fn encode(&self, w: &mut Writer) {
        if let Some(key) = &self.0 {
            key.encode(w);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ClientKey(if r.is_empty() { None } else { Some(r.get()?) }))
    }
}

rows! {
    /// An object. Size, space and the newest write's time of a file are its stream's
    /// ([`shoal_store::StreamInfo`]).
    Inode {
        /// Kind.
        kind: Kind,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Hard links.
        nlink: u32,
        /// Device number.
        rdev: u64,
        /// Last access, explicit.
        atime: Time,
        /// Last change of data: a directory's, or a file's explicit one (a newer write of the stream wins).
        mtime: Time,
        /// Last change of attributes (a newer write of the stream wins).
        ctime: Time,
        /// Birth.
        btime: Time,
        /// A directory's parent (the root's is itself); else zero.
        parent: Handle,
        /// Layout wished for.
        template: Template,
        /// Layout of an unstuffed file.
        layout: Option<Layout>,
        /// Target of a symbolic link.
        target: Option<Blob<{ limits::PATH_BYTES_MAX }>>,
        /// Bytes of the extended attributes' names, as they are listed; 0: there are none, and nothing need
        /// be searched.
        xattr_bytes: u32,
        /// Entries of a directory, or of the shard of it that this row is of; else zero.
        entries: u32,
        /// The shards of a directory that is split. The row is then one of several, under the one handle:
        /// that of its own server, which alone has its parent and its extended attributes, and one on each
        /// other shard's.
        shards: Shards,
    }

    /// An entry of a directory.
    Dirent {
        /// The object that it leads to.
        handle: Handle,
        /// Its kind.
        kind: Kind,
    }

    /// A datafile.
    Datafile {
        /// The metafile it belongs to.
        owner: Handle,
    }

    /// A client's session.
    Session {
        /// The client.
        client: ClientId,
        /// Set for a peer server's session.
        peer: Option<ServerId>,
        /// Slots.
        slots: u16,
        /// The key by which alone it is continued.
        client_key: ClientKey,
    }

    /// A group's reply, kept for a retry: valid for this sequence of its slot.
    Kept {
        /// Sequence.
        sequence: u64,
        /// Encoded [`shoal_proto::GroupReply`].
        reply: Blob<{ limits::KEPT_REPLY_BYTES_MAX }>,
        /// The loss id of the bytes written outside the record, as of then; 0: there are none.
        loss: Option<Loss>,
    }

    /// An object without a name, and one client that it is kept for: the key says which
    /// ([`crate::meta::lingering`]).
    Orphan {
        /// Since when.
        since: Time,
    }

    /// An object without a name that is kept for a while for any clients that have it open
    /// ([`crate::meta::lingering`]).
    Lingering {
        /// Bytes that its removal frees, about, on all servers.
        bytes: u64,
    }

    /// An object that a client made and is about to give a name: an orphan of its session until its name is
    /// known to exist.
    New {
        /// The client.
        client: ClientId,
        /// Where it goes: a metafile's directory, or a datafile's metafile.
        place: Handle,
        /// Under which name, in a directory.
        name: Option<Name>,
    }

    /// An entry that a client took away, whose object has a link too many until the client removes it.
    Unnamed {
        /// The client.
        client: ClientId,
    }

    /// A metafile that its server took back before it was entered here.
    Void {
        /// The client that made it.
        client: ClientId,
    }

    /// An object that was given a second name.
    Linked {
        /// When.
        time: Time,
    }

    /// A datafile to be removed on another server.
    Reap {
        /// The metafile it belonged to.
        owner: Handle,
    }

    /// Datafiles of another server, made ahead of need for files of this one ([`crate::data::pools`]).
    Pool {
        /// Drawn at random when the pool began, so that no batch of an older one is taken for one of its own.
        id: u64,
        /// The batch stored last.
        sequence: u64,
        /// How many were taken so far.
        taken: u64,
        /// Up to this count they may be taken: a start retires those between the two.
        lent: u64,
        /// Those left, in the order in which they are taken.
        ranges: Many<Range, { Pool::RANGES_MAX }>,
    }

    /// Datafiles with consecutive handles.
    Range {
        /// The first.
        first: Handle,
        /// How many.
        count: u16,
    }

    /// The batch of datafiles made last for another server's pool.
    Grant {
        /// Its pool.
        pool: u64,
        /// The batch's number there.
        sequence: u64,
        /// It.
        range: Range,
    }

    /// Datafiles made ahead of need for another server's pool ([`crate::data::precreated`]).
    Batch {
        /// That server.
        pool: ServerId,
        /// How many, from the key's handle on.
        count: u16,
        /// A bit for each: it was named once, and its own rows describe it.
        used: Blob<{ limits::BATCH_MAX / 8 }>,
    }

    /// A transaction that was committed here, as one of several participants: if the coordinator's store is
    /// lost before all of them have committed it, they are to do the same.
    Ended {
        /// When.
        time: Time,
    }

    /// A transaction, as participant (prepared) or coordinator (committed).
    Tx {
        /// The state.
        state: TxState,
    }
}

/// See [`Tx`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TxState {
    /// Participant: validated and locked; in doubt until the coordinator's decision.
    Prepared {
        /// The actions to commit.
        actions: Vec<Action>,
        /// The servers with a part in it, but for its coordinator; none: there are more actions to come.
        participants: Vec<ServerId>,
    },
    /// Coordinator: decided; these servers have not said yet that they finished.
    Committed {
        /// They.
        unfinished: Vec<ServerId>,
    },
}

impl Codec for TxState {
    fn encode(&self, w: &mut Writer) {
        match self {
            TxState::Prepared { actions, participants } => {
                w.put_u8(1);
                w.put_list(actions);
                w.put_list(participants);
            }
            TxState::Committed { unfinished } => {
                w.put_u8(2);
                w.put_list(unfinished);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.get_u8()? {
            1 => Ok(TxState::Prepared {
                actions: Many::<Action, { limits::ACTIONS_MAX }>::decode(r)?.0,
                participants: Many::<ServerId, { limits::SERVERS_MAX }>::decode(r)?.0,
            }),
            2 => {
                Ok(TxState::Committed { unfinished: Many::<ServerId, { limits::SERVERS_MAX }>::decode(r)?.0 })
            }
            _ => Err(DecodeError::Invalid("transaction row")),
        }
    }
}

/// The transaction of a row's key.
pub fn tx_of_key(key: &[u8]) -> Option<TxId> {
    key.get(1..9).and_then(|b| b.try_into().ok()).map(|b| TxId(u64::from_be_bytes(b)))
}
