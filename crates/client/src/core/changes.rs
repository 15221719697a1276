//! Notes the loss ids of acknowledged changes as replies arrive. A *loss id* names everything that a server
//! would lose together, and changes when the server has lost it.
//!
//! Every *group* (operations that succeed or fail together) that a server has carried out passes here with
//! its answers. For each object that an operation of the group changes
//! ([`Terms::changed`](shoal_proto::op::Terms)), the reply's loss id is noted ([`crate::inodes`]); a later
//! fsync of that object compares it.
//!
//! ```text
//!   kind of change                  noted for           compared by
//!   size, attributes, layout        the object          fsync of the file (or directory)
//!   an entry                        its directory       fsync of the directory
//!   data, without an open file      the object          fsync of the file
//! ```
//! Data that is written through an open file is noted by [`crate::transfer`]: a datafile's handle does not
//! name its file.

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
            let objects = op.terms().changed.into_iter().flatten();
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
