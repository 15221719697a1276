//! The client's operations. Most files hold one operation and have its name. `many`, `walk` and `directory`
//! hold the parts that several operations use; `at` has the operations by path, `stepwise` those without
//! compounds, `admin` those of administrators.

mod admin;
mod at;
mod create;
mod create_many;
mod directory;
mod fsyncdir;
mod getattr;
mod hold;
mod link;
mod lock;
mod lookup;
mod make;
mod many;
mod open;
mod open_many;
mod read_many;
mod readdir;
mod readlink;
mod remove_many;
mod rename;
mod setattr;
mod setlayout;
mod small;
mod stat_many;
mod statfs;
mod stepwise;
mod truncate;
mod unlink;
mod walk;
mod write_many;
mod xattr;

pub use admin::OfServers;
pub(crate) use directory::Listener;
pub(crate) use getattr::logical_size;
pub use many::Which;
pub use open::StreamCounts;
pub use read_many::Contents;
pub use readdir::{DirStream, UnorderedDirStream};
pub use setlayout::{LOST_AND_FOUND, NOT_LOST_AND_FOUND};
pub(crate) use stepwise::Inherited;
pub use write_many::FileWrite;

use shoal_proto::op::Answer;
use shoal_proto::{Attr, Capability, ChangeCount};

/// The attributes among answers, the last if there are several.
fn attr_among(answers: &[Answer]) -> Option<Attr> {
    answers.iter().rev().find_map(|answer| match answer {
        Answer::Attr { attr, .. } | Answer::Made { attr, .. } => Some(attr.clone()),
        Answer::Looked { attr, .. } => attr.clone(),
        _ => None,
    })
}

/// The change count among answers, of the stream of the object that they are about.
fn count_among(answers: &[Answer]) -> ChangeCount {
    let count = answers.iter().rev().find_map(|answer| match answer {
        Answer::Attr { count, .. } | Answer::Made { count, .. } => Some(*count),
        _ => None,
    });
    count.unwrap_or(ChangeCount::NONE)
}

/// The capability among answers.
pub(crate) fn capability_among(answers: &[Answer]) -> Option<Capability> {
    answers.iter().rev().find_map(|answer| match answer {
        Answer::Made { capability, .. } => *capability,
        _ => None,
    })
}
