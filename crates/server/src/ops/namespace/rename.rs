//! rename: move an entry, replace one, or swap two.
//!
//! ```text
//!   plain                                          exchange
//!   from_dir/from_name ─▶ S    removed             from_dir/from_name ─▶ T
//!   to_dir/to_name     ─▶ T    ─▶ S                to_dir/to_name     ─▶ S
//!   T loses a name, or is removed if it is an empty directory
//! ```
//! Up to five servers take part: those of both directories (of split ones, of the shards that have the
//! names), of S, of T, and server 0; if T is a split directory, also the servers of its shards. The operation
//! is one plan of actions. Each action states its expectation, so facts of other servers may be old.
//!
//! **Invariant: the namespace is a tree.** A directory that gets another parent must not be an ancestor of
//! it. The plan holds the collection's one rename lock while the handler walks the stored parents up to the
//! root, and until all other servers have prepared. A directory with an entry is not removed.
//! [`crate::txn::rename_lock`] has the proof (tests:
//! `overlapping_transactions_leave_a_tree_with_right_counts`,
//! `crossing_moves_form_no_loop_while_the_coordinator_of_one_is_cut_off_or_dead_and_others_go_on`).

use super::rmdir;
use super::unlink::lose_name;
use crate::meta::rows::Dirent;
use crate::ops::make::subdirs;
use crate::ops::{OpFacts, forks, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Handle, Held, Kind, Name, ServerId, Status};

/// The facts of `rename`: a handler with the default cost of 1. The server of the source's shard begins as
/// the directory's server; `run` corrects it.
pub const FACTS: OpFacts = OpFacts::new(
    handler!(|ctx| Rename { from_dir, from_name, to_dir, to_name, no_replace, exchange, held } => {
        run(ctx, Move {
            from: (*from_dir, from_name),
            from_shard: from_dir.server(),
            to: (*to_dir, to_name),
            no_replace: *no_replace,
            exchange: *exchange,
            held,
        })
    }),
);

/// Longest way from a directory to the root that is walked.
const DEPTH_MAX: usize = 4096;

/// The request.
pub struct Move<'a> {
    /// Where the entry is.
    pub from: (Handle, &'a Name),
    /// The server of the directory, or of its shard, that holds it: found out here.
    pub from_shard: ServerId,
    /// Where it is to be.
    pub to: (Handle, &'a Name),
    /// Fail if the target exists.
    pub no_replace: bool,
    /// Swap.
    pub exchange: bool,
    /// The files that the client holds open.
    pub held: &'a Held,
}

/// Move it. The answer is `Removed` if an entry was replaced, else `Done`.
///
/// # Errors
/// `NotFound`; `Exists` (with `no_replace`); `Invalid` for both flags at once, and for a directory that would
/// come to lie in itself; `NotDirectory`, `IsDirectory`, `NotEmpty` for an object that cannot be replaced;
/// `Loop` in a tree deeper than 4,096 levels; in forked files as [`forks::may_move`].
pub fn run(ctx: &mut Ctx<'_>, asked: Move<'_>) -> Result<Answer, Stopped> {
    if asked.no_replace && asked.exchange {
        return Err(Stopped::Status(Status::Invalid));
    }
    let from = (ctx.object(asked.from.0)?, asked.from.1);
    let to = (ctx.object(asked.to.0)?, asked.to.1);
    let mut asked = Move { from, to, ..asked };
    let parent = ctx.directory_of(to.0, to.1)?;
    if !ctx.knows_followed && from.0.server() != ctx.identity.id {
        let dist = ctx.fact_attr(from.0)?.template.dist;
        ctx.must_know(dist)?;
    }
    forks::may_move(ctx, from, (to.0, &parent))?;
    let (from_shard, moved) = ctx.fact_entry(from.0, from.1)?;
    asked.from_shard = from_shard;
    let moved = moved.ok_or(Stopped::Status(Status::NotFound))?;
    match ctx.entry(to.0, to.1)? {
        None if asked.exchange => Err(Stopped::Status(Status::NotFound)),
        None => plain(ctx, &asked, &moved, None),
        Some(_) if asked.no_replace => Err(Stopped::Status(Status::Exists)),
        // Two names of one object: nothing is done, and both stay.
        Some(found) if found.handle == moved.handle => Ok(Answer::Done {}),
        Some(found) if asked.exchange => exchange(ctx, &asked, &moved, &found),
        Some(found) => plain(ctx, &asked, &moved, Some(&found)),
    }
}

fn plain(
    ctx: &mut Ctx<'_>,
    asked: &Move<'_>,
    moved: &Dirent,
    replaced: Option<&Dirent>,
) -> Result<Answer, Stopped> {
    let mut plan = Vec::with_capacity(5);
    let mut walk = Walk::default();
    if moved.kind == Kind::Directory && asked.from.0 != asked.to.0 {
        walk.must_not_pass(ctx, asked.to.0, moved.handle)?;
        plan.push(Action::RenameLock {});
    }
    let (mut lost, mut lost_actions, mut lost_subdirs) = (None, Vec::new(), 0);
    if let Some(found) = replaced {
        may_replace(asked, moved, found)?;
        lost_subdirs = subdirs(found.kind);
        let (actions, answer) = removal(ctx, found, asked.held)?;
        (lost_actions, lost) = (actions, Some(answer));
    }
    let (from, to, time) = (asked.from, asked.to, ctx.now);
    plan.push(Action::EntryRemove {
        shard: asked.from_shard,
        dir: from.0,
        name: from.1.clone(),
        expect: moved.handle,
        subdirs: -subdirs(moved.kind),
        time,
    });
    plan.push(Action::EntryPut {
        shard: ctx.identity.id,
        dir: to.0,
        name: to.1.clone(),
        handle: moved.handle,
        kind: moved.kind,
        expect: replaced.map(|found| found.handle),
        subdirs: subdirs(moved.kind) - lost_subdirs,
        time,
    });
    plan.push(follow(ctx, moved, from.0, to.0));
    plan.extend(lost_actions);
    walk.carry_out(ctx, plan)?;
    Ok(lost.unwrap_or(Answer::Done {}))
}

fn exchange(ctx: &mut Ctx<'_>, asked: &Move<'_>, a: &Dirent, b: &Dirent) -> Result<Answer, Stopped> {
    let (from, to, time) = (asked.from, asked.to, ctx.now);
    let mut plan = Vec::with_capacity(5);
    let mut walk = Walk::default();
    if from.0 != to.0 && (a.kind == Kind::Directory || b.kind == Kind::Directory) {
        for (moved, dir) in [(a, to.0), (b, from.0)] {
            if moved.kind == Kind::Directory {
                walk.must_not_pass(ctx, dir, moved.handle)?;
            }
        }
        plan.push(Action::RenameLock {});
    }
    for (shard, (dir, name), old, new) in [(asked.from_shard, from, a, b), (ctx.identity.id, to, b, a)] {
        plan.push(Action::EntryPut {
            shard,
            dir,
            name: name.clone(),
            handle: new.handle,
            kind: new.kind,
            expect: Some(old.handle),
            subdirs: subdirs(new.kind) - subdirs(old.kind),
            time,
        });
    }
    plan.push(follow(ctx, a, from.0, to.0));
    plan.push(follow(ctx, b, to.0, from.0));
    walk.carry_out(ctx, plan)?;
    Ok(Answer::Done {})
}

/// Whether `moved` may take the place of `found`.
fn may_replace(asked: &Move<'_>, moved: &Dirent, found: &Dirent) -> Result<(), Stopped> {
    match (moved.kind == Kind::Directory, found.kind == Kind::Directory) {
        (true, false) => Err(Stopped::Status(Status::NotDirectory)),
        (false, true) => Err(Stopped::Status(Status::IsDirectory)),
        // It holds the very entry that is to take its place.
        (true, true) if found.handle == asked.from.0 => Err(Stopped::Status(Status::NotEmpty)),
        _ => Ok(()),
    }
}

/// The actions on the replaced object, and the answer.
fn removal(ctx: &Ctx<'_>, found: &Dirent, held: &Held) -> Result<(Vec<Action>, Answer), Stopped> {
    if found.kind != Kind::Directory {
        let lost = lose_name(ctx, found, held)?;
        return Ok((vec![lost.action], lost.answer));
    }
    let answer = Answer::Removed { handle: found.handle, kind: found.kind, orphaned: false };
    Ok((rmdir::removal(ctx, found.handle)?, answer))
}

/// The moved object's own change: its time, and a directory's parent.
fn follow(ctx: &Ctx<'_>, moved: &Dirent, from: Handle, to: Handle) -> Action {
    let (object, time) = (moved.handle, ctx.now);
    if moved.kind == Kind::Directory && from != to {
        Action::Reparent { dir: object, expect: from, parent: to, time }
    } else {
        Action::Touch { object, time }
    }
}

/// The ways walked from directories to the root.
#[derive(Default)]
struct Walk {
    /// A way led over another server, so that it holds only if it is walked under the rename lock.
    left_server: bool,
}

impl Walk {
    /// Fail if `moved` is `dir` or one of its ancestors.
    fn must_not_pass(&mut self, ctx: &Ctx<'_>, dir: Handle, moved: Handle) -> Result<(), Stopped> {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == moved {
                return Err(Stopped::Status(Status::Invalid));
            }
            if at == Handle::ROOT {
                return Ok(());
            }
            self.left_server |= at.server() != ctx.identity.id;
            at = ctx.fact_attr(at)?.parent;
        }
        Err(Stopped::Status(Status::Loop))
    }

    /// As [`actions::carry_out`]; but a plan that rests on parents read from other servers is a transaction
    /// even if all of its actions are this server's, so that the handler runs again under the rename lock.
    fn carry_out(&self, ctx: &mut Ctx<'_>, plan: Vec<Action>) -> Result<(), Stopped> {
        if self.left_server { actions::plan(ctx, plan) } else { actions::carry_out(ctx, plan) }
    }
}
