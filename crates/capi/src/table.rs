//! The table of ids. For each open id it has the kind and the connection.
//!
//! Ids count up and are never used again, so an id that was closed stays unknown. The table's lock is held
//! only for a lookup or a change of the table. `fork` holds the locks of all tables: in the child, where the
//! other threads are not, they are free.

use crate::call::{Res, failure};
use crate::patterns::{self, Patterns};
use crate::session::Session;
use shoal_world::World;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// Open ids, at most.
const OPEN_MAX: usize = 1 << 20;

/// The kind of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A connection.
    FileSystem,
    /// An open file.
    File,
    /// A listing.
    Listing,
}

/// A connection to a file system.
pub struct Connection {
    /// Its world.
    pub world: World<Session>,
    milliseconds: AtomicI64,
    process: u32,
}

impl Connection {
    /// A connection of this process.
    pub fn new(timeout: Duration) -> Connection {
        let milliseconds = AtomicI64::new(timeout.as_millis() as i64);
        Connection { world: World::new(), milliseconds, process: std::process::id() }
    }

    /// Time for each call.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.milliseconds.load(Ordering::Relaxed).unsigned_abs())
    }

    /// Set it.
    pub fn set_timeout(&self, milliseconds: i64) {
        self.milliseconds.store(milliseconds, Ordering::Relaxed);
    }
}

const CHILD: &str = "the connection is that of the parent process: a child connects by itself";

/// The process that added an id last.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether this process is a child that has added none.
fn is_childs() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process != 0 && process != std::process::id()
}

type Ids = BTreeMap<u64, (Kind, Arc<Connection>)>;

static TABLE: Mutex<Ids> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn table() -> MutexGuard<'static, Ids> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new id.
pub fn add(kind: Kind, connection: &Arc<Connection>) -> Res<u64> {
    let mut table = table();
    if table.len() >= OPEN_MAX {
        return Err(failure(libc::EMFILE, format!("{OPEN_MAX} handles are open")));
    }
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    table.insert(id, (kind, connection.clone()));
    PROCESS.store(std::process::id(), Ordering::Release);
    Ok(id)
}

/// The connection of an id.
pub fn find(kind: Kind, id: u64) -> Res<Arc<Connection>> {
    // No lock of the parent's is waited for.
    if is_childs() {
        return Err(failure(libc::EBADF, CHILD));
    }
    let found =
        table().get(&id).filter(|(known, _)| *known == kind).map(|(_, connection)| connection.clone());
    let Some(connection) = found else {
        return Err(failure(libc::EBADF, format!("{id} is no open {kind:?}")));
    };
    if connection.process != std::process::id() {
        return Err(failure(libc::EBADF, CHILD));
    }
    Ok(connection)
}

thread_local! {
    /// The locks of the tables, while this thread forks.
    static HELD: Cell<Option<Held>> = const { Cell::new(None) };
}

type Held = (MutexGuard<'static, Ids>, MutexGuard<'static, Patterns>);

extern "C" fn before_fork() {
    let held = (table(), patterns::patterns());
    // A thread at its end has no such place, and forks without.
    let _ = HELD.try_with(|place| place.set(Some(held)));
}

extern "C" fn after_fork() {
    let _ = HELD.try_with(Cell::take);
}

/// From the first call on, `fork` holds the locks.
pub fn hold_over_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions stay as long as the library; the C library forgets them when it is unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
    });
}

/// An id is closed; whether it was open.
pub fn remove(id: u64) -> bool {
    table().remove(&id).is_some()
}
