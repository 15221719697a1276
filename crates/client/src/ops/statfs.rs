//! Space of the file system, summed over its servers.

use crate::{Client, Error, Statfs};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Op, Status};

impl Client {
    /// Space and objects, summed over all servers, which are asked at once.
    ///
    /// # Errors
    /// When a server does not answer.
    pub async fn statfs(&self) -> Result<Statfs, Error> {
        let o = self.core.begin("statfs", None);
        let map = self.map();
        let asked = map.servers.iter().map(|info| self.core.ask(&o, info.id, vec![Op::Statfs {}]));
        let mut sum = Statfs::default();
        for told in join_all(asked).await {
            let Some(&Answer::Space { total, available, objects }) = told?.answers.first() else {
                return Err(o.error(Status::BadMessage).because("no space in a server's answer"));
            };
            sum.total = sum.total.saturating_add(total);
            sum.available = sum.available.saturating_add(available);
            sum.objects = sum.objects.saturating_add(objects);
        }
        Ok(sum)
    }
}
