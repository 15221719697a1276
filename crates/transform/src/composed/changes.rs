//! Notification of changes between processes: `changes`, a file of numbers.
//!
//! A process that has published records writes a random number in the place of each name and object that they
//! change: a hash leads to one of 4,096 places. A process that looks a name up reads the number of that
//! name. If it is the number of the last look, the index is current for this name, and nothing else is read.
//! Else all records that were published since are read. So a process sees at once the changes that another
//! process made before, as a shell sees a removal by its child, and a job that makes a million names does not
//! read the names of all others for each of its own.
//!
//! ```text
//!   process A   writes records into its block ─▶ changes[hash of name] := 0x7f31…
//!   process B   reads a new number of the name ─▶ reads all new numbers, then the new records ─▶ the name
//! ```
//! **The numbers are read before the records**: a change in between is found the next time. **A publisher
//! writes its numbers before it gives a name's marker back** ([`marks`](super::marks)).
//!
//! **The numbers are exact** if all writers write them, and each reads at once what others wrote. That is so
//! in a file system of one machine, where each writer makes the file if it is missing. Otherwise (NFS, an
//! older directory, a writer of another machine) records are read before a name is made or reported missing,
//! and a known name may be as old as the cache time. A writer that reaches a file system of one machine over
//! a network says so by the file `claims/shared`, and waits until the others have seen it.
//!
//! In version 1 of the settings `changes` has one number for all, and `shoal run` makes it.
//!
//! The lock of this file serializes the appends of several processes: each append begins at the end of the
//! append before it.

use super::change::FRESH;
use super::format::Op;
use super::{Composed, Shared, names_of};
use bytes::Bytes;
use shoal_proto::{Allocation, Handle, Name, Owner, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// An append waits so long for the others, and looks so often.
const ALONE_MAX: Duration = Duration::from_secs(30);
const ALONE_PAUSE: Duration = Duration::from_micros(300);
/// A process that has seen nothing of others for longer looks for `shared`.
const SHARED_SEEN_WITHIN: Duration = Duration::from_secs(1);
/// A file `shared` of this age may not be known to all.
const SHARED_IS_YOUNG: Duration = Duration::from_secs(3);
/// Bytes of a number.
const NUMBER_BYTES: usize = 8;
/// With more numbers than these to change, all are written by one call.
const SINGLY_MAX: usize = 32;

/// The place of a name or object among the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key(u64);

impl Key {
    /// Of a name in a directory. Part of the format.
    pub(super) fn of_name(dir: u64, name: &Name) -> Key {
        Key(spread(
            name.as_bytes()
                .iter()
                .fold(spread(dir), |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(PRIME)),
        ))
    }

    /// Of an object. Part of the format.
    pub(super) fn of_object(object: u64) -> Key {
        Key(spread(object ^ PRIME))
    }

    fn place(self, numbers: u16) -> u16 {
        (self.0 % u64::from(numbers)) as u16
    }
}

/// The prime of the hash FNV-1a.
const PRIME: u64 = 0x100_0000_01b3;

/// The last step of the hash MurmurHash3: each bit of the result depends on all bits.
fn spread(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// The file, and the numbers in it when all that was published was read last.
pub(crate) struct Changes<F> {
    file: F,
    numbers: u16,
    seen: RefCell<Vec<u64>>,
    /// All writers of the machine write their numbers, and each reads them at once.
    is_of_all: bool,
    /// Another machine writes, too.
    pub(super) is_shared: Cell<bool>,
}

impl<F: VfsFile> Changes<F> {
    async fn number(&self, key: Key) -> Result<u64> {
        let place = key.place(self.numbers);
        let bytes = self.file.read(u64::from(place) * NUMBER_BYTES as u64, NUMBER_BYTES).await?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    async fn all_numbers(&self) -> Result<Vec<u64>> {
        let bytes = self.file.read(0, usize::from(self.numbers) * NUMBER_BYTES).await?;
        let mut numbers = vec![0; self.numbers.into()];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(NUMBER_BYTES)) {
            *number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        Ok(numbers)
    }

    /// Whether an unchanged number means that nothing was published.
    fn is_exact(&self) -> bool {
        self.is_of_all && !self.is_shared.get()
    }
}

/// The file of a directory; made if it is `wanted`.
pub(super) async fn open<B: Vfs>(
    over: &B,
    owner: Owner,
    wanted: bool,
    numbers: u16,
) -> Result<Option<Changes<B::File>>> {
    let (name, rights) = (names_of::name(names_of::CHANGES)?, Rights::READ | Rights::WRITE);
    let is_of_all = numbers > 1 && over.is_of_this_machine().await? == Some(true);
    let file = match wanted || is_of_all {
        true => {
            let (_, is_new, file) = over.create(Handle::ROOT, &name, owner, false, rights).await?;
            // Later writes need no space. On a full disk they fail, and with them what is to be announced.
            // Nothing is written here: another process may have written its numbers already.
            let len = u64::from(numbers) * NUMBER_BYTES as u64;
            if is_new && let Err(error) = file.allocate(0, len, Allocation::Extend).await {
                tracing::debug!("`changes` has no space yet: {error}");
            }
            file
        }
        false => match over.open_name(Handle::ROOT, &name, rights).await {
            Ok(file) => file,
            // Those that may only read the directory see changes later.
            Err(_) => return Ok(None),
        },
    };
    let seen = RefCell::new(vec![0; numbers.into()]);
    Ok(Some(Changes { file, numbers, seen, is_of_all, is_shared: Cell::new(false) }))
}

impl<B: Vfs> Shared<B> {
    /// A record is about to be applied that changes these names and this object.
    pub(super) fn touch(&self, object: u64, op: &Op) {
        let Some(changes) = &self.changes else { return };
        let names = self.names.borrow();
        let mut touched = self.log.touched.borrow_mut();
        let mut add = |key: Key| {
            touched.insert(key.place(changes.numbers));
        };
        match op {
            Op::Create(made) => {
                add(Key::of_name(made.dir, &made.name));
                // No other process knows a new object.
                if names.object(object).is_some() {
                    add(Key::of_object(object));
                }
            }
            Op::Bind(binds) => {
                for bind in binds {
                    add(Key::of_name(bind.dir, &bind.name));
                    let before = names.find(bind.dir, &bind.name);
                    let objects = before.into_iter().chain(Some(bind.object).filter(|object| *object != 0));
                    objects.for_each(|object| add(Key::of_object(object)));
                }
            }
            Op::Next(_) | Op::End => {}
            _ => add(Key::of_object(object)),
        }
    }

    /// Records were published: write the numbers of what they change. A number that could not be written is
    /// written with those of the next call.
    ///
    /// # Errors
    /// Errors of the file system below: others may not know of what was published.
    pub(super) async fn announce(&self) -> Result<()> {
        let Some(changes) = &self.changes else { return Ok(()) };
        let places = self.log.touched.borrow().clone();
        let number = || (self.env.random_u64() | 1).to_le_bytes();
        if places.len() > SINGLY_MAX {
            let all = (0..changes.numbers).flat_map(|_| number()).collect::<Vec<u8>>();
            changes.file.write(0, all.into()).await?;
            self.log.touched.borrow_mut().retain(|place| !places.contains(place));
            return Ok(());
        }
        for place in places {
            let at = u64::from(place) * NUMBER_BYTES as u64;
            changes.file.write(at, Bytes::copy_from_slice(&number())).await?;
            self.log.touched.borrow_mut().remove(&place);
        }
        Ok(())
    }

    /// Read what was published, unless nothing was since, or that is not known and was done within this span.
    pub(super) async fn look(self: &Rc<Self>, span: Duration) -> Result<()> {
        let Some(changes) = &self.changes else {
            if self.env.now() < self.looked_at.get() + span {
                return Ok(());
            }
            let before = self.env.now();
            self.refresh().await?;
            self.looked_at.set(before);
            return Ok(());
        };
        let numbers = changes.all_numbers().await?;
        let is_known = *changes.seen.borrow() == numbers;
        if is_known && self.env.now() < self.looked_at.get() + span {
            return Ok(());
        }
        let before = self.env.now();
        self.refresh().await?;
        self.looked_at.set(before);
        changes.seen.replace(numbers);
        Ok(())
    }

    /// Whether an unchanged number means that nothing was published.
    pub(super) fn is_exact(&self) -> bool {
        self.changes.as_ref().is_some_and(Changes::is_exact)
    }

    /// Read what was published, unless nothing was since that concerns these names and objects; where numbers
    /// are not exact, unless that was done within 100 ms.
    pub(super) async fn look_at(self: &Rc<Self>, keys: &[Key]) -> Result<()> {
        if let Some(changes) = self.changes.as_ref().filter(|changes| changes.is_exact())
            && self.env.now() < self.looked_at.get() + FRESH
            && self.are_current(changes, keys).await?
        {
            return Ok(());
        }
        self.look(FRESH).await
    }

    /// Read what was published before this call that concerns names and objects; certainly.
    pub(super) async fn look_surely(self: &Rc<Self>, keys: &[Key]) -> Result<()> {
        match &self.changes {
            Some(changes) if changes.is_exact() => {
                let is_recent = self.env.now() < self.looked_at.get() + FRESH;
                if is_recent && self.are_current(changes, keys).await? {
                    return Ok(());
                }
                self.look(Duration::ZERO).await
            }
            _ => self.refresh().await,
        }
    }

    /// Read what was published before this call; certainly.
    pub(super) async fn look_surely_at_all(self: &Rc<Self>) -> Result<()> {
        if self.is_exact() { self.look(FRESH).await } else { self.refresh().await }
    }

    async fn are_current(&self, changes: &Changes<B::File>, keys: &[Key]) -> Result<bool> {
        for key in keys {
            let number = changes.number(*key).await?;
            if changes.seen.borrow()[usize::from(key.place(changes.numbers))] != number {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a marker of a name is a link of a file that is there: it costs less than a new file.
    pub(super) fn links_marks(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.is_of_all)
    }

    /// Before the first change: if others reach the same file system as that of one machine, they must know
    /// that a writer does not.
    pub(super) async fn say_shared(&self) -> Result<()> {
        if self.settings.numbers() == 1 || self.over.is_of_this_machine().await? != Some(false) {
            return Ok(());
        }
        let name = names_of::name(names_of::SHARED)?;
        let (attr, is_new, file) =
            self.over.create(self.claims, &name, self.owner, false, Rights::READ).await?;
        file.close().await?;
        // Another writer may have made it a moment ago. Clocks of machines differ.
        let age = self.env.wall().0.abs_diff(attr.mtime.0);
        if is_new || u128::from(age) < SHARED_IS_YOUNG.as_nanos() {
            self.env.sleep(SHARED_SEEN_WITHIN).await;
        }
        Ok(())
    }

    /// No other process appends until the result is closed. `None`: nothing tells of other processes.
    pub(super) async fn alone(self: &Rc<Self>) -> Result<Option<B::File>> {
        if self.changes.is_none() {
            return Ok(None);
        }
        let name = names_of::name(names_of::CHANGES)?;
        let file = self.over.open_name(self.root, &name, Rights::READ | Rights::WRITE).await?;
        let until = self.env.now() + ALONE_MAX;
        loop {
            match file.hold_alone().await {
                Ok(true) => return Ok(Some(file)),
                Err(error) if error.status == Status::NotSupported => return Ok(Some(file)),
                Ok(false) if self.env.now() < until => self.env.sleep(ALONE_PAUSE).await,
                Ok(false) => {
                    let words = "another process holds `changes`, as for an append, all the time";
                    return Err(Error::new(Status::TimedOut, "append").because(words));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<B: Vfs> Composed<B> {
    /// Refreshes that this process began: reads of all that others have published.
    pub fn refreshes(&self) -> u64 {
        self.0.refreshes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composed::format::Settings;
    use crate::composed::settings::{NEWEST, NUMBERS};

    /// Programs of other builds write and read the same places.
    #[test]
    fn the_places_of_numbers_are_those_that_the_format_says() {
        let name = |dir: u64, text: &str| Key::of_name(dir, &names_of::name(text).unwrap()).place(NUMBERS);
        let object = |object: u64| Key::of_object(object).place(NUMBERS);
        assert_eq!([name(1, "a"), name(1, "file-0001"), name(77, "a")], [3127, 2562, 2301]);
        assert_eq!([object(1), object(123_456_789)], [3609, 3273]);
    }

    #[test]
    fn settings_of_both_versions_are_read_and_a_newer_one_is_refused() {
        let of = |version| Settings { version, id: [7; 16], block: 1 << 20, files: 2 };
        for version in 1..=NEWEST {
            assert_eq!(Settings::decode(&of(version).encode()).unwrap(), of(version));
        }
        assert_eq!([of(1).numbers(), of(2).numbers()], [1, NUMBERS]);
        let refused = Settings::decode(&of(NEWEST + 1).encode()).unwrap_err().to_string();
        assert!(refused.contains("format 3 is newer than this program, which reads format 2"), "{refused}");
    }
}
