//! The check of a server whose disk is not mounted at its start, and then of a server whose disk is lost
//! for good.
//!
//! 1. Files are written over three servers and synced. Then a server is killed, its folder is moved away,
//!    and an empty folder is put in its place.
//! 2. The start of this server must be refused with the remedy, and make nothing in the empty folder.
//!    `shoal status` must say DEGRADED, and fsck must repair nothing. The data of the other servers can be
//!    read.
//! 3. The folder is put back: every byte must be there.
//! 4. The server is killed again and its folder is removed. Its start is refused as before. Then it is
//!    started with `--new-store`, and `fsck --repair --lost-stores` runs until it finds nothing.
//! 5. The data of the other servers must be there byte for byte. Lost data must be missing or zeros, never
//!    other bytes. New files can be made everywhere.
//!
//! The check has a file system of its own, in the folder of the torture: three servers with a short lease,
//! and one mount.

use super::idle;
use super::site::{Site, Wish};
use anyhow::{Context as _, Result, bail};
use shoal_proto::{Handle, ServerId};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Servers; the last one's disk is lost. It holds neither the root nor, mostly, the directories.
const SERVERS: usize = 3;
const LOST: usize = SERVERS - 1;
/// Directories, and small files in each.
const DIRS: usize = 9;
const FILES: usize = 6;
/// Bytes of a small file, and of the large one in each directory, which lies over all servers.
const SMALL: usize = 3_000;
const LARGE: usize = 400_000;
/// How often fsck may repair the findings of its last round.
const REPAIRS: usize = 8;
/// How long mounts and servers may take to see that a server is back.
const PATIENCE: Duration = Duration::from_secs(60);
/// The check's name.
const NAME: &str =
    "a_disk_that_is_away_is_never_taken_for_a_new_one_and_one_that_is_lost_takes_nothing_else_with_it";

/// Do it.
pub fn run(wish: &Wish, done: impl FnOnce(&str, Duration, Option<String>)) {
    let begun = Instant::now();
    let failed = lost(wish).err();
    done(NAME, begun.elapsed(), failed.map(|error| format!("{error:#}")));
}

fn lost(wish: &Wish) -> Result<()> {
    let mut site = idle::site_of(wish, "lost-disk", SERVERS, 1)?;
    let tree = Tree::write(&site.mountpoint(0))?;
    let disk = Disk::of(&site);

    site.kill_server(LOST);
    fs::rename(&disk.folder, &disk.away).context("moving the folder away")?;
    let found = fs::create_dir(&disk.folder).map_err(Into::into).and_then(|()| {
        must_be_refused(&mut site, &disk)?;
        tree.others_must_be_whole()
    });
    found.context("while a disk was away")?;
    fs::remove_dir(&disk.folder).context("something was made in the empty folder")?;
    fs::rename(&disk.away, &disk.folder).context("moving the folder back")?;
    site.start_server(LOST)?;
    site.await_server(LOST)?;
    until("all files are whole", || tree.must_be_whole()).context("after the disk was back")?;

    site.kill_server(LOST);
    fs::remove_dir_all(&disk.folder).context("losing the folder")?;
    fs::create_dir(&disk.folder)?;
    must_be_refused(&mut site, &disk).context("after the disk was lost")?;
    site.start_server_with(LOST, &["--new-store", &LOST.to_string()])?;
    site.await_server(LOST)?;
    repair(&site)?;
    until("the others' files are whole", || tree.others_must_be_whole()).context("after the repair")?;
    tree.must_hold_own_bytes_or_none()?;
    let again = site.mountpoint(0).join("again");
    fs::create_dir(&again).context("after the repair")?;
    Tree::write(&again)?.must_be_whole().context("files made after the repair")?;
    site.end()
}

/// Where the data of the server lies.
struct Disk {
    folder: PathBuf,
    away: PathBuf,
}

impl Disk {
    fn of(site: &Site) -> Disk {
        let folder = site.server_folder(LOST);
        Disk { away: folder.with_extension("away"), folder }
    }
}

/// The server does not start in an empty folder, says why, and all commands report it.
fn must_be_refused(site: &mut Site, disk: &Disk) -> Result<()> {
    site.start_server(LOST)?;
    let words = site.await_end(LOST)?;
    let folder = disk.folder.to_string_lossy();
    for needed in
        [&format!("the store of server {LOST}"), &*folder, "is empty", "mount the disk", "--new-store"]
    {
        if !words.contains(needed) {
            bail!("the server does not say `{needed}`: {words}");
        }
    }
    if fs::read_dir(&disk.folder)?.next().is_some() {
        bail!("a server that was refused made something in {folder}");
    }
    let (status, words) = site.command(&["status", &site.address])?;
    if status.success() || !words.contains(&format!("DEGRADED: server {LOST}")) {
        bail!("`status` does not say DEGRADED: {words}");
    }
    let (status, words) = site.command(&["fsck", &site.address, "--repair", "--quiet"])?;
    if status.success() || words.contains("[repaired]") {
        bail!("`fsck --repair` went on without a server: {words}");
    }
    Ok(())
}

/// Repair until nothing is left to repair.
fn repair(site: &Site) -> Result<()> {
    let mut words = String::new();
    for _ in 0..REPAIRS {
        let args = ["fsck", &site.address, "--repair", "--lost-stores", "--quiet"];
        words = site.command(&args)?.1;
        if site.command(&["fsck", &site.address, "--quiet"])?.0.success() {
            return Ok(());
        }
    }
    bail!("fsck is not clean after {REPAIRS} repairs: {words}")
}

/// Try until it succeeds: a mount notices a server that is back within a moment.
fn until(what: &str, work: impl Fn() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match work() {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.context(what.to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// A file, and where its directory and its metafile are.
struct Known {
    path: PathBuf,
    content: Vec<u8>,
    needs_lost: bool,
}

/// Files over all servers.
struct Tree(Vec<Known>);

impl Tree {
    /// Write it, synced.
    fn write(root: &Path) -> Result<Tree> {
        let mut files = Vec::new();
        for dir in 0..DIRS {
            let at = root.join(format!("d{dir}"));
            fs::create_dir(&at).with_context(|| format!("making {}", at.display()))?;
            let names =
                (0..FILES).map(|file| (format!("f{file}"), SMALL)).chain([("large".to_owned(), LARGE)]);
            for (index, (name, len)) in names.enumerate() {
                let path = at.join(name);
                let content: Vec<u8> =
                    (0..len).map(|at| 1 + ((at * 7 + dir * 31 + index) % 251) as u8).collect();
                let written = || -> Result<u64> {
                    let mut file = File::create_new(&path)?;
                    file.write_all(&content)?;
                    file.sync_all()?;
                    Ok(file.metadata()?.ino())
                };
                let inode = written().with_context(|| format!("writing {}", path.display()))?;
                // An inode's number is its handle, which names its server; a large file has bytes on all
                // servers.
                let on_lost = |inode: u64| Handle(inode).server() == ServerId(LOST as u16);
                let needs_lost = on_lost(inode) || on_lost(fs::metadata(&at)?.ino()) || len == LARGE;
                files.push(Known { path, content, needs_lost });
            }
            File::open(&at)?.sync_all()?;
        }
        let tree = Tree(files);
        match tree.0.iter().filter(|file| !file.needs_lost).count() {
            0 => bail!("server {LOST} holds some of every file: nothing would be shown"),
            count if count == DIRS * FILES => {
                bail!("server {LOST} holds no small file: nothing would be lost")
            }
            _ => Ok(tree),
        }
    }

    fn must_be_whole(&self) -> Result<()> {
        self.0.iter().try_for_each(Known::must_be_whole)
    }

    fn others_must_be_whole(&self) -> Result<()> {
        self.0.iter().filter(|file| !file.needs_lost).try_for_each(Known::must_be_whole)
    }

    /// Lost data is missing, or zeros; and some of it is, or else nothing was lost.
    fn must_hold_own_bytes_or_none(&self) -> Result<()> {
        let mut losses = 0;
        for file in self.0.iter().filter(|file| file.needs_lost) {
            losses += usize::from(!file.holds_own_bytes_or_none()?);
        }
        if losses == 0 { bail!("nothing was lost with the disk: it was not the server's") } else { Ok(()) }
    }
}

impl Known {
    fn must_be_whole(&self) -> Result<()> {
        let found = fs::read(&self.path).with_context(|| format!("reading {}", self.path.display()))?;
        if found != self.content {
            bail!("{} holds other bytes than were synced", self.path.display());
        }
        Ok(())
    }

    /// Whether it is whole; an error if it holds bytes that are not its own.
    fn holds_own_bytes_or_none(&self) -> Result<bool> {
        let found = match fs::read(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.path.display())),
        };
        let is_foreign = |(found, own): (&u8, &u8)| found != own && *found != 0;
        if found.len() > self.content.len() || found.iter().zip(&self.content).any(is_foreign) {
            bail!("{} holds bytes that were never written to it", self.path.display());
        }
        Ok(found == self.content)
    }
}
