//! Galley's calls: a thin layer over the crate `galley`.
//!
//! ```text
//!   gfs_read_strided(fork, buf, …) ── shape ── Galley::read_runs ── each run ─▶ buf + its place
//! ```
//! A process has one Galley, which `gfs_init` begins. It has a *world* of its own: an event loop with its
//! clock, sockets and files, which one thread at a time runs. So its calls take turns. No id is given twice
//! in a process, not even after a second `gfs_init`. Ids from before a `fork` are invalid in the child.
//! `gfs_errno` is the number of the thread's last error, as `shoal_error_number` returns it; the words of
//! that error are kept too.
//!
//! **Memory.** Places in memory count from `buf`, and may be negative. The ranges that the arguments name
//! must be memory of the caller. No other byte is read or written, so lists may name places that lie far
//! apart.
//!
//! **Non-blocking calls.** An operation makes progress while any thread is in a call of Galley, and
//! `gfs_wait` completes it. A write copies its bytes when it begins; a read's buffer must stay until
//! `gfs_wait` has returned. After `ETIMEDOUT` of `gfs_wait` the operation goes on, and has its buffer still.

use crate::call::{self, Res, call, failure, slice, there};
use libc::{c_char, c_int, c_uint};
use shoal_client::Client;
use shoal_config::address::CommandTarget;
use shoal_env::real::Runtime;
use shoal_galley::{FileId, ForkId, Galley, NextIds, OperationHandle};
use shoal_proto::{Owner, ServerId};
use shoal_vfs::Connect as _;
use shoal_world::{Driven, World};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod drive;
mod transfers;
pub mod vectors;

/// Time for each call, unless the thread has its own.
const TIMEOUT: Duration = Duration::from_secs(120);
/// After a call's end, for the errors of its requests.
const GRACE: Duration = Duration::from_millis(50);
/// Handles of non-blocking operations, at most.
const HANDLES_MAX: usize = 1 << 16;
/// The file system of `gfs_init(NULL, …)`.
const ADDRESS: &str = "SHOAL_ADDRESS";

/// A handle of non-blocking operations (`gfs_handle`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HandleId {
    /// Its id; 0 is none.
    pub id: u64,
}

struct Gfs {
    handles: BTreeMap<u64, OperationHandle>,
    galley: Option<Galley<Client>>,
    runtime: Rc<Runtime>,
}

static WORLD: World<Gfs> = World::new();
/// The process whose state the world has; 0: of none yet.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The ids that are given next. A process gives an id once, over all `gfs_init`s; its child goes on.
static NEXT_FILE: AtomicU32 = AtomicU32::new(0);
static NEXT_FORK: AtomicU32 = AtomicU32::new(0);
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

/// Whether the world is another process's: this one is its child.
fn is_childs() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process != 0 && process != std::process::id()
}

impl Driven for Gfs {
    fn runtime(&self) -> &Rc<Runtime> {
        &self.runtime
    }
}

impl Gfs {
    fn new() -> Gfs {
        let runtime = Rc::new(Runtime::shared("gfs"));
        Gfs { handles: BTreeMap::new(), galley: None, runtime }
    }

    /// Whether an operation was not waited for: it may write into its caller's buffer.
    fn has_operations(&self) -> bool {
        self.handles.values().any(OperationHandle::has_operation)
    }

    fn galley(&self) -> Res<Galley<Client>> {
        self.galley.clone().ok_or_else(|| failure(libc::EBADF, "gfs_init was not called"))
    }

    fn handle(&self, handle: HandleId) -> Res<OperationHandle> {
        let found = self.handles.get(&handle.id).cloned();
        found.ok_or_else(|| failure(libc::EBADF, format!("{} is no handle", handle.id)))
    }
}

fn gfs<T: call::Failed>(function: &str, work: impl FnOnce(&mut Gfs, Instant) -> Res<T>) -> T {
    call(function, || {
        if is_childs() {
            return Err(failure(
                libc::EBADF,
                "Galley is the parent process's: a child calls gfs_init itself",
            ));
        }
        let patience = call::patience(TIMEOUT);
        let until = Instant::now() + patience;
        let done = WORLD.enter(patience, Gfs::new, |mut gfs| work(&mut gfs, until));
        done.unwrap_or_else(|_busy| Err(failure(libc::ETIMEDOUT, "other threads' calls took the whole time")))
    })
}

fn owner() -> Owner {
    crate::session::owner(0o755)
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name(name: *const c_char) -> Res<Vec<u8>> {
    // SAFETY: as the caller promises.
    Ok(unsafe { call::bytes(name) }?.to_vec())
}

fn file(id: c_int) -> FileId {
    FileId(u32::try_from(id).unwrap_or(u32::MAX))
}

fn fork(id: c_int) -> ForkId {
    ForkId(u32::try_from(id).unwrap_or(u32::MAX))
}

fn text<'a>(bytes: &'a [u8], what: &str) -> Res<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| failure(libc::EINVAL, format!("the {what} is not UTF-8")))
}

/// Begin: reach the file system. Again: all ids of before are invalid; refused while operations are not
/// waited for. A child of `fork` begins anew, before it has threads. Null: the address in
/// the environment's `SHOAL_ADDRESS`, and the usual places of its key.
///
/// # Safety
/// `address` and `key` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_init(address: *const c_char, key: *const c_char) -> c_int {
    if is_childs() {
        // SAFETY: after `fork` this is the only thread, and it is not in a call.
        unsafe { WORLD.forget() };
    }
    PROCESS.store(std::process::id(), Ordering::Release);
    gfs("gfs_init", |gfs, until| {
        if gfs.has_operations() {
            let words = "operations were not waited for, and have their callers' buffers: call gfs_wait";
            return Err(failure(libc::EBUSY, words));
        }
        let address = match address.is_null() {
            true => std::env::var(ADDRESS).map_err(|_| {
                failure(libc::EINVAL, format!("no address, and no {ADDRESS} in the environment"))
            })?,
            // SAFETY: as the caller promises.
            false => text(unsafe { call::bytes(address) }?, "address")?.to_owned(),
        };
        let key = match key.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(Path::new(text(unsafe { call::bytes(key) }?, "key's path")?)),
        };
        let place = CommandTarget::find(&address, key)?;
        let options = shoal_world::client(&place.address.to_string(), &place.key)?;
        let env = gfs.runtime.env();
        let end = env.now() + until.saturating_duration_since(Instant::now());
        let connected = gfs.runtime.block_on(env.deadline(end, options.connect(env.clone())));
        let late = |_| failure(libc::ETIMEDOUT, format!("no server of {address} was reached in time"));
        let client = connected.map_err(late)??;
        gfs.handles.clear();
        let (file, fork) = (NEXT_FILE.load(Ordering::Relaxed), NEXT_FORK.load(Ordering::Relaxed));
        gfs.galley = Some(Galley::gfs_init_after(env, client, NextIds { file, fork }));
        Ok(0)
    })
}

/// Create a file with `num_iops` subfiles (0: one on each server), on the servers of `iop_list`, or of the
/// file system's choice.
///
/// # Safety
/// `file_name` is null or a C string; `iop_list` is null or has `num_iops` items.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_create_file(
    file_name: *const c_char,
    iop_list: *const c_int,
    num_iops: c_int,
) -> c_int {
    gfs("gfs_create_file", |gfs, until| {
        // SAFETY: as the caller promises.
        let path = unsafe { name(file_name) }?;
        let wrong = |what: &str, value: c_int| {
            failure(libc::EINVAL, format!("{what} is {value}, and lies between 0 and {}", u16::MAX))
        };
        let count = u16::try_from(num_iops).map_err(|_| wrong("num_iops", num_iops))?;
        let servers = match iop_list.is_null() || count == 0 {
            true => None,
            false => {
                // SAFETY: as the caller promises.
                let list = unsafe { slice(iop_list, usize::from(count)) }?;
                let server = |&id: &c_int| u16::try_from(id).map(ServerId).map_err(|_| wrong("a server", id));
                Some(list.iter().map(server).collect::<Res<Vec<_>>>()?)
            }
        };
        gfs.drive(until, async |galley| {
            galley.gfs_create_file(&path, servers.as_deref(), count, owner()).await
        })?;
        Ok(0)
    })
}

/// Open a file: its id.
///
/// # Safety
/// `file_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_open_file(file_name: *const c_char) -> c_int {
    gfs("gfs_open_file", |gfs, until| {
        // SAFETY: as the caller promises.
        let path = unsafe { name(file_name) }?;
        Ok(gfs.drive(until, async |galley| galley.gfs_open_file(&path).await)?.0 as c_int)
    })
}

/// Close a file.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_close_file(fid: c_int) -> c_int {
    gfs("gfs_close_file", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_close_file(file(fid))).map(|()| 0)
    })
}

/// Delete a file, its subfiles and forks.
///
/// # Safety
/// `file_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_delete_file(file_name: *const c_char) -> c_int {
    gfs("gfs_delete_file", |gfs, until| {
        // SAFETY: as the caller promises.
        let path = unsafe { name(file_name) }?;
        gfs.drive(until, async |galley| galley.gfs_delete_file(&path).await).map(|()| 0)
    })
}

/// Subfiles of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_subfiles(fid: c_int) -> c_int {
    gfs(
        "gfs_subfiles",
        |gfs, until| Ok(gfs.drive(until, async |galley| galley.subfiles(file(fid)))? as c_int),
    )
}

/// Create a fork.
///
/// # Safety
/// `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_create_fork(fid: c_int, subfile: c_uint, fork_name: *const c_char) -> c_int {
    gfs("gfs_create_fork", |gfs, until| {
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        let work =
            async |galley: &Galley<Client>| galley.gfs_create_fork(file(fid), subfile, &fork_name).await;
        gfs.drive(until, work).map(|()| 0)
    })
}

/// Open a fork: its id.
///
/// # Safety
/// `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_open_fork(fid: c_int, subfile: c_uint, fork_name: *const c_char) -> c_int {
    gfs("gfs_open_fork", |gfs, until| {
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        let work = async |galley: &Galley<Client>| galley.gfs_open_fork(file(fid), subfile, &fork_name).await;
        Ok(gfs.drive(until, work)?.0 as c_int)
    })
}

/// Open any file of the file system as one fork, for the structured calls: its id.
///
/// # Safety
/// `file_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_open_linear(file_name: *const c_char) -> c_int {
    gfs("gfs_open_linear", |gfs, until| {
        // SAFETY: as the caller promises.
        let path = unsafe { name(file_name) }?;
        Ok(gfs.drive(until, async |galley| galley.open_linear(&path).await)?.0 as c_int)
    })
}

/// Close a fork.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_close_fork(fork_id: c_int) -> c_int {
    gfs("gfs_close_fork", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_close_fork(fork(fork_id)).await).map(|()| 0)
    })
}

/// Delete a fork.
///
/// # Safety
/// `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_delete_fork(fid: c_int, subfile: c_uint, fork_name: *const c_char) -> c_int {
    gfs("gfs_delete_fork", |gfs, until| {
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        let work =
            async |galley: &Galley<Client>| galley.gfs_delete_fork(file(fid), subfile, &fork_name).await;
        gfs.drive(until, work).map(|()| 0)
    })
}

/// Reserve space for a fork.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_extend_fork(fork_id: c_int, size: u64) -> c_int {
    gfs("gfs_extend_fork", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_extend_fork(fork(fork_id), size).await).map(|()| 0)
    })
}

/// Create a fork of this name in every subfile.
///
/// # Safety
/// `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_all_create(fid: c_int, fork_name: *const c_char) -> c_int {
    gfs("gfs_all_create", |gfs, until| {
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        gfs.drive(until, async |galley| galley.gfs_all_create(file(fid), &fork_name).await).map(|()| 0)
    })
}

/// Open the fork of this name in every subfile: how many.
///
/// # Safety
/// `fork_ids` has an item for each subfile; `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_all_open(fid: c_int, fork_ids: *mut c_int, fork_name: *const c_char) -> c_int {
    gfs("gfs_all_open", |gfs, until| {
        there(fork_ids)?;
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        let opened = gfs.drive(until, async |galley| galley.gfs_all_open(file(fid), &fork_name).await)?;
        for (at, id) in opened.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe { fork_ids.add(at).write(id.0 as c_int) };
        }
        Ok(opened.len() as c_int)
    })
}

/// Close the forks that `gfs_all_open` opened.
///
/// # Safety
/// `fork_ids` has an item for each subfile of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_all_close(fid: c_int, fork_ids: *const c_int) -> c_int {
    gfs("gfs_all_close", |gfs, until| {
        let count = gfs.drive(until, async |galley| galley.subfiles(file(fid)))?;
        // SAFETY: as the caller promises.
        let ids = unsafe { slice(fork_ids, count as usize) }?;
        let ids: Vec<ForkId> = ids.iter().map(|&id| fork(id)).collect();
        gfs.drive(until, async |galley| galley.gfs_all_close(&ids).await).map(|()| 0)
    })
}

/// Delete the fork of this name in every subfile.
///
/// # Safety
/// `fork_name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_all_delete(fid: c_int, fork_name: *const c_char) -> c_int {
    gfs("gfs_all_delete", |gfs, until| {
        // SAFETY: as the caller promises.
        let fork_name = unsafe { name(fork_name) }?;
        gfs.drive(until, async |galley| galley.gfs_all_delete(file(fid), &fork_name).await).map(|()| 0)
    })
}

/// Make a fork durable.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_flush_fork(fork_id: c_int) -> c_int {
    gfs("gfs_flush_fork", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_flush_fork(fork(fork_id)).await).map(|()| 0)
    })
}

/// Make all forks of a subfile durable, and their names.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_flush_subfile(fid: c_int, subfile: c_uint) -> c_int {
    gfs("gfs_flush_subfile", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_flush_subfile(file(fid), subfile).await).map(|()| 0)
    })
}

/// Make all durable.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_flush_disk() -> c_int {
    gfs("gfs_flush_disk", |gfs, until| {
        gfs.drive(until, async |galley| galley.gfs_flush_disk().await).map(|()| 0)
    })
}

/// A handle of non-blocking operations; id 0: there are too many.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_new_handle() -> HandleId {
    let made: i64 = gfs("gfs_new_handle", |gfs, _| {
        if gfs.handles.len() >= HANDLES_MAX {
            return Err(failure(libc::EMFILE, format!("{HANDLES_MAX} handles are there")));
        }
        let handle = gfs.galley()?.gfs_new_handle();
        let id = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        gfs.handles.insert(id, handle);
        Ok(id as i64)
    });
    HandleId { id: u64::try_from(made).unwrap_or(0) }
}

/// Give a handle back. Its operation goes on: it must have been waited for.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_free_handle(handle: HandleId) -> c_int {
    gfs("gfs_free_handle", |gfs, _| {
        let operation = gfs.handle(handle)?;
        if operation.has_operation() {
            return Err(failure(libc::EBUSY, "the handle has an operation that was not waited for"));
        }
        gfs.handles.remove(&handle.id);
        Ok(0)
    })
}

/// Whether the handle's operation is done: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_test(handle: HandleId) -> c_int {
    gfs("gfs_test", |gfs, until| {
        let (operation, env) = (gfs.handle(handle)?, gfs.runtime.env());
        let done = gfs.drive(until, async |galley| {
            // Answers that arrived meanwhile are taken first.
            env.sleep(Duration::ZERO).await;
            galley.gfs_test(&operation)
        })?;
        Ok(c_int::from(done))
    })
}

/// Wait for the handle's operation: the bytes that it moved.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_wait(handle: HandleId) -> i64 {
    gfs("gfs_wait", |gfs, until| {
        let operation = gfs.handle(handle)?;
        let galley = gfs.galley()?;
        // Its error is the operation's, which has ended: not that of this call's deadline.
        let done = gfs.driven(until, async |galley| galley.gfs_wait(&operation).await)?;
        done.map(|bytes| bytes as i64).map_err(|code| drive::failed(&galley, code, false))
    })
}

crate::version::since_1_0! {
    gfs_init, gfs_create_file, gfs_open_file, gfs_close_file, gfs_delete_file, gfs_subfiles,
    gfs_create_fork, gfs_open_fork, gfs_open_linear, gfs_close_fork, gfs_delete_fork,
    gfs_extend_fork, gfs_all_create, gfs_all_open, gfs_all_close, gfs_all_delete, gfs_flush_fork,
    gfs_flush_subfile, gfs_flush_disk, gfs_new_handle, gfs_free_handle, gfs_test, gfs_wait,
}
