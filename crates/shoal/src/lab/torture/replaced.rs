//! The check of a file that is replaced again and again while other programs read it. Configuration tools
//! replace files in this way: they write a temporary file, and rename it to the file's name.
//!
//! 1. Mount 1 writes "settings.new" and renames it to "settings", again and again. Mounts 0 and 1 open
//!    "settings", call `fstat` and read the whole file, again and again. Each reader must get one of the
//!    contents whole and no error, and never a content that is older than the content at the beginning of its
//!    open.
//! 2. Then mount 0 opens the file and mount 1 replaces it. The file's server is killed and starts again,
//!    and all clients are idle for some leases. After that mount 0 must be able to read, write and sync the
//!    file.
//!
//! The check has a file system of its own, in the folder of the torture: one server with a short lease, and
//! two mounts.

use super::idle;
use super::site::{Site, Wish};
use anyhow::{Context as _, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the file is replaced.
const ROUNDS: u64 = 400;
/// Bytes of each content: its number, over and over.
const LEN: usize = 5_000;
/// Readers of each mount.
const READERS: usize = 2;
/// Looks that the readers must at least have had, so that something was shown.
const LOOKS_MIN: u64 = 200;
/// The check's name.
const NAME: &str =
    "a_file_that_is_replaced_under_its_readers_is_opened_and_read_and_lives_until_its_last_close";

/// Do it.
pub fn run(wish: &Wish, done: impl FnOnce(&str, Duration, Option<String>)) {
    let begun = Instant::now();
    let failed = replaced(wish).err();
    done(NAME, begun.elapsed(), failed.map(|error| format!("{error:#}")));
}

fn replaced(wish: &Wish) -> Result<()> {
    let mut site = idle::site(wish, "replaced", 2)?;
    under_readers(&site)?;
    let (here, there) = (site.mountpoint(0).join("held"), site.mountpoint(1));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(here)?;
    idle::write_content(&file)?;
    replace(&there, "held", 1)?;
    site.kill_server(0);
    site.start_server(0)?;
    site.await_server(0)?;
    std::thread::sleep(idle::IDLE);
    idle::must_be_whole(&file)?;
    drop(file);
    site.end()
}

/// Readers in both mounts while the file is replaced through one of them.
fn under_readers(site: &Site) -> Result<()> {
    let mounts = [site.mountpoint(0), site.mountpoint(1)];
    let [first, second] = &mounts;
    replace(second, "settings", 0)?;
    let (ended, looks, published) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let read = |mount: &Path| -> Result<()> {
            while !ended.load(Ordering::Relaxed) {
                look(&mount.join("settings"), published.load(Ordering::SeqCst))?;
                looks.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let readers: Vec<_> = (0..READERS)
            .flat_map(|_| [first, second])
            .map(|mount| scope.spawn(move || read(mount)))
            .collect();
        let replaced = (1..=ROUNDS).try_for_each(|round| {
            replace(second, "settings", round)?;
            published.store(round, Ordering::SeqCst);
            anyhow::Ok(())
        });
        ended.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        replaced
    })?;
    let looks = looks.into_inner();
    if looks < LOOKS_MIN {
        bail!("the readers looked {looks} times only: nothing was shown");
    }
    Ok(())
}

fn replace(dir: &Path, name: &str, number: u64) -> Result<()> {
    let temporary = dir.join(format!("{name}.new"));
    fs::write(&temporary, number.to_le_bytes().repeat(LEN / 8))
        .with_context(|| format!("writing {}", temporary.display()))?;
    fs::rename(&temporary, dir.join(name)).with_context(|| format!("renaming {}", temporary.display()))
}

/// One look of a reader: whatever content it gets is a whole one, and none older than this.
fn look(path: &Path, oldest: u64) -> Result<()> {
    let at = |what: &str| format!("{what} {}, which is replaced all the time", path.display());
    let mut file = File::open(path).with_context(|| at("open"))?;
    let len = file.metadata().with_context(|| at("fstat of"))?.len();
    let mut found = Vec::new();
    file.read_to_end(&mut found).with_context(|| at("read of"))?;
    let numbers: Vec<&[u8]> = found.chunks(8).collect();
    if len != LEN as u64 || found.len() != LEN || numbers.iter().any(|number| *number != numbers[0]) {
        bail!("{}: {len} bytes by fstat, {} read, of several contents", path.display(), found.len());
    }
    let number = numbers[0].try_into().map_or(0, u64::from_le_bytes);
    if number < oldest {
        bail!("{}: content {number}, and content {oldest} was there before its open", path.display());
    }
    fs::metadata(path).with_context(|| at("stat of"))?;
    Ok(())
}
