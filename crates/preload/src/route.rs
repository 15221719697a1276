//! Finds the file system to which the path of a call belongs.
//!
//! ```text
//!   absolute path ─────────────── compare with each prefix
//!   relative path ─ directory is ─┬ far from all prefixes ─▶ the kernel's, unless the path has `..`
//!                                 ├ above a prefix ────────▶ join directory and path, compare
//!                                 └ in a prefix ───────────▶ the file system of that prefix
//! ```
//!
//! A *prefix* is the directory at which a file system of this library appears. The common cases need no
//! system call and no lock: an absolute path is compared, and a relative path is searched for `..`. From
//! the component at which a path enters a prefix, the file system walks the rest ([`shoal_world::Walk`]).
//! Outside, `..` removes the component before it, without a look at symbolic links; a symbolic link outside
//! that leads into a prefix is not seen.

use crate::config;
use crate::guard::{self, Held, Res, call};
use crate::session::Call;
use crate::table;
use libc::{AT_FDCWD, c_char, c_int};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A path in one of our file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Which file system.
    pub mount: usize,
    /// The path below its root; empty for the root.
    pub path: Vec<u8>,
    /// The directory at which it begins, where a descriptor names it: another thread may move it.
    pub base: Option<Base>,
}

/// The directory at which a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Its descriptor.
    pub fd: c_int,
    /// The address of the record of its open.
    pub record: usize,
    /// Bytes of its path.
    pub len: usize,
    /// Moves of this process before.
    pub began: u64,
}

impl Spot {
    /// A path from the root.
    pub fn new(mount: usize, path: Vec<u8>) -> Spot {
        Spot { mount, path, base: None }
    }
}

/// The way of a call.
pub enum Route {
    /// It is the kernel's, as it is.
    Kernel,
    /// It is ours.
    Ours(Spot),
}

impl Route {
    /// The place, if it is ours.
    pub fn spot(self) -> Option<Spot> {
        match self {
            Route::Ours(spot) => Some(spot),
            Route::Kernel => None,
        }
    }
}

/// The process's directory: not known yet; far from all prefixes; above one; in one. The bits above count its
/// changes.
static DIRECTORY: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = 0;
const FAR: u64 = 1;
const ABOVE: u64 = 2;
const INSIDE: u64 = 3;
const STATE: u64 = 3;
const CHANGE: u64 = 4;

/// The process's directory while it is [`INSIDE`]: both change under this lock. It is no part of the world,
/// so a call finds it also while other threads have the world. A thread holds signals back while it has the
/// lock, which it has for a moment.
static HERE: Mutex<Option<Spot>> = Mutex::new(None);

/// Bytes of a directory's path, at most.
const PATH_BYTES: usize = 4096;

/// The path of a prefix, and the rest after it.
fn under(path: &[u8]) -> Option<Spot> {
    let config = config::get()?;
    config.prefixes.iter().find_map(|(prefix, mount)| {
        let rest = path.strip_prefix(&prefix[..])?;
        let is_it = rest.first().is_none_or(|byte| *byte == b'/');
        is_it.then(|| Spot::new(*mount, rest.to_vec()))
    })
}

/// Whether letters alone do not say where a path leads.
fn is_crooked(path: &[u8]) -> bool {
    // All pairs, without an early end: the compiler compares many at once.
    let pairs = path.iter().zip(path.iter().skip(1));
    let is_one =
        pairs.fold(false, |is, (one, next)| is | ((*one == b'/') & ((*next == b'/') | (*next == b'.'))));
    is_one || path.starts_with(b".")
}

/// An absolute path, component by component, up to a prefix.
fn straighten(path: &[u8]) -> Option<Spot> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let from = at + path[at..].iter().take_while(|byte| **byte == b'/').count();
        let end = from + path[from..].iter().take_while(|byte| **byte != b'/').count();
        match &path[from..end] {
            b"" | b"." => {}
            b".." => out.truncate(out.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
        let config = config::get()?;
        if let Some((_, mount)) = config.prefixes.iter().find(|(prefix, _)| *prefix == out) {
            return Some(Spot::new(*mount, path[end..].to_vec()));
        }
        at = end;
    }
    None
}

fn absolute(path: &[u8]) -> Option<Spot> {
    if is_crooked(path) { straighten(path) } else { under(path) }
}

/// `/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N`: a descriptor's other name.
pub fn descriptor_of(path: &[u8]) -> Option<c_int> {
    if !path.starts_with(b"/dev/") && !path.starts_with(b"/proc/") {
        return None;
    }
    let number = match path {
        b"/dev/stdin" => 0,
        b"/dev/stdout" => 1,
        b"/dev/stderr" => 2,
        _ => {
            let own = path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/"));
            let digits = own.or_else(|| of_this_process(path))?;
            std::str::from_utf8(digits).ok()?.parse().ok()?
        }
    };
    table::is_virtual(number).then_some(number)
}

/// The digits of `/proc/PID/fd/N`, of this process.
fn of_this_process(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(b"/proc/")?;
    let at = rest.iter().position(|byte| *byte == b'/')?;
    let digits = rest[at..].strip_prefix(b"/fd/")?;
    let process: u32 = std::str::from_utf8(&rest[..at]).ok()?.parse().ok()?;
    (process == std::process::id()).then_some(digits)
}

/// The kernel's name of the process's directory, or of a descriptor's.
fn kernel_path(fd: c_int) -> Option<Vec<u8>> {
    let mut buffer = [0_u8; PATH_BYTES];
    let name = match fd {
        AT_FDCWD => CString::from(c"/proc/self/cwd"),
        _ => CString::new(format!("/proc/self/fd/{fd}")).ok()?,
    };
    // SAFETY: the buffer has that many bytes.
    let read = unsafe {
        libc::syscall(libc::SYS_readlinkat, AT_FDCWD, name.as_ptr(), buffer.as_mut_ptr(), buffer.len())
    };
    (read > 0).then(|| buffer[..read as usize].to_vec())
}

fn is_above(path: &[u8]) -> bool {
    let Some(config) = config::get() else { return false };
    let base = path.strip_suffix(b"/").unwrap_or(path);
    let leads = |prefix: &[u8]| prefix.strip_prefix(base).is_some_and(|rest| rest.starts_with(b"/"));
    config.prefixes.iter().any(|(prefix, _)| leads(prefix))
}

fn state() -> u64 {
    DIRECTORY.load(Ordering::Acquire) & STATE
}

/// The directory of the process, which does not change meanwhile; also before `fork`, so that a child finds
/// it free.
pub fn hold_here(_held: &Held) -> MutexGuard<'static, Option<Spot>> {
    HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Learn where the process is, if no other thread changes that meanwhile.
#[cold]
fn learn() {
    let (before, errno) = (DIRECTORY.load(Ordering::Acquire), guard::errno());
    if before & STATE != UNKNOWN {
        return;
    }
    let path = kernel_path(AT_FDCWD).unwrap_or_default();
    let learnt = |state: u64| {
        DIRECTORY.compare_exchange(before, before | state, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    match under(&path) {
        Some(spot) => {
            let given = config::get().and_then(|config| config.directory.clone());
            let spot = match given {
                // A ShoalFS has no directories in the kernel: the process is at the root there.
                Some(directory) if spot.path.is_empty() => Spot { path: directory, ..spot },
                _ => spot,
            };
            let held = Held::new();
            let mut here = hold_here(&held);
            if learnt(INSIDE) {
                *here = Some(spot);
            }
        }
        None => drop(learnt(if is_above(&path) { ABOVE } else { FAR })),
    }
    guard::set_errno(errno);
}

/// The process goes to a directory of ours; `enter` brings the kernel's directory there. The thread is not in
/// our world.
pub fn move_to(spot: Spot, enter: impl Fn(&Spot) -> Res<()>) -> Res<()> {
    let held = Held::new();
    let mut here = hold_here(&held);
    loop {
        let before = DIRECTORY.load(Ordering::Acquire);
        enter(&spot)?;
        let now = (before & !STATE).wrapping_add(CHANGE) | INSIDE;
        // Another thread may have gone to a directory of the kernel's meanwhile: this one goes after it.
        if DIRECTORY.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            *here = Some(spot);
            return Ok(());
        }
    }
}

/// The process is in another directory of the kernel's.
pub fn moved_away() {
    let away = |now: u64| Some((now & !STATE).wrapping_add(CHANGE) | UNKNOWN);
    let _ = DIRECTORY.fetch_update(Ordering::AcqRel, Ordering::Relaxed, away);
}

/// The directory of the process, if it is ours.
pub fn directory() -> Option<Spot> {
    if !config::is_on() || guard::is_inside() {
        return None;
    }
    loop {
        match state() {
            UNKNOWN => learn(),
            INSIDE => {
                let held = Held::new();
                let here = hold_here(&held);
                // Another thread may have left it before.
                if state() == INSIDE {
                    return here.clone();
                }
            }
            _ => return None,
        }
    }
}

fn has_dots(path: &[u8]) -> bool {
    path == b".."
        || path.starts_with(b"../")
        || path.ends_with(b"/..")
        || path.windows(4).any(|w| w == b"/../")
}

fn join(base: Spot, path: &[u8]) -> Spot {
    Spot::new(base.mount, [&base.path[..], b"/", path].concat())
}

fn relative(dir: c_int, path: &[u8]) -> Option<Spot> {
    if dir == AT_FDCWD {
        if state() == FAR && !has_dots(path) {
            return None;
        }
        return match directory() {
            Some(base) => Some(join(base, path)),
            None if state() == FAR && !has_dots(path) => None,
            None => straighten(&[&kernel_path(dir)?[..], b"/", path].concat()),
        };
    }
    if table::is_virtual(dir) {
        let based = call(|session| {
            let base = session.directory_of(dir)?;
            let record = std::ptr::from_ref(session.open(dir)?.record).addr();
            let begins = Base { fd: dir, record, len: base.path.len(), began: session.moves_so_far() };
            Ok((base, Some(begins)))
        });
        // Without a turn it is the kernel's, which refuses it: the descriptor is no directory there.
        let (base, begins) = based.ok()?;
        return Some(Spot { base: begins, ..join(base, path) });
    }
    // A descriptor of the kernel's may be of a directory above a prefix: then the path begins with a part of
    // it.
    let first = path.split(|byte| *byte == b'/').find(|part| !part.is_empty() && *part != b".")?;
    let config = config::get()?;
    let is_part = |prefix: &[u8]| prefix.split(|byte| *byte == b'/').any(|part| part == first);
    if !has_dots(path) && !config.prefixes.iter().any(|(prefix, _)| is_part(prefix)) {
        return None;
    }
    straighten(&[&kernel_path(dir)?[..], b"/", path].concat())
}

/// Where a path of a call leads, from a directory's descriptor or `AT_FDCWD`.
///
/// # Safety
/// `path` is null or a C string.
#[inline]
pub unsafe fn route(dir: c_int, path: *const c_char) -> Route {
    if path.is_null() || !config::is_on() || guard::is_inside() {
        return Route::Kernel;
    }
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let spot = match path.first() {
        None => None,
        Some(b'/') => absolute(path),
        Some(_) => relative(dir, path),
    };
    spot.map_or(Route::Kernel, Route::Ours)
}

/// The same for a path that is no C string.
pub fn route_bytes(path: &[u8]) -> Route {
    let Ok(path) = CString::new(path) else { return Route::Kernel };
    // SAFETY: it is one.
    unsafe { route(AT_FDCWD, path.as_ptr()) }
}

/// The host's name of a place.
pub fn host_path(spot: &Spot) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = config::get().and_then(|config| config.overs.get(spot.mount));
    let dir = dir.map_or(&b""[..], |over| over.dir.as_os_str().as_bytes());
    [dir, &spot.path].concat()
}

/// The same as a C string.
pub fn host_name(spot: &Spot) -> Res<CString> {
    CString::new(host_path(spot)).map_err(|_| libc::EINVAL)
}

/// The object of a place, or the host's path to which a link or `..` led away.
pub enum Target {
    /// Ours.
    Found(Box<shoal_world::Found>),
    /// The host's.
    Outside(CString),
}

/// Walk to an object that is there.
pub fn target(session: &mut Call<'_>, spot: &Spot, follow: bool) -> Res<Target> {
    match session.walk(spot, follow)? {
        shoal_world::Walk::Object(found) => Ok(Target::Found(found)),
        shoal_world::Walk::Missing { .. } => Err(libc::ENOENT),
        shoal_world::Walk::Outside(path) => CString::new(path).map(Target::Outside).map_err(|_| libc::EINVAL),
    }
}

/// A call on the object of a place: `ours`, or `kernels` where the path leads away.
pub fn on_object<T: guard::Failed>(
    spot: &Spot,
    follow: bool,
    ours: impl FnOnce(&mut Call<'_>, shoal_world::Found) -> Res<T>,
    kernels: impl FnOnce(*const c_char) -> T,
) -> T {
    let done = call(|session| match target(session, spot, follow)? {
        Target::Found(found) => ours(session, *found).map(Ok),
        Target::Outside(path) => Ok(Err(path)),
    });
    match done {
        Ok(Ok(value)) => value,
        Ok(Err(path)) => kernels(path.as_ptr()),
        Err(number) => guard::answer(Err(number)),
    }
}
