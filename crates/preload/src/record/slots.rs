//! Many records in one file in memory: the opens of a process.
//!
//! A process has one such file at a time, mapped whole. Each open has a place in it, and a descriptor of its
//! own, whose kernel position names the place: an open costs three system calls, a close one.
//!
//! ```text
//!   place     0         1         2         3            254       255
//!             magic     record    record    free   …     record    record
//!   position  PLACES_FROM + generation × PLACES + place
//! ```
//!
//! **A place is used again only if no other process can have a descriptor of the open before**: none was
//! started, and none was sent a descriptor, between the open and its last close ([`Sharing`]). Against
//! descriptors that were passed on without a call of this library (a raw system call) the place has a
//! generation, and a process that inherits a descriptor first *holds* the record: a held record's place is
//! not used again, and of a place that was the descriptor is `EBADF`. It never leads to another file.
//!
//! A file whose places are used up is replaced by a new one, and given back with its last open. In a child
//! the session is new, and so is the file. The record of an open whose locks are on its reserved descriptor
//! is [`apart`].

use super::{
    BYTES, FREED, Identity, New, PATH_BYTES_MAX, Record, Reserved, SLOTS_MAGIC, apart, check, inode, map,
    memory, name_of, raw_close, raw_open, seek, unmap,
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
const PLACES_FROM: i64 = 1 << 40;
/// A place is used so many times.
const GENERATIONS_MAX: u32 = 1 << 20;

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
    let number = position.checked_sub(PLACES_FROM).filter(|number| *number >= 0)?;
    let (generation, place) = (number / PLACES as i64, number % PLACES as i64);
    let generation = u32::try_from(generation).ok().filter(|generation| *generation < GENERATIONS_MAX)?;
    (place > 0).then_some((place * BYTES as i64, generation))
}

fn position(place: usize, generation: u32) -> i64 {
    PLACES_FROM + i64::from(generation) * PLACES as i64 + place as i64
}

/// One file.
struct Slots {
    /// A descriptor of it, at a number of ours.
    fd: c_int,
    name: CString,
    inode: u64,
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
        let known = inode(fd).and_then(|inode| Ok((inode, map(fd, 0, FILE_BYTES)?)));
        let (inode, mapped) = known.inspect_err(|_| raw_close(fd))?;
        // SAFETY: the file is ours alone until it has a record.
        unsafe { (*mapped).magic = SLOTS_MAGIC };
        let (opened, free) = ([None; PLACES], Vec::new());
        Ok(Slots { fd, name: name_of(fd), inode, mapped, opened, live: 0, free, next: 1 })
    }

    fn at(&self, place: usize) -> *mut Record {
        debug_assert!(0 < place && place < PLACES);
        // SAFETY: within the mapping; the start of a place is aligned as a record.
        unsafe { self.mapped.cast::<u8>().add(place * BYTES).cast::<Record>() }
    }

    /// A descriptor for a new open; `None`: all places are used up, or the program closed our descriptor.
    fn reserve(&mut self, new: &New<'_>) -> Res<Option<Reserved>> {
        let Some(place) = self.free.pop().or_else(|| (self.next < PLACES).then_some(self.next)) else {
            return Ok(None);
        };
        let opened = shared().unwrap_or(u64::MAX);
        // SAFETY: the place has no open, and stays mapped while it has one.
        let record = unsafe { Record::fill(self.at(place), new) };
        let position = position(place, record.generation.load(Ordering::Relaxed));
        let fd = raw_open(&self.name, libc::O_RDONLY | new.flags & libc::O_CLOEXEC);
        let is_ours = fd.and_then(|fd| {
            let known = inode(fd).and_then(|inode| match inode == self.inode {
                true => seek(fd, position, libc::SEEK_SET).map(|_| true),
                false => Ok(false),
            });
            if !matches!(known, Ok(true)) {
                raw_close(fd);
            }
            known.map(|is_ours| is_ours.then_some(fd))
        });
        let fd = match is_ours {
            Ok(Some(fd)) => fd,
            failed => {
                self.free.extend((place != self.next).then_some(place));
                return match failed {
                    Err(error @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => Err(error),
                    // The program closed our descriptor, or put another one there.
                    _ => Ok(None),
                };
            }
        };
        self.next += usize::from(place == self.next);
        self.opened[place] = Some(opened);
        self.live += 1;
        let identity = Identity { inode: self.inode, position };
        Ok(Some(Reserved { fd, record, identity }))
    }

    /// The place of a record of this file.
    fn place_of(&self, record: &Record) -> Option<usize> {
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

    /// Whether our descriptor is still the file's.
    fn has_descriptor(&self) -> bool {
        inode(self.fd) == Ok(self.inode)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        debug_assert_eq!(self.live, 0);
        unmap(self.mapped, FILE_BYTES);
        if self.has_descriptor() {
            raw_close(self.fd);
        }
    }
}

/// The records of a session. The turn of the world is the caller's.
#[derive(Default)]
pub struct Records {
    current: Option<Slots>,
    /// Files without free places that have opens.
    former: Vec<Slots>,
}

impl Records {
    /// Reserve a descriptor for a new open.
    pub fn reserve(&mut self, new: &New<'_>) -> Res<Reserved> {
        if new.path.len() > PATH_BYTES_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        if let Some(slots) = &mut self.current {
            if let Some(reserved) = slots.reserve(new)? {
                return Ok(reserved);
            }
        }
        self.former.extend(self.current.take().filter(|slots| slots.live > 0));
        // Without a file of many: a limit on sizes of files, or no number left.
        let Ok(slots) = Slots::new() else { return apart(new) };
        match self.current.insert(slots).reserve(new)? {
            Some(reserved) => Ok(reserved),
            None => apart(new),
        }
    }

    /// The last use of a record.
    pub fn release(&mut self, record: &'static Record) {
        if let Some(slots) = &mut self.current {
            if let Some(place) = slots.place_of(record) {
                return slots.give_back(place, record);
            }
        }
        let found = self.former.iter().position(|slots| slots.place_of(record).is_some());
        let Some(at) = found else { return unmap(record, BYTES) };
        let slots = &mut self.former[at];
        if let Some(place) = slots.place_of(record) {
            slots.give_back(place, record);
        }
        if slots.live == 0 {
            self.former.swap_remove(at);
        }
    }
}
