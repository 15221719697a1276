//! The real environment: a tokio current-thread runtime on the kernel's clocks, sockets and files. Such a
//! runtime with its tasks is a *world*. One thread drives it; a migratable world may change its thread, but
//! only one thread at a time drives it.
//!
//! [`run`] makes a runtime on the calling thread and drives one future and the tasks it spawns ([`tasks`]).
//! Each run has three small pools of threads: one for file calls that may block, one for [`Env::offload`],
//! and one thread of low priority for [`Env::offload_background`]. The pools are separate so that a long
//! computation never delays a journal's write. A run shares with other runs only in-process streams
//! ([`Address::Local`]) and lookups of host names.
//!
//! **Invariant: a panic in a task ends the run.** The panic unwinds to the caller of [`run`] (test:
//! `a_panic_in_a_task_ends_the_run_with_that_panic`); a server with a dead task inside would be worse than no
//! server.
//!
//! Files are read inline if the page cache has the bytes (`preadv2` with `RWF_NOWAIT`), and through the
//! pool otherwise; small writes to the page cache are made inline as long as none stalls ([`inline`]).
//! tokio's own file I/O is not used: it costs a copy and a thread hop for each call, cached or not.

pub mod descriptors;
mod dir;
mod ended;
mod file;
mod host;
mod inline;
mod local;
mod migratable;
mod names;
mod pause;
mod polling;
mod pool;
mod send;
mod shared;
mod tasks;
mod tcp;
mod turn;
mod unix;

use crate::{Address, Counters, Door, Env, FileDoor, HostFiles, Instant, Listener, Stream, Task, WallTime};
use futures_util::future::LocalBoxFuture;
use migratable::World;
pub use migratable::run_woken;
use polling::Polling;
use pool::Pool;
pub use shared::{Keeper, Shared};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tasks::{Body, Tasks};
use tokio::runtime::Builder;
use tokio::task::coop::unconstrained;
pub use turn::Turn;

/// Most threads of one environment for file calls that may block. Started when first needed.
const FILE_THREADS_MAX: usize = 4;
/// Most threads of one environment for [`Env::offload`]. Started when first needed.
const OFFLOAD_THREADS_MAX: usize = 4;

/// Run `body` and the tasks it spawns on this thread until `body` ends; the remaining tasks are dropped.
/// `name` names the threads of the environment's pools.
///
/// # Panics
///
/// If the kernel has no descriptors or memory for a runtime; and when any task panicked, with its panic.
pub fn run<T, F>(name: &str, body: impl FnOnce(Env) -> F) -> T
where
    F: Future<Output = T>,
{
    let runtime = Runtime::new(name);
    let env = runtime.env();
    runtime.block_on(async { body(env).await })
}

/// A world of the calling thread that can be entered repeatedly: a client for code that blocks. Between two
/// calls of [`Runtime::block_on`] its tasks do not run.
pub struct Runtime {
    // The fields end in this order: the tasks first (they hold files and sockets), with the pools' threads
    // and the locks.
    door: Ending,
    runtime: tokio::runtime::Runtime,
    /// Several threads call it.
    shared: Option<Shared>,
}

struct Ending(Rc<RealDoor>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Runtime {
    /// A new world; see [`run`].
    ///
    /// # Panics
    ///
    /// If the kernel has no descriptors or memory for a runtime.
    pub fn new(name: &str) -> Runtime {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap_or_else(|error| panic!("cannot start `{name}`: {error}"));
        Runtime { runtime, door: Ending(Rc::new(RealDoor::new(name))), shared: None }
    }

    /// A new world that several threads call, one at a time: the one that has the turn ([`Runtime::turn`]).
    /// [`Runtime::block_on`] gives the turn away while it waits, and has it again at its return.
    ///
    /// # Panics
    ///
    /// If the kernel has no descriptors or memory for a runtime.
    pub fn shared(name: &str) -> Runtime {
        Runtime { shared: Some(Shared::default()), ..Runtime::new(name) }
    }

    /// The turn of a shared world.
    pub fn turn(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    /// The handle to it.
    pub fn env(&self) -> Env {
        Env(self.door.0.clone())
    }

    /// Drive `future`, and the tasks spawned so far and by it, until it ends.
    ///
    /// # Panics
    ///
    /// When any task panicked, with its panic.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut value = None;
        // Pinned here: the runtime moves its future several times, and an operation's future has kilobytes.
        self.drive(pin!(async { value = Some(future.await) }));
        value.expect("a body that ended has a value")
    }

    /// The same for each kind of body, so that the runtime's code is compiled once.
    fn drive(&self, body: Body<'_, ()>) {
        match ended::is_ended() {
            false => self.drive_here(body),
            true => ended::elsewhere(|| self.drive_here(body)),
        }
    }

    fn drive_here(&self, body: Body<'_, ()>) {
        if let Some(shared) = &self.shared {
            return shared.drive(self, body);
        }
        let door = &self.door.0;
        let stays_awake = || door.polling.stays_awake();
        let root = door.tasks.run(body, &stays_awake);
        // The tasks' own turns are bounded; the runtime's bounds would end a round in its midst.
        self.runtime.block_on(unconstrained(root));
    }

    /// The same for a body that makes all it needs by itself; any thread that wakes it polls it
    /// ([`migratable`]).
    fn run_migratable<T, F>(&self, body: impl FnOnce(Env) -> F + 'static) -> T
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        let (door, env) = (self.door.0.clone(), self.env());
        let value = Rc::new(RefCell::new(None));
        let kept = value.clone();
        let root = Box::pin(async move {
            let stays_awake = || door.polling.stays_awake();
            let body = pin!(async { body(env).await });
            let ended = door.tasks.run(body, &stays_awake).await;
            kept.replace(Some(ended));
        });
        let world = World::new(root, self.runtime.handle().clone());
        self.runtime.block_on(unconstrained(world.own()));
        value.take().expect("a world that ended without a panic has a value")
    }
}

/// [`run`] in a new thread of that name.
///
/// # Errors
///
/// When the thread cannot be made.
pub fn spawn_thread<T, F>(
    name: &str,
    body: impl FnOnce(Env) -> F + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let own_name = name.to_owned();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&own_name, body))
}

/// As [`spawn_thread`], but another thread that wakes the world may poll it, within [`run_woken`] (the
/// pools' threads do): one wake-up less.
///
/// `body`, and all code in the new world, must keep nothing in thread-local variables, and must not block a
/// thread for long.
///
/// # Errors
///
/// When the thread cannot be made.
pub fn spawn_migratable<T, F>(
    name: &str,
    body: impl FnOnce(Env) -> F + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let own_name = name.to_owned();
    let own = move || Runtime::new(&own_name).run_migratable(body);
    std::thread::Builder::new().name(name.to_owned()).spawn(own)
}

/// The real implementation of `Door`; one for each run.
struct RealDoor {
    counters: Arc<Counters>,
    tasks: Tasks,
    polling: Rc<Polling>,
    files: dir::RealFiles,
    offload: Pool,
    background: Pool,
    timers: pause::Timers,
}

impl RealDoor {
    fn new(name: &str) -> RealDoor {
        let counters = Arc::new(Counters::default());
        let polling = Rc::new(Polling::default());
        let pool = Rc::new(Pool::new(format!("{name}-file"), FILE_THREADS_MAX));
        RealDoor {
            files: dir::RealFiles::new(pool, counters.clone(), polling.clone()),
            offload: Pool::new(format!("{name}-off"), OFFLOAD_THREADS_MAX),
            background: Pool::new(format!("{name}-back"), 1).that_gives_way(),
            counters,
            tasks: Tasks::new(),
            polling,
            timers: pause::Timers::default(),
        }
    }

    fn end(&self) {
        self.tasks.end();
        self.offload.end();
        self.background.end();
        self.files.end();
        self.timers.end();
    }
}

/// The monotonic clock's origin: the same for all threads, so that their moments compare.
fn origin() -> std::time::Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now)
}

/// The monotonic clock of all real environments, for threads outside them.
pub fn now() -> Instant {
    Instant(u64::try_from(origin().elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The wall clock of all real environments, for threads outside them.
pub fn wall() -> WallTime {
    let nanos = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n),
    };
    WallTime(nanos)
}

impl Door for RealDoor {
    fn now(&self) -> Instant {
        now()
    }

    fn wall(&self) -> WallTime {
        wall()
    }

    fn random(&self, buf: &mut [u8]) {
        getrandom::fill(buf).expect("Linux's random source, once the machine is up, does not fail");
    }

    fn sleep_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        // tokio's wheel cannot hold a moment centuries away; it is cut to 30 years.
        let far = origin() + Duration::from_secs(30 * 365 * 24 * 3600);
        let at = origin().checked_add(Duration::from_nanos(until.0)).map_or(far, |at| at.min(far));
        Box::pin(async move { tokio::time::sleep_until(at.into()).await })
    }

    fn pause_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        let timers = self.timers.clone();
        let polling = self.polling.clone();
        Box::pin(async move {
            let span = Duration::from_nanos(until.0.saturating_sub(now().0));
            // If the kernel gives no timer, use the runtime's own.
            if timers.wait(span).await.is_err() {
                tokio::time::sleep(span).await;
            }
            polling.note();
        })
    }

    fn spawn(&self, _name: &'static str, future: LocalBoxFuture<'static, ()>) -> Task {
        let task = self.tasks.spawn(future);
        Task(Box::new(move || task.cancel()))
    }

    fn offload(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        Counters::add(&self.counters.offloads, 1);
        let done = self.offload.run(work);
        let polling = self.polling.clone();
        Box::pin(async move {
            // After a panic in `work` this is an error, and so is the future that the caller awaits: its
            // sender is gone.
            let _ = done.await;
            polling.note();
        })
    }

    fn offload_background(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        Counters::add(&self.counters.offloads, 1);
        let done = self.background.run(work);
        let polling = self.polling.clone();
        Box::pin(async move {
            let _ = done.await;
            polling.note();
        })
    }

    fn listen(&self, at: &Address) -> LocalBoxFuture<'static, io::Result<Listener>> {
        let (meter, at) = (self.meter(), at.clone());
        Box::pin(async move {
            match at {
                Address::Tcp(addr) => tcp::listen(addr, meter),
                Address::Host(host, port) => tcp::listen_by_name(host, port, meter),
                Address::Unix(path) => unix::listen(path, meter),
                Address::Local(name) => local::listen(name, meter),
            }
        })
    }

    fn connect(&self, to: &Address) -> LocalBoxFuture<'static, io::Result<Stream>> {
        let (meter, to) = (self.meter(), to.clone());
        Box::pin(async move {
            match to {
                Address::Tcp(addr) => tcp::connect(addr, meter).await,
                Address::Host(..) => Err(io::ErrorKind::Unsupported.into()),
                Address::Unix(path) => unix::connect(path, meter).await,
                Address::Local(name) => local::connect(&name, meter),
            }
        })
    }

    fn resolve(&self, host: &str) -> LocalBoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (found, polling) = (names::resolve(host), self.polling.clone());
        Box::pin(async move {
            let found = found.await;
            polling.note();
            found
        })
    }

    fn files(&self) -> &dyn FileDoor {
        &self.files
    }

    fn host(&self) -> io::Result<Arc<dyn HostFiles>> {
        Ok(Arc::new(host::RealHost::new()?))
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn set_polling(&self, span: Duration) {
        self.polling.set_span(span);
    }
}

impl RealDoor {
    fn meter(&self) -> Meter {
        Meter { counters: self.counters.clone(), polling: self.polling.clone() }
    }
}

/// Reports of every stream: its counts, and its events.
#[derive(Clone)]
struct Meter {
    counters: Arc<Counters>,
    polling: Rc<Polling>,
}

impl Meter {
    fn read(&self, bytes: usize) {
        Counters::add(&self.counters.socket_reads, 1);
        Counters::add(&self.counters.socket_read_bytes, bytes as u64);
        self.polling.note();
    }

    fn wrote(&self, bytes: usize) {
        Counters::add(&self.counters.socket_writes, 1);
        Counters::add(&self.counters.socket_write_bytes, bytes as u64);
        self.polling.note();
    }
}
