//! The cluster's map: which servers there are, where they listen, what they hold.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::Template;
use crate::switches::Switches;
use crate::wire::{Many, Text, wire_struct};
use crate::{CollectionId, ServerId, limits};

bitflags::bitflags! {
    /// What a server holds.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Roles: u8 {
        /// Metadata: metafiles, directories.
        const METADATA = 1;
        /// Data: datafiles, and stuffed files' first strips.
        const DATA = 2;
    }
}

impl Codec for Roles {
    fn encode(&self, w: &mut Writer) {
        w.put_u8(self.bits());
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Roles::from_bits(r.get_u8()?).ok_or(DecodeError::Invalid("roles"))
    }
}

wire_struct! {
    /// One server.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ServerInfo {
        /// Its id: its index here.
        pub id: ServerId,
        /// Where it listens, in the form of `env`'s addresses (`tcp:…`, `unix:…`, `local:…`); several are alternatives, the
        /// nearest that connects is used: in the process, on the machine, over the network.
        pub addresses: Many<Text, 8>,
        /// What it holds.
        pub roles: Roles,
    }
}

wire_struct! {
    /// The servers of a file system. A higher epoch replaces a lower one; servers are only ever added.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ClusterMap {
        /// The file system's id, drawn once at random.
        pub fs_id: [u8; 16],
        /// Its name.
        pub name: Text,
        /// Its collection on every server.
        pub collection: CollectionId,
        /// Version of this map.
        pub epoch: u32,
        /// Where a directory says nothing else.
        pub template: Template,
        /// Which techniques are used.
        pub switches: Switches,
        /// The servers, by id. Server 0 holds the root.
        pub servers: Many<ServerInfo, { limits::SERVERS_MAX }>,
    }
}

impl ClusterMap {
    /// A server's entry.
    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.servers.get(usize::from(id.0))
    }

    /// The servers with all of `roles`, in order.
    pub fn with_roles(&self, roles: Roles) -> impl Iterator<Item = ServerId> + Clone + '_ {
        self.servers.iter().filter(move |s| s.roles.contains(roles)).map(|s| s.id)
    }
}
