//! [`Env`](crate::Env): the handle through which all code above this crate reaches clocks, random numbers,
//! tasks, sockets and files.

use crate::crash_point::CrashPoint;
use crate::{
    Address, Counters, DirEntry, DiskSpace, File, FileDoor, HostFiles, Instant, Listener, OpenOptions,
    Stream, WallTime, Work,
};
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A name must be resolved within this time; else it is an error.
const RESOLVE_MAX: Duration = Duration::from_secs(3);
/// Time for each of several addresses of a host to answer, except the last.
const CONNECT_TURN: Duration = Duration::from_secs(1);

/// The functions of a world. Implemented by [`real`](crate::real) and [`sim`](crate::sim); used through
/// [`Env`].
pub trait Door {
    /// The monotonic clock.
    fn now(&self) -> Instant;
    /// The wall clock.
    fn wall(&self) -> WallTime;
    /// Fill with random bytes (cryptographic when real, from the seed when simulated).
    fn random(&self, buf: &mut [u8]);
    /// Wait until a moment.
    fn sleep_until(&self, until: Instant) -> LocalBoxFuture<'static, ()>;
    /// The same, with a precision of some microseconds.
    fn pause_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        self.sleep_until(until)
    }
    /// Run a task in this world.
    fn spawn(&self, name: &'static str, future: LocalBoxFuture<'static, ()>) -> Task;
    /// Run a closure off this thread (simulated: at once, its cost charged to virtual time).
    fn offload(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()>;
    /// The same for background work: it gives way to all other threads.
    fn offload_background(&self, work: Box<dyn FnOnce() + Send>) -> LocalBoxFuture<'static, ()> {
        self.offload(work)
    }
    /// Listen at an address.
    fn listen(&self, at: &Address) -> LocalBoxFuture<'static, io::Result<Listener>>;
    /// Connect to an address; never to a host's name, which [`Env::connect`] resolves.
    fn connect(&self, to: &Address) -> LocalBoxFuture<'static, io::Result<Stream>>;
    /// The current addresses of a host's name, preferred ones first.
    fn resolve(&self, host: &str) -> LocalBoxFuture<'static, io::Result<Vec<IpAddr>>>;
    /// Files.
    fn files(&self) -> &dyn FileDoor;
    /// Users' files.
    fn host(&self) -> io::Result<Arc<dyn HostFiles>>;
    /// The counts.
    fn counters(&self) -> &Arc<Counters>;
    /// Keep polling for up to `span` before the thread sleeps (0: sleep at once). Real only where cores are
    /// idle.
    fn set_polling(&self, span: Duration);
    /// See [`Env::note`].
    fn note(&self, _words: &dyn Fn() -> String) {}
    /// See [`Env::work`].
    fn work(&self, _work: Work, _count: u64) {}
    /// See [`Env::crash_point`].
    fn crash_point(&self, _point: CrashPoint, _which: u64) {}
}

/// A running task. Dropping it lets the task continue; [`Task::cancel`] ends it at its next await.
pub struct Task(pub Box<dyn Fn()>);

impl Task {
    /// End the task: its future is dropped.
    pub fn cancel(&self) {
        (self.0)();
    }
}

/// A handle to a world. It never leaves its world; cheap to clone.
#[derive(Clone)]
pub struct Env(pub Rc<dyn Door>);

/// A wait ran past its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Env {
    /// The monotonic clock.
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// The wall clock.
    pub fn wall(&self) -> WallTime {
        self.0.wall()
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        let mut buf = [0; 8];
        self.0.random(&mut buf);
        u64::from_le_bytes(buf)
    }

    /// Fill with random bytes.
    pub fn random(&self, buf: &mut [u8]) {
        self.0.random(buf);
    }

    /// Wait for a span.
    pub fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()> {
        self.0.sleep_until(self.now() + span)
    }

    /// Wait until a moment.
    pub fn sleep_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        self.0.sleep_until(until)
    }

    /// Wait until a moment that is less than a millisecond away, with a precision of some microseconds;
    /// [`Env::sleep_until`] may come a millisecond late. It costs a system call or two.
    pub fn pause_until(&self, until: Instant) -> LocalBoxFuture<'static, ()> {
        self.0.pause_until(until)
    }

    /// Run a task in this world.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + 'static) -> Task {
        self.0.spawn(name, Box::pin(future))
    }

    /// Await `future`, but not past `deadline`.
    pub async fn deadline<T>(
        &self,
        deadline: Instant,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        // A trait object: the wait is compiled for each kind of value, not for each future.
        let future: std::pin::Pin<&mut dyn Future<Output = T>> = std::pin::pin!(future);
        match futures_util::future::select(future, self.sleep_until(deadline)).await {
            futures_util::future::Either::Left((value, _)) => Ok(value),
            futures_util::future::Either::Right(_) => Err(Elapsed),
        }
    }

    /// Run a closure off this thread and await its value. A panic inside is an error.
    pub async fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (send, receive) = oneshot::channel();
        let run = self.0.offload(Box::new(move || {
            let _ = send.send(work());
        }));
        run.await;
        receive.await.map_err(|_| io::Error::other("off-thread work did not finish"))
    }

    /// [`Env::offload`] for background work: its thread gives way to all others.
    pub async fn offload_background<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (send, receive) = oneshot::channel();
        let run = self.0.offload_background(Box::new(move || {
            let _ = send.send(work());
        }));
        run.await;
        receive.await.map_err(|_| io::Error::other("off-thread work did not finish"))
    }

    /// Listen at an address.
    pub async fn listen(&self, at: &Address) -> io::Result<Listener> {
        self.0.listen(at).await
    }

    /// Connect to an address. A host's name is resolved each time, and its addresses are tried one after
    /// the other.
    pub async fn connect(&self, to: &Address) -> io::Result<Stream> {
        let Address::Host(host, port) = to else { return self.0.connect(to).await };
        let mut found = self.resolve(host).await?.into_iter().peekable();
        let mut failed = io::Error::new(io::ErrorKind::NotFound, format!("the host {host} has no address"));
        while let Some(ip) = found.next() {
            let connecting = self.0.connect(&Address::Tcp((ip, *port).into()));
            // The last one gets all the caller's remaining time.
            let connected = match found.peek() {
                None => connecting.await,
                Some(_) => self.deadline(self.now() + CONNECT_TURN, connecting).await.unwrap_or_else(|_| {
                    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {CONNECT_TURN:?}")))
                }),
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = io::Error::new(error.kind(), format!("{host} is {ip}: {error}")),
            }
        }
        Err(failed)
    }

    /// The current addresses of a host's name. Takes a bounded time, also when name servers do not answer.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match self.deadline(self.now() + RESOLVE_MAX, self.0.resolve(host)).await {
            Ok(found) => found,
            Err(Elapsed) => {
                let words = format!("the name {host} was not resolved within {RESOLVE_MAX:?}");
                Err(io::Error::new(io::ErrorKind::TimedOut, words))
            }
        }
    }

    /// Open a file.
    pub async fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> io::Result<File> {
        self.0.files().open(path.as_ref(), options).await
    }

    /// Entries of a directory, sorted by name.
    pub async fn list(&self, path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
        self.0.files().list(path.as_ref()).await
    }

    /// Make a directory and its parents; existing is no error.
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().create_dir(path.as_ref()).await
    }

    /// Make a directory's entries durable.
    pub async fn sync_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().sync_dir(path.as_ref()).await
    }

    /// Make durable all changes of every process in the file system that holds `path`.
    pub async fn sync_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().sync_all(path.as_ref()).await
    }

    /// Remove a file.
    pub async fn remove(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().remove(path.as_ref()).await
    }

    /// Rename a file, replacing the target.
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().rename(from.as_ref(), to.as_ref()).await
    }

    /// Read a whole file of at most `limit` bytes.
    pub async fn read_file(&self, path: impl AsRef<Path>, limit: usize) -> io::Result<bytes::Bytes> {
        let file = self.open(path, OpenOptions::default()).await?;
        let len = file.len().await?;
        if len > limit as u64 {
            return Err(io::Error::other(format!("file of {len} bytes where at most {limit} are expected")));
        }
        file.read_at(0, usize::try_from(len).unwrap_or(limit)).await
    }

    /// Replace a whole file atomically and durably (write a new file, sync it, rename it, sync the
    /// directory).
    pub async fn replace_file(&self, path: impl AsRef<Path>, content: bytes::Bytes) -> io::Result<()> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let file = self.open(&beside, OpenOptions { create: true, ..OpenOptions::default() }).await?;
        file.truncate(0).await?;
        file.write_at(0, vec![content]).await?;
        file.sync().await?;
        self.rename(&beside, path).await?;
        self.sync_dir(path.parent().unwrap_or(Path::new("/"))).await
    }

    /// Exclusive lock on a path for the life of the process.
    pub async fn lock(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.files().lock(path.as_ref()).await
    }

    /// Space of the file system where `path` lies.
    pub async fn space(&self, path: impl AsRef<Path>) -> io::Result<DiskSpace> {
        self.0.files().space(path.as_ref()).await
    }

    /// The id of the page cache's contents: they are lost together.
    pub fn boot_id(&self) -> [u8; 16] {
        self.0.files().boot_id()
    }

    /// See [`FileDoor::native_path`].
    pub fn native_path(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.0.files().native_path(path.as_ref())
    }

    /// Users' files, on this machine.
    ///
    /// # Errors
    /// Why they cannot be reached here.
    pub fn host(&self) -> io::Result<Arc<dyn HostFiles>> {
        self.0.host()
    }

    /// The counts.
    pub fn counters(&self) -> &Arc<Counters> {
        self.0.counters()
    }

    /// Add a line to the simulated world's timeline. The real world ignores it, and no run depends on it.
    /// The words are built only if lines are kept.
    pub fn note(&self, words: impl Fn() -> String) {
        self.0.note(&words);
    }

    /// Report work that was just done; a simulated processor is charged for it (see [`Work`]). The real
    /// world ignores it.
    pub fn work(&self, work: Work, count: u64) {
        self.0.work(work, count);
    }

    /// An activity has reached a step (see [`crash_point`](crate::crash_point)); `which` distinguishes it
    /// from others of its kind.
    pub fn crash_point(&self, point: CrashPoint, which: u64) {
        self.0.crash_point(point, which);
    }

    /// Keep polling for up to `span` before the thread sleeps.
    pub fn set_polling(&self, span: Duration) {
        self.0.set_polling(span);
    }
}
