//! The mount over a directory of this machine: the kernel's references to objects are counted exactly.

use shoal_env::Env;
use shoal_fuse::{Mount, MountHandle, MountOptions};
use shoal_vfs::{Connect, Local, LocalOptions, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often the count is looked at.
const PACE: Duration = Duration::from_millis(2);
/// The kernel forgets in the background.
const SOON: Duration = Duration::from_secs(20);

/// A directory, and the kernel's references to its objects.
struct Counted {
    options: LocalOptions,
    references: Arc<AtomicI64>,
}

impl Connect for Counted {
    type Vfs = Local;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.options.under_a_kernel(read_only);
    }

    async fn connect(self, env: Env) -> Result<Local> {
        let local = self.options.connect(env.clone()).await?;
        let (counted, references, own) = (local.clone(), self.references, env.clone());
        env.spawn("count", async move {
            loop {
                references.store(counted.references(), SeqCst);
                own.sleep(PACE).await;
            }
        });
        Ok(local)
    }
}

struct Mounted {
    // Dropped in this order.
    handle: MountHandle<Local>,
    references: Arc<AtomicI64>,
    room: TempDir,
}

impl Mounted {
    fn new(cache: Duration) -> Mounted {
        let room = TempDir::new().unwrap();
        let below = room.path().join("below");
        fs::create_dir(&below).unwrap();
        let references = Arc::<AtomicI64>::default();
        let counted = Counted { options: LocalOptions::new(&below), references: references.clone() };
        let options = MountOptions { cache, ..MountOptions::default() };
        let handle = Mount::start(counted, &room.path().join("mnt"), &options)
            .unwrap_or_else(|error| panic!("these tests need /dev/fuse, and root or fusermount3: {error}"));
        Mounted { handle, references, room }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.handle.mountpoint().join(name)
    }

    /// The directory itself.
    fn below(&self, name: &str) -> PathBuf {
        self.room.path().join("below").join(name)
    }

    /// The kernel has forgotten everything.
    fn is_forgotten(&self) {
        let began = Instant::now();
        loop {
            // A count that is older than the call says nothing.
            std::thread::sleep(5 * PACE);
            match self.references.load(SeqCst) {
                0 => return,
                left => assert!(began.elapsed() < SOON, "{left} references are left"),
            }
        }
    }
}

fn mounts() -> [Mounted; 2] {
    [Mounted::new(Duration::ZERO), Mounted::new(Duration::from_secs(3600))]
}

fn list(dir: impl AsFd) -> usize {
    rustix::fs::Dir::read_from(dir).unwrap().filter_map(std::result::Result::ok).count()
}

#[test]
fn files_are_files_of_the_directory() {
    for mounted in mounts() {
        fs::write(mounted.path("ours"), "written here").unwrap();
        assert_eq!(fs::read_to_string(mounted.below("ours")).unwrap(), "written here");
        fs::write(mounted.below("theirs"), "written there").unwrap();
        assert_eq!(fs::read_to_string(mounted.path("theirs")).unwrap(), "written there");
        let (here, there) = (fs::metadata(mounted.path("ours")), fs::metadata(mounted.below("ours")));
        let (here, there) = (here.unwrap(), there.unwrap());
        assert_eq!((here.ino(), here.mode(), here.len()), (there.ino(), there.mode(), there.len()));
        let mut open = File::options().read(true).append(true).open(mounted.path("ours")).unwrap();
        open.write_all(b", and on").unwrap();
        fs::remove_file(mounted.path("ours")).unwrap();
        assert!(!mounted.below("ours").exists());
        let mut left = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut left).unwrap();
        assert_eq!(left, "written here, and on");
        fs::create_dir_all(mounted.path("a/b/c")).unwrap();
        fs::rename(mounted.path("a/b"), mounted.path("d")).unwrap();
        assert!(mounted.below("d/c").is_dir());
    }
}

/// Every request that gives the kernel a reference to an object.
fn refer(mounted: &Mounted) {
    let file = File::create_new(mounted.path("created")).unwrap();
    file.write_all_at(b"x", 3).unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    symlink("created", mounted.path("link")).unwrap();
    fs::hard_link(mounted.path("created"), mounted.path("hard")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let node = |name: &str| {
        rustix::fs::mknodat(rustix::fs::CWD, mounted.path(name), rustix::fs::FileType::Fifo, mode, 0)
    };
    node("fifo").unwrap();
    fs::write(mounted.below("found"), "x").unwrap();
    assert_eq!(fs::read(mounted.path("found")).unwrap(), b"x");
    assert!(fs::metadata(mounted.path("absent")).is_err());
    assert_eq!(fs::metadata(mounted.path("link")).unwrap().len(), 4);
    for n in 0..1000 {
        fs::write(mounted.below(&format!("dir/file {n}")), "x").unwrap();
    }
    let dir = File::open(mounted.path("dir")).unwrap();
    // With a small and a large buffer; and while entries change.
    assert_eq!(list(&dir), 1002);
    for entry in fs::read_dir(mounted.path("dir")).unwrap().take(100) {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(list(&dir), 902);
    assert!(mounted.references.load(SeqCst) >= 0);
}

fn remove(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
}

#[test]
fn the_kernels_references_are_counted_exactly() {
    for mounted in mounts() {
        for _ in 0..3 {
            refer(&mounted);
            remove(mounted.handle.mountpoint());
            mounted.is_forgotten();
        }
    }
}

#[test]
fn an_object_that_is_removed_while_it_is_referred_to_is_let_go_with_the_last_reference() {
    for mounted in mounts() {
        let dir = mounted.below("").canonicalize().unwrap();
        let held = || {
            let links = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
            let targets = links.filter_map(|link| fs::read_link(link).ok());
            targets.filter(|target| target.starts_with(&dir) && *target != dir).count()
        };
        fs::write(mounted.path("file"), "x").unwrap();
        let node = rustix::fs::openat(
            rustix::fs::CWD,
            mounted.path("file"),
            rustix::fs::OFlags::PATH,
            rustix::fs::Mode::empty(),
        );
        fs::remove_file(mounted.path("file")).unwrap();
        assert_eq!(held(), 1, "its descriptor stays");
        assert_eq!(rustix::fs::fstat(node.as_ref().unwrap()).unwrap().st_nlink, 0);
        drop(node);
        mounted.is_forgotten();
        assert_eq!(held(), 0);
    }
}

#[test]
fn a_directory_that_is_not_there_is_no_file_system() {
    let room = TempDir::new().unwrap();
    let options = LocalOptions::new(room.path().join("absent"));
    let refused = Mount::start(options, &room.path().join("mnt"), &MountOptions::default());
    let words = refused.map(drop).unwrap_err().to_string();
    assert!(words.contains("absent does not exist"), "{words}");
}
