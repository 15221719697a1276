//! Requests of the free space of the file system.

use super::{End, Worker};

impl Worker {
    pub(super) async fn space(&mut self) {
        let client = self.client.clone();
        if let End::Done(space) = self.run("statfs", "statfs", &[], client.statfs()).await
            && (space.available > space.total || space.total == 0)
        {
            self.violation("statfs", format!("expected less available than there is, found {space:?}"));
        }
    }
}
