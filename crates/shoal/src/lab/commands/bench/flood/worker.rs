//! A worker process of `shoal bench flood`. It writes its files, or reads its part of all files.
//!
//! ```text
//!   benchmark  the job (a line)             "go"                         all are "done": the clock stops
//!   process                    "ready" ────────  files … leave  "done"
//! ```
//! Each line of the process reports a time in seconds: "ready" the time to connect to the file system,
//! "done" the time of the calls alone. The clock of the benchmark also includes the time to disconnect, in
//! which the last block of a buffer is written and directories are merged.

use crate::copy::owner;
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_env::real::Runtime;
use shoal_proto::{Handle, Name, Rights};
use shoal_transform::{ComposedOptions, Wishes};
use shoal_vfs::{Connect, LocalOptions, Vfs, VfsFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Instant;

/// How a process reaches the files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Side {
    /// A directory, by the C library.
    Directory(PathBuf),
    /// The composed directory in a directory, and the words of its settings.
    Composed(PathBuf, String),
    /// A ShoalFS: its address and key.
    Shoal(String, PathBuf),
    /// The composed directory in a ShoalFS, and the words of its settings.
    ShoalComposed(String, PathBuf, String),
}

/// Where the bytes of one process go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Spread {
    /// All processes' files in one directory.
    Together,
    /// A directory for each process.
    Apart,
    /// One file for each process: the bytes alone.
    Bytes,
}

/// The files of all processes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Flood {
    /// How they are spread.
    pub spread: Spread,
    /// Processes that write.
    pub processes: u64,
    /// Pieces of each: files, or calls into its one file.
    pub pieces: u64,
    /// Bytes of a piece.
    pub bytes: u64,
    /// Each piece is durable before the next.
    pub sync: bool,
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// How it reaches the files.
    pub side: Side,
    /// The files.
    pub flood: Flood,
    /// The pieces, as they are numbered over all processes that write.
    pub part: Range<u64>,
    /// They are written; else read and compared.
    pub is_write: bool,
}

impl Flood {
    /// Pieces of all processes.
    pub fn all(&self) -> u64 {
        self.processes * self.pieces
    }

    /// The file of a piece, and its place in it.
    fn place(&self, piece: u64) -> (String, u64) {
        let (process, number) = (piece / self.pieces, piece % self.pieces);
        match self.spread {
            Spread::Together => (format!("p{process}.{number}"), 0),
            Spread::Apart => (format!("p{process}/{number}"), 0),
            Spread::Bytes => (format!("p{process}"), number * self.bytes),
        }
    }

    /// The bytes of a piece: its number in each word.
    fn fill(&self, piece: u64, into: &mut Vec<u8>) {
        into.resize(self.bytes as usize, 0);
        let word = (piece + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        into.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word[..chunk.len()]));
    }
}

/// The files of one side, by calls that block.
trait Reached {
    type Open;
    fn folder(&mut self, name: &str) -> Result<()>;
    fn open(&mut self, name: &str, is_new: bool) -> Result<Self::Open>;
    fn write(&mut self, file: &Self::Open, offset: u64, data: &[u8]) -> Result<()>;
    fn read(&mut self, file: &Self::Open, offset: u64, into: &mut [u8]) -> Result<()>;
    fn sync(&mut self, file: &Self::Open) -> Result<()>;
    fn close(&mut self, file: Self::Open) -> Result<()>;
    fn leave(self) -> Result<()>;
}

/// The process's work.
pub fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read the job")?;
    let job: Job = serde_json::from_str(&line).context("this is no job: `shoal bench flood` starts it")?;
    let begun = Instant::now();
    match job.side.clone() {
        Side::Directory(root) => {
            // Under the preload library this opens the composed directory.
            std::fs::metadata(&root).with_context(|| format!("cannot look at {}", root.display()))?;
            serve(Plain(root), &job, begun)
        }
        Side::Composed(root, words) => {
            let options = ComposedOptions { over: LocalOptions::new(root), wishes: wishes(&words)? };
            serve(Through::connect(options)?, &job, begun)
        }
        Side::Shoal(address, key) => {
            serve(Through::connect(shoal_world::client(&address, &key)?)?, &job, begun)
        }
        Side::ShoalComposed(address, key, words) => {
            let over = shoal_world::client(&address, &key)?;
            serve(Through::connect(ComposedOptions { over, wishes: wishes(&words)? })?, &job, begun)
        }
    }
}

fn wishes(words: &str) -> Result<Wishes> {
    Wishes::parse(words).map_err(|why| anyhow::anyhow!("composed: {why}"))
}

fn serve<R: Reached>(mut reached: R, job: &Job, begun: Instant) -> Result<()> {
    let process = job.part.start / job.flood.pieces;
    if job.is_write && job.flood.spread == Spread::Apart {
        reached.folder(&format!("p{process}"))?;
    }
    say("ready", begun)?;
    let mut go = [0; 3];
    std::io::stdin().read_exact(&mut go).context("the benchmark has ended")?;
    let begun = Instant::now();
    work(&mut reached, job)?;
    let took = begun.elapsed();
    reached.leave()?;
    say_seconds("done", took.as_secs_f64())
}

fn say(word: &str, since: Instant) -> Result<()> {
    say_seconds(word, since.elapsed().as_secs_f64())
}

fn say_seconds(word: &str, seconds: f64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {seconds}")?;
    Ok(out.flush()?)
}

/// Each piece in turn; a file is opened for its first piece and closed after its last.
fn work<R: Reached>(reached: &mut R, job: &Job) -> Result<()> {
    let (flood, is_write) = (&job.flood, job.is_write);
    let (mut wanted, mut got) = (Vec::new(), vec![0; flood.bytes as usize]);
    let mut held: Option<(String, R::Open)> = None;
    for piece in job.part.clone() {
        let (name, offset) = flood.place(piece);
        if held.as_ref().is_none_or(|(now, _)| *now != name) {
            if let Some((_, file)) = held.take() {
                reached.close(file)?;
            }
            let file = reached.open(&name, is_write).with_context(|| format!("cannot open {name}"))?;
            held = Some((name, file));
        }
        let Some((name, file)) = &held else { continue };
        flood.fill(piece, &mut wanted);
        if is_write {
            reached.write(file, offset, &wanted).with_context(|| format!("cannot write {name}"))?;
            if flood.sync {
                reached.sync(file)?;
            }
            continue;
        }
        reached.read(file, offset, &mut got).with_context(|| format!("cannot read {name}"))?;
        if got != wanted {
            bail!("{name}: other bytes are read than were written");
        }
    }
    held.map_or(Ok(()), |(_, file)| reached.close(file))
}

/// A directory, by the C library: files, or what the preload library shows.
struct Plain(PathBuf);

impl Reached for Plain {
    type Open = File;

    fn folder(&mut self, name: &str) -> Result<()> {
        Ok(std::fs::create_dir(self.0.join(name))?)
    }

    fn open(&mut self, name: &str, is_new: bool) -> Result<File> {
        let path = self.0.join(name);
        Ok(if is_new { File::create_new(path)? } else { File::open(path)? })
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        Ok(file.write_all_at(data, offset)?)
    }

    fn read(&mut self, file: &File, offset: u64, into: &mut [u8]) -> Result<()> {
        Ok(file.read_exact_at(into, offset)?)
    }

    fn sync(&mut self, file: &File) -> Result<()> {
        Ok(file.sync_all()?)
    }

    fn close(&mut self, _: File) -> Result<()> {
        Ok(())
    }

    fn leave(self) -> Result<()> {
        Ok(())
    }
}

/// A file system in this process.
struct Through<V> {
    runtime: Runtime,
    vfs: V,
    folders: BTreeMap<String, Handle>,
}

impl<V: Vfs> Through<V> {
    fn connect(how: impl Connect<Vfs = V>) -> Result<Through<V>> {
        let runtime = Runtime::new("flood");
        let vfs = runtime.block_on(how.connect(runtime.env()))?;
        Ok(Through { runtime, vfs, folders: BTreeMap::new() })
    }

    fn name(&mut self, path: &str) -> Result<(Handle, Name)> {
        let Some((folder, name)) = path.split_once('/') else { return Ok((Handle::ROOT, named(path)?)) };
        if let Some(&dir) = self.folders.get(folder) {
            return Ok((dir, named(name)?));
        }
        let dir = self.runtime.block_on(self.vfs.lookup(Handle::ROOT, &named(folder)?))?.handle;
        self.folders.insert(folder.to_owned(), dir);
        Ok((dir, named(name)?))
    }
}

fn named(text: &str) -> Result<Name> {
    Name::new(text.as_bytes()).map_err(|_| anyhow::anyhow!("`{text}` is no name"))
}

impl<V: Vfs> Reached for Through<V> {
    type Open = V::File;

    fn folder(&mut self, name: &str) -> Result<()> {
        let name = named(name)?;
        self.runtime.block_on(self.vfs.mkdir(Handle::ROOT, &name, owner(0o755)))?;
        Ok(())
    }

    fn open(&mut self, name: &str, is_new: bool) -> Result<V::File> {
        let (dir, name) = self.name(name)?;
        if !is_new {
            return Ok(self.runtime.block_on(self.vfs.open_name(dir, &name, Rights::READ))?);
        }
        let made = self.vfs.create(dir, &name, owner(0o644), true, Rights::READ | Rights::WRITE);
        Ok(self.runtime.block_on(made)?.2)
    }

    fn write(&mut self, file: &V::File, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.runtime.block_on(file.write(offset, Bytes::copy_from_slice(data)))?)
    }

    fn read(&mut self, file: &V::File, offset: u64, into: &mut [u8]) -> Result<()> {
        let data = self.runtime.block_on(file.read(offset, into.len()))?;
        if data.len() != into.len() {
            bail!("{} bytes were read, not {}", data.len(), into.len());
        }
        into.copy_from_slice(&data);
        Ok(())
    }

    fn sync(&mut self, file: &V::File) -> Result<()> {
        Ok(self.runtime.block_on(file.fsync())?)
    }

    fn close(&mut self, file: V::File) -> Result<()> {
        Ok(self.runtime.block_on(file.close())?)
    }

    fn leave(self) -> Result<()> {
        self.runtime.block_on(self.vfs.close());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: Flood = Flood { spread: Spread::Together, processes: 3, pieces: 4, bytes: 20, sync: false };

    fn job(flood: Flood, part: Range<u64>, is_write: bool) -> Job {
        Job { side: Side::Directory(PathBuf::new()), flood, part, is_write }
    }

    #[test]
    fn each_piece_has_a_place_and_bytes_of_its_own() {
        for spread in [Spread::Together, Spread::Apart, Spread::Bytes] {
            let flood = Flood { spread, ..FLOOD };
            let (mut places, mut all) =
                (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
            for piece in 0..flood.all() {
                let mut bytes = Vec::new();
                flood.fill(piece, &mut bytes);
                assert_eq!(bytes.len(), 20, "the last word is cut");
                assert!(places.insert(flood.place(piece)) && all.insert(bytes), "{spread:?} {piece}");
            }
        }
    }

    #[test]
    fn files_are_read_back_by_another_number_of_processes_and_a_changed_byte_is_named() {
        for spread in [Spread::Together, Spread::Bytes] {
            let folder = tempfile::tempdir().unwrap();
            let flood = Flood { spread, ..FLOOD };
            let mut reached = Plain(folder.path().to_owned());
            for process in 0..3 {
                work(&mut reached, &job(flood, process * 4..(process + 1) * 4, true)).unwrap();
            }
            for part in [0..5, 5..12, 12..12] {
                work(&mut reached, &job(flood, part, false)).unwrap();
            }
            let (name, offset) = flood.place(6);
            let file = File::options().write(true).open(folder.path().join(&name)).unwrap();
            file.write_all_at(b"x", offset + 19).unwrap();
            let refused = work(&mut reached, &job(flood, 5..12, false)).unwrap_err();
            assert!(refused.to_string().contains(&format!("{name}: other bytes")), "{refused}");
        }
    }
}
