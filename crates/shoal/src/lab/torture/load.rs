//! The load: the next act of a client, drawn from its ledger.
//!
//! Each client has names that only it uses. They are in its own directory, in directories that it made, and
//! in directories that all clients share. In shared directories changes of several clients meet on the same
//! servers and rows. Most files are small; some lie over all servers. A new object gets a name that was never
//! used. Only a rename may take an existing name: it then replaces a file of the same client.

use super::hand::Act;
use super::ledger::Ledger;

/// Where the load works.
pub const ROOT: &str = "work";
/// Directories that all clients share.
pub const SHARED: usize = 4;
/// Names of files of one client, about.
const FILES_MAX: usize = 60;
/// Bytes of a file, at most.
const BYTES_MAX: usize = 300_000;
/// A file that stays below this stays on one server, where an append is done exactly once also if the server
/// is killed in the middle of it (docs/reference/SEMANTICS.md, 4).
const APPENDED_MAX: usize = 40_000;
/// Bytes of an append, at most: more may be done twice when the server is killed in the middle of it.
const APPEND_MAX: usize = 12_000;

/// A stream of draws (SplitMix64; Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Draws(u64);

impl Draws {
    /// From a seed.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    /// One of some.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len())])
    }

    fn len(&mut self) -> usize {
        match self.below(20) {
            0..12 => self.below(4096),
            12..17 => self.below(16_384),
            _ => self.below(200_000),
        }
    }
}

/// Path of a shared directory.
pub fn shared(number: usize) -> String {
    format!("{ROOT}/shared-{number}")
}

/// Path of a client's own directory.
pub fn own(client: &str) -> String {
    format!("{ROOT}/{client}")
}

/// The owner of a path; `None`: none, as for shared directories.
pub fn owner(path: &str) -> Option<&str> {
    let below = path.strip_prefix(ROOT)?.strip_prefix('/')?;
    let (first, rest) = below.split_once('/').unwrap_or((below, ""));
    if !first.starts_with("shared-") {
        return (!rest.is_empty()).then_some(first);
    }
    rest.split('-').next().filter(|client| !client.is_empty())
}

/// The next act of the client.
pub fn draw(draws: &mut Draws, ledger: &Ledger) -> Act {
    let files = ledger.files();
    let few = files.len() < FILES_MAX;
    for _ in 0..20 {
        let act = match draws.below(if few { 100 } else { 70 }) {
            0..22 => write(draws, ledger, &files),
            22..30 => append(draws, ledger, &files),
            30..37 => truncate(draws, ledger, &files),
            37..48 => rename(draws, ledger, &files),
            48..51 => rename_directory(draws, ledger),
            51..53 => rmdir(draws, ledger),
            53..65 => draws.pick(&files).map(|path| Act::Unlink { path: path.to_owned() }),
            65..70 => draws.pick(&files).map(|path| Act::Read { path: path.to_owned() }),
            70..75 => link(draws, ledger, &files),
            75..79 => Some(Act::Mkdir { path: place(draws, ledger, "d") }),
            _ => Some(Act::Create { path: place(draws, ledger, "f") }),
        };
        if let Some(act) = act {
            return act;
        }
    }
    Act::Create { path: place(draws, ledger, "f") }
}

/// A new name somewhere.
fn place(draws: &mut Draws, ledger: &Ledger, letter: &str) -> String {
    let (client, number) = (&ledger.name, draws.bits() & 0xffff_ffff);
    let directories = ledger.directories();
    match draws.below(3) {
        0 => format!("{}/{client}-{letter}{number:x}", shared(draws.below(SHARED))),
        1 if !directories.is_empty() => {
            format!("{}/{letter}{number:x}", directories[draws.below(directories.len())])
        }
        _ => format!("{}/{letter}{number:x}", own(client)),
    }
}

fn write(draws: &mut Draws, ledger: &Ledger, files: &[&str]) -> Option<Act> {
    let path = draws.pick(files)?;
    let (size, _) = ledger.size(path)?;
    let len = draws.len();
    let offset = match draws.below(3) {
        0 => 0,
        1 => size,
        _ => draws.below(size + 1000),
    };
    let offset = offset.min(BYTES_MAX.saturating_sub(len)) as u64;
    Some(Act::Write { path: path.to_owned(), offset, len, seed: draws.bits(), sync: draws.below(2) == 0 })
}

fn append(draws: &mut Draws, ledger: &Ledger, files: &[&str]) -> Option<Act> {
    let path = draws.pick(files)?;
    let (_, longest) = ledger.size(path)?;
    let len = 1 + draws.below(APPEND_MAX);
    (longest + len <= APPENDED_MAX).then(|| Act::Append { path: path.to_owned(), len, seed: draws.bits() })
}

fn truncate(draws: &mut Draws, ledger: &Ledger, files: &[&str]) -> Option<Act> {
    let path = draws.pick(files)?;
    let (size, _) = ledger.size(path)?;
    Some(Act::Truncate { path: path.to_owned(), size: draws.below((size + 1000).min(BYTES_MAX)) as u64 })
}

fn rename(draws: &mut Draws, ledger: &Ledger, files: &[&str]) -> Option<Act> {
    let from = draws.pick(files)?;
    let to = match draws.below(3) {
        // A rename between two names of one file does nothing, which no ledger needs to know.
        0 => draws.pick(files).filter(|to| !ledger.is_same(from, to))?.to_owned(),
        _ => place(draws, ledger, "f"),
    };
    Some(Act::Rename { from: from.to_owned(), to })
}

fn rename_directory(draws: &mut Draws, ledger: &Ledger) -> Option<Act> {
    let from = draws.pick(&ledger.directories()).filter(|dir| ledger.is_settled(dir))?;
    let to = place(draws, ledger, "d");
    (!to.starts_with(&format!("{from}/"))).then(|| Act::Rename { from: from.to_owned(), to })
}

fn rmdir(draws: &mut Draws, ledger: &Ledger) -> Option<Act> {
    let free = |dir: &&str| ledger.is_settled(dir) && ledger.is_empty(dir);
    draws.pick(&ledger.directories()).filter(free).map(|path| Act::Rmdir { path: path.to_owned() })
}

fn link(draws: &mut Draws, ledger: &Ledger, files: &[&str]) -> Option<Act> {
    let from = draws.pick(files)?;
    Some(Act::Link { from: from.to_owned(), to: place(draws, ledger, "f") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_one_owner() {
        assert_eq!(owner("work/w3/f1"), Some("w3"));
        assert_eq!(owner("work/w3/d1/f2"), Some("w3"));
        assert_eq!(owner("work/shared-1/w12-d5/f1"), Some("w12"));
        assert_eq!(owner("work/shared-1"), None);
        assert_eq!(owner("work/w3"), None);
    }

    #[test]
    fn a_load_is_drawn_from_its_seed_and_changes_everything() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let mut ledger = Ledger::new(folder.path(), name).unwrap();
            ledger.name = "w0".to_owned();
            let mut draws = Draws::new(5);
            let mut acts = Vec::new();
            for _ in 0..2000 {
                let act = draw(&mut draws, &ledger);
                let entry = ledger.intend(&act).unwrap();
                ledger.done(entry, &act, None).unwrap();
                acts.push(act);
            }
            assert!(ledger.files().len() <= FILES_MAX && !ledger.directories().is_empty());
            acts
        };
        let acts = run("one");
        assert_eq!(acts, run("other"));
        let count = |is: fn(&Act) -> bool| acts.iter().filter(|act| is(act)).count();
        for often in [
            count(|act| matches!(act, Act::Create { .. })),
            count(|act| matches!(act, Act::Mkdir { .. })),
            count(|act| matches!(act, Act::Rmdir { .. })),
            count(|act| matches!(act, Act::Unlink { .. })),
            count(|act| matches!(act, Act::Rename { .. })),
            count(|act| matches!(act, Act::Link { .. })),
            count(|act| matches!(act, Act::Write { sync: true, .. })),
            count(|act| matches!(act, Act::Append { .. })),
            count(|act| matches!(act, Act::Truncate { .. })),
        ] {
            assert!(often > 5, "{acts:?}");
        }
    }
}
