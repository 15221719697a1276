//! The check of a server that is stopped (SIGSTOP) for several time limits of the mount, while the other
//! servers run.
//!
//! 1. Each server has a directory with a file. One further directory has a file on each server.
//! 2. SIGSTOP of the last server. 64 clients at once list, look up, request space, create and read on the
//!    other servers. Every call must end within the limit, and calls for objects of the other servers must
//!    succeed. After the limit no call may wait.
//! 3. SIGCONT. All files must be there and whole, and no file that a failed call requested.
//! 4. SIGSTOP of the root's server: every call must end within the limit. After SIGCONT all calls succeed
//!    again, and fsck must find nothing.
//!
//! The check has a file system of its own, in the folder of the torture: four servers, and one mount with a
//! short time limit.

use super::errno;
use super::idle;
use super::site::Wish;
use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use shoal_proto::Handle;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Servers: the first one has the root, the last one is stopped.
const SERVERS: usize = 4;
const ROOT: usize = 0;
const SILENT: usize = SERVERS - 1;
/// Clients at once.
const CLIENTS: usize = 64;
/// The mount's time limit in seconds.
const LIMIT_S: u64 = 6;
const LIMIT: Duration = Duration::from_secs(LIMIT_S);
/// The time that a call may take beyond it: the machine has other work. Less than a second limit, which no
/// call may take.
const GRACE: Duration = Duration::from_secs(2);
/// The time for a call that waits for no server: far less than the limit.
const SOON: Duration = Duration::from_secs(2);
/// A call that has not ended by then does not end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The lease of the servers in seconds: longer than they are stopped.
const LEASE_S: u64 = 60;
/// Bytes of a file.
const LEN: usize = 3_000;
/// The check's name.
const NAME: &str = "a_silent_server_costs_one_time_limit_and_nothing_of_what_lies_on_others";

/// Do it.
pub fn run(wish: &Wish, done: impl FnOnce(&str, Duration, Option<String>)) {
    let begun = Instant::now();
    let failed = silent(wish).err();
    done(NAME, begun.elapsed(), failed.map(|error| format!("{error:#}")));
}

fn silent(wish: &Wish) -> Result<()> {
    let wish = Wish { timeout_s: LIMIT_S, lease_s: LEASE_S, ..wish.clone() };
    let site = idle::site_with(&wish, "silent", SERVERS, 1)?;
    let tree = Arc::new(Tree::make(&site.mountpoint(0))?);

    site.signal_server(SILENT, Signal::STOP);
    let first = at_once(&tree, CLIENTS, |tree, client| {
        tree.look_around(client, LIMIT + GRACE, true).context("before the server was known to be silent")
    });
    let later = first.and_then(|()| {
        tree.must_be_silent()?;
        at_once(&tree, CLIENTS, |tree, client| {
            tree.look_around(CLIENTS + client, SOON, false).context("when the server was known to be silent")
        })
    });
    site.signal_server(SILENT, Signal::CONT);
    later?;
    until(|| tree.must_be_whole()).context("after SIGCONT")?;

    site.signal_server(ROOT, Signal::STOP);
    let stopped = at_once(&tree, SERVERS, |tree, client| tree.must_end(client));
    site.signal_server(ROOT, Signal::CONT);
    stopped.context("while the root's server was stopped")?;
    until(|| tree.must_be_whole()).context("after SIGCONT of the root's server")?;

    let (status, words) = site.command(&["fsck", &site.address, "--quiet"])?;
    if !status.success() {
        bail!("fsck afterwards: {words}");
    }
    site.end()
}

/// Let so many clients do something at once; returns the first violation of them. None may hang.
fn at_once(
    tree: &Arc<Tree>,
    clients: usize,
    work: impl Fn(&Tree, usize) -> Result<()> + Send + Copy + 'static,
) -> Result<()> {
    let (told, all): (Sender<Result<()>>, Receiver<Result<()>>) = channel();
    for client in 0..clients {
        let (tree, told) = (tree.clone(), told.clone());
        // Not joined: one that hangs must not hold up the torture.
        std::thread::spawn(move || drop(told.send(work(&tree, client))));
    }
    drop(told);
    let until = Instant::now() + PATIENCE;
    for left in (1..=clients).rev() {
        match all.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(done) => done?,
            Err(RecvTimeoutError::Timeout) => bail!("{left} clients hang after {} s", PATIENCE.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("{left} clients ended without a word"),
        }
    }
    Ok(())
}

/// Try until it succeeds: a mount finds a server again within a moment.
fn until(work: impl Fn() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match work() {
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
}

/// One call of the kernel, or a few, within a limit.
fn within<T>(limit: Duration, what: &str, path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T> {
    let begun = Instant::now();
    let done = call();
    let took = begun.elapsed();
    if took > limit {
        bail!("{what} of {} took {took:?}, and may take {limit:?}", path.display());
    }
    done.with_context(|| format!("{what} of {}", path.display()))
}

/// Whether it failed as calls for objects on a silent server do.
fn is_silence(error: &anyhow::Error) -> bool {
    let errno = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    matches!(errno, Some(errno::ETIMEDOUT | errno::EIO))
}

fn server_of(path: &Path) -> Result<usize> {
    let inode = fs::symlink_metadata(path).with_context(|| format!("looking at {}", path.display()))?.ino();
    Ok(usize::from(Handle(inode).server().0))
}

fn content(server: usize) -> Vec<u8> {
    vec![b'a' + server as u8; LEN]
}

/// A directory with a file on each server, and one that has a file of each.
struct Tree {
    root: PathBuf,
    dirs: Vec<PathBuf>,
    mixed: PathBuf,
}

impl Tree {
    fn make(root: &Path) -> Result<Tree> {
        let mut dirs: Vec<Option<PathBuf>> = vec![None; SERVERS];
        // New directories go round over the servers.
        for n in 0..64 * SERVERS {
            let path = root.join(format!("d{n}"));
            fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
            dirs[server_of(&path)?].get_or_insert(path);
        }
        let dirs: Option<Vec<PathBuf>> = dirs.into_iter().collect();
        let dirs = dirs.context("no directory came to lie on one of the servers")?;
        let mixed = dirs[1].join("mixed");
        // In a directory of another server it would lie on that of its turn.
        fs::create_dir_all(&mixed)?;
        let mixed = match server_of(&mixed)? {
            SILENT => dirs[1].clone(),
            _ => mixed,
        };
        for (server, dir) in dirs.iter().enumerate() {
            fs::write(dir.join("file"), content(server))?;
            // A file stays where it was made when it moves.
            let name = format!("of-{server}");
            fs::write(dir.join(&name), content(server))?;
            fs::rename(dir.join(&name), mixed.join(&name))?;
            if server_of(&mixed.join(&name))? != server {
                bail!("{name} is not on server {server}");
            }
        }
        Ok(Tree { root: root.to_owned(), dirs, mixed })
    }

    /// List, look, ask for space, create and read on the servers that run.
    fn look_around(&self, client: usize, limit: Duration, looks_at_silent: bool) -> Result<()> {
        let server = client % SILENT;
        let (dir, mixed) = (&self.dirs[server], &self.mixed);
        let names =
            within(limit, "a listing", mixed, || fs::read_dir(mixed)?.collect::<io::Result<Vec<_>>>())?;
        for server in 0..SERVERS {
            if !names.iter().any(|entry| *entry.file_name() == *format!("of-{server}")) {
                bail!("a listing of {} lacks the file of server {server}", mixed.display());
            }
        }
        let theirs = mixed.join(format!("of-{SILENT}"));
        if looks_at_silent && let Err(error) = within(limit, "a look", &theirs, || fs::metadata(&theirs)) {
            match is_silence(&error) {
                true => {}
                false => return Err(error),
            }
        }
        let ours = mixed.join(format!("of-{server}"));
        within(limit, "a look", &ours, || fs::metadata(&ours))?;
        within(limit, "df", &self.root, || Ok(rustix::fs::statvfs(&self.root)?))?;
        let new = dir.join(format!("new-{client}"));
        within(limit, "a creation", &new, || fs::write(&new, content(server)))?;
        for path in [&new, &ours, &dir.join("file")] {
            if within(limit, "a read", path, || fs::read(path))? != content(server) {
                bail!("{} holds other bytes than were written", path.display());
            }
        }
        Ok(())
    }

    /// The silent server is known: calls for its objects fail at once, also under the kernel's lock of a
    /// directory.
    fn must_be_silent(&self) -> Result<()> {
        let theirs = self.dirs[SILENT].join("file");
        let fails = |limit: Duration, what: &str, path: &Path, call: &dyn Fn() -> io::Result<()>| match within(
            limit, what, path, call,
        ) {
            Ok(()) => bail!("{what} of {} succeeded: the server is not stopped", path.display()),
            Err(error) if is_silence(&error) => Ok(()),
            Err(error) => Err(error),
        };
        fails(LIMIT + GRACE, "a look", &theirs, &|| fs::metadata(&theirs).map(drop))?;
        for n in 0..8 {
            let new = self.dirs[SILENT].join(format!("not-made-{n}"));
            fails(SOON, "a creation", &new, &|| fs::write(&new, ""))?;
        }
        Ok(())
    }

    /// With the root's server stopped all calls end, whatever they come to.
    fn must_end(&self, client: usize) -> Result<()> {
        let dir = &self.dirs[client];
        let calls: [(&str, &dyn Fn() -> io::Result<()>); 5] = [
            ("a listing", &|| fs::read_dir(dir)?.try_for_each(|entry| entry.map(drop))),
            ("a look", &|| fs::metadata(dir.join("file")).map(drop)),
            ("df", &|| Ok(rustix::fs::statvfs(&self.root).map(drop)?)),
            ("a creation", &|| fs::write(dir.join("while-the-root-is-away"), "")),
            ("a read", &|| fs::read(dir.join("file")).map(drop)),
        ];
        for (what, call) in calls {
            // A path of several names is as many calls, of which one may wait.
            match within(LIMIT + GRACE, what, dir, call) {
                Err(error) if !is_silence(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Every file is there, and no object that was not requested.
    fn must_be_whole(&self) -> Result<()> {
        for (server, dir) in self.dirs.iter().enumerate() {
            for path in [dir.join("file"), self.mixed.join(format!("of-{server}"))] {
                let found = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                if found != content(server) {
                    bail!("{} holds other bytes than were written", path.display());
                }
            }
        }
        for entry in fs::read_dir(&self.dirs[SILENT])? {
            let name = entry?.file_name();
            if name.to_string_lossy().starts_with("not-made-") {
                bail!("{} was made, though the silent server was not asked", name.to_string_lossy());
            }
        }
        rustix::fs::statvfs(&self.root)?;
        Ok(())
    }
}
