//! Reads, writes, positions, sizes and syncs of descriptors.

use super::also;
use super::owner::by_owner;
use crate::guard::{Res, answer, call};
use crate::opens;
use crate::real;
use crate::table::is_virtual;
use libc::{c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use shoal_proto::Allocation;

/// Parts of a vectored call, at most.
const PARTS_MAX: c_int = 1024;
/// Bytes of one step of a copy.
const COPY_BYTES: usize = 1 << 20;

/// `read(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { by_owner(fd, false, || real::read()(fd, into, len), || opens::read(fd, into.cast(), len, None)) }
}

/// `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        by_owner(fd, false, || real::write()(fd, from, len), || opens::write(fd, from.cast(), len, None))
    }
}

/// `pread(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, into: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        by_owner(
            fd,
            true,
            || real::pread()(fd, into, len, offset),
            || opens::read(fd, into.cast(), len, Some(offset)),
        )
    }
}

/// `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        by_owner(
            fd,
            false,
            || real::pwrite()(fd, from, len, offset),
            || opens::write(fd, from.cast(), len, Some(offset)),
        )
    }
}

unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Res<&'a [iovec]> {
    if !(0..=PARTS_MAX).contains(&count) {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if parts.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller passes so many.
    Ok(unsafe { std::slice::from_raw_parts(parts, count as usize) })
}

unsafe fn scatter(fd: c_int, list: *const iovec, count: c_int, mut offset: Option<off_t>) -> Res<ssize_t> {
    let mut done = 0;
    // SAFETY: the caller's arguments.
    for part in unsafe { parts(list, count)? }.iter().filter(|part| part.iov_len > 0) {
        // SAFETY: the same.
        let read = match unsafe { opens::read(fd, part.iov_base.cast(), part.iov_len, offset) } {
            Err(_) if done > 0 => break,
            read => read?,
        };
        done += read;
        offset = offset.map(|at| at + read as off_t);
        if (read as usize) < part.iov_len {
            break;
        }
    }
    Ok(done)
}

unsafe fn gather(fd: c_int, list: *const iovec, count: c_int, offset: Option<off_t>) -> Res<ssize_t> {
    // SAFETY: the caller's arguments.
    let list = unsafe { parts(list, count)? };
    let total =
        list.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len)).ok_or(libc::EINVAL)?;
    // One write, so that another process's does not come between.
    let mut whole: Vec<u8> = Vec::with_capacity(total.min(opens::CALL_BYTES_MAX));
    for part in list.iter().filter(|part| part.iov_len > 0) {
        if part.iov_base.is_null() {
            return Err(libc::EFAULT);
        }
        let len = part.iov_len.min(opens::CALL_BYTES_MAX - whole.len());
        // SAFETY: the caller's part has that many bytes.
        whole.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast(), len) });
    }
    // SAFETY: the vector has its bytes.
    unsafe { opens::write(fd, whole.as_ptr(), whole.len(), offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::readv()(fd, list, count) };
    }
    // SAFETY: the same.
    answer(unsafe { scatter(fd, list, count, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::writev()(fd, list, count) };
    }
    // SAFETY: the same.
    answer(unsafe { gather(fd, list, count, None) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::preadv()(fd, list, count, offset) };
    }
    // SAFETY: the same.
    answer(unsafe { scatter(fd, list, count, Some(offset)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::pwritev()(fd, list, count, offset) };
    }
    // SAFETY: the same.
    answer(unsafe { gather(fd, list, count, Some(offset)) })
}

fn own_position(offset: off_t) -> Option<off_t> {
    (offset != -1).then_some(offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::preadv2()(fd, list, count, offset, flags) };
    }
    // SAFETY: the same.
    answer(unsafe { scatter(fd, list, count, own_position(offset)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::pwritev2()(fd, list, count, offset, flags) };
    }
    if flags & !(libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_HIPRI) != 0 {
        return answer(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: the same.
    let written = unsafe { gather(fd, list, count, own_position(offset)) };
    answer(
        written.and_then(|written| if flags == 0 { Ok(written) } else { opens::sync(fd).map(|_| written) }),
    )
}

/// `lseek(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::lseek()(fd, offset, whence) };
    }
    answer(opens::seek(fd, offset, whence))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(fd: c_int, size: off_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::ftruncate()(fd, size) };
    }
    answer(opens::truncate(fd, size))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fsync()(fd) };
    }
    answer(opens::sync(fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fdatasync()(fd) };
    }
    answer(opens::sync(fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::sync_file_range()(fd, offset, len, flags) };
    }
    answer(opens::sync(fd))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::syncfs()(fd) };
    }
    answer(call(|session| {
        let mount = session.open(fd)?.record.mount as usize;
        session.on(mount, |tree| tree.sync_all()).map(|()| 0)
    }))
}

fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> Res<c_int> {
    let (Ok(from), Ok(bytes)) = (u64::try_from(offset), u64::try_from(len)) else { return Err(libc::EINVAL) };
    let kind = match mode {
        0 => Allocation::Extend,
        libc::FALLOC_FL_KEEP_SIZE => Allocation::KeepSize,
        3 => Allocation::Punch,
        16 => Allocation::Zero,
        17 => Allocation::ZeroKeepSize,
        _ => return Err(libc::EOPNOTSUPP),
    };
    if bytes == 0 {
        return Err(libc::EINVAL);
    }
    call(|session| {
        session.holding(fd, |session, held| {
            let file = session.file(held)?;
            if held.record.flags() & libc::O_ACCMODE == libc::O_RDONLY {
                return Err(libc::EBADF);
            }
            session.away(|| file.allocate(from, bytes, kind))?;
            session.publish_late(held, &*file).map(|()| 0)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::fallocate()(fd, mode, offset, len) };
    }
    answer(allocate(fd, mode, offset, len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::posix_fallocate()(fd, offset, len) };
    }
    allocate(fd, 0, offset, len).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::posix_fadvise()(fd, offset, len, advice) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readahead(fd: c_int, offset: off_t, len: size_t) -> ssize_t {
    if !is_virtual(fd) {
        // SAFETY: the caller's arguments.
        return unsafe { real::readahead()(fd, offset, len) };
    }
    0
}

/// The position of a descriptor that has one; `errno` stays.
fn position(fd: c_int) -> Option<off_t> {
    let errno = crate::guard::errno();
    // SAFETY: the call has no conditions.
    let at = unsafe { lseek(fd, 0, libc::SEEK_CUR) };
    crate::guard::set_errno(errno);
    (at >= 0).then_some(at)
}

/// Copy by reads and writes, of which at least one is ours.
unsafe fn copy(
    (from, from_at): (c_int, *mut off_t),
    (to, to_at): (c_int, *mut off_t),
    len: size_t,
) -> Res<ssize_t> {
    let mut buffer = vec![0_u8; COPY_BYTES.min(len)];
    let mut done = 0;
    let check = |moved: ssize_t| if moved < 0 { Err(crate::guard::errno()) } else { Ok(moved) };
    while done < len.min(opens::CALL_BYTES_MAX) {
        let wanted = (len - done).min(buffer.len());
        // The position moves by what was written, not by what was read. A pipe has none.
        // SAFETY: the buffer has room, and the offsets are the caller's.
        let (got, place) = unsafe {
            let place = from_at.as_ref().copied().or_else(|| position(from));
            match place {
                Some(at) => (pread(from, buffer.as_mut_ptr().cast(), wanted, at), place),
                None => (read(from, buffer.as_mut_ptr().cast(), wanted), None),
            }
        };
        let got = match check(got) {
            Err(_) if done > 0 => break,
            got => got?,
        };
        // SAFETY: the same.
        let put = unsafe {
            match to_at.as_ref() {
                Some(at) => pwrite(to, buffer.as_ptr().cast(), got as usize, *at),
                None => write(to, buffer.as_ptr().cast(), got as usize),
            }
        };
        let put = match check(put) {
            Err(_) if done > 0 => break,
            put => put?,
        };
        // SAFETY: the same.
        unsafe {
            [from_at, to_at].iter().filter_map(|at| at.as_mut()).for_each(|at| *at += put as off_t);
            if from_at.is_null() && place.is_some() {
                lseek(from, put as off_t, libc::SEEK_CUR);
            }
        }
        done += put as usize;
        if put == 0 || (got as usize) < wanted || put < got {
            break;
        }
    }
    Ok(done as ssize_t)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t {
    if !is_virtual(to) && !is_virtual(from) {
        // SAFETY: the caller's arguments.
        return unsafe { real::sendfile()(to, from, offset, len) };
    }
    // SAFETY: the same.
    answer(unsafe { copy((from, offset), (to, std::ptr::null_mut()), len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_virtual(to) && !is_virtual(from) {
        // SAFETY: the caller's arguments.
        return unsafe { real::copy_file_range()(from, from_at, to, to_at, len, flags) };
    }
    // SAFETY: the same.
    answer(unsafe { copy((from, from_at), (to, to_at), len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_virtual(to) && !is_virtual(from) {
        // SAFETY: the caller's arguments.
        return unsafe { real::splice()(from, from_at, to, to_at, len, flags) };
    }
    // SAFETY: the same.
    answer(unsafe { copy((from, from_at), (to, to_at), len) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, into: *mut c_void, len: size_t, _room: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { read(fd, into, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __pread_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    offset: off_t,
    _room: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { pread(fd, into, len, offset) }
}

also! {
    __read = read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t;
    __write = write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
    pread64 = pread(fd: c_int, into: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    pwrite64 = pwrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    __pread64 = pread(fd: c_int, into: *mut c_void, len: size_t, offset: off_t) -> ssize_t;
    __pwrite64 = pwrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t) -> ssize_t;
    __pread64_chk = __pread_chk(fd: c_int, into: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t;
    preadv64 = preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    pwritev64 = pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    preadv64v2 = preadv2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev64v2 = pwritev2(fd: c_int, list: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    lseek64 = lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    __lseek = lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    llseek = lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    ftruncate64 = ftruncate(fd: c_int, size: off_t) -> c_int;
    fallocate64 = fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int;
    posix_fallocate64 = posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int;
    posix_fadvise64 = posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int;
    sendfile64 = sendfile(to: c_int, from: c_int, offset: *mut off_t, len: size_t) -> ssize_t;
}

/// `readlink` of a descriptor's name shows the path that the program opened.
pub fn shown(path: &[u8], into: *mut c_char, room: size_t) -> Res<ssize_t> {
    let len = path.len().min(room);
    // SAFETY: the caller's buffer has `room` bytes.
    unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), into.cast(), len) };
    Ok(len as ssize_t)
}
