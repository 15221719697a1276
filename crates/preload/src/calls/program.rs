//! Programs in a file system of this library, in a form that the kernel can run.

use crate::guard::{Res, call, errno};
use crate::route::{Spot, Target, target};
use libc::{c_char, c_int};
use shoal_proto::{Kind, Rights};
use std::ffi::{CStr, CString};
use std::ptr;

/// Bytes of a program, at most.
const PROGRAM_BYTES_MAX: u64 = 1 << 31;
const PIECE: usize = 4 << 20;
/// Bytes of the first line of a script.
const LINE_BYTES_MAX: usize = 256;

/// The bytes of a file of ours in a sealed file in memory.
pub fn image(spot: &Spot) -> Res<c_int> {
    call(|session| {
        let found = session.find(spot, true)?;
        if found.attr.kind != Kind::File {
            return Err(libc::EACCES);
        }
        if found.attr.size > PROGRAM_BYTES_MAX {
            return Err(libc::ENOMEM);
        }
        let file = session.on(spot.mount, |tree| tree.open(found.attr.handle, Rights::READ))?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"shoal-program".as_ptr(), flags) as c_int };
        if fd < 0 {
            return Err(errno());
        }
        let mut at = 0;
        loop {
            let read = session.away(|| file.read(at, PIECE))?;
            // SAFETY: the bytes are there.
            let put = unsafe { libc::syscall(libc::SYS_pwrite64, fd, read.as_ptr(), read.len(), at) };
            if put != read.len() as i64 {
                return Err(libc::ENOSPC);
            }
            at += read.len() as u64;
            if read.len() < PIECE {
                break;
            }
        }
        let _ = file.close();
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is ours.
        unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals) };
        Ok(fd)
    })
}

/// A program of ours, as the kernel is to run it.
pub struct Program {
    /// The path that the kernel is given.
    pub path: CString,
    /// Arguments before the caller's, in the place of its first.
    pub before: Vec<CString>,
    /// The file in memory, if there is one.
    pub fd: c_int,
}

/// The program at a place. `given`: its path, as the caller has it.
pub fn program(spot: &Spot, given: &CStr) -> Res<Program> {
    let attr = call(|session| match target(session, spot, true)? {
        Target::Found(found) => Ok(Ok(found.attr)),
        Target::Outside(path) => Ok(Err(path)),
    })?;
    let attr = match attr {
        Ok(attr) => attr,
        Err(path) => return Ok(Program { path, before: Vec::new(), fd: -1 }),
    };
    if attr.kind != Kind::File || attr.mode & 0o111 == 0 {
        return Err(libc::EACCES);
    }
    let fd = image(spot)?;
    let mut head = [0_u8; LINE_BYTES_MAX];
    // SAFETY: the buffer has that many bytes.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, head.as_mut_ptr(), head.len(), 0_i64) };
    let head = &head[..usize::try_from(read).unwrap_or(0)];
    let Some(line) = head.strip_prefix(b"#!") else {
        let path = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| libc::EINVAL)?;
        return Ok(Program { path, before: Vec::new(), fd });
    };
    crate::session::close_own(fd);
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line).trim_ascii();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(line.len());
    let (interpreter, option) = (&line[..end], line[end..].trim_ascii());
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| libc::ENOEXEC);
    if interpreter.is_empty() {
        return Err(libc::ENOEXEC);
    }
    let mut before = vec![text(interpreter)?];
    if !option.is_empty() {
        before.push(text(option)?);
    }
    before.push(given.to_owned());
    Ok(Program { path: text(interpreter)?, before, fd: -1 })
}

/// The arguments of a program that is run by its interpreter.
///
/// # Safety
/// `argv` is null, or an array of C strings that ends with null.
pub unsafe fn arguments(program: &Program, argv: *const *const c_char) -> Vec<*const c_char> {
    let mut all: Vec<*const c_char> = program.before.iter().map(|one| one.as_ptr()).collect();
    // SAFETY: the caller's arguments.
    unsafe {
        let mut at = argv;
        let skips_first = !all.is_empty();
        let mut index = 0;
        while let Some(one) = at.as_ref().filter(|one| !one.is_null()) {
            if index > 0 || !skips_first {
                all.push(*one);
            }
            at = at.add(1);
            index += 1;
        }
    }
    all.push(ptr::null());
    all
}
