//! One client's ledger: what it was told about the names that only it uses, and about the contents behind them.
//!
//! *Names.* A change that was acknowledged moves the ledger. One whose outcome is unknown is kept as *pending*: the names it
//! touches are used no more, and at the end they must stand as before it or as after it, all of them together.
//!
//! *Contents.* A file is written whole, again and again; each version fills each sector of 512 bytes with a word of its own.
//! So every sector read says which version it is of. Right is, for each sector, any version from the file's *base* on: the
//! newest version that was synced, or acknowledged with no power cut since it was asked for. A version without an
//! acknowledgement is always possible. Without a base so are zeros, and a shorter file.

use crate::rng::mix;
use bytes::Bytes;
use std::collections::BTreeMap;

/// A name: its directory's handle and its bytes.
pub type Slot = (u64, String);

/// A file of one ledger.
pub type FileId = usize;

/// What a power cut takes or leaves whole.
const SECTOR: usize = 512;

/// One write of the whole file.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// The power cuts before it was asked for; `None`: it was never acknowledged.
    acknowledged: Option<u64>,
    synced: bool,
}

/// A file and what was written to it.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Its handle.
    pub handle: u64,
    /// Its length, once written.
    pub len: usize,
    tag: u64,
    versions: Vec<Version>,
}

impl FileFacts {
    /// A file whose contents are told from all others by `tag`.
    pub fn new(handle: u64, len: usize, tag: u64) -> FileFacts {
        FileFacts { handle, len, tag, versions: Vec::new() }
    }

    /// Contents for the next version, which counts as asked for but not acknowledged.
    pub fn next_version(&mut self) -> (usize, Bytes) {
        let version = self.versions.len();
        self.versions.push(Version { acknowledged: None, synced: false });
        let mut content = Vec::with_capacity(self.len);
        for sector in 0..self.len.div_ceil(SECTOR) {
            let word = self.word(version, sector).to_le_bytes();
            let len = SECTOR.min(self.len - content.len());
            content.extend(word.iter().cycle().take(len));
        }
        (version, content.into())
    }

    fn word(&self, version: usize, sector: usize) -> u64 {
        mix(mix(self.tag ^ (version as u64) << 48) ^ sector as u64)
    }

    /// It was acknowledged; `cuts` power cuts had begun before it was asked for.
    pub fn acknowledged(&mut self, version: usize, cuts: u64) {
        self.versions[version].acknowledged = Some(cuts);
    }

    /// It was synced.
    pub fn synced(&mut self, version: usize) {
        self.versions[version].synced = true;
    }

    /// Whether no version was ever acknowledged.
    pub fn is_unwritten(&self) -> bool {
        self.versions.iter().all(|version| version.acknowledged.is_none())
    }

    fn base(&self, cuts: u64) -> Option<usize> {
        self.versions.iter().rposition(|version| version.synced || version.acknowledged == Some(cuts))
    }

    /// Whether `content` may be read after `cuts` power cuts.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn judge(&self, content: &[u8], cuts: u64) -> Result<(), String> {
        let base = self.base(cuts);
        let wrong_len = if base.is_some() { content.len() != self.len } else { content.len() > self.len };
        if wrong_len {
            return Err(format!("{} bytes instead of {}; base {base:?}", content.len(), self.len));
        }
        for (sector, bytes) in content.chunks(SECTOR).enumerate() {
            let allowed = |version: &usize| {
                base.is_none_or(|base| *version >= base) || self.versions[*version].acknowledged.is_none()
            };
            let of = |version: usize| is_filled(bytes, self.word(version, sector));
            let zeros = base.is_none() && is_filled(bytes, 0);
            if !zeros && !(0..self.versions.len()).filter(allowed).any(of) {
                let found = (0..self.versions.len()).find(|version| of(*version));
                return Err(format!(
                    "sector {sector} is of version {found:?} of {}, and the base is {base:?}",
                    self.versions.len()
                ));
            }
        }
        Ok(())
    }
}

fn is_filled(bytes: &[u8], word: u64) -> bool {
    bytes.iter().zip(word.to_le_bytes().iter().cycle()).all(|(byte, filled)| byte == filled)
}

/// A change whose outcome is unknown: the names it touches, before and after.
#[derive(Clone, Debug)]
pub struct Pending {
    /// What it was, in words.
    pub words: String,
    /// Each name: what it led to before, and leads to if the change was done.
    pub slots: Vec<(Slot, Option<FileId>, Option<FileId>)>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The files.
    pub files: Vec<FileFacts>,
    /// Names that lead to a file for certain.
    pub live: BTreeMap<Slot, FileId>,
    /// Names that are gone, or never came, for certain.
    pub gone: Vec<Slot>,
    /// Changes of unknown outcome; their names are in neither of the above.
    pub pending: Vec<Pending>,
}

impl Ledger {
    /// A new file of `len` bytes. Its handle is known when it is made.
    pub fn file(&mut self, len: usize, tag: u64) -> FileId {
        self.files.push(FileFacts::new(0, len, tag));
        self.files.len() - 1
    }

    /// The name leads to the file, acknowledged.
    pub fn made(&mut self, slot: Slot, file: FileId) {
        self.live.insert(slot, file);
    }

    /// The name is gone, acknowledged.
    pub fn removed(&mut self, slot: &Slot) -> Option<FileId> {
        let file = self.live.remove(slot);
        self.gone.push(slot.clone());
        file
    }

    /// A change may have been done; its names are used no more.
    pub fn unknown(&mut self, words: String, slots: Vec<(Slot, Option<FileId>, Option<FileId>)>) {
        for (slot, ..) in &slots {
            self.live.remove(slot);
        }
        self.pending.push(Pending { words, slots });
    }

    /// Hold the ledger against the tree as it was found: `found` gives a name's handle.
    pub fn judge(&self, found: impl Fn(&Slot) -> Option<u64>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (slot, file) in &self.live {
            let (handle, seen) = (self.files[*file].handle, found(slot));
            if seen != Some(handle) {
                wrong.push(format!("{slot:?} was acknowledged as {handle:#x} and is {seen:x?}"));
            }
        }
        for slot in self.gone.iter().filter(|slot| !self.live.contains_key(*slot)) {
            if let Some(handle) = found(slot) {
                wrong.push(format!("{slot:?} was acknowledged as removed and is {handle:#x}"));
            }
        }
        for pending in &self.pending {
            let agrees = |slot: &Slot, file: Option<FileId>| match (file, found(slot)) {
                (None, seen) => seen.is_none(),
                // A file whose making was never acknowledged has a handle that was never told.
                (Some(file), Some(handle)) => [0, handle].contains(&self.files[file].handle),
                (Some(_), None) => false,
            };
            let before = pending.slots.iter().all(|(slot, before, _)| agrees(slot, *before));
            let after = pending.slots.iter().all(|(slot, _, after)| agrees(slot, *after));
            if !before && !after {
                wrong.push(format!("{} was done by half: {:?}", pending.words, pending.slots));
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str) -> Slot {
        (1, name.to_owned())
    }

    #[test]
    fn an_acknowledged_name_must_be_there_and_a_removed_one_must_not() {
        let mut ledger = Ledger::default();
        let file = ledger.file(10, 1);
        ledger.files[file].handle = 7;
        ledger.made(slot("a"), file);
        assert!(ledger.judge(|_| Some(7)).is_empty());
        assert_eq!(ledger.judge(|_| None).len(), 1);
        assert_eq!(ledger.judge(|_| Some(8)).len(), 1);
        ledger.removed(&slot("a"));
        assert!(ledger.judge(|_| None).is_empty());
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1);
    }

    #[test]
    fn an_unknown_rename_is_done_or_not_but_never_by_half() {
        let mut ledger = Ledger::default();
        let file = ledger.file(10, 1);
        ledger.files[file].handle = 7;
        ledger.made(slot("a"), file);
        let slots = vec![(slot("a"), Some(file), None), (slot("b"), None, Some(file))];
        ledger.unknown("rename a b".into(), slots);
        let at = |place: &'static str| move |slot: &Slot| (slot.1 == place).then_some(7);
        assert!(ledger.judge(at("a")).is_empty());
        assert!(ledger.judge(at("b")).is_empty());
        assert_eq!(ledger.judge(|_| None).len(), 1);
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1);
    }

    #[test]
    fn a_synced_version_survives_a_power_cut_and_an_acknowledged_one_a_crash() {
        let mut file = FileFacts::new(1, 1300, 9);
        let (first, old) = file.next_version();
        file.acknowledged(first, 0);
        file.synced(first);
        let (second, new) = file.next_version();
        file.acknowledged(second, 0);
        assert!(file.judge(&new, 0).is_ok());
        assert!(file.judge(&old, 0).is_err(), "no power cut excuses it");
        assert!(file.judge(&old, 1).is_ok());
        let torn = [&new[..512], &old[512..]].concat();
        assert!(file.judge(&torn, 1).is_ok());
        assert!(file.judge(&torn, 0).is_err());
        assert!(file.judge(&[0; 1300], 1).is_err());
        assert!(file.judge(&old[..1299], 1).is_err());
    }

    #[test]
    fn before_its_first_sync_a_file_may_lose_all_by_a_power_cut() {
        let mut file = FileFacts::new(1, 1300, 9);
        let (first, content) = file.next_version();
        file.acknowledged(first, 0);
        assert!(file.judge(&content, 1).is_ok());
        assert!(file.judge(&[], 1).is_ok());
        assert!(file.judge(&[0; 1300], 1).is_ok());
        assert!(file.judge(&[], 0).is_err());
        assert!(file.judge(&[3; 1300], 1).is_err());
    }
}
