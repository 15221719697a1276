//! How many objects and entries an operation makes, alters or removes: its cost in a database, however few
//! messages carry it.
//!
//! Reported to the environment as work; nothing else depends on it. PVFS keeps each object and each entry as
//! records of Berkeley DB; the small-file paper's augmented create "allocates a local metadata object and a
//! local data object to hold the first strip of data, then fills in the distribution function" (section
//! III.B): three, and the entry a fourth. Without stuffing it takes a datafile of each server out of a pool,
//! whose records are the handles, and they were made before, in batches. Ours makes a file in one operation:
//! entry, metafile, first strip. Contents are reported by their bytes.

use shoal_proto::{ClusterMap, Op, Roles};

/// Objects and entries, and those of them that are taken away.
pub(super) fn of(op: &Op, map: &ClusterMap) -> (u64, u64) {
    let switches = map.switches;
    let strip = u64::from(switches.stuffing);
    match op {
        Op::Createmeta { template, .. } if switches.precreate && !switches.stuffing => {
            let all = map.with_roles(Roles::DATA).count() as u64;
            let taken = if template.width == 0 { all } else { all.min(template.width.into()) };
            (2 + taken, 0)
        }
        Op::Create { .. } => (2 + strip, 0),
        Op::Createmeta { .. } => (1 + 2 * strip, 0),
        Op::Batchcreate { count, .. } => ((*count).into(), 0),
        Op::Mkdir { .. } => (2, 0),
        Op::Unlink { .. } => (2 + strip, 2 + strip),
        Op::Rmdir { .. } => (2, 2),
        Op::Rmdirent { .. } | Op::Removemeta { .. } | Op::Removedata { .. } => (1, 1),
        Op::Write { .. } | Op::Append { .. } | Op::Allocate { .. } | Op::Truncate { .. } => (0, 0),
        _ => (u64::from(op.changes()), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{
        CollectionId, Dist, Handle, Name, Owner, Rights, ServerId, ServerInfo, Switches, Template,
    };

    /// Four servers.
    fn map(switches: Switches) -> ClusterMap {
        let server = |id| ServerInfo::new(ServerId(id), Vec::new(), Roles::all());
        ClusterMap {
            fs_id: [0; 16],
            name: "test".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template { dist: Dist::Basic, width: 0 },
            switches,
            servers: (0..4).map(server).collect::<Vec<_>>().into(),
        }
    }

    #[test]
    fn an_augmented_create_makes_three_objects_and_the_baseline_s_one() {
        let name = Name::new(b"f").expect("a name");
        let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
        let (dir, open, template) = (Handle::ROOT, Rights::WRITE, Template::default());
        let op = Op::Createmeta { dir, name: name.clone(), owner, open, template };
        assert_eq!(of(&op, &map(Switches::BASELINE)), (1, 0));
        let precreate = Switches { precreate: true, ..Switches::BASELINE };
        assert_eq!(of(&op, &map(precreate)), (2 + 4, 0), "one of each server's pool");
        assert_eq!(of(&op, &map(Switches { stuffing: true, ..precreate })), (3, 0));
        assert_eq!(of(&Op::Rmdirent { dir, name }, &map(Switches::BASELINE)), (1, 1));
        assert_eq!(of(&Op::Ping {}, &map(Switches::BASELINE)), (0, 0));
    }
}
