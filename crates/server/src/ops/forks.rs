//! The rules of a forked file and its subfiles.
//!
//! ```text
//!   data/            template Forked { subfiles: 3 }       the forked file
//!   ├── 0/           template Fork                         a subfile: whole on one server, never split
//!   │   ├── keys     template Fork                         a fork: a file of one stream, beside its entry
//!   │   └── power
//!   ├── 1/
//!   └── 2/
//! ```
//! **Invariant: a forked file has no entries but its subfiles, and a subfile none but forks** (tests:
//! `what_a_forked_file_does_not_allow_is_refused_with_the_documented_number`,
//! `the_rules_of_moves_links_and_new_objects_hold_whichever_servers_they_are_on`). So the template of a
//! directory alone decides which entries it may get, and each operation on an entry has that template at
//! hand. A fork has one name, because a second name could be on another server.
//!
//! An empty subfile can be removed, because programs remove trees from their leaves (`rm -r`). The forked
//! file is incomplete then: it can be removed, or checked and repaired.
//!
//! Source: Galley's three-dimensional files.

use crate::meta::rows::Inode;
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Dist, Handle, Kind, Name, Status};

/// Whether an object of this kind may be made in this directory.
///
/// # Errors
/// `NotPermitted`: anything in a forked file, and anything but a file in a subfile.
pub fn may_make(parent: &Inode, kind: Kind) -> Result<(), Stopped> {
    match parent.template.dist {
        Dist::Forked { .. } => Err(Stopped::Status(Status::NotPermitted)),
        Dist::Fork if kind != Kind::File => Err(Stopped::Status(Status::NotPermitted)),
        _ => Ok(()),
    }
}

/// Whether the entry `name` may move from a directory to the directory `to`.
///
/// # Errors
/// `NotPermitted`: a subfile, or a place for one; `CrossDevice`: out of a subfile, or into it.
pub fn may_move(
    ctx: &Ctx<'_>,
    (from_dir, name): (Handle, &Name),
    (to_dir, to): (Handle, &Inode),
) -> Result<(), Stopped> {
    let is_forked = |dist| matches!(dist, Dist::Forked { .. });
    if is_forked(to.template.dist) {
        return Err(Stopped::Status(Status::NotPermitted));
    }
    let is_out_of_fork = match from_dir.server() == ctx.identity.id {
        true => {
            let from = ctx.directory(from_dir)?.template.dist;
            if is_forked(from) {
                return Err(Stopped::Status(Status::NotPermitted));
            }
            from == Dist::Fork
        }
        // Of another server's directory the fact of its entry says it ([`may_leave`]).
        false => ctx.fact_entry(from_dir, name).map(|_| false)?,
    };
    if from_dir != to_dir && (is_out_of_fork || to.template.dist == Dist::Fork) {
        return Err(Stopped::Status(Status::CrossDevice));
    }
    Ok(())
}

/// Whether an entry of this directory may move to a directory of another server.
///
/// # Errors
/// As [`may_move`].
pub fn may_leave(dir: &Inode) -> Result<(), Stopped> {
    match dir.template.dist {
        Dist::Forked { .. } => Err(Stopped::Status(Status::NotPermitted)),
        Dist::Fork => Err(Stopped::Status(Status::CrossDevice)),
        Dist::Basic | Dist::SimpleStripe { .. } | Dist::Container { .. } | Dist::Composed { .. } => Ok(()),
    }
}
