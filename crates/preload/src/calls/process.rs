//! Processes: forked, and become other programs.
//!
//! - **fork**: the turn of the world is held over it. The child forgets the world without dropping it, and asks
//!   each virtual descriptor again. `vfork` is `fork`: its child would write into our tables.
//! - **exec**: the files of this process are closed first; descriptors stay, and the next program finds their
//!   records. Our variables are put back into an environment that lacks them.
//! - **A program of ours** runs from a sealed file in memory; a script of ours is given to its interpreter by its
//!   name, which the interpreter opens through this library.

use crate::config::{self, Config};
use crate::guard::{self, Held, PATIENCE, Res, WORLD, answer, call, errno, is_inside};
use crate::real;
use crate::route::{Route, Spot, Target, directory, host_name, route, route_bytes, target};
use crate::session::number;
use crate::table::{self, is_virtual};
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, pid_t};
use shoal_proto::{Kind, Rights};
use std::ffi::{CStr, CString};
use std::ptr;

/// Bytes of a program, at most.
const PROGRAM_BYTES_MAX: u64 = 1 << 31;
const PIECE: usize = 4 << 20;
/// Bytes of the first line of a script.
const LINE_BYTES_MAX: usize = 256;

/// `fork(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    if !config::is_on() || is_inside() {
        // SAFETY: the call has no conditions.
        return unsafe { real::fork()() };
    }
    // The child needs it, and its world is new.
    let here = directory();
    let held = Held::new();
    let has_turn = WORLD.hold(PATIENCE);
    // SAFETY: the call has no conditions.
    let child = unsafe { real::fork()() };
    let number = errno();
    if child == 0 {
        // SAFETY: a child has one thread, which is here.
        unsafe { WORLD.forget() };
        table::forget();
    } else if has_turn {
        WORLD.release();
    }
    drop(held);
    if child == 0 && here.is_some() {
        let _ = call(|session| {
            session.cwd = here;
            Ok(())
        });
    }
    if child < 0 {
        guard::set_errno(number);
    }
    child
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !path.is_null() && *path == 0 && flags & libc::AT_EMPTY_PATH != 0 {
            return fexecve(dir, argv, envp);
        }
        match route(dir, path).spot().map(|spot| host_name(&spot)) {
            None if !config::is_on() => real::execveat()(dir, path, argv, envp, flags),
            None => real::execveat()(dir, path, argv, environment_or(envp).as_ptr(), flags),
            Some(Ok(path)) => execve(path.as_ptr(), argv, envp),
            Some(Err(number)) => answer(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: the call has no conditions.
    unsafe { fork() }
}

/// An environment with our variables.
struct Environment {
    _own: Vec<CString>,
    list: Vec<*const c_char>,
}

fn entry(name: &str, value: &[u8]) -> Option<CString> {
    CString::new([name.as_bytes(), b"=", value].concat()).ok()
}

/// The libraries to load first, with ours.
fn preload(config: &Config, given: Option<&[u8]>) -> Vec<u8> {
    match given {
        Some(given) if given.split(|b| *b == b':' || *b == b' ').any(|one| one == config.library) => {
            given.to_vec()
        }
        Some(given) if !given.is_empty() => [&config.library[..], b":", given].concat(),
        _ => config.library.clone(),
    }
}

unsafe fn environment(envp: *const *const c_char) -> Environment {
    let Some(config) = config::get() else {
        return Environment { _own: Vec::new(), list: Vec::new() };
    };
    // SAFETY: the caller's environment.
    unsafe {
        let mut own = Vec::new();
        own.extend(entry(config::OVERS, &config.text));
        own.extend(entry(config::LIBRARY, &config.library));
        own.extend(entry("LD_PRELOAD", &preload(config, config::variable(envp, "LD_PRELOAD"))));
        if let Some(spot) = directory() {
            own.extend(entry(config::DIRECTORY, &spot.path));
        }
        let ours = [config::OVERS, config::LIBRARY, "LD_PRELOAD", config::DIRECTORY];
        let mut list: Vec<*const c_char> = own.iter().map(|entry| entry.as_ptr()).collect();
        let mut at = envp;
        while let Some(given) = at.as_ref().filter(|given| !given.is_null()) {
            let bytes = CStr::from_ptr(*given).to_bytes();
            let name = bytes.split(|byte| *byte == b'=').next().unwrap_or(bytes);
            if !ours.iter().any(|own| own.as_bytes() == name) {
                list.push(*given);
            }
            at = at.add(1);
        }
        list.push(ptr::null());
        Environment { _own: own, list }
    }
}

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
        let tree = session.tree(spot.mount)?;
        let file = tree.open(found.attr.handle, Rights::READ).map_err(|error| number(&error))?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"shoal-program".as_ptr(), flags) as c_int };
        if fd < 0 {
            return Err(errno());
        }
        let mut at = 0;
        loop {
            let read = file.read(at, PIECE).map_err(|error| number(&error))?;
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
struct Program {
    path: CString,
    /// Arguments before the caller's, in the place of its first.
    before: Vec<CString>,
    /// The file in memory, if there is one.
    fd: c_int,
}

fn program(spot: &Spot, given: &CStr) -> Res<Program> {
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
unsafe fn arguments(program: &Program, argv: *const *const c_char) -> Vec<*const c_char> {
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

/// `execve(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() || path.is_null() {
            return real::execve()(path, argv, envp);
        }
        let environment = environment(envp);
        let own = match route(AT_FDCWD, path) {
            Route::Kernel => None,
            Route::Ours(spot) => match program(&spot, CStr::from_ptr(path)) {
                Ok(program) => Some(program),
                Err(number) => return answer(Err(number)),
            },
        };
        let _ = call(|session| {
            session.rest();
            Ok(())
        });
        match own {
            None => real::execve()(path, argv, environment.list.as_ptr()),
            Some(own) => {
                let arguments = arguments(&own, argv);
                // An interpreter may be one of ours too.
                let is_again =
                    !own.before.is_empty() && matches!(route_bytes(own.path.to_bytes()), Route::Ours(_));
                let done = match is_again {
                    true => execve(own.path.as_ptr(), arguments.as_ptr(), envp),
                    false => real::execve()(own.path.as_ptr(), arguments.as_ptr(), environment.list.as_ptr()),
                };
                if own.fd >= 0 {
                    crate::session::close_own(own.fd);
                }
                done
            }
        }
    }
}

unsafe fn environ() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library's variable.
    unsafe { environ }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execve(path, argv, environ()) }
}

/// The places where a program of a name may lie.
unsafe fn candidates(file: *const c_char) -> Vec<CString> {
    // SAFETY: the caller passes a C string.
    let name = unsafe { CStr::from_ptr(file) };
    if name.to_bytes().contains(&b'/') || name.to_bytes().is_empty() {
        return vec![name.to_owned()];
    }
    // SAFETY: the program's environment.
    let path = unsafe { config::variable(environ(), "PATH") }.unwrap_or(b"/bin:/usr/bin");
    let join = |dir: &[u8]| match dir {
        b"" => CString::new([b"./", name.to_bytes()].concat()),
        dir => CString::new([dir, b"/", name.to_bytes()].concat()),
    };
    path.split(|byte| *byte == b':').filter_map(|dir| join(dir).ok()).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if file.is_null() {
            return answer(Err(libc::EFAULT));
        }
        let mut is_denied = false;
        for path in candidates(file) {
            execve(path.as_ptr(), argv, envp);
            match errno() {
                libc::EACCES => is_denied = true,
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                libc::ENOEXEC => {
                    let mut all = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
                    let mut at = argv;
                    if !at.is_null() && !(*at).is_null() {
                        at = at.add(1);
                    }
                    while let Some(one) = at.as_ref().filter(|one| !one.is_null()) {
                        all.push(*one);
                        at = at.add(1);
                    }
                    all.push(ptr::null());
                    return execve(c"/bin/sh".as_ptr(), all.as_ptr(), envp);
                }
                _ => return -1,
            }
        }
        if is_denied {
            guard::set_errno(libc::EACCES);
        }
        -1
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { execvpe(file, argv, environ()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !is_virtual(fd) {
            let own = if config::is_on() { environment_or(envp) } else { Vec::new() };
            return real::fexecve()(fd, argv, if own.is_empty() { envp } else { own.as_ptr() });
        }
        let spot = call(|session| {
            let record = session.open(fd)?.record;
            Ok(Spot { mount: record.mount as usize, path: record.path() })
        });
        match spot.and_then(|spot| host_name(&spot)) {
            Ok(path) => execve(path.as_ptr(), argv, envp),
            Err(number) => answer(Err(number)),
        }
    }
}

/// Kept until the program is another.
unsafe fn environment_or(envp: *const *const c_char) -> Vec<*const c_char> {
    // SAFETY: the caller's environment.
    let environment = unsafe { environment(envp) };
    let list = environment.list.clone();
    std::mem::forget(environment);
    if list.is_empty() { vec![ptr::null()] } else { list }
}

/// A list of arguments of a call with as many as it likes: some in registers, the others on the stack.
#[cfg(target_arch = "x86_64")]
mod lists {
    use super::{environ, execve, execvpe};
    use libc::{c_char, c_int};
    use std::ptr;

    type Argument = *const c_char;

    /// The arguments up to the null that ends them, and the one after it.
    unsafe fn collect(
        registers: *const Argument,
        count: usize,
        stack: *const Argument,
    ) -> (Vec<Argument>, Argument) {
        let mut all = Vec::new();
        let mut at = 0;
        // SAFETY: the caller has ended the list with null.
        unsafe {
            let argument = |at: usize| if at < count { *registers.add(at) } else { *stack.add(at - count) };
            while !argument(at).is_null() {
                all.push(argument(at));
                at += 1;
            }
            all.push(ptr::null());
            (
                all,
                if at + 1 < count {
                    *registers.add(at + 1)
                } else {
                    *stack.add((at + 1).saturating_sub(count))
                },
            )
        }
    }

    unsafe extern "C" fn by_path(
        path: Argument,
        registers: *const Argument,
        stack: *const Argument,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { execve(path, collect(registers, 5, stack).0.as_ptr(), environ()) }
    }

    unsafe extern "C" fn by_name(
        file: Argument,
        registers: *const Argument,
        stack: *const Argument,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe { execvpe(file, collect(registers, 5, stack).0.as_ptr(), environ()) }
    }

    unsafe extern "C" fn with_environment(
        path: Argument,
        registers: *const Argument,
        stack: *const Argument,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let (arguments, envp) = collect(registers, 5, stack);
            execve(path, arguments.as_ptr(), envp.cast())
        }
    }

    macro_rules! variadic {
        ($($name:ident = $work:ident;)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() -> c_int {
                std::arch::naked_asm!(
                    "sub rsp, 56",
                    "mov [rsp], rsi",
                    "mov [rsp + 8], rdx",
                    "mov [rsp + 16], rcx",
                    "mov [rsp + 24], r8",
                    "mov [rsp + 32], r9",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 64]",
                    "call {work}",
                    "add rsp, 56",
                    "ret",
                    work = sym $work,
                )
            }
        )*};
    }

    variadic! {
        execl = by_path;
        execlp = by_name;
        execle = with_environment;
    }
}

unsafe fn spawn(
    child: *mut pid_t,
    path: *const c_char,
    (actions, attributes): (*const c_void, *const c_void),
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let environment = environment(envp);
        let own = match route(AT_FDCWD, path) {
            Route::Kernel => {
                return real::posix_spawn()(
                    child,
                    path,
                    actions,
                    attributes,
                    argv,
                    environment.list.as_ptr(),
                );
            }
            Route::Ours(spot) => match program(&spot, CStr::from_ptr(path)) {
                Ok(program) => program,
                Err(number) => return number,
            },
        };
        let arguments = arguments(&own, argv);
        let path = own.path.as_ptr();
        let done = real::posix_spawn()(
            child,
            path,
            actions,
            attributes,
            arguments.as_ptr(),
            environment.list.as_ptr(),
        );
        if own.fd >= 0 {
            crate::session::close_own(own.fd);
        }
        done
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() {
            return real::posix_spawn()(child, path, actions, attributes, argv, envp);
        }
        spawn(child, path, (actions, attributes), argv, envp)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !config::is_on() || is_inside() || file.is_null() {
            return real::posix_spawnp()(child, file, actions, attributes, argv, envp);
        }
        for path in candidates(file) {
            if matches!(route(AT_FDCWD, path.as_ptr()), Route::Ours(_))
                && super::metadata::faccessat(AT_FDCWD, path.as_ptr(), libc::X_OK, 0) == 0
            {
                return spawn(child, path.as_ptr(), (actions, attributes), argv, envp);
            }
        }
        let environment = environment(envp);
        real::posix_spawnp()(child, file, actions, attributes, argv, environment.list.as_ptr())
    }
}

/// A file that a child is to open: opened here and now, and given to the child as a descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        let Route::Ours(spot) = route(AT_FDCWD, path) else {
            return real::posix_spawn_file_actions_addopen()(actions, fd, path, flags, mode);
        };
        match super::open::open_spot(&spot, flags | libc::O_CLOEXEC, mode) {
            Ok(opened) => libc::posix_spawn_file_actions_adddup2(actions.cast(), opened, fd),
            Err(number) => number,
        }
    }
}

super::also! {
    __fork = fork() -> pid_t;
    __libc_fork = fork() -> pid_t;
    _Fork = fork() -> pid_t;
    __vfork = fork() -> pid_t;
}
