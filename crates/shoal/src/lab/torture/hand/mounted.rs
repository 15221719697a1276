//! A hand (a client process of the torture) that works on a mount, by plain system calls.

use super::{Act, Client, Kept, Outcome, Said, Seen, content};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirEntryExt as _, FileExt as _, MetadataExt as _};
use std::path::PathBuf;

/// See the module.
pub struct Mounted {
    root: PathBuf,
    written: Kept<File>,
    appended: Kept<File>,
}

impl Mounted {
    /// On the mount at this folder.
    pub fn new(root: PathBuf) -> Mounted {
        Mounted { root, written: Kept::new(), appended: Kept::new() }
    }

    fn forget(&mut self, path: &str) {
        self.written.forget(path);
        self.appended.forget(path);
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8], sync: bool) -> std::io::Result<()> {
        if self.written.get(path).is_none() {
            let file = OpenOptions::new().write(true).open(self.root.join(path))?;
            self.written.keep(path, file);
        }
        let Some(file) = self.written.get(path) else { return Ok(()) };
        file.write_all_at(bytes, offset)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn append(&mut self, path: &str, bytes: &[u8]) -> std::io::Result<()> {
        if self.appended.get(path).is_none() {
            let file = OpenOptions::new().append(true).open(self.root.join(path))?;
            self.appended.keep(path, file);
        }
        let Some(mut file) = self.appended.get(path) else { return Ok(()) };
        // One call, which must take all.
        match file.write(bytes)? {
            taken if taken == bytes.len() => Ok(()),
            taken => Err(std::io::Error::other(format!("an append of {} bytes took {taken}", bytes.len()))),
        }
    }

    fn entries(&self, path: &str) -> std::io::Result<Vec<(String, u64, bool)>> {
        let entry = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.ino(), entry.file_type()?.is_dir()))
        };
        fs::read_dir(self.root.join(path))?.map(entry).collect()
    }
}

fn seen(meta: &fs::Metadata) -> Seen {
    Seen { ino: meta.ino(), nlink: meta.nlink(), size: meta.size(), is_dir: meta.is_dir() }
}

impl Client for Mounted {
    fn act(&mut self, act: &Act) -> Outcome {
        let at = |path: &str| self.root.join(path);
        let said = match act {
            Act::Create { path } => Said::Made(File::create_new(at(path))?.metadata()?.ino()),
            Act::Mkdir { path } => {
                fs::create_dir(at(path))?;
                Said::Made(fs::symlink_metadata(at(path))?.ino())
            }
            Act::Rmdir { path } => {
                fs::remove_dir(at(path))?;
                Said::Done
            }
            Act::Unlink { path } => {
                let done = fs::remove_file(at(path));
                self.forget(path);
                done?;
                Said::Done
            }
            Act::Rename { from, to } => {
                let done = fs::rename(at(from), at(to));
                self.forget(from);
                self.forget(to);
                done?;
                Said::Done
            }
            Act::Link { from, to } => {
                fs::hard_link(at(from), at(to))?;
                Said::Done
            }
            Act::Truncate { path, size } => {
                OpenOptions::new().write(true).open(at(path))?.set_len(*size)?;
                Said::Done
            }
            Act::Write { path, offset, len, seed, sync } => {
                self.write(path, *offset, &content(*seed, *len), *sync)?;
                Said::Done
            }
            Act::Append { path, len, seed } => {
                self.append(path, &content(*seed, *len))?;
                Said::Done
            }
            Act::Read { path } => {
                let mut file = File::open(at(path))?;
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                return Ok((Said::Bytes { len: bytes.len(), seen: seen(&file.metadata()?) }, bytes));
            }
            Act::Look { path } => Said::Seen(seen(&fs::symlink_metadata(at(path))?)),
            Act::List { path } => Said::Entries(self.entries(path)?),
            Act::Many(_) => Said::Done,
        };
        Ok((said, Vec::new()))
    }
}
