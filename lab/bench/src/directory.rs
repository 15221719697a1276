//! A directory as a target: any mounted file system.
//!
//! Calls go by full path, as programs make them (only `list` stats entries relative to the open directory).
//! So if a file system's names are not cached, it pays for each component as it would in use. Files stay open
//! as descriptors in a table; the process must be allowed that many ([`shoal_env::raise_open_files`]).

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};

use crate::target::{FileId, ListingResult, OpenMode, Stat, Target, Worker};

/// Bytes of directory entries requested by one call, as the C library does.
const READDIR_BYTES: usize = 32 * 1024;

/// Any directory that exists.
#[derive(Clone, Debug)]
pub struct Directory {
    name: String,
    root: PathBuf,
}

impl Directory {
    /// The directory `root`, called `name` in tables.
    pub fn new(name: impl Into<String>, root: impl Into<PathBuf>) -> Directory {
        Directory { name: name.into(), root: root.into() }
    }

    /// Reads the words of [`Target::process_spec`]; `None` if they name another kind of target.
    pub fn from_spec(spec: &str) -> Option<Directory> {
        spec.strip_prefix("dir:").map(|root| Directory::new(root, root))
    }
}

impl Target for Directory {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn worker(&self, _index: usize) -> Result<Box<dyn Worker>> {
        let root = std::fs::canonicalize(&self.root)
            .with_context(|| format!("cannot find the directory {}", self.root.display()))?;
        if !root.is_dir() {
            bail!("{} is not a directory", root.display());
        }
        Ok(Box::new(DirectoryWorker::new(&root)?))
    }

    fn process_spec(&self) -> Option<String> {
        let root = std::fs::canonicalize(&self.root).ok()?;
        Some(format!("dir:{}", root.to_str()?))
    }
}

struct DirectoryWorker {
    /// The full path of the object in hand; its first `root_len` bytes are the root with its slash.
    path: String,
    root_len: usize,
    files: Vec<Option<OwnedFd>>,
    free: Vec<usize>,
    entries: Vec<MaybeUninit<u8>>,
}

impl DirectoryWorker {
    fn new(root: &Path) -> Result<DirectoryWorker> {
        let Some(root) = root.to_str() else { bail!("the path {} is not UTF-8", root.display()) };
        let path = format!("{}/", root.trim_end_matches('/'));
        let root_len = path.len();
        let entries = vec![MaybeUninit::uninit(); READDIR_BYTES];
        Ok(DirectoryWorker { path, root_len, files: Vec::new(), free: Vec::new(), entries })
    }

    fn go_to(&mut self, path: &str) {
        self.path.truncate(self.root_len);
        self.path.push_str(path);
    }

    fn keep(&mut self, fd: OwnedFd) -> FileId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        self.files[slot] = Some(fd);
        FileId(slot as u64)
    }

    fn fd(&self, file: FileId) -> Result<&OwnedFd> {
        let slot = usize::try_from(file.0)?;
        self.files.get(slot).and_then(Option::as_ref).with_context(|| format!("file {} is not open", file.0))
    }

    fn open_path(&mut self, flags: OFlags) -> Result<FileId> {
        let fd = rustix::fs::open(self.path.as_str(), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
            .with_context(|| format!("open {}", self.path))?;
        Ok(self.keep(fd))
    }
}

fn is_dot(name: &CStr) -> bool {
    name == c"." || name == c".."
}

impl Worker for DirectoryWorker {
    fn mkdir(&mut self, path: &str) -> Result<()> {
        self.go_to(path);
        rustix::fs::mkdir(self.path.as_str(), Mode::from_raw_mode(0o755))
            .with_context(|| format!("mkdir {}", self.path))
    }

    fn create(&mut self, path: &str) -> Result<FileId> {
        self.go_to(path);
        self.open_path(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        self.go_to(path);
        let access = if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        let direct = if mode.direct { OFlags::DIRECT } else { OFlags::empty() };
        self.open_path(access | direct)
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        let fd = self.fd(file)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            match rustix::io::pwrite(fd, &data[done..], at) {
                Ok(0) => bail!("write of file {} at {at}: the file system took no byte", file.0),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).with_context(|| format!("write of file {} at {at}", file.0)),
            }
        }
        Ok(())
    }

    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let fd = self.fd(file)?;
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match rustix::io::pread(fd, &mut buf[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).with_context(|| format!("read of file {} at {at}", file.0)),
            }
        }
        Ok(done)
    }

    fn stat(&mut self, path: &str) -> Result<Stat> {
        self.go_to(path);
        let stat = rustix::fs::lstat(self.path.as_str()).with_context(|| format!("stat {}", self.path))?;
        Ok(Stat {
            size: stat.st_size as u64,
            is_dir: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        })
    }

    fn readdir_stat(&mut self, dir: &str) -> Result<ListingResult> {
        self.go_to(dir);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(self.path.as_str(), flags, Mode::empty())
            .with_context(|| format!("open directory {}", self.path))?;
        self.path.push('/');
        let dir_len = self.path.len();
        let mut listing = ListingResult::default();
        let mut stream = RawDir::new(fd, &mut self.entries);
        while let Some(entry) = stream.next() {
            let entry = entry.with_context(|| format!("readdir {}", self.path))?;
            if is_dot(entry.file_name()) {
                continue;
            }
            self.path.truncate(dir_len);
            self.path.push_str(entry.file_name().to_str().context("a name in the directory is not UTF-8")?);
            let stat = rustix::fs::statat(CWD, self.path.as_str(), AtFlags::SYMLINK_NOFOLLOW)
                .with_context(|| format!("stat {}", self.path))?;
            listing.entries += 1;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                listing.bytes += stat.st_size as u64;
            }
        }
        Ok(listing)
    }

    fn list(&mut self, dir: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
        self.go_to(dir);
        let entries = std::fs::read_dir(&self.path).with_context(|| format!("readdir {}", self.path))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("readdir {}", self.path))?;
            // Attributes are requested, as `ls -l` does; an entry may be gone meanwhile.
            match entry.metadata() {
                Ok(_) => tell(&entry.file_name().to_string_lossy()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("stat in {}", self.path)),
            }
        }
        Ok(())
    }

    fn fsync(&mut self, file: FileId) -> Result<()> {
        rustix::fs::fsync(self.fd(file)?).with_context(|| format!("fsync of file {}", file.0))
    }

    fn close(&mut self, file: FileId) -> Result<()> {
        let slot = usize::try_from(file.0)?;
        let fd = self.files.get_mut(slot).and_then(Option::take);
        drop(fd.with_context(|| format!("close: file {} is not open", file.0))?);
        self.free.push(slot);
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.go_to(path);
        rustix::fs::unlink(self.path.as_str()).with_context(|| format!("remove {}", self.path))
    }

    fn rmdir(&mut self, path: &str) -> Result<()> {
        self.go_to(path);
        rustix::fs::rmdir(self.path.as_str()).with_context(|| format!("rmdir {}", self.path))
    }
}
