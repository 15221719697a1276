//! Copies trees from a source to a destination: the work of `shoal cp` when both are known.

mod data;
mod spot;
mod tree;
mod xattrs;

pub use spot::{Spot, owner};
pub use tree::CopyTree;

use crate::subfiles;
use anyhow::{Result, anyhow, bail};
use indicatif::ProgressBar;
use shoal_env::local::Notify;
use shoal_proto::{Attr, Kind};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xattrs::Xattrs;

/// How it is copied.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Directories with all they hold.
    pub recursive: bool,
    /// Mode, owner, times and extended attributes are kept.
    pub preserve: bool,
    /// A symbolic link that is given by its name is copied as one, though no tree is.
    pub no_dereference: bool,
    /// Files under way at once.
    pub jobs: usize,
}

/// Something to copy.
pub struct Task {
    /// From where.
    pub from: Spot,
    /// To where.
    pub to: Spot,
    /// It was given by its name (a symbolic link is then followed where no tree is copied, unless links are
    /// wanted), not found in a directory.
    pub is_given: bool,
}

/// The copied objects.
#[derive(Clone, Copy, Default, Debug)]
pub struct Made {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// FIFOs and sockets.
    pub others: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The objects that could not be copied.
    pub failed: u64,
}

/// A copy under way.
pub struct Copier {
    how: How,
    umask: u32,
    bar: ProgressBar,
    stack: RefCell<Vec<Task>>,
    active: Cell<usize>,
    changed: Notify,
    made: Cell<Made>,
    /// Directories whose attributes follow at the end.
    directories: RefCell<Vec<(Spot, Attr, Xattrs)>>,
}

impl Copier {
    /// A copy of nothing yet.
    pub fn new(how: How, bar: ProgressBar) -> Copier {
        Copier {
            how,
            umask: umask(),
            bar,
            stack: RefCell::default(),
            active: Cell::new(0),
            changed: Notify::default(),
            made: Cell::default(),
            directories: RefCell::default(),
        }
    }

    /// Something more to copy.
    pub fn push(&self, task: Task) {
        self.stack.borrow_mut().push(task);
        self.changed.wake_all();
    }

    /// The copied objects so far.
    pub fn made(&self) -> Made {
        self.made.get()
    }

    /// Name objects that could not be copied; the copy continues.
    pub fn failed(&self, what: &str, error: &anyhow::Error) {
        self.count(|made| made.failed += 1);
        self.bar.suspend(|| eprintln!("shoal: cannot copy {what}: {error:#}"));
    }

    fn count(&self, change: impl FnOnce(&mut Made)) {
        let mut made = self.made.get();
        change(&mut made);
        self.made.set(made);
        self.bar.set_message(format!("{} files", crate::words::count(made.files)));
    }

    /// Bytes were copied.
    pub fn moved(&self, bytes: u64) {
        self.count(|made| made.bytes += bytes);
        self.bar.inc(bytes);
    }

    /// Copy all that is pushed, and all below it.
    pub async fn run(self: &Rc<Copier>) {
        futures_util::future::join_all((0..self.how.jobs).map(|_| self.work())).await;
        let directories = self.directories.take();
        for (spot, attr, xattrs) in directories.iter().rev() {
            if let Err(error) = spot.set(attr, self.how.preserve, xattrs).await {
                self.failed(&spot.to_string(), &error);
            }
        }
    }

    /// One worker: until the stack is empty and no worker may fill it again.
    async fn work(self: &Rc<Copier>) {
        loop {
            let changed = self.changed.wait();
            let task = self.stack.borrow_mut().pop();
            match task {
                Some(task) => {
                    self.active.set(self.active.get() + 1);
                    if let Err(error) = self.copy(&task).await {
                        self.failed(&task.from.to_string(), &error);
                    }
                    self.active.set(self.active.get() - 1);
                    self.changed.wake_all();
                }
                None if self.active.get() == 0 => return,
                None => changed.await,
            }
        }
    }

    async fn copy(self: &Rc<Copier>, task: &Task) -> Result<()> {
        let follow = task.is_given && !self.how.recursive && !self.how.no_dereference;
        let attr = task.from.look(follow).await?.ok_or_else(|| anyhow!("no such file or directory"))?;
        let there = self.there(task, &attr).await?;
        if there.as_ref().is_some_and(|there| there.handle == attr.handle)
            && task.from.same_file_system(&task.to)
        {
            bail!("it is the same file as {}", task.to);
        }
        match attr.kind {
            Kind::Directory => self.directory(task, &attr, there).await,
            _ if there.as_ref().is_some_and(|there| there.kind == Kind::Directory) => {
                bail!("{} is a directory", task.to)
            }
            Kind::File => {
                self.bar.inc_length(attr.size);
                let mode = self.mode(&attr);
                data::copy(self, (&task.from, &attr), (&task.to, there.as_ref()), mode).await?;
                self.count(|made| made.files += 1);
                self.keep(task, &attr).await
            }
            Kind::Symlink => {
                let target = task.from.readlink(attr.handle).await?;
                task.to.symlink(&target).await?;
                self.count(|made| made.symlinks += 1);
                self.keep(task, &attr).await
            }
            Kind::Fifo | Kind::Socket => {
                task.to.mknod(attr.kind, self.mode(&attr)).await?;
                self.count(|made| made.others += 1);
                self.keep(task, &attr).await
            }
            kind => bail!("it is a {}: these are not copied", kind.word()),
        }
    }

    /// The object at the target. **A copy of a tree leaves the target's tree by no symbolic link**: a link
    /// there is no directory to fill, and in a file's place it is replaced. Only a target that was given
    /// itself, and a given file's, is followed.
    async fn there(&self, task: &Task, attr: &Attr) -> Result<Option<Attr>> {
        let follow = task.is_given && (attr.kind == Kind::File || task.to.is_base());
        let there = task.to.look(follow).await?;
        let is_link = there.as_ref().is_some_and(|there| there.kind == Kind::Symlink);
        match attr.kind {
            Kind::File if is_link && !follow => task.to.clear_link().await.map(|()| None),
            Kind::Directory if is_link => {
                bail!("cannot replace {}, which is a symbolic link, by a directory: remove it first", task.to)
            }
            _ => Ok(there),
        }
    }

    async fn keep(&self, task: &Task, attr: &Attr) -> Result<()> {
        if !self.how.preserve {
            return Ok(());
        }
        let xattrs = task.from.xattrs(attr.handle).await?;
        task.to.set(attr, true, &xattrs).await
    }

    async fn directory(self: &Rc<Copier>, task: &Task, attr: &Attr, there: Option<Attr>) -> Result<()> {
        if !self.how.recursive {
            bail!("it is a directory: use -r");
        }
        if task.to.is_inside(&task.from) {
            bail!("{} is inside it", task.to);
        }
        let is_new = there.is_none();
        let made = match there {
            Some(there) if there.kind == Kind::Directory => there.handle,
            Some(_) => bail!("{} is not a directory", task.to),
            // While it is filled its owner may write into it, whatever its mode will be.
            None => task.to.mkdir(self.mode(attr) | 0o700, subfiles::count(attr)).await?,
        };
        self.count(|made| made.directories += 1);
        let preserve = self.how.preserve;
        if preserve || (is_new && self.mode(attr) & 0o700 != 0o700) {
            let xattrs = if preserve { task.from.xattrs(attr.handle).await? } else { Vec::new() };
            let after = Attr { mode: if preserve { attr.mode } else { self.mode(attr) }, ..attr.clone() };
            self.directories.borrow_mut().push((task.to.clone(), after, xattrs));
        }
        let (source, target) = (task.from.referred(attr.handle), task.to.referred(made));
        let names = task.from.list(attr.handle).await?;
        let missing =
            subfiles::missing_among(subfiles::count(attr).unwrap_or(0), names.iter().map(Vec::as_slice));
        if let Some(words) = subfiles::words(&missing) {
            self.failed(&task.from.to_string(), &anyhow!("{words}: all that is left of the file is copied"));
        }
        for name in names {
            let (from, to) = (task.from.inside(&name, Some(&source))?, task.to.inside(&name, Some(&target))?);
            self.push(Task { from, to, is_given: false });
        }
        Ok(())
    }

    /// The mode of something new. One that is to be another user's is the copying user's alone until then.
    fn mode(&self, attr: &Attr) -> u32 {
        if self.how.preserve { attr.mode & 0o700 } else { attr.mode & 0o777 & !self.umask }
    }
}

/// This process's umask. There is no call that only asks for it.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}
