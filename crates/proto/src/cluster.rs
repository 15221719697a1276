//! The cluster's map: which servers there are, where they listen, what they hold.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::Template;
use crate::switches::Switches;
use crate::wire::{Many, Text, wire_struct};
use crate::{CollectionId, ServerId, StoreId, limits};

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
        /// Its store. [`StoreId::NONE`] until one is known; then another one is refused until an operator gives this one up.
        pub store: StoreId,
        /// Stores of this server that were given up for good, the newest last. Each is refused from then on.
        pub retired: Many<StoreId, { limits::RETIRED_MAX }>,
    }
}

impl ServerInfo {
    /// A server of which no store is known yet.
    pub fn new(id: ServerId, addresses: impl Into<Many<Text, 8>>, roles: Roles) -> ServerInfo {
        ServerInfo {
            id,
            addresses: addresses.into(),
            roles,
            store: StoreId::NONE,
            retired: Vec::new().into(),
        }
    }

    /// Whether this server may be served from `store`: no other one is known, and it was not given up.
    pub fn admits(&self, store: StoreId) -> bool {
        self.store.agrees(store) && !self.has_retired(store)
    }

    /// The first counter of handles that its present store gives. Each store has a range of its own, so no handle, transaction
    /// or pool of a store that was given up is ever named again by its successor (the root directory alone keeps its handle).
    pub fn handles_from(&self) -> u64 {
        self.retired.len() as u64 * limits::STORE_HANDLES
    }

    /// The counter behind the last one that its present store may give.
    pub fn handles_to(&self) -> u64 {
        self.handles_from() + limits::STORE_HANDLES
    }

    /// Whether this store was given up for good.
    pub fn has_retired(&self, store: StoreId) -> bool {
        self.retired.contains(&store)
    }

    /// Give the known store up for good; from now on the server is served from `store`.
    ///
    /// # Errors
    /// When more stores were given up than a map holds.
    pub fn renew(&mut self, store: StoreId) -> Result<(), crate::Status> {
        if self.store.is_known() && !self.retired.contains(&self.store) {
            if self.retired.len() >= limits::RETIRED_MAX {
                return Err(crate::Status::OverLimit);
            }
            self.retired.push(self.store);
        }
        self.store = store;
        Ok(())
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

    /// The map that takes the place of this one where `given` is known too: `given` if it is newer or has more servers, this one
    /// otherwise. Stores that this one knows are kept.
    pub fn succeeded_by(&self, given: &ClusterMap) -> ClusterMap {
        let added = given.servers.len().saturating_sub(self.servers.len()) as u32;
        if given.epoch <= self.epoch && added == 0 {
            return self.clone();
        }
        let mut next = given.clone();
        next.epoch = given.epoch.max(self.epoch.saturating_add(added));
        next.remember_stores(self);
        next
    }

    /// Whether this map and `other` say the same, as far as each knows the servers' stores.
    pub fn agrees(&self, other: &ClusterMap) -> bool {
        let (mut one, mut two) = (self.clone(), other.clone());
        one.remember_stores(other);
        two.remember_stores(self);
        one == two
    }

    /// Take over which stores `known` knows, where this map knows none: what is known of a store is never forgotten.
    pub fn remember_stores(&mut self, known: &ClusterMap) {
        for (info, known) in self.servers.iter_mut().zip(known.servers.iter()) {
            if known.retired.len() > info.retired.len() || !info.store.is_known() {
                info.store = known.store;
                info.retired = known.retired.clone();
            }
        }
    }

    /// The servers with all of `roles`, in order.
    pub fn with_roles(&self, roles: Roles) -> impl Iterator<Item = ServerId> + Clone + '_ {
        self.servers.iter().filter(move |s| s.roles.contains(roles)).map(|s| s.id)
    }
}
