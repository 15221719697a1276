//! Finds an object again: begins at the descriptor of a parent, and follows names.

use super::calls::stale;
use shoal_env::{HostFacts, HostFiles, HostNode, WallTime};
use shoal_proto::{Handle, Name, Status};
use std::io;

/// Which object it is, among all that the host ever had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// Numbers are used again; two objects of one number have other births.
    btime: Option<WallTime>,
}

impl Identity {
    pub(super) fn of(facts: &HostFacts) -> Identity {
        Identity { dev: facts.dev, ino: facts.ino, btime: facts.btime }
    }

    /// The part by which a file system distinguishes its objects at one moment.
    pub(super) fn key(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }
}

/// A name on the way, and the object that is to be found there.
pub(super) struct Step {
    pub(super) handle: Handle,
    pub(super) name: Name,
    pub(super) identity: Identity,
}

/// A node that was found on the way.
pub(super) type Found = Vec<(Handle, HostNode)>;

/// See the module.
pub(super) struct Way {
    pub(super) from: HostNode,
    /// The last step is the first.
    pub(super) steps: Vec<Step>,
}

impl Way {
    /// Go. The object, and all that were found on the way.
    ///
    /// # Errors
    /// `Stale`: a name does not lead to its object any more.
    pub(super) fn walk(self, host: &dyn HostFiles) -> io::Result<(HostNode, Found)> {
        let (mut at, mut found) = (self.from, Found::new());
        for step in self.steps.into_iter().rev() {
            let (node, facts) = host.lookup(&at, step.name.as_bytes()).map_err(lost)?;
            if Identity::of(&facts) != step.identity {
                return Err(stale());
            }
            found.push((step.handle, node.clone()));
            at = node;
        }
        Ok((at, found))
    }
}

fn lost(error: io::Error) -> io::Error {
    let status = error.raw_os_error().and_then(Status::of_errno);
    if matches!(status, Some(Status::NotFound | Status::NotDirectory)) { stale() } else { error }
}
