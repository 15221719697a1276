//! Many records in one file in memory: the opens of a process.
//!
//! A process has one such file at a time, mapped whole. Each open has a place in it, and a descriptor of its
//! own, whose kernel position names the place: an open costs three system calls, a close one.
//!
//! ```text
//!   place     0         1         2         3            254       255
//!             magic     record    record    free   …     record    record
//!   position  PLACES_FROM + check, generation, place
//! ```
//!
//! **A place is used again only if no other process can have a descriptor of the open before**: none was
//! started, and none was sent a descriptor, between the open and its last close ([`Sharing`]). Against
//! descriptors that were passed on without a call of this library (a raw system call) the place has a
//! generation, and a process that inherits a descriptor first *holds* the record: a held record's place is
//! not used again, and of a place that was the descriptor is `EBADF`. A position that such a call moved has
//! a wrong check, and is `EBADF`, too. No descriptor leads to another file.
//!
//! A file whose places are used up is replaced by a former one with free places, or a new one, and given back
//! with its last open. In a child the session is new, and so is the file, also where the library did not see
//! the child begin ([`crate::guard`]). Where no such file can be made, a record is [`apart`].

use super::{
    BYTES, FREED, Identity, Memory, New, PATH_BYTES_MAX, Record, Reserved, SLOTS_MAGIC, apart, check, map,
    memory, memory_of, name_of, raw_close, raw_open, seek, unmap,
};
use crate::guard::Res;
use crate::session::own_from;
use libc::c_int;
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Places of a file, the first of which is its head.
const PLACES: usize = 256;
/// Bytes of a file; its pages come with their first use.
const FILE_BYTES: usize = PLACES * BYTES;
/// Positions that name places begin here, far beyond the end of the file.
const PLACES_FROM: i64 = 1 << 62;
/// A place is used so many times.
const GENERATIONS_MAX: u32 = 1 << 20;
/// Bits of a position that are place and generation; the other 34 below [`PLACES_FROM`] are the check.
const NUMBER_BITS: u32 = 28;
/// Files without free places that keep their descriptor for later ones.
const FORMER_MAX: usize = 8;
const _: () = assert!((PLACES as i64) * (GENERATIONS_MAX as i64) == 1 << NUMBER_BITS);

/// How many times this process has passed descriptors on.
static SHARED: AtomicU64 = AtomicU64::new(0);
/// Calls that do so now.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// While it lives, another process is started, which gets descriptors of this one.
pub struct Sharing(());

impl Sharing {
    /// Before the call.
    pub fn new() -> Sharing {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        SHARED.fetch_add(1, Ordering::SeqCst);
        Sharing(())
    }

    /// Before a message is sent, which may carry descriptors that are open now. The call may be cancelled, so
    /// it has nothing to do at its end.
    pub fn by_message() {
        SHARED.fetch_add(1, Ordering::SeqCst);
    }

    /// In a child, which has one thread: calls of the parent's other threads are not its own.
    pub fn forget(self) {
        std::mem::forget(self);
        UNDER_WAY.store(0, Ordering::SeqCst);
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether descriptors are passed on now, and how many times they were.
fn shared() -> Option<u64> {
    let count = SHARED.load(Ordering::SeqCst);
    (UNDER_WAY.load(Ordering::SeqCst) == 0).then_some(count)
}

/// Where the record of a position is, and its generation.
pub(super) fn place(position: i64) -> Option<(i64, u32)> {
    let number = position & ((1 << NUMBER_BITS) - 1);
    let (generation, place) = (number / PLACES as i64, number % PLACES as i64);
    let is_right = place > 0 && position == checked(number);
    is_right.then_some((place * BYTES as i64, generation as u32))
}

/// A number as a position: those of neighbours are far from each other.
fn checked(number: i64) -> i64 {
    let check = number.cast_unsigned().wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 34);
    PLACES_FROM | check.cast_signed() << NUMBER_BITS | number
}

fn position(place: usize, generation: u32) -> i64 {
    checked(i64::from(generation) * PLACES as i64 + place as i64)
}

/// One file.
struct Slots {
    /// A descriptor of it, at a number of ours; `None`: it takes no more opens.
    fd: Option<c_int>,
    name: CString,
    memory: Memory,
    mapped: *mut Record,
    /// For each place that has an open: [`shared`] before that had its descriptor.
    opened: [Option<u64>; PLACES],
    live: usize,
    free: Vec<usize>,
    /// Places that had no open yet begin here.
    next: usize,
}

impl Slots {
    fn new() -> Res<Slots> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it is large enough.
        unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
        if limit.rlim_cur < FILE_BYTES as u64 {
            return Err(libc::EFBIG);
        }
        let made = memory(c"shoal-opens", FILE_BYTES)?;
        // SAFETY: the descriptor is ours.
        let fd = check(unsafe {
            libc::syscall(libc::SYS_fcntl, made, libc::F_DUPFD_CLOEXEC, own_from()) as c_int
        });
        raw_close(made);
        let fd = fd?;
        let known = memory_of(fd).and_then(|memory| Ok((memory, map(fd, 0, FILE_BYTES)?)));
        let (memory, mapped) = known.inspect_err(|_| raw_close(fd))?;
        // SAFETY: the file is ours alone until it has a record.
        unsafe { (*mapped).magic = SLOTS_MAGIC };
        Ok(Slots {
            fd: Some(fd),
            name: name_of(fd),
            memory,
            mapped,
            opened: [None; PLACES],
            live: 0,
            free: Vec::new(),
            next: 1,
        })
    }

    fn at(&self, place: usize) -> *mut Record {
        debug_assert!(0 < place && place < PLACES);
        // SAFETY: within the mapping; the start of a place is aligned as a record.
        unsafe { self.mapped.cast::<u8>().add(place * BYTES).cast::<Record>() }
    }

    /// Whether our descriptor is still the file's: the program may have closed it, and opened another there.
    fn has_descriptor(&self) -> bool {
        self.fd.is_some_and(|fd| memory_of(fd) == Ok(self.memory))
    }

    fn has_room(&self) -> bool {
        self.next < PLACES || !self.free.is_empty()
    }

    /// A descriptor for a new open; `None`: it has no room, or cannot be used here.
    fn reserve(&mut self, new: &New<'_>) -> Res<Option<Reserved>> {
        if !self.has_room() || !self.has_descriptor() {
            return Ok(None);
        }
        let place = self.free.last().copied().unwrap_or(self.next);
        let opened = shared().unwrap_or(u64::MAX);
        // SAFETY: the place has no open, and stays mapped while it has one.
        let record = unsafe { Record::fill(self.at(place), place as u32, new) };
        let position = position(place, record.generation.load(Ordering::Relaxed));
        let fd = raw_open(&self.name, libc::O_RDONLY | new.flags & libc::O_CLOEXEC)?;
        seek(fd, position, libc::SEEK_SET).inspect_err(|_| raw_close(fd))?;
        if self.free.pop().is_none() {
            self.next += 1;
        }
        self.opened[place] = Some(opened);
        self.live += 1;
        let identity = Identity { memory: self.memory, position };
        Ok(Some(Reserved { fd, record, identity }))
    }

    /// The place of a record of this file.
    fn number_of(&self, record: &Record) -> Option<usize> {
        let from = std::ptr::from_ref(record).addr().checked_sub(self.mapped.addr())?;
        (from < FILE_BYTES).then_some(from / BYTES)
    }

    /// An open has no descriptor any more in this process.
    fn give_back(&mut self, place: usize, record: &Record) {
        let Some(opened) = self.opened[place].take() else { return };
        self.live -= 1;
        if shared() != Some(opened) {
            return;
        }
        if record.holders.compare_exchange(0, FREED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        if record.generation.fetch_add(1, Ordering::AcqRel) + 1 < GENERATIONS_MAX {
            self.free.push(place);
        }
    }

    /// It takes no more opens.
    fn retire(&mut self) {
        if self.has_descriptor()
            && let Some(fd) = self.fd
        {
            raw_close(fd);
        }
        self.fd = None;
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        debug_assert_eq!(self.live, 0);
        unmap(self.mapped, FILE_BYTES);
        self.retire();
    }
}

/// The records of a session. The turn of the world is the caller's.
#[derive(Default)]
pub struct Records {
    current: Option<Slots>,
    /// Files that had no free place, and have opens.
    former: Vec<Slots>,
}

impl Records {
    /// Reserve a descriptor for a new open.
    pub fn reserve(&mut self, new: &New<'_>) -> Res<Reserved> {
        if new.path.len() > PATH_BYTES_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        if let Some(slots) = &mut self.current
            && let Some(reserved) = slots.reserve(new)?
        {
            return Ok(reserved);
        }
        self.set_aside();
        // Without a file of many: a limit on sizes of files, or no number left.
        let Some(slots) = self.former_with_room().or_else(|| Slots::new().ok()) else { return apart(new) };
        match self.current.insert(slots).reserve(new)? {
            Some(reserved) => Ok(reserved),
            None => apart(new),
        }
    }

    /// The present file takes no open now.
    fn set_aside(&mut self) {
        let Some(mut slots) = self.current.take().filter(|slots| slots.live > 0) else { return };
        if self.former.len() >= FORMER_MAX || !slots.has_descriptor() {
            slots.retire();
        }
        self.former.push(slots);
    }

    fn former_with_room(&mut self) -> Option<Slots> {
        let has_room = |slots: &Slots| slots.has_room() && slots.has_descriptor();
        let at = self.former.iter().position(has_room)?;
        Some(self.former.swap_remove(at))
    }

    /// The last use of a record.
    pub fn release(&mut self, record: &'static Record) {
        if let Some(slots) = &mut self.current
            && let Some(place) = slots.number_of(record)
        {
            return slots.give_back(place, record);
        }
        let found = self.former.iter().position(|slots| slots.number_of(record).is_some());
        let Some(at) = found else { return unmap(record, BYTES) };
        let slots = &mut self.former[at];
        if let Some(place) = slots.number_of(record) {
            slots.give_back(place, record);
        }
        if slots.live == 0 {
            self.former.swap_remove(at);
        }
    }
}
