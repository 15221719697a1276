//! The loss ids of acknowledged changes, noted where replies are taken.
//!
//! Every group that a server has carried out passes here with its answers. For each object that an operation
//! of it changes, the reply's loss id is noted ([`crate::inodes`]); a later fsync of that object compares it.
//! An operation that is to be noted so needs a line in [`changed`], and nothing elsewhere.
//!
//! ```text
//!   size, attributes, layout        the object          fsync of the file (or directory)
//!   an entry                        its directory       fsync of the directory
//!   data, without an open file      the object
//! ```
//! Data that is written through an open file is noted there ([`crate::transfer`]): a datafile's handle does
//! not name its file.

use super::Core;
use shoal_proto::message::Loss;
use shoal_proto::op::Answer;
use shoal_proto::{Handle, Op, ServerId};

impl Core {
    /// A server has carried out a group.
    pub(crate) fn note_changes(&self, server: ServerId, ops: &[Op], answers: &[Answer], loss: Loss) {
        if loss.is_nothing() {
            return;
        }
        let mut current = Handle::CURRENT;
        for (op, answer) in ops.iter().zip(answers) {
            let objects = changed(op).into_iter().flatten();
            let objects = objects.map(|object| if object == Handle::CURRENT { current } else { object });
            for object in objects.filter(|&object| object != Handle::CURRENT) {
                self.inodes.borrow_mut().changed(object, server, loss);
            }
            current = match answer {
                Answer::Made { attr, .. } | Answer::Attr { attr, .. } => attr.handle,
                Answer::Looked { handle, .. } => *handle,
                _ => current,
            };
        }
    }
}

/// The objects that an operation changes, as far as an fsync of them is to find that the change was lost.
fn changed(op: &Op) -> [Option<Handle>; 2] {
    match op {
        Op::Setattr { object, .. }
        | Op::Setxattr { object, .. }
        | Op::Removexattr { object, .. }
        | Op::Setlayout { object, .. }
        | Op::Truncate { object, .. }
        | Op::Unstuff { object } => [Some(*object), None],
        Op::Create { dir, .. }
        | Op::Mknod { dir, .. }
        | Op::Symlink { dir, .. }
        | Op::Mkdir { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Link { dir, .. }
        | Op::Crdirent { dir, .. }
        | Op::Rmdirent { dir, .. } => [Some(*dir), None],
        Op::Rename { from_dir, to_dir, .. } => [Some(*from_dir), (from_dir != to_dir).then_some(*to_dir)],
        // The files of many groups; those of an open file are noted there.
        Op::Write { transfer, .. } => [(transfer.stream == Handle::CURRENT).then_some(Handle::CURRENT), None],
        _ => [None, None],
    }
}
