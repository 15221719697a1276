//! The operations, one a file, named by their verb.

mod admin;
mod at;
mod create;
mod directory;
mod getattr;
mod link;
mod lookup;
mod make;
mod open;
mod readdir;
mod readlink;
mod rename;
mod setattr;
mod setlayout;
mod small;
mod statfs;
mod truncate;
mod unlink;
mod walk;
mod xattr;

pub(crate) use directory::Listener;
pub(crate) use getattr::logical_size;
pub use readdir::DirStream;

use shoal_proto::op::Answer;
use shoal_proto::{Attr, Capability};

/// The attributes among answers, the last if there are several.
fn attr_among(answers: &[Answer]) -> Option<Attr> {
    answers.iter().rev().find_map(|answer| match answer {
        Answer::Attr { attr } | Answer::Made { attr, .. } => Some(attr.clone()),
        Answer::Looked { attr, .. } => attr.clone(),
        _ => None,
    })
}

/// The capability among answers.
pub(crate) fn capability_among(answers: &[Answer]) -> Option<Capability> {
    answers.iter().rev().find_map(|answer| match answer {
        Answer::Made { capability, .. } => *capability,
        _ => None,
    })
}
