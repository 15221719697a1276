//! Calls that walk directory trees inside the C library (`scandir`, `nftw`, `glob`). For the file systems of
//! this library `scandir` and `nftw` are implemented anew, because the C library's own calls would not pass
//! through this library. The C library's `glob` gets functions of this library for its accesses.

use super::also;
use super::directories::{closedir, opendir, readdir};
use super::metadata::fstatat;
use crate::guard::{answer, errno};
use crate::real;
use crate::route::{Route, route};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, dirent, glob_t};
use std::ffi::{CStr, CString};

type Filter = unsafe extern "C" fn(*const dirent) -> c_int;
type Order = unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int;

/// Depth of a walk, at most.
const DEPTH_MAX: usize = 1000;

#[unsafe(no_mangle)]
unsafe extern "C" fn scandirat(
    dir: c_int,
    path: *const c_char,
    found: *mut *mut *mut dirent,
    filter: Option<Filter>,
    order: Option<Order>,
) -> c_int {
    // SAFETY: the caller's arguments; entries are copied into memory of the C library, which the caller
    // frees.
    unsafe {
        let any = |function: usize| function as *mut c_void;
        if matches!(route(dir, path), Route::Kernel) {
            let filter = filter.map_or(0, |f| f as usize);
            let order = order.map_or(0, |f| f as usize);
            return real::scandirat()(dir, path, found, any(filter), any(order));
        }
        let fd = super::open::openat(dir, path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return -1;
        }
        let stream = super::directories::fdopendir(fd);
        if stream.is_null() {
            return -1;
        }
        let mut list: Vec<*mut dirent> = Vec::new();
        loop {
            let entry = readdir(stream);
            if entry.is_null() {
                break;
            }
            if filter.is_none_or(|filter| filter(entry) != 0) {
                let copy = libc::malloc(size_of::<dirent>()).cast::<dirent>();
                if copy.is_null() {
                    break;
                }
                std::ptr::copy_nonoverlapping(entry, copy, 1);
                list.push(copy);
            }
        }
        closedir(stream);
        let bytes = (list.len() * size_of::<*mut dirent>()).max(1);
        let array = libc::malloc(bytes).cast::<*mut dirent>();
        if array.is_null() {
            return answer(Err(libc::ENOMEM));
        }
        std::ptr::copy_nonoverlapping(list.as_ptr(), array, list.len());
        if let Some(order) = order {
            let compare: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int =
                std::mem::transmute(order);
            libc::qsort(array.cast(), list.len(), size_of::<*mut dirent>(), Some(compare));
        }
        found.write(array);
        list.len() as c_int
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn scandir(
    path: *const c_char,
    found: *mut *mut *mut dirent,
    filter: Option<Filter>,
    order: Option<Order>,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { scandirat(AT_FDCWD, path, found, filter, order) }
}

/// The C library's `glob` takes functions of the caller: it gets ours, which pass on what is not ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn glob(
    pattern: *const c_char,
    flags: c_int,
    failed: *mut c_void,
    into: *mut glob_t,
) -> c_int {
    const GLOB_ALTDIRFUNC: c_int = 1 << 9;
    // SAFETY: the caller's arguments; the functions' places in the structure are those of the C library.
    unsafe {
        if !crate::config::is_on() || flags & GLOB_ALTDIRFUNC != 0 {
            return real::glob()(pattern, flags, failed, into);
        }
        let functions = into.cast::<usize>().add(4);
        let ours = [
            closedir as *const () as usize,
            readdir as *const () as usize,
            opendir as *const () as usize,
            looked_at as *const () as usize,
            stat_of as *const () as usize,
        ];
        std::ptr::copy_nonoverlapping(ours.as_ptr(), functions, ours.len());
        real::glob()(pattern, flags | GLOB_ALTDIRFUNC, failed, into)
    }
}

unsafe extern "C" fn looked_at(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the arguments of `glob`.
    unsafe { fstatat(AT_FDCWD, path, into, AT_SYMLINK_NOFOLLOW) }
}

unsafe extern "C" fn stat_of(path: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the arguments of `glob`.
    unsafe { fstatat(AT_FDCWD, path, into, 0) }
}

type Visit = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut [c_int; 2]) -> c_int;
type VisitOld = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;
const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;

/// A visit: path, attributes, kind, and where its name begins and how deep it is.
type Visitor<'a> = dyn FnMut(&CStr, &libc::stat, c_int, [c_int; 2]) -> c_int + 'a;

struct Walker<'a> {
    visit: &'a mut Visitor<'a>,
    flags: c_int,
    device: Option<u64>,
}

impl Walker<'_> {
    /// The first answer that is not 0 ends the walk.
    unsafe fn walk(&mut self, path: &[u8], level: usize) -> c_int {
        let Ok(name) = CString::new(path) else { return -1 };
        let base = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let place = [base as c_int, level as c_int];
        // SAFETY: all zeros are a valid `stat`, and the names are C strings.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            let no_follow = if self.flags & FTW_PHYS != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
            if fstatat(AT_FDCWD, name.as_ptr(), &mut stat, no_follow) != 0 {
                let is_dangling = no_follow == 0
                    && fstatat(AT_FDCWD, name.as_ptr(), &mut stat, AT_SYMLINK_NOFOLLOW) == 0
                    && stat.st_mode & libc::S_IFMT == libc::S_IFLNK;
                if level == 0 && !is_dangling {
                    return -1;
                }
                return (self.visit)(&name, &stat, if is_dangling { FTW_SLN } else { FTW_NS }, place);
            }
            if self.flags & FTW_MOUNT != 0 && *self.device.get_or_insert(stat.st_dev) != stat.st_dev {
                return 0;
            }
            let kind = match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => FTW_D,
                libc::S_IFLNK => FTW_SL,
                _ => FTW_F,
            };
            if kind != FTW_D {
                return (self.visit)(&name, &stat, kind, place);
            }
            let is_deep = self.flags & FTW_DEPTH != 0;
            let names = match names_in(&name) {
                Some(names) if level < DEPTH_MAX => names,
                _ => return (self.visit)(&name, &stat, FTW_DNR, place),
            };
            if !is_deep {
                let done = (self.visit)(&name, &stat, FTW_D, place);
                if done != 0 {
                    return done;
                }
            }
            for entry in names {
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                let done = self.walk(&[path, slash, &entry].concat(), level + 1);
                if done != 0 {
                    return done;
                }
            }
            if is_deep { (self.visit)(&name, &stat, FTW_DP, place) } else { 0 }
        }
    }
}

unsafe fn names_in(path: &CStr) -> Option<Vec<Vec<u8>>> {
    // SAFETY: the path is a C string.
    unsafe {
        let stream = opendir(path.as_ptr());
        if stream.is_null() {
            return None;
        }
        let mut names = Vec::new();
        while let Some(entry) = readdir(stream).as_ref() {
            let name = CStr::from_ptr(entry.d_name.as_ptr()).to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        closedir(stream);
        Some(names)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nftw(path: *const c_char, visit: Visit, count: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if matches!(route(AT_FDCWD, path), Route::Kernel) {
            return real::nftw()(path, visit as *mut c_void, count, flags);
        }
        if flags & (FTW_CHDIR | FTW_ACTIONRETVAL) != 0 {
            return answer(Err(libc::ENOTSUP));
        }
        let mut call = |path: &CStr, stat: &libc::stat, kind, mut place: [c_int; 2]| {
            visit(path.as_ptr(), stat, kind, &mut place)
        };
        let done = Walker { visit: &mut call, flags, device: None }.walk(CStr::from_ptr(path).to_bytes(), 0);
        if done == -1 && errno() == 0 { answer(Err(libc::EIO)) } else { done }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftw(path: *const c_char, visit: VisitOld, count: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if matches!(route(AT_FDCWD, path), Route::Kernel) {
            return real::ftw()(path, visit as *mut c_void, count);
        }
        let mut call = |path: &CStr, stat: &libc::stat, kind, _| {
            visit(path.as_ptr(), stat, if kind == FTW_SLN { FTW_NS } else { kind })
        };
        Walker { visit: &mut call, flags: 0, device: None }.walk(CStr::from_ptr(path).to_bytes(), 0)
    }
}

also! {
    scandir64 = scandir(
        path: *const c_char, found: *mut *mut *mut dirent, filter: Option<Filter>, order: Option<Order>,
    ) -> c_int;
    scandirat64 = scandirat(
        dir: c_int, path: *const c_char, found: *mut *mut *mut dirent, filter: Option<Filter>, order: Option<Order>,
    ) -> c_int;
    glob64 = glob(pattern: *const c_char, flags: c_int, failed: *mut c_void, into: *mut glob_t) -> c_int;
    nftw64 = nftw(path: *const c_char, visit: Visit, count: c_int, flags: c_int) -> c_int;
    ftw64 = ftw(path: *const c_char, visit: VisitOld, count: c_int) -> c_int;
}
