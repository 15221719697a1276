//! Space of the file system, summed over the servers that answer.

use crate::{Client, Error, Statfs};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Op, Status};

impl Client {
    /// Space and objects, summed over the servers that answer; all are asked at once.
    ///
    /// # Errors
    /// When none answers.
    pub async fn statfs(&self) -> Result<Statfs, Error> {
        let o = self.core.begin("statfs", None);
        let map = self.map();
        let asked = map.servers.iter().map(|info| self.core.ask(&o, info.id, vec![Op::Statfs {}]));
        let (mut sum, mut missing) = (None, None);
        for told in join_all(asked).await {
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    missing = Some(error);
                    continue;
                }
            };
            let Some(&Answer::Space { total, available, objects }) = told.answers.first() else {
                return Err(o.error(Status::BadMessage).because("no space in a server's answer"));
            };
            let sum: &mut Statfs = sum.get_or_insert_default();
            sum.total = sum.total.saturating_add(total);
            sum.available = sum.available.saturating_add(available);
            sum.objects = sum.objects.saturating_add(objects);
        }
        match (sum, missing) {
            (None, Some(error)) => Err(error),
            (sum, _) => Ok(sum.unwrap_or_default()),
        }
    }
}
