//! The kernel descriptor that stands for an open virtual file. The descriptor holds the record of the open.
//!
//! For each open of a virtual file the program has one descriptor of the kernel. It refers to a small file
//! in memory, which holds the record of the open. `dup`, `fork` and `exec` pass this descriptor on like
//! every other descriptor. So a program that inherits the descriptor can use the virtual file: the library
//! in that program recognises the descriptor by the contents of the small file, and needs no list.
//!
//! ```text
//!   0        16      20      24      28       32      40       48      52      56
//!   magic    kind    mount   flags   writes   offset  handle   state   bytes   path …
//! ```
//!
//! **The program's descriptor is read-only**, and its kernel position is at the end of the small file. So a
//! call that does not pass through this library (a raw system call, or a call of a statically linked child)
//! writes nothing and reads nothing. The library changes the record through a shared mapping. So all
//! descriptors of one open share the offset and the flags, as POSIX requires.

use crate::guard::Res;
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::ffi::CString;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

const MAGIC: [u64; 2] = [0x5348_4f41_4c20_6f70, 0x656e_2066_696c_6531];
const BYTES: usize = 8192;
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

fn check(done: c_int) -> Res<c_int> {
    if done < 0 { Err(crate::guard::errno()) } else { Ok(done) }
}

fn map(fd: c_int) -> Res<*mut Record> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let none: *mut c_void = std::ptr::null_mut();
    // SAFETY: a new mapping of a file that has `BYTES`.
    let at = unsafe { libc::syscall(libc::SYS_mmap, none, BYTES, prot, libc::MAP_SHARED, fd, 0_i64) };
    if at == -1 {
        return Err(crate::guard::errno());
    }
    Ok(at as *mut Record)
}

/// Give a record's memory back. The last use of it.
pub fn unmap(record: &'static Record) {
    // SAFETY: it was mapped by `map` with this length.
    unsafe { libc::munmap(std::ptr::from_ref(record) as *mut c_void, BYTES) };
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

/// Reserve a descriptor for a new open. Its number, and its record.
pub fn make(kind: u32, mount: u32, flags: c_int, handle: u64, path: &[u8]) -> Res<(c_int, &'static Record)> {
    if path.len() > PATH_BYTES_MAX {
        return Err(libc::ENAMETOOLONG);
    }
    // SAFETY: the name ends.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, c"shoal-open".as_ptr(), libc::MFD_CLOEXEC) };
    let made = check(made as c_int)?;
    // SAFETY: the descriptor is ours.
    let sized = check(unsafe { libc::syscall(libc::SYS_ftruncate, made, BYTES) as c_int });
    let opened = sized.and_then(|_| {
        let mapped = map(made)?;
        // SAFETY: no other thread or process has the mapping yet; it is as large as a record, and stays until
        // `unmap`.
        let record = unsafe {
            (*mapped).magic = MAGIC;
            (*mapped).kind = kind;
            (*mapped).mount = mount;
            &*mapped
        };
        record.flags.store((flags & !libc::O_CLOEXEC) as u32, Ordering::Relaxed);
        record.handle.store(handle, Ordering::Relaxed);
        record.set_path(path);
        let fd = raw_open(&name_of(made), libc::O_RDONLY | libc::O_CLOEXEC).inspect_err(|_| unmap(record))?;
        Ok((fd, record))
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
    let moved = check(unsafe { libc::syscall(libc::SYS_dup3, fd, made, libc::O_CLOEXEC) as c_int });
    raw_close(fd);
    if let Err(error) = moved {
        raw_close(made);
        unmap(record);
        return Err(error);
    }
    // SAFETY: the descriptor is ours.
    unsafe {
        libc::syscall(libc::SYS_lseek, made, BYTES, libc::SEEK_SET);
        if flags & libc::O_CLOEXEC == 0 {
            libc::syscall(libc::SYS_fcntl, made, libc::F_SETFD, 0);
        }
    }
    Ok((made, record))
}

/// Whether a descriptor is a reserved one. A look costs one system call for any other.
pub fn is_one(fd: c_int) -> bool {
    let errno = crate::guard::errno();
    let mut head = [0_u64; 2];
    // SAFETY: `head` has 16 bytes.
    let is_one = unsafe {
        libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) >= 0
            && libc::syscall(libc::SYS_pread64, fd, head.as_mut_ptr(), 16_usize, 0_i64) == 16
            && head == MAGIC
    };
    crate::guard::set_errno(errno);
    is_one
}

/// The record of a reserved descriptor that came from another process.
pub fn inherit(fd: c_int) -> Res<&'static Record> {
    let other = raw_open(&name_of(fd), libc::O_RDWR | libc::O_CLOEXEC)?;
    let mapped = map(other);
    raw_close(other);
    // SAFETY: the mapping is as large as a record, and stays until `unmap`.
    mapped.map(|mapped| unsafe { &*mapped })
}

/// The number by which two descriptors of one open are known to be of one.
pub fn identity(fd: c_int) -> Res<u64> {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: it is large enough.
    check(unsafe { libc::syscall(libc::SYS_fstat, fd, &mut stat) as c_int })?;
    Ok(stat.st_ino)
}
