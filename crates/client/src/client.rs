//! The client's interface. [`Client::connect`] makes a client; its operations are in `ops/`.

use crate::core::{Core, Operation};
use crate::{ClientCounters, Error, Options, driver};
use shoal_env::Env;
use shoal_proto::{ClientId, ClusterMap, Durability, Handle, Op};
use std::rc::Rc;

/// A client of one file system. Cheap to clone; it never leaves its world. When the last clone (and the last
/// [`OpenFile`] and [`DirStream`]) is dropped, its connections end.
///
/// [`OpenFile`]: crate::OpenFile
/// [`DirStream`]: crate::DirStream
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Rc<Core>,
    durability: Durability,
    _end: Rc<End>,
}

/// Ends the drivers' tasks with the last clone.
struct End(Rc<Core>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Connect to a file system: to the first server of `options.map_from` that answers, for the map.
    ///
    /// # Errors
    /// When none answers, the key does not match, or it is another file system; the words say which.
    pub async fn connect(env: Env, options: Options) -> Result<Client, Error> {
        Ok(Client::over(driver::connect(env, options).await?))
    }

    /// A client over a core; a driver must run the core.
    pub(crate) fn over(core: Rc<Core>) -> Client {
        Client { _end: Rc::new(End(core.clone())), durability: Durability::Usual, core }
    }

    /// The same client, whose changes ask for another durability than the file system's modes give. Files
    /// opened and made through it write with it too. Less durability is the caller's own risk: no other
    /// client sees changes that a power cut could take back.
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Client {
        Client { durability, ..self.clone() }
    }

    /// Begin an operation.
    pub(crate) fn begin(&self, op: &'static str, object: Option<Handle>) -> Operation {
        self.core.begin(op, object).with(self.durability)
    }

    /// The servers, as last received.
    pub fn map(&self) -> Rc<ClusterMap> {
        self.core.map()
    }

    /// This client's id: the same over all its sessions.
    pub fn id(&self) -> ClientId {
        self.core.id
    }

    /// The counts so far.
    pub fn counters(&self) -> ClientCounters {
        let messages = self.core.messages.borrow().sorted();
        ClientCounters { messages, ..self.core.counters.borrow().clone() }
    }

    /// Take waits for locks back, release the orphans still held, and end the connections. The sessions end
    /// with their leases.
    pub async fn close(&self) {
        self.core.take_waits_back().await;
        let orphans = self.core.held.borrow_mut().take_orphans();
        for object in orphans {
            let o = self.core.begin("release", Some(object));
            // Objects whose release fails here are released when the session's lease ends.
            drop(self.core.ask(&o, object.server(), vec![Op::Release { object }]).await);
        }
        self.core.close();
    }
}
