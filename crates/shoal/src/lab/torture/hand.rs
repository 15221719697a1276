//! A *hand*: a client in a process of its own, which uses a mount or the native client. Its controller
//! drives it by lines over pipes.
//!
//! ```text
//!   first ──► hand    {"mount": "/folder/mnt-0"}                      ──► "ready"
//!                     {"write": {"path": "a", "offset": 1, …}}        ──► "done"
//!                     {"read": {"path": "a"}}                         ──► {"bytes": {"len": 5, …}}, 5 bytes
//!                     (end of file): the hand ends
//! ```
//! A hand does one act at a time and reports the result; a hand on a dead mount reports its errors too. Its
//! controller may kill it at any moment, in the middle of an act. Bytes are never sent to a hand: they follow
//! from a seed ([`content`]).

mod mounted;
mod native;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;

/// The longest line either side takes, bytes.
const LINE_MAX: usize = 4 << 20;
/// Files that a hand keeps open, at most.
const OPEN_MAX: usize = 8;

/// Which client a hand is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spec {
    /// Through the mount at this folder.
    Mount(PathBuf),
    /// The native client.
    Native {
        /// Address of the file system.
        address: String,
        /// The key file.
        key: PathBuf,
        /// Seconds after which an operation that no server answers fails.
        timeout_s: u64,
    },
}

/// The acts of a hand. Paths begin at the root of the file system, without a `/` before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Make a regular file that must not be there.
    Create { path: String },
    /// Make a directory.
    Mkdir { path: String },
    /// Remove a directory.
    Rmdir { path: String },
    /// Remove a file.
    Unlink { path: String },
    /// Move a file or directory, over another file if there is one.
    Rename { from: String, to: String },
    /// A further name of a file.
    Link { from: String, to: String },
    /// Cut or lengthen.
    Truncate { path: String, size: u64 },
    /// Write [`content`], through a file that stays open; then fsync, if asked to.
    Write { path: String, offset: u64, len: usize, seed: u64, sync: bool },
    /// Append [`content`] by one call.
    Append { path: String, len: usize, seed: u64 },
    /// Open and read the whole file.
    Read { path: String },
    /// Attributes by name.
    Look { path: String },
    /// All entries of a directory.
    List { path: String },
    /// Some acts in a row, all of them whatever comes of each; none that reads.
    Many(Vec<Act>),
}

/// The result of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The hand can begin.
    Ready,
    /// It was done.
    Done,
    /// An object was made; its inode number.
    Made(u64),
    /// Attributes.
    Seen(Seen),
    /// A file's bytes: they follow the line.
    Bytes { len: usize, seen: Seen },
    /// Entries: name, inode number, whether it is a directory.
    Entries(Vec<(String, u64, bool)>),
    /// It failed with this error number.
    Refused { errno: i32, words: String },
    /// Of each of the acts.
    Many(Vec<Said>),
}

/// Attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Inode number.
    pub ino: u64,
    /// Links.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// An error number and words for it.
pub struct Refusal {
    errno: i32,
    words: String,
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal { errno: error.raw_os_error().unwrap_or(0), words: error.to_string() }
    }
}

/// The result of an act, and the bytes read.
type Outcome = Result<(Said, Vec<u8>), Refusal>;

/// A client that does acts.
trait Client {
    fn act(&mut self, act: &Act) -> Outcome;
}

/// Bytes that follow from a seed; the first eight are the seed, so that a record can be identified by its
/// beginning.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 8);
    bytes.extend(seed.to_le_bytes());
    while bytes.len() < len {
        // SplitMix64 (Steele, Lea and Flood 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The work of a hand's process until its input ends.
pub fn main() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line)?;
    let spec: Spec = serde_json::from_str(&line).context(
        "a hand is started by `shoal torture`, not by people: its first line says which client it is",
    )?;
    let mut client: Box<dyn Client> = match spec {
        Spec::Mount(folder) => Box::new(mounted::Mounted::new(folder)),
        Spec::Native { address, key, timeout_s } => {
            Box::new(native::Native::begin(&address, key, timeout_s)?)
        }
    };
    say(&Said::Ready, &[])?;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.len() > LINE_MAX {
            bail!("a line is longer than {LINE_MAX} bytes");
        }
        let act: Act = serde_json::from_str(&line)?;
        let (said, bytes) = done(client.as_mut(), &act);
        say(&said, &bytes)?;
    }
}

fn done(client: &mut dyn Client, act: &Act) -> (Said, Vec<u8>) {
    if let Act::Many(acts) = act {
        return (Said::Many(acts.iter().map(|act| done(client, act).0).collect()), Vec::new());
    }
    client.act(act).unwrap_or_else(|Refusal { errno, words }| (Said::Refused { errno, words }, Vec::new()))
}

fn say(said: &Said, bytes: &[u8]) -> Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Files kept open by path, the oldest closed first.
struct Kept<F>(Vec<(String, F)>);

impl<F> Kept<F> {
    fn new() -> Kept<F> {
        Kept(Vec::new())
    }

    fn get(&self, path: &str) -> Option<&F> {
        self.0.iter().find(|(kept, _)| kept == path).map(|(_, file)| file)
    }

    /// Keep a file; one that has to go for it.
    fn keep(&mut self, path: &str, file: F) -> Option<F> {
        let oldest = (self.0.len() >= OPEN_MAX).then(|| self.0.remove(0).1);
        self.0.push((path.to_owned(), file));
        oldest
    }

    /// Names at or below a path changed: their files.
    fn forget(&mut self, path: &str) -> Vec<F> {
        let below =
            |kept: &str| kept.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let (gone, left) = std::mem::take(&mut self.0).into_iter().partition(|(kept, _)| below(kept));
        self.0 = left;
        Vec::into_iter(gone).map(|(_, file)| file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_from_its_seed_and_begins_with_it() {
        assert_eq!(content(7, 100)[..8], 7u64.to_le_bytes());
        assert_eq!(content(7, 100)[..40], content(7, 40)[..]);
        assert_eq!((content(7, 3).len(), content(7, 0).len()), (3, 0));
        assert_ne!(content(7, 100)[8..], content(8, 100)[8..]);
    }

    #[test]
    fn files_below_a_name_that_changed_are_kept_no_more() {
        let mut kept = Kept::new();
        for (at, path) in ["a", "a/b", "ab"].into_iter().enumerate() {
            assert!(kept.keep(path, at).is_none());
        }
        assert_eq!(kept.forget("a"), [0, 1]);
        assert_eq!(kept.get("ab"), Some(&2));
    }
}
