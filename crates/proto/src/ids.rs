//! The ids of servers, files and other objects. Every kind of id is a type of its own, so that a swapped
//! argument does not compile.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $put:ident, $get:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl Codec for $name {
            fn encode(&self, w: &mut Writer) {
                w.$put(self.0);
            }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($name(r.$get()?))
            }
        }
    };
    ($(#[$doc:meta])* $name:ident($inner:ty), $put:ident, $get:ident, plain) => {
        id!($(#[$doc])* $name($inner), $put, $get);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A server of a file system: its index in the cluster's map, from 0. Never given to another server.
    ServerId(u16), put_u16, get_u16, plain
);
id!(
    /// A collection: a file system. Unique among those of one set of servers; 0 is none.
    CollectionId(u32), put_u32, get_u32, plain
);
id!(
    /// A client's session with one server, given by that server.
    SessionId(u64), put_u64, get_u64, plain
);
id!(
    /// A mount key: drawn at random with its name; 0 is the first key, which has no name of its own.
    MountKeyId(u64), put_u64, get_u64
);

impl MountKeyId {
    /// The key that the file system was made with.
    pub const FIRST: MountKeyId = MountKeyId(0);
}

impl fmt::Display for MountKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for MountKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

id!(
    /// A slot of a session: at most one change is under way in it.
    Slot(u16), put_u16, get_u16, plain
);
id!(
    /// The layout's generation of a file's metafile and datafiles; only grows.
    Generation(u64), put_u64, get_u64, plain
);
id!(
    /// Version of a stream's bytes: each change sets a number that no stream of its server had before.
    /// Equal counts mean equal bytes, also after restarts. Counts have no order: they do not say which
    /// bytes are newer.
    ChangeCount(u64), put_u64, get_u64, plain
);
id!(
    /// An object's id: 16 bits of server, 48 bits of a counter that only grows. Never used twice; never
    /// moves: it is also the inode number. The zero handle means *the compound's current object*.
    Handle(u64), put_u64, get_u64
);
id!(
    /// A transaction over several servers: a handle drawn by its coordinator, so never used twice.
    TxId(u64), put_u64, get_u64
);

id!(
    /// A store: the contents of one folder of one server. Drawn at random when the store is made, and never
    /// used for another. Zero ([`StoreId::NONE`]) where no store is known, and for modules that keep
    /// nothing.
    StoreId(u64), put_u64, get_u64
);

impl ChangeCount {
    /// No count: the object has no bytes.
    pub const NONE: ChangeCount = ChangeCount(0);
}

impl StoreId {
    /// None known.
    pub const NONE: StoreId = StoreId(0);

    /// Whether this is a store, and not [`StoreId::NONE`].
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// Whether two sides can talk of one store: the ids are equal, or one side knows none.
    pub const fn agrees(self, other: StoreId) -> bool {
        !self.is_known() || !other.is_known() || self.0 == other.0
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Handle {
    /// In a compound: the object that the group's last operation named.
    pub const CURRENT: Handle = Handle(0);
    /// Largest counter.
    pub const COUNTER_MAX: u64 = (1 << 48) - 1;

    /// A handle of a server.
    pub const fn new(server: ServerId, counter: u64) -> Handle {
        Handle((server.0 as u64) << 48 | (counter & Handle::COUNTER_MAX))
    }

    /// The root directory: counter 1 of server 0.
    pub const ROOT: Handle = Handle::new(ServerId(0), 1);

    /// The pool of a server, in the place of an owner: of a precreated datafile. No object has counter 2.
    pub const fn pool_of(server: ServerId) -> Handle {
        Handle::new(server, 2)
    }

    /// The server that holds the object.
    pub const fn server(self) -> ServerId {
        ServerId((self.0 >> 48) as u16)
    }

    /// The counter.
    pub const fn counter(self) -> u64 {
        self.0 & Handle::COUNTER_MAX
    }

    /// Big-endian bytes: the order of keys.
    pub const fn key_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl TxId {
    /// The server that decides.
    pub const fn coordinator(self) -> ServerId {
        Handle(self.0).server()
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.server(), self.counter())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Handle(self.0), f)
    }
}

impl fmt::Debug for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
