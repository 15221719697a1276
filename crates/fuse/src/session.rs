//! A mount from its start to its end.
//!
//! ```text
//!   thread           work
//!   shoal-fuse       runs fuser: waits for its event loops (fuser-0, fuser-1, …), then ends the rest
//!   shoal-client     runs the client and its tasks, unless an event loop or a thread of a pool runs them
//!   shoal-forget     invalidates cached pages of a file in the kernel; one thread for each file that waits
//! ```
//!
//! A start connects first and then mounts, so a mount that exists answers. A mount is ended by our own
//! [`MountHandle::stop`], by an `umount`, or by an abort. All three reach this code through the kernel.
//! First the event loops end. Then requests under way get a moment to finish, open files are closed, and
//! the client's sessions are ended. **If the client dies, the mount is removed**: programs get an error
//! instead of waiting for ever.

use crate::adapter::{Adapter, Message, Queue, queue};
use crate::attach::Attached;
use crate::counts::RequestCounts;
use crate::forgetting::Forgetting;
use crate::fs::{AtOnce, Fs, Untrue};
use crate::mounts::{self, Mounted};
use crate::options::{MountOptions, THREADS_MAX};
use fuser::{Config, INodeNo, Notifier, Session, SessionACL};
use futures_channel::mpsc::UnboundedReceiver;
use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::future::{FutureExt, Shared};
use shoal_env::{Env, real};
use shoal_proto::Handle;
use shoal_vfs::{Connect, Error, Vfs};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time for requests under way to end after the kernel has gone.
const UNDER_WAY_GRACE: Duration = Duration::from_secs(5);
/// A mount that was taken away has so long to end before we no longer wait for it.
const END_GRACE: Duration = Duration::from_secs(15);
/// How long a mount in use is waited for when its handle is dropped.
const DROP_GRACE: Duration = Duration::from_secs(2);
/// Between two tries to unmount.
const PAUSE: Duration = Duration::from_millis(20);

/// Why there is no mount, or why it does not end.
#[derive(Debug)]
pub enum MountError {
    /// The client cannot reach the file system.
    Client(Error),
    /// An unsupported request; its name and the reason.
    Refused(String),
    /// Programs use the mount.
    Busy(PathBuf),
    /// The system failed at something.
    Io(String, io::Error),
}

impl MountError {
    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> MountError {
        MountError::Io(what.into(), error)
    }
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Client(error) => error.fmt(f),
            MountError::Refused(words) => f.write_str(words),
            MountError::Busy(point) => write!(
                f,
                "{} is in use: end the programs that have files open or work there (`fuser -vm {}` names them)",
                point.display(),
                point.display()
            ),
            MountError::Io(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

// Its words say all; a source would say it again.
impl std::error::Error for MountError {}

/// Mounting.
#[derive(Debug)]
pub struct Mount;

impl Mount {
    /// Connect to a file system and mount it at a directory (made if only it is missing); returns when it can
    /// be used.
    ///
    /// The file system's own caches of names and attributes are not used: the kernel caches facts for
    /// [`MountOptions::cache`], and they would otherwise be valid twice as long.
    ///
    /// Blocks, and serves nothing meanwhile: not for a thread on which a server of the file system runs.
    ///
    /// # Errors
    /// If the file system cannot be reached, the directory cannot be mounted on, or options do not go
    /// together.
    pub fn start<C: Connect>(
        mut from: C,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<MountHandle<C::Vfs>, MountError> {
        check(options)?;
        let point = mounts::prepare(mountpoint)?;
        from.under_a_kernel(options.read_only);

        let (queue, requests) = queue();
        let forgetting = Forgetting::default();
        let (ready, answer) = mpsc::channel();
        let mounted = MaybeAttached::default();
        let taken_away = TakenAway(mounted.clone());
        let at_once = Arc::new(AtOnce::new(options.cache));
        let serving = Serving {
            options: options.clone(),
            requests,
            forgetting: forgetting.clone(),
            ready,
            taken_away,
            at_once: at_once.clone(),
        };
        let client_thread = real::spawn_migratable("shoal-client", move |env| serve(env, from, serving))
            .map_err(|error| MountError::io("cannot start the client's thread", error))?;
        let connected = answer.recv().unwrap_or_else(|_| Err(Error::new(shoal_proto::Status::Io, "connect")));
        let readdirplus = connected.map_err(MountError::Client)?;

        let counts = Arc::<RequestCounts>::default();
        let ahead = options.readahead_bytes;
        let adapter =
            Adapter::new(queue.clone(), counts.clone(), at_once, ahead, readdirplus, options.local_locks);
        let (attached, device) = Attached::new(&point, options).inspect_err(|_| queue.end())?;
        let attached = mounted.get_or_init(|| attached);
        let config = config(options);
        let session = Session::from_fd(adapter, device, config.acl, config).map_err(|error| {
            queue.end();
            attached.end_loudly();
            MountError::io(format!("cannot serve the mount at {}", point.display()), error)
        })?;
        if let Some(device) = attached.device() {
            read_ahead(device, options.readahead_bytes);
        }
        forgetting.begin(forget_by(session.notifier()));

        let (ended, on_end) = ended();
        let panicked = Arc::<OnceLock<String>>::default();
        let threads = Threads {
            session,
            client: client_thread,
            forgetting,
            mounted: mounted.clone(),
            panicked: panicked.clone(),
            ended: on_end,
        };
        let own_queue = queue.clone();
        spawn("shoal-fuse", move || threads.run(&own_queue))?;
        Ok(MountHandle { point, mounted, counts, queue, panicked, ended })
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, MountError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| MountError::io(format!("cannot start the thread {name}"), error))
}

fn check(options: &MountOptions) -> Result<(), MountError> {
    let root = rustix::process::geteuid().is_root();
    let refused = |words: &str| Err(MountError::Refused(words.to_owned()));
    if options.threads == 0 || options.threads > THREADS_MAX {
        return Err(MountError::Refused(format!(
            "threads must be 1 to {THREADS_MAX}, not {}",
            options.threads
        )));
    }
    if options.readahead_bytes == 0 {
        return refused("the read-ahead must be at least 1 byte");
    }
    if !root && (options.suid || options.dev) {
        return refused("only root may mount with set-user-id programs or devices (suid, dev)");
    }
    if !root && options.readahead_bytes > (128 << 10) {
        return refused("only root may have more than 128 KiB read ahead");
    }
    Ok(())
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    config
}

/// More than the kernel offers by itself is set where root sets it for any device.
fn read_ahead(device: &str, bytes: u32) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if rustix::process::geteuid().is_root()
        && let Err(error) = std::fs::write(&path, (bytes / 1024).to_string())
    {
        tracing::warn!("the read-ahead stays the kernel's: {path}: {error}");
    }
}

/// The client's options.
struct Serving<V: Vfs> {
    options: MountOptions,
    requests: UnboundedReceiver<Message<V>>,
    forgetting: Forgetting,
    /// Receives whether listings carry attributes in this file system.
    ready: mpsc::Sender<Result<bool, Error>>,
    taken_away: TakenAway,
    at_once: Arc<AtOnce>,
}

async fn serve<C: Connect>(env: Env, from: C, mut serving: Serving<C::Vfs>) {
    let vfs = match from.connect(env.clone()).await {
        Ok(vfs) => vfs,
        Err(error) => {
            // The starter is there, waiting for this.
            let _ = serving.ready.send(Err(error));
            return;
        }
    };
    let lists_attributes = vfs.lists_attributes();
    let fs = Rc::new(Fs::new(env, vfs, &serving.options, serving.forgetting.invalidate(), serving.at_once));
    let _ = serving.ready.send(Ok(lists_attributes));
    loop {
        match serving.requests.next().await {
            Some(Message::Run(thread, request)) => fs.run(thread, request(fs.clone())),
            Some(Message::Forget(object, answers)) => fs.vfs().forgotten(object, answers),
            Some(Message::End) | None => break,
        }
    }
    fs.end(UNDER_WAY_GRACE).await;
    drop(serving.taken_away);
}

/// The mount, as soon as there is one.
type MaybeAttached = Arc<OnceLock<Attached>>;

/// Takes the mount away if the client ends before the kernel's last request.
struct TakenAway(MaybeAttached);

impl Drop for TakenAway {
    fn drop(&mut self) {
        if let Some(attached) = self.0.get()
            && let Err(error) = attached.take_away()
        {
            tracing::error!("the mount is dead and stays: {error}");
        }
    }
}

/// Tell the kernel.
fn forget_by(notifier: Notifier) -> impl Fn(Handle, Untrue) + Send + Sync {
    move |object, untrue| {
        let from = match untrue {
            // From byte 0 on without end: all pages, and the attributes.
            Untrue::Pages => 0,
            // From before the first byte: no page.
            Untrue::Attributes => -1,
        };
        if let Err(error) = notifier.inval_inode(INodeNo(object.0), from, 0) {
            tracing::warn!("the kernel keeps its cached facts about {object}: {error}");
        }
    }
}

/// All threads of a mount.
struct Threads<V: Vfs> {
    session: Session<Adapter<V>>,
    client: JoinHandle<()>,
    forgetting: Forgetting,
    mounted: MaybeAttached,
    /// Set before the end, if a thread's panic ended it.
    panicked: Arc<OnceLock<String>>,
    ended: OnEnd,
}

impl<V: Vfs> Threads<V> {
    /// Serve until the mount has ended, from wherever that comes, then end everything.
    fn run(self, queue: &Queue<V>) {
        if let Err(error) = self.session.run() {
            tracing::warn!("the mount ended with an error: {error}");
            // fuser has no other sign of it.
            if error.to_string().contains("panicked") {
                let _ = self.panicked.set("an event loop".to_owned());
            }
        }
        if let Some(attached) = self.mounted.get() {
            attached.end_loudly();
        }
        queue.end();
        let name = self.client.thread().name().unwrap_or("a thread").to_owned();
        if self.client.join().is_err() {
            tracing::error!("{name} panicked");
            let _ = self.panicked.set(name);
        }
        self.forgetting.end();
        drop(self.ended);
    }
}

/// Whether a mount has ended: to look at, to wait for, to await.
struct Ended {
    state: Arc<(Mutex<bool>, Condvar)>,
    future: Shared<oneshot::Receiver<()>>,
}

/// Dropped when it has.
struct OnEnd {
    state: Arc<(Mutex<bool>, Condvar)>,
    /// Dropping it completes the future.
    _future: oneshot::Sender<()>,
}

fn ended() -> (Ended, OnEnd) {
    let state = Arc::<(Mutex<bool>, Condvar)>::default();
    let (send, receive) = oneshot::channel();
    (Ended { state: state.clone(), future: receive.shared() }, OnEnd { state, _future: send })
}

impl Drop for OnEnd {
    fn drop(&mut self) {
        *self.state.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.1.notify_all();
    }
}

impl Ended {
    fn wait(&self, most: Duration) -> bool {
        let state = self.state.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.state.1.wait_timeout_while(state, most, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A mount that is served by this process. Dropping it ends it.
pub struct MountHandle<V: Vfs> {
    point: PathBuf,
    mounted: MaybeAttached,
    counts: Arc<RequestCounts>,
    queue: Queue<V>,
    panicked: Arc<OnceLock<String>>,
    ended: Ended,
}

impl<V: Vfs> fmt::Debug for MountHandle<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountHandle").field("point", &self.point).finish_non_exhaustive()
    }
}

impl<V: Vfs> MountHandle<V> {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.point
    }

    /// The kernel's requests.
    pub fn counts(&self) -> Arc<RequestCounts> {
        self.counts.clone()
    }

    /// Asks its file system; `None` if that does not answer within `most`.
    pub fn ask<T: Send + 'static>(
        &self,
        most: Duration,
        question: impl FnOnce(&V) -> T + Send + 'static,
    ) -> Option<T> {
        self.asker()(most, question)
    }

    /// As [`MountHandle::ask`], without the handle.
    pub fn asker<T: Send + 'static, Q: FnOnce(&V) -> T + Send + 'static>(
        &self,
    ) -> impl Fn(Duration, Q) -> Option<T> + Send + use<T, Q, V> {
        let queue = self.queue.clone();
        move |most, question| {
            let (send, receive) = mpsc::channel();
            queue.run(0, move |fs| async move {
                let _ = send.send(question(fs.vfs()));
            });
            receive.recv_timeout(most).ok()
        }
    }

    /// Resolves when the mount has ended, from wherever that came, and everything of it is closed.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        self.ended.future.clone().map(drop)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.wait(Duration::ZERO)
    }

    /// The thread whose panic ended it, once it has ended.
    pub fn panicked(&self) -> Arc<OnceLock<String>> {
        self.panicked.clone()
    }

    /// Wait until it has ended.
    pub fn wait(&self) {
        while !self.ended.wait(Duration::from_secs(3600)) {}
    }

    /// Unmount and end everything. A mount in use is waited for up to `grace`; then it is removed from its
    /// users, and they get errors. Not for a thread on which a server of the file system runs.
    ///
    /// # Errors
    /// If the mount does not end. Not as root that is so while programs use it: it has left the tree of names
    /// then.
    pub fn stop(self, grace: Duration) -> Result<(), MountError> {
        self.end(grace)
    }

    fn end(&self, grace: Duration) -> Result<(), MountError> {
        let deadline = Instant::now() + grace;
        while let Some(attached) = self.mounted.get().filter(|_| !self.has_ended())
            && attached.is_there()?
        {
            let cannot = |error| MountError::io(format!("cannot unmount {}", self.point.display()), error);
            match attached.unmount() {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                // Another process was faster.
                Err(_) if !attached.is_there()? => break,
                Err(error) => return Err(cannot(error)),
            }
            if Instant::now() >= deadline {
                tracing::warn!("{} is still in use: it is taken away from its users", self.point.display());
                attached.take_away()?;
                break;
            }
            self.ended.wait(PAUSE);
        }
        if let Some(attached) = self.mounted.get().filter(|_| !self.has_ended())
            && let Some(Mounted { kind, source, .. }) = attached.covered_by()?
        {
            let words = format!(
                "{source} ({kind}) is mounted over it at {}: unmount that first",
                self.point.display()
            );
            return Err(MountError::Refused(words));
        }
        match self.ended.wait(END_GRACE) {
            true => Ok(()),
            false => Err(MountError::Busy(self.point.clone())),
        }
    }
}

impl<V: Vfs> Drop for MountHandle<V> {
    fn drop(&mut self) {
        if !self.has_ended()
            && let Err(error) = self.end(DROP_GRACE)
        {
            tracing::error!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let refused = |options: MountOptions| matches!(check(&options), Err(MountError::Refused(_)));
        let options = MountOptions { allow_other: true, ..MountOptions::default() };
        assert!(!refused(options.clone()));
        assert!(refused(MountOptions { threads: 0, ..options.clone() }));
        assert!(refused(MountOptions { threads: 1000, ..options.clone() }));
        assert!(refused(MountOptions { readahead_bytes: 0, ..options }));
    }

    #[test]
    fn an_end_is_seen_by_looking_by_waiting_and_by_awaiting() {
        let (ended, on_end) = ended();
        assert!(!ended.wait(Duration::ZERO));
        assert!(ended.future.clone().now_or_never().is_none());
        drop(on_end);
        assert!(ended.wait(Duration::ZERO));
        assert!(ended.future.clone().now_or_never().is_some());
    }
}
