//! The cluster's map: its servers, their addresses, their roles and their stores.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::Template;
use crate::mount_keys;
use crate::switches::Switches;
use crate::wire::{Many, Text, wire_struct};
use crate::{CollectionId, MountKey, MountKeyId, ServerId, StoreId, limits};

bitflags::bitflags! {
    /// The roles of a server.
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
        /// Its id: its index in the map.
        pub id: ServerId,
        /// Its addresses, in the form of `env`'s addresses (`tcp:…`, `unix:…`, `local:…`). They are
        /// alternatives: a client uses the nearest that connects (in the process, on the machine, over the
        /// network).
        pub addresses: Many<Text, 8>,
        /// Its roles.
        pub roles: Roles,
        /// Its store. [`StoreId::NONE`] until one is known. Once one is known, every other store is refused
        /// until an operator gives this one up.
        pub store: StoreId,
        /// Stores of this server that were given up for good, the newest last. Each is refused from then
        /// on.
        pub retired: Many<StoreId, { limits::RETIRED_MAX }>,
        /// The store continues from an older copy of the previous store; otherwise it began empty.
        pub is_copy: bool,
        /// How often its addresses were changed. Of two maps the one with the greater count has the current
        /// addresses.
        pub moved: u32,
    }
}

impl ServerInfo {
    /// A server without a known store.
    pub fn new(id: ServerId, addresses: impl Into<Many<Text, 8>>, roles: Roles) -> ServerInfo {
        ServerInfo {
            id,
            addresses: addresses.into(),
            roles,
            store: StoreId::NONE,
            retired: Vec::new().into(),
            is_copy: false,
            moved: 0,
        }
    }

    /// Whether this entry has newer addresses than `other`. Of two concurrent changes every server picks
    /// the same one.
    fn is_where_it_went(&self, other: &ServerInfo) -> bool {
        let of = |info: &ServerInfo| info.addresses.iter().map(|at| at.0.clone()).collect::<Vec<_>>();
        self.moved > other.moved || (self.moved == other.moved && self.moved > 0 && of(self) > of(other))
    }

    /// Whether this server may be served from `store`: no other store is known, and `store` was not given
    /// up.
    pub fn admits(&self, store: StoreId) -> bool {
        self.store.agrees(store) && !self.has_retired(store)
    }

    /// The first counter of the handles that its present store gives. Each store has a range of its own, so
    /// a successor never names a handle, transaction or pool of a store that was given up (only the root
    /// directory keeps its handle).
    pub fn handles_from(&self) -> u64 {
        self.retired.len() as u64 * limits::STORE_HANDLES
    }

    /// The counter after the last one that its present store may give.
    pub fn handles_to(&self) -> u64 {
        self.handles_from() + limits::STORE_HANDLES
    }

    /// Whether this store was given up for good.
    pub fn has_retired(&self, store: StoreId) -> bool {
        self.retired.contains(&store)
    }

    /// Whether its store replaced the store in `known`.
    pub fn succeeds(&self, known: &ServerInfo) -> bool {
        let is_given_up = !known.store.is_known() || self.has_retired(known.store);
        self.retired.len() > known.retired.len() && is_given_up
    }

    /// Whether this entry knows something of the store that `known` does not. Of two successors of one
    /// store that were named concurrently, every server picks the same one. Both commands that named them
    /// failed: a server that knew the other successor refused each.
    fn knows_store_of(&self, known: &ServerInfo) -> bool {
        let given_up = (self.retired.len(), known.retired.len());
        let other = || (&self.retired.0, self.store) > (&known.retired.0, known.store);
        match known.store.is_known() {
            false => given_up.0 >= given_up.1,
            true => given_up.0 > given_up.1 || (given_up.0 == given_up.1 && given_up.0 > 0 && other()),
        }
    }

    /// Gives the known store up for good. From now on the server is served from `store`, which began empty,
    /// or as an older copy (`is_copy`).
    ///
    /// # Errors
    /// When more stores were given up than a map holds.
    pub fn renew(&mut self, store: StoreId, is_copy: bool) -> Result<(), crate::Status> {
        if self.store.is_known() && !self.retired.contains(&self.store) {
            if self.retired.len() >= limits::RETIRED_MAX {
                return Err(crate::Status::OverLimit);
            }
            self.retired.push(self.store);
        }
        (self.store, self.is_copy) = (store, is_copy);
        Ok(())
    }
}

/// The servers of a file system. Each change has a higher epoch; servers are only ever added.
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
    /// The template where a directory has none of its own.
    pub template: Template,
    /// The techniques in use.
    pub switches: Switches,
    /// The servers, by id. Server 0 holds the root.
    pub servers: Many<ServerInfo, { limits::SERVERS_MAX }>,
    /// The mount keys with names, and the first key once it is revoked, by id.
    pub keys: Many<MountKey, { limits::MOUNT_KEYS_MAX }>,
}

/// Set in the count of servers where a list of keys follows them. A map without keys is encoded as it was
/// before there were any.
const KEYS_FOLLOW: u32 = 1 << 31;

impl Codec for ClusterMap {
    fn encode(&self, w: &mut Writer) {
        self.fs_id.encode(w);
        self.name.encode(w);
        self.collection.encode(w);
        w.put_u32(self.epoch);
        self.template.encode(w);
        self.switches.encode(w);
        let keys = if self.keys.is_empty() { 0 } else { KEYS_FOLLOW };
        w.put_u32(self.servers.len() as u32 | keys);
        self.servers.iter().for_each(|server| server.encode(w));
        if keys != 0 {
            self.keys.encode(w);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (fs_id, name, collection) = (r.get()?, r.get()?, r.get()?);
        let (epoch, template, switches) = (r.get_u32()?, r.get()?, r.get()?);
        let count = r.get_u32()?;
        let (count, keys_follow) = (count & !KEYS_FOLLOW, count & KEYS_FOLLOW != 0);
        if count as usize > limits::SERVERS_MAX {
            return Err(DecodeError::Invalid("count of servers"));
        }
        // Each takes bytes of the input, so no room is made for a count that lies.
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(r.get()?);
        }
        let keys: Many<MountKey, { limits::MOUNT_KEYS_MAX }> =
            if keys_follow { r.get()? } else { Vec::new().into() };
        let in_order = keys.windows(2).all(|two| two[0].id < two[1].id);
        if (keys_follow && keys.is_empty()) || !in_order || keys.iter().any(|key| key.check().is_err()) {
            return Err(DecodeError::Invalid("mount keys"));
        }
        Ok(ClusterMap { fs_id, name, collection, epoch, template, switches, servers: servers.into(), keys })
    }
}

impl ClusterMap {
    /// A server's entry.
    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.servers.get(usize::from(id.0))
    }

    /// The successor of this map once `given` is known too. **Nothing that either map knows is lost**:
    /// servers are only added, a store that was given up stays given up, and a server keeps its latest
    /// addresses. So several servers may change their maps concurrently and exchange them in any order. The
    /// epoch is greater than that of both, unless the result equals one of them.
    pub fn succeeded_by(&self, given: &ClusterMap) -> ClusterMap {
        let age = |map: &ClusterMap| (map.servers.len(), map.epoch);
        // Both sides pick the same one of the two.
        let is_newer = age(given) > age(self)
            || (age(given) == age(self) && given != self && given.to_bytes() > self.to_bytes());
        let (newer, older) = if is_newer { (given, self) } else { (self, given) };
        let added = newer.servers.len().saturating_sub(older.servers.len()) as u32;
        let mut next = newer.clone();
        next.remember_stores(older);
        next.remember_addresses(older);
        mount_keys::meet(&mut next.keys, &older.keys);
        next.epoch = newer.epoch.max(older.epoch.saturating_add(added));
        if next.is_news_to(self) || next.is_news_to(given) {
            next.epoch = next.epoch.saturating_add(1);
        }
        next
    }

    /// Whether a map of the same epoch differs. A store that it does not know yet is no difference: each
    /// server learns that from its peer.
    fn is_news_to(&self, known: &ClusterMap) -> bool {
        let mut known = known.clone();
        for (info, next) in known.servers.iter_mut().zip(self.servers.iter()) {
            if !info.store.is_known() {
                info.store = next.store;
            }
        }
        known.epoch == self.epoch && known != *self
    }

    /// Sets new addresses of a server; `moved`: the count of changes that these
    /// addresses have. Returns whether the map changed.
    ///
    /// # Errors
    /// `Invalid`: there is no such server, or no address. `Exists`: another server listens at one of them.
    /// `Conflict`: its addresses were changed to others since.
    pub fn move_server(
        &mut self,
        id: ServerId,
        addresses: &Many<Text, 8>,
        moved: u32,
    ) -> Result<bool, crate::Status> {
        let other = |info: &&ServerInfo| info.id != id;
        if self.servers.iter().filter(other).any(|s| s.addresses.iter().any(|at| addresses.contains(at))) {
            return Err(crate::Status::Exists);
        }
        let info = self.servers.0.get_mut(usize::from(id.0)).ok_or(crate::Status::Invalid)?;
        let next = ServerInfo { addresses: addresses.clone(), moved, ..info.clone() };
        if next == *info {
            return Ok(false);
        }
        if addresses.is_empty() {
            return Err(crate::Status::Invalid);
        }
        if !next.is_where_it_went(info) {
            return Err(crate::Status::Conflict);
        }
        *info = next;
        self.epoch = self.epoch.saturating_add(1);
        Ok(true)
    }

    /// A mount key of the list. The first one is not in it, until it is revoked.
    pub fn mount_key(&self, id: MountKeyId) -> Option<&MountKey> {
        self.keys.binary_search_by_key(&id, |key| key.id).ok().map(|at| &self.keys[at])
    }

    /// Adds a mount key, or revokes it. Returns whether the map changed.
    ///
    /// # Errors
    /// `Invalid`: its name is not allowed. `Exists`: another key that is not revoked has that name.
    /// `Conflict`: the key has another name or other limits, or is revoked. `OverLimit`: there are as many
    /// keys as may be.
    pub fn set_key(&mut self, key: &MountKey) -> Result<bool, crate::Status> {
        key.check()?;
        if let Some(known) = self.mount_key(key.id) {
            let is_same = (&known.name, known.limits) == (&key.name, key.limits);
            return match (is_same, known.revoked, key.revoked) {
                (false, ..) | (true, true, false) => Err(crate::Status::Conflict),
                (true, false, true) => Ok(self.enter_key(key)),
                (true, ..) => Ok(false),
            };
        }
        if self.keys.iter().any(|other| !other.revoked && !key.revoked && other.name == key.name) {
            return Err(crate::Status::Exists);
        }
        // Room is kept for the first one.
        if self.keys.len() + 1 >= limits::MOUNT_KEYS_MAX && key.id != MountKeyId::FIRST {
            return Err(crate::Status::OverLimit);
        }
        Ok(self.enter_key(key))
    }

    fn enter_key(&mut self, key: &MountKey) -> bool {
        mount_keys::meet(&mut self.keys, std::slice::from_ref(key));
        self.epoch = self.epoch.saturating_add(1);
        true
    }

    /// Whether this map and `other` are the same, as far as both know the servers' stores.
    pub fn agrees(&self, other: &ClusterMap) -> bool {
        let (mut one, mut two) = (self.clone(), other.clone());
        one.remember_stores(other);
        two.remember_stores(self);
        one == two
    }

    /// Takes the stores that `known` knows, where this map knows none: a known store is never forgotten.
    pub fn remember_stores(&mut self, known: &ClusterMap) {
        for (info, known) in self.servers.iter_mut().zip(known.servers.iter()) {
            if known.knows_store_of(info) {
                (info.store, info.is_copy) = (known.store, known.is_copy);
                info.retired = known.retired.clone();
            }
        }
    }

    /// Takes the addresses of servers where `known` has a greater count of changes.
    fn remember_addresses(&mut self, known: &ClusterMap) {
        for (info, known) in self.servers.iter_mut().zip(known.servers.iter()) {
            if known.is_where_it_went(info) {
                (info.addresses, info.moved) = (known.addresses.clone(), known.moved);
            }
        }
    }

    /// The servers with all of `roles`, in order.
    pub fn with_roles(&self, roles: Roles) -> impl Iterator<Item = ServerId> + Clone + '_ {
        self.servers.iter().filter(move |s| s.roles.contains(roles)).map(|s| s.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Status, samples};

    fn at(text: &str) -> Many<Text, 8> {
        vec![Text::from(text)].into()
    }

    fn key(id: u64, name: &str, revoked: bool) -> MountKey {
        MountKey { id: MountKeyId(id), name: name.into(), limits: crate::KeyLimits::default(), revoked }
    }

    /// Two servers that never moved, and no key with a name.
    fn settled() -> ClusterMap {
        let mut map = samples::map();
        map.keys.0.clear();
        map.servers.0.iter_mut().for_each(|info| info.moved = 0);
        map
    }

    fn addresses(map: &ClusterMap) -> Vec<String> {
        map.servers.iter().map(|info| info.addresses[0].0.clone()).collect()
    }

    #[test]
    fn changes_that_servers_heard_of_in_any_order_end_in_one_map() {
        let known = settled();
        let changed = |change: &dyn Fn(&mut ClusterMap)| {
            let mut map = known.clone();
            change(&mut map);
            map
        };
        let maps = [
            changed(&|map| assert_eq!(map.move_server(ServerId(0), &at("tcp:10.0.0.1:1"), 1), Ok(true))),
            changed(&|map| assert_eq!(map.move_server(ServerId(1), &at("tcp:10.0.0.2:1"), 1), Ok(true))),
            changed(&|map| assert_eq!(map.move_server(ServerId(1), &at("tcp:10.0.0.3:1"), 1), Ok(true))),
            changed(&|map| {
                map.servers.0[1].renew(StoreId(77), false).unwrap();
                map.epoch += 1;
            }),
            changed(&|map| assert_eq!(map.set_key(&key(7, "lab", false)), Ok(true))),
            changed(&|map| {
                assert_eq!(map.set_key(&key(5, "backup", false)), Ok(true));
                assert_eq!(map.set_key(&key(5, "backup", true)), Ok(true));
            }),
            changed(&|map| assert_eq!(map.set_key(&key(5, "backup", false)), Ok(true))),
            changed(&|map| {
                map.servers.push(ServerInfo::new(ServerId(2), at("tcp:10.0.0.4:1"), Roles::DATA));
                map.epoch += 1;
            }),
            known.clone(),
        ];
        for first in 0..maps.len() {
            let order: Vec<&ClusterMap> = maps.iter().cycle().skip(first).take(maps.len()).collect();
            for order in [order.clone(), order.into_iter().rev().collect()] {
                let met = order.iter().fold(known.clone(), |met, map| met.succeeded_by(map));
                assert!(order.iter().all(|map| met.succeeded_by(map) == map.succeeded_by(&met)));
                assert_eq!(addresses(&met), ["tcp:10.0.0.1:1", "tcp:10.0.0.3:1", "tcp:10.0.0.4:1"]);
                assert_eq!(met.servers[1].store, StoreId(77));
                let keys: Vec<_> = met.keys.iter().map(|key| (key.name.0.as_str(), key.revoked)).collect();
                assert_eq!(keys, [("backup", true), ("lab", false)], "a revoked key stays revoked");
                for map in &maps {
                    assert!(met.epoch > map.epoch, "a server with either map learns of a newer one");
                    let again = met.succeeded_by(map);
                    assert_eq!(again, met, "nothing is news twice");
                }
            }
        }
    }

    #[test]
    fn of_two_successors_of_one_store_the_same_one_counts_everywhere_and_no_given_up_one_comes_back() {
        let known = settled();
        let renewed = |store: u64, is_copy: bool| {
            let mut map = known.clone();
            map.servers.0[1].renew(StoreId(store), is_copy).unwrap();
            map.epoch += 1;
            map
        };
        let (one, two) = (renewed(77, false), renewed(78, true));
        let met = one.succeeded_by(&two);
        assert_eq!(met.servers[1], two.succeeded_by(&one).servers[1]);
        assert!(met.epoch > one.epoch);
        assert!(!two.servers[1].succeeds(&one.servers[1]) && two.servers[1].succeeds(&known.servers[1]));
        // A map that only knows the lost store, and went on without the change.
        let mut former = known.clone();
        for moved in 1..9 {
            assert_eq!(
                former.move_server(ServerId(1), &at(&format!("tcp:10.0.0.{moved}:1")), moved),
                Ok(true)
            );
        }
        for met in [former.succeeded_by(&one), one.succeeded_by(&former)] {
            let info = &met.servers[1];
            assert_eq!((info.store, info.moved), (StoreId(77), 8));
            assert!(info.has_retired(known.servers[1].store) && met.epoch > former.epoch);
        }
    }

    #[test]
    fn a_store_that_was_not_known_is_no_reason_for_another_epoch() {
        let known = settled();
        let mut file = ClusterMap { epoch: 3, ..known.clone() };
        file.servers
            .0
            .iter_mut()
            .for_each(|info| (info.store, info.retired) = (StoreId::NONE, Vec::new().into()));
        let mut fresh = known.clone();
        fresh.servers.0.iter_mut().for_each(|info| info.retired = Vec::new().into());
        file.servers.push(ServerInfo::new(ServerId(2), at("tcp:10.0.0.4:1"), Roles::DATA));
        assert_eq!(fresh.succeeded_by(&file).epoch, 3);
        assert_eq!(known.succeeded_by(&file).epoch, 4, "a store that was given up is one");
    }

    #[test]
    fn a_key_has_its_name_alone_until_it_is_revoked_and_then_for_good() {
        let mut map = settled();
        let epoch = map.epoch;
        assert_eq!(map.set_key(&key(7, "lab", false)), Ok(true));
        assert_eq!(map.set_key(&key(7, "lab", false)), Ok(false), "a repeated request");
        assert_eq!(map.set_key(&key(8, "lab", false)), Err(Status::Exists));
        assert_eq!(map.set_key(&key(7, "other", false)), Err(Status::Conflict));
        let more = MountKey { limits: crate::KeyLimits::READ_ONLY, ..key(7, "lab", false) };
        assert_eq!(map.set_key(&more), Err(Status::Conflict), "limits never change");
        assert_eq!(map.set_key(&key(7, "lab", true)), Ok(true));
        assert_eq!(map.set_key(&key(7, "lab", true)), Ok(false));
        assert_eq!(map.set_key(&key(7, "lab", false)), Err(Status::Conflict));
        assert_eq!(map.epoch, epoch + 2);
        assert_eq!(map.set_key(&key(8, "lab", false)), Ok(true), "the name is free again");
        assert_eq!(map.set_key(&key(9, "a/b", false)), Err(Status::Invalid));
        assert_eq!(map.set_key(&key(0, "first", true)), Ok(true));
        let full = (100..).find_map(|id| map.set_key(&key(id, &format!("n{id}"), false)).err());
        assert_eq!(full, Some(Status::OverLimit));
        assert_eq!(map.set_key(&key(8, "lab", true)), Ok(true), "a full list is no reason to let it in");
    }

    #[test]
    fn a_map_without_keys_is_encoded_as_before_there_were_any_and_a_list_that_lies_is_refused() {
        let (plain, full) = (settled(), samples::map());
        let (short, long) = (plain.to_bytes(), full.to_bytes());
        assert_eq!(ClusterMap::from_bytes(&short).as_ref(), Ok(&plain));
        assert_eq!(ClusterMap::from_bytes(&long).as_ref(), Ok(&full));
        for lies in [&|map: &mut ClusterMap| map.keys.0.reverse(), &|map: &mut ClusterMap| {
            map.keys.0[1].name = "a/b".into();
        }] as [&dyn Fn(&mut ClusterMap); 2]
        {
            let mut map = full.clone();
            lies(&mut map);
            assert!(ClusterMap::from_bytes(&map.to_bytes()).is_err());
        }
    }

    #[test]
    fn a_server_goes_where_it_was_sent_last_and_never_where_another_one_is() {
        let mut map = settled();
        let (first, second) = (at("tcp:10.0.0.1:1"), at("tcp:10.0.0.2:1"));
        assert_eq!(map.move_server(ServerId(1), &second, 1), Ok(true));
        let epoch = map.epoch;
        assert_eq!(map.move_server(ServerId(1), &second, 1), Ok(false), "a repeated request");
        assert_eq!(map.epoch, epoch);
        assert_eq!(map.move_server(ServerId(1), &first, 1), Err(Status::Conflict), "two at once: one counts");
        assert_eq!(map.move_server(ServerId(0), &second, 1), Err(Status::Exists));
        assert_eq!(map.move_server(ServerId(2), &first, 1), Err(Status::Invalid));
        assert_eq!(map.move_server(ServerId(1), &first, 2), Ok(true));
        assert_eq!(map.move_server(ServerId(1), &second, 1), Err(Status::Conflict));
        assert_eq!(map.move_server(ServerId(1), &Vec::new().into(), 3), Err(Status::Invalid));
    }
}
