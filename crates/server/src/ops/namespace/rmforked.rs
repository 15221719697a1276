//! rmforked: remove a forked file with all its subfiles, in one transaction, if no subfile has a fork.
//!
//! ```text
//!   server of dir            server of the file (this one)          servers of the subfiles
//!   entry name ─▶ file       entries 0, 1, … ─▶ subfiles            subfile, empty
//!        removed                  removed with the file                  removed
//! ```
//! The file's own server executes the operation, because it has the list of the subfiles. It requests the
//! entry that leads to the file from the directory's server. If a fork is made meanwhile, either its subfile
//! is gone and the fork is refused, or the whole removal is refused. So no file loses only some of its
//! subfiles, as can happen with single removals (`rm -r`).

use crate::meta::keys;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Dist, Handle, Kind, Name, Status, limits};

/// Bytes of the journal for the removal of one subfile: its inode's row, and that of its entry.
const SUBFILE_BYTES: u64 = 128;

/// The facts of `rmforked`: it frees space, so a full disk does not refuse it. The request does not state the
/// number of subfiles: the cost assumes one, and the journal space the largest number.
pub const FACTS: OpFacts = OpFacts {
    frees: |_| true,
    journal_bytes: when!(Rmforked { .. } => SUBFILE_BYTES * limits::SUBFILES_MAX as u64),
    cost: |_, _| Cost::removed(4),
    ..OpFacts::new(handler!(|ctx| Rmforked { dir, name, object } => run(ctx, (*dir, name), *object)))
};

/// Remove it.
///
/// # Errors
/// `Invalid`: it is no forked file; `Stale`: it is gone; `NotFound`: the name does not lead to it;
/// `NotEmpty`: a subfile has forks.
pub fn run(ctx: &mut Ctx<'_>, (dir, name): (Handle, &Name), object: Handle) -> Result<Answer, Stopped> {
    let (dir, file) = (ctx.object(dir)?, ctx.object(object)?);
    let inode = ctx.directory(file).map_err(no_forked_file)?;
    if !matches!(inode.template.dist, Dist::Forked { .. }) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let (shard, found) = ctx.fact_entry(dir, name)?;
    if found.is_none_or(|found| found.handle != file) {
        return Err(Stopped::Status(Status::NotFound));
    }
    let (name, time) = (name.clone(), ctx.now);
    let subfiles = subfiles(ctx, file)?;
    let mut plan = vec![Action::EntryRemove { shard, dir, name, expect: file, subdirs: -1, time }];
    let removals = subfiles.iter().map(|subfile| (*subfile, subfile.server()));
    plan.extend(removals.map(|(dir, shard)| Action::DirectoryRemove { shard, dir, split: false }));
    plan.push(Action::ForkedRemove { file, subfiles: subfiles.into() });
    actions::carry_out(ctx, plan).map_err(|stopped| match stopped {
        // A single subfile is a part of its file; here the file is not empty.
        Stopped::Status(Status::NotPermitted) => Stopped::Status(Status::NotEmpty),
        other => other,
    })?;
    Ok(Answer::Removed { handle: file, kind: Kind::Directory, orphaned: false })
}

/// The subfiles that are there.
fn subfiles(ctx: &Ctx<'_>, file: Handle) -> Result<Vec<Handle>, Stopped> {
    // A scan does not show the changes of the request's earlier operations.
    if ctx.own_under(&keys::entries(file)).next().is_some() {
        return Err(Stopped::Status(Status::NotSupported));
    }
    let entries = actions::entries(ctx, file)?;
    if entries.iter().any(|(_, _, entry)| entry.kind != Kind::Directory) {
        return Err(Stopped::Status(Status::NotEmpty));
    }
    Ok(entries.into_iter().map(|(_, _, entry)| entry.handle).collect())
}

fn no_forked_file(stopped: Stopped) -> Stopped {
    match stopped {
        Stopped::Status(Status::NotDirectory) => Stopped::Status(Status::Invalid),
        other => other,
    }
}
