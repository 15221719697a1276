//! The options of a client at its start, in one place.

use shoal_env::Address;
use shoal_proto::{CollectionId, MountKeyId, SecretKey, limits};
use std::time::Duration;

/// Bound of an operation where nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The options of a client at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where servers of the cluster listen: any of them; the first that answers gives the map.
    pub map_from: Vec<Address>,
    /// A mount key of the file system.
    pub key: SecretKey,
    /// The id of that key.
    pub key_id: MountKeyId,
    /// The admin key: by it the client proves itself in place of `key`, so that it may manage. It checks
    /// servers by `key` all the same.
    pub admin: Option<SecretKey>,
    /// It may manage over the network by connections that are not sealed. On such a connection the holder of
    /// a mount key can pass for a server.
    pub admin_unsealed: bool,
    /// The file system's id: a server of another one refuses the client.
    pub fs_id: [u8; 16],
    /// Its collection.
    pub collection: CollectionId,
    /// How long a name is cached; zero: not at all.
    pub name_cache: Duration,
    /// How long attributes are cached; zero: not at all.
    pub attr_cache: Duration,
    /// Bound of every operation, retries included.
    pub timeout: Duration,
    /// Changes under way at once with each server, at most.
    pub slots: u16,
    /// Data sent or fetched as one message up to this many bytes (and up to what the server allows).
    pub eager_bytes: usize,
    /// Data of one write sent to one server without its grant; a longer one is pulled.
    pub unasked_bytes: u64,
    /// Nothing is changed by this client, nor opened for writing: such calls fail with `ReadOnly`, and are
    /// not sent.
    pub read_only: bool,
    /// How long the thread polls before it sleeps; zero where cores are scarce.
    pub polling: Duration,
}

impl Options {
    /// The customary options for a file system.
    pub fn new(map_from: Vec<Address>, key: SecretKey, fs_id: [u8; 16], collection: CollectionId) -> Options {
        Options {
            map_from,
            key,
            key_id: MountKeyId::FIRST,
            admin: None,
            admin_unsealed: false,
            fs_id,
            collection,
            name_cache: Duration::from_millis(100),
            attr_cache: Duration::from_millis(100),
            timeout: TIMEOUT,
            slots: 64,
            eager_bytes: limits::EAGER_BYTES_MAX,
            unasked_bytes: limits::CREDIT_BYTES as u64,
            read_only: false,
            polling: Duration::ZERO,
        }
    }
}
