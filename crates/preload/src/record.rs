//! The kernel descriptor that stands for an open virtual file. The descriptor holds the record of the open.
//!
//! For each open of a virtual file the program has one descriptor of the kernel. It refers to a file in
//! memory, which holds the record of the open. `dup`, `fork` and `exec` pass this descriptor on like
//! every other descriptor. So a program that inherits the descriptor can use the virtual file: the library
//! in that program recognises the descriptor by the contents of the file in memory, and needs no list.
//!
//! ```text
//!   0       16     20      24      28       32       40       48      52      56           60        64      68
//!   magic   kind   mount   flags   writes   offset   handle   state   bytes   generation   holders   place   path …
//! ```
//!
//! Such a file holds one record ([`apart`]) or many ([`slots`]): a file for each open would cost ten times
//! the system calls.
//!
//! **The program's descriptor is read-only**, and its kernel position is at or beyond the end of the file in
//! memory. So a call that does not pass through this library (a raw system call, or a call of a statically
//! linked child) writes nothing and reads nothing. The library changes the record through a shared mapping.
//! So all descriptors of one open share the offset and the flags, as POSIX requires.

mod slots;

pub use slots::{Records, Sharing};

use crate::guard::Res;
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::ffi::CString;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Of a file with one record.
const MAGIC: [u64; 2] = [0x5348_4f41_4c20_6f70, 0x656e_2066_696c_6531];
/// Of a file with many, in its first place.
const SLOTS_MAGIC: [u64; 2] = [0x5348_4f41_4c20_6f70, 0x656e_2066_696c_6573];
/// A record's place.
const BYTES: usize = 8192;
/// A file of records keeps its length.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// The owner of a record has no descriptor of it any more.
const FREED: u32 = u32::MAX;
/// Bytes of a path, at most.
pub const PATH_BYTES_MAX: usize = 4096;
/// Kinds: a file and a directory.
pub const FILE: u32 = 1;
/// See [`FILE`].
pub const DIRECTORY: u32 = 2;

/// See the module.
#[repr(C)]
pub struct Record {
    magic: [u64; 2],
    /// [`FILE`] or [`DIRECTORY`].
    pub kind: u32,
    /// Which of the file systems.
    pub mount: u32,
    /// Access mode and status flags.
    pub flags: AtomicU32,
    /// Writes and truncations through it, by any process.
    pub writes: AtomicU32,
    /// The position.
    pub offset: AtomicI64,
    /// The object.
    pub handle: AtomicU64,
    /// 1: the name was removed.
    pub state: AtomicU32,
    path_bytes: AtomicU32,
    /// How many opens had this place before.
    generation: AtomicU32,
    /// Sessions that found it by an inherited descriptor; or [`FREED`].
    holders: AtomicU32,
    /// The number of its place in the file in memory.
    pub place: u32,
    path: UnsafeCell<[u8; PATH_BYTES_MAX]>,
}

const _: () = assert!(size_of::<Record>() <= BYTES);

impl Record {
    /// The path from the root.
    pub fn path(&self) -> Vec<u8> {
        let length = (self.path_bytes.load(Ordering::Acquire) as usize).min(PATH_BYTES_MAX);
        // SAFETY: the array is as long; bytes that another process changes meanwhile are some bytes.
        let path: &[u8] = unsafe { std::slice::from_raw_parts(self.path.get().cast(), length) };
        path.to_vec()
    }

    /// It was moved.
    pub fn set_path(&self, path: &[u8]) {
        let length = path.len().min(PATH_BYTES_MAX);
        // SAFETY: the array is as long, and the turn of the world is this thread's.
        unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), self.path.get().cast(), length) };
        self.path_bytes.store(length as u32, Ordering::Release);
    }

    /// Status flags, as `fcntl` returns them.
    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed) as c_int
    }
}

/// The facts of a new open.
pub struct New<'a> {
    /// [`FILE`] or [`DIRECTORY`].
    pub kind: u32,
    /// Which of the file systems.
    pub mount: u32,
    /// As `open` got them.
    pub flags: c_int,
    /// The object.
    pub handle: u64,
    /// From the root.
    pub path: &'a [u8],
}

/// A descriptor that was reserved for a new open.
pub struct Reserved {
    /// Its number.
    pub fd: c_int,
    /// Its record.
    pub record: &'static Record,
    /// See [`Identity`].
    pub identity: Identity,
}

/// Descriptors of one open are known by it to be of one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    memory: Memory,
    /// 0 where the file in memory has one record.
    position: i64,
}

impl Identity {
    /// The number of the file in memory.
    pub fn memory_number(self) -> u64 {
        self.memory.1
    }
}

/// A file in memory: its device and its number.
type Memory = (u64, u64);

impl Record {
    /// Fill the place of a new open. No other thread or process uses it yet.
    ///
    /// # Safety
    /// `at` is a mapped place.
    unsafe fn fill(at: *mut Record, place: u32, new: &New<'_>) -> &'static Record {
        // SAFETY: the caller's place, which no other thread or process uses.
        let record = unsafe {
            (*at).magic = MAGIC;
            (*at).kind = new.kind;
            (*at).mount = new.mount;
            (*at).place = place;
            &*at
        };
        record.flags.store((new.flags & !libc::O_CLOEXEC) as u32, Ordering::Relaxed);
        record.writes.store(0, Ordering::Relaxed);
        record.offset.store(0, Ordering::Relaxed);
        record.handle.store(new.handle, Ordering::Relaxed);
        record.state.store(0, Ordering::Relaxed);
        record.set_path(new.path);
        record.holders.store(0, Ordering::Release);
        record
    }

    /// Keep the owner from using its place for another open. Whether that was possible.
    fn hold(&self) -> bool {
        let more = |holders: u32| holders.checked_add(1).filter(|more| *more < FREED);
        self.holders.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }
}

fn check(done: c_int) -> Res<c_int> {
    if done < 0 { Err(crate::guard::errno()) } else { Ok(done) }
}

fn map(fd: c_int, at: i64, len: usize) -> Res<*mut Record> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let none: *mut c_void = std::ptr::null_mut();
    // SAFETY: a new mapping.
    let at = unsafe { libc::syscall(libc::SYS_mmap, none, len, prot, libc::MAP_SHARED, fd, at) };
    if at == -1 {
        return Err(crate::guard::errno());
    }
    Ok(at as *mut Record)
}

fn unmap(at: *const Record, len: usize) {
    // SAFETY: it was mapped by `map` with this length.
    unsafe { libc::munmap(at.cast_mut().cast::<c_void>(), len) };
}

fn name_of(fd: c_int) -> CString {
    CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default()
}

fn raw_open(name: &CString, flags: c_int) -> Res<c_int> {
    // SAFETY: the name ends.
    check(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name.as_ptr(), flags) as c_int })
}

fn raw_close(fd: c_int) {
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

fn seek(fd: c_int, position: i64, whence: c_int) -> Res<i64> {
    // SAFETY: the call has no conditions.
    let at = unsafe { libc::syscall(libc::SYS_lseek, fd, position, whence) };
    if at < 0 { Err(crate::guard::errno()) } else { Ok(at) }
}

fn stat(fd: c_int) -> Res<libc::stat> {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: it is large enough.
    check(unsafe { libc::syscall(libc::SYS_fstat, fd, &mut stat) as c_int })?;
    Ok(stat)
}

fn memory_of(fd: c_int) -> Res<Memory> {
    stat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

/// A file in memory of so many bytes, for good: a mapping of it always has its bytes.
fn memory(name: &std::ffi::CStr, len: usize) -> Res<c_int> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends.
    let made = check(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) as c_int })?;
    // SAFETY: the descriptor is ours.
    let sized = check(unsafe { libc::syscall(libc::SYS_ftruncate, made, len) as c_int });
    // SAFETY: the same.
    let seal = |_| check(unsafe { libc::syscall(libc::SYS_fcntl, made, libc::F_ADD_SEALS, SEALS) as c_int });
    sized.and_then(seal).inspect_err(|_| raw_close(made)).map(|_| made)
}

/// Reserve a descriptor for a new open, whose record has a file in memory of its own.
fn apart(new: &New<'_>) -> Res<Reserved> {
    if new.path.len() > PATH_BYTES_MAX {
        return Err(libc::ENAMETOOLONG);
    }
    let made = memory(c"shoal-open", BYTES)?;
    let opened = map(made, 0, BYTES).and_then(|mapped| {
        // SAFETY: a new place, which stays until it is unmapped.
        let record = unsafe { Record::fill(mapped, 0, new) };
        let fd = raw_open(&name_of(made), libc::O_RDONLY | libc::O_CLOEXEC);
        fd.inspect_err(|_| unmap(record, BYTES)).map(|fd| (fd, record))
    });
    let (fd, record) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            raw_close(made);
            return Err(error);
        }
    };
    // The program gets the lowest free number, as from `open`.
    // SAFETY: both descriptors are ours.
    let moved =
        check(unsafe { libc::syscall(libc::SYS_dup3, fd, made, new.flags & libc::O_CLOEXEC) as c_int });
    raw_close(fd);
    let known = moved.and_then(|fd| seek(fd, BYTES as i64, libc::SEEK_SET)).and_then(|_| memory_of(made));
    match known {
        Ok(memory) => Ok(Reserved { fd: made, record, identity: Identity { memory, position: 0 } }),
        Err(error) => {
            raw_close(made);
            unmap(record, BYTES);
            Err(error)
        }
    }
}

fn head(fd: c_int) -> [u64; 2] {
    let mut head = [0_u64; 2];
    // SAFETY: `head` has 16 bytes.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, head.as_mut_ptr(), 16_usize, 0_i64) };
    if read == 16 { head } else { [0; 2] }
}

/// Whether a descriptor is a reserved one. A look costs one system call for any other.
pub fn is_one(fd: c_int) -> bool {
    let errno = crate::guard::errno();
    // SAFETY: the call has no conditions.
    let has_seals = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) >= 0 };
    let is_one = has_seals && matches!(head(fd), MAGIC | SLOTS_MAGIC);
    crate::guard::set_errno(errno);
    is_one
}

/// The identity of the open of a reserved descriptor.
pub fn identity(fd: c_int) -> Res<Identity> {
    let position = match head(fd) {
        SLOTS_MAGIC => seek(fd, 0, libc::SEEK_CUR)?,
        _ => 0,
    };
    Ok(Identity { memory: memory_of(fd)?, position })
}

/// The record of a reserved descriptor that came from another process.
pub fn inherit(fd: c_int, identity: Identity) -> Res<&'static Record> {
    let (at, generation) = match identity.position {
        0 => (0, 0),
        position => slots::place(position).ok_or(libc::EBADF)?,
    };
    // SAFETY: the call has no conditions.
    let seals = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) } as c_int;
    if seals & SEALS != SEALS || stat(fd)?.st_size < at + BYTES as i64 {
        return Err(libc::EBADF);
    }
    let other = raw_open(&name_of(fd), libc::O_RDWR | libc::O_CLOEXEC)?;
    let mapped = map(other, at, BYTES);
    raw_close(other);
    let mapped = mapped?;
    // SAFETY: the mapping is as large as a record, and stays until it is unmapped.
    let record = unsafe { &*mapped };
    // In this order: a record that is held is not used for another open any more.
    if record.hold() && record.magic == MAGIC && record.generation.load(Ordering::Acquire) == generation {
        return Ok(record);
    }
    unmap(record, BYTES);
    Err(libc::EBADF)
}
