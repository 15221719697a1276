//! The directories that this library serves. They are read once from the environment, before the program's
//! `main`.
//!
//! `shoal run` sets the variables; a program's children inherit them, and an `exec` with an environment of
//! its own has them put back ([`crate::calls::process`]). Nothing is opened here.

use libc::{c_char, mode_t};
use shoal_world::{Over, ProcessGroup};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The list of file systems, a line each.
pub const OVERS: &str = "SHOAL_PRELOAD";
/// This library.
pub const LIBRARY: &str = "SHOAL_PRELOAD_LIB";
/// The directory of a program that began in a directory of a ShoalFS.
pub const DIRECTORY: &str = "SHOAL_PRELOAD_CWD";
/// Any value: say which calls are declined.
pub const LOG: &str = "SHOAL_PRELOAD_LOG";

/// The settings from the environment.
pub struct Config {
    /// The file systems.
    pub overs: Vec<Over>,
    /// Their directories, in every spelling, with the index of the file system.
    pub prefixes: Vec<(Vec<u8>, usize)>,
    /// Value of [`OVERS`].
    pub text: Vec<u8>,
    /// Value of [`LIBRARY`].
    pub library: Vec<u8>,
    /// Value of [`DIRECTORY`].
    pub directory: Option<Vec<u8>>,
    /// Whether [`LOG`] is set.
    pub is_logged: bool,
    /// The process that read this, and its group. A child by `fork` is no member.
    group: (u32, ProcessGroup),
}

static CONFIG: AtomicPtr<Config> = AtomicPtr::new(ptr::null_mut());
static UMASK: AtomicU32 = AtomicU32::new(0o022);

/// The configuration; `None`: the library does nothing.
#[inline]
pub fn get() -> Option<&'static Config> {
    // SAFETY: it is leaked, and never changed after.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }
}

/// Whether any directory is ours.
#[inline]
pub fn is_on() -> bool {
    !CONFIG.load(Ordering::Relaxed).is_null()
}

/// A variable of an environment.
///
/// # Safety
/// `envp` is null, or an array of C strings that ends with null.
pub unsafe fn variable<'a>(envp: *const *const c_char, name: &str) -> Option<&'a [u8]> {
    let mut at = envp;
    // SAFETY: as the caller promises.
    while let Some(entry) = unsafe { at.as_ref() }.filter(|entry| !entry.is_null()) {
        // SAFETY: a C string.
        let entry = unsafe { CStr::from_ptr(*entry) }.to_bytes();
        if let Some(value) = entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(value);
        }
        // SAFETY: it was not the end.
        at = unsafe { at.add(1) };
    }
    None
}

/// The group of this process, if it has one.
pub fn group() -> ProcessGroup {
    let known = get().map(|config| &config.group).filter(|(process, _)| *process == std::process::id());
    known.map(|(_, group)| group.clone()).unwrap_or_default()
}

/// `shoal run` refused values that are none; a launcher after it has none of those.
fn group_of(value: impl Fn(&str) -> Option<Vec<u8>>) -> ProcessGroup {
    let mut host = [0_u8; 256];
    // SAFETY: the buffer is that long.
    let is_known = unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) } == 0;
    let host =
        CStr::from_bytes_until_nul(&host).ok().and_then(|host| host.to_str().ok()).filter(|_| is_known);
    let value = |name: &str| String::from_utf8(value(name)?).ok();
    ProcessGroup::of_environment(value, host).unwrap_or_default().saying(|words| {
        if get().is_some_and(|config| config.is_logged) {
            crate::guard::say(words);
        }
    })
}

/// Read the environment.
///
/// # Safety
/// As [`variable`]; no other thread is there yet.
pub unsafe fn read(envp: *const *const c_char) {
    // SAFETY: as the caller promises.
    let value = |name: &str| unsafe { variable(envp, name) };
    let Some(text) = value(OVERS) else { return };
    let Ok(lines) = std::str::from_utf8(text) else { return };
    let overs: Vec<Over> = lines.lines().filter_map(Over::from_line).collect();
    if overs.is_empty() {
        return;
    }
    let mut prefixes: Vec<(Vec<u8>, usize)> = Vec::new();
    for (index, over) in overs.iter().enumerate() {
        for spelling in [&over.dir, &over.given] {
            let spelling = spelling.as_os_str().as_bytes().to_vec();
            if !prefixes.iter().any(|(known, _)| *known == spelling) {
                prefixes.push((spelling, index));
            }
        }
    }
    let config = Config {
        overs,
        prefixes,
        text: text.to_vec(),
        library: value(LIBRARY).unwrap_or_default().to_vec(),
        directory: value(DIRECTORY).map(<[u8]>::to_vec),
        is_logged: value(LOG).is_some(),
        group: (std::process::id(), group_of(|name| value(name).map(<[u8]>::to_vec))),
    };
    CONFIG.store(Box::into_raw(Box::new(config)), Ordering::Release);
    // SAFETY: no other thread sees the moment without a mask.
    let mask = unsafe { libc::syscall(libc::SYS_umask, 0o077) } as mode_t;
    set_umask(mask);
    // SAFETY: the same.
    unsafe { libc::syscall(libc::SYS_umask, mask) };
}

/// The program's file mode mask.
pub fn umask() -> u32 {
    UMASK.load(Ordering::Relaxed)
}

/// The program sets its file mode mask.
pub fn set_umask(mask: mode_t) {
    UMASK.store(mask & 0o777, Ordering::Relaxed);
}
