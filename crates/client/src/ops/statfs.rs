//! Space of the file system, summed over the disks of the servers that answer.
//!
//! Servers of one machine often share a disk. Each of them answers with that disk's number, and the disk
//! counts once.

use crate::{Client, Error, Space};
use futures_util::future::join_all;
use shoal_proto::op::Answer;
use shoal_proto::{Op, Status};
use std::collections::BTreeMap;

impl Client {
    /// Space and objects, summed over the servers that answer; all are asked at once. A disk that several
    /// servers share counts once.
    ///
    /// # Errors
    /// When none answers.
    pub async fn statfs(&self) -> Result<Space, Error> {
        let o = self.core.begin("statfs", None);
        let map = self.map();
        let asked = map.servers.iter().map(|info| self.core.ask(&o, info.id, vec![Op::Statfs {}]));
        let (mut disks, mut answers, mut missing) = (Disks::default(), 0, None);
        for told in join_all(asked).await {
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    missing = Some(error);
                    continue;
                }
            };
            let Some(&Answer::Space { total, available, objects, disk }) = told.answers.first() else {
                return Err(o.error(Status::BadMessage).because("no space in a server's answer"));
            };
            disks.add(disk, Space { total, available, objects });
            answers += 1;
        }
        match missing {
            Some(error) if answers == 0 => Err(error),
            _ => Ok(disks.sum()),
        }
    }
}

/// Space by disk.
#[derive(Default)]
struct Disks {
    known: BTreeMap<u64, Space>,
    /// Of servers that name no disk: each has its own.
    others: Space,
}

impl Disks {
    fn add(&mut self, disk: u64, space: Space) {
        if disk == 0 {
            self.others = added(self.others, space);
            return;
        }
        let of = self.known.entry(disk).or_default();
        // Servers keep reserves of their own and ask the disk at different moments: the largest answer is
        // nearest.
        of.total = of.total.max(space.total);
        of.available = of.available.max(space.available);
        of.objects = of.objects.saturating_add(space.objects);
    }

    fn sum(&self) -> Space {
        self.known.values().copied().fold(self.others, added)
    }
}

fn added(sum: Space, other: Space) -> Space {
    Space {
        total: sum.total.saturating_add(other.total),
        available: sum.available.saturating_add(other.available),
        objects: sum.objects.saturating_add(other.objects),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(total: u64, available: u64) -> Space {
        Space { total, available, objects: 1 }
    }

    #[test]
    fn a_disk_that_several_servers_share_counts_once() {
        let mut disks = Disks::default();
        for (disk, of) in [(7, space(100, 40)), (7, space(100, 38)), (9, space(50, 50)), (7, space(100, 41))]
        {
            disks.add(disk, of);
        }
        assert_eq!(disks.sum(), Space { total: 150, available: 91, objects: 4 });
    }

    #[test]
    fn servers_that_name_no_disk_are_added_up() {
        let mut disks = Disks::default();
        disks.add(0, space(100, 40));
        disks.add(0, space(100, 40));
        disks.add(3, space(u64::MAX, u64::MAX));
        assert_eq!(disks.sum(), Space { total: u64::MAX, available: u64::MAX, objects: 3 });
    }
}
