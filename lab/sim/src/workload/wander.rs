//! Moves directories into each other: no directory may be lost, and no loop may form.

use super::scene::WANDERERS;
use super::{Worker, name};
use shoal_client::RenameFlags;
use shoal_proto::Status;

impl Worker {
    /// Move a wandering directory from where it is to some other place: into another, into one of its own, or
    /// nowhere.
    pub(super) async fn wander(&mut self) {
        let which = self.rng.below(WANDERERS as u64) as usize;
        let (object, leaf) = (self.shared.scene.wanderers[which], name(&format!("wander{which}")));
        let to = match self.rng.below(4) {
            0 => self.directory(),
            _ => self.shared.scene.wanderers[self.rng.below(WANDERERS as u64) as usize],
        };
        let client = self.client.clone();
        let words = format!("move wandering directory {object} to {to}");
        let super::End::Done(attr) = self.run("getattr", &words, &[], client.getattr(object)).await else {
            return;
        };
        let moved = client.rename(attr.parent, &leaf, to, &leaf, RenameFlags::default());
        let refusals = [Status::NotFound, Status::Invalid, Status::NotEmpty];
        drop(self.run("rename", &words, &refusals, moved).await);
    }
}
