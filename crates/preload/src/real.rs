//! The C library's own functions. Each function is looked up once.
//!
//! `dlsym(RTLD_NEXT)` returns the next library's function, so another preloaded library is still called. A
//! function that this C library does not have fails with `ENOSYS`.

use libc::{
    DIR, FILE, c_char, c_int, c_uint, c_void, dev_t, gid_t, glob_t, iovec, mode_t, off_t, size_t, ssize_t,
    timespec, uid_t,
};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

extern "C" fn is_missing() -> isize {
    // SAFETY: the thread's own error number.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Find a function, and keep it in `known`.
pub fn find(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let at = known.load(Ordering::Relaxed);
    if !at.is_null() {
        return at;
    }
    // SAFETY: a name that ends, and a handle that is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    let found = if found.is_null() { is_missing as *mut c_void } else { found };
    known.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident($($ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {$(
        #[allow(non_snake_case)]
        pub fn $name() -> unsafe extern "C" fn($($ty),*) $(-> $ret)? {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            // SAFETY: the name without its ending is always valid UTF-8 with a zero at its end.
            let name = unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) };
            // SAFETY: the C library's function of this name has this type.
            unsafe { std::mem::transmute(find(&AT, name)) }
        }
    )*};
}

type Path = *const c_char;
type Any = *mut c_void;

real! {
    openat(c_int, Path, c_int, mode_t) -> c_int;
    read(c_int, Any, size_t) -> ssize_t;
    write(c_int, *const c_void, size_t) -> ssize_t;
    pread(c_int, Any, size_t, off_t) -> ssize_t;
    pwrite(c_int, *const c_void, size_t, off_t) -> ssize_t;
    readv(c_int, *const iovec, c_int) -> ssize_t;
    writev(c_int, *const iovec, c_int) -> ssize_t;
    preadv(c_int, *const iovec, c_int, off_t) -> ssize_t;
    pwritev(c_int, *const iovec, c_int, off_t) -> ssize_t;
    preadv2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    pwritev2(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    lseek(c_int, off_t, c_int) -> off_t;
    close(c_int) -> c_int;
    close_range(c_uint, c_uint, c_int) -> c_int;
    dup(c_int) -> c_int;
    dup2(c_int, c_int) -> c_int;
    dup3(c_int, c_int, c_int) -> c_int;
    fcntl(c_int, c_int, Any) -> c_int;
    ioctl(c_int, libc::c_ulong, Any) -> c_int;
    socket(c_int, c_int, c_int) -> c_int;
    eventfd(c_uint, c_int) -> c_int;
    epoll_create1(c_int) -> c_int;
    pipe(*mut c_int) -> c_int;
    pipe2(*mut c_int, c_int) -> c_int;
    accept(c_int, Any, Any) -> c_int;
    accept4(c_int, Any, Any, c_int) -> c_int;
    sendmsg(c_int, *const libc::msghdr, c_int) -> ssize_t;
    sendmmsg(c_int, *mut libc::mmsghdr, c_uint, c_int) -> c_int;
    recvmsg(c_int, *mut libc::msghdr, c_int) -> ssize_t;
    recvmmsg(c_int, *mut libc::mmsghdr, c_uint, c_int, *mut timespec) -> c_int;
    flock(c_int, c_int) -> c_int;
    lockf(c_int, c_int, off_t) -> c_int;
    ftruncate(c_int, off_t) -> c_int;
    fsync(c_int) -> c_int;
    fdatasync(c_int) -> c_int;
    syncfs(c_int) -> c_int;
    sync_file_range(c_int, i64, i64, c_uint) -> c_int;
    fallocate(c_int, c_int, off_t, off_t) -> c_int;
    posix_fallocate(c_int, off_t, off_t) -> c_int;
    posix_fadvise(c_int, off_t, off_t, c_int) -> c_int;
    readahead(c_int, off_t, size_t) -> ssize_t;
    sendfile(c_int, c_int, *mut off_t, size_t) -> ssize_t;
    copy_file_range(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    splice(c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    mmap(Any, size_t, c_int, c_int, c_int, off_t) -> Any;
    fstatat(c_int, Path, *mut libc::stat, c_int) -> c_int;
    fstat(c_int, *mut libc::stat) -> c_int;
    __fxstatat(c_int, c_int, Path, *mut libc::stat, c_int) -> c_int;
    __fxstat(c_int, c_int, *mut libc::stat) -> c_int;
    statx(c_int, Path, c_int, c_uint, *mut libc::statx) -> c_int;
    statfs(Path, *mut libc::statfs) -> c_int;
    fstatfs(c_int, *mut libc::statfs) -> c_int;
    statvfs(Path, *mut libc::statvfs) -> c_int;
    fstatvfs(c_int, *mut libc::statvfs) -> c_int;
    pathconf(Path, c_int) -> libc::c_long;
    fpathconf(c_int, c_int) -> libc::c_long;
    faccessat(c_int, Path, c_int, c_int) -> c_int;
    truncate(Path, off_t) -> c_int;
    unlinkat(c_int, Path, c_int) -> c_int;
    renameat2(c_int, Path, c_int, Path, c_uint) -> c_int;
    mkdirat(c_int, Path, mode_t) -> c_int;
    mknodat(c_int, Path, mode_t, dev_t) -> c_int;
    linkat(c_int, Path, c_int, Path, c_int) -> c_int;
    symlinkat(Path, c_int, Path) -> c_int;
    readlinkat(c_int, Path, *mut c_char, size_t) -> ssize_t;
    fchmodat(c_int, Path, mode_t, c_int) -> c_int;
    fchmod(c_int, mode_t) -> c_int;
    fchownat(c_int, Path, uid_t, gid_t, c_int) -> c_int;
    fchown(c_int, uid_t, gid_t) -> c_int;
    utimensat(c_int, Path, *const timespec, c_int) -> c_int;
    futimens(c_int, *const timespec) -> c_int;
    umask(mode_t) -> mode_t;
    chdir(Path) -> c_int;
    fchdir(c_int) -> c_int;
    getcwd(*mut c_char, size_t) -> *mut c_char;
    realpath(Path, *mut c_char) -> *mut c_char;
    getxattr(Path, Path, Any, size_t) -> ssize_t;
    lgetxattr(Path, Path, Any, size_t) -> ssize_t;
    fgetxattr(c_int, Path, Any, size_t) -> ssize_t;
    setxattr(Path, Path, *const c_void, size_t, c_int) -> c_int;
    lsetxattr(Path, Path, *const c_void, size_t, c_int) -> c_int;
    fsetxattr(c_int, Path, *const c_void, size_t, c_int) -> c_int;
    listxattr(Path, *mut c_char, size_t) -> ssize_t;
    llistxattr(Path, *mut c_char, size_t) -> ssize_t;
    flistxattr(c_int, *mut c_char, size_t) -> ssize_t;
    removexattr(Path, Path) -> c_int;
    lremovexattr(Path, Path) -> c_int;
    fremovexattr(c_int, Path) -> c_int;
    opendir(Path) -> *mut DIR;
    fdopendir(c_int) -> *mut DIR;
    readdir(*mut DIR) -> *mut libc::dirent;
    readdir_r(*mut DIR, *mut libc::dirent, *mut *mut libc::dirent) -> c_int;
    closedir(*mut DIR) -> c_int;
    rewinddir(*mut DIR);
    telldir(*mut DIR) -> libc::c_long;
    seekdir(*mut DIR, libc::c_long);
    dirfd(*mut DIR) -> c_int;
    scandirat(c_int, Path, *mut *mut *mut libc::dirent, Any, Any) -> c_int;
    glob(Path, c_int, Any, *mut glob_t) -> c_int;
    nftw(Path, Any, c_int, c_int) -> c_int;
    ftw(Path, Any, c_int) -> c_int;
    fopen(Path, Path) -> *mut FILE;
    fdopen(c_int, Path) -> *mut FILE;
    freopen(Path, Path, *mut FILE) -> *mut FILE;
    fclose(*mut FILE) -> c_int;
    vdprintf(c_int, Path, Any) -> c_int;
    __vdprintf_chk(c_int, c_int, Path, Any) -> c_int;
    system(Path) -> c_int;
    popen(Path, Path) -> *mut FILE;
    pclose(*mut FILE) -> c_int;
    mkostemps(*mut c_char, c_int, c_int) -> c_int;
    mkdtemp(*mut c_char) -> *mut c_char;
    mktemp(*mut c_char) -> *mut c_char;
    fork() -> libc::pid_t;
    openpty(*mut c_int, *mut c_int, *mut c_char, *const libc::termios, *const libc::winsize) -> c_int;
    login_tty(c_int) -> c_int;
    execve(Path, *const Path, *const Path) -> c_int;
    fexecve(c_int, *const Path, *const Path) -> c_int;
    posix_spawn(*mut libc::pid_t, Path, *const c_void, *const c_void, *const Path, *const Path) -> c_int;
    posix_spawnp(*mut libc::pid_t, Path, *const c_void, *const c_void, *const Path, *const Path) -> c_int;
    posix_spawn_file_actions_destroy(Any) -> c_int;
    posix_spawn_file_actions_addopen(Any, c_int, Path, c_int, mode_t) -> c_int;
    aio_read(Any) -> c_int;
    aio_write(Any) -> c_int;
    aio_fsync(c_int, Any) -> c_int;
    lio_listio(c_int, *const Any, c_int, Any) -> c_int;
    execveat(c_int, Path, *const Path, *const Path, c_int) -> c_int;
    _exit(c_int);
    ftok(Path, c_int) -> libc::key_t;
    __cxa_thread_atexit_impl(Any, Any, Any) -> c_int;
    _IO_list_lock();
    _IO_list_unlock();
    _IO_list_resetlock();
}
