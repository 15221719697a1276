//! Names in a container, and the facts that they hold.

use super::fold::Replaced;
use crate::writer_id::WriterId;
use shoal_proto::Name;
use shoal_vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The access record: its presence makes a directory a container.
pub(super) fn record() -> Name {
    constant(".shoal-container")
}

/// At the root: containers without a name.
pub(super) fn bin() -> Name {
    constant(".shoal")
}

/// The text of an access record.
pub(super) const RECORD_TEXT: &str = "shoal container 1\n\nThis directory is one file. Use it through `shoal \
mount --over DIR --transform container MNT`.\n";

fn constant(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a constant name is a name")
}

/// A name that is made here.
pub(super) fn name(text: &str) -> Result<Name> {
    Name::new(text.as_bytes()).map_err(|status| Error::new(status, "container"))
}

/// A writer. The name is made before its logs, and stays.
pub(super) fn writer(id: WriterId) -> Result<Name> {
    name(&format!("w.{id}"))
}

/// The facts of a closed writer. Without one, it is open, or ended without closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Dropping {
    /// Where the file ends, as far as it knew.
    pub(super) end: u64,
    /// Bytes of its data log.
    pub(super) bytes: u64,
    /// Bytes of its index log.
    pub(super) index: u64,
    /// The cuts that it knew of.
    pub(super) cuts: u64,
    /// The boot of its machine, in short: after a later one its logs may be shorter. 0: they were durable.
    pub(super) boot: u64,
}

impl Dropping {
    /// Whether its logs are as long as it says, in this boot.
    pub(super) fn holds(&self, boot: u64) -> bool {
        self.boot == 0 || self.boot == boot
    }
}

/// A boot, in short.
pub(super) fn short_boot(id: [u8; 16]) -> u64 {
    u64::from(u32::from_le_bytes([id[0], id[1], id[2], id[3]])).max(1)
}

impl Dropping {
    pub(super) fn name(&self, id: WriterId) -> Result<Name> {
        self.name_as("d", id)
    }

    /// Of a kind: `d` closed, `e` sealed too, `m` folded of others.
    pub(super) fn name_as(&self, kind: &str, id: WriterId) -> Result<Name> {
        let Dropping { end, bytes, index, cuts, boot } = self;
        name(&format!("{kind}.{id}.{end:x}.{bytes:x}.{index:x}.{cuts:x}.{boot:x}"))
    }
}

/// A cut in a writer's index log.
pub(super) fn cut(id: WriterId, number: u64) -> Result<Name> {
    name(&format!("c.{id}.{number:x}"))
}

/// Bytes of a writer's logs that were given up by `recover --lossy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost {
    pub(super) id: WriterId,
    /// Of its data log.
    pub(super) data: u64,
    /// Of its index log.
    pub(super) index: u64,
}

impl Lost {
    pub(super) fn name(&self) -> Result<Name> {
        name(&format!("l.{}.{:x}.{:x}", self.id, self.data, self.index))
    }
}

/// The text of a writer's name: bytes of its logs that were durable, with their check sum.
pub(super) fn synced(data: u64, index: u64) -> [u8; 20] {
    let mut text = [0; 20];
    text[..8].copy_from_slice(&data.to_le_bytes());
    text[8..16].copy_from_slice(&index.to_le_bytes());
    let sum = crc32c::crc32c(&text[..16]);
    text[16..].copy_from_slice(&sum.to_le_bytes());
    text
}

/// The bytes of data log and index log that the text of a writer's name says were durable.
pub(super) fn read_synced(text: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_le_bytes(text.get(at..at + 8)?.try_into().ok()?));
    let (data, index) = (number(0)?, number(8)?);
    (synced(data, index)[..] == *text.get(..20)?).then_some((data, index))
}

/// A flattened index.
pub(super) fn flat(id: WriterId) -> Result<Name> {
    name(&format!("f.{id}"))
}

/// A folder of logs.
pub(super) fn folder(number: u32) -> Result<Name> {
    name(&format!("h.{number}"))
}

pub(super) fn data(id: WriterId) -> Result<Name> {
    name(&format!("data.{id}"))
}

pub(super) fn index(id: WriterId) -> Result<Name> {
    name(&format!("index.{id}"))
}

/// The names of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    /// The writers, with the facts of closed ones.
    pub(super) writers: BTreeMap<WriterId, Option<Dropping>>,
    pub(super) cuts: u64,
    /// The writers of the cuts, with each one's number.
    cut_by: BTreeSet<(WriterId, u64)>,
    /// Writers whose logs were folded of others'.
    pub(super) folded: BTreeSet<WriterId>,
    /// The logs that those replace, and the names of the files that list them.
    pub(super) replaced: BTreeMap<WriterId, Replaced>,
    pub(super) lists: BTreeSet<(WriterId, Name)>,
    /// Writers that were replaced, and have names still: they do not count.
    pub(super) left_out: BTreeSet<WriterId>,
    /// Flattened indexes, by the writer that made them.
    pub(super) flat: Vec<WriterId>,
    /// The bytes that were given up.
    pub(super) lost: Vec<Lost>,
}

impl Contents {
    /// A name of the container.
    pub(super) fn add(&mut self, name: &[u8]) {
        let Ok(text) = std::str::from_utf8(name) else { return };
        let mut parts = text.split('.');
        let kind = parts.next();
        let Some(id) = parts.next().and_then(WriterId::parse) else { return };
        let mut number = || parts.next().and_then(|part| u64::from_str_radix(part, 16).ok());
        match kind {
            Some("w") => drop(self.writers.entry(id).or_insert(None)),
            Some("x") => {
                if let Ok(name) = Name::new(name) {
                    self.lists.insert((id, name));
                }
            }
            Some("d" | "e" | "m") => {
                let all = [number(), number(), number(), number(), number()];
                if let [Some(end), Some(bytes), Some(index), Some(cuts), Some(boot)] = all {
                    self.writers.insert(id, Some(Dropping { end, bytes, index, cuts, boot }));
                    if kind == Some("m") {
                        self.folded.insert(id);
                    }
                }
            }
            Some("c") => {
                self.cuts += 1;
                self.cut_by.insert((id, number().unwrap_or(0)));
            }
            Some("l") => {
                if let (Some(data), Some(index)) = (number(), number()) {
                    self.lost.push(Lost { id, data, index });
                }
            }
            Some("f") => self.flat.extend(Some(id)),
            _ => {}
        }
    }

    /// Leave writers out that were replaced.
    pub(super) fn leave_out(&mut self, gone: &BTreeSet<WriterId>) {
        self.left_out.extend(self.writers.keys().filter(|id| gone.contains(id)));
        self.left_out.extend(self.lists.iter().map(|(id, _)| *id).filter(|id| gone.contains(id)));
        self.writers.retain(|id, _| !gone.contains(id));
        self.folded.retain(|id| !gone.contains(id));
        self.replaced.retain(|id, _| !gone.contains(id));
        self.lists.retain(|(id, _)| !gone.contains(id));
        self.cut_by.retain(|(id, _)| !gone.contains(id));
        self.cuts = self.cut_by.len() as u64;
    }

    /// The size and stored bytes that droppings state: at least so many.
    pub(super) fn facts_at_least(&self) -> (u64, u64) {
        let closed = self.writers.values().flatten();
        closed.fold((0, 0), |(end, bytes), known| (known.end.max(end), known.bytes.saturating_add(bytes)))
    }

    /// The size and stored bytes, if every writer is closed, knew of every cut, and lost nothing since.
    pub(super) fn facts(&self, boot: [u8; 16]) -> Option<(u64, u64)> {
        let boot = short_boot(boot);
        self.writers.values().try_fold((0, 0u64), |(end, bytes), dropping| {
            let known = dropping.filter(|dropping| dropping.cuts == self.cuts && dropping.holds(boot))?;
            Some((known.end.max(end), bytes.saturating_add(known.bytes)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn droppings_say_the_size_only_if_all_writers_are_closed_and_knew_of_all_cuts() {
        let (a, b) = (WriterId([1; 16]), WriterId([2; 16]));
        let mut contents = Contents::default();
        let add = |contents: &mut Contents, name: Name| contents.add(name.as_bytes());
        add(
            &mut contents,
            Dropping { end: 100, bytes: 10, index: 1, cuts: 0, boot: short_boot([9; 16]) }.name(a).unwrap(),
        );
        add(
            &mut contents,
            Dropping { end: 50, bytes: 60, index: 1, cuts: 0, boot: short_boot([9; 16]) }.name(b).unwrap(),
        );
        assert_eq!(contents.facts([9; 16]), Some((100, 70)));
        let mut cut_later = contents.clone();
        add(&mut cut_later, cut(a, 0).unwrap());
        assert_eq!(cut_later.facts([9; 16]), None);
        add(&mut contents, writer(a).unwrap());
        assert_eq!(contents.facts([9; 16]), Some((100, 70)));
        add(&mut contents, writer(WriterId([3; 16])).unwrap());
        assert_eq!(contents.facts([9; 16]), None);
    }
}
